"""Trials on other machines: the specification travels there, and everything they made comes back.

On a node, a trial runs in a process of its own (run/supervised.py). It works under the same paths
as it would here; its workspace is packed when it has ended and unpacked here, where the graders
look at it, and its raw streams are kept here.
"""

import io
import os
import tarfile
import uuid
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Protocol

import msgspec

from assay import __version__, plugins
from assay.errors import AssayError, InputError, Interrupted
from assay.pipeline.identity import program_version
from assay.pipeline.stages import capture_attempt, read_recording
from assay.plugin import Ask
from assay.records.capture import Capture
from assay.records.files import remove_folder, temporary_folder
from assay.records.raw_streams import kept_streams
from assay.records.spec import TrialSpec
from assay.run.family import end_leftovers
from assay.run.host import LocalHost
from assay.run.process import raise_if_stopping
from assay.run.raw import RawStreams
from assay.run.supervised import call_supervised
from assay.run.trial import check_program, lost_trial
from assay.run.workspace import new_workspace, note_owner

_RUN = "assay.pipeline.remote:run_here"


class Order(msgspec.Struct, frozen=True, kw_only=True):
    """What a node needs to run one attempt at a trial."""

    spec: TrialSpec
    env: dict[str, str]
    """Variables of this machine that the agent is to have; nothing else of our environment."""
    template: bytes | None = None
    """The workspace template, packed."""


class Delivery(msgspec.Struct, frozen=True, kw_only=True):
    """What comes back."""

    captured: Capture
    streams: dict[str, bytes]
    workspace: bytes | None = None
    """The folder that the agent worked in, packed."""


class Cluster(Protocol):
    """Other machines, as executors/ray.py connects them."""

    def call(self, function: Callable[..., Any], *arguments: Any, **limits: Any) -> Any:
        """Call a function somewhere and wait for it."""
        ...

    def share(self, value: Any) -> Any:
        """Put a value where all nodes can read it."""
        ...

    def on_each_node(self, function: Callable[..., Any], *arguments: Any) -> dict[str, Any]:
        """Call a function once on every node."""
        ...


class RemoteTrials:
    """Runs attempts at trials on a cluster; may be called by many threads."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._templates: dict[str, Any] = {}

    def prepare(self, specs: Sequence[TrialSpec], run_token: str) -> None:
        """Refuse what cannot run everywhere; end what a killed run left behind on any node.

        Call it before there are threads, and when the templates are in their places.
        """
        for spec in specs:
            _require_workspace(spec)
            template = spec.surroundings.workspace_template
            if template is not None and template not in self._templates:
                self._templates[template] = self._cluster.share(_packed(Path(template)))
        agents = list({id(spec.agent): spec for spec in specs}.values())
        states = self._cluster.on_each_node(check_node, agents, run_token)
        _require_fit(states)
        _require_alike({"this machine": _expected(agents), **states})

    def attempt(self, spec: TrialSpec) -> Capture:
        """Run one attempt at a trial on some node; a node that dies is the failure of the trial."""
        order = Order(spec=spec, env=_named_variables(spec))
        template = self._templates.get(spec.surroundings.workspace_template or "")
        try:
            delivery: Delivery = self._cluster.call(
                run_order,
                order,
                template,
                check=raise_if_stopping,
                cpus=spec.limits.cpus,
                memory_bytes=spec.limits.memory_bytes,
            )
        except (AssayError, Interrupted):
            raise
        except Exception as error:  # noqa: BLE001 - Ray's errors for dead workers have no common base
            why = f"{type(error).__name__}: {str(error).strip().splitlines()[0]}"
            return read_recording(spec, lost_trial(why))
        return _received(spec, delivery)


def _require_workspace(spec: TrialSpec) -> None:
    if spec.surroundings.workspace_dir is None:
        msg = "on other machines the agent cannot work in your folder"
        hint = "use --workspace-template, --isolate, --sandbox, --container or --workspace-dir"
        raise InputError(msg, hint=hint)


def _named_variables(spec: TrialSpec) -> dict[str, str]:
    """Return our variables that the user or the adapter names: no other ones travel."""
    around = spec.surroundings
    ask = Ask(text="", cwd=around.cwd, home=around.cwd, scratch=around.cwd)
    try:
        passed = plugins.adapter(spec.agent).command(ask).pass_env
    except AssayError:
        passed = ()
    names = {*passed, *around.env_names}
    return {name: os.environ[name] for name in sorted(names) if name in os.environ}


def _received(spec: TrialSpec, delivery: Delivery) -> Capture:
    """Put workspace and raw streams in their places here; return the capture that names them."""
    captured, around = delivery.captured, spec.surroundings
    if delivery.workspace is not None:
        workspace = str(_unpacked(spec, delivery.workspace))
        about = {**captured.metadata, "workspaceDir": workspace}
        captured = msgspec.structs.replace(captured, cwd=workspace, metadata=about)
    if around.raw_dir is None:
        return captured
    with RawStreams(around.raw_dir, spec.run_token if around.pack_raw else None) as raw:
        for name, data in delivery.streams.items():
            raw.write(name, data)
        kept, _, warnings = raw.keep(spec.raw_folder)
    warned = [*(captured.warnings or []), *warnings]
    return msgspec.structs.replace(
        captured, raw=f"{around.raw_prefix}/{kept}", warnings=warned or msgspec.UNSET
    )


def _unpacked(spec: TrialSpec, packed: bytes) -> Path:
    workspace = new_workspace(spec)
    note_owner(workspace, spec)
    workspace.mkdir(parents=True)
    with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
        archive.extractall(workspace, filter="tar")
    return workspace


def _packed(folder: Path) -> bytes:
    """Pack what is in a folder; sockets and devices stay behind."""
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w:gz", compresslevel=1) as archive:
        for entry in sorted(folder.iterdir()):
            archive.add(entry, arcname=entry.name)
    return data.getvalue()


class NodeState(msgspec.Struct, frozen=True, kw_only=True):
    """What a node says of itself before any work."""

    problems: list[str]
    versions: dict[str, str]
    """Of Assay, and of each agent."""


def check_node(specs: Sequence[TrialSpec], run_token: str) -> NodeState:
    """On a node: say what is missing for these agents, and which versions there are."""
    end_leftovers(run_token)
    problems: list[str] = []
    versions = {"assay": __version__}
    for spec in specs:
        name = plugins.adapter(spec.agent).name
        try:
            check_program(spec)
            _check_confinement(spec)
            versions[name] = program_version(spec.agent, spec.surroundings, LocalHost())
        except AssayError as error:
            problems.append(f"{name}: {error.message}")
    return NodeState(problems=problems, versions=versions)


def _check_confinement(spec: TrialSpec) -> None:
    if spec.is_confined:
        from assay.run.confinement import check_confinement  # late, as in run/trial.py

        check_confinement(spec.surroundings, spec.limits)


def _expected(specs: Sequence[TrialSpec]) -> NodeState:
    """Return the versions that the identity of the trials tells of."""
    versions = {"assay": __version__}
    for spec in specs:
        if spec.identity is not None and spec.identity.program:
            versions[plugins.adapter(spec.agent).name] = spec.identity.program
    return NodeState(problems=[], versions=versions)


def _require_fit(states: dict[str, NodeState]) -> None:
    if not states:
        msg = "the cluster has no node that runs tasks"
        raise AssayError(msg, hint="add a node with CPUs: ray start --address HOST:PORT")
    lines = [f"{node}: {what}" for node, state in states.items() for what in state.problems]
    if lines:
        msg = "not every node can run the trials:\n  " + "\n  ".join(lines)
        hint = "install what is missing there, or start those nodes with --num-cpus 0"
        raise AssayError(msg, hint=hint)


def _require_alike(states: dict[str, NodeState]) -> None:
    """Refuse different versions; one that is not known on a machine is no difference."""
    known: dict[str, tuple[str, str]] = {}
    for node, state in states.items():
        for name, version in state.versions.items():
            where, other = known.setdefault(name, (node, version))
            if version != other:
                msg = f"{where} has {name} {other}, but {node} has {version or 'an unknown one'}"
                hint = "their trials would not be comparable; install the same version"
                raise AssayError(msg, hint=hint)


def run_order(order: Order, template: bytes | None) -> Delivery:
    """On a node, in a worker of Ray: run the attempt in a process that dies with this one."""
    token = f"{order.spec.run_token}.{uuid.uuid4().hex[:12]}"
    ours = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
    order = msgspec.structs.replace(order, template=template)
    delivery: Delivery = call_supervised(_RUN, order, token, {**ours, **order.env})
    return delivery


def run_here(order: Order, token: str) -> Delivery:
    """In that process: run the attempt, pack what it made, and remove it here."""
    with temporary_folder("assay-node-") as folder:
        spec = _local(order, token, Path(folder))
        captured = capture_attempt(spec)
        streams = {
            stream.name: stream.read()
            for stream in kept_streams(Path(folder, captured.raw or "raw/none"))
        }
        workspace = None
        if captured.cwd:
            workspace = _packed(Path(captured.cwd))
            remove_folder(captured.cwd, missing_ok=True)
            note_owner(Path(captured.cwd), None)
    original = order.spec
    captured = msgspec.structs.replace(
        captured,
        raw=msgspec.UNSET,
        spec_hash=original.hash,
        identity=original.identity or msgspec.UNSET,
    )
    return Delivery(captured=captured, streams=streams, workspace=workspace)


def _local(order: Order, token: str, folder: Path) -> TrialSpec:
    """Return the specification with this node's own folders for raw streams and template."""
    template = None
    if order.template is not None:
        template = folder / "template"
        template.mkdir()
        with tarfile.open(fileobj=io.BytesIO(order.template)) as archive:
            archive.extractall(template, filter="tar")
    around = msgspec.structs.replace(
        order.spec.surroundings,
        workspace_template=str(template) if template else None,
        raw_dir=str(folder / "raw"),
        raw_prefix="raw",
        cwd=str(folder),
    )
    return msgspec.structs.replace(order.spec, surroundings=around, run_token=token)
