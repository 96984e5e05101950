"""The ACP adapter without any process: what it writes, what it reads, whom it blames."""

import json
from functools import partial
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay import plugins
from assay.adapters.acp import AcpAdapter
from assay.errors import InputError
from assay.plugin import Ask, Reading
from assay.records.capture import Message, Plan, Thought, ToolCall
from assay.records.recording import RawLine, Recording, Turn, TurnEnd
from assay.records.spec import PluginRef

SDK_MODELS = {
    "initialize": "InitializeRequest",
    "authenticate": "AuthenticateRequest",
    "session/new": "NewSessionRequest",
    "session/prompt": "PromptRequest",
}


class Agent:
    """Plays the agent's side by hand and keeps what it wrote."""

    def __init__(self, **options: Any) -> None:
        self.adapter = AcpAdapter(command=["x"], **options)
        self.dialogue = self.adapter.dialogue("/work")
        self.watch = self.adapter.watch()
        self.turns: list[list[RawLine]] = []

    def ask(self, text: str, **more: Any) -> dict[str, Any]:
        self.watch = self.adapter.watch()
        self.turns.append([])
        return _request(self.dialogue.say(Ask(text=text, cwd="/work", **more)))

    def write(self, **message: Any) -> dict[str, Any] | None:
        return self.write_line(json.dumps({"jsonrpc": "2.0", **message}).encode())

    def write_line(self, data: bytes) -> dict[str, Any] | None:
        line = RawLine(10 * sum(map(len, self.turns)), data)
        self.turns[-1].append(line)
        self.watch.feed(line)
        answer = self.dialogue.hear(data)
        return _request(answer) if answer else None

    def update(self, update_kind: str, **fields: Any) -> None:
        params = {"sessionId": "s", "update": {"sessionUpdate": update_kind, **fields}}
        assert self.write(method="session/update", params=params) is None

    def chunk(self, text: str, kind: str = "agent_message_chunk", **more: Any) -> None:
        self.update(kind, content={"type": "text", "text": text}, **more)

    def open(self, text: str = "hi", **session: Any) -> dict[str, Any]:
        """Go through the handshake; give the request for the prompt."""
        first = self.ask(text)
        second = self.write(id=first["id"], result={"protocolVersion": 1})
        assert second is not None
        third = self.write(id=second["id"], result={"sessionId": "s", **session})
        assert third is not None
        return third

    def read(self) -> Reading:
        turns = [Turn("t", TurnEnd(exit_code=0), partial(list, lines)) for lines in self.turns]
        return self.adapter.read(Recording(start_ms=0, end_ms=1, turns=tuple(turns)))


def _request(data: bytes) -> dict[str, Any]:
    """Read one line that we wrote; requests must be what the official SDK accepts."""
    assert data.endswith(b"\n")
    assert data.count(b"\n") == 1
    message = json.loads(data)
    assert message.pop("jsonrpc") == "2.0"
    if message.get("method") in SDK_MODELS:
        from acp import schema as sdk

        getattr(sdk, SDK_MODELS[message["method"]]).model_validate(message["params"])
    return message


def test_a_turn_from_the_first_line_to_the_last() -> None:
    agent = Agent(mcp_servers=[{"name": "m", "command": "c", "args": [], "env": []}])
    world = {"game": {"command": "play", "args": ["-x"], "env": {"A": "b"}}}
    asked = agent.ask("hello", mcp_servers=world)
    assert asked["method"] == "initialize"
    assert asked["params"]["protocolVersion"] == 1
    assert asked["params"]["clientCapabilities"] == {
        "fs": {"readTextFile": False, "writeTextFile": False},
        "terminal": False,
    }
    info = {"name": "it", "version": "3"}
    asked = agent.write(id=asked["id"], result={"protocolVersion": 1, "agentInfo": info})
    assert (asked["method"], asked["params"]["cwd"]) == ("session/new", "/work")
    assert asked["params"]["mcpServers"] == [
        {"name": "m", "command": "c", "args": [], "env": []},
        {"name": "game", "command": "play", "args": ["-x"], "env": [{"name": "A", "value": "b"}]},
    ]
    asked = agent.write(id=asked["id"], result={"sessionId": "abc"})
    assert asked["method"] == "session/prompt"
    assert asked["params"] == {
        "sessionId": "abc",
        "prompt": [{"type": "text", "text": "hello"}],
    }
    assert not agent.watch.ended
    agent.chunk("hey")
    assert agent.write(id=asked["id"], result={"stopReason": "end_turn"}) is None
    assert agent.watch.ended
    assert not agent.dialogue.over

    again = agent.ask("more")
    assert again["method"] == "session/prompt"
    assert again["params"]["sessionId"] == "abc"
    assert again["id"] != asked["id"]
    agent.chunk("ho")
    agent.write(id=again["id"], result={"stopReason": "end_turn"})
    reading = agent.read()
    assert reading.outputs == ["hey", "ho"]
    assert [(s.content, s.turn) for s in reading.steps] == [("hey", 1), ("ho", 2)]
    assert (reading.session_id, reading.failure) == ("abc", None)
    assert (reading.agent.adapter, reading.agent.version) == ("it", "3")
    assert reading.events.terminal
    assert reading.events.total == reading.events.mapped == 6


@pytest.mark.parametrize(
    ("stop", "cause"),
    [
        ("end_turn", None),
        ("max_tokens", "agent_limit"),
        ("max_turn_requests", "agent_limit"),
        ("refusal", "agent_refused"),
        ("cancelled", "agent_crash"),
    ],
)
def test_stop_reasons(stop: str, cause: str | None) -> None:
    agent = Agent()
    agent.write(id=agent.open()["id"], result={"stopReason": stop})
    failure = agent.read().failure
    assert (failure.cause if failure else None) == cause
    assert agent.dialogue.over == (cause is not None)
    assert agent.watch.ended


@pytest.mark.parametrize(
    ("error", "cause"),
    [
        ({"code": -32000, "message": "Authentication required"}, "auth"),
        ({"code": -32603, "message": "Internal error", "data": {"details": "401 x"}}, "auth"),
        ({"code": -32603, "message": "Internal error", "data": "429 rate limit"}, "provider"),
        ({"code": -32603, "message": "fetch failed"}, "provider"),
        ({"code": -32603, "message": "KeyError: 'x'"}, "agent_crash"),
        ({"code": -32603, "message": "late", "data": {"cause": "agent_timeout"}}, "agent_timeout"),
        ({"code": -32603, "message": "x", "data": {"cause": "bad weather"}}, "agent_crash"),
        ("no object", "agent_crash"),
    ],
)
@pytest.mark.parametrize("stage", ["initialize", "session/prompt"])
def test_errors(error: Any, cause: str, stage: str) -> None:
    agent = Agent()
    asked = agent.ask("hi") if stage == "initialize" else agent.open()
    assert asked["method"] == stage
    assert agent.write(id=asked["id"], error=error) is None
    assert agent.watch.ended
    assert agent.dialogue.over
    failure = agent.read().failure
    assert failure.cause == cause
    assert failure.message.startswith(stage)


def test_another_protocol_version_is_not_the_agents_failure() -> None:
    agent = Agent()
    assert agent.write(id=agent.ask("hi")["id"], result={"protocolVersion": 2}) is None
    assert agent.dialogue.over
    assert agent.read().failure.cause == "harness"


def _demand_sign_in(agent: Agent, *methods: dict[str, Any]) -> dict[str, Any] | None:
    met = {"protocolVersion": 1, "authMethods": list(methods)}
    asked = agent.write(id=agent.ask("hi")["id"], result=met)
    return agent.write(id=asked["id"], error={"code": -32000, "message": "Authentication required"})


LOGIN = {"id": "oauth-personal", "name": "Log in"}
KEY = {"id": "gemini-api-key", "name": "Key"}
VARIABLE = {"id": "v", "name": "V", "type": "env_var", "vars": [{"name": "X"}]}
TERMINAL = {"id": "key-in-terminal", "name": "T", "type": "terminal"}


@pytest.mark.parametrize("method", [KEY, VARIABLE])
def test_sign_in_with_a_key_goes_on(method: dict[str, Any]) -> None:
    agent = Agent()
    asked = _demand_sign_in(agent, LOGIN, TERMINAL, method)
    assert asked["method"] == "authenticate"
    assert asked["params"] == {"methodId": method["id"]}
    assert not agent.watch.ended
    asked = agent.write(id=asked["id"], result={})
    assert asked["method"] == "session/new"
    asked = agent.write(id=asked["id"], result={"sessionId": "s"})
    assert asked["method"] == "session/prompt"
    agent.write(id=asked["id"], result={"stopReason": "end_turn"})
    reading = agent.read()
    assert (reading.failure, reading.session_id) == (None, "s")


def test_sign_in_that_needs_a_person_is_a_failure_of_its_own() -> None:
    agent = Agent()
    assert _demand_sign_in(agent, LOGIN, TERMINAL) is None
    assert agent.dialogue.over
    assert agent.watch.ended
    failure = agent.read().failure
    assert failure.cause == "auth"
    assert "oauth-personal" in failure.message


def test_sign_in_that_fails() -> None:
    agent = Agent(auth_method="oauth-personal")
    asked = _demand_sign_in(agent, KEY, LOGIN)
    assert asked["params"] == {"methodId": "oauth-personal"}
    agent.write(id=asked["id"], error={"code": -32603, "message": "no"})
    assert agent.dialogue.over
    assert agent.read().failure.cause == "auth"


def test_an_agent_that_wants_no_sign_in_is_not_signed_in() -> None:
    agent = Agent()
    met = {"protocolVersion": 1, "authMethods": [KEY]}
    asked = agent.write(id=agent.ask("hi")["id"], result=met)
    assert asked["method"] == "session/new"


OPTION = {"id": "m", "category": "model", "type": "select", "currentValue": "small"}


@pytest.mark.parametrize(
    ("session", "method", "params"),
    [
        (
            {"configOptions": [OPTION]},
            "session/set_config_option",
            {"sessionId": "s", "configId": "m", "value": "big"},
        ),
        (
            {"models": {"currentModelId": "small"}},
            "session/set_model",
            {"sessionId": "s", "modelId": "big"},
        ),
    ],
)
def test_a_model_is_chosen_before_the_prompt(
    session: dict[str, Any], method: str, params: dict[str, Any]
) -> None:
    agent = Agent(model="big")
    asked = agent.open(**session)
    assert (asked["method"], asked["params"]) == (method, params)
    asked = agent.write(id=asked["id"], result={})
    assert asked["method"] == "session/prompt"
    assert agent.read().agent.model == "big"


def test_a_model_that_cannot_be_chosen_is_not_measured() -> None:
    agent = Agent(model="big")
    asked = agent.write(id=agent.ask("hi")["id"], result={"protocolVersion": 1})
    assert agent.write(id=asked["id"], result={"sessionId": "s"}) is None
    assert agent.watch.ended
    assert agent.dialogue.over
    assert agent.read().failure.cause == "harness"


def test_the_model_in_use_is_noted() -> None:
    agent = Agent()
    assert agent.open(configOptions=[OPTION])["method"] == "session/prompt"
    assert agent.read().agent.model == "small"


@pytest.mark.parametrize(
    ("kinds", "chosen"),
    [
        (["reject_once", "allow_once", "allow_always"], "allow_always"),
        (["reject_once", "allow_once"], "allow_once"),
        (["reject_always", "reject_once"], "reject_always"),
        ([], None),
    ],
)
def test_permission_is_given(kinds: list[str], chosen: str | None) -> None:
    agent = Agent()
    agent.open()
    options = [{"optionId": f"id-{kind}", "name": kind, "kind": kind} for kind in kinds]
    params = {"sessionId": "s", "toolCall": {"toolCallId": "c", "title": "W"}, "options": options}
    answer = agent.write(id="p1", method="session/request_permission", params=params)
    assert answer["id"] == "p1"
    from acp import schema as sdk

    outcome = sdk.RequestPermissionResponse.model_validate(answer["result"]).outcome
    if chosen is None:
        assert outcome.outcome == "cancelled"
    else:
        assert (outcome.outcome, outcome.option_id) == ("selected", f"id-{chosen}")
    (step,) = agent.read().steps
    assert (step.name, step.call_id, step.status) == ("W", "c", "pending")


@pytest.mark.parametrize(
    "method", ["fs/read_text_file", "terminal/create", "elicitation/create", "_vendor/ask"]
)
def test_what_we_do_not_offer_gets_an_error_and_is_counted(method: str) -> None:
    agent = Agent()
    agent.open()
    answer = agent.write(id=0, method=method, params={"sessionId": "s"})
    assert answer["id"] == 0
    assert answer["error"]["code"] == -32601
    assert agent.read().events.unknown == {method: 1}


def test_chunks_become_whole_texts() -> None:
    agent = Agent()
    agent.open()
    agent.chunk("a", "agent_thought_chunk")
    agent.chunk("b", "agent_thought_chunk")
    agent.chunk("c")
    agent.update("tool_call", toolCallId="t", title="T")
    agent.chunk("d")
    agent.update("tool_call_update", toolCallId="t", status="completed")
    agent.chunk("e")
    agent.chunk("f", messageId="m1")
    agent.chunk("g", messageId="m1")
    agent.chunk("h", messageId="m2")
    agent.update("agent_message_chunk", content={"type": "image", "data": "", "mimeType": "x"})
    steps = agent.read().steps
    texts = [(type(s), s.content) for s in steps if not isinstance(s, ToolCall)]
    assert texts == [
        (Thought, "ab"),
        (Message, "c"),
        (Message, "de"),
        (Message, "fg"),
        (Message, "h"),
        (Message, "[image]"),
    ]
    lines = agent.turns[0]
    assert steps[0].timestamp == lines[2].t_ms
    assert steps[3].timestamp == lines[6].t_ms


def test_a_watch_gives_text_in_pieces_of_one_step() -> None:
    agent = Agent()
    agent.open()
    watch = AcpAdapter(command=["x"]).watch()
    agent.chunk("one ")
    agent.chunk("two")
    agent.chunk("three", messageId="other")
    given = [step for line in agent.turns[0] for step in watch.feed(line)]
    assert [step.content for step in given] == ["one ", "two", "three"]
    assert given[0].step_id == given[1].step_id != given[2].step_id
    assert watch.output() == "one two\nthree"


def test_many_chunks_take_linear_time() -> None:
    watch = AcpAdapter(command=["x"]).watch()
    content = {"type": "text", "text": "12345678"}
    update = {"sessionUpdate": "agent_message_chunk", "content": content}
    message = {"jsonrpc": "2.0", "method": "session/update", "params": {"update": update}}
    line = RawLine(0, json.dumps(message).encode())
    for _ in range(100_000):
        watch.feed(line)
    assert len(watch.output()) == 800_000


def test_tool_calls_are_merged() -> None:
    agent = Agent()
    agent.open()
    agent.update(
        "tool_call", toolCallId="a", title="Read", status="pending", rawInput={"path": "x"}
    )
    agent.update("tool_call", toolCallId="b", title="Edit", kind="edit")
    agent.update("tool_call_update", toolCallId="a", status="in_progress", title="Read x")
    diff = {"type": "diff", "path": "x", "oldText": "1", "newText": "2"}
    agent.update("tool_call_update", toolCallId="b", content=[diff])
    agent.update("tool_call_update", toolCallId="b", status="completed", rawOutput={"ok": True})
    text = {"type": "content", "content": {"type": "text", "text": "no such file"}}
    agent.update("tool_call_update", toolCallId="a", status="failed", content=[text])
    agent.update("tool_call_update", toolCallId="late", status="completed")
    first, second, third = agent.read().steps
    assert (first.name, first.status, first.input) == ("Read x", "failed", {"path": "x"})
    assert (first.output, first.error) == ("no such file", "no such file")
    assert first.duration == agent.turns[0][7].t_ms - first.timestamp > 0
    assert second.output == {"rawOutput": {"ok": True}, "content": [diff]}
    assert (third.call_id, third.status) == ("late", "completed")


def test_the_tools_own_name_is_stronger_than_its_title() -> None:
    agent = Agent()
    agent.open()
    meta = {"claudeCode": {"toolName": "Bash"}}
    agent.update("tool_call", toolCallId="a", title="`ls -l`", _meta=meta)
    assert agent.read().steps[0].name == "Bash"


def test_plans() -> None:
    agent = Agent()
    agent.open()
    entries = [{"content": "look", "priority": "high", "status": "pending"}]
    agent.update("plan", entries=entries)
    agent.update("plan_update", plan={"type": "items", "planId": "p", "entries": entries})
    agent.update("plan_update", plan={"type": "markdown", "planId": "p", "content": "- look"})
    one, two, three = agent.read().steps
    assert isinstance(one, Plan)
    assert one.entries == two.entries == entries
    assert three.content == "- look"


def test_usage_is_that_of_the_whole_session() -> None:
    agent = Agent()
    asked = agent.open()
    agent.update("usage_update", used=1, size=9, cost={"amount": 0.25, "currency": "USD"})
    usage = {"totalTokens": 9, "inputTokens": 5, "outputTokens": 2, "cachedReadTokens": 2}
    agent.write(id=asked["id"], result={"stopReason": "end_turn", "usage": usage})
    asked = agent.ask("more")
    agent.update("usage_update", used=1, size=9, cost={"amount": 0.5, "currency": "USD"})
    agent.update("usage_update", used=1, size=9, cost={"amount": 90, "currency": "JPY"})
    usage = {"totalTokens": 19, "inputTokens": 11, "outputTokens": 4}
    agent.write(id=asked["id"], result={"stopReason": "end_turn", "usage": usage})
    total = agent.read().usage
    assert (total.input_tokens, total.output_tokens, total.cache_read_tokens) == (11, 4, 2)
    assert (total.cost_usd, total.cost_source) == (0.5, "reported")


def test_no_usage_is_not_zero() -> None:
    agent = Agent()
    agent.write(id=agent.open()["id"], result={"stopReason": "end_turn"})
    assert agent.read().usage is None


def test_events_never_seen_are_counted() -> None:
    agent = Agent()
    agent.open()
    agent.update("hologram", x=1)
    agent.update("hologram", x=2)
    agent.update("available_commands_update", availableCommands=[])
    agent.write(method="$/progress", params={})
    agent.write(id="not-ours", result={})
    agent.write_line(b"npm warn deprecated")
    agent.write_line(b'{"jsonrpc": "2.0", "id": 10')
    agent.write_line(b"[1, 2]")
    agent.write_line(b"  ")
    events = agent.read().events
    assert events.unknown == {
        "session/update hologram": 2,
        "$/progress": 1,
        "(no method)": 1,
        "(no object)": 1,
    }
    assert events.unparsed == 2
    assert events.mapped == 3
    assert events.total == 10
    assert not events.terminal


NAMES = [
    *("id", "method", "params", "result", "error", "update", "sessionUpdate", "content", "title"),
    *("toolCallId", "options", "authMethods", "sessionId", "stopReason", "usage", "_meta", "plan"),
    *("rawOutput", "entries", "models", "configOptions"),
]
KINDS = ["session/update", "tool_call", "plan", "agent_message_chunk", "session/request_permission"]
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 15) | st.text(max_size=4),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(NAMES), inner | st.sampled_from(KINDS), max_size=5)
    ),
    max_leaves=12,
)


@given(st.lists(JSON, max_size=6))
def test_no_message_breaks_the_dialogue_or_the_reading(messages: list[Any]) -> None:
    agent = Agent()
    agent.ask("hi")
    for message in messages:
        agent.write_line(json.dumps(message).encode())
    assert agent.read().events.total == len(messages)


def test_how_the_command_is_given() -> None:
    ask = Ask(text="hi", cwd="/work")
    ref = plugins.adapter_ref("acp:my-agent 'a b' --acp")
    assert plugins.adapter(ref).command(ask).argv == ("my-agent", "a b", "--acp")
    adapter = plugins.adapter(PluginRef(name="acp", options={"command": ["x", "y"], "args": ["z"]}))
    assert adapter.command(ask).argv == ("x", "y", "z")
    assert adapter.command(ask).stdin is None
    assert adapter.name == "x y z"
    with pytest.raises(InputError, match="no command"):
        AcpAdapter()
    with pytest.raises(InputError, match="quotation"):
        AcpAdapter(argument="it's")


class Draft(Agent):
    """Plays an agent that chooses a version."""

    def __init__(self, chosen: int = 2, **options: Any) -> None:
        super().__init__(version=2, **options)
        self.chosen = chosen

    def open(self, text: str = "hi", **session: Any) -> dict[str, Any]:
        asked = self.write(id=self.ask(text)["id"], result={"protocolVersion": self.chosen})
        asked = self.write(id=asked["id"], result={"sessionId": "s", **session})
        assert asked is not None
        return asked

    def state(self, state: str, **fields: Any) -> None:
        self.update("state_update", state=state, **fields)

    def acknowledge(self, asked: dict[str, Any]) -> None:
        assert self.write(id=asked["id"], result={"messageId": "u"}) is None


def test_both_versions_are_offered_in_one_request() -> None:
    params = Draft().ask("hi")["params"]
    assert params["protocolVersion"] == 2
    assert params["info"] == params["clientInfo"]
    assert params["capabilities"] == {}
    assert Agent().ask("hi")["params"].keys() == {
        *("protocolVersion", "clientCapabilities", "clientInfo")
    }


def test_idle_ends_a_turn_only_after_work_and_acknowledgement() -> None:
    agent = Draft()
    asked = agent.open()
    agent.state("idle")
    agent.acknowledge(asked)
    agent.state("idle", stopReason="end_turn")  # repeated, from before
    assert not agent.watch.ended
    agent.state("running")
    agent.state("requires_action")
    assert not agent.watch.ended
    agent.state("idle", stopReason="end_turn")
    assert agent.watch.ended
    asked = agent.ask("again")
    agent.state("idle", stopReason="end_turn")
    agent.state("running")
    agent.state("idle", stopReason="max_tokens")
    assert not agent.watch.ended  # the prompt is not in the conversation yet
    agent.acknowledge(asked)
    assert agent.watch.ended
    assert agent.dialogue.over
    reading = agent.read()
    assert reading.failure.cause == "agent_limit"
    assert reading.events.mapped == reading.events.total


def test_an_agent_that_never_says_that_it_works_ends_too() -> None:
    agent = Draft()
    agent.acknowledge(agent.open())
    agent.chunk("hi", messageId="a")
    agent.state("idle", usage={"inputTokens": 7, "outputTokens": 2})
    assert agent.watch.ended
    reading = agent.read()
    assert (reading.outputs, reading.failure) == (["hi"], None)
    assert (reading.usage.input_tokens, reading.usage.output_tokens) == (7, 2)


@pytest.mark.parametrize(
    ("stop", "cause", "known"),
    [
        ({"stopReason": "error", "error": {"code": -32603, "message": "429"}}, "provider", True),
        ({"stopReason": "error"}, "agent_crash", True),
        ({"stopReason": "refusal"}, "agent_refused", True),
        ({"stopReason": "_tired"}, None, False),
        ({"stopReason": None}, None, True),
    ],
)
def test_reasons_to_stop(stop: dict[str, Any], cause: str | None, known: bool) -> None:
    agent = Draft()
    agent.acknowledge(agent.open())
    agent.state("running")
    agent.state("idle", **stop)
    assert agent.watch.ended
    reading = agent.read()
    assert (reading.failure.cause if reading.failure else None) == cause
    assert (reading.events.unknown == {}) is known
    assert agent.dialogue.over is (cause is not None)


def test_an_agent_may_choose_version_1() -> None:
    agent = Draft(chosen=1)
    asked = agent.open()
    agent.chunk("one")
    agent.write(id=asked["id"], result={"stopReason": "end_turn"})
    assert agent.watch.ended
    asked = agent.ask("more")
    agent.write(id=asked["id"], result={"stopReason": "end_turn"})
    assert agent.watch.ended
    reading = agent.read()
    assert reading.failure is None
    assert reading.warnings == [
        "version 2 of the protocol was asked for; the agent speaks version 1"
    ]


@pytest.mark.parametrize("version", [3, 0, True, "2", None])
def test_versions_that_nobody_asked_for(version: Any) -> None:
    agent = Draft()
    assert agent.write(id=agent.ask("hi")["id"], result={"protocolVersion": version}) is None
    assert agent.dialogue.over
    assert agent.read().failure.cause == "harness"


def test_without_being_asked_for_the_draft_is_refused_with_the_way_to_ask() -> None:
    agent = Agent()
    agent.write(id=agent.ask("hi")["id"], result={"protocolVersion": 2})
    assert "version=2" in agent.read().failure.message


def test_how_a_user_asks_for_it() -> None:
    for text in ("acp:run 'a b',version=2", "goose:/opt/goose,version=2"):
        adapter = plugins.adapter(plugins.adapter_ref(text))
        assert b'"protocolVersion":2' in adapter.dialogue("/").say(Ask(text="x", cwd="/"))
        assert not any("version" in word for word in adapter.command(Ask(text="x", cwd="/")).argv)
    for bad in ("3", "", "two", "0"):
        with pytest.raises(InputError, match="version must be 1 or 2"):
            plugins.adapter(plugins.adapter_ref(f"acp:run,version={bad}"))
    with pytest.raises(InputError, match="version must be 1 or 2"):
        AcpAdapter(command=["x"], version=7)


def test_texts_calls_and_terminals_in_pieces() -> None:
    agent = Draft()
    agent.acknowledge(agent.open())
    text = {"type": "text", "text": "whole"}
    agent.chunk("a", messageId="m1")
    agent.chunk("x", messageId="m2")
    agent.chunk("b", messageId="m1")
    agent.update("agent_message", messageId="m2", content=[text])
    agent.chunk("!", messageId="m2")
    agent.update("agent_message", messageId="m1")  # changes nothing
    agent.chunk("thought", kind="agent_thought_chunk", messageId="m1")
    agent.update("agent_thought", messageId="m1", content=None)
    agent.update("terminal_output_chunk", terminalId="t", data="b25l")
    shown = [{"type": "terminal", "terminalId": "t"}, {"type": "terminal", "terminalId": ["t"]}]
    agent.update("tool_call_update", toolCallId="c", name="sh", status="completed", content=shown)
    agent.update("terminal_output_chunk", terminalId="t", data="dHdv")
    agent.update("terminal_update", terminalId="t", exitStatus={"exitCode": 0})
    agent.update("terminal_update", terminalId="t", output={"data": "YWxs"})
    for part in ("p", "q"):
        content = {"type": "content", "content": {"type": "text", "text": part}}
        agent.update("tool_call_content_chunk", toolCallId="d", content=content)
    agent.state("idle")
    reading = agent.read()
    texts = [getattr(step, "content", None) for step in reading.steps]
    assert texts[:3] == ["ab", "whole!", ""]
    sh, other = reading.steps[3:]
    assert (sh.name, sh.exit_code, sh.status) == ("sh", 0, "completed")
    assert sh.output[0] == {"type": "content", "content": {"type": "text", "text": "all"}}
    assert other.output == "p\nq"
    assert reading.events.unknown == {}
    assert reading.outputs == ["ab\nwhole!"]


@pytest.mark.parametrize(
    ("kind", "fields"),
    [
        ("terminal_output_chunk", {"terminalId": "t", "data": "a"}),
        ("terminal_output_chunk", {"data": "YWxs"}),
        ("terminal_update", {"terminalId": 7}),
        ("tool_call_content_chunk", {"content": {}}),
    ],
)
def test_damaged_pieces_are_counted(kind: str, fields: dict[str, Any]) -> None:
    agent = Draft()
    agent.acknowledge(agent.open())
    agent.update(kind, **fields)
    agent.state("idle")
    assert agent.read().events.unknown == {f"session/update {kind}": 1}


def test_one_terminal_shown_by_many_calls_is_told_once() -> None:
    agent = Draft()
    agent.acknowledge(agent.open())
    agent.update("terminal_output_chunk", terminalId="t", data="b25l")
    shown = [{"type": "terminal", "terminalId": "t"}] * 3
    for call in ("c", "d"):
        agent.update("tool_call_update", toolCallId=call, status="completed", content=shown)
    agent.state("idle")
    for reading in (agent.read(), agent.read()):
        told = [step.output for step in reading.steps]
        assert str(told).count("one") == 1
        assert "one" in str(told[0])
