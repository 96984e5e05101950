"""The arms of an experiment as one batch: interleaved trials, a journal of each arm, and trials of
earlier runs that need not be run again."""

import os
import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import msgspec
from msgspec import UNSET

from assay.pipeline.trials import TrialRows
from assay.records.capture import Capture, FinishedTrial, TrialEntry, TrialResult
from assay.records.rows import UNREADABLE
from assay.records.spec import TrialSpec

REUSED = "reusedFrom"
"""In the metadata of a trial that an earlier run made: the folder of that run."""


def interleave(arms: Sequence[Sequence[TrialSpec]], seed: int) -> list[TrialSpec]:
    """Order the trials of all arms so that whatever changes with time hits all arms alike.

    First come all first trials, then all second ones. Among them the prompts are in random order,
    and of each prompt all arms come one after the other, in random order too.
    """
    chance = random.Random(seed)
    blocks: dict[int, dict[str, list[TrialSpec]]] = {}
    for specs in arms:
        for spec in specs:
            blocks.setdefault(spec.number, {}).setdefault(spec.prompt.id, []).append(spec)
    ordered: list[TrialSpec] = []
    for number in sorted(blocks):
        prompts = list(blocks[number].values())
        chance.shuffle(prompts)
        for block in prompts:
            chance.shuffle(block)
            ordered += block
    return ordered


def arm_key(spec: TrialSpec) -> str:
    """Return what tells the arms apart: each works in a folder of its own."""
    return spec.surroundings.workspace_dir or ""


class ArmRows:
    """Where the results of all arms go: the journal of each, by the key of its trials."""

    def __init__(self, rows: Mapping[str, TrialRows], earlier: "EarlierTrials | None") -> None:
        self._rows = rows
        self._earlier = earlier
        self.n_reused: dict[str, int] = {}
        """By the folder that the trials come from."""

    def missing(self, specs: list[TrialSpec]) -> list[TrialSpec]:
        """Return the trials that neither this run nor an earlier one has, in the same order."""
        by_arm: dict[str, list[TrialSpec]] = {}
        for spec in specs:
            by_arm.setdefault(arm_key(spec), []).append(spec)
        left = {id(spec) for key, own in by_arm.items() for spec in self._missing(key, own)}
        return [spec for spec in specs if id(spec) in left]

    def _missing(self, key: str, specs: list[TrialSpec]) -> Iterator[TrialSpec]:
        rows = self._rows[key]
        missing = rows.missing(specs)
        found = self._earlier.find(missing) if self._earlier is not None and missing else {}
        for spec in missing:
            entry = found.get((spec.hash, spec.number))
            if entry is None:
                yield spec
                continue
            rows.add_entry(spec, entry)
            source = str((entry.metadata or {})[REUSED])
            self.n_reused[source] = self.n_reused.get(source, 0) + 1

    def add(self, spec: TrialSpec, result: Capture) -> None:
        """Save a finished trial in the journal of its arm."""
        self._rows[arm_key(spec)].add(spec, result)


class EarlierTrials:
    """Finished trials in a folder of experiments, found by what they were made from."""

    def __init__(self, root: Path, own: Path) -> None:
        """root holds NAME/RUN/ARM.jsonl; own is the folder of this run, which is left out."""
        self._root, self._own = root, own

    def find(self, specs: Iterable[TrialSpec]) -> dict[tuple[str, int], TrialEntry]:
        """Return trials of the same set-up, prompt, graders and number, the oldest of each."""
        wanted: dict[str, set[int]] = {}
        for spec in specs:
            wanted.setdefault(spec.hash, set()).add(spec.number)
        found: dict[tuple[str, int], TrialEntry] = {}
        for file in self._files():
            for spec_hash, entry in _finished_in(file, wanted.keys()):
                key = spec_hash, entry.trial_num
                if entry.trial_num in wanted[spec_hash] and key not in found and _counts(entry):
                    found[key] = self._moved(entry, file)
        return found

    def _files(self) -> list[Path]:
        own = self._own.resolve()
        files = [*self._root.glob("*/*/*.jsonl"), *self._root.glob("*/*/*.jsonl.partial")]
        return sorted(file for file in files if file.parent.resolve() != own)

    def _moved(self, entry: TrialEntry, file: Path) -> TrialEntry:
        source = str((entry.metadata or {}).get(REUSED) or file.parent.relative_to(self._root))
        raw = entry.raw
        if raw:
            raw = Path(os.path.relpath(file.parent / raw, self._own)).as_posix()
        about = {**(entry.metadata or {}), REUSED: source}
        return msgspec.structs.replace(entry, raw=raw, metadata=about)


class _RowView(msgspec.Struct, rename="camel"):
    spec_hash: str = ""


def _finished_in(file: Path, wanted: Iterable[str]) -> Iterator[tuple[str, TrialEntry]]:
    """Yield the trials of a file that were made from what is wanted; a torn line has none."""
    hashes, view = set(wanted), msgspec.json.Decoder(_RowView)
    try:
        lines = file.read_bytes().splitlines()
    except OSError:
        return
    for line in lines:
        try:
            if view.decode(line).spec_hash not in hashes:
                continue
            if file.suffix == ".partial":
                done = msgspec.json.decode(line, type=FinishedTrial)
                yield done.spec_hash, done.entry
                continue
            row = msgspec.json.decode(line, type=TrialResult)
        except UNREADABLE:
            continue
        yield from ((row.spec_hash or "", entry) for entry in row.trials)


def _counts(entry: TrialEntry) -> bool:
    """Whether a trial measured the agent and was graded."""
    failed = entry.failure is not UNSET and entry.failure.cause.measures_agent
    return failed or (entry.failure is UNSET and entry.pass_ is not UNSET)


def entries_in(output: Path) -> list[tuple[str, TrialEntry]]:
    """Return prompt and trial of everything in the journal of an arm, finished prompts or not."""
    found: dict[tuple[str, int], tuple[str, TrialEntry]] = {}
    for file in (output.with_name(f"{output.name}.partial"), output):
        for row_id, entry in _entries(file):
            found[row_id, entry.trial_num] = row_id, entry
    return list(found.values())


def _entries(file: Path) -> Iterator[tuple[str, TrialEntry]]:
    try:
        lines = file.read_bytes().splitlines()
    except OSError:
        return
    for line in lines:
        try:
            if file.suffix == ".partial":
                done = msgspec.json.decode(line, type=FinishedTrial)
                yield done.id, done.entry
                continue
            row = msgspec.json.decode(line, type=TrialResult)
        except UNREADABLE:
            continue
        yield from ((row.id, entry) for entry in row.trials)
