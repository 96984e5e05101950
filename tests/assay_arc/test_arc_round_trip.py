"""Across harnesses: generate, play elsewhere with a scripted player, collect, import, compare."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from assay.errors import AssayError
from assay_arc.cards import read_card
from assay_arc.commands import command
from assay_arc.store import Store

STORE = ".arc-agi-benchmarks"
PLAYER = """
import json, subprocess, sys
game, *actions = sys.argv[1:]
driver = subprocess.Popen([sys.executable, "game_driver.py", game, "0"], text=True,
                          stdin=subprocess.PIPE, stdout=subprocess.PIPE)
state = json.loads(driver.stdout.readline())
for action in actions:
    said = {"command": "reset"} if action == "RESET" else {"command": "step", "action": action}
    driver.stdin.write(json.dumps(said) + "\\n")
    driver.stdin.flush()
    state = json.loads(driver.stdout.readline())
driver.stdin.write('{"command": "quit"}\\n')
driver.stdin.close()
driver.wait(20)
driver.stdout.close()
"""


def arc(*words) -> str:
    result = CliRunner().invoke(command, [str(word) for word in words])
    if isinstance(result.exception, AssayError):
        raise result.exception
    assert result.exit_code == 0, result.output
    return result.output


@pytest.fixture
def elsewhere(tmp_path, monkeypatch) -> Path:
    """The generated folder, carried to another machine."""
    home = tmp_path / "home"
    home.mkdir()
    monkeypatch.chdir(home)
    out = arc("generate", "codex", "--games", "ky01,mx01", "--seed", "0")
    assert "Game set:               2 games, seed=0" in out
    assert "4. Import with: assay arc import codex" in out
    shutil.move(home / STORE / "cross-harness" / "codex", tmp_path / "other")
    (tmp_path / "other" / "player").write_text(PLAYER)
    return tmp_path / "other"


def play(folder: Path, *words) -> None:
    env = {"PATH": os.defpath, "HOME": str(folder)}
    subprocess.run([sys.executable, "player", *words], cwd=folder, env=env, check=True, timeout=60)


def collect(folder: Path) -> Path:
    argv = [sys.executable, "collect_results.py", "--sessions-dir", "sessions", "--model", "m-9"]
    done = subprocess.run(argv, cwd=folder, capture_output=True, text=True, timeout=30)
    assert "Games: 2" in done.stdout, done.stderr
    return folder / "result.json"


def test_the_whole_way_round(elsewhere, tmp_path):
    play(elsewhere, "ky01", "ACTION4", "ACTION4", "RESET", "ACTION2")
    play(elsewhere, "ky01", "ACTION2")
    result = collect(elsewhere)
    out = arc("import", "codex", result)
    assert "Verified:        replayed" in out
    assert "Games:           2" in out
    store = Store(Path.cwd() / STORE)
    [run] = store.imported()
    assert run.meta.harness_config.model == "m-9"
    assert run.meta.max_steps == 500
    game = next(game for game in read_card(run).games if game.id == "ky01-v1")
    assert (game.trials[0].steps, game.trials[0].resets) == (4, 1)
    assert "To compare with a run of your own" in out
    with pytest.raises(AssayError, match="Duplicate import"):
        arc("import", "codex", result)
    arc("import", "gemini", elsewhere)
    said = arc("compare", "--all")
    assert "codex" in said
    assert "gemini" in said
    assert arc("replay", run.meta.run_id, "ky01", "--text")
    assert "replayed, 5 actions agree" in arc("verify", run.meta.run_id)
    assert "imported" in arc("report", run.meta.run_id)


def test_24_nothing_that_was_generated_holds_a_baseline(elsewhere):
    for path in elsewhere.rglob("*"):
        if path.is_file() and path.suffix != ".md":
            text = path.read_text()
            assert "10, 7, 24, 15, 19" not in text
            assert '"baseline_actions": [' not in text


def test_17_a_forged_result_without_its_log_stays_a_claim(elsewhere):
    play(elsewhere, "ky01", "ACTION4")
    result = collect(elsewhere)
    data = json.loads(result.read_text())
    row = next(row for row in data["games"] if row["game_id"] == "ky01-v1")
    taken = [10, 7, 24, 15, 19]
    row |= {
        "state": "WIN",
        "levels_completed": 5,
        "total_actions": 75,
        "levels": [
            {"level_index": i + 1, "completed": True, "actions_taken": n, "baseline_actions": n}
            for i, n in enumerate(taken)
        ],
    }
    result.write_text(json.dumps(data))
    with pytest.raises(AssayError, match="state: the result says 'WIN', the log 'NOT_FINISHED'"):
        arc("import", "codex", result)
    assert Store(Path.cwd() / STORE).imported() == []
    shutil.rmtree(elsewhere / "sessions")
    out = arc("import", "codex", result)
    assert "UNVERIFIED: no session logs were given" in out
    assert "[unverified]" in arc("report", "latest", "--format", "summary")
    assert "[unverified]" in arc("browse", "ky01")
    line = next(line for line in arc("browse").splitlines() if "ky01-v1" in line)
    assert "100" not in line


def test_generate_from_a_reference_and_its_messages(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(AssayError, match="No completed runs found"):
        arc("generate", "codex", "--ref", "latest")
    with pytest.raises(AssayError, match="Run abcdef not found"):
        arc("generate", "codex", "--ref", "abcdef")
    wrong = CliRunner().invoke(command, ["generate", "cursor"])
    assert wrong.exit_code == 2
    assert "Invalid harness `cursor`. Supported harnesses: codex, gemini, opencode" in wrong.output
    folder = tmp_path / STORE / "runs" / "00000000-ref"
    folder.mkdir(parents=True)
    meta = {
        "run_id": "00000000-ref",
        "harness": "x",
        "timestamp": "2026-01-01",
        "status": "completed",
        "game_ids": ["od01-v1"],
        "seed": 5,
        "max_steps": 33,
        "max_resets": 2,
    }
    (folder / "run-meta.json").write_text(json.dumps(meta))
    said = json.loads(arc("generate", "opencode", "--ref", "latest", "--json"))
    assert (said["status"], said["game_count"], said["seed"]) == ("generated", 1, 5)
    text = Path(said["instructions"]).read_text()
    assert "**Max steps per game**: 33" in text
    assert "**Reference run**: 00000000-ref" in text
    assert "opencode run --model" in text
    with pytest.raises(AssayError, match="not found"):
        arc("generate", "codex", "--games", "nope")
    (tmp_path / "empty").mkdir()
    with pytest.raises(AssayError, match="No ARC-AGI environments found"):
        arc("generate", "codex", "--env-dir", "empty")


def test_a_users_own_games_list_play_and_are_scored_as_far_as_possible(tmp_path, monkeypatch):
    """Games without baselines, with too many, and broken ones, as community folders have them."""
    monkeypatch.chdir(tmp_path)
    from assay_arc.catalog import BUILT_IN

    own = tmp_path / "environment_files"
    for base, baselines in (("ky01", None), ("so01", [1, 2, 3, 4, 5, 6])):
        shutil.copytree(BUILT_IN / base, own / base)
        path = own / base / "v1" / "metadata.json"
        path.write_text(json.dumps(json.loads(path.read_text()) | {"baseline_actions": baselines}))
    (own / "broken" / "v1").mkdir(parents=True)
    (own / "broken" / "v1" / "metadata.json").write_text('{"game_id": "bb01-v1"}')
    listing = arc("browse")
    assert "Total: 2 environments in environment_files" in listing
    assert "6 for 4 levels" in listing
    assert "bb01.py is missing" in listing
    done = subprocess.run(
        [sys.executable, "-m", "assay", "arc", "run", "random:3", "-j", "2", "--max-steps", "30"],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    card = read_card(Store(tmp_path / STORE).find("latest"))
    assert card.score_percent is None
    assert [game.score_reason for game in card.games] == [
        "the game's metadata has no baselines",
        "the game's metadata has 6 baselines for 4 levels",
    ]
    assert "Score: -" in done.stdout
