"""assay capture: prompts in, full trajectories out."""

from typing import Any

import click

from assay.cli.batch import plan_captures
from assay.cli.group import CACHE, PRICES, examples, variables
from assay.cli.options import (
    CaptureOptions,
    agent_options,
    benchmark_options,
    grader_options,
    output_options,
    regrade_options,
    run_options,
    with_options,
)
from assay.cli.output import open_sink
from assay.cli.parameters import AfterDashes, help_option, stdin_option
from assay.pipeline.batch import run_batch


@click.command(
    cls=AfterDashes,
    short_help="Run prompts against an agent and record full trajectories.",
    epilog=variables(*PRICES, *CACHE)
    + examples(
        "assay capture evals/prompts.jsonl -s demo -g evals/grader.py -o results.jsonl",
        "assay capture evals/prompts.jsonl -s demo -g evals/grader.py -o results.jsonl --resume",
        "assay capture evals/prompts.jsonl -j 4 -o acp.jsonl -- assay headless -s demo",
    ),
)
@click.argument("prompts", nargs=-1)
@with_options(agent_options, output_options, grader_options, regrade_options)
@stdin_option
@with_options(benchmark_options, run_options)
@help_option
@click.pass_context
def command(ctx: click.Context, /, **values: Any) -> None:
    """Run every prompt in the file PROMPTS against an agent and write one JSON line per trial.

    The agent is a schema file or the name of an adapter (-s), or a command after -- that
    speaks the Agent Client Protocol on stdio.
    """
    options = CaptureOptions(**values)
    planned, work = plan_captures(ctx, options)
    with open_sink(options.output, planned.mode, resume=planned.resume) as sink:
        progress = run_batch(planned.batch, work, sink, planned.show, planned.place())
    planned.conclude(progress)
