"""Calls of the C library and of the kernel: apart, because they take long to load."""

import ctypes
import resource
import signal
import socket
import struct
from contextlib import suppress
from functools import cache

from assay.system import is_linux, read_proc

_PDEATHSIG, _DUMPABLE, _SUBREAPER = 1, 4, 36  # of linux/prctl.h
_ARGUMENTS = slice(45, 47)
"""Where in /proc/PID/stat, after the name, the place of the command line stands."""
_M_MMAP_THRESHOLD = -3
_LARGE_BYTES = 1024 * 1024


def adopt_orphans(*, on: bool) -> bool:
    """Have orphans of our descendants handed to this process, or no more; return if that works."""
    return _prctl(_SUBREAPER, int(on))


def die_with_parent() -> bool:
    """Be killed when the parent dies; return whether the system does that."""
    return _prctl(_PDEATHSIG, int(signal.SIGKILL))


def hide_process(title: bytes = b"") -> None:
    """Keep other processes of this user from reading our memory, environment and open files.

    With a title, the command line that everybody may read becomes that.
    """
    stat = read_proc("self/stat") if title else None
    if stat is not None:
        begin, end = map(int, stat.rpartition(b")")[2].split()[_ARGUMENTS])
        if 0 < begin < end - len(title):
            ctypes.memmove(begin, title.ljust(end - begin, b"\0"), end - begin)
    _prctl(_DUMPABLE, 0)


def _prctl(option: int, value: int) -> bool:
    if not is_linux():
        return False
    try:
        return int(_libc().prctl(option, value, 0, 0, 0)) == 0
    except (OSError, AttributeError):
        return False


@cache
def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None)


def mark_limit() -> int | None:
    """Return the resource limit that nobody uses, whose value children inherit."""
    return resource.RLIMIT_MSGQUEUE if is_linux() else None


def limit_of(pid: int, limit: int) -> int | None:
    """Return the value of a limit of another process; None if it cannot be read."""
    with suppress(OSError, ValueError):
        return resource.prlimit(pid, limit)[0]
    return None


def peer_user(peer: socket.socket) -> int | None:
    """Return the user on the other side of a Unix socket; None where that is not known."""
    if not is_linux():
        return None
    size = struct.calcsize("3i")
    _, user, _ = struct.unpack("3i", peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, size))
    return int(user)


def return_memory() -> None:
    """Give back to the system what was freed, and from now on large pieces as soon as they are.

    The C library keeps it otherwise: after two large files, half of all memory.
    """
    if is_linux():
        with suppress(AttributeError, OSError):  # glibc has them
            _libc().mallopt(_M_MMAP_THRESHOLD, _LARGE_BYTES)
            _libc().malloc_trim(0)
