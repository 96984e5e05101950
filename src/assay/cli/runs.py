"""The runs that a comparison is given: their names, and copies of piped ones."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from importlib import import_module
from pathlib import Path

import click

from assay.cli.parameters import DASH, claim_stdin
from assay.compare import names
from assay.compare.names import Named
from assay.errors import InputError, UsageError
from assay.records.files import copy_stream, is_bundle, temporary_folder


def name_runs(arguments: tuple[str, ...], labelled: tuple[str, ...], *, raw: bool = False) -> Named:
    """Return label and path of each run of the command line; raw: with their raw streams.

    A bundle of evidence stands for the runs in it, which are unpacked until the command ends.
    """
    try:
        named = names.name_runs((*arguments, *labelled))
        n_bundles = sum(is_bundle(path) for _, path in named)
        if not n_bundles:
            return named
        runs = [one for label, path in named for one in _runs_of(label, path, n_bundles, raw=raw)]
        return names.name_runs([f"{label}:{path}" for label, path in runs])
    except UsageError as error:
        raise click.UsageError(error.message) from error


def _runs_of(label: str, path: Path, n_bundles: int, *, raw: bool) -> Named:
    if not is_bundle(path):
        return [(label, path)]
    runs = _unpacked(path, click.get_current_context(), raw=raw)
    if len(runs) == 1:
        return [(label.removesuffix(".zip"), rows) for _, rows in runs]
    return [(name if n_bundles == 1 else f"{label}-{name}", rows) for name, rows in runs]


def _unpacked(path: Path, ctx: click.Context, *, raw: bool) -> Named:
    unpack_runs = import_module("assay.evidence.unpack").unpack_runs  # with numpy, for few commands
    folder = ctx.with_resource(temporary_folder("assay-bundle-"))
    found: Named = unpack_runs(path, Path(folder), raw=raw)
    return found


def single_run(path: Path, ctx: click.Context) -> Path:
    """Return the rows of a bundle with one run, for commands that read one file."""
    runs = _unpacked(path, ctx, raw=True)
    if len(runs) > 1:
        names_of = ", ".join(label for label, _ in runs)
        msg = f"{path}: a bundle of several runs ({names_of}), and this command reads one"
        raise InputError(msg, hint="compare, report, view, query and explain read them all")
    return runs[0][1]


def with_arms(arguments: tuple[str, ...]) -> tuple[str, ...]:
    """Put the results of its arms in place of the folder of an experiment's run."""
    files = (names.arm_files(Path(given)) or [Path(given)] for given in arguments)
    return tuple(str(path) for found in files for path in found)


@contextmanager
def pipes_as_files(named: Named) -> Iterator[Named]:
    """Yield the same runs; "-", `<(...)` and /dev/stdin are copied into files, to be read twice."""
    for _, path in named:
        if path == DASH:
            claim_stdin()
    pipes = {path for _, path in named if path == DASH or _is_pipe(path)}
    if not pipes:
        yield named
        return
    with temporary_folder("assay-") as folder:
        copies = {path: _copy(path, Path(folder, str(n))) for n, path in enumerate(pipes)}
        yield [(label, copies.get(path, path)) for label, path in named]


def _is_pipe(path: Path) -> bool:
    return os.access(path, os.F_OK) and not (path.is_file() or path.is_dir())


def _copy(path: Path, folder: Path) -> Path:
    folder.mkdir()
    copy = folder / ("stdin" if path == DASH else path.name)
    try:
        with (
            nullcontext(sys.stdin.buffer) if path == DASH else path.open("rb") as source,
            copy.open("wb") as target,
        ):
            copy_stream(source, target)
    except OSError as error:
        msg = f"{path}: {error.strerror}"
        raise InputError(msg, hint="write the run to a file, and give that file") from error
    return copy
