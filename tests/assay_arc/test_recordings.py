"""Recordings of the official toolkit: out of our logs as it writes them, and back, played again."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from assay.errors import AssayError
from assay_arc.cards import read_card
from assay_arc.catalog import BUILT_IN
from assay_arc.commands import command
from assay_arc.log import read_log
from assay_arc.recordings import recording_lines
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


def official(folder: Path, steps, *, frames: bool = True) -> Path:
    """Play with the toolkit alone and let it record; the path of its recording."""
    from arc_agi import Arcade, OperationMode
    from arcengine import GameAction

    from assay_arc.engine import silence_toolkit

    arcade = Arcade(
        operation_mode=OperationMode.OFFLINE,
        environments_dir=str(BUILT_IN),
        recordings_dir=str(folder),
        logger=silence_toolkit(),
    )
    card = arcade.open_scorecard()
    env = arcade.make("ky01-v1", scorecard_id=card, save_recording=True, include_frame_data=frames)
    for action, x, y in steps:
        if action == "RESET":
            env.reset()
        else:
            data = None if x is None else {"x": x, "y": y}
            env.step(GameAction[action], data=data, reasoning={"thought": "so"})
    [path] = folder.rglob("*.jsonl")
    return path


@pytest.fixture
def here(tmp_path, monkeypatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def steps(solutions):
    """A wasted move, a reset, then the shortest way to win."""
    way = [step for level in solutions["ky01-v1"] for step in level]
    return [("ACTION2", None, None), ("RESET", None, None), *way]


def imported_run(here: Path):
    return Store(here / STORE).imported()[-1]


def test_what_is_exported_is_what_the_toolkit_records(here, table, steps):
    recorded = [json.loads(line) for line in official(here / "r", steps).read_text().splitlines()]
    game = table("ky01-v1")
    for step in steps:
        game.step(step)
    game.log.close()
    lines = [json.loads(line) for line in recording_lines(read_log(game.path), "g")]
    for ours, theirs in zip(lines, recorded, strict=True):
        theirs["data"]["action_input"]["reasoning"] = None
        assert ours["data"] | {"guid": ""} == theirs["data"] | {"guid": ""}
        assert set(ours) == set(theirs)


def test_a_recording_of_the_toolkit_is_imported_and_scored(here, steps):
    path = official(here / "r", [*steps, ("ACTION1", None, None)])  # after WIN nothing counts
    code, said = arc("import", "recording", path, "--model", "m-1", "--harness", "my-agent")
    assert code == 0, said
    assert "Verified:        replayed" in said
    run = imported_run(here)
    assert (run.meta.harness, run.meta.harness_config.model) == ("my-agent", "m-1")
    [game] = read_card(run).games
    [trial] = game.trials
    assert (trial.won, trial.actions, trial.resets) == (True, 77, 1)
    assert arc("verify", run.meta.run_id)[0] == 0
    assert arc("import", "recording", path, "--harness", "my-agent", "--model", "other")[0] == 1
    assert len(Store(here / STORE).imported()) == 1


def test_recordings_go_out_and_come_back(here):
    code, said = arc("run", "random", "--games", "ky01,od01", "-k", "2", "--max-steps", "20", "-q")
    assert code == 0, said
    run = Store(here / STORE).native()[-1]
    code, said = arc("export", "recording")
    assert code == 0, said
    files = [Path(line) for line in said.splitlines()]
    assert len(files) == 4
    assert all(file.parent == Path("recordings") / run.meta.run_id for file in files)
    assert arc("export", "recording")[0] == 1
    assert arc("export", "recording", "--overwrite", "--games", "od01")[0] == 0
    code, said = arc("import", "recording", "recordings")
    assert code == 0, said
    back = imported_run(here)
    assert (back.meta.trials, back.meta.verified) == (2, "replayed")
    assert read_card(back).score_percent == pytest.approx(read_card(run).score_percent)
    ours = {t.actions for g in read_card(run).games for t in g.trials}
    assert {t.actions for g in read_card(back).games for t in g.trials} == ours


def test_a_recording_without_frames_says_so(here, steps):
    path = official(here / "r", steps[:5], frames=False)
    code, said = arc("import", "recording", path)
    assert code == 0, said
    assert "1 recordings have no frames to be compared" in said


def change(path: Path, number: int, edit) -> None:
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    edit(lines[number])
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))


FORGED = {
    "levels": (lambda line: line["data"].update(levels_completed=3), "levels_completed is 3"),
    "state": (lambda line: line["data"].update(state="WIN"), "state is 'WIN' in the recording"),
    "frame": (lambda line: line["data"]["frame"][0][0].__setitem__(0, 9), "the frames differ"),
    "no action": (lambda line: line["data"].update(action_input=None), "which action was done"),
    "other action": (
        lambda line: line["data"]["action_input"].update(id="ACTION9"),
        "unknown action 'ACTION9'",
    ),
    "no pixel": (
        lambda line: line["data"]["action_input"].update(data={"x": 900, "y": 1}),
        "900 is not a pixel",
    ),
    "another game": (lambda line: line["data"].update(game_id="od01-v1"), "recording is of ky01"),
    "small frame": (lambda line: line["data"].update(frame=[[[1]]]), "not 64x64"),
    "huge pixel": (lambda line: line["data"]["frame"][0][0].__setitem__(0, 999), "not a line"),
    "time": (lambda line: line.update(timestamp="yesterday"), "not a line of a recording"),
    "no data": (lambda line: line.pop("data"), "not a line of a recording"),
}


@pytest.mark.parametrize("name", FORGED)
def test_forged_and_broken_recordings_are_refused(here, steps, name):
    path = official(here / "r", steps[:6])
    edit, words = FORGED[name]
    change(path, 3, edit)
    code, said = arc("import", "recording", path)
    assert code == 1
    assert words in said
    assert Store(here / STORE).imported() == []


def test_wrong_input_is_named(here, steps):
    path = official(here / "r", steps[:3])
    assert arc("import", "recording", here / "none.jsonl")[0] == 1
    (here / "empty").mkdir()
    assert "no recordings" in arc("import", "recording", here / "empty")[1]
    assert arc("import", "recording", path, path)[0] == 1
    assert arc("import", "recording", path, "--harness", "../up")[0] == 2
    assert arc("import", "recording", path, "--sessions", here)[0] == 2
    assert arc("import", "codex", path, "--model", "m")[0] == 2
    assert arc("import", "recording")[0] == 2
    (here / "text.jsonl").write_text("hello\n")
    assert "text.jsonl:1: not a line" in arc("import", "recording", here / "text.jsonl")[1]
    lines = path.read_text().splitlines(keepends=True)
    (here / "late.jsonl").write_text("".join(lines[1:]))
    assert "must begin with a RESET" in arc("import", "recording", here / "late.jsonl")[1]
    change(path, 0, lambda line: line["data"].update(game_id="zz99-v1"))
    (here / "one.jsonl").write_text(path.read_text().splitlines()[0] + "\n")
    code, said = arc("import", "recording", here / "one.jsonl")
    assert code == 1
    assert "zz99-v1 is not among our games" in said
    assert "--env-dir" in said
    assert arc("export", "recording")[0] == 1
    assert arc("export", "video")[0] == 2
