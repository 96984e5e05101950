"""What the commands over results write: summary, balance, calibration and validation rows."""

from typing import Any, Literal

import msgspec
from msgspec import UNSET, UnsetType

from assay.records.capture import AnyStep, Grade
from assay.records.trial import NUMBER


class Category(msgspec.Struct, kw_only=True, frozen=True):
    """One value of the metadata key, and how many prompts bear it."""

    name: str
    count: int
    percentage: int


class BalanceAnalysis(msgspec.Struct, kw_only=True, frozen=True, rename="camel"):
    """Categories from the largest to the smallest, and what to do about the gaps."""

    total_cases: int
    categories: list[Category]
    underrepresented: list[str]
    suggestions: list[str]


class CalibrationSample(msgspec.Struct, kw_only=True, rename="camel"):
    """One failure to be looked at by a person."""

    id: str
    number: int | UnsetType = msgspec.field(name=NUMBER, default=UNSET)
    input: str | list[str]
    output: str
    hint: str | UnsetType = UNSET
    original_score: Grade
    rescored_result: Grade | UnsetType = UNSET
    grader_failure: str | UnsetType = UNSET
    """How the second grader broke on it."""
    trajectory_snippet: list[AnyStep]


class SampleReport(msgspec.Struct, kw_only=True, rename="camel"):
    """Failures drawn from a result file."""

    seed: int
    failures: int
    """How many there are to draw from."""
    undecided: int = 0
    """Trials that failed before they were graded; they show nothing about the grader."""
    samples: list[CalibrationSample]


class LabelRow(msgspec.Struct, kw_only=True, rename="camel"):
    """One line of a labelling sheet: what a person needs to judge, and room for the verdict."""

    id: str
    number: int | UnsetType = msgspec.field(name=NUMBER, default=UNSET)
    """Which trial of the prompt, in results of `assay trials`."""
    input: str | list[str] | UnsetType = UNSET
    output: str | UnsetType = UNSET
    """Where it is there, the label counts only for this very output."""
    hint: str | None = None
    label: Any = None
    """true or "pass", false or "fail", "ambiguous"; null is not labelled yet."""
    grader_version: str | None = None
    """Of the grader whose verdicts the sheet was drawn from."""


class Estimate(msgspec.Struct, kw_only=True, rename="camel", frozen=True):
    """A number with its interval; None where the labels cannot tell."""

    value: float | None
    interval: tuple[float, float] | None
    count: int | UnsetType = UNSET
    total: int | UnsetType = UNSET
    method: str | UnsetType = UNSET
    """How the interval was made, where there are several ways."""


class Disagreement(msgspec.Struct, kw_only=True, rename="camel", frozen=True):
    """A row on which grader and person differ."""

    id: str
    label: bool
    grader: bool
    score: float
    reasoning: str | UnsetType = UNSET


class Stale(msgspec.Struct, kw_only=True, rename="camel", frozen=True):
    """Labels that were drawn for another version of the grader."""

    labels: int
    label_versions: list[str]
    grader_versions: list[str]


class LabelReport(msgspec.Struct, kw_only=True, rename="camel"):
    """A grader against people; their labels count as the truth."""

    labels: int
    compared: int
    unlabelled: int = 0
    ambiguous: int = 0
    not_found: list[str] = []
    """Labelled ids that the results do not hold."""
    not_graded: list[str] = []
    other_output: list[str] = []
    """Labelled ids whose output is not the one that was labelled."""
    grader_versions: list[str] = []
    stale: Stale | UnsetType = UNSET
    unversioned: int = 0
    """Labels that name no grader version, so that nobody can tell whether they are stale."""
    agreement: Estimate
    kappa: Estimate
    sensitivity: Estimate
    """Of what people pass, the share that the grader passes."""
    specificity: Estimate
    """Of what people fail, the share that the grader fails."""
    observed_pass_rate: Estimate
    corrected_pass_rate: Estimate
    """What people would have passed of all graded rows (Rogan-Gladen)."""
    disagreements: list[Disagreement]
    grader_failures: dict[str, str] | UnsetType = UNSET
    warnings: list[str]
    """What keeps these numbers from being trusted."""


class AgentStatus(msgspec.Struct, kw_only=True, rename="camel", frozen=True):
    """A known agent: whether it is installed, and what is captured of it."""

    name: str
    program: str
    install: str
    login: str
    keys: list[str]
    tested: list[str]
    thoughts: str
    tool_output: str
    tokens: str
    cost: str
    acp: list[str]
    """Arguments by which it speaks the Agent Client Protocol; none if it has an adapter."""
    tried: str
    """What was tried with the versions in tested."""
    installed: bool
    path: str | None
    version: str | None
    notes: list[str]


class DoctorFinding(msgspec.Struct, kw_only=True, frozen=True):
    """What doctor found out about one agent, or about one thing of this machine."""

    agent: str
    ok: bool
    words: str
    advice: list[str]


class ProgressEvent(msgspec.Struct, kw_only=True, rename="camel", frozen=True):
    """A line of capture, trials, run and arc run with --json, on stderr."""

    event: str
    t: float
    """Seconds since the start."""
    id: str | UnsetType = UNSET
    trial: int | UnsetType = UNSET
    type: str | UnsetType = UNSET
    """Of a step."""
    name: str | UnsetType = UNSET
    """Of a tool, or the type of another step."""
    text: str | UnsetType = UNSET
    """Of a warning."""
    ms: float | UnsetType = UNSET
    pass_: bool | UnsetType | None = msgspec.field(name="pass", default=UNSET)
    cause: str | UnsetType | None = UNSET
    done: int | UnsetType = UNSET
    total: int | UnsetType = UNSET
    passed: int | UnsetType = UNSET
    measured: int | UnsetType = UNSET
    tokens: int | UnsetType = UNSET
    cost_usd: float | UnsetType = UNSET
    causes: dict[str, int] | UnsetType = UNSET


class ExportSummary(msgspec.Struct, kw_only=True, rename="camel"):
    """What an export took, and what it left out for which reason."""

    files: list[str]
    trials: int = 0
    """All that the files hold."""
    written: int = 0
    """Examples or rows."""
    left_out: dict[str, int] = {}
    masked: int = 0
    """Examples in which a secret of the environment was covered."""
    thoughts_dropped: int = 0
    sub_agent_steps: int = 0
    """Steps of sub-agents, which are no part of the conversation."""
    not_passed: int = 0
    not_graded: int = 0
    """Of the trials that were taken."""
    output: str | UnsetType = UNSET

    def add(self, more: "ExportSummary") -> None:
        """Add what a part of the files gave."""
        for name in _COUNTS:
            setattr(self, name, getattr(self, name) + getattr(more, name))
        for why, n in more.left_out.items():
            self.left_out[why] = self.left_out.get(why, 0) + n


_COUNTS = (
    "trials",
    "written",
    "masked",
    "thoughts_dropped",
    "sub_agent_steps",
    "not_passed",
    "not_graded",
)


class CalledFunction(msgspec.Struct, kw_only=True):
    """Which tool was called, and with what."""

    name: str
    arguments: dict[str, Any]


class ChatToolCall(msgspec.Struct, kw_only=True):
    """A tool call of a chat message."""

    id: str
    type: Literal["function"]
    function: CalledFunction


class ChatMessage(msgspec.Struct, kw_only=True):
    """One message of a conversation, as chat templates read it."""

    role: Literal["user", "assistant", "tool"]
    content: str
    reasoning_content: str | UnsetType = UNSET
    tool_calls: list[ChatToolCall] | UnsetType = UNSET
    tool_call_id: str | UnsetType = UNSET
    name: str | UnsetType = UNSET


class FunctionSchema(msgspec.Struct, kw_only=True):
    """A tool, with the JSON Schema of its arguments."""

    name: str
    description: str
    parameters: dict[str, Any]


class ToolSchema(msgspec.Struct, kw_only=True):
    """A tool that the agent had."""

    type: Literal["function"]
    function: FunctionSchema


class SftExample(msgspec.Struct, kw_only=True):
    """A conversation, as export sft writes it."""

    messages: list[ChatMessage]
    tools: list[ToolSchema] | UnsetType = UNSET
    id: str
    trial: int


class DpoExample(msgspec.Struct, kw_only=True):
    """Two answers to one prompt, as export dpo writes them."""

    prompt: list[ChatMessage]
    chosen: list[ChatMessage]
    rejected: list[ChatMessage]
    tools: list[ToolSchema] | UnsetType = UNSET
    id: str
    chosen_trial: int
    rejected_trial: int


class KtoExample(msgspec.Struct, kw_only=True):
    """An answer with its verdict, as export kto writes it."""

    prompt: list[ChatMessage]
    completion: list[ChatMessage]
    label: bool
    tools: list[ToolSchema] | UnsetType = UNSET
    id: str
    trial: int


class ShareGptMessage(msgspec.Struct, kw_only=True):
    """One message of a conversation, in the form of ShareGPT."""

    speaker: Literal["human", "gpt", "function_call", "observation"] = msgspec.field(name="from")
    value: str


class ShareGptExample(msgspec.Struct, kw_only=True):
    """A conversation, as export sharegpt writes it."""

    conversations: list[ShareGptMessage]
    tools: str | UnsetType = UNSET
    """JSON."""
    id: str
    trial: int


class AtifStep(msgspec.Struct, kw_only=True):
    """What was asked, said or done, with what came of it."""

    step_id: int
    source: Literal["user", "agent"]
    message: str
    reasoning_content: str | UnsetType = UNSET
    tool_calls: list[dict[str, Any]] | UnsetType = UNSET
    observation: dict[str, Any] | UnsetType = UNSET


class AtifExample(msgspec.Struct, kw_only=True):
    """A trajectory of the Agent Trajectory Interchange Format, as export atif writes it."""

    schema_version: str
    session_id: str | UnsetType = UNSET
    trajectory_id: str
    agent: dict[str, str]
    steps: list[AtifStep]
    final_metrics: dict[str, Any]
    extra: dict[str, Any]
    """The task, which trial of it, whether it passed, and the rewards."""


class TableRow(msgspec.Struct, kw_only=True):
    """A trial as one flat row, as export table writes it; null is unknown."""

    file: str
    id: str
    trial: int
    input: str
    """Turns of a conversation are joined with a line feed."""
    output: str
    hint: str | None
    pass_: bool | None = msgspec.field(name="pass")
    score: float | None
    reasoning: str | None
    measured: bool
    """Whether the trial says anything about the agent: it has a verdict, or the agent failed."""
    cause: str | None
    message: str | None
    """Of a failure."""
    duration_ms: float
    first_response_ms: float | None
    turns: int
    steps: int
    thoughts: int
    tool_calls: int
    tool_names: str
    """Each once, with commas between them."""
    tool_errors: bool
    input_tokens: int | None
    output_tokens: int | None
    cache_read_tokens: int | None
    cache_write_tokens: int | None
    reasoning_tokens: int | None
    cost_usd: float | None
    cost_source: str | None
    adapter: str | None
    agent_version: str | None
    model: str | None
    category: str | None
    metadata: str
    """JSON."""
    grades: str
    """JSON: the grade of each grader, by its name."""


class Summary(msgspec.Struct, kw_only=True, rename="camel", gc=False):
    """The seed's SummaryResult; behind it the verdict and the cause, where there is one."""

    id: str
    number: int | UnsetType = msgspec.field(name=NUMBER, default=UNSET)
    """Which trial of the prompt, in results of `assay trials`."""
    input: str
    """Turns of a conversation are joined with a line feed."""
    output: str
    tool_calls: list[str]
    duration: int | float
    """Milliseconds from start to end."""
    pass_: bool | UnsetType = msgspec.field(name="pass", default=UNSET)
    score: int | float | UnsetType = UNSET
    cause: str | UnsetType = UNSET
    """Why the trial did not go well; an empty output alone does not say."""
    setup_problems: list[str] | UnsetType = UNSET
    """What the agent lacked of the set-up that was asked for: the trial measured another one."""


class Validation(msgspec.Struct, kw_only=True, rename="camel"):
    """The seed's ValidationResult in both its spellings: nested and flat."""

    id: str
    input: str | list[str]
    reference: str
    passes: bool | UnsetType = UNSET
    """Absent where a grader broke: not measured."""
    grader_result: Grade | UnsetType = UNSET
    pass_: bool | UnsetType = msgspec.field(name="pass", default=UNSET)
    score: float | UnsetType = UNSET
    reasoning: str | UnsetType = UNSET
    grades: dict[str, Grade] | UnsetType = UNSET
    """The grade of each grader, where there are several."""
    no_op: dict[str, Grade] | UnsetType = UNSET
    """The grades of answers that must fail: empty, unrelated."""
    wrongly_passes: list[str] | UnsetType = UNSET
    """Those of them that passed."""
    grader_failure: str | UnsetType = UNSET
    """How a grader broke on this prompt."""


class TriggerRate(msgspec.Struct, kw_only=True, rename="camel", frozen=True):
    """How often a skill fired, as the mean over cases, with its 95 % interval."""

    rate: float
    low: float
    high: float
    n_cases: int
    n_fired: int
    n_trials: int


class CaseFires(msgspec.Struct, kw_only=True, rename="camel", frozen=True):
    """How often a skill fired in the trials of one case."""

    id: str
    should_trigger: bool
    n_fired: int
    n_measured: int
    n_trials: int
    instead: dict[str, int] = {}
    """Skills that were used in trials in which it did not fire, and in how many."""


class TriggerRun(msgspec.Struct, kw_only=True, rename="camel", frozen=True):
    """One skill with one description in one agent."""

    agent: str
    description: str = ""
    output: str | UnsetType = UNSET
    """The file with the trials; absent if they were not kept."""
    recall: TriggerRate | None
    """How often it fired where it should; null if nothing was measured."""
    false_fires: TriggerRate | None
    """How often it fired where it should not."""
    instead: dict[str, int]
    """Skills that were used instead where it should have fired, and in how many trials."""
    cases: list[CaseFires]
    n_trials: int
    n_not_measured: int
    n_ended_early: int
    """Trials that were ended as soon as they were decided."""
    cost_usd: float
    invalid: list[str]
    """Why the numbers do not say what the description is worth."""


class TriggerReport(msgspec.Struct, kw_only=True, rename="camel", frozen=True):
    """What `assay trigger` found out."""

    skill: str
    runs: list[TriggerRun]
    verdicts: list[dict[str, Any]] = []
    """With --compare and --optimize: the verdict on the two descriptions, for each agent."""
    best_description: str | UnsetType = UNSET
    """With --optimize: of what was proposed for each half of the cases, what gained most on the
    other half."""
    proposals_usd: float | UnsetType = UNSET
    """With --optimize: what the agent's work on proposals cost, as far as is known."""
