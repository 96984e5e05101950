"""The gateway of a sandbox without network: what it sees of an agent, and what a flood costs."""

import contextlib
import socket
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from assay.run import gateway as gateway_module
from assay.run.gateway import Gateway


@pytest.fixture
def provider() -> Iterator[Any]:
    """A server on this machine that gives the answers of a list, one after another."""
    answers: list[bytes] = []
    with socket.create_server(("127.0.0.1", 0)) as server:
        server_port = server.getsockname()[1]

        def serve(client: socket.socket) -> None:
            with client, contextlib.suppress(OSError):
                while client.recv(65536):
                    client.sendall(answers.pop(0) if answers else b"")
                    if not answers:
                        return

        def accept() -> None:
            with contextlib.suppress(OSError):
                while True:
                    threading.Thread(target=serve, args=(server.accept()[0],), daemon=True).start()

        threading.Thread(target=accept, daemon=True).start()
        accept.port, accept.answers = server_port, answers  # type: ignore[attr-defined]
        yield accept


@pytest.fixture
def opened(tmp_path: Any) -> Iterator[Any]:
    """Open a gateway and hand it a listening socket, as the helper does inside a sandbox."""
    with contextlib.ExitStack() as stack:

        def make(*ports: int) -> tuple[Gateway, int]:
            path = str(tmp_path / f"s{ports[0]}")
            gateway = Gateway(path, [f"http://127.0.0.1:{port}" for port in ports])
            stack.callback(gateway.close)
            listening = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
            inside = listening.getsockname()[1]
            gateway._ports = {inside}
            connect = gateway._connect
            gateway._connect = lambda host, _port: connect(host, ports[0])  # type: ignore[method-assign]
            with socket.socket(socket.AF_UNIX) as way:
                way.connect(path)
                socket.send_fds(way, [b"x"], [listening.fileno()])
                way.recv(1)
            listening.close()
            return gateway, inside

        yield make


def ask(port: int, text: bytes = b"POST / HTTP/1.1\r\n\r\n") -> bytes:
    """Give the answer, nothing if the connection is refused or broken."""
    with (
        contextlib.suppress(OSError),
        socket.create_connection(("127.0.0.1", port), 10) as client,
    ):
        client.sendall(text)
        return client.recv(65536)
    return b""


@pytest.mark.parametrize(
    ("answers", "expected"),
    [
        ([b"HTTP/1.1 200 OK\r\n\r\n"], {"answers": {"200": 1}, "last": "200"}),
        ([b"HTTP/1.1 529 Overloaded\r\n\r\n"], {"answers": {"529": 1}, "last": "529"}),
        ([b"\x16\x03\x03hello"], {"opaque": 1, "answers": {}}),
        ([b""], {"dropped": 1, "answers": {}}),
    ],
)
def test_sees_how_a_provider_answers(provider, opened, answers, expected) -> None:
    gateway, port = opened(provider.port)
    provider.answers += answers
    ask(port)
    deadline_s = time.monotonic() + 5
    while gateway.traffic.seen() | expected != gateway.traffic.seen():
        assert time.monotonic() < deadline_s, gateway.traffic.seen()
        time.sleep(0.01)
    assert gateway.traffic.seen()["connections"] == 1


def test_an_answer_to_every_request_of_a_connection_is_seen(provider, opened) -> None:
    gateway, port = opened(provider.port)
    provider.answers += [b"HTTP/1.1 500 x\r\n\r\n", b"HTTP/1.1 100 x\r\n\r\n", b"HTTP/1.1 200 x"]
    with socket.create_connection(("127.0.0.1", port)) as client:
        for _ in range(3):
            client.sendall(b"POST / HTTP/1.1\r\n\r\n")
            client.recv(1000)
    assert gateway.traffic.seen()["answers"] == {"500": 1, "100": 1, "200": 1}


def test_a_provider_that_is_not_there_is_seen(opened) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        free = server.getsockname()[1]
    gateway, port = opened(free)
    assert ask(port) == b""
    assert gateway.traffic.seen() | {"failed": 1, "last": "failed"} == gateway.traffic.seen()


def test_a_flood_gets_few_threads_and_waits(provider, opened, monkeypatch) -> None:
    monkeypatch.setattr(gateway_module, "_CONNECTIONS_PER_S", 50)
    gateway, port = opened(provider.port)
    before, clients = threading.active_count(), []
    try:
        for _ in range(300):
            one = socket.socket()
            one.setblocking(False)
            one.connect_ex(("127.0.0.1", port))
            clients.append(one)
        time.sleep(0.5)
        assert threading.active_count() - before <= 2 * gateway_module._MOST_OPEN
        assert gateway.traffic.seen()["connections"] <= 80
    finally:
        for one in clients:
            one.close()


def test_what_may_pass_in_all_is_limited(provider, opened, monkeypatch) -> None:
    monkeypatch.setattr(gateway_module, "_MOST_CONNECTIONS", 3)
    monkeypatch.setattr(gateway_module, "_MOST_BYTES", 100)
    gateway, port = opened(provider.port)
    provider.answers += [b"HTTP/1.1 200 OK\r\n" + b"x" * 200, b"HTTP/1.1 200 OK\r\n", b"y"]
    assert ask(port).startswith(b"HTTP/1.1 200"), "what was taken is passed on"
    assert ask(port) == b"", "too many bytes"
    ask(port)
    ask(port)
    assert gateway.traffic.seen()["connections"] == 3


def test_a_host_is_looked_up_now_and_then(monkeypatch, tmp_path) -> None:
    asked: list[str] = []

    def find(host: str, *_rest: Any, **_options: Any) -> list[Any]:
        asked.append(host)
        raise socket.gaierror

    monkeypatch.setattr(gateway_module.socket, "getaddrinfo", find)
    gateway = Gateway(str(tmp_path / "s"), ["https://api.example"])
    try:
        for _ in range(100):
            with pytest.raises(OSError, match="not known"):
                gateway._find("api.example", 443)
    finally:
        gateway.close()
    assert asked == ["api.example"]
