"""Graders on other machines: trials travel there with the graders' files, and verdicts come back.

On a node the graders run in a process of their own (run/supervised.py). Their files and the
workspaces of the trials are put below a folder that stands for the root of the file system; what
graders say about that folder is changed back, so that verdicts are those of this machine.
"""

import os
import time
import uuid
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec

from assay import __version__, plugins
from assay.adapters.model import ModelAdapter
from assay.errors import AssayError, ClusterGone, Interrupted
from assay.pipeline.grading import Ask, ask_graders, grader_versions
from assay.pipeline.identity import program_version
from assay.pipeline.remote import (
    Cluster,
    NodeState,
    named_variables,
    node_env,
    pack_files,
    pack_folder,
    require_nodes,
    unpack,
)
from assay.pipeline.stages import MOST_REFUSALS, AskingHost, asking_spec, freeze
from assay.plugin import Capture, Grader, Host, Trial
from assay.records.capture import Failure
from assay.records.files import temporary_folder
from assay.records.spec import PluginRef, TrialSpec
from assay.records.trial import Verdict
from assay.run.host import LocalHost
from assay.run.process import raise_if_stopping
from assay.run.served import close_served
from assay.run.supervised import call_supervised
from assay.run.trial import check_program
from assay.run.workspace import our_secrets

_ASK = "assay.pipeline.remote_grading:ask_here"
_CHECK = "assay.pipeline.remote_grading:check_here"
_PURPOSE = "asked the graders"
_ROOT = "\0root"
"""Before a path in the options of a grader that is below another root on each node."""


class GraderBundle(msgspec.Struct, frozen=True, kw_only=True):
    """What a node needs to ask graders; the same for all trials."""

    graders: tuple[PluginRef, ...]
    cwd: str
    """The current folder of this machine."""
    files: bytes
    """The graders' files, packed under their absolute paths."""
    env: dict[str, str]
    """Variables of this machine that graders are to have; nothing else of our environment."""


class Question(msgspec.Struct, frozen=True, kw_only=True):
    """Trials, and whom to ask about them."""

    graders: tuple[PluginRef, ...]
    trials: bytes
    """One JSON object a line."""
    workspaces: dict[str, bytes]
    """The folders that agents left, packed, by their paths on this machine."""


class Refusal(msgspec.Struct, frozen=True, kw_only=True):
    """An agent that a grader asked, and how its provider refused for too many requests."""

    agent: PluginRef
    failure: Failure


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """What comes back."""

    verdicts: list[Verdict]
    """On all trials, or up to the first one about which an agent was refused."""
    refusal: Refusal | None = None


class RemoteGraders:
    """Asks graders on a cluster; may be called by many threads."""

    def __init__(self, graders: Iterable[PluginRef], env_names: Sequence[str]) -> None:
        """Read the graders' files. Call it before there are threads."""
        self._graders = tuple({msgspec.json.encode(ref): ref for ref in graders}.values())
        self._asked: list[PluginRef] = []
        """Agents of which we know only from a refusal that graders ask them."""
        freeze(self._graders)  # which finds out what they use
        files = sorted({file for ref in self._graders for file in _files_of(ref)})
        self._files = frozenset(files)
        self._folders = {str(folder) for file in files for folder in Path(file).parents}
        self.bundle = GraderBundle(
            graders=tuple(map(self._with_marked_paths, self._graders)),
            cwd=str(Path.cwd()),
            files=pack_files(files),
            env=_variables(self._graders, env_names),
        )

    def join(self, cluster: Cluster) -> None:
        """Refuse a cluster in which not every node can ask the graders."""
        self._cluster = cluster
        if not cluster.n_slots(None, None):
            msg = "no node of the cluster has a CPU for grading"
            raise AssayError(msg, hint="add a node with CPUs: ray start --address HOST:PORT")
        self._shared = cluster.share(self.bundle)
        require_nodes(cluster, "grade", _expected(self._graders), check_graders, self._shared)

    def asking(self, refs: Sequence[PluginRef]) -> Ask:
        """Return what asks these graders, as ask_graders does."""

        def ask(
            graders: Sequence[Grader], trials: Iterable[Trial], _host: Host
        ) -> Iterator[Verdict]:
            trials = list(trials)
            workspaces, unfit = _packed_workspaces(trials)
            asked = [trial for trial in trials if trial.cwd not in unfit]
            verdicts = iter(self._verdicts(refs, graders, asked, workspaces))
            for trial in trials:
                why = unfit.get(trial.cwd or "")
                yield next(verdicts) if why is None else _broken(graders, why)

        return ask

    def _verdicts(
        self,
        refs: Sequence[PluginRef],
        graders: Sequence[Grader],
        trials: Sequence[Trial],
        workspaces: dict[str, bytes],
    ) -> Iterator[Verdict]:
        # Each question to an agent waits here for its turn: its provider may have refused others.
        n_most = 1 if any(grader.asks for grader in graders) else len(trials)
        n_refused = 0
        while trials:
            some = trials[:n_most]
            question = Question(
                graders=tuple(map(self._with_marked_paths, refs)),
                trials=msgspec.json.Encoder().encode_lines(some),
                workspaces={each.cwd: workspaces[each.cwd] for each in some if each.cwd},
            )
            answer = self._answer(question, graders, len(some))
            n_refused = n_refused + 1 if answer.refusal is not None else 0
            is_final = n_refused in (0, MOST_REFUSALS)
            verdicts = answer.verdicts if is_final else answer.verdicts[:-1]
            yield from verdicts
            trials = trials[len(verdicts) :]

    def _answer(self, question: Question, graders: Sequence[Grader], n_trials: int) -> Answer:
        """Ask about some trials as soon as the providers allow it."""
        # The agents that graders ask, as far as they say so or have been refused.
        agents = [*(grader.asks for grader in graders if grader.asks), *self._asked]
        specs = [asking_spec(agent, "", "/") for agent in agents]
        for spec in specs:
            AskingHost.limiter.wait(spec)
        began_s = time.monotonic()
        answer = self._call(question, graders, n_trials)
        refusal = answer.refusal
        if refusal is not None and all(refusal.agent != spec.agent for spec in specs):
            self._asked.append(refusal.agent)
            specs.append(asking_spec(refusal.agent, "", "/"))
        for spec in specs:
            refused = refusal is not None and refusal.agent == spec.agent
            failure = refusal.failure if refusal is not None and refused else None
            AskingHost.limiter.note(spec, failure, began_s)
        return answer

    def _call(self, question: Question, graders: Sequence[Grader], n_trials: int) -> Answer:
        try:
            answer: bytes = self._cluster.call(
                ask_there, self._shared, question, check=raise_if_stopping
            )
        except (Interrupted, ClusterGone):
            raise
        except Exception as error:  # noqa: BLE001 - what goes wrong there must not end the run
            why = f"worker_lost: {str(error) or type(error).__name__}"
            return Answer(verdicts=[_broken(graders, why)] * n_trials)
        return msgspec.json.decode(answer, type=Answer)

    def _with_marked_paths(self, ref: PluginRef) -> PluginRef:
        """Return a grader with marked paths where it names files that travel."""
        grader, options = plugins.grader(ref), dict(ref.options)
        if isinstance(path := options.get("path"), str):
            path = os.path.realpath(path)
            if path in self._files or path in self._folders:
                options["path"] = f"{_ROOT}{path}"
        for name in grader.file_options:
            # A text may have the name of a folder, but only a file is read.
            if isinstance(text := options.get(name), str) and _absolute(text) in self._files:
                options[name] = f"{_ROOT}{_absolute(text)}"
        if grader.folder is not None:
            options["folder"] = f"{_ROOT}{_absolute(grader.folder)}"
        return msgspec.structs.replace(ref, options=options)


def _absolute(path: str) -> str:
    # The name of a file may be part of a verdict, so that a link keeps its own.
    return os.path.abspath(path)  # noqa: PTH100


def _broken(graders: Sequence[Grader], why: str) -> Verdict:
    return Verdict(broken=dict.fromkeys(grader_versions(graders), why))


def _packed_workspaces(trials: Sequence[Trial]) -> tuple[dict[str, bytes], dict[str, str]]:
    """Pack the workspaces that graders may look at; also say which cannot travel, and why."""
    packed: dict[str, bytes] = {}
    unfit: dict[str, str] = {}
    for folder in {trial.cwd: None for trial in trials if trial.cwd}:
        data, left = pack_folder(Path(folder))
        if left:
            unfit[folder] = f"not all of the workspace can travel to another machine: {left[0]}"
        else:
            packed[folder] = data
    return packed, unfit


def _variables(graders: Iterable[PluginRef], env_names: Iterable[str]) -> dict[str, str]:
    """Return our variables that the user names, or the adapter of an agent that a grader asks."""
    env = {name: os.environ[name] for name in env_names if name in os.environ}
    for ref in graders:
        if (agent := plugins.grader(ref).asks) is not None:
            env |= named_variables(asking_spec(agent, "", str(Path.cwd())))
    return env


def _files_of(ref: PluginRef) -> Iterator[str]:
    """Yield the absolute paths of what a grader reads, as far as that is known."""
    grader = plugins.grader(ref)
    for file in grader.files:
        yield str(file)
    for name in grader.file_options:
        value = ref.options.get(name)
        # A long text is no file name.
        if isinstance(value, str) and len(value) < 1000 and Path(value).is_file():
            yield _absolute(value)


def _expected(graders: Sequence[PluginRef]) -> NodeState:
    """Return the versions that nodes must have; those of agents are theirs alone."""
    versions = [("assay", __version__)]
    for ref in graders:
        grader = plugins.grader(ref)
        versions.append((grader.name, grader.version))
        if grader.asks is not None:
            versions.append((grader.asks.name, ""))
    return NodeState(problems=[], versions=versions)


def check_graders(bundle: GraderBundle) -> NodeState:
    """On a node: say which graders cannot be asked there, and which versions there are."""
    state: NodeState = _supervised(_CHECK, bundle, bundle.env)
    return state


def ask_there(bundle: GraderBundle, question: Question) -> bytes:
    """On a node, in a worker of Ray: ask the graders in a process that dies with this one."""
    answer: bytes = _supervised(_ASK, (bundle, question), bundle.env)
    return answer


def _supervised(function: str, argument: Any, env: dict[str, str] | None = None) -> Any:
    return call_supervised(function, argument, uuid.uuid4().hex, node_env(), _PURPOSE, env)


def check_here(bundle: GraderBundle, _token: str) -> NodeState:
    """In that process: build the graders, and look for what they need."""
    problems: list[str] = []
    versions = [("assay", __version__)]
    with _UnpackedBundle(bundle) as unpacked:
        for ref in bundle.graders:
            try:
                grader = plugins.grader(unpacked.reference(ref))
                freeze([unpacked.reference(ref)])
                versions.append((grader.name, grader.version))
                if grader.asks is not None:
                    versions.append(_agent_version(grader.asks))
            except AssayError as error:
                problems.append(unpacked.back(error.message.encode()).decode())
    return NodeState(problems=problems, versions=versions)


def _agent_version(agent: PluginRef) -> tuple[str, str]:
    if isinstance(plugins.adapter(agent), ModelAdapter):  # there is no program
        return agent.name, ""
    spec = asking_spec(agent, "", str(Path.cwd()))
    check_program(spec)
    return agent.name, program_version(agent, spec.surroundings, LocalHost())


def ask_here(asked: tuple[GraderBundle, Question], _token: str) -> bytes:
    """In that process: ask the graders about all trials."""
    bundle, question = asked
    with _UnpackedBundle(bundle) as unpacked:
        for folder, packed in question.workspaces.items():
            place = Path(unpacked.place(folder))
            place.mkdir(parents=True, exist_ok=True)
            unpack(packed, place)
        graders = [plugins.grader(unpacked.reference(ref)) for ref in question.graders]
        trials = msgspec.json.Decoder(Trial).decode_lines(question.trials)
        host, verdicts = _NodeHost(), []
        for verdict in ask_graders(graders, map(unpacked.trial, trials), host):
            verdicts.append(verdict)
            if host.refusal is not None:
                break
        answer = our_secrets().mask_record(Answer(verdicts=verdicts, refusal=host.refusal))
        return unpacked.back(msgspec.json.encode(answer))


class _NodeHost(AskingHost):
    """A node for graders. Pauses are not for it to make: they hold for the whole cluster."""

    refusal: Refusal | None = None

    def put(self, spec: TrialSpec) -> Capture:
        captured = self.put_once(spec)
        failure = captured.failure or None
        if failure is not None and failure.retry_after_ms is not None:
            self.refusal = Refusal(agent=spec.agent, failure=failure)
        return captured


class _UnpackedBundle:
    """A folder that stands for the root of the other machine, as long as this is entered."""

    def __init__(self, bundle: GraderBundle) -> None:
        self._bundle = bundle
        self._folder = temporary_folder("assay-node-")

    def __enter__(self) -> "_UnpackedBundle":
        self._root = os.path.realpath(self._folder.__enter__())
        unpack(self._bundle.files, Path(self._root))
        here = self.place(self._bundle.cwd)
        Path(here).mkdir(parents=True, exist_ok=True)
        os.chdir(here)
        return self

    def __exit__(self, *error: object) -> None:
        close_served()
        os.chdir("/")
        self._folder.__exit__(None, None, None)

    def place(self, path: str) -> str:
        """Return where a file or folder of the other machine is here."""
        return f"{self._root}{path}"

    def back(self, said: bytes) -> bytes:
        """Name files in a text as the other machine does."""
        return said.replace(self._root.encode(), b"")

    def reference(self, ref: PluginRef) -> PluginRef:
        """Return a grader with the places of its files here."""
        options = {
            name: self.place(value.removeprefix(_ROOT))
            if isinstance(value, str) and value.startswith(_ROOT)
            else value
            for name, value in ref.options.items()
        }
        return msgspec.structs.replace(ref, options=options)

    def trial(self, trial: Trial) -> Trial:
        """Return a trial that names the place of its workspace here."""
        about = trial.row.get("metadata")
        return msgspec.structs.replace(
            trial,
            cwd=self.place(trial.cwd) if trial.cwd else None,
            metadata=self._with_places(trial.metadata, "workspaceDir"),
            row=self._with_places(trial.row, "cwd", "workspaceDir")
            | ({"metadata": self._with_places(about, "workspaceDir")} if about else {}),
        )

    def _with_places(self, record: Any, *names: str) -> Any:
        if not isinstance(record, dict):
            return record
        found = {name: record[name] for name in names if isinstance(record.get(name), str)}
        return {**record, **{name: self.place(path) for name, path in found.items()}}
