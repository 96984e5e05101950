"""Do work in a copy of this process, apart from the program that asked for it.

A program that uses Assay as a library may have threads, an event loop, signal handlers and child
processes of its own. A run wants a process without any: it forks, adopts orphans, kills what is
left over and stops everything at once. So each run has a process of its own, forked here, and knows
the program's functions. It ends when its caller closes it or dies, and takes its agents along.

A program that has loaded Ray may crash in a fork, or its copy may. There the process is a new
interpreter, which is sent the work; functions that it cannot import cannot be sent.
"""

import contextlib
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


_NOT_FORKED = "ray._raylet"
"""With this module loaded, a program is not forked."""
_NEW = "import sys; sys.path[:] = {path!r}; from {module} import do_received; do_received()"
_CANNOT_SEND = (
    "this program has loaded Ray, so that its trials run in a new Python process, which cannot have"
)
_IMPORTABLE = (
    "move the functions to a module that can be imported, and give them from there; "
    "or run this before Ray is imported"
)


class Background:
    """A process that does some work, and the messages that it sends."""

    def __init__(
        self, work: Callable[[Send], None], known: Mapping[str, Callable[..., Any]] | None = None
    ) -> None:
        """known: functions that the work needs, by key."""
        sent = _packed(work, dict(known or {})) if _NOT_FORKED in sys.modules else None
        self._owner = os.getpid()
        self._lock = threading.Lock()
        self._received = bytearray()
        self._is_open = True
        self._status: int | None = None
        self._socket, theirs = socket.socketpair()
        with theirs:
            process.flush_streams()
            # Held back while the copy still has our handlers: they would act in our name.
            before = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
            try:
                self._pid = fork.fork_process() if sent is None else _start_new(theirs, before)
                if self._pid == 0:
                    _do(work, dict(known or {}), theirs, before)
            except OSError as error:
                self._socket.close()
                msg = f"cannot fork a process: {error.strerror}"
                raise OutOfResources(msg, hint="end other programs, or free some memory") from error
            finally:
                signal.pthread_sigmask(signal.SIG_SETMASK, before)
        if sent is not None:
            self._hand_over(sent)

    def _hand_over(self, sent: bytes) -> None:
        """Send the work to a new process; raise what keeps it from being loaded there."""
        with contextlib.suppress(OSError):  # it is gone, and how it ended will be told
            self._socket.sendall(_LENGTH.pack(len(sent)) + sent)
        if problem := self.receive():
            self.close()
            msg = f"{_CANNOT_SEND} what was given: {problem.decode(errors='replace')}"
            raise PluginError(msg, hint=_IMPORTABLE)

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


def _packed(work: Callable[[Send], None], known: dict[str, Callable[..., Any]]) -> bytes:
    """Return work and functions for a new process; refuse functions that it would not find."""
    for key, function in known.items():
        what = f"the function {functions.split_key(key)[0]!r}"
        if b"__main__" in _pickled(function, what):  # that of a new process is another
            msg = f"{_CANNOT_SEND} {what}"
            raise PluginError(msg, hint=_IMPORTABLE)
    return _pickled((work, known), "what was given")


def _pickled(value: object, what: str) -> bytes:
    try:
        return pickle.dumps(value)
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        msg = f"{_CANNOT_SEND} {what}: {error}"
        raise PluginError(msg, hint=_IMPORTABLE) from error


def _start_new(theirs: socket.socket, signals: Iterable[int]) -> int:
    """Start a new interpreter that has a socket as stdin; return its pid."""
    code = _NEW.format(path=sys.path, module=__name__)
    return os.posix_spawn(
        sys.executable,
        [sys.executable, "-P", "-c", code],
        os.environ,
        file_actions=[(os.POSIX_SPAWN_DUP2, theirs.fileno(), 0)],
        setsigmask=list(signals),
    )


def do_received() -> NoReturn:
    """Be a new process that does the work that comes over its stdin."""
    to_caller = socket.socket(fileno=os.dup(0))
    received = bytearray()
    while (sent := _take_message(received)) is None:
        block = to_caller.recv(_BLOCK)
        if not block:
            os._exit(1)
        received += block
    problem = ""
    try:
        work, known = pickle.loads(sent)
    except Exception as error:  # noqa: BLE001 - modules of the program are imported
        problem = f"{type(error).__name__}: {error}"
    to_caller.sendall(_LENGTH.pack(len(problem.encode())) + problem.encode())
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
        time.sleep(_WAKE_S)
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
