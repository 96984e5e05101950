"""Put the trials of one prompt together."""

from collections.abc import Sequence
from typing import Any

from msgspec import UNSET

from assay.records.capture import Capture
from assay.records.prompt import Prompt
from assay.records.trials import PassAtK, TrialEntry, TrialResult


def trial_entry(number: int, captured: Capture) -> TrialEntry:
    """Make one entry of what capture would have written for this trial."""
    score = captured.score or None
    return TrialEntry(
        trial_num=number,
        output=captured.output,
        trajectory=captured.trajectory,
        duration=captured.timing.total,
        pass_=score.pass_ if score else UNSET,
        score=score.score if score else UNSET,
        reasoning=score.reasoning if score else UNSET,
        outcome=score.outcome if score else UNSET,
        tool_errors=captured.tool_errors,
        grades=captured.grades,
        grader_failures=captured.grader_failures,
        usage=captured.usage,
        failure=captured.failure,
        agent=captured.agent,
        session_id=captured.session_id,
        first_response=captured.timing.first_response,
        events=captured.events,
        turn_usage=captured.turn_usage,
        setup=captured.setup,
        permission_denials=captured.permission_denials,
        provider_retries=captured.provider_retries,
        retried=captured.retried,
        stderr=captured.stderr,
        raw=captured.raw,
        workspace_dir=captured.metadata.get("workspaceDir", UNSET),
    )


def trial_result(
    prompt: Prompt, entries: Sequence[TrialEntry], about: dict[str, Any], spec_hash: str
) -> TrialResult:
    """Make the row of one prompt, without the numbers that need a grader."""
    failures: dict[str, int] = {}
    for entry in entries:
        if entry.failure:
            failures[entry.failure.cause] = failures.get(entry.failure.cause, 0) + 1
    return TrialResult(
        id=prompt.id,
        input=prompt.input,
        hint=prompt.hint or UNSET,
        k=len(entries),
        trials=sorted(entries, key=lambda entry: entry.trial_num),
        metadata={**prompt.metadata, **about},
        failures=failures or UNSET,
        spec_hash=spec_hash,
    )


def count_passes(result: TrialResult) -> tuple[int, int]:
    """Give how many trials passed and how many were measured."""
    measured = [entry.pass_ for entry in result.trials if entry.pass_ is not UNSET]
    return sum(measured), len(measured)


def set_pass_numbers(
    result: TrialResult, seed: tuple[float, float] | None, per_k: list[PassAtK]
) -> None:
    """Write the numbers of a graded prompt into its row; seed is None when none was measured."""
    n_passed, n_measured = count_passes(result)
    result.n_measured = n_measured
    if seed is not None:
        result.pass_rate = n_passed / n_measured
        result.pass_at_k, result.pass_exp_k = seed
    result.per_k = per_k
