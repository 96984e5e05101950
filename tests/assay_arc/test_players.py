"""Built-in players: programs that win or stop within their bounds, and always the same way."""

import os
import subprocess
import sys

from assay_arc.client import GameConnection
from assay_arc.log import Limits, read_log
from assay_arc.players import LevelMap, Searcher, patches
from assay_arc.scoring import derive_result


class TableGame(GameConnection):
    """Plays at a table of this process instead of over a socket."""

    def __init__(self, table):
        self.table = table

    def ask(self, **request):
        return self.table.do(**request)


def test_search_wins_a_walk_and_a_sort(table):
    for game_id in ("ky01-v1", "so01-v1"):
        game = table(game_id)
        assert Searcher(TableGame(game), 2000).play()["state"] == "WIN"
        assert len(game.result().plays) == 1


def test_search_resets_after_game_over_but_never_wipes_the_game(table):
    game = table("gd01-v1", limits=Limits(max_steps=600, max_resets=20))
    Searcher(TableGame(game), 1000).play()
    result = game.result()
    assert result.levels_completed >= 1
    assert len(result.plays) == 1
    assert result.resets > 0


def test_search_stops_at_its_own_bound(table):
    game = table("tg01-v1")
    Searcher(TableGame(game), 40).play()
    assert game.session.tally.steps <= 60


def test_random_is_a_program_and_its_seed_decides(serve, tmp_path):
    game = serve("od01-v1", limits=Limits(max_steps=60, max_resets=3))
    env = {**os.environ, **game.plan.player_env}
    argv = [sys.executable, "-m", "assay_arc.players", "random", "--seed", "4"]
    done = subprocess.run(argv, env=env, capture_output=True, text=True, timeout=30)
    assert done.returncode == 0, done.stderr
    first = derive_result(read_log(game.log))
    assert first.stop_reason in ("step_limit", "reset_limit")
    clicks = [(e.x, e.y) for e in read_log(game.log).events if e.action == "ACTION6"]
    assert clicks[:1] == [expected_first_click(4)]


def expected_first_click(seed):
    import random

    rng = random.Random(seed)
    rng.choice(["ACTION6"])
    return rng.randrange(64), rng.randrange(64)


def test_patches_are_found_small_first():
    picture = ["5"] * 4096
    for y in range(10, 14):
        for x in range(20, 24):
            picture[y * 64 + x] = "8"
    picture[0] = "9"
    (x0, y0), (x1, y1), _ = patches("".join(picture))
    assert (x0, y0) == (0, 0)
    assert 20 <= x1 < 24
    assert 10 <= y1 < 14


def test_the_map_finds_the_nearest_untried_move():
    a, b = ("A", -1, -1), ("B", -1, -1)
    level = LevelMap("start")
    level.add("start", [a])
    level.tried("start", a, "next")
    assert level.path_to_untried("start") is None
    level.add("next", [a, b])
    assert level.path_to_untried("start") == [a, a]
    level.tried("next", a, "start")
    assert level.path_to_untried("start") == [a, b]
