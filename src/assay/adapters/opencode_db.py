"""Read what OpenCode keeps in its database: sub-agents, and calls that were cut short."""

import sqlite3
import tempfile
from contextlib import closing, suppress
from dataclasses import dataclass, field
from pathlib import Path
from shutil import copyfile
from typing import Any

from assay.adapters.events import parse_line
from assay.adapters.sqlite_wal import mend_wal

_COVERED = b"[redacte"
"""Begins what stands in place of a secret."""
_SESSIONS = "select id, version, agent, model from session"
_PARTS = (
    "select p.id, p.session_id, p.time_created, p.data, m.data from part p"
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
class OpenCodeDb:
    """The sessions of one trial."""

    version: str | None = None
    agent: str | None = None
    models: dict[str, str] = field(default_factory=dict)
    """Of each session: provider/model."""
    parts: dict[str, list[StoredPart]] = field(default_factory=dict)
    """Of each session, in order; only what the model said and did."""


def read_db(kept: Path | None) -> OpenCodeDb:
    """Read the database that was kept; an empty one when there is none or it cannot be read."""
    database = OpenCodeDb()
    for path in sorted(kept.glob("**/opencode/opencode*.db")) if kept else []:
        with suppress(sqlite3.Error, OSError):
            _read(path, database)
    return database


def _read(path: Path, database: OpenCodeDb) -> None:
    """Read a copy: SQLite would write beside a file whose log is not merged yet."""
    with tempfile.TemporaryDirectory(prefix="assay-db-") as folder:
        copy = Path(folder) / "opencode.db"
        copyfile(path, copy)
        log = path.with_name(path.name + "-wal")
        if log.exists():
            data = log.read_bytes()
            copy.with_name(copy.name + "-wal").write_bytes(
                mend_wal(data) if _COVERED in data else data
            )
        with closing(sqlite3.connect(copy)) as connection:
            for session_id, version, agent, model in connection.execute(_SESSIONS):
                database.version = database.version or version
                database.agent = database.agent or agent
                if name := _model_name(parse_line(str(model).encode())):
                    database.models[session_id] = name
            for row in connection.execute(_PARTS):
                _add_part(row, database)


def _add_part(row: tuple[Any, ...], database: OpenCodeDb) -> None:
    part_id, session_id, created_ms, data, message = row
    part, info = parse_line(str(data).encode()), parse_line(str(message).encode())
    if not isinstance(part, dict) or not isinstance(info, dict) or info.get("role") != "assistant":
        return
    stored = StoredPart(str(part_id), float(created_ms or 0), part, _model_name(info))
    database.parts.setdefault(session_id, []).append(stored)


def _model_name(fields: Any) -> str | None:
    if not isinstance(fields, dict):
        return None
    name, provider = fields.get("modelID") or fields.get("id"), fields.get("providerID")
    return f"{provider}/{name}" if name and provider else None
