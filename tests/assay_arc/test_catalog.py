"""Users' own games: found, listed with faults named, picked by id, probed once, and played."""

import json
import subprocess
import sys
import time
from pathlib import Path

import pytest

from assay_arc import GameProblem
from assay_arc.catalog import find_game, level_counts, list_games
from assay_arc.scoring import score_game


def add(folder, game_id, date="2026-01-01T00:00:00Z", **fields):
    home = folder / game_id.replace("-", "/")
    home.mkdir(parents=True)
    metadata = {"game_id": game_id, "date_downloaded": date} | fields
    (home / "metadata.json").write_text(json.dumps(metadata))
    (home / f"{game_id[:4]}.py").write_text(f"# {game_id}")
    return home


def test_a_folder_is_listed_with_its_faults(tmp_path):
    add(tmp_path, "aa01-v1", title="A", tags=["x"], baseline_actions=[3, 4])
    add(tmp_path, "bb02-v1", baseline_actions=None, tags=None)
    add(tmp_path, "cc03-v1", baseline_actions=[])
    add(tmp_path, "dd04-v1", class_name="../../etc/passwd")
    (add(tmp_path, "ee05-v1") / "ee05.py").unlink()
    (add(tmp_path, "ff06-v1") / "metadata.json").write_text("{")
    (add(tmp_path, "gg07-v1") / "metadata.json").write_bytes(b"[" * 100_000)
    (add(tmp_path, "hh08-v1") / "metadata.json").write_text('{"game_id": "../x"}')
    listing = list_games(tmp_path)
    assert [info.game_id for info in listing.games] == ["aa01-v1", "bb02-v1", "cc03-v1"]
    assert [info.baselines for info in listing.games] == [(3, 4), None, None]
    assert len(listing.problems) == 5
    assert all(str(tmp_path) in problem for problem in listing.problems)


def test_an_id_without_version_means_the_newest_and_is_resolved(tmp_path):
    add(tmp_path, "aa01-old", "2025-01-01T00:00:00Z")
    add(tmp_path, "aa01-new", "2026-01-01T00:00:00+02:00")
    assert find_game("aa01", tmp_path).game_id == "aa01-new"
    assert find_game("aa01-old", tmp_path).game_id == "aa01-old"
    with pytest.raises(GameProblem) as problem:
        find_game("aa02", tmp_path)
    assert "aa01-new" in problem.value.hint


def test_no_folder_is_said():
    with pytest.raises(GameProblem, match="no such folder"):
        list_games(Path("/nowhere/games"))


def test_levels_are_probed_once_for_each_source(tmp_path, games):
    asked = []

    def probe(infos):
        asked.extend(info.game_id for info in infos)
        return {info.source_sha256: 5 for info in infos}

    cache = tmp_path / "cache" / "levels.json"
    some = list(games.values())[:2]
    assert level_counts(some, cache) == {info.game_id: None for info in some}
    assert set(level_counts(some, cache, probe).values()) == {5}
    level_counts(list(games.values()), cache, probe)
    assert sorted(asked) == sorted(games)
    cache.write_text("{damaged")
    level_counts(some, cache, probe)
    assert len(asked) == len(games) + 2


def test_the_probe_counts_levels_and_survives_broken_games(tmp_path, games, arc):
    good = arc.write_game(tmp_path / "a", [1])
    bad = arc.write_game(tmp_path / "b", [1], "raise RuntimeError('no')")
    raising = "def __init__(self):\n        raise RuntimeError('no')\n"
    source = f"from arcengine import ARCBaseGame\nclass Zz01(ARCBaseGame):\n    {raising}"
    worse = arc.write_game(tmp_path / "c", [1], source)
    folders = [good.folder, bad.folder, worse.folder, tmp_path / "missing", games["ky01-v1"].folder]
    done = subprocess.run(
        [sys.executable, "-m", "assay_arc.engine_process", "probe"],
        input="".join(f"{folder}\n" for folder in folders),
        capture_output=True,
        text=True,
        timeout=30,
        check=True,
    )
    assert json.loads(done.stdout) == {
        good.source_sha256: 4,
        bad.source_sha256: None,
        worse.source_sha256: None,
        games["ky01-v1"].source_sha256: 5,
    }


def test_25_games_are_listed_in_under_a_second(tmp_path, games):
    for n in range(25):
        add(tmp_path, f"g{n:03d}-v1", baseline_actions=[1] * 7)
    cache = tmp_path / "levels.json"
    level_counts(
        list_games(tmp_path).games, cache, lambda infos: {i.source_sha256: 7 for i in infos}
    )
    began = time.perf_counter()
    counts = level_counts(list_games(tmp_path).games, cache)
    assert time.perf_counter() - began < 1.0
    assert set(counts.values()) == {7}


@pytest.mark.parametrize("baselines", [None, [1], [1, 1, 1, 1, 1, 1]])
def test_community_games_with_wrong_baselines_play(arc, table, tmp_path, baselines):
    game = table(arc.write_game(tmp_path / "own", baselines))
    assert not game.engine.seed_used
    for _ in range(4):
        game.do("act", action="ACTION5")
    result = game.result()
    assert (result.stop_reason, result.level_count) == ("win", 4)
    score = score_game(result)
    assert score.score_percent is None
    assert "baselines" in score.reason
