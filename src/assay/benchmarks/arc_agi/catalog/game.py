"""Reads one game folder: its metadata and the source file the toolkit would run."""

import hashlib
from datetime import datetime
from pathlib import Path

import msgspec

from assay.benchmarks.arc_agi.problems import GameProblem

MAX_METADATA_BYTES = 1024 * 1024


class GameInfo(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One version of one game on disk; baselines as its metadata says, right or wrong."""

    game_id: str
    title: str
    tags: tuple[str, ...]
    level_tags: tuple[tuple[str, ...], ...]
    baselines: tuple[int, ...] | None
    date_downloaded: str
    folder: Path
    source: Path
    source_sha256: str

    @property
    def age(self) -> tuple[bool, float]:
        """Sorts versions as the toolkit does: the newest last, no date being newest of all."""
        try:
            return False, datetime.fromisoformat(self.date_downloaded).timestamp()
        except ValueError:
            return True, 0.0

    @property
    def base_id(self) -> str:
        """The id without its version."""
        return self.game_id.split("-", 1)[0]


class _Metadata(msgspec.Struct):
    """The fields of metadata.json; the toolkit allows each but game_id to be missing or null."""

    game_id: str
    title: str | None = None
    tags: tuple[str, ...] | None = None
    level_tags: tuple[tuple[str, ...], ...] | None = None
    baseline_actions: tuple[int, ...] | None = None
    date_downloaded: str | None = None
    class_name: str | None = None


def read_game(folder: Path) -> GameInfo:
    """Read the game of a folder that holds metadata.json; raise GameProblem when it is unusable."""
    metadata = _read_metadata(folder / "metadata.json")
    source = _find_source(folder, metadata)
    return GameInfo(
        game_id=metadata.game_id,
        title=metadata.title or metadata.game_id,
        tags=metadata.tags or (),
        level_tags=metadata.level_tags or (),
        baselines=metadata.baseline_actions or None,
        date_downloaded=metadata.date_downloaded or "",
        folder=folder,
        source=source,
        source_sha256=hashlib.sha256(source.read_bytes()).hexdigest(),
    )


def _read_metadata(path: Path) -> _Metadata:
    try:
        if path.stat().st_size > MAX_METADATA_BYTES:
            message = f"{path}: larger than {MAX_METADATA_BYTES} bytes; not a game's metadata"
            raise GameProblem(message)
        metadata = msgspec.json.decode(path.read_bytes(), type=_Metadata, strict=False)
    except OSError as error:
        message = f"{path}: cannot be read: {error.strerror}"
        raise GameProblem(message) from error
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        message = f"{path}: not a game's metadata: {error}"
        raise GameProblem(message) from error
    if not metadata.game_id or "/" in metadata.game_id or metadata.game_id.startswith("."):
        message = f"{path}: game_id {metadata.game_id!r} is not a game id"
        raise GameProblem(message)
    return metadata


def _find_source(folder: Path, metadata: _Metadata) -> Path:
    """Find the file as the toolkit does: the class name in small letters, then as it is."""
    first = metadata.game_id[:4]
    name = metadata.class_name or first[0].upper() + first[1:]
    if not name.isidentifier():
        message = f"{folder / 'metadata.json'}: class_name {name!r} is not a class name"
        raise GameProblem(message)
    for candidate in (folder / f"{name.lower()}.py", folder / f"{name}.py"):
        if candidate.is_file():
            return candidate
    message = f"{folder}: {name.lower()}.py is missing; it must hold the class {name}"
    raise GameProblem(message)
