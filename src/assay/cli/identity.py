"""assay identity: what was measured, and how two measurements differ in it."""

from pathlib import Path

import click
import msgspec

from assay.cli.help import examples
from assay.cli.output import echo_folded
from assay.cli.parameters import debug_option, help_option
from assay.pipeline.identities import SetupDescription, describe, differing, not_recorded
from assay.records.text import visible_line
from assay.report.identity import identity_tree


@click.command(
    short_help="Show what runs and arms are made of, and how they differ.",
    epilog=examples(
        "assay identity results.jsonl",
        "assay identity before.jsonl after.jsonl",
        "assay identity results.jsonl --json",
    ),
)
@click.argument("path", type=click.Path(path_type=Path))
@click.argument("other", required=False, type=click.Path(path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="Print what was found as JSON.")
@debug_option
@help_option
def command(path: Path, other: Path | None, *, as_json: bool, debug: bool) -> None:
    """Show what the agent, its surroundings and the graders were in PATH: a file of capture, trials
    or baseline, the folder of an experiment (its last run), or an experiment.toml (as it is now).

    With OTHER, say in words what differs there. Contents stand as hashes. What may decide an answer
    and cannot be known stands under "not covered".
    """
    one = describe(path)
    if other is None:
        _show(one, as_json=as_json)
        return
    two = describe(other)
    found, unknown = differing(one, two), not_recorded(one, two)
    if as_json:
        told = {"same": not found, "differences": found, "notCompared": unknown}
        click.echo(msgspec.json.format(msgspec.json.encode(told), indent=2).decode())
        return
    for words in found or [f"{path} and {other} are made of the same"]:
        echo_folded(visible_line(words))
    for words in unknown:
        echo_folded(visible_line(words), err=True)


def _show(one: SetupDescription, *, as_json: bool) -> None:
    if as_json:
        told = {"path": str(one.path), "arms": one.made_of.arms, "prompts": one.made_of.prompts}
        click.echo(msgspec.json.format(msgspec.json.encode(told), indent=2).decode())
        return
    for name, identity in one.made_of.arms.items():
        for line in identity_tree(name, identity):
            click.echo(visible_line(line))
