"""Games that were not measured, runs that were not finished, and what is said of them."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from assay.errors import AssayError
from assay_arc.cards import seal_run
from assay_arc.catalog import BUILT_IN
from assay_arc.commands import command
from assay_arc.store import META, RunMeta, read_json


def broken_games(folder: Path, *sound: str) -> Path:
    """A folder with ky01, which cannot be imported, and with these games."""
    for name in ("ky01", *sound):
        shutil.copytree(BUILT_IN / name, folder / name)
    source = folder / "ky01" / "v1" / "ky01.py"
    source.write_text("import nosuchmodule\n" + source.read_text())
    return folder


def arc(*words: object) -> tuple[int, str]:
    result = CliRunner().invoke(command, [str(word) for word in words])
    error = result.exception
    if isinstance(error, AssayError):
        return error.exit_code, f"{result.output}{error.message} {error.hint}"
    if error is not None and not isinstance(error, SystemExit):
        raise error
    return result.exit_code, result.output


def test_one_game_of_two_not_measured_is_said_everywhere(
    assay: Callable[..., Any], tmp_path: Path
) -> None:
    games = broken_games(tmp_path / "games", "mx01")
    options = ["--env-dir", games, "--max-steps", 9, "--store", "a store", "-q"]
    done = assay("arc", "run", "random", *options)
    assert done.code == 1
    assert done.stderr.splitlines()[-1].endswith(
        ": 1 of 2 games not measured: ky01-v1. The reasons are above."
    )
    assert "could not start ky01-v1: ModuleNotFoundError: No module named 'nosuchm" in done.stdout
    assert "9 actions; 1 of 2 games not measured" in done.stdout
    for form in ("summary", "markdown"):
        said = assay("arc", "report", "--store", "a store", "--format", form).stdout
        assert "0.00 / 100" in said
        assert "1 of 2 games not measured" in said
    data = json.loads(assay("arc", "report", "--store", "a store", "--format", "json").stdout)
    assert data["games_not_measured"] == 1
    assert list(data["not_measured"]) == ["ky01-v1"]
    assert assay("arc", "verify", "--store", "a store", "--env-dir", games).stdout.startswith(
        "mx01-v1 trial 1: replayed, 9 actions agree"
    )
    card = next(tmp_path.glob("a store/runs/*/scorecard.json"))
    card.unlink()
    told = assay("arc", "report", "--store", "a store")
    assert f"assay arc rescore {card.parent.name} --write --store 'a store'" in told.stderr
    unfinish(card.parent)
    resume = f"assay arc run --resume {card.parent.name} --store 'a store'"
    assert resume in assay("arc", "report", "--store", "a store").stderr
    assert resume in assay("arc", "report", card.parent.name, "--store", "a store").stderr
    again = assay("arc", "rescore", card.parent.name, "--write", "--store", "a store")
    assert again.code == 0
    assert "is unfinished: only what was played is scored" in again.stderr
    assert resume in again.stderr


def unfinish(run: Path) -> None:
    """Leave a run as one that was killed."""
    meta = read_json(run / META, RunMeta)
    meta.status = "running"
    seal_run(run, meta)


@pytest.mark.parametrize(
    "words",
    [
        ("--games", "ky01"),
        ("--seed", 1),
        ("--k", 1),
        ("--no-grid",),
        ("--grid",),
        ("--model", "m"),
        ("--memory-file",),
        ("--online",),
        ("--max-steps", 5),
        ("--timeout", 5),
        ("--env-dir", "builtin"),
        ("--isolate",),
    ],
)
def test_a_resumed_run_goes_on_as_planned(words: tuple[object, ...]) -> None:
    code, said = arc("run", "--resume", "latest", *words)
    assert code == 2
    assert f"{words[0]} cannot be changed with --resume" in said


def test_a_resumed_run_may_be_hurried_and_limited(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    options = ["-j", 2, "--retries", 1, "--max-cost", 3, "--progress", "-q", "--store", "s"]
    code, said = arc("run", "--resume", "latest", *options)
    assert code == 1
    assert "There is no unfinished run. start one with: assay arc run AGENT --store s" in said


def test_a_run_that_measured_nothing_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    games = broken_games(tmp_path / "games")
    code, said = arc("run", "random", "--env-dir", games, "-q")
    assert code == 1
    assert "none of 1 trial says anything about the agent" in said
    assert "random: no score; 1 of 1 game not measured" in said
    assert "None" not in said
    assert "0/0" not in said
    assert "no score; 1 of 1 game not measured" in arc("report", "--format", "summary")[1]
    page = arc("report")[1]
    assert "**Overall Score**: no score; 1 of 1 game not measured" in page
    assert "(1 game, 1 trial)" in page
    code, said = arc("verify", "--env-dir", games)
    assert code == 1
    assert "has no logs: nothing was measured in it" in said
    for words in (("replay", "latest", "ky01"), ("export", "recording", "--games", "ky01")):
        code, said = arc(*words)
        assert code == 1
        assert "was not measured: environment failed: the game did not start" in said
    assert "no game of it was measured" in arc("replay", "latest", "zz99")[1]


def test_instructions_do_not_name_where_assay_is_installed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    code, said = arc("generate", "codex", "--games", "ky01", "--no-games", "--store", "s")
    assert code == 0
    assert "Game set:               1 game, seed=0" in said
    assert "assay arc import codex <result-file-path> --store s" in said
    folder = tmp_path / "s" / "cross-harness" / "codex"
    text = (folder / "instructions.md").read_text()
    assert "or tell it where they are with `--env-dir FOLDER`" in text
    assert "Play this game with seed=0" in text
    for name in ("instructions.md", "game_driver.py"):
        assert str(BUILT_IN.resolve()) not in (folder / name).read_text()
