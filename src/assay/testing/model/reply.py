"""One answer, ready for a provider's words: pieces cut, placeholders filled, ids given."""

import json
from dataclasses import dataclass
from typing import Any

from assay.testing.model.conversation import Conversation
from assay.testing.model.script import Call, Step, Usage
from assay.testing.model.tools import ToolUse, choose_tool

FIXED_TIME_S = 1_700_000_000


@dataclass(frozen=True)
class ReplyCall:
    """A tool call with its id and its arguments as they go over the wire."""

    id: str
    use: ToolUse
    raw: str

    @property
    def arguments(self) -> dict[str, Any] | None:
        """The arguments, or None where they are broken on purpose."""
        try:
            parsed = json.loads(self.raw)
        except ValueError:
            return None
        return parsed if isinstance(parsed, dict) else None


@dataclass(frozen=True)
class Reply:
    """What the model says in one answer."""

    label: str
    model: str
    thinking: tuple[str, ...]
    text: tuple[str, ...]
    calls: tuple[ReplyCall, ...]
    usage: Usage
    stop: str
    chunks: int
    wants_usage: bool


def make_reply(step: Step, conversation: Conversation, label: str) -> Reply:
    """Turn a step into the answer to this request."""
    calls = tuple(
        _make_call(call, conversation, f"{label}_{number:02d}")
        for number, call in enumerate(step.calls)
    )
    # Gemini streams each thought whole, and its clients keep every piece as a thought of its own.
    n_thoughts = 1 if conversation.provider == "gemini" else step.chunks
    return Reply(
        label=label,
        model=conversation.model,
        thinking=_pieces(step.thinking, n_thoughts, conversation),
        text=_pieces(step.text, step.chunks, conversation),
        calls=calls,
        usage=step.usage,
        stop=step.stop or ("tool" if calls else "end"),
        chunks=step.chunks,
        wants_usage=conversation.wants_usage,
    )


def cut(text: str, n_pieces: int) -> list[str]:
    """Cut a text into at most so many pieces of about one size."""
    size = max(1, -(-len(text) // n_pieces))
    return [text[start : start + size] for start in range(0, len(text), size)]


def _pieces(text: str | list[str], n_pieces: int, conversation: Conversation) -> tuple[str, ...]:
    if isinstance(text, list):
        return tuple(_filled(piece, conversation) for piece in text)
    return tuple(cut(_filled(text, conversation), n_pieces))


def _make_call(call: Call, conversation: Conversation, label: str) -> ReplyCall:
    chosen = call.by_provider.get(conversation.provider, call)
    use = _filled_use(choose_tool(chosen, conversation), conversation)
    raw = chosen.raw_arguments
    if raw is None:
        raw = json.dumps(use.arguments, ensure_ascii=False)
    prefix = "toolu" if conversation.provider == "anthropic" else "call"
    return ReplyCall(id=chosen.id or call.id or f"{prefix}_{label}", use=use, raw=raw)


def _filled_use(use: ToolUse, conversation: Conversation) -> ToolUse:
    text = None if use.input is None else _filled(use.input, conversation)
    return ToolUse(use.name, _filled_value(use.arguments, conversation), use.namespace, text)


def _filled_value(value: Any, conversation: Conversation) -> Any:
    if isinstance(value, str):
        return _filled(value, conversation)
    if isinstance(value, dict):
        return {key: _filled_value(inner, conversation) for key, inner in value.items()}
    if isinstance(value, list):
        return [_filled_value(inner, conversation) for inner in value]
    return value


def _filled(text: str, conversation: Conversation) -> str:
    if "{{" not in text:
        return text
    filled = text.replace("{{last_tool_result}}", conversation.last_tool_result)
    return filled.replace("{{last_user}}", conversation.last_prompt)
