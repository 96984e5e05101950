"""Harbor's tasks as a benchmark: a prompt for each task, its files, and its verifier as grader."""

import math
import posixpath
import shutil
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import msgspec

from assay.benchmarks import refuse
from assay.benchmarks.dockerfile import Entry
from assay.benchmarks.harbor_task import (
    ORACLE,
    Task,
    files_at,
    resolved,
    tasks_at,
    why_not,
    write_files,
)
from assay.plugin import (
    Benchmark,
    ConfinedProgram,
    Finished,
    Grade,
    Grader,
    Host,
    InputError,
    Limits,
    Machine,
    PluginError,
    PluginRef,
    Prompt,
    PromptRow,
    Surroundings,
    Trial,
    TrialSpec,
    TurnEnd,
    World,
)
from assay.records.files import read_regular, temporary_folder

_TAIL_CHARS = 1500
_MOST_REWARD_BYTES = 1024 * 1024
_COPY_S = 600.0


@dataclass
class HarborWorld(World):
    """The working folder of a task, where the task expects it."""

    env: dict[str, str]
    mcp_servers: dict[str, dict[str, Any]]
    mounts: dict[str, str]
    hidden: tuple[str, ...]
    seen: dict[str, Any]

    def evidence(self, last: TurnEnd | None) -> dict[str, Any]:
        return self.seen


@dataclass(frozen=True)
class HarborBenchmark(Benchmark):
    """The task folders in a folder, or one task folder."""

    needs_workspace = True
    grades_failed_trials = True
    """As in Harbor: the verifier also judges the work of an agent that ran out of time."""
    path: str
    _workdirs: "_Workdirs" = field(default_factory=lambda: _Workdirs(), init=False, repr=False)

    @cached_property
    def files(self) -> list[Path]:
        """What another machine needs to run the tasks."""
        return files_at(self.path)

    def prompts(self) -> Iterable[PromptRow]:
        """Yield a prompt for each task; its metadata pins what the task was."""
        for task in tasks_at(self.path).values():
            seconds = task.config.agent.timeout_sec
            metadata = {**task.config.metadata, "task": task.name, "taskSha256": task.sha256}
            yield (
                Prompt(
                    id=task.name,
                    input=task.instruction,
                    metadata=_plain(metadata),
                    timeout=seconds * 1000 if seconds else None,
                ),
                {},
            )

    def fit_trials(self, specs: Sequence[TrialSpec]) -> list[TrialSpec]:
        """Give each trial the limits of its task; refuse tasks that cannot be run here."""
        refused: dict[str, str] = {}
        for spec in {spec.prompt.id: spec for spec in specs}.values():
            if reasons := list(dict.fromkeys(why_not(self._task(spec), spec))):
                refused[spec.prompt.id] = " and ".join(reasons)
        self._check_one_image(specs)
        refuse(refused, len({spec.prompt.id for spec in specs}), "tasks", " here")
        return [self._fitted(spec) for spec in specs]

    def _check_one_image(self, specs: Sequence[TrialSpec]) -> None:
        if not any(spec.surroundings.container for spec in specs):
            return
        kinds = {str(sorted(self._task(spec).environment.items())) for spec in specs}
        if len(kinds) > 1:
            msg = "these tasks need different images, and --container names one"
            raise InputError(msg, hint="run them one by one: --filter ID --container IMAGE")

    def _fitted(self, spec: TrialSpec) -> TrialSpec:
        limits, task = spec.limits, self._task(spec)
        memory = task.memory_bytes if limits.memory_bytes is None else limits.memory_bytes
        cpus = task.config.environment.cpus if limits.cpus is None else limits.cpus
        changed: Limits = msgspec.structs.replace(limits, memory_bytes=memory, cpus=cpus)
        return msgspec.structs.replace(spec, limits=changed)

    @contextmanager
    def world(self, spec: TrialSpec, workspace: Path, host: Machine) -> Iterator[HarborWorld]:
        """Put the task's files into the workspace, which the agent finds as its working folder."""
        task, around = self._task(spec), spec.surroundings
        env = resolved(task.config.environment.env)
        if around.container:
            self._workdirs.copy(task, around, workspace, host)
        else:
            write_files(workspace, _below(task.workdir, task.recipe.files))
            env = {**task.recipe.env, **env}
        with temporary_folder("assay-harbor-") as name:
            mounts = {task.workdir: str(workspace), "/logs": f"{name}/logs"}
            for each in ("logs/agent", "logs/artifacts", "logs/verifier"):
                Path(name, each).mkdir(parents=True)
            if spec.agent.name == ORACLE:
                write_files(Path(name, "solution"), task.solution)
                mounts["/solution"] = f"{name}/solution"
                env |= resolved(task.config.solution.env)
            hidden = (str(Path(self.path).resolve()),)  # with the tests of all tasks
            yield HarborWorld(env, _servers(task), mounts, hidden, _seen(around))

    def graders(self) -> Sequence[PluginRef]:
        """Name the grader that runs a task's verifier."""
        return (PluginRef(name="harbor", options={"path": self.path}),)

    def _task(self, spec: TrialSpec) -> Task:
        return _same_task(self.path, spec.prompt.metadata)


class _Workdirs:
    """The working folders of images, copied out of them once."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._folders = ExitStack()
        self._copies: dict[tuple[str, str], Path] = {}

    def copy(self, task: Task, around: Surroundings, workspace: Path, host: Machine) -> None:
        """Copy what the image has in the working folder into a workspace."""
        key = around.container, task.workdir
        with self._lock:
            if key not in self._copies:
                folder = self._folders.enter_context(temporary_folder("assay-harbor-"))
                target = Path(folder, "files")
                target.mkdir()
                inside = msgspec.structs.replace(around, cwd=str(target))
                script = 'test ! -d "$1" || cp -R "$1/." .'
                words = ["sh", "-c", script, "sh", task.workdir]
                done = host.run_confined(
                    ConfinedProgram(argv=words, around=inside, timeout_s=_COPY_S)
                )
                if done.exit_code != 0:
                    msg = f"cannot copy {task.workdir} out of {around.container}: {_tail(done)}"
                    raise PluginError(msg)
                self._copies[key] = target
        shutil.copytree(self._copies[key], workspace, symlinks=True, dirs_exist_ok=True)


def _same_task(path: str, metadata: Mapping[str, Any]) -> Task:
    """Return the task that a trial is of. Raises PluginError when it is not there, or changed."""
    task = tasks_at(path).get(str(metadata.get("task")))
    if task is None:
        msg = f"{path} has no task {metadata.get('task')!r}"
        raise PluginError(msg)
    if metadata.get("taskSha256") != task.sha256:
        msg = f"the task {task.name} in {path} has changed since this run was planned"
        raise PluginError(msg, hint="start a new run with the task as it is now")
    return task


def _plain(metadata: dict[str, Any]) -> dict[str, Any]:
    """Return what task.toml says as JSON has it: dates become texts."""
    plain: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(metadata))
    return plain


def _below(workdir: str, files: Mapping[str, Entry]) -> dict[str, Entry]:
    return {posixpath.relpath(path, workdir): entry for path, entry in files.items()}


def _servers(task: Task) -> dict[str, dict[str, Any]]:
    found = task.config.environment.mcp_servers
    return {each.name: {"command": each.command, "args": each.args, "env": {}} for each in found}


def _seen(around: Surroundings) -> dict[str, Any]:
    place = {"sandbox": around.sandbox, "container": around.container}
    return {"benchmark": "harbor", **{name: value for name, value in place.items() if value}}


@dataclass
class HarborGrader(Grader):
    """Runs a task's tests/test.sh where the agent worked; the score is the reward that it gives."""

    name = "harbor"
    version = "1"  # raise this when a verdict changes
    path: str

    @cached_property
    def files(self) -> list[Path]:
        """What another machine needs to run the verifiers."""
        return files_at(self.path)

    def freeze(self, host: Host) -> None:
        """Read the tasks before the first agent starts."""
        tasks_at(self.path)

    def grade(self, trial: Trial, host: Host) -> Grade:
        """Run the verifier; one that gives no reward judges nothing."""
        evidence = trial.evidence
        if evidence.get("benchmark") != "harbor":
            msg = "this trial is not of a Harbor task"
            raise PluginError(msg, hint="grade only results of --benchmark harbor:PATH")
        task = _same_task(self.path, trial.metadata)
        if trial.cwd is None or not Path(trial.cwd).is_dir():
            msg = f"the workspace is gone: {trial.cwd}"
            raise PluginError(msg)
        around = Surroundings(
            cwd=trial.cwd,
            sandbox=evidence.get("sandbox", ""),
            container=evidence.get("container", ""),
        )
        with temporary_folder("assay-verifier-") as folder:
            done = _verify(task, around, Path(folder), host)
            rewards = _rewards(Path(folder, "logs/verifier"), done)
            values = [rewards["reward"]] if "reward" in rewards else list(rewards.values())
            score = sum(values) / len(values)
            listed = ", ".join(f"{name} {value:g}" for name, value in rewards.items())
            passed = all(value >= 1 for value in values)
            said = "" if passed else f"\n{_tail(done)}"
            return Grade(
                pass_=passed,
                score=min(1.0, max(0.0, score)),
                reasoning=f"{listed}{said}".rstrip(),
                outcome={"type": "harbor", "rewards": rewards, "measures": rewards},
            )


def _verify(task: Task, around: Surroundings, folder: Path, host: Host) -> Finished:
    verifier = task.config.verifier
    if verifier.network_mode == "no-network":
        around = msgspec.structs.replace(around, sandbox="no-network")
    for name in ("logs/agent", "logs/artifacts", "logs/verifier"):
        (folder / name).mkdir(parents=True)
    write_files(folder / "tests", task.tests)
    mounts = {
        task.workdir: around.cwd,
        "/tests": str(folder / "tests"),
        "/logs": str(folder / "logs"),
    }
    env = resolved(task.config.environment.env)
    if not around.container:
        env = {**task.recipe.env, **env}
    env |= resolved(verifier.env)
    script = 'cd "$1" && exec /tests/test.sh'
    words = ["/bin/sh", "-c", script, "sh", task.workdir]
    program = ConfinedProgram(
        argv=words, around=around, mounts=mounts, env=env, timeout_s=verifier.timeout_sec
    )
    done = host.run_confined(program)
    if done.timed_out:
        msg = f"the verifier did not end in {verifier.timeout_sec:g} s"
        raise PluginError(msg)
    return done


def _rewards(folder: Path, done: Finished) -> dict[str, float]:
    """Read reward.json, or else reward.txt. Raises PluginError if there is no number in it."""
    for name in ("reward.json", "reward.txt"):
        try:
            data = read_regular(folder / name, _MOST_REWARD_BYTES)
        except FileNotFoundError:
            continue
        except OSError as error:
            msg = f"the verifier's {name} cannot be read: {error.strerror}"
            raise PluginError(msg) from error
        try:
            found = msgspec.json.decode(data, type=dict[str, float] | float)
        except (msgspec.MsgspecError, UnicodeDecodeError):
            found = _number(data) if name == "reward.txt" else math.nan
        rewards = found if isinstance(found, dict) else {"reward": found}
        if not rewards or not all(map(math.isfinite, rewards.values())):
            msg = f"the verifier's {name} holds no finite number: {data[:80]!r}"
            raise PluginError(msg)
        return rewards
    msg = f"the verifier gave no reward (exit code {done.exit_code}): {_tail(done) or 'no output'}"
    raise PluginError(msg)


def _number(data: bytes) -> float:
    try:
        return float(data.decode())
    except ValueError:
        return math.nan


def _tail(done: Finished) -> str:
    text = (done.stdout.rstrip() + b"\n" + done.stderr.rstrip()).strip().decode("utf-8", "replace")
    return text if len(text) <= _TAIL_CHARS else f"…{text[-_TAIL_CHARS:]}"
