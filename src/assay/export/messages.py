"""A trial as a conversation: the chat messages that training libraries read."""

from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Any, Literal, TypeGuard

import msgspec
from msgspec import UNSET

from assay.records.capture import AnyStep, Message, Thought, ToolCall

type ChatMessage = dict[str, Any]
type Thoughts = Literal["drop", "field", "tags"]
"""Left out; as `reasoning_content` of the message; in the text, between <think> and </think>."""


def conversation(
    turns: Sequence[str], steps: Sequence[AnyStep], output: str, thoughts: Thoughts
) -> list[ChatMessage]:
    """Return what was asked, said and done, in its order.

    What sub-agents did is left out: the model that is trained sees only their tool call. So are
    plans, which most agents keep outside of the conversation.
    """
    messages: list[ChatMessage] = []
    for number, text in enumerate(turns, 1):
        messages.append({"role": "user", "content": text})
        own = [step for step in steps if (step.turn or 1) == number and not step.parent]
        messages += _answers(own, thoughts, n_before=len(messages))
    # The answer may be told apart from the messages before it, as in a terminal event.
    if output and not _is_said(messages, output):
        messages.append({"role": "assistant", "content": output})
    return messages


def is_answered(messages: Sequence[ChatMessage]) -> bool:
    """Whether each turn ends with words of the agent."""
    ends = [before for before, here in pairwise(messages) if here["role"] == "user"]
    return all(_says(message) for message in (*ends, messages[-1]))


def sharegpt(messages: Iterable[ChatMessage]) -> list[dict[str, str]]:
    """Return the same as from/value pairs, in which speakers alternate.

    That form has no place for words that come with a tool call: the call replaces them.
    """
    pairs: list[dict[str, str]] = []
    for message in messages:
        if message["role"] == "user":
            pairs.append({"from": "human", "value": message["content"]})
        elif message["role"] == "tool":
            pairs.append({"from": "observation", "value": message["content"]})
        elif calls := message.get("tool_calls"):
            call = calls[0]["function"]
            value = {"name": call["name"], "arguments": call["arguments"]}
            pairs.append({"from": "function_call", "value": msgspec.json.encode(value).decode()})
        else:
            pairs.append({"from": "gpt", "value": message["content"]})
    return pairs


class ToolBook:
    """The tools of a whole data set: their names, and what their calls tell about arguments."""

    def __init__(self) -> None:
        self._arguments: dict[str, dict[str, set[str]]] = {}

    def __bool__(self) -> bool:
        return bool(self._arguments)

    def add(self, steps: Iterable[AnyStep]) -> None:
        for step in steps:
            if _is_own_call(step):
                seen = self._arguments.setdefault(step.name, {})
                for key, value in _arguments(step).items():
                    seen.setdefault(key, set()).add(_TYPES.get(type(value), "object"))

    def merge(self, other: "ToolBook") -> None:
        """Add what another part of the data set tells."""
        for name, arguments in other._arguments.items():
            seen = self._arguments.setdefault(name, {})
            for key, types in arguments.items():
                seen.setdefault(key, set()).update(types)

    def offered(self, steps: Iterable[AnyStep], setup: dict[str, Any]) -> list[dict[str, Any]]:
        """Describe the tools that the agent had: those it was offered, as far as any trial shows
        how they are called, and those it used."""
        offered = setup.get("tools")
        names = {n for n in offered if isinstance(n, str)} if isinstance(offered, list) else set()
        names |= {step.name for step in steps if _is_own_call(step)}
        return [self._schema(name) for name in sorted(names & self._arguments.keys())]

    def _schema(self, name: str) -> dict[str, Any]:
        properties: dict[str, Any] = {}
        for key, types in sorted(self._arguments[name].items()):
            one = sorted(types)
            properties[key] = {"type": one[0] if len(one) == 1 else one}
        parameters = {"type": "object", "properties": properties}
        return {
            "type": "function",
            "function": {"name": name, "description": "", "parameters": parameters},
        }


def _answers(steps: Sequence[AnyStep], thoughts: Thoughts, n_before: int) -> list[ChatMessage]:
    messages: list[ChatMessage] = []
    thought, said = "", ""
    for step in steps:
        if isinstance(step, Thought):
            thought = _joined(thought, step.content)
        elif isinstance(step, Message):
            said = _joined(said, step.content)
        elif isinstance(step, ToolCall):
            call_id = step.call_id or f"call_{n_before + len(messages)}"
            message = _assistant(said, thought, thoughts)
            function = {"name": step.name, "arguments": _arguments(step)}
            content = step.error or "" if step.output in (UNSET, None) else step.output
            if not isinstance(content, str):
                content = msgspec.json.encode(content).decode()
            messages += [
                message
                | {"tool_calls": [{"id": call_id, "type": "function", "function": function}]},
                {"role": "tool", "tool_call_id": call_id, "name": step.name, "content": content},
            ]
            thought, said = "", ""
    if said:
        messages.append(_assistant(said, thought, thoughts))
    return messages


def _assistant(said: str, thought: str, thoughts: Thoughts) -> ChatMessage:
    message = {"role": "assistant", "content": said}
    if thought and thoughts == "field":
        message["reasoning_content"] = thought
    elif thought and thoughts == "tags":
        message["content"] = f"<think>\n{thought}\n</think>\n\n{said}"
    return message


def _arguments(step: ToolCall) -> dict[str, Any]:
    if isinstance(step.input, dict):
        return step.input
    return {} if step.input is UNSET or step.input is None else {"input": step.input}


_TYPES = {
    type(None): "null",
    bool: "boolean",
    int: "integer",
    float: "number",
    str: "string",
    list: "array",
}
"""What JSON Schema calls the types of values."""


def _joined(before: str, more: str) -> str:
    return f"{before}\n\n{more}" if before and more else before or more


def _is_own_call(step: AnyStep) -> TypeGuard[ToolCall]:
    """Whether the agent itself called a tool, and no sub-agent."""
    return isinstance(step, ToolCall) and not step.parent


def _is_said(messages: Sequence[ChatMessage], output: str) -> bool:
    last = messages[-1]
    return _says(last) and last["content"].strip().endswith(output.strip())


def _says(message: ChatMessage) -> bool:
    return message["role"] == "assistant" and not message.get("tool_calls")
