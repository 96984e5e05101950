"""What only Linux has, and what stands in for it elsewhere.

Nothing outside of this folder uses any of it, which a test checks. With ASSAY_PORTABLE=1 all of it
is hidden, so that what runs on a Mac runs here too, and is tested. docs/platforms.md says what each
promise becomes.
"""

import errno
import fcntl
import os
import signal
import sys
from contextlib import suppress
from functools import cache
from pathlib import Path

PORTABLE = "ASSAY_PORTABLE"
CGROUPS = Path("/sys/fs/cgroup")
"""Where control groups are, if there are some."""
WITHOUT = (
    "no sandbox (--container works), no limits for --memory and --cpus, processes that an agent "
    "hides from its process group and its variables may outlive a trial, and large files are read "
    "by one core"
)
"""What a portable system lacks, as `assay doctor` says it."""
_CHUNK = 4096
_FICLONE = 0x40049409
_CANNOT = (errno.EOPNOTSUPP, errno.EISDIR, errno.EINVAL, errno.ENOSYS)
"""What a file system answers that knows no files without names."""
_LABELS = ("security.selinux", "security.SMACK64", "security.ima", "security.evm")
"""Attributes of a file that the system sets by itself."""


@cache
def is_linux() -> bool:
    """Whether what only Linux has may be used."""
    return sys.platform == "linux" and os.environ.get(PORTABLE, "") in ("", "0")


def describe() -> str:
    """Say what this system is to Assay."""
    if is_linux():
        return "Linux: processes are followed by pidfd, and orphans come to Assay"
    why = f", because {PORTABLE} is set" if sys.platform == "linux" else ""
    return f"portable{why}: {WITHOUT}"


# Processes.


def open_pidfd(pid: int) -> int | None:
    """Open a handle of a process, which can be waited for; a pid may be used again, it may not."""
    if not is_linux():
        return None
    with suppress(OSError):
        return os.pidfd_open(pid)
    return None


def kill_pidfd(fd: int) -> None:
    with suppress(OSError):
        signal.pidfd_send_signal(fd, signal.SIGKILL)


def has_threads() -> bool | None:
    """Whether this process has threads, those of C libraries included; None if unknown."""
    tasks = list_proc("self/task")
    return None if tasks is None else len(tasks) > 1


def process_exists(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:  # somebody else's
        return True
    return True


def pid_namespace() -> str:
    """Return a mark of the processes that this one sees, of four hexadecimal digits."""
    if is_linux():
        with suppress(OSError):
            return f"{os.stat('/proc/self/ns/pid').st_ino & 0xFFFF:04x}"  # noqa: PTH116
    return "0000"


def read_proc(name: str) -> bytes | None:
    """Read a file of the kernel about processes; None where there is none."""
    if not is_linux():
        return None
    try:
        with open(f"/proc/{name}", "rb", buffering=0) as file:  # noqa: PTH123
            return file.readall()
    except OSError:
        return None


def list_proc(name: str = "") -> list[str] | None:
    """List a folder of these; None where there is none."""
    if not is_linux():
        return None
    try:
        return os.listdir(f"/proc/{name}")  # noqa: PTH208
    except OSError:
        return None


def children(pid: int) -> list[int] | None:
    """Return the children of a process's main thread; None where the kernel has no such list.

    The file is opened once, because every trial reads it at its end.
    """
    if not is_linux():
        return None
    try:
        fd, text = _children_file(pid), b""
        while chunk := os.pread(fd, _CHUNK, len(text)):
            text += chunk
            if len(chunk) < _CHUNK // 2:  # the kernel fills a page while there is more
                break
    except OSError:
        return None
    return [int(child) for child in text.split()]


@cache
def _children_file(pid: int) -> int:
    return os.open(f"/proc/{pid}/task/{pid}/children", os.O_RDONLY | os.O_CLOEXEC)


def usable_cpus() -> list[int]:
    """Return the CPUs that this process may run on."""
    if is_linux():
        return sorted(os.sched_getaffinity(0))
    return list(range(os.cpu_count() or 1))


# Files.


def open_memory_file(name: str) -> int | None:
    """Open a new file in memory; None where there are none."""
    return os.memfd_create(name) if is_linux() else None


def open_nameless(place: str, flags: int, handle: int | None) -> int | None:
    """Open a new file without a name in a folder; None where there are none."""
    if not is_linux():
        return None
    try:
        return os.open(place, flags | os.O_TMPFILE, 0o666, dir_fd=handle)
    except OSError as error:
        if error.errno not in _CANNOT:
            raise
    return None


def link_nameless(fd: int, name: str, folder: int) -> bool:
    """Give a file a name that never had one; FileExistsError if something has that name."""
    if not is_linux():
        return False
    try:
        os.link(f"/proc/self/fd/{fd}", name, dst_dir_fd=folder, follow_symlinks=True)
    except FileExistsError:
        raise
    except OSError:
        return False
    return True


def path_of(fd: int) -> str | None:
    """Return the path of an open file or folder as it is now; None where that is not known."""
    if not is_linux():
        return None
    with suppress(OSError):
        return os.readlink(f"/proc/self/fd/{fd}")  # noqa: PTH115
    return None


def path_to(fd: int) -> str | None:
    """Return a path by which other processes reach a file that this one has open."""
    return f"/proc/{os.getpid()}/fd/{fd}" if is_linux() else None


def clear_attributes(fd: int) -> None:
    """Remove the attributes and access lists that somebody has set on a file."""
    for name in os.listxattr(fd) if is_linux() else ():
        if name not in _LABELS:
            os.removexattr(fd, name)


def is_ours_alone(fd: int) -> bool:
    """Whether nobody else has a file open; False where that cannot be known."""
    if not is_linux():
        return False
    try:
        fcntl.fcntl(fd, fcntl.F_SETLEASE, fcntl.F_WRLCK)  # refused if it is open elsewhere
        fcntl.fcntl(fd, fcntl.F_SETLEASE, fcntl.F_UNLCK)
    except OSError:
        return False
    return True


def share_blocks(source: int, target: int) -> bool:
    """Let a file share the blocks of another until one of them changes; return if that worked."""
    if not is_linux():
        return False
    try:
        fcntl.ioctl(target, _FICLONE, source)
    except OSError:  # another file system, or one that cannot
        return False
    return True


def widen_pipe(fd: int, n_bytes: int) -> None:
    """Let a pipe hold so much, if the system lets this user."""
    if is_linux():
        with suppress(OSError):
            fcntl.fcntl(fd, fcntl.F_SETPIPE_SZ, n_bytes)


def is_of_system(path: Path | str) -> bool:
    """Whether a path is of the kernel's own file systems, which hold devices and no files."""
    text = f"{path}/"
    return text.startswith(("/proc/", "/sys/", "/dev/")) and not text.startswith("/dev/shm/")
