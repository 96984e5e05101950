"""A trial as OpenTelemetry spans, named after the conventions for GenAI, in OTLP JSON.

An agent's trial is a trace: `invoke_agent` holds a `chat` for each answer of the model, and that
holds an `execute_tool` for each call in it. Grades are events of the root. The attributes that
Langfuse makes experiments from stand beside them, and what no convention has a name for is kept
under `assay.`.
"""

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import msgspec

from assay import __version__
from assay.export.leftovers import leftovers
from assay.records.capture import AnyStep, Grade, Message, Plan, Thought, ToolCall, Usage
from assay.records.trial import NUMBER, Trial

_INTERNAL, _ERROR = 1, 2
_PLACED = frozenset(
    ("id", "input", "output", "hint", "trajectory", "metadata", "agent", "sessionId", "grades")
) | {"score", "graderFailures", NUMBER}
_USAGE = {
    "input_tokens": "gen_ai.usage.input_tokens",
    "output_tokens": "gen_ai.usage.output_tokens",
    "cache_read_tokens": "gen_ai.usage.cache_read.input_tokens",
    "cache_write_tokens": "gen_ai.usage.cache_write.input_tokens",
    "reasoning_tokens": "gen_ai.usage.reasoning.output_tokens",
}
_PROVIDERS = {"claude": "anthropic", "gpt": "openai", "gemini": "gcp.gemini"}
"""How the names of models begin."""
type _Attributes = dict[str, Any]


class Experiment(NamedTuple):
    """The run that trials belong to."""

    id: str
    name: str
    written_ms: float
    """When its file was written: the start of trials that do not say when they began."""


def trace(trial: Trial, experiment: Experiment) -> dict[str, Any]:
    """Return the request that sends a trial to a collector."""
    spans = _Trace(trial, experiment).spans()
    scope = {"scope": {"name": "assay", "version": __version__}, "spans": spans}
    resource = {"attributes": _encoded({"service.name": "assay"})}
    return {"resourceSpans": [{"resource": resource, "scopeSpans": [scope]}]}


class _Trace:
    def __init__(self, trial: Trial, experiment: Experiment) -> None:
        self._trial = trial
        self._experiment = experiment
        self._id = _hash(experiment.id, trial.id, trial.number)[:32]
        self._spans: list[dict[str, Any]] = []
        self._start_ms = trial.timing.start or experiment.written_ms
        model = trial.agent.model if trial.agent else None
        self._model: _Attributes = {
            "gen_ai.provider.name": _provider(model or "", trial),
            "gen_ai.request.model": model or None,
        }
        calls = [step for step in trial.steps if isinstance(step, ToolCall)]
        call_ids = {call.call_id for call in calls if call.call_id}
        self._inner: dict[str, list[AnyStep]] = {}
        """Those of each sub-agent, by the call that started it; the agent's own are under ""."""
        for step in trial.steps:
            parent = step.parent if step.parent in call_ids else ""
            self._inner.setdefault(parent or "", []).append(step)
        self._of_all: _Attributes = {
            "langfuse.experiment.id": experiment.id,
            "langfuse.experiment.name": experiment.name,
            "langfuse.experiment.item.id": trial.id,
            "langfuse.experiment.item.root_observation_id": _hash(self._id, 0)[:16],
        }

    def spans(self) -> list[dict[str, Any]]:
        trial = self._trial
        name = trial.agent.adapter if trial.agent else "unknown"
        root = self._add(f"invoke_agent {name}", None, 0, trial.duration_ms, self._of_root(name))
        root["events"] = [*self._plans(), *self._grades()]
        if failure := trial.failure:
            root["status"] = {"code": _ERROR, "message": failure.message}
        self._add_chats(self._inner.pop("", []), root["spanId"])
        return self._spans

    def _of_root(self, name: str) -> _Attributes:
        trial = self._trial
        asked = [{"role": "user", "parts": [_text(turn)]} for turn in trial.turns]
        usage = trial.usage or Usage()
        return {
            "gen_ai.operation.name": "invoke_agent",
            "gen_ai.agent.name": name,
            "gen_ai.agent.version": (trial.agent.version or None) if trial.agent else None,
            "gen_ai.conversation.id": trial.session_id or None,
            "gen_ai.input.messages": asked,
            "gen_ai.output.messages": [_answer([_text(trial.output)], "stop")],
            **{theirs: getattr(usage, ours) for ours, theirs in _USAGE.items()},
            **({"error.type": trial.failure.cause.value} if trial.failure else {}),
            "langfuse.trace.name": trial.id,
            "langfuse.observation.type": "agent",
            "langfuse.observation.input": trial.input,
            "langfuse.observation.output": trial.output,
            "langfuse.observation.cost_details": {"total": usage.cost_usd}
            if usage.cost_usd
            else None,
            "langfuse.experiment.item.expected_output": trial.hint,
            **{
                f"langfuse.experiment.item.metadata.{key}": value
                for key, value in trial.metadata.items()
            },
            "assay.trial": trial.number,
            **{f"assay.{key}": value for key, value in leftovers(trial, _PLACED).items()},
        }

    def _add_chats(self, steps: Iterable[AnyStep], parent: str) -> None:
        at_ms, turn = 0.0, 0
        for said, calls in _answers(steps):
            last = [*said, *calls][-1]
            attributes: _Attributes = {"gen_ai.operation.name": "chat"}
            if parent == self._spans[0]["spanId"] and (last.turn or 1) != turn:
                turn = last.turn or 1
                asked = self._trial.turns[turn - 1 : turn]
                messages = [{"role": "user", "parts": [_text(text)]} for text in asked]
                attributes["gen_ai.input.messages"] = messages
            parts = [*map(_part, said), *map(_part, calls)]
            answer = _answer(parts, "tool_call" if calls else "stop")
            attributes["gen_ai.output.messages"] = [answer]
            name = " ".join(filter(None, ("chat", self._model["gen_ai.request.model"])))
            chat = self._add(name, parent, at_ms, last.timestamp, attributes)
            for call in calls:
                self._add_call(call, chat["spanId"])
            at_ms = max(at_ms, last.timestamp, *map(_end_ms, calls), 0)

    def _add_call(self, call: ToolCall, parent: str) -> None:
        failed = call.status == "failed" or bool(call.error)
        attributes: _Attributes = {
            "gen_ai.operation.name": "execute_tool",
            "gen_ai.tool.name": call.name,
            "gen_ai.tool.type": "function",
            "gen_ai.tool.call.id": call.call_id,
            "gen_ai.tool.call.arguments": call.input,
            "gen_ai.tool.call.result": call.output,
            "error.type": "tool_error" if failed else None,
            "assay.tool.status": call.status,
            "assay.tool.exit_code": call.exit_code,
        }
        name = f"execute_tool {call.name}"
        span = self._add(name, parent, call.timestamp, _end_ms(call), attributes)
        if failed:
            span["status"] = {"code": _ERROR, "message": call.error or ""}
        # Taken out, so that no call is its own sub-agent's.
        self._add_chats(self._inner.pop(call.call_id or "", []), span["spanId"])

    def _add(
        self, name: str, parent: str | None, start: float, end: float, attributes: _Attributes
    ) -> dict[str, Any]:
        span: dict[str, Any] = {
            "traceId": self._id,
            "spanId": _hash(self._id, len(self._spans))[:16],
            **({"parentSpanId": parent} if parent else {}),
            "name": name,
            "kind": _INTERNAL,
            "startTimeUnixNano": self._nano(start),
            "endTimeUnixNano": self._nano(max(start, end)),
            "attributes": _encoded({**attributes, **self._model, **self._of_all}),
        }
        self._spans.append(span)
        return span

    def _plans(self) -> Iterator[dict[str, Any]]:
        for step in self._trial.steps:
            if isinstance(step, Plan):
                known = {"assay.plan": step.entries, "assay.plan.text": step.content}
                yield self._event("assay.plan", step.timestamp, known)

    def _grades(self) -> Iterator[dict[str, Any]]:
        """Yield an event for each grader, and for the verdict of all if there are several."""
        trial = self._trial
        grades: dict[str, Grade] = dict(trial.grades or {})
        if trial.grade and len(grades) != 1:
            grades["verdict"] = trial.grade
        for name, grade in grades.items():
            known = {
                "gen_ai.evaluation.name": name,
                "gen_ai.evaluation.score.value": float(grade.score),
                "gen_ai.evaluation.score.label": "pass" if grade.pass_ else "fail",
                "gen_ai.evaluation.explanation": grade.reasoning,
                "assay.evaluation.outcome": grade.outcome,
                "assay.evaluation.version": grade.version,
                "assay.evaluation.usage": msgspec.to_builtins(grade.usage) if grade.usage else None,
            }
            yield self._event("gen_ai.evaluation.result", trial.duration_ms, known)
        for name, why in (trial.grader_failures or {}).items():
            known = {"gen_ai.evaluation.name": name, "error.type": "grader_error"}
            known["gen_ai.evaluation.explanation"] = why
            yield self._event("gen_ai.evaluation.result", trial.duration_ms, known)

    def _event(self, name: str, at_ms: float, known: _Attributes) -> dict[str, Any]:
        return {"name": name, "timeUnixNano": self._nano(at_ms), "attributes": _encoded(known)}

    def _nano(self, at_ms: float) -> str:
        return f"{round((self._start_ms + at_ms) * 1000)}000"  # a float holds no nanoseconds


def _answers(steps: Iterable[AnyStep]) -> Iterator[tuple[list[Thought | Message], list[ToolCall]]]:
    """Yield what the model said in each answer, and what it called.

    A recording does not say where an answer ends: words after a call begin the next one, and so
    does a call after the end of another, or another turn.
    """
    said: list[Thought | Message] = []
    calls: list[ToolCall] = []
    turn: Any = None
    for step in steps:
        if isinstance(step, Plan):
            continue
        is_call = isinstance(step, ToolCall)
        follows = calls and not (is_call and step.timestamp <= min(map(_end_ms, calls)))
        if follows or (said and step.turn != turn):
            yield said, calls
            said, calls = [], []
        turn = step.turn
        if isinstance(step, ToolCall):
            calls.append(step)
        else:
            said.append(step)
    if said or calls:
        yield said, calls


def _end_ms(call: ToolCall) -> float:
    return call.timestamp + (call.duration or 0)


def _part(step: Thought | Message | ToolCall) -> dict[str, Any]:
    if isinstance(step, ToolCall):
        known = {"id": step.call_id, "arguments": step.input}
        said = {key: value for key, value in known.items() if value is not msgspec.UNSET}
        return {"type": "tool_call", "name": step.name, **said}
    return _text(step.content, "text" if isinstance(step, Message) else "reasoning")


def _text(content: str, kind: str = "text") -> dict[str, Any]:
    return {"type": kind, "content": content}


def _answer(parts: Sequence[dict[str, Any]], reason: str) -> dict[str, Any]:
    return {"role": "assistant", "parts": list(parts), "finish_reason": reason}


def _provider(model: str, trial: Trial) -> str:
    known = next((name for start, name in _PROVIDERS.items() if model.startswith(start)), "")
    own = trial.agent.adapter if trial.agent else "unknown"
    return known or model.partition("/")[0] * ("/" in model) or own


def _hash(*parts: Any) -> str:
    return hashlib.sha256(msgspec.json.encode(parts)).hexdigest()


def _encoded(attributes: _Attributes) -> list[dict[str, Any]]:
    """Return attributes as OTLP has them: numbers and texts as they are, the rest as JSON."""
    return [
        {"key": key, "value": _value(value)}
        for key, value in attributes.items()
        if value is not None and value is not msgspec.UNSET
    ]


def _value(value: Any) -> dict[str, Any]:
    match value:
        case bool():
            return {"boolValue": value}
        case int() if abs(value) < 1 << 63:
            return {"intValue": str(value)}
        case float():
            return {"doubleValue": value}
        case str():
            return {"stringValue": value}
    return {"stringValue": msgspec.json.encode(value).decode()}
