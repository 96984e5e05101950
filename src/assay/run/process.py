"""Start a process with its streams in files, wait for it, end it with all its kin.

The only file that starts processes.
"""

import contextlib
import os
import select
import signal
import subprocess
import threading
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import BinaryIO

import msgspec

from assay.errors import Interrupted, SpawnError
from assay.run import family

_SHORTEST_WAIT_S = 0.01
_WAIT_PER_PROCESS_S = 0.0002
_active = 0
_active_lock = threading.Lock()
_stopping = threading.Event()


class Launch(msgspec.Struct, frozen=True, kw_only=True):
    """What to start and where its streams go."""

    argv: Sequence[str]
    cwd: str
    env: Mapping[str, str]
    stdout: int
    stderr: int
    """Open files; they stay the caller's."""
    stdin: Path | None = None
    """None is an empty stdin."""
    talk: bool = False
    """Keep stdin open for write()."""


class Process:
    """One running program. Its stdout and stderr are regular files: pipes lose ends."""

    def __init__(self, launch: Launch, mark: family.Mark) -> None:
        family.adopt_orphans()
        self._mark = mark
        self._outbox = b""
        with mark.inherited():
            self._popen = _start(launch)
            self.pid = self._popen.pid
            family.own_pids.add(self.pid)
        if self._popen.stdin is not None:
            os.set_blocking(self._popen.stdin.fileno(), False)
        self._pidfd = _pidfd(self.pid)
        self._poll = select.poll()
        if self._pidfd is not None:
            self._poll.register(self._pidfd, select.POLLIN)
        _count(1)

    def write(self, data: bytes) -> None:
        """Queue bytes for stdin; they go out as the process takes them."""
        self._outbox += data
        pipe = self._popen.stdin
        if pipe is None or pipe.closed:
            self._outbox = b""
            return
        with contextlib.suppress(BlockingIOError):
            try:
                while self._outbox:
                    self._outbox = self._outbox[os.write(pipe.fileno(), self._outbox) :]
            except BrokenPipeError:
                self._outbox = b""

    @property
    def unsent_to(self) -> int | None:
        """The stdin that still has to take bytes."""
        return self._popen.stdin.fileno() if self._outbox and self._popen.stdin else None

    def close_stdin(self) -> None:
        """Say that nothing more will come."""
        if self._popen.stdin is not None:
            with contextlib.suppress(OSError):
                self._popen.stdin.close()

    def wait(self, longest_s: float) -> bool:
        """Wait for the end, at most a moment; says whether the process has ended.

        The moment grows with the number of processes, so that many agents cost no more than few.
        """
        raise_if_stopping()
        if self._outbox:
            self.write(b"")
        pause_s = min(longest_s, max(_SHORTEST_WAIT_S, _active * _WAIT_PER_PROCESS_S))
        if self._pidfd is None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._popen.wait(pause_s)
        elif self._poll.poll(max(pause_s, 0) * 1000):
            self._popen.wait()
        return self.has_ended

    def poll(self) -> bool:
        """Say whether the process has ended, without waiting; also while everything stops."""
        return self._popen.poll() is not None

    def end(self, term_s: float) -> bool:
        """End the process and all its kin; says whether anything had to be ended."""
        root = self.pid if self._popen.poll() is None else None
        ended = family.end_family(root, self._mark, 0.5 if _stopping.is_set() else term_s)
        self._popen.wait()
        return ended

    def release(self) -> None:
        """Let go of what the system holds for us; the process has ended."""
        self.close_stdin()
        if self._pidfd is not None:
            os.close(self._pidfd)
        family.own_pids.discard(self.pid)
        _count(-1)

    @property
    def has_ended(self) -> bool:
        """Whether the process itself is gone."""
        return self._popen.returncode is not None

    @property
    def exit_code(self) -> int | None:
        """As a shell shows it: 128 + n for death by signal n."""
        code = self._popen.returncode
        return 128 - code if code is not None and code < 0 else code

    @property
    def signal_name(self) -> str | None:
        """Name of the signal the process died of."""
        code = self._popen.returncode
        if code is None or code >= 0:
            return None
        try:
            return signal.Signals(-code).name
        except ValueError:
            return f"signal {-code}"


def stop_all() -> None:
    """Make every running trial end its processes and give up; for Ctrl-C and full disks."""
    _stopping.set()


def start_over() -> None:
    """Allow new processes again after stop_all."""
    _stopping.clear()


def raise_if_stopping() -> None:
    """Give up here when everything is to stop."""
    if _stopping.is_set():
        msg = "interrupted"
        raise Interrupted(msg)


def pause(seconds: float) -> None:
    """Sleep, unless everything is to stop."""
    if _stopping.wait(seconds):
        msg = "interrupted"
        raise Interrupted(msg)


def _start(launch: Launch) -> "subprocess.Popen[bytes]":
    stdin: int | BinaryIO = subprocess.PIPE if launch.talk else _nothing()
    if launch.stdin is not None:
        stdin = launch.stdin.open("rb")
    try:
        return subprocess.Popen(
            launch.argv,
            cwd=launch.cwd,
            env=launch.env,
            stdin=stdin,
            stdout=launch.stdout,
            stderr=launch.stderr,
            start_new_session=True,
        )
    except (OSError, ValueError) as error:
        raise SpawnError(_why_not(launch, error)) from error
    finally:
        if not isinstance(stdin, int):
            stdin.close()


@cache
def _nothing() -> int:
    """Give an empty stdin, the same for all."""
    return os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)


def _why_not(launch: Launch, error: Exception) -> str:
    if isinstance(error, FileNotFoundError):
        if not Path(launch.cwd).is_dir():
            return f"working folder not found: {launch.cwd}"
        return f'Executable not found in $PATH: "{launch.argv[0]}"'
    return f"cannot start {launch.argv[0]}: {getattr(error, 'strerror', None) or error}"


def _pidfd(pid: int) -> int | None:
    try:
        return os.pidfd_open(pid)
    except (AttributeError, OSError):
        return None


def _count(change: int) -> None:
    global _active
    with _active_lock:
        _active += change
