"""How far a run is: counted right, shown plainly, as events, live, and at no cost."""

import io
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from assay.cli import progress as progress_file
from assay.cli.live_view import LiveView
from assay.cli.progress import Progress, Running, Tally, clock_text
from assay.records.capture import Capture, Cause, Failure, Grade, Timing, Usage
from assay.records.spec import Limits, PluginRef, Prompt, Surroundings, TrialSpec

SPEC = TrialSpec(
    prompt=Prompt(id="p", input="q"),
    agent=PluginRef(name="demo"),
    benchmark=PluginRef(name="prompts"),
    limits=Limits(),
    surroundings=Surroundings(cwd="/"),
    folder="prompt-p",
)


def capture(passed: bool = True, cause: Cause | None = None) -> Capture:
    row = Capture(
        id="p",
        input="q",
        output="a",
        trajectory=[],
        metadata={},
        timing=Timing(start=0, end=9, total=9),
        usage=Usage(input_tokens=10, output_tokens=5, cost_usd=0.01),
        score=Grade(pass_=passed, score=float(passed)),
    )
    if cause is not None:
        row.failure = Failure(cause=cause, message="m")
    return row


def test_counts_and_expectations() -> None:
    shown = Progress(10, plain=False, quiet=True)
    for n in range(4):
        shown.finished(SPEC, capture(passed=n > 0))
    shown.finished(SPEC, capture(cause=Cause.AGENT_TIMEOUT))
    tally = shown.tally
    assert (tally.n_done, tally.n_passed, tally.n_measured, tally.tokens) == (5, 4, 5, 75)
    assert tally.expected_usd == pytest.approx(0.1)
    assert tally.left_s == pytest.approx(tally.seconds, rel=0.2)
    assert tally.rate_text() == "pass 80% (38% to 96%)"
    assert tally.line().startswith("5/10 done, 0:00 left, pass 80%")
    assert tally.line().endswith("75 tokens, $0.05 of about $0.10, 1 agent_timeout")
    assert clock_text(3725) == "1:02:05"


def test_nothing_known_is_nothing_said() -> None:
    tally = Tally(3)
    assert tally.line() == "0/3 done"
    tally.finish(None, None)
    assert "$" not in tally.line()
    assert "pass" not in tally.line()


def test_json_events(
    assay: Callable[..., Any],
    agent: Callable[..., Path],
    prompts: Callable[..., Path],
    tmp_path: Path,
) -> None:
    done = assay(
        "capture", prompts("one", "two"), "-s", agent(), "--json", "-o", tmp_path / "o.jsonl"
    )
    assert done.code == 0, done.stderr
    events = [json.loads(line) for line in done.stderr.splitlines()]
    names = [event["event"] for event in events]
    assert names[0] == "begun"
    assert names[-1] == "ended"
    assert names.count("started") == names.count("finished") == 2
    assert "step" in names
    assert events[-1]["done"] == events[-1]["total"] == 2


def test_quiet_says_nothing(
    assay: Callable[..., Any],
    agent: Callable[..., Path],
    prompts: Callable[..., Path],
    tmp_path: Path,
) -> None:
    done = assay("capture", prompts("one"), "-s", agent(), "-q", "-o", tmp_path / "o.jsonl")
    assert (done.code, done.stderr) == (0, "")


def test_timed_lines_where_there_is_no_terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(progress_file, "_LINE_EVERY_S", 0.0)
    with Progress(2, plain=False, quiet=False) as shown:
        shown._next_line_s = 0.0
        shown.finished(SPEC, capture())
    assert capsys.readouterr().err.startswith("[0:00] 1/2 done, 0:00 left, pass 100%")


def test_live_view_shows_running_trials_and_no_escape_codes_of_theirs() -> None:
    tally = Tally(10)
    tally.finish("provider", 0.5, True)
    for n in range(12):
        tally.running[str(n)] = Running(f"p{n}\x1b[2J", 2, time.monotonic() - 65, "Ba\x07sh", 3)
    out = io.StringIO()
    console = Console(file=out, width=100, force_terminal=False)
    console.print(LiveView(tally, console).render())
    text = out.getvalue()
    assert "1/10 done" in text
    assert "$0.50 of about $5.00, 1 provider" in text
    assert "p0\\u001b[2J #2" in text
    assert "1:05" in text
    assert "step 3" in text
    assert "and 4 more" in text
    assert "\x1b" not in text
    assert "\x07" not in text


def test_500_trials_a_second_cost_less_than_two_percent() -> None:
    """Counting with the live view drawing: 40 microseconds a trial would be two percent."""
    console = Console(file=io.StringIO(), force_terminal=True, width=100)
    shown = Progress(3000, plain=False, quiet=False)
    view = LiveView(shown.tally, console)
    row = capture()
    view.start()
    try:
        began_s = time.thread_time()
        for _ in range(3000):
            shown.finished(SPEC, row)
        each_us = (time.thread_time() - began_s) / 3000 * 1e6
    finally:
        view.stop()
    assert each_us < 40, each_us
