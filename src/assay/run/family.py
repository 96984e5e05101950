"""Find and end every process of a trial, also those that left its process group and session.

Three mechanisms, because agents' tools escape each of them: the process tree below the agent; this
process as child subreaper, so that orphans come to us and not to init; and two marks that children
inherit, one in the environment and one in a resource limit nobody uses (it survives `env -i`).

Only Linux hands us orphans and has such a limit. Elsewhere all processes of this user are looked
at: those in the session that the agent began, and those with the mark in their environment.
"""

import contextlib
import os
import resource
import select
import signal
import threading
import time
from collections.abc import Iterable, Iterator
from functools import cache
from itertools import count
from typing import Any

from assay import system
from assay.system import calls

MARK_NAME = "ASSAY_TRIAL"
_NUMBERS = 65_536
"""How many trials can be told apart by the limit before its values repeat."""
_POLL_S = 0.01
_SHORT_POLL_S = 0.0005
_KILL_S = 5.0
_CLOCK_S = 2.0
"""How much earlier than it is the system may say that a process began."""

own_pids: set[int] = set()
"""Processes that we started ourselves and that their Popen will reap."""
_start_lock = threading.Lock()
"""Held while a process is started: during that time this process itself has the child's mark."""
_reap_lock = threading.Lock()
"""Held while the list of our children is read: it skips some if others are reaped meanwhile."""
_started_s = time.time()
_strangers: set[int] = set()
"""Processes that are older than this one, and that nobody need look at again."""
_adopting = False
_gets_orphans = False
"""Whether orphans of our agents become children of this process."""


def adopt_orphans() -> None:
    """Make orphans of our agents children of this process, where the system can."""
    global _adopting, _gets_orphans
    with _start_lock:  # no process may be started before we are ready for its orphans
        if not _adopting:
            _gets_orphans = calls.adopt_orphans(on=True)
            _adopting = True


def leave_orphans() -> None:
    """Let orphans go to init as usual, also when processes are started later."""
    adopt_orphans()
    calls.adopt_orphans(on=False)


def forget_parent() -> None:
    """In a child that was just forked: neither the parent's children nor its orphans are ours."""
    global _adopting
    _adopting = False
    own_pids.clear()


def can_die_with_parent() -> bool:
    """Whether die_with works here."""
    adopt_orphans()
    return _gets_orphans


def die_with(parent: int) -> None:
    """In a child that was just forked: be killed when the parent dies, however it dies."""
    calls.die_with_parent()
    if os.getppid() != parent:  # it died before that
        os._exit(1)


class Mark:
    """What all processes of one trial have in common, and no other process has."""

    _counter = count()

    def __init__(self, token: str) -> None:
        self.token = token
        self.made_s = time.time()
        self.sessions: set[int] = set()
        """Of the agent's processes; each that we start begins one."""
        self.number = _base_number() - 1 - next(Mark._counter) % _NUMBERS

    @contextlib.contextmanager
    def inherited(self) -> Iterator[None]:
        """Start a process inside this block, and it has the number from its first moment on.

        Set afterwards, the number would be missing in what the process had forked by then.
        """
        with _start_lock:
            limit = calls.mark_limit()
            if limit is None:
                yield
                return
            soft, hard = resource.getrlimit(limit)
            with contextlib.suppress(OSError, ValueError):
                resource.setrlimit(limit, (self.number, hard))
            try:
                yield
            finally:
                resource.setrlimit(limit, (soft, hard))

    @staticmethod
    def put_on_self(token: str, number: int) -> None:
        """Mark this process itself, and with it all that it will start."""
        os.environ[MARK_NAME] = token
        limit = calls.mark_limit()
        if limit is not None:
            with contextlib.suppress(OSError, ValueError):
                resource.setrlimit(limit, (number, resource.getrlimit(limit)[1]))

    def is_on(self, pid: int) -> bool:
        """Whether a process has this mark."""
        limit = calls.mark_limit()
        if limit is not None and self.number > 0 and calls.limit_of(pid, limit) == self.number:
            return True
        return f"{MARK_NAME}={self.token}".encode() in _environment(pid).split(b"\0")


def end_family(root: int | None, mark: Mark, term_s: float, *, spare_root: bool = False) -> bool:
    """End the root and all its descendants: TERM, grace, KILL. Return whether any was alive.

    A root that is to be spared gets no TERM: it ends by itself when its only child has ended, and
    would take the others' time to end away if it ended first.
    """
    orphans = _orphans(mark)
    if root is None and not orphans:  # the usual end of a trial, which never imports psutil
        return False
    family = _Family(root, mark)
    if not family.members(orphans):
        return False
    family.signal(signal.SIGTERM, spared=root if spare_root else None)
    if not family.wait(term_s):
        # More than once: what forks faster than we look has new members after each round.
        deadline = time.monotonic() + _KILL_S
        while time.monotonic() < deadline:
            family.signal(signal.SIGKILL)
            if family.wait(0.2):
                break
    _orphans(mark)  # reaps those that died just now
    return True


def pause(seconds: float) -> None:
    """Wait. time.sleep fails where programs see another time (libfaketime)."""
    select.select((), (), (), seconds)


def wait_for_orphans(mark: Mark, seconds: float = 1.0) -> None:
    """Wait until the marked orphans, which are being killed, have ended; reap them."""
    deadline = time.monotonic() + seconds
    while _orphans(mark) and time.monotonic() < deadline:
        pause(_SHORT_POLL_S)


@contextlib.contextmanager
def no_orphans_left() -> Iterator[None]:
    """Kill at the end what the block left to us and no mark tells of.

    A process that clears its environment and changes its limits has no mark left. It is still
    handed to us when it has lost its parent; but which trial it came from is not known, so it can
    be ended only when all of them have.
    """
    adopt_orphans()
    before = set(_adopted())
    try:
        yield
    finally:
        strays = [pid for pid in _adopted() if pid not in before and not _reap(pid)]
        if strays:
            _kill_trees(strays)


def kill_descendants() -> None:
    """Kill all that this process has started, and what that has started."""
    import psutil

    for child in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.Error):
            child.kill()


def _kill_trees(pids: Iterable[int]) -> None:
    import psutil

    for pid in pids:
        with contextlib.suppress(psutil.Error):
            root = psutil.Process(pid)
            for process in [root, *root.children(recursive=True)]:
                with contextlib.suppress(psutil.Error):
                    process.kill()
        _reap(pid)


def end_leftovers(run_token: str) -> int:
    """End what a run that was itself killed left behind; return how many processes."""
    left = _marked_by(run_token)
    for process in left:
        with contextlib.suppress(ProcessLookupError):
            os.kill(process.pid, signal.SIGKILL)
    deadline = time.monotonic() + _KILL_S
    while any(map(_is_alive, left)) and time.monotonic() < deadline:
        pause(_POLL_S)
    return len(left)


def _marked_by(run_token: str) -> list[Any]:
    """Return the processes that were started for trials of a run."""
    mark = f"\0{MARK_NAME}={run_token}.".encode()
    # As a rule there is none. psutil, which takes long to look at each, is then not even imported.
    pids = [pid for pid in _all_pids() if mark in _environment(pid)]
    if not pids:
        return []
    import psutil

    found = []
    for pid in pids:
        with contextlib.suppress(psutil.Error):
            process = psutil.Process(pid)
            if process.environ().get(MARK_NAME, "").startswith(f"{run_token}."):
                found.append(process)
    return found


def _all_pids() -> list[int]:
    """Return all processes of the machine, or as many as the system shows."""
    listed = system.list_proc()
    if listed is not None:
        return [int(name) for name in listed if name.isdigit()]
    import psutil

    return psutil.pids()


def _environment(pid: int) -> bytes:
    """Return the variables of a process, each after a zero byte; none if they cannot be read."""
    known = system.read_proc(f"{pid}/environ")
    if known is not None:
        return b"\0" + known
    if system.is_linux():
        return b""
    import psutil

    with contextlib.suppress(psutil.Error, OSError):
        pairs = psutil.Process(pid).environ().items()
        return os.fsencode("".join(f"\0{name}={value}" for name, value in pairs)) + b"\0"
    return b""


class _Family:
    """The living processes of one trial, looked up again each time: they may fork meanwhile."""

    def __init__(self, root: int | None, mark: Mark) -> None:
        import psutil

        self._psutil: Any = psutil
        self._root = root
        self._mark = mark
        self._known: dict[int, Any] = {}

    def members(self, orphans: Iterable[int] | None = None, *, thorough: bool = False) -> list[Any]:
        """Return all that are alive now, and remember them: a parent's death hides its children.

        A child of one that died meanwhile is an orphan by then. So none is left only when all
        known processes are dead and there are no orphans afterwards.
        """
        found = _orphans(self._mark) if orphans is None else orphans
        while True:
            self._add_trees([*found, *([self._root] if self._root else [])], thorough=thorough)
            for pid, process in list(self._known.items()):
                if not _is_alive(process):
                    del self._known[pid]
            if self._known:
                return list(self._known.values())
            before, found = found, _orphans(self._mark)
            if not found or found == before:
                return []

    def _add_trees(self, pids: Iterable[int], *, thorough: bool) -> None:
        """Add processes, all of which are our children, and what is below them."""
        for pid in pids:
            with contextlib.suppress(self._psutil.Error):
                process = self._known.setdefault(pid, self._psutil.Process(pid))
                below = None if thorough or not system.is_linux() else _listed_below(pid)
                if not system.is_linux():
                    below = _parents.below(pid)
                elif below is None:
                    below = [child.pid for child in process.children(recursive=True)]
                for child in below:
                    if child not in self._known:
                        self._known[child] = self._psutil.Process(child)

    def signal(self, number: int, spared: int | None = None) -> None:
        """Send a signal to each; those that ended meanwhile are skipped."""
        for process in self.members(thorough=True):
            if process.pid == spared:
                continue
            with contextlib.suppress(self._psutil.Error, OSError):
                process.send_signal(number)

    def wait(self, seconds: float) -> bool:
        """Wait until all are dead; return False when the time is over first."""
        deadline = time.monotonic() + seconds
        while self.members():
            if time.monotonic() >= deadline:
                return False
            # Where the kernel has no lists of children, each look is one at all processes.
            pause(_POLL_S if system.is_linux() else 10 * _POLL_S)
        return True


class _Parents:
    """Who is whose child, where the kernel does not list it: looked up for all trials at once."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._children: dict[int, list[int]] = {}
        self._until_s = 0.0

    def below(self, root: int) -> list[int]:
        import psutil

        with self._lock:
            if time.monotonic() > self._until_s:
                self._children = {}
                for process in psutil.process_iter(["ppid"]):
                    self._children.setdefault(process.info["ppid"], []).append(process.pid)
                self._until_s = time.monotonic() + 5 * _POLL_S
            children = self._children
        found = list(children.get(root, ()))
        for pid in found:  # grows while it is walked through
            found += children.get(pid, ())
        return found


_parents = _Parents()


def _listed_below(root: int) -> list[int] | None:
    """Give the processes below one by the kernel's lists of children; None where there are none.

    It is far cheaper than to look at all processes of the machine. A list may lack some while
    others of it end, so it serves to look again and again, not to look once.
    """
    found, waiting = [], [root]
    while waiting:
        pid = waiting.pop()
        for thread in system.list_proc(f"{pid}/task") or ():
            listed = system.read_proc(f"{pid}/task/{thread}/children")
            if listed is not None:
                waiting += (children := [int(child) for child in listed.split()])
                found += children
    if not found and system.children(os.getpid()) is None:
        return None
    return found


def is_alive(pid: int) -> bool:
    """Whether a process runs that is not our child; one that init has not reaped yet does not."""
    import psutil

    with contextlib.suppress(psutil.Error):
        return _is_alive(psutil.Process(pid))
    return False


def _is_alive(process: Any) -> bool:
    import psutil

    try:
        status = process.status() if process.is_running() else None
        # A process whose main thread has ended shows as a zombie while other threads still run.
        if status == psutil.STATUS_ZOMBIE:
            return bool(process.num_threads() > 1)
    except psutil.Error:
        return False
    return status not in (None, psutil.STATUS_DEAD)


def _orphans(mark: Mark) -> list[int]:
    """Return marked processes that lost their parent; reap those that have died.

    Only marked ones: another child may be a process that another trial is starting just now.
    """
    with _reap_lock:
        if not system.is_linux():
            return _strays(mark)
        while True:
            marked = [pid for pid in _adopted() if mark.is_on(pid)]
            alive = [pid for pid in marked if not _reap(pid)]
            if len(alive) == len(marked):
                return alive  # otherwise those just reaped may have left us their own children


def _adopted() -> list[int]:
    """Return our children that we did not start. Linux hands orphans to the main thread."""
    children = system.children(os.getpid())
    if children is None:
        import psutil

        children = [child.pid for child in psutil.Process().children()]
    return [child for child in children if child not in own_pids]


def _strays(mark: Mark) -> list[int]:
    """The same where orphans go to init: those that say by themselves where they come from."""
    import psutil

    found, ours = [], os.getsid(0)
    for pid in psutil.pids():
        with contextlib.suppress(psutil.Error, OSError):
            session = os.getsid(pid)
            if pid in own_pids or session == ours or pid in _strangers:
                continue
            process = psutil.Process(pid)
            began_s = process.create_time() + _CLOCK_S
            if began_s < mark.made_s:  # then it is not of this trial, whatever its session is
                if began_s < _started_s:
                    _strangers.add(pid)
                continue
            if (session in mark.sessions or mark.is_on(pid)) and _is_alive(process):
                found.append(pid)
    return found


def _reap(pid: int) -> bool:
    try:
        return os.waitpid(pid, os.WNOHANG)[0] != 0
    except ChildProcessError:
        return True


@cache
def _base_number() -> int:
    limit = calls.mark_limit()
    if limit is None:
        return 0
    soft = resource.getrlimit(limit)[0]
    # Marks count down from the limit in force, which anyone may lower; 819,200 is Linux's default.
    return soft if _NUMBERS < soft < resource.RLIM_INFINITY else 819_200
