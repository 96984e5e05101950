"""Shows how a game begins: `python -m assay_arc.look_game GAME_FOLDER [SEED]`.

Writes one JSON object: what the engine answers to the first reset, frames packed as in a log.
"""

import os
import sys
from collections.abc import Sequence
from pathlib import Path

import msgspec

from assay_arc.catalog import read_game
from assay_arc.engine import ToolkitEngine, shut_network
from assay_arc.problems import ArcProblem


def main(argv: Sequence[str]) -> int:
    """Look at one game; 1 when it does not start."""
    if len(argv) not in (1, 2):
        sys.stderr.write((__doc__ or "") + "\n")
        return 2
    out = os.dup(1)
    os.dup2(2, 1)
    shut_network()
    try:
        engine = ToolkitEngine(read_game(Path(argv[0])), int(argv[1]) if len(argv) == 2 else 0)
        first = engine.start()
    except (ArcProblem, OSError) as problem:
        sys.stderr.write(f"{problem}\n")
        return 1
    if first is None:
        sys.stderr.write("the game gives no first picture of 64x64\n")
        return 1
    os.write(out, msgspec.json.encode((engine.seed_used, first.to_answer())) + b"\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
