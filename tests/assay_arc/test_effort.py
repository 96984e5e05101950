"""What levels took: actions, time, reasoning, tokens, cost; and the score against the spending."""

import json
from datetime import UTC, datetime, timedelta

import msgspec
import pytest
from click.testing import CliRunner

from assay_arc.cards import PlayedTrial, build_card, played_from_log, read_card
from assay_arc.commands import command
from assay_arc.effort import AgentEffort, StepTime, level_efforts, mean_curve, score_curve
from assay_arc.figures import curve_picture, score_at, score_by_actions, score_by_cost
from assay_arc.log import Event, read_log
from assay_arc.scoring import derive_result
from assay_arc.store import Store

BEGAN = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.fixture
def won(table, solutions):
    """The log of ky01, won as fast as possible, an action every second; baselines 10 7 24 15 19."""
    game = table("ky01-v1")
    for step in (step for way in solutions["ky01-v1"] for step in way):
        game.step(step)
    game.session.end("player_quit")
    game.log.close()
    log = read_log(game.path)
    records = []
    for record in log.records:
        at = (BEGAN + timedelta(seconds=record.seq)).isoformat()
        records.append(msgspec.structs.replace(record, at=at))
    return msgspec.structs.replace(log, records=tuple(records))


def agent(*steps, **known) -> AgentEffort:
    return AgentEffort(steps=steps, **known)


def thought(second: float, text: str) -> StepTime:
    return StepTime(type="thought", timestamp=second * 1000, content=text)


def call(second: float) -> StepTime:
    return StepTime(type="tool_call", timestamp=second * 1000)


def test_actions_and_time_go_to_the_level_that_was_played(won):
    levels = level_efforts(won, AgentEffort())
    assert [level.actions for level in levels] == [10, 7, 24, 15, 19]
    assert [level.seconds for level in levels] == pytest.approx([10, 7, 24, 15, 19])
    assert all(level.steps is level.tokens is level.cost_usd is None for level in levels)


def test_reasoning_tokens_and_cost_go_by_the_steps_of_a_level(won):
    steps = [thought(0.5, "x" * 40), call(3), thought(12, "y" * 7), call(30)]
    levels = level_efforts(won, agent(*steps, tokens=400, cost_usd=2.0))
    assert [level.steps for level in levels] == [2, 1, 1, 0, 0]
    assert [level.reasoning_chars for level in levels] == [40, 7, 0, 0, 0]
    assert [level.tokens for level in levels] == [200, 100, 100, 0, 0]
    assert sum(level.cost_usd for level in levels) == pytest.approx(2.0)
    assert agent(*steps).reasoning_chars == 47


def test_a_reset_counts_as_an_action_of_its_level_and_a_new_game_does_not(table):
    game = table("ky01-v1")
    game.do("act", action="ACTION2")
    game.do("reset")
    game.do("reset")  # the second in a row starts the whole game again
    game.do("act", action="ACTION2")
    game.log.close()
    log = read_log(game.path)
    assert [level.actions for level in level_efforts(log, AgentEffort())] == [3, 0, 0, 0, 0]
    result = derive_result(log)
    assert sum(play.actions for play in result.plays) == 3


def test_the_curve_has_the_score_at_each_completed_level(won):
    result = derive_result(won)
    steps = [call(second) for second in range(0, 75, 5)]
    points = score_curve(won, result, agent(*steps, cost_usd=15.0))
    assert [point.actions for point in points] == [10, 17, 41, 56, 75]
    # Weights 1..5: at the baseline a level counts 100, and the completed share is the cap.
    assert [point.score_percent for point in points] == pytest.approx(
        [100 * n / 15 for n in (1, 3, 6, 10, 15)]
    )
    assert [point.cost_usd for point in points] == [3.0, 4.0, 9.0, 12.0, 15.0]


def test_the_curve_is_of_the_best_play_so_far(won):
    """Two plays: the first completes a level slowly, the second does it at the baseline."""
    result = derive_result(won)
    [play] = result.plays
    slow = msgspec.structs.replace(play, marks=((1, 20),), actions=30, state="NOT_FINISHED")
    both = msgspec.structs.replace(result, plays=(slow, play))
    points = score_curve(won, both, AgentEffort())
    assert [point.actions for point in points] == [20, 40, 47, 71, 86, 105]
    assert points[0].score_percent == pytest.approx(25 / 15)


def test_games_without_baselines_have_no_curve(won):
    bare = msgspec.structs.replace(derive_result(won), baselines=None)
    assert score_curve(won, bare, AgentEffort()) == []


def test_the_mean_curve_is_over_trials_then_games():
    one = [([(10.0, 50.0)], 20.0), ([], 40.0)]
    other = [([(5.0, 100.0)], 5.0)]
    curve = mean_curve([one, other])
    assert curve == [(0.0, 0.0), (5.0, 50.0), (10.0, 62.5), (40.0, 62.5)]
    assert (score_at(curve, 4), score_at(curve, 7), score_at(curve, 99)) == (0.0, 50.0, 62.5)


def card_of(folder, log, *agents):
    path = folder / "logs" / "g.jsonl"
    path.parent.mkdir()
    lines = [msgspec.json.encode(record) for record in (log.header, *log.records)]
    path.write_bytes(b"\n".join(lines) + b"\n")
    played: list[PlayedTrial] = [
        played_from_log(folder, "logs/g.jsonl", i + 1, one, "recorded")
        for i, one in enumerate(agents)
    ]
    return build_card("r", played)


def test_a_card_has_the_curves_and_a_cost_that_is_not_known_is_none(won, tmp_path):
    steps = [call(second) for second in range(0, 75, 5)]
    paid = agent(*steps, cost_usd=15.0, tokens=1000)
    card = card_of(tmp_path, won, paid)
    assert score_by_actions(card)[-1] == (75, pytest.approx(100))
    assert score_by_cost(card)[-1] == (15.0, pytest.approx(100))
    assert (card.tokens, card.reasoning_chars) == (1000, 0)
    picture = curve_picture("Score against actions a trial", "actions", score_by_actions(card))
    assert picture.startswith("<figure><svg")
    assert "100.0 % after 75 actions" in picture
    (tmp_path / "two").mkdir()
    assert score_by_cost(card_of(tmp_path / "two", won, paid, AgentEffort())) == []
    assert curve_picture("x", "$", []) == ""


def arc(*words) -> str:
    done = CliRunner().invoke(command, [str(word) for word in words])
    assert done.exit_code == 0, done.output
    return done.output


def test_a_run_has_effort_curves_and_tags_in_its_reports(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    arc("run", "random", "--games", "ky01,od01", "-k", "2", "--max-steps", "60", "-q", "-j", "2")
    data = json.loads(arc("report", "--format", "json"))
    run = Store(tmp_path / ".arc-agi-benchmarks").find("latest")
    for game in data["games"]:
        for trial in game["trials"]:
            assert sum(level["actions"] for level in trial["levels"]) == trial["actions"]
            assert sum(level["steps"] for level in trial["levels"]) > 0
    assert data["score_by_actions"][-1][1] == pytest.approx(read_card(run).score_percent)
    assert data["score_by_cost"] == []
    tags = {tag["id"]: tag for tag in data["tags"]}
    assert sum(tag["games"] for tag in tags.values()) >= 2
    text = arc("report")
    assert "## Effort per Level" in text
    assert "## Scores by Tag" in text
    page = (run.folder / "report.html") if arc("report", "--format", "html") else None
    assert "<svg" in page.read_text()
    assert "Score against actions a trial" in page.read_text()


def test_broken_times_and_events_do_not_break_a_card(won):
    records = tuple(r for r in won.records if isinstance(r, Event))[:1]
    short = msgspec.structs.replace(won, records=records)
    assert level_efforts(short, agent(call(1), tokens=5))[0].tokens == 5
    empty = msgspec.structs.replace(won, records=())
    assert level_efforts(empty, agent(call(1)))[0].steps is None
