"""What ends or holds back a run on a real Ray cluster: decisions, dead nodes, providers."""

import json
import signal
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.filterwarnings("ignore")
LIMIT_S = 300
START_S = 240
"""A worker of Ray that starts beside 20 other busy processes may take a minute or two."""
N_SLOTS = 8
"""CPUs of the two nodes of ray_cluster."""
N_PROMPTS = 60


@pytest.fixture
def where(ray_cluster: Any) -> tuple[Any, ...]:
    return ("--executor", "ray", "--address", ray_cluster.address)


@pytest.fixture
def gate(prompts: Callable[..., Path], tmp_path: Path) -> tuple[Any, ...]:
    """Arguments that compare with an earlier run in which all trials passed."""
    questions = ({"id": f"p{n}", "input": f"q{n}", "hint": "ok"} for n in range(N_PROMPTS))
    entry = {"trialNum": 1, "output": "ok", "trajectory": [], "duration": 1}
    rows = [
        {"id": f"p{n}", "input": f"q{n}", "k": 1, "metadata": {}}
        | {"trials": [{**entry, "pass": True, "score": 1}]}
        for n in range(N_PROMPTS)
    ]
    (tmp_path / "base.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    given = ("-g", "contains", "-k", 2, "--margin", 0.2, "--isolate")
    return ("trials", prompts(*questions), *given, "--until", "decided", "--against", "base.jsonl")


def verdict(stderr: str) -> str:
    """The line of the gate without what differs: how many ran beside those that decided."""
    (line,) = [line for line in stderr.splitlines() if line.startswith("regression against")]
    return line.partition("; ")[0] + line.partition("; ")[2].partition("; ")[0]


def lines(log: Path) -> list[str]:
    return log.read_text().splitlines() if log.exists() else []


def test_a_decision_ends_the_run_on_all_nodes(
    assay: Any,
    start: Any,
    gate: tuple[Any, ...],
    where: tuple[Any, ...],
    eventually: Any,
    read_rows: Any,
    tmp_path: Path,
) -> None:
    log, first, rest = tmp_path / "starts", tmp_path / "first", tmp_path / "rest"
    # The first trials, as many as the nodes can run, wait for one file, and the others for another.
    turn = f'echo "$PROMPT" >> {log}; f={first}; [ $(wc -l < {log}) -le {N_SLOTS} ] || f={rest}'
    agent = f"{turn}; until [ -e $f ]; do sleep 0.05; done; echo no"
    words = (*gate, "--shell", agent)
    there = start(*words, "-o", "there.jsonl", "-j", 3 * N_SLOTS, *where)
    assert eventually(lambda: len(lines(log)) == N_SLOTS, START_S)
    first.touch()
    assert eventually(lambda: len(lines(tmp_path / "there.jsonl.partial")) >= N_SLOTS, START_S)
    rest.touch()
    stderr = there.communicate(timeout=START_S)[1]
    assert there.returncode == 3, stderr
    n_there = len(lines(log))
    # These decide it. Others started as they finished, but none that waited for a free node.
    assert N_SLOTS <= n_there < 2 * N_SLOTS
    rows = read_rows(tmp_path / "there.jsonl")
    assert sum(len(row["trials"]) for row in rows) == n_there  # all that ran were kept
    here = assay(*words, "-o", "here.jsonl")
    assert here.code == 3, here.stderr
    assert f"{N_SLOTS} trials used" in here.stderr
    assert verdict(stderr) == verdict(here.stderr)


def test_an_interrupted_run_goes_on_to_the_same_decision(
    assay: Any,
    start: Any,
    gate: tuple[Any, ...],
    where: tuple[Any, ...],
    eventually: Any,
    read_rows: Any,
    tmp_path: Path,
) -> None:
    log = tmp_path / "starts"
    hangs = f"[ -d {tmp_path}/go ] || [ $(wc -l < {log}) -le {N_SLOTS} ] || sleep 600"
    words = (*gate, "--shell", f'echo "$PROMPT" >> {log}; {hangs}; echo ok', "-j", N_SLOTS)
    driver = start(*words, "-o", "there.jsonl", *where)
    assert eventually(lambda: len(lines(log)) == 2 * N_SLOTS, START_S)
    assert eventually(lambda: len(lines(tmp_path / "there.jsonl.partial")) >= N_SLOTS, START_S)
    driver.send_signal(signal.SIGINT)
    assert driver.wait(60) == 130
    (tmp_path / "go").mkdir()  # a file would be part of what the agent is made of
    before = lines(log)
    there = assay(*words, "-o", "there.jsonl", *where, "--resume", timeout=LIMIT_S)
    assert there.code == 0, there.stderr
    again = lines(log)[len(before) :]
    assert set(before[N_SLOTS:]) <= set(again)  # what hung
    n_kept = sum(len(row["trials"]) for row in read_rows(tmp_path / "there.jsonl"))
    assert n_kept == N_SLOTS + len(again)  # what had finished was kept, and not run again
    here = assay(*words, "-o", "here.jsonl")
    assert here.code == 0, here.stderr
    assert verdict(there.stderr) == verdict(here.stderr)


def test_an_experiment_is_decided_on_a_cluster(
    assay: Any, where: tuple[Any, ...], tmp_path: Path
) -> None:
    for name in ("plain", "better"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "answer.txt").write_text("yes" if name == "better" else "no")
    rows = [{"id": f"p{n}", "input": f"q{n}", "hint": "yes"} for n in range(20)]
    (tmp_path / "p.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    words = ("ab", "p.jsonl", "--shell", "cat answer.txt", "--workspace-template", "plain")
    words += ("--with", "template=better", "-g", "contains", "-k", 3, "--until", "decided")
    there = assay(*words, "--name", "there", "-j", N_SLOTS, *where, timeout=LIMIT_S)
    assert there.code == 0, there.stdout + there.stderr
    here = assay(*words, "--name", "here", timeout=LIMIT_S)
    assert here.code == 0, here.stdout + here.stderr
    found = {}
    for file in tmp_path.glob("experiments/*/*/verdict.json"):
        found[file.parts[-3]] = json.loads(file.read_text())["decisions"]
    assert found["there"] == found["here"]
    assert found["there"]["better"]["outcome"] == "better"


class Provider:
    """Answers questions of judges; refuses the first ones, and knows how many came at once."""

    def __init__(self, n_refused: int, pause_s: int) -> None:
        self._left, self.pause_s = n_refused, pause_s
        self._lock = threading.Lock()
        self._n_now = self.most_at_once = 0
        self.came_s: list[float] = []
        self.refused_s: list[float] = []

    def answer(self) -> int:
        with self._lock:
            self.came_s.append(time.monotonic())
            self._n_now += 1
            self.most_at_once = max(self.most_at_once, self._n_now)
            is_refused, self._left = self._left > 0, self._left - 1
        time.sleep(0.3)
        with self._lock:
            self._n_now -= 1
            if is_refused:
                self.refused_s.append(time.monotonic())
        return 429 if is_refused else 200


@pytest.fixture
def provider() -> Iterator[Provider]:
    made = Provider(n_refused=3, pause_s=2)

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(made.answer())
            self.send_header("retry-after", str(made.pause_s))
            self.end_headers()

        def log_message(self, *words: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    made.port = server.server_port  # type: ignore[attr-defined]
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    yield made
    server.shutdown()
    thread.join()
    server.server_close()


JUDGE = """#!/bin/bash
[ "$1" = --version ] && echo 0.166.0 && exit
exec 3<>/dev/tcp/127.0.0.1/{port}
printf 'GET / HTTP/1.0\\r\\n\\r\\n' >&3
read -r _ status _ <&3
echo '{{"type":"thread.started","thread_id":"t"}}'
echo '{{"type":"turn.started"}}'
if [ "$status" = 429 ]; then
  said='429 Too Many Requests, retry-after: {pause_s}'
  echo '{{"type":"error","message":"'"$said"'"}}'
  echo '{{"type":"turn.failed","error":{{"message":"'"$said"'"}}}}'
  exit 1
fi
code=$(printf %s "$*" | sed -n 's/.*"code": "\\([0-9a-f]*\\)", "pass".*/\\1/p')
said='{{\\"code\\":\\"'"$code"'\\",\\"pass\\":true,\\"score\\":1,\\"reasoning\\":\\"yes\\"}}'
echo '{{"type":"item.completed","item":{{"id":"i","type":"agent_message","text":"'"$said"'"}}}}'
echo '{{"type":"turn.completed","usage":{{"input_tokens":1,"output_tokens":1}}}}'
"""


@pytest.fixture
def judging(provider: Provider, tmp_path: Path) -> tuple[Any, ...]:
    """The command line that asks a judge about six rows."""
    program = tmp_path / "codex"
    program.write_text(JUDGE.format(port=provider.port, pause_s=provider.pause_s))  # type: ignore[attr-defined]
    program.chmod(0o755)
    rows = [{"id": f"r{n}", "input": "q", "output": "a", "trajectory": []} for n in range(6)]
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    judge = json.dumps({"agent": f"codex:{program}", "rubric": "It must be an answer."})
    return ("grade", "rows.jsonl", "-g", f"judge:{judge}", "-o", "graded.jsonl")


@pytest.mark.parametrize("executor", ["local", "ray"])
def test_a_provider_that_refuses_a_judge_is_left_alone_by_all(
    assay: Any,
    judging: tuple[Any, ...],
    provider: Provider,
    where: tuple[Any, ...],
    read_rows: Any,
    tmp_path: Path,
    executor: str,
) -> None:
    there = where if executor == "ray" else ()
    done = assay(*judging, "-j", 3, *there, timeout=LIMIT_S)
    assert done.code == 0, done.stderr
    assert "waiting 2 s for the provider (429)" in done.stderr
    rows = read_rows(tmp_path / "graded.jsonl")
    assert [row["score"]["pass"] for row in rows] == [True] * 6
    assert len(provider.came_s) == 9  # nothing was asked twice but what was refused
    assert provider.most_at_once <= 3
    # Three were asked before the first refusal was known, and were all refused.
    refused_s = min(provider.refused_s)
    later = [came_s - refused_s for came_s in sorted(provider.came_s)[3:]]
    assert min(later) > provider.pause_s - 0.2


def test_a_rate_of_questions_holds_for_the_whole_cluster(
    assay: Any, judging: tuple[Any, ...], provider: Provider, where: tuple[Any, ...]
) -> None:
    provider._left = 0
    done = assay(*judging, "-j", 6, "--rate", "2/s", *where, timeout=LIMIT_S)
    assert done.code == 0, done.stderr
    # Half a second between questions; how long a node takes to start a judge differs.
    assert max(provider.came_s) - min(provider.came_s) > 1.5
