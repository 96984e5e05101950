"""assay arc run: let agents play games; scores come from the games' logs."""

import os
import shlex
import uuid
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click
import msgspec
from click.core import ParameterSource

from assay import plugins
from assay.cli.help import examples
from assay.cli.options import (
    AgentOptions,
    agent_ref,
    confinement_options,
    executor_options,
    executor_ref,
    tape_options,
    tape_use,
    with_options,
)
from assay.cli.parameters import (
    Decorator,
    SandboxCommand,
    concurrency_option,
    env_option,
    help_option,
    isolate_option,
    longest_wait_option,
    model_option,
    progress_option,
    rate_option,
    retries_option,
    stall_option,
)
from assay.cli.progress import Progress
from assay.errors import Interrupted
from assay.pipeline.stages import local_machine
from assay.records.spec import PluginRef, TrialSpec
from assay.records.tape import Fault
from assay.records.text import counted_noun
from assay.records.trial import Trial
from assay_arc import GameProblem, StoreProblem
from assay_arc.benchmark import run_tools
from assay_arc.cards import RESULTS, check_sealed, seal_run
from assay_arc.catalog import GameInfo, choose_from, choose_games, list_games
from assay_arc.commands.shared import Place, need_toolkit, open_place, place_options
from assay_arc.log import DisplayOptions
from assay_arc.online import (
    BASE_URL,
    KEY_NAME,
    OnlineRun,
    fetch_games,
    finish_card,
    start_card,
)
from assay_arc.report import report_page, tampering_words, unmeasured_words
from assay_arc.run import DEFAULT_TIMEOUT_MS, ArcRun, PlannedOptions
from assay_arc.store import (
    RECORDED,
    SHORT,
    HarnessConfig,
    RunMeta,
    Scorecard,
    Store,
    StoredRun,
    config_hash,
    write_bytes,
)
from assay_arc.world import NOT_OFFERED

ablation_options: list[Decorator] = [
    click.option(
        "--image/--no-image",
        default=True,
        help="Let the agent see the game as an image. Default: --image.",
    ),
    click.option(
        "--grid/--no-grid",
        default=True,
        help="Let the agent see the game as rows of digits. Default: --grid.",
    ),
    click.option(
        "--diff/--no-diff",
        default=True,
        help="Answer an action with what it changed, not with the whole picture. Default: --diff.",
    ),
    click.option(
        "--memory-file/--no-memory-file",
        default=False,
        help="Ask the agent to keep notes in NOTES.md in its folder. Default: --no-memory-file.",
    ),
    click.option(
        "--prompt-file",
        type=click.Path(path_type=Path, exists=True, dir_okay=False),
        metavar="FILE",
        help="Tell the agent the text of this file, after the task. Default: the task alone.",
    ),
]


online_options: list[Decorator] = [
    click.option(
        "--online",
        is_flag=True,
        help="Play on the official server, under an official scorecard. Default: offline.",
    ),
    click.option(
        "--api-key-env",
        metavar="NAME",
        help=f"With --online, the environment variable that holds your key. Default: {KEY_NAME}.",
    ),
    click.option(
        "--base-url",
        metavar="URL",
        help=f"With --online, the address of the server. Default: {BASE_URL}.",
    ),
]


class RunOptions(msgspec.Struct, frozen=True, kw_only=True):
    games: Sequence[str]
    env_dir: Path | None
    root: Path
    debug: bool
    seed: int | None
    max_steps: int | None
    max_resets: int | None
    k: int
    concurrency: int
    mcp: bool
    image: bool
    grid: bool
    diff: bool
    memory_file: bool
    prompt_file: Path | None
    online: bool
    api_key_env: str | None
    base_url: str | None
    model: str | None
    agent_args: Sequence[str]
    timeout: float | None
    stall: float | None
    isolate: bool
    sandbox: str | None
    container: str | None
    memory: int | None
    cpus: float | None
    env_names: Sequence[str]
    retries: int | None
    max_cost: float | None
    rate: float | None
    longest_wait: float
    record: Path | None
    replay: Path | None
    record_misses: bool
    pace: float
    faults: Sequence[Fault]
    executor: str
    address: str | None
    resume: str | None
    progress: bool
    quiet: bool


@click.command(
    cls=SandboxCommand,
    short_help="Let agents play games, and keep logs and scores.",
    epilog=examples(
        "assay arc run random --games ky01 --max-steps 50",
        "assay arc run random search --games ky01,mx01 --max-steps 40 -j 2",
        "assay arc run --resume latest",
    ),
)
@click.argument("agents", nargs=-1)
@click.option(
    "--games",
    multiple=True,
    metavar="LIST",
    help="Games to play: ids or tags, separated by commas. May be repeated. Default: all.",
)
@with_options(place_options)
@click.option("--seed", type=int, metavar="N", help="Seed for games that use one. Default: 0.")
@click.option(
    "--max-steps",
    type=click.IntRange(min=0),
    metavar="N",
    help="Allow at most N actions in a game; 0 means no limit. Default: 500.",
)
@click.option(
    "--max-resets",
    type=click.IntRange(min=0),
    metavar="N",
    help="Allow at most N resets in a game. Default: 10.",
)
@click.option(
    "-k",
    "--k",
    "k",
    type=click.IntRange(min=1),
    default=1,
    metavar="N",
    help="Play each game N times. Default: 1.",
)
@concurrency_option("Play up to N games at once. Default: 1, with --resume that of the run.")
@click.option(
    "--mcp/--no-mcp",
    default=True,
    help="Offer the game as an MCP server as well as a command. Default: --mcp.",
)
@with_options(ablation_options)
@with_options(online_options)
@model_option
@click.option(
    "--agent-arg",
    "agent_args",
    multiple=True,
    metavar="ARG",
    help="Pass this extra argument to the agents. May be repeated.",
)
@click.option(
    "-t",
    "--timeout",
    type=click.FloatRange(min=0, min_open=True),
    metavar="MS",
    help="Time limit for a game, in milliseconds. Default: 1800000 (30 minutes).",
)
@stall_option
@isolate_option
@with_options(confinement_options)
@env_option
@retries_option
@click.option(
    "--max-cost",
    type=click.FloatRange(min=0),
    metavar="USD",
    help="Start no more games once this many US dollars are spent or reserved for running games. "
    "Each reserves as much as the most expensive game so far has cost, or an even share of the "
    "limit until one has ended. Default: no limit.",
)
@rate_option
@longest_wait_option
@with_options(tape_options)
@with_options(executor_options)
@click.option(
    "--resume",
    metavar="RUN",
    help="Continue this unfinished run; `latest` means the most recent one.",
)
@progress_option
@click.option("-q", "--quiet", is_flag=True, help="Print nothing but errors and the result.")
@help_option
def command(agents: Sequence[str], **values: Any) -> None:
    """Let each of AGENTS play: a schema file, an adapter's name, or the players random and search.

    Every trial is a row in results.jsonl, as `assay capture` writes it. The process of the game
    writes an event log, and scores are computed from that log alone.
    """
    options = RunOptions(**values)
    executor_ref(options.executor, options.address)  # refuses an address alone
    if bool(agents) == bool(options.resume):
        msg = "Give either agents, as in: assay arc run random --games ky01, or --resume RUN."
        raise click.UsageError(msg)
    if options.resume:
        _refuse_changes()
        need_toolkit()
        run = unfinished(Store(options.root.absolute()), options.resume)
        check_sealed(run)
        _end(_play(run, _as_planned(options, run)))
        return
    _check_ablation(options, agents)
    _check_online(options)
    need_toolkit()
    place = open_place(options.root, options.env_dir)
    online = None
    if options.online:
        online = fetch_games(
            options.base_url or BASE_URL,
            options.api_key_env or KEY_NAME,
            list_games(place.games).games,
            local_machine(),
        )
        games = choose_from(online.infos(), options.games, place.games)
    else:
        games = choose_games(options.games, place.games)
    refs = [
        agent_ref(AgentOptions(schema=name, model=options.model, agent_args=options.agent_args))
        for name in agents
    ]
    runs = [_play(new_run(place, ref, games, options, online), options) for ref in refs]
    if len(runs) > 1:
        ids = " ".join(run.meta.run_id[:SHORT] for run in runs)
        click.echo(f"\nCompare them with: assay arc compare {ids}{place.store.option}")
    _end(*runs)


CHANGEABLE = {"resume", "root", "concurrency", "retries", "max_cost", "rate"}
CHANGEABLE |= {"progress", "quiet", "debug", "executor", "address"}
"""What may be given with --resume; the run has kept everything else."""


def _refuse_changes() -> None:
    """Refuse options that a resumed run would ignore."""
    context = click.get_current_context()
    given = [
        parameter.secondary_opts[-1]
        if parameter.secondary_opts and not context.params.get(parameter.name or "")
        else parameter.opts[-1]
        for parameter in context.command.params
        if parameter.name not in CHANGEABLE
        and context.get_parameter_source(parameter.name or "") is ParameterSource.COMMANDLINE
    ]
    if given:
        msg = f"{', '.join(given)} cannot be changed with --resume: the run goes on as planned."
        raise click.UsageError(msg)


def _as_planned(options: RunOptions, run: StoredRun) -> RunOptions:
    """Take from the run what was not given again on the command line."""
    planned = msgspec.convert(run.meta.options or {}, PlannedOptions)
    source = click.get_current_context().get_parameter_source
    kept = {
        name: getattr(planned, name)
        for name in ("concurrency", "retries")
        if source(name) is ParameterSource.DEFAULT
    }
    return msgspec.structs.replace(options, **kept)


def unfinished(store: Store, name: str) -> StoredRun:
    """Find the run to resume."""
    if name != "latest":
        run = store.find(name)
        if run.meta.agent is None:
            msg = f"run {name} was not made by assay arc run"
            raise StoreProblem(msg)
        return run
    open_runs = store.unfinished()
    if not open_runs:
        msg = "There is no unfinished run."
        raise StoreProblem(msg, hint=f"start one with: assay arc run AGENT{store.option}")
    return open_runs[-1]


def _end(*runs: StoredRun) -> None:
    """Exit with 1 if anything of the runs was not measured, and say how much."""
    lost = [(run, words) for run in runs if (words := unmeasured_words(run.meta))]
    for run, words in lost:
        names = ", ".join(run.meta.not_measured)
        click.echo(f"{run.label}: {words}: {names}. The reasons are above.", err=True)
    if lost:
        raise click.exceptions.Exit(1)


def _play(stored: StoredRun, options: RunOptions) -> StoredRun:
    run = ArcRun(stored)
    progress = _GameProgress(stored, options)
    request = run.request(
        jobs=options.concurrency,
        retries=options.retries or 0,
        max_cost=options.max_cost,
        rate_per_s=options.rate,
        longest_wait_s=options.longest_wait,
        executor=executor_ref(options.executor, options.address),
    )
    try:
        run.play(request, progress)
    except (KeyboardInterrupt, Interrupted):
        click.echo(f"Continue with: {stored.resume_command}", err=True)
        raise
    card = run.conclude(complete=progress.tally.n_done == progress.tally.total)
    try:
        finish_card(run.run, local_machine())
    except GameProblem as problem:
        click.echo(f"WARNING: the official scorecard stays open: {problem.message}", err=True)
    print_result(run, card)
    if nothing_measured := progress.nothing_measured():
        click.echo(nothing_measured, err=True)
        raise click.exceptions.Exit(1)
    not_offered = [name for name, why in run.meta.not_measured.items() if NOT_OFFERED in why]
    if not_offered:
        click.echo(
            f"Not measured, because {NOT_OFFERED}: {', '.join(not_offered)}. "
            "See stderr in results.jsonl for what the agent says about it.",
            err=True,
        )
    if run.meta.status != "completed":
        click.echo(f"The run is not finished. Continue with: {stored.resume_command}", err=True)
        raise click.exceptions.Exit(1)
    return stored


class _GameProgress(Progress):
    """Shows how far a run is, in games."""

    def __init__(self, run: StoredRun, options: RunOptions) -> None:
        super().__init__(
            plain=options.progress or options.debug,
            quiet=options.quiet,
            agent=run.meta.harness,
            scoreboard=LevelCount(),
        )
        self._output, self._max_cost = run.folder / RESULTS, options.max_cost

    def begin(self, missing: list[TrialSpec], n_planned: int) -> None:
        super().begin(missing, n_planned)
        self.tally.n_prompts = 0  # each game is a prompt of its own: only trials are counted
        self.tally.budget_usd = self._max_cost
        self.follow(self._output)


def new_run(
    place: Place,
    agent: PluginRef,
    games: list[GameInfo],
    options: RunOptions,
    online: OnlineRun | None = None,
) -> StoredRun:
    """Make the folder of a run and write its run-meta.json, from which it can be resumed."""
    setup = HarnessConfig(
        model=str(agent.options.get("model") or "unknown"),
        mcp_servers=["arc"] if options.mcp else [],
    )
    shows = DisplayOptions(image=options.image, grid=options.grid, diff=options.diff)
    confinement = {
        "sandbox": options.sandbox,
        "container": options.container,
        "memory_bytes": options.memory,
        "cpus": options.cpus,
    }
    benchmark = _benchmark_options(place, games, options)
    tape = tape_use(msgspec.structs.asdict(options))
    run_id = str(uuid.uuid4())
    meta = RunMeta(
        run_id=run_id,
        harness=plugins.adapter(agent).name,
        timestamp=datetime.now(UTC).isoformat(),
        game_set=",".join(options.games) or "all",
        game_ids=benchmark["games"],
        game_sources={info.game_id: info.source_sha256 for info in games},
        game_tags={info.game_id: list(info.tags) for info in games if info.tags},
        games_total=len(games),
        seed=benchmark["seed"],
        max_steps=benchmark["max_steps"],
        max_resets=benchmark["max_resets"],
        config_hash=config_hash(setup, _ablation(options)),
        tools=run_tools(shows, memory_file=options.memory_file),
        harness_config=setup,
        arc_agi_version=need_toolkit(),
        trials=options.k,
        verified=RECORDED,
        agent=msgspec.to_builtins(agent),
        benchmark=benchmark,
        options={
            "k": options.k,
            "timeout_ms": options.timeout or DEFAULT_TIMEOUT_MS,
            "stall_s": options.stall,
            "isolate": options.isolate,
            "env_names": list(options.env_names),
            "concurrency": options.concurrency,
            "retries": options.retries or 0,
            **{name: value for name, value in confinement.items() if value is not None},
            **({"tape": msgspec.to_builtins(tape)} if tape is not None else {}),
        },
    )
    if online is not None:
        start_card(meta, online, local_machine())
    folder = place.store.runs_dir / run_id
    seal_run(folder, meta)
    return StoredRun(folder=folder, meta=meta)


def _ablation(options: RunOptions) -> dict[str, Any]:
    """How the game is shown and what the agent is told, where that is not the default."""
    default = {"image": True, "grid": True, "diff": True, "memory_file": False}
    chosen: dict[str, Any] = {name: getattr(options, name) for name in default}
    given = {name: value for name, value in chosen.items() if value != default[name]}
    if options.prompt_file is not None:
        given["advice"] = read_text(options.prompt_file)
    return given


def read_text(path: Path) -> str:
    """What the agent is told; refused if it is empty, as nothing would be told."""
    try:
        text = path.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        msg = f"{path}: cannot be read: {error}"
        raise StoreProblem(msg) from error
    if not text:
        msg = f"{path}: is empty"
        raise StoreProblem(msg, hint="write into it what the agent should know, or leave it out")
    return text


def _check_ablation(options: RunOptions, agents: Sequence[str]) -> None:
    if not options.image and not options.grid:
        msg = "With --no-image and --no-grid there is nothing left to see."
        raise click.UsageError(msg)
    if not options.grid and "search" in (name.partition(":")[0] for name in agents):
        msg = "The player search reads the grid; leave out --no-grid, or play with another agent."
        raise click.UsageError(msg)


def _check_online(options: RunOptions) -> None:
    """Refuse options that would have no effect."""
    given = {"--api-key-env": options.api_key_env, "--base-url": options.base_url}
    if not options.online and any(value is not None for value in given.values()):
        msg = "--api-key-env and --base-url are for --online."
        raise click.UsageError(msg)
    for name, value in given.items():
        # An empty one must not stand for the default: the key would go to another server.
        if value is not None and not value.strip():
            msg = f"{name} is empty."
            raise click.UsageError(msg)


def _benchmark_options(place: Place, games: list[GameInfo], options: RunOptions) -> dict[str, Any]:
    config = place.config
    steps, resets, seed = options.max_steps, options.max_resets, options.seed
    return {
        "games": [info.game_id for info in games],
        "games_dir": str(place.games.resolve()),
        "seed": config.default_seed if seed is None else seed,
        # 0 steps on the command line means no limit; 0 resets means none.
        "max_steps": config.default_max_steps if steps is None else steps or None,
        "max_resets": config.default_max_resets if resets is None else resets,
        "mcp": options.mcp,
        **_ablation(options),
    }


def print_result(run: ArcRun, card: Scorecard) -> None:
    """Print how the run went, a line for each game as in the reference."""
    for game in card.games:
        for trial in game.trials:
            score = "-" if trial.score_percent is None else f"{trial.score_percent:.1f}"
            click.echo(
                f"Game: {game.id} | State: {trial.state} | Levels: {trial.levels_completed}/"
                f"{trial.total_levels} | Steps: {trial.steps} | "
                f"Resets: {trial.resets} | Score: {score} | "
                f"Stopped: {trial.stop_reason.replace('_', ' ')}"
            )
    for trial_id, why in run.meta.not_measured.items():
        click.echo(f"Game: {trial_id} | not measured: {why}")
    for words in tampering_words(run.meta):
        click.echo(f"Game: {words}")
    percent = "-" if card.percent is None else f"{card.percent:.2f}"
    cost = f", ${card.cost_usd:.4f}" if card.cost_usd else ""
    words = (
        f"{percent} / 100 ({card.scorer}), "
        f"{card.total_levels_completed}/{card.total_levels} levels, "
        f"{counted_noun(card.total_actions, 'action')}{cost}"
    )
    click.echo(f"Run {run.meta.run_id} -> {os.path.relpath(run.folder)}")
    if official := run.meta.official:
        score = "-" if official.score_percent is None else f"{official.score_percent:.2f}"
        click.echo(f"Official scorecard {official.card_id}: {score} / 100, {official.url}")
    if tape := run.run.replayed_from:
        click.echo(f"The models' answers come from {tape}: this checks the harness, not the agent.")
    lost = unmeasured_words(run.meta)
    score = words if card.games else "no score"
    click.echo(f"{run.meta.harness}: {score}{'; ' + lost if lost else ''}")
    if run.meta.status == "completed" and card.games:
        option = run.run.store.option
        page = run.folder / "report.html"
        write_bytes(page, report_page(run.run, card).encode())
        click.echo(f"Next: assay arc report {run.meta.run_id[:SHORT]}{option}")
        click.echo(f"View: assay view {shlex.quote(os.path.relpath(run.folder / RESULTS))}")
        click.echo(f"Why it is stuck: {page.absolute().as_uri()}")


class LevelCount:
    """Counts levels and score of the games that are over, for the progress display."""

    def __init__(self) -> None:
        self._n_done = self._n_levels = self._n_scored = 0
        self._percent = 0.0

    def add(self, row: Trial) -> None:
        outcome = (row.grade.outcome or {}) if row.grade else {}
        self._n_done += outcome.get("levelsCompleted") or 0
        self._n_levels += outcome.get("levels") or 0
        if (percent := outcome.get("scorePercent")) is not None:
            self._n_scored += 1
            self._percent += percent

    def text(self) -> str:
        if not self._n_levels:
            return ""
        score = f", score {self._percent / self._n_scored:.1f} / 100" if self._n_scored else ""
        return f"{self._n_done}/{self._n_levels} levels{score}"
