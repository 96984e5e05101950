"""The world of one trial: a game process that is started, watched, restarted and closed."""

import hashlib
import io
import os
import secrets
import sys
import tempfile
import threading
import time
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

import msgspec

from assay.plugin import Machine, Started
from assay.records.recording import TurnEnd
from assay_arc import ServeProblem
from assay_arc.catalog import GameInfo, OnlineGame
from assay_arc.client import SHOWS, SOCKET, TOKEN, GameConnection, GameGone
from assay_arc.engine import engine_env
from assay_arc.log import Limits, Shows, has_header, read_log
from assay_arc.scoring import derive_result, score_all
from assay_arc.server import VARIABLE, ServeConfig, write_config

START_S = 90.0
MOST_RESTARTS = 3
WATCH_S = 0.1


class GameWorld:
    """Owns the game process. The player gets a socket, a token and two programs, nothing else."""

    def __init__(
        self,
        info: GameInfo,
        log: Path,
        folder: Path,
        host: Machine,
        *,
        seed: int,
        limits: Limits,
        mcp: bool,
    ) -> None:
        self._host = host
        self._folder = folder
        self._log = log
        # Short names: the path of a Unix socket may have only about 100 bytes.
        self._plan = plan_game(info.folder, log, folder / "s" / "g", seed=seed, limits=limits)
        programs = write_launchers(folder / "bin")
        player = self._plan.player_env
        path = f"{folder / 'bin'}{os.pathsep}{os.environ.get('PATH', '')}"
        # A login shell, as Codex starts it, resets PATH: hence the full path as well.
        self.env = {**player, "PATH": path, "ARC_PLAY": str(programs["arc-play"])}
        server = {"command": str(programs["arc-mcp"]), "args": [], "env": dict(player)}
        self.mcp_servers: dict[str, dict[str, Any]] = {"arc": server} if mcp else {}
        # The folder of the socket, not the socket: a game that is started again makes a new one.
        self.visible = (str(folder / "s"), *map(str, programs.values()))
        self.log_name = log.name
        self._process: Started | None = None
        self._watcher: threading.Thread | None = None
        self._closing = threading.Event()
        self._n_restarts = 0
        self._broken: str | None = None

    def show_only(self, shows: Shows) -> None:
        """Take away some of the ways in which the player sees the game; call it before open."""
        config = msgspec.structs.replace(self._plan.config, shows=shows)
        self._plan = msgspec.structs.replace(self._plan, config=config)
        told = {SHOWS: ",".join(shows.names)}
        self.env |= told
        for server in self.mcp_servers.values():
            server["env"] |= told

    def play_online(self, game: OnlineGame, key_name: str) -> None:
        """Play on the official server; call it before open. The player does not get the key."""
        config = msgspec.structs.replace(self._plan.config, online=game)
        self._plan = msgspec.structs.replace(self._plan, config=config)
        self.env[key_name] = ""

    def open(self) -> None:
        self._log.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        _set_aside(self._log)
        self._start()
        self._watcher = threading.Thread(target=self._watch, name="arc-game", daemon=True)
        self._watcher.start()

    def connect(self) -> GameConnection:
        """Return a connection for a player that runs in this process."""
        config = self._plan.config
        return GameConnection(str(config.socket), config.token)

    def evidence(self, last: TurnEnd | None) -> dict[str, Any]:
        """Close the game and derive everything from its log, nothing from the agent's claims."""
        self._finish(*_reason(last))
        if self._broken is not None:
            raise ServeProblem(self._broken)
        result = derive_result(read_log(self._log))
        return {
            "benchmark": "arc",
            "log": self.log_name,
            "logSha256": hashlib.sha256(self._log.read_bytes()).hexdigest(),
            "restarts": self._n_restarts,
            "result": msgspec.to_builtins(result),
            "scores": msgspec.to_builtins(score_all(result)),
        }

    def close(self) -> None:
        """End the game process, whatever happened before."""
        self._finish("crash", "the trial was given up")

    def keep_log(self) -> None:
        """Keep the log with the raw streams; while the player ran, nothing it had led to it."""
        self._host.keep_file(self._log)

    def _start(self) -> None:
        env = {**engine_env(), **self._plan.env}
        self._process = self._host.start(self._plan.argv, env=env, cwd=str(self._folder))
        until_s = time.monotonic() + START_S
        while True:
            try:
                # In short steps, so that a process that ended at once is noticed.
                wait_ready(self._plan, timeout_s=0.2)
            except ServeProblem:
                if not self._process.ended and time.monotonic() < until_s:
                    continue
                reason = self._process.last_words().splitlines()[-1:] or ["no answer in time"]
                self._process.end()
                message = f"the game did not start: {reason[0]}"
                raise ServeProblem(message) from None
            return

    def _watch(self) -> None:
        """Restart a game process that died; it replays its log and continues."""
        while not self._closing.wait(WATCH_S):
            process = self._process
            if process is None or not process.ended:
                continue
            reason = process.last_words().splitlines()[-1:] or ["it was killed"]
            process.end()
            if self._is_closed_by_player():
                return
            self._n_restarts += 1
            if self._n_restarts > MOST_RESTARTS:
                self._broken = f"the game process died {self._n_restarts} times: {reason[0]}"
                return
            try:
                self._start()
            except ServeProblem as problem:
                self._broken = problem.message
                return

    def _is_closed_by_player(self) -> bool:
        """Whether the player quit, which makes an end record the last one of the log."""
        # The log may be large, so only its tail is read.
        with self._log.open("rb") as file:
            file.seek(max(0, self._log.stat().st_size - 4096))
            return b'{"type":"end"' in file.read().rstrip().rsplit(b"\n", 1)[-1]

    def _finish(self, reason: Any, message: str) -> None:
        if self._closing.is_set():
            return
        self._closing.set()  # first, so that the watcher restarts nothing
        if self._watcher is not None:
            self._watcher.join(START_S)  # it may be in the middle of a restart
        if self._process is not None:
            close_game(self._plan, reason, message)
            # Let it exit by itself, which removes its socket, before it is killed.
            until_s = time.monotonic() + 2.0
            while not self._process.ended and time.monotonic() < until_s:
                time.sleep(0.01)
            self._process.end()


@contextmanager
def open_world(
    info: GameInfo, log: Path | None, host: Machine, *, seed: int, limits: Limits
) -> Iterator[GameWorld]:
    """Run a game for a player in this process; without a path its log is discarded."""
    with tempfile.TemporaryDirectory(prefix="arc-") as name:
        folder = Path(name)
        log = log or folder / "l" / "game.jsonl"
        world = GameWorld(info, log, folder, host, seed=seed, limits=limits, mcp=False)
        try:
            world.open()
            yield world
        finally:
            world.close()


def _reason(last: TurnEnd | None) -> tuple[str, str]:
    """Why the game was closed, from how the player's process ended, and a message."""
    if last is None:
        return "crash", "the player could not be started"
    if last.timed_out or last.stalled:
        return "timeout", "the player's time was up"
    if last.signal is not None or last.exit_code:
        how = last.signal or f"exit code {last.exit_code}"
        return "crash", f"the player's process ended with {how}"
    return "player_quit", ""


def _set_aside(log: Path) -> None:
    """Rename the log of an interrupted attempt: a new attempt begins a new game."""
    if not has_header(log):
        return
    number = 1
    while (aside := log.with_name(f"{log.stem}.interrupted-{number}.jsonl")).exists():
        number += 1
    log.rename(aside)


class GamePlan(msgspec.Struct, frozen=True, kw_only=True):
    """A game process that may be started, and what its player is given."""

    config: ServeConfig

    @property
    def argv(self) -> tuple[str, ...]:
        """The command to start; the list of processes must not reveal the game."""
        return (sys.executable, "-m", "assay_arc.engine_process", "serve")

    @property
    def env(self) -> dict[str, str]:
        return {VARIABLE: write_config(self.config)}

    @property
    def player_env(self) -> dict[str, str]:
        return {SOCKET: str(self.config.socket), TOKEN: self.config.token}


def plan_game(
    game: Path, log: Path, socket: Path, *, seed: int = 0, limits: Limits | None = None
) -> GamePlan:
    """Plan a game process with fresh tokens; the socket's folder must be private to the game."""
    return GamePlan(
        config=ServeConfig(
            game=game.resolve(),
            log=log.resolve(),
            socket=socket.absolute(),
            token=secrets.token_hex(16),
            owner_token=secrets.token_hex(16),
            seed=seed,
            limits=limits or Limits(),
        )
    )


def wait_ready(plan: GamePlan, timeout_s: float = 60.0) -> dict[str, Any]:
    """Wait until the game answers; loading the toolkit takes a few seconds."""
    until = time.monotonic() + timeout_s
    while True:
        try:
            return _ask(plan, op="status")
        except GameGone as error:
            if time.monotonic() > until:
                message = f"the game process did not answer within {timeout_s:.0f} s"
                raise ServeProblem(message) from error
            time.sleep(0.05)


def close_game(
    plan: GamePlan, reason: Literal["player_quit", "timeout", "crash"], message: str = ""
) -> bool:
    """Close the game and log why; False when its process is gone already."""
    try:
        return bool(_ask(plan, op="close", reason=reason, message=message)["ok"])
    except GameGone:
        return False


def _ask(plan: GamePlan, **request: str) -> dict[str, Any]:
    game = GameConnection(str(plan.config.socket), plan.config.owner_token, retry_s=0.0)
    try:
        return game.ask(**request)
    finally:
        game.close()


CLIENT = Path(__file__).parent / "client"
PROGRAMS = {
    "arc-play": "from assay_arc.client.arc_play import main\nraise SystemExit(main())",
    "arc-mcp": "from assay_arc.client.arc_mcp import main\nraise SystemExit(main())",
}
# A date within what zip files can hold, so that the same source gives the same bytes.
STAMP = (1980, 1, 1, 0, 0, 0)


def write_launchers(folder: Path, interpreter: str | None = None) -> dict[str, Path]:
    """Put `arc-play` and `arc-mcp` into a folder for the player's PATH.

    Without an interpreter they are run by the one that runs us.
    """
    folder.mkdir(parents=True, exist_ok=True)
    written = {}
    for name, start in PROGRAMS.items():
        path = folder / name
        path.write_bytes(_program(start, interpreter or _interpreter()))
        path.chmod(0o755)
        written[name] = path
    return written


def _program(start: str, interpreter: str) -> bytes:
    """Build a program that Python runs from one file: a shebang line and a zip behind it."""
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_STORED) as file:
        # Empty: the real one imports assay, which the plain interpreter does not have.
        _add(file, "assay_arc/__init__.py", "")
        for source in sorted(CLIENT.glob("*.py")):
            _add(file, f"assay_arc/client/{source.name}", source.read_text(encoding="utf-8"))
        _add(file, "__main__.py", start)
    # -I and -S: neither PYTHONPATH nor site-packages, so that no import leads to the games.
    return f"#!{interpreter} -IS\n".encode() + archive.getvalue()


def _interpreter() -> str:
    """The plain interpreter, not that of our virtual environment, where the games are."""
    return str(Path(sys.executable).resolve())


def _add(file: zipfile.ZipFile, name: str, text: str) -> None:
    file.writestr(zipfile.ZipInfo(name, STAMP), text)
