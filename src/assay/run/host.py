"""What plugins ask of this machine: run a program to its end, or keep one that answers lines.

A function of ours can be kept like a program, in a forked process that can be killed.
"""

import atexit
import contextlib
import os
import select
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO

from assay.errors import Interrupted, PluginError
from assay.plugin import Finished
from assay.records.files import named_temporary_file, temporary_file
from assay.run import family
from assay.run.process import Call, Launch, Process, close_fork_server, raise_if_stopping

_MOST_BYTES = 16 * 1024 * 1024
"""Longest answer of a serving program, and as much of the end of other streams as is read."""
_STDERR_BYTES = 1024 * 1024
_FLOOD_BYTES = 512 * 1024 * 1024
_LOOK_S = 0.005
"""How often answers to a batch are looked for, so that a slow one holds none back for long."""
_STOP_S = 0.1
"""How often we look whether everything is to stop."""


class LocalHost:
    """What plugins ask for when they need a program run on this machine."""

    def run(
        self,
        argv: Sequence[str],
        *,
        stdin: bytes = b"",
        cwd: str | None = None,
        env: Mapping[str, str] | None = None,
        timeout_s: float = 60.0,
    ) -> Finished:
        """Run a program to its end or to the timeout; nothing of it is left alive."""
        mark = family.Mark(uuid.uuid4().hex)
        with (
            temporary_file() as out,
            temporary_file() as err,
            named_temporary_file() as source,
        ):
            source.write(stdin)
            source.flush()
            launch = Launch(
                argv=argv,
                cwd=cwd or str(Path.cwd()),
                env={**(os.environ if env is None else env), family.MARK_NAME: mark.token},
                stdout=out.fileno(),
                stderr=err.fileno(),
                stdin=Path(source.name),
            )
            process = Process(launch, mark)
            timed_out = _run_out(process, timeout_s, (out, err))
            return Finished(
                exit_code=process.exit_code,
                stdout=_end_of(out, _MOST_BYTES),
                stderr=_end_of(err, _MOST_BYTES),
                timed_out=timed_out,
            )

    def serve(self, argv: Sequence[str]) -> "ServedProgram":
        """Give this thread's running copy of a program; start it when there is none."""
        return _serve(tuple(argv), lambda: ServedProgram(argv))

    def serve_function(self, function: str, argument: str) -> "ServedFunction":
        """Give this thread's process that runs a function; fork it when there is none."""
        return _serve((function, argument), lambda: ServedFunction(function, argument))

    def start(self, argv: Sequence[str], *, env: Mapping[str, str], cwd: str) -> "StartedProgram":
        """Start a program that is to live beside a trial."""
        return StartedProgram(argv, env, cwd)


class StartedProgram:
    """A program beside a trial; its streams go into one file that only we see."""

    def __init__(self, argv: Sequence[str], env: Mapping[str, str], cwd: str) -> None:
        mark = family.Mark(uuid.uuid4().hex)
        self._said = temporary_file()  # lives as long as the program
        fd = self._said.fileno()
        launch = Launch(
            argv=argv,
            cwd=cwd,
            env={**env, family.MARK_NAME: mark.token},
            stdout=fd,
            stderr=fd,
        )
        try:
            self._process = Process(launch, mark)
        except BaseException:
            self._said.close()
            raise
        self._lock = threading.Lock()
        self._released = False
        self._words = ""

    @property
    def pid(self) -> int:
        """Of the program itself."""
        return self._process.pid

    @property
    def ended(self) -> bool:
        """Whether the program is gone."""
        with self._lock:
            return self._released or self._process.poll()

    def end(self) -> None:
        """End it with all its kin."""
        with self._lock:
            if not self._released:
                self._process.end(term_s=2.0)
                self._words = self._last_words()
                self._released = True
                self._process.release()
                self._said.close()

    def last_words(self) -> str:
        """The end of what it wrote."""
        with self._lock:
            return self._words if self._released else self._last_words()

    def _last_words(self) -> str:
        return _end_of(self._said, 2000).decode("utf-8", "replace").strip()


class _Served:
    """A process that answers one line with one line. Whatever goes wrong, it is killed."""

    _linger_s = 0.5
    """How long it may take to end by itself after it has failed."""

    def __init__(self, process: Process, out: int, bell: int) -> None:
        self._process = process
        self._out = out
        self._bell = bell
        """What can be read when there is a reason to look for answers."""
        os.set_blocking(out, False)
        os.set_blocking(bell, False)
        self._heard = bytearray()
        self.is_open = True

    @property
    def has_ended(self) -> bool:
        """Whether the process went away by itself since it was last asked."""
        return self.is_open and self._process.poll()

    def ask(self, line: bytes, timeout_s: float) -> bytes:
        """Write one line, give the one that comes back."""
        (answer,) = self.ask_many(line.rstrip(b"\n") + b"\n", timeout_s)
        return answer[:-1]

    def ask_many(self, lines: bytes, timeout_s: float) -> Iterator[bytes]:
        """Write lines, give what comes back, in its order, as many lines at a time as have come.

        Raises PluginError when the next answer does not come within the time since the last one.
        Whoever stops listening before the last answer has the process killed.
        """
        n_left = lines.count(b"\n")
        try:
            self._hear()
            if self._heard:
                msg = "wrote more than one line for a question"
                raise PluginError(msg)
            self._process.write(lines)
            while n_left:
                answers, n_lines = self._next_answers(timeout_s, n_left)
                n_left -= n_lines
                yield answers
        finally:
            if n_left:
                self.close(term_s=1.0, linger_s=self._linger_s)

    def close(self, term_s: float = 2.0, linger_s: float = 0.5) -> None:
        """End the process: closed stdin first, then as with everything else."""
        if not self.is_open:
            return
        self.is_open = False
        self._process.close_stdin()
        with contextlib.suppress(Interrupted):
            until_s = time.monotonic() + linger_s
            while not self._process.wait(until_s - time.monotonic()):
                if time.monotonic() >= until_s:
                    break
        self._process.end(term_s)
        self._process.release()
        for fd in {self._out, self._bell}:
            os.close(fd)

    def _next_answers(self, timeout_s: float, n_left: int) -> tuple[bytes, int]:
        deadline_s = time.monotonic() + timeout_s
        looked_at = 0
        # Of several answers some may be there before the bell says that all of them are.
        longest_s = _LOOK_S if n_left > 1 else _STOP_S
        while (end := self._heard.rfind(b"\n", looked_at)) < 0:
            looked_at = len(self._heard)
            left_s = deadline_s - time.monotonic()
            if left_s <= 0:
                msg = f"gave no answer in {timeout_s:g} s"
                raise PluginError(msg)
            self._wait(min(left_s, longest_s))
            can_come = self._hear()
            nothing_new = len(self._heard) == looked_at
            if (nothing_new and not can_come) or self._too_long(looked_at):
                raise PluginError(self._last_words())
        n_lines = self._heard.count(b"\n", 0, end + 1)
        if n_lines > n_left:  # a line that nobody asked for is complained of by the next question
            lines = self._heard.split(b"\n", n_left)
            n_lines, end = n_left, len(self._heard) - len(lines[-1]) - 1
        answers = bytes(self._heard[: end + 1])
        del self._heard[: end + 1]
        return answers, n_lines

    def _wait(self, longest_s: float) -> None:
        """Wait until there is something to read, room to write, or somebody to reap."""
        raise_if_stopping()
        poll = select.poll()
        poll.register(self._bell, select.POLLIN)
        unsent_to = self._process.unsent_to
        if unsent_to is not None:
            poll.register(unsent_to, select.POLLOUT)
        poll.poll(longest_s * 1000)
        if unsent_to is not None:
            self._process.write(b"")

    def _hear(self) -> bool:
        """Read what is there; says whether more can come."""
        ended = self._process.poll()  # first: what is written later cannot be missed
        try:
            while len(self._heard) <= _MOST_BYTES:
                heard = os.read(self._out, 65536)
                if not heard:
                    return False
                self._heard += heard
        except BlockingIOError:
            return not ended
        return True

    def _too_long(self, looked_at: int) -> bool:
        return len(self._heard) > _MOST_BYTES and b"\n" not in self._heard[looked_at:]

    def _last_words(self) -> str:
        if self._too_long(0):
            return f"wrote a line of more than {_MOST_BYTES} bytes"
        self._process.wait(0.5)
        how = f"exited with code {self._process.exit_code}"
        if not self._process.has_ended:
            how = "closed its stdout"
        return f"{how} and gave no answer"


class ServedProgram(_Served):
    """A program that answers lines. Its stderr is quoted when it fails."""

    def __init__(self, argv: Sequence[str]) -> None:
        mark = family.Mark(uuid.uuid4().hex)
        self._err = temporary_file()  # lives as long as the program
        out, inlet = os.pipe()
        launch = Launch(
            argv=argv,
            cwd=str(Path.cwd()),
            env={**os.environ, family.MARK_NAME: mark.token},
            stdout=inlet,
            stderr=self._err.fileno(),
            talk=True,
        )
        try:
            process = Process(launch, mark)
        except BaseException:
            os.close(out)
            self._err.close()
            raise
        finally:
            os.close(inlet)
        super().__init__(process, out, out)

    def ask(self, line: bytes, timeout_s: float) -> bytes:
        """Write one line, give the one that comes back."""
        answer = super().ask(line, timeout_s)
        if os.fstat(self._err.fileno()).st_size > _STDERR_BYTES:
            self._err.seek(0)  # the program shares our place in the file: it goes on at the start
            self._err.truncate()
        return answer

    def close(self, term_s: float = 2.0, linger_s: float = 0.5) -> None:
        """End the program."""
        super().close(term_s, linger_s)
        self._err.close()

    def _last_words(self) -> str:
        words = super()._last_words()
        said = _end_of(self._err, 500).decode("utf-8", "replace").strip()
        return f"{words}: {said or 'No error output'}"


class ServedFunction(_Served):
    """A function of ours in a forked process. What it prints goes to our stderr.

    It rings a bell when all that it was sent is answered: were we woken by each answer, that would
    take longer than most of them.
    """

    _linger_s = 0.0

    def __init__(self, function: str, argument: str) -> None:
        out, answers = os.pipe()
        bell, rope = os.pipe()
        call = Call(function=function, argument=argument, answers=answers, bell=rope)
        try:
            process = Process(call, family.Mark(uuid.uuid4().hex))
        except BaseException:
            os.close(out)
            os.close(bell)
            raise
        finally:
            os.close(answers)
            os.close(rope)
        super().__init__(process, out, bell)

    def _hear(self) -> bool:
        """Read the bell first: it may ring again while the answers are read."""
        with contextlib.suppress(BlockingIOError):
            os.read(self._bell, 65536)
        return super()._hear()


_served: dict[tuple[int, tuple[str, ...]], Any] = {}


def _serve[S: _Served](what: tuple[str, ...], start: Callable[[], S]) -> S:
    key = (threading.get_ident(), what)
    served: S | None = _served.get(key)
    if served is not None and served.has_ended:
        served.close()
    if served is None or not served.is_open:
        served = _served[key] = start()
    return served


@atexit.register
def close_served() -> None:
    """End every process that serves; they live across trials, until the work is done."""
    while _served:
        _served.popitem()[1].close()
    close_fork_server()


def _run_out(process: Process, timeout_s: float, streams: Sequence[BinaryIO]) -> bool:
    """Wait for the end and clean up; says whether the time was not enough."""
    deadline_s = time.monotonic() + timeout_s
    try:
        while not process.wait(deadline_s - time.monotonic()):
            if time.monotonic() >= deadline_s:
                return True
            if any(os.fstat(file.fileno()).st_size > _FLOOD_BYTES for file in streams):
                msg = f"it wrote more than {_FLOOD_BYTES >> 20} MB"
                raise PluginError(msg)
    finally:
        process.end(term_s=1.0)
        process.release()
    return False


def _end_of(file: BinaryIO, n_bytes: int) -> bytes:
    """Read the end without moving the place at which a living program writes."""
    size = os.fstat(file.fileno()).st_size
    return os.pread(file.fileno(), n_bytes, max(0, size - n_bytes))
