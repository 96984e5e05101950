"""Runs one game in the real toolkit, offline or online: the only module that imports arc_agi."""

import inspect
import logging
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from importlib.metadata import version
from types import ModuleType
from typing import Any

import msgspec

from assay_arc import GameProblem
from assay_arc.catalog import GameInfo, OfficialServer, OnlineGame
from assay_arc.log import SIDE, Answer, frames_digest, pack_frames


class Observation(msgspec.Struct, frozen=True, kw_only=True):
    """The state of a game; frames are 4096 bytes each, the last one is the current picture."""

    state: str
    levels_completed: int
    win_levels: int
    full_reset: bool
    available_actions: tuple[int, ...]
    frames: tuple[bytes, ...]

    @property
    def frame(self) -> bytes:
        return self.frames[-1]

    def to_answer(self) -> Answer:
        return Answer(
            state=self.state,
            levels_completed=self.levels_completed,
            win_levels=self.win_levels,
            full_reset=self.full_reset,
            available_actions=self.available_actions,
            n_frames=len(self.frames),
            frame_sha256=frames_digest(self.frames),
            frames=pack_frames(self.frames),
        )


def toolkit_versions() -> tuple[str, str]:
    return version("arc-agi"), version("arcengine")


class ToolkitEngine:
    """One game of one folder, with the toolkit's own scorecard.

    seen is the last observation. An action returns None when the game itself broke on it.
    """

    def __init__(self, info: GameInfo, seed: int = 0) -> None:
        self.seen: Observation | None = None
        logger = silence_toolkit()
        from arc_agi import Arcade, OperationMode
        from arcengine import GameAction

        self._actions: dict[str, Any] = {action.name: action for action in GameAction}
        self._arcade = Arcade(
            operation_mode=OperationMode.OFFLINE, environments_dir=str(info.folder), logger=logger
        )
        self._card = self._arcade.open_scorecard()
        self._env = self._make(info, seed)
        if self._env is None or self._env.observation_space is None:
            why = f": {first_error(logger)}" if first_error(logger) else ""
            message = f"{info.source}: the toolkit could not start {info.game_id}{why}"
            raise GameProblem(
                message, hint="does the file define the class named in metadata.json?"
            )
        # The toolkit passes the seed only to games that take one, and does not say which do.
        self.seed_used = "seed" in inspect.signature(type(self._env._game)).parameters

    def _make(self, info: GameInfo, seed: int) -> Any:
        """Run the game's file and make its class, both of them third-party code."""
        try:
            return self._arcade.make(info.game_id, seed=seed, scorecard_id=self._card)
        except Exception as error:
            message = f"{info.source}: {info.game_id} failed to start: {error!r}"
            raise GameProblem(message) from error

    def start(self) -> Observation | None:
        """Return the observation of the reset that the toolkit did when it made the game."""
        return self._see(self._env.observation_space)

    def act(self, action: str, x: int | None = None, y: int | None = None) -> Observation | None:
        if action == "RESET":
            return self._see(self._env.reset())
        data = {"x": x, "y": y} if x is not None else None
        return self._see(self._env.step(self._actions[action], data=data))

    def _see(self, raw: Any) -> Observation | None:
        seen = _observe(raw)
        self.seen = seen or self.seen
        return seen


class OnlineEngine(ToolkitEngine):
    """A game on the official server, by the toolkit's online mode."""

    def __init__(self, game: OnlineGame) -> None:
        from arcengine import GameAction

        self.seen = None
        self.seed_used = False
        self._actions = {action.name: action for action in GameAction}
        self._card = game.card_id
        self._arcade = open_arcade(game.server)
        self._env = self._arcade.make(game.info.game_id, scorecard_id=game.card_id)
        if self._env is None or self._env.observation_space is None:
            message = f"{game.server.base_url} did not start {game.info.game_id}"
            raise GameProblem(message, hint="is the scorecard still open, and the key allowed?")
        self._is_fresh = True
        """Whether nothing was done since the level began."""

    def start(self) -> Observation | None:
        seen = super().start()
        self.seen = seen and msgspec.structs.replace(seen, full_reset=True)
        return self.seen

    def act(self, action: str, x: int | None = None, y: int | None = None) -> Observation | None:
        """Do an action; the server leaves out which resets are full, so the engine's rule says."""
        before = self.seen
        seen = super().act(action, x, y)
        if seen is None or before is None:
            return seen
        is_reset = action == "RESET"
        is_full = is_reset and (self._is_fresh or before.state == "WIN")
        self._is_fresh = is_reset or seen.levels_completed != before.levels_completed
        self.seen = msgspec.structs.replace(seen, full_reset=is_full or seen.full_reset)
        return self.seen


def open_arcade(server: OfficialServer) -> Any:
    """The toolkit, online; raise GameProblem when the server cannot be reached."""
    logger = silence_toolkit()
    from arc_agi import Arcade, OperationMode

    try:
        arcade = Arcade(
            arc_api_key=server.key,
            arc_base_url=server.base_url,
            operation_mode=OperationMode.ONLINE,
            environments_dir=os.devnull,  # none of our own games
            logger=logger,
        )
    except Exception as error:  # of requests, of pydantic
        message = f"{server.base_url} cannot be used: {type(error).__name__}"
        raise GameProblem(message) from error
    # The toolkit only logs that it cannot reach the server, and then has no games.
    if (why := first_error(logger)) and not arcade.get_environments():
        raise GameProblem(why)
    return arcade


def _observe(raw: Any) -> Observation | None:
    """Read an answer; None for one without frames, which the toolkit gives after the end."""
    if raw is None or not raw.frame:
        return None
    if any(frame.shape != (SIDE, SIDE) for frame in raw.frame):
        return None
    return Observation(
        state=raw.state.name,
        levels_completed=int(raw.levels_completed),
        win_levels=int(raw.win_levels),
        full_reset=bool(raw.full_reset),
        available_actions=tuple(int(action) for action in raw.available_actions),
        frames=tuple(frame.astype("uint8").tobytes() for frame in raw.frame),
    )


# Settings that would change which games are found, how resets count, or who is called.
SETTINGS = (
    "ARC_API_KEY",
    "ARC_BASE_URL",
    "OPERATION_MODE",
    "ENVIRONMENTS_DIR",
    "RECORDINGS_DIR",
    "ONLY_RESET_LEVELS",
    "STALE_MINUTES",
    "MAX_OPEN_FOR_MINUTES",
)


def silence_toolkit() -> logging.Logger:
    """Import arc_agi so that it reads no .env and prints nothing; return a logger for it."""
    for name in SETTINGS:
        os.environ.pop(name, None)
    # arc_agi loads .env files when it is imported, unless this variable is set.
    before = os.environ.get("PYTHON_DOTENV_DISABLED")
    os.environ["PYTHON_DOTENV_DISABLED"] = "1"
    try:
        scorecard = _import_toolkit()
    finally:
        os.environ.pop("PYTHON_DOTENV_DISABLED")
        if before is not None:
            os.environ["PYTHON_DOTENV_DISABLED"] = before
    _mute(scorecard.logger)  # it prints, whatever logger the toolkit is given
    logger = logging.getLogger("assay.arc_agi.toolkit")
    _mute(logger)
    logger.addHandler(_FirstError(logging.ERROR))
    return logger


def _import_toolkit() -> Any:
    try:
        with _unused_left_out():
            return import_module("arc_agi.scorecard")
    except Exception:  # noqa: BLE001 - a version that uses what was left out
        for name in [name for name in sys.modules if name.partition(".")[0] == "arc_agi"]:
            del sys.modules[name]
        return import_module("arc_agi.scorecard")


_has_network = True
_NEED_NETWORK = ("requests", "requests.cookies", "flask")
"""What the toolkit imports to play online and to serve games: a third of the time to load it."""


@contextmanager
def _unused_left_out() -> Iterator[None]:
    """Leave out libraries that are not used here, while the toolkit is imported.

    Its pictures need matplotlib, whose import takes longer than all others; it can do without.
    Those for the network it names in its annotations, so they have placeholders.
    """
    left_out: dict[str, Any] = {"matplotlib": None}
    if not _has_network:
        left_out |= {name: _Placeholder(name) for name in _NEED_NETWORK}
    left_out = {name: value for name, value in left_out.items() if name not in sys.modules}
    sys.modules.update(left_out)
    try:
        yield
    finally:
        for name in left_out:  # a game may import them
            sys.modules.pop(name, None)


class _Placeholder(ModuleType):
    """A module of which names are imported and nothing is used."""

    __path__: list[str] = []  # noqa: RUF012 - it has modules below it

    def __getattr__(self, name: str) -> type:
        if name.startswith("__"):
            raise AttributeError(name)
        return type(name, (), {})


class _FirstError(logging.Handler):
    """Keeps the first error that the toolkit logs: those after it follow from it."""

    text = ""

    def emit(self, record: logging.LogRecord) -> None:
        error = record.exc_info[1] if record.exc_info else None
        text = f"{type(error).__name__}: {error}" if error else record.getMessage()
        self.text = self.text or (text.strip().splitlines() or [""])[-1]


def first_error(logger: logging.Logger) -> str:
    """The last line of the first error that was logged; empty if there was none."""
    return next((one.text for one in logger.handlers if isinstance(one, _FirstError)), "")


def shut_network() -> None:
    """Refuse all connections of this process except local sockets; a hook cannot be removed."""
    global _has_network
    _has_network = False
    sys.addaudithook(_refuse_network)


def _refuse_network(event: str, args: tuple[object, ...]) -> None:
    if event in ("socket.getaddrinfo", "socket.gethostbyname"):
        message = "a game process has no network"
        raise PermissionError(message)
    # The address of a Unix socket is a path, that of any other a tuple.
    if event in ("socket.connect", "socket.bind", "socket.sendto") and not isinstance(
        args[1], str | bytes
    ):
        message = "a game process has no network"
        raise PermissionError(message)


def _mute(logger: logging.Logger) -> None:
    logger.handlers.clear()
    logger.addHandler(logging.NullHandler())
    logger.propagate = False


PASSED = (
    "PATH",
    "HOME",
    "LANG",
    "LC_ALL",
    "LC_CTYPE",
    "TZ",
    "TMPDIR",
    "PYTHONPATH",
    "PYTHONHOME",
    "VIRTUAL_ENV",
    "LD_LIBRARY_PATH",
    "SYSTEMROOT",
)


def engine_env() -> dict[str, str]:
    """Return the environment of a game process, which runs third-party code: no keys."""
    passed = {name: os.environ[name] for name in PASSED if name in os.environ}
    return {**passed, "PYTHONDONTWRITEBYTECODE": "1"}
