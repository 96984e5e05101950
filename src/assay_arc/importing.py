"""Imports results of other harnesses: checked, replayed, scored again, or refused."""

import hashlib
import os
import shutil
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec

from assay.errors import OutputError
from assay.plugin import Machine
from assay_arc import ResultProblem
from assay_arc.cards import (
    LOGS,
    PLAYED,
    PlayedTrial,
    played_from_log,
    score_card,
    seal_run,
    write_card,
)
from assay_arc.catalog import GameInfo
from assay_arc.effort import AgentEffort
from assay_arc.generate import KeptPlan, find_plan
from assay_arc.log import GameLog, Header, StopReason, read_log, read_time, sync_folder
from assay_arc.replay import check_logs
from assay_arc.scoring import GameResult, LevelResult, PlayResult, derive_result
from assay_arc.store import (
    REPLAYED,
    UNVERIFIED,
    HarnessConfig,
    RunMeta,
    Scorecard,
    Store,
    StoredRun,
    write_bytes,
)

MAX_LOG_BYTES = 1024 * 1024 * 1024
MAX_RESULT_BYTES = 64 * 1024 * 1024
STAGING = ".import-"
SCHEMA_VERSION = "1.0.0"
MOST = 10**9
MOST_GAMES = 10_000
MAX_TEXT = 10_000
LONGEST_GAME, CLOCK_STEP = timedelta(days=31), timedelta(hours=1)
STATES = ("NOT_PLAYED", "NOT_FINISHED", "PLAYING", "WIN", "GAME_OVER")
TOP = ("schema_version", "harness", "timestamp", "seed", "games", "metadata")
GAME = (
    "game_id",
    "state",
    "levels_completed",
    "total_levels",
    "total_actions",
    "total_resets",
    "levels",
)
LEVEL = ("level_index", "completed", "actions_taken", "baseline_actions")


class KnownGame(GameInfo, frozen=True, kw_only=True):
    """Our own copy of a game, its levels counted: the only source of levels and baselines."""

    level_count: int | None


class ClaimedGame(msgspec.Struct, frozen=True, kw_only=True):
    """What a result claims about one game, after all checks."""

    game: KnownGame
    state: str
    levels_completed: int
    total_actions: int
    total_resets: int
    actions: tuple[int, ...]
    """Of each level that was reported, in order."""
    session_sha256: str | None = None
    cost_usd: float | None = None


class SessionLog(msgspec.Struct, frozen=True, kw_only=True):
    """A log that was copied into the run, and the result derived from it."""

    claim: ClaimedGame
    path: Path
    header: Header
    result: GameResult


class ImportedRun(msgspec.Struct, kw_only=True):
    run: StoredRun
    card: Scorecard
    warnings: list[str]


class ImportSource(msgspec.Struct, frozen=True, kw_only=True):
    """Where a result comes from, and the games it is checked against."""

    harness: str
    result: Path
    sessions: Path | None
    games_dir: Path
    games: Mapping[str, KnownGame]
    """By id, and by id without version."""


class RunUsage(msgspec.Struct, frozen=True, kw_only=True):
    """What all games of a run together took, where it is not known of each."""

    cost_usd: float | None = None
    tokens: int | None = None
    reasoning_chars: int | None = None


class Transcript(msgspec.Struct, frozen=True, kw_only=True):
    """What the agent printed, and what its adapter read in it."""

    name: str
    data: bytes
    spent: RunUsage


class _CheckedResult(msgspec.Struct, frozen=True, kw_only=True):
    """A result that is in order."""

    source: ImportSource
    data: dict[str, Any]
    raw: bytes
    claims: Sequence[ClaimedGame]
    content: str
    warnings: list[str]
    plan: KeptPlan | None = None
    """What the harness was given to play, if that is known."""


def import_results(
    sources: Sequence[ImportSource],
    store: Store,
    host: Machine,
    transcripts: Sequence[Transcript] = (),
) -> ImportedRun:
    """Import results as one run, each of them a trial of its games; or leave nothing behind."""
    checked = [_check(source, store) for source in sources]
    _check_repeats(checked)
    digests = _all_digests(checked)
    harness = sources[0].harness
    warnings = [text for one in checked for text in one.warnings]
    warnings += repeated_sessions(digests, harness, store)
    run_id = str(uuid.uuid4())
    with staged_run(store.import_dir(harness), run_id) as staging:
        metas, played = [], []
        for number, one in enumerate(checked, 1):
            logs = LOGS if len(checked) == 1 else f"{LOGS}/trial-{number}"
            suffix = "" if len(checked) == 1 else f"-{number}"
            write_bytes(staging / f"result{suffix}.json", one.raw)
            sessions = _checked_logs(one, staging / logs, host)
            metas.append(_meta(one, sessions, run_id))
            played += _played(one, sessions, staging, number)
        meta = _joined_meta(metas, checked, transcripts)
        meta.session_sha256 = digests
        for transcript in transcripts:
            write_bytes(staging / "transcripts" / transcript.name, transcript.data)
        write_bytes(staging / PLAYED, msgspec.json.encode(played))
        card = score_card(meta, played)
        write_card(staging, card)
        meta.games_played = len({one.result.game_id for one in played if one.result.plays})
        seal_run(staging, meta)
    folder = store.import_dir(harness) / run_id
    run = StoredRun(folder=folder, meta=meta, imported=True)
    return ImportedRun(run=run, card=card, warnings=warnings)


def _check(source: ImportSource, store: Store) -> _CheckedResult:
    """Read one result; raise with everything that is wrong with it."""
    data, raw = read_result(source.result)
    claims, errors, warnings = check_result(data, source.harness, source.games)
    if errors:
        lines = "\n".join(f"  - {error}" for error in errors)
        msg = f"Schema validation errors:\n{lines}"
        raise ResultProblem(msg)
    plan, unplayed = _find_unplayed(source, data, claims, store)
    if unplayed:
        names = ", ".join(claim.game.game_id for claim in unplayed)
        warnings.append(f"planned, but not in the result, so counted as not played: {names}")
    # Of the content, not of the bytes: other spacing makes no other result.
    content = hashlib.sha256(msgspec.json.encode(data, order="deterministic")).hexdigest()
    _refuse_duplicate(content, source.harness, store)
    return _CheckedResult(
        source=source,
        data=data,
        raw=raw,
        claims=[*claims, *unplayed],
        content=content,
        warnings=warnings,
        plan=plan,
    )


def _find_unplayed(
    source: ImportSource, data: dict[str, Any], claims: Sequence[ClaimedGame], store: Store
) -> tuple[KeptPlan | None, list[ClaimedGame]]:
    """The plan that a result belongs to, and its games that the result says nothing of."""
    there = {claim.game.game_id for claim in claims}
    folder = store.import_dir(source.harness).parent
    plan = find_plan(folder, sorted(there), data["timestamp"])
    names = [name for name in plan.games if name not in there] if plan else []
    games = [source.games[name] for name in names if name in source.games]
    return plan, [
        ClaimedGame(
            game=game,
            state="NOT_PLAYED",
            levels_completed=0,
            total_actions=0,
            total_resets=0,
            actions=(),
        )
        for game in games
    ]


def _check_repeats(checked: Sequence[_CheckedResult]) -> None:
    """Refuse results that cannot be trials of the same games."""
    first = checked[0]
    for number, one in enumerate(checked[1:], 2):
        if one.content in (other.content for other in checked[: number - 1]):
            msg = f"{one.source.result}: the same result was given twice"
            raise ResultProblem(msg)
        if one.data["seed"] != first.data["seed"]:
            msg = f"{one.source.result}: its seed is {one.data['seed']}, not {first.data['seed']}"
            raise ResultProblem(msg, hint="results with different seeds are different runs")
        models = [_text_or(each.data["metadata"].get("model"), "unknown") for each in (first, one)]
        if models[0] != models[1]:
            msg = f"{one.source.result}: its model is {models[1]}, not {models[0]}"
            raise ResultProblem(msg, hint="results of different models are different runs")


def _all_digests(checked: Sequence[_CheckedResult]) -> dict[str, str]:
    found: dict[str, str] = {}
    for number, one in enumerate(checked, 1):
        for game_id, digest in _session_digests(one.claims, one.source.sessions).items():
            if digest in found.values():
                msg = f"{one.source.result}: its session of {game_id} was given twice"
                raise ResultProblem(msg)
            found[game_id if len(checked) == 1 else f"{game_id}.trial-{number}"] = digest
    return found


def _joined_meta(
    metas: Sequence[RunMeta], checked: Sequence[_CheckedResult], transcripts: Sequence[Transcript]
) -> RunMeta:
    """The metadata of all repeats together."""
    meta = metas[0]
    meta.trials = len(metas)
    meta.game_ids = list(dict.fromkeys(game_id for one in metas for game_id in one.game_ids))
    meta.games_total = len(meta.game_ids)
    meta.duration_seconds = round(sum(one.duration_seconds for one in metas), 3)
    for other in metas[1:]:
        meta.game_sources |= other.game_sources
        if other.verified == UNVERIFIED:
            meta.verified, meta.verification = other.verified, other.verification
    if len(metas) > 1:
        joined = "".join(sorted(one.content for one in checked))
        meta.content_sha256 = hashlib.sha256(joined.encode()).hexdigest()
    abouts = [one.data["metadata"] for one in checked]
    told = [RunUsage(cost_usd=a.get("cost_usd"), tokens=a.get("tokens")) for a in abouts]
    read = [transcript.spent for transcript in transcripts]
    # What the harness says of itself stands; a transcript says what it leaves out.
    meta.cost_usd = _total(told, "cost_usd") or _total(read, "cost_usd")
    meta.tokens = _total(told, "tokens") or _total(read, "tokens")
    meta.reasoning_chars = _total(read, "reasoning_chars")
    meta.transcripts = [f"transcripts/{transcript.name}" for transcript in transcripts]
    return meta


def _total(spent: Sequence[RunUsage], name: str) -> Any:
    known = [getattr(one, name) for one in spent]
    return sum(known) if known and None not in known else None


@contextmanager
def staged_run(parent: Path, run_id: str) -> Iterator[Path]:
    """Yield a folder that is renamed at the end: a run is there whole or not at all."""
    staging = parent / f"{STAGING}{run_id}"
    try:
        for path in parent.glob(f"{STAGING}*"):  # what killed imports left behind: never a run
            shutil.rmtree(path, ignore_errors=True)
        staging.mkdir(parents=True)
        yield staging
        staging.rename(parent / run_id)
        sync_folder(parent)
    except OSError as error:
        msg = f"cannot store the result: {error}"
        raise OutputError(msg, hint="nothing was imported") from error
    finally:
        shutil.rmtree(staging, ignore_errors=True)


def read_result(path: Path) -> tuple[Any, bytes]:
    """Read the file as strict JSON: NaN and Infinity are refused."""
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
        note = "NaN and Infinity are not JSON; " if b"NaN" in raw or b"Infinity" in raw else ""
        msg = f"Invalid JSON in result file: {note}{error}"
        raise ResultProblem(msg) from error


def _checked_logs(checked: _CheckedResult, target: Path, host: Machine) -> list[SessionLog]:
    source = checked.source
    if source.sessions is None:
        return []
    if source.sessions.is_symlink():
        msg = f"{source.sessions} is a symbolic link; give the folder itself"
        raise ResultProblem(msg)
    sessions = import_logs(checked.claims, source.sessions, target, checked.data["seed"])
    for session in sessions:
        _check_limits(session, checked.plan)
    if sessions:
        replay_logs(sessions, source.games_dir, host)
    return sessions


def _check_limits(session: SessionLog, plan: KeptPlan | None) -> None:
    """Refuse a log that was played under more generous limits than were planned."""
    if plan is None:
        return
    limits, name = session.header.limits, session.claim.game.game_id
    for what in ("max_steps", "max_resets"):
        most, planned = getattr(limits, what), getattr(plan, what)
        if planned is not None and (most is None or most > planned):
            said = "no limit" if most is None else most
            msg = f"{name}: {what} is {said} in its log, but {planned} in the plan it was played by"
            raise ResultProblem(msg, hint="nothing was imported")


def check_times(log: GameLog, name: str) -> None:
    """Refuse times that cannot be true."""
    try:
        times = [read_time(text) for text in (log.header.started_at, *(r.at for r in log.records))]
    except ValueError as error:
        msg = f"{name}: a time in the log cannot be read: {error}"
        raise ResultProblem(msg, hint="nothing was imported") from error
    first, last = min(times), max(times)
    if last - first > LONGEST_GAME or times[0] - first > CLOCK_STEP or is_future(last):
        msg = f"{name}: the times of its log cannot be true: from {first} to {last}"
        raise ResultProblem(msg, hint="nothing was imported")


def is_future(time: datetime) -> bool:
    """Whether a time has not come anywhere on earth."""
    return time > datetime.now(UTC) + timedelta(days=1)


def _meta(checked: _CheckedResult, sessions: Sequence[SessionLog], run_id: str) -> RunMeta:
    data, claims, source = checked.data, checked.claims, checked.source
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
        harness_config=HarnessConfig(model=_text_or(about.get("model"), "unknown")),
        status="completed",
        arc_agi_version=headers[0].toolkit_version if headers else "unknown",
        games_total=len(claims),
        verified=verified,
        verification=why,
        game_sources={c.game.game_id: c.game.source_sha256 for c in claims},
        content_sha256=checked.content,
        notes=_text_or(about.get("notes"), "") or None,
    )


def _verdict(
    played: Sequence[ClaimedGame], sessions: Sequence[SessionLog]
) -> tuple[str, str | None]:
    """A run is verified only if every game that was played is."""
    missing = len(played) - len(sessions)
    if not played:
        return UNVERIFIED, "nothing was played"
    if missing <= 0:
        return REPLAYED, None
    if not sessions:
        return UNVERIFIED, "no session logs were given"
    have = "has" if missing == 1 else "have"
    return UNVERIFIED, f"{missing} of {len(played)} games {have} no session log"


def _played(
    checked: _CheckedResult, sessions: Sequence[SessionLog], staging: Path, trial: int
) -> list[PlayedTrial]:
    data = checked.data
    logged = {session.claim.game.game_id: session for session in sessions}
    played = []
    for claim in checked.claims:
        game, session = claim.game, logged.get(claim.game.game_id)
        agent = AgentEffort(cost_usd=claim.cost_usd)
        if session:
            name = str(session.path.relative_to(staging))
            one = played_from_log(staging, name, trial, agent, REPLAYED)
        else:
            result = claimed_result(claim, data["seed"], data["timestamp"])
            one = PlayedTrial(result=result, trial=trial, cost_usd=claim.cost_usd)
        played.append(
            msgspec.structs.replace(
                one,
                title=game.title,
                tags=game.tags,
                source_sha256=game.source_sha256,
                claimed_actions=claim.total_actions,
                verified=_mark(claim, session),
            )
        )
    return played


def _mark(claim: ClaimedGame, session: SessionLog | None) -> str | None:
    """A game that was not played has nothing to verify."""
    if session:
        return REPLAYED
    return None if claim.state == "NOT_PLAYED" else UNVERIFIED


def _refuse_duplicate(content: str, harness: str, store: Store) -> None:
    for run in store.imported():
        if run.meta.content_sha256 == content and run.meta.harness == harness:
            msg = f"Duplicate import detected: the same result is run {run.meta.run_id}"
            raise ResultProblem(msg, hint=f"to import it again, remove {run.folder} first")


def _session_digests(claims: Sequence[ClaimedGame], folder: Path | None) -> dict[str, str]:
    """The sha256 of each session log as it was collected, whether or not the log is here."""
    found = {}
    for claim in claims:
        path = folder / f"{claim.game.game_id}.jsonl" if folder else None
        if path is not None and path.is_file() and not path.is_symlink():
            with path.open("rb") as file:
                found[claim.game.game_id] = hashlib.file_digest(file, "sha256").hexdigest()
        elif claim.session_sha256 is not None:
            found[claim.game.game_id] = claim.session_sha256
    return found


def repeated_sessions(digests: Mapping[str, str], harness: str, store: Store) -> list[str]:
    """Refuse sessions that are a run of this harness already, whatever the result says of itself.

    The model, the notes and the time of a result are words; its sessions are what was played.
    Returns warnings about sessions that another run holds too.
    """
    given, warnings = set(digests.values()), []
    for run in store.imported():
        again = given & set(run.meta.session_sha256.values())
        where = f"run {run.meta.run_id} ({run.meta.harness}, {run.meta.harness_config.model})"
        if given and again == given and run.meta.harness == harness:
            msg = f"Duplicate import detected: the same sessions are {where}"
            raise ResultProblem(msg, hint=f"to import them again, remove {run.folder} first")
        if again:
            warnings.append(f"{len(again)} of the {len(given)} session logs are also in {where}")
    return warnings


def _limit(about: dict[str, Any], data: dict[str, Any], name: str) -> int | None:
    value = about.get(name, data.get(name, 0))
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _text_or(value: Any, fallback: str) -> str:
    return value[:2000] if isinstance(value, str) and value else fallback


def import_logs(
    claims: Sequence[ClaimedGame], source: Path, target: Path, seed: int
) -> list[SessionLog]:
    """Copy the log of each game that has one; refuse what does not fit the result."""
    sessions = []
    for claim in claims:
        path = source / f"{claim.game.game_id}.jsonl"
        if path.is_symlink():
            msg = f"{path} is a symbolic link; give the log itself"
            raise ResultProblem(msg)
        if path.is_file() and not is_hand_written(path):
            copy = _copy(path, target / path.name, claim)
            sessions.append(_compare(read_log(copy), copy, claim, seed))
        elif claim.session_sha256 is not None and not path.is_file():
            msg = f"{path} is missing, but the result was collected from it"
            raise ResultProblem(msg, hint="copy the whole sessions folder as well")
    return sessions


def is_hand_written(path: Path) -> bool:
    """Whether a session is in the reference's own style, which the player writes: no proof."""
    with path.open("rb") as file:
        first = file.readline(MAX_RESULT_BYTES)
    try:
        record = msgspec.json.decode(first)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return False
    return isinstance(record, dict) and record.get("type") in ("observation", "action")


def replay_logs(sessions: Sequence[SessionLog], games: Path, host: Machine) -> None:
    """Repeat every action in the real engine; refuse at the first difference."""
    replays = check_logs([session.path for session in sessions], games, host)
    for session, replay in zip(sessions, replays, strict=True):
        if not replay.replayed:
            name = session.claim.game.game_id
            msg = f"{name}: the session log does not replay here: {replay.difference}"
            raise ResultProblem(msg, hint="nothing was imported")


def _copy(path: Path, target: Path, claim: ClaimedGame) -> Path:
    """Copy a log; one without baselines gets those of our copy, one with others is refused."""
    # Not through a link, even if one was put there after the check.
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
    # The generated driver is not told the baselines, so its logs have none.
    if header.baselines is None and claim.game.baselines is not None:
        header = msgspec.structs.replace(header, baselines=claim.game.baselines)
        rest = data.partition(b"\n")[2]
        target.write_bytes(msgspec.json.encode(header) + b"\n" + rest)
    return target


def _compare(log: GameLog, path: Path, claim: ClaimedGame, seed: int) -> SessionLog:
    """Compare what the result claims with what follows from its log."""
    check_times(log, claim.game.game_id)
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
    return SessionLog(claim=claim, path=path, header=header, result=result)


def best_play(result: GameResult) -> PlayResult | None:
    """Choose the play that a result reports, as the collector does."""
    if not result.plays:
        return None
    return max(result.plays, key=lambda play: (play.levels_completed, -play.actions))


def claimed_result(claim: ClaimedGame, seed: int, timestamp: str) -> GameResult:
    """Make a result from a claim; the number of levels and the baselines are ours."""
    game = claim.game
    count = game.level_count or len(claim.actions) or len(game.baselines or ())
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


def _play(claim: ClaimedGame, count: int) -> PlayResult:
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


def check_result(
    data: Any, harness: str, games: Mapping[str, KnownGame]
) -> tuple[list[ClaimedGame], list[str], list[str]]:
    """Return claims, errors and warnings; with errors the claims are not complete."""
    if not isinstance(data, dict):
        return [], ["the result must be an object"], []
    errors = [*_missing(data, TOP, ""), *_check_top(data)]
    warnings = list(_warnings(data, harness))
    claims: list[ClaimedGame] = []
    seen: set[str] = set()
    rows = data.get("games")
    for i, row in enumerate(rows[:MOST_GAMES] if isinstance(rows, list) else []):
        place = f"games[{i}]"
        if not isinstance(row, dict):
            errors.append(f"{place} must be an object")
            continue
        found = [*_missing(row, GAME, f"{place}."), *_check_game(row, place, games)]
        errors += found
        game = games.get(row["game_id"]) if isinstance(row.get("game_id"), str) else None
        if game is not None and game.game_id in seen:
            errors.append(f"{place}.game_id: {game.game_id} appears twice")
        elif game is not None:
            seen.add(game.game_id)
            if not found:
                claims.append(_claim(row, game))
                done, told = row["levels_completed"], len(row["levels"])
                if told < done:  # as in the example of the reference
                    missing = f"{done - told} of {done} completed levels are not described"
                    warnings.append(f"{place}.levels: {missing}: they score 0")
    return claims, errors, warnings


def _check_top(data: dict[str, Any]) -> Iterator[str]:
    for name in ("schema_version", "harness", "timestamp"):
        if name in data and not _is_text(data[name]):
            yield f"{name} must be a string"
    if isinstance(data.get("timestamp"), str) and not _is_time(data["timestamp"]):
        yield "timestamp must be an ISO 8601 time, and not one in the future"
    if "seed" in data and not _is_int(data["seed"], -MOST, MOST):
        yield "seed must be a whole number"
    if "metadata" in data and not isinstance(data["metadata"], dict):
        yield "metadata must be an object"
    elif "metadata" in data:
        yield from _check_spent(data["metadata"], "metadata")
    rows = data.get("games", [{}])  # _missing reports a result without games
    if not isinstance(rows, list):
        yield '"games" must be an array'
    elif not rows:
        yield '"games" must not be empty'
    elif len(rows) > MOST_GAMES:
        yield f'"games" has more than {MOST_GAMES} entries'


def _warnings(data: dict[str, Any], harness: str) -> Iterator[str]:
    claimed = data.get("harness")
    if isinstance(claimed, str) and claimed != harness:
        yield f'Harness field in result ("{claimed[:80]}") does not match argument ("{harness}")'
    version = data.get("schema_version")
    if isinstance(version, str) and version != SCHEMA_VERSION:
        yield f"Schema version {version[:80]} may not be fully supported (expected 1.0.0)"
    formula = data.get("scoring_formula_version", "1.0.0")
    if formula != "1.0.0":
        yield f"Scoring formula {str(formula)[:80]!r} is not used: scores are always recomputed"


def _check_game(row: dict[str, Any], place: str, games: Mapping[str, KnownGame]) -> Iterator[str]:
    game_id = row.get("game_id")
    game = games.get(game_id) if isinstance(game_id, str) else None
    if "game_id" in row and game is None:
        yield f"{place}.game_id: unknown game {str(game_id)[:80]!r}"
    if "state" in row and row["state"] not in STATES:
        yield f"{place}.state must be one of {', '.join(STATES)}"
    yield from _check_spent(row, place)
    for name in GAME[2:6]:  # the counts
        if name in row and not _is_int(row[name], 0, MOST):
            yield f"{place}.{name} must be a whole number from 0 to {MOST}"
    levels = row.get("levels")
    if "levels" in row and not isinstance(levels, list):
        yield f"{place}.levels must be an array"
    elif isinstance(levels, list) and len(levels) > 1000:
        yield f"{place}.levels has {len(levels)} entries; more than any game has"
    elif isinstance(levels, list):
        faults = [fault for j, level in enumerate(levels) for fault in _level(level, place, j)]
        yield from faults
        if game is not None and not faults and _is_counted(row):
            yield from _check_sense(row, place, game)


def _check_spent(row: dict[str, Any], place: str) -> Iterator[str]:
    """Check what a result may say about cost and tokens."""
    cost, tokens = row.get("cost_usd"), row.get("tokens")
    if cost is not None and not (
        isinstance(cost, int | float) and not isinstance(cost, bool) and 0 <= cost <= MOST
    ):
        yield f"{place}.cost_usd must be a number of US dollars from 0 to {MOST}"
    if tokens is not None and not _is_int(tokens, 0, MOST * 1000):
        yield f"{place}.tokens must be a whole number from 0"


def _level(level: Any, place: str, j: int) -> Iterator[str]:
    here = f"{place}.levels[{j}]"
    if not isinstance(level, dict):
        yield f"{here} must be an object"
        return
    yield from _missing(level, LEVEL, f"{here}.")
    if "level_index" in level and level["level_index"] != j + 1:
        yield f"{here}.level_index must be {j + 1}: levels must be in order, from 1"
    if "completed" in level and not isinstance(level["completed"], bool):
        yield f"{here}.completed must be true or false"
    if "actions_taken" in level and not _is_int(level["actions_taken"], 0, MOST):
        yield f"{here}.actions_taken must be a whole number from 0 to {MOST}"
    baseline = level.get("baseline_actions")
    if baseline is not None and not _is_int(baseline, 0, MOST):
        yield f"{here}.baseline_actions must be a whole number from 0 to {MOST}, or null"


def _check_sense(row: dict[str, Any], place: str, game: KnownGame) -> Iterator[str]:
    """Check that the numbers of a game agree with each other and with our copy of it."""
    done, total, levels = row["levels_completed"], row["total_levels"], row["levels"]
    played = row["state"] != "NOT_PLAYED"
    if (played or total) and game.level_count is not None and total != game.level_count:
        yield f"{place}.total_levels is {total}, but {game.game_id} has {game.level_count} levels"
    if done > total:
        yield f"{place}.levels_completed is {done} of {total} levels"
    if len(levels) > total:
        yield f"{place}.levels has {len(levels)} entries for {total} levels"
    if (row["state"] == "WIN") != (played and done == total):
        yield f"{place}.state is {row['state']} with {done} of {total} levels completed"
    if not all(level["completed"] for level in levels[:done]):
        yield f"{place}.levels: the first {done} must be completed"
    if any(level["completed"] for level in levels[done:]):
        yield f"{place}.levels: more are completed than levels_completed says"
    spent = sum(level["actions_taken"] for level in levels)
    if spent > row["total_actions"] + row["total_resets"]:
        yield (
            f"{place}: its levels took {spent} actions, but only {row['total_actions']} actions "
            f"and {row['total_resets']} resets were made"
        )
    if done and levels and levels[0]["actions_taken"] == 0:
        yield f"{place}.levels[0]: completed without any action"
    if not played and (row["total_actions"] or done):
        yield f"{place}.state is NOT_PLAYED, but something was played"
    yield from _check_baselines(levels, place, game)


def _check_baselines(levels: list[dict[str, Any]], place: str, game: KnownGame) -> Iterator[str]:
    baselines = game.baselines or ()
    for j, level in enumerate(levels):
        claimed = level["baseline_actions"]
        known = baselines[j] if j < len(baselines) else None
        # The reference's driver writes zeros for a game without baselines.
        if claimed is not None and claimed != (known or 0):
            yield (
                f"{place}.levels[{j}].baseline_actions is {claimed}, "
                f"but the metadata of {game.game_id} says {known}"
            )


def _claim(row: dict[str, Any], game: KnownGame) -> ClaimedGame:
    session = row.get("session")
    sha256 = session.get("sha256") if isinstance(session, dict) else None
    return ClaimedGame(
        game=game,
        state="NOT_FINISHED" if row["state"] == "PLAYING" else row["state"],
        levels_completed=row["levels_completed"],
        total_actions=row["total_actions"],
        total_resets=row["total_resets"],
        actions=tuple(level["actions_taken"] for level in row["levels"]),
        session_sha256=sha256 if isinstance(sha256, str) else None,
        cost_usd=row.get("cost_usd"),
    )


def _missing(row: dict[str, Any], names: tuple[str, ...], place: str) -> list[str]:
    return [f"Missing required field: {place}{name}" for name in names if name not in row]


def _is_counted(row: dict[str, Any]) -> bool:
    """Whether state and counts are valid, so that they can be checked against each other."""
    return row.get("state") in STATES and all(_is_int(row.get(n), 0, MOST) for n in GAME[2:6])


def _is_int(value: Any, low: int, high: int) -> bool:
    # JSON's true is a bool, which Python takes for an int.
    return isinstance(value, int) and not isinstance(value, bool) and low <= value <= high


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and len(value) <= MAX_TEXT


def _is_time(text: str) -> bool:
    try:
        return not is_future(read_time(text))
    except (ValueError, OverflowError):
        return False
