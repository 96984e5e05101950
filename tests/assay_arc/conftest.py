"""What the ARC tests share: games to play, their shortest solutions, and game processes."""

import contextlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import uuid
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import msgspec
import pytest

from assay_arc.cards import derive_card, seal_run, write_card
from assay_arc.catalog import BUILT_IN, GameInfo, level_counts, list_games, read_game
from assay_arc.log import Header, Limits, LogWriter, read_log
from assay_arc.scoring import derive_result
from assay_arc.server import PlayerRequest
from assay_arc.session import GameSession
from assay_arc.store import Store, StoredRun
from assay_arc.world import close_game, plan_game, wait_ready

GAMES = tuple(info.game_id for info in list_games(BUILT_IN).games)
NO_LIMITS = Limits()
MEMORY = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
Step = tuple[str, int | None, int | None]

# A game whose ACTION5 wins one level, ACTION6 two at once, ACTION7 breaks; ACTION1 does nothing.
ODD_GAME = """
from arcengine import ARCBaseGame, Camera, Level, Sprite

class Zz01(ARCBaseGame):
    def __init__(self):
        levels = [Level([Sprite([[i + 1]], name="b")], grid_size=(8, 8)) for i in range(4)]
        super().__init__("zz01", levels, Camera(), False, 1, [1, 5, 6, 7])

    def step(self):
        name = self.action.id.name
        if name == "ACTION7":
            raise RuntimeError("broken on purpose")
        if name in ("ACTION5", "ACTION6"):
            self.next_level()
        if name == "ACTION6" and self._next_level:
            self._really_set_next_level()
            self.next_level()
        print("games may print")
        self.complete_action()
"""


def write_game(folder: Path, baselines: list[int] | None, source: str = ODD_GAME) -> GameInfo:
    home = folder / "zz01" / "v1"
    home.mkdir(parents=True)
    (home / "zz01.py").write_text(source)
    (home / "metadata.json").write_text(
        json.dumps({"game_id": "zz01-v1", "baseline_actions": baselines})
    )
    return read_game(home)


def with_baselines(folder: Path, info: GameInfo, baselines: list[int] | None) -> GameInfo:
    """Copy a game and give it other baselines."""
    home = folder / "copy"
    shutil.copytree(info.folder, home)
    path = home / "metadata.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"baseline_actions": baselines}))
    return read_game(home)


class Table:
    """A game played in this process: real engine, real log, no socket."""

    def __init__(self, info: GameInfo, folder: Path, seed: int = 0, limits: Limits = NO_LIMITS):
        from assay_arc.engine import ToolkitEngine, toolkit_versions

        self.info = info
        self.engine = ToolkitEngine(info, seed)
        self.path = folder / f"{info.game_id}.jsonl"
        self.log = LogWriter(self.path)
        first = self.engine.start()
        toolkit, engine = toolkit_versions()
        self.log.append(
            Header(
                game_id=info.game_id,
                source_sha256=info.source_sha256,
                baselines=info.baselines,
                level_count=first.win_levels,
                toolkit_version=toolkit,
                engine_version=engine,
                seed=seed,
                limits=limits,
                started_at="2026-01-01T00:00:00+00:00",
            )
        )
        now = "2026-01-01T00:00:01+00:00"
        self.session = GameSession(self.engine, self.log, limits, lambda: now, first)
        self.session.begin()

    def do(self, op: str, **fields) -> dict:
        return self.session.handle(PlayerRequest(op=op, **fields), {"op": op, **fields})

    def step(self, step: Step) -> dict:
        action, x, y = step
        if action == "RESET":
            return self.do("reset")
        return (
            self.do("act", action=action, x=x, y=y)
            if x is not None
            else self.do("act", action=action)
        )

    def result(self):
        return derive_result(read_log(self.path))

    def official_scorecard(self):
        """The toolkit's own scorecard, which our scores are compared with."""
        return self.engine._arcade.get_scorecard(self.engine._card)


def solve(game, key: Callable = lambda state: state) -> list[Step]:
    """Find a shortest solution of the current level on the real engine, by breadth-first search."""
    from arcengine import ActionInput, GameAction, GameState

    moves = _moves(game)
    inputs = [
        ActionInput(id=GameAction[name], data={} if x is None else {"x": x, "y": y})
        for name, x, y in moves
    ]
    start, level = game.state, game.level_index
    queue = deque([(start, ())])
    seen = {key(start)}
    while queue:
        state, way = queue.popleft()
        for move, action in zip(moves, inputs, strict=True):
            game._state = GameState.NOT_FINISHED
            game.state, score = state, game._score
            answer = game.perform_action(action, raw=True)
            if answer.levels_completed > score:
                game._score = score
                game.set_level(level)
                return [*way, move]
            if answer.state == GameState.GAME_OVER or key(game.state) in seen:
                continue
            seen.add(key(game.state))
            queue.append((game.state, (*way, move)))
    raise AssertionError(f"level {level + 1} can not be solved")


def _moves(game) -> list[Step]:
    """All moves that can differ: every plain action, and one click for each thing clicked."""
    plain = [(f"ACTION{n}", None, None) for n in game._available_actions if n != 6]
    if 6 not in game._available_actions:
        return plain
    clicks = {game.target_at(x, y): (x, y) for y in range(64) for x in range(64)}
    return plain + [("ACTION6", x, y) for x, y in clicks.values()]


def solve_game(info: GameInfo, seed: int = 0) -> list[list[Step]]:
    from assay_arc.engine import ToolkitEngine

    game = ToolkitEngine(info, seed)._env._game
    # What tg01 remembers for undo only leads back to where the search has been.
    key = (lambda state: state[:3]) if info.base_id == "tg01" else (lambda state: state)
    ways = []
    for level in range(len(game._levels)):
        game.set_level(level)
        ways.append(solve(game, key))
    return ways


@pytest.fixture(scope="session")
def games() -> dict[str, GameInfo]:
    return {info.game_id: info for info in list_games(BUILT_IN).games}


@pytest.fixture(scope="session")
def solutions(games) -> dict[str, list[list[Step]]]:
    return {game_id: solve_game(info) for game_id, info in games.items()}


@pytest.fixture(scope="session")
def levels_file(games, tmp_path_factory) -> Path:
    """The levels of all games, as a store keeps them once the engine was asked."""
    from assay_arc.engine import ToolkitEngine

    path = tmp_path_factory.mktemp("levels") / "levels.json"
    level_counts(
        list(games.values()),
        path,
        lambda infos: {i.source_sha256: ToolkitEngine(i).start().win_levels for i in infos},
    )
    return path


@pytest.fixture
def known_levels(levels_file, tmp_path) -> None:
    """Let the store of the test's folder know the levels: asking the engine takes half a second."""
    store = tmp_path / ".arc-agi-benchmarks"
    store.mkdir()
    shutil.copy(levels_file, store)


@pytest.fixture
def quick_folder() -> Iterator[Path]:
    """A folder in memory where there is one: these tests sync thousands of times to disk."""
    with tempfile.TemporaryDirectory(dir=MEMORY) as folder:
        yield Path(folder)


@pytest.fixture
def table(quick_folder, games):
    tables = []

    def make(game="ky01-v1", **options):
        info = game if isinstance(game, GameInfo) else games[game]
        tables.append(Table(info, quick_folder, **options))
        return tables[-1]

    yield make
    for each in tables:
        each.log.close()


PLAYER = Path(__file__).with_name("player.py")
STORE = ".arc-agi-benchmarks"


def player(folder: Path, *code: str) -> Path:
    """Write a schema of the player, which runs this code at its end."""
    events = [
        {
            "match": {"path": "$.type", "value": kind},
            "emitAs": kind,
            "extract": {"content": "$.text"},
        }
        for kind in ("thought", "message")
    ]
    schema = {
        "version": 1,
        "name": "player",
        "command": [str(Path(sys.executable).resolve()), str(PLAYER), *code],
        "sessionMode": "stream",
        "prompt": {},
        "output": {"flag": "", "value": ""},
        "outputEvents": events,
        "result": {"matchPath": "$.type", "matchValue": "result", "contentPath": "$.result"},
    }
    path = folder / "player.json"
    path.write_text(json.dumps(schema))
    return path


@pytest.fixture(scope="module")
def won(made_once, warm_assays) -> Path:
    """A folder with one run: ky01, its first level won, stuck on the second."""

    def play(folder: Path) -> None:
        words = ["arc", "run", str(player(folder)), "--games", "ky01", "--max-steps", "20", "-q"]
        done = warm_assays.run(words, folder, os.environ, b"", 120)
        assert done.returncode == 0, done.stderr
        (folder / "said").write_bytes(done.stdout)

    return made_once("arc-won", play)


@pytest.fixture
def run(won, tmp_path) -> StoredRun:
    """That run, in the folder of the test."""
    shutil.copytree(won / STORE, tmp_path / STORE)
    return Store(tmp_path / STORE).find("latest")


def variant(run: StoredRun, **changes) -> StoredRun:
    """A copy of a run with other metadata, as if Assay had recorded it; no game is played."""
    run_id = str(uuid.uuid4())
    folder = run.folder.with_name(run_id)
    shutil.copytree(run.folder, folder)
    meta = msgspec.structs.replace(run.meta, run_id=run_id, **changes)
    made = StoredRun(folder=folder, meta=meta)
    reseal(made)
    return made


def reseal(run: StoredRun) -> None:
    """Score and seal a run again, as if Assay had just written its rows."""
    seal_run(run.folder, run.meta)
    write_card(run.folder, derive_card(StoredRun(folder=run.folder, meta=run.meta)))
    seal_run(run.folder, run.meta)


@pytest.fixture
def arc():
    """Names of this file for the tests, which can not import a conftest."""
    return SimpleNamespace(
        player=player,
        variant=variant,
        reseal=reseal,
        MEMORY=MEMORY,
        Table=Table,
        write_game=write_game,
        with_baselines=with_baselines,
        solve_game=solve_game,
    )


@pytest.fixture
def short_folder() -> Iterator[Path]:
    """A folder with a path short enough for a socket."""
    folder = Path(tempfile.mkdtemp(prefix="arc"))
    yield folder
    shutil.rmtree(folder)


@pytest.fixture
def serve(tmp_path, short_folder, games):
    """Start game processes; all are ended after the test."""
    running = []

    def start(game="ky01-v1", plan=None, **options):
        info = game if isinstance(game, GameInfo) else games[game]
        if plan is None:
            plan = plan_game(
                info.folder, tmp_path / "log.jsonl", short_folder / "s" / "g.sock", **options
            )
        process = subprocess.Popen(
            plan.argv,
            env={**os.environ, **plan.env},
            stderr=subprocess.PIPE,
            stdin=subprocess.DEVNULL,
        )
        running.append((plan, process))
        wait_ready(plan, 30)
        return SimpleNamespace(plan=plan, process=process, log=plan.config.log)

    yield start
    for plan, process in running:
        if process.poll() is None:
            close_game(plan, "crash")
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(5)
        process.kill()
        process.wait()
        process.stderr.close()
