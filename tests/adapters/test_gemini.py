"""Gemini CLI: command lines, and what its stream and its session file say, apart and together."""

import json
from pathlib import Path
from typing import Any

import pytest

from assay.adapters.gemini import GeminiAdapter
from assay.adapters.gemini.session import read_sessions
from assay.errors import InputError
from assay.pipeline.extract import failure_of
from assay.plugin import Ask, Reading
from assay.records.capture import Message, Plan, Thought, ToolCall
from assay.records.recording import RawLine, Recording, Turn, TurnEnd

SESSION = "a53b2105-cbb3-41b4-a424-f7492035ba92"
INIT = {"type": "init", "session_id": SESSION, "model": "gemini-2.5-pro"}
ECHO = {"type": "message", "role": "user", "content": "do it"}


def say(*pieces: str) -> list[dict[str, Any]]:
    return [{"type": "message", "role": "assistant", "content": p, "delta": True} for p in pieces]


def use(name: str, number: int, **parameters: Any) -> dict[str, Any]:
    return {
        "type": "tool_use",
        "tool_name": name,
        "tool_id": f"t{number}",
        "parameters": parameters,
    }


def got(number: int, status: str = "success", **fields: Any) -> dict[str, Any]:
    return {"type": "tool_result", "tool_id": f"t{number}", "status": status, **fields}


def result(status: str = "success", **fields: Any) -> dict[str, Any]:
    return {"type": "result", "status": status, "stats": {}, **fields}


def stats(given: int, output: int, total: int, cached: int = 0) -> dict[str, Any]:
    counts = {"input_tokens": given, "output_tokens": output, "total_tokens": total}
    counts |= {"cached": cached, "input": given - cached}
    return {**counts, "models": {"gemini-2.5-pro": counts}}


def recording(
    *turns: list[dict[str, Any]], kept: Path | None = None, stderr: str = "", **end: Any
) -> Recording:
    made = []
    for events in turns:
        lines = [RawLine(10 * n, json.dumps(e).encode()) for n, e in enumerate(events)]
        ended = TurnEnd(**({"exit_code": 0} | end))
        made.append(Turn(text="x", end=ended, lines=lambda lines=lines: lines))  # type: ignore[misc]
    return Recording(start_ms=0, end_ms=10_000, turns=tuple(made), kept=kept, stderr=stderr)


def read(
    *turns: list[dict[str, Any]], adapter: GeminiAdapter | None = None, **more: Any
) -> Reading:
    return (adapter or GeminiAdapter()).read(recording(*turns, **more))


def calls(reading: Reading) -> list[ToolCall]:
    return [step for step in reading.steps if isinstance(step, ToolCall)]


def cause(*events: dict[str, Any], **more: Any) -> str | None:
    made = recording([INIT, ECHO, *events], **more)
    failure = failure_of(made, GeminiAdapter().read(made))
    return failure.cause.value if failure else None


def session(
    folder: Path, *entries: dict[str, Any], kind: str = "main", name: str = SESSION
) -> Path:
    lines: list[dict[str, Any]] = [{"sessionId": name, "kind": kind, "startTime": "x"}, *entries]
    path = folder / f"session-{name[:8]}.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return folder


def answer(number: int, text: str = "", **fields: Any) -> dict[str, Any]:
    return {"id": f"m{number}", "type": "gemini", "content": text, **fields}


def answered(
    number: int, output: str, name: str = "run_shell_command", **more: Any
) -> dict[str, Any]:
    response = {"functionResponse": {"id": f"t{number}", "response": {"output": output}}}
    return {"id": f"t{number}", "name": name, "status": "success", "result": [response], **more}


def test_the_command_of_a_first_and_a_later_turn() -> None:
    adapter = GeminiAdapter(max_turns=7, mcp={"s": {"command": "c", "env": {"K": "${KEY}"}}})
    first = adapter.command(Ask(text="do it", cwd="/w", home="/h", scratch="/s"))
    assert first.argv == (
        *("gemini", "--output-format", "stream-json", "--approval-mode", "yolo"),
        *("-m", "gemini-2.5-pro", "-p", "do it"),
    )
    settings = json.loads(first.files["/h/.gemini/settings.json"])
    assert settings["model"] == {"maxSessionTurns": 7}
    assert settings["mcpServers"] == {"s": {"command": "c", "env": {"K": "${KEY}"}, "trust": True}}
    assert settings["security"]["auth"]["selectedType"] == "gemini-api-key"
    assert settings["general"]["enableAutoUpdate"] is False
    assert first.env["GEMINI_CLI_TRUST_WORKSPACE"] == "true"
    assert first.env["GEMINI_CLI_NO_RELAUNCH"] == "true"
    assert {"GEMINI_API_KEY", "KEY"} <= set(first.pass_env)
    later = adapter.command(Ask(text="on", cwd="/w", session_id=SESSION, scratch="/s"))
    assert later.argv[-4:] == ("--resume", SESSION, "-p", "on")


USERS = """{
  // mine: a comment with "quotes"
  "security": {"auth": {"selectedType": "oauth-personal"}},
  "mcpServers": {"own": {"command": "x", "args": ["// no comment", "/* nor this */"]}},
  "model": {"name": "m", "maxSessionTurns": 3} /* the last */
}"""


@pytest.fixture
def users_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("GEMINI_API_KEY", "GOOGLE_GEMINI_BASE_URL", "GEMINI_CLI_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / ".gemini" / "tmp").mkdir(parents=True)
    (tmp_path / ".gemini" / "oauth_creds.json").write_text("{}")
    return tmp_path


def test_the_users_own_settings_hold_and_are_not_touched(users_home: Path) -> None:
    """System settings would need a file that is root's, in folders that are root's."""
    (users_home / ".gemini" / "settings.json").write_text(USERS)
    adapter = GeminiAdapter(model="m", max_turns=9, mcp={"s": {"command": "c"}})
    command = adapter.command(Ask(text="t", cwd="/w", scratch="/s", repetitive=True))
    (path,) = command.files
    assert path == "/s/.gemini/settings.json"
    assert command.env["GEMINI_CLI_HOME"] == "/s"
    settings = json.loads(command.files[path])
    assert settings["security"] == {"auth": {"selectedType": "oauth-personal"}}
    assert settings["model"] == {"name": "m", "maxSessionTurns": 9, "disableLoopDetection": True}
    assert settings["mcpServers"]["own"]["args"] == ["// no comment", "/* nor this */"]
    assert settings["mcpServers"]["s"] == {"command": "c", "trust": True}
    assert command.links == {
        "/s/.gemini/oauth_creds.json": f"{users_home}/.gemini/oauth_creds.json"
    }
    chats = "/s/.gemini/tmp/*/chats"
    assert command.keep == (f"{chats}/session-*.jsonl", f"{chats}/*/*.jsonl")
    assert (users_home / ".gemini" / "settings.json").read_text() == USERS


def test_settings_that_are_no_json_are_named(users_home: Path) -> None:
    path = users_home / ".gemini" / "settings.json"
    path.write_text("{not json")
    with pytest.raises(InputError, match=str(path)):
        GeminiAdapter().command(Ask(text="t", cwd="/w", scratch="/s"))


def test_a_key_and_a_base_url_are_no_gateway(
    users_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GEMINI_API_KEY", "k")
    monkeypatch.setenv("GOOGLE_GEMINI_BASE_URL", "http://127.0.0.1:1")
    ask = Ask(text="t", cwd="/w", scratch="/s")
    (text,) = GeminiAdapter().command(ask).files.values()
    assert json.loads(text)["security"] == {"auth": {"selectedType": "gemini-api-key"}}
    (users_home / ".gemini" / "settings.json").write_text(USERS)
    (text,) = GeminiAdapter().command(ask).files.values()
    assert json.loads(text)["security"] == {"auth": {"selectedType": "oauth-personal"}}


@pytest.mark.parametrize("text", ["-x", '"quoted"', "'quoted'", "x" * 200_000])
def test_a_prompt_that_is_no_safe_argument_goes_through_stdin(text: str) -> None:
    command = GeminiAdapter().command(Ask(text=text, cwd="/w", scratch="/s"))
    assert command.stdin == text
    assert "-p" not in command.argv


def test_another_approval_mode_and_remote_servers() -> None:
    servers = {"a": {"url": "http://x", "headers": {"H": "1"}}, "b": {"type": "sse", "url": "u"}}
    adapter = GeminiAdapter(args=("--approval-mode", "plan"), mcp=servers)
    command = adapter.command(Ask(text="t", cwd="/w", home="/h", scratch="/s"))
    assert command.argv.count("--approval-mode") == 1
    settings = json.loads(command.files["/h/.gemini/settings.json"])
    assert settings["mcpServers"] == {
        "a": {"httpUrl": "http://x", "headers": {"H": "1"}, "trust": True},
        "b": {"url": "u", "trust": True},
    }
    assert adapter.read(recording([INIT, result()])).setup == {
        "model": "gemini-2.5-pro",
        "approvalMode": "plan",
        "mcpServers": [
            {"name": "a", "status": "connected"},
            {"name": "b", "status": "connected"},
        ],
    }


def test_deltas_between_tools_are_one_message() -> None:
    events = [INIT, ECHO, *say("I ", "act."), use("run_shell_command", 1, command="ls")]
    events += [got(1, output="a"), *say("The ", "end", "."), result(stats=stats(10, 3, 20, 4))]
    reading = read(events)
    assert [type(step) for step in reading.steps] == [Message, ToolCall, Message]
    assert [s.content for s in reading.steps if isinstance(s, Message)] == ["I act.", "The end."]
    assert reading.outputs == ["The end."]
    (call,) = calls(reading)
    assert (call.name, call.call_id, call.output, call.duration) == (
        *("run_shell_command", "t1", "a", 10),
    )
    usage = reading.usage
    assert usage is not None
    assert (usage.input_tokens, usage.output_tokens) == (10, 3)
    assert (usage.cache_read_tokens, usage.reasoning_tokens) == (4, 7)
    assert usage.cost_source == "estimated"
    assert reading.events.mapped == reading.events.total == len(events)


def test_live_text_comes_in_pieces_with_one_id() -> None:
    watch = GeminiAdapter().watch()
    steps = [s for e in (INIT, *say("a", "b"), use("x", 1), *say("c")) for s in
             watch.feed(RawLine(0, json.dumps(e).encode()))]  # fmt: skip
    ids = [step.step_id for step in steps if isinstance(step, Message)]
    assert ids[0] == ids[1] != ids[2]
    assert watch.session_id == SESSION
    assert watch.output() == "c"


def test_unknown_events_are_counted() -> None:
    odd = [{"type": "dream"}, {"type": "message", "role": "ghost"}, got(9), {"x": 1}]
    reading = read([INIT, *odd, result()])
    assert reading.events.unknown == {"dream": 1, "message": 1, "tool_result": 1, "no type": 1}


def test_no_answer_after_the_tools_is_no_answer() -> None:
    assert read([INIT, *say("I act."), use("x", 1), got(1), result()]).outputs == [""]


@pytest.mark.parametrize(
    ("message", "wanted"),
    [
        ('[API Error: {"error":{"code":403,"message":"no"}}]', "auth"),
        ('[API Error: {"error":{"code":400,"message":"API key not valid. Pass one."}}]', "auth"),
        ('[API Error: {"error":{"code":503,"message":"x"}}]', "provider"),
        ("[API Error: terminated]", "provider"),
        ("[API Error: You have exhausted your daily quota on this model.]", "provider"),
        ("something broke inside", "agent_crash"),
    ],
)
def test_the_cause_of_an_error_result(message: str, wanted: str) -> None:
    error = {"type": "unknown", "message": message}
    assert cause(result("error", error=error), exit_code=144) == wanted


@pytest.mark.parametrize(
    ("message", "wanted"),
    [
        ("The model response was blocked due to safety settings.", "agent_refused"),
        ("The model response was blocked due to recitation/copyright filters.", "agent_refused"),
        ("The model returned an empty response with no text or thoughts.", "provider"),
        ("Model stream ended with malformed function call.", "agent_crash"),
        ("Model response was truncated because it exceeded the token limit.", "agent_limit"),
    ],
)
def test_an_error_event_tells_why_although_the_exit_code_is_0(message: str, wanted: str) -> None:
    event = {"type": "error", "severity": "error", "message": message}
    assert cause(event, result("error")) == wanted


def test_a_loop_is_no_success() -> None:
    event = {"type": "error", "severity": "warning", "message": "Loop detected, stopping execution"}
    assert cause(event, result()) == "agent_limit"
    other = {"type": "error", "severity": "warning", "message": "Something odd"}
    assert cause(other, result()) is None


def test_exit_0_without_a_result_is_a_failure() -> None:
    assert cause(*say("half")) == "agent_crash"


def test_our_own_clock_wins_over_exit_code_0() -> None:
    assert cause(*say("half"), timed_out=True) == "agent_timeout"


def test_ended_while_it_asked_its_provider_again() -> None:
    stderr = "Attempt 3 failed with status 429. Retrying with backoff... _ApiError: x\n    at y"
    assert cause(stderr=stderr, timed_out=True) == "provider"
    assert read([INIT, result()], stderr=stderr).provider_retries == 3


@pytest.mark.parametrize(
    ("code", "wanted"), [(41, "auth"), (42, "spawn"), (52, "spawn"), (55, "spawn"), (1, "spawn")]
)
def test_it_did_not_start(code: int, wanted: str) -> None:
    made = recording([], exit_code=code, stderr="YOLO mode is enabled.\nNo, not so.")
    failure = failure_of(made, GeminiAdapter().read(made))
    assert failure is not None
    assert (failure.cause.value, failure.message) == (wanted, "gemini did not start: No, not so.")


def test_the_session_file_adds_thoughts_outputs_and_exit_codes(tmp_path: Path) -> None:
    first = answer(1, "I act.", thoughts=[{"subject": "Plan", "description": "I think."}])
    inner = "Output: oops\nExit Code: 3\nProcess Group PGID: 9"
    told = f"<untrusted_context>\n{inner}\n</untrusted_context>"
    read_file = answered(2, "the whole file", "read_file")
    kept = session(
        tmp_path,
        {"id": "u", "type": "user", "content": [{"text": "do it"}]},
        first,
        {**first, "toolCalls": [answered(1, told), read_file]},
        {"$set": {"lastUpdated": "x"}},
        answer(2, "Done.", thoughts=[{"subject": "", "description": "Well."}]),
    )
    events = [INIT, ECHO, *say("I ", "act."), use("run_shell_command", 1, command="x")]
    events += [use("read_file", 2, file_path="a"), got(1, output="oops"), got(2, output="")]
    reading = read([*events, *say("Done."), result()], kept=kept)
    kinds = [type(step) for step in reading.steps]
    assert kinds == [Thought, Message, ToolCall, ToolCall, Thought, Message]
    thoughts = [step.content for step in reading.steps if isinstance(step, Thought)]
    assert thoughts == ["**Plan**\nI think.", "Well."]
    shell, file = calls(reading)
    assert (shell.status, shell.exit_code, shell.output) == ("failed", 3, "oops")
    assert shell.error == "exit code 3"
    assert (file.status, file.output) == ("completed", "the whole file")


@pytest.mark.parametrize(
    ("told", "output", "code", "status"),
    [
        ("Output: (empty)\nProcess Group PGID: 9", "", 0, "completed"),
        ("Output: a\nb\nExit Code: 1\nc\nProcess Group PGID: 9", "a\nb\nExit Code: 1\nc", 0,
         "completed"),
        ("Output: x\nError: spawn failed", "x", None, "failed"),
        ("Output: x\nSignal: SIGKILL\nProcess Group PGID: 9", "x", None, "failed"),
        ("Output: x\nSignal: SIGKILL", "x", None, "failed"),
        ("Command injection detected: no", "Command injection detected: no", None, "failed"),
        ("Command moved to background (PID: 5).", "Command moved to background (PID: 5).", None,
         "completed"),
    ],
)  # fmt: skip
def test_what_a_shell_command_answered(
    told: str, output: str, code: int | None, status: str, tmp_path: Path
) -> None:
    kept = session(tmp_path, answer(1, toolCalls=[answered(1, told)]))
    (call,) = calls(read([INIT, use("run_shell_command", 1), got(1), result()], kept=kept))
    found = call.exit_code if isinstance(call.exit_code, int) else None
    assert (call.output, found, call.status) == (output, code, status)


def test_output_that_was_cut_for_the_model_is_taken_from_the_stream(tmp_path: Path) -> None:
    told = "Output too large. Showing first 8,000 and last 32,000 characters. For full see: x\n"
    told += "<untrusted_context>\nOutput: aa\nProcess Group PGID: 9\n</untrusted_context>"
    kept = session(tmp_path, answer(1, toolCalls=[answered(1, told)]))
    events = [INIT, use("run_shell_command", 1), got(1, output="a" * 100), result()]
    (call,) = calls(read(events, kept=kept))
    assert (call.output, call.exit_code) == ("a" * 100, 0)


def test_tokens_of_a_turn_that_was_cut_come_from_the_session(tmp_path: Path) -> None:
    tokens = {"input": 100, "output": 20, "cached": 10, "thoughts": 5, "tool": 0, "total": 125}
    kept = session(tmp_path, answer(1, "x", tokens=tokens), answer(1, "x", tokens=tokens))
    usage = read([INIT, *say("x")], kept=kept, timed_out=True).usage
    assert usage is not None
    assert (usage.input_tokens, usage.output_tokens, usage.reasoning_tokens) == (100, 20, 5)


def test_turns_are_counted_once_each(tmp_path: Path) -> None:
    old = answer(1, "First.", thoughts=[{"subject": "", "description": "one"}])
    again = {"$set": {"messages": [{**answer(1), "content": [{"text": "First."}]}]}}
    header = {"sessionId": SESSION, "kind": "main", "startTime": "x"}
    new = answer(2, "Second.", thoughts=[{"subject": "", "description": "two"}])
    kept = session(tmp_path, old, header, again, new)
    turns = [
        [INIT, *say(text), result(stats=stats(100, 20, 120))] for text in ("First.", "Second.")
    ]
    reading = read(*turns, kept=kept)
    told = [(step.content, step.turn) for step in reading.steps]  # type: ignore[union-attr]
    assert told == [("one", 1), ("First.", 1), ("two", 2), ("Second.", 2)]
    assert [usage.input_tokens for usage in reading.turn_usage] == [100, 100]
    assert reading.usage is not None
    assert reading.usage.input_tokens == 200


def test_todos_are_a_plan() -> None:
    todos = [{"description": "a", "status": "in_progress"}]
    reading = read([INIT, use("write_todos", 1, todos=todos), got(1, output="ok"), result()])
    call, plan = reading.steps
    assert isinstance(call, ToolCall)
    assert isinstance(plan, Plan)
    assert plan.entries == [{"content": "a", "status": "in_progress"}]


def test_sub_agents_stand_under_their_call(tmp_path: Path) -> None:
    session(tmp_path, answer(1, toolCalls=[answered(1, "report", "invoke_agent", agentId="kid")]))
    inner = answered(5, "Output: x\nProcess Group PGID: 1")
    child = answer(7, "sub says", toolCalls=[inner])
    session(tmp_path, child, kind="subagent", name="kid")
    events = [INIT, use("invoke_agent", 1), got(1, output="r"), *say("End."), result()]
    reading = read(events, kept=tmp_path)
    outer, said, ran, end = reading.steps
    assert isinstance(outer, ToolCall)
    assert isinstance(said, Message)
    assert isinstance(ran, ToolCall)
    assert isinstance(end, Message)
    assert (said.content, said.parent, ran.parent) == ("sub says", "t1", "t1")


def test_mcp_servers_that_did_not_come_up() -> None:
    adapter = GeminiAdapter(mcp={"a": {"command": "x"}, "b": {"command": "y"}})
    events = [INIT, use("mcp_a_add", 1), got(1, output="5"), result()]
    stderr = "MCP issues detected. Run /mcp list for status."
    setup = read(events, adapter=adapter, stderr=stderr).setup
    assert setup is not None
    assert [server["status"] for server in setup["mcpServers"]] == ["connected", "failed"]


def test_broken_session_files_do_no_harm(tmp_path: Path) -> None:
    (tmp_path / "session-x.jsonl").write_bytes(b"\xff\n[]\n{}\n")
    odd = [answer(1, thoughts=5, toolCalls="x", tokens=[]), answer(2, toolCalls=[1, {}])]
    session(tmp_path, *odd, {"id": "m3", "type": "gemini", "content": None})
    reading = read([INIT, *say("ok"), result()], kept=tmp_path)
    assert [s.content for s in reading.steps if isinstance(s, Message)] == ["ok"]


def test_a_process_that_goes_on_in_the_file_of_an_earlier_one_has_its_own_steps(
    tmp_path: Path,
) -> None:
    """A minute later, Gemini CLI makes a second file that has only a header."""

    def line(**fields: Any) -> str:
        return json.dumps(fields) + "\n"

    def at(seconds: int) -> str:
        return f"2026-11-19T21:{17 + seconds // 60}:{seconds % 60:02}.000Z"

    user = {"type": "user", "content": [{"text": "Go on."}]}
    first = line(sessionId="s", startTime=at(0)) + line(
        type="gemini", id="a", timestamp=at(5), content="One."
    )
    first += line(**user, id="u", timestamp=at(62))
    first += line(type="gemini", id="b", timestamp=at(63), content="Two.", tokens={"input": 7})
    (tmp_path / "session-1.jsonl").write_text(first)
    (tmp_path / "session-2.jsonl").write_text(line(sessionId="s", startTime=at(61)))
    one, two = read_sessions(tmp_path)["s"].segments
    assert [answer.text for answer in one.answers] == ["One."]
    assert [answer.text for answer in two.answers] == ["Two."]
    assert ([m.text for m in one.asked], [m.text for m in two.asked]) == ([], ["Go on."])
    assert two.asked[0].n_before == 0
    assert two.tokens == {"input": 7, **dict.fromkeys(two.tokens.keys() - {"input"}, 0)}
