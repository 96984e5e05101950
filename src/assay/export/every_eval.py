"""Runs for Every Eval Ever, schema 0.3: a document of results, and its samples beside it."""

import hashlib
import re
import uuid
from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, BinaryIO

import msgspec

from assay import __version__, stats
from assay.export.leftovers import leftovers
from assay.export.messages import ChatMessage
from assay.export.otel import Experiment
from assay.records.capture import ToolCall, Usage
from assay.records.files import copy_stream, replaced_file, temporary_file
from assay.records.trial import Trial

_SCHEMA = "0.3.0"
_PLACED = frozenset(("id", "input", "output", "hint"))
_DEVELOPERS = {
    **dict.fromkeys(("claude",), "anthropic"),
    **dict.fromkeys(("gpt", "o1", "o3", "o4", "codex"), "openai"),
    **dict.fromkeys(("gemini", "gemma"), "google"),
}
"""By how the names of their models begin; a name with a / in it says it itself."""
type Sample = dict[str, Any]


def sample(trial: Trial, messages: Sequence[ChatMessage], experiment: Experiment) -> Sample:
    """Return a graded trial as a sample; `metadata` has what the format has no place for."""
    calls = [step for step in trial.steps if isinstance(step, ToolCall) and not step.parent]
    is_plain = len(trial.turns) == 1 and not calls
    kind = "single_turn" if is_plain else "agentic" if calls else "multi_turn"
    said = [_message(number, message) for number, message in enumerate(messages)]
    last = max((n for n, one in enumerate(said) if one["role"] == "assistant"), default=0)
    asked, wanted = "\n\n".join(trial.turns), [trial.hint] if trial.hint else []
    thoughts = [one["reasoning_content"] for one in messages if one.get("reasoning_content")]
    answer = {"raw": [trial.output], **({"reasoning_trace": thoughts} if thoughts else {})}
    usage = {"token_usage": _usage(trial.usage)} if trial.usage else {}
    failure = trial.failure or None
    return {
        "schema_version": _SCHEMA,
        "evaluation_id": experiment.id,
        "model_id": model_id(_model(trial)),
        "evaluation_name": experiment.name,
        "evaluation_result_id": f"{experiment.id}/pass",
        "sample_id": trial.id,
        "sample_hash": hashlib.sha256("".join((asked, *wanted)).encode()).hexdigest(),
        "interaction_type": kind,
        "input": {"raw": asked, "reference": wanted},
        "output": answer if is_plain else None,
        "messages": None if is_plain else said,
        "answer_attribution": [
            {
                "turn_idx": 0 if is_plain else last,
                "source": "output.raw" if is_plain else f"messages[{last}].content",
                "extracted_value": trial.output,
                "extraction_method": "custom",
                "is_terminal": True,
            }
        ],
        "evaluation": {
            "score": float(trial.verdict or 0) if trial.score is None else trial.score,
            "is_correct": bool(trial.verdict),
            "num_turns": len(trial.turns),
            "tool_calls_count": len(calls),
        },
        **usage,
        "performance": {"latency_ms": float(trial.duration_ms)},
        "error": f"{failure.cause.value}: {failure.message}" if failure else None,
        "metadata": {
            "trial": str(trial.number),
            "assay": _text(leftovers(trial, _PLACED)),
        },
    }


def model_id(name: str) -> str:
    """Return the name of a model with its developer, as developer/model."""
    if "/" in name:
        return name
    known = (own for start, own in _DEVELOPERS.items() if name.startswith(start))
    return f"{next(known, 'unknown')}/{name}"


def _model(trial: Trial) -> str:
    return (trial.agent.model if trial.agent else None) or "unknown"


def _message(number: int, message: ChatMessage) -> dict[str, Any]:
    made = [
        {
            "id": one["id"],
            "name": one["function"]["name"],
            "arguments": {key: _text(value) for key, value in one["function"]["arguments"].items()},
        }
        for one in message.get("tool_calls") or ()
    ]
    thought = message.get("reasoning_content")
    return {
        "turn_idx": number,
        "role": message["role"],
        "content": message["content"] or None,
        **({"reasoning_trace": thought} if thought else {}),
        **({"tool_calls": made} if made else {}),
        **({"tool_call_id": [message["tool_call_id"]]} if message["role"] == "tool" else {}),
    }


def _text(value: Any) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def _usage(usage: Usage) -> dict[str, int]:
    given, made = usage.input_tokens or 0, usage.output_tokens or 0
    known = {
        "input_tokens": given,
        "output_tokens": made,
        "total_tokens": given + made,
        "input_tokens_cache_write": usage.cache_write_tokens,
        "input_tokens_cache_read": usage.cache_read_tokens,
        "reasoning_tokens": usage.reasoning_tokens,
    }
    return {name: value for name, value in known.items() if isinstance(value, int)}


class _Seen(msgspec.Struct):
    """What the document says of a sample."""

    sample_id: str
    model_id: str
    evaluation: dict[str, Any]
    metadata: dict[str, str]


class _Kept(msgspec.Struct, rename="camel"):
    """What the document says of the rest of a trial."""

    grades: dict[str, dict[str, Any]] = {}
    agent: dict[str, Any] = {}


class _Counts:
    """What all samples of a model say together."""

    def __init__(self, model: str) -> None:
        self.model = model
        self.digest = hashlib.sha256()
        self.agents: Counter[str] = Counter()
        self.passed: dict[str, Counter[str]] = {}
        """Of each grader, and of all together (pass): the trials of each prompt that passed."""
        self.measured: dict[str, Counter[str]] = {}
        self.n_rows = 0

    def add(self, line: bytes) -> None:
        seen = msgspec.json.decode(line, type=_Seen)
        kept = msgspec.json.decode(seen.metadata["assay"], type=_Kept)
        self.n_rows += 1
        self.digest.update(line)
        self.agents[" ".join(filter(None, map(kept.agent.get, ("adapter", "version"))))] += 1
        found = {"pass": seen.evaluation["is_correct"]}
        found |= {f"pass/{name}": grade.get("pass") for name, grade in kept.grades.items()}
        for name, passed in found.items():
            if passed is not None:
                self.measured.setdefault(name, Counter())[seen.sample_id] += 1
                self.passed.setdefault(name, Counter())[seen.sample_id] += bool(passed)


def write_run(lines: Iterable[bytes], folder: Path, experiment: Experiment) -> list[Path]:
    """Write the samples of a run and their document, of each model its own, in the folders that the
    format asks for; return the documents. Only their counts are in memory."""
    counts: dict[str, _Counts] = {}
    written = []
    with ExitStack() as stack:
        files: dict[str, BinaryIO] = {}
        for line in (line for text in lines for line in text.splitlines(keepends=True)):
            model = msgspec.json.decode(line, type=_Seen).model_id
            if model not in files:
                files[model] = stack.enter_context(temporary_file())
                counts[model] = _Counts(model)
            files[model].write(line)
            counts[model].add(line)
        for model, file in files.items():
            file.seek(0)
            written.append(_write(counts[model], file, folder, experiment))
    return written


def _write(counts: _Counts, samples: BinaryIO, folder: Path, experiment: Experiment) -> Path:
    parts = [re.sub(r"[^\w.-]+", "_", part) for part in counts.model.split("/", 1)]
    digest = hashlib.sha256(f"{experiment.id} {counts.model}".encode()).digest()[:16]
    place = Path("data", re.sub(r"[^\w.-]+", "_", experiment.name), *parts)
    beside = place / f"{uuid.UUID(bytes=digest, version=4)}_samples.jsonl"
    document = _document(counts, experiment)
    document["detailed_evaluation_results"] = {
        "format": "jsonl",
        "file_path": beside.as_posix(),
        "hash_algorithm": "sha256",
        "checksum": counts.digest.hexdigest(),
        "total_rows": counts.n_rows,
    }
    (folder / place).mkdir(parents=True, exist_ok=True)
    with replaced_file(folder / beside) as out:
        copy_stream(samples, out)
    target = folder / place / beside.name.replace("_samples.jsonl", ".json")
    with replaced_file(target) as out:
        out.write(msgspec.json.format(msgspec.json.encode(document), indent=1) + b"\n")
    return target


def _document(counts: _Counts, experiment: Experiment) -> dict[str, Any]:
    developer, _, model = counts.model.partition("/")
    at_s = f"{experiment.written_ms / 1000:.3f}"
    return {
        "schema_version": _SCHEMA,
        "evaluation_id": experiment.id,
        "evaluation_timestamp": at_s,
        "retrieved_timestamp": at_s,
        "source_metadata": {
            "source_name": experiment.name,
            "source_type": "evaluation_run",
            "source_organization_name": "unknown",
            "evaluator_relationship": "other",
        },
        "eval_library": {"name": "assay", "version": __version__},
        "model_info": {
            "name": model,
            "id": counts.model,
            "developer": developer,
            "additional_details": {
                "deployment_type": "unknown",
                "model_availability": "unknown",
                "agents": ", ".join(sorted(counts.agents)),
            },
        },
        "evaluation_results": [_result(counts, name, experiment) for name in counts.measured],
    }


def _result(counts: _Counts, name: str, experiment: Experiment) -> dict[str, Any]:
    """Return a pass rate, the mean over prompts, with its interval."""
    prompts = sorted(counts.measured[name])
    passed = [counts.passed[name][prompt] for prompt in prompts]
    measured = [counts.measured[name][prompt] for prompt in prompts]
    rate, interval = stats.rates.rate_interval(passed, measured)
    assert rate is not None
    assert interval is not None
    grader = name.partition("/")[2]
    return {
        "evaluation_result_id": f"{experiment.id}/{name}",
        "evaluation_name": experiment.name,
        "evaluation_timestamp": f"{experiment.written_ms / 1000:.3f}",
        "source_data": {
            "dataset_name": experiment.name,
            "source_type": "other",
            "additional_details": {"prompts": str(len(prompts))},
        },
        "metric_config": {
            "evaluation_description": f"grader {grader}" if grader else "all graders together",
            "metric_id": "accuracy",
            "metric_name": "pass rate",
            "metric_kind": "accuracy",
            "metric_unit": "proportion",
            "lower_is_better": False,
            "score_type": "continuous",
            "min_score": 0.0,
            "max_score": 1.0,
        },
        "score_details": {
            "score": rate,
            "details": {"passed": str(sum(passed)), "trials": str(sum(measured))},
            "uncertainty": {
                "confidence_interval": {
                    "lower": interval.low,
                    "upper": interval.high,
                    "confidence_level": interval.level,
                    "method": interval.method,
                },
                "num_samples": len(prompts),
            },
        },
        "generation_config": {"additional_details": {"agents": ", ".join(sorted(counts.agents))}},
    }
