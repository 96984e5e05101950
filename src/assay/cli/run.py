"""assay run: prompts in, raw output out."""

from contextlib import closing
from typing import Any

import click

from assay.cli.batch import Batch
from assay.cli.group import examples
from assay.cli.options import (
    agent_options,
    agent_ref,
    output_options,
    run_options,
    with_options,
)
from assay.cli.output import open_sink
from assay.cli.parameters import prompt_path
from assay.pipeline.stages import run_all
from assay.records.rows import encode_row
from assay.records.spec import PluginRef


@click.command(
    short_help="Run prompts and write the agent's raw output.",
    epilog=examples(
        "assay run evals/prompts.jsonl -s demo -o raw.jsonl",
        "assay run evals/prompts.jsonl --simple 'echo {}' -o echo.jsonl",
        "assay run evals/prompts.jsonl --shell 'echo \"$PROMPT\" | wc -w' -o words.jsonl",
    ),
)
@click.argument("prompts", nargs=-1)
@with_options(agent_options)
@click.option(
    "--simple",
    metavar="COMMAND",
    help="Run this command, with {} replaced by the prompt; no shell is involved.",
)
@click.option(
    "--shell",
    metavar="COMMAND",
    help='Run this shell command, with the prompt in the variable "$PROMPT".',
)
@with_options(output_options, run_options)
@click.help_option("-h", "--help")
def command(**options: Any) -> None:
    """Run every prompt in the file PROMPTS (default: stdin) and keep the raw output.

    Writes one JSON line per trial, which `assay extract` turns into a trajectory.
    """
    agent = _agent(options)
    path = prompt_path(options["prompts"], from_stdin=not options["prompts"])
    # The rows hold the lines themselves, so raw streams are kept only where a folder is named.
    batch = Batch(path, agent, options, keep_raw=False)
    with open_sink(batch.output, batch.mode) as sink:
        batch.clear_leftovers()
        specs = sink.missing(batch.specs) if batch.mode == "resume" else batch.specs
        with batch.progress(specs) as progress:
            items = batch.affordable(specs, progress)
            with closing(run_all(items, batch.executor(specs), options["retries"])) as done:
                for spec, row in done:
                    sink.append(encode_row(row, spec.extra))
                    progress.finished(row.id, row.failure or None, row.timing.total, None)
    batch.conclude(progress, specs)


def _agent(options: dict[str, Any]) -> PluginRef:
    if options["schema"]:
        return agent_ref(options)
    for name in ("simple", "shell"):
        if options[name]:
            return PluginRef(name=name, options={"template": options[name]})
    msg = "No agent given. Use -s SCHEMA, --simple COMMAND or --shell COMMAND."
    raise click.UsageError(msg)
