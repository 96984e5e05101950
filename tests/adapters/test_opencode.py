"""OpenCode: the command it gets, and what is read from its stream, its database and its log."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from msgspec import UNSET

from assay.adapters.opencode import OpenCodeAdapter
from assay.errors import InputError
from assay.pipeline.extract import failure_of
from assay.plugin import Ask, Reading
from assay.records.capture import Message, Plan, Thought, ToolCall
from assay.records.recording import RawLine, Recording, Turn, TurnEnd

OWN = "opencode-1.18.33"
ONE, TWO, THREE = ((n * 1200, n * 50, n * 300, n * 10) for n in range(1, 4))
"""Input, output, cache read, reasoning."""
ARCHIVED: dict[str, tuple[str | None, tuple[int, ...] | None]] = {
    "anthropic_provider": (None, (2400, 120, 600, 0)),
    "bad_config": ("spawn", None),
    "bad_flag": ("spawn", None),
    "bad_model": ("provider", None),
    "bad_provider": ("provider", None),
    "bad_tool_json": (None, (1300, 70, 300, 10)),
    "bash_timeout": (None, (200, 40, 0, 0)),
    "basic": (None, TWO),
    "config_dir_prefilled": (None, TWO),
    "conn_refused": ("agent_crash", None),  # killed by hand; nothing told why it waited
    "default_format": ("agent_crash", None),
    "drop_forever": ("agent_crash", None),
    "empty_reply": (None, ONE),
    "err400": ("provider", None),
    "err401": ("auth", None),
    "err404_model": ("provider", None),
    "err429_forever": ("provider", None),
    "err429_once": (None, ONE),
    "err500_forever": ("agent_crash", None),
    "err500_once": (None, ONE),
    "external_dir": ("agent_crash", ONE),
    "final_exact": (None, TWO),
    "git_ws": (None, TWO),
    "hang_cfg_timeout": ("provider", None),
    "hang_sigint": ("agent_crash", None),
    "hang_sigterm": ("agent_crash", None),
    "max_steps": (None, (14500, 620, 3600, 120)),
    "max_steps_obeyed": (None, THREE),
    "max_tokens_stop": ("agent_limit", ONE),
    "mcp": (None, TWO),
    "mcp_broken": (None, TWO),
    "no_auto_no_perm": (None, TWO),
    "no_disables": (None, TWO),
    "no_enabled_providers": (None, TWO),
    "no_thinking_flag": (None, TWO),
    "no_title_flag": (None, TWO),
    "offline_minimal": (None, TWO),
    "parallel_tools": (None, TWO),
    "perm_ask": ("agent_crash", ONE),
    "perm_deny": (None, TWO),
    "prompt_too_long": ("agent_limit", (200, 40, 0, 0)),
    "resume.1": (None, ONE),
    "resume.2": (None, TWO),
    "resume.3": (None, ONE),
    "resume.4": (None, ONE),
    "resume_unknown": ("harness", None),
    "sse_cut_mid": (None, (100, 20, 0, 0)),
    "stdin_prompt": (None, TWO),
    "subagent": (None, TWO),
    "subagent_export.1": (None, TWO),
    "tool_fail": (None, THREE),
    "tool_hang_sigkill": ("agent_crash", None),
    "tool_hang_sigterm": ("agent_crash", None),
}
NO_STREAM = {"subagent_export.2"}
"""Made by `opencode export`, not by a run."""
Load = Callable[..., Recording]


def read(recording: Recording, **options: Any) -> Reading:
    return OpenCodeAdapter(**options).read(recording)


def cause(recording: Recording, reading: Reading) -> str | None:
    failure = failure_of(recording, reading)
    return failure.cause.value if failure else None


def calls(reading: Reading) -> list[ToolCall]:
    return [step for step in reading.steps if isinstance(step, ToolCall)]


def told(reading: Reading, kind: type) -> list[str]:
    return [step.content for step in reading.steps if isinstance(step, kind)]


@pytest.mark.parametrize("name", ARCHIVED)
def test_outcome_and_tokens(archived_recording: Load, name: str) -> None:
    recording = archived_recording("opencode", name)
    reading = read(recording)
    expected, tokens = ARCHIVED[name]
    assert cause(recording, reading) == expected
    used = reading.usage
    counted = used and (
        used.input_tokens, used.output_tokens, used.cache_read_tokens, used.reasoning_tokens,
    )  # fmt: skip
    assert counted == tokens
    assert reading.events.unknown == {}
    assert reading.events.mapped + reading.events.unparsed == reading.events.total


@pytest.mark.parametrize("name", ARCHIVED)
def test_no_text_and_no_call_is_lost(archived_recording: Load, name: str) -> None:
    """Count again, in the plainest way, what the lines hold."""
    recording = archived_recording("opencode", name)
    reading = read(recording)
    said: dict[str, list[str]] = {"text": [], "reasoning": []}
    made = []
    for line in recording.turns[0].lines():
        event = json.loads(line.text) if line.text.startswith(b"{") else {}
        part = event.get("part", {})
        if event.get("type") in said and not part.get("synthetic"):
            said[event["type"]].append(part["text"])
        elif event.get("type") == "tool_use":
            state = part["state"]
            name = state["input"]["tool"] if part["tool"] == "invalid" else part["tool"]
            made.append(
                (part["callID"], name, state["input"], state.get("output", state.get("error")))
            )
    assert told(reading, Message) == said["text"]
    assert told(reading, Thought) == said["reasoning"]
    assert [(c.call_id, c.name, c.input, c.output) for c in calls(reading)] == made


def test_all_archived_recordings_are_listed(recordings: Path) -> None:
    folder = recordings / "opencode"
    listed = {path.name.removesuffix(".jsonl") for path in folder.glob("*.jsonl")}
    assert listed == set(ARCHIVED) | NO_STREAM


def test_calls_that_failed_though_completed(archived_recording: Load) -> None:
    failed = calls(read(archived_recording("opencode", "tool_fail")))
    assert [(c.name, c.status, c.exit_code) for c in failed] == [
        ("bash", "failed", 3),
        ("no_such_tool", "failed", UNSET),
        ("write", "failed", UNSET),
        ("read", "failed", UNSET),
    ]
    assert failed[0].error == "exit code 3"
    assert failed[0].duration == 1355.0
    (slow,) = calls(read(archived_recording("opencode", "bash_timeout")))
    assert slow.status == "failed"
    assert "timeout 1500 ms" in str(slow.error)
    mcp = calls(read(archived_recording("opencode", "mcp")))
    assert [(c.name, c.status, c.output) for c in mcp] == [
        ("demo_boom", "failed", "boom failed"),
        ("demo_add", "completed", "5"),
    ]


def test_resumed_turns_are_added_up(archived_recording: Load) -> None:
    reading = read(archived_recording("opencode", "resume.1", "resume.2", "resume.3"))
    assert reading.usage
    assert (reading.usage.input_tokens, reading.usage.reasoning_tokens) == (4800, 40)
    assert (reading.usage.cost_usd, reading.usage.cost_source) == (
        pytest.approx(0.01836),
        "reported",
    )
    assert [usage.input_tokens for usage in reading.turn_usage] == [1200, 2400, 1200]
    assert reading.outputs == ["First answer.", "Second answer.", "Third answer."]


def test_answer_after_a_context_that_was_too_long_counts(archived_recording: Load) -> None:
    recording = archived_recording("opencode", "prompt_too_long")
    failure = failure_of(recording, read(recording))
    assert failure
    assert failure.answered


def test_permission_that_nobody_gave(archived_recording: Load) -> None:
    recording = archived_recording("opencode", "perm_ask")
    reading = read(recording)
    assert reading.permission_denials == 1
    failure = failure_of(recording, reading)
    assert failure
    assert "permission" in failure.message
    assert not failure.answered


@pytest.mark.parametrize(
    ("name", "expected", "tokens"),
    [
        ("answer", None, (128, 30)),
        ("tool", None, (200, 40)),
        ("fail", None, (200, 40)),
        ("parallel", None, (200, 40)),
        ("subagent", None, (400, 80)),
        ("plan", None, (200, 40)),
        ("turns", None, (200, 40)),
        ("mcp", None, (200, 40)),
        ("auth", "auth", None),
        ("broken", "provider", None),
        ("retry", None, (100, 20)),
        ("limit", "agent_limit", (200, 40)),
        ("killed", "agent_timeout", None),
    ],
)
def test_own_recordings(
    own_recording: Load, name: str, expected: str | None, tokens: tuple[int, int] | None
) -> None:
    recording = own_recording(OWN, name)
    reading = read(recording, model="mock/mock-model", max_turns=2 if name == "limit" else None)
    assert cause(recording, reading) == expected
    used = reading.usage
    assert (used and (used.input_tokens, used.output_tokens)) == tokens
    assert reading.events.unknown == {}
    assert reading.events.mapped == reading.events.total
    assert reading.agent
    assert (reading.agent.version, reading.agent.model) == ("1.18.33", "mock/mock-model")


def test_sub_agent_stands_behind_its_call(own_recording: Load) -> None:
    reading = read(own_recording(OWN, "subagent"))
    told = [(type(s).__name__, s.parent or None) for s in reading.steps]
    assert told == [
        ("ToolCall", None),
        ("Message", "call_task"),
        ("ToolCall", "call_task"),
        ("Message", "call_task"),
        ("Message", None),
    ]
    times = [step.timestamp for step in reading.steps[:4]]
    assert times == sorted(times)
    assert reading.outputs == ["Main end."]


def test_call_that_was_cut_short_comes_from_the_database(own_recording: Load) -> None:
    recording = own_recording(OWN, "killed")
    (call,) = calls(read(recording))
    assert (call.name, call.status) == ("bash", "in_progress")
    assert call.input == {"command": "tail -f /dev/null"}


def test_retries_and_servers_come_from_the_log(own_recording: Load) -> None:
    assert read(own_recording(OWN, "retry")).provider_retries == 1
    broken = own_recording(OWN, "broken")
    reading = read(broken)
    assert reading.provider_retries >= 2
    assert reading.failure
    assert "it is broken" in reading.failure.message
    printed = Recording(
        start_ms=0, end_ms=9, turns=broken.turns, stderr=broken.stderr, kept=None
    )  # a user's own home: the log is only on stderr
    assert cause(printed, read(printed)) == "provider"
    mcp = {"mcpServers": {"adder": {"command": "x"}, "broken": {"command": "y"}}}
    setup = read(own_recording(OWN, "mcp"), mcp=mcp).setup
    assert setup == {
        "agent": "build",
        "mcpServers": [
            {"name": "adder", "status": "connected"},
            {"name": "broken", "status": "failed"},
        ],
    }


def test_errors_of_an_earlier_turn_explain_nothing() -> None:
    line = 'timestamp=1970-01-01T00:00:01.000Z level=ERROR message="stream error" error.error="500"'
    recording = of(stderr=line, timed_out=True, exit_code=None, start_ms=5000)
    assert cause(recording, read(recording)) == "agent_timeout"
    recording = of(stderr=line, timed_out=True, exit_code=None, start_ms=500)
    assert cause(recording, read(recording)) == "provider"


def test_plan(own_recording: Load) -> None:
    reading = read(own_recording(OWN, "plan"))
    (plan,) = [step for step in reading.steps if isinstance(step, Plan)]
    assert plan.entries == [{"content": "First", "status": "pending", "priority": "high"}]


def event(kind: str, at: int = 1000, **part: Any) -> dict[str, Any]:
    return {"type": kind, "timestamp": at, "sessionID": "ses_1", "part": {"id": "p", **part}}


def of(*events: dict[str, Any], stderr: str = "", **end: Any) -> Recording:
    lines = [RawLine(500, json.dumps(said).encode()) for said in events]
    turn = Turn(text="x", end=TurnEnd(**{"exit_code": 0, **end}), lines=lambda: lines)
    return Recording(start_ms=0, end_ms=1000, turns=(turn,), stderr=stderr)


def finish(reason: str, **more: Any) -> dict[str, Any]:
    return event("step_finish", reason=reason, tokens={"input": 1, "output": 1}, **more)


@pytest.mark.parametrize(
    ("reason", "expected"),
    [
        ("stop", None),
        ("length", "agent_limit"),
        ("content-filter", "agent_refused"),
        ("unknown", "provider"),
        ("error", "provider"),
        ("tool-calls", "agent_crash"),
    ],
)
def test_reason_of_the_last_model_call_decides(reason: str, expected: str | None) -> None:
    recording = of(event("step_start"), finish(reason))
    assert cause(recording, read(recording)) == expected


def test_end_is_taken_back_when_it_goes_on() -> None:
    watch = OpenCodeAdapter().watch()
    go_on = event("text", type="text", text="Continue.", synthetic=True)
    for said, ended in (
        (finish("stop"), True),
        (event("step_start"), False),
        (finish("stop"), True),
        (go_on, False),
    ):
        watch.feed(RawLine(0, json.dumps(said).encode()))
        assert watch.ended is ended
    assert watch.session_id == "ses_1"


def test_limit_ends_the_turn_at_once_and_stays() -> None:
    watch: Any = OpenCodeAdapter(max_turns=1).watch()
    watch.feed(RawLine(0, json.dumps(finish("tool-calls")).encode()))
    watch.feed(RawLine(0, json.dumps(event("step_start")).encode()))
    assert watch.ended
    assert watch.over_limit
    recording = of(event("step_start"), finish("tool-calls"), lingered=True, exit_code=None)
    assert cause(recording, read(recording)) == "agent_limit"


def test_time_of_a_call_is_when_it_began() -> None:
    state = {"status": "completed", "input": {}, "output": "", "time": {"start": 700, "end": 900}}
    (call,) = calls(read(of(event("tool_use", type="tool", tool="x", callID="c", state=state))))
    assert (call.timestamp, call.duration) == (200, 200.0)


def test_events_that_are_not_known_are_counted() -> None:
    odd = [{"type": "text"}, {"type": "tool_use", "part": {"state": 3}}, {"type": "step_finish"}]
    reading = read(of({"type": "novelty"}, {"no": "type"}, {"type": "error", "error": 5}, *odd))
    assert reading.events.unknown == {"novelty": 1, "(no type)": 1}
    assert reading.events.mapped == 4


def test_cost_of_nothing_is_not_known() -> None:
    used = read(of(finish("stop", cost=0))).usage
    assert used
    assert used.cost_usd is UNSET
    used = read(of(finish("stop", cost=0)), model="anthropic/claude-sonnet-4-5").usage
    assert used
    assert used.cost_source == "estimated"


def test_command_of_a_user() -> None:
    command = OpenCodeAdapter().command(Ask(text="say two words", cwd="/w"))
    assert command.argv[:4] == ("opencode", "run", "--format", "json")
    assert command.stdin == "say two words"
    assert {"--auto", "--thinking", "--title"} <= set(command.argv)
    assert "--pure" not in command.argv
    assert "OPENCODE_CONFIG_CONTENT" not in command.env
    assert (command.files, command.keep) == ({}, ())


def test_command_with_everything() -> None:
    mcp = {
        "a": {"command": "srv", "args": ["-x"], "env": {"K": "${MY_KEY}"}},
        "far": {"url": "http://x/mcp", "headers": {"A": "${TOKEN:-none}"}},
    }
    adapter = OpenCodeAdapter(model="anthropic/claude-x", args=("--variant", "high"), mcp=mcp)
    ask = Ask(text="hi", cwd="/w", session_id="ses_1", home="/h")
    command = adapter.command(ask)
    argv = list(command.argv)
    for flag, value in {"--model": "anthropic/claude-x", "--session": "ses_1"}.items():
        assert argv[argv.index(flag) + 1] == value
    assert "--pure" in argv
    assert argv[-2:] == ["--variant", "high"]
    config = json.loads(command.files["/h/.config/opencode/opencode.json"])
    assert config["permission"] == "allow"
    assert config["mcp"] == {
        "a": {
            "type": "local",
            "command": ["srv", "-x"],
            "enabled": True,
            "environment": {"K": "{env:MY_KEY}"},
        },
        "far": {
            "type": "remote",
            "url": "http://x/mcp",
            "enabled": True,
            "headers": {"A": "{env:TOKEN}"},
        },
    }
    assert "/h/.config/opencode/package-lock.json" in command.files
    assert command.pass_env == ("ANTHROPIC_API_KEY", "MY_KEY", "TOKEN")
    users = adapter.command(Ask(text="hi", cwd="/w"))
    assert json.loads(users.env["OPENCODE_CONFIG_CONTENT"]) == config


def test_the_users_own_configuration_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """OpenCode reads one such variable: ours would replace the user's provider."""
    mine = """{"provider": {"p": {"options": {"apiKey": "{env:KEY}"}}}, // my provider
      "mcp": {"own": {"type": "local", "command": ["x"]}}, "permission": {"bash": "ask"},}"""
    monkeypatch.setenv("OPENCODE_CONFIG_CONTENT", mine)
    adapter = OpenCodeAdapter(mcp={"s": {"command": "c"}})
    command = adapter.command(Ask(text="t", cwd="/w", scratch="/s"))
    config = json.loads(command.env["OPENCODE_CONFIG_CONTENT"])
    assert config["provider"] == {"p": {"options": {"apiKey": "{env:KEY}"}}}
    assert sorted(config["mcp"]) == ["own", "s"]
    assert config["permission"] == "allow"
    monkeypatch.setenv("OPENCODE_CONFIG_CONTENT", "[]")
    with pytest.raises(InputError, match="OPENCODE_CONFIG_CONTENT is not a JSON object"):
        adapter.command(Ask(text="t", cwd="/w", scratch="/s"))
