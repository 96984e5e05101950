"""Read what OpenCode leaves on disk: its database and its log."""

import re
import sqlite3
import struct
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import closing, suppress
from dataclasses import dataclass, field
from pathlib import Path
from shutil import copyfile
from types import MappingProxyType
from typing import Any

from msgspec import UNSET

from assay.adapters.opencode.stream import OpenCodeTurn, PartReader, began_ms, usage_of_part
from assay.adapters.prices import with_cost
from assay.adapters.reading import StepBuilder, TrialClock, epoch_ms, or_unset, parse_line, text_at
from assay.adapters.vendor import add_usage, text_cause
from assay.plugin import AgentInfo, PastSession, PastTurn
from assay.records.capture import AnyStep, Cause, Failure, ToolCall, Usage

_REDACTED = b"[redacte"
"""Start of the text that replaces a secret."""
_SESSIONS = "select id, version, agent, model, directory, parent_id from session"
_PARTS = (
    "select p.id, p.session_id, p.time_created, p.data, m.data, p.message_id from part p"
    " join message m on m.id = p.message_id order by p.id"
)


@dataclass(frozen=True)
class StoredPart:
    """One part of an answer of the model."""

    id: str
    created_ms: float
    data: dict[str, Any]
    model: str | None


@dataclass
class UserMessage:
    """A message of the user."""

    message_id: str
    at_ms: float
    text: str
    n_before: int
    """How many parts of answers came before it."""


@dataclass
class OpenCodeDb:
    """The sessions of one trial."""

    version: str | None = None
    agent: str | None = None
    models: dict[str, str] = field(default_factory=dict)
    """By session id: provider/model."""
    parts: dict[str, list[StoredPart]] = field(default_factory=dict)
    """By session id, in order; only parts of the model's answers."""
    asked: dict[str, list[UserMessage]] = field(default_factory=dict)
    """By session id, what the user said; only of sessions that no agent started."""
    folders: dict[str, str] = field(default_factory=dict)
    """By session id, where it worked."""


def read_db(kept: Path | None) -> OpenCodeDb:
    """Read the kept database; the result is empty if there is none or it cannot be read."""
    database = OpenCodeDb()
    for path in sorted(kept.glob("**/opencode/opencode*.db")) if kept else []:
        with suppress(sqlite3.Error, OSError):
            _read(path, database)
    return database


def _read(path: Path, database: OpenCodeDb) -> None:
    """Read a copy: SQLite writes to a database whose write-ahead log is not merged yet."""
    with tempfile.TemporaryDirectory(prefix="assay-db-") as folder:
        copy = Path(folder) / "opencode.db"
        copyfile(path, copy)
        # Where a secret was replaced in the log, SQLite would ignore all frames from there on, as
        # their checksums no longer match.
        log = path.with_name(path.name + "-wal")
        if log.exists():
            data = log.read_bytes()
            copy.with_name(copy.name + "-wal").write_bytes(
                repair_wal(data) if _REDACTED in data else data
            )
        with closing(sqlite3.connect(copy)) as connection:
            for session_id, version, agent, model, folder, parent in connection.execute(_SESSIONS):
                database.version = database.version or version
                database.agent = database.agent or agent
                if name := _model_name(parse_line(str(model).encode())):
                    database.models[session_id] = name
                database.folders[session_id] = str(folder)
                if not parent:
                    database.asked[session_id] = []
            for row in connection.execute(_PARTS):
                _add_part(row, database)


def _add_part(row: tuple[Any, ...], database: OpenCodeDb) -> None:
    part_id, session_id, created_ms, data, message, message_id = row
    part, info = parse_line(str(data).encode()), parse_line(str(message).encode())
    if not isinstance(part, dict) or not isinstance(info, dict):
        return
    if info.get("role") != "assistant":
        _add_asked(part, str(message_id), float(created_ms or 0), session_id, database)
        return
    stored = StoredPart(str(part_id), float(created_ms or 0), part, _model_name(info))
    database.parts.setdefault(session_id, []).append(stored)


def _add_asked(
    part: dict[str, Any], message_id: str, at_ms: float, session_id: str, database: OpenCodeDb
) -> None:
    asked, text = database.asked.get(session_id), text_at(part, "text")
    if asked is None or not text or part.get("type") != "text" or part.get("synthetic") is True:
        return
    if asked and asked[-1].message_id == message_id:
        asked[-1].text += f"\n{text}"
    else:
        n_before = len(database.parts.get(session_id, ()))
        asked.append(UserMessage(message_id, at_ms, text, n_before))


def _model_name(fields: Any) -> str | None:
    if not isinstance(fields, dict):
        return None
    name, provider = fields.get("modelID") or fields.get("id"), fields.get("providerID")
    return f"{provider}/{name}" if name and provider else None


# The first part keeps a long word from being tried again from each of its letters.
_FIELD = re.compile(r'(?<![\w.])([\w.]+)=("(?:[^"\\]|\\.)*"|\S*)')


@dataclass(frozen=True)
class OpenCodeLog:
    """The provider's errors in order, and the MCP servers that failed."""

    errors: tuple[tuple[float, str], ...] = ()
    """Time (ms since the epoch) and message."""
    failed_servers: tuple[str, ...] = ()
    causes: Mapping[str, str] = MappingProxyType({})
    """What went wrong in OpenCode's own server, by the reference that its error in the stream has:
    there it says no more than that there was an error."""

    def waiting_failure(self, since_ms: float) -> Failure | None:
        """Judge a turn that ended while OpenCode was silently retrying its provider."""
        if not self.errors or self.errors[-1][0] < since_ms:
            return None
        message = self.errors[-1][1]
        cause = Cause.AUTH if text_cause(message) is Cause.AUTH else Cause.PROVIDER
        n = len(self.errors)
        return Failure(
            cause=cause, message=f"no answer from the provider after {n} tries: {message}"
        )


def read_log(kept: Path | None, stderr: str) -> OpenCodeLog:
    """Read the log file where it was kept, and what was printed on stderr.

    The same lines go to both; at the end of a process either may lack the last ones.
    """
    files = sorted(kept.glob("**/opencode/log/*.log")) if kept else []
    texts = [*(path.read_text("utf-8", "replace") for path in files), stderr]
    errors: list[tuple[float, str]] = []
    failed: dict[str, None] = {}
    causes: dict[str, str] = {}
    # fromkeys drops the lines that are in both, and keeps their order.
    for line in dict.fromkeys(line.strip() for text in texts for line in text.splitlines()):
        fields = _fields(line) if "level=ERROR" in line or "level=WARN" in line else {}
        message = fields.get("message")
        # small=true: a request to the small model, for instance for a title.
        if message == "stream error" and fields.get("small") != "true":
            at = epoch_ms(fields.get("timestamp")) or 0.0
            errors.append((at, fields.get("error.error") or _last_field(fields)))
        elif message == "server unavailable" and "key" in fields:
            failed[fields["key"]] = None
        elif message == "failed" and "ref" in fields and "error" in fields:
            causes[fields["ref"]] = fields["error"]
    return OpenCodeLog(tuple(errors), tuple(failed), causes)


def _fields(line: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for name, value in _FIELD.findall(line):
        quoted = len(value) > 1 and value.startswith('"')
        found[name] = re.sub(r"\\(.)", r"\1", value[1:-1]) if quoted else value
    return found


def _last_field(fields: dict[str, str]) -> str:
    named = [value for name, value in fields.items() if name.startswith("error")]
    return named[-1] if named else "stream error"


_STEPS = frozenset({"text", "reasoning", "tool"})


@dataclass
class CompletedTurn:
    """The steps of a turn with those of its sub-agents, and the sub-agents' usage."""

    steps: list[AnyStep] = field(default_factory=list)
    usages: list[Usage] = field(default_factory=list)


class Completer:
    """Completes the turns of a trial, in order, from the database; no part is used twice."""

    def __init__(self, database: OpenCodeDb, clock: TrialClock) -> None:
        self._db = database
        self._clock = clock
        self._used: set[str] = set()

    def complete(self, turn: OpenCodeTurn, number: int | None, *, last: bool) -> CompletedTurn:
        """Return a turn's steps, those of a sub-agent behind the call that started it."""
        done = CompletedTurn()
        self._used |= turn.part_ids
        for step in turn.steps:
            self._put(step, turn.parts, number, done)
        # The stream shows a call when it has ended: one that was running at a kill is only here.
        if last and turn.session_id and not turn.ended:
            reader = PartReader(StepBuilder(number))
            missing = [p for p in self._unused(turn.session_id) if p.data.get("type") in _STEPS]
            for part in missing:
                for step in reader.read(part.data, self._moment(part, 0)):
                    self._put(step, reader, number, done)
        return done

    def past_turn(
        self, number: int, asked: UserMessage, parts: list[StoredPart], start_ms: float
    ) -> PastTurn:
        """Return a turn of which there is nothing but the database."""
        done, reader = CompletedTurn(), PartReader(StepBuilder(number))
        for part in parts:
            if part.data.get("type") == "step-finish":
                done.usages.append(with_cost(part.model, usage_of_part(part.data)))
                continue
            for step in reader.read(part.data, self._moment(part, asked.at_ms - start_ms)):
                self._put(step, reader, number, done)
        usage = add_usage(done.usages)
        return PastTurn(text=asked.text, at_ms=asked.at_ms, steps=done.steps, usage=usage)

    def _put(self, step: AnyStep, by: PartReader, number: int | None, done: CompletedTurn) -> None:
        done.steps.append(step)
        child = by.children.get(str(step.call_id)) if isinstance(step, ToolCall) else None
        if child is None or not isinstance(step, ToolCall):
            return
        reader = PartReader(StepBuilder(number))
        for part in self._unused(child):
            if part.data.get("type") == "step-finish":
                done.usages.append(with_cost(part.model, usage_of_part(part.data)))
                continue
            for inner in reader.read(part.data, self._moment(part, step.timestamp), _id(step)):
                self._put(inner, reader, number, done)

    def _unused(self, session_id: str) -> list[StoredPart]:
        parts = [p for p in self._db.parts.get(session_id, []) if p.id not in self._used]
        self._used |= {part.id for part in parts}
        return parts

    def _moment(self, part: StoredPart, otherwise: float) -> float:
        at = self._clock.at(began_ms(part.data) or part.created_ms or None)
        return otherwise if at is None else at


def past_sessions(path: Path) -> Iterator[PastSession]:
    """Yield the sessions in a database of OpenCode, those of sub-agents within the ones they serve.

    Raises sqlite3.Error if it cannot be read.
    """
    database = OpenCodeDb()
    _read(path, database)
    for session_id, asked in database.asked.items():
        parts = database.parts.get(session_id, [])
        if not asked:
            continue
        start_ms = asked[0].at_ms
        end_ms = max(start_ms, *(part.created_ms for part in parts)) if parts else start_ms
        completer = Completer(database, TrialClock(start_ms, end_ms))
        upto = [*(one.n_before for one in asked[1:]), len(parts)]
        yield PastSession(
            id=session_id,
            path=path,
            turns=[
                completer.past_turn(number, one, parts[one.n_before : last], start_ms)
                for number, (one, last) in enumerate(zip(asked, upto, strict=True), 1)
            ],
            agent=AgentInfo(
                adapter="opencode",
                version=or_unset(database.version),
                model=or_unset(database.models.get(session_id)),
            ),
            start_ms=start_ms,
            end_ms=end_ms,
            cwd=database.folders.get(session_id),
        )


def _id(call: ToolCall) -> Any:
    return None if call.call_id is UNSET else call.call_id


_MAGIC_LITTLE, _MAGIC_BIG = 0x377F0682, 0x377F0683
_HEADER = 32
_FRAME_HEADER = 24
_WORD = 0xFFFFFFFF


def repair_wal(data: bytes) -> bytes:
    """Return a SQLite write-ahead log with its checksums computed again.

    The format is described in "WAL Mode File Format" of SQLite's documentation.
    """
    if len(data) < _HEADER:
        return data
    magic, _, page_size = struct.unpack(">III", data[:12])
    if magic not in (_MAGIC_LITTLE, _MAGIC_BIG) or not 512 <= page_size <= 65536:
        return data
    # The magic number gives the byte order of the checksums; all other fields are big-endian.
    order = ">" if magic == _MAGIC_BIG else "<"
    out = bytearray(data)
    sums = _checksum(order, data[:24], (0, 0))
    out[24:32] = struct.pack(">II", *sums)
    salt, step = data[16:24], _FRAME_HEADER + page_size
    for at in range(_HEADER, len(data) - step + 1, step):
        if data[at + 8 : at + 16] != salt:  # left over from before the log was restarted
            break
        sums = _checksum(order, data[at : at + 8], sums)
        sums = _checksum(order, data[at + _FRAME_HEADER : at + step], sums)
        out[at + 16 : at + 24] = struct.pack(">II", *sums)
    return bytes(out)


def _checksum(order: str, data: bytes, sums: tuple[int, int]) -> tuple[int, int]:
    # SQLite's own Fletcher-like checksum over pairs of 32-bit words.
    one, two = sums
    for first, second in struct.iter_unpack(f"{order}II", data):
        one = (one + first + two) & _WORD
        two = (two + second + one) & _WORD
    return one, two
