"""Imports against their plan: games that were left out, limits and times that cannot be true."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from assay_arc.catalog import BUILT_IN
from assay_arc.generated import collect_results

STORE = ".arc-agi-benchmarks"
pytestmark = pytest.mark.usefixtures("known_levels")


@pytest.fixture
def folder(assay: Callable[..., Any], tmp_path: Path, table: Any, solutions: Any) -> Path:
    """The folder of a plan of two games; the first level of one was won, the other not played."""
    done = assay("arc", "generate", "codex", "--games", "ky01,od01", "--max-steps", "40")
    assert done.code == 0, done.stderr
    made = tmp_path / STORE / "cross-harness" / "codex"
    game = table()
    for step in solutions["ky01-v1"][0]:
        game.step(step)
    game.log.close()
    (made / "sessions").mkdir()
    lines = game.path.read_text().splitlines(keepends=True)
    limits = json.dumps({"maxSteps": 40, "maxResets": 10})
    header = json.loads(lines[0]) | {"baselines": None, "limits": json.loads(limits)}
    log = made / "sessions" / "ky01-v1.jsonl"
    log.write_text(json.dumps(header, separators=(",", ":")) + "\n" + "".join(lines[1:]))
    collect(made)
    return made


def collect(folder: Path) -> dict[str, Any]:
    """Collect the sessions of a folder; only what was played is in the result."""
    words = ["--sessions-dir", str(folder / "sessions"), "--output", str(folder / "result.json")]
    assert collect_results.main([*words, "--harness", "codex"]) == 0
    result: dict[str, Any] = json.loads((folder / "result.json").read_text())
    return result


def test_a_planned_game_that_is_not_in_the_result_was_not_played(
    folder: Path, assay: Callable[..., Any], tmp_path: Path
) -> None:
    """It was removed from the result and from the sessions; the folder may be anywhere."""
    shutil.copytree(folder, tmp_path / "elsewhere", ignore=shutil.ignore_patterns("plans.json"))
    done = assay("arc", "import", "codex", tmp_path / "elsewhere")
    assert done.code == 0, done.stderr
    assert "planned, but not in the result, so counted as not played: od01-v1" in done.stderr
    assert "Games:           2, of which not played, and counted as 0: od01-v1" in done.stdout
    assert "Overall Score:   3.33 / 100" in done.stdout
    assert "Verified:        replayed" in done.stdout
    report = assay("arc", "report").stdout
    assert "od01-v1: not played, counted as 0" in report
    assert "- **Limits**: 40 steps, 10 resets (as the other harness says)" in report


FORGED: dict[str, tuple[tuple[str, str], str]] = {
    "limit": (('"maxSteps":40', '"maxSteps":100000'), "max_steps is 100000 in its log, but 40"),
    "no limit": (('"maxSteps":40', '"maxSteps":null'), "max_steps is no limit in its log"),
    "start": (('"startedAt":"2026', '"startedAt":"0026'), "the times of its log cannot be true"),
    "future": (("2026-01-01", "9026-01-01"), "the times of its log cannot be true"),
    "no time": (('"startedAt":"2026-01-01T', '"startedAt":"soon '), "cannot be read"),
}


@pytest.mark.parametrize("name", FORGED)
def test_forged_limits_and_times_are_refused(
    folder: Path, assay: Callable[..., Any], name: str
) -> None:
    change, reason = FORGED[name]
    log = folder / "sessions" / "ky01-v1.jsonl"
    text = log.read_text()
    assert change[0] in text
    log.write_text(text.replace(*change))
    collect(folder)
    done = assay("arc", "import", "codex", folder)
    assert done.code == 1
    assert reason in done.stderr
    assert not list((folder / "runs").iterdir())


def test_a_result_from_the_future_is_refused(folder: Path, assay: Callable[..., Any]) -> None:
    result = collect(folder) | {"timestamp": "2999-01-01T00:00:00+00:00"}
    (folder / "result.json").write_text(json.dumps(result))
    done = assay("arc", "import", "codex", folder)
    assert (done.code, "not one in the future" in done.stderr) == (1, True)


def test_sessions_that_the_player_wrote_are_collected_as_a_claim(
    folder: Path, assay: Callable[..., Any], capsys: Any
) -> None:
    """In the seed's own style, with refused commands and resets among the lines."""

    def observe(done: int, state: str = "NOT_FINISHED") -> dict[str, Any]:
        data = {"state": state, "levels_completed": done, "total_levels": 5}
        return {"type": "observation", "data": data}

    step = {"type": "action", "data": {"command": "step", "action": "ACTION4"}}
    reset = {"type": "action", "data": {"command": "reset"}}
    refused = {"type": "observation", "data": {"error": "Unknown action: X"}}
    lines = [observe(0), step, observe(0), step, refused, reset, observe(0)]
    lines += [step, observe(0), step, observe(1), step, observe(1)]
    log = folder / "sessions" / "ky01-v1.jsonl"
    log.write_text("".join(json.dumps(line) + "\n" for line in lines))
    [game] = collect(folder)["games"]
    assert "written by the player" in capsys.readouterr().err
    assert (game["levels_completed"], game["total_actions"], game["total_resets"]) == (1, 4, 1)
    assert [level["actions_taken"] for level in game["levels"]] == [4, 1, 0, 0, 0]
    assert "session" not in game
    done = assay("arc", "import", "codex", folder)
    assert done.code == 0, done.stderr
    assert "Verified:        UNVERIFIED" in done.stdout


def test_the_seeds_example_imports_with_the_seeds_baselines(
    assay: Callable[..., Any], tmp_path: Path
) -> None:
    """It won five levels and describes one of them, with a baseline of 4."""
    shutil.copytree(BUILT_IN / "ky01", tmp_path / "games" / "ky01")
    path = tmp_path / "games" / "ky01" / "v1" / "metadata.json"
    seeds = json.loads(path.read_text()) | {"baseline_actions": [4, 6, 8, 10, 12]}
    level = {"level_index": 1, "completed": True, "actions_taken": 4, "baseline_actions": 4}
    game = {"game_id": "ky01-v1", "state": "WIN", "levels_completed": 5, "total_levels": 5}
    game |= {"total_actions": 45, "total_resets": 0, "levels": [level]}
    result = {"schema_version": "1.0.0", "scoring_formula_version": "1.0.0", "harness": "codex"}
    result |= {"timestamp": "2026-01-01T00:00:00Z", "seed": 0, "games": [game]}
    (tmp_path / "r.json").write_text(json.dumps(result | {"metadata": {"model": "m"}}))
    words = ("arc", "import", "codex", tmp_path / "r.json", "--env-dir", tmp_path / "games")
    assert "but the metadata of ky01-v1 says 10" in assay(*words).stderr
    path.write_text(json.dumps(seeds))
    done = assay(*words)
    assert done.code == 0, done.stderr
    assert "4 of 5 completed levels are not described: they score 0" in done.stderr
    assert "Overall Score:   6.67 / 100" in done.stdout
    assert "UNVERIFIED: no session logs were given" in done.stdout
