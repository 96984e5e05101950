"""A run of games: trials whose files stay out of the players' reach until they are over."""

import contextlib
import hashlib
import re
import secrets
import shutil
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec

from assay.errors import OutputError
from assay.pipeline.prompts import read_prompts
from assay.pipeline.resume import Resume
from assay.pipeline.run import BatchProgress, Rows, RunRequest, execute, plan
from assay.pipeline.sink import open_sink
from assay.pipeline.trials import TrialRows
from assay.plugin import PromptRow
from assay.records.capture import Cause, Failure
from assay.records.files import remove_folder
from assay.records.raw_streams import folder_names
from assay.records.spec import PluginRef, Surroundings, TrialSpec
from assay.records.tape import TapeUse
from assay.records.trial import Trial
from assay_arc.benchmark import KEPT_LOG
from assay_arc.cards import (
    LOGS,
    RESULTS,
    derive_played,
    log_names,
    read_agents,
    read_tampering,
    score_card,
    seal_run,
    write_card,
)
from assay_arc.seal import write_seal
from assay_arc.store import Scorecard, StoredRun, config_hash
from assay_arc.watch import FileCopies, FinishedRuns
from assay_arc.world import hide_process

DEFAULT_TIMEOUT_MS = 1_800_000
RAW, WORK = "raw", "workspaces"
SHOWN_AS = ("image", "grid", "diff", "memory_file", "advice")
"""Options of the benchmark that are a part of the configuration: how the game is shown, and what
the agent is told."""


class PlannedOptions(msgspec.Struct, kw_only=True):
    """What a run is planned with; kept in its run-meta.json so that it can be resumed."""

    k: int = 1
    timeout_ms: float = DEFAULT_TIMEOUT_MS
    trial_ms: float | None = None
    stall_s: float | None = None
    isolate: bool = False
    sandbox: str = ""
    container: str = ""
    memory_bytes: int | None = None
    cpus: float | None = None
    env_names: Sequence[str] = ()
    concurrency: int = 1
    retries: int = 0
    tape: TapeUse | None = None


class ArcRun:
    """One run, new or resumed."""

    def __init__(self, run: StoredRun) -> None:
        self.run = run
        self.folder, self.meta = run.folder, run.meta
        self._options = msgspec.convert(self.meta.options or {}, PlannedOptions)
        # Streams and workspaces are elsewhere while agents run: nothing that a player has open
        # leads to logs and scores.
        token = hashlib.sha256(str(self.folder.resolve()).encode()).hexdigest()[:16]
        self._temporary = Path(tempfile.gettempdir(), f"assay-{token}")
        self._trials = list(self._planned_trials())
        self._names = folder_names(prompt.id for prompt, _ in self._trials)
        """What the folders of each trial are called in the folder of the run."""
        self._played_s = 0.0
        self._late_changes: list[str] = []

    def request(
        self,
        *,
        jobs: int,
        retries: int,
        max_cost: float | None,
        rate_per_s: float | None,
        longest_wait_s: float,
        executor: PluginRef,
    ) -> RunRequest:
        """Return what the run asks for. How it goes on may change when it is resumed."""
        options = self._options
        # On another machine a log is kept with the raw streams, and comes back with them.
        logs_dir = str((self.folder / LOGS).resolve()) if executor.name == "local" else None
        logs = {"logs_dir": logs_dir, "logs_prefix": f"{LOGS}/", "log_names": self._names}
        return RunRequest(
            prompts=self._benchmark(**logs),
            rows=self._trials,
            agent=msgspec.convert(self.meta.agent, PluginRef),
            jobs=jobs,
            timeout_s=options.timeout_ms / 1000,
            trial_timeout_s=options.trial_ms / 1000 if options.trial_ms else None,
            stall_s=options.stall_s,
            memory_bytes=options.memory_bytes,
            cpus=options.cpus,
            retries=retries,
            rate_per_s=rate_per_s,
            longest_wait_s=longest_wait_s,
            max_cost=max_cost,
            executor=executor,
            surroundings=Surroundings(
                cwd=str(self._temporary),
                workspace_dir=str(self._temporary / WORK),
                replace=True,
                isolate=options.isolate,
                sandbox=options.sandbox,
                container=options.container,
                env_names=tuple(options.env_names),
                tape=options.tape,
                raw_dir=str(self._temporary / RAW),
                raw_prefix=RAW,
            ),
            tape=options.tape,
            output=self.folder / RESULTS,
            mode="resume",
        )

    def play(self, request: RunRequest, progress: BatchProgress) -> None:
        """Play what is missing."""
        began_s = time.monotonic()
        batch = plan(request)
        batch = msgspec.structs.replace(batch, specs=[*map(self._with_own_folders, batch.specs)])
        hide_process()
        watched = FinishedRuns(r for r in self.run.store.completed() if r.folder != self.folder)
        with FileCopies(self.folder) as copies:
            copies.keep(*log_names(self.folder))
            with _open_rows(self.folder / RESULTS, self._options.k, batch.graders) as sink:
                copies.keep(RESULTS)
                rows = _MovedRows(sink, self._names, self.run, copies, watched)
                place, results = self._private_folder(), contextlib.nullcontext(rows)
                for _ in execute(batch, progress=progress, rows=results, place=place):
                    pass
            self._late_changes = rows.find_changes()
        self._played_s = time.monotonic() - began_s

    def conclude(self, *, complete: bool) -> Scorecard:
        """Write the scores and the metadata."""
        meta = self.meta
        played, lost = derive_played(self.folder, meta)
        meta.agents = read_agents(self.folder)
        if meta.agents:
            meta.harness_config.model = self.run.models
            chosen = {n: v for n, v in (meta.benchmark or {}).items() if n in SHOWN_AS}
            meta.config_hash = config_hash(meta.harness_config, chosen)
        meta.tampered = read_tampering(self.folder)
        if self._late_changes:
            meta.tampered["after the last trial"] = self._late_changes
        card = score_card(meta, played, not_measured=lost)
        write_card(self.folder, card)
        meta.duration_seconds = round(meta.duration_seconds + self._played_s, 3)
        meta.games_played = len(card.games)
        meta.not_measured = lost
        meta.cost_usd = card.cost_usd
        meta.status = "completed" if complete else "running"
        seal_run(self.folder, meta)
        return card

    def _planned_trials(self) -> Iterator[PromptRow]:
        """Yield the trials as prompts, each with its own id, because a row is found by its id."""
        k = self._options.k
        for prompt, extra in read_prompts(self._benchmark()):
            for number in range(1, k + 1):
                trial_id = prompt.id if k == 1 else f"{prompt.id}.trial-{number}"
                metadata = {**prompt.metadata, "trial": number}
                yield msgspec.structs.replace(prompt, id=trial_id, metadata=metadata), extra

    def _benchmark(self, **logs: Any) -> PluginRef:
        return PluginRef(name="arc", options={**(self.meta.benchmark or {}), **logs})

    def _with_own_folders(self, spec: TrialSpec) -> TrialSpec:
        """Give a trial folders of its own; their names say nothing and lead to no other trial."""
        folder = f"trial-{secrets.token_hex(8)}"
        place = self._temporary / folder
        around = msgspec.structs.replace(
            spec.surroundings,
            cwd=str(place),
            workspace_dir=str(place / WORK),
            raw_dir=str(place / RAW),
        )
        number = spec.prompt.metadata["trial"]
        return msgspec.structs.replace(spec, folder=folder, number=number, surroundings=around)

    @contextlib.contextmanager
    def _private_folder(self) -> Iterator[None]:
        """Make the folder that agents run in; what a killed run left in it is removed."""
        shutil.rmtree(self._temporary, ignore_errors=True)
        try:
            # Fails if somebody else made it: its name can be guessed.
            self._temporary.mkdir(mode=0o700)
        except OSError as error:
            msg = f"cannot make {self._temporary}: {error.strerror}"
            raise OutputError(msg, hint="remove it, or set TMPDIR to another folder") from error
        try:
            yield
        finally:
            shutil.rmtree(self._temporary, ignore_errors=True)


class _MovedRows(Rows):
    """Moves the files of each finished trial into the run's folder, then writes its row."""

    def __init__(
        self,
        sink: Rows,
        names: dict[str, str],
        run: StoredRun,
        copies: FileCopies,
        watched: FinishedRuns,
    ) -> None:
        self._sink = sink
        self._names = names
        self._run, self._target = run, run.folder
        self._copies, self._watched = copies, watched
        self._inode = (run.folder / RESULTS).stat().st_ino

    def missing(self, specs: list[TrialSpec]) -> list[TrialSpec]:
        return self._sink.missing(specs)

    def add(self, spec: TrialSpec, captured: Trial) -> None:
        raw = captured.raw
        # An agent may have made folders of such names itself, so the row says which one is ours.
        own = [Path(raw).name] if raw else []
        retried = (f"{spec.folder}.retry-{number}" for number in range(1, 100))
        for name in (*own, spec.folder, *retried):
            moved = self._move(spec, spec.surroundings.raw_dir, RAW, name)
            if moved is not None and own == [name]:
                raw = f"{RAW}/{moved.name}"
        metadata = dict(captured.metadata)
        if raw and (evidence := metadata.get("evidence")) and evidence.get("log") == KEPT_LOG:
            metadata["evidence"] = {**evidence, "log": self._move_log(raw)}
        if worked_in := metadata.pop("workspaceDir", None):
            place = spec.surroundings.workspace_dir
            workspace = self._move(spec, place, WORK, Path(worked_in).name)
            if workspace is not None and any(workspace.iterdir()):
                metadata["workspaceDir"] = str(workspace)
        if lacks_tools(captured):
            failure = Failure(cause=Cause.WORLD, message=NO_TOOLS)
            nothing = {"grade": msgspec.UNSET, "grades": msgspec.UNSET, "outcome": msgspec.UNSET}
            captured = msgspec.structs.replace(captured, failure=failure, **nothing)
        if changes := self.find_changes():
            metadata["evidence"] = {**metadata.get("evidence", {}), "tampered": changes}
        cwd = metadata.get("workspaceDir", msgspec.UNSET)
        moved_row = msgspec.structs.replace(captured, metadata=metadata, raw=raw, cwd=cwd)
        if log := metadata.get("evidence", {}).get("log"):
            self._copies.keep(log)
        self._sink.add(spec, moved_row)
        self._keep_rows()
        remove_folder(spec.surroundings.cwd, missing_ok=True)

    def find_changes(self) -> list[str]:
        """Say what was changed that no player may change; files of this run are put back."""
        own = [f"{name} of this run was changed, and put back" for name in self._copies.restore()]
        return [*own, *self._watched.find_changes()]

    def _keep_rows(self) -> None:
        path = self._target / RESULTS
        if not path.is_file() or path.stat().st_ino != self._inode:
            msg = f"{path} was replaced while agents played: the rows of this run are lost"
            raise OutputError(msg, hint="an agent can do that without --sandbox")
        self._copies.keep(RESULTS)
        logs = {n: sha256 for n, sha256 in self._copies.digests.items() if n != RESULTS}
        write_seal(self._target, self._run.meta, logs)

    def _move_log(self, raw: str) -> str:
        """Move a log that was kept with the raw streams to the others; return its name."""
        name = f"{LOGS}/{Path(raw).name}.jsonl"
        (self._target / LOGS).mkdir(exist_ok=True)
        shutil.move(self._target / raw / KEPT_LOG, self._target / name)
        return name

    def _move(self, spec: TrialSpec, place: str | None, kind: str, name: str) -> Path | None:
        """Move a folder of a trial, and name it after the game again."""
        source = Path(place or "", name)
        target = self._target / kind / name.replace(spec.folder, self._names[spec.prompt.id], 1)
        if source.is_symlink() or not source.is_dir():
            return None
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.rmtree(target, ignore_errors=True)
        shutil.move(source, target)
        return target


NO_TOOLS = (
    "the agent reported that it was offered no tools of the game and no shell, and did nothing"
)
_USABLE = re.compile(r"arc|bash|shell|exec|terminal", re.IGNORECASE)


def lacks_tools(trial: Trial) -> bool:
    """Whether an agent said when it started that it has nothing to play with, and did not play."""
    tools = (trial.setup or {}).get("tools")
    if not isinstance(tools, list) or any(_USABLE.search(str(name)) for name in tools):
        return False
    result = (trial.metadata.get("evidence") or {}).get("result") or {}
    return not (result.get("steps") or result.get("resets") or result.get("rejected"))


@contextlib.contextmanager
def _open_rows(output: Path, k: int, graders: Sequence[PluginRef]) -> Iterator[Rows]:
    """Open the output of a run: a capture for each game, or with k a row with k trials.

    compare, report, view and plan read the rows of either kind.
    """
    if k == 1:
        with open_sink(output, "resume", resume=Resume(keep_unsigned=True)) as sink:
            yield sink
        return
    # Scores follow from the logs of the games, which are sealed.
    resume = Resume(k=k, graders=graders, keep_unsigned=True)
    with (
        open_sink(output, "resume", kind="trials", resume=resume) as sink,
        TrialRows(sink, output, "resume", resume) as rows,
    ):
        yield _RepeatedRows(rows)


class _RepeatedRows(Rows):
    """Collects the trials of a game, each of which was planned under an id of its own."""

    def __init__(self, rows: TrialRows) -> None:
        self._rows = rows

    def missing(self, specs: list[TrialSpec]) -> list[TrialSpec]:
        trials = [(spec, _trial_of_game(spec)) for spec in specs]
        wanted = self._rows.missing([trial for _, trial in trials])
        numbers = {(trial.prompt.id, trial.number) for trial in wanted}
        return [spec for spec, one in trials if (one.prompt.id, one.number) in numbers]

    def add(self, spec: TrialSpec, captured: Trial) -> None:
        self._rows.add(_trial_of_game(spec), captured)


def _trial_of_game(spec: TrialSpec) -> TrialSpec:
    """The same trial under the id of its game; the folders it is played in are temporary."""
    metadata = {key: value for key, value in spec.prompt.metadata.items() if key != "trial"}
    prompt = msgspec.structs.replace(
        spec.prompt, id=str(spec.prompt.metadata["game"]), metadata=metadata
    )
    around = msgspec.structs.replace(spec.surroundings, workspace_dir=None)
    return msgspec.structs.replace(spec, prompt=prompt, surroundings=around)
