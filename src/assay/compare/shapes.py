"""The shapes of what compare and plan write as JSON, for `assay schemas`.

What the seed's report lacks is optional, so that a report of the reference harness is valid too.
Only `assay schemas` reads it: it is a promise to other programs, and tests/cli/test_schemas.py
holds every kind of report against it. The reports are made as dicts, because most sections are
there only where there is something to say.
"""

from typing import Any, Literal

import msgspec
from msgspec import UNSET, UnsetType

from assay.compare.pairs import Pair
from assay.records.explanation import Doubts
from assay.records.setup import ArmsProof
from assay.stats.passk import PassK
from assay.stats.planning import PairedSpread, PlanRow, VarianceSplit
from assay.stats.rates import Interval
from assay.stats.sequential import SequentialUse
from assay.stats.verdict import GateChances, VerdictCode

type Limits = tuple[float, float]
type ByRun[T] = dict[str, T]
"""The keys are the labels of the runs."""


class _Shape(msgspec.Struct, kw_only=True, rename="camel"):
    """Base of all shapes."""


class ReportMeta(_Shape, kw_only=True):
    """What was compared, and how."""

    generated_at: str
    """When the report was made, ISO 8601."""
    runs: list[str]
    prompt_count: int
    prompts_with_all_runs: int | UnsetType = UNSET
    strategy: str | UnsetType = UNSET
    weights: dict[str, float] | UnsetType = UNSET
    """Of the strategy weighted."""
    strategy_words: str | UnsetType = UNSET
    """How the winner of a prompt is found."""
    intervals: str | UnsetType = UNSET
    """Which intervals are made by resampling."""
    margin: float | UnsetType = UNSET
    seed: int | UnsetType = UNSET
    bootstrap_iterations: int | UnsetType = UNSET
    prompts_in_all_runs: int | UnsetType = UNSET
    clusters: int | UnsetType = UNSET
    """How many clusters of prompts there are, with --cluster."""
    files: ByRun[str] | UnsetType = UNSET
    agents: ByRun[list[str]] | UnsetType = UNSET
    graders: ByRun[dict[str, list[str]]] | UnsetType = UNSET


class TrialsReportMeta(ReportMeta, kw_only=True):
    """The same for trials."""

    trials_per_prompt: int | None
    """null where runs or prompts differ in it."""
    input_format: Literal["trials"]


class QualityIntervals(_Shape, kw_only=True):
    """95 % intervals, as far as the data can give them."""

    avg_score: Limits | UnsetType = UNSET
    pass_rate: Limits | UnsetType = UNSET


class QualityMetrics(_Shape, kw_only=True):
    """Scores and passes of single trials; null where nothing was measured."""

    avg_score: float | None
    pass_rate: float | None
    type: Literal["run"] | UnsetType = UNSET
    pass_count: int | UnsetType = UNSET
    fail_count: int | UnsetType = UNSET
    n_measured: int | UnsetType = UNSET
    score_distribution: dict[str, int] | UnsetType = UNSET
    confidence_intervals: QualityIntervals | UnsetType = UNSET


class TrialsQualityMetrics(_Shape, kw_only=True):
    """Scores and passes of all trials of a run."""

    avg_score: float | None
    pass_rate: float | UnsetType | None = UNSET
    median_score: float | UnsetType | None = UNSET
    p25_score: float | UnsetType | None = msgspec.field(name="p25Score", default=UNSET)
    p75_score: float | UnsetType | None = msgspec.field(name="p75Score", default=UNSET)
    type: Literal["trial"] | UnsetType = UNSET
    confidence_intervals: QualityIntervals | UnsetType = UNSET


class LatencyStats(_Shape, kw_only=True):
    """Milliseconds."""

    p50: float | UnsetType = UNSET
    p90: float | UnsetType = UNSET
    p99: float | UnsetType = UNSET
    mean: float | UnsetType = UNSET
    min: float | UnsetType = UNSET
    max: float | UnsetType = UNSET


class Amount(_Shape, kw_only=True):
    """Tokens or money of a run."""

    total: float
    mean: float | None
    n: int
    """How many trials say it."""


class LatencyIntervals(_Shape, kw_only=True):
    """95 % intervals over prompts."""

    latency_mean: Limits | UnsetType = UNSET


class PerformanceMetrics(_Shape, kw_only=True):
    """How long trials took and, where known, what they cost."""

    latency: LatencyStats | None
    first_response: LatencyStats | UnsetType | None = UNSET
    total_duration: float | UnsetType = UNSET
    confidence_intervals: LatencyIntervals | UnsetType = UNSET
    cost_usd: Amount | UnsetType = UNSET
    tokens: Amount | UnsetType = UNSET


class CompletionMetrics(_Shape, kw_only=True):
    """How often tools failed, time ran out, and trials completed."""

    tool_errors: int
    completion_rate: float
    tool_error_rate: float | UnsetType = UNSET
    timeouts: int | UnsetType = UNSET
    timeout_rate: float | UnsetType = UNSET


class ReliabilityMetrics(CompletionMetrics, kw_only=True):
    """How often tools failed, time ran out, and trials completed."""

    type: Literal["run"]


class TrialsReliabilityIntervals(_Shape, kw_only=True):
    """95 % intervals, as far as the data can give them."""

    avg_pass_exp_k: Limits | UnsetType = UNSET


class TrialsReliabilityMetrics(_Shape, kw_only=True):
    """How surely a prompt is solved every time."""

    type: Literal["trial"]
    avg_pass_exp_k: float | None
    median_pass_exp_k: float | UnsetType | None = UNSET
    p25_pass_exp_k: float | UnsetType | None = msgspec.field(name="p25PassExpK", default=UNSET)
    p75_pass_exp_k: float | UnsetType | None = msgspec.field(name="p75PassExpK", default=UNSET)
    formula: str | UnsetType = UNSET
    confidence_intervals: TrialsReliabilityIntervals | UnsetType = UNSET


class CapabilityIntervals(_Shape, kw_only=True):
    """95 % intervals, as far as the data can give them."""

    avg_pass_at_k: Limits | UnsetType = UNSET


class CapabilityMetrics(_Shape, kw_only=True):
    """How surely a prompt is solved at least once, by the seed's formula and for every k."""

    avg_pass_at_k: float | None
    median_pass_at_k: float | UnsetType | None = UNSET
    p25_pass_at_k: float | UnsetType | None = msgspec.field(name="p25PassAtK", default=UNSET)
    p75_pass_at_k: float | UnsetType | None = msgspec.field(name="p75PassAtK", default=UNSET)
    formula: str | UnsetType = UNSET
    confidence_intervals: CapabilityIntervals | UnsetType = UNSET
    per_k: list[PassK] | UnsetType = UNSET


class FlakyPrompt(_Shape, kw_only=True):
    """A prompt that is solved now and then."""

    id: str
    flakiness: float


class FlakinessMetrics(_Shape, kw_only=True):
    """The gap between capability and reliability."""

    avg_flakiness: float | None
    flaky_prompt_count: int
    median_flakiness: float | UnsetType | None = UNSET
    top_flaky_prompts: list[FlakyPrompt] | UnsetType = UNSET


class TrajectoryInfo(_Shape, kw_only=True):
    """How much of the agent's work can be seen."""

    richness: str
    avg_step_count: float


class PairwiseComparison(_Shape, kw_only=True):
    """Prompts won by either of two runs."""

    run_a: str
    run_b: str
    a_wins: int
    b_wins: int
    ties: int | UnsetType = UNSET
    not_measured: int | UnsetType = UNSET


class PromptComparison(_Shape, kw_only=True):
    """One prompt in all runs that have it."""

    id: str
    winner: str | None
    scores: ByRun[float | None]
    latencies: ByRun[float | None]
    had_errors: ByRun[bool]
    reasoning: str | UnsetType | None = UNSET
    """What the judge of --strategy custom said."""


class TrialsPromptComparison(_Shape, kw_only=True):
    """One prompt in all runs that have it."""

    id: str
    capability_winner: str | None
    reliability_winner: str | None
    pass_at_k: ByRun[float | None]
    pass_exp_k: ByRun[float | None]
    flakiness: ByRun[float | None]
    overall_winner: str | UnsetType | None = UNSET
    """By the strategy."""
    reasoning: str | UnsetType | None = UNSET
    """What the judge of --strategy custom said."""


class Preference(PairwiseComparison, kw_only=True):
    """Which of two runs a judge prefers."""

    preferred: str | None
    p_value: float | None
    """Of a sign test on the prompts won by either."""
    words: str
    healthy: bool


class JudgeReason(_Shape, kw_only=True):
    """What a judge said of a prompt."""

    id: str
    winner: str | None
    reasoning: str | None


class JudgeReport(_Shape, kw_only=True):
    """What the judge of --strategy custom decided."""

    grader: str
    asked: int
    """How many prompts it ranked."""
    verdict: list[Preference]
    reasons: list[JudgeReason]
    """Of the first prompts; all stand with their prompts."""


class HeadToHead(_Shape, kw_only=True):
    """Who wins how many prompts."""

    pairwise: list[PairwiseComparison]
    prompts: list[PromptComparison] | UnsetType = UNSET


class TrialsHeadToHead(_Shape, kw_only=True):
    """Who wins how many prompts, by three measures."""

    capability: list[PairwiseComparison]
    reliability: list[PairwiseComparison]
    overall: list[PairwiseComparison]


class Look(_Shape, kw_only=True):
    """A difference and its interval, which holds however often one looks."""

    difference: float
    interval: Interval


class PairVerdict(_Shape, kw_only=True):
    """Whether run B is better than run A, in a word and in words."""

    run_a: str
    run_b: str
    code: VerdictCode | UnsetType = UNSET
    words: str | UnsetType = UNSET
    n_more_prompts: int | UnsetType | None = UNSET
    n_unmeasured: int | UnsetType | None = UNSET
    unmeasured: str | UnsetType = UNSET
    healthy: bool
    interval: Interval | UnsetType = UNSET
    """Of "same": what lies within the margin."""
    changed: list[str] | UnsetType = UNSET
    """Why the runs cannot be compared."""
    problems: dict[str, str] | UnsetType = UNSET
    """By run: why its measurement cannot be believed."""
    look: Look | UnsetType = UNSET
    """With --sequential: what the look saw that decides."""


class SetupTrouble(_Shape, kw_only=True):
    """What agents lacked of the set-up that was asked for."""

    problem: str
    trials: int
    n_prompts: int
    prompts: list[str]


class RunHealth(_Shape, kw_only=True):
    """Whether the measurement of a run can be believed."""

    planned: int
    run: int
    graded: int
    not_measured: dict[str, int]
    unverified: int | UnsetType = UNSET
    excused: int | UnsetType = UNSET
    pass_rate_at_worst: float | UnsetType | None = UNSET
    agent_failures: dict[str, int]
    grader_failures: int
    permission_denials: int
    setup_problems: list[SetupTrouble]
    healthy: bool
    problems: list[str]


class CategoryRate(_Shape, kw_only=True):
    """Pass rate of a category."""

    n: int
    n_measured: int
    pass_rate: float | None
    interval: Limits | None


class RankedRun(_Shape, kw_only=True):
    """The place of a run among three or more."""

    run: str
    rank: int
    strength: float
    interval: Interval | None
    win_chance: float


class GateOutcome(_Shape, kw_only=True):
    """What --fail-on found for one run."""

    gate: str
    run_a: str
    run_b: str
    outcome: Literal["pass", "fail", "cannot-judge", "go-on"]
    words: str
    sequential: SequentialUse | UnsetType = UNSET
    """With --sequential."""


class DoubtsReport(_Shape, kw_only=True):
    """Passes that a detector puts in doubt, and honeypots that passed."""

    counted_as: Literal["passed", "failed"]
    """Of the option --doubtful."""
    sentences: list[str]
    runs: ByRun[Doubts]


class _Report(_Shape, kw_only=True):
    proof: ArmsProof | UnsetType = UNSET
    judge: JudgeReport | UnsetType = UNSET
    gate: list[GateOutcome] | UnsetType = UNSET
    verdict: list[PairVerdict] | UnsetType = UNSET
    health: ByRun[RunHealth] | UnsetType = UNSET
    notes: list[str] | UnsetType = UNSET
    doubts: DoubtsReport | UnsetType = UNSET
    pairs: list[Pair] | UnsetType = UNSET
    variance: ByRun[VarianceSplit] | UnsetType = UNSET
    categories: ByRun[dict[str, CategoryRate]] | UnsetType = UNSET
    ranking: list[RankedRun] | UnsetType = UNSET


class ComparisonReport(_Report, kw_only=True):
    """What compare writes about runs of single trials."""

    meta: ReportMeta
    quality: ByRun[QualityMetrics]
    performance: ByRun[PerformanceMetrics]
    reliability: ByRun[ReliabilityMetrics]
    trajectory_info: ByRun[TrajectoryInfo] | UnsetType = UNSET
    head_to_head: HeadToHead


class TrialsComparisonReport(_Report, kw_only=True):
    """What compare writes about runs of several trials of each prompt."""

    meta: TrialsReportMeta
    capability: ByRun[CapabilityMetrics]
    reliability: ByRun[TrialsReliabilityMetrics]
    flakiness: ByRun[FlakinessMetrics]
    completion: ByRun[CompletionMetrics] | UnsetType = UNSET
    quality: ByRun[TrialsQualityMetrics | None] | UnsetType = UNSET
    performance: ByRun[PerformanceMetrics]
    head_to_head: TrialsHeadToHead
    per_prompt: list[TrialsPromptComparison] | UnsetType = UNSET


class PlannedRow(PlanRow, kw_only=True, frozen=True, rename="camel"):
    """One way to see the difference, with what it costs."""

    cost_usd: float | None
    hours: float | None


class AtHand(_Shape, kw_only=True):
    """What the prompts at hand can show."""

    n_prompts: int
    n_trials: int
    power: float
    fewest_prompts: int
    narrowest_margin: float


class PlannedGate(GateChances, kw_only=True, frozen=True, rename="camel"):
    """How often a gate is right, and what that rests on."""

    source: str


class PlanReport(_Shape, kw_only=True):
    """What plan --json writes."""

    source: str
    difference: float
    power: float
    spread: PairedSpread
    rows: list[PlannedRow]
    at_hand: AtHand | None
    gate: PlannedGate | UnsetType = UNSET


REPORTS: dict[str, Any] = {
    "ComparisonReport": ComparisonReport,
    "TrialsComparisonReport": TrialsComparisonReport,
    "QualityMetrics": QualityMetrics,
    "TrialsQualityMetrics": TrialsQualityMetrics,
    "PerformanceMetrics": PerformanceMetrics,
    "ReliabilityMetrics": ReliabilityMetrics,
    "TrialsReliabilityMetrics": TrialsReliabilityMetrics,
    "CapabilityMetrics": CapabilityMetrics,
    "FlakinessMetrics": FlakinessMetrics,
    "PairwiseComparison": PairwiseComparison,
    "PlanReport": PlanReport,
}
