"""What a run takes from the machine: open files, disk and memory.

When one of them runs out, every further trial would fail for the same reason and measure nothing.
So the run ends: what is finished is saved, and --resume does the rest.
"""

import contextlib
import errno
import os
import resource
from typing import Any

from assay.errors import InputError, OutOfResources

_SCARCE = {
    errno.ENOSPC: "no space left on the disk",
    errno.EDQUOT: "no space left on the disk: the quota is used up",
    errno.EMFILE: "too many open files",
    errno.ENFILE: "too many open files",
    errno.ENOMEM: "not enough memory",
}
_HINTS = {
    "no space": "free some space, then continue with --resume",
    "too many": "raise the limit with `ulimit -n`, or use a smaller -j, and continue with --resume",
    "not enough": "use a smaller -j, and continue with --resume",
}
_FILES_OF_A_WORKER = 12
"""An agent takes 3 and 4 more while it starts; a grader takes 5; a world may take some."""
_OTHER_FILES = 40


def lack_of(error: BaseException, *, forking: bool = False) -> OutOfResources | None:
    """Return what an error means for the run if the machine lacks something, else None.

    The error may have been raised because of another one. While a process is started, EAGAIN means
    that there are too many of them; elsewhere it means that a file has nothing to read yet.
    """
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, OutOfResources):
            return cause
        if isinstance(cause, OSError) and (number := _number(cause)) in _SCARCE:
            return out_of(_SCARCE[number], str(cause.filename or ""))
        if forking and isinstance(cause, OSError) and cause.errno == errno.EAGAIN:
            return out_of("not enough memory or too many processes to start another one")
        cause = cause.__cause__ or cause.__context__
    return None


def _number(error: OSError) -> int:
    if error.errno is not None:
        return error.errno
    # When a whole folder could not be copied, the numbers are only in the text.
    text = str(error)
    return next((number for number in _SCARCE if f"[Errno {number}]" in text), 0)


def out_of(what: str, place: str = "") -> OutOfResources:
    """Return the error that ends a run for want of something."""
    hint = next((hint for start, hint in _HINTS.items() if what.startswith(start)), "")
    return OutOfResources(f"{what}: {place}" if place else what, hint=hint)


class _ResourceGuard:
    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        lack = lack_of(error) if isinstance(error, Exception) else None
        if lack is not None and lack is not error:
            raise lack from error


needed = _ResourceGuard()
"""Inside a block with this, an error for want of something ends the run."""


def is_full(folder: str) -> bool:
    """Whether nothing more can be written into a folder."""
    disk = os.statvfs(folder)
    # Part of the free blocks is reserved for root.
    free = disk.f_bfree if os.geteuid() == 0 else disk.f_bavail
    return free == 0 < disk.f_blocks


def allow_open_files(workers: int) -> None:
    """Raise our limit of open files if this many workers need it; refuse them if it cannot be."""
    need = _OTHER_FILES + workers * _FILES_OF_A_WORKER
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if workers == 1 or soft == resource.RLIM_INFINITY or soft >= need:
        return
    with contextlib.suppress(OSError, ValueError):
        most = need if hard == resource.RLIM_INFINITY else min(need, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
        soft = most
    if soft < need:
        fits = max(1, (soft - _OTHER_FILES) // _FILES_OF_A_WORKER)
        msg = f"-j {workers} needs up to {need} open files, and the limit is {soft}"
        raise InputError(msg, hint=f"use -j {fits}, or raise the limit with `ulimit -n {need}`")
