"""Run a program to its end, or beside a trial; nothing of it is left alive."""

import os
import threading
import time
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import BinaryIO

from assay.errors import PluginError
from assay.plugin import Finished
from assay.records.files import named_temporary_file, temporary_file
from assay.run import family
from assay.run.process import Launch, Process
from assay.run.resources import needed

_MOST_BYTES = 16 * 1024 * 1024
"""How much is kept of the end of each stream."""
_FLOOD_BYTES = 512 * 1024 * 1024
"""A program that writes more than this is ended."""


def run_program(
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
        needed,
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
        timed_out = wait_and_end(process, timeout_s, (out, err))
        return Finished(
            exit_code=process.exit_code,
            stdout=end_of(out, _MOST_BYTES),
            stderr=end_of(err, _MOST_BYTES),
            timed_out=timed_out,
        )


def wait_and_end(process: Process, timeout_s: float, streams: Sequence[BinaryIO]) -> bool:
    """Wait for the end and clean up; return whether it timed out."""
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


def end_of(file: BinaryIO, n_bytes: int) -> bytes:
    """Read the end without moving the file position at which a running program writes."""
    size = os.fstat(file.fileno()).st_size
    return os.pread(file.fileno(), n_bytes, max(0, size - n_bytes))


class StartedProgram:
    """A program beside a trial; stdout and stderr go into one file that has no name."""

    def __init__(
        self, argv: Sequence[str], env: Mapping[str, str], cwd: str, pass_fds: Sequence[int] = ()
    ) -> None:
        mark = family.Mark(uuid.uuid4().hex)
        self._output = temporary_file()  # lives as long as the program
        fd = self._output.fileno()
        launch = Launch(
            argv=argv,
            cwd=cwd,
            env={**env, family.MARK_NAME: mark.token},
            stdout=fd,
            stderr=fd,
            pass_fds=tuple(pass_fds),
        )
        try:
            self._process = Process(launch, mark)
        except BaseException:
            self._output.close()
            raise
        self._lock = threading.Lock()
        self._released = False
        self._final_output = ""

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def ended(self) -> bool:
        """Whether the program has ended."""
        with self._lock:
            return self._released or self._process.poll()

    @property
    def exit_code(self) -> int | None:
        """Its exit code, 128 + n after death by signal n; None while it runs."""
        return self._process.exit_code

    def end(self) -> None:
        """End it with its process tree."""
        with self._lock:
            if not self._released:
                self._process.end(term_s=2.0)
                self._final_output = self._output_tail()  # the file is closed below
                self._released = True
                self._process.release()
                self._output.close()

    def output_end(self) -> str:
        """The end of what it wrote."""
        with self._lock:
            return self._final_output if self._released else self._output_tail()

    def _output_tail(self) -> str:
        return end_of(self._output, 2000).decode("utf-8", "replace").strip()
