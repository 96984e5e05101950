"""Trials from the folder of a Harbor job: results with their rewards, and trajectories in ATIF."""

from collections.abc import Iterator
from itertools import groupby
from pathlib import Path
from typing import Any

import msgspec
from msgspec import UNSET

from assay.adapters.reading import (
    cost_at,
    epoch_ms,
    integer_at,
    object_at,
    or_unset,
    parse_line,
    text_at,
    value_at,
)
from assay.benchmarks.harbor import reward_grade
from assay.errors import InputError
from assay.export.trajectories import read_trajectories
from assay.pipeline.trials import row_of_trials
from assay.records.capture import AgentInfo, Cause, Failure, Timing, Usage
from assay.records.trial import Trial, TrialResult, Verdict
from assay.run.workspace import our_secrets

_NO_STEPS = Trial(
    id="",
    input="",
    output="",
    trajectory=[],
    metadata={"trajectoryRichness": "minimal", "turnCount": 0},
    timing=Timing(start=0, end=0, total=0),
    tool_errors=False,
)
"""What is known of a trial whose agent wrote no trajectory."""
_CAUSES = {
    "AgentTimeoutError": Cause.AGENT_TIMEOUT,
    "NonZeroAgentExitCodeError": Cause.AGENT_CRASH,
}
"""Of exceptions that say something about the agent; others measured nothing."""


def job_rows(folder: Path, agent: str | None = None) -> Iterator[tuple[Trial | TrialResult, int]]:
    """Yield the rows of a job, each with the number of its trials: rows of `trials` if a task was
    tried several times, else of `capture`.

    Raises InputError for any other folder, and for a job of several agents of which none is named.
    """
    by_id = sorted(_trials_of_one_agent(folder, agent), key=lambda trial: trial.id)
    tasks = [[*same] for _, same in groupby(by_id, key=lambda trial: trial.id)]
    if all(len(trials) == 1 for trials in tasks):
        yield from ((trial, 1) for (trial,) in tasks)
        return
    for trials in tasks:  # a file has rows of one kind
        numbered = [
            msgspec.structs.replace(trial, entry_number=n) for n, trial in enumerate(trials, 1)
        ]
        graded = any(trial.verdict is not None for trial in numbered)
        yield row_of_trials(numbered[0], numbered[0].metadata, numbered, graded=graded), len(trials)


def _trials_of_one_agent(folder: Path, agent: str | None) -> list[Trial]:
    found: dict[str, list[Trial]] = {}
    for path in sorted(folder.rglob("result.json")):
        result = parse_line(path.read_bytes())
        if text_at(result, "trial_name"):
            trial = our_secrets().mask_record(_trial(result, path.parent))
            found.setdefault(_agent_of(trial), []).append(trial)
    if not found:
        msg = f"{folder}: there is no trial of Harbor in this folder"
        raise InputError(
            msg, hint="give the folder of a job, which has a result.json for each trial"
        )
    for name in [name for name in found if ":" not in name]:  # the model is not known of each trial
        models = [other for other in found if other.startswith(f"{name}:")]
        if len(models) == 1:
            found[models[0]] += found.pop(name)
    fits = [name for name in found if agent in (None, name, name.partition(":")[0])]
    if len(fits) != 1:
        # As one run they would be trials of one agent, and no comparison could tell them apart.
        msg = f"{folder}: trials of {', '.join(fits or found)}"
        raise InputError(msg, hint="name one with --agent, and import each to a file of its own")
    return found[fits[0]]


def _agent_of(trial: Trial) -> str:
    """As in: claude-code:claude-sonnet-4-5, or oracle."""
    known = trial.agent or AgentInfo(adapter="harbor")
    return f"{known.adapter}:{known.model}" if known.model else known.adapter


def _trial(result: Any, folder: Path) -> Trial:
    trial = _read_trajectory(folder) or _NO_STEPS
    ran = object_at(result, "agent_execution")
    start_ms = epoch_ms(value_at(ran, "started_at")) or 0.0
    total_ms = max(0.0, (epoch_ms(value_at(ran, "finished_at")) or start_ms) - start_ms)
    agent, model = object_at(result, "agent_info"), object_at(result, "agent_info", "model_info")
    name = text_at(agent, "name") or "harbor"
    failure = _failure(result)
    trial = msgspec.structs.replace(
        trial,
        id=(text_at(result, "task_name") or folder.name).rpartition("/")[2],
        metadata={
            **trial.metadata,
            "agent": name,
            "harborTrial": text_at(result, "trial_name"),
            **({"taskSource": source} if (source := text_at(result, "source")) else {}),
        },
        timing=Timing(start=start_ms, end=start_ms + total_ms, total=total_ms),
        agent=AgentInfo(
            adapter=name,
            version=or_unset(text_at(agent, "version")),
            model=or_unset(text_at(model, "name")),
        ),
        usage=_usage(object_at(result, "agent_result")) or trial.usage,
        failure=or_unset(failure),
    )
    rewards = {
        key: float(value)
        for key, value in object_at(result, "verifier_result", "rewards").items()
        if isinstance(value, int | float)
    }
    if not rewards or (failure is not None and not failure.cause.measures_agent):
        return trial
    grade = reward_grade(rewards, _verifier_said(folder))
    return trial.with_verdict(Verdict(score=grade, grades={"harbor": grade}))


def _read_trajectory(folder: Path) -> Trial | None:
    path = folder / "agent" / "trajectory.json"
    return next(read_trajectories(path), None) if path.is_file() else None


def _failure(result: Any) -> Failure | None:
    raised = object_at(result, "exception_info")
    if not raised:
        return None
    kind = text_at(raised, "exception_type") or "an exception"
    said = f"Harbor: {kind}: {text_at(raised, 'exception_message') or ''}"
    return Failure(cause=_CAUSES.get(kind, Cause.HARNESS), message=said[:2000])


def _usage(spent: dict[str, Any]) -> Usage | None:
    usage = Usage(
        input_tokens=or_unset(integer_at(spent, "n_input_tokens")),
        output_tokens=or_unset(integer_at(spent, "n_output_tokens")),
        cache_read_tokens=or_unset(integer_at(spent, "n_cache_tokens")),
        cost_usd=or_unset(cost_at(spent, "cost_usd")),
        cost_source="agent" if cost_at(spent, "cost_usd") is not None else UNSET,
    )
    return usage if usage != Usage() else None


def _verifier_said(folder: Path) -> str:
    path = folder / "verifier" / "test-stdout.txt"
    return path.read_text("utf-8", "replace")[-1500:].strip() if path.is_file() else ""
