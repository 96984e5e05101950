"""What the seed of the cross-harness benchmark says of commands, files, fields and messages."""

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

pytestmark = [
    pytest.mark.recorded,
    pytest.mark.skipif(find_spec("arc_agi") is None, reason="arc_agi is not installed"),
]

STORE = ".arc-agi-benchmarks"
HARNESSES = ("codex", "gemini", "opencode")
STEP = {"command": "step", "action": "ACTION4"}
NO_TOOLKIT = """
import importlib.metadata as metadata
known = metadata.version
def version(name):
    if name == "arc-agi":
        raise metadata.PackageNotFoundError(name)
    return known(name)
metadata.version = version
"""
type Run = Callable[..., "subprocess.CompletedProcess[str]"]


def assay(folder: Path, *words: Any, **env: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-m", "assay", "arc", *map(str, words)],
        cwd=folder, env=os.environ | env, capture_output=True, text=True, timeout=120,
        stdin=subprocess.DEVNULL, check=False,
    )  # fmt: skip


def drive(folder: Path, game: str, *commands: Any, arguments: tuple[str, ...] = ()) -> list[Any]:
    """Play with the generated driver; give what it printed."""
    lines = [c if isinstance(c, str) else json.dumps(c) for c in commands]
    done = subprocess.run(
        [sys.executable, "game_driver.py", game, "0", *arguments],
        cwd=folder, input="".join(f"{line}\n" for line in lines), capture_output=True, text=True,
        timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def collect(folder: Path, *words: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "collect_results.py", *words]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project after setup, a run, generate, play elsewhere, import and compare."""
    folder = tmp_path_factory.mktemp("arc-seed")
    said: dict[str, str] = {}
    for name, words in (
        ("setup", ("setup",)),
        ("run", ("run", "search", "--games", "ky01,mx01", "--max-steps", 30, "-q")),
        ("generate", ("generate", "codex", "--games", "ky01,mx01", "--seed", 0)),
    ):
        done = assay(folder, *words)
        assert done.returncode == 0, done.stderr
        said[name] = done.stdout
    where = folder / STORE / "cross-harness" / "codex"
    drive(where, "ky01", STEP, {"command": "reset"}, STEP, {"command": "quit"})
    drive(where, "mx01", STEP)
    words = ["--sessions-dir", "./sessions", "--output", "result.json", "--harness", "codex"]
    words += ["--seed", "0", "--model", "m-1", "--version", "v-1", "--notes", "a note"]
    said["collect"] = collect(where, *words).stdout
    said["import"] = assay(folder, "import", "codex", where / "result.json").stdout
    (folder / "said.json").write_text(json.dumps(said))
    return folder


@pytest.fixture
def said(made: Path) -> dict[str, str]:
    words: dict[str, str] = json.loads((made / "said.json").read_text())
    return words


@pytest.fixture
def here(made: Path, tmp_path: Path) -> Path:
    """A copy of that project."""
    return Path(shutil.copytree(made, tmp_path / "here"))


def cross(folder: Path) -> Path:
    return folder / STORE / "cross-harness" / "codex"


def imported(folder: Path) -> Path:
    (run,) = (cross(folder) / "runs").iterdir()
    return run


def load(path: Path) -> Any:
    return json.loads(path.read_text())


def test_the_help_is_a_table_of_the_sub_commands(tmp_path: Path):
    text = assay(tmp_path).stdout
    for words in (
        "generate HARNESS [--ref RUN] [--seed N] [--games LIST]",
        "compare [RUN...] [--all]",
    ):
        assert words in text
    assert re.search(r"assay arc import HARNESS\S* PATH", text)


@pytest.mark.parametrize("command", ["generate", "import"])
def test_an_invalid_harness_is_named_with_the_supported_ones(command: str, tmp_path: Path):
    done = assay(tmp_path, command, "cursor", *(["x.json"] if command == "import" else []))
    assert done.returncode == 2
    assert "Invalid harness `cursor`. Supported harnesses: codex, gemini, opencode" in done.stderr


def test_without_the_toolkit_the_way_to_install_it_is_said(tmp_path: Path):
    (tmp_path / "sitecustomize.py").write_text(NO_TOOLKIT)
    done = assay(tmp_path, "setup", PYTHONPATH=str(tmp_path))
    assert done.returncode == 1
    assert "arc-agi is not installed" in done.stdout
    assert "pip install" in done.stdout


def test_setup_writes_the_configuration(made: Path, said: dict[str, str]):
    config = load(made / STORE / "config.json")
    names = ("environments_dir", "default_seed", "default_max_steps", "default_max_resets")
    assert {*names, "operation_mode"} <= config.keys()
    values = (config["default_seed"], config["default_max_steps"], config["default_max_resets"])
    assert values == (0, 500, 10)
    assert "Status: READY" in said["setup"]


def test_generate_follows_the_configuration(tmp_path: Path):
    from assay_arc.catalog import BUILT_IN

    shutil.copytree(BUILT_IN / "ky01", tmp_path / "mine" / "ky01")
    (tmp_path / STORE).mkdir()
    config = {"environments_dir": "./mine", "default_seed": 7}
    config |= {"default_max_steps": 12, "default_max_resets": 3}
    (tmp_path / STORE / "config.json").write_text(json.dumps(config))
    done = assay(tmp_path, "generate", "gemini", "--json")
    assert done.returncode == 0, done.stderr
    summary = json.loads(done.stdout)
    assert (summary["game_count"], summary["seed"]) == (1, 7)
    text = (tmp_path / summary["instructions"]).read_text()
    assert "**Max steps per game**: 12" in text
    assert "**Max resets per game**: 3" in text


def test_a_seed_and_games_on_the_command_line_win(tmp_path: Path):
    done = assay(tmp_path, "generate", "codex", "--seed", "42", "--games", "ky01,od01", "--json")
    summary = json.loads(done.stdout)
    assert (summary["seed"], summary["game_count"]) == (42, 2)
    every = json.loads(assay(tmp_path, "generate", "codex", "--games", "all", "--json").stdout)
    assert (every["seed"], every["game_count"]) == (0, 6)


def test_a_reference_run_gives_games_seed_and_limits(here: Path):
    (run,) = (here / STORE / "runs").iterdir()
    for ref in ("latest", run.name):
        done = assay(here, "generate", "opencode", "--ref", ref, "--json")
        assert done.returncode == 0, done.stderr
        summary = json.loads(done.stdout)
        assert (summary["ref_run_id"], summary["game_count"]) == (run.name, 2)
        text = (here / summary["instructions"]).read_text()
        assert f"**Reference run**: {run.name}" in text
        assert "**Max steps per game**: 30" in text


def test_a_reference_that_is_missing_lists_what_there_is(here: Path, tmp_path: Path):
    done = assay(here, "generate", "codex", "--ref", "00000000-no")
    assert done.returncode == 1
    assert "Run 00000000-no not found." in done.stderr
    assert "Available runs:" in done.stderr
    (run,) = (here / STORE / "runs").iterdir()
    assert run.name in done.stderr
    (tmp_path / "empty").mkdir()
    none = assay(tmp_path / "empty", "generate", "codex", "--ref", "latest")
    assert none.returncode == 1
    assert "No completed runs found." in none.stderr


def test_without_games_setup_is_named(tmp_path: Path):
    (tmp_path / "none").mkdir()
    done = assay(tmp_path, "generate", "codex", "--env-dir", "none")
    assert done.returncode == 1
    assert "No ARC-AGI environments found" in done.stderr


def test_generate_writes_three_files_and_a_folder_for_runs(made: Path):
    names = {path.name for path in cross(made).iterdir()}
    assert {"instructions.md", "game_driver.py", "collect_results.py", "runs"} <= names
    for name in ("instructions.md", "game_driver.py", "collect_results.py"):
        assert b"\r" not in (cross(made) / name).read_bytes()


def test_generate_reports_what_it_wrote_and_the_next_steps(said: dict[str, str]):
    where = f"{STORE}/cross-harness/codex"
    for words in (
        "Instructions generated: ", f"{where}/instructions.md", "Game driver:            ",
        f"{where}/game_driver.py", "Result collector:       ", f"{where}/collect_results.py",
        "Game set:               2 games, seed=0", "Reference run:          none", "Next steps:",
        "1. Open the instructions", "2. Run the benchmark", "3. Save the result",
        "4. Import with: assay arc import codex",
    ):  # fmt: skip
        assert words in said["generate"]


def test_generate_reports_as_json(here: Path):
    summary = json.loads(assay(here, "generate", "gemini", "--json").stdout)
    assert set(summary) == {
        *("status", "instructions", "game_driver", "collect_results", "game_count", "seed"),
        "ref_run_id",
    }
    assert (summary["status"], summary["ref_run_id"]) == ("generated", "none")


OBSERVATION = {
    "state": str,
    "frame": list,
    "levels_completed": int,
    "total_levels": int,
    "available_actions": list,
    "step": int,
    "resets": int,
}


@pytest.fixture
def driver(tmp_path: Path) -> Path:
    """A fresh folder for another harness, with small limits."""
    words = ("--games", "ky01,od01", "--max-steps", 3, "--max-resets", 1)
    assert assay(tmp_path, "generate", "codex", *words).returncode == 0
    return cross(tmp_path)


def test_an_observation_has_the_fields_of_the_seed(driver: Path):
    first, second = drive(driver, "ky01", STEP)
    for observation in (first, second):
        for name, kind in OBSERVATION.items():
            assert isinstance(observation[name], kind), name
        assert "baseline_actions" in observation
    assert (first["state"], first["step"], second["step"]) == ("PLAYING", 0, 1)
    assert isinstance(first["frame"][0][0][0], int)
    assert first["available_actions"][0].keys() == {"name", "is_complex"}


def test_commands_of_the_driver(driver: Path):
    click = {"command": "step", "action": "ACTION6", "data": {"x": 1, "y": 2}, "reasoning": "try"}
    start, clicked, *rest = drive(driver, "od01", click, {"command": "quit"}, STEP)
    assert start["available_actions"] == [{"name": "ACTION6", "is_complex": True}]
    assert (clicked["step"], rest) == (1, []), "nothing is answered after quit"
    assert "try" in (driver / "sessions" / "od01-v1.jsonl").read_text()
    _, _, again = drive(driver, "ky01", STEP, {"command": "reset"})
    assert again["resets"] == 1


def test_refusals_of_the_driver(driver: Path):
    bad = ("{", {"command": "dance"}, {"command": "step", "action": "JUMP"})
    _, *answers = drive(driver, "ky01", *bad)
    expected = ["Invalid JSON", "Unknown command: dance", "Unknown action: JUMP"]
    assert [answer["error"] for answer in answers] == expected
    *_, last = drive(driver, "ky01", STEP, STEP, STEP, STEP)
    assert last["error"] == "Max steps exceeded"
    *_, resets = drive(driver, "od01", {"command": "reset"}, {"command": "reset"})
    assert resets["error"] == "Max resets exceeded"


@pytest.mark.parametrize(
    ("option", "answer"),
    [("--max-steps", "Max steps exceeded"), ("--max-resets", "Max resets exceeded")],
)
def test_the_limits_of_the_driver_can_be_lowered(option: str, answer: str, driver: Path):
    command = STEP if option == "--max-steps" else {"command": "reset"}
    found = drive(driver, "ky01", command, command, arguments=(option, "0"))
    assert any(one.get("error") == answer for one in found)


class Broken:
    """An engine that starts and then answers nothing."""

    seed_used = False

    def start(self) -> dict[str, Any]:
        answer = {"grids": [], "state": "NOT_FINISHED", "levelsCompleted": 0, "winLevels": 3}
        answer |= {"fullReset": True, "availableActions": [1], "nFrames": 1}
        return answer | {"frameSha256": "0", "frames": ""}

    def act(self, action: str, x: int | None, y: int | None) -> None:
        return None


def test_an_engine_that_answers_nothing_is_an_error_and_no_crash(tmp_path: Path):
    from assay_arc.generated import game_driver

    header = {"type": "header", "schema": "assay-arc-log/1", "gameId": "g-1", "seed": 0}
    header |= {"sourceSha256": "0", "baselines": None, "levelCount": 0, "toolkitVersion": "0"}
    header |= {"engineVersion": "0", "limits": {"maxSteps": None, "maxResets": None}}
    log = game_driver.SessionLog(tmp_path / "g-1.jsonl")
    driver = game_driver.Driver(Broken(), log, header | {"startedAt": "2026-01-01T00:00:00+00:00"})
    stepped = driver.handle('{"command": "step", "action": "ACTION1"}')
    assert stepped == {"error": "env.step() returned None"}
    assert driver.handle('{"command": "reset"}') == {"error": "env.reset() returned None"}
    log._file.close()


def test_the_driver_takes_a_folder_of_games(driver: Path, tmp_path: Path):
    shutil.move(driver / "environment_files", tmp_path / "elsewhere")
    arguments = ("--env-dir", str(tmp_path / "elsewhere"))
    assert drive(driver, "ky01", STEP, arguments=arguments)[1]["step"] == 1


RESULT = ("schema_version", "scoring_formula_version", "harness", "timestamp", "seed", "games")
GAME = ("game_id", "state", "levels_completed", "total_levels", "total_actions", "total_resets")
LEVEL = ("level_index", "completed", "actions_taken", "baseline_actions")


def test_a_result_has_the_fields_of_the_seed(made: Path, said: dict[str, str]):
    result = load(cross(made) / "result.json")
    assert {*RESULT, "metadata"} <= result.keys()
    assert (result["schema_version"], result["scoring_formula_version"]) == ("1.0.0", "1.0.0")
    for game in result["games"]:
        assert {*GAME, "levels"} <= game.keys()
        for level in game["levels"]:
            assert set(LEVEL) <= level.keys()
    assert {"model": "m-1", "version": "v-1", "notes": "a note"}.items() <= result[
        "metadata"
    ].items()
    assert "Result written to result.json" in said["collect"]
    assert "Games: 2, Completed: 0" in said["collect"]


def test_the_collector_counts_steps_and_resets(made: Path):
    first = next(g for g in load(cross(made) / "result.json")["games"] if g["game_id"] == "ky01-v1")
    assert (first["total_actions"], first["total_resets"]) == (2, 1)
    assert first["levels"][0]["level_index"] == 1


def test_a_game_that_was_not_played_is_in_the_result(driver: Path):
    drive(driver, "ky01", STEP)
    assert collect(driver, "--sessions-dir", "sessions").returncode == 0
    states = {game["game_id"]: game["state"] for game in load(driver / "result.json")["games"]}
    assert states["od01-v1"] == "NOT_PLAYED"


def test_the_collector_needs_sessions_or_a_result(driver: Path, made: Path):
    done = collect(driver)
    assert done.returncode == 1
    assert "--sessions-dir or --results-file required" in done.stderr
    assert collect(driver, "--results-file", str(cross(made) / "result.json")).returncode == 0


def test_options_of_the_collector_have_the_defaults_of_the_plan(driver: Path):
    drive(driver, "ky01", STEP)
    assert collect(driver, "--sessions-dir", "sessions").returncode == 0
    result = load(driver / "result.json")
    assert (result["harness"], result["seed"]) == ("codex", 0)
    assert result["metadata"]["model"] == result["metadata"]["version"] == "unknown"
    assert result["metadata"]["notes"] == ""


SECTIONS = [
    *("Prerequisites", "Environment Setup", "1. Install arc-agi", "2. Verify Installation"),
    *("3. Environment Files", "Game Set", "Game Interaction Protocol", "How ARC-AGI Games Work"),
    *("Grid Interpretation", "Using the Game Driver", "Game States", "Action Space"),
    *("Strategy Tips", "Scoring Reference", "Result Collection", "Manual Result File"),
    "Importing Results",
]


@pytest.fixture(scope="module")
def instructions(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """What is generated for each harness."""
    folder = tmp_path_factory.mktemp("instructions")
    texts = {}
    for harness in HARNESSES:
        done = assay(folder, "generate", harness, "--games", "ky01,mx01", "--seed", 5)
        assert done.returncode == 0, done.stderr
        texts[harness] = (
            folder / STORE / "cross-harness" / harness / "instructions.md"
        ).read_text()
    return texts


@pytest.mark.parametrize("harness", HARNESSES)
def test_the_head_of_the_instructions(harness: str, instructions: dict[str, str]):
    text = instructions[harness]
    assert f"**Target harness**: {harness}" in text
    for words in (
        "**Generated**: 20", "**Reference run**: none", "**Game set**: 2 games", "**Seed**: 5",
        "**Max steps per game**: 500", "**Max resets per game**: 10",
    ):  # fmt: skip
        assert words in text


@pytest.mark.parametrize("section", SECTIONS)
def test_a_section_of_the_instructions(section: str, instructions: dict[str, str]):
    for text in instructions.values():
        headings = [line.strip("# ") for line in text.splitlines() if line.startswith("#")]
        assert section in headings


def test_the_instructions_stand_alone(instructions: dict[str, str]):
    for harness, text in instructions.items():
        for words in (
            "Python >= 3.12", "pip install arc-agi", "uv add arc-agi", "ky01-v1, mx01-v1",
            '["ky01-v1","mx01-v1"]', "<game_id> 5", '"is_complex": true',
            '{"command": "reset"}', '{"command": "quit"}', "| PLAYING |", "| WIN |",
            "| GAME_OVER |", "available_actions", "Fewer actions = higher score",
            f"--harness {harness}", "--seed 5", '--model "', '--version "', '--notes "',
            f"assay arc import {harness}",
        ):  # fmt: skip
            assert words in text, (harness, words)


def test_the_formulas_of_the_instructions_are_those_of_the_seed(instructions: dict[str, str]):
    text = instructions["codex"]
    for words in (
        "min((baseline_actions / actions_taken) ** 2, 1.0) if completed else 0.0",
        "sum(level_score[i] * (i+1) for i in 0..N-1) / sum(1..N)",
        "overall_score = average(all game scores)",
    ):
        assert words in text


def test_the_example_result_of_the_instructions_is_valid_json(instructions: dict[str, str]):
    for text in instructions.values():
        part = text.partition("### Manual Result File")[2]
        example = re.search(r"```json\n(.*?)```", part, re.DOTALL)
        assert example is not None
        result = json.loads(example[1])
        assert {*RESULT, "metadata"} <= result.keys()
        assert {*GAME, "levels"} <= result["games"][0].keys()
        assert set(LEVEL) <= result["games"][0]["levels"][0].keys()


GUIDANCE = {
    "codex": ("Sandbox Awareness", "Execution Model", "Running Codex", "Prompt Template"),
    "gemini": ("Running Gemini CLI", "Prompt Structure", "Multi-Turn Context"),
    "opencode": ("Configuration", "Running OpenCode", "Execution Model"),
}


@pytest.mark.parametrize("harness", HARNESSES)
def test_the_guidance_is_that_of_the_harness(harness: str, instructions: dict[str, str]):
    text = instructions[harness]
    assert "## Harness-Specific Guidance: " in text
    for section in GUIDANCE[harness]:
        assert f"### {section}" in text
    for other in HARNESSES:
        command = {"codex": "codex exec", "gemini": "gemini -p", "opencode": "opencode run"}[other]
        assert (command in text) == (other == harness)


def test_hints_of_the_guidance(instructions: dict[str, str]):
    assert "--json" in instructions["codex"]
    assert "5 minutes" in instructions["gemini"]
    assert "--output-format json" in instructions["gemini"]
    assert "`opencode.json` (no leading dot)" in instructions["opencode"]


META = [
    *("run_id", "harness", "timestamp", "duration_seconds", "game_set", "game_ids", "seed"),
    *("max_steps", "max_resets", "config_hash", "harness_config", "status", "arc_agi_version"),
    "plugin_version",
]


@pytest.mark.parametrize("field", META)
def test_a_field_of_run_meta(field: str, made: Path):
    (native,) = (made / STORE / "runs").iterdir()
    for run in (imported(made), native):
        assert field in load(run / "run-meta.json")


def test_run_meta_of_an_import(made: Path):
    meta = load(imported(made) / "run-meta.json")
    assert (meta["game_set"], meta["status"], meta["harness"]) == ("imported", "completed", "codex")
    assert meta["game_ids"] == ["ky01-v1", "mx01-v1"]
    assert meta["harness_config"].keys() >= {"model", "plugins", "skills", "mcp_servers"}
    assert (meta["harness_config"]["model"], meta["max_steps"], meta["max_resets"]) == (
        "m-1",
        500,
        10,
    )
    assert meta["run_id"] == imported(made).name


CARD = [
    *("card_id", "source_url", "tags", "opaque", "competition_mode", "score", "games"),
    *("total_environments_completed", "total_environments", "total_levels_completed"),
    *("total_levels", "total_actions", "tags_scores"),
]


@pytest.mark.parametrize("field", CARD)
def test_a_field_of_the_scorecard(field: str, made: Path):
    (native,) = (made / STORE / "runs").iterdir()
    for run in (imported(made), native):
        assert field in load(run / "scorecard.json")


PLAY = [
    *("id", "guid", "score", "levels_completed", "actions", "resets", "state", "completed"),
    *("level_scores", "level_actions", "level_baseline_actions", "number_of_levels"),
]


@pytest.mark.parametrize("field", PLAY)
def test_a_field_of_a_play_in_the_scorecard(field: str, made: Path):
    for game in load(imported(made) / "scorecard.json")["games"]:
        assert {"id", "score", "runs"} <= game.keys()
        assert all(field in play for play in game["runs"])


def test_levels_are_padded_to_the_number_of_levels(made: Path):
    for game in load(imported(made) / "scorecard.json")["games"]:
        (play,) = game["runs"]
        n = play["number_of_levels"]
        lists = ("level_scores", "level_actions", "level_baseline_actions")
        assert [len(play[name]) for name in lists] == [n, n, n]


ENVIRONMENT = [
    *("game_id", "title", "tags", "score", "levels_completed", "total_levels", "total_actions"),
    *("total_resets", "state", "completed", "levels"),
]


@pytest.mark.parametrize("field", ENVIRONMENT)
def test_a_field_of_the_environment_scores(field: str, made: Path):
    scores = load(imported(made) / "environment-scores.json")
    assert {"run_id", "overall_score", "environments"} <= scores.keys()
    assert all(field in environment for environment in scores["environments"])
    levels = [level for one in scores["environments"] for level in one["levels"]]
    assert all({*LEVEL, "score"} <= level.keys() for level in levels)


def test_the_card_is_from_0_to_1_and_environments_from_0_to_100(tmp_path: Path):
    """One level of five at twice its baseline: (1/2)^2 * 1 / 15."""
    result = hand_made(tmp_path)
    assert assay(tmp_path, "import", "codex", result).returncode == 0
    card = load(imported(tmp_path) / "scorecard.json")
    scores = load(imported(tmp_path) / "environment-scores.json")
    assert card["score"] == pytest.approx(0.25 / 15)
    assert scores["overall_score"] == pytest.approx(25 / 15)
    assert scores["environments"][0]["score"] == pytest.approx(25 / 15)
    assert scores["environments"][0]["levels"][0]["score"] == pytest.approx(25)


def hand_made(folder: Path, **changes: Any) -> Path:
    """Write a result without logs: level 1 of ky01 (baseline 10) in 20 actions."""
    level = {"level_index": 1, "completed": True, "actions_taken": 20, "baseline_actions": 10}
    game = {"game_id": "ky01-v1", "state": "GAME_OVER", "levels_completed": 1, "total_levels": 5}
    game |= {"total_actions": 20, "total_resets": 0, "levels": [level]}
    result = {"schema_version": "1.0.0", "harness": "codex", "seed": 0, "games": [game]}
    result |= {"timestamp": "2026-01-01T00:00:00+00:00", "metadata": {"model": "m"}}
    path = folder / "result.json"
    path.write_text(json.dumps(result | changes))
    return path


TOP = ("schema_version", "harness", "timestamp", "seed", "games", "metadata")


@pytest.mark.parametrize("field", TOP)
def test_a_required_field_of_a_result(field: str, tmp_path: Path):
    path = hand_made(tmp_path)
    path.write_text(json.dumps({k: v for k, v in load(path).items() if k != field}))
    done = assay(tmp_path, "import", "codex", path)
    assert done.returncode == 1
    assert f"Missing required field: {field}" in done.stderr


@pytest.mark.parametrize("field", [*GAME, "levels"])
def test_a_required_field_of_a_game(field: str, tmp_path: Path):
    path = hand_made(tmp_path)
    result = load(path)
    del result["games"][0][field]
    path.write_text(json.dumps(result))
    done = assay(tmp_path, "import", "codex", path)
    assert done.returncode == 1
    assert f"Missing required field: games[0].{field}" in done.stderr


@pytest.mark.parametrize("field", LEVEL)
def test_a_required_field_of_a_level(field: str, tmp_path: Path):
    path = hand_made(tmp_path)
    result = load(path)
    del result["games"][0]["levels"][0][field]
    path.write_text(json.dumps(result))
    done = assay(tmp_path, "import", "codex", path)
    assert done.returncode == 1
    assert f"Missing required field: games[0].levels[0].{field}" in done.stderr
    assert not (tmp_path / STORE / "cross-harness" / "codex" / "runs").exists() or not list(
        (tmp_path / STORE / "cross-harness" / "codex" / "runs").iterdir()
    )


def test_a_missing_or_broken_result_file_is_named(tmp_path: Path):
    done = assay(tmp_path, "import", "codex", "gone.json")
    assert done.returncode == 1
    assert "Result file not found: gone.json" in done.stderr
    (tmp_path / "bad.json").write_text("{")
    broken = assay(tmp_path, "import", "codex", "bad.json")
    assert broken.returncode == 1
    assert "JSON" in broken.stderr


def test_other_versions_and_harnesses_only_warn(tmp_path: Path):
    path = hand_made(tmp_path, harness="gemini", schema_version="2.0.0")
    done = assay(tmp_path, "import", "codex", path)
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("WARNING: ") == 2
    assert "does not match" in done.stderr
    assert "2.0.0" in done.stderr


def test_the_formula_version_may_be_missing(tmp_path: Path):
    done = assay(tmp_path, "import", "codex", hand_made(tmp_path))
    assert done.returncode == 0, done.stderr
    assert "WARNING" not in done.stderr


def test_the_same_result_is_imported_once(tmp_path: Path):
    path = hand_made(tmp_path)
    assert assay(tmp_path, "import", "codex", path).returncode == 0
    again = assay(tmp_path, "import", "codex", path)
    assert again.returncode == 1
    assert "Duplicate import detected" in again.stderr
    assert imported(tmp_path).name in again.stderr


def test_the_report_of_an_import(said: dict[str, str], made: Path):
    run = imported(made).name
    for words in (
        "Imported results from codex:", f"Run ID:          {run}", "Games:           2",
        "Overall Score:   ", "/ 100", "Levels Complete: 0 / ", "Stored at:       ",
        f"cross-harness/codex/runs/{run}/",
    ):  # fmt: skip
        assert words in said["import"]


def test_a_comparison_is_suggested_and_not_started(said: dict[str, str], made: Path):
    (native,) = (made / STORE / "runs").iterdir()
    assert f"is available (latest: {native.name})" in said["import"]
    assert f"assay arc compare {native.name} {imported(made).name}" in said["import"]
    assert not (made / STORE / "comparisons").exists()


def test_compare_finds_runs_of_all_harnesses(here: Path):
    (native,) = (here / STORE / "runs").iterdir()
    done = assay(here, "compare", native.name, imported(here).name, "--format", "json")
    assert done.returncode == 0, done.stderr
    assert [run["run_id"] for run in json.loads(done.stdout)["runs"]] == [
        native.name, imported(here).name,
    ]  # fmt: skip


def test_compare_all_takes_the_latest_of_each_harness(here: Path):
    path = hand_made(here, harness="gemini")
    assert assay(here, "import", "gemini", path).returncode == 0
    done = assay(here, "compare", "--all", "--format", "json")
    assert done.returncode == 0, done.stderr
    assert sorted(run["harness"] for run in json.loads(done.stdout)["runs"]) == [
        *("codex", "gemini", "search"),
    ]


def test_fewer_than_two_runs_cannot_be_compared(tmp_path: Path):
    assert assay(tmp_path, "import", "codex", hand_made(tmp_path)).returncode == 0
    done = assay(tmp_path, "compare", "--all")
    assert done.returncode == 1
    assert "Fewer than 2 runs available for comparison." in done.stderr
    for step in ("assay arc run", "assay arc generate", "assay arc import", "compare --all"):
        assert step in done.stderr


def test_nothing_of_another_harness_is_started(tmp_path: Path):
    """Programs with the names of the harnesses would leave a mark."""
    programs = tmp_path / "bin"
    programs.mkdir()
    for name in HARNESSES:
        (programs / name).write_text(f"#!/bin/sh\ntouch {tmp_path}/started\n")
        (programs / name).chmod(0o755)
    path = f"{programs}:{os.environ['PATH']}"
    for harness in HARNESSES:
        assert assay(tmp_path, "generate", harness, PATH=path).returncode == 0
    assert assay(tmp_path, "import", "codex", hand_made(tmp_path), PATH=path).returncode == 0
    assert not (tmp_path / "started").exists()
