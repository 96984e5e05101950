#!/usr/bin/env python3
# ruff: noqa: EM101, EM102
"""ARC-AGI game driver: plays one game over stdin and stdout, and keeps the session log itself.

Needs Python 3.12 and `pip install arc-agi`, nothing else; it never uses the network.

Usage:
  python game_driver.py GAME_ID SEED [--env-dir PATH] [--sessions-dir PATH]
  python game_driver.py --check      see that arc-agi is there, and note this Python for the
                                     launchers ./game_driver and ./collect_results

Protocol, one JSON object per line:
  out  {"state": "PLAYING|WIN|GAME_OVER", "frame": [[[int]]], "levels_completed": int,
        "total_levels": int, "baseline_actions": null,
        "available_actions": [{"name": str, "is_complex": bool}], "step": int, "resets": int}
  in   {"command": "step", "action": "ACTION1", "reasoning": "..."}
       {"command": "step", "action": "ACTION6", "data": {"x": 0, "y": 0}}
       {"command": "reset"}
       {"command": "quit"}
  out  {"error": "..."} when a command is refused; that costs nothing. "done": true says that
       nothing more can be done and the driver ends.

Every command and the engine's answer go to sessions/GAME_ID.jsonl. Started again, the driver
replays that log and goes on where it ended: limits hold over all starts together. Do not edit
the log: it is replayed in the real engine when the result is imported.
"""

import argparse
import base64
import contextlib
import hashlib
import inspect
import json
import logging
import os
import sys
import zlib
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

SETTINGS: dict[str, Any] = {}  # filled in by: assay arc generate

SIDE = 64
CLICK, RESET = "ACTION6", "RESET"
MAX_KEPT = 2000
HERE = Path(__file__).resolve().parent


class DriverError(Exception):
    """Something the player has to fix before the game can start."""


class Refused(Exception):
    """A command that is not done; it costs nothing."""

    def __init__(self, message: str, limit: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.limit = limit


# ---------------------------------------------------------------- the game's files


def find_game(name: str, env_dir: Path) -> tuple[Path, dict[str, Any]]:
    """Find a game by id; without a version the newest one, as the toolkit chooses."""
    found = []
    for path in sorted(env_dir.rglob("metadata.json")):
        with contextlib.suppress(OSError, ValueError):
            metadata = json.loads(path.read_text(encoding="utf-8"))
            game_id = str(metadata.get("game_id", ""))
            if game_id == name or game_id.split("-", 1)[0] == name:
                found.append((game_id == name, newest(metadata), path.parent, metadata))
    if not found:
        raise DriverError(f"Game {name} not found in {env_dir}; give its folder with --env-dir")
    _, _, folder, metadata = max(found, key=lambda one: one[:2])
    return folder, metadata


def newest(metadata: dict[str, Any]) -> tuple[bool, float]:
    """Sort by date; no date is newest of all, as in the toolkit."""
    try:
        return False, datetime.fromisoformat(metadata["date_downloaded"]).timestamp()
    except (KeyError, TypeError, ValueError):
        return True, 0.0


def find_source(folder: Path, metadata: dict[str, Any]) -> Path:
    """Find the file the toolkit runs."""
    first = str(metadata["game_id"])[:4]
    name = str(metadata.get("class_name") or first[0].upper() + first[1:])
    for candidate in (folder / f"{name.lower()}.py", folder / f"{name}.py"):
        if candidate.is_file():
            return candidate
    raise DriverError(f"{folder}: {name.lower()}.py is missing")


# ---------------------------------------------------------------- the engine


class Game:
    """One game in the real engine, offline."""

    def __init__(self, folder: Path, metadata: dict[str, Any], seed: int) -> None:
        logger = quiet_toolkit()
        from arc_agi import Arcade, OperationMode
        from arcengine import GameAction

        self._actions = {action.name: action for action in GameAction}
        arcade = Arcade(
            operation_mode=OperationMode.OFFLINE, environments_dir=str(folder), logger=logger
        )
        self._env = arcade.make(metadata["game_id"], seed=seed)
        if self._env is None or self._env.observation_space is None:
            raise DriverError(f"{folder}: the toolkit could not start {metadata['game_id']}")
        self.seed_used = "seed" in inspect.signature(type(self._env._game)).parameters

    def start(self) -> dict[str, Any] | None:
        """Give the answer to the reset that the toolkit did by itself."""
        return read_answer(self._env.observation_space)

    def act(self, action: str, x: int | None, y: int | None) -> dict[str, Any] | None:
        """Do one action; None when the game broke on it."""
        if action == RESET:
            return read_answer(self._env.reset())
        data = {"x": x, "y": y} if x is not None else None
        return read_answer(self._env.step(self._actions[action], data=data))


def quiet_toolkit() -> logging.Logger:
    """Import arc_agi so that it reads no .env, listens to no setting and prints nothing."""
    for name in ("ARC_API_KEY", "ARC_BASE_URL", "OPERATION_MODE", "ENVIRONMENTS_DIR",
                 "RECORDINGS_DIR", "ONLY_RESET_LEVELS"):  # fmt: skip
        os.environ.pop(name, None)
    os.environ["PYTHON_DOTENV_DISABLED"] = "1"
    # Its pictures need matplotlib, whose import takes longer than all others; it can do without.
    sys.modules.setdefault("matplotlib", None)  # type: ignore[arg-type]
    try:
        import arc_agi.scorecard
    except ImportError as error:
        raise DriverError(f"arc-agi is missing ({error}): pip install arc-agi") from error
    logger = logging.getLogger("game_driver")
    for each in (arc_agi.scorecard.logger, logger):
        each.handlers.clear()
        each.addHandler(logging.NullHandler())
        each.propagate = False
    return logger


def read_answer(raw: Any) -> dict[str, Any] | None:
    """Read what the engine said; without frames it is no answer."""
    if raw is None or not raw.frame or any(f.shape != (SIDE, SIDE) for f in raw.frame):
        return None
    frames = [frame.astype("uint8") for frame in raw.frame]
    pixels = b"".join(frame.tobytes() for frame in frames)
    return {
        "grids": [frame.tolist() for frame in frames],
        "state": raw.state.name,
        "levelsCompleted": int(raw.levels_completed),
        "winLevels": int(raw.win_levels),
        "fullReset": bool(raw.full_reset),
        "availableActions": [int(action) for action in raw.available_actions],
        "nFrames": len(frames),
        "frameSha256": hashlib.sha256(pixels).hexdigest(),
        "frames": base64.b64encode(zlib.compress(pixels, 1)).decode("ascii"),
    }


# ---------------------------------------------------------------- counting and logging


class Tally:
    """Counts as the official scorecard does: a level reset is an action, a full one a new play."""

    def __init__(self) -> None:
        self.steps = self.resets = self.rejected = 0
        self.play = self.play_actions = self.play_resets = 0

    def execute(self, action: str, full_reset: bool) -> None:
        """Count one action that the engine executed."""
        is_first = self.play == 0
        if action == RESET:
            self.resets += not is_first
        else:
            self.steps += 1
        if is_first or (action == RESET and full_reset):
            self.play += 1
            self.play_actions = self.play_resets = 0
        else:
            self.play_actions += 1
            self.play_resets += action == RESET

    def counters(self) -> dict[str, int]:
        """Give the totals for a log record."""
        return {
            "steps": self.steps,
            "resets": self.resets,
            "rejected": self.rejected,
            "play": self.play,
            "playActions": self.play_actions,
            "playResets": self.play_resets,
        }


class SessionLog:
    """Appends records; each is on disk before the player gets its answer."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self.path = path
        self._file = path.open("ab+")
        with contextlib.suppress(ImportError):
            import fcntl

            try:
                fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                self._file.close()
                raise DriverError(f"{path} is in use by another driver") from None
        self.records = self._read()
        self.seq = max(0, len(self.records) - 1)

    def append(self, record: dict[str, Any]) -> None:
        """Write one record and wait until the disk has it."""
        if record["type"] != "header":
            record = {"type": record["type"], "seq": self.seq, "at": now(), **record}
            self.seq += 1
        self._file.write(json.dumps(record, separators=(",", ":")).encode() + b"\n")
        self._file.flush()
        os.fsync(self._file.fileno())

    def _read(self) -> list[dict[str, Any]]:
        """Read what an earlier start wrote; a last line that was torn off is cut away."""
        self._file.seek(0)
        data = self._file.read()
        whole = data[: data.rfind(b"\n") + 1]
        if len(whole) < len(data):
            os.truncate(self._file.fileno(), len(whole))
        try:
            return [json.loads(line) for line in whole.splitlines()]
        except ValueError as error:
            raise DriverError(f"{self.path} is damaged: {error}") from error


def now() -> str:
    """Give the time as the log has it."""
    return datetime.now(UTC).isoformat(timespec="milliseconds")


# ---------------------------------------------------------------- one session


class Driver:
    """Takes commands, asks the engine, writes the log, and makes the answers."""

    def __init__(self, game: Game, log: SessionLog, header: dict[str, Any]) -> None:
        self._game = game
        self._log = log
        self._limits = header["limits"]
        self.tally = Tally()
        first = game.start()
        if first is None:
            raise DriverError("the game gives no first picture of 64x64")
        self.seen = first
        header["levelCount"] = first["winLevels"]
        if log.records:
            self._resume(header)
        else:
            log.append(header)
            self._record("executed", {"command": "start"}, action=RESET, answer=first)

    def handle(self, line: str) -> dict[str, Any] | None:
        """Answer one line; None ends the session."""
        try:
            request = json.loads(line)
        except (ValueError, RecursionError):
            return self._refuse(Refused("Invalid JSON"), line[:MAX_KEPT])
        received = keep(request, line)
        if not isinstance(request, dict):
            return self._refuse(Refused("Invalid request: send a JSON object"), received)
        command = request.get("command", "step")
        try:
            if command == "quit":
                return None
            if command == "reset":
                return self._reset(received)
            if command == "step":
                return self._step(request, received)
            raise Refused(f"Unknown command: {command}")
        except Refused as refused:
            return self._refuse(refused, received)

    def end(self, message: str) -> None:
        """Write down that the player stopped."""
        self._log.append({"type": "end", "reason": "player_quit", "message": message})

    def observation(self) -> dict[str, Any]:
        """Say where the game stands, in the seed's words; baselines are not told."""
        seen = self.seen
        return {
            "state": "PLAYING" if seen["state"] == "NOT_FINISHED" else seen["state"],
            "frame": seen["grids"],
            "levels_completed": seen["levelsCompleted"],
            "total_levels": seen["winLevels"],
            "baseline_actions": None,
            "available_actions": [
                {"name": f"ACTION{n}", "is_complex": n == 6} for n in seen["availableActions"]
            ],
            "step": self.tally.steps,
            "resets": self.tally.resets,
        }

    @property
    def is_over(self) -> bool:
        """Whether nothing more can be done."""
        if self.seen["state"] == "WIN":
            return True
        no_steps = self._is_spent("maxSteps", self.tally.steps)
        no_resets = self._is_spent("maxResets", self.tally.resets)
        return no_steps or (self.seen["state"] == "GAME_OVER" and no_resets)

    def _reset(self, received: Any) -> dict[str, Any]:
        if self._is_spent("maxResets", self.tally.resets):
            raise Refused("Max resets exceeded", "resets")
        return self._do(RESET, None, None, received, "env.reset() returned None")

    def _step(self, request: dict[str, Any], received: Any) -> dict[str, Any]:
        name = request.get("action", "")
        numbers = {f"ACTION{n}": n for n in range(1, 8)}
        if name not in numbers:
            raise Refused(f"Unknown action: {name}")
        if self.seen["state"] == "WIN":
            raise Refused("The game is won; send quit")
        if self.seen["state"] == "GAME_OVER":
            raise Refused("Game over; send reset or quit")
        if numbers[name] not in self.seen["availableActions"]:
            raise Refused(f"Action not available: {name}")
        x, y = read_place(request.get("data")) if name == CLICK else (None, None)
        if self._is_spent("maxSteps", self.tally.steps):
            raise Refused("Max steps exceeded", "steps")
        return self._do(name, x, y, received, "env.step() returned None")

    def _do(
        self, action: str, x: int | None, y: int | None, received: Any, broken: str
    ) -> dict[str, Any]:
        answer = self._game.act(action, x, y)
        place = {} if x is None else {"x": x, "y": y}
        if answer is None:
            self._record("failed", received, action=action, message=broken, **place)
            return {"error": broken}
        self.seen = answer
        self._record("executed", received, action=action, answer=answer, **place)
        return self.observation()

    def _refuse(self, refused: Refused, received: Any) -> dict[str, Any]:
        self.tally.rejected += 1
        limit = {"limit": refused.limit} if refused.limit else {}
        self._record("rejected", received, message=refused.message, **limit)
        return {"error": refused.message, **({"done": True} if self.is_over else {})}

    def _record(self, outcome: str, received: Any, **fields: Any) -> None:
        answer = fields.get("answer")
        if answer is not None:
            self.tally.execute(fields["action"], answer["fullReset"])
            fields["answer"] = {k: v for k, v in answer.items() if k != "grids"}
        record = {"type": "event", "received": received, "outcome": outcome, **fields}
        self._log.append({**record, "counters": self.tally.counters()})

    def _resume(self, header: dict[str, Any]) -> None:
        """Replay an earlier start's log in this engine; it must agree in everything."""
        logged, *records = self._log.records
        for name in ("schema", "gameId", "sourceSha256", "levelCount", "seed", "limits"):
            if logged.get(name) != header[name]:
                raise DriverError(
                    f"{self._log.path}: its {name} is {logged.get(name)!r}, here it is "
                    f"{header[name]!r}; one log is for one game, seed and set of limits"
                )
        done = 0
        for record in records:
            self.tally.rejected += record.get("outcome") == "rejected"
            if record.get("outcome") not in ("executed", "failed"):
                continue
            x, y = record.get("x"), record.get("y")
            answer = self.seen if done == 0 else self._game.act(record["action"], x, y)
            expected = record.get("answer") or {}
            if (answer or {}).get("frameSha256") != expected.get("frameSha256"):
                raise DriverError(f"{self._log.path}: record {record['seq']} does not replay")
            if answer is not None:
                self.seen = answer
                self.tally.execute(record["action"], answer["fullReset"])
            done += 1
        self._log.append({"type": "resumed", "replayedActions": done})

    def _is_spent(self, name: str, used: int) -> bool:
        most = self._limits[name]
        return most is not None and used >= most


def read_place(data: Any) -> tuple[int, int]:
    """Read where to click; a click without a place is refused, not made at 0,0."""
    place = data if isinstance(data, dict) else {}
    x, y = place.get("x"), place.get("y")
    for value in (x, y):
        if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < SIDE:
            raise Refused(f'{CLICK} needs "data": {{"x": 0..63, "y": 0..63}}')
    return int(x), int(y)  # type: ignore[arg-type]


def keep(request: Any, line: str) -> Any:
    """Give what the log keeps of a command: as it came, unless it is too long."""
    return request if len(line) <= MAX_KEPT else line[:MAX_KEPT]


def make_header(
    metadata: dict[str, Any], source: Path, seed: int, limits: dict[str, Any], game: Game
) -> dict[str, Any]:
    """Say which game this is, exactly; baselines are left to those who import the log."""
    return {
        "type": "header",
        "schema": "assay-arc-log/1",
        "gameId": metadata["game_id"],
        "title": metadata.get("title") or metadata["game_id"],
        "sourceSha256": hashlib.sha256(source.read_bytes()).hexdigest(),
        "baselines": None,
        "levelCount": 0,
        "toolkitVersion": version("arc-agi"),
        "engineVersion": version("arcengine"),
        "seed": seed,
        "seedUsed": game.seed_used,
        "limits": limits,
        "startedAt": now(),
    }


def read_arguments(argv: list[str]) -> argparse.Namespace:
    """Read the command line; limits can be made tighter, not wider."""
    parser = argparse.ArgumentParser(description="ARC-AGI Game Driver")
    parser.add_argument("game_id", help="Game ID to play")
    parser.add_argument("seed", type=int, nargs="?", default=SETTINGS.get("seed", 0))
    parser.add_argument("--env-dir", type=Path, help="Path to environment files")
    parser.add_argument("--sessions-dir", type=Path, default=HERE / "sessions")
    parser.add_argument("--max-steps", type=int, help="Max steps per game")
    parser.add_argument("--max-resets", type=int, help="Max resets per game")
    return parser.parse_args(argv)


def tighter(asked: int | None, most: int | None) -> int | None:
    """Take the smaller of two limits; none is no limit."""
    known = [limit for limit in (asked, most) if limit is not None]
    return min(known) if known else None


def check_installation() -> int:
    """Note which Python runs this, for shells in which another one is found first."""
    try:
        quiet_toolkit()
    except DriverError as error:
        sys.stderr.write(f"game_driver: {error}\n")
        return 1
    (HERE / ".python").write_text(f"{sys.executable}\n", encoding="utf-8")
    sys.stdout.write("OK\n")
    return 0


def find_games(asked: Path | None) -> Path:
    """Say where the games are: as asked, beside this file, or where they were when it was made."""
    known = [HERE / "environment_files", Path(SETTINGS.get("env_dir") or "environment_files")]
    return asked or next((path for path in known if path.is_dir()), Path("environment_files"))


def main(argv: list[str]) -> int:
    """Play one game; 1 when it can not be started."""
    if argv == ["--check"]:
        return check_installation()
    args = read_arguments(argv)
    out = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # whatever a game or the toolkit prints goes to stderr
    env_dir = find_games(args.env_dir)
    limits = {
        "maxSteps": tighter(args.max_steps, SETTINGS.get("max_steps")),
        "maxResets": tighter(args.max_resets, SETTINGS.get("max_resets")),
    }
    try:
        folder, metadata = find_game(args.game_id, env_dir)
        source = find_source(folder, metadata)
        expected = SETTINGS.get("games", {}).get(metadata["game_id"])
        if expected and expected != hashlib.sha256(source.read_bytes()).hexdigest():
            raise DriverError(f"{source} is not the version this benchmark was made for")
        game = Game(folder, metadata, args.seed)
        header = make_header(metadata, source, args.seed, limits, game)
        log = SessionLog(args.sessions_dir / f"{metadata['game_id']}.jsonl")
        driver = Driver(game, log, header)
    except DriverError as error:
        sys.stderr.write(f"game_driver: {error}\n")
        return 1
    say(out, driver.observation())
    for line in sys.stdin:
        if not line.strip():
            continue
        answer = driver.handle(line.strip())
        if answer is None:
            driver.end("quit")
            return 0
        say(out, answer)
        if answer.get("done"):
            break
    driver.end("end of input")
    return 0


def say(out: Any, message: dict[str, Any]) -> None:
    """Write one line to the player."""
    out.write(json.dumps(message, separators=(",", ":")) + "\n")
    out.flush()


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
