"""Indexes big files in a process of its own: `python -m assay.viewer.prepare`, request on stdin.

Working out the overview of a million rows takes several hundred megabytes for some seconds. In a
child they are given back when it ends; the viewer itself only maps what the child left on disk.
"""

import sys
from collections.abc import Sequence
from pathlib import Path

import msgspec

from assay.compare.report import CompareOptions
from assay.errors import InputError
from assay.run.host import LocalHost
from assay.viewer.library import Library
from assay.viewer.service import ViewerService

BIG = 256 * 1024 * 1024
_TIME_LIMIT_S = 3600.0


class Preparation(msgspec.Struct):
    """Which runs to index, and the options of their comparison."""

    files: list[tuple[str, str]]
    by: str
    margin: float
    seed: int


def prepare_in_child(named: Sequence[tuple[str, Path]], options: CompareOptions, by: str) -> None:
    """Make the indexes and the overview of these files in a process of its own."""
    files = [(label, str(path.resolve())) for label, path in named]
    request = Preparation(files, by, options.margin, options.seed)
    command = (sys.executable, "-m", "assay.viewer.prepare")
    done = LocalHost().run(command, stdin=msgspec.json.encode(request), timeout_s=_TIME_LIMIT_S)
    if done.exit_code != 0:  # one killed for lack of memory leaves stderr empty
        last_line = done.stderr.decode("utf-8", "replace").strip().splitlines()[-1:] or ["killed"]
        msg = f"the files could not be indexed: {last_line[0]}"
        raise InputError(msg)


def _prepare(request: Preparation) -> None:
    library = Library([(label, Path(path)) for label, path in request.files], [], request.by)
    try:
        ViewerService(
            library, CompareOptions(margin=request.margin, seed=request.seed), request.by
        ).overview("")
    finally:
        library.close()


if __name__ == "__main__":
    _prepare(msgspec.json.decode(sys.stdin.buffer.read(), type=Preparation))
