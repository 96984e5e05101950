"""One run of an experiment, in a folder of its own: what is planned, done, spent and proven."""

import datetime
import hashlib
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import UNSET

from assay.pipeline.arms import (
    REUSED,
    VERDICT,
    EarlierTrials,
    arm_key,
    entries_in,
    interleave,
    is_invalid,
)
from assay.pipeline.experiment import (
    Arm,
    Experiment,
    files_of_grader,
    hash_path,
)
from assay.pipeline.identity import identity_in
from assay.pipeline.material import skill_body
from assay.pipeline.prompts import Setting, plan
from assay.pipeline.proof import ArmFacts, Piece, gather, prove, skills_in
from assay.pipeline.row_settings import RowSettings
from assay.plugin import PromptRow
from assay.records.capture import Identity, TrialEntry
from assay.records.files import short_hash
from assay.records.raw_streams import folder_names
from assay.records.setup import ArmsProof
from assay.records.spec import TrialSpec
from assay.records.text import counted_noun
from assay.report.experiment import Effort
from assay.run.workspace import frozen_template, private_root

if TYPE_CHECKING:
    from assay.pipeline.until import UntilDecided
    from assay.stats.sequential import SequentialDecision

type Decisions = "dict[str, SequentialDecision]"
"""What a sequential rule decided about each arm, by name; nothing if all trials were run."""


class ReadyArm(msgspec.Struct, frozen=True, kw_only=True):
    """An arm whose agent and material were found."""

    name: str
    arm: Arm
    setting: Setting
    template: Path
    """The composed template, copied into the workspace of each trial."""
    rows: list[PromptRow]
    """The prompts, with the arm's material in the workspaces that they bring."""
    own: RowSettings
    """What the rows of the prompts ask for."""
    pieces: dict[str, Piece]
    """What the arm names, as it was when its template was made."""
    bodies: dict[str, str]
    """Hash of the body of each skill that its agent can read, by the hash of its folder."""
    output: Path = Path()
    specs: list[TrialSpec] = []

    @property
    def identities(self) -> dict[str, Identity | None]:
        """Of prompts whose rows ask for something of their own."""
        made = {prompt.id: self.own.of(prompt).identity for prompt, _ in self.rows}
        return {id_: one for id_, one in made.items() if one is not self.setting.identity}

    def identities_after(self) -> dict[str, Identity]:
        """Of prompts that put files into the workspace, or run a set-up there: what was there.

        It is read from the workspaces that trials have left.
        """
        found: dict[str, Identity] = {}
        for spec in self.specs:
            prompt, around = spec.prompt, spec.surroundings
            place = Path(around.workspace_dir or "", spec.folder)
            if not (prompt.files or prompt.setup) or prompt.id in found or not place.is_dir():
                continue
            identity = self.own.of(prompt).identity
            if identity is not None:
                found[prompt.id] = identity_in(identity, spec.agent, around, place)
                self.bodies.update(skill_bodies(place, found[prompt.id]))
        return found

    @property
    def servers(self) -> list[str]:
        given = self.setting.agent.options.get("mcp") or {}
        return list(given.get("mcpServers", given))

    @property
    def entries(self) -> list[TrialEntry]:
        """All trials that are on disk."""
        return [entry for _, entry in entries_in(self.output)]

    def n_left(self, earlier: EarlierTrials | None) -> int:
        """Return how many trials have to be run, because no earlier run has them either."""
        done = {(prompt_id, entry.trial_num) for prompt_id, entry in entries_in(self.output)}
        left = [spec for spec in self.specs if (spec.prompt.id, spec.number) not in done]
        return len(left) - (earlier.count(left) if earlier is not None else 0)


def skill_bodies(place: Path, identity: Identity | None) -> dict[str, str]:
    """Hash the bodies of the skills that an agent reads in a folder, by the hashes of theirs."""
    skills = skills_in(identity) if identity else ()
    return {
        value: skill_body((place / Path(path).expanduser()).parent) for path, _, value in skills
    }


class ExperimentRun:
    """What a run of an experiment is made of, and what the journals of its arms say of it."""

    def __init__(
        self,
        experiment: Experiment,
        k: int,
        ready: Sequence[ReadyArm],
        rows: Sequence[PromptRow],
        settings: Callable[[Setting, Sequence[PromptRow]], RowSettings],
        folder: Path,
    ) -> None:
        self._began_s = time.monotonic()
        self._experiment, self._k = experiment, k
        self.folder = folder
        self.token = _token(folder)
        self.arms = [self._placed(arm, rows, settings) for arm in ready]
        self.by_key = {arm_key(arm.specs[0]): arm for arm in self.arms}
        self.specs = interleave([arm.specs for arm in self.arms], experiment.seed)
        """The trials of all arms in the order in which they run."""
        self.pieces = {path: piece for arm in ready for path, piece in arm.pieces.items()}
        self._n_before = sum(len(arm.entries) for arm in self.arms)
        self._earlier_s = _earlier_seconds(folder)

    def _placed(
        self,
        ready: ReadyArm,
        rows: Sequence[PromptRow],
        settings: Callable[[Setting, Sequence[PromptRow]], RowSettings],
    ) -> ReadyArm:
        """Say where an arm works and writes. Its agent must not learn from a path which it is."""
        output = self.folder / f"{ready.name}.jsonl"
        own, raw = _token(output), output.with_suffix(".raw")
        root = private_root()
        around = msgspec.structs.replace(
            ready.setting.surroundings,
            workspace_dir=str(root / own),
            workspace_template=str(root / f"template-{own}"),
            replace=True,
            raw_dir=str(raw.resolve()),
            raw_prefix=raw.name,
            ours=(str(self.folder.resolve()),),
        )
        shared = msgspec.structs.replace(ready.setting, surroundings=around, run_token=self.token)
        # Templates of rows are copied under the token of the arm, processes marked by the run's.
        mine = msgspec.structs.replace(shared, run_token=own)
        own_settings = settings(mine, ready.rows)
        names = folder_names(prompt.id for prompt, _ in rows)
        specs = [
            msgspec.structs.replace(spec, run_token=self.token)
            for spec in plan(rows, names, shared, self._k, own_settings.of)
        ]
        return msgspec.structs.replace(
            ready, setting=shared, own=own_settings, output=output, specs=specs
        )

    def rule(self, key: str) -> "UntilDecided":
        """Return the rule that compares one arm with the control and says when it is decided."""
        from assay.pipeline.until import UntilDecided, has_passed  # late: numpy
        from assay.stats.sequential import decide_effect

        def decide(seen: Any, extremes: Any, is_last: bool) -> "SequentialDecision":
            effect, n_judged = self._experiment.effect, len(self.arms) - 1
            return decide_effect(
                seen, effect=effect, is_last=is_last, extremes=extremes, n_judged=n_judged
            )

        def earlier() -> Iterator[tuple[int, str, int, bool | None]]:
            for number, arm in enumerate((self.arms[0], self.by_key[key])):
                for prompt_id, entry in entries_in(arm.output):
                    yield number, prompt_id, entry.trial_num, has_passed(entry)

        def arm_of(spec: TrialSpec) -> int:
            return int(arm_key(spec) == key)

        own = (next(iter(self.by_key)), key)
        specs = [spec for spec in self.specs if arm_key(spec) in own]
        return UntilDecided(decide, earlier=earlier, arm_of=arm_of, plan=specs, keep_order=True)

    def decided_earlier(self) -> Decisions:
        """Return what was decided before: a second look at the same trials must not change it."""
        if not self._experiment.is_sequential:
            return {}
        from assay.stats.sequential import SequentialDecision  # late: numpy

        kind = dict[str, SequentialDecision]
        try:
            known = msgspec.json.decode((self.folder / VERDICT).read_bytes())
            found = msgspec.convert(known.get("decisions", {}), kind)
        except (OSError, msgspec.MsgspecError):
            return {}
        same = known.get("effect") == self._experiment.effect
        return found if found and same and all(d.is_decided for d in found.values()) else {}

    def budget_left(self) -> float | None:
        """Return what the trials that are left may cost."""
        budget = self._experiment.budget
        if budget is None:
            return None
        costs = [_spent(entry) for entry in self._own_entries]
        unknown = costs.count(None) * self.cost_bound(budget)
        return max(0.0, budget - sum(filter(None, costs)) - unknown)

    def cost_bound(self, budget: float) -> float:
        """Return what a trial of unknown cost counts as: the dearest so far, or an even share."""
        known = [cost for cost in map(_spent, self._own_entries) if cost is not None]
        return max(known, default=budget / len(self.specs))

    @property
    def _own_entries(self) -> list[TrialEntry]:
        """The trials that this run made itself."""
        return [entry for arm in self.arms for entry in arm.entries if not _is_reused(entry)]

    def _cost(self) -> float | None:
        """What the trials of this run cost; None if no agent says it."""
        known = [cost for cost in map(_spent, self._own_entries) if cost]
        return sum(known) if known else None

    @contextmanager
    def templates(self) -> Iterator[None]:
        """Freeze the templates of all arms for as long as trials run."""
        with ExitStack() as stack:
            for arm in self.arms:
                copy = arm.setting.surroundings.workspace_template or ""
                stack.enter_context(frozen_template(str(arm.template), copy))
                stack.enter_context(arm.own.templates())
            yield

    def _facts(self) -> list[ArmFacts]:
        found = []
        for arm in self.arms:
            identity = arm.setting.identity
            assert identity is not None
            facts = ArmFacts(
                name=arm.name,
                arm=arm.arm,
                identity=identity,
                by_prompt={id_: one for id_, one in arm.identities.items() if one is not None},
                servers=frozenset(arm.servers),
                pieces=self.pieces,
                bodies=arm.bodies,
                after=arm.identities_after(),
            )
            found.append(gather(facts, entries_in(arm.output)))
        return found

    def proof(self) -> ArmsProof:
        """Say whether the arms differ in what they should, and in nothing else."""
        control, *others = self._facts()
        return prove(control, others)

    def failures(self) -> Iterator[str]:
        """Say of each arm if half of its trials or more failed, or could not be graded."""
        for arm in self.arms:
            entries = arm.entries
            failed = [f"{e.failure.cause.words}: {e.failure.message}" for e in entries if e.failure]
            graders = [next(iter(e.grader_failures.items())) for e in entries if e.grader_failures]
            failed += [f"the grader {name} failed: {why}" for name, why in graders]
            if failed and 2 * len(failed) >= len(entries):
                common = max(failed, key=failed.count)
                n = f"{len(failed)} of {counted_noun(len(entries), 'trial')}"
                yield f"{n} of {arm.name} failed ({common})"

    def effort(self, workers: int) -> Effort:
        """Return what the run has taken so far."""
        entries = [entry for arm in self.arms for entry in arm.entries]
        n_reused = sum(map(_is_reused, entries))
        seconds = time.monotonic() - self._began_s
        if earlier_s := self._earlier_s:
            seconds = earlier_s + seconds if len(entries) > self._n_before else earlier_s
        own_s = sum(e.duration for e in entries if not _is_reused(e)) / 1000
        return Effort(
            n_trials=len(entries),
            n_planned=len(self.specs),
            n_reused=n_reused,
            cost_usd=self._cost(),
            # A run that was interrupted took longer than this process.
            seconds=max(seconds, own_s / workers),
        )


def all_ungraded(entries: Sequence[TrialEntry]) -> tuple[str, str] | None:
    """Return a grader and its error if no trial could be graded."""
    errors = [e.grader_failures or {} for e in entries if not e.failure and e.pass_ is UNSET]
    named = [next(iter(each.items())) for each in errors if each]
    return named[0] if named and len(named) == len(entries) else None


def _spent(entry: TrialEntry) -> float | None:
    """What a trial cost in dollars; None if its agent does not say it."""
    usage = entry.usage or None
    return None if usage is None or usage.cost_usd is UNSET else usage.spent_usd


def _is_reused(entry: TrialEntry) -> bool:
    return REUSED in (entry.metadata or {})


def files_named_by(rows: Sequence[PromptRow], folder: Path) -> dict[str, str]:
    """Hash the user's files that prompts name."""
    found: list[Path] = []
    for prompt, _ in rows:
        found += [folder / prompt.workspace] if prompt.workspace else []
        for grader in prompt.graders:
            found += files_of_grader(grader, folder)
        if prompt.expect is not None and prompt.expect.command:
            found += files_of_grader(f"command:{prompt.expect.command}", folder)
    named = {str(path): hash_path(path) for path in sorted(set(found))}
    return {path: value for path, value in named.items() if value}


def run_id(
    experiment: Experiment, k: int, arms: Sequence[ReadyArm], rows: Sequence[PromptRow]
) -> str:
    """Name a run by what it measures: another budget continues it, another skill does not."""
    made_of = (
        experiment.control,
        k,
        experiment.seed,
        {arm.name: (arm.setting.identity, arm.identities) for arm in arms},
        [prompt for prompt, _ in rows],
    )
    return short_hash(msgspec.json.encode(made_of, order="deterministic"))[:8]


def run_folder(root: Path, run_id: str, *, fresh: bool) -> Path:
    """Return the folder of the run that goes on, or of a new one, among those of an experiment."""
    earlier = sorted(path for path in root.glob(f"*-{run_id}*") if path.is_dir())
    unfinished = [path for path in earlier if not (path / VERDICT).exists()]
    if unfinished:
        return unfinished[-1]
    # One that was invalid is left as it is: the cause may be mended, but its trials had it.
    spoiled = earlier and is_invalid(earlier[-1]) and any(earlier[-1].glob("*.jsonl*"))
    if earlier and not fresh and not spoiled:
        return earlier[-1]
    today = datetime.datetime.now(tz=datetime.UTC).strftime("%Y-%m-%d")
    again = f"-{len(earlier) + 1}" if earlier else ""
    return root / f"{today}-{run_id}{again}"


def _earlier_seconds(folder: Path) -> float:
    """How long it took to come to the verdict that is there; nothing if there is none."""
    try:
        known = msgspec.json.decode((folder / VERDICT).read_bytes())
        return float(known["effort"]["seconds"])
    except (OSError, msgspec.MsgspecError, KeyError, TypeError, ValueError):
        return 0.0


def _token(path: Path) -> str:
    # The same for the same run: one that goes on finds the agents that a killed one left behind.
    return hashlib.sha256(str(path.resolve()).encode()).hexdigest()[:16]
