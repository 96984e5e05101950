"""Session logs of an imported result: found, copied with our baselines, compared, replayed."""

import hashlib
import os
from collections.abc import Sequence
from pathlib import Path

import msgspec

from assay.benchmarks.arc_agi.checking import check_logs
from assay.benchmarks.arc_agi.importing.schema import Claim
from assay.benchmarks.arc_agi.log.reader import GameLog, read_log
from assay.benchmarks.arc_agi.log.records import Header
from assay.benchmarks.arc_agi.log.result import GameResult, PlayResult, derive_result
from assay.benchmarks.arc_agi.problems import ResultProblem
from assay.seams import Machine

MAX_LOG_BYTES = 1024 * 1024 * 1024


class Session(msgspec.Struct, frozen=True, kw_only=True):
    """A log that was copied into the run, and what follows from it."""

    claim: Claim
    path: Path
    header: Header
    result: GameResult


def take_sessions(claims: Sequence[Claim], source: Path, target: Path, seed: int) -> list[Session]:
    """Copy the log of each game that has one; refuse what does not fit the result."""
    sessions = []
    for claim in claims:
        path = source / f"{claim.game.game_id}.jsonl"
        if path.is_symlink():
            msg = f"{path} is a symbolic link; give the log itself"
            raise ResultProblem(msg)
        if path.is_file():
            copy = _copy(path, target / path.name, claim)
            sessions.append(_compare(read_log(copy), copy, claim, seed))
        elif claim.session_sha256 is not None:
            msg = f"{path} is missing, but the result was collected from it"
            raise ResultProblem(msg, hint="bring the whole sessions folder along")
    return sessions


def replay_sessions(sessions: Sequence[Session], games: Path, host: Machine) -> None:
    """Do every action again in the real engine; refuse at the first difference."""
    replays = check_logs([session.path for session in sessions], games, host)
    for session, replay in zip(sessions, replays, strict=True):
        if not replay.replayed:
            name = session.claim.game.game_id
            msg = f"{name}: the session log does not replay here: {replay.difference}"
            raise ResultProblem(msg, hint="nothing was imported")


def _copy(path: Path, target: Path, claim: Claim) -> Path:
    """Copy a log; one that was told no baselines gets ours, one with others is refused."""
    fd = os.open(path, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0))
    with os.fdopen(fd, "rb") as file:
        if os.fstat(file.fileno()).st_size > MAX_LOG_BYTES:
            msg = f"{path}: larger than {MAX_LOG_BYTES} bytes; not a session log"
            raise ResultProblem(msg)
        data = file.read()
    if claim.session_sha256 not in (None, hashlib.sha256(data).hexdigest()):
        msg = f"{path}: not the log the result was collected from (its sha256 differs)"
        raise ResultProblem(msg)
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_bytes(data)
    header = read_log(target).header
    if header.baselines is None and claim.game.baselines is not None:
        ours = msgspec.structs.replace(header, baselines=claim.game.baselines)
        rest = data.partition(b"\n")[2]
        target.write_bytes(msgspec.json.encode(ours) + b"\n" + rest)
    return target


def _compare(log: GameLog, path: Path, claim: Claim, seed: int) -> Session:
    """Compare what the result claims with what follows from its log."""
    result, header = derive_result(log), log.header
    best = best_play(result)
    pairs = [
        ("game id", claim.game.game_id, header.game_id),
        ("sha256 of the game's source", claim.game.source_sha256, header.source_sha256),
        ("baselines", claim.game.baselines, header.baselines),
        ("seed", seed, header.seed),
        ("state", claim.state, best.state if best else "NOT_PLAYED"),
        ("levels_completed", claim.levels_completed, best.levels_completed if best else 0),
        ("total_actions", claim.total_actions, result.steps),
        ("total_resets", claim.total_resets, result.resets),
    ]
    levels = best.levels if best else ()
    for i, actions in enumerate(claim.actions):
        logged_actions = levels[i].actions if i < len(levels) else None
        pairs.append((f"level {i + 1} actions", actions, logged_actions))
    for name, claimed, logged in pairs:
        if claimed != logged:
            what = "our game has" if name in ("sha256 of the game's source", "baselines") else ""
            where = f"{what or 'the result says'} {claimed!r}, the log {logged!r}"
            msg = f"{claim.game.game_id}: {name}: {where}"
            raise ResultProblem(msg, hint="nothing was imported")
    return Session(claim=claim, path=path, header=header, result=result)


def best_play(result: GameResult) -> PlayResult | None:
    """Choose the play that a result reports, as the collector does."""
    if not result.plays:
        return None
    return max(result.plays, key=lambda play: (play.levels_completed, -play.actions))
