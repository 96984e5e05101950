"""What goes wrong on purpose, in the words of all four providers."""

import http.client
import time

import pytest

from assay.testing.model import ScriptedModel


@pytest.mark.parametrize("status", [400, 401, 403, 404, 429, 500, 503, 529])
def test_error_status_with_headers_then_success(client, provider, text_of, status) -> None:
    fault = {"status": status, "message": "no", "headers": {"retry-after": "3"}, "times": 2}
    with ScriptedModel({"steps": [{"text": "yes", "faults": [fault]}]}) as model:
        one = client(model, provider)
        got = [one.ask(stream=stream) for stream in (True, False, True)]
    assert [answer.status for answer in got] == [status, status, 200]
    assert got[0].headers["retry-after"] == "3"
    assert got[0].json["error"]["message"] == "no"
    assert text_of(provider, got[2]) == "yes"
    assert [(r.served, r.attempt) for r in model.requests] == [
        ("fault", 0), ("fault", 1), ("step", 2),
    ]  # fmt: skip


def test_error_bodies_name_the_error_as_each_provider_does(client) -> None:
    said = {
        "anthropic": ("type", "rate_limit_error"),
        "responses": ("code", "rate_limit_exceeded"),
        "chat": ("code", "rate_limit_exceeded"),
        "gemini": ("status", "RESOURCE_EXHAUSTED"),
    }
    for provider, (key, word) in said.items():
        with ScriptedModel({"steps": [{"faults": [{"status": 429}]}]}) as model:
            assert client(model, provider).ask().json["error"][key] == word


def test_own_type_and_own_body(client) -> None:
    faults = [{"status": 429, "type": "insufficient_quota"}, {"status": 500, "body": {"a": 1}}]
    with ScriptedModel({"steps": [{"faults": faults}]}) as model:
        one = client(model, "responses")
        assert one.ask().json["error"]["code"] == "insufficient_quota"
        assert one.ask().json == {"a": 1}


def test_always_never_succeeds(client, provider) -> None:
    script = {"steps": [{"text": "never", "faults": [{"status": 500, "times": "always"}]}]}
    with ScriptedModel(script) as model:
        assert {client(model, provider).ask().status for _ in range(5)} == {500}


def test_hang_gives_nothing(client, provider) -> None:
    with ScriptedModel({"steps": [{"text": "late", "faults": [{"hang": True}]}]}) as model:
        with pytest.raises(TimeoutError):
            client(model, provider, timeout_s=0.2).ask()
        assert client(model, provider).ask().status == 200
    assert [r.status for r in model.requests] == [0, 200]


def test_stop_ends_what_hangs() -> None:
    model = ScriptedModel({"steps": [{"faults": [{"hang": True}]}], "toolless": "step"})
    model.start()
    connection = http.client.HTTPConnection(model.url.removeprefix("http://"), timeout=5)
    connection.request("POST", "/v1/messages", b'{"messages": []}')
    assert model.wait_for(1)
    before_s = time.monotonic()
    model.stop()
    with pytest.raises((http.client.HTTPException, ConnectionError)):
        connection.getresponse()
    connection.close()
    assert time.monotonic() - before_s < 2


def test_hang_for_a_while_then_cut(client) -> None:
    with ScriptedModel({"steps": [{"faults": [{"hang": True, "forS": 0.2}]}]}) as model:
        before_s = time.monotonic()
        with pytest.raises((http.client.HTTPException, ConnectionError)):
            client(model).ask()
        assert 0.15 < time.monotonic() - before_s < 2


@pytest.mark.parametrize("stream", [True, False])
def test_hang_in_the_middle(client, provider, stream) -> None:
    fault = {"hang": True, "afterEvents": 1}
    with ScriptedModel({"steps": [{"text": "abcd", "faults": [fault]}]}) as model:
        with pytest.raises(TimeoutError):
            client(model, provider, timeout_s=0.2).ask(stream=stream)
        assert client(model, provider).ask(stream=stream).status == 200


@pytest.mark.parametrize("stream", [True, False])
def test_drop_in_the_middle(client, provider, stream) -> None:
    fault = {"drop": True, "afterEvents": 1}
    with ScriptedModel({"steps": [{"text": "abcd", "faults": [fault]}]}) as model:
        with pytest.raises(http.client.IncompleteRead) as cut:
            client(model, provider).ask(stream=stream)
        assert cut.value.partial
        assert client(model, provider).ask(stream=stream).status == 200


def test_drop_at_once(client, provider) -> None:
    with ScriptedModel({"steps": [{"text": "x", "faults": [{"drop": True}]}]}) as model:
        with pytest.raises((http.client.RemoteDisconnected, ConnectionError)):
            client(model, provider).ask()
        assert client(model, provider).ask().status == 200


def test_error_in_the_middle_of_a_stream(client, provider) -> None:
    fault = {"status": 529, "message": "too much", "afterEvents": 2}
    with ScriptedModel({"steps": [{"text": "abcdef", "faults": [fault]}]}) as model:
        got = client(model, provider).ask()
    last = got.events[-1]
    error = last["response"]["error"] if provider == "responses" else last["error"]
    assert got.status == 200
    assert len(got.events) == 3
    assert error["message"] == "too much"


def test_raw_passages(client, provider) -> None:
    raw = [{"type": "odd", "x": 1}, "data: {broken\n\n", ": comment\n\n"]
    with ScriptedModel({"steps": [{"rawSse": raw}]}) as model:
        got = client(model, provider).ask()
    head = "event: odd\n" if provider in ("anthropic", "responses") else ""
    assert got.text == head + 'data: {"type": "odd", "x": 1}\n\ndata: {broken\n\n: comment\n\n'


def test_delays(client) -> None:
    step = {"text": "abcd", "delayS": 0.1, "chunkDelayS": 0.02, "chunks": 4}
    with ScriptedModel({"steps": [step]}) as model:
        before_s = time.monotonic()
        client(model, "chat").ask()
        assert time.monotonic() - before_s > 0.1 + 7 * 0.02 - 0.01
