"""Run one trial. Data in, data out: the same function serves local and remote workers."""

import os
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from glob import escape
from pathlib import Path
from typing import Any

from assay import plugins
from assay.errors import AssayError, Interrupted, OutputError
from assay.plugin import Benchmark, World
from assay.records.capture import Cause, Failure
from assay.records.recording import Recording
from assay.records.spec import TrialSpec
from assay.run.conversation import Conversation, Places
from assay.run.family import Mark
from assay.run.host import LocalHost
from assay.run.turn import OnStep
from assay.run.workspace import keep_files, make_workspace


def run_trial[R](
    spec: TrialSpec, use: Callable[[Recording], R], on_step: OnStep | None = None
) -> R:
    """Run spec to its end and hand the recording to use, while its raw streams are there.

    Never raises for what happens inside the trial; raises Interrupted when the operator ends it.
    """
    with _raw_folder(spec) as raw:
        return use(_record(spec, raw, on_step))


def lost_trial(why: str, cause: Cause = Cause.WORKER_LOST) -> Recording:
    """Record a trial that gave us nothing."""
    now_ms = _epoch_ms()
    return Recording(start_ms=now_ms, end_ms=now_ms, failure=Failure(cause=cause, message=why))


def _record(spec: TrialSpec, raw: str, on_step: OnStep | None) -> Recording:
    start_ms = _epoch_ms()
    try:
        return _run(spec, raw, start_ms, on_step)
    except Interrupted:
        raise
    except _WorldError as error:
        failure = Failure(cause=Cause.WORLD, message=error.message)
    except AssayError as error:
        failure = Failure(cause=Cause.HARNESS, message=error.message)
    except Exception as error:  # noqa: BLE001 - a trial never takes the run down with it
        failure = Failure(cause=Cause.HARNESS, message=f"{type(error).__name__}: {error}")
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
        conversation = Conversation(spec, adapter, places, world.env, mark, on_step)
        conversation.mcp_servers = world.mcp_servers
        conversation.hold()
        evidence, broken = _evidence(world, conversation)
        kept: Path | None = None
        if conversation.keep:
            kept = Path(raw, "files")
            home = Path(places.home or Path.home())
            patterns = [_for_session(p, conversation.session_id) for p in conversation.keep]
            keep_files(patterns, home, workspace, kept, conversation.secrets)
    return Recording(
        start_ms=start_ms,
        end_ms=start_ms + round((time.monotonic() - started_s) * 1000),
        turns=tuple(spoken.turn(spec.limits.line_bytes) for spoken in conversation.turns),
        failure=broken or conversation.failure,
        stderr=conversation.stderr.decode("utf-8", "replace").strip(),
        kept=kept if kept is not None and kept.exists() else None,
        raw=_raw_name(spec),
        workspace=str(workspace) if spec.surroundings.workspace_dir else None,
        evidence=evidence,
        retried=spec.retried,
    )


class _WorldError(AssayError):
    """The world of a trial could not be opened."""


def _open_world(benchmark: Benchmark, spec: TrialSpec, workspace: Path, stack: ExitStack) -> World:
    try:
        return stack.enter_context(benchmark.world(spec, workspace, LocalHost()))
    except Interrupted:
        raise
    except AssayError as error:
        raise _WorldError(error.message) from error


def _evidence(world: World, conversation: Conversation) -> tuple[dict[str, Any], Failure | None]:
    """Ask the world what it saw; one that broke makes the trial no measurement."""
    last = conversation.turns[-1].end if conversation.turns else None
    try:
        return world.evidence(last), None
    except Interrupted:
        raise
    except AssayError as error:
        return {}, Failure(cause=Cause.WORLD, message=error.message)


@contextmanager
def _raw_folder(spec: TrialSpec) -> Iterator[str]:
    if spec.surroundings.raw_dir is None:
        import tempfile

        with tempfile.TemporaryDirectory(prefix="assay-", ignore_cleanup_errors=True) as name:
            yield name
        return
    folder = f"{spec.surroundings.raw_dir}/{spec.raw_folder}"
    try:
        _make_anew(folder)
    except OSError as error:
        msg = f"cannot make {folder} for the raw streams: {error.strerror}"
        raise OutputError(msg, hint="free some space, or choose another --raw-dir") from error
    yield folder


def _make_anew(folder: str) -> None:
    try:
        os.mkdir(folder)  # noqa: PTH102 - a Path costs more than the call
    except FileNotFoundError:
        Path(folder).mkdir(parents=True)
    except FileExistsError:  # of an attempt that did not finish
        import shutil

        shutil.rmtree(folder)
        Path(folder).mkdir()


def _own_home(spec: TrialSpec, stack: ExitStack) -> str | None:
    if not spec.surroundings.isolate:
        return None
    import tempfile

    folder = tempfile.TemporaryDirectory(prefix="assay-home-", ignore_cleanup_errors=True)
    return stack.enter_context(folder)


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
