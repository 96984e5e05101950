"""Run one trial. Data in, data out: the same function serves local and remote workers."""

import contextlib
import os
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from glob import escape
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from assay import plugins
from assay.errors import AssayError, Interrupted, OutputError
from assay.plugin import Benchmark, World
from assay.records.capture import Cause, Failure
from assay.records.files import remove_folder, temporary_folder, temporary_place
from assay.records.recording import Recording
from assay.records.spec import TrialSpec
from assay.run.conversation import Conversation, Places
from assay.run.family import Mark
from assay.run.host import LocalHost
from assay.run.raw import RawStreams
from assay.run.turn import OnStep
from assay.run.workspace import keep_files, make_workspace

if TYPE_CHECKING:
    from assay.run.confinement import Confinement


@contextmanager
def recorded(spec: TrialSpec, on_step: OnStep | None = None) -> Iterator[Recording]:
    """Run a trial to its end; inside the block its raw streams can be read.

    Does not raise for what goes wrong inside the trial, only Interrupted when the operator ends it
    and OutputError when nothing more can be written.
    """
    with RawStreams(spec.surroundings.raw_dir) as raw:
        yield _record(spec, raw, on_step)


def lost_trial(why: str) -> Recording:
    """Return the recording of a trial whose worker died before it had one."""
    now_ms, failure = _epoch_ms(), Failure(cause=Cause.WORKER_LOST, message=why)
    return Recording(start_ms=now_ms, end_ms=now_ms, failure=failure)


def _record(spec: TrialSpec, raw: RawStreams, on_step: OnStep | None) -> Recording:
    start_ms, started_s = _epoch_ms(), time.monotonic()
    try:
        recording = _run(spec, raw, start_ms, on_step)
    except (Interrupted, OutputError):
        raise
    except _WorldError as error:
        recording = _failed(start_ms, Cause.WORLD, error.message)
    except AssayError as error:
        recording = _failed(start_ms, Cause.HARNESS, error.message)
    except Exception as error:  # noqa: BLE001 - a trial never takes the run down with it
        recording = _failed(start_ms, Cause.HARNESS, f"{type(error).__name__}: {error}")
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


def _run(spec: TrialSpec, raw: RawStreams, start_ms: int, on_step: OnStep | None) -> Recording:
    adapter = plugins.adapter(spec.agent)
    benchmark = plugins.benchmark(spec.benchmark)
    workspace = make_workspace(spec)
    with ExitStack() as stack:
        scratch = stack.enter_context(_Scratch())
        places = Places(raw, str(workspace), _own_home(spec, stack), scratch.path)
        world = _open_world(benchmark, spec, workspace, raw, stack)
        mark = Mark(f"{spec.run_token}.{spec.folder}")
        conversation = Conversation(spec, adapter, places, world.env, mark, on_step)
        conversation.mcp_servers = world.mcp_servers
        conversation.confinement = _confinement(spec, places, world, stack)
        conversation.hold()
        evidence, broken = _evidence(world, conversation)
        if conversation.keep:
            _keep_session_files(conversation, places)
    return Recording(
        start_ms=start_ms,
        end_ms=start_ms,
        turns=tuple(conversation.turns),
        failure=broken or conversation.failure,
        stderr=conversation.stderr.decode("utf-8", "replace").strip(),
        workspace=str(workspace) if spec.surroundings.workspace_dir else None,
        evidence=evidence,
        secrets=conversation.secrets,
    )


class _Scratch:
    """A folder for the adapter's files, made only when something is written to it."""

    _counter = count()
    _secret = os.urandom(12).hex()
    """Makes names that no other process can guess; drawn once, because it takes 10 µs."""

    def __init__(self) -> None:
        number = next(self._counter)
        self.path = f"{temporary_place()}/assay-{self._secret}-{os.getpid()}-{number}"

    def __enter__(self) -> "_Scratch":
        return self

    def __exit__(self, *error: object) -> None:
        if os.access(self.path, os.F_OK):
            remove_folder(self.path, missing_ok=True)


class _TrialMachine(LocalHost):
    """The machine as the world of a trial sees it."""

    def __init__(self, raw: RawStreams) -> None:
        self._raw = raw

    def keep_file(self, path: Path) -> None:
        with contextlib.suppress(FileNotFoundError):
            self._raw.add(path.name, path)


class _WorldError(AssayError):
    """The world of a trial could not be opened."""


def _open_world(
    benchmark: Benchmark, spec: TrialSpec, workspace: Path, raw: RawStreams, stack: ExitStack
) -> World:
    try:
        return stack.enter_context(benchmark.world(spec, workspace, _TrialMachine(raw)))
    except Interrupted:
        raise
    except AssayError as error:
        raise _WorldError(error.message) from error


def _evidence(world: World, conversation: Conversation) -> tuple[dict[str, Any], Failure | None]:
    """Ask the world what it saw; if it broke, the trial measured nothing."""
    last = conversation.turns[-1].end if conversation.turns else None
    try:
        return world.evidence(last), None
    except Interrupted:
        raise
    except AssayError as error:
        return {}, Failure(cause=Cause.WORLD, message=error.message)


def _keep_session_files(conversation: Conversation, places: Places) -> None:
    """Copy the agent's own session files beside the raw streams."""
    home = Path(places.home or Path.home())
    patterns = [_for_session(p, conversation.session_id) for p in conversation.keep]
    keep_files(patterns, home, Path(places.workspace), places.raw, conversation.secrets)


def _own_home(spec: TrialSpec, stack: ExitStack) -> str | None:
    if not spec.surroundings.own_home:
        return None
    return stack.enter_context(temporary_folder("assay-home-"))


def _confinement(
    spec: TrialSpec, places: Places, world: World, stack: ExitStack
) -> "Confinement | None":
    if not spec.is_confined:
        return None
    from assay.run.confinement import Confinement  # late: it takes 10 ms, and few runs need it

    visible = (*getattr(world, "visible", ()), places.scratch)
    made = Confinement(spec, places.workspace, places.home, visible)
    stack.callback(made.close)
    return made


def _for_session(pattern: str, session_id: str | None) -> str:
    session = session_id or "none"
    pattern = pattern.replace("{session_id:8}", escape(session[:8]))
    return pattern.replace("{session_id}", escape(session))


def _epoch_ms() -> int:
    return round(time.time() * 1000)
