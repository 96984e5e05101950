"""Let one worker at a time do anything but wait for its agent.

Python code of several threads does not run at once anyway. But each system call hands the
interpreter to another thread that wants it, so that with many short trials there are ten changes of
thread in each; here, others do not ask for it until the worker waits for its agent. For 500
trivial trials at -j 8 that is a third fewer changes and 4 to 6 % less processor time.
"""

import threading
from contextlib import AbstractContextManager

_PATIENCE_S = 0.05


class OneAtATime(AbstractContextManager[None]):
    """A lock that is only a hint: who waits too long for another worker goes on without it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._mine = _Mine()

    def __enter__(self) -> None:
        self.take()

    def __exit__(self, *error: object) -> None:
        self.give()

    def take(self) -> None:
        """Wait until no other thread has it, or for long enough."""
        self._mine.held = self._mine.held or self._lock.acquire(timeout=_PATIENCE_S)

    def give(self) -> bool:
        """Let another thread have it; return whether this thread had it."""
        held, self._mine.held = self._mine.held, False
        if held:
            self._lock.release()
        return held


class _Mine(threading.local):
    held = False


one_at_a_time = OneAtATime()
