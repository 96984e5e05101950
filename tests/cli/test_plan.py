"""assay plan from the outside."""

import json
import random
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from assay.cli.group import run_command


class Done(NamedTuple):
    code: int
    stdout: str
    stderr: str


@pytest.fixture
def plan(capfd: pytest.CaptureFixture[str]) -> Iterator[Callable[..., Done]]:
    """Run assay plan inside this process: planning starts nothing."""
    signals = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = [signal.getsignal(number) for number in signals]

    def run(*args: Any) -> Done:
        capfd.readouterr()
        code = run_command(["plan", *map(str, args)])
        return Done(code, *capfd.readouterr())

    yield run
    for number, handler in zip(signals, before, strict=True):
        signal.signal(number, handler)


@pytest.fixture
def pilot(tmp_path: Path) -> Callable[..., Path]:
    def write(name: str, n: int, rate: float = 0.6, seed: int = 1, **more: Any) -> Path:
        chance, path = random.Random(seed), tmp_path / name
        rows = []
        for i in range(n):
            passed = chance.random() < rate
            row = {"id": f"p{i}", "input": "i", "output": "o", "trajectory": []}
            row |= {"timing": {"total": 36_000}, "score": {"pass": passed, "score": int(passed)}}
            rows.append(row | more)
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
        return path

    return write


def test_from_an_assumed_rate(plan: Callable):
    done = plan("--rate", 0.7, "-d", 0.1)
    assert done.code == 0
    assert "To see a difference of 0.1 in pass rate with power 0.8 (assumed: rate" in done.stdout
    assert "1 trial a prompt: 221 prompts, 442 runs of the agents\n" in done.stdout
    assert "Repeats of a prompt are not new prompts" in done.stdout
    assert "$" not in done.stdout


def test_from_a_pilot_with_money_and_time(plan: Callable, pilot: Callable):
    path = pilot("a.jsonl", 50, usage={"costUsd": 0.5})
    told = json.loads(plan(path, "-d", 0.2, "-k", 1, "-k", 5, "-j", 10, "--json").stdout)
    assert [row["nTrials"] for row in told["rows"]] == [1, 5]
    row = told["rows"][0]
    assert row["costUsd"] == pytest.approx(0.5 * row["nRunsOfAgent"])
    assert row["hours"] == pytest.approx(row["nRunsOfAgent"] * 36 / 10 / 3600)
    assert told["atHand"]["nPrompts"] == 50
    assert 0 < told["atHand"]["power"] < 1
    text = plan(path, "-d", 0.2, "-k", 1, "-j", 10).stdout
    assert f"${row['costUsd']:,.2f}" in text
    assert "With 50 prompts and 1 trial each" in text


def test_two_pilots(plan: Callable, pilot: Callable):
    done = plan(pilot("a.jsonl", 60), pilot("b.jsonl", 60, seed=2), "--json")
    assert json.loads(done.stdout)["source"] == "two pilot runs"


@pytest.mark.parametrize(
    ("n", "rate", "gate", "code", "said"),
    [
        (800, 0.6, "regression", 0, "of an unchanged agent, 100 pass"),
        (5, 0.6, "regression", 4, "of an unchanged agent, 0 pass"),
        (60, 0.0, "regression", 4, "0 of them because the gate fails"),
        (60, 1.0, "not-better", 4, "better by 0.1, 0 pass"),
    ],
)
def test_gates_that_are_wrong_more_often_than_right_are_refused(
    plan: Callable, n: int, rate: float, gate: str, code: int, said: str
):
    done = plan("--rate", rate, "-n", n, "--fail-on", gate, "--margin", 0.1)
    assert done.code == code, done.stderr
    assert said in done.stdout + done.stderr
    assert ("Refused:" in done.stderr) == (code == 4)


def test_the_gate_is_tried_on_the_pilot_or_on_as_many_prompts_as_will_be(
    plan: Callable, pilot: Callable
):
    path = pilot("a.jsonl", 5)
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    rows[0]["score"] = {"pass": False, "score": 0}
    rows[1]["score"] = {"pass": True, "score": 1}
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert plan(path, "--fail-on", "regression").code == 4
    assert plan(path, "--fail-on", "regression", "-n", 800, "--margin", 0.1).code == 0


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((), "Give one or two pilot files, or --rate."),
        (("--rate", "1.5"), "--rate"),
        (("--rate", "nan"), "--rate"),
        (("--rate", "0.5", "-d", "nan"), "--difference"),
        (("--rate", "0.5", "-d", "0"), "--difference"),
        (("--rate", "0.5", "--power", "1"), "--power"),
        (("--rate", "0.5", "--margin", "2"), "--margin"),
        (("--rate", "0.5", "-k", "0"), "-k"),
        (("--rate", "0.5", "--fail-on", "regression"), "--fail-on needs the number of prompts."),
        (("a", "b", "c"), "one or two pilot files"),
    ],
)
def test_wrong_usage(plan: Callable, words: tuple[str, ...], said: str):
    done = plan(*words)
    assert done.code == 2
    assert said in done.stderr


def test_a_pilot_that_is_none(plan: Callable, pilot: Callable, tmp_path: Path):
    for path, said in (
        (tmp_path / "none.jsonl", "No such file"),
        (pilot("same.jsonl", 20, rate=1.0), "no variation"),
        (pilot("few.jsonl", 1), "no variation"),
    ):
        done = plan(path)
        assert done.code == 1
        assert said in done.stderr


def test_a_pilot_and_a_rate_contradict_each_other(plan: Callable, pilot: Callable):
    done = plan(pilot("a.jsonl", 20), "--rate", "0.5")
    assert done.code == 2
    assert "not both" in done.stderr


def test_prompts_at_hand_are_a_number_that_can_be_counted(plan: Callable):
    assert plan("--rate", "0.5", "-n", 10**9).code == 2


def test_a_loss_is_planned_for_as_a_loss(assay):
    plans = {}
    for difference in (0.08, -0.08):
        done = assay("plan", "--rate", 0.9, "-d", difference, "-k", 1, "--json")
        assert done.code == 0, done.stderr
        plans[difference] = json.loads(done.stdout)["rows"][0]["nPrompts"]
    assert plans[-0.08] > 1.5 * plans[0.08]
    assert "To see a loss of 0.08 in" in assay("plan", "--rate", 0.9, "-d", "-0.08").stdout
    assert assay("plan", "--rate", 0.05, "-d", "-0.1").code == 1
    assert assay("plan", "--rate", 0.5, "-d", "0").code == 2
