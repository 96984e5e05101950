"""A process that has loaded assay and waits; copies of it run assay.

A copy behaves like `python -m assay`, without the 0.1 to 0.2 s that Python needs to load assay. The
argument is the file descriptor of a socket that listens. A request has its length and a line break,
then, with zero bytes between them, "again" or "once", the folder, the number of arguments, the
arguments and the variables; standard input, output and error come with it. The answers are two
lines: the process id of what runs assay, and the exit code. At the end of its own standard input
the process ends.

"once" makes a copy that becomes assay and ends with it. A copy that runs many commands one after
the other takes a third of the time: no pages are copied, and libraries are ready. So "again" gives
the command to such a copy if it is idle. It forgets what a command left in assay's modules, and
ends when something is left that it cannot take back.
"""

import atexit
import builtins
import contextlib
import gc
import importlib
import io
import os
import pkgutil
import resource
import runpy
import select
import signal
import socket
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

import assay.cli
from assay import system
from assay.cli.main import main
from assay.pipeline import steps
from assay.run import container, family, process, served

MOST_COMMANDS = 100
"""How many commands a copy runs before another takes its place."""
USUAL_CODES = range(5)
OURS = ("assay", "assay_arc")
HOLD_FILES = (system._children_file, process._empty_stdin)
"""What they remember is an open file, as good for the next command."""
MOST_FILES = 20
"""How many files may have been left open."""
RETRY_PAUSE_S = 0.02
"""The first pause before a trial is made again, which is a second elsewhere."""
NOT_LOADED = (
    *("assay.__main__", "assay.evidence.keyless", "assay.pytest_plugin", "assay.testing"),
    "assay.viewer",
)
"""What few commands need and what loads large libraries. It is loaded when it was needed once."""


class Request(NamedTuple):
    """What assay is to be started with."""

    payload: bytes
    fds: list[int]

    @property
    def may_reuse(self) -> bool:
        return self.payload.startswith(b"again\0")

    @property
    def words(self) -> tuple[str, list[str], dict[str, str]]:
        """The folder, the arguments and the variables."""
        _, cwd, n_args, *words = [os.fsdecode(word) for word in self.payload.split(b"\0")]
        variables = (word.partition("=") for word in words[int(n_args) :])
        return cwd, words[: int(n_args)], {name: value for name, _, value in variables}


def receive(connection: socket.socket) -> Request | None:
    """Read a request; nothing if the other end was closed."""
    first, fds, _, _ = socket.recv_fds(connection, 1 << 16, 3)
    if not first:
        return None
    length, _, payload = first.partition(b"\n")
    while len(payload) < int(length):
        payload += connection.recv(1 << 16)
    return Request(payload, fds)


def send(connection: socket.socket, request: Request) -> None:
    """Pass a request on."""
    message = b"%d\n%b" % (len(request.payload), request.payload)
    sent = socket.send_fds(connection, [message], request.fds)
    connection.sendall(message[sent:])


class Copy:
    """A copy of this process, as seen from here."""

    def __init__(self, pid: int, control: socket.socket | None = None) -> None:
        self.pid = pid
        self.control = control
        """How it is given commands and says their exit codes, if it runs more than one."""
        self.client: socket.socket | None = None
        """Who waits for the exit code."""
        self._ended = os.pidfd_open(pid)

    def fileno(self) -> int:
        """What can be read when there is an exit code."""
        return self.control.fileno() if self.control else self._ended

    def end(self) -> None:
        """End the copy: an idle one by closing its socket, one that runs on by force."""
        if self.control and not self.client:
            self.control.close()
        else:
            os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)

    def takes(self, request: Request) -> bool:
        """Give it a command; return whether it still lives."""
        assert self.control is not None
        try:
            send(self.control, request)
        except OSError:
            return False
        return True

    def answer(self) -> bool:
        """Tell the client how its command ended; return whether the copy lives on."""
        said = b""
        with contextlib.suppress(OSError):  # killed before it had read its command
            said = self.control.recv(1 << 16) if self.control else b""
        lives = said.endswith(b"\n")
        if not lives:
            code = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
            said, *missing = said.split() or [str(code).encode()]
            for name in missing:
                importlib.import_module(name.decode())
            os.close(self._ended)
            if self.control:
                self.control.close()
        if self.client:
            with contextlib.suppress(OSError), self.client:
                self.client.sendall(said.strip() + b"\n")
            self.client = None
        return lives


def serve(listener: socket.socket) -> Request | None:
    """Answer requests; return one in each copy for it alone, nothing when there will be no more."""
    copies: list[Copy] = []
    while True:
        ready, _, _ = select.select([listener, sys.stdin, *copies], [], [])
        for copy in [found for found in ready if isinstance(found, Copy)]:
            if not copy.answer():
                copies.remove(copy)
        if sys.stdin in ready:
            for copy in copies:  # what they took is counted as ours only when we have waited
                copy.end()
            return None
        if listener in ready:
            client, _ = listener.accept()
            request = receive(client)
            if request is None:
                continue
            foreign = [listener.fileno(), client.fileno(), *request.fds]
            chosen = _idle(copies, foreign) if request.may_reuse else None
            if not (chosen and chosen.takes(request)):
                if request.words[1][:1] == ["query"]:
                    import duckdb  # noqa: F401 - once for all copies: it takes 50 ms
                pid = os.fork()
                if pid == 0:
                    listener.close()
                    client.close()
                    return request
                chosen = Copy(pid)
                copies.append(chosen)
            for fd in request.fds:
                os.close(fd)
            with contextlib.suppress(OSError):  # who asked is gone
                client.sendall(f"{chosen.pid}\n".encode())
            chosen.client = client


def _idle(copies: list[Copy], foreign: list[int]) -> Copy | None:
    """Give the copy that runs many commands, made if need be; none while it is busy.

    It must not keep open what is foreign to it.
    """
    for copy in copies:
        if copy.control:
            return None if copy.client else copy
    ours, theirs = socket.socketpair()
    pid = os.fork()
    if pid == 0:
        ours.close()
        for fd in foreign:
            os.close(fd)
        run_many(theirs)
    theirs.close()
    copies.append(Copy(pid, ours))
    return copies[-1]


def become_assay(request: Request) -> NoReturn:
    """Do what Python does for `python -m assay` in a folder and with an environment."""
    enter(request)
    sys.argv[0] = "-m"
    try:
        runpy._run_module_as_main("assay")  # type: ignore[attr-defined]
    except SystemExit as end:
        if isinstance(end.code, int):
            leave(end.code)
        raise
    leave(0)


def enter(request: Request) -> None:
    """Take on the streams, the folder, the arguments and the variables of a request."""
    for target, fd in enumerate(request.fds):
        os.dup2(fd, target)
        os.close(fd)
    cwd, args, env = request.words
    os.chdir(cwd)
    os.environ.clear()
    os.environ.update(env)
    tempfile.tempdir = None  # of the last command, whose folder may be gone
    sys.path[0] = str(Path.cwd())
    open_streams()
    # The only value that a process makes of its own while it is loaded.
    container._LABEL = f"assay-run={os.getpid()}-{time.time_ns()}"
    sys.argv = [f"{Path(assay.__file__).parent}/__main__.py", *args]


def open_streams() -> None:
    """Make the streams anew: those of this process know that they were not pipes or terminals."""
    sys.stdin = open(0, encoding="utf-8", errors="strict", closefd=False)  # noqa: SIM115
    out: Any = open(1, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
    if os.environ.get("PYTHONUNBUFFERED"):
        out = io.TextIOWrapper(open(1, "wb", 0, closefd=False), "utf-8", write_through=True)  # noqa: SIM115
    sys.stdout = out
    sys.stderr = open(2, "w", 1, "utf-8", "backslashreplace", closefd=False)  # noqa: SIM115


def leave(code: int) -> NoReturn:
    """End like Python, but leave the loaded modules to the system: their end takes 0.03 s."""
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def run_many(control: socket.socket) -> NoReturn:
    """Run the commands that come over a socket, as if each were in a new process."""
    memory = Memory()
    for n_left in reversed(range(MOST_COMMANDS)):
        request = receive(control)
        if request is None:
            break
        handlers = [(number, signal.getsignal(number)) for number in range(1, signal.SIGRTMIN)]
        enter(request)
        code = run_here(memory)
        usual = code in USUAL_CODES and threading.active_count() == 1 and memory.is_whole()
        if not (usual and n_left):
            # Without a line break: this was the last. What it had to load is loaded for the next.
            control.sendall(" ".join([str(code), *memory.new_modules()]).encode())
            break
        for number, handler in handlers:
            if signal.getsignal(number) is not handler and handler is not None:
                signal.signal(number, handler)
        memory.restore()
        control.sendall(f"{code}\n".encode())
    os._exit(0)


def run_here(memory: "Memory") -> int:
    """Run one command to its end; give its exit code."""
    try:
        main()
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(bool(end.code))
    except BaseException:  # noqa: BLE001 - what Python itself does with it
        traceback.print_exc()
        code = 1
    for thread in threading.enumerate():  # Python waits for them when it ends
        if not thread.daemon and thread is not threading.main_thread():
            thread.join()
    memory.run_exit_functions()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.close()
    sys.stdin.close()
    nothing = os.open(os.devnull, os.O_RDWR)
    for fd in range(3):
        os.dup2(nothing, fd)
    os.close(nothing)
    return code


class Memory:
    """What assay's modules hold before a command, to have it again afterwards."""

    def __init__(self) -> None:
        self._names = set(sys.modules)
        modules = [module for name, module in sys.modules.items() if _is_ours(name)]
        self._spaces = [(vars(module), dict(vars(module))) for module in modules]
        values = [value for _, space in self._spaces for value in space.values()]
        found = {id(value): value for value in values if type(value) in (dict, list, set)}
        found.pop(id(vars(builtins)), None)
        self._containers: list[Any] = [(value, value.copy()) for value in found.values()]
        self._caches = [value for value in values if hasattr(value, "cache_clear")]
        for function in HOLD_FILES:
            self._caches.remove(function)
        classes = {value for value in values if isinstance(value, type)}
        self._attributes = [
            (owner, name, value)
            for owner in classes
            if _is_ours(owner.__module__)
            for name, value in vars(owner).items()
            if isinstance(value, (bool, int, float, str, tuple)) and not name.startswith("__")
        ]
        self._path = list(sys.path)
        self._n_files = _n_files()
        self._limit = resource.getrlimit(resource.RLIMIT_NOFILE)
        self._exits: list[tuple[Callable[..., Any], Any, Any]] = []
        self._really_register, self._really_unregister = atexit.register, atexit.unregister
        atexit.register = self._register  # type: ignore[assignment]
        atexit.unregister = self._unregister

    def is_whole(self) -> bool:
        """Whether everything can be restored: no module was loaded that has a state of its own."""
        new = [sys.modules[name] for name in sys.modules.keys() - self._names]
        places = [getattr(module, "__file__", None) or sys.prefix for module in new]
        foreign = [place for place in places if not place.startswith((sys.prefix, sys.base_prefix))]
        few_files = _n_files() < self._n_files + MOST_FILES
        return not self.new_modules() and not foreign and few_files

    def new_modules(self) -> list[str]:
        """Name the modules of assay that had to be loaded."""
        return [name for name in sys.modules.keys() - self._names if _is_ours(name)]

    def restore(self) -> None:
        """Take back what the last command changed."""
        family.leave_orphans()
        family.forget_parent()
        process.start_over()
        for now, before in (*self._spaces, *self._containers):
            if now == before:
                continue
            if isinstance(now, list):
                now[:] = before
                continue
            if isinstance(now, dict):
                for name in now.keys() - before.keys():
                    del now[name]
            else:
                now.clear()
            now.update(before)
        for owner, name, value in self._attributes:
            if getattr(owner, name) is not value:
                setattr(owner, name, value)
        for function in self._caches:
            function.cache_clear()
        sys.path[:] = self._path
        resource.setrlimit(resource.RLIMIT_NOFILE, self._limit)
        gc.unfreeze()

    def _register(self, function: Callable[..., Any], *args: Any, **options: Any) -> Any:
        self._exits.append((function, args, options))
        return self._really_register(function, *args, **options)  # a copy may end by itself

    def _unregister(self, function: Callable[..., Any]) -> None:
        self._exits = [found for found in self._exits if found[0] != function]
        self._really_unregister(function)

    def run_exit_functions(self) -> None:
        """Call what the command registered for the end of the process, and what assay did."""
        while self._exits:
            function, args, options = self._exits.pop()
            self._really_unregister(function)
            function(*args, **options)
        served.close_served()


def _n_files() -> int:
    return len(os.listdir("/proc/self/fd"))  # noqa: PTH208


def _is_ours(name: str) -> bool:
    return name.partition(".")[0] in OURS


def load() -> None:
    """Load what commands load, most of it late."""
    for room in pkgutil.iter_modules(assay.__path__, "assay."):
        if room.name not in NOT_LOADED:
            path = getattr(importlib.import_module(room.name), "__path__", [])
            for module in pkgutil.walk_packages(path, f"{room.name}."):
                if module.name not in NOT_LOADED:
                    with contextlib.suppress(ModuleNotFoundError):  # what an extra would install
                        importlib.import_module(module.name)
    steps._FIRST_PAUSE_S = RETRY_PAUSE_S
    gc.collect()
    gc.freeze()


if __name__ == "__main__":
    load()
    with socket.socket(fileno=int(sys.argv[1])) as asked:
        asked.set_inheritable(False)
        found = serve(asked)
    if found is not None:
        become_assay(found)
