"""Plays the actions of a log again in the real engine and reports the first difference."""

import hashlib
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from assay.plugin import Machine
from assay_arc import ArcProblem
from assay_arc.catalog import GameInfo, list_games
from assay_arc.engine import ToolkitEngine, engine_env
from assay_arc.log import Event, GameLog, Header, read_log
from assay_arc.scoring import Tally

# Every field of an answer but the frames, which are compared by their digest.
COMPARED = (
    "state",
    "levels_completed",
    "win_levels",
    "full_reset",
    "available_actions",
    "n_frames",
    "frame_sha256",
)


class ReplayResult(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The verdict: replayed with everything equal, or the first difference."""

    replayed: bool
    n_actions: int
    difference: str | None = None
    note: str | None = None
    """Set when the log was written with another version of the toolkit."""
    compared: bool = True
    """False when there was nothing to compare with: no game, another version, no engine."""


def replay_events(log: GameLog, engine: ToolkitEngine) -> ReplayResult:
    """Repeat every action of the log, comparing answers and counters."""
    tally, n = Tally(), 0
    for event in log.events:
        difference = _replay_event(event, engine, tally, is_first=n == 0)
        if n == 0 and event.answer and event.answer.win_levels != log.header.level_count:
            levels = f"{log.header.level_count} levels in the header, {event.answer.win_levels}"
            difference = difference or f"{levels} in the first answer"
        if difference:
            message = f"record {event.seq} ({event.action or event.outcome}): {difference}"
            return ReplayResult(replayed=False, n_actions=n, difference=message)
        n += event.outcome in ("executed", "failed")
    # The first record is the start of the game, which nobody asked for.
    return ReplayResult(replayed=True, n_actions=max(n - 1, 0))


def header_difference(header: Header, info: GameInfo) -> str | None:
    """Compare the header's description of the game with our copy."""
    pairs = (
        ("game id", header.game_id, info.game_id),
        ("sha256 of the game's source", header.source_sha256, info.source_sha256),
        ("baselines", header.baselines, info.baselines),
    )
    for name, logged, here in pairs:
        if logged != here:
            return f"header: {name} is {logged!r} in the log and {here!r} here"
    return None


def _replay_event(
    event: Event, engine: ToolkitEngine, tally: Tally, *, is_first: bool
) -> str | None:
    if event.outcome == "rejected":
        tally.rejected += 1
    if event.outcome not in ("executed", "failed") or event.action is None:
        return _differ("counters", event.counters, tally.counters())
    # The toolkit resets a game when it makes it, so the first record needs no action.
    seen = engine.start() if is_first else engine.act(event.action, event.x, event.y)
    if event.outcome == "failed" or seen is None or event.answer is None:
        logged = "failed" if event.outcome == "failed" else "answered"
        return _differ("engine", logged, "failed" if seen is None else "answered")
    answer = seen.to_answer()
    tally.execute(event.seq, event.action, answer)
    pairs = [(name, getattr(event.answer, name), getattr(answer, name)) for name in COMPARED]
    pairs.append(("counters", event.counters, tally.counters()))
    return next((words for pair in pairs if (words := _differ(*pair))), None)


def _differ(name: str, logged: object, seen: object) -> str | None:
    return None if logged == seen else f"{name} is {logged!r} in the log and {seen!r} in the engine"


ARGV = (sys.executable, "-m", "assay_arc.engine_process")
FIRST_S, EACH_S = 60.0, 120.0


def check_logs(logs: Sequence[Path], games: Path, host: Machine) -> list[ReplayResult]:
    """Replay logs with our copies of their games, all in one engine process."""
    folders = {info.game_id: info.folder for info in list_games(games).games}
    found = [_game_of(log, folders) for log in logs]
    pairs = [
        msgspec.json.encode((str(log.resolve()), str(game.resolve())))
        for log, game in zip(logs, found, strict=True)
        if isinstance(game, Path)
    ]
    answers = iter(_ask(pairs, host)) if pairs else iter(())
    return [
        next(answers, not_compared("the engine gave no answer")) if isinstance(game, Path) else game
        for game in found
    ]


def play_recordings(
    recordings: Sequence[tuple[Path, Path, Path, int]], host: Machine
) -> list[ReplayResult]:
    """Play recordings again; each with the folder of its game, the log to write, and the seed."""
    lines = [
        msgspec.json.encode((*(str(path.resolve()) for path in paths), seed))
        for *paths, seed in recordings
    ]
    return _ask(lines, host, "record")


def changed_logs(folder: Path, expected: Mapping[str, str]) -> dict[str, str]:
    """Find logs that are missing or that were changed after the run was played."""
    changed = {}
    for name, sha256 in expected.items():
        path = folder / name
        if not path.is_file() or path.is_symlink():
            changed[name] = "the log is missing"
        elif hashlib.sha256(path.read_bytes()).hexdigest() != sha256:
            changed[name] = "the log was changed after the run"
    return changed


def _game_of(log: Path, folders: Mapping[str, Path]) -> Path | ReplayResult:
    try:
        game_id = read_log(log).header.game_id
    except (ArcProblem, OSError) as problem:
        return ReplayResult(replayed=False, n_actions=0, difference=str(problem))
    return folders.get(game_id) or not_compared(f"game {game_id} is not among our games")


def _ask(pairs: Sequence[bytes], host: Machine, command: str = "verify") -> list[ReplayResult]:
    limit_s = FIRST_S + EACH_S * len(pairs)
    stdin = b"\n".join(pairs) + b"\n"
    done = host.run((*ARGV, command), stdin=stdin, env=engine_env(), timeout_s=limit_s)
    lines = [line for line in done.stdout.splitlines() if line.startswith(b"{")]
    replays = [msgspec.json.decode(line, type=ReplayResult) for line in lines]
    if len(replays) < len(pairs):
        reason = done.stderr.decode("utf-8", "replace").strip().splitlines()[-1:] or ["no words"]
        missing = not_compared(f"the engine process ended early: {reason[0]}")
        replays += [missing] * (len(pairs) - len(replays))
    return replays


def not_compared(why: str) -> ReplayResult:
    """The log may well be right: nothing here can tell."""
    return ReplayResult(replayed=False, n_actions=0, difference=why, compared=False)
