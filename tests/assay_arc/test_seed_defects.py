"""Proven defects of the seed (spec C.2) that concern game, log, scores and ways in; by number."""

import json

import numpy as np
import pytest

from assay_arc.catalog import find_game
from assay_arc.log import Limits, read_log
from assay_arc.scoring import derive_result, score_all, score_game


def win(game, ways):
    for way in ways:
        for step in way:
            game.step(step)
    return game


def test_02_every_observation_is_plain_json(table):
    game = table("tg01-v1")
    for request in (
        {"op": "look", "grid": True, "image": True},
        {"op": "act", "action": "ACTION5"},
    ):
        reply = game.do(**request)
        assert json.loads(json.dumps(reply)) == reply
        assert not any(isinstance(value, np.ndarray) for value in reply.values())


def test_05_06_a_perfect_win_scores_100_on_a_scale_that_is_named(table, solutions):
    game = win(table(), solutions["ky01-v1"])
    scores = score_all(game.result())
    assert scores["official"].score_percent == pytest.approx(100.0)
    assert scores["seed-1.0.0"].score_fraction == pytest.approx(1.0)


def test_07_the_level_count_comes_from_the_engine(table, solutions):
    game = win(table("gd01-v1"), solutions["gd01-v1"])
    result = game.result()
    assert result.level_count == 4
    assert score_game(result, "seed-1.0.0").score_fraction == pytest.approx(1.0)


def test_08_a_bare_id_keeps_its_baselines():
    assert find_game("ky01").game_id == "ky01-v1"
    assert find_game("ky01").baselines == find_game("ky01-v1").baselines


def test_09_resets_do_not_move_cost_between_levels(table, solutions):
    ways = solutions["ky01-v1"]
    game = win(table(), ways[:2])
    game.do("act", action="ACTION2")
    game.do("reset")
    win(game, ways[2:])
    spent = [level.actions for level in game.result().plays[0].levels]
    assert spent == [10, 7, 24 + 2, 15, 19]


def test_10_rejected_commands_are_not_counted(table, solutions):
    game = table()
    for name in ("ACTION5", "JUMP", "RESET"):
        game.do("act", action=name)
    win(game, solutions["ky01-v1"])
    result = game.result()
    assert (result.plays[0].actions, result.rejected) == (75, 3)


def test_11_ending_on_an_error_or_acting_after_the_end_loses_nothing(table, solutions):
    game = win(table(), solutions["ky01-v1"])
    game.do("act", action="ACTION1")
    game.do("act", action="NONSENSE")
    result = game.result()
    assert (result.stop_reason, result.levels_completed, result.level_count) == ("win", 5, 5)
    assert len(result.plays[0].levels) == 5


def test_12_a_full_reset_begins_another_play(table, solutions):
    ways = solutions["ky01-v1"]
    game = win(table(), ways[:2])
    game.do("reset")
    win(game, ways)
    result = game.result()
    assert [play.levels_completed for play in result.plays] == [2, 5]
    assert score_game(result).score_percent == pytest.approx(100.0)
    assert score_game(result, "first_play").score_percent == pytest.approx(100 * 3 / 15)


def test_13_a_level_reset_costs_an_action(table, solutions):
    game = table()
    game.do("act", action="ACTION2")
    game.do("reset")
    win(game, solutions["ky01-v1"])
    result = game.result()
    assert (result.plays[0].actions, result.plays[0].resets) == (75 + 2, 1)
    assert result.plays[0].actions == game.official_scorecard().environments[0].actions


def test_14_two_levels_in_one_action_are_two_levels(arc, table, tmp_path):
    game = table(arc.write_game(tmp_path / "own", [1, 1, 1, 1]))
    game.do("click", x=1, y=1)
    result = game.result()
    assert [level.completed for level in result.plays[0].levels] == [True, True, False, False]
    assert result.levels_completed == 2
    [official] = game.official_scorecard().environments
    assert score_game(result).score_percent == pytest.approx(official.score, abs=1e-9)


def test_15_games_without_baselines_and_torn_logs_are_no_crash(arc, table, tmp_path):
    game = table(arc.write_game(tmp_path / "own", None))
    game.do("act", action="ACTION5")
    with game.path.open("ab") as file:
        file.write(b'{"type":"ev')
    log = read_log(game.path)
    assert log.torn
    result = derive_result(log)
    assert result.levels_completed == 1
    assert all(level.baseline is None for level in result.plays[0].levels)
    assert score_game(result).score_percent is None


def test_16_states_are_those_of_the_engine_and_only_action6_has_a_place(table):
    game = table()
    assert game.do("status")["state"] == "NOT_FINISHED"
    assert game.do("act", action="ACTION2", x=1, y=1)["ok"]
    assert read_log(game.path).events[-1].x is None


def test_17_a_players_own_numbers_are_nowhere_believed(table):
    game = table()
    claim = {"op": "status", "levelsCompleted": 5, "state": "WIN", "baselines": [999999]}
    from assay_arc.server import parse_request

    request, kept = parse_request(json.dumps(claim).encode())
    game.session.handle(request, kept)
    result = game.result()
    assert (result.levels_completed, result.state) == (0, "NOT_FINISHED")
    assert result.baselines == (10, 7, 24, 15, 19)


def test_23_limits_hold_in_the_process_that_owns_the_game(table):
    game = table(limits=Limits(max_steps=2, max_resets=0))
    for _ in range(5):
        game.do("act", action="ACTION2")
        game.do("reset")
    result = game.result()
    assert (result.steps, result.resets, result.stop_reason) == (2, 0, "step_limit")


def test_25_a_click_without_a_place_is_refused_and_not_a_click_at_zero(table):
    game = table("od01-v1")
    for request in ({"op": "click"}, {"op": "act", "action": "ACTION6"}):
        assert "needs x and y" in game.do(**request)["error"]
    assert game.session.tally.steps == 0
    assert "use the reset command" in game.do("act", action="RESET")["error"]
    assert game.session.tally.resets == 0
