"""JUnit XML: every trial a case, not measured is skipped, any text survives as text."""

import json
from io import BytesIO
from typing import Any
from xml.etree import ElementTree

from assay.export.junit import write_junit


def written(*rows: dict[str, Any]) -> ElementTree.Element:
    out = BytesIO()
    write_junit(out, [("run", [json.dumps(row).encode() for row in rows])])
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


def test_trials_are_cases_of_their_own() -> None:
    trials = [
        {"trialNum": 1, "pass": True, "duration": 10},
        {
            "trialNum": 2,
            "pass": False,
            "duration": 20,
            "failure": {"cause": "agent_timeout", "message": "m"},
        },
    ]
    (suite,) = written({"id": "p", "k": 2, "trials": trials, "metadata": {}})
    assert [case.get("name") for case in suite] == ["p [trial 1]", "p [trial 2]"]
    assert suite[1][0].get("type") == "agent_timeout"


def test_hostile_texts_stay_texts() -> None:
    evil = "]]></failure><x a=\"1\" b='2'>&\x00\x1b\ud800\ufffe\n" + "y" * 9_000_000
    row = capture(id=evil, output=evil, score={"pass": False, "score": 0, "reasoning": evil})
    data = json.dumps(row).encode()
    out = BytesIO()
    write_junit(out, [("ru<n", [data.replace(b"\\ud800", b"")])])
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
    assert [case[0].tag for case in suite] == ["failure", "failure", "skipped"]
    assert suite[0][0].attrib == {"type": "agent_crash", "message": "exit code 1"}
