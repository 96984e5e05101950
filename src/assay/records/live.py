"""How far a run is, in a small file beside its output; it is there only while the run is.

The writer holds a lock on it. So a file that a killed run left behind is recognised: nobody has it
locked. Whoever reads it does not trust it, because an agent without a sandbox could change it.
"""

import contextlib
import fcntl
import os
import stat
import threading
import time
from collections.abc import Callable
from pathlib import Path

import msgspec

from assay.records.rows import UNREADABLE
from assay.records.text import shortened

EVERY_S = 1.0
"""The file is written at most so often."""
MOST_RUNNING = 50
_MOST_BYTES = 256 * 1024
_MOST_TEXT = 200
_SUFFIX = ".live"


class RunningTrial(msgspec.Struct, frozen=True, rename="camel"):
    """A trial that has begun and not ended."""

    prompt: str
    trial: int
    began: float
    """In seconds since 1970."""
    step: str
    steps: int


class LiveState(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What the terminal shows of a run, for whoever looks at its output."""

    agent: str
    started: float
    done: int
    total: int
    before: int = 0
    """Trials of the output that an earlier, interrupted run has finished."""
    left_s: float | None = None
    spent_usd: float = 0.0
    budget_usd: float | None = None
    result: str = ""
    """Pass rate with its interval, or levels and score; tokens, cost and failures."""
    running: list[RunningTrial] = []
    n_running: int = 0


class LiveFile:
    """Writes the state of one run; what goes wrong here never stops the run."""

    def __init__(self, output: Path) -> None:
        self._path = live_path(output)
        self._over = threading.Event()
        self._thread: threading.Thread | None = None
        self._fd = -1
        with contextlib.suppress(OSError):
            flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
            self._fd = os.open(self._path, flags, 0o644)
            self._lock()

    def follow(self, state: Callable[[], LiveState]) -> None:
        """Write the state now, and in a thread of its own every second until it is closed."""
        if self._fd >= 0:
            self.write(state())
            self._thread = threading.Thread(target=self._keep_writing, args=(state,), daemon=True)
            self._thread.start()

    def _keep_writing(self, state: Callable[[], LiveState]) -> None:
        pause_s = EVERY_S
        while not self._over.wait(pause_s):
            began_s = time.monotonic()
            self.write(state())
            # Of a million prompts a pass rate takes long: no more than a twentieth of the time.
            pause_s = max(EVERY_S, 20 * (time.monotonic() - began_s))

    def write(self, state: LiveState) -> None:
        if self._fd < 0:
            return
        data = msgspec.json.encode(state) + b"\n"
        with contextlib.suppress(OSError):
            # In one piece; readers take the first line, whatever an older one left behind it.
            os.pwrite(self._fd, data, 0)
            os.ftruncate(self._fd, len(data))

    def close(self) -> None:
        """Remove the file, unless it is another one by now."""
        self._over.set()
        if self._thread is not None:
            self._thread.join()
        if self._fd < 0:
            return
        with contextlib.suppress(OSError):
            if os.path.samestat(self._path.lstat(), os.fstat(self._fd)):
                self._path.unlink()
        os.close(self._fd)
        self._fd = -1

    def _lock(self) -> None:
        for _ in range(20):  # a reader may hold it for a moment, to see whether it is free
            with contextlib.suppress(BlockingIOError):
                fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return
            time.sleep(0.01)


def live_path(output: Path) -> Path:
    return output.with_name(f"{output.name}{_SUFFIX}")


def short_text(text: str) -> str:
    """Cut a name of a prompt or a step to what is worth showing."""
    return shortened(text, _MOST_TEXT)


def read_live(output: Path) -> LiveState | None:
    """Return how far the run is that writes this output; None if none does."""
    try:
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        fd = os.open(live_path(output), flags)
    except OSError:
        return None
    try:
        if not stat.S_ISREG(os.fstat(fd).st_mode) or not _is_held(fd):
            return None
        line = os.pread(fd, _MOST_BYTES, 0).partition(b"\n")[0]
        return msgspec.json.decode(line, type=LiveState)
    except (OSError, *UNREADABLE):
        return None
    finally:
        os.close(fd)


def _is_held(fd: int) -> bool:
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    return False
