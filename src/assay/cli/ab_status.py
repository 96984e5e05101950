"""assay ab status: is a verdict still about the files in the tree?"""

import contextlib
import os
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import click
import msgspec

from assay.cli.help import examples
from assay.cli.output import echo_folded
from assay.cli.parameters import OutFolder, help_option
from assay.errors import AssayError, InputError
from assay.pipeline.experiment import hash_path, read_experiment
from assay.records.rows import UNREADABLE, explain
from assay.records.text import visible_line

_STALE, _NOT_JUDGED = 3, 4
_VERDICT = "verdict.json"


class _Verdict(msgspec.Struct, rename="camel"):
    name: str
    valid: bool
    sentences: list[str]
    experiment: str
    inputs: dict[str, str]
    file: str | None = None
    folder: str = ""
    """Where assay ab was started, from the folder of the run: the inputs are named from there."""


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
    known = _names(root)
    unknown = [name for name in names if name not in known]
    if unknown:
        msg = f"there is no experiment {unknown[0]!r} in {root}"
        hint = f"there are: {', '.join(known)}" if known else "run assay ab first"
        raise InputError(msg, hint=hint)
    rows = [_judge(root / name) for name in names or known]
    if as_json:
        click.echo(msgspec.json.format(msgspec.json.encode(rows), indent=2).decode())
    else:
        for number, row in enumerate(rows):
            if number:
                click.echo()
            echo_folded(visible_line(f"{row['name']}: {row['status']}: {row['words']}"))
        if not rows:
            click.echo(f"There are no experiments in {root}.")
    codes = {row["code"] for row in rows} or {_NOT_JUDGED}
    if check and (worst := _STALE if _STALE in codes else max(codes)):
        raise click.exceptions.Exit(worst)


def _names(root: Path) -> list[str]:
    if not os.access(root, os.F_OK) or not root.is_dir():
        return []
    return sorted(path.name for path in root.iterdir() if path.is_dir())


def _judge(folder: Path) -> dict[str, Any]:
    """Judge the newest verdict of an experiment."""
    found = sorted(folder.glob(f"*/{_VERDICT}"), key=_ended)
    if not found:
        return _row(folder.name, "no verdict", "no run of it has ended", _NOT_JUDGED)
    try:
        verdict = msgspec.json.decode(found[-1].read_bytes(), type=_Verdict)
    except UNREADABLE as error:
        words = f"{found[-1]}: {explain(error, _Verdict)}; run the experiment again"
        return _row(folder.name, "unreadable", words, _NOT_JUDGED)
    with _chdir(found[-1].parent, verdict.folder):
        changed = list(_changes(verdict))
    words = " ".join(verdict.sentences)
    if changed:
        return _row(folder.name, "stale", f"{'; '.join(changed)} ({found[-1].parent})", _STALE)
    if not verdict.valid:
        return _row(folder.name, "invalid", words, _NOT_JUDGED)
    return _row(folder.name, "up to date", f"{words} ({found[-1].parent})", 0)


class _End(msgspec.Struct):
    ended: str = ""


def _ended(path: Path) -> tuple[str, float]:
    """When a verdict was made. In a clone all files are of the same time."""
    try:
        known = msgspec.json.decode(path.read_bytes(), type=_End).ended
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError):
        known = ""
    return known, path.stat().st_mtime


def _chdir(run: Path, started_in: str) -> AbstractContextManager[None]:
    """Go to the folder in which a run was started; stay here if it is gone or not known."""
    there = run / started_in
    return contextlib.chdir(there) if started_in and there.is_dir() else contextlib.nullcontext()


def _row(name: str, status: str, words: str, code: int) -> dict[str, Any]:
    return {"name": name, "status": status, "words": words, "code": code}


def _changes(verdict: _Verdict) -> Iterator[str]:
    """Yield what is not as it was when the verdict was made."""
    if verdict.file is not None:
        try:
            if read_experiment(Path(verdict.file)).digest != verdict.experiment:
                yield f"{verdict.file} describes another experiment than was run"
        except AssayError as error:
            yield error.message
    for name, before in verdict.inputs.items():
        now = hash_path(Path(name))
        if now != before:
            yield f"{name} {'has changed' if now else 'is gone'}"
