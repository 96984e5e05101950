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
from assay.pipeline.stages import CaptureTrial, grade_capture
from assay.pipeline.steps import OnTrialStep, run_all
from assay.pipeline.trials import TrialRows
from assay.records.experiment import VERDICT
from assay.records.rows import UNREADABLE
from assay.records.spec import PluginRef, TrialSpec, made_from
from assay.records.trial import REUSED, Trial, decode_finished, decode_trials


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
    """Return what tells the arms apart: the token of each, which its processes inherit."""
    return spec.run_token


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
        again: list[tuple[TrialSpec, Trial]] = []
        for spec in missing:
            earlier = found.get((made_from(spec.hash), spec.number))
            if earlier is not None and earlier.is_graded:
                self._reuse(spec, earlier.trial)
            elif earlier is not None and self._regrade and _can_be_regraded(spec, earlier.trial):
                again.append((spec, earlier.trial))
            else:
                left.add(id(spec))
        left |= self._graded_again(again)
        return [spec for spec in specs if id(spec) in left]

    def _graded_again(self, trials: Sequence[tuple[TrialSpec, Trial]]) -> set[int]:
        """Grade trials and keep them; return the ids of those that have to be run again."""
        left: set[int] = set()
        if self._regrade is None or not trials:
            return left
        with closing(self._regrade.each(trials)) as graded:
            for spec, trial in graded:
                if trial is None:
                    left.add(id(spec))
                    continue
                self._reuse(spec, trial)
                self.n_regraded += 1
        return left

    def _reuse(self, spec: TrialSpec, trial: Trial) -> None:
        self._rows[arm_key(spec)].add(spec, trial)
        source = str(trial.metadata[REUSED])
        self.n_reused[source] = self.n_reused.get(source, 0) + 1

    def add(self, spec: TrialSpec, result: Trial) -> None:
        """Save a finished trial in the journal of its arm."""
        self._rows[arm_key(spec)].add(spec, result)

    def settle(self) -> None:
        """Write the rows of prompts that get no more trials for now, with those that they have."""
        for rows in self._rows.values():
            rows.settle()


class Regrade(msgspec.Struct, frozen=True, kw_only=True):
    """Puts finished trials to other graders than those that judged them."""

    work: CaptureTrial
    """It has the graders."""
    workers: int = 1
    announce: Callable[[int], None] = lambda n: None
    """Called with the number of trials before they are graded."""

    def each(
        self, trials: Sequence[tuple[TrialSpec, Trial]]
    ) -> Generator[tuple[TrialSpec, Trial | None], None, None]:
        """Yield each trial as soon as it is graded; None for one that has to be run again."""
        self.announce(len(trials))
        options = {"workers": min(self.workers, len(trials))}
        executor = plugins.executor(PluginRef(name="local", options=options))
        found = {id(spec): trial for spec, trial in trials}

        def grade(spec: TrialSpec, on_step: OnTrialStep | None) -> Trial | None:
            earlier = found[id(spec)]
            graded = grade_capture(spec, earlier, self.work.graders)
            is_gone = bool(earlier.folder) and not Path(str(earlier.folder)).is_dir()
            return None if graded.grader_failures and is_gone else graded

        def lost(spec: TrialSpec, why: str) -> tuple[TrialSpec, Trial | None]:
            return spec, None

        with closing(run_all([spec for spec, _ in trials], grade, lost, executor)) as graded:
            yield from graded
        self.work.prepare()  # for the trials that follow: what was forked has ended


def _can_be_regraded(spec: TrialSpec, trial: Trial) -> bool:
    """Whether what graders want to know of a trial was recorded when it ran."""
    return not spec.surroundings.snapshot or trial.changes is not UNSET


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

    trial: Trial
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
            for trial in _read_trials(file, known):
                key = made_from(trial.spec_hash or ""), trial.number
                if key not in wanted or trial.needs_rerun:
                    continue
                # Graded, or failed by the agent's own fault.
                is_settled = bool(trial.failure) or trial.verdict is not None
                is_graded = trial.spec_hash == wanted[key] and is_settled
                if key not in found or (is_graded and not found[key].is_graded):
                    found[key] = EarlierTrial(self._moved(trial, file), is_graded)
        return found

    def count(self, specs: Sequence[TrialSpec]) -> int:
        """Return how many of these trials need not be run, but graded at most."""
        found = self.find(specs)
        known = ((spec, found.get((made_from(spec.hash), spec.number))) for spec in specs)
        return sum(
            one is not None and (one.is_graded or _can_be_regraded(spec, one.trial))
            for spec, one in known
        )

    def _files(self) -> list[Path]:
        own = self._own.resolve()
        files = [*self._root.glob("*/*/*.jsonl"), *self._root.glob("*/*/*.jsonl.partial")]
        folders = {file.parent for file in files}
        left_out = {one for one in folders if one.resolve() == own or is_invalid(one)}
        return sorted(file for file in files if file.parent not in left_out)

    def _moved(self, trial: Trial, file: Path) -> Trial:
        source = str(trial.metadata.get(REUSED) or file.parent.relative_to(self._root))
        raw = trial.raw
        if raw:
            raw = Path(os.path.relpath(file.parent / raw, self._own)).as_posix()
        return msgspec.structs.replace(trial, raw=raw).with_note(REUSED, source)


class _RowView(msgspec.Struct, rename="camel"):
    spec_hash: str = ""


def trials_in(output: Path) -> list[Trial]:
    """Return everything in the journal of an arm, of finished prompts or not."""
    found: dict[tuple[str, int], Trial] = {}
    for file in (output.with_name(f"{output.name}.partial"), output):
        for trial in _read_trials(file):
            found[trial.id, trial.number] = trial
    return list(found.values())


def _read_trials(file: Path, wanted: Collection[str] | None = None) -> Iterator[Trial]:
    """Yield the trials of a file; a torn line has none.

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
                trials = [decode_finished(line)]
            else:
                trials = list(decode_trials(line))
        except UNREADABLE:
            continue
        yield from trials
