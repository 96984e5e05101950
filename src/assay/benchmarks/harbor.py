"""Harbor's tasks as a benchmark: a prompt for each task, its files, and its verifier as grader."""

import hashlib
import math
import posixpath
import shutil
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import msgspec

from assay.benchmarks import refuse
from assay.benchmarks.compose import Service
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
    Image,
    InputError,
    KeptContainer,
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
from assay.records.spec import OWN_IMAGE

_TAIL_CHARS = 1500
_MOST_REWARD_BYTES = 1024 * 1024
_COPY_S = 600.0
_OF_THE_IMAGE = ("", "/", "/root", "/tmp", "/usr", "/etc", "/var", "/home", "/opt", "/srv")
"""Working folders that stay in the image, since they hold more than the agent's work."""
_PRINT_REWARD = (
    "cd /logs/verifier && for f in reward.json reward.txt; do "
    f"if test -e $f; then echo $f; head -c {_MOST_REWARD_BYTES} $f; exit; fi; done"
)


@dataclass
class HarborWorld(World):
    """The working folder of a task, where the task expects it."""

    env: dict[str, str]
    mcp_servers: dict[str, dict[str, Any]]
    mounts: dict[str, str]
    hidden: tuple[str, ...]
    seen: dict[str, Any]
    container: KeptContainer | None = None
    verify: Callable[[], dict[str, Any]] | None = None

    def evidence(self, last: TurnEnd | None) -> dict[str, Any]:
        """In the task's own container the verifier is run now: later it is not there any more."""
        if self.verify is None or last is None:
            return self.seen
        return {**self.seen, "verifier": self.verify()}


@dataclass(frozen=True)
class HarborBenchmark(Benchmark):
    """The task folders in a folder, or one task folder."""

    needs_workspace = True
    has_images = True
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
        if not any(spec.surroundings.container not in ("", OWN_IMAGE) for spec in specs):
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
        around = spec.surroundings
        if around.container == OWN_IMAGE and task.needs_no_network:
            around = msgspec.structs.replace(around, sandbox="no-network")
        return msgspec.structs.replace(spec, limits=changed, surroundings=around)

    @contextmanager
    def world(self, spec: TrialSpec, workspace: Path, host: Machine) -> Iterator[HarborWorld]:
        """Put the task's files into the workspace, which the agent finds as its working folder."""
        task, around = self._task(spec), spec.surroundings
        if around.container == OWN_IMAGE:
            with temporary_folder("assay-harbor-") as name:
                yield self._own_container(task, spec, workspace, host, Path(name))
            return
        env = resolved(task.config.environment.env)
        if around.container:
            self._workdirs.copy(task.workdir, around, workspace, host)
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

    def _own_container(
        self, task: Task, spec: TrialSpec, workspace: Path, host: Machine, folder: Path
    ) -> HarborWorld:
        """Let the agent work as in Harbor: in the image of the task, whose files it may change."""
        image, service = own_image(task, host), task.service or Service()
        workdir = task.config.environment.workdir or service.workdir or image.workdir or "/"
        env = {**service.env, **task.config.environment.env}
        kept = KeptContainer(
            image=image.name, workdir=workdir, command=service.command, env=resolved(env)
        )
        mounts = {}
        for name in ("agent", "artifacts"):
            (folder / name).mkdir()
            (folder / name).chmod(0o777)
            mounts[f"/logs/{name}"] = str(folder / name)
        if workdir not in _OF_THE_IMAGE and image.user in ("", "0", "root", "root:root", "0:0"):
            inside = msgspec.structs.replace(spec.surroundings, container=image.name)
            self._workdirs.copy(workdir, inside, workspace, host)
            mounts[workdir] = str(workspace)
        env = {}
        if spec.agent.name == ORACLE:
            write_files(folder / "solution", task.solution)
            mounts["/solution"] = str(folder / "solution")
            env = {"DEBIAN_FRONTEND": "noninteractive", **resolved(task.config.solution.env)}
        seen = {"benchmark": "harbor", "container": image.name}
        hidden = (str(Path(self.path).resolve()),)
        check = partial(verified_in_container, task, host)
        return HarborWorld(env, _servers(task), mounts, hidden, seen, kept, check)

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

    def copy(self, workdir: str, around: Surroundings, workspace: Path, host: Machine) -> None:
        """Copy what the image has in the working folder into a workspace."""
        key = around.container, workdir
        with self._lock:
            if key not in self._copies:
                folder = self._folders.enter_context(temporary_folder("assay-harbor-"))
                target = Path(folder, "files")
                target.mkdir()
                inside = msgspec.structs.replace(around, cwd=str(target))
                script = 'test ! -d "$1" || cp -R "$1/." .'
                words = ["sh", "-c", script, "sh", workdir]
                done = host.run_confined(
                    ConfinedProgram(argv=words, around=inside, timeout_s=_COPY_S)
                )
                if done.exit_code != 0:
                    msg = f"cannot copy {workdir} out of {around.container}: {_tail(done)}"
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
        if "verifier" in evidence:
            return _kept_grade(evidence["verifier"])
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
            return reward_grade(_rewards(Path(folder, "logs/verifier"), done), _tail(done))


def reward_grade(rewards: dict[str, float], said: str) -> Grade:
    values = [rewards["reward"]] if "reward" in rewards else list(rewards.values())
    score = sum(values) / len(values)
    listed = ", ".join(f"{name} {value:g}" for name, value in rewards.items())
    passed = all(value >= 1 for value in values)
    return Grade(
        pass_=passed,
        score=min(1.0, max(0.0, score)),
        reasoning=(listed if passed else f"{listed}\n{said}").rstrip(),
        outcome={"type": "harbor", "rewards": rewards, "measures": rewards},
    )


def _kept_grade(seen: Mapping[str, Any]) -> Grade:
    """Return the grade of a verifier that was run in the agent's container."""
    if "failure" in seen:
        raise PluginError(str(seen["failure"]))
    return reward_grade(seen["rewards"], seen["output"])


def own_image(task: Task, host: Machine) -> Image:
    """Return the image of a task, built now if nobody has built it before."""
    service, dockerfile = task.service or Service(), task.dockerfile_path
    config = task.config.environment
    whole = hashlib.sha256(msgspec.json.encode((task.image, dockerfile, service.arguments)))
    for name, entry in task.environment.items():
        head = f"{name}\0{entry.mode:o}{entry.is_link:d}{len(entry.data)}\0"
        whole.update(head.encode("utf-8", "surrogateescape") + entry.data)
    with temporary_folder("assay-image-") as folder:
        write_files(Path(folder), task.environment)
        context = str(Path(folder, service.context)) if dockerfile else ""
        return host.build_image(
            Image(
                name=task.image,
                folder=context,
                dockerfile=posixpath.relpath(dockerfile, service.context) if dockerfile else "",
                arguments=service.arguments,
                digest=whole.hexdigest(),
                timeout_s=config.build_timeout_sec,
            )
        )


def verified_in_container(task: Task, host: Machine) -> dict[str, Any]:
    """Run the verifier where the agent worked; return its rewards, or why there are none."""
    verifier = task.config.verifier

    def run(script: str, timeout_s: float = 60.0, **more: Any) -> Finished:
        around = Surroundings(cwd="/")
        words = ["/bin/sh", "-c", script]
        return host.run_confined(
            ConfinedProgram(
                argv=words, around=around, timeout_s=timeout_s, is_beside_agent=True, **more
            )
        )

    # What the agent has put there is not what is run, nor what is read as the reward.
    run("rm -rf /tests /logs/verifier; mkdir -p /tests /logs/verifier; chmod 777 /logs/verifier")
    with temporary_folder("assay-verifier-") as folder:
        write_files(Path(folder), task.tests)
        mounts, env = {"/tests": folder}, resolved(verifier.env)
        done = run("exec /tests/test.sh", verifier.timeout_sec, mounts=mounts, env=env)
    try:
        if done.timed_out:
            msg = f"the verifier did not end in {verifier.timeout_sec:g} s"
            raise PluginError(msg)
        said = run(_PRINT_REWARD).stdout
        name, newline, data = said.partition(b"\n")
        if not newline:
            raise PluginError(_no_reward(done))
        rewards = _read_rewards(name.decode("utf-8", "replace"), data)
    except PluginError as error:
        return {"failure": error.message, "exitCode": done.exit_code}
    return {"rewards": rewards, "output": _tail(done), "exitCode": done.exit_code}


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
        return _read_rewards(name, data)
    raise PluginError(_no_reward(done))


def _read_rewards(name: str, data: bytes) -> dict[str, float]:
    try:
        found = msgspec.json.decode(data, type=dict[str, float] | float)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        found = _number(data) if name == "reward.txt" else math.nan
    rewards = found if isinstance(found, dict) else {"reward": found}
    if not rewards or not all(map(math.isfinite, rewards.values())):
        msg = f"the verifier's {name} holds no finite number: {data[:80]!r}"
        raise PluginError(msg)
    return rewards


def _no_reward(done: Finished) -> str:
    said = _tail(done) or "no output"
    return f"the verifier gave no reward (exit code {done.exit_code}): {said}"


def _number(data: bytes) -> float:
    try:
        return float(data.decode())
    except ValueError:
        return math.nan


def _tail(done: Finished) -> str:
    text = (done.stdout.rstrip() + b"\n" + done.stderr.rstrip()).strip().decode("utf-8", "replace")
    return text if len(text) <= _TAIL_CHARS else f"…{text[-_TAIL_CHARS:]}"
