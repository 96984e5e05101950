"""Tapes of the four real agents: how often a replay finds its answers, and what it costs.

python -m benchmarks.tapes [--agents claude,codex] [-k 50] [--only replay|proxy|memory]

Trials of two turns with a shell, files, an MCP server and a sub-agent are recorded against the
scripted model, whose answers repeat what the tools said and so vary from trial to trial. They are
replayed in other folders, with HOME elsewhere, as another user, on another day and in the sandbox.
"""

import argparse
import contextlib
import gc
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import tracemalloc
from collections.abc import Iterator, Sequence
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from tests.conftest import RealAgents
from tests.real import conftest as real

from assay.records.spec import Limits, PluginRef, Prompt, Surroundings, TrialSpec
from assay.records.tape import Exchange, Lane, TapeUse, TapeWriter
from assay.run.proxy import Proxy
from assay.run.secrets import Secrets
from assay.run.tapes import TapeLane, open_tapes
from assay.run.wire import Names
from assay.testing.model import ScriptedModel

MCP_SERVER = Path(__file__).parents[1] / "tests/real/mcp_adder.py"
DAY = "2031-03-04 05:06:07"
USAGE = {"input": 120, "output": 30, "cacheRead": 40}


def script(kind: real.Kind) -> dict[str, Any]:
    """Two turns with a shell, files, an MCP server and a sub-agent; no two trials are alike."""
    tools = [
        {"tool": "shell", "command": "date +%s%N; pwd; id -un; echo made > made.txt"},
        {"tool": "mcp", "server": "adder", "name": "add", "arguments": {"a": 2, "b": 3}},
    ]
    # Codex does not wait for its sub-agent, and when that ends is in the history.
    wait = "sleep 2; " if kind.name == "codex" else ""
    steps = [
        {"thinking": "I look.", "text": "I look at {{last_user}}", "calls": tools, "usage": USAGE},
        {"calls": [{"tool": "write_file", "path": "sub/a.txt", "content": "one\n"}]},
        {"calls": [{"byProvider": {}, **kind.task}]},
        {
            "calls": [
                {"tool": "shell", "command": f"{wait}cat /proc/sys/kernel/random/uuid sub/a.txt"}
            ]
        },
        {"text": "Done: {{last_tool_result}}", "usage": USAGE},
        {"calls": [{"tool": "edit_file", "path": "sub/a.txt", "old": "one\n", "new": "two\n"}]},
        {"text": "Again: {{last_tool_result}}"},
    ]
    sub = {"when": {"firstUserContains": "SUBJOB"}, "name": "sub"}
    sub["steps"] = [
        {"calls": [{"tool": "shell", "command": "echo from-the-sub-agent; date +%N"}]},
        {"text": "The sub-agent is done."},
    ]
    return {"steps": steps, "threads": [sub]}


class Place:
    """A folder with the prompts, in which an agent is run by `assay trials`."""

    def __init__(self, kind: real.Kind, program: Path, folder: Path) -> None:
        self.kind, self.program, self.folder = kind, program, folder
        folder.mkdir(parents=True)
        folder.chmod(0o777)
        row = {"id": "p", "input": ["Do it.", "Go on."]}
        (folder / "prompts.jsonl").write_text(json.dumps(row) + "\n")
        adder = {"command": sys.executable, "args": [str(MCP_SERVER)]}
        (folder / "mcp.json").write_text(json.dumps({"mcpServers": {"adder": adder}}))

    def trials(
        self, *args: Any, url: str = "http://127.0.0.1:9", k: int, wrap: Sequence[str] = (),
        jobs: int = 2,
    ) -> tuple[list[dict[str, Any]], float]:  # fmt: skip
        """Run the trials; return them and the seconds that it took."""
        more = {**self.kind.env(url), "HOME": str(self.folder)}
        command = [*wrap, sys.executable, "-m", "assay", "trials", "prompts.jsonl", "-k", str(k)]
        command += ["-s", f"{self.kind.name}:{self.program}", "-o", "out.jsonl", "-q", "-j", jobs]
        command += [*self.kind.words(url), "--mcp", "mcp.json", "-t", "240000", "--isolate"]
        command += [word for name in more if name != "HOME" for word in ("--env", name)]
        began_s = time.monotonic()
        done = subprocess.run(
            [*map(str, command), "--workspace-dir", str(self.folder / "ws"), *map(str, args)],
            cwd=self.folder, env={**os.environ, **more}, stdin=subprocess.DEVNULL,
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        took_s = time.monotonic() - began_s
        try:
            (row,) = map(json.loads, (self.folder / "out.jsonl").read_text().splitlines())
        except (OSError, ValueError):
            sys.exit(f"{self.kind.name}: no trials: {done.stderr[-2000:]}")
        return row["trials"], took_s


def acts(trial: dict[str, Any]) -> list[tuple[Any, ...]]:
    """Return what must be equal in a replay."""
    names = ("type", "name", "status", "turn")
    return [tuple(step.get(name) for name in names) for step in trial["trajectory"]]


def surroundings(folder: Path) -> dict[str, dict[str, Any]]:
    """Where a recording is replayed, by name: options of Place.trials."""
    found: dict[str, dict[str, Any]] = {"other folder and HOME": {}}
    if shutil.which("unshare"):  # the programs may be where only root may read them
        found["another user"] = {"wrap": ["unshare", "-U", "--map-user=1234", "--map-group=1234"]}
    if shutil.which("faketime"):
        found["another day"] = {"wrap": ["faketime", "-m", "--exclude-monotonic", DAY]}
    if shutil.which("bwrap"):
        found["sandbox"] = {"args": ["--sandbox"]}
        found["sandbox=no-network"] = {"args": ["--sandbox=no-network"]}
    return found


def measure_replays(kind: real.Kind, program: Path, k: int, few: int, folder: Path) -> None:
    """Record k trials and replay them; in all places but the first one only a few."""
    tape = folder / f"{kind.name}.tape"
    with ScriptedModel(script(kind)) as model:
        first = Place(kind, program, folder / f"{kind.name}-recorded")
        recorded, took_s = first.trials("--record", tape, url=model.url, k=k)
        plain = Place(kind, program, folder / f"{kind.name}-plain")
        _, plain_s = plain.trials(url=model.url, k=k)
    tape.chmod(0o644)
    failed = [one["failure"]["message"] for one in recorded if "failure" in one]
    size = tape.stat().st_size / 1024
    print(
        f"{kind.name}: {k} trials recorded in {took_s:.0f} s, without a proxy {plain_s:.0f} s, "
        f"{size:.0f} KiB, {len(failed)} failed {failed[:2]}",
        flush=True,
    )
    for number, (name, given) in enumerate(surroundings(folder).items()):
        n = k if not number else min(few, k)
        place = Place(kind, program, folder / f"{kind.name}-{number}" / "deeper")
        args = given.pop("args", ())
        replayed, took_s = place.trials("--replay", tape, *args, k=n, **given)
        hits = sum(one.get("replay", {}).get("hits", 0) for one in replayed)
        wanted = sum(one["wire"]["requests"] for one in recorded[:n])
        equal = sum(acts(a) == acts(b) for a, b in zip(recorded, replayed, strict=False))
        missed = [one["failure"]["message"] for one in replayed if "failure" in one]
        ratio = f", {took_s / plain_s:.2f} of the time" if n == k else ""
        print(
            f"  {name}: {hits} of {wanted} hits, equal steps in {equal} of {n}{ratio}", flush=True
        )
        for message in missed[:3]:
            print(f"    {message[:900]}")


class _Conversation:
    """What a lane knows of its trial."""

    turns = ()

    def __init__(self) -> None:
        self.secrets, self.cancelled = Secrets(), threading.Event()


@contextlib.contextmanager
def proxied(use: TapeUse, url: str) -> Iterator[str]:
    """Give the address of a proxy in this process that records or replays."""
    prompt = Prompt(id="p", input="x")
    agent = PluginRef(name="any")
    spec = TrialSpec(
        prompt=prompt, agent=agent, benchmark=PluginRef(name="prompts"), limits=Limits(),
        surroundings=Surroundings(cwd="/nowhere/at/all", tape=use), folder="p",
    )  # fmt: skip
    with open_tapes([use]):
        lane = TapeLane(spec, use, Names("/nowhere/at/all", "/nowhere/home"), _Conversation())
        proxy = Proxy(lane)
        try:
            yield proxy.through(url)
        finally:
            proxy.close()


class Provider(BaseHTTPRequestHandler):
    """Answers at once with a stream of events; the path says how many, and how long apart."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["content-length"]))
        n, pause_s = self.path.strip("/").split("/")
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("transfer-encoding", "chunked")
        self.end_headers()
        for number in range(int(n)):
            time.sleep(float(pause_s) if number else 0)
            value = {"choices": [{"delta": {"content": f" word {number}"}}]}
            data = f"data: {json.dumps(value)}\n\n".encode()
            self.wfile.write(b"%x\r\n%b\r\n" % (len(data), data))
        self.wfile.write(b"0\r\n\r\n")

    def log_message(self, *_words: Any) -> None:
        """Print nothing."""


def ask(url: str, path: str, body: bytes, link: HTTPConnection) -> tuple[float, float]:
    """Return the ms to the first byte of an answer, and the s to its end."""
    began_s = time.perf_counter()
    link.request("POST", path, body)
    answer = link.getresponse()
    answer.read(1)
    first_s = time.perf_counter() - began_s
    answer.read()
    return first_s * 1000, time.perf_counter() - began_s


def measure_proxy(folder: Path, n: int, stream_s: float) -> None:
    """Time first bytes of answers with and without a proxy, in turns, then a long stream."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), Provider)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    url = f"http://127.0.0.1:{server.server_port}"
    text = "An instruction of some length for the model. " * 2000
    body = json.dumps({"model": "m", "messages": [{"role": "user", "content": text}]}).encode()
    with proxied(TapeUse(record=str(folder / "proxy.tape")), url) as through:
        links = {one: HTTPConnection(urlsplit(one).netloc) for one in (url, through)}
        times: dict[str, list[float]] = {url: [], through: []}
        for _ in range(n):
            for one, link in links.items():
                times[one].append(ask(one, "/5/0", body, link)[0])
        plain, more = (sorted(times[one]) for one in (url, through))
        added = [
            statistics.median(more) - statistics.median(plain),
            more[-n // 20] - plain[-n // 20],
        ]
        medians = [statistics.median(one) for one in (plain, more)]
        print(
            f"first byte, {len(body) // 1024} KiB asked: {medians[0]:.2f} ms without, "
            f"{medians[1]:.2f} ms with the proxy: {added[0]:.2f} ms more "
            f"(95th percentile {added[1]:.2f} ms more), {n} requests each",
            flush=True,
        )
        n_events = int(stream_s / 0.02)
        took: dict[str, float] = {}

        def stream(one: str) -> None:
            took[one] = ask(one, f"/{n_events}/0.02", body, HTTPConnection(urlsplit(one).netloc))[1]

        both = [threading.Thread(target=stream, args=(one,)) for one in (url, through)]
        for thread in both:
            thread.start()
        for thread in both:
            thread.join()
        share = took[through] / took[url] - 1
        print(f"a stream of {took[url]:.1f} s in {n_events} events: {took[through]:.1f} s with the "
              f"proxy, {share:+.2%}", flush=True)  # fmt: skip
    server.shutdown()


def measure_memory(folder: Path) -> None:
    """Replay tapes of 100 and 1,000 exchanges, and compare the most memory that it took."""
    for n in (100, 1000):
        tape = folder / f"{n}.tape"
        texts = [f"Message {number}: " + "of some length " * 60 for number in range(20)]
        with TapeWriter(tape) as writer:
            lane = writer.add_lane(Lane(lane=0, prompt="p")).lane
            for number in range(1, n + 1):
                asked = [*texts, f"Number {number}. " + "And more text. " * 60]
                messages = [{"role": "user", "content": one} for one in asked]
                answer = json.dumps({"choices": [{"message": {"content": "yes " * 500}}]})
                writer.add(
                    Exchange(lane=lane, number=number, method="POST", path="/v1", status=200,
                             request={"messages": messages}, answer=[(1, answer)])
                )  # fmt: skip
        gc.collect()
        tracemalloc.start()
        began_s = time.perf_counter()
        with proxied(TapeUse(replay=str(tape)), "http://127.0.0.1:9") as through:
            link = HTTPConnection(urlsplit(through).netloc)
            for number in range(1, n + 1):
                asked = [*texts, f"Number {number}. " + "And more text. " * 60]
                messages = [{"role": "user", "content": one} for one in asked]
                link.request("POST", "/v1", json.dumps({"messages": messages}))
                answer = link.getresponse()
                assert answer.status == 200, answer.read()
                answer.read()
        most = tracemalloc.get_traced_memory()[1] / 2**20
        tracemalloc.stop()
        took_s = time.perf_counter() - began_s
        size = tape.stat().st_size / 1024
        print(f"replay of {n} exchanges: at most {most:.1f} MiB, {took_s:.1f} s (traced), "
              f"tape of {size:.0f} KiB", flush=True)  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--agents", default=",".join(real.KINDS))
    parser.add_argument("-k", type=int, default=50)
    parser.add_argument("--few", type=int, default=10)
    parser.add_argument("--only", choices=["replay", "proxy", "memory"])
    parser.add_argument("--keep", type=Path, help="leave everything in this folder")
    given = parser.parse_args()
    cache = Path(os.environ.get("ASSAY_TEST_CACHE") or Path.home() / ".cache" / "assay-tests")
    folder = given.keep or Path(tempfile.mkdtemp(prefix="assay-tapes-"))
    folder.mkdir(parents=True, exist_ok=True)
    folder.chmod(0o755)
    if given.only in (None, "proxy"):
        measure_proxy(folder, 300, 60.0)
    if given.only in (None, "memory"):
        measure_memory(folder)
    if given.only in (None, "replay"):
        installed = RealAgents(sorted(cache.glob("agents-*[!k]"))[-1])
        for name in given.agents.split(","):
            measure_replays(real.KINDS[name], installed.program(name), given.k, given.few, folder)


if __name__ == "__main__":
    main()
