"""Run one trial. Data in, data out: the same function serves local and remote workers."""

import contextlib
import os
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from functools import cache
from glob import escape
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from assay import plugins
from assay.errors import (
    AssayError,
    Interrupted,
    OutOfResources,
    OutputError,
    PluginError,
    SpawnError,
)
from assay.plugin import Ask, Benchmark, ConfinedProgram, Finished, Machine, World
from assay.records.capture import Cause, Failure, WorkspaceChanges
from assay.records.files import remove_folder, temporary_folder, temporary_place
from assay.records.recording import Recording
from assay.records.spec import TrialSpec
from assay.run.confinement import Confinement
from assay.run.conversation import Conversation, Places, SaysNext
from assay.run.family import Mark
from assay.run.git_settings import changed_settings, git_settings
from assay.run.host import LocalHost
from assay.run.process import is_program, missing_program, program_places
from assay.run.raw import RawStreams
from assay.run.resources import needed
from assay.run.snapshot import Repository, Snapshot, TooManyFilesError, note_repository
from assay.run.turn import OnStep, Trace, Until
from assay.run.workspace import AGENT_FILES, keep_files, keep_start, make_workspace

if TYPE_CHECKING:
    from assay.run.tapes import TapeLane


@contextmanager
def recorded(
    spec: TrialSpec,
    on_step: OnStep | None = None,
    trace: Trace | None = None,
    until: Until | None = None,
    user: SaysNext | None = None,
) -> Iterator[Recording]:
    """Run a trial to its end, or until a step settles it; inside the block its raw streams can be
    read.

    Does not raise for what goes wrong inside the trial, only Interrupted when the operator ends it,
    and OutOfResources or OutputError when the run cannot go on.
    """
    around = spec.surroundings
    with RawStreams(around.raw_dir, spec.run_token if around.pack_raw else None) as raw:
        yield _record(spec, raw, _Listeners(on_step, trace, until, user))


def check_program(spec: TrialSpec) -> None:
    """Raise SpawnError when the agent's program is not there, as far as that can be known."""
    around = spec.surroundings
    if around.container:  # the program is in the image
        return
    ask = Ask(text=spec.prompt.turns[0], cwd=around.cwd, home=around.cwd, scratch=around.cwd)
    try:
        command = plugins.adapter(spec.agent).command(ask)
    except Exception:  # noqa: BLE001 - the trial itself will say what is wrong
        return
    if command.function is not None:
        return
    program = command.argv[0]
    search = command.env.get("PATH", os.environ.get("PATH", os.defpath))
    places = program_places(program, around.cwd, search)
    if "/" in program:
        # A relative path begins in the workspace, which may not be there yet.
        if around.workspace_dir is not None and not Path(program).is_absolute():
            return
    elif not all(place.is_absolute() for place in places):  # these begin in the workspace, too
        return
    if not any(map(is_program, places)):
        why = "Permission denied" if any(map(Path.is_file, places)) else ""
        msg = f"cannot start {program}: {why}" if why else missing_program(program)
        raise SpawnError(msg, hint="nothing was run: check the agent's command, or install it")


def lost_trial(why: str) -> Recording:
    """Return the recording of a trial whose worker died before it had one."""
    now_ms, failure = _epoch_ms(), Failure(cause=Cause.WORKER_LOST, message=why)
    return Recording(start_ms=now_ms, end_ms=now_ms, failure=failure)


class _Listeners(NamedTuple):
    """Who is told what the agent does while it does it, and who answers it."""

    on_step: OnStep | None
    trace: Trace | None
    until: Until | None
    user: SaysNext | None


def _record(spec: TrialSpec, raw: RawStreams, listeners: _Listeners) -> Recording:
    start_ms, started_s = _epoch_ms(), time.monotonic()
    try:
        with needed:
            recording = _run(spec, raw, start_ms, listeners)
    except (Interrupted, OutOfResources, OutputError):
        raise
    except _WorldError as error:
        recording = _failed(start_ms, Cause.WORLD, error.message)
    except Exception as error:  # noqa: BLE001 - a trial never takes the run down with it
        recording = _failed(start_ms, Cause.HARNESS, _message(error))
    with needed:
        name, kept, warnings = raw.keep(spec.raw_folder)
    in_raw_dir = name is not None and spec.surroundings.raw_dir is not None
    return msgspec.structs.replace(
        recording,
        end_ms=start_ms + round((time.monotonic() - started_s) * 1000),
        kept=kept,
        raw=f"{spec.surroundings.raw_prefix}/{name}" if in_raw_dir else None,
        retried=spec.retried,
        warnings=(*recording.warnings, *warnings),
    )


def _failed(start_ms: int, cause: Cause, message: str) -> Recording:
    failure = Failure(cause=cause, message=message)
    return Recording(start_ms=start_ms, end_ms=start_ms, failure=failure)


def _run(spec: TrialSpec, raw: RawStreams, start_ms: int, listeners: _Listeners) -> Recording:
    adapter, benchmark = plugins.adapter(spec.agent), plugins.benchmark(spec.benchmark)
    workspace = make_workspace(spec)
    with ExitStack() as stack:
        scratch = f"{_scratch_root()}/assay-{_SECRET}-{next(_numbers)}"
        places = Places(raw, str(workspace), _own_home(spec, stack), scratch)
        world = _open_world(benchmark, spec, workspace, machine := _TrialMachine(raw), stack)
        mark = Mark(f"{spec.run_token}.{spec.folder}")
        with _as_world_error():
            env, mcp_servers = dict(world.env), dict(world.mcp_servers)
        conversation = Conversation(spec, adapter, places, env, mark, listeners.on_step)
        conversation.mcp_servers = mcp_servers
        conversation.hidden_env = frozenset(world.hidden_env)
        conversation.repetitive = world.repetitive
        conversation.trace, conversation.until = listeners.trace, listeners.until
        conversation.user = listeners.user
        if isinstance(spec.prompt.setup, str):
            with _as_world_error(), _confinement(spec, places, world) as confinement:
                conversation.set_up(spec.prompt.setup, confinement)
        around = spec.surroundings
        keep_start(spec, workspace, AGENT_FILES if adapter.reads is None else adapter.reads)
        before = Snapshot(workspace, around) if around.snapshot else None
        # A workspace that Assay made is no repository of the user, but without a sandbox the
        # agent reaches the one from which Assay was started.
        is_confined = around.sandbox or around.container
        place = Path(around.cwd) if around.workspace_dir else workspace
        settings = None if around.workspace_dir and is_confined else git_settings(place)
        note_repository(Repository(workspace, around) if around.repository else None)
        lane = stack.enter_context(_taped(spec, places, conversation))
        confinement = stack.enter_context(_confinement(spec, places, world))
        conversation.confinement = machine.confinement = confinement
        stack.callback(_remove_scratch, conversation, scratch)
        started_s = time.monotonic()
        conversation.hold()
        conversation.mask_again()
        if settings is not None:
            found = changed_settings(settings, git_settings(place))
            conversation.warnings += (*found,)
        evidence, broken = _evidence(world, conversation)
        if conversation.keep:
            _keep_session_files(conversation, places)
    left_s = spec.limits.turn_s * len(conversation.turns) - (time.monotonic() - started_s)
    changes, too_many = _changes(before, max(0.0, left_s) + _COMPARING_S)
    return Recording(
        start_ms=start_ms + round(conversation.setup_s * 1000),
        end_ms=start_ms,
        turns=tuple(conversation.turns),
        failure=broken or too_many or (lane and lane.failure()) or conversation.failure,
        stderr=conversation.stderr.decode("utf-8", "replace").strip(),
        workspace=str(workspace) if spec.surroundings.workspace_dir else None,
        cwd=str(workspace),
        changes=changes,
        evidence=evidence,
        warnings=(*conversation.warnings, *(lane.warnings() if lane else ())),
        replay=lane.replay() if lane else None,
        wire=lane.wire() if lane else None,
        secrets=conversation.secrets,
    )


@contextmanager
def _taped(
    spec: TrialSpec, places: Places, conversation: Conversation
) -> Iterator["TapeLane | None"]:
    """Put a proxy between the agent and its models, if there is anything for it to do."""
    use = spec.surroundings.tape
    if use is None:
        yield None
        return
    # Late: the servers of http take 20 ms, and few runs need them.
    from assay.run import proxy, tapes, wire

    names = wire.Names(places.workspace, places.home, places.scratch)
    lane = tapes.TapeLane(spec, use, names, conversation)
    conversation.proxy = server = proxy.Proxy(lane)
    try:
        yield lane
    finally:
        server.close()
    if lane.error is not None:
        raise lane.error


_COMPARING_S = 4.0
"""Time after a trial's own for finding out what the agent changed."""


def _changes(
    before: Snapshot | None, longest_s: float
) -> tuple[WorkspaceChanges | None, Failure | None]:
    """Return what an agent changed; too much to look at is its own failure."""
    try:
        until_s = time.monotonic() + longest_s
        return before.changes(until_s) if before is not None else None, None
    except TooManyFilesError as error:
        return error.changes, Failure(cause=Cause.AGENT_LIMIT, message=str(error))


_SECRET = os.urandom(12).hex()
"""Makes names that nobody can guess; drawn once, because it takes 10 µs."""
_numbers = count()
_scratch_root = cache(temporary_place)


def _remove_scratch(conversation: Conversation, scratch: str) -> None:
    if conversation.wrote_files:
        remove_folder(scratch, missing_ok=True)


class _TrialMachine(LocalHost):
    """The machine as the world of a trial sees it."""

    def __init__(self, raw: RawStreams) -> None:
        self._raw = raw
        self.confinement: Confinement | None = None
        """Of the agent, once there is one."""

    def run_confined(self, program: ConfinedProgram) -> Finished:
        if not program.is_beside_agent:
            return super().run_confined(program)
        if self.confinement is None:
            msg = "there is no agent in this trial"
            raise PluginError(msg)
        return self.confinement.run_beside_agent(program)

    def keep_file(self, path: Path) -> None:
        with contextlib.suppress(FileNotFoundError):
            self._raw.add(path.name, path)


class _WorldError(AssayError):
    """The world of a trial could not be opened or closed, or did not say what it saw."""


def _open_world(
    benchmark: Benchmark, spec: TrialSpec, workspace: Path, machine: Machine, stack: ExitStack
) -> World:
    with _as_world_error():
        context = benchmark.world(spec, workspace, machine)
        world = plugins.with_defaults(World, context.__enter__())

    def close(*error: Any) -> bool | None:
        with _as_world_error():
            return context.__exit__(*error)

    stack.push(close)
    return world


@contextmanager
def _as_world_error() -> Iterator[None]:
    """Turn whatever a benchmark's world raises into a _WorldError."""
    try:
        yield
    except (Interrupted, OutOfResources):
        raise
    except Exception as error:
        raise _WorldError(_message(error)) from error


def _evidence(world: World, conversation: Conversation) -> tuple[dict[str, Any], Failure | None]:
    """Ask the world what it saw; if it broke, the trial measured nothing."""
    last = conversation.turns[-1].end if conversation.turns else None
    try:
        with _as_world_error():
            return world.evidence(last), None
    except _WorldError as error:
        return {}, Failure(cause=Cause.WORLD, message=error.message)


def _keep_session_files(conversation: Conversation, places: Places) -> None:
    """Copy the agent's own session files beside the raw streams."""
    bases = {"~/": Path(places.home or Path.home()), f"{places.scratch}/": Path(places.scratch)}
    bases[""] = Path(places.workspace)
    patterns = [_for_session(p, conversation.session_id) for p in conversation.keep]
    conversation.warnings += (*keep_files(patterns, bases, places.raw, conversation.secrets),)


def _message(error: Exception) -> str:
    return error.message if isinstance(error, AssayError) else f"{type(error).__name__}: {error}"


def _own_home(spec: TrialSpec, stack: ExitStack) -> str | None:
    if not spec.surroundings.has_own_home:
        return None
    return stack.enter_context(temporary_folder("assay-home-"))


def _confinement(
    spec: TrialSpec, places: Places, world: World
) -> AbstractContextManager[Confinement | None]:
    is_needed = spec.is_confined or spec.surroundings.has_login
    return _confined(spec, places, world) if is_needed else nullcontext()


@contextmanager
def _confined(spec: TrialSpec, places: Places, world: World) -> Iterator[Confinement]:
    visible = (*world.visible, places.scratch)
    made = Confinement(spec, places.workspace, places.home, visible)
    made.mounts, made.hidden, made.kept = world.mounts, world.hidden, world.container
    try:
        yield made
    finally:
        made.close()


def _for_session(pattern: str, session_id: str | None) -> str:
    session = session_id or "none"
    pattern = pattern.replace("{session_id:8}", escape(session[:8]))
    return pattern.replace("{session_id}", escape(session))


def _epoch_ms() -> int:
    return round(time.time() * 1000)
