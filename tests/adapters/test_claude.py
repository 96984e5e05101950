"""Claude Code: the command it gets, and what is read from recordings of the real program."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from msgspec import UNSET

from assay.adapters.claude import ClaudeAdapter
from assay.errors import InputError
from assay.pipeline.extract import failure_of
from assay.plugin import Ask, Reading
from assay.records.capture import Message, Plan, Thought, ToolCall
from assay.records.recording import RawLine, Recording, Turn, TurnEnd

OWN = "claude-2.1.325"
ONE, TWO, THREE, FOUR = (
    (n * 1200, n * 60, n * 300, n * 50) for n in range(1, 5)
)  # input, output, cache read, cache write
ARCHIVED: dict[str, tuple[str | None, tuple[int, ...] | None]] = {
    "auth_token": (None, TWO),
    "bad_flag": ("spawn", None),
    "bad_tool_json": (None, (1300, 80, 300, 50)),
    "bare": (None, TWO),
    "bash_background": (None, (300, 60, 0, 0)),
    "bash_background_disabled": (None, (200, 40, 0, 0)),
    "bash_timeout": (None, (300, 60, 0, 0)),
    "bash_timeout_bgoff": (None, (200, 40, 0, 0)),
    "basic": (None, TWO),
    "conn_refused": ("provider", None),
    "default_retries_500": ("provider", None),
    "denied": (None, TWO),
    "drop_forever": ("provider", None),
    "empty_reply": (None, TWO),
    "err400": ("provider", None),
    "err401": ("auth", None),
    "err401_r1": ("auth", None),
    "err404_model": ("provider", None),
    "err429_forever": ("provider", None),
    "err429_once": (None, ONE),
    "err500_forever": ("provider", None),
    "err500_once": (None, ONE),
    "err529_forever": ("provider", None),
    "few_tools": (None, TWO),
    "final_exact": (None, TWO),
    "hang_api_timeout": ("provider", None),
    "hang_sigint": ("agent_crash", None),
    "hang_sigterm": ("agent_crash", None),
    "json_format": (None, TWO),
    "json_schema": (None, ONE),
    "max_budget": ("agent_limit", THREE),
    "max_tokens_stop": (None, (1300, 80, 300, 50)),
    "max_turns": ("agent_limit", TWO),
    "mcp": (None, TWO),
    "mcp_broken": (None, TWO),
    "mcp_toolsearch_off": (None, TWO),
    "mock_model_name": (None, TWO),
    "no_disables": (None, TWO),
    "no_key": ("auth", None),
    "no_verbose": ("spawn", None),
    "opus_model": (None, TWO),
    "parallel_tools": (None, TWO),
    "partial": (None, TWO),
    "prompt_too_long": ("agent_limit", None),
    "recommended": (None, TWO),
    "refusal": ("agent_refused", TWO),
    "resume.1": (None, ONE),
    "resume.2": (None, TWO),
    "resume.3": (None, ONE),
    "resume.4": (None, ONE),
    "resume_other_cwd.1": (None, ONE),
    "resume_other_cwd.2": (None, TWO),
    "resume_unknown": ("harness", None),
    "retries0": ("provider", None),
    "root_allowed_tools": (None, TWO),
    "root_bypass_refused": ("spawn", None),
    "root_bypass_unset": ("spawn", None),
    "root_skip_refused": ("spawn", None),
    "sse_cut_mid": (None, (2500, 81, 600, 100)),
    "sse_error_mid": (None, (1300, 80, 300, 50)),
    "stdin_prompt": (None, TWO),
    "stream_input": (None, FOUR),
    "stream_input_allatonce": (None, THREE),
    "subagent": (None, FOUR),
    "subagent_default_name_agent": (None, FOUR),
    "text_format": ("agent_crash", None),
    "tool_fail": (None, THREE),
    "tool_hang_sigkill": ("agent_crash", None),
    "tool_hang_sigterm": ("agent_crash", None),
}
Load = Callable[..., Recording]


def read(recording: Recording, **options: Any) -> Reading:
    return ClaudeAdapter(**options).read(recording)


def cause(recording: Recording, reading: Reading) -> str | None:
    failure = failure_of(recording, reading)
    return failure.cause.value if failure else None


def calls(reading: Reading) -> list[ToolCall]:
    return [step for step in reading.steps if isinstance(step, ToolCall)]


def told(reading: Reading, kind: type) -> list[str]:
    return [step.content for step in reading.steps if isinstance(step, kind)]


@pytest.mark.parametrize("name", ARCHIVED)
def test_outcome_and_tokens(archived_recording: Load, name: str) -> None:
    recording = archived_recording("claude", name)
    reading = read(recording)
    expected, tokens = ARCHIVED[name]
    assert cause(recording, reading) == expected
    used = reading.usage
    counted = used and (
        used.input_tokens, used.output_tokens, used.cache_read_tokens, used.cache_write_tokens,
    )  # fmt: skip
    assert counted == tokens
    assert reading.events.unknown == {}
    assert reading.events.mapped + reading.events.unparsed == reading.events.total


@pytest.mark.parametrize("name", ARCHIVED)
def test_no_text_and_no_call_is_lost(archived_recording: Load, name: str) -> None:
    """Count again, in the plainest way, what the lines hold."""
    recording = archived_recording("claude", name)
    reading = read(recording)
    said: dict[str, list[str]] = {"text": [], "thinking": []}
    made: dict[str, Any] = {}
    ended: dict[str, tuple[Any, bool]] = {}
    for line in recording.turns[0].lines():
        event = json.loads(line.text) if line.text.startswith(b"{") else {}
        if event.get("type") not in ("assistant", "user"):
            continue
        for block in event["message"]["content"]:
            if block["type"] in said and event["type"] == "assistant":
                said[block["type"]].append(block[block["type"]])
            elif block["type"] == "tool_use":
                made[block["id"]] = (block["name"], block["input"], event["parent_tool_use_id"])
            elif block["type"] == "tool_result":
                content = block["content"]
                text = content if isinstance(content, str) else content[0]["text"]
                ended[block["tool_use_id"]] = (text, block.get("is_error", False))
    assert told(reading, Message) == said["text"]
    assert told(reading, Thought) == said["thinking"]
    steps = calls(reading)
    assert {s.call_id: (s.name, s.input, s.parent or None) for s in steps} == made
    finished = {s.call_id: (s.output, s.status == "failed") for s in steps if s.output is not UNSET}
    assert finished == ended
    assert all((s.error is not UNSET) == (s.status == "failed") for s in steps)


def test_all_archived_recordings_are_listed(recordings: Path) -> None:
    folder = recordings / "claude"
    assert {path.name.removesuffix(".jsonl") for path in folder.glob("*.jsonl")} == set(ARCHIVED)


def test_resumed_turns_are_not_counted_twice(archived_recording: Load) -> None:
    reading = read(archived_recording("claude", "resume.1", "resume.2", "resume.3"))
    assert reading.usage
    assert (reading.usage.input_tokens, reading.usage.output_tokens) == (4800, 240)
    assert reading.usage.cost_usd == pytest.approx(0.01911)
    assert [usage.input_tokens for usage in reading.turn_usage] == [1200, 2400, 1200]
    assert reading.outputs == ["First answer.", "Second answer.", "Third answer."]
    assert [step.turn for step in reading.steps] == [1, 2, 2, 2, 3]


def test_cost_of_a_model_without_price_is_not_believed(archived_recording: Load) -> None:
    unknown = read(archived_recording("claude", "mock_model_name")).usage
    known = read(archived_recording("claude", "basic")).usage
    assert unknown
    assert known
    assert unknown.cost_usd is UNSET
    assert (known.cost_usd, known.cost_source) == (0.009555, "reported")


def test_setup_retries_denials_and_details(archived_recording: Load) -> None:
    mcp = read(archived_recording("claude", "mcp_broken"))
    assert mcp.setup
    assert mcp.setup["mcpServers"] == [{"name": "bad", "status": "failed"}]
    assert "Bash" in mcp.setup["tools"]
    assert read(archived_recording("claude", "denied")).permission_denials == 1
    assert read(archived_recording("claude", "err429_forever")).provider_retries == 2
    basic = read(archived_recording("claude", "basic"))
    assert basic.agent
    assert (basic.agent.version, basic.agent.model) == ("2.1.325", "claude-sonnet-4-5")
    assert basic.session_id == "3c9036aa-3dd6-4059-aa08-f5998eb8e7a4"
    (call,) = calls(basic)
    assert (call.exit_code, call.duration, call.status) == (0, 372.0, "completed")
    failed = calls(read(archived_recording("claude", "tool_fail")))
    assert [call.exit_code for call in failed] == [3, UNSET, UNSET, UNSET]


@pytest.mark.parametrize(
    ("name", "expected", "tokens"),
    [
        ("answer", None, (120, 37)),
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
    reading = read(recording)
    assert cause(recording, reading) == expected
    used = reading.usage
    assert (used and (used.input_tokens, used.output_tokens)) == tokens
    assert reading.events.unknown == {}
    assert reading.events.mapped == reading.events.total > 0


def test_own_recordings_in_detail(own_recording: Load) -> None:
    def steps(name: str) -> Reading:
        return read(own_recording(OWN, name))

    answer = steps("answer")
    assert (told(answer, Thought), told(answer, Message)) == (["I add."], ["Four ✓."])
    assert [(c.status, c.exit_code) for c in calls(steps("fail"))] == [
        ("failed", 3),
        ("failed", UNSET),
    ]
    plans = [step.entries for step in steps("plan").steps if isinstance(step, Plan)]
    assert plans[-1] == [
        {"id": "1", "content": "First", "status": "pending"},
        {"id": "2", "content": "Second", "status": "pending"},
    ]
    sub = steps("subagent").steps
    assert [step.parent or None for step in sub] == [None, *["call_task"] * 3, None]
    assert steps("turns").outputs == ["First.", "Second."]
    assert calls(steps("mcp"))[0].output == "5"
    servers = (steps("mcp").setup or {})["mcpServers"]
    assert {s["name"]: s["status"] for s in servers} == {"adder": "connected", "broken": "failed"}
    (hung,) = calls(steps("killed"))
    assert hung.status in ("pending", "failed")  # TERM may still let the CLI tell of its end


def of(*events: dict[str, Any], **end: Any) -> Recording:
    lines = [RawLine(n * 10, json.dumps(event).encode()) for n, event in enumerate(events)]
    turn = Turn(text="x", end=TurnEnd(**{"exit_code": 0, **end}), lines=lambda: lines)
    return Recording(start_ms=0, end_ms=100, turns=(turn,))


def test_events_that_are_not_known_are_counted() -> None:
    reading = read(
        of(
            {"type": "system", "subtype": "brand_new"},
            {"type": "novelty"},
            {"type": "assistant", "message": {"content": [{"type": "hologram"}]}},
            {"type": "assistant", "message": {"content": "plain text"}},
            {"type": "system", "subtype": "compact_boundary"},
            {"no": "type"},
            {"result": "ok", "is_error": False, "type": "result"},
        )
    )
    assert reading.events.unknown == {
        "system/brand_new": 1, "novelty": 1, "assistant:hologram": 1, "(no type)": 1,
    }  # fmt: skip
    assert reading.events.mapped == 3
    assert told(reading, Message) == ["plain text"]
    assert reading.outputs == ["ok"]


def test_odd_lines_do_no_harm() -> None:
    reading = read(
        of(
            {"type": "assistant"},
            {"type": "assistant", "message": None},
            {"type": "user", "message": {"content": [None, {"type": "tool_result"}]}},
            {"type": "result", "usage": 7, "permission_denials": 3, "is_error": True},
            {"type": "system", "subtype": "init", "mcp_servers": "x", "tools": None},
        )
    )
    assert reading.events.mapped == 5


@pytest.mark.parametrize("more", [{}, {"terminal_reason": "api_error"}, {"subtype": 3}])
def test_an_error_without_a_word_is_told_in_words(more: dict[str, Any]) -> None:
    """It said "None"."""
    failure = read(
        of({"type": "result", "is_error": True, **more}),
    ).failure
    assert failure is not None
    expected = more.get("terminal_reason", "it gave an error without a word")
    assert failure.message == expected


def test_result_without_its_share_falls_back_to_the_turn() -> None:
    usage = {"input_tokens": 10, "output_tokens": 5, "cache_read_input_tokens": 3}
    result = {
        "type": "result",
        "is_error": False,
        "usage": usage,
        "modelUsage": {"claude-opus-5": {}},
    }
    reading = read(of(result))
    assert reading.usage
    assert (reading.usage.input_tokens, reading.usage.cache_read_tokens) == (10, 3)
    assert reading.usage.cost_source == "estimated"


def test_images_in_a_result_stay_as_they_are() -> None:
    image = [{"type": "image", "source": {"data": "…"}}, {"type": "text", "text": "seen"}]
    use = {"type": "tool_use", "id": "t", "name": "Read", "input": {}}
    result = {"type": "tool_result", "tool_use_id": "t", "content": image}
    reading = read(
        of(
            {"type": "assistant", "message": {"content": [use]}},
            {"type": "user", "message": {"content": [result]}},
        )
    )
    assert calls(reading)[0].output == image


def test_tokens_of_a_killed_turn_come_from_the_session_file(own_recording: Load) -> None:
    recording = own_recording(OWN, "killed")
    assert recording.kept
    session = recording.kept / ".claude/projects/-workspace/s.jsonl"
    session.parent.mkdir(parents=True)
    usage = {"input_tokens": 100, "output_tokens": 20, "cache_read_input_tokens": 1}
    answer = {"id": "msg_main_00", "model": "claude-sonnet-4-5", "usage": usage}
    other = {"id": "msg_of_an_earlier_turn", "usage": usage}
    lines = [{"type": "assistant", "message": said} for said in (other, answer, answer)]
    session.write_text("\n".join(map(json.dumps, lines)))
    used = read(recording).usage
    assert used
    assert (used.input_tokens, used.output_tokens, used.cache_read_tokens) == (100, 20, 1)
    assert used.cost_source == "estimated"


def test_a_session_file_of_any_shape_is_read(own_recording: Load) -> None:
    recording = own_recording(OWN, "killed")
    assert recording.kept
    session = recording.kept / ".claude/projects/-workspace/s.jsonl"
    session.parent.mkdir(parents=True)
    odd = ({"id": ["msg_main_00"], "usage": {}}, {"id": {}}, {"id": "msg_main_00", "usage": 1}, [])
    lines = [{"type": "assistant", "usage": 1, "message": message} for message in odd]
    session.write_text("\n".join(map(json.dumps, lines)))
    assert read(recording).usage is None


def test_watch_gives_steps_as_they_come(own_recording: Load) -> None:
    watch = ClaudeAdapter().watch()
    (turn,) = own_recording(OWN, "tool").turns
    seen = [type(step).__name__ for line in turn.lines() for step in watch.feed(line)]
    assert seen == ["Message", "ToolCall", "ToolCall", "Message"]
    assert watch.ended
    assert watch.session_id
    assert watch.output() == "Done."


def test_command_of_a_user() -> None:
    command = ClaudeAdapter().command(Ask(text="--help me", cwd="/w"))
    assert command.argv[:5] == ("claude", "-p", "--output-format", "stream-json", "--verbose")
    assert command.argv[-2:] == ("--", "--help me")
    assert "--setting-sources" not in command.argv
    assert "--strict-mcp-config" not in command.argv
    assert "--model" not in command.argv
    assert command.stdin is None
    assert command.env["IS_SANDBOX"] == "1"
    assert "DISABLE_TELEMETRY" not in command.env


def test_command_with_everything() -> None:
    mcp = {"mcpServers": {"a": {"command": "srv", "args": ["-x"], "env": {"K": "${MY_KEY}"}}}}
    adapter = ClaudeAdapter(
        argument="/opt/claude", model="m", args=("--effort", "low"), max_turns=7, mcp=mcp
    )
    world = {"game": {"command": "play"}, "far": {"url": "http://x/mcp", "headers": {"A": "b"}}}
    ask = Ask(text="hi", cwd="/w", session_id="abc", home="/h", mcp_servers=world)
    command = adapter.command(ask)
    argv = list(command.argv)
    assert argv[0] == "/opt/claude"
    for flag, value in {"--model": "m", "--max-turns": "7", "--resume": "abc"}.items():
        assert argv[argv.index(flag) + 1] == value
    assert "--strict-mcp-config" in argv
    config = json.loads(argv[argv.index("--mcp-config") + 1])
    assert config == {
        "mcpServers": {
            "a": {"command": "srv", "args": ["-x"], "env": {"K": "${MY_KEY}"}},
            "game": {"command": "play"},
            "far": {"type": "http", "url": "http://x/mcp", "headers": {"A": "b"}},
        }
    }
    assert argv[-4:] == ["--effort", "low", "--", "hi"]
    assert {"ANTHROPIC_API_KEY", "MY_KEY"} <= set(command.pass_env)
    assert command.env["DISABLE_TELEMETRY"] == "1"


def test_long_prompt_goes_through_stdin() -> None:
    command = ClaudeAdapter().command(Ask(text="y" * 200_000, cwd="/w"))
    assert command.stdin == "y" * 200_000
    assert "--" not in command.argv


def test_wrong_options_are_named() -> None:
    with pytest.raises(InputError, match=r"mcpServers\.a"):
        ClaudeAdapter(mcp={"mcpServers": {"a": {"args": []}}})
    with pytest.raises(InputError, match="at least 1"):
        ClaudeAdapter(max_turns=0)
