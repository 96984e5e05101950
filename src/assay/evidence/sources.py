"""What a bundle is made from: rows with their raw streams, an experiment, and its graders."""

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec

from assay import plugins
from assay.compare.names import Named, name_runs
from assay.errors import AssayError, InputError
from assay.evidence.results import Verdict
from assay.pipeline.experiment import hash_path, read_experiment
from assay.pipeline.identities import last_run
from assay.plugin import Grader
from assay.records.capture import Identity
from assay.records.experiment import RESOLVED, VERDICT, Arm, Experiment
from assay.records.files import read_kept
from assay.records.raw_streams import Attempt, KeptStream, named_streams, place_inside
from assay.records.rows import UNREADABLE, explain
from assay.records.spec import PluginRef
from assay.records.trial.files import entries_of, number_of

_OF_FILES = ("path",)
_TEXT_AGENTS = ("simple", "shell", "oracle", "nop")


class ResolvedArm(msgspec.Struct):
    setup: Arm
    identity: Identity


class Resolved(msgspec.Struct):
    """resolved.json: what a run of an experiment is made from."""

    experiment: Experiment
    arms: dict[str, ResolvedArm]
    assay: str = ""
    began: str = ""
    inputs: dict[str, str] = {}


class GraderPart(msgspec.Struct, frozen=True, kw_only=True):
    """A grader in the bundle."""

    name: str
    options: dict[str, Any] = {}
    version: str
    files: dict[str, str] = {}
    """Parts of the bundle, and where each stands below the grader's folder."""
    paths: dict[str, str] = {}
    """Options that are files, and which of these each is."""
    not_here: list[str] = []
    """Files that it uses and that are not in the bundle."""


class Sources(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that was named."""

    named: Named
    folder: Path | None = None
    """Of a run of an experiment."""
    resolved: Resolved | None = None
    verdict: Verdict | None = None
    cwd: Path = Path()
    """From where the paths of the experiment are meant."""

    def inputs(self) -> Iterator[tuple[str, str, Path]]:
        """Yield the files and folders that the arms name, each with its hash at that time."""
        for name, digest in self.resolved.inputs.items() if self.resolved else ():
            yield name, digest, self.cwd / name


def find_sources(given: Sequence[str]) -> Sources:
    """Find the rows of an experiment, of the folder of a run, or of files."""
    folders = [Path(one) for one in given if Path(one).is_dir()]
    if len(given) == 1 and Path(given[0]).suffix == ".toml":
        folders = [_folder_of(Path(given[0]))]
    if not folders:
        return Sources(named=_files(given))
    runs = [one / "results.jsonl" for one in folders if (one / "results.jsonl").is_file()]
    if runs and len(runs) == len(given):  # as those of `assay arc run`
        return Sources(named=name_runs([f"{path.parent.name}:{path}" for path in runs]))
    if len(given) > 1:
        msg = f"{folders[0]}: an experiment is packed alone"
        raise InputError(msg, hint="give the folder of one experiment, or files of rows")
    return _experiment(last_run(folders[0]))


def _folder_of(file: Path) -> Path:
    folder = Path("experiments") / read_experiment(file).name
    if folder.is_dir():
        return folder
    msg = f"{file}: no run of this experiment is in experiments/"
    raise InputError(msg, hint="give the folder that `assay ab` has printed")


def _files(given: Sequence[str]) -> Named:
    named = name_runs(given)
    for _, path in named:
        if not path.is_file():
            msg = f"{path}: no such file"
            raise InputError(msg, hint="give result files, or the folder of an experiment")
    return named


def _experiment(folder: Path) -> Sources:
    resolved = _read(folder / RESOLVED, Resolved)
    if not (folder / VERDICT).is_file():
        msg = f"{folder}: this run of the experiment has no verdict yet"
        raise InputError(msg, hint="run the same `assay ab` again: it goes on where it stopped")
    verdict = _read(folder / VERDICT, Verdict)
    names = [resolved.experiment.control, *resolved.experiment.treatments]
    named = [(name, folder / f"{name}.jsonl") for name in names]
    if missing := [path for _, path in named if not path.is_file()]:
        msg = f"{missing[0]}: no rows: no trial of this arm was run"
        raise InputError(msg)
    about = msgspec.json.decode(read_kept(folder / VERDICT))
    cwd = folder / str(about.get("folder", "."))
    return Sources(named=named, folder=folder, resolved=resolved, verdict=verdict, cwd=cwd)


def _read(path: Path, kind: Any) -> Any:
    try:
        return msgspec.json.decode(read_kept(path), type=kind)
    except UNREADABLE as error:
        msg = f"{path}: {explain(error, kind)}"
        raise InputError(msg) from error


def streams_of(row: dict[str, Any], base: Path) -> Iterator[tuple[int, list[KeptStream]]]:
    """Yield number and raw streams of each trial of a row; the log of a game is one of them."""
    for entry in entries_of(row):
        number, raw = number_of(entry), entry.get("raw")
        attempt = Attempt(str(row.get("id")), number, len(entry.get("retried") or ()))
        found = named_streams(base, raw, attempt)
        if not found and isinstance(raw, str) and raw.startswith("../"):
            # A trial that an earlier run of the same experiments made.
            root = base.resolve().parents[1]
            found = named_streams(root, str(base.resolve().relative_to(root) / raw), attempt)
        log = world_log(entry)
        place = place_inside(base, log) if log else None
        if place is not None and place.is_file() and place.suffix == ".jsonl":
            found = [*found, KeptStream(f"log/{log}", str(place), 0, place.stat().st_size)]
        yield number, found


def world_log(entry: dict[str, Any]) -> str:
    """Return the log of a trial's world, as its evidence names it; empty if it has none."""
    metadata = entry.get("metadata")
    evidence = metadata.get("evidence") if isinstance(metadata, dict) else None
    name = evidence.get("log") if isinstance(evidence, dict) else None
    return name if isinstance(name, str) else ""


def reader_of(identity: Identity | None, agent: str | None) -> PluginRef | None:
    """Return what reads the raw streams of a run; None if nobody says it."""
    if agent is not None:
        return plugins.adapter_ref(agent)
    if identity is None:
        return None
    if identity.adapter in _TEXT_AGENTS:
        return PluginRef(name="text")
    try:
        ref = PluginRef(name=identity.adapter)
        plugins.adapter(ref)
    except (AssayError, TypeError):
        return None
    return ref


def agent_of_arm(arm: Arm) -> str | None:
    """Return what -s would be given for an arm; None for agents that print text."""
    return None if arm.simple or arm.shell else arm.agent


def grader_part(ref: PluginRef, number: int) -> tuple[GraderPart, dict[str, Path]]:
    """Describe a grader, and return its files by the names of their parts."""
    grader = plugins.grader(ref)
    own = _own_files(ref, grader)
    files: dict[str, str] = {}
    parts: dict[str, Path] = {}
    not_here: list[str] = []
    top = own[0].parent if own else Path()
    for path in dict.fromkeys((*own, *map(Path, grader.files))):
        place = path.resolve()
        below = place.relative_to(top) if place.is_relative_to(top) else Path(place.name)
        if not place.is_file():
            not_here.append(path.name)
            continue
        name = f"graders/{number}/{len(parts)}-{re.sub(r'[^A-Za-z0-9._-]', '-', place.name)}"
        parts[name], files[name] = place, below.as_posix()
    options = {key: value for key, value in ref.options.items() if key != "folder"}
    by_path = {str(place): files[name] for name, place in parts.items()}
    paths = {
        key: by_path[str(Path(value).resolve())]
        for key, value in options.items()
        if isinstance(value, str) and value and str(Path(value).resolve()) in by_path
    }
    for key in paths:
        options[key] = paths[key]
    part = GraderPart(
        name=ref.name, options=options, version=grader.version, files=files, paths=paths,
        not_here=not_here,
    )  # fmt: skip
    return part, parts


def _own_files(ref: PluginRef, grader: Grader) -> list[Path]:
    found = []
    for key in (*_OF_FILES, *grader.file_options):
        value = ref.options.get(key)
        if isinstance(value, str) and 0 < len(value) < 1000 and Path(value).is_file():
            found.append(Path(value).resolve())
    return found


def changed_inputs(sources: Sources) -> list[str]:
    """Name what is not any more what it was when the experiment ran."""
    return [name for name, digest, path in sources.inputs() if hash_path(path) != digest]
