"""What reports and comparisons say: models, who is left out, stuck levels; and what they escape."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from assay_arc.cards import build_card, derive_played
from assay_arc.catalog import BUILT_IN
from assay_arc.comparison import ComparedRun, with_shared_games
from assay_arc.report import report_json, report_markdown
from assay_arc.store import GameRow, RunMeta, Scorecard, StoredRun

GEMINI = """#!/bin/sh
[ "$1" = --version ] && exec echo 0.61.0
M=m$ARC_PLAYER_SEED
echo '{"type":"init","session_id":"s","model":"'$M'","timestamp":"2026-01-01T00:00:00Z"}'
arc-play act ACTION4 > /dev/null
echo '{"type":"result","status":"success","stats":{},"timestamp":"2026-01-01T00:00:01Z"}'
"""
"""Says that its model is m1 in the first trial, and m2 in the second."""


def test_the_model_is_the_one_that_the_agent_reported(
    assay: Callable[..., Any], tmp_path: Path
) -> None:
    program = tmp_path / "gemini"
    program.write_text(GEMINI)
    program.chmod(0o755)
    words = ("arc", "run", f"gemini:{program}", "--games", "ky01", "--max-steps", "9", "-q")
    assert assay(*words).code == 0
    report = assay("arc", "report").stdout
    assert "- **Harness**: gemini (m1)" in report
    assert assay(*words, "-k", "2").code == 0
    report = assay("arc", "report").stdout
    assert "- **Harness**: gemini (m1, m2)" in report
    assert "- **Agent in ky01-v1.trial-2**: model m2" in report
    data = json.loads(assay("arc", "report", "--format", "json").stdout)
    assert [one["model"] for one in data["agents"]] == ["m1", "m2"]
    compared = assay("arc", "compare", "previous", "latest").stdout
    assert "have different models: m1 and m1, m2" in compared
    assert "was played by several models: m1, m2" in compared
    assert "- Model: m1 -> m1, m2" in compared


def test_all_takes_the_newest_measured_run_and_names_the_others(
    run: StoredRun, arc: Any, assay: Callable[..., Any]
) -> None:
    other = arc.variant(run, harness="other", timestamp="2026-01-01T00:00:00+00:00")
    lost = {"ky01-v1": "environment failed: no bwrap"}
    empty = arc.variant(run, timestamp="2026-12-01T00:00:00+00:00", not_measured=lost)
    row = json.loads((empty.folder / "results.jsonl").read_text())
    row["failure"] = {"cause": "world", "message": "no bwrap"}
    (empty.folder / "results.jsonl").write_text(json.dumps(row) + "\n")
    arc.reseal(empty)
    done = assay("arc", "compare", "--all")
    assert done.code == 0, done.stderr
    assert "## Left Out" in done.stdout
    assert f"- {empty.label}: nothing in it was measured" in done.stdout
    for one in (run, other):
        assert f"{one.label} | " in done.stdout
    data = json.loads(assay("arc", "compare", "--all", "--format", "json").stdout)
    assert data["common_games"] == ["ky01-v1"]
    assert [one["run_id"] for one in data["left_out"]] == [empty.meta.run_id]


def test_runs_that_share_no_game_are_left_out() -> None:
    def entry(name: str, *games: str) -> ComparedRun:
        meta = RunMeta(run_id=f"{name}-1", harness=name, timestamp="2026-01-01")
        rows = [GameRow(id=game, score=0.5) for game in games]
        return ComparedRun(run=StoredRun(folder=Path(name), meta=meta), card=Scorecard(games=rows))

    a, b, c = entry("a", "g1", "g2"), entry("b", "g1", "g2"), entry("c", "g3")
    kept, left_out = with_shared_games([a, c, b])
    assert (kept, [one.run_id for one in left_out]) == ([a, b], ["c-1"])
    apart = [entry("a", "g1"), entry("b", "g2"), c]
    assert with_shared_games(apart) == (apart, [])


def test_the_games_are_those_of_this_folder_wherever_runs_are_kept(
    assay: Callable[..., Any], tmp_path: Path, levels_file: Path
) -> None:
    shutil.copytree(BUILT_IN / "mx01", tmp_path / "environment_files" / "mx01")
    store = tmp_path / "far" / "away"
    store.mkdir(parents=True)
    shutil.copy(levels_file, store)
    done = assay("arc", "browse", "--store", store)
    assert "Total: 1 environment in environment_files" in done.stdout


def test_levels_are_scored_by_the_formula_of_the_game(run: StoredRun, arc: Any) -> None:
    """Of fewer actions than a person needs comes more than 100, as in the official score."""
    played, _ = derive_played(run.folder, run.meta)
    quick = msgspec.structs.replace(played[0].result, baselines=(20, 7, 24, 15, 19))
    card = build_card("r", [msgspec.structs.replace(played[0], result=quick)])
    assert "| 1     | 115.0 |" in report_markdown(run, card)
    [game] = report_json(run, card)["games"]
    assert game["level_scores_percent"][0] == 115.0
    assert card.games[0].best.level_scores[0] == 1.0


def test_a_stuck_level_has_pictures_reasoning_and_actions(
    run: StoredRun, won: Path, assay: Callable[..., Any]
) -> None:
    said = (won / "said").read_text().splitlines()
    assert said[-2].startswith("View: assay view .arc-agi-benchmarks/runs/")
    page = Path(said[-1].removeprefix("Why it is stuck: file://"))
    assert page.name == "report.html"
    page = run.folder / page.name
    text = page.read_text()
    assert text.count('<svg viewBox="0 0 64 64"') == 2
    assert "ky01-v1 trial 1: stuck on level 2 of 5, 3 actions there" in text
    assert "<b>Actions</b>: ACTION1 x3" in text
    assert "<li>Level 2: the wall does not move, so &lt;I&gt; go up | again.</li>" in text
    assert "first level looks easy" not in text
    replay = assay("arc", "replay", "latest", "ky01", "--text").stdout
    before, _, after = replay.partition("Thought: Level 2")
    assert "Thought: The first level looks easy." in before
    assert before.count("ACTION3  NOT_FINISHED  level 2") == 1
    assert "11. ACTION1" in after


HOSTILE = "a|b <script>*x*_[l](u)"
ESCAPED = r"a\|b \<script\>\*x\*\_\[l\](u)"


def test_hostile_names_are_escaped_in_markdown(
    run: StoredRun, arc: Any, assay: Callable[..., Any]
) -> None:
    made = arc.variant(run, harness=HOSTILE, game_tags={"ky01-v1": [HOSTILE]})
    made.meta.harness_config.model = HOSTILE
    made.meta.not_measured = {HOSTILE: HOSTILE}
    made.meta.tampered = {HOSTILE: [HOSTILE]}
    arc.reseal(made)
    for words in (("report", made.meta.run_id), ("compare", run.meta.run_id, made.meta.run_id)):
        text = assay("arc", *words).stdout
        assert ESCAPED in text
        assert "<script>" not in text
        assert "a|b" not in text
    page = assay("arc", "report", made.meta.run_id, "--format", "html").stdout.strip()
    assert "<script>*x" not in Path(page).read_text()


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("browse", "--filter", "nope"), "No game matches --filter nope."),
        (("browse", "--tag", "nope"), "No game matches --tag nope."),
        (("bogus",), "assay arc generate HARNESS"),
    ],
)
def test_what_matches_nothing_says_so(
    assay: Callable[..., Any], words: tuple[str, ...], expected: str
) -> None:
    done = assay("arc", *words)
    assert done.code in (1, 2)
    assert expected in done.stderr


def test_generate_takes_what_the_latest_run_played(
    run: StoredRun, assay: Callable[..., Any]
) -> None:
    done = assay("arc", "generate", "gemini", "--ref", "latest", "--json")
    assert done.code == 0, done.stderr
    data = json.loads(done.stdout)
    assert (data["game_count"], data["ref_run_id"]) == (1, run.meta.run_id)
    text = Path(data["instructions"]).read_text()
    assert "| 20 |" in text or "20" in text.partition("## Game")[0]
    assert str(run.store.root.parent) not in text
