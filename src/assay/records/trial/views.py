"""Partial views of a row: each names only the fields that a command needs.

msgspec skips a field that no struct names several times faster than it decodes it, so every reader
of rows decodes into the smallest view that serves it. gc=False keeps millions of small records out
of the garbage collector; none of them can be part of a cycle.
"""

from typing import TYPE_CHECKING, Annotated, Any, Literal

import msgspec

from assay.records.capture import (
    AGENT_CAUSES,
    AGENT_ONLY,
    CLAIMED,
    GATEWAY,
    SEEN,
    UNVERIFIED_CAUSES,
    AnyStep,
    Failure,
    Grade,
    SimulatedUser,
    WorkspaceChanges,
    cause_words,
)
from assay.records.trial import NUMBER, OF_TRIAL, Judgement, said_turns

_SHARE = msgspec.Meta(ge=0, le=1)
NO_JSON = msgspec.Raw()
"""Stands for a field that is not there."""


class RowForm:
    """Tells a row of trials from a capture: decided here, for every reader of both."""

    __slots__ = ()
    if TYPE_CHECKING:  # not for msgspec, which would decode them as anything
        trials: Any
        output: Any

    @property
    def is_trials(self) -> bool:
        """Whether the row holds all trials of a prompt, as `assay trials` writes them."""
        return self.trials not in (None, NO_JSON) and not self.output


class AnyIdView(msgspec.Struct, gc=False):
    """The id of a row that another program may have written."""

    id: Any = None


# Parts of a row.


class FailureView(msgspec.Struct, frozen=True, gc=False):
    """A failure that any program may have written: the cause may be none that we know."""

    cause: str = ""
    message: str = ""
    answered: bool = False
    reported_by: str = msgspec.field(name="reportedBy", default="")

    @property
    def measures_agent(self) -> bool:
        return self.cause in AGENT_CAUSES

    @property
    def counted_cause(self) -> str:
        """The cause, and whose word it is where that is not the usual."""
        if self.reported_by == GATEWAY:
            return f"{self.cause}{SEEN}"
        claimed = self.reported_by == AGENT_ONLY and self.cause not in UNVERIFIED_CAUSES
        return f"{self.cause}{CLAIMED}" if claimed else self.cause

    @property
    def is_unverified(self) -> bool:
        """Whether it is an excuse for which there is only the agent's word."""
        if self.reported_by:
            return self.reported_by == AGENT_ONLY
        return self.cause in UNVERIFIED_CAUSES


class PassView(msgspec.Struct, gc=False):
    pass_: bool = msgspec.field(name="pass")


class GradeView(PassView, gc=False):
    """A grade as it is shown; whole numbers stay whole."""

    score: int | float
    reasoning: str | None = None


class CheckedGradeView(GradeView, gc=False):
    """The same, refusing a score outside 0..1."""

    score: Annotated[int, _SHARE] | Annotated[float, _SHARE]


class PartialGradeView(msgspec.Struct, frozen=True, gc=False):
    """A grade in which either half may be null; leaving one out is an error."""

    pass_: bool | None = msgspec.field(name="pass")
    score: float | None


class VersionView(msgspec.Struct, gc=False):
    version: str | None = None


class AgentView(msgspec.Struct, frozen=True, gc=False):
    adapter: str = ""
    version: str | None = None
    model: str | None = None


class UsageView(msgspec.Struct, rename="camel", frozen=True, gc=False):
    input_tokens: float | None = None
    output_tokens: float | None = None
    cost_usd: float | None = None


class TimingView(msgspec.Struct, rename="camel", frozen=True, gc=False):
    """Clock readings in ms, none of them required."""

    start: float | None = None
    end: float | None = None
    total: float | None = None
    first_response: float | None = None


class StartEndView(msgspec.Struct, gc=False):
    start: int | float
    end: int | float


class TotalView(msgspec.Struct, gc=False):
    total: int | float


BOOKKEEPING = frozenset({
    "agent", "workspaceDir", "trajectoryRichness", "turnCount", "exitCode", "signal", "timedOut",
    "lingered", "limits", *OF_TRIAL,
})  # fmt: skip
"""What runs write into the metadata of a row; all the rest is the prompt's own."""


# Steps of a trajectory, from only counted to shown.


class CountedStep(msgspec.Struct, gc=False):
    """A step that is only counted."""


class NamedStep(msgspec.Struct, gc=False):
    type: Literal["thought", "message", "plan", "tool_call"]
    name: str = "unknown"


class StepView(msgspec.Struct, gc=False):
    """What a step was and, of a tool call, which tool and how it ended."""

    type: str = ""
    name: str = "unknown"
    status: str = ""


class _KindOfStep(msgspec.Struct, tag_field="type", gc=False):
    """Base of steps whose type must be a known one."""


class ThoughtText(_KindOfStep, tag="thought", gc=False):
    content: str = ""


class MessageText(_KindOfStep, tag="message", gc=False):
    content: str = ""


class PlanEntries(_KindOfStep, tag="plan", gc=False):
    entries: list[Any] = []


class ToolUse(_KindOfStep, tag="tool_call", gc=False):
    name: str = "unknown"
    status: str = "pending"
    input: Any = None
    duration: int | float | None = None


type ShownStep = ThoughtText | MessageText | PlanEntries | ToolUse


class MadeByView(msgspec.Struct, gc=False):
    agent: AgentView = AgentView()


# Rows for summarize and format.


class SetupView(msgspec.Struct, kw_only=True, rename="camel", gc=False):
    """What the agent was given, and what it had; in a row that any program may have written."""

    setup: msgspec.Raw = NO_JSON
    identity: msgspec.Raw = NO_JSON
    agent: msgspec.Raw = NO_JSON
    permission_denials: msgspec.Raw = NO_JSON


class JudgedRow(Judgement):
    """A row of capture whose score is a grade."""

    __slots__ = ()
    if TYPE_CHECKING:  # as in Judgement
        score: Any

    @property
    def verdict(self) -> bool | None:
        return self.score.pass_ if self.score else None


class SummaryView(SetupView, kw_only=True, rename="camel", gc=False):
    id: str
    number: int | None = msgspec.field(name=NUMBER, default=None)
    input: str | list[str]
    simulated_user: SimulatedUser | None = None
    output: str
    trajectory: list[NamedStep]
    timing: StartEndView
    score: CheckedGradeView | None = None
    failure: FailureView | None = None


class DetailView(SummaryView, kw_only=True, rename="camel", gc=False):
    trajectory: list[ShownStep]  # type: ignore[assignment]
    metadata: dict[str, Any] | None = None
    tool_errors: bool = False


class ResultView(msgspec.Struct, kw_only=True, rename="camel", gc=False):
    id: str
    number: int | None = msgspec.field(name=NUMBER, default=None)
    input: str | list[str]
    simulated_user: SimulatedUser | None = None
    output: str
    hint: str | None = None
    tool_errors: bool | None = None
    score: GradeView | None = None


class CsvView(ResultView, kw_only=True, rename="camel", gc=False):
    timing: TotalView


class MarkdownView(JudgedRow, ResultView, kw_only=True, rename="camel", gc=False):
    error: str | None = None
    errors: list[str] | None = None
    failure: FailureView | None = None


def asked(row: SummaryView | ResultView) -> str | list[str]:
    """Return all that was asked in a trial: by its prompt, and by a simulated user."""
    return row.input if row.simulated_user is None else [*said_turns(row.input, row.simulated_user)]


class HasScoreView(msgspec.Struct, gc=False):
    score: CountedStep | None = None


# Rows for grade and calibrate.


class GradingView(msgspec.Struct, rename="camel", gc=False):
    """The fields that grading looks at; those seldom needed stay undecoded."""

    input: str | list[str]
    output: str
    id: Any = ""
    simulated_user: SimulatedUser | None = None
    hint: str | None = None
    metadata: msgspec.Raw = NO_JSON
    cwd: str | None = None
    raw: Any = None
    reference: str | None = None
    failure: Failure | None = None
    trajectory: msgspec.Raw = NO_JSON
    errors: msgspec.Raw = NO_JSON
    score: msgspec.Raw = NO_JSON
    outcome: msgspec.Raw = NO_JSON
    grades: msgspec.Raw = NO_JSON
    grader_failures: msgspec.Raw = NO_JSON
    earlier_grades: msgspec.Raw = NO_JSON
    identity: msgspec.Raw = NO_JSON
    spec_hash: str | None = None
    number: Any = msgspec.field(name=NUMBER, default=None)


class VerdictView(JudgedRow, msgspec.Struct, kw_only=True, gc=False):
    id: str
    score: PassView | None = None
    failure: FailureView | None = None
    metadata: dict[str, Any] | None = None


class SampleView(msgspec.Struct, kw_only=True, rename="camel"):
    id: str
    number: int | None = msgspec.field(name=NUMBER, default=None)
    input: str | list[str]
    output: str
    score: Grade
    hint: str | None = None
    trajectory: list[AnyStep] = []
    grades: dict[str, Grade] | None = None


class JudgedView(JudgedRow, msgspec.Struct, kw_only=True, rename="camel", gc=False):
    id: str
    number: int | None = msgspec.field(name=NUMBER, default=None)
    output: str
    score: Grade | None = None
    grades: dict[str, Grade] | None = None
    failure: FailureView | None = None


class ExplainedRow(JudgedRow, msgspec.Struct, kw_only=True, rename="camel"):
    """What detectors look at; of fields that any program may have written, anything."""

    id: str
    number: int | None = msgspec.field(name=NUMBER, default=None)
    input: str | list[str] = ""
    output: str = ""
    trajectory: list[AnyStep] = []
    score: Grade | None = None
    failure: FailureView | None = None
    metadata: dict[str, Any] | None = None
    permission_denials: Any = None
    provider_retries: Any = None
    raw: Any = None
    cwd: Any = None
    changes: WorkspaceChanges | None = None
    honeypot: Any = None
    hint: Any = None
    reference: Any = None
    expected: Any = None
    answer: Any = None
    solution: Any = None
    target: Any = None
    expect: Any = None
    graders: Any = None
    files: Any = None

    @property
    def is_hacked(self) -> bool:
        """Whether it passed though that cannot be done honestly."""
        return self.honeypot is True and self.passed is True


class StepsView(msgspec.Struct, rename="camel", gc=False):
    """The steps of a row, not decoded before it is known that they are needed."""

    id: str
    number: int | None = msgspec.field(name=NUMBER, default=None)
    output: str = ""
    trajectory: msgspec.Raw = msgspec.Raw(b"[]")


# Rows that are read into columns. Most rows lack these parts: one object stands for all of them,
# so that a whole column is recognised as empty without a look at each.

NO_FAILURE, NO_USAGE, NO_AGENT = FailureView(), UsageView(), AgentView()
NO_GRADE = PartialGradeView(None, None)


class AttemptView(msgspec.Struct, rename="camel", kw_only=True, gc=False):
    """What a capture and an entry of trials have in common."""

    trajectory: list[CountedStep]
    tool_errors: bool = False
    grades: dict[str, VersionView] | None = None
    grader_failures: dict[str, str] | None = None
    failure: FailureView = NO_FAILURE
    usage: UsageView = NO_USAGE
    agent: AgentView = NO_AGENT
    permission_denials: Annotated[int, msgspec.Meta(ge=0, le=10**9)] = 0
    retried: tuple[FailureView, ...] = ()
    setup: msgspec.Raw = NO_JSON
    outcome: msgspec.Raw = NO_JSON


class CaptureView(AttemptView, rename="camel", kw_only=True, gc=False):
    """A row of results.jsonl, or of what grade wrote."""

    id: str
    input: msgspec.Raw
    output: msgspec.Raw
    timing: TimingView
    metadata: dict[str, msgspec.Raw] = {}
    errors: tuple[str, ...] = ()
    score: PartialGradeView = NO_GRADE
    # Of the prompt: what graders expect, and what it brings along. A struct has one base with
    # fields, so that they stand here and in TrialsView.
    hint: msgspec.Raw = NO_JSON
    expected: msgspec.Raw = NO_JSON
    answer: msgspec.Raw = NO_JSON
    reference: msgspec.Raw = NO_JSON
    solution: msgspec.Raw = NO_JSON
    target: msgspec.Raw = NO_JSON
    rubric: msgspec.Raw = NO_JSON
    expect: msgspec.Raw = NO_JSON
    graders: msgspec.Raw = NO_JSON
    files: msgspec.Raw = NO_JSON
    workspace: msgspec.Raw = NO_JSON
    identity: msgspec.Raw = NO_JSON


class EntryView(AttemptView, rename="camel", kw_only=True, gc=False):
    """One trial in a row of trials.jsonl."""

    duration: float
    pass_: bool | None = msgspec.field(name="pass", default=None)
    score: float | None = None
    first_response: float | None = None


class TrialsView(msgspec.Struct, rename="camel", kw_only=True, gc=False):
    """A row of trials.jsonl."""

    id: str
    input: msgspec.Raw
    k: float | None
    trials: list[EntryView]
    metadata: dict[str, msgspec.Raw] = {}
    pass_at_k: float | None = None
    pass_exp_k: float | None = None
    hint: msgspec.Raw = NO_JSON
    expected: msgspec.Raw = NO_JSON
    answer: msgspec.Raw = NO_JSON
    reference: msgspec.Raw = NO_JSON
    solution: msgspec.Raw = NO_JSON
    target: msgspec.Raw = NO_JSON
    rubric: msgspec.Raw = NO_JSON
    expect: msgspec.Raw = NO_JSON
    graders: msgspec.Raw = NO_JSON
    files: msgspec.Raw = NO_JSON
    workspace: msgspec.Raw = NO_JSON
    identity: msgspec.Raw = NO_JSON
    allocation: msgspec.Raw = NO_JSON


class CaptureStepsView(CaptureView, rename="camel", kw_only=True, gc=False):
    trajectory: list[StepView]  # type: ignore[assignment]


class EntryStepsView(EntryView, rename="camel", kw_only=True, gc=False):
    number: int = msgspec.field(name=NUMBER)
    trajectory: list[StepView]  # type: ignore[assignment]


class TrialsStepsView(TrialsView, rename="camel", kw_only=True, gc=False):
    trials: list[EntryStepsView]  # type: ignore[assignment]


class TrajectoryView(msgspec.Struct, gc=False):
    trajectory: list[StepView]


# Rows of both kinds, read for what commands need of single trials.


class JudgedEntry(Judgement, msgspec.Struct, kw_only=True, gc=False):
    """How an entry of a row of trials ended, in a file of ours."""

    failure: Failure | None = None
    pass_: bool | None = msgspec.field(name="pass", default=None)

    @property
    def verdict(self) -> bool | None:
        return self.pass_


class ShownTrial(Judgement, msgspec.Struct, rename="camel", gc=False):
    """A trial as a report tells of it: how it ended, its verdict and why.

    Only the failure has been checked when the row was indexed; the rest may be anything.
    """

    number: Any = msgspec.field(name=NUMBER, default=1)
    output: Any = None
    pass_: Any = msgspec.field(name="pass", default=None)
    score: Any = None
    reasoning: Any = None
    failure: FailureView | None = None
    grader_failures: Any = None
    duration: Any = None
    timing: Any = None

    @property
    def _grade(self) -> dict[str, Any]:
        if isinstance(self.score, dict):  # of a capture
            return self.score
        return {"pass": self.pass_, "reasoning": self.reasoning}

    @property
    def verdict(self) -> bool | None:
        passed = self._grade.get("pass")
        return passed if isinstance(passed, bool) else None

    @property
    def why(self) -> str:
        """What was said of the trial; empty if nothing was."""
        if self.failure:
            return f"{cause_words(self.failure.cause)}: {self.failure.message}"
        return self.grader_words

    @property
    def grader_words(self) -> str:
        """Why the graders decided as they did."""
        reasoning = self._grade.get("reasoning")
        return reasoning if isinstance(reasoning, str) else ""

    @property
    def seconds(self) -> float:
        took = self.timing.get("total") if isinstance(self.timing, dict) else self.duration
        return took / 1000 if isinstance(took, int | float) else 0.0


class ShownRow(RowForm, msgspec.Struct, gc=False):
    """The prompt of such trials."""

    id: str
    output: Any = None
    metadata: Any = None
    trials: list[ShownTrial] | None = None


_SHOWN_ROWS, _SHOWN = msgspec.json.Decoder(ShownRow), msgspec.json.Decoder(ShownTrial)


def shown_trials(line: bytes) -> tuple[ShownRow, list[ShownTrial]]:
    """Return the prompt of a row and its trials."""
    row = _SHOWN_ROWS.decode(line)
    return row, (row.trials or []) if row.is_trials else [_SHOWN.decode(line)]


class NumberView(msgspec.Struct, gc=False):
    number: int = msgspec.field(name=NUMBER)


class NumbersView(RowForm, msgspec.Struct, gc=False):
    """Which trials a row has."""

    id: str
    input: str | list[str]
    output: msgspec.Raw = NO_JSON
    trials: list[NumberView] | None = None

    @property
    def numbers(self) -> list[int]:
        return [entry.number for entry in self.trials or ()] if self.is_trials else [1]


class RawView(msgspec.Struct, gc=False):
    """Where the raw streams of an attempt are."""

    raw: str = ""


class RawTrialView(RowForm, RawView, gc=False):
    id: str = ""
    number: int = msgspec.field(name=NUMBER, default=1)
    output: msgspec.Raw = NO_JSON
    retried: list[RawView] = []
    trials: list["RawTrialView"] | None = None

    @property
    def entries(self) -> list["RawTrialView"]:
        """The trials of a row; a capture is its own and only one."""
        return (self.trials or []) if self.is_trials else [self]
