"""Trials as an Inspect log, version 2: one JSON document, in which each trial is an epoch."""

from collections import Counter
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from typing import Any, BinaryIO

import msgspec

from assay import __version__
from assay.export.leftovers import leftovers
from assay.export.messages import ChatMessage
from assay.records.capture import Cause, Failure, Grade, Plan, ToolCall, Usage
from assay.records.files import copy_stream, temporary_file
from assay.records.trial import NUMBER, Trial

_PLACED = frozenset(("id", NUMBER, "input", "output", "hint", "metadata", "grades"))
_LIMITS = {Cause.AGENT_TIMEOUT: "time", Cause.AGENT_LIMIT: "custom"}
type Sample = dict[str, Any]


def sample(trial: Trial, messages: list[ChatMessage]) -> Sample:
    """Return a trial as a sample; `store` has what Inspect has no place for."""
    model = _model(trial)
    own = [step for step in trial.steps if isinstance(step, ToolCall) and not step.parent]
    calls = iter(sorted(own, key=lambda call: call.turn or 1))  # as their results are
    said = [_message(message, model, calls) for message in messages]
    others = [step for step in trial.steps if step.parent or isinstance(step, Plan)]
    kept = leftovers(trial, _PLACED)
    if others:
        kept["otherSteps"] = msgspec.to_builtins(others)
    last = next((one for one in reversed(said) if one["role"] == "assistant"), None)
    choice = {"message": last, "stop_reason": "stop"}
    turns = [{"role": "user", "content": text} for text in trial.turns]
    usage = {model: _usage(trial.usage)} if trial.usage else {}
    return {
        "id": trial.id,
        "epoch": trial.number,
        "input": trial.input if isinstance(trial.input, str) else turns,
        "target": trial.hint or "",
        "messages": said,
        "output": {"model": model, "choices": [choice] if last else [], "completion": trial.output},
        "scores": _scores(trial) or None,
        "metadata": trial.metadata,
        "store": {"assay": kept},
        "model_usage": usage,
        **({"started_at": _time(trial.timing.start)} if trial.timing.start else {}),
        **({"completed_at": _time(trial.timing.end)} if trial.timing.start else {}),
        "total_time": trial.duration_ms / 1000,
        **_ending(trial.failure or None),
    }


def _ending(failure: Failure | None) -> dict[str, Any]:
    """Return what ended a trial: a limit, after which Inspect scores, or else an error."""
    if failure is None or failure.is_gradable:
        return {}
    if limit := _LIMITS.get(failure.cause):
        return {"limit": {"type": limit, "limit": 0, "reason": failure.message}}
    said = f"{failure.cause.value}: {failure.message}"
    return {"error": {"message": said, "traceback": "", "traceback_ansi": ""}}


def _model(trial: Trial) -> str:
    return (trial.agent.model if trial.agent else None) or "unknown"


def _message(message: ChatMessage, model: str, calls: Iterator[ToolCall]) -> dict[str, Any]:
    if message["role"] == "user":
        return message
    if message["role"] == "tool":
        known = {"tool_call_id": message["tool_call_id"], "function": message["name"]}
        call = next(calls)
        is_failed = call.status == "failed" or bool(call.error)
        error = {"type": "unknown", "message": call.error or ""}
        failed = {"error": error} if is_failed else {}
        return {"role": "tool", "content": message["content"], **known, **failed}
    content: Any = message["content"]
    if thought := message.get("reasoning_content"):
        content = [{"type": "reasoning", "reasoning": thought}]
        content += [{"type": "text", "text": message["content"]}] if message["content"] else []
    made = message.get("tool_calls") or ()
    called = [
        {
            "id": one["id"],
            "type": "function",
            "function": one["function"]["name"],
            "arguments": one["function"]["arguments"],
        }
        for one in made
    ]
    known = {"tool_calls": called} if called else {}
    return {"role": "assistant", "content": content, "model": model, **known}


def _usage(usage: Usage) -> dict[str, Any]:
    given, made = usage.input_tokens or 0, usage.output_tokens or 0
    known = {
        "input_tokens": given,
        "output_tokens": made,
        "total_tokens": given + made,
        "input_tokens_cache_read": usage.cache_read_tokens,
        "input_tokens_cache_write": usage.cache_write_tokens,
        "reasoning_tokens": usage.reasoning_tokens,
        "total_cost": usage.cost_usd,
    }
    return {name: value for name, value in known.items() if value is not msgspec.UNSET}


def _scores(trial: Trial) -> dict[str, Any]:
    grades: dict[str, Grade] = dict(trial.grades or {})
    if trial.grade and not grades:
        grades["verdict"] = trial.grade
    return {
        name: {
            "value": grade.score,
            "answer": trial.output,
            "explanation": grade.reasoning or None,
            "metadata": {"assay": msgspec.to_builtins(grade)},
        }
        for name, grade in grades.items()
    }


def _time(at_ms: float) -> str:
    return datetime.fromtimestamp(at_ms / 1000, UTC).isoformat(timespec="milliseconds")


def write_log(samples: Iterable[bytes], out: BinaryIO, task: str, written_ms: float) -> None:
    """Write encoded samples, one in each line, as a log; only what heads it is in memory."""
    heads = _Heads()
    with temporary_file() as lines:
        for text in samples:
            for line in text.splitlines():
                lines.write(b",\n" * bool(heads.n_samples) + line)
                heads.add(line)
        lines.seek(0)
        head = msgspec.json.encode(heads.document(task, written_ms))
        out.write(head[:-1] + b',"samples":[\n')
        copy_stream(lines, out)
        out.write(b"\n]}\n")


class _View(msgspec.Struct):
    """What of a sample stands in the head of a log."""

    id: str
    epoch: int
    output: dict[str, Any]
    store: dict[str, Any]
    scores: dict[str, dict[str, Any]] | None
    started_at: str | None = None
    completed_at: str | None = None
    error: dict[str, Any] | None = None


_VIEWS = msgspec.json.Decoder(_View)


class _Heads:
    """What the samples of a log say together."""

    def __init__(self) -> None:
        self.n_samples = 0
        self._ids: dict[str, None] = {}
        self._epochs = 1
        self._n_failed = 0
        self._models: Counter[str] = Counter()
        self._times: list[str] = []
        self._scores: dict[str, tuple[int, float]] = {}

    def add(self, line: bytes) -> None:
        view = _VIEWS.decode(line)
        self.n_samples += 1
        self._ids[view.id] = None
        self._epochs = max(self._epochs, view.epoch)
        self._n_failed += view.error is not None
        self._models[view.output["model"]] += 1
        if view.started_at and view.completed_at:
            self._times += [view.started_at, view.completed_at]
            self._times = [min(self._times), max(self._times)]
        for name, score in (view.scores or {}).items():
            n, total = self._scores.get(name, (0, 0.0))
            self._scores[name] = n + 1, total + score["value"]

    def document(self, task: str, written_ms: float) -> dict[str, Any]:
        """Return a log without its samples."""
        first, last = self._times or [_time(written_ms)] * 2
        model = max(self._models, key=self._models.__getitem__, default="unknown")
        dataset = {"name": task, "samples": len(self._ids), "sample_ids": list(self._ids)}
        return {
            "version": 2,
            "status": "success",
            "eval": {
                "created": first,
                "task": task,
                "dataset": dataset,
                "model": model,
                "config": {"epochs": self._epochs},
                "packages": {"assay": __version__},
            },
            "plan": {},
            "results": {
                "total_samples": self.n_samples,
                "completed_samples": self.n_samples - self._n_failed,
                "scores": [
                    {
                        "name": name,
                        "scorer": name,
                        "scored_samples": n,
                        "unscored_samples": self.n_samples - n,
                        "metrics": {"mean": {"name": "mean", "value": total / n}},
                    }
                    for name, (n, total) in self._scores.items()
                ],
            },
            "stats": {"started_at": first, "completed_at": last},
        }
