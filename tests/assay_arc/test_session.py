"""A session: bad input costs nothing, limits hold, and no move is done twice."""

import json

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from assay_arc.engine_process import _answer
from assay_arc.log import Limits
from assay_arc.server import BadRequest, ServeConfig, parse_request

REFUSED = [
    ("act", {}, "unknown action None"),
    ("act", {"action": "JUMP"}, "unknown action 'JUMP'"),
    ("act", {"action": "ACTION8"}, "unknown action"),
    ("act", {"action": "RESET"}, "use the reset command"),
    ("act", {"action": "ACTION5"}, "not available"),
    ("act", {"action": "ACTION6"}, "needs x and y"),
    ("click", {"x": 3}, "needs x and y"),
    ("click", {"x": 64, "y": 0}, "outside"),
    ("click", {"x": 0, "y": -1}, "outside"),
    ("click", {"x": 5, "y": 5}, "not available"),
]


@pytest.mark.parametrize(("op", "fields", "words"), REFUSED)
def test_bad_moves_are_refused_and_cost_nothing(table, op, fields, words):
    game = table()
    frame = game.session.seen.frame
    reply = game.do(op, **fields)
    assert not reply["ok"]
    assert words in reply["error"]
    assert reply["steps"] == 0
    assert game.session.seen.frame == frame
    result = game.result()
    assert (result.steps, result.rejected, result.plays[0].actions) == (0, 1, 0)


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"[1,2]",
        b'"act"',
        b"{",
        b"\xff\xfe",
        b'{"op":"dance"}',
        b'{"op":"click","x":"5","y":1}',
        b'{"op":"click","x":true,"y":1}',
        b'{"op":"click","x":1.5,"y":1}',
        b'{"op":"click","x":NaN,"y":1}',
        b'{"x":1}',
        b"[" * 5000,
        b'{"op":"click","x":' + b"9" * 5000 + b',"y":1}',
        b'{"op":"click","x":99999999999999999999,"y":1}',
    ],
)
def test_lines_that_are_no_request_say_so(line):
    with pytest.raises(BadRequest, match="not "):
        parse_request(line)


def test_the_log_never_holds_the_token():
    _, kept = parse_request(b'{"op":"look","token":"secret"}')
    assert kept == {"op": "look"}
    _, kept = parse_request(b'{"op":"look","token":"secret","note":"' + b"x" * 9000 + b'"}')
    assert len(kept) <= 2000
    assert "secret" not in kept


def test_odd_but_valid_json_is_kept_as_text():
    for value in (b"9" * 30, b"[" * 500 + b"]" * 500, b'{"a":1}'):
        _, kept = parse_request(b'{"op":"look","token":"secret","note":' + value + b"}")
        assert isinstance(kept, str)
        assert "secret" not in kept


@pytest.fixture
def answer(table):
    game = table()
    config = ServeConfig(
        game=game.info.folder, log=game.path, socket=game.path, token="t" * 16, owner_token="o" * 16
    )
    return game, lambda line: _answer(line, game.session, config)[0]


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=6,
)
REQUESTS = st.fixed_dictionaries(
    {"op": st.sampled_from(["look", "act", "click", "status", "close", "fly"]) | VALUES},
    optional={
        "token": st.just("t" * 16) | VALUES,
        "action": st.sampled_from(["ACTION1", "ACTION4", "ACTION6"]) | VALUES,
        "x": st.integers(-5, 70) | VALUES,
        "y": st.integers(-5, 70) | VALUES,
        "id": VALUES,
        "frames": VALUES,
    },
)


@settings(
    max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(line=st.binary(max_size=60) | REQUESTS.map(lambda r: json.dumps(r).encode()))
def test_no_line_whatever_breaks_the_game_or_its_log(answer, line):
    game, ask = answer
    reply = ask(line)
    assert isinstance(reply["ok"], bool)
    assert reply["text"]
    assert "state" not in reply or b"t" * 16 in line
    assert game.result().steps == game.session.tally.steps


def test_strangers_learn_nothing_and_are_not_logged(answer):
    game, ask = answer
    before = game.path.read_bytes()
    for line in (b"{", b'{"op":"look"}', b'{"op":"fly"}', b'{"op":"fly","token":"x"}'):
        reply = ask(line)
        assert set(reply) == {"ok", "error", "text"}
    assert game.path.read_bytes() == before


def test_limits_are_enforced(table):
    game = table(limits=Limits(max_steps=3, max_resets=1))
    assert [game.do("act", action="ACTION2")["ok"] for _ in range(4)] == [True, True, True, False]
    assert game.do("reset")["ok"]
    refused = game.do("reset")
    assert "reset limit" in refused["error"]
    assert "step limit" in game.do("act", action="ACTION2")["error"]
    result = game.result()
    assert (result.steps, result.resets, result.stop_reason) == (3, 1, "step_limit")


def test_after_a_win_nothing_can_be_done_but_a_reset_opens_a_new_play(table, solutions):
    game = table("od01-v1")
    for way in solutions["od01-v1"]:
        for step in way:
            game.step(step)
    assert "won" in game.do("click", x=1, y=1)["error"]
    assert game.result().levels_completed == 5
    assert game.do("reset")["levelsCompleted"] == 0
    result = game.result()
    assert (len(result.plays), result.levels_completed, result.won) == (2, 5, True)


def test_the_same_request_is_done_once(table):
    game = table()
    first = game.do("act", action="ACTION4", id="a")
    again = game.do("act", action="ACTION4", id="a")
    assert first["steps"] == again["steps"] == 1
    assert "already done" in again["text"]
    assert game.do("act", action="ACTION4", id="b")["steps"] == 2


def test_answers_hold_no_baseline_source_or_score(table, solutions):
    game = table("tg01-v1")
    replies = [game.do("look"), game.do("status")]
    replies += [game.step(step) for way in solutions["tg01-v1"] for step in way]
    keys = {key for reply in replies for key in reply}
    assert keys == {
        "ok",
        "text",
        "state",
        "levelsCompleted",
        "levels",
        "steps",
        "maxSteps",
        "resets",
        "maxResets",
        "availableActions",
    }
    text = " ".join(reply["text"].lower() for reply in replies)
    for word in ("baseline", "score", "percent", "tg01", ".py"):
        assert word not in text
