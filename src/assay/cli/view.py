"""assay view: look at runs in a browser, live while they are written."""

import webbrowser
from functools import partial
from pathlib import Path
from typing import Any

import click
import msgspec

from assay.cli.help import CACHE, EDITOR, examples, variables
from assay.cli.parameters import (
    category_option,
    debug_option,
    help_option,
    margin_option,
    seed_option,
)
from assay.cli.runs import name_runs
from assay.compare.names import Named
from assay.compare.report import CompareOptions
from assay.errors import InputError, PluginError
from assay.records.text import counted_noun
from assay.viewer.index import indexed_size
from assay.viewer.library import Library
from assay.viewer.prepare import BIG, prepare_in_child
from assay.viewer.service import ViewerService


class _Options(msgspec.Struct, frozen=True, kw_only=True):
    paths: tuple[str, ...]
    port: int
    open_page: bool
    labels: Path | None
    category_key: str
    margin: float
    seed: int
    debug: bool


@click.command(
    short_help="Show runs in a browser, live while they are written.",
    epilog=variables(*CACHE, *EDITOR)
    + examples(
        "assay view results.jsonl",
        "assay view before.jsonl after.jsonl --open",
        "assay view .",
    ),
)
@click.argument("paths", nargs=-1, required=True)
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=0,
    metavar="N",
    help="Port to listen on. Default: 0, which picks a free port.",
)
@click.option("--open", "open_page", is_flag=True, help="Open the page in your browser.")
@click.option(
    "--labels",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Write the labels set on the page to this file. "
    "Default: results.labels.jsonl beside results.jsonl.",
)
@category_option
@margin_option
@seed_option
@debug_option
@help_option
def command(**given: Any) -> None:
    """Serve the runs in PATHS (result files, LABEL:FILE, or folders) on 127.0.0.1 until Ctrl-C.

    Several files are compared. For a folder, the page lists the runs in it. On the page Label
    you can label results for `assay calibrate --labels`.
    """
    try:
        from assay.viewer.app import serve
    except ImportError as error:
        msg = f"the viewer needs {error.name}"
        raise PluginError(msg, hint="in a checkout of Assay: pip install '.[view]'") from error
    options = _Options(**given)
    chosen = CompareOptions(margin=options.margin, seed=options.seed)
    if any(path.rpartition(":")[2] == "-" for path in options.paths):
        msg = "assay view follows files as they grow; write what comes on stdin to a file first."
        raise click.UsageError(msg)
    folders = [Path(path) for path in options.paths if Path(path).is_dir()]
    named = name_runs(tuple(p for p in options.paths if not Path(p).is_dir()), (), raw=True)
    for _, path in named:
        if not path.is_file():
            msg = f"{path}: no such file"
            raise InputError(msg, hint="give result files, or folders that contain some")
    _prepare(named, chosen, options.category_key)
    library = Library(named, folders, options.category_key)
    try:
        for run in library.chosen(""):
            note = f", {run.index.meta.n_bad} lines unreadable" if run.index.meta.n_bad else ""
            click.echo(
                f"{run.label}: {counted_noun(run.index.meta.n_trials, 'trial')}{note}", err=True
            )
        service = ViewerService(library, chosen, options.category_key, options.labels)
        shown = [*folders, *(path for _, path in named)]
        serve(service, options.port, partial(_ready, open_page=options.open_page), shown)
    finally:
        library.close()


def _prepare(named: Named, chosen: CompareOptions, by: str) -> None:
    size = sum(path.stat().st_size - indexed_size(path) for _, path in named)
    if size >= BIG:
        # In a child, which returns its memory when it ends.
        click.echo(f"Indexing {size / 1e9:.1f} GB; this is done only once.", err=True)
        prepare_in_child(named, chosen, by)


def _ready(address: str, *, open_page: bool) -> None:
    click.echo(f"{address}\n(only from this machine, and only with this address; Ctrl-C stops it)")
    if open_page:
        webbrowser.open(address)
