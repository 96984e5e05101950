"""assay trials: every prompt several times, for pass@k, or until a gate is decided."""

import os
import time
from getpass import getuser
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec

from assay.cli.batch import RunDisplay, capture_request, plan_run, run_batch
from assay.cli.help import CACHE, PRICES, examples, variables
from assay.cli.options import (
    CaptureOptions,
    agent_options,
    benchmark_options,
    executor_options,
    grader_options,
    output_options,
    regrade_options,
    run_options,
    text_agent_options,
    with_options,
)
from assay.cli.output import echo_folded, refuse_inputs
from assay.cli.parameters import (
    InFile,
    Number,
    calibration_option,
    help_option,
    repeats_option,
    stdin_option,
)
from assay.cli.program import ProgramCommand, say_program
from assay.pipeline.run import Batch
from assay.records.experiment import RETRIES

if TYPE_CHECKING:
    from assay.pipeline.gate import TrialsGate

LATEST = "latest"


class TrialsOptions(CaptureOptions, frozen=True, kw_only=True):
    k: int
    until: str | None
    against: Path | None
    margin: float
    seed: int | None
    anchor: str | None
    accept_changes: str | None
    judge: Path | None
    allocate: Path | None
    overlap: bool


@click.command(
    cls=ProgramCommand,
    short_help="Run every prompt several times, to measure pass@k.",
    epilog=variables(*PRICES, *CACHE)
    + examples(
        "assay trials evals/prompts.jsonl -s demo:flaky -g contains -k 3 -o before.jsonl",
        "assay trials evals/prompts.jsonl -s demo:better -g contains -k 3 -j 4 -o after.jsonl",
        "assay trials evals/prompts.jsonl -s demo:better -g contains --until decided "
        "--against before.jsonl --margin 0.4 -o gate.jsonl",
    ),
)
@click.argument("prompts", nargs=-1, metavar="PROMPTS [PROGRAM ARGS...]")
@with_options(agent_options, text_agent_options, output_options, grader_options, regrade_options)
@repeats_option("Run each prompt N times; with --until decided, at most N times. Default: 5.")
@click.option(
    "--until",
    type=click.Choice(["decided"]),
    help="Start no more trials once it is decided whether the agent is worse than --against: exit "
    "code 0 if it is not, 3 if it is, 4 if all trials leave it open. Default: run all trials.",
)
@click.option(
    "--against",
    type=InFile(exists=True),
    metavar="FILE",
    help="Compare with this earlier run, for --until decided: a result file of capture or trials, "
    "or a baseline.",
)
@click.option(
    "--margin",
    type=Number(0, 1, min_open=True, max_open=True),
    default=0.02,
    metavar="RATE",
    help="Smallest loss in pass rate that --until decided must find. Default: 0.02.",
)
@click.option(
    "--seed",
    type=click.IntRange(min=0),
    metavar="N",
    help="Random seed for the order in which --until decided starts the prompts; it is in the rows "
    "as orderSeed, and --resume keeps it. Default: the time, so that every run has another order.",
)
@click.option(
    "--anchor",
    is_flag=False,
    flag_value=LATEST,
    metavar="[NAME|FILE]",
    help="Compare with this anchor of the baseline, too, for --until decided: both gates must "
    "pass. Without a name: the newest. Default: no anchor.",
)
@click.option(
    "--accept-changes",
    is_flag=False,
    flag_value="",
    metavar="[WHO]",
    help="Accept prompts and graders that differ from those of --against: the other prompts are "
    "judged, and WHO is written down, by default GITHUB_ACTOR or the user. Default: judge without "
    "a tenth of the prompts at most, and otherwise refuse.",
)
@calibration_option
@click.option(
    "--allocate",
    type=InFile(exists=True),
    metavar="FILE",
    help="Run prompts whose results vary in this baseline, or earlier run, more often than those "
    "that always pass or fail, which are run at least once; -k is the mean. Default: run all "
    "prompts equally often.",
)
@click.option(
    "--overlap",
    is_flag=True,
    help="With -j, run trials of the same prompt at the same time even if they work in the same "
    "folder. By default, they run one after another there, beside trials of other prompts.",
)
@stdin_option
@with_options(benchmark_options, run_options, executor_options)
@help_option
@click.pass_context
def command(ctx: click.Context, /, **values: Any) -> None:
    """Run every prompt in the file PROMPTS k times and write one JSON line per prompt.

    Each line holds all trials of its prompt. With -j, trials of the same prompt run at the same
    time if each has a workspace of its own, and each is saved as soon as it has finished. The agent
    is given as for assay capture.
    """
    options = TrialsOptions(**values)
    _check_usage(options)
    if options.until and options.retries is None:
        options = msgspec.structs.replace(options, retries=RETRIES)
    request = msgspec.structs.replace(
        capture_request(ctx, options),
        k=options.k,
        allocate=options.allocate,
        overlap=options.overlap,
    )
    batch = plan_run(request, options)
    say_program(ctx, options)
    gate = _open_gate(options, batch)
    display = run_batch(batch, options, gate)
    if gate and not gate.is_over() and gate.n_to_repeat:
        # What was lost is tried once more, later than a retry would have been.
        echo_folded(f"{gate.n_to_repeat} trials were not measured; they run again.", err=True)
        again = plan_run(msgspec.structs.replace(request, mode="resume"), options)
        gate = _open_gate(options, again)
        display = run_batch(again, options, gate)
    if gate:
        _conclude(display, gate, options)
    else:
        display.conclude()


def _check_usage(options: TrialsOptions) -> None:
    if (options.until is None) != (options.against is None):
        msg = "--until decided and --against FILE need each other."
        raise click.UsageError(msg)
    if options.until is None and (options.anchor is not None or options.accept_changes is not None):
        msg = "--anchor and --accept-changes need --until decided."
        raise click.UsageError(msg)
    if options.until and options.output is None:
        msg = "--until decided needs -o FILE."
        raise click.UsageError(msg)
    refuse_inputs(options.output, options.against, options.allocate)


def _open_gate(options: TrialsOptions, batch: Batch) -> "TrialsGate | None":
    """Read what the trials are compared with, before any of them runs."""
    if options.against is None or options.output is None:
        return None
    if not batch.graders:
        msg = "--until decided needs a grader. Use -g GRADER."
        raise click.UsageError(msg)
    from assay.pipeline.gate import GateRequest, TrialsGate  # late: numpy

    who = options.accept_changes
    request = GateRequest(
        against=options.against,
        output=options.output,
        margin=options.margin,
        specs=batch.specs,
        graders=batch.graders,
        chosen=bool(options.filters) or options.limit is not None,
        anchor=options.anchor,
        judge=options.judge,
        seed=int(time.time()) if options.seed is None else options.seed,
        accepted_by=None if who is None else who or os.environ.get("GITHUB_ACTOR") or getuser(),
    )
    gate = TrialsGate(request)
    for note in gate.notes:
        echo_folded(note, err=True)
    return gate


def _conclude(display: RunDisplay, gate: "TrialsGate", options: TrialsOptions) -> None:
    """Print how the trials and the gate went; a gate that is decided sets the exit code."""
    failed = 0
    try:
        display.conclude(ended_early=gate.is_over())
    except click.exceptions.Exit as problem:
        failed = problem.exit_code
    code, line, notes = gate.conclude()
    for words in (*notes, line) if code or not options.quiet else notes:
        echo_folded(words, err=True)
    # A gate that could not be judged says so, whatever kept it from being judged.
    code = code or failed
    if code:
        raise click.exceptions.Exit(code)
