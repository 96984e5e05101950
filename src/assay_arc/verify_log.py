"""Replays logs in the engine: `python -m assay_arc.verify_log LOG GAME_FOLDER`.

Writes one JSON object: {"replayed": bool, "nActions": n, "difference": text or null, "note": …}.
With `-` it reads pairs from stdin, a JSON array [LOG, GAME_FOLDER] on each line, and answers each.
"""

import os
import sys
from collections.abc import Sequence
from pathlib import Path

import msgspec

from assay_arc.catalog import read_game
from assay_arc.engine import ToolkitEngine, shut_network, toolkit_versions
from assay_arc.log import Header, read_log
from assay_arc.problems import ArcProblem
from assay_arc.replay import Replay, header_difference, replay_log


def verify(log_path: Path, game: Path) -> Replay:
    """Replay one log with our copy of its game."""
    log, info = read_log(log_path), read_game(game)
    difference = header_difference(log.header, info)
    if difference:
        return Replay(replayed=False, n_actions=0, difference=difference)
    replay = replay_log(log, info, ToolkitEngine(info, log.header.seed))
    return msgspec.structs.replace(replay, note=_version_note(log.header))


def _version_note(header: Header) -> str | None:
    logged, ours = (header.toolkit_version, header.engine_version), toolkit_versions()
    if logged == ours:
        return None
    return f"logged with arc_agi {logged[0]}, arcengine {logged[1]}; here {ours[0]}, {ours[1]}"


def main(argv: Sequence[str]) -> int:
    """Verify one log; 0 replayed, 1 it differs or cannot be read, 2 wrong usage."""
    if len(argv) != 2 and argv != ["-"]:
        sys.stderr.write((__doc__ or "") + "\n")
        return 2
    out = os.dup(1)
    os.dup2(2, 1)
    shut_network()
    pairs = map(_read_pair, sys.stdin) if len(argv) == 1 else [(argv[0], argv[1])]
    all_replayed = True
    for log, game in pairs:
        replay = _verify(Path(log), Path(game))
        all_replayed &= replay.replayed
        os.write(out, msgspec.json.encode(replay) + b"\n")
    return 0 if all_replayed else 1


def _verify(log: Path, game: Path) -> Replay:
    try:
        return verify(log, game)
    except (ArcProblem, OSError) as problem:
        return Replay(replayed=False, n_actions=0, difference=str(problem))


def _read_pair(line: str) -> tuple[str, str]:
    return msgspec.json.decode(line, type=tuple[str, str])


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
