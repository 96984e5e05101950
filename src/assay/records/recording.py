"""What one trial's processes emitted, and the same as a row of raw.jsonl."""

import errno
from base64 import b64decode, b64encode
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
from msgspec import UNSET, UnsetType

from assay.records.capture import (
    Cause,
    Failure,
    Identity,
    Replay,
    SimulatedUser,
    Wire,
    WorkspaceChanges,
)
from assay.records.raw_streams import SESSION_FILES, Attempt, named_streams, place_inside
from assay.records.spec import Prompt

_NO_NAME = (errno.ENAMETOOLONG, errno.ENOTDIR, errno.EISDIR, errno.EEXIST, errno.ELOOP)


class RawLine(NamedTuple):
    """One line as the agent wrote it, with the moment it reached us."""

    t_ms: int
    """Since the start of the trial."""
    text: bytes
    oversized: bool = False
    """Too long to read: text holds only its beginning."""


class TurnEnd(msgspec.Struct, kw_only=True, rename="camel", omit_defaults=True):
    """How one turn's process began and ended."""

    start_ms: int = 0
    """Since the start of the trial."""
    spawned_ms: int = 0
    end_ms: int = 0
    exit_code: int | None = None
    signal: str | None = None
    """What ended the process, when a signal did."""
    timed_out: bool = False
    stalled: bool = False
    over_limit: bool = False
    """Wrote more than Limits.output_bytes."""
    lingered: bool = False
    """Was killed because it lived on after its result event."""
    settled: bool = False
    """A step settled all that was to be known of the trial; then we end what is still running."""
    limits: dict[str, Any] = {}
    """Most memory in bytes and most CPUs of the trial, and what enforced them."""
    out_of_memory: bool = False
    """A process of the trial was killed because it used more memory than it may."""
    gateway: dict[str, Any] = {}
    """What the gateway of a sandbox without network saw of the process; see Traffic.seen."""
    lines: int | UnsetType = UNSET
    """How many of a raw row's lines belong to this turn."""


class Turn(msgspec.Struct, frozen=True):
    """One turn: its message, how it ended, and its lines, read on demand."""

    text: str
    """The message that was put to the agent."""
    end: TurnEnd
    lines: Callable[[], Iterable[RawLine]]
    """Call it for the lines of stdout, in order and without line feeds: `for line in turn.lines():`
    gives line.text as bytes and line.t_ms, its arrival since the start of the trial."""
    seen: Any = None
    """The object that followed the turn live and saw its lines; an adapter recognises its own."""


class Recording(msgspec.Struct, frozen=True):
    """All turns of one trial and what was kept of the agent's own files."""

    start_ms: int
    """Since the epoch."""
    end_ms: int
    turns: tuple[Turn, ...] = ()
    failure: Failure | None = None
    """Set when the trial could not be run at all."""
    stderr: str = ""
    kept: Path | None = None
    """Folder with the agent's own session files."""
    raw: str | None = None
    workspace: str | None = None
    cwd: str | None = None
    """Where the agent worked: its workspace, or a folder that trials share."""
    changes: WorkspaceChanges | None = None
    evidence: dict[str, Any] = {}
    retried: tuple[Failure, ...] = ()
    warnings: tuple[str, ...] = ()
    """What a reader should know before trusting this trial."""
    secrets: Any = None
    """What masks the secrets of the agent's environment in the row; never written itself."""
    user: SimulatedUser | None = None
    """Who answered the agent after the turns of the prompt."""
    replay: Replay | None = None
    """How a tape answered the agent."""
    wire: Wire | None = None
    """What a proxy between the agent and its models saw."""
    unsplit: bool = False
    """Made by another harness that did not keep the turns apart: they are all in one."""


FORGETS = (
    "the turns of a prompt do not remember each other: each goes to a new process of the agent, "
    "without a session and without the turns before it"
)
"""A warning of a trial; see Recording.warnings."""


NOT_READ = (
    "the agent's session files were not read: the row names raw streams that are not below the "
    "folder of its file"
)
"""The same."""


class RawTiming(msgspec.Struct, kw_only=True):
    """Clock readings of a raw row, in ms since the epoch."""

    start: float
    end: float
    total: float = 0


class RawOutput(msgspec.Struct, kw_only=True, rename="camel"):
    """One trial as `run` writes it."""

    id: str
    input: str | list[str]
    hint: str | UnsetType = UNSET
    metadata: dict[str, Any] | UnsetType = UNSET
    raw_lines: list[str]
    timing: RawTiming
    error: str | UnsetType = UNSET
    raw_times: list[int] | UnsetType = UNSET
    """Arrival of each line, ms since timing.start."""
    oversized: list[int] | UnsetType = UNSET
    """Indexes of lines that were too long; only their beginning stands here."""
    turns: list[TurnEnd] | UnsetType = UNSET
    failure: Failure | UnsetType = UNSET
    retried: list[Failure] | UnsetType = UNSET
    stderr: str | UnsetType = UNSET
    raw: str | UnsetType = UNSET
    files: dict[str, str] | UnsetType = UNSET
    """The agent's own session files, base64, where no raw folder keeps them."""
    workspace_dir: str | UnsetType = UNSET
    cwd: str | UnsetType = UNSET
    evidence: dict[str, Any] | UnsetType = UNSET
    agent: str | UnsetType = UNSET
    """Name of the agent, where output_mode says how to read it."""
    output_mode: str | UnsetType = UNSET
    """text: the lines are the answer itself; absent, an adapter must read them."""
    spec_hash: str | UnsetType = UNSET
    identity: Identity | UnsetType = UNSET
    warnings: list[str] | UnsetType = UNSET
    simulated_user: SimulatedUser | UnsetType = UNSET
    replay: Replay | UnsetType = UNSET
    wire: Wire | UnsetType = UNSET


def raw_output(prompt: Prompt, recording: Recording, text_agent: str | None = None) -> RawOutput:
    """Return a recording as a row of raw.jsonl; text_agent names an agent that prints no events."""
    lines: list[RawLine] = []
    ends: list[TurnEnd] = []
    for turn in recording.turns:
        own = [line for line in turn.lines() if text_agent is not None or line.text.strip()]
        lines += own
        ends.append(msgspec.structs.replace(turn.end, lines=len(own)))
    cut = [i for i, line in enumerate(lines) if line.oversized]
    failure = recording.failure
    return RawOutput(
        id=prompt.id,
        input=prompt.input,
        hint=prompt.hint or UNSET,
        metadata=prompt.metadata or UNSET,
        raw_lines=[line.text.decode("utf-8", "replace") for line in lines],
        timing=RawTiming(
            start=recording.start_ms,
            end=recording.end_ms,
            total=recording.end_ms - recording.start_ms,
        ),
        error=failure.message if failure else UNSET,
        raw_times=[line.t_ms for line in lines],
        oversized=cut or UNSET,
        turns=ends,
        failure=failure or UNSET,
        retried=list(recording.retried) or UNSET,
        stderr=recording.stderr or UNSET,
        raw=recording.raw or UNSET,
        files=_pack(recording.kept) if recording.kept and not recording.raw else UNSET,
        workspace_dir=recording.workspace or UNSET,
        cwd=recording.cwd or UNSET,
        evidence=recording.evidence or UNSET,
        agent=UNSET if text_agent is None else text_agent,
        output_mode=UNSET if text_agent is None else "text",
        warnings=list(recording.warnings) or UNSET,
        simulated_user=recording.user or UNSET,
        replay=recording.replay or UNSET,
        wire=recording.wire or UNSET,
    )


def recording_of(
    row: RawOutput, base: Path, scratch: Path, raw_dir: Path | None = None
) -> Recording:
    """Read a row back; one of another harness has no times and no turns.

    base is the folder that `raw` is relative to, and beyond which nothing is read: the row may be
    somebody else's. raw_dir holds the raw streams if the user says so. scratch is an empty folder
    for the row's files.
    """
    failure = row.failure or None
    if failure is None and row.error:
        failure = Failure(cause=Cause.HARNESS, message=row.error)
    where, name = (base, row.raw) if raw_dir is None else (raw_dir, Path(row.raw or "").name)
    is_outside = bool(row.raw) and place_inside(where, name) is None
    kept = _session_files(row, where, name or "", scratch)
    return Recording(
        start_ms=round(row.timing.start),
        end_ms=round(row.timing.end),
        turns=tuple(_turns(row)),
        failure=failure,
        stderr=row.stderr or "",
        kept=kept if kept.is_dir() else None,
        raw=row.raw or None,
        workspace=row.workspace_dir or None,
        cwd=row.cwd or None,
        evidence=row.evidence or {},
        retried=tuple(row.retried or ()),
        warnings=(*(row.warnings or ()), *([NOT_READ] if is_outside else ())),
        user=row.simulated_user or None,
        replay=row.replay or None,
        wire=row.wire or None,
        unsplit=row.turns is UNSET,
    )


def _pack(kept: Path) -> dict[str, str]:
    files = sorted(path for path in kept.rglob("*") if path.is_file())
    return {str(f.relative_to(kept)): b64encode(f.read_bytes()).decode() for f in files}


def _session_files(row: RawOutput, base: Path, name: str, scratch: Path) -> Path:
    """Copy the agent's session files; return their folder, which without any does not exist."""
    if not row.raw:
        return write_files(_unpack(row.files or {}), scratch)
    attempt = Attempt(row.id, n_before=len(row.retried or ()))
    own = (one for one in named_streams(base, name, attempt) if one.is_session_file)
    return write_files(((one.name, one.blocks()) for one in own), scratch) / SESSION_FILES


def _unpack(files: dict[str, str]) -> Iterator[tuple[str, Iterable[bytes]]]:
    for name, text in files.items():
        with suppress(ValueError):  # not base64: a row of somebody else may hold anything
            yield name, (b64decode(text, validate=True),)


def write_files(files: Iterable[tuple[str, Iterable[bytes]]], folder: Path) -> Path:
    """Write files; a name that leads out of the folder, or cannot be one, is not written."""
    written = folder / "none"  # which does not exist: nothing was kept
    for name, blocks in files:
        if (path := _place_for(name, folder)) is not None:
            with path.open("wb") as file:
                file.writelines(blocks)
            written = folder
    return written


def _place_for(name: str, folder: Path) -> Path | None:
    """Return where to write a file, made empty; None for a name that cannot be a file's here."""
    try:
        path = (folder / name).resolve()
        if not path.is_relative_to(folder.resolve()):
            return None
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    except ValueError:
        return None
    except OSError as error:
        if error.errno not in _NO_NAME:
            raise
        return None
    return path if path.is_file() else None


def _turns(row: RawOutput) -> Iterator[Turn]:
    cut = frozenset(row.oversized or ())
    times = row.raw_times or [0] * len(row.raw_lines)
    texts = [row.input] if isinstance(row.input, str) else row.input
    texts = [*texts, *(row.simulated_user.said if row.simulated_user else ())]
    if row.turns is UNSET:  # a row of another harness
        end = TurnEnd(end_ms=round(row.timing.total), exit_code=0)
        yield Turn("\n".join(texts), end, partial(_lines, row, times, cut, 0, len(row.raw_lines)))
        return
    first = 0
    # A conversation that was cut short has fewer ends than texts.
    for text, end in zip(texts, row.turns, strict=False):
        last = first + (end.lines or 0)
        yield Turn(text, end, partial(_lines, row, times, cut, first, last))
        first = last


def _lines(
    row: RawOutput, times: list[int], cut: frozenset[int], first: int, last: int
) -> Iterator[RawLine]:
    for i in range(first, min(last, len(row.raw_lines))):
        yield RawLine(times[i] if i < len(times) else 0, row.raw_lines[i].encode(), i in cut)
