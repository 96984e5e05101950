"""Formulas: hand-worked numbers, nulls with reasons, and equality with arc_agi's own scorecard."""

import tempfile
from importlib.metadata import version
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from assay_arc.scoring import (
    FORMULAS,
    SCORER,
    GameResult,
    PlayResult,
    score_all,
    score_game,
    toolkit_play_percent,
)


def play(*spent, index=1, left=0):
    """A play that completed a level after each number of actions, then spent some more."""
    marks, total = [], 0
    for level, actions in enumerate(spent, 1):
        total += actions
        marks.append((level, total))
    return PlayResult(
        index=index,
        state="NOT_FINISHED",
        levels_completed=len(spent),
        actions=total + left,
        resets=0,
        marks=tuple(marks),
        levels=(),
        first_seq=0,
        last_seq=0,
    )


def game(baselines, *plays, levels=None):
    return GameResult(
        game_id="g-1",
        level_count=len(baselines) if levels is None else levels,
        baselines=tuple(baselines) if baselines is not None else None,
        seed=0,
        stop_reason="player_quit",
        state="NOT_FINISHED",
        won=False,
        levels_completed=max((p.levels_completed for p in plays), default=0),
        steps=0,
        resets=0,
        rejected=0,
        started_at="",
        duration_s=None,
        plays=plays,
    )


TEN = (10, 10, 10, 10, 10)


@pytest.mark.parametrize(
    ("result", "official", "seed", "squared", "linear"),
    [
        (game(TEN, play(5, 5, 5, 5, 5)), 100.0, 1.0, 100.0, 100.0),
        # (1+2+3+4) * 115 + 5 * 25 = 1275, over 15; at most 100
        (game(TEN, play(5, 5, 5, 5, 20)), 85.0, 0.75, 75.0, 90.0),
        # 25 + 14 * 115 = 1635 over 15 = 109, so 100
        (game(TEN, play(20, 5, 5, 5, 5)), 100.0, 0.95, 95.0, 90.0),
        (game(TEN, play(10, 10, 10, 10)), 200 / 3, 2 / 3, 200 / 3, 80.0),
        (game(TEN, play(5, 5, 5, 5, left=3)), 200 / 3, 2 / 3, 200 / 3, 80.0),
        # 3 of 7 levels at twice the baseline: 6 * 25 / 28
        (game((10,) * 7, play(20, 20, 20)), 150 / 28, 1.5 / 28, 150 / 28, 150 / 7),
        # walk to goal, 12 wasted and a reset first: (9/256 + 2 + 3) / 6
        (game((3, 6, 10), play(16, 6, 10)), (900 / 256 + 500) / 6, 0.8391927, 83.91927, 72.91667),
        # two levels, the first with baseline 0: only the second counts, 2 of 3
        (game((0, 10), play(4, 10)), 200 / 3, 2 / 3, 200 / 3, 50.0),
        (game(TEN, play()), 0.0, 0.0, 0.0, 0.0),
    ],
)
def test_hand_worked_numbers(result, official, seed, squared, linear):
    scores = score_all(result)
    assert scores["official"].score_percent == pytest.approx(official)
    assert scores["rhae-squared-1.15"].score_percent == pytest.approx(official)
    assert scores["rhae-squared-1.00"].score_percent == pytest.approx(squared)
    assert scores["rhae-linear-1.00"].score_percent == pytest.approx(linear, rel=1e-5)
    assert scores["seed-1.0.0"].score_fraction == pytest.approx(seed)
    assert scores["seed-1.0.0"].score_percent is None
    assert scores["official"].score_fraction is None


def test_official_takes_the_best_play_and_first_play_the_first():
    result = game((4, 4), play(8, left=2), play(4, 4, index=2), play(index=3))
    assert score_game(result).score_percent == pytest.approx(100.0)
    assert score_game(result).play == 2
    first = score_game(result, "first_play")
    assert first.score_percent == pytest.approx(25 / 3)
    assert first.play == 1


@pytest.mark.parametrize(
    ("result", "words", "toolkit"),
    [
        (game((), play(3), levels=3), "no baselines", 0.0),
        (game((3,), play(3), levels=2), "1 baselines for 2 levels", 100.0),
        (game((3,), play(3, 3), levels=2), "1 baselines for 2 levels", 0.0),
        (game((2,) * 6, play(2, 2, 2, 2, 2), levels=5), "6 baselines for 5 levels", 1500 / 21),
        (game((-5, 5), play(5, 5)), "level 1 is -5", 100.0),
    ],
)
def test_unusable_baselines_give_null_and_a_reason(result, words, toolkit):
    for formula, score in score_all(result).items():
        assert score.score_percent is None
        assert score.score_fraction is None
        assert words in score.reason, formula
    assert score_game(result).toolkit_percent == pytest.approx(toolkit)


def test_a_game_not_played_is_zero_and_says_so():
    for formula in FORMULAS:
        empty = score_game(game((3,)), formula)
        assert (empty.score_percent or 0.0) + (empty.score_fraction or 0.0) == 0
        assert empty.reason == "not played"
        assert score_game(game(None, levels=1), formula).score_percent is None


def test_the_scorer_named_is_the_one_installed():
    assert f"arc_agi {version('arc-agi')}/RHAE-1.15" == SCORER
    assert score_game(game((3,), play(3))).scorer == SCORER


def test_unknown_formula_lists_the_known():
    with pytest.raises(ValueError, match="rhae-linear"):
        score_game(game((3,), play(3)), "nope")
    assert len(FORMULAS) == 6


CHANGES = {
    "right": lambda b: b,
    "doubled": lambda b: [2 * n for n in b],
    "mixed": lambda b: [3 * n if i % 2 else max(1, n // 2) for i, n in enumerate(b)],
    "zero first": lambda b: [0, *b[1:]],
    "negative": lambda b: [*b[:-1], -b[-1]],
    "none": lambda b: None,
    "short": lambda b: b[:1],
    "long": lambda b: [*b, 5],
}
MOVES = st.one_of(
    st.just("solve"),
    st.just("reset"),
    st.just("reset twice"),
    st.tuples(st.integers(0, 9), st.integers(0, 63), st.integers(0, 63)),
)


@settings(
    max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(data=st.data())
def test_official_equals_the_toolkits_scorecard(data, games, solutions, arc):
    game_id = data.draw(st.sampled_from(sorted(games)))
    change = data.draw(st.sampled_from(sorted(CHANGES)))
    moves = data.draw(st.lists(MOVES, max_size=14))
    with tempfile.TemporaryDirectory(dir=arc.MEMORY) as folder:
        baselines = CHANGES[change](list(games[game_id].baselines))
        info = arc.with_baselines(Path(folder), games[game_id], baselines)
        table = arc.Table(info, Path(folder))
        for move in moves:
            make_move(table, move, solutions[game_id])
        assert_equal_to_scorecard(table)
        table.log.close()


@pytest.mark.parametrize("change", sorted(CHANGES))
def test_scripted_plays_equal_the_scorecard_in_every_game(
    change, games, solutions, arc, quick_folder
):
    for game_id, info in games.items():
        folder = quick_folder / game_id
        folder.mkdir()
        changed = arc.with_baselines(folder, info, CHANGES[change](list(info.baselines)))
        table = arc.Table(changed, folder)
        script = [(0, 1, 1), (0, 1, 1), "reset", "solve", "solve", "reset twice", "reset", "reset"]
        for move in [*script, *["solve"] * 8, "reset", "solve", (3, 60, 60)]:
            make_move(table, move, solutions[game_id])
        assert len(table.result().plays) >= 4
        assert_equal_to_scorecard(table)
        table.log.close()


def make_move(table, move, ways):
    if move == "solve":
        if table.session.tally.state == "WIN":
            return
        seen = table.session.seen
        if table.session.tally.state == "GAME_OVER" or table.engine._env._game._action_count:
            table.do("reset")
        for step in ways[seen.levels_completed]:
            table.step(step)
    elif move in ("reset", "reset twice"):
        table.do("reset")
        if move == "reset twice":
            table.do("reset")
    else:
        number, x, y = move
        names = [f"ACTION{n}" for n in table.session.seen.available_actions]
        name = names[number % len(names)]
        table.step((name, x, y) if name == "ACTION6" else (name, None, None))


def assert_equal_to_scorecard(table):
    result = table.result()
    [official] = table.official_scorecard().environments
    assert score_game(result).toolkit_percent == pytest.approx(official.score, abs=1e-9)
    assert len(result.plays) == len(official.runs)
    for ours, theirs in zip(result.plays, official.runs, strict=True):
        percent = toolkit_play_percent(ours, result.baselines)
        assert percent == pytest.approx(theirs.score, abs=1e-9)
        assert sum(level.actions for level in ours.levels) == ours.actions
    # The card itself, since a score's own counts stop at the last baseline.
    [card] = table.engine._arcade.scorecard_manager.scorecards[table.engine._card].cards.values()
    assert [play.actions for play in result.plays] == card.actions
    assert [play.resets for play in result.plays] == card.resets
    assert [play.levels_completed for play in result.plays] == card.levels_completed
    assert [list(play.marks) for play in result.plays] == card.actions_by_level
    first = score_game(result, "first_play").toolkit_percent
    assert first == pytest.approx(official.runs[0].score, abs=1e-9)
    score = score_game(result)
    if score.reason is None:
        assert score.score_percent == pytest.approx(official.score, abs=1e-9)
    else:
        assert score.score_percent is None
