"""The server's JSON-RPC: every line gets the answer that the protocol wants, and no other."""

import json
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from assay import plugins
from assay.adapters.acp.server import AcpServer, ServerContext
from assay.adapters.acp.wire import Outbox
from assay.cli.headless import open_conversation
from assay.pipeline.extract import extract
from assay.records.spec import Limits, PluginRef


class Client:
    """Writes lines to a server in this process and collects what comes back."""

    def __init__(self, context: ServerContext) -> None:
        self.lines: list[dict[str, Any]] = []
        self._came = threading.Condition()
        self.outbox = Outbox(self._take)
        self.server = AcpServer(context, self.outbox, "1", lambda _text: None)
        self._n = 100

    def _take(self, line: bytes) -> None:
        assert line.endswith(b"\n")
        with self._came:
            self.lines.append(json.loads(line))
            self._came.notify_all()

    def wait(self, fits: Callable[[dict[str, Any]], bool], seconds: float = 20) -> dict[str, Any]:
        def found() -> list[dict[str, Any]]:
            return [line for line in self.lines if fits(line)]

        with self._came:
            assert self._came.wait_for(found, seconds), self.lines
            return found()[0]

    def put(self, line: str) -> dict[str, Any]:
        """Write one line; give what comes back to it."""
        n = len(self.lines)
        self.server.take(line.encode())
        with self._came:
            assert self._came.wait_for(lambda: len(self.lines) > n, 5)
            return self.lines[n]

    def start(self, method: str, **params: Any) -> int:
        self._n += 1
        call = {"jsonrpc": "2.0", "id": self._n, "method": method, "params": params}
        self.server.take(json.dumps(call).encode())
        return self._n

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        number = self.start(method, **params)
        return self.wait(lambda line: line.get("id") == number)

    def new(self, cwd: Path) -> str:
        answer = self.call("session/new", cwd=str(cwd), mcpServers=[])
        return answer["result"]["sessionId"]

    def prompt(self, session: str, text: str) -> dict[str, Any]:
        return self.call("session/prompt", sessionId=session, prompt=[_text(text)])

    def updates(self, session: str) -> list[dict[str, Any]]:
        params = [line["params"] for line in self.lines if "params" in line]
        return [p["update"] for p in params if p["sessionId"] == session]


def _text(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}


@pytest.fixture
def serve(schema: dict[str, Any], tmp_path: Path) -> Iterator[Callable[..., Client]]:
    clients: list[Client] = []

    def make(limits: Limits | None = None, ref: PluginRef | None = None, **changes: Any) -> Client:
        ref = ref or PluginRef(name="declared", options={"schema": schema | changes})
        adapter = plugins.adapter(ref)
        raw = tmp_path / f"raw-{len(clients)}"
        judge = partial(extract, adapter=adapter)
        limits = limits or Limits(turn_s=20)
        talk = partial(open_conversation, ref, adapter, limits, raw)
        clients.append(Client(ServerContext(adapter, talk, judge)))
        return clients[-1]

    yield make
    for client in clients:
        client.server.close()
        client.outbox.close()


@pytest.mark.parametrize(
    ("line", "code", "number"),
    [
        ("{nonsense", -32700, None),
        ("\xff", -32700, None),
        ("[]", -32600, None),
        ("7", -32600, None),
        ('{"id": 3, "method": "initialize"}', -32600, 3),
        ('{"jsonrpc": "2.0", "id": 4}', -32600, 4),
        ('{"jsonrpc": "2.0", "id": 4, "method": 9}', -32600, 4),
        ('{"jsonrpc": "2.0", "id": [1], "method": "initialize"}', -32600, None),
        ('{"jsonrpc": "2.0", "id": 5, "method": "session/fly"}', -32601, 5),
        ('{"jsonrpc": "2.0", "id": "x", "method": "initialize"}', -32602, "x"),
        ('{"jsonrpc": "2.0", "id": 6, "method": "initialize", "params": [1]}', -32602, 6),
        ('{"jsonrpc": "2.0", "id": 7, "method": "session/new", "params": {}}', -32602, 7),
        ('{"jsonrpc": "2.0", "id": 7, "method": "session/new", "params": {"cwd": "."}}', -32602, 7),
        ('{"jsonrpc":"2.0","id":7,"method":"session/new","params":{"cwd":"/no/where"}}', -32602, 7),
        ('{"jsonrpc":"2.0","id":8,"method":"session/prompt","params":{}}', -32602, 8),
    ],
)
def test_errors_have_their_code(serve: Callable, line: str, code: int, number: Any) -> None:
    answer = serve().put(line)
    assert answer["error"]["code"] == code
    assert answer["id"] == number


def test_unknown_sessions_are_errors(serve: Callable, tmp_path: Path) -> None:
    client = serve()
    for method, params in [
        ("session/prompt", {"prompt": [_text("hi")]}),
        ("session/cancel", {}),
        ("session/load", {"cwd": str(tmp_path)}),
    ]:
        answer = client.call(method, sessionId="sess_gone", **params)
        assert answer["error"]["code"] == -32002, method
        assert "sess_gone" in answer["error"]["message"]


def test_what_wants_no_answer_gets_none(serve: Callable) -> None:
    client = serve()
    client.server.take(b'{"jsonrpc":"2.0","method":"session/cancel","params":{"sessionId":"x"}}')
    client.server.take(b'{"jsonrpc":"2.0","method":"session/fly"}')
    client.server.take(b'{"jsonrpc":"2.0","id":1,"result":{}}')
    client.server.take(b"\n")
    answer = client.call("initialize", protocolVersion=7)
    assert answer["result"]["protocolVersion"] == 1
    assert client.lines == [answer]


@pytest.mark.parametrize("resume", [True, False])
def test_loading_is_offered_where_the_agent_can_resume(serve: Callable, resume: bool) -> None:
    client = serve() if resume else serve(resume=None)
    offered = client.call("initialize", protocolVersion=1)["result"]["agentCapabilities"]
    assert offered["loadSession"] is resume
    if not resume:
        answer = client.call("session/load", sessionId="abc", cwd="/", mcpServers=[])
        assert answer["error"]["code"] == -32601


def test_blocks_of_a_prompt(serve: Callable, tmp_path: Path) -> None:
    client = serve()
    session = client.new(tmp_path)
    blocks = [
        _text("one"),
        {"type": "resource_link", "name": "a.txt", "uri": "file:///a.txt"},
        {"type": "resource", "resource": {"uri": "file:///b", "text": "inside"}},
    ]
    client.call("session/prompt", sessionId=session, prompt=blocks)
    said = client.updates(session)[-1]["content"]["text"]
    assert said == 'one\n[a.txt](file:///a.txt)\n<context uri="file:///b">\ninside\n</context>'
    image = {"type": "image", "data": "", "mimeType": "image/png"}
    for bad in ([image], [], [{"type": "text"}]):
        answer = client.call("session/prompt", sessionId=session, prompt=bad)
        assert answer["error"]["code"] == -32602


def test_one_prompt_at_a_time_in_a_session_but_sessions_side_by_side(
    serve: Callable, tmp_path: Path
) -> None:
    client = serve()
    one, two = client.new(tmp_path), client.new(tmp_path)
    assert one != two
    slow = client.start("session/prompt", sessionId=one, prompt=[_text("!do say up ; wait 30")])
    client.wait(lambda line: line.get("method") == "session/update")
    assert client.prompt(one, "again")["error"]["code"] == -32600
    assert client.prompt(two, "quick")["result"]["stopReason"] == "end_turn"
    assert not [line for line in client.lines if line.get("id") == slow]
    client.start("session/cancel", sessionId=one)
    assert client.wait(lambda line: line.get("id") == slow)["result"]["stopReason"] == "cancelled"
    assert client.prompt(one, "again")["result"]["stopReason"] == "end_turn"


@pytest.mark.parametrize(
    ("text", "changes", "cause"),
    [
        ("!do say a ; err why ; exit 3", {}, "agent_crash"),
        ("!do die 9", {}, "agent_crash"),
        ("!do noresult", {}, "agent_crash"),
        ("!do wait 30", {}, "agent_timeout"),
        ("hi", {"command": ["/no/such/program"]}, "spawn"),
    ],
)
def test_a_failing_agent_is_an_error_with_its_cause(
    serve: Callable, alive: Callable, tmp_path: Path, text: str, changes: Any, cause: str
) -> None:
    client = serve(Limits(turn_s=1), **changes)
    answer = client.prompt(client.new(tmp_path), text)
    assert answer["error"]["code"] == -32603
    assert answer["error"]["data"]["cause"] == cause
    assert alive() == []


def test_auth_limits_and_refusals_have_their_own_form(serve: Callable, tmp_path: Path) -> None:
    errors = [
        {"match": {"path": "$.type", "value": name}, "cause": cause}
        for name, cause in [("a", "auth"), ("r", "agent_refused"), ("l", "agent_limit")]
    ]
    client = serve(errors=errors)
    session = client.new(tmp_path)
    assert client.prompt(session, "!do event a")["error"]["code"] == -32000
    assert client.prompt(session, "!do event r")["result"]["stopReason"] == "refusal"
    assert client.prompt(session, "!do event l")["result"]["stopReason"] == "max_turn_requests"


def test_updates_have_the_form_of_the_protocol(serve: Callable, tmp_path: Path) -> None:
    from acp.schema import SessionNotification

    client = serve()
    session = client.new(tmp_path)
    answer = client.prompt(
        session,
        "!do think hm ; plan a,b ; call c1 Read x ; done c1 text ; say one ; say two ; result two",
    )
    for line in client.lines:
        if "params" in line:
            SessionNotification.model_validate(line["params"])
    updates = client.updates(session)
    assert [u["sessionUpdate"] for u in updates] == [
        "agent_thought_chunk",
        "plan",
        "tool_call",
        "tool_call_update",
        "agent_message_chunk",
        "agent_message_chunk",
    ]
    assert updates[2]["toolCallId"] == updates[3]["toolCallId"] == "c1"
    assert (updates[3]["status"], updates[3]["rawOutput"]) == ("completed", "text")
    assert updates[4]["messageId"] != updates[5]["messageId"]
    result = answer["result"]
    assert result["usage"] == {"inputTokens": 10, "outputTokens": 5, "totalTokens": 15}
    assert result["_meta"]["assay"] == {"output": "two", "agentSessionId": "s-1", "costUsd": 0.01}


def test_an_answer_that_was_never_said_is_told(serve: Callable, tmp_path: Path) -> None:
    client = serve()
    session = client.new(tmp_path)
    client.prompt(session, "!do result only this")
    client.prompt(session, "!do say x and only this ; result only this")
    client.prompt(session, "!do noresult ; wait 0 ; say nothing ; result ")
    texts = [u["content"]["text"] for u in client.updates(session)]
    assert texts == ["only this", "x and only this", "nothing"]


def test_calls_without_an_id_are_kept_apart(serve: Callable, tmp_path: Path) -> None:
    client = serve(
        outputEvents=[
            {
                "match": {"path": "$.type", "value": "tool"},
                "emitAs": "tool_call",
                "extract": {"title": "$.name", "status": "$.status"},
            }
        ]
    )
    session = client.new(tmp_path)
    states = ["pending", "pending", "completed", "failed", "pending", "completed", "completed"]
    lines = [json.dumps({"type": "tool", "name": "T", "status": s}) for s in states]
    client.prompt(session, "!do " + " ; ".join(f"line {line}" for line in lines))
    calls = [u for u in client.updates(session) if "toolCallId" in u]
    told = [(u["sessionUpdate"], u["toolCallId"][-1]) for u in calls]
    new, more = "tool_call", "tool_call_update"
    assert told == [
        *((new, "1"), (new, "2"), (more, "1"), (more, "2")),
        *((new, "3"), (more, "3"), (new, "4")),
    ]


def test_any_adapter_can_be_served(serve: Callable, tmp_path: Path) -> None:
    client = serve(ref=PluginRef(name="simple", options={"template": "echo said {}"}))
    session = client.new(tmp_path)
    assert client.prompt(session, "this")["result"]["stopReason"] == "end_turn"
    assert client.updates(session)[0]["content"]["text"] == "said this"


def test_loading_tells_the_conversation_again(serve: Callable, tmp_path: Path) -> None:
    client = serve()
    session = client.new(tmp_path)
    client.prompt(session, "first")
    client.prompt(session, "!do resumed")
    n = len(client.lines)
    answer = client.call("session/load", sessionId=session, cwd=str(tmp_path), mcpServers=[])
    assert answer["result"] == {}
    again = [line["params"] for line in client.lines[n:] if "params" in line]
    told = [(p["update"]["sessionUpdate"], p["update"]["content"]["text"]) for p in again]
    assert told == [
        ("user_message_chunk", "first"),
        ("agent_message_chunk", "first"),
        ("user_message_chunk", "!do resumed"),
        ("agent_message_chunk", "s-1"),
        ("agent_message_chunk", "done"),
    ]
    assert {p["sessionId"] for p in again} == {session}


def test_a_session_that_only_the_agent_knows_goes_on(serve: Callable, tmp_path: Path) -> None:
    client = serve()
    params = {"sessionId": "of-last-week", "cwd": str(tmp_path), "mcpServers": []}
    assert client.call("session/load", **params)["result"] == {}
    client.prompt("of-last-week", "!do resumed")
    assert client.updates("of-last-week")[0]["content"]["text"] == "of-last-week"


def test_closing_ends_prompts_agents_and_their_children(
    serve: Callable, alive: Callable, tmp_path: Path
) -> None:
    client = serve()
    numbers = [
        client.start(
            "session/prompt",
            sessionId=client.new(tmp_path),
            prompt=[_text("!do daemon ; say up ; wait 60")],
        )
        for _ in range(2)
    ]
    for session in client.server._sessions:
        client.wait(lambda line, s=session: line.get("params", {}).get("sessionId") == s)
    assert len(alive()) >= 4
    client.server.close()
    client.outbox.close()
    assert alive() == []
    for number in numbers:
        assert client.wait(lambda line, n=number: line.get("id") == n)["result"] == {
            "stopReason": "cancelled"
        }


def test_background_children_of_an_answered_prompt_end_with_the_session(
    serve: Callable, alive: Callable, tmp_path: Path
) -> None:
    client = serve()
    client.prompt(client.new(tmp_path), "!do child ; say up")
    client.server.close()
    assert alive() == []


def test_a_client_that_does_not_read_cannot_hold_up_the_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("assay.adapters.acp.wire._CLOSE_S", 0.2)
    stuck = threading.Event()
    outbox = Outbox(lambda _line: stuck.wait())
    sender = threading.Thread(target=lambda: [outbox.send(b"x\n") for _ in range(20_000)])
    sender.start()
    began = time.monotonic()
    outbox.stop_waiting()
    outbox.close()
    assert time.monotonic() - began < 5
    stuck.set()
    sender.join(10)
    assert not sender.is_alive()
