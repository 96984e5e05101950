"""The child's side of forking: a server that forks, and the processes that it makes.

`process.py` starts the server while it has no threads yet, because a process that has threads must
not fork: their locks would stay locked in the copy. Each process that the server makes builds a
function and calls it with the lines that come in. It is cheap because it has its parent's modules
already.
"""

import atexit
import contextlib
import fcntl
import mmap
import os
import select
import signal
import socket
import struct
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from importlib import import_module
from typing import NoReturn

import msgspec

from assay import system
from assay.functions import answer_to
from assay.records.files import temporary_file, write_all
from assay.records.spec import FunctionCall
from assay.run import family

type AnswerLines = Callable[[bytes], Iterator[bytes]]
"""Takes lines and yields an answer to each as soon as it is known; all end in line feeds."""
PID = struct.Struct("=q")
_FORK, _ASK = b"!", b"?"
"""What the server is asked for: to fork, or how a process of its own ended."""
_RUNS, _UNKNOWN = 256, 257
"""Answers besides an exit code: it has not ended, or it is no process of the server's."""
FDS = 5
"""A process is given three pipes (lines to read, answers to write, and one to wake the reader), the
file for its unwritten answers (see UnwrittenAnswers) and the one for what it prints."""
NO_PIPES = 74
"""Exit code of a forked process that could not write its answers. They are kept nevertheless."""
_BLOCK = 64 * 1024
_GROUP_S = 0.005
"""How long an answer may wait for others, to be written together with them."""


class Start(msgspec.Struct, frozen=True, kw_only=True):
    """The first line a forked process reads."""

    function: str
    """module:name of a function that is called with the argument and returns an AnswerLines."""
    argument: str
    token: str
    number: int
    """Both are those of its family.Mark."""


_START = msgspec.json.Decoder(Start)


class FunctionTurn(msgspec.Struct, frozen=True, kw_only=True):
    """What a forked process is to do that calls a function as an agent."""

    called: FunctionCall
    cwd: str
    env: dict[str, str]
    token: str
    number: int
    """As in Start."""


_ORDER_FDS = 4
"""Such a process is given stdin, stdout and stderr, and a file with its order."""


def open_control() -> tuple[socket.socket, socket.socket]:
    """Make the two ends over which a fork is requested: ours, and that of serve_forks."""
    return socket.socketpair()


def request_fork(control: socket.socket, fds: Sequence[int]) -> int:
    """Ask for a process that has these pipes; return its pid, -1 when it could not be forked."""
    try:
        socket.send_fds(control, [_FORK], fds)
        reply = control.recv(PID.size)
    except OSError:
        return -1
    return int(PID.unpack(reply)[0]) if len(reply) == PID.size else -1


def request_exit_code(control: socket.socket, pid: int) -> int | None:
    """Ask how a process ended; return None while it runs.

    Raises ProcessLookupError if the server does not know it, or is gone.
    """
    try:
        control.sendall(_ASK + PID.pack(pid))
        reply = control.recv(PID.size)
    except OSError:
        reply = b""
    code = int(PID.unpack(reply)[0]) if len(reply) == PID.size else _UNKNOWN
    if code == _UNKNOWN:
        raise ProcessLookupError(pid)
    return None if code == _RUNS else code


def fork_here(fds: Sequence[int]) -> int:
    """Fork a process that has these pipes from this one, which has no threads; return its pid."""
    parent = os.getpid()
    # Held back while the copy still has our handlers: they would act in our name.
    before = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    try:
        pid = os.fork()
        if pid == 0:
            try:
                family.die_with(parent)
                fds = [fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, 3) for fd in fds]  # see serve_forks
                leave_parent(keep=fds)
                signal.pthread_sigmask(signal.SIG_SETMASK, before)
                _answer_lines(fds)
            finally:
                os._exit(1)
        return pid
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


_FORKING = threading.Lock()
"""Held by a thread that forks: two at once disturb warnings and what libraries do at a fork."""


def fork_process() -> int:
    """Fork, also where there are threads."""
    with _FORKING, warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        return os.fork()


def serve_forks(control: socket.socket) -> NoReturn:
    """Fork a process for each request, until the other end is closed."""
    # The parent may have had stdin, stdout or stderr closed, so that the socket got its number;
    # leave_parent redirects those three.
    control = socket.socket(fileno=fcntl.fcntl(control.fileno(), fcntl.F_DUPFD_CLOEXEC, 3))
    leave_parent(keep=[control.fileno()])
    flags = getattr(socket, "MSG_CMSG_CLOEXEC", 0)
    alive = _ChildProcesses()
    with contextlib.suppress(OSError):
        while True:
            message, fds, *_ = socket.recv_fds(control, 1, FDS, flags)
            if not message:
                break
            if message == _ASK:
                (pid,) = PID.unpack(control.recv(PID.size))
                control.sendall(PID.pack(alive.exit_code(pid)))
                continue
            fork = _fork_twice if system.is_linux() else _fork_once
            pid = fork(control, fds, _call if len(fds) == _ORDER_FDS else _answer_lines)
            alive.add(pid)
            control.sendall(PID.pack(pid))
            for fd in fds:
                os.close(fd)
    alive.kill()
    os._exit(0)


class _ChildProcesses:
    """The processes that were forked, to be killed when the one that asked for them was killed.

    Held by pidfd: a pid may be used again for another process, a pidfd never. Where there is none,
    they are the server's children, whose pids are theirs until it waits for them.
    """

    def __init__(self) -> None:
        self._pidfds: list[int] = []
        self._children: set[int] = set()

    def add(self, pid: int) -> None:
        if not system.is_linux():
            if pid > 0:
                self._children.add(pid)
            return
        ended = select.poll()
        for fd in self._pidfds:
            ended.register(fd, select.POLLIN)
        for fd, _ in ended.poll(0):
            self._pidfds.remove(fd)
            os.close(fd)
        handle = system.open_pidfd(pid)
        if handle is not None:
            self._pidfds.append(handle)

    def exit_code(self, pid: int) -> int:
        if pid not in self._children:
            return _UNKNOWN
        ended, status = os.waitpid(pid, os.WNOHANG)
        if not ended:
            return _RUNS
        self._children.remove(pid)
        return os.waitstatus_to_exitcode(status)

    def kill(self) -> None:
        for fd in self._pidfds:
            system.kill_pidfd(fd)
        for pid in self._children:
            os.kill(pid, signal.SIGKILL)


def _fork_once(
    control: socket.socket, fds: Sequence[int], do: Callable[[Sequence[int]], NoReturn]
) -> int:
    """Fork a child of the server, which says how it ended: nobody hands orphans to its parent."""
    try:
        pid = os.fork()
    except OSError:
        return -1
    if pid == 0:
        control.close()
        os.setsid()
        do(fds)
    return pid


def _fork_twice(
    control: socket.socket, fds: Sequence[int], do: Callable[[Sequence[int]], NoReturn]
) -> int:
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
            os.setsid()
            do(fds)
        os.write(write_end, PID.pack(pid))
        os._exit(0)
    os.close(write_end)
    packed_pid = os.read(read_end, PID.size)  # empty when the second fork failed
    os.close(read_end)
    os.waitpid(between, 0)
    return int(PID.unpack(packed_pid)[0]) if packed_pid else -1


def leave_parent(keep: Sequence[int]) -> None:
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


def _call(fds: Sequence[int]) -> NoReturn:
    """Call a function as an agent: its answer goes to stdout, what it prints to stderr."""
    code = 1
    try:
        *standard, order_fd = fds
        with os.fdopen(order_fd, "rb") as file:
            file.seek(0)
            order = msgspec.json.decode(file.read(), type=FunctionTurn)
        answer_fd = fcntl.fcntl(standard[1], fcntl.F_DUPFD_CLOEXEC, 3)
        for number, fd in enumerate((standard[0], standard[2], standard[2])):
            os.dup2(fd, number)
        sys.stdout = sys.stderr = open(2, "w", buffering=1, closefd=False)  # noqa: SIM115
        os.environ.clear()
        os.environ.update(order.env)
        family.Mark.put_on_self(order.token, order.number)
        os.chdir(order.cwd)
        caller = os.getpid()
        answer = msgspec.json.encode({"answer": answer_to(order.called)})
        if os.getpid() == caller:  # otherwise the function forked, and its copy came back here
            write_all(answer_fd, answer + b"\n")
            code = 0
    except BaseException:  # noqa: BLE001 - nobody above us but the parent's frames
        sys.excepthook(*sys.exc_info())
    finally:
        with contextlib.suppress(Exception):
            sys.stderr.flush()
        os._exit(code)


def _answer_lines(fds: Sequence[int]) -> NoReturn:
    """Answer every line; exit when the input ends, or when the function ends its process."""
    code = 1
    try:
        *fds, printed = fds
        for standard in (1, 2):
            os.dup2(printed, standard)
        copied: list[bool] = []  # not empty in a process that the function has forked
        os.register_at_fork(after_in_child=lambda: copied.append(True))
        questions = fds[0]
        start, questions_in = _first_line(questions)
        answer = _function(_START.decode(start))
        answers = _Answers(*fds[1:])
        for block in _blocks(questions, questions_in):
            for line in answer(block):
                if copied:  # the function forked, and its copy came back to our loop
                    os._exit(1)
                answers.add(line)
            answers.write()
        atexit._run_exitfuncs()
        code = 0
    except Exception:  # noqa: BLE001 - nobody above us but the parent's frames
        sys.excepthook(*sys.exc_info())
    finally:
        os._exit(code)


class UnwrittenAnswers:
    """Where a process keeps answers that it has not written yet, for when it dies over the next.

    A file that the process maps and the reader holds open. It is read only once the process is
    dead, so that what is read cannot change meanwhile.
    """

    HEADER = struct.Struct("=QQ")
    """How many bytes were written before these, and where these end in the file."""
    SIZE = _BLOCK

    @staticmethod
    def open() -> int:
        """Make the file; return its descriptor."""
        fd = system.open_memory_file("assay-answers")
        if fd is None:
            with temporary_file() as file:
                fd = os.dup(file.fileno())
        os.ftruncate(fd, _FILE_SIZE)
        return fd

    @staticmethod
    def read(fd: int, n_received: int) -> bytes:
        """Return the answers of a dead process after those that were received."""
        header = UnwrittenAnswers.HEADER
        n_before, end = header.unpack(os.pread(fd, header.size, 0))
        # Some of these may have been written just before it died.
        start = header.size + n_received - n_before
        return os.pread(fd, max(0, end - start), start)


_FILE_SIZE = UnwrittenAnswers.HEADER.size + UnwrittenAnswers.SIZE


class _Answers:
    """Writes answers in groups: to write each one takes as long as most graders do.

    The reader does not wait on the pipe of the answers but on wake_fd.
    """

    def __init__(self, fd: int, wake_fd: int, unwritten_fd: int) -> None:
        for pipe in (fd, wake_fd):
            os.set_blocking(pipe, False)
        self._fd = fd
        self._wake_fd = wake_fd
        self._file = mmap.mmap(unwritten_fd, 0)
        self._header = memoryview(self._file)[: UnwrittenAnswers.HEADER.size].cast("Q")
        self._header[1] = self._end = UnwrittenAnswers.HEADER.size
        self._write_at_s = time.monotonic() + _GROUP_S

    def add(self, line: bytes) -> None:
        """Keep an answer until there are more of them, or until it has waited long enough."""
        start = self._end
        end = start + len(line)
        if end > _FILE_SIZE:
            self.write()
            if len(line) > UnwrittenAnswers.SIZE:
                self._write(line)
                return
            start, end = self._end, self._end + len(line)
        self._file[start:end] = line
        # Only now: up to here, the answer does not count.
        self._header[1] = self._end = end
        if time.monotonic() > self._write_at_s:
            self.write()

    def write(self) -> None:
        """Write what there is, and wake the reader."""
        if self._end > UnwrittenAnswers.HEADER.size:
            self._write(self._file[UnwrittenAnswers.HEADER.size : self._end])
        self._write_at_s = time.monotonic() + _GROUP_S

    def _write(self, data: bytes) -> None:
        n_written = 0
        while n_written < len(data):
            try:
                n_written += os.write(self._fd, data[n_written:] if n_written else data)
            except BlockingIOError:
                self._wake()  # the pipe is full: the reader has to empty it
                room = select.poll()
                room.register(self._fd, select.POLLOUT)
                room.poll()
            except OSError:  # the function closed all files, or nobody reads any more
                os._exit(NO_PIPES)
        # In this order: without an end nothing is read twice.
        self._header[1] = self._end = UnwrittenAnswers.HEADER.size
        self._header[0] += len(data)
        self._wake()

    def _wake(self) -> None:
        with contextlib.suppress(BlockingIOError):  # full of earlier wake-ups: one is enough
            os.write(self._wake_fd, b"!")


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


def main() -> None:
    """Serve over stdin, with the modules imported that the processes will need."""
    control = socket.socket(fileno=os.dup(0))
    for module in sys.argv[1:]:
        import_module(module)
    serve_forks(control)


if __name__ == "__main__":
    main()
