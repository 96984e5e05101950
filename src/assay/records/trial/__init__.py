"""The one trial in memory: what was asked, done and found, and what it says about the agent.

It is written to disk in two forms, which the reference harness fixes: as a row of its own
(CaptureRow) and as an entry in the row of its prompt (TrialEntry in a TrialResult). The classes of
these forms say what stands on disk; everything else works with Trial. `files.py` reads trials out
of files, and `views.py` has the parts of rows that single commands read. Only this package knows
how the forms differ.
"""

from collections.abc import Iterable, Iterator, Mapping
from copy import copy
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import UNSET, UnsetType

from assay.records.capture import (
    AgentInfo,
    AnyStep,
    EarlierGrade,
    Events,
    Failure,
    Grade,
    Identity,
    Replay,
    SimulatedUser,
    Timing,
    Usage,
    Wire,
    WorkspaceChanges,
)
from assay.records.text import shortened

NUMBER = "trialNum"
"""On disk: which trial of its prompt it is, from 1."""
ENDED_EARLY = "endedEarly"
"""In the metadata of a trial that was ended because a step had settled it: it is measured."""
REUSED = "reusedFrom"
"""In the metadata of a trial that an earlier run made: the folder of that run."""
ORDER_SEED = "orderSeed"
"""Of a trial of `--until decided`: what the order of the prompts was drawn by."""
_SHOWN_OUTPUT = 60
OF_TRIAL = ("evidence", ENDED_EARLY, REUSED, ORDER_SEED)
"""What metadata says about one trial; the rest is about its prompt."""


class Judgement:
    """What a verdict and a failure together say about a trial: decided here, for every command."""

    __slots__ = ()
    if TYPE_CHECKING:  # not for msgspec, which would decode a failure as anything
        verdict: Any
        """Whether the graders passed it; None if there is no verdict."""
        failure: Any

    @property
    def passed(self) -> bool | None:
        """Whether it passed, as a comparison counts it; None if it is not measured.

        A trial is measured by its verdict or, without one, by a failure of the agent's own that
        left no answer: that is no pass. A trial that was not graded otherwise says nothing.
        """
        verdict: bool | None = self.verdict
        if verdict is None and self.failure and not self.failure.answered:
            return False if self.failure.measures_agent else None
        return verdict

    @property
    def is_measured(self) -> bool:
        """Whether it says anything about the agent."""
        return self.passed is not None

    @property
    def needs_rerun(self) -> bool:
        """Whether it has to be run again to learn anything: the agent is not to blame for its end.

        One that came to its end and is not graded yet is graded instead.
        """
        return bool(self.failure) and not self.failure.measures_agent

    @property
    def is_ungraded(self) -> bool:
        """Whether graders can still judge it."""
        return self.verdict is None and not self.needs_rerun

    @property
    def is_failed(self) -> bool:
        """Whether it counts against the agent."""
        return not self.needs_rerun and (bool(self.failure) or self.verdict is False)

    @property
    def is_finished(self) -> bool:
        """Whether the agent came to an end by itself."""
        return not self.failure or self.failure.answered


class Verdict(msgspec.Struct, kw_only=True):
    """What all graders together decided. No score means not measured, never zero."""

    score: Grade | None = None
    grades: dict[str, Grade] = {}
    broken: dict[str, str] = {}
    """Graders that failed, and why."""

    @property
    def spent_usd(self) -> float:
        """What judges have spent on it, as far as it is known."""
        return graders_usd(self.grades)


def said_turns(given: str | list[str], user: SimulatedUser | None) -> tuple[str, ...]:
    """Return all messages to the agent: those of the prompt, and those of its simulated user."""
    own = (given,) if isinstance(given, str) else tuple(given)
    return (*own, *user.said) if user is not None else own


def graders_usd(grades: Mapping[str, Grade] | UnsetType) -> float:
    """Return what graders, such as judges, have spent, as far as it is known."""
    return sum(grade.usage.spent_usd for grade in (grades or {}).values() if grade.usage)


class CaptureRow(msgspec.Struct, kw_only=True, rename="camel"):
    """The journal line of one trial; the seed's CaptureResult with our fields behind it."""

    id: str
    input: str | list[str]
    output: str
    hint: str | UnsetType = UNSET
    trajectory: list[AnyStep]
    metadata: dict[str, Any]
    timing: Timing
    tool_errors: bool = False
    errors: list[str] | UnsetType = UNSET
    grade: Grade | UnsetType = msgspec.field(name="score", default=UNSET)
    outcome: dict[str, Any] | UnsetType = UNSET
    grades: dict[str, Grade] | UnsetType = UNSET
    """The grade of each grader, by its name; grade is all of them together."""
    earlier_grades: list[EarlierGrade] | UnsetType = UNSET
    """What graders said that do not count any more: the row was graded again. Oldest first."""
    grader_failures: dict[str, str] | UnsetType = UNSET
    """Graders that broke on this trial, and how; the trial is not graded then."""
    usage: Usage | UnsetType = UNSET
    failure: Failure | UnsetType = UNSET
    agent: AgentInfo | UnsetType = UNSET
    session_id: str | UnsetType = UNSET
    simulated_user: SimulatedUser | UnsetType = UNSET
    """Who answered the agent after the turns of the prompt."""
    replay: Replay | UnsetType = UNSET
    """It was answered from a tape, and is no new measurement of the agent."""
    wire: Wire | UnsetType = UNSET
    """What went to the agent's models and came back, where a proxy saw it."""
    events: Events | UnsetType = UNSET
    turn_usage: list[Usage] | UnsetType = UNSET
    setup: dict[str, Any] | UnsetType = UNSET
    """What the agent really had: tools, MCP servers, skills, permission mode."""
    permission_denials: int | UnsetType = UNSET
    provider_retries: int | UnsetType = UNSET
    retried: list[Failure] | UnsetType = UNSET
    """Earlier attempts at this trial that did not measure the agent."""
    stderr: str | UnsetType = UNSET
    """The end of the agent's standard error; all of it is in raw."""
    raw: str | UnsetType = UNSET
    """Where the raw streams are, relative to the folder of this file: SEGMENT@OFFSET, or a folder
    (see `assay raw`)."""
    cwd: str | UnsetType = UNSET
    """The folder that the agent worked in; graders look at it, also later."""
    changes: WorkspaceChanges | UnsetType = UNSET
    """What the agent changed there; known if a grader asked for it (`git`)."""
    spec_hash: str | UnsetType = UNSET
    """Fingerprint of prompt and identity; --resume refuses a file made from others."""
    identity: Identity | UnsetType = UNSET
    warnings: list[str] | UnsetType = UNSET
    """What a reader should know before trusting this trial, such as a grader file that changed."""


class Build(msgspec.Struct, kw_only=True, frozen=True):
    """The run that a trial of a pooled baseline comes from."""

    id: str
    """Hash of its trials: the same build is never added twice."""
    label: str
    date: str
    """When its file was last written, as 2026-11-16T05:40:00Z."""


class TrialEntry(msgspec.Struct, kw_only=True, rename="camel"):
    """One trial. Without pass it is not measured, which is not the same as failed."""

    # Many fields are those of CaptureRow. They stand here again because the order of fields on disk
    # is fixed, and a struct writes the fields of its base first.

    number: int = msgspec.field(name=NUMBER)
    """From 1."""
    output: str
    trajectory: list[AnyStep]
    duration: float
    pass_: bool | UnsetType = msgspec.field(default=UNSET, name="pass")
    score: float | UnsetType = UNSET
    reasoning: str | UnsetType = UNSET
    outcome: dict[str, Any] | UnsetType = UNSET
    tool_errors: bool = False
    grades: dict[str, Grade] | UnsetType = UNSET
    earlier_grades: list[EarlierGrade] | UnsetType = UNSET
    grader_failures: dict[str, str] | UnsetType = UNSET
    usage: Usage | UnsetType = UNSET
    failure: Failure | UnsetType = UNSET
    agent: AgentInfo | UnsetType = UNSET
    session_id: str | UnsetType = UNSET
    first_response: float | UnsetType = UNSET
    simulated_user: SimulatedUser | UnsetType = UNSET
    replay: Replay | UnsetType = UNSET
    wire: Wire | UnsetType = UNSET
    events: Events | UnsetType = UNSET
    turn_usage: list[Usage] | UnsetType = UNSET
    setup: dict[str, Any] | UnsetType = UNSET
    permission_denials: int | UnsetType = UNSET
    provider_retries: int | UnsetType = UNSET
    retried: list[Failure] | UnsetType = UNSET
    stderr: str | UnsetType = UNSET
    raw: str | UnsetType = UNSET
    workspace_dir: str | UnsetType = UNSET
    metadata: dict[str, Any] | UnsetType = UNSET
    """Of this trial alone: the evidence of its world."""
    cwd: str | UnsetType = UNSET
    changes: WorkspaceChanges | UnsetType = UNSET
    warnings: list[str] | UnsetType = UNSET
    build: Build | UnsetType = UNSET
    """In a pooled baseline (`assay baseline`): the run that this trial comes from."""


class PassAtK(msgspec.Struct, kw_only=True, rename="camel", frozen=True):
    """Unbiased chances for one k <= nMeasured, with 95 % intervals."""

    k: int
    pass_at_k: float
    """At least one of k trials passes."""
    pass_at_k_interval: tuple[float, float]
    pass_exp_k: float
    """All of k trials pass."""
    pass_exp_k_interval: tuple[float, float]


class PassNumbers(msgspec.Struct, kw_only=True, rename="camel"):
    """What a grading makes of the verdicts on all trials of a prompt: fields of a TrialResult."""

    pass_rate: float | UnsetType = UNSET
    pass_at_k: float | UnsetType = UNSET
    pass_exp_k: float | UnsetType = UNSET
    n_measured: int | UnsetType = UNSET
    per_k: list[PassAtK] | UnsetType = UNSET


PASS_FIELDS = frozenset(field.encode_name for field in msgspec.structs.fields(PassNumbers))
"""Their names on disk."""


class Allocation(msgspec.Struct, kw_only=True, rename="camel", frozen=True):
    """Why a prompt has this number of trials (`assay trials --allocate`)."""

    trials: int
    """Planned for this prompt."""
    mean: int
    """Trials of a prompt on average."""
    spread: float
    """Standard deviation of one trial that the baseline lets expect."""


class TrialResult(msgspec.Struct, kw_only=True, rename="camel"):
    """All trials of one prompt; with a grader, how often they passed."""

    id: str
    input: str | list[str]
    hint: str | UnsetType = UNSET
    k: int
    trials: list[TrialEntry]
    metadata: dict[str, Any]
    pass_rate: float | UnsetType = UNSET
    """Share of the measured trials that passed; absent when none was measured."""
    pass_at_k: float | UnsetType = UNSET
    """The seed's plug-in formula; see perK for the unbiased numbers."""
    pass_exp_k: float | UnsetType = UNSET
    n_measured: int | UnsetType = UNSET
    per_k: list[PassAtK] | UnsetType = UNSET
    failures: dict[str, int] | UnsetType = UNSET
    """How many trials had which cause."""
    spec_hash: str | UnsetType = UNSET
    identity: Identity | UnsetType = UNSET
    allocation: Allocation | UnsetType = UNSET
    """Trials were spent where they are worth most; every prompt has at least one."""


class FinishedTrial(msgspec.Struct, kw_only=True, rename="camel"):
    """A line of the journal beside trials.jsonl: finished, while its prompt is not complete yet."""

    id: str
    spec_hash: str
    identity: Identity | UnsetType = UNSET
    entry: TrialEntry


class _PassOnly(Grade, kw_only=True, frozen=True, rename="camel"):
    """A verdict without a score, as the reference harness writes it for an error."""


class Trial(Judgement, CaptureRow, kw_only=True, rename="camel", dict=True):
    """One trial. Encoded as it is, it is a row of capture.

    What it does not have is UNSET, which stands for "not in the row". A trial that a program reads
    (`assay.read`, `assay.run`) has None there, and an empty list or dict of what may be several.
    """

    entry_number: int | UnsetType = msgspec.field(name=NUMBER, default=UNSET)
    """Which trial of its prompt, from 1; absent in a row of capture, which has one."""
    trial_metadata: dict[str, Any] | UnsetType = UNSET
    """What the entry of a row of trials has as metadata of its own."""
    build: Build | UnsetType = UNSET

    def __copy__(self) -> "Trial":
        made: Trial = msgspec.structs.replace(self)
        made.__dict__.update(self.__dict__)
        return made

    def __reduce__(self) -> tuple[Any, ...]:
        return (*super().__reduce__()[:2], self.__dict__)

    def __repr__(self) -> str:
        """Return a line for notebooks and test reports; to_row() has everything."""
        unknown = "not graded" if self.is_ungraded else "not measured"
        verdict = {True: "passed", False: "failed", None: unknown}[self.passed]
        ended = f" ({self.failure.cause})" if self.failure else ""
        said = shortened(self.output, _SHOWN_OUTPUT)
        return f"<Trial {self.number} of {self.id}: {verdict}{ended}, {said!r}>"

    @property
    def extra(self) -> dict[str, Any]:
        """Fields of the row that it was read from which Assay does not know, such as a user's."""
        found: dict[str, Any] = self.__dict__.get("extra", {})
        return found

    @property
    def number(self) -> int:
        """Which trial of its prompt, from 1."""
        return self.entry_number or 1

    @property
    def turns(self) -> tuple[str, ...]:
        """What the agent was asked, one text for each turn, by the prompt and then by its user."""
        return said_turns(self.input, self.simulated_user or None)

    @property
    def steps(self) -> list[AnyStep]:
        return self.trajectory

    @property
    def verdict(self) -> bool | None:
        return self.grade.pass_ if self.grade else None

    @property
    def score(self) -> float | None:
        """From 0 to 1; None without a grade, or if it only says pass or fail."""
        grade = self.grade
        return None if not grade or isinstance(grade, _PassOnly) else grade.score

    @property
    def reasoning(self) -> str | None:
        """Why the graders decided as they did, in their words."""
        return (self.grade.reasoning or None) if self.grade else None

    @property
    def duration_ms(self) -> float:
        return self.timing.total

    @property
    def first_response_ms(self) -> float | None:
        first = self.timing.first_response
        return None if first is UNSET else first

    @property
    def cost_usd(self) -> float | None:
        """What it cost; None if it is not known, 0 if the agent never got that far."""
        usage = self.usage or None
        if usage is not None and isinstance(usage.cost_usd, float | int):
            return usage.spent_usd
        return 0.0 if self.needs_rerun else None

    @property
    def user_usd(self) -> float:
        """What its simulated user cost, as far as it is known."""
        usage = self.simulated_user.usage if self.simulated_user else UNSET
        return usage.spent_usd if usage else 0.0

    @property
    def folder(self) -> str | None:
        """Where the agent worked; rows of earlier versions have it in their metadata."""
        return self.cwd or self.metadata.get("workspaceDir")

    def with_verdict(self, verdict: Verdict, warnings: Iterable[str] = ()) -> "Trial":
        """Return it as these graders judge it; nothing but earlier_grades is left of others."""
        outdated = (self.grader_failures or {}).values()
        errors = [error for error in self.errors or [] if error not in outdated]
        before = [
            *(self.earlier_grades or []),
            *(earlier_grade(name, grade) for name, grade in (self.grades or {}).items()),
        ]
        return msgspec.structs.replace(
            self,
            grade=verdict.score or UNSET,
            earlier_grades=replaced_grades(before, verdict.grades) or UNSET,
            errors=[*errors, *verdict.broken.values()] or UNSET,
            warnings=[*(self.warnings or []), *warnings] or UNSET,
            **verdict_fields(verdict),
        )

    def with_note(self, name: str, value: Any) -> "Trial":
        """Return it with more metadata of its own."""
        own = {**(self.trial_metadata or {}), name: value}
        return msgspec.structs.replace(
            self, metadata={**self.metadata, name: value}, trial_metadata=own
        )

    def to_row(self) -> dict[str, Any]:
        """Return the fields of its row as plain values; what is unknown is not among them."""
        is_read = all(getattr(self, name) is not UNSET for name in self.__struct_fields__)
        trial = for_disk(self) if is_read else self
        row: dict[str, Any] = msgspec.to_builtins(trial)
        row.pop("trialMetadata", None)
        return {**row, **self.extra}


def for_reading(trial: Trial, extra: Mapping[str, Any] = MappingProxyType({})) -> Trial:
    """Return a trial as a program reads it, with the unknown fields of its row.

    for_disk is the way back.
    """
    read: Trial = _exchanged(trial, UNSET, None)
    read.__dict__["extra"] = dict(extra)
    for name, kind in _SEVERAL.items():
        if getattr(read, name) is None:
            setattr(read, name, kind())
    read.usage = read.usage or _exchanged(Usage(), UNSET, None)
    return read


def for_disk(trial: Trial) -> Trial:
    """Return a trial that a program has read as it is written."""
    made: Trial = _exchanged(trial, None, UNSET)
    for name in _SEVERAL:
        setattr(made, name, getattr(made, name) or UNSET)
    made.usage = UNSET if made.usage == Usage() else made.usage
    return made


_SEVERAL: dict[str, type] = {
    **dict.fromkeys(("grades", "grader_failures", "setup", "trial_metadata"), dict),
    **dict.fromkeys(("errors", "earlier_grades", "turn_usage", "retried", "warnings"), list),
}


def _exchanged(value: Any, old: Any, new: Any) -> Any:
    """Copy a record with another word for what it does not have; plain values stay as they are."""
    if isinstance(value, msgspec.Struct):
        made = copy(value)
        for name in value.__struct_fields__:
            field = getattr(value, name)
            if field is old:
                msgspec.structs.force_setattr(made, name, new)
            elif isinstance(field, msgspec.Struct | list | dict):
                msgspec.structs.force_setattr(made, name, _exchanged(field, old, new))
        return made
    if isinstance(value, list) and value and isinstance(value[0], msgspec.Struct):
        return [_exchanged(one, old, new) for one in value]
    if isinstance(value, dict):
        return {key: _exchanged(one, old, new) for key, one in value.items()}
    return value


def verdict_fields(verdict: Verdict) -> dict[str, Any]:
    """Return what a verdict puts into either form of a trial, beside the grade itself."""
    return {
        "outcome": verdict.score.outcome if verdict.score else UNSET,
        "grades": verdict.grades or UNSET,
        "grader_failures": verdict.broken or UNSET,
    }


def earlier_grade(name: str, grade: Grade) -> EarlierGrade:
    """Return a grade as one that does not count any more."""
    return EarlierGrade(grader=name, **msgspec.structs.asdict(grade))


def replaced_grades(
    before: Iterable[EarlierGrade], grades: Mapping[str, Grade]
) -> list[EarlierGrade]:
    """Of each version of a grader the last grade, and none of a version that has judged now."""
    now = {(name, grade.version) for name, grade in grades.items()}
    last = {(grade.grader, grade.version): grade for grade in before}
    return [grade for key, grade in last.items() if key not in now]


_IN_BOTH = tuple(
    name
    for name in TrialEntry.__struct_fields__
    if name in Trial.__struct_fields__ and name != "metadata"
)


def to_entry(trial: Trial, number: int | None = None) -> TrialEntry:
    """Return a trial as it stands in the row of its prompt, with its number or this one."""
    own, grade = trial.trial_metadata, trial.grade or None
    if own is UNSET:
        own = {name: trial.metadata[name] for name in OF_TRIAL if trial.metadata.get(name)}
    return TrialEntry(
        number=number or trial.number,
        duration=trial.timing.total,
        pass_=grade.pass_ if grade else UNSET,
        score=UNSET if trial.score is None else trial.score,
        reasoning=grade.reasoning if grade else UNSET,
        first_response=trial.timing.first_response,
        workspace_dir=trial.metadata.get("workspaceDir", UNSET),
        metadata=own or UNSET,
        **{name: getattr(trial, name) for name in _IN_BOTH},
    )


def of_entry(entry: TrialEntry, row: "TrialResult | FinishedTrial | CaptureRow") -> Trial:
    """Return the trial that an entry stands for; row has what it shares with others."""
    about = None if isinstance(row, FinishedTrial) else row
    metadata = {k: v for k, v in (about.metadata if about else {}).items() if k != "workspaceDir"}
    metadata |= entry.metadata or {}
    if entry.workspace_dir is not UNSET:
        metadata["workspaceDir"] = entry.workspace_dir
    took = entry.duration
    return Trial(
        id=row.id,
        input=about.input if about else "",
        hint=about.hint if about else UNSET,
        metadata=metadata,
        timing=Timing(start=0, end=took, first_response=entry.first_response, total=took),
        grade=entry_grade(entry.pass_, entry.score, entry.reasoning, entry.outcome),
        spec_hash=row.spec_hash or "",
        identity=row.identity,
        entry_number=entry.number,
        trial_metadata=entry.metadata,
        **{name: getattr(entry, name) for name in _IN_BOTH},
    )


def entry_grade(
    passed: bool | UnsetType | None,
    score: float | UnsetType | None,
    reasoning: str | UnsetType | None,
    outcome: dict[str, Any] | UnsetType = UNSET,
) -> Grade | UnsetType:
    """Return the grade that an entry of a row of trials stands for; without a verdict, none."""
    if passed is None or passed is UNSET:
        return UNSET
    kind: type[Grade] = Grade
    if score is None or score is UNSET:
        kind, score = _PassOnly, float(passed)
    return kind(
        pass_=passed,
        score=score,
        reasoning=UNSET if reasoning is None else reasoning,
        outcome=outcome,
    )


_ROW_OF_TRIALS = msgspec.json.Decoder(TrialResult)
_FINISHED = msgspec.json.Decoder(FinishedTrial)


def decode_trials(line: bytes) -> Iterator[Trial]:
    """Yield the trials of a row of trials; raises UNREADABLE."""
    row = _ROW_OF_TRIALS.decode(line)
    return (of_entry(entry, row) for entry in row.trials)


def encode_finished(trial: Trial) -> bytes:
    """Return the line of the journal beside trials.jsonl that keeps a finished trial."""
    done = FinishedTrial(
        id=trial.id,
        spec_hash=trial.spec_hash or "",
        identity=trial.identity,
        entry=to_entry(trial),
    )
    return msgspec.json.encode(done)


def decode_finished(line: bytes) -> Trial:
    """Return the trial of such a line; raises UNREADABLE."""
    done = _FINISHED.decode(line)
    return of_entry(done.entry, done)
