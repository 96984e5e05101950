"""Plays one agent's run: trials through the ordinary flow, then the seed's files from the logs."""

import contextlib
import hashlib
import os
import shutil
import tempfile
import time
import uuid
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click
import msgspec
from msgspec import UNSET

from assay import plugins
from assay.benchmarks.arc_agi.catalog.game import GameInfo
from assay.benchmarks.arc_agi.store.card import Scorecard
from assay.benchmarks.arc_agi.store.derive import LOGS, RESULTS, derive_played, write_scores
from assay.benchmarks.arc_agi.store.files import write_json
from assay.benchmarks.arc_agi.store.layout import META, StoredRun
from assay.benchmarks.arc_agi.store.meta import RECORDED, HarnessConfig, RunMeta, config_hash
from assay.cli.arc_shared import Place, need_toolkit
from assay.cli.progress import Progress
from assay.cli.sink import open_sink
from assay.errors import OutputError
from assay.executors.local import LocalExecutor
from assay.pipeline import capture_all, end_leftovers, grade_capture
from assay.prompts.plan import Setting, folder_names, plan
from assay.records.capture import Capture
from assay.records.jsonl import encode_row
from assay.records.trial import Limits, PluginRef, Surroundings, TrialSpec

RAW, WORK = "raw", "workspaces"


class RunOptions(msgspec.Struct, kw_only=True):
    """What a run is planned with; kept in its run-meta.json so that it can be resumed."""

    k: int = 1
    timeout_ms: float = 1_800_000
    trial_ms: float | None = None
    stall_s: float | None = None
    isolate: bool = False
    env_names: tuple[str, ...] = ()


def new_run(
    place: Place, agent: PluginRef, benchmark: dict[str, Any], games: list[GameInfo], options: Any
) -> StoredRun:
    """Make the folder of a run and write down what it is going to be."""
    adapter = plugins.adapter(agent)
    mcp = ["arc"] if benchmark.get("mcp", True) else []
    setup = HarnessConfig(model=str(agent.options.get("model") or "unknown"), mcp_servers=mcp)
    run_id = str(uuid.uuid4())
    meta = RunMeta(
        run_id=run_id,
        harness=adapter.name,
        timestamp=datetime.now(UTC).isoformat(),
        game_set=str(options.pop("game_set")),
        game_ids=[info.game_id for info in games],
        game_sources={info.game_id: info.source_sha256 for info in games},
        games_total=len(games),
        seed=benchmark["seed"],
        max_steps=benchmark["max_steps"],
        max_resets=benchmark["max_resets"],
        config_hash=config_hash(setup),
        harness_config=setup,
        arc_agi_version=need_toolkit(),
        trials=options["k"],
        verified=RECORDED,
        agent=msgspec.to_builtins(agent),
        benchmark=benchmark,
        options=options,
    )
    folder = place.store.runs_dir / run_id
    write_json(folder / META, meta)
    return StoredRun(folder=folder, meta=meta)


class ArcRun:
    """One run, fresh or to be gone on with."""

    def __init__(self, run: StoredRun) -> None:
        self.run = run
        self.folder, self.meta = run.folder, run.meta
        self._options = msgspec.convert(self.meta.options or {}, RunOptions)
        self._token = hashlib.sha256(str(self.folder.resolve()).encode()).hexdigest()[:16]
        # Streams and workspaces live elsewhere while agents run: from what a player has open
        # nothing leads to logs and scores.
        self._away = Path(tempfile.gettempdir(), f"assay-{self._token}")

    def play(
        self, *, concurrency: int, retries: int, max_cost: float | None, progress: Any
    ) -> Scorecard:
        """Run what is missing, then write the seed's files."""
        began_s = time.monotonic()
        with open_sink(self.folder / RESULTS, "resume") as sink:
            end_leftovers(self._token)
            with self._own_folder():
                specs = sink.missing(self._specs())
                with progress(len(specs)) as shown:
                    items = _affordable(specs, shown, max_cost)
                    workers = LocalExecutor(max(1, min(concurrency, len(specs))))
                    hear = shown.on_step if shown.watches else None
                    done = capture_all(items, workers, retries=retries, on_step=hear)
                    with contextlib.closing(done):
                        for spec, captured in done:
                            row = self._grade(spec, self._bring_home(spec, captured))
                            sink.append(encode_row(row, spec.extra))
                            shown.captured(row, spec)
        return self._conclude(time.monotonic() - began_s, complete=shown.n_done == len(specs))

    def _specs(self) -> list[TrialSpec]:
        """Make the trials: each has an id of its own, so that each has a row of its own."""
        benchmark = plugins.benchmark(self._benchmark())
        k = self._options.k
        rows, numbers = [], {}
        for prompt, extra in benchmark.prompts():
            for number in range(1, k + 1):
                one = prompt.id if k == 1 else f"{prompt.id}.trial-{number}"
                metadata = {**prompt.metadata, "trial": number}
                rows.append((msgspec.structs.replace(prompt, id=one, metadata=metadata), extra))
                numbers[one] = number
        specs = plan(rows, folder_names(numbers), self._setting())
        return [msgspec.structs.replace(s, number=numbers[s.prompt.id]) for s in specs]

    def _setting(self) -> Setting:
        options = self._options
        return Setting(
            agent=msgspec.convert(self.meta.agent, PluginRef),
            benchmark=self._benchmark(),
            limits=Limits(
                turn_s=options.timeout_ms / 1000,
                trial_s=options.trial_ms / 1000 if options.trial_ms else None,
                stall_s=options.stall_s,
            ),
            surroundings=Surroundings(
                cwd=str(self._away),
                workspace_dir=str(self._away / WORK),
                isolate=options.isolate,
                env_names=options.env_names,
                raw_dir=str(self._away / RAW),
                raw_prefix=RAW,
            ),
            run_token=self._token,
        )

    def _benchmark(self) -> PluginRef:
        logs = {"logs_dir": str((self.folder / LOGS).resolve()), "logs_prefix": f"{LOGS}/"}
        return PluginRef(name="arc", options={**(self.meta.benchmark or {}), **logs})

    @contextlib.contextmanager
    def _own_folder(self) -> Iterator[None]:
        """Make the folder that agents run in, ours alone; one of a killed run is thrown away."""
        shutil.rmtree(self._away, ignore_errors=True)
        try:
            self._away.mkdir(mode=0o700)
        except OSError as error:
            msg = f"cannot make {self._away}: {error.strerror}"
            raise OutputError(msg, hint="remove it, or set TMPDIR") from error
        try:
            yield
        finally:
            shutil.rmtree(self._away, ignore_errors=True)

    def _bring_home(self, spec: TrialSpec, captured: Capture) -> Capture:
        """Move what a finished trial left into the run's folder."""
        for name in (RAW, WORK):
            for source in (self._away / name).glob(f"{_plain(spec.folder)}*"):
                if source.name in (spec.folder, *_retry_names(spec.folder)):
                    target = self.folder / name / source.name
                    target.parent.mkdir(parents=True, exist_ok=True)
                    shutil.rmtree(target, ignore_errors=True)
                    shutil.move(source, target)
        workspace = self.folder / WORK / spec.folder
        if workspace.is_dir() and not any(workspace.iterdir()):
            workspace.rmdir()
        metadata = {**captured.metadata, "workspaceDir": str(workspace)}
        if not workspace.is_dir():
            metadata.pop("workspaceDir")
        return msgspec.structs.replace(captured, metadata=metadata)

    def _grade(self, spec: TrialSpec, captured: Capture) -> Capture:
        """Grade by the game's log, also an agent that crashed or ran out of time: it has played."""
        failure = captured.failure
        if failure and not failure.cause.measures_agent:
            return captured
        graders = plugins.benchmark(self._benchmark()).graders()
        free = msgspec.structs.replace(captured, failure=UNSET)
        return msgspec.structs.replace(grade_capture(spec, free, graders), failure=failure)

    def _conclude(self, seconds: float, *, complete: bool) -> Scorecard:
        meta = self.meta
        played, lost = derive_played(self.folder, meta)
        card = write_scores(self.folder, meta.run_id, played)
        meta.duration_seconds = round(meta.duration_seconds + seconds, 3)
        meta.games_played = len(card.games)
        meta.not_measured = lost
        meta.cost_usd = card.cost_usd
        meta.status = "completed" if complete else "running"
        write_json(self.folder / META, meta)
        return card


def say_result(run: ArcRun, card: Scorecard) -> None:
    """Tell a person how the run went, one line for each game as the seed has it."""
    for game in card.games:
        for trial in game.trials:
            score = "-" if trial.score_percent is None else f"{trial.score_percent:.1f}"
            click.echo(
                f"Game: {game.id} | State: {trial.state} | Levels: {trial.levels_completed}/"
                f"{trial.total_levels} | Steps: {trial.steps} | "
                f"Resets: {trial.resets} | Score: {score} | Stopped: {trial.stop_reason}"
            )
    for trial_id, why in run.meta.not_measured.items():
        click.echo(f"Game: {trial_id} | not measured: {why}")
    percent = "-" if card.percent is None else f"{card.percent:.2f}"
    cost = f", ${card.cost_usd:.4f}" if card.cost_usd else ""
    click.echo(
        f"{run.meta.harness}: {percent} / 100 ({card.scorer}), "
        f"{card.total_levels_completed}/{card.total_levels} levels, "
        f"{card.total_actions} actions{cost}"
    )
    click.echo(f"Run {run.meta.run_id} -> {os.path.relpath(run.folder)}")


def _affordable(
    specs: list[TrialSpec], shown: Progress, max_cost: float | None
) -> Iterator[TrialSpec]:
    for spec in specs:
        if max_cost is not None and shown.cost_usd >= max_cost:
            return
        yield spec


def _plain(name: str) -> str:
    """Keep glob from reading signs in a name."""
    from glob import escape

    return escape(name)


def _retry_names(name: str) -> Iterator[str]:
    return (f"{name}.retry-{number}" for number in range(1, 100))
