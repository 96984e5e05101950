"""Rates, refusals and budgets of a whole run, with agents that answer as Codex does."""

import itertools
import json
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest

SCRIPT = """#!/bin/bash
[ "$1" = --version ] && echo 0.166.0 && exit
echo "$(date +%s.%N) start" >> {folder}/log
echo '{{"type":"thread.started","thread_id":"t"}}'
echo '{{"type":"turn.started"}}'
if mkdir {folder}/refused-$(ls -d {folder}/refused-* 2>/dev/null | wc -l) 2>/dev/null &&
   [ $(ls -d {folder}/refused-* | wc -l) -le {n_refused} ]; then
  echo '{{"type":"error","message":"{message}"}}'
  echo '{{"type":"turn.failed","error":{{"message":"{message}"}}}}'
  echo "$(date +%s.%N) refused" >> {folder}/log
  exit 1
fi
echo '{{"type":"item.completed","item":{{"id":"i","type":"agent_message","text":"ok"}}}}'
echo '{{"type":"turn.completed","usage":{{"input_tokens":1,"output_tokens":1}}}}'
"""
ASKS = "Rate limit reached (429). Please try again in 1.5s."


@pytest.fixture
def codex(tmp_path: Path) -> Callable[..., str]:
    """Write an agent that is refused at its first starts, and then answers."""

    def write(n_refused: int, message: str = ASKS) -> str:
        path = tmp_path / "codex"
        path.write_text(SCRIPT.format(folder=tmp_path, n_refused=n_refused, message=message))
        path.chmod(0o755)
        return f"codex:{path}"

    return write


def times(tmp_path: Path, what: str) -> list[float]:
    lines = [line.split() for line in (tmp_path / "log").read_text().splitlines()]
    return sorted(float(when) for when, said in lines if said == what)


def test_no_worker_starts_before_the_time_that_was_asked_for(
    assay: Callable, codex: Callable, prompts: Callable, read_rows: Callable, tmp_path: Path
) -> None:
    words = ("capture", prompts(*"abcd"), "-s", codex(1), "-j", 2, "--retries", 2)
    done = assay(*words, "-o", "r.jsonl", "--progress")
    assert done.code == 0, done.stderr
    rows = read_rows(tmp_path / "r.jsonl")
    assert len(rows) == 4
    assert not any("failure" in row for row in rows)
    (refused,) = times(tmp_path, "refused")
    later = [start for start in times(tmp_path, "start") if start > refused + 0.4]
    assert len(later) >= 2  # both workers were held back
    assert min(later) - refused > 1.3
    (again,) = [row for row in rows if "retried" in row]
    assert again["retried"][0]["retryAfterMs"] == 1500
    assert again["timing"]["total"] < 1300  # nobody's clock ran while it waited
    assert "waiting 2 s for the provider (429)" in done.stderr or "waiting 1 s" in done.stderr


def test_without_retries_a_refused_trial_is_not_measured(
    assay: Callable, codex: Callable, prompts: Callable, read_rows: Callable, tmp_path: Path
) -> None:
    done = assay("run", prompts(*"ab"), "-s", codex(1), "-o", "r.jsonl", "--json")
    assert done.code == 0, done.stderr
    (refused,) = times(tmp_path, "refused")
    assert times(tmp_path, "start")[-1] - refused > 1.3  # `run` waits as well
    events = [json.loads(line) for line in done.stderr.splitlines() if line.startswith("{")]
    (event,) = [event for event in events if event["event"] == "waiting"]
    assert 1000 < event["ms"] <= 1500
    captured = assay("capture", prompts("x"), "-s", codex(99), "-o", "c.jsonl")
    assert captured.code == 1
    (row,) = read_rows(tmp_path / "c.jsonl")
    assert row["failure"]["cause"] == "provider"


def test_an_interrupt_ends_the_wait_at_once(
    start: Callable, codex: Callable, prompts: Callable, tmp_path: Path
) -> None:
    agent = codex(99, "429 Too Many Requests, try again in 600s")
    wait = ("--longest-wait", "600")
    process = start("capture", prompts(*"ab"), "-s", agent, "-o", "r.jsonl", "--progress", *wait)
    for line in process.stderr:
        if "waiting 600 s" in line:
            break
    began_s = time.monotonic()
    process.send_signal(signal.SIGINT)
    assert process.wait(10) == 130
    assert time.monotonic() - began_s < 5


def test_a_rate_spaces_the_starts_of_all_workers(
    assay: Callable, codex: Callable, prompts: Callable, tmp_path: Path
) -> None:
    done = assay("capture", prompts(*"abcde"), "-s", codex(0), "-j", 4, "--rate", "150/min")
    assert done.code == 0, done.stderr
    gaps = [b - a for a, b in itertools.pairwise(times(tmp_path, "start"))]
    assert min(gaps) > 0.25  # 0.4 s, less what starting an agent varies by
    for wrong in ("0/min", "-1", "3/fortnight", "x", "1e3/s"):
        assert assay("capture", prompts("a"), "-s", "demo", f"--rate={wrong}").code == 2


def test_the_budget_is_passed_by_no_more_than_one_trial_of_known_cost(
    assay: Callable, agent: Callable, prompts: Callable, read_rows: Callable, tmp_path: Path
) -> None:
    # The scripted agent costs a cent a trial.
    words = ("capture", prompts(*["x"] * 40), "-s", agent(), "-j", 8, "-o", tmp_path / "r.jsonl")
    done = assay(*words, "--max-cost", 0.105)
    assert done.code == 1
    assert "Stopped at --max-cost 0.105" in done.stderr
    spent = sum(row["usage"]["costUsd"] for row in read_rows(tmp_path / "r.jsonl"))
    assert spent <= 0.105 + 0.0101


def test_unknown_costs_are_counted_and_told(
    assay: Callable, shell_agent: Path, prompts: Callable
) -> None:
    done = assay("capture", prompts(*["R"] * 6), "-s", shell_agent, "-j", 3, "--max-cost", 1)
    assert done.code == 0, done.stderr
    assert len(done.rows) == 6
    assert "The cost of 6 trials is not known; --max-cost counted $1.0000" in done.stderr
