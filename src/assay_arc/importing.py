"""Imports results of other harnesses: checked, replayed, scored again, or refused."""

import hashlib
import os
import shutil
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from assay.errors import OutputError
from assay.plugin import Machine
from assay_arc.cards import LOGS, PLAYED, Played, write_scores
from assay_arc.claims import Claim, KnownGame, check_result
from assay_arc.log import GameLog, Header, StopReason, read_log
from assay_arc.problems import ResultProblem
from assay_arc.replay import check_logs
from assay_arc.result import GameResult, LevelResult, PlayResult, derive_result
from assay_arc.store import (
    META,
    REPLAYED,
    UNVERIFIED,
    HarnessConfig,
    RunMeta,
    Scorecard,
    Store,
    StoredRun,
    write_bytes,
    write_json,
)

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
            raise ResultProblem(msg, hint="copy the whole sessions folder as well")
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


MAX_RESULT_BYTES = 64 * 1024 * 1024
STAGING = ".import-"


class Imported(msgspec.Struct, kw_only=True):
    """What an import left behind."""

    run: StoredRun
    card: Scorecard
    warnings: list[str]


class Source(msgspec.Struct, frozen=True, kw_only=True):
    """Where a result comes from, and the games it is checked against."""

    harness: str
    result: Path
    sessions: Path | None
    games_dir: Path
    games: Mapping[str, KnownGame]
    """By id, and by id without version."""


def import_result(source: Source, store: Store, host: Machine) -> Imported:
    """Take a result over, or raise and leave nothing behind."""
    data, raw = read_result(source.result)
    claims, errors, warnings = check_result(data, source.harness, source.games)
    if errors:
        lines = "\n".join(f"  - {error}" for error in errors)
        msg = f"Schema validation errors:\n{lines}"
        raise ResultProblem(msg)
    content = hashlib.sha256(msgspec.json.encode(data, order="deterministic")).hexdigest()
    _refuse_duplicate(content, source.harness, store)
    run_id = str(uuid.uuid4())
    parent = store.import_dir(source.harness)
    staging = parent / f"{STAGING}{run_id}"
    try:
        _clear_old(parent)
        staging.mkdir(parents=True)
        write_bytes(staging / "result.json", raw)
        sessions = _take(source, claims, staging, data["seed"], host)
        meta = _meta(data, claims, sessions, source, run_id, content)
        played = _played(claims, sessions, data, meta)
        write_bytes(staging / PLAYED, msgspec.json.encode(played))
        card = write_scores(staging, run_id, played)
        meta.games_played = sum(bool(one.result.plays) for one in played)
        write_json(staging / META, meta)
        folder = parent / run_id
        staging.rename(folder)
        _sync(parent)
    except OSError as error:
        msg = f"cannot store the result: {error}"
        raise OutputError(msg, hint="nothing was imported") from error
    finally:
        shutil.rmtree(staging, ignore_errors=True)
    run = StoredRun(folder=folder, meta=meta, imported=True)
    return Imported(run=run, card=card, warnings=warnings)


def read_result(path: Path) -> tuple[Any, bytes]:
    """Read the file; JSON proper, so that NaN and Infinity are refused."""
    if path.is_symlink():
        msg = f"{path} is a symbolic link; give the file itself"
        raise ResultProblem(msg)
    if not path.is_file():
        msg = f"Result file not found: {path}"
        raise ResultProblem(msg, hint="Ensure the file exists and the path is correct.")
    if path.stat().st_size > MAX_RESULT_BYTES:
        msg = f"{path}: larger than {MAX_RESULT_BYTES} bytes; not a result"
        raise ResultProblem(msg)
    raw = path.read_bytes()
    try:
        return msgspec.json.decode(raw), raw
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        words = "NaN and Infinity are not JSON; " if b"NaN" in raw or b"Infinity" in raw else ""
        msg = f"Invalid JSON in result file: {words}{error}"
        raise ResultProblem(msg) from error


def _take(
    source: Source, claims: Sequence[Claim], staging: Path, seed: int, host: Machine
) -> list[Session]:
    if source.sessions is None:
        return []
    if source.sessions.is_symlink():
        msg = f"{source.sessions} is a symbolic link; give the folder itself"
        raise ResultProblem(msg)
    sessions = take_sessions(claims, source.sessions, staging / LOGS, seed)
    if sessions:
        replay_sessions(sessions, source.games_dir, host)
    return sessions


def _meta(
    data: dict[str, Any],
    claims: Sequence[Claim],
    sessions: Sequence[Session],
    source: Source,
    run_id: str,
    content: str,
) -> RunMeta:
    about = data["metadata"]
    played = [claim for claim in claims if claim.state != "NOT_PLAYED"]
    verified, why = _verdict(played, sessions)
    headers = [session.header for session in sessions]
    durations = [session.result.duration_s or 0.0 for session in sessions]
    limits = headers[0].limits if headers else None
    return RunMeta(
        run_id=run_id,
        harness=source.harness,
        timestamp=data["timestamp"],
        duration_seconds=round(sum(durations), 3),
        game_set="imported",
        game_ids=[claim.game.game_id for claim in claims],
        seed=data["seed"],
        max_steps=limits.max_steps if limits else _limit(about, data, "max_steps"),
        max_resets=limits.max_resets if limits else _limit(about, data, "max_resets"),
        harness_config=HarnessConfig(model=_words(about.get("model"), "unknown")),
        status="completed",
        arc_agi_version=headers[0].toolkit_version if headers else "unknown",
        games_total=len(claims),
        verified=verified,
        verification=why,
        game_sources={c.game.game_id: c.game.source_sha256 for c in claims},
        content_sha256=content,
        notes=_words(about.get("notes"), "") or None,
    )


def _verdict(played: Sequence[Claim], sessions: Sequence[Session]) -> tuple[str, str | None]:
    """A run is verified only if every game that was played is."""
    missing = len(played) - len(sessions)
    if played and missing <= 0:
        return REPLAYED, None
    if not sessions:
        return UNVERIFIED, "no session logs were given"
    return UNVERIFIED, f"{missing} of {len(played)} games have no session log"


def _played(
    claims: Sequence[Claim], sessions: Sequence[Session], data: dict[str, Any], meta: RunMeta
) -> list[Played]:
    logged = {session.claim.game.game_id: session for session in sessions}
    played = []
    for claim in claims:
        game, session = claim.game, logged.get(claim.game.game_id)
        result = (
            session.result if session else claimed_result(claim, data["seed"], data["timestamp"])
        )
        digest = hashlib.sha256(session.path.read_bytes()).hexdigest() if session else None
        played.append(
            Played(
                result=result,
                title=game.title,
                tags=game.tags,
                source_sha256=game.source_sha256,
                log=f"{LOGS}/{session.path.name}" if session else None,
                log_sha256=digest,
                verified=REPLAYED if session else UNVERIFIED,
            )
        )
    return played


def _refuse_duplicate(content: str, harness: str, store: Store) -> None:
    for run in store.imported():
        if run.meta.content_sha256 == content and run.meta.harness == harness:
            msg = f"Duplicate import detected: the same result is run {run.meta.run_id}"
            raise ResultProblem(msg, hint=f"to import it again, remove {run.folder} first")


def _limit(about: dict[str, Any], data: dict[str, Any], name: str) -> int | None:
    value = about.get(name, data.get(name, 0))
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _words(value: Any, fallback: str) -> str:
    return value[:2000] if isinstance(value, str) and value else fallback


def _clear_old(parent: Path) -> None:
    """Throw away what an import that was killed left aside; nobody ever saw it."""
    if parent.is_dir():
        for path in parent.glob(f"{STAGING}*"):
            shutil.rmtree(path, ignore_errors=True)


def _sync(folder: Path) -> None:
    fd = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def claimed_result(claim: Claim, seed: int, timestamp: str) -> GameResult:
    """Make the result of one game from what was claimed; levels and baselines are ours."""
    game = claim.game
    count = game.level_count or len(claim.actions)
    plays = () if claim.state == "NOT_PLAYED" else (_play(claim, count),)
    stops: dict[str, StopReason] = {"WIN": "win", "GAME_OVER": "game_over"}
    return GameResult(
        game_id=game.game_id,
        level_count=count,
        baselines=game.baselines,
        seed=seed,
        stop_reason=stops.get(claim.state, "player_quit"),
        state=claim.state,
        won=claim.state == "WIN",
        levels_completed=claim.levels_completed,
        steps=claim.total_actions,
        resets=claim.total_resets,
        rejected=0,
        started_at=timestamp,
        duration_s=None,
        plays=plays,
    )


def _play(claim: Claim, count: int) -> PlayResult:
    actions = [*claim.actions, *[0] * (count - len(claim.actions))]
    baselines = claim.game.baselines or ()
    marks = tuple((i + 1, sum(actions[: i + 1])) for i in range(claim.levels_completed))
    return PlayResult(
        index=1,
        state=claim.state,
        levels_completed=claim.levels_completed,
        actions=sum(actions),
        resets=claim.total_resets,
        marks=marks,
        levels=tuple(
            LevelResult(
                index=i + 1,
                completed=i < claim.levels_completed,
                actions=taken,
                baseline=baselines[i] if i < len(baselines) else None,
            )
            for i, taken in enumerate(actions)
        ),
        first_seq=0,
        last_seq=0,
    )
