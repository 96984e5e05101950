"""Repeated trials of one prompt as they stand in trials.jsonl."""

from typing import Any

import msgspec
from msgspec import UNSET, UnsetType

from assay.records.capture import AgentInfo, Events, Failure, Grade, Usage
from assay.records.trajectory import AnyStep


class TrialEntry(msgspec.Struct, kw_only=True, rename="camel"):
    """One trial. Without pass it is not measured, which is not the same as failed."""

    trial_num: int
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
    grader_failures: dict[str, str] | UnsetType = UNSET
    usage: Usage | UnsetType = UNSET
    failure: Failure | UnsetType = UNSET
    agent: AgentInfo | UnsetType = UNSET
    session_id: str | UnsetType = UNSET
    first_response: float | UnsetType = UNSET
    events: Events | UnsetType = UNSET
    turn_usage: list[Usage] | UnsetType = UNSET
    setup: dict[str, Any] | UnsetType = UNSET
    permission_denials: int | UnsetType = UNSET
    provider_retries: int | UnsetType = UNSET
    retried: list[Failure] | UnsetType = UNSET
    stderr: str | UnsetType = UNSET
    raw: str | UnsetType = UNSET
    workspace_dir: str | UnsetType = UNSET


class PassAtK(msgspec.Struct, kw_only=True, rename="camel", frozen=True):
    """Unbiased chances for one k <= nMeasured, with 95 % intervals."""

    k: int
    pass_at_k: float
    """At least one of k trials passes."""
    pass_at_k_interval: tuple[float, float]
    pass_exp_k: float
    """All of k trials pass."""
    pass_exp_k_interval: tuple[float, float]


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


class FinishedTrial(msgspec.Struct, kw_only=True, rename="camel"):
    """A line of the journal beside trials.jsonl: finished, while its prompt is not complete yet."""

    id: str
    spec_hash: str
    entry: TrialEntry
