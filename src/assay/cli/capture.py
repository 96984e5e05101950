"""assay capture: prompts in, full trajectories out."""

from typing import Any

import click

from assay.cli.batch import capture_request, plan_run, run_batch
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
from assay.cli.parameters import help_option, stdin_option
from assay.cli.program import ProgramCommand, say_program


@click.command(
    cls=ProgramCommand,
    short_help="Run prompts against an agent and record full trajectories.",
    epilog=variables(*PRICES, *CACHE)
    + examples(
        "assay capture evals/prompts.jsonl -s demo -g evals/grader.py -o results.jsonl",
        "assay capture evals/prompts.jsonl --simple 'echo {}' -g contains -o echo-rows.jsonl",
        "assay capture evals/prompts.jsonl assay headless --schema demo -j 4 -o acp.jsonl",
    ),
)
@click.argument("prompts", nargs=-1, metavar="PROMPTS [PROGRAM ARGS...]")
@with_options(agent_options, text_agent_options, output_options, grader_options, regrade_options)
@stdin_option
@with_options(benchmark_options, run_options, executor_options)
@help_option
@click.pass_context
def command(ctx: click.Context, /, **values: Any) -> None:
    """Run every prompt in the file PROMPTS against an agent and write one JSON line per trial.

    The agent is a schema file or the name of an adapter (-s), a command that prints its answer
    (--simple, --shell), or a program that speaks the Agent Client Protocol on stdio and is named
    after PROMPTS. What follows it is the program's, except for options of this command that do not
    describe an agent, such as -o. After -- everything is the program's.
    """
    options = CaptureOptions(**values)
    batch = plan_run(capture_request(ctx, options), options)
    say_program(ctx, options)
    run_batch(batch, options).conclude()
