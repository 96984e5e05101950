"""The world of one trial: a game process that is started, watched, restarted and closed."""

import hashlib
import io
import os
import secrets
import shutil
import sys
import tempfile
import threading
import time
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

import msgspec

from assay import mcp
from assay.errors import AssayError
from assay.plugin import Machine, Started, World
from assay.records.files import nameless_file, temporary_place
from assay.records.recording import TurnEnd
from assay.system import calls
from assay_arc import ServeProblem
from assay_arc.catalog import GameInfo, OnlineGame
from assay_arc.client import SHOWS, SOCKET, TOKEN, GameConnection, GameGone
from assay_arc.engine import engine_env
from assay_arc.log import (
    DisplayOptions,
    End,
    EndReason,
    GameLog,
    Limits,
    LogWriter,
    has_header,
    read_log,
)
from assay_arc.scoring import derive_result, score_all
from assay_arc.server import VARIABLE, ServeConfig, write_config
from assay_arc.store import write_bytes

START_S = 90.0
MOST_RESTARTS = 3
WATCH_S = 0.1


class GameWorld(World):
    """Owns the game process. The player gets a socket, a token and two programs, nothing else."""

    repetitive = True
    hidden_env = ("VIRTUAL_ENV", "VIRTUAL_ENV_PROMPT", "CONDA_PREFIX", "PYTHONPATH", "_")
    """Where we are installed, and with us the games."""

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
        self._log = LogCopy(log)
        # Short names: the path of a Unix socket may have only about 100 bytes.
        socket = folder / "s" / "g"
        self._plan = plan_game(
            info.folder, log, socket, seed=seed, limits=limits, copy_fd=self._log.fd
        )
        programs = write_launchers(folder / "bin")
        player = self._plan.player_env
        path = player_path(os.environ.get("PATH", ""), folder / "path")
        # A login shell, as Codex starts it, resets PATH: hence the full path as well.
        self.env: dict[str, str] = {
            **player,
            "PATH": f"{folder / 'bin'}{os.pathsep}{path}",
            "ARC_PLAY": str(programs["arc-play"]),
        }
        server = {"command": str(programs["arc-mcp"]), "args": [], "env": dict(player)}
        self.mcp_servers: dict[str, dict[str, Any]] = {"arc": server} if mcp else {}
        # The folder of the socket, not the socket: a game that is started again makes a new one.
        shown = [folder / "s", *programs.values(), *folder.glob("path/*")]
        self.visible: tuple[str, ...] = tuple(map(str, shown))
        self.log_name = log.name
        self.must_offer_tools = False
        """Whether the player is an agent that always asks MCP servers for their tools."""
        self._process: Started | None = None
        self._watcher: threading.Thread | None = None
        self._closing = threading.Event()
        self._n_restarts = 0
        self._n_killed = 0
        self._broken: str | None = None

    def show_only(self, shows: DisplayOptions) -> None:
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
        self._log.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        _set_aside(self._log.path)
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
        if self._broken is not None and not self._n_killed:
            raise ServeProblem(self._broken)
        log = read_log(self._log.path)
        result = derive_result(log)
        failure = self._failure(log)
        return {
            "benchmark": "arc",
            "log": self.log_name,
            "logSha256": hashlib.sha256(self._log.path.read_bytes()).hexdigest(),
            "restarts": self._n_restarts,
            "result": msgspec.to_builtins(result),
            "scores": msgspec.to_builtins(score_all(result)),
            **({"failure": failure} if failure else {}),
        }

    def _failure(self, log: GameLog) -> dict[str, str] | None:
        """Say what the player did to the game, or that it was never given one."""
        if self._log.changed:
            return {"cause": "agent_crash", "message": LOG_CHANGED}
        end = log.records[-1] if log.records else None
        if isinstance(end, End) and end.reason == "game_killed":
            return {"cause": "agent_crash", "message": end.message}
        if self.must_offer_tools and not was_offered(log):
            return {"cause": "world", "message": NOT_OFFERED}
        return None

    def close(self) -> None:
        """End the game process, whatever happened before."""
        self._finish("crash", "the trial was given up")
        self._log.close()

    def keep_log(self) -> None:
        """Keep the log with the raw streams; while the player ran, nothing it had led to it."""
        self._host.keep_file(self._log.path)

    def _start(self) -> None:
        env = {**engine_env(), **self._plan.env}
        self._process = self._host.start(
            self._plan.argv, env=env, cwd=str(self._folder), pass_fds=(self._log.fd,)
        )
        until_s = time.monotonic() + START_S
        while True:
            try:
                # In short steps, so that a process that ended at once is noticed.
                wait_ready(self._plan, timeout_s=0.2)
            except ServeProblem:
                if not self._process.ended and time.monotonic() < until_s:
                    continue
                reason = self._process.output_end().splitlines()[-1:] or ["no answer in time"]
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
            reason = process.output_end().splitlines()[-1:] or ["it was killed"]
            process.end()
            if self._log.has_end:
                return
            self._n_killed += _was_killed(process)
            if self._n_restarts == MOST_RESTARTS:
                self._broken = f"the game process died {MOST_RESTARTS + 1} times: {reason[0]}"
                return
            self._n_restarts += 1
            try:
                self._log.restore(anew=True)
                self._start()
            except AssayError as problem:
                self._broken = problem.message
                return

    def _finish(self, reason: Any, message: str) -> None:
        if self._closing.is_set():
            return
        self._closing.set()  # first, so that the watcher restarts nothing
        if self._watcher is not None:
            self._watcher.join(START_S)  # it may be in the middle of a restart
        if self._process is not None:
            self._end_game(self._process, reason, message)

    def _end_game(self, process: Started, reason: Any, message: str) -> None:
        if not process.ended:
            close_game(self._plan, reason, message)
        # Let it exit by itself, which removes its socket, before it is killed.
        until_s = time.monotonic() + 2.0
        while not process.ended and time.monotonic() < until_s:
            time.sleep(0.01)
        is_dead = process.ended  # a game that was told to end may not have heard of the closing
        process.end()
        self._log.restore()
        if is_dead and not self._log.has_end and (self._n_killed or _was_killed(process)):
            self._n_killed += 1
            self._log.append_end("game_killed", KILLED)


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


LOG_CHANGED = "something other than the game changed its log; the game's own copy of it counts"
KILLED = "the game process was killed; the score is what the player had until then"
NOT_OFFERED = (
    "the game's tools were not offered to the agent: it never asked the MCP server `arc` for them, "
    "and never used the command arc-play"
)


def was_offered(log: GameLog) -> bool:
    """Whether the player was given the game: its tools were asked for, or it was played or seen."""
    by_world = ("start", "status", "close")  # the status says whether the game is ready
    asked = (event.received for event in log.events)
    return any(not isinstance(one, dict) or one.get("op") not in by_world for one in asked)


def _was_killed(process: Started) -> bool:
    """Whether somebody ended it: by a signal, or by SIGTERM, which it takes as a wish to end."""
    code = process.exit_code
    return code is not None and (code == 0 or code > 128)


class LogCopy:
    """A log, and a copy of it that has no name: only the game process and this one can reach it.

    A player that runs as the same user can write to the log, and end the process that writes it.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.fd = nameless_file(temporary_place())
        self.changed = False
        """Whether somebody else wrote to the log."""

    @property
    def has_end(self) -> bool:
        """Whether the game was closed, which makes an end record the last one of the log."""
        size = os.fstat(self.fd).st_size
        tail = os.pread(self.fd, 4096, max(0, size - 4096))  # the log may be large
        return b'{"type":"end"' in tail.rstrip().rsplit(b"\n", 1)[-1]

    def restore(self, *, anew: bool = False) -> None:
        """Put the log back as the game wrote it; anew: as a new file, that nobody has locked."""
        with os.fdopen(os.dup(self.fd), "rb") as file:
            file.seek(0)
            written = file.read()
        whole = written[: written.rfind(b"\n") + 1]
        os.ftruncate(self.fd, len(whole))
        # A game that was killed may not have got to the file with the last record of the copy.
        found = b""
        if self.path.is_dir():
            shutil.rmtree(self.path, ignore_errors=True)
        elif self.path.is_file() and not self.path.is_symlink():
            found = self.path.read_bytes()
        missing = whole[len(found) :] if whole.startswith(found) else None
        self.changed |= missing is None or missing.count(b"\n") > 1
        if (missing != b"" or anew) and whole:
            write_bytes(self.path, whole)
            self.path.chmod(0o600)

    def append_end(self, reason: EndReason, message: str) -> None:
        """Write the end record of a game whose process is dead."""
        now = datetime.now(UTC).isoformat(timespec="milliseconds")
        seq = len(read_log(self.path).records)
        with LogWriter(self.path, self.fd) as log:
            log.append(End(seq=seq, at=now, reason=reason, message=message))

    def close(self) -> None:
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1


def hide_process(*, always: bool = False) -> None:
    """Keep a player of the same user from reading what this process is about.

    Its environment, working folder, open files and memory become root's alone, and its command
    line, which everybody may read, names no game any more. This is not done where we are only a
    library, unless always is set.
    """
    if always or "arc" in sys.argv:
        calls.hide_process(b"assay arc run")


def player_path(search: str, links: Path) -> str:
    """Return a PATH without Assay and the interpreter that has the games among its packages.

    A folder in which they are is replaced by links to all the other programs in it.
    """
    folders: list[str] = []
    for folder in search.split(os.pathsep):
        own = os.path.realpath(folder or ".") == os.path.realpath(Path(sys.prefix, "bin"))
        if (own and sys.prefix != sys.base_prefix) or Path(folder, "assay").exists():
            links.mkdir(exist_ok=True)
            place = links / str(len(folders))
            place.mkdir()
            _link_others(Path(folder).absolute(), place, is_environment=own)
            folder = str(place)
        folders.append(folder)
    return os.pathsep.join(folders)


def _link_others(folder: Path, links: Path, *, is_environment: bool) -> None:
    for program in folder.iterdir():
        is_hidden = program.name.startswith("assay")
        if is_environment:  # its interpreter, and scripts that are run by it
            is_python = program.name.startswith(("python", "activate"))
            is_hidden |= is_python or _is_script(program, folder)
        if not is_hidden:
            (links / program.name).symlink_to(program)


def _is_script(program: Path, folder: Path) -> bool:
    try:
        with program.open("rb") as file:
            first = file.readline(1024)
    except OSError:
        return False
    return first.startswith(b"#!") and os.fsencode(folder) in first


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
    game: Path,
    log: Path,
    socket: Path,
    *,
    seed: int = 0,
    limits: Limits | None = None,
    copy_fd: int | None = None,
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
            copy_fd=copy_fd,
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
        # The plain interpreter, not that of our virtual environment, where the games are.
        path.write_bytes(_program(start, interpreter or str(Path(sys.executable).resolve())))
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
        _add(file, "assay/__init__.py", "")
        _add(file, "assay/mcp.py", Path(mcp.__file__).read_text(encoding="utf-8"))
        _add(file, "__main__.py", start)
    # -I and -S: neither PYTHONPATH nor site-packages, so that no import leads to the games.
    return f"#!{interpreter} -IS\n".encode() + archive.getvalue()


def _add(file: zipfile.ZipFile, name: str, text: str) -> None:
    file.writestr(zipfile.ZipInfo(name, STAMP), text)
