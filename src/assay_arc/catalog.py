"""Finds games: those of the package and those in a user's environment_files."""

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from difflib import get_close_matches
from pathlib import Path

import msgspec

from assay.errors import UsageError
from assay.records.files import replaced_file
from assay_arc import GameProblem

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
        """Sorts versions as the toolkit does: oldest first, those without a date last."""
        try:
            return False, datetime.fromisoformat(self.date_downloaded).timestamp()
        except ValueError:
            return True, 0.0

    @property
    def base_id(self) -> str:
        return self.game_id.split("-", 1)[0]


class OfficialServer(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Where online games are played, and under whose key; the key is never stored."""

    base_url: str
    key: str


class OnlineGame(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A game that runs on the official server, under one scorecard."""

    server: OfficialServer
    card_id: str
    info: GameInfo
    """What is known of it: by the server, and by our own copy where there is one."""


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
    """Find the file as the toolkit does: the class name in lower case, then as written."""
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


BUILT_IN = Path(__file__).parent / "games"


class GameListing(msgspec.Struct, frozen=True, kw_only=True):
    """The games of a folder in order of their ids, and why others could not be read."""

    games: tuple[GameInfo, ...]
    problems: tuple[str, ...] = ()


def list_games(folder: Path = BUILT_IN) -> GameListing:
    """Read every metadata.json below a folder; a broken game is listed as a problem."""
    if not folder.is_dir():
        message = f"{folder}: no such folder of games"
        raise GameProblem(message, hint="give a folder with <game>/<version>/metadata.json in it")
    games: dict[str, GameInfo] = {}
    problems: list[str] = []
    for path in sorted(folder.rglob("metadata.json")):
        try:
            info = read_game(path.parent)
        except GameProblem as problem:
            problems.append(problem.message)
            continue
        if info.game_id in games:
            problems.append(f"{path}: {info.game_id} is also in {games[info.game_id].folder}")
        else:
            games[info.game_id] = info
    return GameListing(games=tuple(games[key] for key in sorted(games)), problems=tuple(problems))


def find_game(name: str, folder: Path = BUILT_IN) -> GameInfo:
    """Find a game by its id; without a version the newest one, as the toolkit chooses."""
    return pick_game(name, list_games(folder).games, folder)


def pick_game(name: str, games: Sequence[GameInfo], folder: Path) -> GameInfo:
    """Choose a game from a listing, or raise with similar ids as a hint."""
    exact = [info for info in games if info.game_id == name]
    versions = exact or [info for info in games if info.base_id == name]
    if versions:
        return max(versions, key=lambda info: info.age)
    ids = [info.game_id for info in games]
    near = get_close_matches(name, ids, 5, 0.3) or [i for i in ids if i.startswith(name[:2])][:5]
    hint = f"Did you mean {', '.join(near)}?" if near else "The folder has no such game."
    message = f"Game {name} not found in {folder}"
    raise GameProblem(message, hint=hint)


ALL = "all"


def choose_games(words: Iterable[str], folder: Path) -> list[GameInfo]:
    """Return the games asked for, each once; a tag means all games that have it."""
    return choose_from(_games_in(folder), words, folder)


def choose_known_games(words: Iterable[str], folder: Path) -> tuple[list[GameInfo], list[str]]:
    """Return the games asked for as choose_games does, and the names that no game has.

    Raises when no game is left.
    """
    return _choose(_games_in(folder), words, folder)


def choose_from(games: Sequence[GameInfo], words: Iterable[str], folder: Path) -> list[GameInfo]:
    """Return what choose_games does, from games that are known already."""
    chosen, unknown = _choose(games, words, folder)
    for name in unknown:
        pick_game(name, games, folder)  # raises
    return chosen


def _games_in(folder: Path) -> Sequence[GameInfo]:
    games = list_games(folder).games
    if not games:
        msg = f"No ARC-AGI environments found in {folder}."
        raise GameProblem(msg, hint="check the installation with: assay arc setup")
    return games


def _choose(
    games: Sequence[GameInfo], words: Iterable[str], folder: Path
) -> tuple[list[GameInfo], list[str]]:
    words = list(words)
    names = [name for word in words for name in word.replace(",", " ").split()]
    if words and not names:
        msg = "--games names no game"
        raise UsageError(msg, hint="give ids or tags, separated by commas, or leave it out for all")
    if not names or ALL in names:
        return list(games), []
    chosen: dict[str, GameInfo] = {}
    problems: dict[str, GameProblem] = {}
    for name in names:
        try:
            for info in tagged(games, name) or [pick_game(name, games, folder)]:
                chosen[info.game_id] = info
        except GameProblem as problem:
            problems[name] = problem
    if not chosen:
        raise next(iter(problems.values()))
    return list(chosen.values()), list(problems)


def tagged(games: Sequence[GameInfo], tag: str) -> list[GameInfo]:
    """Return the games with a tag; none if it is the name of a game."""
    if any(tag in (info.game_id, info.base_id) for info in games):
        return []
    wanted = tag.lower()
    return [info for info in games if wanted in (known.lower() for known in info.tags)]


# Asks the engine about some games; returns {sha256 of source: levels or None if it fails}.
Probe = Callable[[Sequence[GameInfo]], Mapping[str, int | None]]


def level_counts(
    games: Sequence[GameInfo], cache: Path, probe: Probe | None = None
) -> dict[str, int | None]:
    """Return the levels of each game id; the probe is asked only about sources not in the cache."""
    known = _read_cache(cache)
    unknown = [info for info in games if info.source_sha256 not in known]
    if unknown and probe is not None:
        known.update(probe(unknown))
        cache.parent.mkdir(parents=True, exist_ok=True)
        # Renamed into place: another command may read or write the cache at the same time.
        with replaced_file(cache) as file:
            file.write(msgspec.json.encode(dict(sorted(known.items()))))
    return {info.game_id: known.get(info.source_sha256) for info in games}


def _read_cache(path: Path) -> dict[str, int | None]:
    """Read the cache; a missing or damaged one counts as empty."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=dict[str, int | None])
    except (OSError, msgspec.DecodeError):
        return {}
