"""Trials from trajectory files of others: ATIF (1.x) and mini-swe-agent."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from msgspec import UNSET

from assay.adapters.reading import (
    StepBuilder,
    cost_at,
    epoch_ms,
    integer_at,
    number_at,
    object_at,
    objects_at,
    or_unset,
    parse_line,
    text_at,
    value_at,
)
from assay.errors import InputError
from assay.pipeline.extract import has_tool_errors, richness
from assay.records.capture import AgentInfo, Grade, Message, Timing, Usage
from assay.records.trial import Trial
from assay.run.workspace import our_secrets

_COMMAND = re.compile(r"```(?:bash|sh|mswea_bash_command)\s*\n(.*?)\n```", re.DOTALL)
_HINT = "give ATIF (a JSON object, or one in each line) or a .traj.json of mini-swe-agent"


def read_trajectories(path: Path) -> Iterator[Trial]:
    """Yield the trial of each trajectory in a file. Raises InputError for any other file."""
    try:
        data = path.read_bytes()
    except OSError as error:
        msg = f"{path}: {error.strerror}"
        raise InputError(msg, hint="check the path") from error
    whole = parse_line(data)
    lines = [whole] if isinstance(whole, dict) else map(parse_line, data.splitlines())
    found = [value for value in lines if value is not None]
    if not found:
        msg = f"{path}: there is no JSON in this file"
        raise InputError(msg, hint=_HINT)
    for number, one in enumerate(found, 1):
        yield our_secrets().mask_record(_trial(one, f"{path}:{number}", path.stem))


def _trial(value: Any, place: str, name: str) -> Trial:
    if str(value_at(value, "schema_version")).startswith("ATIF-v1."):
        return _of_atif(value, name)
    if text_at(value, "trajectory_format") or object_at(value, "info", "model_stats"):
        return _of_mini(value, name)
    msg = f"{place}: this is no trajectory that Assay knows"
    raise InputError(msg, hint=_HINT)


def _commands_in(said: str) -> list[str]:
    # Behind the last end no block ends: a thousand that only begin would each be read to the end.
    return _COMMAND.findall(said[: said.rfind("\n```") + 4])


def _made(
    name: str,
    asked: list[str],
    builder: StepBuilder,
    agent: AgentInfo,
    usage: Usage,
    **known: Any,
) -> Trial:
    steps = builder.steps
    said = [step.content for step in steps if isinstance(step, Message)]
    start_ms, end_ms = known.pop("start_ms", 0.0), known.pop("end_ms", 0.0)
    return Trial(
        id=name,
        input=asked[0] if len(asked) == 1 else asked or "",
        output=known.pop("output", None) or (said[-1] if said else ""),
        trajectory=steps,
        metadata={
            **known.pop("metadata", {}),
            "agent": agent.adapter,
            "trajectoryRichness": richness(steps),
            "turnCount": len(asked),
        },
        timing=Timing(start=start_ms, end=end_ms, total=end_ms - start_ms),
        tool_errors=has_tool_errors(steps),
        usage=usage if usage != Usage() else UNSET,
        agent=agent,
        **known,
    )


def _of_atif(value: dict[str, Any], name: str) -> Trial:
    steps = objects_at(value, "steps")
    times = [at for step in steps if (at := epoch_ms(step.get("timestamp"))) is not None]
    start_ms, end_ms = min(times, default=0.0), max(times, default=0.0)
    asked = [_content(step.get("message")) for step in steps if step.get("source") == "user"]
    builder = StepBuilder()
    for step in steps:
        if step.get("source") != "agent":
            continue
        at = epoch_ms(step.get("timestamp"))
        _add_atif(step, builder, round(at - start_ms) if at is not None else 0)
    extra = object_at(value, "extra")
    agent = object_at(value, "agent")
    return _made(
        text_at(extra, "task") or text_at(value, "trajectory_id") or name,
        asked,
        builder,
        AgentInfo(
            adapter=text_at(agent, "name") or "atif",
            version=or_unset(text_at(agent, "version")),
            model=or_unset(text_at(agent, "model_name")),
        ),
        _used(object_at(value, "final_metrics"), [object_at(step, "metrics") for step in steps]),
        start_ms=start_ms,
        end_ms=end_ms,
        session_id=or_unset(text_at(value, "session_id")),
        grade=_reward(extra),
    )


def _used(totals: dict[str, Any], steps: list[dict[str, Any]]) -> Usage:
    """What a trajectory used: as Assay exported it, else its totals, else those of its steps."""
    ours = object_at(totals, "extra")
    names = {
        "input_tokens": ("inputTokens", "prompt_tokens"),
        "output_tokens": ("outputTokens", "completion_tokens"),
        "cache_read_tokens": ("cacheReadTokens", "cached_tokens"),
        "cache_write_tokens": ("cacheWriteTokens", ""),
        "reasoning_tokens": ("reasoningTokens", ""),
    }
    counts: dict[str, Any] = {}
    for name, (own, theirs) in names.items():
        of_steps = [n for step in steps if (n := integer_at(step, theirs)) is not None]
        known = (integer_at(ours, own), integer_at(totals, f"total_{theirs}"))
        total = next((n for n in known if n is not None), sum(of_steps) if of_steps else None)
        counts[name] = or_unset(total)
    costs = [cost for step in steps if (cost := cost_at(step, "cost_usd")) is not None]
    cost = cost_at(totals, "total_cost_usd")
    return _with_cost(counts, sum(costs) if cost is None and costs else cost)


def _add_atif(step: dict[str, Any], builder: StepBuilder, t_ms: int) -> None:
    if thought := text_at(step, "reasoning_content"):
        builder.thought(thought, t_ms)
    if said := _content(step.get("message")):
        builder.message(said, t_ms)
    for call in objects_at(step, "tool_calls"):
        builder.tool(
            t_ms,
            name=text_at(call, "function_name") or "unknown",
            call_id=str(call.get("tool_call_id")),
            input=call.get("arguments"),
        )
    for result in objects_at(step, "observation", "results"):
        output = _content(result.get("content"))
        call_id = text_at(result, "source_call_id")
        builder.tool(t_ms, status="completed", output=output, call_id=call_id)


def _content(content: Any) -> str:
    if isinstance(content, str):
        return content
    parts = (
        [part for part in content if isinstance(part, dict)] if isinstance(content, list) else []
    )
    return "\n".join(filter(None, map(_part, parts)))


def _part(part: dict[str, Any]) -> str:
    """A part as text; of an image and the like only that it was there."""
    kind = text_at(part, "type") or "text"
    named = text_at(part, "source", "path")
    what = "" if kind == "text" else f"[{kind}: {named}]" if named else f"[{kind}]"
    return text_at(part, "text") or what


def _with_cost(counts: dict[str, Any], cost: float | None) -> Usage:
    known: dict[str, Any] = {} if cost is None else {"cost_usd": cost, "cost_source": "reported"}
    return Usage(**counts, **known)


def _reward(extra: dict[str, Any]) -> Any:
    """Return the grade that the rewards of a trajectory stand for, as those of Harbor do."""
    reward = number_at(extra, "rewards", "reward")
    if reward is None:
        return UNSET
    passed = value_at(extra, "passed")
    return Grade(
        pass_=passed if isinstance(passed, bool) else reward >= 1,
        score=min(1.0, max(0.0, reward)),
        outcome={"rewards": object_at(extra, "rewards")},
    )


def _of_mini(value: dict[str, Any], name: str) -> Trial:
    """Read messages between a model and a shell; an observation is the user's next message."""
    messages = objects_at(value, "messages")
    asked = [_content(one.get("content")) for one in messages if one.get("role") == "user"][:1]
    builder, n_users = StepBuilder(), 0
    for number, message in enumerate(messages):
        role = message.get("role")
        n_users += role == "user"
        if role == "assistant":
            _add_answer(message, f"call-{number}", builder)
        elif role in ("tool", "user") and n_users > (role == "user"):
            output, call_id = _content(message.get("content")), text_at(message, "tool_call_id")
            if builder.has_open_call:
                builder.tool(0, status="completed", output=output, call_id=call_id)
    info = object_at(value, "info")
    return _made(
        text_at(value, "instance_id") or name.removesuffix(".traj"),
        asked,
        builder,
        AgentInfo(
            adapter="mini-swe-agent",
            version=or_unset(text_at(info, "mini_version")),
            model=or_unset(text_at(info, "config", "model", "model_name")),
        ),
        _with_cost({}, cost_at(info, "model_stats", "instance_cost")),
        output=text_at(info, "submission"),
        metadata={"exitStatus": info["exit_status"]} if info.get("exit_status") else {},
    )


def _add_answer(message: dict[str, Any], call_id: str, builder: StepBuilder) -> None:
    if thought := text_at(message, "reasoning_content"):
        builder.thought(thought, 0)
    if said := _content(message.get("content")):
        builder.message(said, 0)
    calls = objects_at(message, "tool_calls")
    for call in calls:
        given = text_at(call, "function", "arguments")
        builder.tool(
            0,
            name=text_at(call, "function", "name") or "bash",
            call_id=str(call.get("id") or call_id),
            input=parse_line(given.encode()) if given else None,
        )
    commands = [] if calls else [text_at(one, "command") for one in _actions(message)]
    for index, command in enumerate(commands or ([] if calls else _commands_in(said))):
        builder.tool(0, name="bash", call_id=f"{call_id}-{index}", input={"command": command})


def _actions(message: dict[str, Any]) -> list[dict[str, Any]]:
    return objects_at(message, "extra", "actions")
