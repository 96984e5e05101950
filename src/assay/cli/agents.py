"""assay agents: the known agents, and what is captured of them."""

from concurrent.futures import ThreadPoolExecutor
from functools import partial

import click
import msgspec

from assay import plugins
from assay.adapters.vendor import ACP_AGENTS, KNOWN
from assay.cli.help import COLOUR, examples, variables
from assay.cli.output import echo_folded, echo_raw
from assay.cli.parameters import debug_option, help_option
from assay.pipeline.agents import TEXT_AGENTS
from assay.pipeline.identity import look_for
from assay.records.text import visible_line

_PATIENCE_S = 0.6
"""A list that takes longer than a second is not looked at."""


@click.command(
    short_help="List the known agents: installed or not, and what is captured.",
    epilog=variables(*COLOUR)
    + examples(
        "assay agents",
        "assay agents --json",
    ),
)
@click.option("--json", "as_json", is_flag=True, help="Print the list as JSON.")
@debug_option
@help_option
def command(*, as_json: bool, debug: bool) -> None:
    """List the agents that -s accepts by name, whether they are installed, and what is captured."""
    # Side by side: a program may take seconds to say its version.
    agents = (*KNOWN, *ACP_AGENTS)
    with ThreadPoolExecutor(len(agents)) as pool:
        found = list(pool.map(partial(look_for, patience_s=_PATIENCE_S), agents))
    if as_json:
        click.echo(msgspec.json.format(msgspec.json.encode(found), indent=2).decode())
        return
    for row in found:
        version = f"version {row['version']}" if row["version"] else "installed"
        state = version if row["installed"] else f"not installed: {row['install']}"
        echo_raw(visible_line(f"{row['name']:10} {state}"), bold=row["installed"])
        for note in row["notes"]:
            echo_folded(f"           {note}")
        verb = "tried" if row["acp"] else "tested with"
        echo_folded(f"           {verb} {', '.join(row['tested'])}; cost {row['cost']}")
        if row["acp"]:
            words = " ".join((row["program"], *row["acp"]))
            echo_folded(f"           runs {words} (ACP); tried was {row['tried']}")
        echo_folded(f"           needs: {row['login']}")
        echo_folded(
            f"           thoughts: {row['thoughts']}; tool output: {row['toolOutput']}; "
            f"tokens: {row['tokens']}"
        )
    named = {*(agent.name for agent in agents), "declared", *TEXT_AGENTS}
    others = [name for name in plugins.names("assay.adapters") if name not in named]
    echo_folded(f"also: {', '.join(others)} (acp:COMMAND runs any agent that speaks ACP),")
    echo_folded("      and any schema file: docs/adapters.md")
