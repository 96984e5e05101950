"""assay run: prompts in, raw output out."""

from typing import Any

import click

from assay.cli.batch import CommandBatch, debug_trace, prompt_file
from assay.cli.group import CACHE, examples, variables
from assay.cli.options import (
    BatchOptions,
    agent_options,
    agent_ref,
    output_options,
    run_options,
    text_agent_options,
    with_options,
)
from assay.cli.output import open_sink
from assay.cli.parameters import WithSandbox, help_option
from assay.pipeline.batch import run_batch
from assay.pipeline.stages import RunTrial


@click.command(
    cls=WithSandbox,
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
    # The rows hold the lines themselves, so raw streams are kept only where a folder is named.
    planned = CommandBatch(options, agent, source, keep_raw=False, turns_alone=True)
    with open_sink(options.output, planned.mode, kind="run", resume=planned.resume) as sink:
        work = RunTrial(options.retries, debug_trace(options), options.max_cost is not None)
        progress = run_batch(planned.batch, work, sink, planned.show, planned.place())
    planned.conclude(progress)
