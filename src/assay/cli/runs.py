"""The runs that a comparison is given: their names, and copies of piped ones."""

import os
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import BinaryIO

import click

from assay.cli.parameters import DASH, claim_stdin
from assay.errors import InputError
from assay.records.files import copy_stream, temporary_folder

type Named = list[tuple[str, Path]]


def name_runs(arguments: tuple[str, ...], labelled: tuple[str, ...]) -> Named:
    """Return label and path of each run; folders distinguish equal file names."""
    given = [_split(text) for text in (*arguments, *labelled)]
    labels = [label for label, _ in given if label is not None]
    duplicate = next((label for label in labels if labels.count(label) > 1), None)
    if duplicate is not None:
        msg = f"two runs are labelled {duplicate!r}"
        raise click.UsageError(msg)
    paths = [path for label, path in given if label is None]
    # Without a label, the run on stdin is called so.
    derived = iter(
        _distinct([Path("stdin") if path == DASH else path for path in paths], {*labels})
    )
    return [(next(derived) if label is None else label, path) for label, path in given]


def _split(text: str) -> tuple[str | None, Path]:
    """Split off a label, by looking for files: names of models have colons and slashes too."""
    if text == "-" or _exists(text):
        return None, Path(text)
    colons = [at for at, sign in enumerate(text) if sign == ":" and 0 < at < len(text) - 1]
    for at in colons:
        if text[at + 1 :] == "-" or _exists(text[at + 1 :]):
            return text[:at], Path(text[at + 1 :])
    if not colons or "/" in text[: colons[0]]:
        return None, Path(text)
    return text[: colons[0]], Path(text[colons[0] + 1 :])


def _exists(path: str) -> bool:
    return os.access(path, os.F_OK)  # Path.exists raises for a name that is too long


def _distinct(paths: list[Path], taken: set[str]) -> list[str]:
    """The shortest distinct ends of the paths, with the file extension only if needed."""
    whole = [path.absolute() for path in paths]
    for shorten in (_stem, _same):
        for depth in range(1, max((len(path.parts) for path in whole), default=1) + 1):
            labels = ["/".join(shorten(path).parts[-depth:]) for path in whole]
            if len(set(labels)) == len(labels) and not taken.intersection(labels):
                return labels
    return [f"{path.stem}-{n}" for n, path in enumerate(paths, 1)]


def _stem(path: Path) -> Path:
    return path.with_suffix("")


def _same(path: Path) -> Path:
    return path


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
        with _opened(path) as source, copy.open("wb") as target:
            copy_stream(source, target)
    except OSError as error:
        msg = f"{path}: {error.strerror}"
        raise InputError(msg, hint="write the run to a file, and give that file") from error
    return copy


def _opened(path: Path) -> AbstractContextManager[BinaryIO]:
    return nullcontext(sys.stdin.buffer) if path == DASH else path.open("rb")
