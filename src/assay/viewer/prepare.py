"""Indexes big files in a process of its own: `python -m assay.viewer.prepare`, request on stdin.

Working out the overview of a million rows takes several hundred megabytes for some seconds. In a
child they are given back when it ends; the viewer itself only maps what the child left on disk.
"""

import sys
from pathlib import Path

import msgspec

from assay.compare.report import CompareOptions
from assay.viewer.library import Library
from assay.viewer.service import ViewerService

BIG = 256 * 1024 * 1024


class Preparation(msgspec.Struct):
    """Which runs, looked at how."""

    files: list[tuple[str, str]]
    by: str
    margin: float
    seed: int


def prepare(request: Preparation) -> None:
    """Leave indexes and overview beside the files."""
    library = Library([(label, Path(path)) for label, path in request.files], [], request.by)
    try:
        ViewerService(
            library, CompareOptions(margin=request.margin, seed=request.seed), request.by
        ).overview("")
    finally:
        library.close()


if __name__ == "__main__":
    prepare(msgspec.json.decode(sys.stdin.buffer.read(), type=Preparation))
