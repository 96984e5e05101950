"""A trial in the Agent Trajectory Interchange Format (ATIF), which Harbor's tools read."""

from collections.abc import Sequence
from typing import Any

import msgspec
from msgspec import UNSET

from assay.export.messages import ChatMessage
from assay.records.capture import Usage
from assay.records.trial import Trial

_VERSION = "ATIF-v1.8"


def trajectory(trial: Trial, messages: Sequence[ChatMessage]) -> dict[str, Any]:
    """Return a trial as a trajectory; `extra` has the task and the rewards."""
    info = trial.agent
    version = (info.version if info else UNSET) or "unknown"
    agent: dict[str, Any] = {"name": info.adapter if info else "unknown", "version": version}
    if info and info.model:
        agent["model_name"] = info.model
    steps = _steps(messages)
    extra: dict[str, Any] = {"task": trial.id, "trial": trial.number}
    if trial.verdict is not None:
        grade = (trial.grades or {}).get("harbor")
        outcome = grade.outcome if grade and grade.outcome else {}
        extra |= {
            "passed": trial.verdict,
            # What the verifier of a Harbor task gave, else the score.
            "rewards": outcome.get("rewards") or {"reward": trial.score or 0.0},
        }
    session = {"session_id": trial.session_id} if trial.session_id else {}
    metrics = {**_metrics(trial.usage or Usage()), "total_steps": len(steps)}
    return {
        "schema_version": _VERSION,
        **session,
        "trajectory_id": f"{trial.id}-{trial.number}",
        "agent": agent,
        "steps": steps,
        "final_metrics": metrics,
        "extra": extra,
    }


def _steps(messages: Sequence[ChatMessage]) -> list[dict[str, Any]]:
    steps: list[dict[str, Any]] = []
    for message in messages:
        if message["role"] == "tool":  # it always follows its call
            result = {"source_call_id": message["tool_call_id"], "content": message["content"]}
            steps[-1]["observation"] = {"results": [result]}
            continue
        source = "user" if message["role"] == "user" else "agent"
        step = {"step_id": len(steps) + 1, "source": source, "message": message["content"]}
        if "reasoning_content" in message:
            step["reasoning_content"] = message["reasoning_content"]
        if calls := message.get("tool_calls"):
            step["tool_calls"] = [
                {
                    "tool_call_id": call["id"],
                    "function_name": call["function"]["name"],
                    "arguments": call["function"]["arguments"],
                }
                for call in calls
            ]
        steps.append(step)
    return steps


def _metrics(usage: Usage) -> dict[str, Any]:
    """Return what a trial used.

    ATIF counts cached tokens as part of the prompt's. Some agents do as well and some do not, so
    with a cache the sum is not known, and their own numbers are in `extra`.
    """
    cached = bool(usage.cache_read_tokens or usage.cache_write_tokens)
    found: dict[str, Any] = {
        "total_prompt_tokens": UNSET if cached else usage.input_tokens,
        "total_completion_tokens": usage.output_tokens,
        "total_cached_tokens": usage.cache_read_tokens,
        "total_cost_usd": usage.cost_usd,
        "extra": msgspec.to_builtins(usage) or UNSET,
    }
    return {name: value for name, value in found.items() if value is not UNSET}
