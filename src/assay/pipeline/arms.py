"""The arms of an experiment as one batch: interleaved trials, a journal of each arm, and trials of
earlier runs that need not be run again."""

import os
import random
from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

import msgspec
from msgspec import UNSET

from assay import plugins
from assay.pipeline.batch import run_all
from assay.pipeline.stages import CaptureTrial, OnTrialStep
from assay.pipeline.trials import TrialRows, grade_entry_again
from assay.records.capture import Capture, FinishedTrial, TrialEntry, TrialResult
from assay.records.rows import UNREADABLE
from assay.records.spec import PluginRef, TrialSpec, made_from

VERDICT = "verdict.json"
"""In the folder of a run that has ended."""
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

    def __init__(
        self,
        rows: Mapping[str, TrialRows],
        earlier: "EarlierTrials | None",
        regrade: "Regrade | None" = None,
    ) -> None:
        """regrade judges trials that other graders judged; without it these are run again."""
        self._rows = rows
        self._earlier = earlier
        self._regrade = regrade
        self.n_reused: dict[str, int] = {}
        """By the folder that the trials come from."""
        self.n_regraded = 0

    def missing(self, specs: list[TrialSpec]) -> list[TrialSpec]:
        """Return the trials that neither this run nor an earlier one has, in the same order."""
        by_arm: dict[str, list[TrialSpec]] = {}
        for spec in specs:
            by_arm.setdefault(arm_key(spec), []).append(spec)
        missing = [spec for key, own in by_arm.items() for spec in self._rows[key].missing(own)]
        found = self._earlier.find(missing) if self._earlier is not None and missing else {}
        left: set[int] = set()
        again: list[tuple[TrialSpec, TrialEntry]] = []
        for spec in missing:
            earlier = found.get((made_from(spec.hash), spec.number))
            if earlier is not None and earlier.is_graded:
                self._reuse(spec, earlier.entry)
            elif earlier is not None and self._regrade and _can_be_regraded(spec, earlier.entry):
                again.append((spec, earlier.entry))
            else:
                left.add(id(spec))
        left |= self._graded_again(again)
        return [spec for spec in specs if id(spec) in left]

    def _graded_again(self, trials: Sequence[tuple[TrialSpec, TrialEntry]]) -> set[int]:
        """Grade trials and keep them; return the ids of those that have to be run again."""
        left: set[int] = set()
        if self._regrade is None or not trials:
            return left
        with closing(self._regrade.each(trials)) as graded:
            for spec, entry in graded:
                if entry is None:
                    left.add(id(spec))
                    continue
                self._reuse(spec, entry)
                self.n_regraded += 1
        return left

    def _reuse(self, spec: TrialSpec, entry: TrialEntry) -> None:
        self._rows[arm_key(spec)].add_entry(spec, entry)
        source = str((entry.metadata or {})[REUSED])
        self.n_reused[source] = self.n_reused.get(source, 0) + 1

    def add(self, spec: TrialSpec, result: Capture) -> None:
        """Save a finished trial in the journal of its arm."""
        self._rows[arm_key(spec)].add(spec, result)


class Regrade(msgspec.Struct, frozen=True, kw_only=True):
    """Puts finished trials to other graders than those that judged them."""

    work: CaptureTrial
    """It has the graders."""
    workers: int = 1
    announce: Callable[[int], None] = lambda n: None
    """Called with the number of trials before they are graded."""

    def each(
        self, trials: Sequence[tuple[TrialSpec, TrialEntry]]
    ) -> Generator[tuple[TrialSpec, TrialEntry | None], None, None]:
        """Yield each trial as soon as it is graded; None for one that has to be run again."""
        self.announce(len(trials))
        options = {"workers": min(self.workers, len(trials))}
        executor = plugins.executor(PluginRef(name="local", options=options))
        entries = {id(spec): entry for spec, entry in trials}
        grading = _Grading(self.work.graders, entries)
        with closing(run_all([spec for spec, _ in trials], grading, executor)) as graded:
            yield from graded
        self.work.prepare()  # for the trials that follow: what was forked has ended


class _Grading(msgspec.Struct, frozen=True):
    """The work of a batch that only grades: see Work."""

    graders: Sequence[PluginRef]
    entries: Mapping[int, TrialEntry]
    """By the id of the object that is the trial's spec."""

    def prepare(self) -> None:
        """Nothing: those who grade have prepared it."""

    def run(self, spec: TrialSpec, on_step: OnTrialStep | None = None) -> TrialEntry | None:
        earlier = self.entries[id(spec)]
        entry = grade_entry_again(spec, earlier, self.graders)
        folder = earlier.cwd or earlier.workspace_dir
        is_gone = bool(folder) and not Path(str(folder)).is_dir()
        return None if entry.grader_failures and is_gone else entry

    def lost(self, spec: TrialSpec, why: str) -> TrialEntry | None:
        return None

    def cost_usd(self, result: TrialEntry | None) -> float | None:
        return 0.0


def _can_be_regraded(spec: TrialSpec, entry: TrialEntry) -> bool:
    """Whether what graders want to know of a trial was recorded when it ran."""
    return not spec.surroundings.snapshot or entry.changes is not UNSET


class _Verdict(msgspec.Struct):
    valid: bool = True


def is_invalid(folder: Path) -> bool:
    """Whether a run ended without a valid verdict: its trials had another set-up than asked for."""
    try:
        return not msgspec.json.decode((folder / VERDICT).read_bytes(), type=_Verdict).valid
    except (OSError, *UNREADABLE):
        return False


class EarlierTrial(NamedTuple):
    """A trial that an earlier run made."""

    entry: TrialEntry
    is_graded: bool
    """Whether it was judged by the graders that are asked for now."""


class EarlierTrials:
    """Finished trials in a folder of experiments, found by what they were made from."""

    def __init__(self, root: Path, own: Path) -> None:
        """root holds NAME/RUN/ARM.jsonl; own is the folder of this run, which is left out."""
        self._root, self._own = root, own

    def find(self, specs: Iterable[TrialSpec]) -> dict[tuple[str, int], EarlierTrial]:
        """Return trials of the same set-up, prompt and number, by what they were made from.

        Of each the oldest that the graders of its spec judged, or else the oldest.
        """
        wanted = {(made_from(spec.hash), spec.number): spec.hash for spec in specs}
        known = {key for key, _ in wanted}
        found: dict[tuple[str, int], EarlierTrial] = {}
        for file in self._files():
            for spec_hash, _, entry in _entries(file, known):
                key = made_from(spec_hash), entry.trial_num
                if key not in wanted or not _is_measured(entry):
                    continue
                is_graded = spec_hash == wanted[key] and _is_settled(entry)
                if key not in found or (is_graded and not found[key].is_graded):
                    found[key] = EarlierTrial(self._moved(entry, file), is_graded)
        return found

    def count(self, specs: Sequence[TrialSpec]) -> int:
        """Return how many of these trials need not be run, but graded at most."""
        found = self.find(specs)
        known = ((spec, found.get((made_from(spec.hash), spec.number))) for spec in specs)
        return sum(
            one is not None and (one.is_graded or _can_be_regraded(spec, one.entry))
            for spec, one in known
        )

    def _files(self) -> list[Path]:
        own = self._own.resolve()
        files = [*self._root.glob("*/*/*.jsonl"), *self._root.glob("*/*/*.jsonl.partial")]
        folders = {file.parent for file in files}
        left_out = {one for one in folders if one.resolve() == own or is_invalid(one)}
        return sorted(file for file in files if file.parent not in left_out)

    def _moved(self, entry: TrialEntry, file: Path) -> TrialEntry:
        source = str((entry.metadata or {}).get(REUSED) or file.parent.relative_to(self._root))
        raw = entry.raw
        if raw:
            raw = Path(os.path.relpath(file.parent / raw, self._own)).as_posix()
        about = {**(entry.metadata or {}), REUSED: source}
        return msgspec.structs.replace(entry, raw=raw, metadata=about)


class _RowView(msgspec.Struct, rename="camel"):
    spec_hash: str = ""


def _is_measured(entry: TrialEntry) -> bool:
    return entry.failure is UNSET or entry.failure.cause.measures_agent


def _is_settled(entry: TrialEntry) -> bool:
    """Whether a trial was graded, or failed by the agent's own fault."""
    return entry.failure is not UNSET or entry.pass_ is not UNSET


def entries_in(output: Path) -> list[tuple[str, TrialEntry]]:
    """Return prompt and trial of everything in the journal of an arm, finished prompts or not."""
    found: dict[tuple[str, int], tuple[str, TrialEntry]] = {}
    for file in (output.with_name(f"{output.name}.partial"), output):
        for _, row_id, entry in _entries(file):
            found[row_id, entry.trial_num] = row_id, entry
    return list(found.values())


def _entries(
    file: Path, wanted: Collection[str] | None = None
) -> Iterator[tuple[str, str, TrialEntry]]:
    """Yield the trials of a file, with their spec hash and prompt; a torn line has none.

    With wanted, only those made from one of these: other lines are hardly read.
    """
    view = msgspec.json.Decoder(_RowView)
    try:
        lines = file.read_bytes().splitlines()
    except OSError:
        return
    for line in lines:
        try:
            if wanted is not None and made_from(view.decode(line).spec_hash) not in wanted:
                continue
            if file.suffix == ".partial":
                done = msgspec.json.decode(line, type=FinishedTrial)
                yield done.spec_hash, done.id, done.entry
                continue
            row = msgspec.json.decode(line, type=TrialResult)
        except UNREADABLE:
            continue
        yield from ((row.spec_hash or "", row.id, entry) for entry in row.trials)
