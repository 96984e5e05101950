"""Knows how many levels a game has: only the engine can tell, so answers are kept by source."""

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import msgspec

from assay.benchmarks.arc_agi.catalog.game import GameInfo

# Starts probe_games.py for some games and gives {sha256 of source: levels or None if it fails}.
Probe = Callable[[Sequence[GameInfo]], Mapping[str, int | None]]


def level_counts(
    games: Sequence[GameInfo], cache: Path, probe: Probe | None = None
) -> dict[str, int | None]:
    """Give the levels of each game id; ask the probe only about sources never seen before."""
    known = _read_cache(cache)
    unknown = [info for info in games if info.source_sha256 not in known]
    if unknown and probe is not None:
        known.update(probe(unknown))
        _write_cache(cache, known)
    return {info.game_id: known.get(info.source_sha256) for info in games}


def _read_cache(path: Path) -> dict[str, int | None]:
    """Read the cache; one that is missing or damaged is only an empty one."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=dict[str, int | None])
    except (OSError, msgspec.DecodeError):
        return {}


def _write_cache(path: Path, known: Mapping[str, int | None]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = path.with_name(f"{path.name}.{os.getpid()}")
    fresh.write_bytes(msgspec.json.encode(dict(sorted(known.items()))))
    fresh.replace(path)
