"""Do work in a copy of this process, apart from the program that asked for it.

A program that uses Assay as a library may have threads, an event loop, signal handlers and child
processes of its own. A run wants a process without any: it forks, adopts orphans, kills what is
left over and stops everything at once. So each run has a process of its own. It ends when its
caller closes it or dies, and takes its agents along.

A program without threads is forked: that is quick, and the copy knows the program's functions. In a
program with threads the copy may find a lock that nobody opens any more, so there the process is a
new interpreter, which is sent the work. Functions are the exception: they may depend on all that
the program has, so a program that gives some is forked even if it has threads, unless it has loaded
a library that crashes in a fork (see _NOT_FORKED). Then functions are sent too, by value where
cloudpickle or Ray can do that.
"""

import contextlib
import fcntl
import os
import pickle
import select
import signal
import socket
import struct
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NoReturn

from assay import functions, plugins
from assay.errors import OutOfResources, PluginError
from assay.records.files import temporary_file
from assay.records.forked import has_threads
from assay.run import family, fork, process, served

type Send = Callable[[bytes], None]
_LENGTH = struct.Struct("=Q")
_BLOCK = 1024 * 1024
_WAKE_S = 0.1
"""A signal that comes just before a wait does not end it; so no wait is longer than this."""
_END_S = 20.0
"""How long the work may take to end its agents once it is told to stop."""
_MOST_BYTES = 64 * 1024 * 1024
"""Messages that nobody has taken yet: at this size, the work waits."""


_NOT_FORKED = {"ray._raylet": "Ray", "grpc._cython.cygrpc": "gRPC", "jaxlib": "JAX"}
"""With one of these modules loaded, a program is never forked: its copy may crash or hang."""
_BY_VALUE = ("cloudpickle", "ray.cloudpickle")
"""Modules that can send functions which a new process cannot import."""
_GIVEN = "what was given"
_MAIN = b"__main__"
"""In what is pickled, this module is that of the program; a new process has another."""
_TO_CALLER = 3
"""Where a new process has its end of the socket."""
_NEW = "import sys; sys.path[:] = {path!r}; from {module} import do_received; do_received()"


class Background:
    """A process that does some work, and the messages that it sends."""

    def __init__(
        self, work: Callable[[Send], None], known: Mapping[str, Callable[..., Any]] | None = None
    ) -> None:
        """known: functions that the work needs, by key."""
        sent = _packed(work, dict(known or {}))
        self._owner = os.getpid()
        self._lock = threading.Lock()
        self._received = bytearray()
        self._is_open = True
        self._is_loading = sent is not None
        self._status: int | None = None
        self._socket, theirs = socket.socketpair()
        with theirs:
            process.flush_streams()
            # Held back while the copy still has our handlers: they would act in our name.
            before = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
            try:
                self._pid = fork.fork_process() if sent is None else _start(sent, theirs, before)
                if self._pid == 0:
                    _do(work, dict(known or {}), theirs, before)
            except OSError as error:
                self._socket.close()
                msg = f"cannot fork a process: {error.strerror}"
                raise OutOfResources(msg, hint="end other programs, or free some memory") from error
            finally:
                signal.pthread_sigmask(signal.SIG_SETMASK, before)

    def fileno(self) -> int:
        """The file that can be read when there is something to receive."""
        return self._socket.fileno()

    def receive(self) -> bytes | None:
        """Wait for the next message; None when the work is over."""
        while (message := self.receive_now()) is None:
            if self.is_over:
                return None
            poll = select.poll()
            poll.register(self._socket, select.POLLIN)
            poll.poll(_WAKE_S * 1000)
        return message

    def receive_now(self) -> bytes | None:
        """Return the next message if there is one."""
        with self._lock:
            while (message := self._take()) is None and self._is_open:
                try:
                    block = self._socket.recv(_BLOCK, socket.MSG_DONTWAIT)
                except BlockingIOError:
                    return None
                except OSError:
                    block = b""
                if not block:
                    self._end()
                self._received += block
        return message

    @property
    def is_over(self) -> bool:
        """Whether no message can come any more."""
        return not self._is_open

    @property
    def how_it_ended(self) -> str:
        """How the process ended, if not by itself after its work."""
        code = self._status or 0
        if code < 0:
            return f"{process.name_of_signal(-code)} killed the process that ran the trials"
        return f"the process that ran the trials ended with exit code {code}" if code else ""

    def close(self) -> None:
        """Stop the work, and wait until it has ended all that it started."""
        if os.getpid() != self._owner:  # a copy of the program: the work is not its own
            self._is_open = False
            self._socket.close()
            return
        if not self._is_open:
            return
        try:
            self.stop()
            while self._is_open:
                self.receive()
        finally:
            self._is_open = False
            self._socket.close()

    def stop(self) -> None:
        """Tell the work to stop, and do not wait for it."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_WR)

    def _take(self) -> bytes | None:
        """Return the first message if it is whole; raise what a new process could not load."""
        message = _take_message(self._received)
        if message is None or not self._is_loading:
            return message
        self._is_loading = False
        if message:
            raise _cannot_send(_GIVEN, message.decode(errors="replace"))
        return _take_message(self._received)

    def _end(self) -> None:
        self._is_open = False
        self._socket.close()
        with contextlib.suppress(ChildProcessError):  # the program waits for all its children
            _, status = os.waitpid(self._pid, 0)
            self._status = os.waitstatus_to_exitcode(status)


def _take_message(received: bytearray) -> bytes | None:
    """Remove the first message from what was received, if it is whole."""
    if len(received) < _LENGTH.size:
        return None
    (length,) = _LENGTH.unpack_from(received)
    end = _LENGTH.size + length
    if len(received) < end:
        return None
    message = bytes(memoryview(received)[_LENGTH.size : end])
    del received[:end]
    return message


def _packed(work: Callable[[Send], None], known: dict[str, Callable[..., Any]]) -> bytes | None:
    """Return work and functions for a new process; None if a copy of this one is to do the work."""
    if not _library_against_forks():
        # A program that was frozen with its interpreter would start itself.
        can_start = bool(sys.executable) and not hasattr(sys, "frozen")
        return _packed_data(work) if can_start and not known and has_threads() else None
    by_value = next((sys.modules[name] for name in _BY_VALUE if name in sys.modules), None)
    for key, function in known.items() if by_value is None else ():
        what = f"the function {functions.split_key(key)[0]!r}"
        if _MAIN in _pickled(pickle, function, what):
            raise _cannot_send(what)
    return _pickled(by_value or pickle, (work, known), _GIVEN)


def _packed_data(work: Callable[[Send], None]) -> bytes | None:
    """Return work without functions; None if it has a path or a dict of a class of the program."""
    with contextlib.suppress(PluginError):
        packed = _pickled(pickle, (work, {}), _GIVEN)
        return None if _MAIN in packed else packed
    return None


def _library_against_forks() -> str:
    return next((name for module, name in _NOT_FORKED.items() if module in sys.modules), "")


def _pickled(module: Any, value: object, what: str) -> bytes:
    try:
        return bytes(module.dumps(value))
    except Exception as error:  # whatever the methods of a program's object raise
        raise _cannot_send(what, error) from error


def _cannot_send(what: str, why: object = "") -> PluginError:
    library = _library_against_forks()
    msg = (
        f"this program has {f'loaded {library}' if library else 'threads'}, so that its trials run "
        f"in a new Python process, which cannot have {what}{f': {why}' if why else ''}"
    )
    hint = (
        "move the functions to a module that can be imported, and give them from there; "
        "or install cloudpickle and import it before this"
    )
    return PluginError(msg, hint=hint)


def _start(sent: bytes, theirs: socket.socket, signals: Iterable[int]) -> int:
    """Start a new interpreter that finds the work on stdin; return its pid.

    In a file, and not through a pipe, so that nobody waits until it is read.
    """
    with temporary_file() as file:
        file.write(sent)
        file.seek(0)
        # Their numbers may be those that the new process has them under.
        given = {0: file.fileno(), _TO_CALLER: theirs.fileno()}
        given = {new: fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, 10) for new, fd in given.items()}
    try:
        code = _NEW.format(path=sys.path, module=__name__)
        return os.posix_spawn(
            sys.executable,
            [sys.executable, "-P", "-c", code],
            os.environ,
            file_actions=[(os.POSIX_SPAWN_DUP2, fd, new) for new, fd in given.items()],
            setsigmask=list(signals),
        )
    finally:
        for fd in given.values():
            os.close(fd)


def do_received() -> NoReturn:
    """Be a new process: load the work, say what keeps it from being loaded, and do it."""
    to_caller = socket.socket(fileno=_TO_CALLER)
    to_caller.set_inheritable(False)
    problem = b""
    try:
        with open(0, "rb", closefd=False) as file:
            work, known = pickle.load(file)
    except Exception as error:  # noqa: BLE001 - modules of the program are imported
        problem = f"{type(error).__name__}: {error}".encode(errors="replace")
    to_caller.sendall(_LENGTH.pack(len(problem)) + problem)
    if problem:
        os._exit(1)
    _do(work, known, to_caller, signal.pthread_sigmask(signal.SIG_BLOCK, ()))


def _do(
    work: Callable[[Send], None],
    known: dict[str, Callable[..., Any]],
    to_caller: socket.socket,
    signals: Iterable[int],
) -> NoReturn:
    """Be the process that does the work."""
    code = 1
    try:
        fork.leave_parent(keep=[to_caller.fileno()])
        # That of the program may be another file, or write to a notebook.
        sys.stdout = sys.stderr = open(2, "w", buffering=1, closefd=False)  # noqa: SIM115
        family.forget_parent()
        served.forget_parent()
        process.forget_parent()
        plugins.forget()  # files that a grader was made from may have changed since
        functions.known.clear()
        functions.known.update(known)
        signal.signal(signal.SIGTERM, lambda *_: to_caller.shutdown(socket.SHUT_RD))
        signal.pthread_sigmask(signal.SIG_SETMASK, signals)
        threading.Thread(target=_stop_with_caller, args=(to_caller,), daemon=True).start()
        messages = _Messages(to_caller)
        work(messages.put)
        messages.close()
        code = 0
    except BaseException:  # noqa: BLE001 - above us are only the frames of the program
        sys.excepthook(*sys.exc_info())
    finally:
        os._exit(code)


def _stop_with_caller(to_caller: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while to_caller.recv(1):  # nothing is ever sent; it returns when the other end is closed
            pass
    until_s = time.monotonic() + _END_S
    while time.monotonic() < until_s:
        process.stop_all()  # again and again: the work may just have begun anew
        family.pause(_WAKE_S)
    family.kill_descendants()
    os._exit(1)


class _Messages:
    """Sends messages in a thread of its own, so that the work goes on while the caller is busy."""

    def __init__(self, to_caller: socket.socket) -> None:
        self._socket = to_caller
        self._waiting: deque[bytes | None] = deque()
        self._n_bytes = 0
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._send, daemon=True)
        self._thread.start()

    def put(self, message: bytes) -> None:
        """Have a message sent; wait while very much is waiting already."""
        with self._changed:
            self._changed.wait_for(lambda: self._n_bytes < _MOST_BYTES)
            self._n_bytes += len(message)
            self._waiting.append(message)
            self._changed.notify_all()

    def close(self) -> None:
        """Wait until everything is sent."""
        with self._changed:
            self._waiting.append(None)
            self._changed.notify_all()
        self._thread.join()

    def _send(self) -> None:
        is_heard = True
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._waiting)
                message = self._waiting.popleft()
            if message is None:
                return
            if is_heard:
                try:
                    self._socket.sendall(_LENGTH.pack(len(message)) + message)
                except OSError:  # the caller is gone
                    is_heard = False
            with self._changed:
                self._n_bytes -= len(message)
                self._changed.notify_all()
