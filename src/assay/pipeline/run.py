"""A run, from what was asked for to its trials: plan(request) and execute(batch).

plan reads and checks everything before the first agent starts, and prints nothing: what a person
should know is in the notes of the batch. execute runs the trials that are missing, keeps their rows
and yields each of them.
"""

import hashlib
import os
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol, Self

import msgspec

from assay import plugins
from assay.errors import InputError, Interrupted, RequestError
from assay.graders.judge import NOBODY
from assay.pipeline.agents import TEXT_AGENTS, agent_ref, text_agent, with_absolute_paths
from assay.pipeline.arms import ArmRows, EarlierTrials, Regrade
from assay.pipeline.identity import identify
from assay.pipeline.imports import prompt_notes
from assay.pipeline.limiter import RateLimiter
from assay.pipeline.material import Material, compose, places_of, read_skill
from assay.pipeline.notes import (
    FORGETTING,
    LANDLOCK_USED,
    ONE_AFTER_ANOTHER,
    Note,
    allocation_notes,
    key_notes,
    own_folder_notes,
    place_notes,
    skipped_notes,
    tape_notes,
    unknown_notes,
)
from assay.pipeline.prompts import (
    Setting,
    check_confinement,
    choose,
    image_of_tasks,
    make_specs,
    read_prompts,
)
from assay.pipeline.resume import Resume, refuse_unknown
from assay.pipeline.row_settings import RowSettings, fitted_to, prompt_folder, split_judge
from assay.pipeline.sink import Sink, Write, answering_models, kept_raw, open_sink
from assay.pipeline.stages import (
    AskingHost,
    CaptureTrial,
    RunTrial,
    capture_outcome,
    freeze,
    local_machine,
    tapes_in_use,
)
from assay.pipeline.steps import (
    Budget,
    BudgetGuard,
    EditCheck,
    ErrorGuard,
    FinishedTrials,
    FirstTrialGate,
    FolderQueue,
    OnTrialStep,
    Outcome,
    RatePacing,
    Retry,
    SameModel,
    Step,
    StopCheck,
    StopRule,
    run_all,
    with_steps,
)
from assay.pipeline.trials import TrialRows
from assay.plugin import PromptRow
from assay.records.capture import AnyStep
from assay.records.experiment import Arm
from assay.records.files import remove_abandoned_folders
from assay.records.journal import RESUMABLE, Kind, Mode
from assay.records.raw_streams import folder_names
from assay.records.spec import (
    HINT,
    KEEP_ALL,
    LONGEST_WAIT_S,
    Limits,
    PluginRef,
    Surroundings,
    TrialSpec,
)
from assay.records.tape import TapeUse
from assay.records.trial import Allocation, Trial
from assay.run.confinement import uses_landlock
from assay.run.family import end_leftovers, no_orphans_left
from assay.run.notes import remove_passed
from assay.run.raw import remove_kept
from assay.run.resources import allow_open_files
from assay.run.tapes import check_tape
from assay.run.treatment import AddedFiles, files_below
from assay.run.trial import check_program
from assay.run.turn import Trace, Until
from assay.run.workspace import AGENT_FILES, frozen_template, leave_workspace, private_root

DEFAULT_TIMEOUT_S = 60.0


class ExecutionOptions(msgspec.Struct, frozen=True, kw_only=True):
    """How trials are run: what a request asks for, and a batch does."""

    raw_rows: bool = False
    """Write the agent's lines as they came, as `assay run` does, and grade nothing."""
    until: Callable[[TrialSpec], Until] | None = None
    """Returns, for an attempt at a trial, what says of its steps whether they settle it."""
    jobs: int = 1
    """How many trials run at once."""
    overlap: bool = False
    """Whether trials of one prompt that work in the same folder may run at once, too."""
    retries: int = 0
    rate_per_s: float | None = None
    """Most trials of one provider and model that are started in a second."""
    longest_wait_s: float = LONGEST_WAIT_S
    """Longest pause of all trials of a provider and model after it refused one (429)."""
    max_cost: float | None = None
    """In US dollars; once they are spent, no other trial is started."""
    executor: PluginRef = PluginRef(name="local")
    """Where the trials run."""


class RunRequest(ExecutionOptions, frozen=True, kw_only=True):
    """All that a run needs to know. Prompts and an agent are enough."""

    prompts: PluginRef | str | Path = PluginRef(name="prompts")
    """A prompt file, or a benchmark; by default stdin."""
    rows: Sequence[PromptRow] | None = None
    """The prompts themselves, if they are known already; prompts then only says where they come
    from, and in which folder the files are that they name."""
    filters: Sequence[str] = ()
    """Run only matching prompts: an id pattern, or metadata or tags as key=pattern."""
    limit: int | None = None
    """Run at most this many prompts."""
    skip_unsupported: bool = False
    """Leave out tasks of a benchmark that cannot be run here, instead of refusing them all."""

    agent: PluginRef
    material: Material | None = None
    """Skills, instructions and a template that each workspace is made from."""
    scratch: Path | None = None
    """A folder that does not exist yet, where the material is put together; without it, none is."""

    graders: Sequence[PluginRef] = ()
    """Besides those of the benchmark and those that prompts bring along."""
    grader_timeout_s: float = 60.0
    k: int | None = None
    """Trials of each prompt, in one row; None is one trial and a row of capture."""
    allocate: Path | None = None
    """A baseline or an earlier run by whose spread k trials on average are given to prompts."""

    timeout_s: float | None = None
    """For each turn; by default what the agent's schema says, or 60 s."""
    trial_timeout_s: float | None = None
    stall_s: float | None = None
    """Longest silence of an agent."""
    memory_bytes: int | None = None
    cpus: float | None = None

    cwd: Path | None = None
    """Where agents work; by default the current folder."""
    workspace_dir: Path | None = None
    """Parent of a folder for each trial."""
    keep_workspaces: str = ""
    """failed, all or none; see Surroundings."""
    workspace_template: Path | None = None
    """Copied into the workspace of each trial."""
    own_home: bool = False
    """Whether each trial has a HOME of its own, with a copy of the user's login."""
    isolate: bool = False
    sandbox: str = ""
    """network or no-network."""
    container: str = ""
    """Image to run the agent in."""
    env_names: Sequence[str] = ()
    """Variables that an isolated agent gets."""
    login: bool = False
    """Whether an isolated agent gets a copy of the user's login."""
    tape: TapeUse | None = None
    """What becomes of what models answer."""
    surroundings: Surroundings | None = None
    """Where and how agents run, in place of the fields above, for who has other folders."""

    output: Path | None = None
    """The file of rows; without it, rows are only yielded."""
    mode: Mode = "new"
    """What to do with rows that are in the output already."""
    if_exists: str = RESUMABLE
    """The hint of the error about an output that must be new and is not."""
    output_folder: Path | None = None
    """A folder that is all the run's own, such as that of an experiment."""
    raw_dir: Path | None = None
    """Where raw streams are kept; by default beside the output."""
    keep_failed: bool = False
    """When resuming, keep rows that do not measure the agent."""
    keep_unsigned: bool = False
    """When resuming, believe rows that Assay did not write as this user, on this machine."""
    rerun: Sequence[str] = ()
    """When resuming, run these again: failed, unmeasured, or ids of prompts."""
    regrade: bool = False
    """When resuming, grade rows again that other graders have judged."""
    can_regrade: bool = True
    """Whether an error may advise to do that."""

    @property
    def kind(self) -> Kind:
        """The command that writes such rows."""
        if self.raw_rows:
            return "run"
        return "capture" if self.k is None else "trials"

    @property
    def benchmark(self) -> PluginRef:
        """Where the prompts come from, as a plugin."""
        if isinstance(self.prompts, PluginRef):
            return self.prompts
        return PluginRef(name="prompts", options={"path": str(self.prompts)})


def arm_request(arm: Arm, agent: PluginRef | None = None, **rest: Any) -> RunRequest:
    """Return what the trials of an arm ask for: `ab` has several arms, other runs have one.

    agent is that of the arm, if it was found already. rest are the fields of the request that an
    arm does not decide: prompts, graders, output and pace.
    """
    if agent is None:
        kind = next((kind for kind in TEXT_AGENTS if getattr(arm, kind)), "")
        agent = agent_ref(
            text_agent(kind, getattr(arm, kind)) if kind else arm.agent or "",
            model=arm.model,
            args=arm.agent_args,
            mcp=Path(arm.mcp) if arm.mcp else None,
            max_turns=arm.max_turns,
            strict=bool(arm.strict),
        )
    template = Path(arm.template) if arm.template else None
    decided: dict[str, Any] = {
        "material": Material(
            template=template,
            skills=tuple(read_skill(Path(skill)) for skill in arm.skills),
            instructions=Path(arm.instructions) if arm.instructions else None,
        ),
        "workspace_template": template,
        "timeout_s": arm.timeout / 1000 if arm.timeout else None,
        "trial_timeout_s": arm.trial_timeout / 1000 if arm.trial_timeout else None,
        "stall_s": arm.stall,
        "memory_bytes": arm.memory_bytes,
        "cpus": arm.cpus,
        "isolate": bool(arm.isolate),
        "sandbox": arm.sandbox or "",
        "container": arm.container or "",
        "env_names": tuple(arm.env),
    }
    return RunRequest(agent=agent, **{**decided, **rest})


class PreparedRun(msgspec.Struct, frozen=True, kw_only=True):
    """A request whose inputs were read and checked; its output may be still open."""

    request: RunRequest
    source: str
    """Where the prompts come from, as it is named to a person."""
    rows: list[PromptRow]
    """The prompts that were chosen."""
    names: dict[str, str]
    """The folder name of each prompt, also of those that were not chosen."""
    graders: tuple[PluginRef, ...]
    """Those of all prompts."""
    row_settings: RowSettings
    template: Path | None
    """The folder that workspaces are made from."""
    forgets: bool
    """Whether prompts have several turns, and the agent knows nothing of earlier ones."""
    notes: tuple[Note, ...] = ()

    @property
    def setting(self) -> Setting:
        return self.row_settings.shared


class PlannedArm(PreparedRun, frozen=True, kw_only=True):
    """The trials of one request, and where they go. A run has one arm, an experiment several."""

    specs: list[TrialSpec]
    resume: Resume

    @property
    def run_token(self) -> str:
        """Names the arm in its trials, and in the marks that its processes inherit."""
        return self.setting.run_token


class Batch(ExecutionOptions, frozen=True, kw_only=True):
    """The trials to run, and how."""

    specs: list[TrialSpec]
    """All that were asked for; those that have a result already are left out later."""
    arms: tuple[PlannedArm, ...] = ()
    notes: tuple[Note, ...] = ()
    """What the person who started the run should know, in this order."""
    graders: Sequence[PluginRef] = ()
    budget: Budget | None = None
    """In place of max_cost, where other batches and questions to agents are paid from it, too."""
    earlier_tokens: Sequence[str] = ()
    """Of runs that may have left agents behind, to be ended."""
    settles: bool = False
    """Whether a prompt gets its row at the end, even if it has fewer trials than planned."""

    @property
    def is_local(self) -> bool:
        return self.executor.name == "local"

    def work(self, trace: Trace | None = None) -> CaptureTrial | RunTrial:
        """Return what is done with each trial."""
        if self.raw_rows:
            needed = bool(self.retries) or self.max_cost is not None
            return RunTrial(trace=trace, needs_failure=needed)
        return CaptureTrial(graders=self.graders, trace=trace, until=self.until)


def plan(request: RunRequest) -> Batch:
    """Read the prompts and check everything that is refused before the first agent starts."""
    return batch_of([place(prepare(request))])


def prepare(request: RunRequest) -> PreparedRun:
    """Read what a request names: prompts, graders, templates, and the identity of its trials."""
    benchmark = request.benchmark
    is_open = not (request.sandbox or request.isolate or request.cwd)
    image = image_of_tasks(benchmark, request.container, is_open=is_open)
    request = msgspec.structs.replace(request, container=image)
    graders = [] if request.raw_rows else [*plugins.benchmark(benchmark).graders()]
    for ref in graders:
        plugins.grader(ref)  # one that cannot be built is refused before anything runs
    graders, judge = split_judge([*graders, *request.graders])
    is_file = benchmark.name == "prompts"
    source = str(benchmark.options.get("path") or "stdin") if is_file else ""
    source = source or f"benchmark {benchmark.name}"
    rows = read_prompts(benchmark) if request.rows is None else list(request.rows)
    notes: list[Note] = []
    if not rows:
        msg = f"{source}: no prompts, so there is nothing to run"
        if is_file and request.rows is None:
            raise InputError(msg, hint=HINT)
        notes.append(Note(msg, True))
    agent = request.agent
    if request.raw_rows and _have_turns(rows) and agent.name in TEXT_AGENTS:
        # As in the seed's `run`, the agent is told nothing of earlier turns.
        agent = msgspec.structs.replace(agent, options={**agent.options, "history": False})
        request = msgspec.structs.replace(request, agent=agent)
    chosen = choose(
        rows,
        request.filters,
        request.limit,
        source,
        say=lambda text: notes.append(Note(text, True)),
    )
    template, templates = _composed(request, chosen)
    row_settings = RowSettings(
        _setting(request, graders, template),
        chosen,
        None if request.raw_rows else graders,
        request.grader_timeout_s,
        templates,
        judge,
    )
    is_open = request.raw_rows or (judge is not None and judge.options.get("agent") == NOBODY)
    return PreparedRun(
        request=request,
        source=source,
        rows=chosen,
        names=folder_names(prompt.id for prompt, _ in rows),
        graders=tuple(graders),
        row_settings=row_settings,
        template=template,
        forgets=_have_turns(chosen) and plugins.adapter(agent).forgets("a session"),
        notes=(
            *notes,
            *(Note(text, True) for text in prompt_notes(chosen, source, is_open=is_open)),
        ),
    )


def place(
    prepared: PreparedRun, output: Path | None = None, folder: Path | None = None
) -> PlannedArm:
    """Plan the trials of a request, which may get its output, and the folder of it, only now."""
    request, row_settings = prepared.request, prepared.row_settings
    if output is not None:
        request = msgspec.structs.replace(request, output=output, output_folder=folder)
        token = _run_token(output)
        around = _surroundings(request, token, prepared.template)
        before = prepared.setting.surroundings
        around = msgspec.structs.replace(
            around,
            snapshot=before.snapshot,
            repository=before.repository,
            hidden_env=before.hidden_env,
        )
        row_settings = row_settings.placed(
            msgspec.structs.replace(prepared.setting, surroundings=around, run_token=token)
        )
    own = row_settings.graders
    refuse_inputs(request.output, *(ref.options.get("path") for ref in own))
    if request.regrade and not prepared.graders and not own:
        msg = "--regrade needs a grader. Use -g GRADER."
        raise RequestError(msg)
    refuse_unknown(request.rerun, [prompt.id for prompt, _ in prepared.rows])
    allocation: Mapping[str, Allocation] = {}
    skipped: dict[str, str] | None = {} if request.skip_unsupported else None
    notes = [*prepared.notes]
    if request.allocate is not None and request.k is not None:
        from assay.compare.baseline import allocate  # late: numpy

        ids = [prompt.id for prompt, _ in prepared.rows]
        allocation = allocate(request.allocate, ids, request.k)
        notes += allocation_notes(allocation, request.allocate)
    shared = row_settings.shared
    specs = make_specs(
        prepared.rows, prepared.names, shared, request.k, row_settings.of, allocation, skipped
    )
    is_told = request.surroundings or request.workspace_dir or prepared.template
    if not is_told and not _is_isolated(request) and _needs_workspace(request):
        notes += own_folder_notes(request.benchmark)
    if request.executor.name == "local" and uses_landlock(shared.surroundings):
        notes.append(LANDLOCK_USED)
    notes += [
        *skipped_notes(skipped or {}, len(prepared.rows)),
        *place_notes(shared.surroundings, row_settings.n_private, len(prepared.rows)),
        *key_notes(specs),
        *tape_notes(request.tape),
    ]
    if request.jobs > 1 and not request.overlap and FolderQueue.is_needed(specs):
        notes.append(ONE_AFTER_ANOTHER)
    if prepared.forgets:
        notes.append(FORGETTING)
    if request.mode == "resume" and request.can_regrade:
        notes += unknown_notes(request.output, shared.identity)
    resume = Resume(
        k=request.k,
        allocation=allocation,
        keep_failed=request.keep_failed,
        keep_unsigned=request.keep_unsigned,
        rerun=request.rerun,
        regrade=request.regrade,
        can_regrade=request.can_regrade,
        graders=prepared.graders,
    )
    return PlannedArm(
        **{
            **msgspec.structs.asdict(prepared),
            "request": request,
            "row_settings": row_settings,
            "notes": tuple(notes),
        },
        specs=specs,
        resume=resume,
    )


def batch_of(arms: Sequence[PlannedArm], specs: list[TrialSpec] | None = None) -> Batch:
    """Put the arms of a run together: they share agents' limits, pace, graders and budget.

    specs has the trials of all arms in the order in which they start.
    """
    first, request = arms[0], arms[0].request
    specs = first.specs if specs is None else specs
    resumed = [arm.run_token for arm in arms if arm.request.mode == "resume"]
    if not resumed:  # before an output is made or emptied
        check_startable(specs, request.jobs, here=request.executor.name == "local")
    if not request.raw_rows:
        freeze([*first.graders, *first.row_settings.graders])  # all arms have the same prompts
    return Batch(
        specs=specs,
        arms=tuple(arms),
        notes=tuple(dict.fromkeys(note for arm in arms for note in arm.notes)),
        graders=first.graders,
        earlier_tokens=resumed,
        **{name: getattr(request, name) for name in ExecutionOptions.__struct_fields__},
    )


def _have_turns(rows: Sequence[PromptRow]) -> bool:
    return any(len(prompt.turns) > 1 or prompt.user for prompt, _ in rows)


def _composed(
    request: RunRequest, rows: Sequence[PromptRow]
) -> tuple[Path | None, dict[str, Path]]:
    """Make the template of all workspaces, and of those that prompts name; return them."""
    material, scratch = request.material, request.scratch
    if material is None or scratch is None:
        return request.workspace_template, {}
    compose(request.agent, material, scratch)
    made: dict[str, Path] = {}
    folder = prompt_folder(request.benchmark)
    for name in dict.fromkeys(prompt.workspace for prompt, _ in rows):
        if name is not None and (folder / name).is_dir():
            made[name] = scratch.with_name(f"{scratch.name}-{len(made)}")
            with_template = msgspec.structs.replace(material, template=folder / name)
            compose(request.agent, with_template, made[name])
    return scratch, made


def _setting(request: RunRequest, graders: Sequence[PluginRef], template: Path | None) -> Setting:
    """Return what all trials of the run share."""
    agent = request.agent
    default_ms = plugins.adapter(agent).timeout_ms
    default_s = default_ms / 1000 if default_ms else DEFAULT_TIMEOUT_S
    limits = Limits(
        turn_s=request.timeout_s or default_s,
        trial_s=request.trial_timeout_s,
        stall_s=request.stall_s,
        memory_bytes=request.memory_bytes,
        cpus=request.cpus,
    )
    token = _run_token(request.output)
    surroundings = _surroundings(request, token, template)
    surroundings = fitted_to(surroundings, graders)
    if request.executor.name == "local":
        check_confinement(surroundings, limits)
    if request.tape is not None:
        check_tape(request.tape)
    return Setting(
        agent=with_absolute_paths(agent, surroundings),
        benchmark=request.benchmark,
        limits=limits,
        surroundings=surroundings,
        run_token=token,
        identity=identify(agent, surroundings, limits, graders, local_machine(), template),
    )


def _surroundings(request: RunRequest, token: str, template: Path | None) -> Surroundings:
    if request.surroundings is not None:
        return request.surroundings
    cwd = Path(request.cwd or Path.cwd()).resolve()
    if not cwd.is_dir():
        msg = f"working folder not found: {cwd}"
        raise InputError(msg, hint="check the folder given with -c")
    output, workspaces, raw = request.output, request.workspace_dir, request.raw_dir
    is_private = template is not None or _is_isolated(request) or _needs_workspace(request)
    root = private_root() if template or (is_private and workspaces is None) else None
    if root and workspaces is None:
        workspaces = root / token
    # Not beside a device or a pipe, such as /dev/stdout. Raw rows hold the lines themselves.
    keeps_raw = output is not None and not request.raw_rows
    if raw is None and keeps_raw and output and (output.is_file() or not output.exists()):
        raw = output.with_suffix(".raw")
    base = output.parent if output is not None else Path.cwd()
    written: list[Path | None] = [request.output_folder]
    if request.output_folder is None and output is not None:
        written = [output, output.with_name(f"{output.name}.partial"), raw]
    return Surroundings(
        cwd=str(cwd),
        workspace_dir=str(workspaces.resolve()) if workspaces else None,
        workspace_template=str(root / f"template-{token}") if root and template else None,
        added=_added(request, template),
        keep_workspaces=request.keep_workspaces,
        replace=request.mode in ("resume", "overwrite"),
        own_home=request.own_home,
        isolate=request.isolate,
        sandbox=request.sandbox,
        container=request.container,
        env_names=tuple(request.env_names),
        login=request.login,
        tape=_shown_from(base, request.tape),
        raw_dir=str(raw.resolve()) if raw else None,
        pack_raw=True,
        raw_prefix=Path(os.path.relpath(raw.resolve(), base.resolve())).as_posix() if raw else "",
        written_paths=tuple(str(path.resolve()) for path in written if path),
    )


def _added(request: RunRequest, template: Path | None) -> AddedFiles:
    """Return the files of the treatment: skills and instructions."""
    material = request.material
    if material is None or template is None or request.scratch is None:
        return ()
    skills, instructions = places_of(request.agent)
    places = [f"{skills}/{skill.name}" for skill in material.skills]
    places += AGENT_FILES if material.is_template_hidden else ()
    return files_below(template, [*places, *([instructions] if material.instructions else [])])


def _is_isolated(request: RunRequest) -> bool:
    # With -c the user has named the folder to work in, isolated or not.
    has_own_home = request.isolate or request.sandbox or request.container
    return bool(has_own_home) and request.cwd is None


def _needs_workspace(request: RunRequest) -> bool:
    return plugins.benchmark(request.benchmark).needs_workspace


def _run_token(output: Path | None) -> str:
    # The same for the same output: --resume finds the agents that a killed run left behind.
    name = str(output.resolve()) if output else f"{os.getpid()}"
    return hashlib.sha256(name.encode()).hexdigest()[:16]


def check_startable(specs: Sequence[TrialSpec], workers: int, *, here: bool = True) -> None:
    """Refuse trials that cannot be run, before the first of them and before any row.

    If they do not run here, the other machines are asked later for the agent's program.
    """
    allow_open_files(min(workers, max(1, len(specs))))
    for spec in _by_agent(specs):
        same = [each for each in specs if each.agent is spec.agent]
        plugins.adapter(spec.agent).check_trials(same)
        if here:
            check_program(spec)


def _by_agent(specs: Sequence[TrialSpec]) -> Iterable[TrialSpec]:
    """Return one trial of each agent: a run has many trials of few."""
    return {id(spec.agent): spec for spec in reversed(specs)}.values()


class Rows(Protocol):
    """Where results go."""

    def missing(self, specs: list[TrialSpec]) -> list[TrialSpec]:
        """Return the trials that have no result there yet."""
        ...

    def add(self, spec: TrialSpec, result: Any) -> None:
        """Save one result, so that a kill cannot lose it."""
        ...

    def settle(self) -> None:
        """Write the rows of prompts that get no more trials for now, with those that they have."""
        return


class BatchProgress:
    """Follows a batch; override what you want to know. By default nothing is shown.

    on_step and waiting are called in the threads of the workers, everything else in the thread
    that executes the batch.
    """

    watches: bool = False
    """Whether on_step is wanted: it costs a little."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """The batch is over, or ended by an error."""

    def opened(self) -> None:
        """The outputs are open, and nothing of an earlier run is alive."""

    def resumed(self, output: Path, n_again: int, n_graded: int, n_regraded: int) -> None:
        """So many rows of an earlier run are run again, graded for once, and graded again."""

    def judged(self, result: Trial) -> None:
        """A trial that finished in an earlier run was put to the graders now."""

    def begin(self, missing: list[TrialSpec], n_planned: int) -> None:
        """These trials, of n_planned, are about to run; __enter__ comes next."""

    def on_step(self, spec: TrialSpec, step: AnyStep | None) -> None:
        """A trial began (no step) or made a step."""

    def waiting(self, seconds: float, why: str) -> None:
        """Trials have to wait before they start."""

    def finished(self, spec: TrialSpec, result: Any) -> None:
        """A trial has ended and its row is saved."""

    def note(self, text: str) -> None:
        """Take a sentence for the end of the run."""


def _shown_from(base: Path, use: TapeUse | None) -> TapeUse | None:
    if use is None or not (path := use.written or use.replay):
        return use
    shown = Path(os.path.relpath(path, base.resolve())).as_posix()
    return msgspec.structs.replace(use, shown=shown)


def execute(
    batch: Batch,
    *,
    progress: BatchProgress | None = None,
    stop: StopRule | None = None,
    rows: AbstractContextManager[Rows] | None = None,
    write: Write | None = None,
    place: AbstractContextManager[object] | None = None,
    trace: Trace | None = None,
) -> Generator[Any, None, None]:
    """Run the trials that have no result yet; keep the row of each and yield it as it finishes.

    rows takes the results in place of the outputs of the batch, write those of a batch without
    one. place is entered once nothing of an earlier run is alive, and left when all trials are
    over. Trials that run when the stop rule ends the batch finish and are kept. Closing the
    generator early ends the agents; what has finished is kept, and nothing is left running.
    """
    progress = progress or BatchProgress()
    work = batch.work(trace)
    tapes = tapes_in_use(spec.surroundings.tape for spec in _by_agent(batch.specs))
    with tapes, rows or open_rows(batch, progress, write) as kept:
        work.prepare()
        for token in batch.earlier_tokens:
            end_leftovers(token)
        with place or _place(batch, progress), no_orphans_left():
            missing = kept.missing(batch.specs)
            if stop is not None:
                missing = stop.begin(missing, kept)
            workers = max(1, min(batch.jobs, len(missing)))
            check_startable(missing, workers, here=batch.is_local)
            progress.begin(missing, len(batch.specs))
            with progress:
                yield from _run_missing(batch, work, missing, kept, progress, stop)
        if stop is not None or batch.settles:
            kept.settle()
    _remove_old_workspaces(batch)


def _run_missing(
    batch: Batch,
    work: CaptureTrial | RunTrial,
    missing: list[TrialSpec],
    kept: Rows,
    progress: BatchProgress,
    stop: StopRule | None,
) -> Generator[Any, None, None]:
    """Put the steps around each trial, and run them in the workers."""
    workers = max(1, min(batch.jobs, len(missing)))
    executor = plugins.executor(
        PluginRef(name=batch.executor.name, options={**batch.executor.options, "workers": workers})
    )
    attempt, n_slots = work.attempt, None
    if (cluster := executor.connect()) is not None:
        from assay.pipeline.remote import RemoteTrials  # late: 10 ms, and few runs need it

        remote = RemoteTrials(cluster)
        remote.prepare(missing)
        attempt, n_slots = partial(_attempt_elsewhere, remote.attempt), remote.n_slots
    limiter = RateLimiter()
    limiter.interval_s = 1 / batch.rate_per_s if batch.rate_per_s else 0.0
    limiter.longest_s = AskingHost.limiter.longest_s = batch.longest_wait_s
    limiter.on_wait = AskingHost.limiter.on_wait = progress.waiting
    finished = FinishedTrials()
    outer: list[Step] = [FolderQueue()] if _shares_folders(batch, missing) else []
    outer.append(BudgetGuard(batch.budget or Budget(batch.max_cost, len(missing))))
    outer += [StopCheck(stop, n_slots)] if stop is not None else []
    if missing and len(batch.arms) == 1 and (request := batch.arms[0].request).mode == "resume":
        outer.append(SameModel(answering_models(request.output) if request.output else set()))
    outer.append(finished)
    inner: list[Step] = [ErrorGuard(work.lost)]
    inner += [EditCheck(missing)] if batch.is_local and not batch.raw_rows else []
    if workers > 1 and any(map(FirstTrialGate.is_needed, _by_agent(missing))):
        inner.append(FirstTrialGate())
    inner += [*work.steps, Retry(batch.retries), RatePacing(limiter)]
    run = with_steps([*outer, *inner], attempt)

    def lost(spec: TrialSpec, why: str) -> tuple[TrialSpec, Outcome]:
        return spec, with_steps(outer, lambda spec, on_step: work.lost(spec, why))(spec, None)

    admitted = _admitted(missing, outer, stop)
    on_step = progress.on_step if progress.watches else None
    try:
        with closing(run_all(admitted, run, lost, executor, on_step)) as done:
            for spec, outcome in done:
                kept.add(spec, outcome.result)
                finished.take(spec)
                _leave_workspace(spec, outcome.result)
                progress.finished(spec, outcome.result)
                yield outcome.result
    except (GeneratorExit, KeyboardInterrupt, Interrupted):
        for spec, result in finished.take_all():  # the caller did not wait for them
            kept.add(spec, result)
        raise
    for step in outer:
        for text in step.notes():
            progress.note(text)


def _admitted(
    missing: list[TrialSpec], steps: Sequence[Step], stop: StopRule | None
) -> Iterable[TrialSpec]:
    """Return the trials as they may start: those that are needed when their turn comes."""
    admitted: Iterable[TrialSpec] = missing if stop is None else filter(stop.needs, missing)
    for step in steps:
        admitted = step.admit(admitted)
    return admitted


def _leave_workspace(spec: TrialSpec, result: Any) -> None:
    """Remove the workspace of a trial, or note how it ended, now that its row is on disk."""
    folder, passed = result.cwd, False
    if isinstance(result, Trial):
        folder, passed = result.folder, result.verdict is True and not result.failure
    if folder and spec.surroundings.workspace_dir is not None:
        leave_workspace(spec, folder, result.raw or None, passed=passed)


def _shares_folders(batch: Batch, missing: list[TrialSpec]) -> bool:
    """Whether trials have to wait for others that work in the same folder."""
    return batch.jobs > 1 and not batch.overlap and FolderQueue.is_needed(missing)


def _attempt_elsewhere(
    elsewhere: Callable[[TrialSpec], Trial], spec: TrialSpec, on_step: OnTrialStep | None
) -> Outcome:
    """Make one attempt at a trial on another machine."""
    if on_step is not None:
        on_step(spec, None)
    return capture_outcome(elsewhere(spec))


@contextmanager
def _place(batch: Batch, progress: BatchProgress) -> Iterator[None]:
    """Where the trials run: templates are frozen, and raw streams of replaced rows removed."""
    progress.opened()
    remove_abandoned_folders()
    with ExitStack() as stack:
        for arm in batch.arms:
            around, output = arm.setting.surroundings, arm.request.output
            if arm.request.mode == "overwrite" and around.raw_dir is not None and output:
                remove_kept(around.raw_dir, kept_raw(output))
            source = str(arm.template) if arm.template else None
            stack.enter_context(frozen_template(source, around.workspace_template or ""))
            stack.enter_context(arm.row_settings.frozen_templates())
        yield


def _remove_old_workspaces(batch: Batch) -> None:
    """Remove the workspaces of earlier runs' trials that passed, where this run makes its own."""
    own = {spec.run_token: spec.surroundings for spec in batch.specs}
    parents = {Path(around.workspace_dir).parent for around in own.values() if around.workspace_dir}
    if parents and not any(around.keep_workspaces == KEEP_ALL for around in own.values()):
        root = private_root()
        if root in parents:
            remove_passed(root, own)


@contextmanager
def open_rows(
    batch: Batch,
    progress: BatchProgress,
    write: Write | None = None,
    earlier: EarlierTrials | None = None,
    regrade: Regrade | None = None,
) -> Iterator[Any]:
    """Open the outputs of all arms; earlier has trials that need not be run, but graded at most."""
    if not batch.arms:
        yield Sink(None, write=write)
        return
    with ExitStack() as stack:
        opened = {arm.run_token: _open_arm(arm, progress, write, stack) for arm in batch.arms}
        if len(opened) == 1 and earlier is None:
            yield next(iter(opened.values()))
        else:
            yield ArmRows(opened, earlier, regrade)


def _open_arm(
    arm: PlannedArm, progress: BatchProgress, write: Write | None, stack: ExitStack
) -> Any:
    request = arm.request
    output, mode = request.output, request.mode
    announce = partial(progress.resumed, output or Path())
    resume = msgspec.structs.replace(arm.resume, announce=announce, graded=progress.judged)
    sink: Sink = stack.enter_context(
        open_sink(output, mode, request.if_exists, kind=request.kind, resume=resume, write=write)
    )
    if request.k is None:
        return sink
    return stack.enter_context(TrialRows(sink, output, mode, resume))


def refuse_inputs(output: Path | None, *given: str | Path | None) -> None:
    """Refuse an output that is what a request reads; a file may stand behind a colon."""
    names = [name for text in given if text for name in (str(text), str(text).partition(":")[2])]
    for name in names if output and os.access(output, os.F_OK) else ():
        if output and name and os.access(name, os.F_OK) and output.samefile(name):
            msg = f"-o is the same file as the input: {output}"
            raise RequestError(msg)
