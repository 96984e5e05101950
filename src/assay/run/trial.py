"""Run one trial. Data in, data out: the same function serves local and remote workers."""

import os
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from glob import escape
from pathlib import Path
from typing import Any

from assay import plugins
from assay.errors import AssayError, Interrupted, OutOfResources, OutputError, SpawnError
from assay.plugin import Ask, Benchmark, World
from assay.records.capture import Cause, Failure
from assay.records.files import remove_folder, temporary_folder
from assay.records.recording import Recording
from assay.records.spec import TrialSpec
from assay.run.conversation import Conversation, Places
from assay.run.family import Mark
from assay.run.host import LocalHost
from assay.run.process import missing_program
from assay.run.resources import needed
from assay.run.turn import OnStep
from assay.run.workspace import keep_files, make_workspace


@contextmanager
def recorded(spec: TrialSpec, on_step: OnStep | None = None) -> Iterator[Recording]:
    """Run a trial to its end; inside the block its raw streams can be read.

    Does not raise for what goes wrong inside the trial, only Interrupted when the operator ends it,
    and OutOfResources.
    """
    raw_dir = spec.surroundings.raw_dir
    if raw_dir is not None:
        yield _record(spec, _make_raw_folder(f"{raw_dir}/{spec.raw_folder}"), on_step)
        return
    with temporary_folder("assay-") as raw:
        yield _record(spec, raw, on_step)


def check_program(spec: TrialSpec) -> None:
    """Raise SpawnError when the agent's program is not there, as far as that can be known."""
    around = spec.surroundings
    ask = Ask(text=spec.prompt.turns[0], cwd=around.cwd, home=around.cwd, scratch=around.cwd)
    try:
        command = plugins.adapter(spec.agent).command(ask)
    except Exception:  # noqa: BLE001 - the trial itself will say what is wrong
        return
    program = command.argv[0]
    if "/" in program:
        # A relative path begins in the workspace, which may not be there yet.
        if around.workspace_dir is not None and not Path(program).is_absolute():
            return
        places = [Path(around.cwd, program)]
    else:
        path = command.env.get("PATH", os.environ.get("PATH", os.defpath))
        folders = path.split(os.pathsep)
        if not all(map(os.path.isabs, folders)):  # these begin in the workspace, too
            return
        places = [Path(folder, program) for folder in folders]
    # As the system does: a folder is not a program, and neither is a file that may not be executed.
    if not any(place.is_file() and os.access(place, os.X_OK) for place in places):
        why = "Permission denied" if any(map(Path.is_file, places)) else ""
        msg = f"cannot start {program}: {why}" if why else missing_program(program)
        raise SpawnError(msg, hint="nothing was run: check the agent's command, or install it")


def lost_trial(why: str) -> Recording:
    """Return the recording of a trial whose worker died before it had one."""
    now_ms, failure = _epoch_ms(), Failure(cause=Cause.WORKER_LOST, message=why)
    return Recording(start_ms=now_ms, end_ms=now_ms, failure=failure)


def _record(spec: TrialSpec, raw: str, on_step: OnStep | None) -> Recording:
    start_ms = _epoch_ms()
    try:
        with needed():
            return _run(spec, raw, start_ms, on_step)
    except (Interrupted, OutOfResources):
        raise
    except _WorldError as error:
        failure = Failure(cause=Cause.WORLD, message=error.message)
    except Exception as error:  # noqa: BLE001 - a trial never takes the run down with it
        failure = Failure(cause=Cause.HARNESS, message=_message(error))
    return Recording(
        start_ms=start_ms,
        end_ms=_epoch_ms(),
        failure=failure,
        raw=_raw_name(spec),
        retried=spec.retried,
    )


def _run(spec: TrialSpec, raw: str, start_ms: int, on_step: OnStep | None) -> Recording:
    started_s = time.monotonic()
    adapter = plugins.adapter(spec.agent)
    benchmark = plugins.benchmark(spec.benchmark)
    workspace = make_workspace(spec)
    with ExitStack() as stack:
        places = Places(raw, str(workspace), _own_home(spec, stack), f"{raw}/scratch")
        world = _open_world(benchmark, spec, workspace, stack)
        mark = Mark(f"{spec.run_token}.{spec.folder}")
        with _blaming_the_world():
            env, mcp_servers = world.env, world.mcp_servers
        conversation = Conversation(spec, adapter, places, env, mark, on_step)
        conversation.mcp_servers = mcp_servers
        conversation.hold()
        evidence, broken = _evidence(world, conversation)
        kept = _keep_session_files(conversation, places) if conversation.keep else None
    return Recording(
        start_ms=start_ms,
        end_ms=start_ms + round((time.monotonic() - started_s) * 1000),
        turns=tuple(conversation.turns),
        failure=broken or conversation.failure,
        stderr=conversation.stderr.decode("utf-8", "replace").strip(),
        kept=kept,
        raw=_raw_name(spec),
        workspace=str(workspace) if spec.surroundings.workspace_dir else None,
        evidence=evidence,
        retried=spec.retried,
    )


class _WorldError(AssayError):
    """The world of a trial could not be opened or closed, or did not say what it saw."""


def _open_world(benchmark: Benchmark, spec: TrialSpec, workspace: Path, stack: ExitStack) -> World:
    with _blaming_the_world():
        context = benchmark.world(spec, workspace, LocalHost())
        world: World = context.__enter__()

    def close(*error: Any) -> bool | None:
        with _blaming_the_world():
            return context.__exit__(*error)

    stack.push(close)
    return world


@contextmanager
def _blaming_the_world() -> Iterator[None]:
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
        with _blaming_the_world():
            return world.evidence(last), None
    except _WorldError as error:
        return {}, Failure(cause=Cause.WORLD, message=error.message)


def _keep_session_files(conversation: Conversation, places: Places) -> Path | None:
    """Copy the agent's own session files beside the raw streams; None when there were none."""
    kept, home = Path(places.raw, "files"), Path(places.home or Path.home())
    patterns = [_for_session(p, conversation.session_id) for p in conversation.keep]
    keep_files(patterns, home, Path(places.workspace), kept, conversation.secrets)
    return kept if kept.exists() else None


def _message(error: Exception) -> str:
    return error.message if isinstance(error, AssayError) else f"{type(error).__name__}: {error}"


def _make_raw_folder(folder: str) -> str:
    try:
        try:
            os.mkdir(folder)  # noqa: PTH102 - a Path costs more than the call
        except FileNotFoundError:
            Path(folder).mkdir(parents=True)
        except FileExistsError:  # left by an attempt that did not finish
            remove_folder(folder)
            Path(folder).mkdir()
    except OSError as error:
        msg = f"cannot make {folder} for the raw streams: {error.strerror}"
        raise OutputError(msg, hint="free some space, or choose another --raw-dir") from error
    return folder


def _own_home(spec: TrialSpec, stack: ExitStack) -> str | None:
    if not spec.surroundings.isolate:
        return None
    return stack.enter_context(temporary_folder("assay-home-"))


def _for_session(pattern: str, session_id: str | None) -> str:
    session = session_id or "none"
    pattern = pattern.replace("{session_id:8}", escape(session[:8]))
    return pattern.replace("{session_id}", escape(session))


def _raw_name(spec: TrialSpec) -> str | None:
    if spec.surroundings.raw_dir is None:
        return None
    return f"{spec.surroundings.raw_prefix}/{spec.raw_folder}"


def _epoch_ms() -> int:
    return round(time.time() * 1000)
