"""What a hostile agent, a provider and somebody else's tape can do to the recording proxy."""

import contextlib
import gzip
import http.client
import json
import os
import random
import socket
import threading
import time
import zlib
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from assay.errors import AssayError, InputError, OutputError
from assay.pipeline.extract import checked_excuse
from assay.records.answers import tokens_in
from assay.records.capture import Cause, Failure
from assay.records.tape import Exchange, Tape, TapeUse
from assay.run import gateway, proxy, tapes
from assay.run.proxy import Proxy
from assay.run.secrets import Secrets
from assay.run.tapes import TapeLane, open_tapes
from assay.run.wire import Names, Pieces, without_keys

GOOD = b'POST /v1 HTTP/1.1\r\nContent-Length: 11\r\n\r\n{"a": "ok"}'
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi"


class Provider(BaseHTTPRequestHandler):
    """Answers a POST with its body, and a GET as its path says."""

    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *args: Any) -> None:
        """Print nothing."""

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        text = json.dumps({"heard": len(body), "key": self.headers.get("x-api-key")}).encode()
        self.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(text) + text)

    def do_GET(self) -> None:
        if self.path == "/endless":
            self.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n")
            with contextlib.suppress(OSError):
                while True:
                    self.wfile.write(b"data: x" * 9000)
        self.close_connection = True


@pytest.fixture
def provider() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Provider) as server:
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


@pytest.fixture
def lane(spec: Callable[..., Any], tmp_path: Path) -> Iterator[Callable[..., TapeLane]]:
    """Make the lane of a trial, whose tape is a.tape."""
    trial = spec("hi")
    with contextlib.ExitStack() as stack:

        def make(use: TapeUse | None = None, **env: str) -> TapeLane:
            use = use or TapeUse(record=str(tmp_path / "a.tape"))
            stack.enter_context(open_tapes([use]))
            names = Names(str(tmp_path / "w"), None)
            conversation = SimpleNamespace(
                secrets=Secrets(env), cancelled=threading.Event(), turns=[]
            )
            return TapeLane(trial, use, names, conversation)

        make.close = stack.close  # type: ignore[attr-defined]
        yield make


SECRETS: dict[int, bytes] = {}
"""Of proxies, by their ports."""


@pytest.fixture
def opened(provider: str) -> Iterator[Callable[..., int]]:
    """Open the proxy of a lane; return its port."""
    with contextlib.ExitStack() as stack:

        def make(lane: TapeLane, url: str = provider) -> int:
            made = Proxy(lane)
            stack.callback(made.close)
            port, _, secret = made.through(url).rpartition(":")[2].partition("/")
            SECRETS[int(port)] = secret.encode()
            return int(port)

        yield make


def to(port: int, request: bytes) -> bytes:
    """Give all requests the secret of their proxy."""
    return request.replace(b" /", b" /%b/" % SECRETS[port])


def ask(port: int, *parts: bytes) -> bytes:
    """Send what is no good request, perhaps, and return what comes back."""
    with socket.create_connection(("127.0.0.1", port), 10) as client:
        first, *others = parts
        with contextlib.suppress(OSError):
            for part in (to(port, first), *others):
                client.sendall(part)
            client.shutdown(socket.SHUT_WR)
        found = b""
        with contextlib.suppress(OSError):
            while block := client.recv(65536):
                found += block
    return found


def post(length: object, *headers: str) -> bytes:
    lines = ["POST /v1 HTTP/1.1", f"Content-Length: {length}", *headers]
    return "\r\n".join([*lines, "", ""]).encode("latin-1")


CHUNKED = b"POST /v1 HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n"
GZIPPED = "Content-Encoding: gzip"
BOMB = gzip.compress(b"x" * (64 << 20), 1)
REFUSED: dict[str, tuple[list[bytes], int]] = {
    "more than there is memory": ([post(10**15)], 413),
    "a number of a million digits": ([post("9" * 60_000)], 400),
    "a negative length": ([post(-1), b"x" * 100], 400),
    "no number": ([post("many")], 400),
    "a chunk of any size": ([CHUNKED, b"fffffffffffff\r\n"], 413),
    "a negative chunk": ([CHUNKED, b"-1\r\n", b"x" * 100], 400),
    "chunks without end": ([CHUNKED, *[b"100000\r\n" + b"x" * (1 << 20) + b"\r\n"] * 40], 413),
    "a gzip bomb": ([post(len(BOMB), GZIPPED), BOMB], 413),
    "a control character in the path": ([b"GET /\x01 HTTP/1.1\r\n\r\n"], 400),
    "a path that is not ASCII": ([b"GET /\xe9 HTTP/1.1\r\n\r\n"], 400),
    "a method that is none": ([b"G\x01T / HTTP/1.1\r\n\r\n"], 400),
    "a header that is none": ([post(0, "x y\x0b: 1", "a: b\x00\x01\nc")], 400),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_request_that_is_none_costs_its_agent_only(lane, opened, name: str) -> None:
    """No size that an agent names is allocated, nothing ends a thread with a traceback, and what
    the agent brought about is no failure of its provider."""
    made = lane()
    port = opened(made)
    parts, status = REFUSED[name]
    answer = ask(port, *parts)
    assert not answer or int(answer.split()[1]) in (status, 200), answer[:100]
    excuse = Failure(cause=Cause.PROVIDER, message="it did not answer")
    assert checked_excuse(excuse, made.traffic.seen()).reported_by != "the gateway"
    assert ask(port, GOOD).startswith(b"HTTP/1.1 200")


def test_a_provider_that_cannot_be_reached_is_still_an_excuse(lane, opened) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        free = server.getsockname()[1]
    made = lane()
    assert ask(opened(made, f"http://127.0.0.1:{free}"), GOOD) == b""
    excuse = Failure(cause=Cause.PROVIDER, message="it did not answer")
    assert checked_excuse(excuse, made.traffic.seen()).reported_by == "the gateway"


@pytest.mark.parametrize("text", ["eyJ-", "eyJaaaaaaaaaaaa.eyJ-", "-----BEGIN ", "call_", "Jan "])
def test_a_text_is_read_in_a_time_that_grows_with_its_length(lane, tmp_path: Path, text) -> None:
    """Regular expressions hold the whole process up; 80 kB of the first took 7 s."""
    body = msgspec.json.encode({"messages": [{"role": "user", "content": text * 50_000}]})
    began_s = time.process_time()
    lane().record(Exchange(lane=0, number=0, method="POST", path="/"), body, [])
    assert time.process_time() - began_s < 5


def test_long_texts_are_covered_as_short_ones_are() -> None:
    keys = "sk-" + "k9" * 10, "eyJhbGciOiJIUzI1.eyJzdWIiOiIxMjM0.SflKxwRJSMeKKF", "AKIA" + "A1" * 8
    text = " ".join(f"{'word ' * 300}{key}" for key in keys * 40)
    key = "-----BEGIN RSA PRIVATE KEY-----" + "A\n" * 50_000 + "-----END RSA PRIVATE KEY-----"
    covered = without_keys(text + key)
    assert len(covered) == len(text + key)
    assert [one for one in (*keys, "A\nA") if one in covered] == []


def test_requests_that_are_nested_deeply_are_read_as_text(lane, opened) -> None:
    port = opened(made := lane())
    for n in (300, 900, 20_000):
        body = b'{"messages":' + b"[" * n + b"]" * n + b"}"
        assert ask(port, post(len(body)), body).startswith(b"HTTP/1.1 200"), n
    made.ended.set()
    assert made.wire().requests == 3


ODD_BODIES = [
    b'{"a": 99999999999999999999999999}',
    b'{"max_tokens": -170141183460469231731687303715884105728}',
    b'{"a": 1e999}',
    b'{"a": NaN}',
    b'{"a": "\\ud800"}',
    b'{"\\u0000": "\\u0000"}',
    b"\xff\xfe",
    b'{"messages": 7, "input": null, "contents": "x"}',
    b'{"model": ["x"], "messages": [null, 1, {"role": "tool", "content": {}}]}',
    b'{"$part": "x"}',
    b'{"a": {"$part": ["x"]}}',
    b"[" * 9 + b"]" * 9,
    b'"' + b"a" * 200_000 + b'"',
    b"",
]


def test_odd_bodies_are_recorded_and_found_again(lane, opened, tmp_path: Path) -> None:
    port = opened(lane())
    for body in ODD_BODIES:
        assert ask(port, post(len(body)), body).startswith(b"HTTP/1.1 200"), body
    lane.close()
    made = lane(TapeUse(replay=str(tmp_path / "a.tape")))
    port = opened(made)
    for body in ODD_BODIES:
        assert ask(port, post(len(body)), body).startswith(b"HTTP/1.1 200"), made.failure()
    assert made.failure() is None


def test_what_a_row_says_of_the_traffic_is_short(lane, opened) -> None:
    port = opened(made := lane())
    for n in range(40):
        body = b'{"model": "%d%b"}' % (n, b"m" * 10_000)
        ask(port, post(len(body)), body)
    assert len(msgspec.json.encode(made.wire())) < 15_000


@pytest.mark.parametrize("n", [10**30, -5, 1.5, True, "9"])
def test_tokens_that_cannot_be_true_count_nothing(n: Any) -> None:
    text = json.dumps({"usage": {"input_tokens": n, "output_tokens": 3}})
    found = tokens_in([(0, text)])
    assert (found.input if found else 0) in (0, 1)


def test_a_flood_gets_few_threads_and_the_next_request_is_answered(
    lane, opened, monkeypatch
) -> None:
    monkeypatch.setattr(gateway, "_CONNECTIONS_PER_S", 1000)
    port = opened(lane())
    before, clients = threading.active_count(), []
    try:
        for _ in range(300):
            one = socket.socket()
            one.setblocking(False)
            one.connect_ex(("127.0.0.1", port))
            clients.append(one)
        time.sleep(0.5)
        assert threading.active_count() - before <= gateway._MOST_OPEN + 2
    finally:
        for one in clients:
            one.close()
    assert ask(port, GOOD).startswith(b"HTTP/1.1 200")


def test_many_large_requests_at_once_are_refused(lane, opened, monkeypatch) -> None:
    monkeypatch.setattr(proxy, "_MOST_HELD", 1000)
    port = opened(lane())
    with socket.create_connection(("127.0.0.1", port)) as client:
        client.sendall(to(port, post(900)))
        deadline_s = time.monotonic() + 5
        while not ask(port, GOOD * 10).startswith(b"HTTP/1.1 200"):
            assert time.monotonic() < deadline_s
        assert ask(port, post(200), b"x" * 200).startswith(b"HTTP/1.1 413")
    deadline_s = time.monotonic() + 5
    while not ask(port, post(200), b"x" * 200).startswith(b"HTTP/1.1 200"):
        assert time.monotonic() < deadline_s, "what was taken is given back"


def test_an_answer_without_end_is_passed_on_and_not_kept(lane, opened, monkeypatch) -> None:
    monkeypatch.setattr(proxy, "_MOST_KEPT", 1 << 20)
    monkeypatch.setattr(tapes, "_MOST_ANSWER", 1 << 20)
    port = opened(made := lane())
    with socket.create_connection(("127.0.0.1", port), 10) as client:
        client.sendall(to(port, b"GET /endless HTTP/1.1\r\n\r\n"))
        n_bytes = 0
        while n_bytes < 5 << 20:
            n_bytes += len(client.recv(65536))
    deadline_s = time.monotonic() + 10
    while not any("too long" in one for one in made.warnings()):
        assert time.monotonic() < deadline_s
        time.sleep(0.01)


def test_events_are_found_in_a_time_that_grows_with_the_answer() -> None:
    pieces = Pieces("text/event-stream")
    began_s = time.process_time()
    for _ in range(16_000):
        pieces.add(0, b"x" * 1000)
    pieces.add(1, b"\n")
    pieces.add(2, b"\nrest")
    assert [len(one.text) for one in pieces.close(3)] == [16_000_002, 4]
    assert time.process_time() - began_s < 2


def test_the_key_that_a_request_shows_is_covered_wherever_it_comes_back(
    lane, opened, tmp_path: Path
) -> None:
    """As in "Incorrect API key provided: ...": no variable holds it, and it looks like no key."""
    port = opened(lane())
    key = "plain-and-unknown-77"
    body = json.dumps({"messages": [{"role": "user", "content": f"{key} and other"}]}).encode()
    for header, path in ((f"x-api-key: {key}", "/v1"), (f"authorization: Bearer {key}", "/v1"),
                         ("a: b", f"/v1?key={key}")):  # fmt: skip
        text = f"POST {path} HTTP/1.1\r\nContent-Length: {len(body)}\r\n{header}\r\n\r\n"
        ask(port, text.encode() + body)
    lane.close()
    with Tape(tmp_path / "a.tape") as tape:
        found = list(tape.exchanges())
    assert len(found) == 3
    assert key not in str(found)
    assert "and other" in str(found)


def test_what_one_trial_writes_to_a_tape_is_limited(lane, opened, monkeypatch, tmp_path) -> None:
    monkeypatch.setattr(tapes, "_MOST_ON_TAPE", 1000)
    port = opened(made := lane())
    for n in range(20):
        body = b'{"a": "%d %b"}' % (n, zlib.compress(bytes(range(200))).hex().encode())
        ask(port, post(len(body)), body)
    assert any("the trial has asked too much" in one for one in made.warnings())
    assert (tmp_path / "a.tape").stat().st_size < 5000


def test_a_disk_that_is_full_ends_the_run(lane, opened, disk, tmp_path: Path) -> None:
    where = disk("64k")
    (tmp_path / "a.tape").symlink_to(where / "a.tape")
    port = opened(made := lane())
    for seed in range(3):
        words = random.Random(seed).choices("ghijklmnopqrstuvwxyz ", k=60_000)
        body = json.dumps({"a": "".join(words)}).encode()
        ask(port, post(len(body)), body)
    assert isinstance(made.error, OutputError)
    assert "No space left" in str(made.error)


@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir, lambda path: path.symlink_to("/dev/zero")])
def test_a_tape_that_is_no_file_is_refused(lane, tmp_path: Path, make) -> None:
    make(tmp_path / "a.tape")
    for use in (TapeUse(record=str(tmp_path / "a.tape")), TapeUse(replay=str(tmp_path / "a.tape"))):
        with pytest.raises(AssayError, match=r"a\.tape"):
            lane(use)


def tape_of(path: Path, lane: dict[str, Any], *lines: bytes, index: bytes = b"") -> None:
    """Write a tape of somebody else, with an index of any content."""
    first = gzip.compress(b'{"tape":1}\n' + msgspec.json.encode({"lane": lane}) + b"\n", mtime=0)
    members = [first, *(gzip.compress(one, mtime=0) for one in lines)]
    at = sum(map(len, members))
    if index:
        members.append(gzip.compress(index, mtime=0))
        packer = zlib.compressobj(0, zlib.DEFLATED, 31)
        members.append(packer.compress(b'{"indexAt":"%020d"}\n' % at) + packer.flush())
    path.write_bytes(b"".join(members))


LANE = {"lane": 1, "prompt": "p", "trial": 1, "asked": ["hi"]}
ANSWER = {"method": "POST", "path": "/v1", "request": {"a": "ok"}, "status": 200}


def exchange(**fields: Any) -> bytes:
    made = {"lane": 1, "number": 1, **ANSWER, "answer": [[0, "hi"]], **fields}
    return msgspec.json.encode({"exchange": made})


KEY = Exchange(lane=1, number=1, method="POST", path="/v1", request={"a": "ok"}).key
HOSTILE_TAPES: dict[str, tuple[bytes, Any]] = {
    "headers": (exchange(headers={"content-type": "a\r\nx: \u20ac", "location": "http://e"}), b""),
    "a status": (exchange(status=10**12), b""),
    "surrogates": (exchange(answer=[[0, "a\\ud800"]]).replace(b"\\\\u", b"\\u"), b""),
    "a part that is no name": (exchange(request={"a": {"$part": []}}), b""),
    "a part that is not there": (exchange(results=[{"$part": "x"}]), b""),
    "a place before the start": (exchange(), -5),
    "a place behind the end": (exchange(), 10**9),
    "a place beyond all numbers": (exchange(), 10**18),
    "a place without an exchange": (exchange(), 0),
    "a place in the middle": (exchange(), 7),
}


@pytest.mark.parametrize("name", HOSTILE_TAPES)
def test_a_tape_of_somebody_else_is_answered_or_refused(
    lane, opened, tmp_path: Path, name: str
) -> None:
    line, at = HOSTILE_TAPES[name]
    spots = [[at, 1, 1, KEY]]
    index = msgspec.json.encode({"index": {"lanes": [LANE], "spots": spots, "parts": {"x": 0}}})
    tape_of(tmp_path / "b.tape", LANE, line, index=b"" if at == b"" else index)
    try:
        made = lane(TapeUse(replay=str(tmp_path / "b.tape")))
    except InputError as error:
        assert name == "surrogates", error  # noqa: PT017
        return
    port = opened(made)
    answer = ask(port, GOOD)
    head, _, _ = answer.partition(b"\r\n\r\n")
    assert b"location" not in head.lower()
    assert b"\nx:" not in head
    assert answer.startswith((b"HTTP/1.1 404", b"HTTP/1.1 200", b"HTTP/1.1 1000000000000")), answer
    assert (made.failure() is None) == (not answer.startswith(b"HTTP/1.1 404"))


def test_a_time_that_a_tape_names_is_not_slept_through(lane, opened, tmp_path: Path) -> None:
    tape_of(tmp_path / "b.tape", LANE, exchange(answer=[[10**18, "late"]]))
    made = lane(TapeUse(replay=str(tmp_path / "b.tape"), pace=1.0))
    port = opened(made)
    with socket.create_connection(("127.0.0.1", port), 10) as client:
        client.sendall(to(port, GOOD))
        time.sleep(0.2)
        before = threading.active_count()
        made.ended.set()
        client.shutdown(socket.SHUT_WR)
        deadline_s = time.monotonic() + 5
        while threading.active_count() >= before:
            assert time.monotonic() < deadline_s
            time.sleep(0.01)


@pytest.mark.parametrize("path", [b"/v1", b"//v1", b"/%b0/v1", b"/%b/v1", b"/\xff/v1", b"/"])
def test_who_does_not_know_the_secret_is_not_answered(lane, opened, path: bytes) -> None:
    """An agent of another trial: it got answers, which its victim paid for, and that were on its
    tape; and a status that it provoked was an excuse for its victim."""
    port = opened(made := lane())
    path = path.replace(b"%b", b"0" * len(SECRETS[port]))
    with socket.create_connection(("127.0.0.1", port), 10) as client:
        client.sendall(b"POST %b HTTP/1.1\r\nContent-Length: 1\r\n\r\nx" % path)
        assert client.recv(4096).startswith(b"HTTP/1.1 404")
        assert client.recv(4096) == b""
    assert made.traffic.seen().get("connections", 0) == 0
    made.ended.set()
    assert made.wire().requests == 0
    assert ask(port, GOOD).startswith(b"HTTP/1.1 200")


def test_http_client_is_answered_over_one_connection(lane, opened) -> None:
    port = opened(lane())
    link = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    with contextlib.closing(link):
        for _ in range(3):
            link.request("POST", f"/{SECRETS[port].decode()}/v1", b'{"a": 1}')
            assert link.getresponse().read().startswith(b'{"heard"')
