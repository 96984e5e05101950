"""assay arc run on a Ray cluster: the games run beside their players, and their logs come back."""

import json
from pathlib import Path
from typing import Any

import pytest

from assay_arc.store import Store

pytestmark = pytest.mark.filterwarnings("ignore")
LIMIT_S = 300


def test_games_on_other_nodes_are_proven(ray_cluster: Any, assay: Any, tmp_path: Path) -> None:
    given = ("--games", "ky01,od01", "--max-steps", 30, "-k", 2, "-j", 4, "-q")
    there = assay(
        *("arc", "run", "random", *given, "--executor", "ray", "--address", ray_cluster.address),
        timeout=LIMIT_S,
    )
    assert there.code == 0, there.stderr
    here = assay("arc", "run", "random", *given, timeout=LIMIT_S)
    assert here.code == 0, here.stderr
    remote, local = Store(tmp_path / ".arc-agi-benchmarks").native()
    assert logs(remote.folder) == logs(local.folder)
    assert len(logs(remote.folder)) == 4
    assert scores(remote.folder) == scores(local.folder)
    rows = map(json.loads, (remote.folder / "results.jsonl").read_text().splitlines())
    trials = [trial for row in rows for trial in row["trials"]]
    assert len(trials) == 4
    for trial in trials:
        assert (remote.folder / trial["metadata"]["evidence"]["log"]).is_file()
        assert (remote.folder / trial["raw"]).is_dir()
    proven = assay("arc", "verify", remote.meta.run_id, timeout=LIMIT_S)
    assert proven.code == 0, proven.stdout + proven.stderr


def logs(run: Path) -> list[str]:
    return sorted(path.name for path in run.glob("logs/*"))


def scores(run: Path) -> Any:
    card = json.loads((run / "scorecard.json").read_text())
    return [(game["id"], game["score"]) for game in card["games"]]
