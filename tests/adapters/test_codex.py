"""Codex: command lines, and what its stream and its rollout say, each by itself and together."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from assay.adapters.codex import CodexAdapter, native_program
from assay.adapters.codex.merge import _bare_step
from assay.adapters.codex.rollout import Call
from assay.errors import InputError
from assay.plugin import Ask, Reading
from assay.records.capture import Message, Plan, Thought, ToolCall
from assay.records.recording import RawLine, Recording, Turn, TurnEnd

THREAD = "0199a213-81c0-7800-8aa1-bbab2a035a53"
START = {"type": "thread.started", "thread_id": THREAD}
BEGUN = {"type": "turn.started"}


def item(kind: str, number: int, state: str = "completed", **fields: Any) -> dict[str, Any]:
    return {"type": f"item.{state}", "item": {"id": f"item_{number}", "type": kind, **fields}}


def command(number: int, text: str, state: str = "completed", **fields: Any) -> dict[str, Any]:
    shown = {"command": f"/bin/bash -lc '{text}'", "aggregated_output": "", "exit_code": None}
    return item("command_execution", number, state, **{**shown, **fields})


def done(**usage: int) -> dict[str, Any]:
    return {"type": "turn.completed", "usage": usage}


def recording(*turns: list[dict[str, Any]], kept: Path | None = None, **end: Any) -> Recording:
    made = []
    for number, events in enumerate(turns, 1):
        lines = [RawLine(10 * n, json.dumps(e).encode()) for n, e in enumerate(events)]
        ended = TurnEnd(**({"exit_code": 0} | end)) if number == len(turns) else TurnEnd()
        made.append(Turn(text="x", end=ended, lines=lambda lines=lines: lines))  # type: ignore[misc]
    return Recording(start_ms=0, end_ms=10_000, turns=tuple(made), kept=kept)


def read(*turns: list[dict[str, Any]], adapter: CodexAdapter | None = None, **more: Any) -> Reading:
    return (adapter or CodexAdapter()).read(recording(*turns, **more))


def rollout(folder: Path, *entries: tuple[str, dict[str, Any]], name: str = THREAD) -> Path:
    lines = [{"type": "session_meta", "payload": {"id": name, "cli_version": "9.9"}}]
    lines += [{"type": kind, "payload": payload} for kind, payload in entries]
    for number, line in enumerate(lines):
        line["timestamp"] = f"1970-01-01T00:00:0{min(number, 9)}.000Z"
    path = folder / f"rollout-x-{name}.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return folder


def call(name: str, call_id: str, arguments: Any, **more: Any) -> tuple[str, dict[str, Any]]:
    payload = {"type": "function_call", "name": name, "call_id": call_id, **more}
    return "response_item", {**payload, "arguments": json.dumps(arguments)}


def answered(call_id: str, output: Any) -> tuple[str, dict[str, Any]]:
    return "response_item", {"type": "function_call_output", "call_id": call_id, "output": output}


def began() -> tuple[str, dict[str, Any]]:
    return "event_msg", {"type": "task_started"}


def test_the_command_of_a_first_and_a_later_turn() -> None:
    adapter = CodexAdapter(model="m", args=("-c", "a=1"))
    first = adapter.command(Ask(text="-do it", cwd="/w", home="/h", scratch="/s"))
    assert first.argv[1:] == (
        *("exec", "--json", "--skip-git-repo-check"),
        *("--dangerously-bypass-approvals-and-sandbox", "-m", "m", "-c", "a=1", "--", "-do it"),
    )
    assert first.stdin is None
    assert first.env["CODEX_HOME"] == "/h/.codex"
    assert "enabled = false" in first.files["/h/.codex/config.toml"]
    assert first.keep == ("~/.codex/sessions/**/rollout-*.jsonl",)
    later = adapter.command(Ask(text="go on", cwd="/w", session_id=THREAD, scratch="/s"))
    assert later.argv[1:3] == ("exec", "resume")
    assert later.argv[-3:] == (THREAD, "--", "go on")
    assert (later.env, later.files) == ({}, {})
    assert later.keep == ("~/.codex/sessions/**/rollout-*{session_id}.jsonl",)


def test_a_long_prompt_goes_through_stdin_and_a_chosen_sandbox_stays() -> None:
    adapter = CodexAdapter(args=("-s", "workspace-write"))
    command = adapter.command(Ask(text="x" * 200_000, cwd="/w", scratch="/s"))
    assert command.argv[-1] == "-"
    assert command.stdin == "x" * 200_000
    assert not [word for word in command.argv if "bypass" in word]


def test_mcp_servers_become_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTHER", 'va"lue')
    servers = {
        "a-1": {"command": "run", "args": ["x y"], "env": {"KEY": "${KEY}", "B": "${OTHER}"}},
        "web": {"url": "http://x", "headers": {"A": "b"}},
    }
    world = {"game": {"command": "play"}}
    ask = Ask(text="t", cwd="/w", scratch="/s", mcp_servers=world)
    command = CodexAdapter(mcp={"mcpServers": servers}).command(ask)
    settings = [word for word in command.argv if word.startswith("mcp_servers.")]
    assert settings == [
        'mcp_servers.a-1.command="run"',
        'mcp_servers.a-1.args=["x y"]',
        'mcp_servers.a-1.env={ "B" = "va\\"lue" }',
        'mcp_servers.a-1.env_vars=["KEY"]',
        'mcp_servers.web.url="http://x"',
        'mcp_servers.web.http_headers={ "A" = "b" }',
        'mcp_servers.game.command="play"',
        "mcp_servers.game.args=[]",
        "mcp_servers.game.required=true",
    ]
    assert {"KEY", "OTHER"} <= set(command.pass_env)
    with pytest.raises(InputError, match="letters, digits"):
        CodexAdapter(mcp={"a.b": {"command": "x"}}).command(ask)


def test_the_binary_behind_the_wrapper_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    modules = tmp_path / "node_modules"
    script = modules / "@openai/codex/bin/codex.js"
    binary = modules / "@openai/codex-linux-x64/vendor/triple/bin/codex"
    for path in (script, binary):
        path.parent.mkdir(parents=True)
        path.write_text("#!/bin/sh\n")
        path.chmod(0o755)
    (modules / ".bin").mkdir()
    (modules / ".bin/codex").symlink_to(script)
    monkeypatch.setenv("PATH", str(modules / ".bin"))
    monkeypatch.setattr("platform.machine", lambda: "x86_64")
    monkeypatch.setattr("platform.system", lambda: "Linux")
    assert native_program("codex") == str(binary)
    shutil.rmtree(binary.parents[4])
    assert native_program("codex") == "codex"
    assert native_program("no-such-codex") == "no-such-codex"


def test_every_item_of_the_stream_is_read() -> None:
    change = {"path": "/w/a", "kind": "add"}
    reading = read(
        [
            START,
            item("error", 0, message="careful"),
            BEGUN,
            item("reasoning", 1, text="hm"),
            item("agent_message", 2, text="I act"),
            command(3, "ls", "started", status="in_progress"),
            command(3, "ls", aggregated_output="a\n", exit_code=0, status="completed"),
            item("file_change", 4, changes=[change], status="completed"),
            item(
                "mcp_tool_call", 5, server="s", tool="t", arguments={"x": 1}, status="completed",
                result={"content": [{"type": "text", "text": "one"}], "structured_content": None},
            ),
            item("web_search", 6, query="what"),
            item("collab_tool_call", 7, tool="wait", prompt=None, status="completed"),
            item("todo_list", 8, "started", items=[{"text": "a", "completed": False}]),
            item("todo_list", 8, "updated", items=[{"text": "a", "completed": True}]),
            item("agent_message", 9, text="The end"),
            item("todo_list", 8, items=[{"text": "a", "completed": True}]),
            done(input_tokens=10, cached_input_tokens=4, output_tokens=3),
        ]
    )  # fmt: skip
    kinds = [type(step).__name__ for step in reading.steps]
    assert kinds == ["Thought", "Message", *["ToolCall"] * 5, "Plan", "Plan", "Message"]
    calls = [step for step in reading.steps if isinstance(step, ToolCall)]
    assert [step.name for step in calls] == [
        *("exec_command", "apply_patch", "mcp__s__t", "web_search", "wait"),
    ]
    assert [step.status for step in calls] == ["completed"] * 5
    assert calls[0].input == {"cmd": "ls"}
    assert (calls[0].output, calls[0].exit_code, calls[0].duration) == ("a\n", 0, 10)
    assert (calls[2].input, calls[2].output) == ({"x": 1}, "one")
    assert reading.outputs == ["The end"]
    assert reading.events.mapped == reading.events.total == 16
    assert reading.setup == {"warnings": ["careful"]}
    assert reading.failure is None
    assert reading.session_id == THREAD


def test_unknown_events_and_items_are_counted() -> None:
    reading = read([START, {"type": "thread.dreamed"}, item("hologram", 1), done()])
    assert reading.events.unknown == {"thread.dreamed": 1, "item.completed.hologram": 1}
    assert reading.events.mapped == 2


def test_usage_of_a_resumed_thread_is_not_counted_twice() -> None:
    turns = [[START, BEGUN, done(input_tokens=100 * n, output_tokens=20 * n)] for n in (1, 2, 3)]
    reading = read(*turns)
    assert reading.usage is not None
    assert (reading.usage.input_tokens, reading.usage.output_tokens) == (300, 60)
    assert [usage.input_tokens for usage in reading.turn_usage] == [100, 100, 100]


def test_calls_of_two_turns_have_ids_of_their_own() -> None:
    turns = [[START, command(0, "ls", status="completed"), done()] for _ in range(2)]
    ids = [step.call_id for step in read(*turns).steps if isinstance(step, ToolCall)]
    assert ids == ["turn1-item_0", "turn2-item_0"]


def test_an_item_that_never_ended_is_cancelled() -> None:
    reading = read([START, command(0, "sleep 9", "started")], exit_code=None, signal="SIGKILL")
    (step,) = reading.steps
    assert isinstance(step, ToolCall)
    assert step.status == "cancelled"
    assert not reading.events.terminal


def test_a_call_without_an_item_is_cancelled_if_nothing_came_back() -> None:
    answers = {(None, None): "cancelled", (None, 7.0): "completed", ("x", None): "completed"}
    for (output, at_ms), status in answers.items():
        call = Call("c", "wait", output=output, output_ms=at_ms)
        assert _bare_step(call, None, 5.0).status == status


@pytest.mark.parametrize(
    ("message", "cause"),
    [
        ("unexpected status 403 Forbidden: x", "auth"),
        ("exceeded retry limit, last status: 429 Too Many Requests", "provider"),
        ("unexpected status 503 Service Unavailable", "provider"),
        ("stream disconnected before completion: x", "provider"),
        ("You've hit your usage limit. Upgrade to Pro", "provider"),
        ("Not logged in", "auth"),
        ('{"error": {"message": "bad", "type": "invalid_request_error"}}', "provider"),
        ("Incomplete response returned, reason: content_filter", "agent_refused"),
        ("Incomplete response returned, reason: max_output_tokens", "agent_limit"),
        ("something broke inside", "agent_crash"),
    ],
)
def test_the_cause_of_a_failed_turn(message: str, cause: str) -> None:
    reading = read([START, BEGUN, {"type": "turn.failed", "error": {"message": message}}])
    assert reading.failure is not None
    assert reading.failure.cause.value == cause
    assert reading.events.terminal


@pytest.mark.parametrize(
    ("info", "cause"),
    [
        ("cyber_policy", "agent_refused"),
        ("unauthorized", "auth"),
        ("server_overloaded", "provider"),
        ("context_window_exceeded", "agent_limit"),
        ({"response_stream_disconnected": {"http_status_code": 401}}, "auth"),
        ({"http_connection_failed": {"http_status_code": None}}, "provider"),
        ("other", "agent_crash"),
    ],
)
def test_the_rollout_names_the_cause(info: Any, cause: str, tmp_path: Path) -> None:
    error = {"message": "no", "codex_error_info": info}
    kept = rollout(tmp_path, began(), ("event_msg", {"type": "task_complete", "error": error}))
    failed = {"type": "turn.failed", "error": {"message": "no"}}
    reading = read([START, BEGUN, failed], kept=kept)
    assert reading.failure is not None
    assert reading.failure.cause.value == cause


def test_retries_are_counted_and_no_failure() -> None:
    notice = {"type": "error", "message": "Reconnecting... 1/5 (stream disconnected)"}
    reading = read([START, notice, notice, item("agent_message", 0, text="ok"), done()])
    assert (reading.provider_retries, reading.failure) == (2, None)


def test_cut_while_it_waits_for_its_provider() -> None:
    notice = {"type": "error", "message": "Reconnecting... waiting for network (x)"}
    reading = read([START, BEGUN, notice], exit_code=None, signal="SIGTERM", timed_out=True)
    assert reading.failure is not None
    assert reading.failure.cause.value == "provider"


def test_max_turns_ends_the_turn() -> None:
    adapter = CodexAdapter(max_turns=2)
    watch = adapter.watch()
    events = [START, BEGUN]
    for number in (0, 1, 2):
        events += [command(number, "ls", "started"), command(number, "ls", status="completed")]
    ended = []
    for event in events:
        watch.feed(RawLine(0, json.dumps(event).encode()))
        ended.append(watch.ended)
    assert ended == [False] * 6 + [True, True]
    reading = read(events, adapter=adapter, exit_code=None, lingered=True)
    assert reading.failure is not None
    assert reading.failure.cause.value == "agent_limit"


def test_parallel_calls_are_one_model_turn() -> None:
    watch = CodexAdapter(max_turns=1).watch()
    for event in [
        item("reasoning", 0, text="r"), item("agent_message", 1, text="m"),
        command(2, "a", "started"), command(3, "b", "started"),
        command(3, "b", status="completed"), command(2, "a", status="completed"),
    ]:  # fmt: skip
        watch.feed(RawLine(0, json.dumps(event).encode()))
    assert not watch.ended


def test_the_rollout_adds_ids_inputs_and_rejected_calls(tmp_path: Path) -> None:
    made = {"type": "CommandExecution", "id": "c1", "command": ["/bin/bash", "-lc", "ls"]}
    made |= {"aggregated_output": "a", "exit_code": 0, "status": "completed"}
    kept = rollout(
        tmp_path,
        began(),
        call("no_such_tool", "c0", {"x": 1}),
        answered("c0", "unsupported call: no_such_tool"),
        call("exec_command", "c1", {"cmd": "ls", "yield_time_ms": 5}),
        (
            "event_msg",
            {"type": "item_completed", "item": made, "started_at_ms": 1000,
             "completed_at_ms": 1500},
        ),
        answered("c1", "Process exited with code 0\nOutput:\na"),
        ("token_usage_record", {"thread_id": THREAD, "usage": {"input_tokens": 7}}),
    )  # fmt: skip
    events = [START, command(0, "ls", aggregated_output="a", exit_code=0, status="completed")]
    reading = read([*events, item("agent_message", 1, text="ok"), done(input_tokens=7)], kept=kept)
    rejected, ran, _ = reading.steps
    assert isinstance(rejected, ToolCall)
    assert isinstance(ran, ToolCall)
    assert (rejected.name, rejected.status, rejected.call_id) == ("no_such_tool", "failed", "c0")
    assert rejected.error == "unsupported call: no_such_tool"
    assert (ran.call_id, ran.timestamp, ran.duration) == ("c1", 1000, 500)
    assert ran.input == {"cmd": "ls", "yield_time_ms": 5}
    assert reading.usage is not None
    assert reading.usage.input_tokens == 7
    assert reading.agent is not None
    assert reading.agent.version == "9.9"


def test_output_that_the_rollout_has_only_in_part_is_not_doubled(tmp_path: Path) -> None:
    made = {"type": "CommandExecution", "id": "c1", "command": ["/bin/bash", "-lc", "ls"]}
    made |= {"aggregated_output": "cut", "exit_code": 0, "status": "completed"}
    completed = ("event_msg", {"type": "item_completed", "item": made})
    kept = rollout(tmp_path, began(), call("exec_command", "c1", {"cmd": "ls"}), completed)
    shown = command(0, "ls", aggregated_output="whole", exit_code=0, status="completed")
    (step,) = read([START, shown, done()], kept=kept).steps
    assert isinstance(step, ToolCall)
    assert (step.output, step.call_id) == ("whole", "c1")


def test_sub_agents_stand_under_their_call(tmp_path: Path) -> None:
    spawn = {"type": "CollabAgentToolCall", "id": "c1", "tool": "spawn_agent", "prompt": "p"}
    spawn |= {"receiver_thread_ids": ["child"], "status": "completed"}
    kept = rollout(
        tmp_path,
        began(),
        call("spawn_agent", "c1", {"message": "p"}, namespace="multi_agent_v1"),
        ("event_msg", {"type": "item_completed", "item": spawn}),
        ("token_usage_record", {"thread_id": THREAD, "usage": {"input_tokens": 5}}),
    )
    text = {"type": "message", "role": "assistant", "id": "m", "content": [{"text": "sub says"}]}
    meta = {"id": "child", "parent_thread_id": THREAD}
    lines = [{"type": "session_meta", "payload": meta}]
    lines += [{"type": "response_item", "payload": text}]
    usage = {"thread_id": "child", "usage": {"input_tokens": 3}}
    lines += [{"type": "token_usage_record", "payload": usage}]
    (kept / "rollout-child.jsonl").write_text("".join(json.dumps(x) + "\n" for x in lines))
    shown = item(
        "collab_tool_call", 0, tool="spawn_agent", prompt="p", status="completed",
        receiver_thread_ids=["child"],
    )  # fmt: skip
    reading = read([START, shown, item("agent_message", 1, text="end"), done()], kept=kept)
    spawned, said, end = reading.steps
    assert isinstance(spawned, ToolCall)
    assert (spawned.call_id, spawned.name) == ("c1", "spawn_agent")
    assert isinstance(said, Message)
    assert (said.content, said.parent) == ("sub says", "c1")
    assert isinstance(end, Message)
    assert reading.usage is not None
    assert reading.usage.input_tokens == 8


def test_a_cut_stream_is_filled_up_from_the_rollout(tmp_path: Path) -> None:
    text = {"type": "message", "role": "assistant", "id": "m", "content": [{"text": "said"}]}
    thought = {"type": "reasoning", "id": "r", "summary": [{"type": "summary_text", "text": "t"}]}
    entries = [("response_item", thought), ("response_item", text)]
    kept = rollout(tmp_path, began(), *entries, call("update_plan", "p", {"plan": [
        {"step": "a", "status": "in_progress"}]}), answered("p", "Plan updated"))  # fmt: skip
    reading = read([START, BEGUN], kept=kept, exit_code=None, signal="SIGKILL")
    assert [type(step) for step in reading.steps] == [Thought, Message, Plan]
    assert reading.steps[2].entries == [{"content": "a", "status": "in_progress"}]  # type: ignore[union-attr]


def test_broken_rollouts_do_no_harm(tmp_path: Path) -> None:
    (tmp_path / "rollout-a.jsonl").write_bytes(b'{"type":"session_meta"}\n\xff\n[1]\n{"payload":3}')
    broken = ({"type": "message", "role": "assistant", "content": 5}, {"type": "function_call"})
    rollout(tmp_path, began(), *(("response_item", payload) for payload in broken))
    reading = read([START, item("agent_message", 0, text="ok"), done()], kept=tmp_path)
    assert [step.content for step in reading.steps if isinstance(step, Message)] == ["ok"]


def test_mcp_servers_that_failed_are_told() -> None:
    adapter = CodexAdapter(mcp={"good": {"command": "g"}, "bad": {"command": "b"}})
    made = recording([START, done()])
    line = 'WARN codex_mcp::rmcp_client: MCP server startup failed server_name="bad" error=x'
    made = Recording(start_ms=0, end_ms=9, turns=made.turns, stderr=line)
    assert adapter.read(made).setup == {
        "mcpServers": [
            {"name": "good", "status": "connected"},
            {"name": "bad", "status": "failed"},
        ]
    }
