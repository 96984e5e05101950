"""assay ab status: is a verdict still about the files in the tree?

Apart from ab.py, which takes three times as long to load.
"""

import os
from pathlib import Path

import click
import msgspec

from assay.cli.help import examples
from assay.cli.output import echo_folded
from assay.cli.parameters import OutFolder, help_option
from assay.errors import InputError
from assay.pipeline.experiment_status import NOT_JUDGED, STALE, experiment_status
from assay.records.text import visible_line
from assay.report.experiment import edit_lines


@click.command(
    "status",
    short_help="Say whether verdicts are still about the files in the tree.",
    epilog=examples(
        "assay ab status",
        "assay ab status -o experiments",
    ),
)
@click.argument("names", nargs=-1)
@click.option(
    "-o",
    "--output",
    "root",
    type=OutFolder(),
    default="experiments",
    metavar="DIR",
    help="The folder of the experiments. Default: experiments.",
)
@click.option(
    "--check",
    is_flag=True,
    help="Exit with code 3 if a verdict is stale, and with 4 if there is none or it is invalid.",
)
@click.option("--json", "as_json", is_flag=True, help="Print what was found as JSON.")
@help_option
def status(names: tuple[str, ...], root: Path, *, check: bool, as_json: bool) -> None:
    """Say for each experiment of this folder, or for those in NAMES, whether its last verdict is
    about the files as they are now. Nothing is run.
    """
    is_there = os.access(root, os.F_OK) and root.is_dir()
    known = sorted(path.name for path in root.iterdir() if path.is_dir()) if is_there else []
    unknown = [name for name in names if name not in known]
    if unknown:
        msg = f"there is no experiment {unknown[0]!r} in {root}"
        hint = f"there are: {', '.join(known)}" if known else "run assay ab first"
        raise InputError(msg, hint=hint)
    found = [experiment_status(root / name) for name in names or known]
    if as_json:
        click.echo(msgspec.json.format(msgspec.json.encode(found), indent=2).decode())
    else:
        for number, one in enumerate(found):
            if number:
                click.echo()
            echo_folded(visible_line(f"{one.name}: {one.status}: {one.words}"))
            for arm, looks in one.edits.items():
                for line in edit_lines(arm, looks) if len(looks) > 1 else ():
                    click.echo(visible_line(line))
        if not found:
            click.echo(f"There are no experiments in {root}.")
    codes = {one.code for one in found} or {NOT_JUDGED}
    if check and (worst := STALE if STALE in codes else max(codes)):
        raise click.exceptions.Exit(worst)
