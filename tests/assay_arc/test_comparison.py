"""Comparisons: the seed's statuses and file without its faults, honest statistics beside them."""

import json
from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner

from assay.compare.report import CompareOptions
from assay.viewer.index import Index
from assay.viewer.overview import OpenRun, overview
from assay_arc.cards import read_card
from assay_arc.commands import command
from assay_arc.comparison import ComparedRun, compare_runs
from assay_arc.comparison_report import comparison_markdown
from assay_arc.figures import efficiency, level_reach, progress_curve
from assay_arc.report import report_json, report_markdown
from assay_arc.store import (
    GameRow,
    HarnessConfig,
    PlayRow,
    RunMeta,
    Scorecard,
    Store,
    StoredRun,
    TrialRow,
    write_json,
)


def game(game_id, *percents, levels=2, done=1, source="a" * 64, cost=None) -> GameRow:
    known = [percent for percent in percents if percent is not None]
    return GameRow(
        id=game_id,
        score=known[0] / 100 if known else None,
        score_percent=sum(known) / len(known) if known else None,
        score_reason=None if known else "the game's metadata has no baselines",
        source_sha256=source,
        level_count=levels,
        runs=[
            PlayRow(
                id=game_id,
                levels_completed=done,
                actions=20,
                level_scores=[percent / 100 for percent in known[:1]] + [0.0],
                level_actions=[10, 10],
                level_baseline_actions=[5, 5],
                number_of_levels=levels,
                score_percent=known[0] if known else None,
                state="GAME_OVER",
            )
        ],
        trials=[
            TrialRow(
                trial=i + 1,
                score_percent=percent,
                levels_completed=done,
                total_levels=levels,
                won=False,
                state="GAME_OVER",
                stop_reason="game_over",
                actions=20,
                steps=20,
                resets=0,
                progress=[10][:done],
                cost_usd=cost,
            )
            for i, percent in enumerate(percents)
        ],
    )


def entry(name, *games, imported=False, verified="recorded", **meta) -> ComparedRun:
    known = [row.score_percent for row in games if row.score_percent is not None]
    costs = [t.cost_usd for row in games for t in row.trials if t.cost_usd is not None]
    fields = {"harness": name, "timestamp": "2026-01-01T00:00:00", "status": "completed"}
    card = Scorecard(
        card_id=name,
        formula="official",
        score_percent=sum(known) / len(known) if known else None,
        games=list(games),
        games_scored=len(known),
        total_environments=len(games),
        total_levels=sum(row.n_levels for row in games),
        total_levels_completed=sum(t.levels_completed for row in games for t in row.trials),
        cost_usd=sum(costs) if costs else None,
    )
    run = StoredRun(
        folder=Path("/nowhere") / name,
        meta=RunMeta(run_id=f"{name}-0000-run", verified=verified, **fields | meta),
        imported=imported,
    )
    return ComparedRun(run=run, card=card)


def compare(*entries, tolerance=1.0, rank_all=False):
    return compare_runs(list(entries), "id", "now", tolerance=tolerance, rank_all=rank_all)


def test_statuses_and_their_order_are_the_seeds():
    before = entry("a", game("up", 10.0), game("down", 50.0), game("same", 5.0), game("gone", 9.0))
    now = entry("b", game("up", 30.0), game("down", 20.0), game("same", 5.5), game("new", 1.0))
    compared = compare(before, now)
    assert [(d.game_id, d.status) for d in compared.environment_deltas] == [
        ("down", "Regressed"),
        ("up", "Improved"),
        ("new", "New"),
        ("same", "Unchanged"),
        ("gone", "Missing"),
    ]
    assert compared.summary["total_regressed"] == 1
    assert compared.summary["total_missing"] == 1


def test_22_a_zero_baseline_is_no_infinity_and_scales_are_named():
    compared = compare(entry("a", game("g", 0.0)), entry("b", game("g", 40.0)))
    text = msgspec.json.encode(compared).decode()
    assert "Infinity" not in text
    assert "NaN" not in text
    assert compared.overall_delta["score_delta_percent"] is None
    assert compared.overall_delta["score_delta"] == pytest.approx(0.4)
    assert compared.overall_delta["score_delta_points"] == pytest.approx(40)
    [delta] = compared.environment_deltas
    assert all(abs(level.delta) <= 1 for level in delta.level_deltas)
    assert "inf" not in comparison_markdown(compared, [entry("a"), entry("b")]).split()


def test_22_missing_and_unscored_games_are_no_difference():
    compared = compare(
        entry("a", game("x", 80.0), game("y", None)), entry("b", game("y", None), game("z", 10.0))
    )
    by_id = {delta.game_id: delta for delta in compared.environment_deltas}
    assert by_id["x"].score_delta is None
    assert by_id["y"].status == "Not scored"
    assert compared.pairs[0].paired.n_prompts == 0
    assert compared.pairs[0].verdict.code == "not-enough-data"


def test_22_the_third_run_is_compared_too_and_mcp_changes_are_told():
    runs = [
        entry(name, *(game(f"g{i}", base + i) for i in range(8)), harness_config=config)
        for name, base, config in (
            ("a", 10.0, HarnessConfig(model="m1", mcp_servers=["arc"])),
            ("b", 50.0, HarnessConfig(model="m2")),
            ("c", 10.0, HarnessConfig(model="m1")),
        )
    ]
    compared = compare(*runs)
    assert [pair.verdict.code for pair in compared.pairs] == ["better", "not-enough-data"]
    assert compared.pairs[0].adjusted_p >= compared.pairs[0].paired.p_value
    assert compared.config_diff["mcp_servers_removed"] == ["arc"]
    text = comparison_markdown(compared, runs)
    for words in ("## Configurations", "8 games", "Holm"):
        assert words in text
    assert "prompts" not in text
    two = comparison_markdown(compare(*runs[:2]), runs[:2])
    for words in ("mcp_servers: -arc", "Model: m1 -> m2"):
        assert words in two


@pytest.mark.parametrize("gain", [40.0, 0.1, -15.0])
def test_the_viewer_says_of_scores_what_arc_compare_says(tmp_path, gain):
    """Few games are won: scores show more than the share of games won, which the viewer has too."""
    percents = {"a": [10.2 + i for i in range(12)], "b": [10.2 + i + gain for i in range(12)]}
    percents["b"] = [max(percent, 0.0) for percent in percents["b"]]
    opened = []
    for name, known in percents.items():
        rows = [
            {
                "id": f"g{i}",
                "input": f"Play {i}.",
                "output": "",
                "trajectory": [],
                "timing": {"start": 1, "end": 2, "total": 1},
                "metadata": {"game": f"g{i}"},
                "score": {"pass": False, "score": percent / 100},
                "outcome": {"measures": {"official %": percent}},
            }
            for i, percent in enumerate(known)
        ]
        path = tmp_path / f"{name}.jsonl"
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
        opened.append(OpenRun(name, Index(path, keep=False)))
        opened[-1].index.refresh()
    [group] = overview("t", opened, CompareOptions(margin=0.01))["groups"]
    [shown] = group["sections"]["verdict"]
    for one in opened:
        one.index.close()
    entries = [
        entry(name, *(game(f"g{i}", percent) for i, percent in enumerate(known)))
        for name, known in percents.items()
    ]
    [pair] = compare(*entries).pairs
    assert shown["byScore"]["code"] == pair.verdict.code
    said = pair.verdict.words.replace("game", "prompt")
    for label, one in zip("ab", entries, strict=True):
        said = said.replace(one.run.label, label)
    assert f"By the score: {said}" in shown["words"]


def section(text: str, title: str) -> list[list[str]]:
    """The rows of the tables in a section of the report."""
    lines = text.partition(f"\n## {title}\n")[2].partition("\n## ")[0].splitlines()
    return [[cell.strip() for cell in line.split("|")[1:-1]] for line in lines if "|" in line]


def test_three_runs_are_a_matrix_of_games_and_one_of_levels():
    runs = [
        entry("a", game("x", 10.0), game("y", 20.0), game("only-a", 90.0)),
        entry("b", game("x", 30.0), game("y", 40.0)),
        entry("c", game("x", 50.0), game("y", 10.0), game("z", 99.0)),
    ]
    compared = compare(*runs)
    assert compared.common_games == ["x", "y"]
    assert [run.common_percent for run in compared.runs] == [15.0, 35.0, 30.0]
    assert compared.ranking == ["b-0000-run", "c-0000-run", "a-0000-run"]
    by_game = {row.game_id: [cell.score for cell in row.cells] for row in compared.matrix}
    assert by_game["x"] == pytest.approx([0.1, 0.3, 0.5])
    assert by_game["only-a"] == [0.9, None, None]
    text = comparison_markdown(compared, runs)
    matrix = section(text, "Game by Run")
    assert ["x", "10.0, 1/2", "30.0, 1/2", "50.0, 1/2"] in matrix
    assert ["only-a *", "90.0, 1/2", "-", "-"] in matrix
    assert ["Mean of 2 common games", "15.0", "35.0", "30.0"] in matrix
    assert ["1", "10.0 (10)", "30.0 (10)", "50.0 (10)"] in section(text, "Level by Run")
    assert "Score / 100 (2 common games)" in text
    assert "All its games" in text
    # Runs of different harnesses are no series: no line says what one gained on its neighbour.
    assert "## Trend" not in text
    assert "Delta" not in text
    assert "Overall, b" not in text


def test_totals_and_effort_are_of_the_common_games_alone():
    runs = [
        entry("a", game("x", 10.0, cost=1.0), game("dear", 90.0, cost=100.0)),
        entry("b", game("x", 30.0, cost=2.0)),
    ]
    compared = compare(*runs)
    assert compared.overall_delta["score_delta_points"] == pytest.approx(20.0)
    assert [run.common_cost_usd for run in compared.runs] == [1.0, 2.0]
    assert [run.cost_per_level_usd for run in compared.runs] == [1.0, 2.0]
    assert compared.runs[0].overall_percent == 50.0
    assert compared.runs[0].cost_usd == 101.0
    other_version = entry("c", game("x", 99.0, source="b" * 64))
    assert compare(runs[0], other_version).common_games == []


def test_runs_of_one_harness_are_a_series():
    runs = [entry("a", game("x", score), timestamp=f"2026-01-0{i}") for i, score in TREND]
    rows = section(comparison_markdown(compare(*runs), runs), "Trend")
    assert [row[-1] for row in rows[2:]] == ["-", "+20.00", "-10.00"]


TREND = ((1, 10.0), (2, 30.0), (3, 20.0))


def test_a_game_that_died_is_named_as_such():
    why = "world: the game process died 4 times: it was killed"
    before = entry("a", game("x", 10.0), game("y", 10.0))
    now = entry("b", game("x", 10.0), not_measured={"y.trial-1": why, "y.trial-2": why})
    compared = compare(before, now)
    status = {delta.game_id: delta.status for delta in compared.environment_deltas}
    assert status == {"x": "Unchanged", "y": "Not measured"}
    assert compared.summary["total_not_measured"] == 1
    assert compared.runs[1].games_not_measured == 1
    for runs in ([before, now], [before, now, entry("c", game("x", 1.0))]):
        text = comparison_markdown(compare(*runs), runs)
        assert f"- y, b b-0000-r: not measured: 2 trials, the first: {why}" in text
    broken = game("x", 10.0)
    broken.trials[0].game_failure = "the game broke on ACTION7"
    text = comparison_markdown(compare(before, entry("d", broken)), [before, entry("d", broken)])
    assert "x, d d-0000-r: the game died in 1 of 1 trials: the game broke on ACTION7" in text


def test_a_game_that_was_not_played_is_shown_as_such():
    unplayed = game("y", 0.0, done=0)
    unplayed.runs = []
    unplayed.trials[0].state = "NOT_PLAYED"
    before, now = (
        entry("a", game("x", 10.0), game("y", 50.0)),
        entry("b", game("x", 10.0), unplayed),
    )
    compared = compare(before, now)
    assert compared.runs[1].games_not_played == 1
    assert compared.runs[1].common_percent == 5.0
    assert "- y, b b-0000-r: not played, counted as 0" in comparison_markdown(
        compared, [before, now]
    )
    three = [before, now, entry("c", game("x", 1.0), game("y", 1.0))]
    assert "0.0, not played" in comparison_markdown(compare(*three), three)


def test_what_makes_runs_less_comparable_is_warned_of():
    base = entry("a", game("g", 10.0), seed=0, max_steps=500, arc_agi_version="0.9.9")
    other = entry(
        "b",
        game("g", 10.0, source="b" * 64),
        game("h", 1.0),
        seed=1,
        max_steps=80,
        trials=3,
        arc_agi_version="1.0.0",
        game_set="imported",
        imported=True,
        verified="unverified",
        verification="no session logs were given",
    )
    other.card.formula = "rhae-linear-1.00"
    warnings = " / ".join(compare(base, other).warnings)
    for words in (
        "different seeds: 0 and 1",
        "different step limits: 500 and 80",
        "different numbers of trials",
        "arc-agi versions",
        "different games; 1 is in both",
        "different versions of g",
        "different formulas",
        "b b-0000-r is UNVERIFIED (no session logs were given)",
    ):
        assert words in warnings
    assert compare(base, other).pairs[0].paired.n_prompts == 0
    same = entry(
        "c", game("g", 10.0), game_set="imported", arc_agi_version="unknown", max_steps=500
    )
    assert compare(base, same).warnings == []


def test_an_unverified_run_never_ranks_above_a_verified_one():
    true = entry("true", game("g", 5.0))
    claim = entry("claim", game("g", 100.0), imported=True, verified="unverified")
    old = entry("old", game("g", 90.0), imported=True, verified=None)
    assert compare(claim, true, old).ranking[0] == "true-0000-run"
    assert compare(claim, true, old, rank_all=True).ranking[0] == "claim-0000-run"
    text = comparison_markdown(compare(claim, true), [claim, true])
    assert "claim claim-00 [unverified]" in text


def test_intervals_come_with_repeated_trials_and_cost_with_levels():
    a = entry("a", game("g", 10.0, 30.0, 20.0, cost=0.5))
    b = entry("b", game("g", 40.0, 60.0, 50.0))
    compared = compare(a, b)
    [delta] = compared.environment_deltas
    assert delta.baseline_interval.low < 0.2 < delta.baseline_interval.high
    assert compared.runs[0].cost_per_level_usd == pytest.approx(0.5)
    assert compared.runs[1].cost_per_level_usd is None
    assert compared.runs[0].progress == {
        "10": 0.5, "25": 0.5, "50": 0.5, "100": 0.5, "200": 0.5, "500": 0.5, "1000": 0.5,
    }  # fmt: skip


def test_effort_is_measured_against_people_on_completed_levels_only():
    rows = [game("g", 25.0), game("h", 25.0, done=0)]
    assert efficiency(rows) == (10, 5, 2.0)
    card = entry("a", *rows).card
    assert level_reach(card) == [(1, 1, 2), (2, 0, 2)]
    assert progress_curve(Scorecard()) == [None] * 7


def seed_card() -> dict:
    """A scorecard as the seed's import writes it."""
    run = {
        "id": "g",
        "guid": "x",
        "score": 0.4,
        "levels_completed": 1,
        "actions": 9,
        "resets": 0,
        "state": "GAME_OVER",
        "completed": False,
        "level_scores": [0.8, 0.0],
        "level_actions": [4, 5],
        "level_baseline_actions": [4, 4],
        "number_of_levels": 2,
    }
    return {
        "card_id": "s",
        "source_url": None,
        "tags": [],
        "opaque": None,
        "competition_mode": False,
        "score": 0.4,
        "total_environments_completed": 0,
        "total_environments": 1,
        "total_levels_completed": 1,
        "total_levels": 2,
        "total_actions": 9,
        "games": [{"id": "g", "score": 0.4, "runs": [run]}],
        "tags_scores": [],
    }


def test_06_21_runs_that_the_seed_wrote_are_read_on_their_own_scale(tmp_path):
    store = Store(tmp_path)
    for folder, run_id in ((store.runs_dir, "seed-1"), (store.import_dir("codex"), "seed-2")):
        meta = {
            "run_id": run_id,
            "harness": "claude-code",
            "timestamp": f"2026-01-0{run_id[-1]}",
            "status": "completed",
            "harness_config": {"model": "m", "plugins": ["p"], "skills": [], "mcp_servers": []},
        }
        write_json(folder / run_id / "run-meta.json", meta)
        write_json(folder / run_id / "scorecard.json", seed_card())
    run = store.find("latest")
    assert (run.meta.run_id, run.imported) == ("seed-2", True)
    data = report_json(run, read_card(run))
    assert data["overall_score"] == pytest.approx(40.0)
    assert data["games"][0]["level_scores"] == [80.0, 0.0]
    text = report_markdown(run, read_card(run))
    assert "40.00 / 100" in text
    assert "UNVERIFIED" in text
    entries = [
        ComparedRun(run=store.find(n), card=read_card(store.find(n))) for n in ("seed-1", "seed-2")
    ]
    assert compare(*entries).environment_deltas[0].status == "Unchanged"


def test_the_seeds_fields_are_in_the_comparison_file():
    compared = compare(entry("a", game("g", 1.0)), entry("b", game("g", 2.0)))
    data = json.loads(msgspec.json.encode(compared))
    assert {
        "comparison_id",
        "timestamp",
        "runs",
        "overall_delta",
        "environment_deltas",
        "config_diff",
        "summary",
    } <= set(data)
    assert {"run_id", "harness", "timestamp", "overall_score", "config_hash"} <= set(
        data["runs"][0]
    )
    delta = data["environment_deltas"][0]
    assert {"game_id", "status", "baseline_score", "current_score", "score_delta"} <= set(delta)
    assert {"level_index", "baseline_score", "current_score", "delta"} == set(
        delta["level_deltas"][0]
    )


def test_nothing_measured_in_two_runs_is_exit_1(tmp_path):
    store = Store(tmp_path / "s")
    why = {"x": "world: the game process died 4 times"}
    for one in (
        entry("a", not_measured=why),
        entry("b", game("x", 3.0)),
        entry("c", game("y", 1.0)),
    ):
        folder = store.runs_dir / one.run.meta.run_id
        write_json(folder / "run-meta.json", one.run.meta)
        write_json(folder / "scorecard.json", one.card)
    words = ["compare", "--store", str(store.root)]
    for pair in (["a-0000-run", "b-0000-run"], ["b-0000-run", "c-0000-run"]):
        done = CliRunner().invoke(command, [*words, *pair])
        assert done.exception.exit_code == 1
        assert "Nothing to compare" in done.exception.message
    assert "not measured: world: the game process died 4 times" in (
        CliRunner().invoke(command, [*words, "a-0000-run", "b-0000-run"]).output
    )


def test_a_report_names_a_game_that_died_and_skips_tags_of_others():
    broken = game("x", 10.0)
    broken.trials[0].game_failure = "the game broke on ACTION7"
    one = entry("a", broken)
    one.card.tags_scores = ["a tag", {"id": "other"}]
    text = report_markdown(one.run, one.card)
    assert "- x: the game died in 1 of 1 trials: the game broke on ACTION7" in text
    assert "Scores by Tag" not in text
