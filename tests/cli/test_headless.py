"""`assay headless`: the official SDK's client speaks with a scripted agent through it."""

import asyncio
import json
import signal
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning")


class Client:
    """Keeps every update with the moment it arrived."""

    def __init__(self) -> None:
        self.updates: list[tuple[float, str, Any]] = []
        self._came = asyncio.Condition()

    async def session_update(self, session_id: str, update: Any, **more: Any) -> None:
        async with self._came:
            self.updates.append((time.monotonic(), session_id, update))
            self._came.notify_all()

    async def wait(self, n: int) -> None:
        async with self._came:
            await asyncio.wait_for(self._came.wait_for(lambda: len(self.updates) >= n), 20)

    def texts(self, session_id: str | None = None) -> list[tuple[str, str]]:
        return [
            (update.session_update, update.content.text)
            for _, own, update in self.updates
            if session_id in (None, own)
        ]


type Talk = Callable[[Client, Any, Any], Awaitable[None]]


@pytest.fixture
def talk(agent: Callable, tmp_path: Path, alive: Callable) -> Callable[[Talk], None]:
    """Hold a conversation through the SDK; nothing is alive after it and it ends with 0."""

    import acp

    async def hold(conversation: Talk) -> int:
        client = Client()
        command = [sys.executable, "-m", "assay", "headless", "-s", str(agent())]
        spawn = acp.spawn_agent_process(
            client, *command, cwd=tmp_path, transport_kwargs={"stderr": None}
        )
        async with spawn as (connection, process):
            met = await connection.initialize(protocol_version=acp.PROTOCOL_VERSION)
            assert met.protocol_version == 1
            assert met.agent_capabilities.load_session is True
            assert met.agent_info.name == "scripted"
            await asyncio.wait_for(conversation(client, connection, process), 30)
        return await process.wait()

    def run(conversation: Talk) -> None:
        assert asyncio.run(hold(conversation)) == 0
        assert alive() == []

    return run


def _ask(connection: Any, session: str, text: str) -> Coroutine[Any, Any, Any]:
    from acp.helpers import text_block

    return connection.prompt(session_id=session, prompt=[text_block(text)])


def test_two_turns(talk: Callable, tmp_path: Path) -> None:
    async def conversation(client: Client, connection: Any, process: Any) -> None:
        session = (await connection.new_session(cwd=str(tmp_path), mcp_servers=[])).session_id
        answer = await _ask(connection, session, "!do resumed ; cwd ; result fine")
        assert answer.stop_reason == "end_turn"
        assert answer.usage.input_tokens == 10
        answer = await _ask(connection, session, "!do resumed ; result fine")
        assert answer.usage.input_tokens == 20
        said = [text for _, text in client.texts(session)]
        assert said == ["new", str(tmp_path), "fine", "s-1", "fine"]

    talk(conversation)


def test_updates_arrive_while_the_agent_works(talk: Callable, tmp_path: Path) -> None:
    async def conversation(client: Client, connection: Any, process: Any) -> None:
        session = (await connection.new_session(cwd=str(tmp_path), mcp_servers=[])).session_id
        await _ask(
            connection,
            session,
            "!do think a ; wait 0.4 ; call c1 Read x ; wait 0.4 ; done c1 y ; plan p ; wait 0.4",
        )
        ended = time.monotonic()
        kinds = [update.session_update for _, _, update in client.updates]
        assert kinds == [
            "agent_thought_chunk",
            "tool_call",
            "tool_call_update",
            "plan",
            "agent_message_chunk",
        ]
        before_s = [ended - at for at, _, _ in client.updates]
        assert before_s[0] > 1.1
        assert 0.7 < before_s[1] < before_s[0] - 0.3
        assert 0.35 < before_s[2] < before_s[1] - 0.3
        call, end = client.updates[1][2], client.updates[2][2]
        assert (call.tool_call_id, call.title, call.status) == ("c1", "Read", "pending")
        assert call.raw_input == {"path": "x"}
        assert (end.tool_call_id, end.status, end.raw_output) == ("c1", "completed", "y")

    talk(conversation)


def test_cancel(talk: Callable, alive: Callable, tmp_path: Path) -> None:
    async def conversation(client: Client, connection: Any, process: Any) -> None:
        session = (await connection.new_session(cwd=str(tmp_path), mcp_servers=[])).session_id
        other = (await connection.new_session(cwd=str(tmp_path), mcp_servers=[])).session_id
        prompt = asyncio.create_task(_ask(connection, session, "!do daemon ; say up ; wait 60"))
        await client.wait(1)
        assert len(alive()) >= 2
        side = await _ask(connection, other, "meanwhile")
        assert side.stop_reason == "end_turn"
        assert not prompt.done()
        began = time.monotonic()
        await connection.cancel(session_id=session)
        assert (await prompt).stop_reason == "cancelled"
        assert time.monotonic() - began < 8
        assert alive() == []
        again = await _ask(connection, session, "!do resumed")
        assert again.stop_reason == "end_turn"
        assert ("agent_message_chunk", "s-1") in client.texts(session)

    talk(conversation)


def test_load(talk: Callable, tmp_path: Path) -> None:
    import acp

    async def conversation(client: Client, connection: Any, process: Any) -> None:
        session = (await connection.new_session(cwd=str(tmp_path), mcp_servers=[])).session_id
        await _ask(connection, session, "hello")
        client.updates.clear()
        where = {"cwd": str(tmp_path), "mcp_servers": []}
        await connection.load_session(session_id=session, **where)
        await client.wait(2)
        assert client.texts(session) == [
            ("user_message_chunk", "hello"),
            ("agent_message_chunk", "hello"),
        ]
        await connection.load_session(session_id="s-77", **where)
        await _ask(connection, "s-77", "!do resumed")
        assert client.texts("s-77")[0] == ("agent_message_chunk", "s-77")
        with pytest.raises(acp.RequestError) as refused:
            await connection.load_session(session_id="sess_unknown", **where)
        assert refused.value.code == -32002

    talk(conversation)


def test_a_crash_is_an_error_and_not_a_hang(talk: Callable, tmp_path: Path) -> None:
    import acp

    async def conversation(client: Client, connection: Any, process: Any) -> None:
        session = (await connection.new_session(cwd=str(tmp_path), mcp_servers=[])).session_id
        with pytest.raises(acp.RequestError) as failed:
            await _ask(connection, session, "!do err broken ; exit 3")
        assert failed.value.code == -32603
        assert failed.value.data == {"cause": "agent_crash"}
        assert "broken" in str(failed.value)

    talk(conversation)


def test_the_end_of_stdin_ends_prompts_under_way(talk: Callable, tmp_path: Path) -> None:
    async def conversation(client: Client, connection: Any, process: Any) -> None:
        session = (await connection.new_session(cwd=str(tmp_path), mcp_servers=[])).session_id
        prompt = asyncio.create_task(_ask(connection, session, "!do say up ; wait 60"))
        await client.wait(1)
        process.stdin.close()
        assert (await prompt).stop_reason == "cancelled"

    talk(conversation)


@pytest.mark.parametrize(
    ("number", "trick"), [(signal.SIGTERM, "daemon"), (signal.SIGINT, "wait 0")]
)
def test_signals_end_the_agents_and_exit_0(
    agent: Callable, alive: Callable, tmp_path: Path, number: int, trick: str
) -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "assay", "headless", "-s", agent(), "--verbose"],
        cwd=tmp_path,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        _send(process, 1, "session/new", {"cwd": str(tmp_path), "mcpServers": []})
        session = json.loads(process.stdout.readline())["result"]["sessionId"]
        block = {"type": "text", "text": f"!do {trick} ; say up ; wait 60"}
        _send(process, 2, "session/prompt", {"sessionId": session, "prompt": [block]})
        assert json.loads(process.stdout.readline())["method"] == "session/update"
        assert alive()
        process.send_signal(number)
        out, err = process.communicate(timeout=20)
    finally:
        process.kill()
        process.wait()
    assert process.returncode == 0
    assert alive() == []
    assert json.loads(out) == {"jsonrpc": "2.0", "id": 2, "result": {"stopReason": "cancelled"}}
    assert b"session/prompt" in err


def _send(process: "subprocess.Popen[bytes]", number: int, method: str, params: Any) -> None:
    assert process.stdin is not None
    call = {"jsonrpc": "2.0", "id": number, "method": method, "params": params}
    process.stdin.write(json.dumps(call).encode() + b"\n")
    process.stdin.flush()


def test_wrong_usage(assay: Callable, agent: Callable, tmp_path: Path) -> None:
    (tmp_path / "bad.json").write_text("{}")
    for words, code, text in [
        ([], 2, "-s"),
        (["-s", agent(), "more"], 2, "more"),
        (["-s", "nope.json"], 1, "nope.json"),
        (["-s", "bad.json"], 1, "bad.json"),
    ]:
        done = assay("headless", *words)
        assert (done.code, done.stdout) == (code, ""), words
        assert text in done.stderr


def test_stdout_carries_only_the_protocol(assay: Callable, agent: Callable) -> None:
    hello = '{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":1}}'
    done = assay("headless", "-s", agent(), "-v", stdin=f"{hello}\nnonsense\n\n")
    assert done.code == 0
    first, second = done.rows
    assert first["result"]["protocolVersion"] == 1
    assert second["error"]["code"] == -32700
    assert "initialize" in done.stderr


def test_there_and_back_again(
    assay: Callable, agent: Callable, prompts: Callable, alive: Callable
) -> None:
    """An agent captured through headless gives the rows that it gives by itself."""
    schema = agent()
    path = prompts(
        "!do think hm ; call c1 Read x ; done c1 y ; say one ; say two ; result two",
        ["hello", "!do resumed ; result bye"],
        "!do say half ; exit 3",
        {"id": "slow", "input": "!do say up ; wait 60", "timeout": 2500},
    )
    plain = assay("capture", path, "-s", schema, "-q", "-j", 4).rows
    command = [sys.executable, "-m", "assay", "headless", "-s", schema]
    through = assay("capture", path, "-q", "-j", 4, "--", *command).rows
    assert alive() == []
    by_id = {row["id"]: row for row in through}
    assert len(by_id) == 4
    for row in plain:
        other = by_id[row["id"]]
        assert other["output"] == row["output"]
        assert other.get("usage") == row.get("usage")
        assert _cause(other) == _cause(row)
        told = [_essence(step) for step in other["trajectory"]]
        expected = [_essence(step) for step in row["trajectory"]]
        if row["output"] not in [text for _, text, _ in expected]:
            expected.append(("message", row["output"], row["trajectory"][-1].get("turn")))
        assert told == expected
    assert [_cause(by_id[name]) for name in ("p0", "p1", "p2", "slow")] == [
        None,
        None,
        "agent_crash",
        "agent_timeout",
    ]


def _cause(row: dict[str, Any]) -> str | None:
    return row["failure"]["cause"] if "failure" in row else None


def _essence(step: dict[str, Any]) -> tuple[Any, ...]:
    if step["type"] == "tool_call":
        return step["name"], (step["status"], step["callId"], step["input"], step["output"]), None
    return step["type"], step["content"], step.get("turn")
