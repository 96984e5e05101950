"""assay clean: remove what earlier runs have left on disk."""

import time
from collections import Counter
from pathlib import Path

import click

from assay.cli.help import CACHE, examples, variables
from assay.cli.output import echo_raw
from assay.cli.parameters import Age, debug_option, help_option
from assay.records.text import shown_size, visible_line
from assay.run.cleaning import leftovers


@click.command(
    short_help="Remove workspaces and caches that earlier runs have left.",
    epilog=variables(*CACHE)
    + examples(
        "assay clean --dry-run",
        "assay clean --older-than 7d",
    ),
)
@click.argument(
    "folders",
    nargs=-1,
    metavar="[DIR]...",
    type=click.Path(path_type=Path, exists=True, file_okay=False),
)
@click.option(
    "--older-than",
    type=Age(),
    metavar="AGE",
    help="Remove only what was made longer ago than this, as in 7d, 12h, 30m or 2w. "
    "Default: everything.",
)
@click.option("--dry-run", is_flag=True, help="Only say what would be removed.")
@debug_option
@help_option
def command(
    folders: tuple[Path, ...], *, older_than: float | None, dry_run: bool, debug: bool
) -> None:
    """Remove what Assay made and no run uses any more: workspaces of trials, copies of templates
    that killed runs have left, images that were built for tasks, and caches. Results are never
    touched.

    Workspaces are looked for in the cache folder, and in each DIR that runs were told to make
    them in. There, only folders are removed that Assay made. Rows whose workspaces are gone
    can no longer be graded by what is in them.
    """
    latest_s = time.time() - (older_than or 0)
    n_found: Counter[str] = Counter()
    n_bytes: Counter[str] = Counter()
    failed = []
    for one in leftovers(folders):
        if one.made_s > latest_s:
            continue
        size = one.n_bytes
        if not dry_run and not one.remove():
            failed.append(one.path)
            continue
        n_found[one.kind] += 1
        n_bytes[one.kind] += size
    verb = "Would remove" if dry_run else "Removed"
    for kind, n in n_found.items():
        click.echo(f"{verb} {kind}: {n} ({shown_size(n_bytes[kind])})")
    if not n_found:
        click.echo("There is nothing to remove.")
    for path in failed:
        echo_raw(f"Cannot remove {visible_line(str(path))}", err=True)
    if failed:
        raise click.exceptions.Exit(1)
