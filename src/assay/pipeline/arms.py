"""The arms of an experiment as one batch: interleaved trials, a journal of each arm, and trials of
earlier runs that need not be run again."""

import contextlib
import os
import random
from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Literal, NamedTuple

import msgspec
from msgspec import UNSET, UnsetType

from assay import plugins
from assay.pipeline.stages import CaptureTrial, grade_capture
from assay.pipeline.steps import OnTrialStep, run_all
from assay.pipeline.trials import TrialRows
from assay.records.capture import NOT_RECORDED, Identity, identity_differences
from assay.records.experiment import RESOLVED, VERDICT
from assay.records.files import read_kept, replaced_file
from assay.records.rows import UNREADABLE
from assay.records.setup import CHANGED_FILES
from assay.records.signatures import Signatures
from assay.records.spec import PluginRef, TrialSpec, made_from
from assay.records.trial import REUSED, Trial, decode_finished, decode_trials, encode_finished
from assay.run.notes import folder_of_row
from assay.run.workspace import adopt_workspace


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
        self.not_covered: dict[str, None] = {}
        """What may have changed since the reused trials were made, and cannot be known."""
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
            if earlier is not None and earlier.reuse.kind == "check":
                self.not_covered |= dict.fromkeys(earlier.reuse.why)
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
        self.add(spec, trial)
        if trial.folder:
            adopt_workspace(spec, trial.folder, trial.raw or None)

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
            folder = earlier.folder
            is_gone = bool(folder) and folder_of_row(str(folder), earlier.raw or None) is None
            return None if graded.grader_failures and is_gone else graded

        def lost(spec: TrialSpec, why: str) -> tuple[TrialSpec, Trial | None]:
            return spec, None

        with closing(run_all([spec for spec, _ in trials], grade, lost, executor)) as graded:
            yield from graded
        self.work.prepare()  # for the trials that follow: what was forked has ended


def _can_be_regraded(spec: TrialSpec, trial: Trial) -> bool:
    """Whether what graders want to know of a trial was recorded when it ran."""
    return not spec.surroundings.snapshot or trial.changes is not UNSET


class _Proof(msgspec.Struct):
    valid: bool = True


class _Verdict(msgspec.Struct):
    valid: bool = True
    proof: _Proof | None = None
    ended: str | None = None


def is_invalid(folder: Path) -> bool:
    """Whether a run ended without a valid verdict: its trials had another set-up than asked for.

    Those of an unhealthy measurement had not: what was measured of it stays.
    """
    try:
        found = msgspec.json.decode(read_kept(folder / VERDICT), type=_Verdict)
        return not (found.valid if found.proof is None else found.proof.valid)
    except (OSError, *UNREADABLE):
        return False


class RunBegin(msgspec.Struct, frozen=True):
    """When a run of an experiment began, and whether it left all earlier trials alone."""

    began: str = ""
    fresh: bool = False


def begin_of(folder: Path) -> RunBegin:
    """Read how a run began; of one that does not say it, or is gone, the day is in its name.

    What is signed comes first: the rest may have been written by an agent.
    """
    signed = Signatures.read(folder)
    with contextlib.suppress(OSError, *UNREADABLE):
        data = read_kept(folder / RESOLVED) if signed is None else signed.about
        found = msgspec.json.decode(data, type=RunBegin)
        if found.began:
            return found
    return RunBegin(folder.name[:_DAY])


_DAY = len("2026-01-31")


class Reuse(NamedTuple):
    """Whether earlier trials may stand for new ones."""

    kind: Literal["yes", "check", "no"]
    """check: as far as is known they are the same, but not everything that decides is covered."""
    why: tuple[str, ...] = ()
    """What differs, or what is not covered."""


def reuse_of(earlier: Identity | UnsetType | None, now: Identity | None) -> Reuse:
    """Say of trials that an earlier run made whether they measure what is asked for now.

    Their graders do not count: finished trials can be graded again.
    """
    if not earlier or now is None:
        return Reuse("no", ("they do not say what they were made from",))
    if earlier.is_old and not now.is_old:
        return Reuse("no", (NOT_RECORDED,))
    plain = (msgspec.structs.replace(one, graders={}) for one in (earlier, now))
    if found := identity_differences(*plain):
        return Reuse("no", tuple(found))
    unknown = tuple(dict.fromkeys((*earlier.not_covered, *now.not_covered)))
    return Reuse("check" if unknown else "yes", unknown)


class EarlierTrial(NamedTuple):
    """A trial that an earlier run made."""

    trial: Trial
    is_graded: bool
    """Whether it was judged by the graders that are asked for now."""
    reuse: Reuse = Reuse("yes")
    began: str = ""
    """When the run began that made it."""


class EarlierTrials:
    """Finished trials in a folder of experiments, found by what they were made from."""

    def __init__(self, root: Path, own: Path) -> None:
        """root holds NAME/RUN/ARM.jsonl; own is the folder of this run, which is left out."""
        self._root, self._own = root, own
        self.refused: set[tuple[str, int]] = set()
        """What is run again all the same, by what it was made from and its number."""
        self.unsigned: dict[str, int] = {}
        """How many trials were left out because Assay did not write them, by their folder."""
        self._begins: dict[Path, RunBegin] = {}

    def find(self, specs: Iterable[TrialSpec]) -> dict[tuple[str, int], EarlierTrial]:
        """Return trials of the same set-up, prompt and number, by what they were made from.

        Of each the newest that the graders of its spec judged, or else the newest; none that is
        older than the last run with --fresh that made trials of this set-up.
        """
        wanted = {(made_from(spec.hash), spec.number): spec for spec in specs}
        candidates: dict[tuple[str, int], list[EarlierTrial]] = {}
        least: dict[str, str] = {}
        for file in self._files():
            for trial in self._signed(file, {key for key, _ in wanted}):
                key = made_from(trial.spec_hash or ""), trial.number
                begin = self._begin(trial, file)
                if begin.fresh:
                    least[key[0]] = max(least.get(key[0], ""), begin.began)
                is_usable = not trial.needs_rerun and CHANGED_FILES not in (trial.setup or {})
                if key in wanted and key not in self.refused and is_usable:
                    one = self._candidate(trial, file, wanted[key], begin.began)
                    candidates.setdefault(key, []).append(one)
        found: dict[tuple[str, int], EarlierTrial] = {}
        for key, several in candidates.items():
            limit = least.get(key[0], "")
            usable = [one for one in several if one.began >= limit and one.reuse.kind != "no"]
            if usable:
                found[key] = max(usable, key=lambda one: (one.is_graded, one.began))
        return found

    def _signed(self, file: Path, wanted: Collection[str]) -> Iterator[Trial]:
        """Yield the wanted trials of a file that Assay wrote there; count the others."""
        signatures = Signatures.read(file.parent)
        left_out: list[bytes] = []

        def holds(line: bytes) -> bool:
            is_ours = signatures is not None and signatures.holds(line)
            left_out.extend([] if is_ours else [line])
            return is_ours

        yield from _read_trials(file, wanted, holds)
        if left_out:
            self.unsigned[str(file.relative_to(self._root))] = len(left_out)

    def _begin(self, trial: Trial, file: Path) -> RunBegin:
        """Return how the run began that made a trial; another may have taken it from there."""
        source = trial.metadata.get(REUSED)
        folder = self._root / source if isinstance(source, str) else file.parent
        if folder not in self._begins:
            self._begins[folder] = begin_of(folder)
        return self._begins[folder]

    def _candidate(self, trial: Trial, file: Path, spec: TrialSpec, began: str) -> EarlierTrial:
        # Graded, or failed by the agent's own fault.
        is_settled = bool(trial.failure) or trial.verdict is not None
        is_graded = trial.spec_hash == spec.hash and is_settled
        reuse = reuse_of(trial.identity, spec.identity) if spec.identity else Reuse("yes")
        return EarlierTrial(self._moved(trial, file), is_graded, reuse, began)

    def count(self, specs: Sequence[TrialSpec]) -> int:
        """Return how many of these trials need not be run, but graded at most."""
        found = self.find(specs)
        known = ((spec, found.get((made_from(spec.hash), spec.number))) for spec in specs)
        return sum(
            one is not None and (one.is_graded or _can_be_regraded(spec, one.trial))
            for spec, one in known
        )

    def chosen_from(self, sources: Iterable[str], specs: Iterable[TrialSpec]) -> set[str]:
        """Return those of some earlier runs of which these trials are a choice that may be biased.

        What is left out of such a run, by a filter or an edit of prompts, tells its arms apart.
        """
        wanted = {(made_from(spec.hash), spec.number) for spec in specs}
        return {source for source in sources if self._rest_differs(self._root / source, wanted)}

    def _rest_differs(self, run: Path, wanted: Collection[tuple[str, int]]) -> bool:
        asked: set[tuple[str, int]] = set()
        passed: dict[tuple[str, int], dict[str, bool]] = {}
        for file in (*run.glob("*.jsonl"), *run.glob("*.jsonl.partial")):
            arm = file.name.partition(".jsonl")[0]
            for trial in _read_trials(file):
                place = trial.id, trial.number
                if (made_from(trial.spec_hash or ""), trial.number) in wanted:
                    asked.add(place)
                if trial.passed is not None:
                    passed.setdefault(place, {})[arm] = trial.passed
        return any(len({*arms.values()}) > 1 for at, arms in passed.items() if at not in asked)

    def ended(self, source: str) -> str | None:
        """Return when an earlier run came to its verdict, or was last written."""
        folder = self._root / source
        try:
            return msgspec.json.decode(read_kept(folder / VERDICT), type=_Verdict).ended
        except (OSError, *UNREADABLE):
            return None

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


def drop_trials(output: Path, places: Collection[tuple[str, int]]) -> None:
    """Take trials out of the journal of an arm, by prompt and number, so that they are run again.

    The earlier runs that they are from still have them.
    """
    kept = [trial for trial in trials_in(output) if (trial.id, trial.number) not in places]
    signatures = Signatures.read(output.parent)
    with replaced_file(output.with_name(f"{output.name}.partial")) as out:
        for line in map(encode_finished, kept):
            if signatures is not None:
                signatures.sign(line)
            out.write(line + b"\n")
    output.unlink(missing_ok=True)


def _read_trials(
    file: Path,
    wanted: Collection[str] | None = None,
    holds: Callable[[bytes], bool] = lambda line: True,
) -> Iterator[Trial]:
    """Yield the trials of a file; a torn line has none.

    With wanted, only those made from one of these: other lines are hardly read. holds is asked
    whether such a line may be used.
    """
    view = msgspec.json.Decoder(_RowView)
    try:
        lines = read_kept(file).splitlines()
    except OSError:
        return
    for line in lines:
        try:
            if wanted is not None and made_from(view.decode(line).spec_hash) not in wanted:
                continue
            if not holds(line):
                continue
            if file.suffix == ".partial":
                trials = [decode_finished(line)]
            else:
                trials = list(decode_trials(line))
        except UNREADABLE:
            continue
        yield from trials
