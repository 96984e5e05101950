"""The child's side of forking: a server that forks, and the processes that it makes.

`process.py` starts the server while it has no threads yet, because a process that has threads must
not fork: their locks would stay locked in the copy. Each process that the server makes builds a
function and calls it with the lines that come in. It is cheap because it has its parent's modules
already.
"""

import atexit
import contextlib
import fcntl
import os
import select
import signal
import socket
import struct
import sys
from collections.abc import Callable, Iterator, Sequence
from importlib import import_module
from typing import NoReturn

import msgspec

from assay.run import family

type AnswerLines = Callable[[bytes], Iterator[bytes]]
"""Takes lines and yields an answer to each as soon as it is known; all end in line feeds."""
PID = struct.Struct("=q")
FDS = 3
"""A process is given three pipes: lines to read, answers to write, and one to wake the reader."""
_BLOCK = 64 * 1024


class Start(msgspec.Struct, frozen=True, kw_only=True):
    """The first line a forked process reads."""

    function: str
    """module:name of a function that is called with the argument and returns an AnswerLines."""
    argument: str
    token: str
    number: int
    """Both are those of its family.Mark."""


_START = msgspec.json.Decoder(Start)


def open_control() -> tuple[socket.socket, socket.socket]:
    """Make the two ends over which a fork is requested: ours, and that of serve_forks."""
    return socket.socketpair()


def request_fork(control: socket.socket, fds: Sequence[int]) -> int:
    """Ask for a process that has these pipes; return its pid, -1 when it could not be forked."""
    try:
        socket.send_fds(control, [b"!"], fds)
        reply = control.recv(PID.size)
    except OSError:
        return -1
    return int(PID.unpack(reply)[0]) if len(reply) == PID.size else -1


def serve_forks(control: socket.socket) -> NoReturn:
    """Fork a process for each request, until the other end is closed."""
    # The parent may have had stdin, stdout or stderr closed, so that the socket got its number;
    # _leave_parent redirects those three.
    control = socket.socket(fileno=fcntl.fcntl(control.fileno(), fcntl.F_DUPFD_CLOEXEC, 3))
    _leave_parent(keep=[control.fileno()])
    flags = getattr(socket, "MSG_CMSG_CLOEXEC", 0)
    alive = _Alive()
    with contextlib.suppress(OSError):
        while True:
            message, fds, *_ = socket.recv_fds(control, 1, FDS, flags)
            if not message:
                break
            pid = _fork_twice(control, fds)
            alive.add(pid)
            control.sendall(PID.pack(pid))
            for fd in fds:
                os.close(fd)
    alive.kill()
    os._exit(0)


class _Alive:
    """The processes that were forked, to be killed when the one that asked for them was killed.

    Held by pidfd: a pid may be used again for another process, a pidfd never.
    """

    def __init__(self) -> None:
        self._pidfds: list[int] = []

    def add(self, pid: int) -> None:
        ended = select.poll()
        for fd in self._pidfds:
            ended.register(fd, select.POLLIN)
        for fd, _ in ended.poll(0):
            self._pidfds.remove(fd)
            os.close(fd)
        with contextlib.suppress(OSError, AttributeError):  # not every system has them
            self._pidfds.append(os.pidfd_open(pid))

    def kill(self) -> None:
        for fd in self._pidfds:
            with contextlib.suppress(OSError):
                signal.pidfd_send_signal(fd, signal.SIGKILL)


def _fork_twice(control: socket.socket, fds: Sequence[int]) -> int:
    """Fork by way of a process that ends at once, as a daemon does, to make the result an orphan.

    The kernel hands the orphan to the process that asked (see family.adopt_orphans), which can
    wait for it as for any child.
    """
    read_end, write_end = os.pipe()
    between = os.fork()
    if between == 0:
        try:
            pid = os.fork()
        except OSError:
            os._exit(1)  # not upwards: this copy of serve_forks would kill the other graders
        if pid == 0:
            control.close()
            os.close(read_end)
            os.close(write_end)
            _answer_lines(fds)
        os.write(write_end, PID.pack(pid))
        os._exit(0)
    os.close(write_end)
    packed_pid = os.read(read_end, PID.size)  # empty when the second fork failed
    os.close(read_end)
    os.waitpid(between, 0)
    return int(PID.unpack(packed_pid)[0]) if packed_pid else -1


def _leave_parent(keep: Sequence[int]) -> None:
    """Drop what belongs to the process that we are a copy of: terminal, signal handlers, files."""
    os.setsid()  # Ctrl-C in the terminal is for the parent, which ends us
    for number in signal.valid_signals():
        if callable(signal.getsignal(number)):
            signal.signal(number, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.set_wakeup_fd(-1)
    atexit._clear()  # the exit handlers are the parent's too
    _close_files({*keep, *([2] if sys.stderr is not None else [])})
    # What the parent had read ahead of its stdin or not yet written to its stdout stays its own.
    _parent_streams.extend([sys.stdin, sys.stdout])
    sys.stdin = open(os.devnull)  # noqa: SIM115, PTH123 - as long as the process
    sys.stdout = sys.stderr if sys.stderr is not None else open(os.devnull, "w")  # noqa: SIM115, PTH123


_parent_streams: list[object] = []
"""Kept from being collected, which would write their buffers a second time."""


def _close_files(keep: set[int]) -> None:
    """Redirect every open file to /dev/null, stdout to where stderr goes.

    Not closed: an object of the parent that is collected later would close its number again, and by
    then the number would be another file's.
    """
    null = os.open(os.devnull, os.O_RDWR)
    for name in os.listdir("/dev/fd"):  # noqa: PTH208 - names, not paths
        with contextlib.suppress(OSError):  # the list itself was open while it was read
            fd = int(name)
            if fd not in keep and fd != null:
                os.fstat(fd)  # raises when it is not open any more
                os.dup2(null, fd, inheritable=fd <= 2)
    if 2 not in keep:
        os.dup2(null, 2)
    os.dup2(2, 1)
    os.dup2(null, 0)


def _answer_lines(fds: Sequence[int]) -> NoReturn:
    """Answer every line; exit when the input ends, or when the function ends its process."""
    code = 1
    try:
        os.setsid()
        questions, answers, wake_fd = fds
        for fd in (answers, wake_fd):
            os.set_blocking(fd, False)
        copied: list[bool] = []  # not empty in a process that the function has forked
        os.register_at_fork(after_in_child=lambda: copied.append(True))
        start, questions_in = _first_line(questions)
        answer = _function(_START.decode(start))
        for block in _blocks(questions, questions_in):
            for line in answer(block):
                if copied:  # the function forked, and its copy came back to our loop
                    os._exit(1)
                _write(answers, line, wake_fd)
            _wake(wake_fd)
        atexit._run_exitfuncs()
        code = 0
    except Exception:  # noqa: BLE001 - nobody above us but the parent's frames
        sys.excepthook(*sys.exc_info())
    finally:
        os._exit(code)


def _function(start: Start) -> AnswerLines:
    family.Mark.put_on_self(start.token, start.number)
    module, _, name = start.function.partition(":")
    build: Callable[[str], AnswerLines] = getattr(import_module(module), name)
    return build(start.argument)


def _first_line(fd: int) -> tuple[bytes, bytes]:
    """Return the first line and what was read after it."""
    read = b""
    while b"\n" not in read and (block := os.read(fd, _BLOCK)):
        read += block
    line, _, rest = read.partition(b"\n")
    return line, rest


def _blocks(fd: int, rest: bytes) -> Iterator[bytes]:
    """Yield whole lines as they come, many at a time."""
    parts = [rest]  # of a line that is longer than a block
    block = rest
    while True:
        end = block.rfind(b"\n") + 1
        if end:
            yield b"".join(parts[:-1]) + block[:end]
            parts = [block[end:]]
        block = os.read(fd, _BLOCK)
        if not block:
            return
        parts.append(block)


def _write(fd: int, line: bytes, wake_fd: int) -> None:
    """Write a line at once, so that it is not lost when the process dies over the next one.

    The reader does not wait on this pipe but on wake_fd, so that it is not woken by each line.
    """
    n_written = 0
    while n_written < len(line):
        try:
            n_written += os.write(fd, line[n_written:] if n_written else line)
        except BlockingIOError:
            _wake(wake_fd)  # the pipe is full: the reader has to empty it
            room = select.poll()
            room.register(fd, select.POLLOUT)
            room.poll()


def _wake(wake_fd: int) -> None:
    with contextlib.suppress(BlockingIOError):  # full of earlier wake-ups: one is enough
        os.write(wake_fd, b"!")


def main() -> None:
    """Serve over stdin, with the modules imported that the processes will need."""
    control = socket.socket(fileno=os.dup(0))
    for module in sys.argv[1:]:
        import_module(module)
    serve_forks(control)


if __name__ == "__main__":
    main()
