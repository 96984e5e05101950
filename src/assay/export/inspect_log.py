"""Trials from an Inspect log: samples with their messages, scores and tokens."""

import math
from collections.abc import Iterable, Iterator
from functools import reduce
from itertools import groupby
from pathlib import Path
from typing import Any

import msgspec
from msgspec import UNSET

from assay.adapters.prices import with_cost
from assay.adapters.reading import StepBuilder, epoch_ms, or_unset, value_at
from assay.benchmarks.inspect_log import (
    Call,
    LogMessage,
    LogSample,
    LogScore,
    LogTask,
    LogUsage,
    read_samples,
)
from assay.pipeline.extract import has_tool_errors, richness
from assay.pipeline.grading import combine
from assay.pipeline.trials import row_of_trials
from assay.records.capture import AgentInfo, AnyStep, Cause, Failure, Grade, Timing, Usage
from assay.records.trial import Trial, TrialResult, Verdict
from assay.run.workspace import our_secrets

_LETTERS = {"C": 1.0, "P": 0.5, "I": 0.0, "N": 0.0}
"""What Inspect's scorers write for correct, partial, incorrect and no answer."""


def logged_rows(path: Path) -> Iterator[tuple[Trial | TrialResult, int]]:
    """Yield the rows of a log, each with the number of its trials: rows of `trials` if samples have
    several epochs, else of `capture`.
    """
    several = _has_epochs(path)
    for _, pairs in groupby(read_samples(path), key=lambda pair: str(pair[1].id)):
        epochs = list(pairs)
        trials = [our_secrets().mask_record(_trial(task, sample)) for task, sample in epochs]
        if not several and len(trials) == 1:
            yield msgspec.structs.replace(trials[0], entry_number=UNSET), 1
            continue
        graded = any(trial.verdict is not None for trial in trials)
        yield row_of_trials(trials[0], trials[0].metadata, trials, graded=graded), len(trials)


def _has_epochs(path: Path) -> bool:
    for task, sample in read_samples(path):
        if task.config.epochs is not None:
            return task.config.epochs > 1
        if sample.epoch > 1:
            return True
    return False


def _trial(task: LogTask, sample: LogSample) -> Trial:
    messages = _after_input(sample)
    steps, output = _steps(messages, sample.attachments)
    usage = _kept(sample.store, "usage", Usage) or _usage(sample.model_usage)
    start_ms = epoch_ms(sample.started_at) or 0.0
    took_ms = (sample.total_time or 0.0) * 1000
    targets = [sample.target] if isinstance(sample.target, str) else sample.target
    failure = _failure(sample)
    trial = Trial(
        id=str(sample.id),
        input=_asked(sample),
        output=output,
        hint=targets[0] if targets and targets[0] else UNSET,
        trajectory=steps,
        metadata={
            **sample.metadata,
            **({"targets": targets} if len(targets) > 1 else {}),
            "agent": "inspect",
            "inspectTask": task.task,
            "trajectoryRichness": richness(steps),
            "turnCount": 1,
        },
        timing=Timing(
            start=start_ms,
            end=start_ms + took_ms,
            total=took_ms,
            input_tokens=usage.input_tokens if usage else UNSET,
            output_tokens=usage.output_tokens if usage else UNSET,
        ),
        tool_errors=has_tool_errors(steps),
        usage=or_unset(usage),
        failure=or_unset(failure),
        agent=_kept(sample.store, "agent", AgentInfo)
        or AgentInfo(
            adapter="inspect",
            version=or_unset(task.packages.get("inspect_ai")),
            model=task.model or UNSET,
        ),
        entry_number=sample.epoch,
    )
    grades = {} if failure is not None and not failure.answered else _grades(sample.scores or {})
    if not grades:
        return trial
    score = _kept(sample.store, "score", Grade) or combine(tuple(grades.values()))
    return trial.with_verdict(Verdict(score=score, grades=grades))


def _kept[T](of_assay: dict[str, Any] | None, name: str, kind: type[T]) -> T | None:
    """Return what `assay export inspect` has kept of a trial, as Inspect has no place for it."""
    try:
        return msgspec.convert(value_at(of_assay, "assay", *filter(None, [name])), kind)
    except msgspec.ValidationError:
        return None


def _failure(sample: LogSample) -> Failure | None:
    if failure := _kept(sample.store, "failure", Failure):
        return failure
    if sample.error is not None:
        return Failure(cause=Cause.HARNESS, message=f"Inspect: {sample.error.message}"[:2000])
    if sample.limit is not None:  # Inspect scores what there was by then
        message = f"reached Inspect's limit of {sample.limit.type}"
        return Failure(cause=Cause.AGENT_LIMIT, message=message, answered=True)
    return None


def _asked(sample: LogSample) -> str:
    if isinstance(sample.input, str):
        return sample.input
    return "\n\n".join(_text(message, sample.attachments) for message in sample.input)


def _after_input(sample: LogSample) -> list[LogMessage]:
    """Return the messages from the first answer on that was not a part of the input."""
    given = sample.input if not isinstance(sample.input, str) else ()
    n_given = sum(message.role == "assistant" for message in given)
    answers = [n for n, message in enumerate(sample.messages) if message.role == "assistant"]
    return sample.messages[answers[n_given] :] if len(answers) > n_given else []


def _steps(
    messages: Iterable[LogMessage], attachments: dict[str, str]
) -> tuple[list[AnyStep], str]:
    """Return the steps, in which a log has no times, and the last answer."""
    builder, output = StepBuilder(), ""
    for message in messages:
        if message.role == "tool":
            error = message.error.message if message.error is not None else None
            builder.tool(
                0,
                status="failed" if error is not None else "completed",
                call_id=message.tool_call_id or "",
                output=_text(message, attachments),
                error=error,
            )
        if message.role != "assistant":
            continue
        for part in message.content if not isinstance(message.content, str) else ():
            if part.type == "reasoning" and part.reasoning:
                builder.thought(_resolved(part.reasoning, attachments), 0)
        if text := _text(message, attachments):
            builder.message(text, 0)
            output = text
        for call in message.tool_calls or ():
            _begin(call, builder)
    return builder.steps, output


def _begin(call: Call, builder: StepBuilder) -> None:
    builder.tool(
        0,
        status="failed" if call.parse_error else None,
        name=call.function,
        call_id=call.id,
        input=call.arguments,
        error=call.parse_error,
    )


def _text(message: LogMessage, attachments: dict[str, str]) -> str:
    if isinstance(message.content, str):
        return _resolved(message.content, attachments)
    texts = (_resolved(part.text, attachments) for part in message.content if part.type == "text")
    return "\n".join(filter(None, texts))


def _resolved(text: str, attachments: dict[str, str]) -> str:
    return attachments.get(text.removeprefix("attachment://"), text)


def _usage(of_models: dict[str, LogUsage]) -> Usage | None:
    used = [
        with_cost(
            name.rpartition("/")[2],
            Usage(
                input_tokens=one.input_tokens,
                output_tokens=one.output_tokens,
                cache_read_tokens=or_unset(one.input_tokens_cache_read),
                cache_write_tokens=or_unset(one.input_tokens_cache_write),
                reasoning_tokens=or_unset(one.reasoning_tokens),
            ),
            output_includes_reasoning=True,
        )
        for name, one in of_models.items()
    ]
    return reduce(Usage.plus, used) if used else None


def _grades(scores: dict[str, LogScore]) -> dict[str, Grade]:
    """Return a grade for each scorer, of one that gave several values for each of them."""
    grades = {}
    for name, score in scores.items():
        several = isinstance(score.value, dict)
        values = score.value.items() if several else [("", score.value)]
        for key, value in values:
            if grade := _kept(score.metadata, "", Grade):
                grades[name] = grade
            elif (points := _points(value)) is not None:
                grades[f"{name}/{key}" if several else name] = Grade(
                    pass_=points >= 1,
                    score=points,
                    reasoning=score.explanation or UNSET,
                    outcome={"value": value, "answer": score.answer},
                    version="inspect",
                )
    return grades


def _points(value: Any) -> float | None:
    """Return a score from 0 to 1; None for what is none, such as NaN."""
    if isinstance(value, str):
        return _LETTERS.get(value)
    if not isinstance(value, int | float) or math.isnan(value):
        return None
    return min(1.0, max(0.0, float(value)))
