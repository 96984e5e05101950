"""Trials on other machines: the specification travels there, and everything they made comes back.

On a node, a trial runs in a process of its own (run/supervised.py). It works under the same paths
as it would here; its workspace is packed when it has ended and unpacked here, where the graders
look at it, and its raw streams are kept here.
"""

import io
import os
import tarfile
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import IO, Any, Protocol

import msgspec

from assay import __version__, plugins, system
from assay.errors import AssayError, ClusterGone, InputError, Interrupted, OutputError
from assay.pipeline.identity import program_version
from assay.pipeline.prompts import check_confinement
from assay.pipeline.stages import capture_attempt, read_recording
from assay.plugin import Ask
from assay.records.capture import Cause, Failure
from assay.records.files import temporary_folder
from assay.records.raw_streams import kept_streams, segment_of
from assay.records.recording import Recording
from assay.records.spec import TrialSpec
from assay.records.tape import TapeUse
from assay.records.trial import Trial
from assay.run.family import end_leftovers
from assay.run.host import LocalHost
from assay.run.process import raise_if_stopping
from assay.run.raw import RawStreams
from assay.run.supervised import ProcessKilled, call_supervised
from assay.run.tapes import open_tapes, take_tape, tape_for
from assay.run.trial import check_program, lost_trial
from assay.run.workspace import claim_workspace, remove_owned

_RUN = "assay.pipeline.remote:run_here"
_MOST_ENTRIES = 100_000
_MOST_BYTES = 1 << 30
"""Most that comes back of a workspace."""
_MOST_FILE_BYTES = 64 * 1024 * 1024
"""Most that travels of the files of a benchmark or of graders."""
_MOST_PATH_BYTES = 2000
"""Of a path in a workspace: folders that agents make one in the other have no limit, but with a
longer folder before it, the path must still be one that the system takes."""
_LATEST_S = 1 << 33
"""The latest time of a file: an agent may set one that no other system can have."""
_STAYED = "left behind on the node: {}"
_MOST_NAMED = 20


class AttemptRequest(msgspec.Struct, frozen=True, kw_only=True):
    """What a node needs to run one attempt at a trial."""

    spec: TrialSpec
    env: dict[str, str]
    """Variables of this machine that the agent is to have; nothing else of our environment."""
    template: bytes | None = None
    """The workspace template, packed."""
    benchmark: tuple[str, bytes] | None = None
    """Where the files of the benchmark are on our machine, and these, packed."""
    tape: bytes | None = None
    """A tape with what ours has of this trial."""


class AttemptResult(msgspec.Struct, frozen=True, kw_only=True):
    """What comes back."""

    captured: bytes
    """The capture as JSON: a record that was pickled would not be encoded as the original is, and
    neither would its hash be the same."""
    streams: dict[str, bytes] = {}
    is_small: bool = True
    """Whether the streams may be packed with those of other trials."""
    workspace: bytes | None = None
    """The folder that the agent worked in, packed."""
    tape: bytes | None = None
    """A tape with what models answered."""


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

    def n_slots(self, cpus: float | None, memory_bytes: int | None) -> int:
        """Return how many calls with these limits the nodes can do at once."""
        ...


class RemoteTrials:
    """Runs attempts at trials on a cluster; may be called by many threads."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._templates: dict[str, Any] = {}
        self._benchmarks: dict[str, Any] = {}

    def prepare(self, specs: Sequence[TrialSpec]) -> None:
        """Refuse what cannot run everywhere; end what a killed run left behind on any node.

        Call it before there are threads, and when the templates are in their places.
        """
        for spec in specs:
            if spec.surroundings.workspace_dir is None:
                msg = "on other machines the agent cannot work in your folder"
                ways = "--workspace-template, --isolate, --sandbox, --container or --workspace-dir"
                raise InputError(msg, hint=f"use {ways}")
            template = spec.surroundings.workspace_template
            if template is not None and template not in self._templates:
                self._templates[template] = self._cluster.share(pack_folder(Path(template))[0])
            path = str(spec.benchmark.options.get("path"))
            files = plugins.benchmark(spec.benchmark).files
            if files and path not in self._benchmarks:
                packed = pack_files(sorted(map(str, files)))
                self._benchmarks[path] = self._cluster.share((os.path.realpath(path), packed))
        for limits in {spec.limits for spec in specs}:
            if not self._cluster.n_slots(limits.cpus, limits.memory_bytes):
                msg = "no node of the cluster has the CPUs and the memory that a trial reserves"
                raise AssayError(msg, hint="lower --cpus and --memory, or add a larger node")
        agents = _by_agent(specs)
        places = {spec.surroundings.workspace_dir or "" for spec in specs}
        tokens = sorted({spec.run_token for spec in specs})
        given = (agents, tokens, sorted(places))
        require_nodes(self._cluster, "run the trials", _expected(agents), check_node, *given)

    def n_slots(self, spec: TrialSpec) -> int:
        """Return how many trials like this one the nodes that are alive can run at once."""
        return self._cluster.n_slots(spec.limits.cpus, spec.limits.memory_bytes)

    def attempt(self, spec: TrialSpec) -> Trial:
        """Run one attempt at a trial on some node; a node that dies is the failure of the trial."""
        request = AttemptRequest(spec=spec, env=named_variables(spec), tape=tape_for(spec))
        template = self._templates.get(spec.surroundings.workspace_template or "")
        benchmark = self._benchmarks.get(spec.benchmark.options.get("path", ""))
        try:
            result: AttemptResult = self._cluster.call(
                run_attempt,
                request,
                template,
                benchmark,
                check=raise_if_stopping,
                cpus=spec.limits.cpus,
                memory_bytes=spec.limits.memory_bytes,
            )
        except (Interrupted, ClusterGone):
            raise
        except Exception as error:  # noqa: BLE001 - what goes wrong there must not end the run
            return read_recording(spec, lost_trial(str(error) or type(error).__name__))
        number = take_tape(spec, result.tape)
        captured = _received(spec, result)
        if number and captured.wire:
            wire = msgspec.structs.replace(captured.wire, lane=number)
            captured = msgspec.structs.replace(captured, wire=wire)
        return captured


def _by_agent(specs: Sequence[TrialSpec]) -> list[TrialSpec]:
    """Return one trial of each agent and kind of confinement."""
    found: dict[bytes, TrialSpec] = {}
    for spec in specs:
        around = spec.surroundings
        key = (spec.agent, around.sandbox, around.container, spec.limits.memory_bytes is None)
        found.setdefault(msgspec.json.encode((key, spec.limits.cpus is None)), spec)
    return list(found.values())


def named_variables(spec: TrialSpec) -> dict[str, str]:
    """Return our variables that the user or the adapter names: no other ones travel."""
    around = spec.surroundings
    ask = Ask(text="", cwd=around.cwd, home=around.cwd, scratch=around.cwd)
    try:
        passed = plugins.adapter(spec.agent).command(ask).pass_env
    except AssayError:
        passed = ()
    names = {*passed, *around.env_names}
    if (user := spec.prompt.simulated_user) is not None and user.asks is not None:
        names |= {*plugins.adapter(user.asks).command(ask).pass_env}
    return {name: os.environ[name] for name in sorted(names) if name in os.environ}


def _received(spec: TrialSpec, result: AttemptResult) -> Trial:
    """Put workspace and raw streams in their places here; return the capture that names them."""
    around, captured = spec.surroundings, msgspec.json.decode(result.captured, type=Trial)
    captured = msgspec.structs.replace(
        captured, spec_hash=spec.hash, identity=spec.identity or msgspec.UNSET
    )
    if result.workspace is not None:
        workspace = str(_unpacked(spec, result.workspace))
        about = {**captured.metadata, "workspaceDir": workspace}
        captured = msgspec.structs.replace(captured, cwd=workspace, metadata=about)
    if around.raw_dir is None:
        return captured
    with RawStreams(around.raw_dir, spec.run_token if result.is_small else None) as raw:
        for name, data in result.streams.items():
            raw.write(name, data)
        kept, _, warnings = raw.keep(spec.raw_folder)
    warned = [*(captured.warnings or []), *warnings]
    return msgspec.structs.replace(
        captured, raw=f"{around.raw_prefix}/{kept}", warnings=warned or msgspec.UNSET
    )


def _unpacked(spec: TrialSpec, packed: bytes) -> Path:
    workspace, _ = claim_workspace(spec)
    try:
        workspace.mkdir(parents=True)
        unpack(packed, workspace)
    except OSError as error:
        msg = f"cannot make the workspace {workspace}: {error}"
        raise OutputError(msg) from error
    return workspace


def unpack(packed: bytes, folder: Path) -> None:
    with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
        archive.extractall(folder, filter=_inside)


def _inside(member: tarfile.TarInfo, folder: str) -> tarfile.TarInfo | None:
    """Let nothing out of the folder: a process that an agent left may exchange a folder for a link
    while it is packed."""
    try:
        return tarfile.tar_filter(member, folder)
    except tarfile.FilterError:
        return None


def pack_folder(folder: Path) -> tuple[bytes, list[str]]:
    """Pack the files, folders and links in a folder; also return what stays behind, and why.

    What an agent leaves must not keep its trial from being measured: a file that nobody may read,
    or one of any size.
    """
    data, left, n_bytes, n_entries = io.BytesIO(), [], 0, 0
    with tarfile.open(fileobj=data, mode="w:gz", compresslevel=1) as archive:
        for path, name in _entries(folder):
            if len(os.fsencode(name)) > _MOST_PATH_BYTES:
                left.append(f"{name[:100]}... (its path is too long)")
                continue
            try:
                about = _entry(archive, path, name)
                if about is None:
                    continue
                n_entries += 1
                if n_entries > _MOST_ENTRIES:
                    left.append(f"{name} and all that follows (more than {_MOST_ENTRIES} files)")
                    break
                if n_bytes + about.size > _MOST_BYTES:
                    left.append(f"{name} ({about.size} bytes: too large)")
                    continue
                with Path(path).open("rb") if about.isreg() else nullcontext() as file:
                    archive.addfile(about, None if file is None else _Whole(file))
                n_bytes += about.size
            except OSError as error:
                left.append(f"{name} ({error.strerror or error})")
    # A name may have bytes that are no text, which no row can have.
    return data.getvalue(), [os.fsencode(what).decode("utf-8", "replace") for what in left]


class _Whole:
    """A file that goes on with zeros where it is cut while it is read: what follows in an archive
    would be lost otherwise."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file

    def read(self, n_bytes: int = -1, /) -> bytes:
        return self._file.read(n_bytes).ljust(n_bytes, b"\0")


def pack_files(files: Sequence[str]) -> bytes:
    """Pack files under their absolute paths; refuse more than a program should be."""
    data, n_bytes = io.BytesIO(), 0
    with tarfile.open(fileobj=data, mode="w:gz", compresslevel=1) as archive:
        for file in files:
            # A link to a file that travels as well stays a link; of others the content travels.
            archive.dereference = os.path.realpath(file) not in files
            about = archive.gettarinfo(file, file.lstrip("/"))
            n_bytes += about.size
            if n_bytes > _MOST_FILE_BYTES:
                msg = f"{file}: more than {_MOST_FILE_BYTES >> 20} MB would have to travel"
                raise InputError(msg, hint="use this machine: leave out --executor ray")
            about.uid = about.gid = 0
            about.uname = about.gname = ""
            with Path(file).open("rb") if about.isreg() else nullcontext() as content:
                archive.addfile(about, content)
    return data.getvalue()


def _entry(archive: tarfile.TarFile, path: str, name: str) -> tarfile.TarInfo | None:
    """Describe a file, folder or link for an archive; nothing else belongs into one."""
    about = archive.gettarinfo(path, name)
    if about is not None and about.islnk():  # a hard link becomes a file of its own
        about.type, about.size, about.linkname = tarfile.REGTYPE, os.lstat(path).st_size, ""
    if about is None or not (about.isreg() or about.isdir() or about.issym()):
        return None
    about.uid = about.gid = 0
    about.uname = about.gname = ""
    about.mtime = min(max(about.mtime, 0), _LATEST_S)
    return about


def _entries(folder: Path) -> Iterator[tuple[str, str]]:
    """Yield path and name of everything below a folder; links are not followed."""
    for path, folders, files in os.walk(folder):
        folders.sort()
        for name in sorted((*folders, *files)):
            whole = f"{path}/{name}"
            yield whole, os.path.relpath(whole, folder)


class NodeState(msgspec.Struct, frozen=True, kw_only=True):
    """What a node says of itself before any work."""

    problems: list[str]
    versions: list[tuple[str, str]] = []
    """Of Assay and of each agent, by their names."""


def check_node(
    specs: Sequence[TrialSpec], run_tokens: Sequence[str], places: Sequence[str]
) -> NodeState:
    """On a node: say what is missing for these agents, and which versions there are.

    What a killed run has left there is ended and removed, also in these places of workspaces.
    """
    for token in run_tokens:
        end_leftovers(token)
        for place in places:
            remove_owned(Path(place), f"{token}.")
    problems: list[str] = []
    versions = [("assay", __version__)]
    for spec in specs:
        name = spec.agent.name
        try:
            name = plugins.adapter(spec.agent).name
            plugins.benchmark(spec.benchmark)
            check_program(spec)
            check_confinement(spec.surroundings, spec.limits)
            versions.append((name, program_version(spec.agent, spec.surroundings, LocalHost())))
        except AssayError as error:
            problems.append(f"{name}: {error.message}")
    return NodeState(problems=problems, versions=versions)


def _expected(specs: Sequence[TrialSpec]) -> NodeState:
    """Return the versions that the identity of the trials tells of."""
    versions = [("assay", __version__)]
    for spec in specs:
        program = spec.identity.program if spec.identity is not None else ""
        versions.append((plugins.adapter(spec.agent).name, program))
    return NodeState(problems=[], versions=versions)


def require_nodes(
    cluster: Cluster, purpose: str, here: NodeState, check: Callable[..., NodeState], *given: Any
) -> None:
    """Ask every node; refuse those that lack something, or have other versions than this machine.

    A version that is not known on a machine is no difference.
    """
    found = cluster.on_each_node(check, *given)
    states = {node: _answered(found[node]) for node in sorted(found)}
    if not states:
        msg = "the cluster has no node that runs tasks"
        raise AssayError(msg, hint="add a node with CPUs: ray start --address HOST:PORT")
    lines = [f"{node}: {what}" for node, state in states.items() for what in state.problems]
    if lines:
        msg = f"not every node can {purpose}:\n  " + "\n  ".join(lines)
        hint = "install what is missing there, or start those nodes with --num-cpus 0"
        raise AssayError(msg, hint=hint)
    known: dict[int, tuple[str, str]] = {}
    for node, state in {"this machine": here, **states}.items():
        for number, (name, version) in enumerate(state.versions):
            where, other = known.setdefault(number, (node, version)) if version else ("", "")
            if version != other:
                msg = f"{where} has {name} {other}, but {node} has {version}"
                hint = "their trials would not be comparable; install the same version"
                raise AssayError(msg, hint=hint)


def _answered(answer: NodeState | Exception) -> NodeState:
    """Return what a node has said, or that it could not."""
    if isinstance(answer, Exception):
        # Ray's own errors end with the last line of a traceback, which says what is missing.
        *more, last = str(answer).strip().splitlines() or [""]
        why = last if more else f"{type(answer).__name__}: {last}"
        return NodeState(problems=[f"Assay cannot run there: {why}"])
    return answer


def run_attempt(
    request: AttemptRequest, template: bytes | None, benchmark: tuple[str, bytes] | None
) -> AttemptResult:
    """On a node, in a worker of Ray: run the attempt in a process that dies with this one."""
    token = f"{request.spec.run_token}.{uuid.uuid4().hex[:12]}"
    request = msgspec.structs.replace(request, template=template, benchmark=benchmark)
    try:
        result: AttemptResult = call_supervised(
            _RUN, request, token, node_env(), variables=request.env
        )
    except ProcessKilled as error:
        # Nobody but the agent has a reason to kill it: that must not count as not measured.
        now_ms = round(time.time() * 1000)
        failure = Failure(cause=Cause.AGENT_CRASH, message=str(error))
        recording = Recording(start_ms=now_ms, end_ms=now_ms, failure=failure)
        return AttemptResult(captured=msgspec.json.encode(read_recording(request.spec, recording)))
    finally:
        remove_owned(Path(request.spec.surroundings.workspace_dir or ""), token)
    return result


def node_env() -> dict[str, str]:
    """Return the environment of the node without what Ray adds to that of its workers."""
    started_with = system.read_proc(f"{os.getppid()}/environ") or b""
    names = {os.fsdecode(entry.partition(b"=")[0]) for entry in started_with.split(b"\0")}
    return {
        name: value
        for name, value in os.environ.items()
        if not name.startswith("RAY_") and (name in names or not started_with)
    }


def run_here(request: AttemptRequest, token: str) -> AttemptResult:
    """In that process: run the attempt, and pack what it made."""
    with temporary_folder("assay-node-") as folder:
        spec = _local(request, token, Path(folder))
        plugins.benchmark(spec.benchmark).prepare_process()
        try:
            with open_tapes([spec.surroundings.tape]):
                captured = capture_attempt(spec)
            workspace, left = pack_folder(Path(captured.cwd)) if captured.cwd else (None, [])
        finally:  # our caller does it too, but may be dead
            remove_owned(Path(spec.surroundings.workspace_dir or ""), token)
        raw = captured.raw or ""
        streams = {one.name: one.read() for one in kept_streams(Path(folder, raw or "raw/none"))}
        use = spec.surroundings.tape
        tape = Path(use.written).read_bytes() if use is not None and use.written else None
        tape = None if tape == request.tape else tape
    warnings = [*(captured.warnings or []), *map(_STAYED.format, left[:_MOST_NAMED])]
    captured = msgspec.structs.replace(
        captured, raw=msgspec.UNSET, warnings=warnings or msgspec.UNSET
    )
    return AttemptResult(
        captured=msgspec.json.encode(captured),
        streams=streams,
        is_small=segment_of(Path(raw).name) is not None,
        workspace=workspace,
        tape=tape,
    )


def _local(request: AttemptRequest, token: str, folder: Path) -> TrialSpec:
    """Return the specification with this node's own folders for raw streams and template."""
    template = None
    if request.template is not None:
        template = folder / "template"
        template.mkdir()
        unpack(request.template, template)
    around = msgspec.structs.replace(
        request.spec.surroundings,
        workspace_template=str(template) if template else None,
        raw_dir=str(folder / "raw"),
        raw_prefix="raw",
        cwd=str(folder),
        tape=_local_tape(request, folder),
    )
    spec = msgspec.structs.replace(request.spec, surroundings=around, run_token=token)
    if request.benchmark is None:
        return spec
    path, packed = request.benchmark
    unpack(packed, folder / "benchmark")
    options = {**spec.benchmark.options, "path": f"{folder}/benchmark{path}"}
    moved = msgspec.structs.replace(spec.benchmark, options=options)
    return msgspec.structs.replace(spec, benchmark=moved)


def _local_tape(request: AttemptRequest, folder: Path) -> TapeUse | None:
    """Return the tapes of the trial in the node's own folder, which come from ours and go there."""
    use = request.spec.surroundings.tape
    if use is None:
        return None
    paths = {"record": use.record, "replay": use.replay}
    found = {
        name: str(folder / "tapes" / name / Path(path).name) for name, path in paths.items() if path
    }
    for path in found.values():
        Path(path).parent.mkdir(parents=True)
    if request.tape is not None:
        Path(found["replay"]).write_bytes(request.tape)
    return msgspec.structs.replace(use, **found)
