"""Imports recordings of the official toolkit: each is played again in the engine, or refused."""

import hashlib
import shutil
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from assay.plugin import Machine
from assay_arc import LogProblem, ResultProblem
from assay_arc.cards import (
    LOGS,
    PLAYED,
    PlayedTrial,
    played_from_log,
    score_card,
    seal_run,
    write_card,
)
from assay_arc.effort import AgentEffort
from assay_arc.engine import toolkit_versions
from assay_arc.importing import (
    MAX_LOG_BYTES,
    ImportedRun,
    KnownGame,
    check_times,
    repeated_sessions,
    staged_run,
)
from assay_arc.log import read_log
from assay_arc.recordings import RecordedGame, read_recording
from assay_arc.replay import play_recordings
from assay_arc.store import (
    REPLAYED,
    HarnessConfig,
    RunMeta,
    Store,
    StoredRun,
    write_bytes,
)

RECORDINGS = "recordings"


class RecordingSource(msgspec.Struct, frozen=True, kw_only=True):
    """Which recordings, who played, and the games they are played again with."""

    files: Sequence[Path]
    harness: str
    model: str
    seed: int
    games: Mapping[str, KnownGame]


class _FoundRecording(msgspec.Struct, frozen=True, kw_only=True):
    path: Path
    recorded: RecordedGame
    game: KnownGame
    trial: int
    sha256: str

    @property
    def log(self) -> str:
        return f"{LOGS}/{self.game.game_id}.trial-{self.trial}.jsonl"


def find_recordings(paths: Sequence[Path]) -> list[Path]:
    """The files themselves, and those below folders."""
    files: list[Path] = []
    for path in paths:
        if path.is_symlink():
            msg = f"{path} is a symbolic link; give the recording itself"
            raise ResultProblem(msg)
        found = sorted(path.rglob("*.jsonl")) if path.is_dir() else [path]
        files += [file for file in found if not file.is_symlink()]
    if not files:
        msg = f"no recordings (*.jsonl) in {', '.join(map(str, paths))}"
        raise ResultProblem(msg)
    return files


def import_recordings(source: RecordingSource, store: Store, host: Machine) -> ImportedRun:
    """Import recordings as one run, several of a game as its trials; or leave nothing behind."""
    found = _read(source)
    digests = {one.log: one.sha256 for one in found}
    warnings = repeated_sessions(digests, source.harness, store)
    run_id = str(uuid.uuid4())
    with staged_run(store.import_dir(source.harness), run_id) as staging:
        frameless = _replay(found, staging, source.seed, host)
        played = [_played(staging, one) for one in found]
        write_bytes(staging / PLAYED, msgspec.json.encode(played))
        meta = _meta(source, found, played, run_id)
        card = score_card(meta, played)
        write_card(staging, card)
        meta.session_sha256 = digests
        if frameless:
            meta.verification = f"{frameless} recordings have no frames to be compared"
        seal_run(staging, meta)
    folder = store.import_dir(source.harness) / run_id
    run = StoredRun(folder=folder, meta=meta, imported=True)
    return ImportedRun(run=run, card=card, warnings=warnings)


def _read(source: RecordingSource) -> list[_FoundRecording]:
    found: list[_FoundRecording] = []
    for path in source.files:
        if not path.is_file():
            msg = f"Recording not found: {path}"
            raise ResultProblem(msg)
        if path.stat().st_size > MAX_LOG_BYTES:
            msg = f"{path}: larger than {MAX_LOG_BYTES} bytes; not a recording"
            raise ResultProblem(msg)
        try:
            recorded = read_recording(path)
        except LogProblem as problem:
            raise ResultProblem(problem.message, hint="nothing was imported") from problem
        game = source.games.get(recorded.game_id)
        if game is None:
            msg = f"{path}: game {recorded.game_id} is not among our games"
            raise ResultProblem(msg, hint="give the folder of its games with --env-dir")
        trial = 1 + sum(one.game.game_id == game.game_id for one in found)
        digest = hashlib.sha256(path.read_bytes()).hexdigest()
        if any(one.sha256 == digest for one in found):
            msg = f"{path}: the same recording was given twice"
            raise ResultProblem(msg)
        found.append(
            _FoundRecording(path=path, recorded=recorded, game=game, trial=trial, sha256=digest)
        )
    return found


def _replay(found: Sequence[_FoundRecording], staging: Path, seed: int, host: Machine) -> int:
    """Play all of them again, keeping a copy of each; return how many had no frames."""
    (staging / LOGS).mkdir()
    (staging / RECORDINGS).mkdir()
    for one in found:
        shutil.copyfile(one.path, staging / RECORDINGS / Path(one.log).name)
    replays = play_recordings(
        [
            (staging / RECORDINGS / Path(one.log).name, one.game.folder, staging / one.log, seed)
            for one in found
        ],
        host,
    )
    for one, replay in zip(found, replays, strict=True):
        if not replay.replayed:
            msg = f"{one.path}: the recording does not replay here: {replay.difference}"
            raise ResultProblem(msg, hint="nothing was imported")
        check_times(read_log(staging / one.log), str(one.path))
    return sum(replay.note is not None for replay in replays)


def _played(staging: Path, one: _FoundRecording) -> PlayedTrial:
    played = played_from_log(staging, one.log, one.trial, AgentEffort(), REPLAYED)
    return msgspec.structs.replace(played, title=one.game.title, tags=one.game.tags)


def _meta(
    source: RecordingSource,
    found: Sequence[_FoundRecording],
    played: Sequence[PlayedTrial],
    run_id: str,
) -> RunMeta:
    games = {one.game.game_id: one.game for one in found}
    return RunMeta(
        run_id=run_id,
        harness=source.harness,
        timestamp=min(one.recorded.answers[0].at for one in found),
        duration_seconds=round(sum(one.result.duration_s or 0.0 for one in played), 3),
        game_set="recordings",
        game_ids=list(games),
        seed=source.seed,
        max_steps=None,
        max_resets=None,
        harness_config=HarnessConfig(model=source.model),
        status="completed",
        arc_agi_version=toolkit_versions()[0],
        games_total=len(games),
        games_played=len(games),
        trials=max(one.trial for one in found),
        verified=REPLAYED,
        game_sources={game_id: game.source_sha256 for game_id, game in games.items()},
    )
