"""assay arc: play with built-in players, report, compare, verify, rescore, replay; kill and resume.

One real run of two players is shared by most tests: it is what a user would have after a minute.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
from click.testing import CliRunner

from assay.cli.group import run_command
from assay.errors import AssayError
from assay.viewer.index import Index
from assay.viewer.library import game_log
from assay_arc.cards import read_card
from assay_arc.commands import COMMANDS, command
from assay_arc.commands import demo as arc_demo
from assay_arc.log import read_log
from assay_arc.store import Store

STORE = ".arc-agi-benchmarks"


class Outcome:
    """How an in-process call ended."""

    def __init__(self, result) -> None:
        error = result.exception
        self.code = result.exit_code
        self.out = result.output
        self.error = error
        if isinstance(error, AssayError):
            self.code, self.out = error.exit_code, f"{result.output}{error.message} {error.hint}"
        elif error is not None and not isinstance(error, SystemExit):
            raise error


@pytest.fixture(scope="module")
def played(made_once, warm_assays) -> Path:
    """A folder in which random and search have played three games, twice each."""
    arguments = ["random", "search", "--games", "od01,tg01,ky01", "-k", "2", "-j", "3", "-q"]
    arguments += ["--max-steps", "60", "--max-resets", "3"]

    def play(folder):
        done = warm_assays.run(["arc", "run", *arguments], folder, os.environ, b"", 240)
        assert done.returncode == 0, done.stderr
        (folder / "said").write_bytes(done.stdout)

    return made_once("arc-played", play)


@pytest.fixture
def here(played, tmp_path, monkeypatch) -> Path:
    """A copy of that folder that a test may spoil."""
    shutil.copytree(played, tmp_path / "p")
    monkeypatch.chdir(tmp_path / "p")
    return tmp_path / "p"


def arc(*words) -> Outcome:
    return Outcome(CliRunner().invoke(command, [str(word) for word in words]))


def run_ids(here: Path) -> dict[str, str]:
    return {run.meta.harness: run.meta.run_id for run in Store(here / STORE).native()}


def test_no_sub_command_shows_the_table():
    done = arc()
    assert done.code == 0
    for name in COMMANDS:
        assert f"assay arc {name}" in done.out
    wrong = arc("comprae")
    assert wrong.code == 2
    assert "Did you mean 'compare'?" in wrong.out


def test_a_run_has_the_seeds_files_with_scores_from_its_logs(here, read_rows):
    said = (here / "said").read_text()
    assert "Game: od01-v1 | State: " in said
    assert "assay arc compare" in said
    for run in Store(here / STORE).native():
        meta = json.loads((run.folder / "run-meta.json").read_text())
        assert (meta["status"], meta["verified"], meta["trials"]) == ("completed", "recorded", 2)
        assert meta["game_ids"] == ["od01-v1", "tg01-v1", "ky01-v1"]
        assert len(meta["config_hash"]) == 64
        card = json.loads((run.folder / "scorecard.json").read_text())
        assert [game["id"] for game in card["games"]] == ["ky01-v1", "od01-v1", "tg01-v1"]
        assert card["total_levels"] == 2 * 15
        scores = json.loads((run.folder / "environment-scores.json").read_text())
        assert scores["overall_score"] == pytest.approx(card["score"] * 100)
        games = read_rows(run.folder / "results.jsonl")
        assert [(row["id"], row["k"]) for row in sorted(games, key=lambda row: row["id"])] == [
            ("ky01-v1", 2),
            ("od01-v1", 2),
            ("tg01-v1", 2),
        ]
        for row in (trial for game in games for trial in game["trials"]):
            evidence = row["metadata"]["evidence"]
            log = read_log(run.folder / evidence["log"])
            assert evidence["result"]["steps"] <= 60
            assert log.header.limits.max_steps == 60
            assert row["trajectory"][0]["type"] == "tool_call"
            assert (run.folder / row["raw"] / "1.out").is_file()
            assert row["score"] * 100 == pytest.approx(
                evidence["scores"]["official"]["scorePercent"]
            )
    assert not list(here.glob("assay-*"))


def results(here: Path) -> list[Path]:
    return [run.folder / "results.jsonl" for run in Store(here / STORE).native()]


def test_repeats_are_trials_of_a_game_for_compare_too(here, assay):
    compared = json.loads(assay("compare", *results(here)).stdout)
    assert (compared["meta"]["promptCount"], compared["meta"]["trialsPerPrompt"]) == (3, 2)
    assert compared["health"][compared["meta"]["runs"][0]]["run"] == 6
    for run, label in zip(Store(here / STORE).native(), compared["meta"]["runs"], strict=True):
        card, measures = read_card(run), compared["measures"][label]
        assert measures["official %"] == pytest.approx(card.score_percent)
        assert measures["levels"] == pytest.approx(card.total_levels_completed / 6)
        assert measures["actions"] == pytest.approx(card.total_actions / 6)
    text = assay("compare", *results(here), "--format", "markdown").stdout
    assert "## Measures, mean of a trial" in text
    assert "| run | official % | levels | actions |" in text


def test_repeats_are_trials_for_report_view_and_plan(here, assay):
    short = assay("report", *results(here), "--format", "markdown").stdout
    assert "a trial on average: official %" in short
    assert "6 of 6 trials run, 6 graded" in short
    page = assay("report", *results(here), "-o", "r.html", cwd=here)
    assert page.code == 0, page.stderr
    index = Index(results(here)[0])
    index.refresh()
    assert (index.kind, index.meta.n_rows, index.meta.n_trials) == ("trials", 3, 6)
    entry = json.loads(index.line(0))["trials"][1]
    assert game_log(index.path.parent, entry).is_file()
    index.close()
    plan = assay("plan", results(here)[0], "--json")
    if plan.code == 0:
        assert json.loads(plan.stdout)["atHand"]["nTrials"] == 2
    else:  # nobody may have won anything
        assert "no variation" in plan.stderr


def test_trials_of_random_differ_but_a_fixed_seed_does_not(here):
    [run] = [r for r in Store(here / STORE).native() if r.meta.harness == "random"]
    clicks = [
        [(e.x, e.y) for e in read_log(path).events if e.action == "ACTION6"][:5]
        for path in sorted((run.folder / "logs").glob("*od01*"))
    ]
    assert len(clicks) == 2
    assert clicks[0] != clicks[1]


def test_report_in_all_formats_and_for_latest(here):
    text = arc("report").out
    for words in ("Per-Environment Breakdown", "Level Progression", "Overall Score", "/ 100"):
        assert words in text
    run = Store(here / STORE).find("latest")
    assert (run.folder / "report.md").read_text() == text
    data = json.loads(arc("report", run.meta.run_id[:8], "--format", "json").out)
    assert data["run_id"] == run.meta.run_id
    assert 0 <= data["overall_score"] <= 100
    assert len(data["games"]) == 3
    assert len(arc("report", "--format", "summary").out.splitlines()) == 4
    page = Path(arc("report", "--format", "html").out.strip()).read_text()
    assert page.startswith("<!doctype html>")
    assert "http://" not in page
    assert "https://" not in page


def test_missing_runs_are_named_with_what_there_is(here, tmp_path, monkeypatch):
    done = arc("report", "12345678")
    assert done.code == 1
    assert "Run 12345678 not found. Available runs:" in done.out
    assert all(run_id in done.out for run_id in run_ids(here).values())
    monkeypatch.chdir(tmp_path)
    assert "No completed runs found." in arc("report").out
    few = arc("compare", "--all")
    assert few.code == 1
    assert "Fewer than 2 runs available for comparison." in few.out
    assert "5. Compare: assay arc compare --all" in few.out


def test_a_broken_scorecard_says_so_and_is_left_out(here):
    ids = run_ids(here)
    card = here / STORE / "runs" / ids["random"] / "scorecard.json"
    card.write_text('{"games": [')
    done = arc("report", ids["random"])
    assert done.code == 1
    assert "status: completed" in done.out
    again = arc("compare", ids["random"], ids["search"])
    assert "WARNING" in again.out
    assert arc("rescore", ids["random"], "--write").code == 0
    assert arc("compare", ids["random"], ids["search"]).code == 0


def test_compare_tells_statistics_and_keeps_the_file(here):
    ids = run_ids(here)
    done = arc("compare", ids["random"][:8], ids["search"][:8])
    assert done.code == 0
    for words in ("## Verdict", "over 3 games", "Levels within 50 actions", "recorded"):
        assert words in done.out
    [path] = (here / STORE / "comparisons").iterdir()
    data = json.loads(path.read_text(), parse_constant=lambda name: pytest.fail(name))
    assert [run["run_id"] for run in data["runs"]] == [ids["random"], ids["search"]]
    assert data["environment_deltas"][0]["baseline_interval"]["level"] == 0.95
    both = arc("compare", "previous", "latest", "--format", "json")
    assert json.loads(both.out)["runs"][0]["run_id"] == ids["random"]
    assert arc("compare", ids["random"]).code == 2
    assert arc("compare", ids["random"], ids["random"]).code == 1


def test_verify_replays_every_log_and_finds_every_change(here):
    ids = run_ids(here)
    done = arc("verify", ids["random"])
    assert done.code == 0, done.out
    assert done.out.count("actions agree") == 6
    run = Store(here / STORE).find(ids["random"])
    assert run.meta.verified == "replayed"
    assert read_card(run).verified == "replayed"
    log = next(run.folder.glob("logs/*ky01*"))
    lines = log.read_bytes().splitlines(keepends=True)
    log.write_bytes(b"".join(lines[:-3]))
    changed = arc("verify", ids["random"])
    assert changed.code == 1
    assert "the log was changed after the run" in changed.out
    run = Store(here / STORE).find(ids["random"])
    assert run.meta.verified == "unverified"
    assert "[unverified]" in arc("report", ids["random"], "--format", "summary").out
    assert "UNVERIFIED" in arc("compare", ids["random"], ids["search"]).out


def test_rescore_recomputes_under_any_formula(here):
    ids = run_ids(here)
    data = json.loads(arc("rescore", ids["search"], "--json").out)
    assert set(data) == {
        "official",
        "first_play",
        "rhae-squared-1.15",
        "rhae-squared-1.00",
        "rhae-linear-1.00",
        "seed-1.0.0",
    }
    run = Store(here / STORE).find(ids["search"])
    assert data["official"]["score_percent"] == pytest.approx(read_card(run).score_percent)
    assert data["seed-1.0.0"]["score_percent"] == pytest.approx(read_card(run).score * 100)
    before = (run.folder / "scorecard.json").read_bytes()
    (run.folder / "scorecard.json").write_text("{}")
    assert arc("rescore", ids["search"], "--write").code == 0
    assert (run.folder / "scorecard.json").read_bytes() == before
    arc("rescore", ids["search"], "--write", "--formula", "rhae-linear-1.00")
    said = arc("compare", ids["random"], ids["search"]).out
    assert "different formulas" in said


def test_replay_tells_what_happened(here):
    done = arc("replay", "latest", "ky01", "--text", "--trial", "2")
    assert done.code == 0
    assert "0. RESET (new game)  NOT_FINISHED  level 1 of 5" in done.out
    assert "changed x" in done.out
    assert "levels, " in done.out.splitlines()[-1]
    assert "it has: ky01-v1" in arc("replay", "latest", "zz99").out
    assert "no trial 9" in arc("replay", "latest", "ky01", "--trial", "9").out


EVIL = "\x1b]0;pwned\x07\x1b[2J\x9b31m\u202e\x7f"


@pytest.mark.parametrize(
    "words",
    [
        ("report", "latest"),
        ("report", "latest", "--format", "summary"),
        ("report", "latest", "--format", "json"),
        ("compare", "latest", "previous"),
        ("compare", "latest", "previous", "--format", "json"),
        ("rescore", "latest"),
        ("rescore", "latest", "--json"),
        ("verify", "latest"),
        ("replay", "latest", "ky01", "--text"),
        ("replay", "latest", "ky01", "--fps", "1000"),
        ("browse",),
        ("browse", "ky01"),
        ("report", EVIL),
        ("import", "codex", EVIL),
    ],
    ids=lambda words: " ".join(words).replace(EVIL, "EVIL"),
)
def test_a_stored_run_cannot_steer_the_terminal(here, on_terminal, words):
    for path in Path(STORE).rglob("*.json"):
        spoiled = _spoiled(json.loads(path.read_text()))
        path.write_text(json.dumps(spoiled))
    _, seen = on_terminal("arc", *words, cwd=here, env={"TERM": "dumb", "NO_COLOR": "1"})
    for code in ("\x1b]0;", "\x07", "\x9b", "\u202e", "\x7f"):
        assert code not in seen, seen
    assert "\x1b" not in seen or "--fps" in words, seen
    assert "Traceback" not in seen, seen


def _spoiled(value):
    """Put control codes behind every text by which nothing is found."""
    names = ("model", "notes", "verification", "stop_reason", "label", "why", "title", "harness")
    if isinstance(value, dict):
        return {
            k: f"{v}{EVIL}" if k in names and isinstance(v, str) else _spoiled(v)
            for k, v in value.items()
        }
    return [_spoiled(v) for v in value] if isinstance(value, list) else value


def test_replay_animates_on_a_terminal(here, on_terminal):
    code, seen = on_terminal("arc", "replay", "latest", "ky01", "--fps", "1000", cwd=here)
    assert code == 0
    assert "\u2580" in seen
    assert "\x1b[38;2;" in seen
    assert seen.count("\x1b[H") >= 10
    assert "\x1b[?25h" in seen


def test_browse_lists_and_shows(here):
    done = arc("browse")
    assert "Total: 6 environments" in done.out
    line = next(text for text in done.out.splitlines() if "od01-v1" in text)
    assert "│ known │" in " ".join(line.split())
    assert "2x" in line
    assert "(1 matching filter)" in arc("browse", "--filter", "ky").out
    assert "tg01-v1" in arc("browse", "--tag", "undo").out
    began = time.monotonic()
    arc("browse")
    assert time.monotonic() - began < 1
    detail = arc("browse", "od01").out
    for words in ("ACTION6 (complex)", "grid 64x64", "Levels:     5", "History:", ": Score "):
        assert words in detail
    unknown = arc("browse", "ky99")
    assert unknown.code == 1
    assert "Did you mean ky01-v1" in unknown.out


def test_21_setup_is_ready_and_may_be_repeated(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    done = arc("setup")
    assert done.code == 0, done.out
    assert "Status: READY" in done.out
    path = tmp_path / STORE / "config.json"
    first = json.loads(path.read_text())
    assert first["operation_mode"] == "offline"
    assert first["cached_env_count"] == 6
    assert first["cross_harness"]["supported_harnesses"] == ["codex", "gemini", "opencode"]
    path.write_text(json.dumps(first | {"default_max_steps": 77}))
    assert arc("setup").code == 0
    second = json.loads(path.read_text())
    assert (second["created_at"], second["default_max_steps"]) == (first["created_at"], 77)
    (tmp_path / "empty").mkdir()
    none = arc("setup", "--env-dir", "empty")
    assert none.code == 1
    assert "No ARC-AGI environments found" in none.out


def test_a_person_plays_from_a_pipe(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    moves = "ACTION4\nclick 1 1\nreset\n\nfly\nd\nquit\n"
    done = Outcome(CliRunner().invoke(command, ["play", "ky01"], input=moves))
    assert done.code == 0
    assert "changed x8-23 y8-15: 04 -> 40" in done.out
    assert "unknown action 'fly'" in done.out
    assert "0/5 levels, 2 actions, 1 reset, stopped: player quit; 0.0 / 100" in done.out
    assert len(list((tmp_path / STORE / "plays").iterdir())) == 1


def test_wrong_usage_is_told(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert arc("run").code == 2
    assert "there is no agent called 'nobody'" in arc("run", "nobody", "--games", "ky01").out
    assert "Game zz77 not found" in arc("run", "random", "--games", "zz77").out
    assert "the seed must be a number" in arc("run", "random:x", "--games", "ky01").out
    assert arc("run", "random", "--resume", "latest").code == 2
    assert "no unfinished run" in arc("run", "--resume", "latest").out
    assert not (tmp_path / STORE / "runs").exists()


SLOW = """
import subprocess, sys, time
for n in range(200):
    done = subprocess.run(["arc-play", "act", "ACTION4"], capture_output=True, text=True)
    if "step limit" in done.stdout:
        break
    time.sleep(float(sys.argv[1]))
print("done")
"""


def declared(folder: Path, pause_s: float) -> Path:
    """Write an agent that acts slowly with the command."""
    program = folder / "slow"
    program.write_text(SLOW)
    schema = {
        "version": 1,
        "name": "slow",
        "command": [sys.executable, str(program), str(pause_s)],
        "sessionMode": "stream",
        "prompt": {},
        "output": {"flag": "", "value": ""},
        "outputEvents": [],
        "result": {"matchPath": "$.type", "matchValue": "result", "contentPath": "$.result"},
    }
    path = folder / "slow.json"
    path.write_text(json.dumps(schema))
    return path


def games_of(process: subprocess.Popen) -> list[psutil.Process]:
    found = []
    for child in psutil.Process(process.pid).children(recursive=True):
        try:
            if "engine_process" in " ".join(child.cmdline()):
                found.append(child)
        except psutil.Error:
            pass
    return found


def is_alive(process: psutil.Process) -> bool:
    """A dead process that nobody has buried yet is dead."""
    try:
        return process.status() != psutil.STATUS_ZOMBIE
    except psutil.Error:
        return False


def wait_until(condition, seconds=40.0) -> None:
    until = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < until, "it did not come to pass"
        time.sleep(0.02)


def test_killed_in_mid_game_and_resumed_nothing_is_lost_or_scored_twice(
    tmp_path, start, assay, read_rows
):
    agent = declared(tmp_path, 0.02)
    options = ["--games", "ky01,gd01", "--max-steps", 12, "--max-resets", 2]
    process = start("arc", "run", agent, *options)
    logs = tmp_path / STORE / "runs"

    def acted() -> int:
        paths = list(logs.glob("*/logs/*ky01*.jsonl"))
        return sum(path.read_bytes().count(b'"outcome":"executed"') for path in paths)

    wait_until(lambda: acted() >= 3)
    game = games_of(process)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    wait_until(lambda: not any(is_alive(one) for one in game))
    [run] = logs.iterdir()
    [cut] = run.glob("logs/*ky01*.jsonl")
    before = read_log(cut)
    assert not before.torn
    assert json.loads((run / "run-meta.json").read_text())["status"] == "running"
    done = assay("arc", "run", "--resume", "latest")
    assert done.code == 0, done.stderr
    rows = read_rows(run / "results.jsonl")
    assert sorted(row["id"] for row in rows) == ["gd01-v1", "ky01-v1"]
    card = json.loads((run / "scorecard.json").read_text())
    assert [game["trials"][0]["steps"] for game in card["games"]] == [12, 12]
    [aside] = run.glob("logs/*interrupted-1.jsonl")
    assert read_log(aside).events == before.events
    assert assay("arc", "verify", run.name).code == 0
    again = assay("arc", "run", "--resume", run.name)
    assert again.code == 0
    assert len((run / "results.jsonl").read_text().splitlines()) == 2


def test_game_and_player_are_killed_in_mid_game(tmp_path, start, read_rows):
    agent = declared(tmp_path, 0.05)
    process = start("arc", "run", agent, "--games", "ky01", "--max-steps", 15)
    logs = tmp_path / STORE / "runs"

    def executed() -> int:
        paths = list(logs.glob("*/logs/*.jsonl"))
        return sum(path.read_bytes().count(b'"outcome":"executed"') for path in paths)

    wait_until(lambda: executed() >= 3)
    games_of(process)[0].kill()
    wait_until(lambda: executed() >= 6)
    for child in psutil.Process(process.pid).children():
        if "slow" in " ".join(child.cmdline()):
            child.kill()
    out, err = process.communicate(timeout=60)
    assert process.returncode == 0, err
    [run] = logs.iterdir()
    [row] = read_rows(run / "results.jsonl")
    assert row["failure"]["cause"] == "agent_crash"
    evidence = row["metadata"]["evidence"]
    assert evidence["restarts"] == 1
    assert evidence["result"]["stopReason"] == "crash"
    assert 5 <= evidence["result"]["steps"] < 15
    assert row["score"]["outcome"]["stopReason"] == "crash"
    assert "Stopped: crash" in out


def test_the_demo_plays_and_shows_how_far(tmp_path, monkeypatch, capsys):
    few = ["random", "search", "--games", "ky01", "--max-steps", "15", "-q"]
    monkeypatch.setattr(arc_demo, "RUN", few)
    assert run_command(["arc", "demo", "-o", str(tmp_path)]) == 0
    said = capsys.readouterr().out
    assert "  random: " in said
    assert "  search: " in said
    assert "assay arc compare " in said


def test_an_interrupted_run_keeps_its_place(tmp_path, start, assay):
    agent = declared(tmp_path, 0.05)
    process = start("arc", "run", agent, "--games", "ky01", "--max-steps", 40)
    wait_until(lambda: list((tmp_path / STORE / "runs").glob("*/logs/*.jsonl")))
    process.send_signal(signal.SIGINT)
    _, stderr = process.communicate(timeout=30)
    assert process.returncode == 130
    assert "--resume" in stderr
    [run] = (tmp_path / STORE / "runs").iterdir()
    assert f"Continue with: assay arc run --resume {run.name}\n" in stderr
    assert (run / "results.jsonl").read_bytes() == b""
