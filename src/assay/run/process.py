"""Start a process with its streams in files, wait for it, kill it with its process tree.

The only file that starts processes; those that run a function of ours are forked by fork.py.
"""

import contextlib
import errno
import os
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import BinaryIO

import msgspec

from assay import system
from assay.errors import Interrupted, SpawnError
from assay.records.files import temporary_file
from assay.records.spec import FunctionCall
from assay.run import family, fork
from assay.run.resources import lack_of

_WAKE_S = 0.1
"""No wait of the main thread is longer: a signal just before it is handled only afterwards."""
_SHORTEST_WAIT_S = 0.01
_WAIT_PER_PROCESS_S = 0.0002
_active = 0
_active_lock = threading.Lock()
_stopping = threading.Event()
_FATAL = (signal.SIGKILL, signal.SIGSEGV, signal.SIGABRT, signal.SIGBUS, signal.SIGILL)
"""Through a sandbox, death by a signal arrives as exit code 128 + n. A program may choose such a
code itself, but not those of these signals."""


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
    pass_fds: tuple[int, ...] = ()
    """Other files that the process gets; they stay the caller's."""
    wrapped: bool = False
    """The program only waits for another one, which it started in a sandbox or container."""
    spared: bool = False
    """The program gets no TERM: it ends with the one that it waits for."""
    function: FunctionCall | None = None
    """A Python function that is called in a forked process, in place of a program."""


class Call(msgspec.Struct, frozen=True, kw_only=True):
    """A function to run in a forked process; see fork.Start for its names."""

    function: str
    argument: str
    answers: int
    wake_fd: int
    unwritten: int
    printed: int
    """What it writes to (see fork.FDS); they stay the caller's."""


class Process:
    """One running program.

    Its stdout and stderr should be regular files: one real agent loses the end of its output on a
    pipe.
    """

    def __init__(self, launch: Launch | Call, mark: family.Mark) -> None:
        family.adopt_orphans()
        self._mark = mark
        self._wrapped = isinstance(launch, Launch) and launch.wrapped
        self._spared = isinstance(launch, Launch) and launch.spared
        self._outbox = b""
        """What write() was given and stdin has not taken yet."""
        self._popen: subprocess.Popen[bytes] | _ForkedProcess
        if isinstance(launch, Call) or launch.function is not None:
            self._popen = _ForkedProcess(launch, mark)
            family.own_pids.add(self._popen.pid)
        else:
            with mark.inherited():
                self._popen = _start(launch)
                family.own_pids.add(self._popen.pid)
        self.pid = self._popen.pid
        mark.sessions.add(self.pid)
        if self._popen.stdin is not None:
            os.set_blocking(self._popen.stdin.fileno(), False)
        self._pidfd = system.open_pidfd(self.pid)
        self._poll = select.poll()
        if self._pidfd is not None:
            self._poll.register(self._pidfd, select.POLLIN)
        _count(1)
        if isinstance(launch, Call):
            start = fork.Start(
                function=launch.function,
                argument=launch.argument,
                token=mark.token,
                number=mark.number,
            )
            self.write(msgspec.json.encode(start) + b"\n")

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
        """The stdin that has not taken all bytes yet."""
        return self._popen.stdin.fileno() if self._outbox and self._popen.stdin else None

    def close_stdin(self) -> None:
        """Close stdin: the process sees the end of its input."""
        if self._popen.stdin is not None:
            with contextlib.suppress(OSError):
                self._popen.stdin.close()

    def wait(self, longest_s: float) -> bool:
        """Wait for the end, but only briefly; return whether the process has ended.

        The wait grows with the number of processes, so that many agents cost no more than few.
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
        """Return whether the process has ended, without waiting. Never raises Interrupted."""
        return self._popen.poll() is not None

    def end(self, term_s: float) -> bool:
        """End the process and its descendants; return whether anything was still alive."""
        root = self.pid if self._popen.poll() is None else None
        if self._wrapped and root is None:
            family.wait_for_orphans(self._mark)  # they are being ended, but are not gone yet
        # After Ctrl-C the operator waits for this: the grace period is short.
        term_s = 0.5 if _stopping.is_set() else term_s
        ended = family.end_family(root, self._mark, term_s, spare_root=self._spared)
        self._popen.wait()
        return ended

    def release(self) -> None:
        """Close what belongs to a process that has ended: its stdin and its pidfd."""
        self.close_stdin()
        if self._pidfd is not None:
            os.close(self._pidfd)
        family.own_pids.discard(self.pid)
        _count(-1)

    @property
    def has_ended(self) -> bool:
        """Whether the process itself has been reaped."""
        return self._popen.returncode is not None

    @property
    def exit_code(self) -> int | None:
        """The exit code as a shell shows it: 128 + n for death by signal n."""
        code = self._popen.returncode
        return 128 - code if code is not None and code < 0 else code

    @property
    def signal_name(self) -> str | None:
        """The name of the signal that killed the process."""
        code = self._popen.returncode
        if self._wrapped and code is not None and code - 128 in _FATAL:
            code = 128 - code
        return None if code is None or code >= 0 else name_of_signal(-code)


def name_of_signal(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:  # most real-time signals have no name
        return f"signal {number}"


def stop_all() -> None:
    """Make every running trial end its processes and stop; for Ctrl-C and full disks."""
    _stopping.set()


def start_over() -> None:
    """Allow new processes again after stop_all."""
    _stopping.clear()


def raise_if_stopping() -> None:
    """Raise Interrupted after stop_all."""
    if _stopping.is_set():
        msg = "interrupted"
        raise Interrupted(msg)


def pause(seconds: float) -> None:
    """Sleep; raise Interrupted as soon as stop_all is called."""
    longest_s = _WAKE_S if threading.current_thread() is threading.main_thread() else seconds
    until_s = time.monotonic() + seconds
    while (left_s := until_s - time.monotonic()) > 0:
        if _stopping.wait(min(left_s, longest_s)):
            break
    raise_if_stopping()


class _ForkedProcess:
    """A forked process, with the part of the interface of subprocess.Popen that is used here."""

    def __init__(self, launch: Call | Launch, mark: family.Mark) -> None:
        self.stdin: BinaryIO | None = None
        self.returncode: int | None = None
        if isinstance(launch, Launch):
            self.pid = self._call_as_agent(launch, mark)
            return
        questions, write_end = os.pipe()
        self.stdin = os.fdopen(write_end, "wb", buffering=0)
        fds = [questions, launch.answers, launch.wake_fd, launch.unwritten, launch.printed]
        try:
            self.pid = _fork(launch.function, fds)
        except BaseException:
            self.stdin.close()
            raise
        finally:
            os.close(questions)

    def _call_as_agent(self, launch: Launch, mark: family.Mark) -> int:
        assert launch.function is not None
        order = fork.FunctionTurn(
            called=launch.function,
            cwd=launch.cwd,
            env=dict(launch.env),
            token=mark.token,
            number=mark.number,
        )
        with temporary_file() as file:
            file.write(msgspec.json.encode(order))
            file.flush()
            fds = [_empty_stdin(), launch.stdout, launch.stderr, file.fileno()]
            return _fork_server(fork.__name__).fork(fds)

    def poll(self) -> int | None:
        if self.returncode is None:
            try:
                pid, status = os.waitpid(self.pid, os.WNOHANG)
            except ChildProcessError:  # no child subreaper here
                self.returncode = _exit_code_of(self.pid)
            else:
                if pid:
                    self.returncode = os.waitstatus_to_exitcode(status)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        until_s = None if timeout is None else time.monotonic() + timeout
        while self.poll() is None:
            if until_s is not None and time.monotonic() >= until_s:
                raise subprocess.TimeoutExpired(str(self.pid), timeout or 0)
            family.pause(0.001)
        return self.returncode or 0


def _fork(function: str, fds: Sequence[int]) -> int:
    # Without threads, and if the system kills the new process with this one, no server is needed.
    if _server is None and not _has_threads() and family.can_die_with_parent():
        flush_streams()
        try:
            return fork.fork_here(fds)
        except OSError as error:
            msg = f"cannot fork a process: {error.strerror}"
            raise lack_of(error, forking=True) or SpawnError(msg) from error
    return _fork_server(function).fork(fds)


def _exit_code_of(pid: int) -> int | None:
    """Return how a process ended that is the server's child, or an orphan; None while it runs."""
    server = _server
    with contextlib.suppress(ProcessLookupError):
        if server is not None:
            return server.exit_code(pid)
    # Nobody knows. A server that ends kills those that it made.
    return None if family.is_alive(pid) else -signal.SIGKILL


class _ForkServer:
    """The process that forks for us. It never has threads."""

    def __init__(self, function: str) -> None:
        self._lock = threading.Lock()
        self._popen: subprocess.Popen[bytes] | None = None
        self._control, theirs = fork.open_control()
        with theirs:
            # A copy of this process is quickest, but a process with threads must not fork (see
            # fork.py): then a new interpreter is started.
            if _has_threads() and not forks_with_threads:
                module = function.partition(":")[0]
                argv = [sys.executable, "-P", "-m", fork.__name__, module]
                self._popen = subprocess.Popen(argv, stdin=theirs.fileno())
                self._pid = self._popen.pid
            else:
                flush_streams()
                self._pid = fork.fork_process()
                if self._pid == 0:
                    fork.serve_forks(theirs)
        family.own_pids.add(self._pid)

    def fork(self, fds: Sequence[int]) -> int:
        """Return the pid of a new process that has these pipes."""
        with self._lock:
            pid = fork.request_fork(self._control, fds)
        if pid < 0:
            close_fork_server()
            msg = "cannot fork a process"
            raise SpawnError(msg)
        return pid

    def exit_code(self, pid: int) -> int | None:
        with self._lock:
            return fork.request_exit_code(self._control, pid)

    def close(self) -> None:
        self._control.close()  # at which the server exits by itself
        if self._popen is not None:
            self._popen.wait()
        else:
            os.waitpid(self._pid, 0)
        family.own_pids.discard(self._pid)


_server: _ForkServer | None = None
_server_lock = threading.Lock()
forks_with_threads = False
"""Whether this process forks although it has threads, because forked processes need the functions
that it has. The threads of background.py hold no lock that such a process asks for."""


def _fork_server(function: str) -> _ForkServer:
    global _server
    with _server_lock:
        if _server is None:
            _server = _ForkServer(function)
        return _server


def prepare_to_fork(function: str) -> None:
    """Start the fork server, best before there are threads: then it costs almost nothing."""
    family.adopt_orphans()
    _fork_server(function)


def forget_parent() -> None:
    """In a child that was just forked: what the parent runs is not ours."""
    global _server, _active, forks_with_threads
    _server, _active, forks_with_threads = None, 0, True
    start_over()


def close_fork_server() -> None:
    """End the fork server; another one is started when it is needed."""
    global _server
    with _server_lock:
        server, _server = _server, None
    if server is not None:
        server.close()


def _has_threads() -> bool:
    """Whether there are threads, those of C libraries included where the system lists them."""
    known = system.has_threads()
    return threading.active_count() > 1 if known is None else known


def flush_streams() -> None:
    """Leave nothing in the buffers that the copy of this process would write a second time."""
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError, AttributeError):
            stream.flush()


def _start(launch: Launch) -> "subprocess.Popen[bytes]":
    stdin: int | BinaryIO = subprocess.PIPE if launch.talk else _empty_stdin()
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
            pass_fds=launch.pass_fds,
        )
    except (OSError, ValueError) as error:
        lack = lack_of(error, forking=True)
        raise lack or SpawnError(_why_not_started(launch, error)) from error
    finally:
        if not isinstance(stdin, int):
            stdin.close()


@cache
def _empty_stdin() -> int:
    return os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)


def _why_not_started(launch: Launch, error: Exception) -> str:
    # The operating system reports the same error for a missing program and a missing cwd.
    if isinstance(error, FileNotFoundError):
        if not Path(launch.cwd).is_dir():
            return f"working folder not found: {launch.cwd}"
        return missing_program(launch.argv[0])
    why = getattr(error, "strerror", None) or error
    if getattr(error, "errno", None) == errno.E2BIG:
        why = f"{why}: a prompt of this length, earlier turns included, must go through stdin"
    if "null byte" in str(why):
        why = "the prompt has a NUL character, which no program can be given; remove it there"
    return f"cannot start {launch.argv[0]}: {why}"


def program_places(name: str, cwd: str, search: str) -> list[Path]:
    """Return where the system looks for a program, given a PATH to search."""
    folders = [cwd] if "/" in name else search.split(os.pathsep)
    return [Path(folder, name) for folder in folders]


def is_program(path: Path) -> bool:
    """Whether the system would start it: neither a folder nor a file that is not executable."""
    return path.is_file() and os.access(path, os.X_OK)


def missing_program(name: str) -> str:
    return f'Executable not found in $PATH: "{name}"'


def _count(change: int) -> None:
    global _active
    with _active_lock:
        _active += change
