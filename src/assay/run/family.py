"""Find and end every process of a trial, also those that left its process group and session.

Three nets, because agents' tools escape each of them: the tree below the agent's process; this
process as child-subreaper, so that orphans come to us and not to init; and two marks that children
inherit, one in the environment and one in a resource limit nobody uses (it survives `env -i`).
"""

import contextlib
import os
import resource
import signal
import threading
import time
from collections.abc import Iterable, Iterator
from functools import cache
from itertools import count
from pathlib import Path
from typing import Any

MARK_NAME = "ASSAY_TRIAL"
_PR_SET_CHILD_SUBREAPER = 36
_LIMIT: int | None = getattr(resource, "RLIMIT_MSGQUEUE", None)
_NUMBERS = 65_536
_POLL_S = 0.01
_KILL_S = 5.0
_LIST_BYTES = 4096

own_pids: set[int] = set()
"""Processes that we started ourselves and that their Popen will reap."""
_births = threading.Lock()
"""Held while a process is started: until then we bear its mark ourselves."""
_burials = threading.Lock()
"""Held while the list of our children is read: it skips some when others leave it meanwhile."""
_adopting = False


def adopt_orphans() -> None:
    """Make orphans of our agents children of this process, where the system can."""
    global _adopting
    with _births:  # no process may be started before we are ready for its orphans
        if _adopting:
            return
        if Path("/proc/self/task").exists():
            import ctypes

            with contextlib.suppress(OSError, AttributeError):
                ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        _adopting = True


class Mark:
    """What all processes of one trial bear and no others."""

    _counter = count()

    def __init__(self, token: str) -> None:
        self.token = token
        self.number = _base_number() - 1 - next(Mark._counter) % _NUMBERS

    @contextlib.contextmanager
    def inherited(self) -> Iterator[None]:
        """Let a process be started that has the number from its first moment on.

        Put into it afterwards, the number would miss what it had forked by then.
        """
        with _births:
            if _LIMIT is None:
                yield
                return
            soft, hard = resource.getrlimit(_LIMIT)
            with contextlib.suppress(OSError, ValueError):
                resource.setrlimit(_LIMIT, (self.number, hard))
            try:
                yield
            finally:
                resource.setrlimit(_LIMIT, (soft, hard))

    @staticmethod
    def bear(token: str, number: int) -> None:
        """Put a mark on this process itself, for what it will start."""
        os.environ[MARK_NAME] = token
        if _LIMIT is not None:
            with contextlib.suppress(OSError, ValueError):
                resource.setrlimit(_LIMIT, (number, resource.getrlimit(_LIMIT)[1]))

    def is_on(self, pid: int) -> bool:
        """Whether a process bears this mark."""
        if _LIMIT is not None and self.number > 0:
            with contextlib.suppress(OSError, ValueError):
                if resource.prlimit(pid, _LIMIT)[0] == self.number:
                    return True
        try:
            environment = Path(f"/proc/{pid}/environ").read_bytes()
        except OSError:
            return False
        return f"{MARK_NAME}={self.token}".encode() in environment.split(b"\0")


def end_family(root: int | None, mark: Mark, term_s: float) -> bool:
    """End the root and all its kin: TERM, grace, KILL. Says whether anything was alive."""
    orphans = _orphans(mark)
    if root is None and not orphans:
        return False
    family = _Family(root, mark)
    if not family.members(orphans):
        return False
    family.signal(signal.SIGTERM)
    if not family.wait(term_s):
        deadline = time.monotonic() + _KILL_S
        while time.monotonic() < deadline:
            family.signal(signal.SIGKILL)
            if family.wait(0.2):
                break
    _orphans(mark)  # those that died just now are buried too
    return True


def end_leftovers(run_token: str) -> int:
    """End what a run that was itself killed left behind; gives how many."""
    import psutil

    left = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if process.environ().get(MARK_NAME, "").startswith(f"{run_token}."):
                left.append(process)
    for process in left:
        with contextlib.suppress(psutil.Error):
            process.kill()
    deadline = time.monotonic() + _KILL_S
    while any(map(_is_alive, left)) and time.monotonic() < deadline:
        time.sleep(_POLL_S)
    return len(left)


class _Family:
    """The living processes of one trial, looked up anew each time: they may fork meanwhile."""

    def __init__(self, root: int | None, mark: Mark) -> None:
        import psutil

        self._psutil: Any = psutil
        self._root = root
        self._mark = mark
        self._known: dict[int, Any] = {}

    def members(self, orphans: Iterable[int] | None = None) -> list[Any]:
        """Give all that are alive now, and remember them: a parent's death hides its children.

        Who was born to one that died meanwhile is an orphan by then: none is left only when all
        whom we knew are dead and there are no orphans afterwards.
        """
        found = _orphans(self._mark) if orphans is None else orphans
        while True:
            self._meet([*found, *([self._root] if self._root else [])])
            for pid, process in list(self._known.items()):
                if not _is_alive(process):
                    del self._known[pid]
            if self._known:
                return list(self._known.values())
            before, found = found, _orphans(self._mark)
            if not found or found == before:
                return []

    def _meet(self, pids: Iterable[int]) -> None:
        for pid in pids:
            with contextlib.suppress(self._psutil.Error):
                process = self._known.setdefault(pid, self._psutil.Process(pid))
                for child in process.children(recursive=True):
                    self._known.setdefault(child.pid, child)

    def signal(self, number: int) -> None:
        """Send a signal to each; who is gone is gone."""
        for process in self.members():
            with contextlib.suppress(self._psutil.Error, OSError):
                process.send_signal(number)

    def wait(self, seconds: float) -> bool:
        """Whether all are dead within the time."""
        deadline = time.monotonic() + seconds
        while self.members():
            if time.monotonic() >= deadline:
                return False
            time.sleep(_POLL_S)
        return True


def _is_alive(process: Any) -> bool:
    import psutil

    try:
        status = process.status() if process.is_running() else None
        if status == psutil.STATUS_ZOMBIE:  # its first thread ended, others may go on
            return bool(process.num_threads() > 1)
    except psutil.Error:
        return False
    return status not in (None, psutil.STATUS_DEAD)


def _orphans(mark: Mark) -> list[int]:
    """Give marked processes that lost their parent; bury those that have died.

    Only marked ones: another may be a process that another trial is starting at this moment.
    """
    with _burials:
        while True:
            marked = [pid for pid in _adopted() if mark.is_on(pid)]
            alive = [pid for pid in marked if not _bury(pid)]
            if len(alive) == len(marked):
                return alive  # else those who were buried may have left us their children


def _adopted() -> list[int]:
    """Our children that we did not start. Linux hands orphans to the main thread."""
    pid = os.getpid()
    try:
        children = _children(pid)
    except OSError:
        import psutil

        children = [child.pid for child in psutil.Process().children()]
    return [child for child in children if child not in own_pids]


def _children(pid: int) -> list[int]:
    """Read the list; as every trial does at its end, the file is opened once."""
    fd, text = _children_file(pid), b""
    while chunk := os.pread(fd, _LIST_BYTES, len(text)):
        text += chunk
        if len(chunk) < _LIST_BYTES // 2:  # the system fills a page where there is more
            break
    return [int(child) for child in text.split()]


@cache
def _children_file(pid: int) -> int:
    return os.open(f"/proc/{pid}/task/{pid}/children", os.O_RDONLY | os.O_CLOEXEC)


def _bury(pid: int) -> bool:
    try:
        return os.waitpid(pid, os.WNOHANG)[0] != 0
    except ChildProcessError:
        return True


@cache
def _base_number() -> int:
    if _LIMIT is None:
        return 0
    soft = resource.getrlimit(_LIMIT)[0]
    return soft if _NUMBERS < soft < resource.RLIM_INFINITY else 819_200
