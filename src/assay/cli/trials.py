"""assay trials: every prompt several times, for pass@k."""

from typing import Any

import click

from assay.cli.batch import plan_captures
from assay.cli.options import (
    CaptureOptions,
    agent_options,
    benchmark_options,
    grader_options,
    output_options,
    run_options,
    with_options,
)
from assay.cli.output import open_sink
from assay.cli.parameters import AfterDashes
from assay.pipeline.batch import run_batch
from assay.pipeline.trials import TrialRows


class TrialsOptions(CaptureOptions, frozen=True, kw_only=True):
    """What only trials takes."""

    k: int


@click.command(cls=AfterDashes, short_help="Run every prompt several times, for pass@k.")
@click.argument("prompts", nargs=-1)
@with_options(agent_options, output_options, grader_options)
@click.option(
    "-k", "--k", "k", type=click.IntRange(min=1), default=5, help="Trials of each prompt; 5."
)
@click.option("--stdin", "from_stdin", is_flag=True, help="Read the prompts from stdin.")
@with_options(benchmark_options, run_options)
@click.help_option("-h", "--help")
@click.pass_context
def command(ctx: click.Context, /, **values: Any) -> None:
    """Run every prompt of PROMPTS k times; write one JSON line per prompt with all its trials.

    Trials of one prompt may run side by side, and each is on disk as soon as it has finished.
    """
    options = TrialsOptions(**values)
    planned, work = plan_captures(ctx, options, options.k)
    mode, graded = planned.mode, bool(work.graders)
    with (
        open_sink(options.output, mode, k=options.k) as sink,
        TrialRows(sink, options.output, mode, options.k, graded=graded) as rows,
    ):
        progress = run_batch(planned.batch, work, rows, planned.show)
    planned.conclude(progress)
