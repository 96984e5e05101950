"""assay trials: every prompt several times, for pass@k, or until a gate is decided."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from assay.cli.batch import Allocate, CommandBatch, Repeats, plan_captures
from assay.cli.group import CACHE, PRICES, examples, variables
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
from assay.cli.output import open_sink, refuse_inputs
from assay.cli.parameters import (
    InFile,
    Number,
    WithProgram,
    help_option,
    repeats_option,
    stdin_option,
)
from assay.cli.progress import Progress
from assay.pipeline.batch import run_batch
from assay.pipeline.trials import TrialRows
from assay.records.capture import Allocation

if TYPE_CHECKING:
    from assay.cli.gate import TrialsGate


class TrialsOptions(CaptureOptions, frozen=True, kw_only=True):
    k: int
    until: str | None
    against: Path | None
    margin: float
    allocate: Path | None


@click.command(
    cls=WithProgram,
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
    "--allocate",
    type=InFile(exists=True),
    metavar="FILE",
    help="Run prompts whose results vary in this baseline, or earlier run, more often than those "
    "that always pass or fail, which are run at least once; -k is the mean. Default: run all "
    "prompts equally often.",
)
@stdin_option
@with_options(benchmark_options, run_options, executor_options)
@help_option
@click.pass_context
def command(ctx: click.Context, /, **values: Any) -> None:
    """Run every prompt in the file PROMPTS k times and write one JSON line per prompt.

    Each line holds all trials of its prompt. Trials of the same prompt may run at the same time,
    and each is saved as soon as it has finished. The agent is given as for assay capture.
    """
    options = TrialsOptions(**values)
    _check_usage(options)
    planned, work = plan_captures(ctx, options, Repeats(options.k, _allocator(options)))
    gate = _open_gate(options, planned)
    mode, resume = planned.mode, planned.resume
    with (
        open_sink(options.output, mode, kind="trials", resume=resume) as sink,
        TrialRows(sink, options.output, mode, resume) as rows,
    ):
        stopper = gate.stopper(rows) if gate else None
        place = planned.place()
        progress = run_batch(planned.batch, work, rows, planned.show, place, stopper)
        if gate:  # also if the money ran out: what was graded can be reported
            gate.finish()
            rows.settle()
    if gate:
        _conclude(planned, progress, gate)
    else:
        planned.conclude(progress)


def _check_usage(options: TrialsOptions) -> None:
    if (options.until is None) != (options.against is None):
        msg = "--until decided and --against FILE need each other."
        raise click.UsageError(msg)
    if options.until and options.output is None:
        msg = "--until decided needs -o FILE."
        raise click.UsageError(msg)
    refuse_inputs(options.output, options.against, options.allocate)


def _allocator(options: TrialsOptions) -> Allocate | None:
    """Return what gives each prompt its number of trials, if they are not all alike."""
    path = options.allocate
    if path is None:
        return None
    from assay.pipeline.baseline import allocate  # late: numpy

    def allocated(ids: list[str]) -> Mapping[str, Allocation]:
        given = allocate(path, ids, options.k)
        if not options.quiet and not options.as_json and given:
            once = sum(each.trials == 1 for each in given.values())
            most = max(each.trials for each in given.values())
            total = sum(each.trials for each in given.values())
            click.echo(
                f"Allocated {total} trials by the spread in {path}: {once} of {len(given)} prompts "
                f"get one, the others up to {most}",
                err=True,
            )
        return given

    return allocated


def _open_gate(options: TrialsOptions, planned: CommandBatch) -> "TrialsGate | None":
    """Read what the trials are compared with, before any of them runs."""
    if options.against is None or options.output is None:
        return None
    if not planned.resume.graders:
        msg = "--until decided needs a grader. Use -g GRADER."
        raise click.UsageError(msg)
    from assay.cli.gate import TrialsGate  # late: numpy

    chosen = bool(options.filters) or options.limit is not None
    specs = planned.batch.specs
    return TrialsGate(options.against, options.output, options.margin, specs, chosen=chosen)


def _conclude(planned: CommandBatch, progress: Progress, gate: "TrialsGate") -> None:
    """Print how the trials and the gate went; a gate that is decided sets the exit code."""
    failed = 0
    try:
        planned.conclude(progress, ended_early=gate.is_over())
    except click.exceptions.Exit as problem:
        failed = problem.exit_code
    code, line = gate.conclude()
    if planned.tells(code):
        click.echo(line, err=True)
    # A gate that could not be judged says so, whatever kept it from being judged.
    code = code or failed
    if code:
        raise click.exceptions.Exit(code)
