"""JUnit XML: every prompt a case, not measured is skipped, any text survives as text."""

import json
from collections.abc import Callable
from io import BytesIO
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from assay.compare.decided import KeptDecision, Worse
from assay.export.junit import write_junit
from assay.stats.sequential import SequentialDecision


def written(*rows: dict[str, Any], gate: KeptDecision | None = None) -> ElementTree.Element:
    out = BytesIO()
    write_junit(out, [("run", [json.dumps(row).encode() for row in rows], gate)])
    return ElementTree.fromstring(out.getvalue())


def capture(**more: Any) -> dict[str, Any]:
    return {
        "id": "p",
        "output": "o",
        "metadata": {"category": "c"},
        "timing": {"total": 1500},
    } | more


def test_pass_fail_and_not_measured() -> None:
    root = written(
        capture(score={"pass": True, "score": 1}),
        capture(score={"pass": False, "score": 0, "reasoning": "30 != 60"}),
        capture(failure={"cause": "provider", "message": "529"}),
    )
    (suite,) = root
    assert suite.attrib == {
        "name": "run",
        "tests": "3",
        "failures": "1",
        "errors": "0",
        "skipped": "1",
        "time": "4.500",
    }
    assert [len(case) for case in suite] == [0, 1, 1]
    assert suite[0].get("classname") == "run.c"
    assert suite[1][0].tag == "failure"
    assert suite[1][0].get("message") == "30 != 60"
    assert suite[2][0].get("message") == "not measured: provider: 529"


def repeated(id_: str, *passes: bool | None) -> dict[str, Any]:
    late = {"failure": {"cause": "agent_timeout", "message": "m"}}
    lost = {"failure": {"cause": "provider", "message": "529"}}
    ends = {True: {"pass": True}, False: {"pass": False, **late}, None: lost}
    trials = [{"trialNum": n, "duration": 10, **ends[p]} for n, p in enumerate(passes, 1)]
    return {"id": id_, "k": len(passes), "trials": trials, "metadata": {}}


def test_a_prompt_is_one_case_that_fails_if_most_of_its_trials_did() -> None:
    rows = repeated("p", True, False), repeated("q", False, False, True), repeated("r", None, None)
    (suite,) = written(*rows)
    assert [case.get("name") for case in suite] == ["p", "q", "r"]
    assert [case[0].tag for case in suite] == ["system-out", "failure", "skipped"]
    assert suite[0][0].text == "1 of 2 trials passed"
    assert suite[1][0].attrib == {
        "type": "agent_timeout",
        "message": "1 of 3 trials passed: m",
    }
    assert suite[2][0].get("message") == "not measured: provider: 529"


@pytest.mark.parametrize(
    ("outcome", "kinds"),
    [
        ("pass", ["system-out", "system-out", "system-out"]),
        ("fail", ["failure", "failure", "system-out"]),
        ("undecided", ["error", "system-out", "system-out"]),
    ],
)
def test_cases_follow_the_gate(outcome: str, kinds: list[str]) -> None:
    gate = KeptDecision(
        margin=0.1,
        baseline="",
        fresh="",
        n_trials=4,
        decision=SequentialDecision(outcome="undecided", words="", n_units=2),
        outcome=outcome,
        words="because",
        against="main",
        worse=[Worse(id="p", before=0.9, after=0.0)],
    )
    (suite,) = written(repeated("p", False, False), repeated("q", False, False), gate=gate)
    assert [case[0].tag for case in suite] == kinds
    assert suite[0].get("name") == "gate: regression against main"
    assert (suite[0][0].text or suite[0][0].get("message")) == "because"
    counts = {name: suite.get(name) for name in ("failures", "errors")}
    assert counts == {"failures": str(kinds.count("failure")), "errors": str(kinds.count("error"))}
    if outcome == "fail":
        assert suite[1][0].get("message") == "0 of 2 trials passed, 90% in main: m"


def test_hostile_texts_stay_texts() -> None:
    evil = "]]></failure><x a=\"1\" b='2'>&\x00\x1b\ud800\ufffe\n" + "y" * 9_000_000
    row = capture(id=evil, output=evil, score={"pass": False, "score": 0, "reasoning": evil})
    data = json.dumps(row).encode()
    out = BytesIO()
    write_junit(out, [("ru<n", [data.replace(b"\\ud800", b"")], None)])
    ((case,),) = ElementTree.fromstring(out.getvalue())
    assert len(out.getvalue()) < 20_000
    assert case[0].tag == "failure"
    assert (case.get("name") or "").startswith(']]></failure><x a="1"')


def test_a_grader_failure_keeps_its_reason() -> None:
    root = written(capture(graderFailures={"check": "Error: kaput"}), capture())
    messages = [skipped.attrib["message"] for skipped in root.iter("skipped")]
    assert messages == [
        "not measured: a grader failed: check: Error: kaput",
        "not measured: not graded",
    ]


def test_an_ungraded_crash_is_a_failure_and_an_ungraded_answer_is_skipped() -> None:
    crash = {"cause": "agent_crash", "message": "exit code 1"}
    trials = [
        {"trialNum": 1, "output": "", "duration": 10, "failure": crash},
        {"trialNum": 2, "output": "o", "duration": 10, "failure": {**crash, "answered": True}},
    ]
    rows = capture(failure=crash), {"id": "q", "k": 2, "trials": trials, "metadata": {}}
    (suite,) = written(*rows)
    assert [case[0].tag for case in suite] == ["failure", "failure"]
    assert suite[1][0].get("message") == "0 of 1 trial passed, 1 not measured: exit code 1"
    assert suite[0][0].attrib == {"type": "agent_crash", "message": "exit code 1"}


def test_a_parser_of_junit_reads_it(tmp_path: Path, read_with: Callable[..., Any]) -> None:
    rows = (
        capture(score={"pass": True, "score": 1}),
        capture(id="a\n<b>", score={"pass": False, "score": 0, "reasoning": "30 != 60"}),
        capture(id="down", failure={"cause": "provider", "message": "529"}),
    )
    with (tmp_path / "junit.xml").open("wb") as out:
        write_junit(out, [("run", [json.dumps(row).encode() for row in rows], None)])
    cases = [["p", "run.c"], ["a\n<b>", "run.c", "Failure"], ["down", "run.c", "Skipped"]]
    assert read_with("junit", tmp_path / "junit.xml") == [["run", 3, 1, 0, 1, *cases]]
