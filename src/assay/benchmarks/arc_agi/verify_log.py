"""Replays a log in the engine: `python -m assay.benchmarks.arc_agi.verify_log LOG GAME_FOLDER`.

Writes one JSON object: {"replayed": bool, "nActions": n, "difference": text or null, "note": …}.
"""

import os
import sys
from collections.abc import Sequence
from pathlib import Path

import msgspec

from assay.benchmarks.arc_agi.catalog.game import read_game
from assay.benchmarks.arc_agi.engine.quiet import shut_network
from assay.benchmarks.arc_agi.engine.replay import Replay, header_difference, replay_log
from assay.benchmarks.arc_agi.engine.toolkit import ToolkitEngine, toolkit_versions
from assay.benchmarks.arc_agi.log.reader import read_log
from assay.benchmarks.arc_agi.log.records import Header
from assay.benchmarks.arc_agi.problems import ArcProblem


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
    if len(argv) != 2:
        sys.stderr.write((__doc__ or "") + "\n")
        return 2
    out = os.dup(1)
    os.dup2(2, 1)
    shut_network()
    try:
        replay = verify(Path(argv[0]), Path(argv[1]))
    except (ArcProblem, OSError) as problem:
        replay = Replay(replayed=False, n_actions=0, difference=str(problem))
    os.write(out, msgspec.json.encode(replay) + b"\n")
    return 0 if replay.replayed else 1


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
