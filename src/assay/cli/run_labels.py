"""Name the runs of a comparison: by the user's label, else by their files."""

import os
from pathlib import Path

import click

type Named = list[tuple[str, Path]]


def name_runs(arguments: tuple[str, ...], labelled: tuple[str, ...]) -> Named:
    """Give label and path of each run; same file names are told apart by their folders."""
    given = [_split(text) for text in (*arguments, *labelled)]
    labels = [label for label, _ in given if label is not None]
    twice = next((label for label in labels if labels.count(label) > 1), None)
    if twice is not None:
        msg = f"two runs are labelled {twice!r}"
        raise click.UsageError(msg)
    paths = [path for label, path in given if label is None]
    derived = dict(zip(range(len(paths)), _distinct(paths, set(labels)), strict=True))
    named: Named = []
    n = 0
    for label, path in given:
        if label is None:
            named.append((derived[n], path))
            n += 1
        else:
            named.append((label, path))
    return named


def _split(text: str) -> tuple[str | None, Path]:
    """Take a label off; names of models have colons and slashes too, so files are looked for."""
    if _exists(text):
        return None, Path(text)
    colons = [at for at, sign in enumerate(text) if sign == ":" and 0 < at < len(text) - 1]
    for at in colons:
        if _exists(text[at + 1 :]):
            return text[:at], Path(text[at + 1 :])
    if not colons or "/" in text[: colons[0]]:
        return None, Path(text)
    return text[: colons[0]], Path(text[colons[0] + 1 :])


def _exists(path: str) -> bool:
    return os.access(path, os.F_OK)  # unlike Path.exists it takes a name that is too long


def _distinct(paths: list[Path], taken: set[str]) -> list[str]:
    """Give the shortest ends of the paths that differ; the file's ending only where it must."""
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
