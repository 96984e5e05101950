"""Watch one turn from its start to its end: lines as they come, and all the time limits."""

import os
import threading
from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

from assay import system
from assay.plugin import Dialogue, Watch
from assay.records.capture import AnyStep
from assay.records.recording import RawLine, TurnEnd
from assay.records.spec import Limits, TrialSpec
from assay.run.process import Process
from assay.run.secrets import HasTime, Secrets
from assay.run.tail import Marks, Tail

_HELD_BYTES = 256 * 1024
_PER_LINE = 64
"""About what a line costs in memory besides its text."""
_BLOCK = 64 * 1024
_PIPE_BYTES = 1024 * 1024
type OnStep = Callable[[AnyStep], None]
type Until = Callable[[AnyStep], bool]
"""Is asked about each step, in the worker's thread; True ends the trial: nothing more is wanted."""
type Clock = Callable[[], float]
"""Seconds since the start of the trial."""
type OnLine = Callable[[Watch, RawLine, Sequence[AnyStep]], None]


class Trace(Protocol):
    """Is told, in a worker's thread, all that the author of an adapter wants to see."""

    def started(
        self, spec: TrialSpec, argv: Sequence[str], cwd: str, env_names: Iterable[str]
    ) -> None:
        """Take the command line of a process, secrets masked, and the names of its variables."""
        ...

    def took(self, spec: TrialSpec, watch: Watch, line: RawLine, steps: Sequence[AnyStep]) -> None:
        """Take a line of the agent, and the steps that it began or changed."""
        ...

    def ended(
        self, spec: TrialSpec, watch: Watch, end: TurnEnd, answer: str, stderr: bytes
    ) -> None:
        """Take the end of a turn, its answer, and the end of what went to stderr."""
        ...


class Streams:
    """The output files of one process, followed while it writes them.

    Agents that hold a dialogue need a pipe as stdout (asyncio refuses a file); what comes out of it
    is written to the file first and read from there.
    """

    def __init__(
        self,
        stdout: int,
        stderr: int,
        limits: Limits,
        secrets: Secrets,
        *,
        piped: bool = False,
        has_time: HasTime = lambda: True,
    ) -> None:
        """When has_time says no, nothing more is read."""
        self._limits, self._has_time = limits, has_time
        self._out = Tail(stdout, limits.line_bytes, secrets, has_time)
        self._err = Tail(stderr, limits.line_bytes, secrets, has_time)
        self._pipe = _Pipe(self._out.fd) if piped else None
        self.fds = [self._pipe.write_fd if self._pipe else opened_again(stdout)]
        """What the process gets as stdout and stderr, until it has started."""
        self.fds.append(opened_again(stderr))
        self.stderr_tail = b""

    def started(self) -> None:
        """Close our copy of what only the process needs, so that its pipe can end."""
        while self.fds:
            os.close(self.fds.pop())

    @property
    def marks(self) -> Marks:
        """When which part of stdout arrived."""
        return self._out.marks

    @property
    def out_offset(self) -> int:
        """How many bytes of stdout have been read."""
        return self._out.offset

    @property
    def whole_lines_offset(self) -> int:
        """How many bytes of stdout have been read, up to the end of the last whole line."""
        # The turns of a dialogue share one file: the next one starts behind this line feed.
        end = self._out.offset
        while end > 0:
            begin = max(0, end - _BLOCK)
            found = os.pread(self._out.fd, end - begin, begin).rfind(b"\n")
            if found >= 0:
                return begin + found + 1
            end = begin
        return 0

    @property
    def n_err_bytes(self) -> int:
        """How many bytes of stderr have been read."""
        return self._err.offset

    @property
    def n_bytes(self) -> int:
        """How many bytes of both streams have been read."""
        return self._out.offset + self._err.offset

    @property
    def is_behind(self) -> bool:
        """Whether more can be read right away."""
        return self._out.is_behind or self._err.is_behind

    def read(self, t_ms: int, take: Callable[[RawLine], None]) -> None:
        """Pass the new lines of stdout to take; keep the end of stderr."""
        if self._pipe is not None:
            self._pipe.drain()
        for line in self._out.read(t_ms):
            take(line)
        for line in self._err.read(t_ms):
            self._keep(line)

    def close(self, t_ms: int, take: Callable[[RawLine], None]) -> bool:
        """Read what is left when the processes have ended, unless they wrote more than they may.

        Return whether all of it was read in time.
        """
        self.started()
        if self._pipe is not None:
            try:
                while self._has_time() and not self.over_limit() and self._pipe.drain():
                    pass  # a process that escaped may go on writing
            finally:
                self._pipe.close()
                self._pipe = None
        self.read(t_ms, take)
        most, to_the_end = self._limits.output_bytes, not self.over_limit()
        for line in self._out.close(t_ms, most, to_the_end=to_the_end):
            take(line)
        most = max(self._err.offset, most - self._out.end)
        for line in self._err.close(t_ms, most, to_the_end=to_the_end):
            self._keep(line)
        return not (to_the_end and self.is_behind)

    @property
    def ends(self) -> tuple[int, int]:
        """After close: how many bytes of stdout and stderr may be kept."""
        return self._out.end, self._err.end

    def over_limit(self) -> bool:
        """Whether the process wrote more than it may, or made its files larger in another way."""
        limit = self._limits.output_bytes
        return (
            self._out.is_over(limit)
            or self._err.is_over(limit)
            or self._out.size + self._err.size > limit
        )

    def _keep(self, line: RawLine) -> None:
        self.stderr_tail = (self.stderr_tail + line.text + b"\n")[-4096:]


class _Pipe:
    """Moves what an agent writes into a file; never blocks."""

    def __init__(self, file_fd: int) -> None:
        self._file_fd = file_fd
        self._read_fd, self.write_fd = os.pipe()
        os.set_blocking(self._read_fd, False)
        system.widen_pipe(self._read_fd, _PIPE_BYTES)

    def drain(self) -> bool:
        """Move at most one chunk; return whether there was anything."""
        try:
            chunk = moved = os.read(self._read_fd, _PIPE_BYTES)
        except BlockingIOError:
            return False
        while chunk:
            chunk = chunk[os.write(self._file_fd, chunk) :]
        return bool(moved)

    def close(self) -> None:
        os.close(self._read_fd)


def opened_again(fd: int) -> int:
    """Return another file description of a file: flags and leases that are set there stay there."""
    return os.open(f"/dev/fd/{fd}", os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)


class TurnWatcher:
    """Passes the lines of one turn on as they come, and decides when the turn is over."""

    def __init__(
        self,
        streams: Streams,
        watch: Watch,
        end: TurnEnd,
        limits: Limits,
        clock: Clock,
        on_step: OnStep | None,
        cancelled: threading.Event,
    ) -> None:
        """Another thread sets cancelled to end the turn early."""
        self._streams = streams
        self.watch = watch
        self._end = end
        self._limits = limits
        self._clock = clock
        self._on_step = on_step
        self._cancelled = cancelled
        self.on_line: OnLine | None = None
        self.until: Until | None = None
        self.lines: list[RawLine] | None = []
        """All lines of the turn while they are few: saves reading the file again."""
        self._held = 0

    def follow(self, process: Process, deadline_s: float, linger_s: float) -> None:
        """Read lines until the process ends or a limit is hit.

        After the terminal event the agent has linger_s to exit by itself.
        """
        last_output_s, answered_s = self._clock(), None
        while True:
            exited = process.wait(0 if self._streams.is_behind else deadline_s - self._clock())
            now_s = self._clock()
            if self._pump(now_s, self.take):
                last_output_s = now_s
            if exited or self._end.settled or self._cancelled.is_set():
                self._end.over_limit = self._streams.over_limit()
                return
            if not self.watch.ended:
                answered_s = None  # some agents go on after what looked like the end
            elif answered_s is None:
                answered_s = now_s
                if self.watch.over_limit:
                    linger_s = 0
            if answered_s is None:
                if self._over(now_s, deadline_s, last_output_s):
                    return
            elif now_s >= min(answered_s + linger_s, deadline_s) or self._streams.over_limit():
                self._end.lingered = True
                return

    def converse(self, process: Process, dialogue: Dialogue, deadline_s: float) -> None:
        """Pass lines in both directions until the turn is over; the process lives on."""

        def take(line: RawLine) -> None:
            self.take(line)
            if not line.oversized:
                process.write(dialogue.hear(line.text))

        last_output_s = self._clock()
        while True:
            exited = process.wait(0 if self._streams.is_behind else deadline_s - self._clock())
            now_s = self._clock()
            if self._pump(now_s, take):
                last_output_s = now_s
            if exited or self.watch.ended or self._cancelled.is_set() or self._end.settled:
                return
            if self._over(now_s, deadline_s, last_output_s):
                return

    def take(self, line: RawLine) -> None:
        """Pass a line on, and remember it while there are few."""
        if self.lines is not None:
            self._held += len(line.text) + _PER_LINE
            self.lines.append(line)
            if self._held > _HELD_BYTES:
                self.lines = None
        steps = self.watch.feed(line)
        if self.on_line is not None:
            self.on_line(self.watch, line, steps)
        if self._on_step is not None:
            for step in steps:
                self._on_step(step)
        if self.until is not None and any(map(self.until, steps)):
            self._end.settled = True

    def _pump(self, now_s: float, take: Callable[[RawLine], None]) -> bool:
        before = self._streams.n_bytes
        self._streams.read(round(now_s * 1000), take)
        return self._streams.n_bytes > before

    def _over(self, now_s: float, deadline_s: float, last_output_s: float) -> bool:
        end, stall_s = self._end, self._limits.stall_s
        end.timed_out = now_s >= deadline_s
        end.stalled = stall_s is not None and now_s - last_output_s >= stall_s
        end.over_limit = self._streams.over_limit()
        return end.timed_out or end.stalled or end.over_limit
