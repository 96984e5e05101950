"""assay trials: every prompt several times, for pass@k."""

from typing import Any

import click

from assay.cli.batch import plan_captures
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
from assay.cli.output import open_sink
from assay.cli.parameters import WithProgram, help_option, stdin_option
from assay.pipeline.batch import run_batch
from assay.pipeline.trials import TrialRows


class TrialsOptions(CaptureOptions, frozen=True, kw_only=True):
    k: int


@click.command(
    cls=WithProgram,
    short_help="Run every prompt several times, to measure pass@k.",
    epilog=variables(*PRICES, *CACHE)
    + examples(
        "assay trials evals/prompts.jsonl -s demo:flaky -g contains -k 3 -o before.jsonl",
        "assay trials evals/prompts.jsonl -s demo:better -g contains -k 3 -j 4 -o after.jsonl",
    ),
)
@click.argument("prompts", nargs=-1, metavar="PROMPTS [PROGRAM ARGS...]")
@with_options(agent_options, text_agent_options, output_options, grader_options, regrade_options)
@click.option(
    "-k",
    "--k",
    "k",
    type=click.IntRange(min=1),
    default=5,
    metavar="N",
    help="Run each prompt N times. Default: 5.",
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
    planned, work = plan_captures(ctx, options, options.k)
    mode, resume = planned.mode, planned.resume
    with (
        open_sink(options.output, mode, kind="trials", resume=resume) as sink,
        TrialRows(sink, options.output, mode, resume) as rows,
    ):
        progress = run_batch(planned.batch, work, rows, planned.show, planned.place())
    planned.conclude(progress)
