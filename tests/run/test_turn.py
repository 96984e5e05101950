"""The clocks and limits of a turn, and the moments at which lines arrive."""

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from assay import plugins
from assay.pipeline.extract import extract
from assay.records.spec import Limits, TrialSpec
from assay.records.trial import Trial
from assay.run.trial import recorded

TOLERANCE_MS = 50


def capture(spec: TrialSpec) -> Trial:
    with recorded(spec) as recording:
        return extract(spec.prompt, recording, plugins.adapter(spec.agent))


def closest(attempt: Callable[[], list[float]], n: int = 4) -> list[float]:
    """Give the errors of the best of a few attempts: a busy machine only ever adds to them."""
    best = [float("inf")]
    for _ in range(n):
        errors = attempt()
        if max(map(abs, errors)) < max(map(abs, best)):
            best = errors
        if max(map(abs, best)) < TOLERANCE_MS:
            break
    return best


def test_steps_have_the_times_at_which_the_agent_spoke(
    spec: Callable, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = (200, 500, 900)

    def attempt() -> list[float]:
        trial = spec("!do until 0.2 ; think a ; until 0.5 ; say b ; until 0.9 ; say c")
        monkeypatch.setenv("T0", str(time.monotonic()))
        row = capture(trial)
        assert row.timing.first_response == row.trajectory[0].timestamp
        return [step.timestamp - at for step, at in zip(row.trajectory, said, strict=True)]

    assert max(map(abs, closest(attempt))) < TOLERANCE_MS


def test_tool_durations_are_real(spec: Callable, monkeypatch: pytest.MonkeyPatch) -> None:
    def attempt() -> list[float]:
        trial = spec(
            "!do until 0.2 ; call a Read x ; call b Read y ; until 0.4 ; fail b no ; "
            "until 0.7 ; done a ok"
        )
        monkeypatch.setenv("T0", str(time.monotonic()))
        row = capture(trial)
        assert [step.status for step in row.trajectory] == ["completed", "failed"]
        assert [step.call_id for step in row.trajectory] == ["a", "b"]
        assert row.tool_errors
        a, b = (step.duration for step in row.trajectory)
        return [a - 500, b - 200]

    assert max(map(abs, closest(attempt))) < TOLERANCE_MS


def test_times_hold_for_the_lines_of_every_turn(spec: Callable) -> None:
    row = capture(spec(["!do wait 0.3 ; say a", "!do wait 0.3 ; say b"]))
    first, second = (step.timestamp for step in row.trajectory)
    assert first >= 300
    assert second >= first + 300
    assert [step.turn for step in row.trajectory] == [1, 2]


@pytest.mark.parametrize(
    ("text", "limits", "cause", "word"),
    [
        ("!do wait 60", Limits(turn_s=0.4), "agent_timeout", "no result in time"),
        ("!do say a ; wait 60", Limits(stall_s=0.4), "agent_timeout", "stalled"),
        ("!do err a ; noresult ; wait 60", Limits(stall_s=0.4), "agent_timeout", "stalled"),
        ("!do flood y", Limits(output_bytes=10_000_000), "agent_limit", "more output"),
    ],
)
def test_limits_end_the_agent_and_say_so(
    spec: Callable, alive: Callable, text: str, limits: Limits, cause: str, word: str
) -> None:
    began = time.monotonic()
    row = capture(spec(text, limits))
    assert alive() == []
    assert time.monotonic() - began < 10
    assert row.failure
    assert row.failure.cause == cause
    assert word in row.failure.message
    assert row.metadata["timedOut"] == (word == "no result in time")


def test_output_is_no_stall(spec: Callable) -> None:
    text = "!do " + " ; ".join(f"say {n} ; wait 0.2" for n in range(5))
    row = capture(spec(text, Limits(stall_s=0.8)))
    assert not row.failure
    assert len(row.trajectory) == 5


def test_a_flood_does_not_hide_the_clock_and_fills_no_disk(
    spec: Callable, alive: Callable, tmp_path: Path
) -> None:
    began = time.monotonic()
    limits = Limits(turn_s=1.0, output_bytes=30_000_000)
    row = capture(spec('!do deaf ; flood {"type":"message","text":"y"}', limits))
    assert time.monotonic() - began < 15
    assert alive() == []
    assert row.failure
    assert row.failure.cause in ("agent_timeout", "agent_limit")
    written = sum(f.stat().st_size for f in (tmp_path / "raw").rglob("*.out"))
    assert written < 2_000_000_000


def test_a_flood_on_stderr_counts_too(spec: Callable, alive: Callable) -> None:
    flood = "import os\nwhile True: os.write(2, b'e' * 100_000 + b'\\n')"
    changed = {"command": [os.environ.get("PYTHON", "python3"), "-c", flood]}
    row = capture(spec("x", Limits(output_bytes=5_000_000), schema=changed))
    assert row.failure
    assert row.failure.cause == "agent_limit"
    assert len(row.stderr or "") <= 4096


def test_a_flood_behind_the_result_is_ended_and_is_no_failure(spec: Callable) -> None:
    began = time.monotonic()
    row = capture(spec("!do result ok ; flood y", Limits(output_bytes=10_000_000)))
    assert time.monotonic() - began < 8
    assert not row.failure
    assert row.output == "ok"


def test_the_trial_clock_runs_over_all_turns(spec: Callable, alive: Callable) -> None:
    limits = Limits(turn_s=5, trial_s=1.2)
    row = capture(spec(["!do wait 0.5 ; say a"] * 5, limits))
    assert alive() == []
    assert row.failure
    assert row.failure.cause == "agent_timeout"
    assert 1 <= len(row.trajectory) <= 2
    assert row.timing.total < 4000


def test_result_seen_but_process_alive(spec: Callable, alive: Callable, tmp_path: Path) -> None:
    """It gets its grace: a late write happens; then it is ended, and that is no failure."""
    late = tmp_path / "late"
    text = f"!do result answer ; wait 0.4 ; put {late} written ; wait 60"
    changed: dict[str, Any] = {"terminal": {"graceMs": 1000}}
    row = capture(spec(text, schema=changed))
    assert alive() == []
    assert late.read_text() == "written"
    assert not row.failure
    assert row.output == "answer"
    assert row.metadata["exitCode"] is None
    assert row.metadata["lingered"] is True
    assert row.metadata["timedOut"] is False
    assert 1000 <= row.timing.total < 6000


def test_an_agent_that_ends_within_its_grace_keeps_its_exit_code(spec: Callable) -> None:
    row = capture(spec("!do result answer ; wait 0.3 ; exit 0"))
    assert row.metadata["exitCode"] == 0
    assert "lingered" not in row.metadata
    assert not row.failure


def test_a_lingering_turn_is_followed_by_the_next(spec: Callable) -> None:
    changed: dict[str, Any] = {"terminal": {"graceMs": 200}}
    row = capture(spec(["!do result one ; wait 60", "!do resumed ; result two"], schema=changed))
    assert row.output == "two"
    assert [step.content for step in row.trajectory] == ["s-1"]


@pytest.mark.parametrize(
    ("text", "message", "answered", "code"),
    [
        ("!do noresult ; err boom ; exit 3", "ended with exit code 3: boom", False, 3),
        ("!do result x ; exit 3", "ended with exit code 3", True, 3),
        ("!do noresult ; die 11", "died of SIGSEGV", False, 139),
        ("!do noresult ; die 9", "died of SIGKILL", False, 137),
        ("!do say hi ; noresult", "ended without its terminal event", True, 0),
    ],
)
def test_an_unclean_end_is_a_crash(
    spec: Callable, text: str, message: str, answered: bool, code: int
) -> None:
    row = capture(spec(text))
    assert row.failure
    assert (row.failure.cause, row.failure.message) == ("agent_crash", message)
    assert row.failure.answered is answered
    assert row.metadata["exitCode"] == code
    assert row.metadata["timedOut"] is False


def test_a_crash_ends_the_conversation(spec: Callable) -> None:
    row = capture(spec(["!do say a ; exit 2", "!do say b"]))
    assert [step.content for step in row.trajectory] == ["a"]
    assert row.failure


def test_stderr_is_kept_its_end_in_the_row_and_all_of_it_in_raw(
    spec: Callable, tmp_path: Path
) -> None:
    text = "!do " + " ; ".join(f"err line {n} {'x' * 100}" for n in range(100))
    row = capture(spec(text))
    assert row.stderr
    assert "line 99" in row.stderr
    assert "line 0 " not in row.stderr
    (err,) = (tmp_path / "raw").rglob("1.err")
    assert err.read_text().count("\n") == 100
