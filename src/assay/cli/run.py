"""assay run: prompts in, raw output out."""

from typing import Any

import click
import msgspec

from assay.cli.batch import plan_run, prompt_file, run_batch
from assay.cli.help import CACHE, examples, variables
from assay.cli.options import (
    BatchOptions,
    agent_options,
    agent_ref,
    output_options,
    run_options,
    run_request,
    text_agent_options,
    with_options,
)
from assay.cli.parameters import SandboxCommand, help_option


@click.command(
    cls=SandboxCommand,
    short_help="Run prompts and write the agent's raw output.",
    epilog=variables(*CACHE)
    + examples(
        "assay run evals/prompts.jsonl -s demo -o raw.jsonl",
        "assay run evals/prompts.jsonl --simple 'echo {}' -o echo.jsonl",
        "assay run evals/prompts.jsonl --shell 'echo \"$PROMPT\" | wc -w' -o words.jsonl",
    ),
)
@click.argument("prompts", nargs=-1)
@with_options(agent_options, text_agent_options, output_options, run_options)
@help_option
def command(**values: Any) -> None:
    """Run every prompt in the file PROMPTS (default: stdin) and keep the raw output.

    Writes one JSON line per trial, which `assay extract` turns into a trajectory.
    """
    options = BatchOptions(**values)
    agent = agent_ref(options)
    source = prompt_file(options.prompts, from_stdin=not options.prompts)
    request = msgspec.structs.replace(run_request(options, agent, source), raw_rows=True)
    run_batch(plan_run(request, options), options).conclude()
