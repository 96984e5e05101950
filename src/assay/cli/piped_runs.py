"""Runs that come through a pipe: copied first, since a comparison reads its files again."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from assay.cli.run_labels import Named
from assay.errors import InputError


@contextmanager
def kept(named: Named) -> Iterator[Named]:
    """Give the same runs, those of `<(...)` and /dev/stdin as files that stay until the end."""
    pipes = {path for _, path in named if _is_pipe(path)}
    if not pipes:
        yield named
        return
    import tempfile

    with tempfile.TemporaryDirectory(prefix="assay-") as folder:
        copies = {path: _copy(path, Path(folder, str(n))) for n, path in enumerate(pipes)}
        yield [(label, copies.get(path, path)) for label, path in named]


def _is_pipe(path: Path) -> bool:
    return os.access(path, os.F_OK) and not (path.is_file() or path.is_dir())


def _copy(path: Path, folder: Path) -> Path:
    import shutil

    folder.mkdir()
    copy = folder / path.name
    try:
        with path.open("rb") as source, copy.open("wb") as target:
            shutil.copyfileobj(source, target)
    except OSError as error:
        msg = f"{path}: {error.strerror}"
        raise InputError(msg, hint="write the run to a file, and give that") from error
    return copy
