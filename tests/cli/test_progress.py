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
from assay.cli.progress import Progress, Tally, TrialInProgress, clock_text
from assay.records.capture import Cause, Failure, Grade, Timing, Usage
from assay.records.spec import Limits, PluginRef, Prompt, Surroundings, TrialSpec
from assay.records.trial import Trial

SPEC = TrialSpec(
    prompt=Prompt(id="p", input="q"),
    agent=PluginRef(name="demo"),
    benchmark=PluginRef(name="prompts"),
    limits=Limits(),
    surroundings=Surroundings(cwd="/"),
    folder="prompt-p",
)


def capture(passed: bool = True, cause: Cause | None = None, name: str = "p") -> Trial:
    row = Trial(
        id=name,
        input="q",
        output="a",
        trajectory=[],
        metadata={},
        timing=Timing(start=0, end=9, total=9),
        usage=Usage(input_tokens=10, output_tokens=5, cost_usd=0.01),
        grade=Grade(pass_=passed, score=float(passed)),
    )
    if cause is not None:
        row.failure = Failure(cause=cause, message="m")
    return row


def test_counts_and_expectations() -> None:
    shown = Progress(10, plain=False, quiet=True)
    for n in range(4):
        shown.finished(SPEC, capture(passed=n > 0, name=f"p{n}"))
    shown.finished(SPEC, capture(cause=Cause.AGENT_TIMEOUT))
    tally = shown.tally
    assert (tally.n_done, tally.n_passed, tally.n_measured, tally.tokens) == (5, 4, 5, 75)
    assert tally.expected_usd == pytest.approx(0.1)
    assert tally.left_s == pytest.approx(tally.seconds, rel=0.2)
    assert tally.rate_text() == "pass 80 % (26 to 98)"
    assert tally.line().startswith("5/10 done, 0:00 left, pass 80 %")
    assert tally.line().endswith("75 tokens, $0.05 of about $0.10, ran out of time in 1")
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
    assert capsys.readouterr().err.startswith("[0:00] 1/2 done, 0:00 left, pass 100 %")


def test_live_view_shows_running_trials_and_no_escape_codes_of_theirs() -> None:
    tally = Tally(10)
    tally.finish("provider", 0.5, True)
    for n in range(12):
        tally.running[str(n)] = TrialInProgress(
            f"p{n}\x1b[2J", 2, time.monotonic() - 65, "Ba\x07sh", 3
        )
    out = io.StringIO()
    console = Console(file=out, width=100, force_terminal=False)
    console.print(LiveView(tally, console).render())
    text = out.getvalue()
    assert "1/10 done" in text
    assert "$0.50 of about $5.00, provider error in 1" in text
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


def test_prompts_and_trials_are_counted_apart(
    assay: Callable[..., Any], prompts: Callable[..., Path], tmp_path: Path
) -> None:
    rows = [{"id": name, "input": name, "hint": "a"} for name in ("a", "b")]
    words = (prompts(*rows), "--simple", "echo {}", "-g", "contains", "--progress")
    done = assay("trials", *words, "-k", 2, "-o", "t.jsonl")
    assert "Loaded 2 prompts from " in done.stderr
    assert "; 2 trials of each, 4 trials to run" in done.stderr
    assert "Agent: echo; concurrency: 1" in done.stderr
    assert "Progress: 0/2 prompts completed (1/4 trials)" in done.stderr
    assert "Progress: 2/2 prompts completed (4/4 trials)" in done.stderr
    assert [done.stderr.count(sign) for sign in ("✓ a #1 (", "✓ a #2 (", "✗ b #2 (")] == [1, 1, 1]
    more = assay("trials", *words, "-k", 2, "-o", "t.jsonl", "--resume")
    assert "0 trials to run" in more.stderr
    one = assay("capture", *words)
    assert "Loaded 2 prompts from " in one.stderr
    assert "; 2 to run" in one.stderr
    assert "Progress: 2/2 prompts completed\n" in one.stderr


def test_a_half_finished_prompt_is_counted_when_its_last_trial_ends(
    assay: Callable[..., Any],
    prompts: Callable[..., Path],
    shell_agent: Path,
    tmp_path: Path,
) -> None:
    file, words = prompts("R", "R"), ("-s", shell_agent, "-k", 2, "-o", "t.jsonl")
    (tmp_path / "t.jsonl").write_text("")
    assay("trials", file, *words, "--resume", "--filter", "p0")
    done = assay("trials", file, *words, "--resume", "--progress")
    assert "Loaded 2 prompts from " in done.stderr
    assert "2 trials to run" in done.stderr
    assert "Progress: 1/1 prompts completed (2/2 trials)" in done.stderr


def test_the_agent_is_called_by_its_name(
    assay: Callable[..., Any], prompts: Callable[..., Path], agent: Callable[..., Path]
) -> None:
    named = assay("capture", prompts("x"), "-s", agent(name="my agent\x1b[2J"), "--progress")
    assert "Agent: my agent\\u001b[2J; concurrency" in named.stderr
    assert (
        "Agent: demo-flaky;"
        in assay("capture", prompts("x"), "-s", "demo:flaky", "--progress").stderr
    )
    program = assay("capture", prompts("x"), "headless", "-s", "demo", "--progress")
    assert "Agent: assay headless -s demo;" in program.stderr


def test_run_shows_a_failed_trial_as_failed(
    assay: Callable[..., Any], prompts: Callable[..., Path]
) -> None:
    words = ("--shell", 'echo said; echo why >&2; eval "$PROMPT"', "--progress", "-t", 500)
    done = assay("run", prompts("exit 7", "true", "kill -9 $$", "sleep 60"), *words)
    assert done.code == 0
    shown = [line for line in done.stderr.splitlines() if line[:1] in "✓!✗"]
    assert [line[0] for line in shown] == ["!", "✓", "!", "!"]
    assert "agent crashed: ended with exit code 7: why" in shown[0]
    assert "agent crashed: died of SIGKILL" in shown[2]
    assert "ran out of time: " in shown[3]
    assert "3 failed" in done.stderr
    assert "agent crashed in 2, ran out of time in 1" in done.stderr
    assert all("failure" not in row for row in done.rows)


LAST = "Pass rate 50.0 % (95 % interval 0.3 to 99.7), 1 of 2 trials."


def test_the_last_line_gives_the_pass_rate_and_the_next_command(
    assay: Callable[..., Any], prompts: Callable[..., Path], tmp_path: Path
) -> None:
    rows = [{"id": name, "input": name, "hint": "a"} for name in ("a", "b")]
    file, agent = prompts(*rows), ("--simple", "echo {}")
    graded = assay("capture", file, *agent, "-g", "contains", "-o", "my rows.jsonl")
    assert graded.stderr.splitlines()[-4:] == [
        LAST,
        "Failures: assay explain 'my rows.jsonl'",
        "Report: assay report 'my rows.jsonl' -o 'my rows.html'",
        "Next: assay view 'my rows.jsonl'",
    ]
    piped = assay("capture", file, *agent, "-g", "contains")
    assert last_line(piped) == LAST
    assert len(piped.rows) == 2
    plain = assay("capture", file, *agent, "-o", "plain.jsonl")
    assert last_line(plain) == "Next: assay grade plain.jsonl -g contains -o plain.graded.jsonl"
    command = last_line(plain).removeprefix("Next: assay ").split()
    assert assay(*command).code == 0
    unhinted = assay("capture", prompts("x"), *agent, "-o", "unhinted.jsonl")
    assert "-g GRADER" in last_line(unhinted)
    assert assay("capture", file, *agent, "-g", "contains", "-q").stderr == ""


def test_the_last_line_of_a_resumed_run_speaks_of_all_its_trials(
    assay: Callable[..., Any], prompts: Callable[..., Path]
) -> None:
    rows = [{"id": name, "input": name, "hint": "a"} for name in ("a", "b")]
    words = (prompts(*rows), "--simple", "echo {}", "-g", "contains", "-o", "o.jsonl")
    first = assay("capture", *words, "--limit", 1)
    assert "Pass rate 100 %" in first.stderr
    assert assay("capture", *words, "--resume").stderr.splitlines()[-4] == LAST
    again = (*words[:-1], "t.jsonl", "-k", 3)
    assay("trials", *again, "--limit", 1)
    done = assay("trials", *again, "--resume").stderr.splitlines()
    assert done[-4].startswith("Pass rate 50.0 % (95 % interval")
    assert done[-4].endswith("3 of 6 trials. pass@3 50 %, pass^3 50 %.")
    assert done[-1] == "Next: assay view t.jsonl"


def test_repeats_of_a_prompt_do_not_narrow_the_interval_as_new_prompts_would(
    assay: Callable[..., Any], prompts: Callable[..., Path]
) -> None:
    from assay.stats.rates import rate_interval

    rows = [{"id": name, "input": name, "hint": "a"} for name in ("a", "b")]
    words = (prompts(*rows), "--simple", "echo {}", "-g", "contains", "-k", 10)
    rate, interval = rate_interval([10, 0], [10, 10])
    assert interval is not None
    low, high = (f"{100 * end:.1f}" for end in (interval.low, interval.high))
    shown = f"{100 * rate:.1f} % (95 % interval {low} to {high})"
    of_k = "pass@10 50 %, pass^10 50 %."
    assert last_line(assay("trials", *words)) == f"Pass rate {shown}, 10 of 20 trials. {of_k}"


def test_what_is_missing_is_the_next_thing_to_run(
    assay: Callable[..., Any], prompts: Callable[..., Path], tmp_path: Path
) -> None:
    program = tmp_path / "broken"
    program.write_bytes(b"\x7fELF not a program")
    program.chmod(0o755)
    done = assay("capture", prompts("x"), "--simple", f"{program} {{}}", "-o", "o.jsonl")
    assert done.code == 1
    assert "then the same command with --resume" in last_line(done)


def last_line(done: Any) -> str:
    return str(done.stderr.splitlines()[-1])
