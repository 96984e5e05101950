"""Answers to ask graders about, and what is made of their verdicts."""

import json

from msgspec import UNSET

from assay.pipeline.grading import Verdict
from assay.pipeline.references import EMPTY, REFERENCE, UNRELATED, answer_row, answers, validation
from assay.records.capture import Grade
from assay.records.spec import Prompt

PROMPT = Prompt(id="p", input=["a", "b"], hint="fox", reference="It is a fox", metadata={"k": 1})
GOOD = Verdict(score=Grade(pass_=True, score=1.0, reasoning="r"))
BAD = Verdict(score=Grade(pass_=False, score=0.0))


def test_the_unrelated_answer_does_not_hold_the_hint():
    asked = answers(PROMPT, no_op=True)
    assert list(asked) == [REFERENCE, EMPTY, UNRELATED]
    assert asked[REFERENCE] == "It is a fox"
    assert asked[EMPTY] == ""
    assert "fox" not in asked[UNRELATED]


def test_no_op_is_asked_only_when_wanted_and_never_against_an_empty_reference():
    assert list(answers(PROMPT, no_op=False)) == [REFERENCE]
    assert list(answers(Prompt(id="p", input="x", reference=""), no_op=True)) == [
        REFERENCE,
        UNRELATED,
    ]


def test_the_row_is_what_an_agent_would_have_left():
    assert json.loads(answer_row(PROMPT, "x")) == {
        "id": "p",
        "input": ["a", "b"],
        "output": "x",
        "hint": "fox",
        "trajectory": [],
        "metadata": {"k": 1},
        "reference": "It is a fox",
    }


def test_both_spellings_say_the_same():
    row = validation(PROMPT, {REFERENCE: GOOD})
    assert row.passes is row.pass_ is True
    assert row.grader_result == GOOD.score
    assert (row.score, row.reasoning) == (1.0, "r")
    assert row.no_op is row.wrongly_passes is row.grader_failure is UNSET


def test_an_answer_that_passes_wrongly_is_named():
    row = validation(PROMPT, {REFERENCE: BAD, EMPTY: GOOD, UNRELATED: BAD})
    assert row.passes is False
    assert row.wrongly_passes == [EMPTY]
    assert row.no_op == {EMPTY: GOOD.score, UNRELATED: BAD.score}


def test_a_broken_grader_is_not_a_failed_reference():
    row = validation(PROMPT, {REFERENCE: Verdict(broken={"g": "boom"}), EMPTY: BAD})
    assert row.passes is row.pass_ is row.score is UNSET
    assert row.grader_failure == "g: boom"
    other = validation(PROMPT, {REFERENCE: GOOD, EMPTY: Verdict(broken={"g": "boom"})})
    assert other.passes is True
    assert other.grader_failure == "g, asked about the empty answer: boom"


def test_a_prompt_without_metadata_leaves_none_in_the_row():
    assert "metadata" not in json.loads(answer_row(Prompt(id="p", input="x"), "y"))
