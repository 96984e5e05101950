"""What plugins ask of this machine: run a program to its end, or keep one that answers lines."""

import atexit
import contextlib
import os
import select
import threading
import time
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import BinaryIO

from assay.errors import Interrupted, PluginError
from assay.plugin import Finished
from assay.run import family
from assay.run.process import Launch, Process, raise_if_stopping

_MOST_BYTES = 16 * 1024 * 1024
"""Longest answer of a serving program, and as much of the end of other streams as is read."""
_STDERR_BYTES = 1024 * 1024
_FLOOD_BYTES = 512 * 1024 * 1024


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
        import tempfile

        mark = family.Mark(uuid.uuid4().hex)
        with (
            tempfile.TemporaryFile() as out,
            tempfile.TemporaryFile() as err,
            tempfile.NamedTemporaryFile() as source,
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
        key = (threading.get_ident(), tuple(argv))
        served = _served.get(key)
        if served is not None and served.has_ended:
            served.close()
        if served is None or not served.is_open:
            served = _served[key] = ServedProgram(argv)
        return served

    def start(self, argv: Sequence[str], *, env: Mapping[str, str], cwd: str) -> "StartedProgram":
        """Start a program that is to live beside a trial."""
        return StartedProgram(argv, env, cwd)


class StartedProgram:
    """A program beside a trial; its streams go into one file that only we see."""

    def __init__(self, argv: Sequence[str], env: Mapping[str, str], cwd: str) -> None:
        import tempfile

        mark = family.Mark(uuid.uuid4().hex)
        self._said = tempfile.TemporaryFile()  # noqa: SIM115 - lives as long as the program
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


class ServedProgram:
    """A program that answers one line with one line. Whatever goes wrong, it is ended."""

    def __init__(self, argv: Sequence[str]) -> None:
        import tempfile

        mark = family.Mark(uuid.uuid4().hex)
        self._err = tempfile.TemporaryFile()  # noqa: SIM115 - lives as long as the program
        self._out, inlet = os.pipe()
        launch = Launch(
            argv=argv,
            cwd=str(Path.cwd()),
            env={**os.environ, family.MARK_NAME: mark.token},
            stdout=inlet,
            stderr=self._err.fileno(),
            talk=True,
        )
        try:
            self._process = Process(launch, mark)
        except BaseException:
            os.close(self._out)
            self._err.close()
            raise
        finally:
            os.close(inlet)
        os.set_blocking(self._out, False)
        self._heard = bytearray()
        self.is_open = True

    @property
    def has_ended(self) -> bool:
        """Whether the program went away by itself since it was last asked."""
        return self.is_open and self._process.poll()

    def ask(self, line: bytes, timeout_s: float) -> bytes:
        """Write one line, give the one that comes back."""
        try:
            self._hear()
            if self._heard:
                msg = "wrote more than one line for a question"
                raise PluginError(msg)
            self._process.write(line.rstrip(b"\n") + b"\n")
            answer = self._answer(time.monotonic() + timeout_s, timeout_s)
            self._forget_stderr()
        except BaseException:
            self.close(term_s=1.0)
            raise
        return answer

    def close(self, term_s: float = 2.0) -> None:
        """End the program: closed stdin first, then as with everything else."""
        if not self.is_open:
            return
        self.is_open = False
        self._process.close_stdin()
        with contextlib.suppress(Interrupted):
            until_s = time.monotonic() + min(term_s, 0.5)
            while not self._process.wait(until_s - time.monotonic()):
                if time.monotonic() >= until_s:
                    break
        self._process.end(term_s)
        self._process.release()
        os.close(self._out)
        self._err.close()

    def _answer(self, deadline_s: float, timeout_s: float) -> bytes:
        looked_at = 0
        while (end := self._heard.find(b"\n", looked_at)) < 0:
            looked_at = len(self._heard)
            left_s = deadline_s - time.monotonic()
            if left_s <= 0:
                msg = f"gave no answer in {timeout_s:g} s"
                raise PluginError(msg)
            self._wait(min(left_s, 0.1))
            can_come = self._hear()
            if len(self._heard) > _MOST_BYTES or (not can_come and len(self._heard) == looked_at):
                raise PluginError(self._last_words())
        answer = bytes(self._heard[:end])
        del self._heard[: end + 1]
        return answer

    def _wait(self, longest_s: float) -> None:
        """Wait until there is something to read, room to write, or somebody to bury."""
        raise_if_stopping()
        poll = select.poll()
        poll.register(self._out, select.POLLIN)
        unsent_to = self._process.unsent_to
        if unsent_to is not None:
            poll.register(unsent_to, select.POLLOUT)
        poll.poll(longest_s * 1000)
        if unsent_to is not None:
            self._process.write(b"")

    def _hear(self) -> bool:
        """Read what is there; says whether more can come."""
        try:
            while len(self._heard) <= _MOST_BYTES:
                heard = os.read(self._out, 65536)
                if not heard:
                    return False
                self._heard += heard
        except BlockingIOError:
            return not self._process.wait(0)
        return True

    def _last_words(self) -> str:
        if len(self._heard) > _MOST_BYTES:
            return f"wrote a line of more than {_MOST_BYTES} bytes"
        self._process.wait(0.5)
        said = _end_of(self._err, 500).decode("utf-8", "replace").strip()
        how = f"exited with code {self._process.exit_code}"
        if not self._process.has_ended:
            how = "closed its stdout"
        return f"{how} and gave no answer: {said or 'No error output'}"

    def _forget_stderr(self) -> None:
        """Keep the file small: the program shares our place in it, so it goes on at the start."""
        if os.fstat(self._err.fileno()).st_size > _STDERR_BYTES:
            self._err.seek(0)
            self._err.truncate()


_served: dict[tuple[int, tuple[str, ...]], ServedProgram] = {}


@atexit.register
def close_served() -> None:
    """End every serving program; they live across trials, until the work is done."""
    while _served:
        _served.popitem()[1].close()


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
