"""assay run: prompts in, raw output out."""

from typing import Any

import click

from assay.cli.options import (
    agent_options,
    agent_ref,
    output_mode,
    output_options,
    run_options,
    setting,
    with_options,
)
from assay.cli.progress import Progress
from assay.cli.prompt_source import prompt_path
from assay.cli.sink import open_sink
from assay.executors.local import LocalExecutor
from assay.pipeline import end_leftovers, run_all
from assay.prompts.plan import folder_names, plan
from assay.prompts.prompt_file import choose, read_prompts
from assay.records.jsonl import encode_row
from assay.records.trial import PluginRef


@click.command(short_help="Run prompts and write the agent's raw output.")
@click.argument("prompts", nargs=-1)
@with_options(agent_options)
@click.option("--simple", metavar="COMMAND", help="Command with {} for the prompt; no shell.")
@click.option("--shell", metavar="COMMAND", help='Shell command with the prompt in "$PROMPT".')
@with_options(output_options, run_options)
@click.help_option("-h", "--help")
def command(**options: Any) -> None:
    """Run every prompt of PROMPTS (stdin if none); write one raw row per trial for extract."""
    agent = _agent(options)
    path = prompt_path(options["prompts"], from_stdin=not options["prompts"])
    mode = output_mode(options)
    # The rows hold the lines themselves, so raw streams are kept only where a folder is named.
    shared = setting(agent, options, keep_raw=False)
    rows = read_prompts(path)
    names = folder_names(prompt.id for prompt, _ in rows)
    specs = plan(choose(rows, options["filters"], options["limit"]), names, shared)
    with open_sink(options["output"], mode) as sink:
        if mode == "resume":
            end_leftovers(shared.run_token)
            specs = sink.missing(specs)
        with Progress(len(specs), plain=options["progress"], quiet=options["quiet"]) as progress:
            executor = LocalExecutor(min(options["concurrency"], max(len(specs), 1)))
            for spec, row in run_all(specs, executor, options["retries"]):
                sink.append(encode_row(row, spec.extra))
                progress.finished(row.id, row.failure or None, row.timing.total, None)


def _agent(options: dict[str, Any]) -> PluginRef:
    if options["schema"]:
        return agent_ref(options)
    for name in ("simple", "shell"):
        if options[name]:
            return PluginRef(name=name, options={"template": options[name]})
    msg = "which agent? give -s SCHEMA, --simple COMMAND or --shell COMMAND"
    raise click.UsageError(msg)
