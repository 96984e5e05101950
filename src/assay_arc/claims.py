"""Checks a result of schema 1.0.0 against what our games allow; lists every fault at once."""

from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any

import msgspec

SCHEMA_VERSION = "1.0.0"
MOST = 10**9
MOST_GAMES = 10_000
MAX_TEXT = 10_000
STATES = ("NOT_PLAYED", "NOT_FINISHED", "PLAYING", "WIN", "GAME_OVER")
TOP = ("schema_version", "harness", "timestamp", "seed", "games", "metadata")
GAME = (
    "game_id",
    "state",
    "levels_completed",
    "total_levels",
    "total_actions",
    "total_resets",
    "levels",
)
LEVEL = ("level_index", "completed", "actions_taken", "baseline_actions")


class KnownGame(msgspec.Struct, frozen=True, kw_only=True):
    """Our own copy of a game: the only source of levels and baselines."""

    game_id: str
    title: str
    tags: tuple[str, ...]
    source_sha256: str
    level_count: int | None
    baselines: tuple[int, ...] | None


class Claim(msgspec.Struct, frozen=True, kw_only=True):
    """What a result says of one game, after all checks."""

    game: KnownGame
    state: str
    levels_completed: int
    total_actions: int
    total_resets: int
    actions: tuple[int, ...]
    """Of each level that was reported, in order."""
    session_sha256: str | None = None


def check_result(
    data: Any, harness: str, games: Mapping[str, KnownGame]
) -> tuple[list[Claim], list[str], list[str]]:
    """Give the claims, the errors and the warnings; claims mean nothing while there are errors."""
    if not isinstance(data, dict):
        return [], ["the result must be an object"], []
    errors = [*_missing(data, TOP, ""), *_check_top(data)]
    warnings = list(_warnings(data, harness))
    claims: list[Claim] = []
    seen: set[str] = set()
    rows = data.get("games")
    for i, row in enumerate(rows[:MOST_GAMES] if isinstance(rows, list) else []):
        place = f"games[{i}]"
        if not isinstance(row, dict):
            errors.append(f"{place} must be an object")
            continue
        found = [*_missing(row, GAME, f"{place}."), *_check_game(row, place, games)]
        errors += found
        game = games.get(row["game_id"]) if isinstance(row.get("game_id"), str) else None
        if game is not None and game.game_id in seen:
            errors.append(f"{place}.game_id: {game.game_id} appears twice")
        elif game is not None:
            seen.add(game.game_id)
            if not found:
                claims.append(_claim(row, game))
    return claims, errors, warnings


def _check_top(data: dict[str, Any]) -> Iterator[str]:
    for name in ("schema_version", "harness", "timestamp"):
        if name in data and not _is_text(data[name]):
            yield f"{name} must be a string"
    if isinstance(data.get("timestamp"), str) and not _is_time(data["timestamp"]):
        yield "timestamp must be an ISO 8601 time"
    if "seed" in data and not _is_int(data["seed"], -MOST, MOST):
        yield "seed must be a whole number"
    if "metadata" in data and not isinstance(data["metadata"], dict):
        yield "metadata must be an object"
    rows = data.get("games", [{}])
    if not isinstance(rows, list):
        yield '"games" must be an array'
    elif not rows:
        yield '"games" must not be empty'
    elif len(rows) > MOST_GAMES:
        yield f'"games" has more than {MOST_GAMES} entries'


def _warnings(data: dict[str, Any], harness: str) -> Iterator[str]:
    said = data.get("harness")
    if isinstance(said, str) and said != harness:
        yield f'Harness field in result ("{said[:80]}") does not match argument ("{harness}")'
    version = data.get("schema_version")
    if isinstance(version, str) and version != SCHEMA_VERSION:
        yield f"Schema version {version[:80]} may not be fully supported (expected 1.0.0)"
    formula = data.get("scoring_formula_version", "1.0.0")
    if formula != "1.0.0":
        yield f"Scoring formula {str(formula)[:80]!r} is not used: scores are always recomputed"


def _check_game(row: dict[str, Any], place: str, games: Mapping[str, KnownGame]) -> Iterator[str]:
    game_id = row.get("game_id")
    game = games.get(game_id) if isinstance(game_id, str) else None
    if "game_id" in row and game is None:
        yield f"{place}.game_id: unknown game {str(game_id)[:80]!r}"
    if "state" in row and row["state"] not in STATES:
        yield f"{place}.state must be one of {', '.join(STATES)}"
    for name in GAME[2:6]:
        if name in row and not _is_int(row[name], 0, MOST):
            yield f"{place}.{name} must be a whole number from 0 to {MOST}"
    levels = row.get("levels")
    if "levels" in row and not isinstance(levels, list):
        yield f"{place}.levels must be an array"
    elif isinstance(levels, list) and len(levels) > 1000:
        yield f"{place}.levels has {len(levels)} entries; more than any game has"
    elif isinstance(levels, list):
        faults = [fault for j, level in enumerate(levels) for fault in _level(level, place, j)]
        yield from faults
        if game is not None and not faults and _is_counted(row):
            yield from _check_sense(row, place, game)


def _level(level: Any, place: str, j: int) -> Iterator[str]:
    here = f"{place}.levels[{j}]"
    if not isinstance(level, dict):
        yield f"{here} must be an object"
        return
    yield from _missing(level, LEVEL, f"{here}.")
    if "level_index" in level and level["level_index"] != j + 1:
        yield f"{here}.level_index must be {j + 1}: levels must be in order, from 1"
    if "completed" in level and not isinstance(level["completed"], bool):
        yield f"{here}.completed must be true or false"
    if "actions_taken" in level and not _is_int(level["actions_taken"], 0, MOST):
        yield f"{here}.actions_taken must be a whole number from 0 to {MOST}"
    baseline = level.get("baseline_actions")
    if baseline is not None and not _is_int(baseline, 0, MOST):
        yield f"{here}.baseline_actions must be a whole number from 0 to {MOST}, or null"


def _check_sense(row: dict[str, Any], place: str, game: KnownGame) -> Iterator[str]:
    """Check that the numbers of a game fit each other and the game as we have it."""
    done, total, levels = row["levels_completed"], row["total_levels"], row["levels"]
    played = row["state"] != "NOT_PLAYED"
    if (played or total) and game.level_count is not None and total != game.level_count:
        yield f"{place}.total_levels is {total}, but {game.game_id} has {game.level_count} levels"
    if done > total:
        yield f"{place}.levels_completed is {done} of {total} levels"
    if len(levels) > total:
        yield f"{place}.levels has {len(levels)} entries for {total} levels"
    if (row["state"] == "WIN") != (played and done == total):
        yield f"{place}.state is {row['state']} with {done} of {total} levels completed"
    if [level["completed"] for level in levels[:done]] != [True] * done:
        yield f"{place}.levels: the first {done} must be present and completed"
    if any(level["completed"] for level in levels[done:]):
        yield f"{place}.levels: more are completed than levels_completed says"
    spent = sum(level["actions_taken"] for level in levels)
    if spent > row["total_actions"] + row["total_resets"]:
        yield (
            f"{place}: its levels took {spent} actions, but only {row['total_actions']} actions "
            f"and {row['total_resets']} resets were made"
        )
    if done and levels and levels[0]["actions_taken"] == 0:
        yield f"{place}.levels[0]: completed without any action"
    if not played and (row["total_actions"] or done):
        yield f"{place}.state is NOT_PLAYED, but something was played"
    yield from _check_baselines(levels, place, game)


def _check_baselines(levels: list[dict[str, Any]], place: str, game: KnownGame) -> Iterator[str]:
    ours = game.baselines or ()
    for j, level in enumerate(levels):
        claimed = level["baseline_actions"]
        known = ours[j] if j < len(ours) else None
        # A game without baselines was given zeros by the seed's driver.
        if claimed is not None and claimed != (known or 0):
            yield (
                f"{place}.levels[{j}].baseline_actions is {claimed}, "
                f"but the metadata of {game.game_id} says {known}"
            )


def _claim(row: dict[str, Any], game: KnownGame) -> Claim:
    session = row.get("session")
    sha256 = session.get("sha256") if isinstance(session, dict) else None
    return Claim(
        game=game,
        state="NOT_FINISHED" if row["state"] == "PLAYING" else row["state"],
        levels_completed=row["levels_completed"],
        total_actions=row["total_actions"],
        total_resets=row["total_resets"],
        actions=tuple(level["actions_taken"] for level in row["levels"]),
        session_sha256=sha256 if isinstance(sha256, str) else None,
    )


def _missing(row: dict[str, Any], names: tuple[str, ...], place: str) -> list[str]:
    return [f"Missing required field: {place}{name}" for name in names if name not in row]


def _is_counted(row: dict[str, Any]) -> bool:
    return row.get("state") in STATES and all(_is_int(row.get(n), 0, MOST) for n in GAME[2:6])


def _is_int(value: Any, low: int, high: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and low <= value <= high


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and len(value) <= MAX_TEXT


def _is_time(text: str) -> bool:
    try:
        datetime.fromisoformat(text)
    except ValueError:
        return False
    return True
