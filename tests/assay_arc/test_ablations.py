"""Taking a harness apart: the game without image, grid or diff, and with a memory file."""

import json
import subprocess
import sys

import pytest
from click.testing import CliRunner

from assay.errors import AssayError
from assay_arc.benchmark import ArcBenchmark
from assay_arc.client import SHOWS
from assay_arc.client.arc_mcp import tool_list, tool_request
from assay_arc.commands import command
from assay_arc.log import DisplayOptions
from assay_arc.store import Store

STORE = ".arc-agi-benchmarks"


def arc(*words) -> tuple[int, str]:
    result = CliRunner().invoke(command, [str(word) for word in words])
    error = result.exception
    if isinstance(error, AssayError):
        return error.exit_code, f"{result.output}{error.message} {error.hint}"
    if error is not None and not isinstance(error, SystemExit):
        raise error
    return result.exit_code, result.output


def answers(game, **shows) -> tuple[str, str, dict]:
    """What the game says to a look and to an action."""
    game.session.shows = DisplayOptions(**shows)
    look = game.do("look", image=True, grid=True)
    return look["text"], game.do("act", action="ACTION4")["text"], look


def test_by_default_everything_is_shown(table):
    look, act, reply = answers(table())
    assert "grid 64x64" in look
    assert "changed x" in act
    assert "grid 64x64" not in act
    assert {"image", "grid"} <= set(reply)


def test_without_the_diff_an_action_is_answered_with_the_picture(table):
    look, act, _ = answers(table(), diff=False)
    assert "grid 64x64" in look
    assert "grid 64x64" in act
    assert "changed" not in act


def test_without_the_grid_there_is_the_image_and_what_changed(table):
    look, act, reply = answers(table(), grid=False)
    assert "grid 64x64" not in look
    assert "available: ACTION" in look
    assert "changed x" in act
    assert "grid" not in reply
    assert "image" in reply


def test_without_grid_and_diff_only_the_image_shows_anything(table):
    look, act, reply = answers(table(), grid=False, diff=False)
    assert "y0" not in look
    assert "changed" not in act
    assert act.splitlines()[0] == "ACTION4"
    assert "image" in reply


def test_without_the_image_none_is_given_and_that_is_said(table):
    look, _, reply = answers(table(), image=False)
    assert "image" not in reply
    assert "images are not offered in this game" in look


def test_most_of_a_picture_that_changed_is_no_way_round_the_missing_grid(table, solutions):
    game = table()
    game.session.shows = DisplayOptions(grid=False)
    texts = [game.step(step)["text"] for way in solutions["ky01-v1"] for step in way]
    assert not any("grid 64x64" in text or "\ny0" in text for text in texts)


@pytest.mark.parametrize(
    ("ways", "look", "act"),
    [
        ("image,grid,diff", {"image", "frames"}, {"action", "full"}),
        ("grid,diff", {"frames"}, {"action", "full"}),
        ("image,diff", {"frames"}, {"action"}),
        ("image,grid", {"image", "frames"}, {"action"}),
    ],
)
def test_the_tools_offer_only_what_is_shown(monkeypatch, ways, look, act):
    monkeypatch.setenv(SHOWS, ways)
    tools = {tool["name"]: tool for tool in tool_list()}
    assert set(tools["look"]["inputSchema"]["properties"]) == look
    assert set(tools["act"]["inputSchema"]["properties"]) == act
    assert ("what changed" in tools["act"]["description"]) == ("diff" in ways)
    image = tool_request("look", {"image": False}).get("image")
    assert image == (True if "grid" not in ways else False if "image" in look else None)


def test_the_prompt_says_what_the_player_has():
    def prompt(**options):
        [(one, _)] = ArcBenchmark(games=("ky01",), **options).prompts()
        return one

    plain = prompt()
    assert "tools" not in plain.metadata
    assert "Each answer says what changed." in plain.input
    assert "NOTES.md" not in plain.input
    assert prompt(memory_file=True).metadata["tools"] == ["image", "grid", "diff", "memory"]
    assert "NOTES.md" in prompt(memory_file=True).input
    assert "Each answer shows the whole picture." in prompt(diff=False).input
    bare = prompt(grid=False, diff=False)
    assert "look --png FILE" in bare.input
    assert "hex digit" not in bare.input
    assert "what changed" not in bare.input
    assert bare.metadata["tools"] == ["image"]


LOOKER = """
import json, os, subprocess, sys
sys.stdin.read()
play = os.environ["ARC_PLAY"]
said = [subprocess.run([play, *words.split()], capture_output=True, text=True).stdout
        for words in ("look", "act ACTION4")]
print(json.dumps({"type": "result", "text": "|".join(said) + os.environ.get("ARC_PLAY_SHOWS", "")}))
"""


def test_an_agent_in_a_run_sees_no_more_than_it_is_given(tmp_path, monkeypatch, read_rows):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "looker.py").write_text(LOOKER)
    schema = {
        "version": 1,
        "sessionMode": "iterative",
        "name": "looker",
        "command": [sys.executable, str(tmp_path / "looker.py")],
        "prompt": {"stdin": True},
        "output": {"flag": "", "value": ""},
        "outputEvents": [],
        "result": {"matchPath": "$.type", "matchValue": "result", "contentPath": "$.text"},
    }
    (tmp_path / "looker.json").write_text(json.dumps(schema))
    run = ["run", "looker.json", "--games", "ky01", "-q", "--max-steps", "5"]
    for options, has_grid in (([], True), (["--no-grid", "--memory-file"], False)):
        argv = [sys.executable, "-m", "assay", "arc", *run, *options]
        done = subprocess.run(argv, capture_output=True, text=True, timeout=90)
        assert done.returncode == 0, done.stderr
        stored = Store(tmp_path / STORE).find("latest")
        [row] = read_rows(stored.folder / "results.jsonl")
        assert ("grid 64x64" in row["output"]) == has_grid
        assert "changed x" in row["output"]
    assert stored.meta.tools == ["image", "diff", "memory"]
    assert row["metadata"]["tools"] == ["image", "diff", "memory"]
    first, second = Store(tmp_path / STORE).native()
    assert first.meta.tools == ["image", "grid", "diff"]
    assert first.meta.config_hash != second.meta.config_hash
    assert (
        "gave the player different tools: image, grid, diff and image, diff, memory"
        in (arc("compare", "previous", "latest")[1])
    )
    assert "**Tools**: image, diff, memory" in arc("report")[1]


def test_nothing_to_see_and_a_player_that_needs_the_grid_are_refused(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    code, said = arc("run", "random", "--no-image", "--no-grid")
    assert code == 2
    assert "nothing left to see" in said
    code, said = arc("run", "search", "--games", "ky01", "--no-grid")
    assert code == 2
    assert "reads the grid" in said
    code, said = arc("run", "random", "--games", "ky01", "--no-grid", "--max-steps", "5", "-q")
    assert code == 0, said
