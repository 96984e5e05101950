"""Reads a file that other rooms want whole, although a line of it is torn or is no row."""

import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np

from assay.errors import InputError
from assay.viewer.index import Index


def read_whole[T](index: Index, use: Callable[[Path], T]) -> T:
    """Let use read the file; if a line stops it, a copy of the rows that can be read."""
    try:
        return use(index.path)
    except InputError:
        with tempfile.TemporaryDirectory(prefix="assay-rows-") as folder:
            copy = Path(folder, index.path.name)
            _copy_rows(index, copy)
            return use(copy)


def _copy_rows(index: Index, target: Path) -> None:
    offsets, first = np.unique(index.records["offset"], return_index=True)
    lengths = index.records["length"][first]
    with index.path.open("rb") as source, target.open("wb") as copy:
        for offset, length in zip(offsets.tolist(), lengths.tolist(), strict=True):
            source.seek(offset)
            copy.write(source.read(length).rstrip(b"\r\n") + b"\n")
