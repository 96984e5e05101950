"""The server as a server: many at once, odd requests, the log, the blocking call."""

import gzip
import http.client
import json
import os
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay.testing.model import ScriptedModel
from assay.testing.model.exchange import cut

ONE = {"steps": [{"text": "one", "chunks": 1}]}
BODY = json.dumps({"messages": [], "tools": [{"name": "Bash"}]}).encode()


def connected(model: ScriptedModel) -> closing[http.client.HTTPConnection]:
    host = model.url.removeprefix("http://")
    return closing(http.client.HTTPConnection(host, timeout=5))


def test_fifty_conversations_at_once(client, text_of) -> None:
    n_steps = 6
    steps = [
        {"text": f"{n} for {{{{last_user}}}}", "chunkDelayS": 0.002,
         "faults": [{"status": 500}] if n == 2 else []}
        for n in range(n_steps)
    ]  # fmt: skip
    providers = ["anthropic", "responses", "chat", "gemini"]

    def converse(number: int) -> list[str]:
        provider = providers[number % 4]
        one = client(model, provider)
        said = []
        for answers in range(n_steps):
            got = one.ask(f"user {number}", answers=answers)
            if got.status == 500:
                got = one.ask(f"user {number}", answers=answers)
            said.append(text_of(provider, got))
        return said

    with ScriptedModel({"steps": steps}) as model, ThreadPoolExecutor(50) as pool:
        for number, said in enumerate(pool.map(converse, range(50))):
            assert said == [f"{n} for user {number}" for n in range(n_steps)]
    assert len(model.requests) == 50 * (n_steps + 1)
    assert [r.number for r in model.requests] == list(range(1, 351))


def test_one_connection_serves_many_requests() -> None:
    with ScriptedModel(ONE) as model, connected(model) as connection:
        for stream in (True, False, True):
            body = {"messages": [], "tools": [{"name": "Bash"}], "stream": stream}
            connection.request("POST", "/v1/messages", json.dumps(body))
            assert b'"one"' in connection.getresponse().read()


def test_chunked_and_packed_bodies(client) -> None:
    with ScriptedModel(ONE) as model, connected(model) as connection:
        connection.request("POST", "/v1/messages", iter([BODY[:9], BODY[9:]]))
        assert connection.getresponse().status == 200
        headers = {"content-encoding": "gzip"}
        packed = client(model).send("POST", "/v1/messages", gzip.compress(BODY), **headers)
        assert packed.json["content"][0]["text"] == "one"


def test_unusable_requests_are_answered_and_logged(client) -> None:
    with ScriptedModel(ONE) as model:
        one = client(model)
        assert one.send("POST", "/v1/messages", b"{nonsense").status == 400
        assert one.send("POST", "/v1/messages", b"[]").status == 400
        assert one.post("/v2/else", {}).status == 404
        assert one.send("GET", "/v1/else").status == 404
    assert [r.served for r in model.requests] == ["unknown"] * 4


def test_log_hides_secrets(client, tmp_path) -> None:
    log = tmp_path / "log.jsonl"
    headers = {"authorization": "Bearer sk-1", "x-api-key": "sk-2", "x-goog-api-key": "sk-3"}
    with ScriptedModel(ONE, log=log) as model:
        client(model, headers={**headers, "user-agent": "me"}).ask("the prompt")
        client(model).post("/v1beta/models/m:generateContent?key=sk-4&alt=x", {})
    text = log.read_text()
    assert "sk-" not in text
    assert "sk-" not in str(model.requests)
    first, second = (json.loads(line) for line in text.splitlines())
    assert first["headers"]["user-agent"] == "me"
    assert first["lastUser"] == "the prompt"
    assert (first["provider"], first["served"], first["step"]) == ("anthropic", "step", 0)
    assert "body" not in first
    assert second["path"].endswith("?key=<hidden>&alt=x")
    assert model.requests[0].body["model"] == "test-model"


def test_log_with_bodies(client, tmp_path) -> None:
    with ScriptedModel(ONE, log=tmp_path / "log", log_bodies=True) as model:
        client(model).ask("the prompt")
    assert json.loads((tmp_path / "log").read_text())["body"]["model"] == "test-model"


def test_not_running_says_so() -> None:
    model = ScriptedModel(ONE)
    with pytest.raises(RuntimeError, match="not running"):
        _ = model.url
    assert model.requests == []
    assert not model.wait_for(1, 0.01)


def test_only_loopback() -> None:
    with ScriptedModel(ONE) as model:
        assert model.url.startswith("http://127.0.0.1:")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_serve_blocks_until_a_signal(client, tmp_path, number) -> None:
    script, port_file, log = tmp_path / "s.json", tmp_path / "port", tmp_path / "log"
    script.write_text(json.dumps(ONE))
    code = "import sys; from assay.testing.model import serve; serve(sys.argv[1], 0, *sys.argv[2:])"
    process = subprocess.Popen([sys.executable, "-c", code, script, log, port_file])
    try:
        end_s = time.monotonic() + 10
        while not port_file.exists() and time.monotonic() < end_s:
            time.sleep(0.02)
        url = f"http://127.0.0.1:{port_file.read_text()}"
        assert client(None, url=url).ask().status == 200
        os.kill(process.pid, number)
        assert process.wait(5) == 0
    finally:
        process.kill()
        process.wait()
    assert json.loads(log.read_text())["served"] == "step"


@given(st.text(), st.integers(1, 50))
def test_cutting_loses_nothing(text, n_pieces) -> None:
    pieces = cut(text, n_pieces)
    assert "".join(pieces) == text
    assert len(pieces) <= n_pieces
    assert all(pieces)
