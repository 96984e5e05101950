"""Put the turns of a prompt to an agent, one after the other."""

import contextlib
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from assay import plugins
from assay.errors import AssayError, PluginError, SpawnError
from assay.plugin import Adapter, Ask, Command, Dialogue, Watch
from assay.records.capture import Cause, Failure
from assay.records.files import temporary_file
from assay.records.recording import FORGETS, RawLine, Turn, TurnEnd
from assay.records.spec import TrialSpec
from assay.run.confinement import Confinement, WrappedCommand
from assay.run.family import MARK_NAME, Mark, end_family
from assay.run.process import Launch, Process, raise_if_stopping
from assay.run.program import end_of, wait_and_end
from assay.run.raw import RawStreams
from assay.run.resources import is_full, lack_of, out_of
from assay.run.tail import mask_again, recorded_lines
from assay.run.turn import OnStep, Streams, Trace, TurnWatcher, Until
from assay.run.workspace import child_env, our_secrets, remove_links, secrets_of

if TYPE_CHECKING:
    from assay.run.proxy import Proxy

_READ_REST_S = 2.0
"""After its deadline, what is left of an agent's output is read for at most so long."""
_SETUP_BYTES = 2000
"""How much of the end of what a set-up printed is shown."""


type SaysNext = Callable[[Sequence[tuple[str, str]]], str | None]
"""Returns what a user says after these turns, pairs of what was asked and answered; None is
nothing more. Raises PluginError when the user itself fails."""


class Places(msgspec.Struct, frozen=True):
    """The folders of one trial."""

    raw: RawStreams
    workspace: str
    home: str | None
    """The agent's own HOME when it is isolated."""
    scratch: str
    """For files that the adapter wants written."""


class Conversation:
    """One trial's turns. Ends every process it started, whatever happens."""

    user: SaysNext | None = None
    """Answers the agent after the last turn of the prompt."""
    until: Until | None = None
    """Says of each step whether it settles the trial, which then ends."""

    proxy: "Proxy | None" = None
    """Stands between the agent and its models."""

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
        self._env, self._mark = env, mark
        self._on_step = on_step
        self._started_s = time.monotonic()
        self._process: Process | None = None
        self._streams: Streams | None = None
        self._n_processes = 0
        self._left_processes = False
        self._dialogue = adapter.dialogue(str(places.workspace))
        self._history: list[tuple[str, str]] = []
        self.cancelled = threading.Event()
        """Set by another thread to end the current turn early; its processes are ended."""
        self.session_id: str | None = None
        """The agent's own session id, once it is known; set it to continue an earlier session."""
        self.mcp_servers: dict[str, dict[str, Any]] = {}
        """Servers of the trial's world, for the adapter."""
        self.hidden_env: frozenset[str] = frozenset()
        """Variables that the agent does not inherit from us."""
        self.repetitive = False
        """As in Ask."""
        self.confinement: Confinement | None = None
        """What each process is started in; None starts it as it is."""
        self.trace: Trace | None = None
        self.answer = ""
        """The answer to the last turn."""
        self.turns: list[Turn] = []
        self.failure: Failure | None = None
        self.stderr = b""
        self.secrets = our_secrets()
        self.keep: tuple[str, ...] = ()
        self.warnings: tuple[str, ...] = ()
        """What a reader of the trial should know."""
        self.setup_s = 0.0
        """How long the set-up of the prompt took."""
        self._read_until_s = _READ_REST_S
        """Until then, by the clock of the trial, output of the agent is read."""
        self.wrote_files = False
        """Whether the adapter had files written, which may be in the scratch folder."""

    def hold(self) -> None:
        """Put all turns to the agent, those of the prompt and then those of its user, until one
        does not end well."""
        turns = self._spec.prompt.turns
        try:
            for number, text in enumerate(turns, 1):
                if not self.put(text, last=number == len(turns) and self.user is None):
                    return
            while self.user is not None and (said := self._next_words(self.user)) is not None:
                if not self.put(said):
                    return
            if self._process is not None:
                self._let_exit(self._process, TurnEnd())
        except SpawnError as error:
            # What could be started for an earlier turn, and now cannot, the agent itself broke.
            cause = Cause.AGENT_CRASH if self.turns else Cause.SPAWN
            self.failure = Failure(cause=cause, message=error.message)
        finally:
            if self._process is not None or self._left_processes:
                self.close()

    def _next_words(self, user: SaysNext) -> str | None:
        """Return what the user says next; None ends the conversation."""
        mask = self.secrets.mask_text  # a user may be a model elsewhere
        try:
            return user([(mask(asked), mask(answer)) for asked, answer in self._history])
        except PluginError as error:
            self.failure = Failure(cause=Cause.USER, message=error.message)
            return None

    def _launch(self, command: WrappedCommand, fds: Sequence[int], **more: Any) -> Launch:
        """Return what to start, with these two files as stdout and stderr."""
        return Launch(
            argv=command.argv,
            cwd=self._places.workspace,
            env=command.env,
            pass_fds=command.pass_fds,
            wrapped=command.wrapped,
            spared=command.spared,
            stdout=fds[0],
            stderr=fds[1],
            **more,
        )

    def set_up(self, command_line: str, confinement: Confinement | None) -> None:
        """Run the prompt's own command line in the workspace, as the agent would be run.

        Its time is not the agent's. Raises PluginError, with what it printed, when it fails.
        """
        began_s = time.monotonic()
        command = Command(argv=("/bin/sh", "-c", command_line))
        env = self._environment(command)
        wrapped = WrappedCommand(argv=command.argv, env=env)
        if confinement is not None:
            wrapped = confinement.wrap(command, env, talk=False)
        with temporary_file() as out:
            fds = out.fileno(), out.fileno()
            process = Process(self._launch(wrapped, fds), self._mark)
            if confinement is not None:
                confinement.started()
            timed_out = wait_and_end(process, self._spec.limits.turn_s, (out,))
            printed = end_of(out, _SETUP_BYTES).decode("utf-8", "replace").strip()
        self.setup_s = time.monotonic() - began_s
        self._started_s += self.setup_s
        if timed_out or process.exit_code != 0:
            how = f"did not end in {self._spec.limits.turn_s:g} s" if timed_out else ""
            how = how or f"ended with {process.signal_name or f'exit code {process.exit_code}'}"
            msg = f"the set-up of the prompt {how}\n{self.secrets.mask_text(printed)}".rstrip()
            raise PluginError(msg)

    def put(self, text: str, *, last: bool = False) -> bool:
        """Put one turn to the agent; return whether another may follow. Raises SpawnError."""
        ask = Ask(
            text=text,
            cwd=self._places.workspace,
            session_id=self.session_id,
            history=tuple(self._history),
            home=self._places.home,
            scratch=self._places.scratch,
            prompt_id=self._spec.prompt.id,
            trial=self._spec.number,
            mcp_servers=self.mcp_servers,
            sandbox=self._spec.surroundings.confined_in,
            login=self._spec.surroundings.has_login,
            tools=self._spec.surroundings.tools,
            repetitive=self.repetitive,
        )
        watch = plugins.with_defaults(Watch, self._adapter.watch())
        end = TurnEnd(start_ms=self._now_ms())
        dialogue = self._dialogue
        if self.turns and self._adapter.forgets(self.session_id):
            self.warnings = (FORGETS,)
        if dialogue is None:
            self._run_process(ask, watch, end, last=last)
        else:
            self._converse(ask, watch, end, dialogue, last=last)
        self.session_id = watch.session_id or self.session_id
        self.answer = watch.output()
        is_over = dialogue is not None and (dialogue.over or not watch.ended)
        if _ended_badly(end) or self.cancelled.is_set() or is_over:
            return False
        self._history.append((text, self.answer))
        return True

    def close(self) -> None:
        """End every process that is still alive."""
        if self._process is None:
            end_family(None, self._mark, self._spec.limits.term_s)
            return
        self._process.end(self._spec.limits.term_s)
        try:
            if self._streams is not None:
                self._close_streams(self._streams, lambda _line: None)
        finally:
            self._release()

    @property
    def over(self) -> bool:
        """Whether the agent's one process has ended, and the conversation with it."""
        return self._dialogue is not None and self._n_processes > 0 and self._process is None

    def _run_process(self, ask: Ask, watch: Watch, end: TurnEnd, *, last: bool) -> None:
        """Hold one turn with a process of its own."""
        process, streams = self._start(self._command(ask), end, talk=False)
        watcher = self._watcher(streams, watch, end)
        watcher.follow(process, self._deadline_s(), self._adapter.linger_s)
        # What a turn leaves running, such as a server, may be needed by the next turn.
        self._left_processes = not last and process.exit_code == 0
        if not self._left_processes:
            process.end(0 if end.over_limit else self._spec.limits.term_s)
        end.timed_out |= not self._close_streams(streams, watcher.take)
        self._note(ask.text, end, process, watcher, first=0)
        self._release()
        self._refuse_cut_output(watch)

    def _converse(
        self, ask: Ask, watch: Watch, end: TurnEnd, dialogue: Dialogue, *, last: bool
    ) -> None:
        """Hold one turn with a process that lives for the whole conversation."""
        if self._process is None:
            self._start(self._command(ask), end, talk=True)
        process, streams = self._process, self._streams
        assert process is not None
        assert streams is not None
        first = streams.whole_lines_offset
        watcher = self._watcher(streams, watch, end)
        process.write(dialogue.say(ask))
        watcher.converse(process, dialogue, self._deadline_s())
        over = last or dialogue.over or not watch.ended or bool(process.exit_code)
        if over:
            if watch.ended:
                self._let_exit(process, end)
            process.end(self._spec.limits.term_s)
            end.timed_out |= not self._close_streams(streams, watcher.take)
        self._note(ask.text, end, process, watcher, first, over=over)
        if over:
            self._release()
            self._refuse_cut_output(watch)

    def _close_streams(self, streams: Streams, take: Callable[[RawLine], None]) -> bool:
        """Read what is left of the streams; return whether there was time for all of it."""
        self._read_until_s = max(self._read_until_s, self._clock() + _READ_REST_S)
        in_time = streams.close(self._now_ms(), take)
        for name, n_bytes in zip(("out", "err"), streams.ends, strict=True):
            self._places.raw.cut(f"{self._n_processes}.{name}", n_bytes)
        return in_time

    def _has_time(self) -> bool:
        raise_if_stopping()
        return self._clock() < self._read_until_s

    def mask_again(self) -> None:
        """Mask what the agent, or what it left running, wrote over lines that had been read."""
        self._read_until_s = max(self._read_until_s, self._clock() + _READ_REST_S)
        for name, fd, end in self._places.raw.cut_streams():
            masked = mask_again(fd, end, self._spec.limits.line_bytes, self.secrets, self._has_time)
            if masked < end:
                self._places.raw.cut(name, masked)
                self.warnings += (f"{name} is kept up to byte {masked}: no time to mask the rest",)

    def _refuse_cut_output(self, watch: Watch) -> None:
        """End the run if a full disk cut off the output, which is no failure of the agent."""
        if not watch.ended and is_full(self._places.raw.place):
            what = "no space left for the output of agents"
            raise out_of(what, self._places.raw.place)

    def _let_exit(self, process: Process, end: TurnEnd) -> None:
        """Close stdin and give the agent time to exit by itself; its exit code is not judged."""
        if process.wait(0):
            return
        process.close_stdin()
        until_s = self._clock() + self._spec.limits.term_s
        while not process.wait(until_s - self._clock()) and self._clock() < until_s:
            pass
        end.lingered = process.exit_code != 0

    def _watcher(self, streams: Streams, watch: Watch, end: TurnEnd) -> TurnWatcher:
        limits, on_step = self._spec.limits, self._on_step
        made = TurnWatcher(streams, watch, end, limits, self._clock, on_step, self.cancelled)
        made.until = self.until
        if self.trace is not None:
            made.on_line = partial(self.trace.took, self._spec)
        return made

    def _command(self, ask: Ask) -> Command:
        command = self._adapter.command(ask)
        if self.proxy is None:
            return command
        redirected = self.proxy.redirect(self._adapter, command, ask)
        if self.confinement is not None:
            self.confinement.replaced = self.proxy.replaced
        return redirected

    def _start(self, command: Command, end: TurnEnd, *, talk: bool) -> tuple[Process, Streams]:
        self._n_processes += 1
        self.keep = command.keep
        raw, n, confinement = self._places.raw, self._n_processes, self.confinement
        with _preparing():
            env = self._environment(command)
            if command.files or command.links:
                self._write_files(command)
            wrapped = WrappedCommand(argv=command.argv, env=env)
            if confinement is not None:
                wrapped = confinement.wrap(command, env, talk=talk)
        stdin = None
        if command.stdin is not None:
            stdin = self._stdin(command.stdin.encode("utf-8", "surrogatepass"))
        if confinement is not None and confinement.secrets:
            self.secrets = secrets_of({**env, **confinement.secrets})
        limits, secrets = self._spec.limits, self.secrets
        if self.trace is not None:
            masked = [*map(secrets.mask_text, command.argv)]
            self.trace.started(self._spec, masked, self._places.workspace, env)
        out, err = raw.make(f"{n}.out"), raw.make_in_memory(f"{n}.err")
        streams = Streams(out, err, limits, secrets, piped=talk, has_time=self._has_time)
        more = {"stdin": stdin, "talk": talk, "function": command.function}
        launch = self._launch(wrapped, streams.fds, **more)
        try:
            self._process = Process(launch, self._mark)
        except AssayError:
            streams.close(0, lambda _line: None)
            raw.drop(f"{n}.err")
            raise
        finally:
            if confinement is not None:
                confinement.started()
        streams.started()
        end.spawned_ms = self._now_ms()
        self._streams = streams
        return self._process, self._streams

    def _stdin(self, data: bytes) -> Path:
        """Return a file for the agent to read; what is kept of it has no secrets."""
        raw, name = self._places.raw, f"{self._n_processes}.in"
        masked = self.secrets.mask_file(data)
        raw.write(name, masked)
        return Path(raw.path(name) if masked == data else raw.lend(data))

    def _environment(self, command: Command) -> dict[str, str]:
        """Return the agent's environment; remember the secrets in it."""
        env = child_env(self._spec, self._places.home, command)
        around = self._spec.surroundings
        keys = {*around.hidden_env} - {*command.pass_env, *around.env_names}
        for name in {"OLDPWD", *self.hidden_env, *keys} - command.env.keys():
            env.pop(name, None)
        if "PWD" in env:  # ours leads to the operator's folder
            env["PWD"] = self._places.workspace
        env.update(self._env)
        # Most trials get our own environment, whose secrets are found only once.
        only_ours = self._places.home is None and not command.env and not self._env
        self.secrets = our_secrets() if only_ours else secrets_of(env)
        env[MARK_NAME] = self._mark.token
        return env

    def _write_files(self, command: Command) -> None:
        self.wrote_files = True
        for name, text in command.files.items():
            path = self._own_path(name)
            if not path.is_file():
                path.unlink(missing_ok=True)  # to open a FIFO would wait for ever
            path.write_text(text, encoding="utf-8")
        for name, target in command.links.items():
            with contextlib.suppress(FileExistsError):  # replaced by the agent in an earlier turn
                self._own_path(name).symlink_to(target)

    def _own_path(self, name: str) -> Path:
        """Return the path of a file that the adapter wants, in a folder that is there."""
        path = Path(name)
        own = [folder for folder in (self._places.home, self._places.scratch) if folder]
        base = next((folder for folder in own if path.is_relative_to(folder)), None)
        if base is None:
            msg = f"adapter {self._adapter.name} wants to write outside its folders: {name}"
            raise PluginError(msg)
        remove_links(Path(base), path)
        Path(base).mkdir(mode=0o700, exist_ok=True)  # files may hold tokens
        path.parent.mkdir(parents=True, exist_ok=True)
        return path

    def _note(
        self,
        text: str,
        end: TurnEnd,
        process: Process,
        watcher: TurnWatcher,
        first: int,
        *,
        over: bool = True,
    ) -> None:
        streams = self._streams
        assert streams is not None
        last = streams.out_offset if over else streams.whole_lines_offset
        end.end_ms = self._now_ms()
        end.exit_code = None if end.lingered else process.exit_code
        end.signal = process.signal_name
        if end.timed_out and end.signal is None:  # it caught our signal and exited by itself
            end.signal = "SIGTERM"
        lines: Callable[[], Iterable[RawLine]]
        if watcher.lines is not None:
            lines = watcher.lines.copy
        else:  # too many to hold: they are read from the file again
            stdout = self._places.raw.fd(f"{self._n_processes}.out")
            most = self._spec.limits.line_bytes
            lines = partial(recorded_lines, stdout, streams.marks, most, first=first, last=last)
        if over and watcher.lines is not None:
            for name in ("in", "out"):
                self._places.raw.forget(f"{self._n_processes}.{name}")
        self.turns.append(Turn(text, end, lines, seen=watcher.watch))
        self.stderr = streams.stderr_tail or self.stderr
        if self.trace is not None:
            answer = self.secrets.mask_text(watcher.watch.output())
            self.trace.ended(self._spec, watcher.watch, end, answer, streams.stderr_tail)
        if self.confinement is not None and over:
            self.failure = self.confinement.note(end, self.stderr) or self.failure
        if self.proxy is not None and not end.gateway:
            end.gateway = self.proxy.seen()

    def _release(self) -> None:
        assert self._process is not None
        self._process.release()
        assert self._streams is not None
        err = f"{self._n_processes}.err"
        if self._streams.n_err_bytes:
            self._places.raw.forget(err)
        else:
            self._places.raw.drop(err)
        self._process = self._streams = None

    def _deadline_s(self) -> float:
        limits = self._spec.limits
        deadline_s = self._clock() + limits.turn_s
        if limits.trial_s is not None:
            deadline_s = min(deadline_s, limits.trial_s)
        self._read_until_s = deadline_s + _READ_REST_S
        return deadline_s

    def _clock(self) -> float:
        return time.monotonic() - self._started_s

    def _now_ms(self) -> int:
        return round(self._clock() * 1000)


@contextlib.contextmanager
def _preparing() -> Iterator[None]:
    """Let what cannot be put into an agent's folders be a failure to start the agent."""
    try:
        yield
    except OSError as error:
        if lack_of(error):
            raise
        msg = f"the agent's folders could not be prepared: {error}"
        raise SpawnError(msg) from error


def _ended_badly(end: TurnEnd) -> bool:
    ended_by_us = end.timed_out or end.stalled or end.over_limit or end.settled
    return ended_by_us or bool(end.exit_code)
