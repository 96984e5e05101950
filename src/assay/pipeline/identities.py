"""The identities that stand in result files and experiments, and how two of them differ."""

from collections.abc import Iterator
from pathlib import Path

import msgspec

from assay.compare.pairs import align, changed_prompts, shared_identity
from assay.compare.runs import Run, load_run
from assay.errors import InputError
from assay.pipeline.arms import begin_of
from assay.pipeline.experiment import read_experiment
from assay.pipeline.experiment_status import made_of_now
from assay.pipeline.made_of import MadeOf, changes
from assay.records.capture import NOT_RECORDED, Identity
from assay.records.experiment import RESOLVED, VERDICT
from assay.records.files import read_kept
from assay.records.rows import UNREADABLE, explain
from assay.records.trial.files import detect_kind

_HINT = "give a file of capture or trials, the folder of an experiment, or an experiment.toml"


class SetupDescription(msgspec.Struct, frozen=True, kw_only=True):
    """What a file or an experiment is made of."""

    path: Path
    made_of: MadeOf
    run: Run | None = None
    """The rows of a result file; an experiment has none."""


def describe(path: Path) -> SetupDescription:
    """Read the identities of a result file, of an experiment's last run, or of its file now."""
    if path.is_dir():
        return _described_run(last_run(path))
    if path.suffix == ".toml":
        return SetupDescription(path=path, made_of=made_of_now(read_experiment(path)))
    run = load_run(path.stem, path, detect_kind(path), "category")
    identity = shared_identity(run)
    if identity is None:
        msg = f"{path}: its rows do not say what they were made from"
        raise InputError(msg, hint=_HINT)
    return SetupDescription(path=path, made_of=MadeOf({path.stem: identity}), run=run)


def last_run(folder: Path) -> Path:
    """Return the folder of a run, or the newest one of an experiment."""
    if (folder / RESOLVED).is_file():
        return folder
    runs = [path.parent for path in folder.glob(f"*/{RESOLVED}")]
    if not runs:
        msg = f"{folder}: no run of an experiment is there"
        raise InputError(msg, hint=_HINT)
    return max(runs, key=lambda path: (begin_of(path).began, path.name))


class _ResolvedArm(msgspec.Struct):
    identity: Identity


class _ResolvedFile(msgspec.Struct):
    arms: dict[str, _ResolvedArm]


class _Verdict(msgspec.Struct, rename="camel"):
    made_of: MadeOf | None = None


def _described_run(folder: Path) -> SetupDescription:
    path = folder / RESOLVED
    try:
        if (folder / VERDICT).is_file():
            known = msgspec.json.decode(read_kept(folder / VERDICT), type=_Verdict).made_of
            if known is not None:
                return SetupDescription(path=folder, made_of=known)
        arms = msgspec.json.decode(read_kept(path), type=_ResolvedFile).arms
    except UNREADABLE as error:
        msg = f"{path}: {explain(error, _ResolvedFile)}"
        raise InputError(msg) from error
    found = {name: arm.identity for name, arm in arms.items()}
    return SetupDescription(path=folder, made_of=MadeOf(found))


def differing(one: SetupDescription, other: SetupDescription) -> list[str]:
    """Say in words how what was measured differs; nothing if it is the same."""
    old, new = one.made_of, other.made_of
    if len(old.arms) == len(new.arms) == 1:  # of two files, whatever their names
        name = next(iter(old.arms))
        new = msgspec.structs.replace(new, arms={name: next(iter(new.arms.values()))})
    if not old.prompts or not new.prompts:
        old, new = (msgspec.structs.replace(each, prompts={}) for each in (old, new))
    return [*changes(old, new), *_prompts(one.run, other.run)]


def _prompts(one: Run | None, other: Run | None) -> Iterator[str]:
    if one is None or other is None:
        return
    aligned = align([one, other])
    changed = changed_prompts(aligned, 0, 1)
    yield from changed.words
    if changed.inputs:
        yield f"the input is another in {len(changed.inputs)} prompts"
    for name in sorted(one.graders.keys() | other.graders.keys()):
        if one.graders.get(name) != other.graders.get(name):
            yield f"the grader {name}"


def not_recorded(one: SetupDescription, other: SetupDescription) -> list[str]:
    """Say what cannot be compared: what one of them does not record, or cannot know."""
    both = [identity for each in (one, other) for identity in each.made_of.arms.values()]
    unknown = [f"not covered: {words}" for each in both for words in each.not_covered]
    if len({identity.is_old for identity in both}) > 1:
        unknown.insert(0, NOT_RECORDED)
    return list(dict.fromkeys(unknown))
