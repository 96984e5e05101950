"""Replay: an honest log replays in the real engine; a forgery is found at its first difference."""

import msgspec
import pytest

from assay_arc.engine_process import verify as replayed
from assay_arc.log import read_log


def play_some(game, solutions):
    game.do("act", action="ACTION4")
    game.do("act", action="ACTION9")
    game.do("look")
    game.do("reset")
    for step in solutions["ky01-v1"][0]:
        game.step(step)
    game.session.end("player_quit")
    return read_log(game.path)


def test_an_honest_log_replays(table, solutions):
    game = table()
    verdict = replayed(play_some(game, solutions), game.info)
    assert verdict.replayed
    assert verdict.n_actions == 12  # the start of the game is not an action


@pytest.mark.parametrize("seed", [1, 7])
def test_the_seed_is_replayed_too(table, seed):
    game = table("od01-v1", seed=seed)
    game.do("click", x=11, y=11)
    log = read_log(game.path)
    assert replayed(log, game.info).replayed
    other = msgspec.structs.replace(log, header=msgspec.structs.replace(log.header, seed=0))
    assert not replayed(other, game.info).replayed


def change(log, at, **fields):
    records = list(log.records)
    records[at] = msgspec.structs.replace(records[at], **fields)
    return msgspec.structs.replace(log, records=tuple(records))


def change_answer(log, at, **fields):
    return change(log, at, answer=msgspec.structs.replace(log.records[at].answer, **fields))


def change_header(log, **fields):
    return msgspec.structs.replace(log, header=msgspec.structs.replace(log.header, **fields))


FORGERIES = {
    "more levels": (lambda log: change_answer(log, 8, levels_completed=3), "levels_completed is 3"),
    "won": (lambda log: change_answer(log, 8, state="WIN"), "state is 'WIN'"),
    "other picture": (lambda log: change_answer(log, 1, frame_sha256="f" * 64), "frame_sha256"),
    "other action": (lambda log: change(log, 6, action="ACTION1"), "record 6"),
    "an action left out": (
        lambda log: msgspec.structs.replace(log, records=log.records[:5] + log.records[6:]),
        "record 6",
    ),
    "fewer actions counted": (
        lambda log: change(
            log, 9, counters=msgspec.structs.replace(log.records[9].counters, play_actions=1)
        ),
        "counters",
    ),
    "a failure hidden": (lambda log: change(log, 1, outcome="failed", answer=None), "engine"),
    "baselines edited": (lambda log: change_header(log, baselines=(99,) * 5), "baselines"),
    "other source": (lambda log: change_header(log, source_sha256="1" * 64), "sha256"),
    "other version": (lambda log: change_header(log, game_id="ky01-v2"), "game id"),
    "other level count": (lambda log: change_header(log, level_count=1), "1 levels"),
}


@pytest.mark.parametrize("name", sorted(FORGERIES))
def test_forgeries_are_found(table, solutions, name):
    forge, words = FORGERIES[name]
    game = table()
    verdict = replayed(forge(play_some(game, solutions)), game.info)
    assert not verdict.replayed
    assert words in verdict.difference


def test_a_game_that_breaks_replays_as_broken(arc, table, tmp_path):
    game = table(arc.write_game(tmp_path / "own", [1, 1, 1, 1]))
    reply = game.do("act", action="ACTION7")
    assert not reply["ok"]
    assert "broke" in reply["error"]
    assert game.session.tally.steps == 0
    assert replayed(read_log(game.path), game.info).replayed
    assert game.result().stop_reason == "crash"
