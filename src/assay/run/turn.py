"""Watch one turn from its start to its end: lines as they come, and all the clocks."""

from collections.abc import Callable

from assay.records.recording import RawLine, TurnEnd
from assay.records.trajectory import AnyStep
from assay.records.trial import Limits
from assay.run.process import Process
from assay.run.secrets import Secrets
from assay.run.tail import Marks, Tail
from assay.seams import Dialogue, Watch

_HELD_BYTES = 256 * 1024
_PER_LINE = 64
type OnStep = Callable[[AnyStep], None]
type Clock = Callable[[], float]
"""Seconds since the start of the trial."""


class Streams:
    """The output files of one process, followed while it writes them."""

    def __init__(self, stdout: str, stderr: str, limits: Limits, secrets: Secrets) -> None:
        self._limits = limits
        self._out = Tail(stdout, limits.line_bytes, secrets)
        self._err = Tail(stderr, limits.line_bytes, secrets)
        self.out_fd, self.err_fd = self._out.fd, self._err.fd
        self.stderr_tail = b""

    @property
    def marks(self) -> Marks:
        """When which part of stdout arrived."""
        return self._out.marks

    @property
    def out_offset(self) -> int:
        """How far stdout has been read."""
        return self._out.offset

    @property
    def n_bytes(self) -> int:
        """How much was written to both streams."""
        return self._out.offset + self._err.offset

    def read(self, t_ms: int, take: Callable[[RawLine], None]) -> None:
        """Take the new lines of stdout; keep the end of stderr."""
        for line in self._out.read(t_ms):
            take(line)
        for line in self._err.read(t_ms):
            self._keep(line)

    def close(self, t_ms: int, take: Callable[[RawLine], None]) -> None:
        """Take what is left; the processes are gone."""
        for line in self._out.close(t_ms):
            take(line)
        for line in self._err.close(t_ms):
            self._keep(line)

    def over_limit(self) -> bool:
        """Whether the process wrote more than it may."""
        return self.n_bytes > self._limits.output_bytes

    def _keep(self, line: RawLine) -> None:
        self.stderr_tail = (self.stderr_tail + line.text + b"\n")[-4096:]


class TurnWatcher:
    """Feeds the lines of one turn to whoever wants them, and decides when the turn is over."""

    def __init__(
        self,
        streams: Streams,
        watch: Watch,
        end: TurnEnd,
        limits: Limits,
        clock: Clock,
        on_step: OnStep | None = None,
    ) -> None:
        self._streams = streams
        self._watch = watch
        self._end = end
        self._limits = limits
        self._clock = clock
        self._on_step = on_step
        self.lines: list[RawLine] | None = []
        """All lines of the turn while they are few: saves reading the file again."""
        self._held = 0

    def follow(self, process: Process, deadline_s: float, linger_s: float) -> None:
        """Pump lines until the process ends or a limit is hit."""
        last_output_s, answered_s = self._clock(), None
        while True:
            exited = process.wait(deadline_s - self._clock())
            now_s = self._clock()
            if self._pump(now_s, self.take):
                last_output_s = now_s
            if exited:
                return
            if answered_s is None and self._watch.ended:
                answered_s = now_s
            if answered_s is not None and now_s >= min(answered_s + linger_s, deadline_s):
                self._end.lingered = True
                return
            if answered_s is None and self._over(now_s, deadline_s, last_output_s):
                return

    def converse(self, process: Process, dialogue: Dialogue, deadline_s: float) -> None:
        """Pump lines both ways until the turn is over; the process lives on."""

        def take(line: RawLine) -> None:
            self.take(line)
            if not line.oversized:
                process.write(dialogue.hear(line.text))

        last_output_s = self._clock()
        while True:
            exited = process.wait(deadline_s - self._clock())
            now_s = self._clock()
            if self._pump(now_s, take):
                last_output_s = now_s
            if exited or self._watch.ended or self._over(now_s, deadline_s, last_output_s):
                return

    def take(self, line: RawLine) -> None:
        """Hand a line on."""
        if self.lines is not None:
            self._held += len(line.text) + _PER_LINE
            self.lines.append(line)
            if self._held > _HELD_BYTES:
                self.lines = None
        steps = self._watch.feed(line)
        if self._on_step is not None:
            for step in steps:
                self._on_step(step)

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
