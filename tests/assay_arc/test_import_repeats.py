"""Imported runs with repeats, cost and the agent's transcript."""

import json
import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner

from assay.errors import AssayError
from assay_arc.cards import read_card
from assay_arc.commands import command
from assay_arc.generated import collect_results
from assay_arc.store import Store

STORE = ".arc-agi-benchmarks"
pytestmark = pytest.mark.usefixtures("known_levels")
# What `codex exec --json` prints, in short.
TRANSCRIPT = [
    {"type": "thread.started", "thread_id": "t"},
    {"type": "turn.started"},
    {"type": "item.completed", "item": {"id": "1", "type": "reasoning", "text": "x" * 30}},
    {"type": "item.completed", "item": {"id": "2", "type": "agent_message", "text": "done"}},
    {
        "type": "turn.completed",
        "usage": {"input_tokens": 1000, "cached_input_tokens": 0, "output_tokens": 234},
    },
]


def run_arc(*words) -> tuple[int, str]:
    result = CliRunner().invoke(command, [str(word) for word in words])
    error = result.exception
    if isinstance(error, AssayError):
        return error.exit_code, f"{result.output}{error.message} {error.hint}"
    if error is not None and not isinstance(error, SystemExit):
        raise error
    return result.exit_code, result.output


@pytest.fixture
def make(tmp_path, monkeypatch, arc_table):
    """Make a folder with a result of ky01, after so many moves to the right."""
    monkeypatch.chdir(tmp_path)

    def result(name: str, n_moves: int, model: str = "m-1", **metadata) -> Path:
        folder = tmp_path / name
        (folder / "sessions").mkdir(parents=True)
        game = arc_table(folder)
        for _ in range(n_moves):
            game.do("act", action="ACTION4")
        game.session.end("player_quit")
        game.log.close()
        head, _, rest = game.path.read_bytes().partition(b"\n")
        header = json.loads(head) | {"baselines": None}
        log = folder / "sessions" / "ky01-v1.jsonl"
        log.write_bytes(json.dumps(header).encode() + b"\n" + rest)
        game.path.unlink()
        words = ["--sessions-dir", str(log.parent), "--harness", "codex", "--model", model]
        data = collect_results.collect(collect_results.read_arguments(words))
        data["metadata"] |= metadata
        (folder / "result.json").write_text(json.dumps(data))
        return folder

    return result


@pytest.fixture
def arc_table(arc, games):  # the fixture of conftest.py, not the function above
    return lambda folder: arc.Table(games["ky01-v1"], folder)


def stored_run():
    return Store(Path.cwd() / STORE).imported()[-1]


def test_several_results_are_trials_of_one_run(make):
    folders = [make("a", 2), make("b", 3), make("c", 4)]
    code, said = run_arc("import", "codex", *folders)
    assert code == 0, said
    run = stored_run()
    assert (run.meta.trials, run.meta.verified, run.meta.games_total) == (3, "replayed", 1)
    [game] = read_card(run).games
    assert [(trial.trial, trial.steps) for trial in game.trials] == [(1, 2), (2, 3), (3, 4)]
    assert all(trial.levels for trial in game.trials)
    assert run_arc("verify")[0] == 0
    assert run_arc("report")[0] == 0
    assert run_arc("replay", "latest", "ky01", "--trial", "3", "--text")[0] == 0
    code, said = run_arc("import", "codex", folders[0])
    assert code == 1
    assert "the same sessions are run" in said


def test_what_cannot_be_trials_of_one_run_is_refused(make):
    first = make("a", 2)
    assert "the same result was given twice" in run_arc("import", "codex", first, first)[1]
    code, said = run_arc("import", "codex", first, make("b", 3, model="m-2"))
    assert code == 1
    assert "its model is m-2, not m-1" in said
    shutil.copytree(first, "copy")
    data = json.loads(Path("copy/result.json").read_text())
    data["metadata"]["notes"] = "other words"
    Path("copy/result.json").write_text(json.dumps(data))
    assert "was given twice" in run_arc("import", "codex", first, "copy")[1]
    assert run_arc("import", "codex", first, "copy", "--sessions", "copy/sessions")[0] == 2
    assert Store(Path.cwd() / STORE).imported() == []


def test_cost_and_tokens_of_a_result_are_kept_through_every_command(make):
    code, said = run_arc("import", "codex", make("a", 2, cost_usd=0.5, tokens=1200))
    assert code == 0, said
    assert "Cost:            $0.5000, 1,200 tokens" in said
    for words in (["rescore", "--write"], ["verify"]):
        assert run_arc(*words)[0] == 0
        card = read_card(stored_run())
        assert (card.cost_usd, card.tokens) == (0.5, 1200)
    assert "**Tokens**: 1,200" in run_arc("report")[1]


@pytest.mark.parametrize(
    ("field", "value"),
    [("cost_usd", -1), ("cost_usd", "5"), ("cost_usd", True), ("tokens", 1.5), ("tokens", -3)],
)
def test_impossible_cost_and_tokens_are_refused(make, field, value):
    code, said = run_arc("import", "codex", make("a", 2, **{field: value}))
    assert code == 1
    assert f"metadata.{field} must be" in said


def test_a_transcript_is_kept_and_read_for_tokens_and_reasoning(make):
    folder = make("a", 2)
    path = folder / "codex.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in TRANSCRIPT))
    code, said = run_arc("import", "codex", folder, "--transcript", path)
    assert code == 0, said
    run = stored_run()
    assert (read_card(run).tokens, read_card(run).reasoning_chars) == (1234, 30)
    assert (run.folder / "transcripts" / "codex.jsonl").read_bytes() == path.read_bytes()
    assert "**Transcripts**: transcripts/codex.jsonl" in run_arc("report")[1]


def test_wrong_transcripts_are_named(make):
    folder = make("a", 2)
    (folder / "words.txt").write_text("I won!\n")
    code, said = run_arc("import", "codex", folder, "--transcript", folder / "words.txt")
    assert code == 1
    assert "no line of it is understood" in said
    assert run_arc("import", "codex", folder, "--transcript", "nowhere.jsonl")[0] == 2
    assert Store(Path.cwd() / STORE).imported() == []
