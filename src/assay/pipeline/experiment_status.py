"""Whether the last verdict of an experiment is about the files as they are now."""

import contextlib
from collections.abc import Iterator
from pathlib import Path

import msgspec

from assay.compare.ledger import chains
from assay.errors import AssayError
from assay.pipeline.experiment import hash_path, read_experiment
from assay.pipeline.made_of import (
    MadeOf,
    changes,
    confirming,
    made_of,
    prepare_arms,
    read_rows,
)
from assay.records.capture import IDENTITY_WORDS
from assay.records.experiment import RESOLVED, VERDICT, EditLook, Experiment
from assay.records.files import read_kept, temporary_folder
from assay.records.rows import UNREADABLE, explain
from assay.records.signatures import Signatures
from assay.records.spec import PluginRef

STALE, NOT_JUDGED = 3, 4


class ExperimentStatus(msgspec.Struct, frozen=True):
    """Whether the last verdict of an experiment is about the files as they are now."""

    name: str
    status: str
    """up to date, stale, invalid, unreadable or no verdict."""
    words: str
    code: int
    """The exit code of a command that checks it."""
    edits: dict[str, list[EditLook]] = {}
    """Every verdict about each arm, oldest first."""


class _Verdict(msgspec.Struct, rename="camel"):
    name: str
    valid: bool
    sentences: list[str]
    experiment: str
    inputs: dict[str, str]
    file: str | None = None
    folder: str = ""
    """Where assay ab was started, from the folder of the run: the inputs are named from there."""
    verdicts: dict[str, str] = {}
    confirm: bool = False
    made_of: MadeOf | None = None
    """Nothing in a verdict of an earlier version of Assay."""


class _End(msgspec.Struct):
    ended: str = ""


def experiment_status(folder: Path) -> ExperimentStatus:
    """Judge the newest verdict in the folder of an experiment."""
    found = sorted(folder.glob(f"*/{VERDICT}"), key=_ended)
    if not found:
        return ExperimentStatus(folder.name, "no verdict", "no run of it has ended", NOT_JUDGED)
    run = found[-1].parent
    try:
        data = read_kept(found[-1])
        verdict = msgspec.json.decode(data, type=_Verdict)
    except UNREADABLE as error:
        words = f"{found[-1]}: {explain(error, _Verdict)}; run the experiment again"
        return ExperimentStatus(folder.name, "unreadable", words, NOT_JUDGED)
    signatures = Signatures.read(run)  # none in a clone: there the file is all that is known
    if signatures is not None and not signatures.holds(data):
        words = f"{found[-1]} is not as assay ab wrote it; the same command writes it again"
        return ExperimentStatus(folder.name, "unreadable", words, NOT_JUDGED)
    there, place = run / verdict.folder, run.resolve()
    is_there = verdict.folder and there.is_dir()  # it may be gone, or not be known
    with contextlib.chdir(there) if is_there else contextlib.nullcontext():
        changed = "; ".join(_changes(verdict, place))
    words, edits = " ".join(verdict.sentences), chains(folder)
    if changed:
        return ExperimentStatus(folder.name, "stale", f"{changed} ({run})", STALE, edits)
    if not verdict.valid:
        state = "unhealthy" if "unhealthy" in verdict.verdicts.values() else "invalid"
        return ExperimentStatus(folder.name, state, words, NOT_JUDGED, edits)
    return ExperimentStatus(folder.name, "up to date", f"{words} ({run})", 0, edits)


def _ended(path: Path) -> tuple[str, float]:
    """When a verdict was made. In a clone all files are of the same time."""
    try:
        known = msgspec.json.decode(read_kept(path), type=_End).ended
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError):
        known = ""
    return known, path.stat().st_mtime


class _ResolvedFile(msgspec.Struct):
    experiment: Experiment


def _changes(verdict: _Verdict, run: Path) -> list[str]:
    """Say what is not as it was when the verdict was made: what `assay ab` would run again for."""
    try:
        if verdict.file and read_experiment(Path(verdict.file)).digest != verdict.experiment:
            return [f"{verdict.file} describes another experiment than was run"]
        if verdict.made_of is None:
            return [*_changed_files(verdict)] or [_OLD]
        resolved = msgspec.json.decode(read_kept(run / RESOLVED), type=_ResolvedFile)
        now = made_of_now(resolved.experiment, confirm=verdict.confirm)
    except (OSError, *UNREADABLE):
        return [f"{run / RESOLVED} cannot be read"]
    except AssayError as error:
        return [*_changed_files(verdict)] or [error.message]
    found = changes(verdict.made_of, now)
    files = [*_changed_files(verdict)] if found else []
    # A file that has changed says it better than the hashes of what was made from it.
    named = [words for words in found if not files or words.startswith(_NOT_OF_FILES)]
    return [*files, *named]


_NOT_OF_FILES = tuple(
    IDENTITY_WORDS[name] for name in ("program", "loads", "packages", "mcp_files", "variables")
)
_OLD = "an earlier version of Assay made this verdict and did not record what the agent loads"


def made_of_now(experiment: Experiment, *, confirm: bool = False) -> MadeOf:
    """Say what a run of an experiment would be made of, with the files as they are."""
    experiment = confirming(experiment) if confirm else experiment
    with temporary_folder("assay-arms-") as scratch:
        # Nothing is run, so that no sandbox and no container has to work here.
        elsewhere = PluginRef(name="elsewhere")
        rows = read_rows(experiment, confirm=confirm)
        arms = prepare_arms(experiment, rows, Path(scratch), executor=elsewhere)
        return made_of(arms)


def _changed_files(verdict: _Verdict) -> Iterator[str]:
    for name, before in verdict.inputs.items():
        now = hash_path(Path(name))
        if now != before:
            yield f"{name} {'has changed' if now else 'is gone'}"
