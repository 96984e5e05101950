"""The generated folder: real programs that need only arc-agi, and results that verify here."""

import ast
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from assay_arc.generate import TEMPLATES, HarnessPlan, generate, instructions
from assay_arc.generated import collect_results, game_driver
from assay_arc.log import read_log
from assay_arc.scoring import derive_result

DRIVER = "game_driver.py"


def make_plan(games, names=("ky01-v1",), **changes) -> HarnessPlan:
    fields = {
        "harness": "codex",
        "games": tuple(games[name] for name in names),
        "seed": 0,
        "max_steps": 500,
        "max_resets": 10,
        "ref_run_id": "none",
        "generated": "2026-01-01T00:00:00+00:00",
        "with_games": True,
    }
    return HarnessPlan(**fields | changes)


@pytest.fixture
def folder(tmp_path, games) -> Path:
    generate(make_plan(games), tmp_path / "codex")
    return tmp_path / "codex"


def drive(folder: Path, *commands, arguments=("ky01-v1", "0"), raw=()) -> list[dict]:
    """Run the driver as a stranger would: its own folder, no package of ours on its path."""
    lines = [*(json.dumps(command) for command in commands), *raw]
    env = {"PATH": os.defpath, "HOME": str(folder), "OPERATION_MODE": "online"}
    done = subprocess.run(
        [sys.executable, "-P", folder / DRIVER, *arguments],
        input="".join(f"{line}\n" for line in lines),
        cwd=folder,
        env=env,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def act(name: str, **more) -> dict:
    return {"command": "step", "action": name, **more}


def test_01_the_generator_writes_files_and_runs_nothing(folder, games):
    for name in (DRIVER, "collect_results.py"):
        tree = ast.parse((folder / name).read_text())
        imported = {
            (node.module or "") if isinstance(node, ast.ImportFrom) else alias.name
            for node in ast.walk(tree)
            if isinstance(node, ast.Import | ast.ImportFrom)
            for alias in node.names
        }
        outside = {name.split(".")[0] for name in imported} - set(sys.stdlib_module_names)
        assert outside <= {"arc_agi", "arcengine"}
    text = (folder / "instructions.md").read_text()
    assert text.count("```") % 2 == 0
    assert text.count("```") >= 20
    assert "{{" not in text
    assert "pip install arc-agi" in text
    assert '["ky01-v1"]' in text
    assert "assay arc import codex <path-to-result.json>" in text
    assert "--sessions-dir ./sessions \\\n" in text


@pytest.mark.parametrize("harness", ["codex", "gemini", "opencode"])
def test_the_instructions_have_each_harness_s_own_section(games, harness):
    text = instructions(make_plan(games, harness=harness, with_games=False))
    command = {"codex": "codex exec", "gemini": "gemini -p", "opencode": "opencode run"}[harness]
    assert command in text
    assert "or tell it where they are with `--env-dir FOLDER`" in text
    assert "typically 5" not in text
    assert "0 = background" not in text


def test_settings_with_strange_text_are_data_and_not_code(tmp_path, games):
    evil = "'; import os; os.system('touch owned') #`touch owned`$(touch owned)"
    generate(make_plan(games, harness="codex", ref_run_id=evil), tmp_path / "out")
    settings = {"harness": evil, "games": {}}
    from assay_arc.generate import fill_program

    program = tmp_path / "p.py"
    program.write_bytes(fill_program(TEMPLATES / "collect_results.py", settings))
    subprocess.run([sys.executable, program, "--help"], cwd=tmp_path, capture_output=True)
    assert not list(tmp_path.rglob("owned"))


def test_copied_games_have_no_baselines_and_the_same_source(folder, games):
    [metadata] = (folder / "environment_files").rglob("metadata.json")
    assert "baseline_actions" not in json.loads(metadata.read_text())
    source = metadata.with_name("ky01.py")
    assert source.read_bytes() == games["ky01-v1"].source.read_bytes()


def test_02_03_04_16_24_the_driver_speaks_clean_json_offline_and_tells_no_baseline(folder):
    answers = drive(folder, act("ACTION4"), act("ACTION4", reasoning="x" * 20_000))
    assert [answer["state"] for answer in answers] == ["PLAYING"] * 3
    first = answers[0]
    assert (len(first["frame"]), len(first["frame"][0]), len(first["frame"][0][0])) == (1, 64, 64)
    assert first["total_levels"] == 5
    assert first["baseline_actions"] is None
    assert [a["is_complex"] for a in first["available_actions"]] == [False] * 4
    log = read_log(folder / "sessions" / "ky01-v1.jsonl")
    assert log.header.baselines is None
    assert derive_result(log).steps == 2


def test_10_15_25_bad_lines_get_a_message_and_cost_nothing(folder):
    bad = ["[1, 2]", "null", "{", '{"command":"dance"}', '{"command":"step"}']
    bad += [json.dumps(act("ACTION6")), json.dumps(act("RESET")), json.dumps(act("ACTION5"))]
    answers = drive(folder, raw=bad)
    errors = [answer["error"] for answer in answers[1:]]
    assert errors[2] == "Invalid JSON"
    assert errors[3] == "Unknown command: dance"
    assert errors[4] == "Unknown action: "
    assert errors[6] == "Unknown action: RESET"
    assert errors[7] == "Action not available: ACTION5"
    result = derive_result(read_log(folder / "sessions" / "ky01-v1.jsonl"))
    assert (result.steps, result.rejected) == (0, len(bad))


def test_23_limits_hold_over_restarts_and_a_torn_line_is_mended(folder, games):
    generate(make_plan(games, max_steps=3), folder)
    drive(folder, act("ACTION4"), act("ACTION4"), arguments=("ky01", "0", "--max-steps", "99"))
    log = folder / "sessions" / "ky01-v1.jsonl"
    with log.open("ab") as file:
        file.write(b'{"type":"event","se')
    answers = drive(folder, act("ACTION4"), act("ACTION4"), act("ACTION4"))
    assert answers[0]["step"] == 2
    assert answers[1]["step"] == 3
    assert answers[2] == {"error": "Max steps exceeded", "done": True}
    assert len(answers) == 3
    result = derive_result(read_log(log))
    assert (result.steps, result.stop_reason) == (3, "step_limit")


def test_the_driver_refuses_another_version_and_an_unknown_game(folder):
    def refused(*arguments):
        done = subprocess.run(
            [sys.executable, folder / DRIVER, *arguments], capture_output=True, text=True
        )
        assert done.returncode == 1
        assert done.stdout == ""
        return done.stderr

    assert "Game nope not found" in refused("nope", "0")
    [source] = (folder / "environment_files").rglob("ky01.py")
    source.write_text(source.read_text() + "\n# changed\n")
    assert "not the version" in refused("ky01-v1", "0")


class Frames:
    """Stands in for the engine's answers: (state, levels, full reset) in order."""

    def __init__(self, *answers):
        self._answers = iter(answers)
        self.seed_used = False

    def start(self):
        return self.act("RESET", None, None)

    def act(self, action, x, y):
        state, levels, full = next(self._answers)
        return {
            "grids": [],
            "state": state,
            "levelsCompleted": levels,
            "winLevels": 3,
            "fullReset": full,
            "availableActions": [1, 6],
            "nFrames": 1,
            "frameSha256": f"{state}{levels}",
            "frames": "",
        }


def scripted(path: Path, commands, *answers, limits=None):
    log = game_driver.SessionLog(path)
    header = {
        "type": "header",
        "schema": "assay-arc-log/1",
        "gameId": "g-1",
        "sourceSha256": "0",
        "baselines": None,
        "levelCount": 0,
        "toolkitVersion": "0",
        "engineVersion": "0",
        "seed": 0,
        "limits": limits or {"maxSteps": None, "maxResets": None},
        "startedAt": "2026-01-01T00:00:00+00:00",
    }
    driver = game_driver.Driver(Frames(*answers), log, header)
    said = [driver.handle(json.dumps(command)) for command in commands]
    log._file.close()
    return said


def test_09_14_the_collector_counts_resets_errors_and_two_levels_in_one_step(tmp_path):
    path = tmp_path / "g-1.jsonl"
    playing, over = "NOT_FINISHED", "GAME_OVER"
    scripted(
        path,
        [act("ACTION1"), act("ACTION9"), {"command": "reset"}, act("ACTION1"), act("ACTION1")],
        (playing, 0, True),
        (over, 0, False),
        (playing, 0, False),
        (playing, 2, False),
        ("WIN", 3, False),
    )
    with path.open("ab") as file:
        file.write(b'{"torn')
    row = collect_results.collect_game(path)
    assert [level["actions_taken"] for level in row["levels"]] == [3, 0, 1]
    assert (row["state"], row["levels_completed"], row["total_levels"]) == ("WIN", 3, 3)
    assert (row["total_actions"], row["total_resets"]) == (3, 1)
    ours = derive_result(read_log(path)).plays[0]
    assert [level.actions for level in ours.levels] == [3, 0, 1]


def test_11_12_ending_on_an_error_or_a_new_game_keeps_the_best_play(tmp_path):
    path = tmp_path / "g-1.jsonl"
    playing = "NOT_FINISHED"
    scripted(
        path,
        [act("ACTION1"), {"command": "reset"}, {"command": "reset"}, act("ACTION1"), act("JUMP")],
        (playing, 0, True),
        (playing, 1, False),
        (playing, 1, False),
        (playing, 0, True),
        (playing, 0, False),
    )
    row = collect_results.collect_game(path)
    assert (row["levels_completed"], row["plays"], row["state"]) == (1, 2, playing)
    assert [level["completed"] for level in row["levels"]] == [True, False, False]


def test_after_game_over_without_resets_the_driver_is_done(tmp_path):
    said = scripted(
        tmp_path / "g.jsonl",
        [act("ACTION1"), act("ACTION1"), {"command": "reset"}],
        ("NOT_FINISHED", 0, True),
        ("GAME_OVER", 0, False),
        limits={"maxSteps": None, "maxResets": 0},
    )
    assert said[1]["error"].startswith("Game over")
    assert said[2] == {"error": "Max resets exceeded", "done": True}


def test_25_the_collector_checks_a_result_file_for_real(tmp_path, capsys):
    path = tmp_path / "result.json"
    good = {
        "schema_version": "1.0.0",
        "harness": "codex",
        "timestamp": "2026-01-01T00:00:00",
        "seed": 0,
        "games": [],
        "metadata": {},
    }
    path.write_text(json.dumps(good))
    assert collect_results.main(["--results-file", str(path)]) == 0
    row = {"game_id": "g", "state": "BANANA", "levels": [{"level_index": "1"}]}
    path.write_text(json.dumps(good | {"seed": "5", "games": [row, "x"]}))
    assert collect_results.main(["--results-file", str(path)]) == 1
    said = capsys.readouterr().err
    for words in (
        "Schema validation errors:",
        "Missing required field: games[0].levels_completed",
        "Missing required field: games[0].levels[0].baseline_actions",
        "games[0].levels[0].level_index must be of type int",
        "games[0].state must be one of",
        "seed must be of type int",
        "games[1] must be an object",
    ):
        assert words in said


def test_the_collector_refuses_what_is_no_session_log(tmp_path, capsys):
    (tmp_path / "g.jsonl").write_text('{"type": "picture", "data": {}}\n')
    assert collect_results.main(["--sessions-dir", str(tmp_path)]) == 1
    assert "not a session log" in capsys.readouterr().err
    assert collect_results.main([]) == 1
    assert "required" in capsys.readouterr().err


def test_two_drivers_can_not_play_into_one_log(tmp_path):
    log = game_driver.SessionLog(tmp_path / "s" / "g.jsonl")
    with pytest.raises(game_driver.DriverError, match="in use"):
        game_driver.SessionLog(tmp_path / "s" / "g.jsonl")
    log._file.close()


def test_the_log_of_another_seed_is_not_gone_on_with(tmp_path, folder):
    drive(folder, act("ACTION4"))
    shutil.copy(folder / "sessions" / "ky01-v1.jsonl", tmp_path / "copy")
    done = subprocess.run(
        [sys.executable, folder / DRIVER, "ky01-v1", "7"],
        input="",
        capture_output=True,
        text=True,
    )
    assert done.returncode == 1
    assert "its seed is 0, here it is 7" in done.stderr
    assert (folder / "sessions" / "ky01-v1.jsonl").read_bytes() == (tmp_path / "copy").read_bytes()


SECTIONS = {
    "codex": ["Sandbox Awareness", "Execution Model", "Running Codex", "Prompt Template"],
    "gemini": ["Tool Use", "Running Gemini CLI", "Execution Model", "Prompt Structure"],
    "opencode": ["Configuration", "Running OpenCode", "Backend Flexibility", "Execution Model"],
}
MORE = {"codex": [], "gemini": ["Multi-Turn Context"], "opencode": ["Session Management"]}


@pytest.mark.parametrize("harness", SECTIONS)
def test_the_sections_of_the_reference_are_there_with_the_limitations(games, harness):
    text = instructions(make_plan(games, harness=harness))
    titles = [line.removeprefix("### ") for line in text.splitlines() if line.startswith("### ")]
    for title in (*SECTIONS[harness], *MORE[harness], "Limitations"):
        assert titles.count(title) == 1, title
    for title in ("Automated Collection", "Manual Result File", "Result Template"):
        assert titles.count(title) == 1, title


def test_the_result_template_writes_a_valid_result(folder, monkeypatch, capsys):
    text = (folder / "instructions.md").read_text()
    program = text.partition("### Result Template")[2].partition("```python\n")[2]
    subprocess.run([sys.executable, "-c", program.partition("```")[0]], cwd=folder, check=True)
    result = json.loads((folder / "result.json").read_text())
    assert [game["game_id"] for game in result["games"]] == ["ky01-v1"]
    assert (result["harness"], result["seed"]) == ("codex", 0)
    assert collect_results.main(["--results-file", str(folder / "result.json")]) == 0


def shell(folder: Path, command: str, path: str = "/usr/bin:/bin") -> "subprocess.CompletedProcess":
    """Run a command as a harness does: in the folder, without the user's PATH."""
    env = {"PATH": path, "HOME": str(folder)}
    return subprocess.run(
        ["bash", "-c", command], cwd=folder, env=env, capture_output=True, text=True, timeout=60
    )


def block_after(text: str, title: str) -> str:
    return text.partition(title)[2].partition("```bash\n")[2].partition("```")[0].strip()


def test_the_instructions_for_games_that_are_not_copied_name_no_folder_of_ours(tmp_path, arc):
    place = tmp_path / "my games"
    info = arc.write_game(place, [3, 3, 3, 3])
    plan = make_plan({"zz01-v1": info}, ["zz01-v1"], with_games=False, env_dir=str(place))
    generate(plan, tmp_path / "out")
    text = (tmp_path / "out" / "instructions.md").read_text()
    for title in ("### 3. Environment Files", "### Using the Game Driver", "### Execution Model"):
        command = block_after(text, title).replace("<game_id>", "zz01-v1")
        assert str(tmp_path) not in text
        done = shell(tmp_path / "out", f"{command} < /dev/null" if "|" not in command else command)
        assert done.returncode == 0, done.stderr
        assert json.loads(done.stdout.splitlines()[0])["state"] == "PLAYING"
    # Also without the option, where the games still are.
    done = shell(tmp_path / "out", "./game_driver zz01-v1 0 < /dev/null")
    assert json.loads(done.stdout)["step"] == 1


def test_the_launchers_find_their_python(folder, tmp_path):
    done = shell(folder, "./game_driver ky01-v1 0 < /dev/null", path="/nowhere:/usr/bin:/bin")
    assert done.returncode == 0, done.stderr
    # Carried to a machine where another Python has the toolkit.
    (folder / ".python").write_text("/no/such/python\n")
    lost = shell(folder, "cd / && $OLDPWD/game_driver ky01-v1 0")
    assert lost.returncode == 1
    assert "game_driver.py --check" in lost.stderr
    checked = subprocess.run([sys.executable, folder / DRIVER, "--check"], capture_output=True)
    assert checked.stdout == b"OK\n"
    done = shell(folder, "cd / && $OLDPWD/game_driver ky01-v1 0 < /dev/null")
    assert done.returncode == 0, done.stderr
    assert "Games: 1" in shell(folder, "./collect_results --sessions-dir sessions").stdout


def test_a_second_generate_starts_with_no_sessions(folder, games):
    drive(folder, act("ACTION4"))
    assert collect_results.main(
        ["--sessions-dir", str(folder / "sessions"), "--output", str(folder / "result.json")]
    ) == 0  # fmt: skip
    for number in (1, 2):
        summary = generate(make_plan(games), folder)
        assert summary["earlier"] == str(folder / f"earlier-{number}")
        assert not (folder / "sessions").exists()
        assert not (folder / "result.json").exists()
        assert len(list((folder / f"earlier-{number}" / "sessions").iterdir())) == 1
        [seen] = drive(folder)
        assert seen["step"] == 0
    (folder / "environment_files" / "old").mkdir()
    generate(make_plan(games, with_games=False), folder)
    assert not (folder / "environment_files").exists()


def test_an_unknown_game_is_named_and_left_out(assay, tmp_path):
    done = assay("arc", "generate", "gemini", "--games", "ky01,nope,od01", "--games", "no-tag")
    assert done.code == 0, done.stderr
    assert "WARNING: Games not found: nope, no-tag" in done.stderr
    assert "2 games" in done.stdout
    none = assay("arc", "generate", "gemini", "--games", "nope")
    assert none.code == 1
    assert "Game nope not found" in none.stderr


def test_settings_that_a_user_added_survive_a_second_generate(tmp_path, games):
    folder = tmp_path / "opencode"
    generate(make_plan(games, harness="opencode"), folder)
    path = folder / "opencode.json"
    mine = json.loads(path.read_text()) | {"model": "mine"}
    assert mine["permission"] == "allow"
    path.write_text(json.dumps(mine))
    generate(make_plan(games, harness="opencode"), folder)
    assert json.loads(path.read_text()) == mine
