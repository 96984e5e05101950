"""Games that were chosen and not played, sessions imported twice, what verify keeps."""

import json
import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner

from assay.errors import AssayError
from assay_arc.cards import read_card
from assay_arc.catalog import BUILT_IN
from assay_arc.commands import command
from assay_arc.generated import collect_results
from assay_arc.store import Store

STORE = ".arc-agi-benchmarks"
pytestmark = pytest.mark.usefixtures("known_levels")


def arc(*words) -> tuple[int, str]:
    result = CliRunner().invoke(command, [str(word) for word in words])
    error = result.exception
    if isinstance(error, AssayError):
        return error.exit_code, f"{result.output}{error.message} {error.hint}"
    if error is not None and not isinstance(error, SystemExit):
        raise error
    return result.exit_code, result.output


@pytest.fixture
def result(tmp_path, monkeypatch, table, solutions) -> Path:
    """A folder with the result of ky01, won in as few actions as possible; od01 was left out."""
    monkeypatch.chdir(tmp_path)
    game = table("ky01-v1")
    for step in (step for way in solutions["ky01-v1"] for step in way):
        game.step(step)
    game.session.end("player_quit")
    game.log.close()
    sessions = tmp_path / "codex" / "sessions"
    sessions.mkdir(parents=True)
    head, _, rest = game.path.read_bytes().partition(b"\n")
    header = json.loads(head) | {"baselines": None}
    (sessions / "ky01-v1.jsonl").write_bytes(json.dumps(header).encode() + b"\n" + rest)
    return write_result(tmp_path / "codex", "m-1", monkeypatch)


def write_result(folder: Path, model: str, monkeypatch) -> Path:
    monkeypatch.setattr(collect_results, "SETTINGS", {"games": {"ky01-v1": {}, "od01-v1": {}}})
    words = ["--sessions-dir", str(folder / "sessions"), "--harness", "codex", "--model", model]
    data = collect_results.collect(collect_results.read_arguments(words))
    (folder / "result.json").write_text(json.dumps(data))
    return folder


def stored_run(number: int = -1):
    return Store(Path.cwd() / STORE).imported()[number]


def test_a_game_left_out_is_zero_in_import_card_and_compare(result, tmp_path, monkeypatch):
    code, said = arc("import", "codex", result)
    assert code == 0
    assert "Overall Score:   50.00 / 100" in said
    assert "not played, and counted as 0: od01-v1" in said
    assert "Levels Complete: 5 / 10" in said
    run = stored_run()
    card = json.loads((run.folder / "scorecard.json").read_text())
    assert (card["score"], card["score_percent"], card["games_not_played"]) == (0.5, 50.0, 1)
    unplayed = next(game for game in card["games"] if game["id"] == "od01-v1")
    assert (unplayed["score"], unplayed["score_percent"]) == (0.0, 0.0)
    assert unplayed["score_reason"] == "not played"
    scores = json.loads((run.folder / "environment-scores.json").read_text())
    assert scores["overall_score"] == 50.0
    assert [e["state"] for e in scores["environments"]] == ["WIN", "NOT_PLAYED"]
    assert "od01-v1: not played, counted as 0" in arc("report")[1]
    assert "1 not played" in arc("report", "--format", "summary")[1]


def test_actions_are_shown_as_counted_and_as_claimed(result):
    data = json.loads((result / "result.json").read_text())
    row = data["games"][0]
    row["total_actions"] = 400
    row.pop("session")
    shutil.rmtree(result / "sessions")
    (result / "result.json").write_text(json.dumps(data))
    code, said = arc("import", "codex", result)
    assert code == 0
    assert "Total Actions:   75 counted (a reset of a level is one), 400 claimed" in said
    card = read_card(stored_run())
    assert (card.total_actions, card.total_actions_claimed) == (75, 400)
    assert "75 counted (a reset of a level is one), 400 claimed" in arc("report")[1]
    scores = json.loads((stored_run().folder / "environment-scores.json").read_text())
    assert scores["environments"][0]["total_actions_claimed"] == 400
    arc("rescore", "--write")
    assert read_card(stored_run()).total_actions_claimed == 400


def test_verify_takes_an_unplayed_game_for_no_missing_log(result):
    arc("import", "codex", result)
    assert stored_run().meta.verified == "replayed"
    assert read_card(stored_run()).verified == "replayed"
    code, said = arc("verify", "latest")
    assert code == 0, said
    assert stored_run().meta.verified == "replayed"
    assert read_card(stored_run()).verified == "replayed"


def test_verify_without_the_games_leaves_the_proof_as_it_was(result, tmp_path):
    arc("import", "codex", result)
    before = [(path, path.read_bytes()) for path in stored_run().folder.glob("*.json")]
    others = tmp_path / "others"
    shutil.copytree(BUILT_IN / "so01", others / "so01")
    code, said = arc("verify", "latest", "--env-dir", others)
    assert code == 1
    assert "not checked: game ky01-v1 is not among our games" in said
    assert "--env-dir" in said
    assert "The mark stays as it is: replayed" in said
    assert all(path.read_bytes() == data for path, data in before)
    shutil.copytree(BUILT_IN / "ky01", others / "ky01")
    source = next((others / "ky01").rglob("*.py"))
    source.write_text(source.read_text() + "\n# another version\n")
    code, said = arc("verify", "latest", "--env-dir", others)
    assert code == 1
    assert "sha256 of the game's source" in said
    assert all(path.read_bytes() == data for path, data in before)


def test_a_changed_log_is_found_even_where_a_game_is_missing(result, tmp_path):
    arc("import", "codex", result)
    log = next(stored_run().folder.glob("logs/*.jsonl"))
    log.write_bytes(b"".join(log.read_bytes().splitlines(keepends=True)[:-5]))
    others = tmp_path / "others"
    shutil.copytree(BUILT_IN / "so01", others / "so01")
    code, said = arc("verify", "latest", "--env-dir", others)
    assert code == 1
    assert "DIFFERS: the log was changed after the run" in said
    assert stored_run().meta.verified == "unverified"


def test_a_missing_log_takes_the_proof_away_until_it_is_back(result):
    arc("import", "codex", result)
    assert arc("verify")[0] == 0
    before = read_card(stored_run())
    log = next(stored_run().folder.glob("logs/*.jsonl"))
    kept = log.read_bytes()
    log.unlink()
    code, said = arc("verify")
    assert code == 1
    assert f"now marked unverified: missing: logs/{log.name}" in said
    assert "put the logs back" in said
    run = stored_run()
    assert (run.meta.verified, read_card(run).verified) == ("unverified", "unverified")
    assert read_card(run).score_percent == before.score_percent
    assert "UNVERIFIED: logs/" in arc("report")[1]
    log.write_bytes(kept)
    assert arc("verify")[0] == 0
    assert (stored_run().meta.verified, read_card(stored_run())) == ("replayed", before)


def test_the_formula_of_the_scores_survives_a_check(result):
    arc("import", "codex", result)
    arc("rescore", "--formula", "first_play", "--write")
    assert arc("verify")[0] == 0
    assert read_card(stored_run()).formula == "first_play"


def test_the_same_sessions_under_another_model_are_not_a_second_run(result, monkeypatch):
    arc("import", "codex", result)
    first = stored_run().meta.run_id
    write_result(result, "m-2", monkeypatch)
    code, said = arc("import", "codex", result)
    assert code == 1
    assert f"Duplicate import detected: the same sessions are run {first} (codex, m-1)" in said
    assert len(Store(Path.cwd() / STORE).imported()) == 1
    # Neither are they without their logs: the result still names them.
    shutil.rmtree(result / "sessions")
    assert arc("import", "codex", result)[0] == 1
    code, said = arc("import", "gemini", result)
    assert code == 0
    assert f"1 of the 1 session logs are also in run {first}" in said


@pytest.mark.parametrize(
    ("folder", "words"),
    [("nowhere", "environments_dir nowhere does not exist"), ("empty", "has no games in it")],
)
def test_a_configured_folder_without_games_is_an_error(tmp_path, monkeypatch, folder, words):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty").mkdir()
    (tmp_path / STORE).mkdir(exist_ok=True)
    (tmp_path / STORE / "config.json").write_text(json.dumps({"environments_dir": folder}))
    for name in (["browse"], ["run", "random"], ["generate", "codex"], ["play", "ky01"]):
        code, said = arc(*name)
        assert code == 1
        assert words in said
        assert "--env-dir" in said
    assert arc("browse", "--env-dir", "builtin")[0] == 0


def test_the_default_folder_without_games_is_named(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / STORE).mkdir(exist_ok=True)
    (tmp_path / STORE / "config.json").write_text("{}")
    words = "Games: those that ship with Assay, since ./environment_files"
    assert words in arc("browse")[1]
    arc("setup", "--env-dir", "builtin")
    assert words not in arc("browse")[1]


def test_games_that_name_nothing_are_an_error(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for words in (["--games", ""], ["--games", " , "]):
        code, said = arc("run", "random", *words)
        assert code == 2
        assert "--games names no game" in said
