"""Processes that answer lines, one for each, and live across trials.

A program, or a Python function of Assay in a forked process that can be killed.
"""

import atexit
import contextlib
import os
import select
import sys
import threading
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from assay.errors import Interrupted, PluginError
from assay.records.files import temporary_file
from assay.records.text import visible
from assay.run import family, fork
from assay.run.process import Call, Launch, Process, close_fork_server, raise_if_stopping
from assay.run.program import end_of
from assay.run.resources import needed
from assay.run.workspace import our_secrets

_MOST_BYTES = 16 * 1024 * 1024
"""Longest answer."""
_STDERR_BYTES = 1024 * 1024
_MOST_SERVED = 32
"""Serving processes that one thread keeps; rows may each bring a grader that needs one."""
_STOP_S = 0.1
"""How often we check whether everything is to stop."""


def serve_program(
    argv: Sequence[str], *, show_stderr: bool = False, env: Mapping[str, str] | None = None
) -> "ServedProgram":
    """Return this thread's running copy of a program; start it when there is none."""
    return _serve(tuple(argv), lambda: ServedProgram(argv, env, show_stderr=show_stderr))


def serve_function(function: str, argument: str) -> "ServedFunction":
    """Return this thread's process that runs a function; fork it when there is none."""
    return _serve((function, argument), lambda: ServedFunction(function, argument))


_served: dict[tuple[int, tuple[str, ...]], Any] = {}


def _serve[S: _ServingProcess](command: tuple[str, ...], start: Callable[[], S]) -> S:
    thread = threading.get_ident()
    key = (thread, command)
    served: S | None = _served.pop(key, None)  # put back below: the one used last comes last
    if served is not None and served.has_ended:
        served.close()
    if served is None or not served.is_open:
        mine = [other for other in list(_served) if other[0] == thread]
        for other in mine[: max(0, 1 + len(mine) - _MOST_SERVED)]:
            _served.pop(other).close()
        with needed:
            served = start()
    _served[key] = served
    return served


def forget_parent() -> None:
    """In a child that was just forked: leave the parent's processes alone."""
    _served.clear()


@atexit.register
def close_served() -> None:
    """End every serving process; they live across trials, until the work is done."""
    while _served:
        _served.popitem()[1].close()
    close_fork_server()


class _PrintedOutput:
    """What a serving process prints, in a file; shown on our stderr line by line.

    It may repeat what an agent wrote: secrets and what a terminal would obey are not shown.
    """

    def __init__(self, *, shown: bool) -> None:
        self.file = temporary_file()  # lives as long as the process
        self._shown = shown
        self._n_shown = 0

    def show(self, *, ended: bool = False) -> None:
        """Show the lines that are new, and keep the file from growing for ever."""
        if self.file.closed:
            return
        fd = self.file.fileno()
        size = os.fstat(fd).st_size
        if self._shown and size > self._n_shown:
            new = os.pread(fd, size - self._n_shown, self._n_shown)
            # Half a line may end in the middle of a secret.
            whole = len(new) if ended or len(new) > _STDERR_BYTES else new.rfind(b"\n") + 1
            self._n_shown += whole
            if sys.stderr is not None:
                words = visible(our_secrets().mask_text(new[:whole].decode("utf-8", "replace")))
                with contextlib.suppress(OSError, ValueError):  # nobody reads it any more
                    sys.stderr.write(words)
                    sys.stderr.flush()
        if size > _STDERR_BYTES:
            self.file.seek(0)  # the process shares this file position, so it goes on at the start
            self.file.truncate()
            self._n_shown = 0

    def close(self) -> None:
        self.show(ended=True)
        self.file.close()


class _ServingProcess:
    """A process that answers each line with one line. Whatever goes wrong, it is killed."""

    _linger_s = 0.5
    """How long it may take to end by itself after it has failed."""

    def __init__(self, process: Process, out: int, wake_fd: int, printed: _PrintedOutput) -> None:
        self._process = process
        self._printed = printed
        self._out = out
        self._wake_fd = wake_fd
        """Readable when it is time to read answers; a program's own stdout serves as well."""
        os.set_blocking(out, False)
        os.set_blocking(wake_fd, False)
        self._received = bytearray()
        self._n_received = 0
        """All bytes, also those that have been taken out of _received."""
        self._n_unanswered = 0
        self._failure = ""
        self.is_open = True

    @property
    def has_ended(self) -> bool:
        """Whether the process ended by itself since the last question."""
        return self.is_open and self._process.poll()

    def ask(self, line: bytes, timeout_s: float) -> bytes:
        """Write one line and return the one that comes back."""
        self.send(line.rstrip(b"\n") + b"\n")
        try:
            return self.receive(timeout_s)[:-1]
        finally:
            if self._n_unanswered:
                self.close(term_s=1.0, linger_s=self._linger_s)

    def send(self, lines: bytes) -> None:
        """Write lines, to be answered after those that were sent before."""
        if not self._n_unanswered:
            self._receive()
            if self._received:
                self._fail("wrote more than one line for a question")
        self._n_unanswered += lines.count(b"\n")
        self._process.write(lines)

    def receive(self, timeout_s: float) -> bytes:
        """Wait for the next answers; return as many whole lines as have come.

        Raises PluginError when none comes within the time. Then the process is killed. Returns
        nothing when the process ended after an answer and before the next line.
        """
        if self._failure:
            if self._ended_between_answers:
                return b""
            raise PluginError(self._failure)
        try:
            self._wait_for_answer(timeout_s)
        except PluginError as error:
            self._fail(error.message)
        self._printed.show()
        return self._take_answers()

    def _fail(self, why: str) -> None:
        """Kill the process; raise unless it left answers, which are to be taken first."""
        self._failure = why
        self.close(term_s=1.0, linger_s=self._linger_s)
        if not self._n_unanswered or b"\n" not in self._received:
            raise PluginError(why)

    def close(self, term_s: float = 2.0, linger_s: float = 0.5) -> None:
        """End the process: close its stdin, give it time to exit, then kill its process tree."""
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
        self._receive_rest()
        self._process.release()
        for fd in {self._out, self._wake_fd}:  # a set: they may be the same
            os.close(fd)
        self._printed.close()

    @property
    def _ended_between_answers(self) -> bool:
        return False

    def _receive_rest(self) -> None:
        """Take what a dead process left; what a program wrote after its failure does not count."""

    def _wait_for_answer(self, timeout_s: float) -> None:
        deadline_s = time.monotonic() + timeout_s
        searched = 0
        while self._received.find(b"\n", searched) < 0:
            searched = len(self._received)
            left_s = deadline_s - time.monotonic()
            if left_s <= 0:
                msg = f"gave no answer in {timeout_s:g} s"
                raise PluginError(msg)
            raise_if_stopping()
            poll = select.poll()
            poll.register(self._wake_fd, select.POLLIN)
            unsent_to = self._process.unsent_to
            if unsent_to is not None:
                poll.register(unsent_to, select.POLLOUT)
            poll.poll(min(left_s, _STOP_S) * 1000)
            if unsent_to is not None:
                self._process.write(b"")  # sends what is queued
            self._printed.show()
            more_can_come = self._receive()
            nothing_new = len(self._received) == searched
            if (nothing_new and not more_can_come) or self._too_long(searched):
                raise PluginError(self._why_no_answer())

    def _take_answers(self) -> bytes:
        """Take all whole lines out of what was received."""
        end = self._received.rfind(b"\n") + 1
        n_lines = self._received.count(b"\n", 0, end)
        if n_lines > self._n_unanswered:  # a line too many stays here; the next question raises
            *lines, rest = self._received.split(b"\n", self._n_unanswered)
            n_lines, end = len(lines), len(self._received) - len(rest)
        self._n_unanswered -= n_lines
        answers = bytes(self._received[:end])
        del self._received[:end]
        return answers

    def _receive(self) -> bool:
        """Read what is there; return whether more can come."""
        # Polled before reading: if it had ended by then, the read below gets all it ever wrote.
        ended = self._process.poll()
        try:
            while len(self._received) <= _MOST_BYTES:
                block = os.read(self._out, 65536)
                if not block:
                    return False
                self._received += block
                self._n_received += len(block)
        except BlockingIOError:
            return not ended
        return True

    def _too_long(self, searched: int) -> bool:
        return len(self._received) > _MOST_BYTES and b"\n" not in self._received[searched:]

    def _why_no_answer(self) -> str:
        if self._too_long(0):
            return f"wrote a line of more than {_MOST_BYTES} bytes"
        self._process.wait(0.5)  # its stdout may close a moment before it has an exit code
        how = f"exited with code {self._process.exit_code}"
        if not self._process.has_ended:
            how = "closed its stdout"
        return f"{how} and gave no answer"


class ServedProgram(_ServingProcess):
    """A program that answers lines. Its stderr is quoted when it fails."""

    def __init__(
        self, argv: Sequence[str], env: Mapping[str, str] | None, *, show_stderr: bool = False
    ) -> None:
        """With show_stderr, what it writes there is copied to ours."""
        mark = family.Mark(uuid.uuid4().hex)
        printed = _PrintedOutput(shown=show_stderr)
        out, write_end = os.pipe()
        launch = Launch(
            argv=argv,
            cwd=str(Path.cwd()),
            env={**(os.environ if env is None else env), family.MARK_NAME: mark.token},
            stdout=write_end,
            stderr=printed.file.fileno(),
            talk=True,
        )
        try:
            process = Process(launch, mark)
        except BaseException:
            os.close(out)
            printed.close()
            raise
        finally:
            os.close(write_end)
        super().__init__(process, out, out, printed)

    def _why_no_answer(self) -> str:
        why = super()._why_no_answer()
        stderr = end_of(self._printed.file, 500).decode("utf-8", "replace").strip()
        return f"{why}: {stderr or 'No error output'}"


class ServedFunction(_ServingProcess):
    """A function of ours in a forked process. What it prints goes to our stderr.

    It writes many answers at once, and wakes us through a pipe of its own: to write each, or to be
    woken by each, would take longer than most answers do. Those that it had not written when it
    died are in a file.
    """

    _linger_s = 0.0

    def __init__(self, function: str, argument: str) -> None:
        out, answers = os.pipe()
        wake_fd, wake_write_end = os.pipe()
        self._unwritten = fork.UnwrittenAnswers.open()
        printed = _PrintedOutput(shown=True)
        call = Call(
            function=function,
            argument=argument,
            answers=answers,
            wake_fd=wake_write_end,
            unwritten=self._unwritten,
            printed=printed.file.fileno(),
        )
        try:
            process = Process(call, family.Mark(uuid.uuid4().hex))
        except BaseException:
            for fd in (out, wake_fd, self._unwritten):
                os.close(fd)
            printed.close()
            raise
        finally:
            os.close(answers)
            os.close(wake_write_end)
        super().__init__(process, out, wake_fd, printed)

    def _receive(self) -> bool:
        # The wake-up first: another may come while the answers are read, and must not be lost.
        with contextlib.suppress(BlockingIOError):
            os.read(self._wake_fd, 65536)
        return super()._receive()

    @property
    def _ended_between_answers(self) -> bool:
        return self._process.exit_code == fork.NO_PIPES

    def _receive_rest(self) -> None:
        self._receive()
        rest = fork.UnwrittenAnswers.read(self._unwritten, self._n_received)
        self._received += rest
        self._n_received += len(rest)
        os.close(self._unwritten)
