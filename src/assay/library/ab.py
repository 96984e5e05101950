"""Say from Python whether a change helps: an experiment with a control, as `assay ab` runs it."""

import hashlib
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from os import PathLike, fspath
from pathlib import Path
from typing import Any, Literal, Unpack

import msgspec

from assay import functions
from assay.errors import InputError, UsageError
from assay.library.checks import (
    check_agent,
    check_names,
    check_values,
    checked_graders,
    is_path,
)
from assay.library.experiment import REPORT, ConductOptions, Conductor
from assay.library.run import (
    Agent,
    Grader,
    Prompts,
    SharedOptions,
    check_prompt_file,
    read_prompt_rows,
)
from assay.library.wording import OF_EXPERIMENTS, errors_in_python
from assay.library.worker import Progress, SentTrials, compute, note
from assay.pipeline.experiment import (
    TREATMENTS,
    ExperimentRequest,
    check_experiment,
    read_experiment,
    with_treatment,
)
from assay.pipeline.experiment_run import ExperimentProgress
from assay.records.experiment import Arm, Experiment, ReuseMode
from assay.records.files import replaced_file, temporary_folder
from assay.run.background import Send


class AbOptions(SharedOptions, total=False):
    """What an experiment may be told besides what is compared."""

    until: Literal["decided", "k"]
    effect: float
    margin: float
    seed: int
    name: str
    share_home: bool


_OF_ARM = {
    "model": "model", "agent_args": "agent_args", "mcp": "mcp", "max_turns": "max_turns",
    "env": "env", "workspace_template": "template", "share_home": "share_home",
    "isolate": "isolate", "sandbox": "sandbox", "container": "container",
    "cpus": "cpus", "timeout_s": "timeout",
    "trial_timeout_s": "trial_timeout", "stall_s": "stall",
}  # fmt: skip
_OF_EXPERIMENT = {
    "grader_timeout_s": "grader_timeout", "until": "until", "max_cost": "budget",
    "effect": "effect", "margin": "margin", "seed": "seed", "retries": "retries",
    "filters": "filter", "limit": "limit", "name": "name",
}  # fmt: skip
_IN_MS = ("timeout_s", "trial_timeout_s")


class ExperimentVerdict:
    """What an experiment found. str() is its sentence."""

    def __init__(self, folder: Path, data: dict[str, Any]) -> None:
        """Made by assay.ab."""
        self.folder = folder
        """Where the trials of each arm, the verdict and the report are."""
        self.data = data
        """The verdict as `assay ab --json` prints it."""

    @property
    def valid(self) -> bool:
        """Whether the treatment had what it should have, the control had not, and both
        measurements are healthy."""
        return bool(self.data["valid"])

    @property
    def decision(self) -> str:
        """better, worse, same, not-enough-data, unhealthy or invalid; of several arms that of the
        first."""
        return str(next(iter(self.data["verdicts"].values())))

    @property
    def difference(self) -> float | None:
        """The difference of the pass rates, treatment minus control."""
        pairs = self.data["pairs"]
        return pairs[0]["passRate"]["difference"] if pairs else None

    @property
    def interval(self) -> tuple[float, float] | None:
        """Its 95 % confidence interval; of a sequential run the one that holds at every look."""
        pairs = self.data["pairs"]
        if not pairs:
            return None
        decided = self.data["decisions"].get(pairs[0]["runB"], {}).get("interval")
        ends = decided or pairs[0]["passRate"]["interval"]
        return (ends["low"], ends["high"]) if ends else None

    @property
    def sentence(self) -> str:
        """Whether the treatment helps, by how much, and what it took to find out."""
        return "\n".join(self.data["sentences"])

    @property
    def report(self) -> Path:
        """A page with all trials, to be opened in a browser."""
        return self.folder / REPORT

    def __str__(self) -> str:
        return self.sentence

    def __repr__(self) -> str:
        return f"<ExperimentVerdict {self.decision}: {self.sentence}>"


@errors_in_python(OF_EXPERIMENTS)
def ab(  # noqa: PLR0913 - the options of the command
    prompts: Prompts,
    *,
    agent: Agent | None = None,
    treatment: Mapping[str, Any] | None = None,
    graders: Iterable[Grader] = (),
    k: int | None = None,
    jobs: int = 1,
    output: str | PathLike[str] = "experiments",
    fresh: bool = False,
    reuse: ReuseMode = "check",
    confirm: bool = False,
    judge: str | PathLike[str] | None = None,
    progress: Callable[[Progress], object] | None = None,
    **options: Unpack[AbOptions],
) -> ExperimentVerdict:
    """Run an experiment: the agent as it is, and with a treatment; say whether that helps.

    The arms run in random order, each trial in a private workspace. The same call continues a run
    that was broken off, and reuses trials of earlier runs of the same set-up.

    Args:
        prompts: As for assay.run; or an experiment file (.toml), which says all the rest.
        agent: As for assay.run, without a schema as a dict and without acp.
        treatment: What the treatment has and the control has not: {"skill": DIR}, or
            "instructions", "mcp", "model", "agent", "template" or "arg"; a list gives several.
        graders: As for assay.run.
        k: Trials of each prompt in each arm; 5 by default.
        jobs: How many trials run at once.
        output: The folder of all experiments.
        fresh: Whether trials of earlier runs are left alone.
        reuse: What becomes of earlier trials of an arm: "all" count, "none" count, or they count if
            a few of them, run again, agree ("check").
        confirm: Whether all arms are run anew to confirm a promising verdict.
        judge: As for assay.compare.
        progress: As for assay.run; the number of trials is that of the part that runs.
        options: As on the command line: model, agent_args, mcp, max_turns, env, workspace_template,
            isolate, sandbox, container, cpus, timeout_s, trial_timeout_s, stall_s,
            grader_timeout_s, until, max_cost, effect, margin, seed, retries, filters, limit, name,
            keep_workspaces, share_home.

    Raises:
        AssayError: What is wrong, and in `hint` what to do.
    """
    check_names(options, (*_OF_ARM, *_OF_EXPERIMENT, "keep_workspaces"), "an experiment")
    check_values(k=k, jobs=jobs, output=output, fresh=fresh, progress=progress, **options)
    check_values(reuse=reuse, confirm=confirm, judge=judge)
    check_values(treatment=treatment)
    if agent is not None:
        check_agent(agent)
    given = checked_graders(graders)
    called = [agent, *(treatment or {}).values(), *given]
    known = functions.by_key(one for one in called if callable(one))
    experiment, conduct = planned_experiment(
        prompts, agent, treatment, given, k, options,
        root=Path(fspath(output)),
        jobs=jobs,
        fresh=fresh,
        reuse=reuse,
        confirm=confirm,
        judge=None if judge is None else Path(judge),
    )  # fmt: skip
    folder, verdict = compute(partial(conduct_experiment, experiment, conduct), known, progress)
    return ExperimentVerdict(Path(folder), msgspec.json.decode(verdict))


def planned_experiment(  # noqa: PLR0913 - what `ab` is given
    prompts: Prompts,
    agent: Agent | None,
    treatment: Mapping[str, Any] | None,
    graders: list[Grader],
    k: int | None,
    options: Mapping[str, Any] | None = None,
    *,
    root: Path,
    jobs: int = 1,
    **how: Any,
) -> tuple[Experiment, ConductOptions]:
    """Read or make the experiment that `ab` is asked for, and say how it is conducted."""
    options = options or {}
    if isinstance(prompts, str | PathLike) and fspath(prompts).endswith(".toml"):
        if agent is not None or treatment is not None or graders or k is not None or options:
            msg = f"{fspath(prompts)} says what is compared: put agent, treatment and options there"
            raise UsageError(msg)
        file: Path | None = Path(fspath(prompts))
        experiment = read_experiment(Path(fspath(prompts)))
    else:
        file = None
        if agent is None:
            msg = "an experiment needs an agent"
            raise UsageError(msg)
        changes = _treatments(treatment)
        experiment = _experiment(_prompt_file(prompts, root), agent, changes, graders, k, options)
    kept = options.get("keep_workspaces", "")
    asked = ExperimentRequest(
        root=root, jobs=experiment.concurrency or jobs, keep_workspaces=kept, **how
    )
    return experiment, ConductOptions(how=asked, file=file, digest=experiment.digest)


class _Conductor(Conductor):
    def __init__(self, *arguments: Any, send: Send) -> None:
        super().__init__(*arguments)
        self._send = send

    def follow(self, *, is_smoke: bool) -> ExperimentProgress:
        return _ExperimentProgress(self._send)


class _ExperimentProgress(SentTrials, ExperimentProgress):
    pass


def conduct_experiment(
    experiment: Experiment, options: ConductOptions, send: Send
) -> tuple[str, bytes]:
    """Conduct the experiment, in a process of its own."""
    with errors_in_python(OF_EXPERIMENTS), temporary_folder("assay-arms-") as scratch:
        conductor = _Conductor(experiment, options, Path(scratch), send=send)
        for text in conductor.warnings:
            send(note(text))
        conductor.execute()
        return str(conductor.folder), msgspec.json.encode(conductor.written)


def _experiment(
    prompts: str,
    agent: Agent,
    treatments: list[tuple[str, str]],
    graders: list[Grader],
    k: int | None,
    options: Mapping[str, Any],
) -> Experiment:
    options = {name: value for name, value in options.items() if value is not None}
    arm: dict[str, Any] = {key: options[name] for name, key in _OF_ARM.items() if name in options}
    for name in _IN_MS:
        if name in options:
            arm[_OF_ARM[name]] = options[name] * 1000
    for name in ("mcp", "template"):
        if name in arm:
            arm[name] = fspath(arm[name])
    arm |= _agent(agent)
    rest = {key: options[name] for name, key in _OF_EXPERIMENT.items() if name in options}
    rest |= {"prompts": prompts, "k": k, "graders": [_text(grader) for grader in graders]}
    try:
        made = with_treatment(Arm(**_lists(arm)), treatments, _lists(rest))
    except TypeError as error:
        raise InputError(str(error)) from error
    return check_experiment(made, "the experiment")


def _lists(values: dict[str, Any]) -> dict[str, Any]:
    return {key: list(v) if isinstance(v, tuple) else v for key, v in values.items()}


def _agent(agent: Agent) -> dict[str, str]:
    if not isinstance(agent, Mapping):
        return {"agent": _text(agent)}
    if len(agent) != 1 or not {"simple", "shell"}.issuperset(agent):
        msg = f"an experiment has no agent {dict(agent)!r}"
        hint = 'give a name, a file, {"simple": "…"}, {"shell": "…"} or a function'
        raise UsageError(msg, hint=hint)
    return dict(agent)


def _text(value: Any) -> str:
    return functions.as_text(value) if callable(value) else fspath(value)


def _treatments(treatment: Mapping[str, Any] | None) -> list[tuple[str, str]]:
    given = [
        (kind, one)
        for kind, value in (treatment or {}).items()
        for one in (value if isinstance(value, list | tuple) else [value])
    ]
    if not given:
        msg = "there is nothing to compare"
        raise UsageError(msg, hint='give a treatment, as in treatment={"skill": "skills/relnotes"}')
    for kind, one in given:
        if kind not in TREATMENTS:
            msg = f"a treatment is one of {', '.join(TREATMENTS)}, and not {kind!r}"
            raise UsageError(msg)
        if not is_path(one) and not callable(one):
            msg = f"the treatment's {kind!r} is {one!r}; give a text, a path or a list of them"
            raise UsageError(msg)
    return [(kind, _text(one)) for kind, one in given]


def _prompt_file(prompts: Prompts, root: Path) -> str:
    """Return the file of the prompts; those of a list are written, under a name by content."""
    if isinstance(prompts, str | PathLike):
        check_prompt_file(fspath(prompts))
        return fspath(prompts)
    rows = [{**msgspec.to_builtins(prompt), **extra} for prompt, extra in read_prompt_rows(prompts)]
    text = b"".join(msgspec.json.encode(row) + b"\n" for row in rows)
    path = root / f"prompts-{hashlib.sha256(text).hexdigest()[:12]}.jsonl"
    root.mkdir(parents=True, exist_ok=True)
    with replaced_file(path) as file:
        file.write(text)
    return str(path)
