"""Asks the engine how many levels games have: `python -m assay_arc.probe_games`.

Reads game folders from stdin, one on each line; writes {sha256 of the source: levels or null}.
"""

import os
import sys
from pathlib import Path

import msgspec

from assay_arc.catalog import read_game
from assay_arc.engine import ToolkitEngine, shut_network
from assay_arc.problems import GameProblem


def probe(folder: Path) -> tuple[str, int | None]:
    """Start one game and count its levels; None when it does not start."""
    info = read_game(folder)
    try:
        first = ToolkitEngine(info).start()
    except GameProblem as problem:
        sys.stderr.write(f"{problem}\n")
        return info.source_sha256, None
    return info.source_sha256, first.win_levels if first else None


def main() -> int:
    """Probe every folder named on stdin."""
    out = os.dup(1)
    os.dup2(2, 1)
    shut_network()
    counts: dict[str, int | None] = {}
    for line in sys.stdin:
        try:
            key, levels = probe(Path(line.rstrip("\n")))
        except GameProblem as problem:
            sys.stderr.write(f"{problem}\n")
            continue
        counts[key] = levels
    os.write(out, msgspec.json.encode(counts) + b"\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
