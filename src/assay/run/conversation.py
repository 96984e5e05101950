"""Put the turns of a prompt to an agent, one after the other."""

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from assay.errors import SpawnError
from assay.records.failure import Cause, Failure
from assay.records.recording import RawLine, TurnEnd
from assay.records.trial import TrialSpec
from assay.run.family import MARK_NAME, Mark
from assay.run.process import Launch, Process
from assay.run.secrets import Secrets
from assay.run.tail import Marks, recorded_lines
from assay.run.turn import OnStep, Streams, TurnWatcher
from assay.run.workspace import child_env
from assay.seams import Adapter, Ask, Command, Dialogue, Watch


@dataclass(frozen=True)
class Places:
    """The folders of one trial."""

    raw: Path
    workspace: Path
    home: Path | None
    """The agent's own HOME when it is isolated."""


@dataclass(frozen=True)
class Spoken:
    """One turn that was held: its text, its end, and where its lines stand."""

    text: str
    end: TurnEnd
    stdout: str
    first: int
    last: int
    """Offsets in stdout."""
    marks: Marks
    held: list[RawLine] | None
    """The lines themselves when they are few."""

    def lines(self, line_bytes: int) -> Iterable[RawLine]:
        """Give the lines of the turn."""
        if self.held is not None:
            return self.held
        return recorded_lines(self.stdout, self.marks, line_bytes, first=self.first, last=self.last)


class Conversation:
    """One trial's turns. Ends every process it began, whatever happens."""

    def __init__(
        self,
        spec: TrialSpec,
        adapter: Adapter,
        places: Places,
        env: Mapping[str, str],
        mark: Mark,
        on_step: OnStep | None = None,
    ) -> None:
        self._spec = spec
        self._adapter = adapter
        self._places = places
        self._env = env
        self._mark = mark
        self._on_step = on_step
        self._started_s = time.monotonic()
        self._process: Process | None = None
        self._streams: Streams | None = None
        self._n_processes = 0
        self.turns: list[Spoken] = []
        self.failure: Failure | None = None
        self.stderr = b""
        self.secrets = Secrets({})
        self.keep: tuple[str, ...] = ()

    def hold(self) -> None:
        """Put all turns, until one does not end well."""
        try:
            self._hold()
        except SpawnError as error:
            self.failure = Failure(cause=Cause.SPAWN, message=error.message)
        finally:
            if self._process is not None:
                self._process.end(self._spec.limits.term_s)
                self._release()

    def _hold(self) -> None:
        session_id: str | None = None
        history: list[tuple[str, str]] = []
        dialogue = self._adapter.dialogue(str(self._places.workspace))
        turns = self._spec.prompt.turns
        for number, text in enumerate(turns, 1):
            ask = Ask(
                text=text,
                cwd=str(self._places.workspace),
                session_id=session_id,
                history=tuple(history),
                home=str(self._places.home) if self._places.home else None,
            )
            watch = self._adapter.watch()
            end = TurnEnd(start_ms=self._now_ms())
            if dialogue is None:
                self._speak(ask, watch, end, last=number == len(turns))
            else:
                self._converse(ask, watch, end, dialogue, last=number == len(turns))
            if _ended_badly(end):
                return
            session_id = watch.session_id or session_id
            history.append((text, watch.output()))

    def _speak(self, ask: Ask, watch: Watch, end: TurnEnd, *, last: bool) -> None:
        """Hold one turn with a process of its own."""
        process, streams = self._start(self._adapter.command(ask), end, talk=False)
        watcher = TurnWatcher(streams, watch, end, self._spec.limits, self._clock, self._on_step)
        watcher.follow(process, self._deadline_s(), self._adapter.linger_s)
        if last or process.exit_code != 0:
            process.end(self._spec.limits.term_s)
        streams.close(self._now_ms(), watcher.take)
        self._note(ask.text, end, process, watcher.lines, first=0)
        self._release()

    def _converse(
        self, ask: Ask, watch: Watch, end: TurnEnd, dialogue: Dialogue, *, last: bool
    ) -> None:
        """Hold one turn with a process that lives for the whole conversation."""
        if self._process is None:
            self._start(self._adapter.command(ask), end, talk=True)
        process, streams = self._process, self._streams
        assert process is not None
        assert streams is not None
        first = streams.out_offset
        watcher = TurnWatcher(streams, watch, end, self._spec.limits, self._clock, self._on_step)
        process.write(dialogue.say(ask.text))
        watcher.converse(process, dialogue, self._deadline_s())
        over = last or end.timed_out or end.stalled or end.over_limit or process.has_ended
        if over:
            self._let_go(process)
            streams.close(self._now_ms(), watcher.take)
        self._note(ask.text, end, process, watcher.lines, first)
        if over:
            self._release()

    def _let_go(self, process: Process) -> None:
        """Close stdin and give the agent a moment to end by itself."""
        process.close_stdin()
        until_s = self._clock() + self._spec.limits.term_s
        while not process.wait(until_s - self._clock()) and self._clock() < until_s:
            pass
        process.end(self._spec.limits.term_s)

    def _start(self, command: Command, end: TurnEnd, *, talk: bool) -> tuple[Process, Streams]:
        self._n_processes += 1
        self.keep = command.keep
        env = child_env(self._spec, self._places.home, command.pass_env, command.env)
        env |= {**self._env, MARK_NAME: self._mark.token}
        self.secrets = Secrets(env)
        raw, n = self._places.raw, self._n_processes
        stdin = raw / f"{n}.in" if command.stdin is not None else None
        if stdin is not None:
            stdin.write_text(command.stdin or "", encoding="utf-8", errors="surrogatepass")
        self._write_files(command)
        streams = Streams(f"{raw}/{n}.out", f"{raw}/{n}.err", self._spec.limits, self.secrets)
        launch = Launch(
            argv=command.argv,
            cwd=str(self._places.workspace),
            env=env,
            stdout=streams.out_fd,
            stderr=streams.err_fd,
            stdin=stdin,
            talk=talk,
        )
        try:
            self._process = Process(launch, self._mark)
        except SpawnError:
            streams.close(0, lambda _line: None)
            raise
        end.spawned_ms = self._now_ms()
        self._streams = streams
        return self._process, self._streams

    def _write_files(self, command: Command) -> None:
        for name, text in command.files.items():
            if self._places.home is None:
                continue
            path = self._places.home / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")

    def _note(
        self, text: str, end: TurnEnd, process: Process, held: list[RawLine] | None, first: int
    ) -> None:
        streams = self._streams
        assert streams is not None
        end.end_ms = self._now_ms()
        end.exit_code = None if end.lingered else process.exit_code
        end.signal = process.signal_name
        if end.timed_out and end.signal is None:
            end.signal = "SIGTERM"
        stdout = f"{self._places.raw}/{self._n_processes}.out"
        self.turns.append(Spoken(text, end, stdout, first, streams.out_offset, streams.marks, held))
        self.stderr = streams.stderr_tail or self.stderr

    def _release(self) -> None:
        assert self._process is not None
        self._process.release()
        self._process = self._streams = None

    def _deadline_s(self) -> float:
        limits = self._spec.limits
        deadline_s = self._clock() + limits.turn_s
        return deadline_s if limits.trial_s is None else min(deadline_s, limits.trial_s)

    def _clock(self) -> float:
        return time.monotonic() - self._started_s

    def _now_ms(self) -> int:
        return round(self._clock() * 1000)


def _ended_badly(end: TurnEnd) -> bool:
    return end.timed_out or end.stalled or end.over_limit or bool(end.exit_code)
