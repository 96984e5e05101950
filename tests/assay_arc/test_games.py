"""The built-in games: baselines proven by search on the real engine, seeds, special rules."""

import pytest

from assay_arc.catalog import BUILT_IN, list_games

GAMES = [info.game_id for info in list_games(BUILT_IN).games]


def test_at_least_six_games_with_three_to_seven_levels(games):
    assert len(games) >= 6
    assert not list_games(BUILT_IN).problems
    for info in games.values():
        assert 3 <= len(info.baselines) <= 7
        assert len(info.level_tags) == len(info.baselines)


@pytest.mark.parametrize("game_id", GAMES)
def test_baselines_are_the_shortest_solutions(game_id, games, solutions):
    assert tuple(len(way) for way in solutions[game_id]) == games[game_id].baselines


@pytest.mark.parametrize("game_id", [g for g in GAMES if g != "tg01-v1"])
@pytest.mark.parametrize("seed", [1, 2, 3, 11])
def test_baselines_hold_for_other_seeds(game_id, seed, games, arc):
    ways = arc.solve_game(games[game_id], seed)
    assert tuple(len(way) for way in ways) == games[game_id].baselines


def test_baselines_of_the_lamps_hold_for_another_seed(games, arc):
    ways = arc.solve_game(games["tg01-v1"], 3)
    assert tuple(len(way) for way in ways) == games["tg01-v1"].baselines


@pytest.mark.parametrize("game_id", GAMES)
def test_the_shortest_solution_wins_with_100_percent(game_id, table, solutions):
    game = table(game_id)
    for way in solutions[game_id]:
        for step in way:
            assert game.step(step)["ok"]
    assert game.session.tally.state == "WIN"
    assert game.official_scorecard().score == pytest.approx(100.0)


@pytest.mark.parametrize("game_id", GAMES)
def test_same_seed_same_game_other_seed_other_picture(game_id, games):
    from assay_arc.engine import ToolkitEngine

    def first(seed):
        engine = ToolkitEngine(games[game_id], seed)
        assert engine.seed_used
        return engine.start().frame

    assert first(0) == first(0)
    assert first(7) == first(7)
    assert len({first(seed) for seed in range(12)}) > 1


def test_three_misses_end_the_odd_tile(table, solutions):
    game = table("od01-v1")
    (_, x, y) = solutions["od01-v1"][0][0]
    wrong = [(i, j) for j in (11, 31, 51) for i in (11, 31, 51) if abs(i - x) > 9 or abs(j - y) > 9]
    states = [game.do("click", x=i, y=j)["state"] for i, j in wrong[:3]]
    assert states == ["NOT_FINISHED", "NOT_FINISHED", "GAME_OVER"]
    assert not game.do("click", x=x, y=y)["ok"]
    assert game.do("reset")["state"] == "NOT_FINISHED"


def test_the_guard_ends_the_game_and_a_reset_restarts_only_the_level(table, solutions):
    game = table("gd01-v1")
    for step in solutions["gd01-v1"][0]:
        game.step(step)
    for _ in range(200):
        action = "ACTION4" if game.session.tally.steps % 2 else "ACTION2"
        if game.do("act", action=action)["state"] == "GAME_OVER":
            break
    assert game.session.tally.state == "GAME_OVER"
    n_steps = game.session.tally.steps
    assert "game over; use the reset command" in game.do("act", action="ACTION4")["error"]
    assert game.session.tally.steps == n_steps
    reply = game.do("reset")
    assert (reply["state"], reply["levelsCompleted"]) == ("NOT_FINISHED", 1)


def test_lamps_animate_and_undo(table):
    game = table("tg01-v1")
    game.do("act", action="ACTION1")
    before = game.session.seen.frame
    game.do("act", action="ACTION5")
    assert len(game.session.seen.frames) == 3
    assert game.session.seen.frame != before
    game.do("act", action="ACTION7")
    assert game.session.seen.frame == before
