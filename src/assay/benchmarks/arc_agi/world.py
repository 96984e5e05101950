"""The world of one trial: a game process that is started, watched, started again, and closed."""

import hashlib
import os
import shutil
import threading
import time
from pathlib import Path
from typing import Any

import msgspec

from assay.benchmarks.arc_agi.catalog.game import GameInfo
from assay.benchmarks.arc_agi.client.connection import GameConnection
from assay.benchmarks.arc_agi.client.launcher import write_launchers
from assay.benchmarks.arc_agi.engine.surroundings import engine_env
from assay.benchmarks.arc_agi.log.reader import has_header, read_log
from assay.benchmarks.arc_agi.log.records import Limits
from assay.benchmarks.arc_agi.log.result import derive_result
from assay.benchmarks.arc_agi.owner import close_game, plan_game, wait_ready
from assay.benchmarks.arc_agi.problems import ServeProblem
from assay.benchmarks.arc_agi.scoring.score import score_all
from assay.records.recording import TurnEnd
from assay.seams import Machine, Started

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
        self._plan = plan_game(info.folder, log, folder / "s" / "g", seed=seed, limits=limits)
        programs = write_launchers(folder / "bin")
        player = self._plan.player_env
        path = f"{folder / 'bin'}{os.pathsep}{os.environ.get('PATH', '')}"
        # A login shell, as Codex starts it, forgets our PATH: hence the full path besides.
        self.env = {**player, "PATH": path, "ARC_PLAY": str(programs["arc-play"])}
        server = {"command": str(programs["arc-mcp"]), "args": [], "env": dict(player)}
        self.mcp_servers: dict[str, dict[str, Any]] = {"arc": server} if mcp else {}
        self.log_name = log.name
        self._process: Started | None = None
        self._watcher: threading.Thread | None = None
        self._closing = threading.Event()
        self._n_restarts = 0
        self._broken: str | None = None

    def open(self) -> None:
        """Start the game and wait until it answers."""
        self._log.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        _set_aside(self._log)
        self._start()
        self._watcher = threading.Thread(target=self._watch, name="arc-game", daemon=True)
        self._watcher.start()

    def connect(self) -> GameConnection:
        """Give a player's connection, for players that live in this process."""
        config = self._plan.config
        return GameConnection(str(config.socket), config.token)

    def evidence(self, last: TurnEnd | None) -> dict[str, Any]:
        """Close the game and derive everything from its log; what the agent said is not asked."""
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

    def keep_log(self, folder: Path | None) -> None:
        """Move the log to where it is to stay; until now nothing led to it."""
        if folder is not None and folder.is_dir() and self._log.is_file():
            shutil.move(self._log, folder / self._log.name)

    def _start(self) -> None:
        env = {**engine_env(), **self._plan.env}
        self._process = self._host.start(self._plan.argv, env=env, cwd=str(self._folder))
        until_s = time.monotonic() + START_S
        while True:
            try:
                wait_ready(self._plan, timeout_s=0.2)
            except ServeProblem:
                if not self._process.ended and time.monotonic() < until_s:
                    continue
                words = self._process.last_words().splitlines()[-1:] or ["no answer in time"]
                self._process.end()
                message = f"the game did not start: {words[0]}"
                raise ServeProblem(message) from None
            return

    def _watch(self) -> None:
        """Start a game process that died once more: it replays its log and goes on."""
        while not self._closing.wait(WATCH_S):
            process = self._process
            if process is None or not process.ended:
                continue
            words = process.last_words().splitlines()[-1:] or ["it was killed"]
            process.end()
            if self._is_closed_by_player():
                return
            self._n_restarts += 1
            if self._n_restarts > MOST_RESTARTS:
                self._broken = f"the game process died {self._n_restarts} times: {words[0]}"
                return
            try:
                self._start()
            except ServeProblem as problem:
                self._broken = problem.message
                return

    def _is_closed_by_player(self) -> bool:
        """A player that quits ends its game: the last record of the log says so."""
        with self._log.open("rb") as file:
            file.seek(max(0, self._log.stat().st_size - 4096))
            return b'{"type":"end"' in file.read().rstrip().rsplit(b"\n", 1)[-1]

    def _finish(self, reason: Any, message: str) -> None:
        if self._closing.is_set():
            return
        self._closing.set()
        if self._watcher is not None:
            self._watcher.join(START_S)
        if self._process is not None:
            close_game(self._plan, reason, message)
            until_s = time.monotonic() + 2.0
            while not self._process.ended and time.monotonic() < until_s:
                time.sleep(0.01)
            self._process.end()


def _reason(last: TurnEnd | None) -> tuple[str, str]:
    """Say why the game was closed, from how the player's process ended."""
    if last is None:
        return "crash", "the player could not be started"
    if last.timed_out or last.stalled:
        return "timeout", "the player's time was up"
    if last.signal is not None or last.exit_code:
        how = last.signal or f"exit code {last.exit_code}"
        return "crash", f"the player's process ended with {how}"
    return "player_quit", ""


def _set_aside(log: Path) -> None:
    """Keep the log of an attempt that was cut off; a new attempt begins a new game."""
    if not has_header(log):
        return
    number = 1
    while (aside := log.with_name(f"{log.stem}.interrupted-{number}.jsonl")).exists():
        number += 1
    log.rename(aside)
