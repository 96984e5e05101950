"""The grader of ARC trials: its verdicts, pinned together with its version."""

import pytest

from assay import plugins
from assay.pipeline.stages import AskingHost
from assay.plugin import Trial

VERSION = "1"


def trial(percent, *, won):
    """Make a trial in which two of five levels were completed."""
    result = {"won": won, "levelsCompleted": 2, "levelCount": 5, "stopReason": "budget"}
    scores = {"official": {"scorePercent": percent}, "first_play": {"scorePercent": 10.0}}
    evidence = {"benchmark": "arc", "result": result, "scores": scores}
    return Trial(input="?", output="", row={"metadata": {"evidence": evidence}})


@pytest.mark.parametrize(
    ("grader", "percent", "won", "passes", "score"),
    [
        ("arc", 25.0, True, True, 0.25),
        ("arc", 25.0, False, False, 0.25),
        ("arc", None, False, False, 0.4),
        ("arc:formula=first_play", 25.0, False, False, 0.1),
    ],
)
def test_a_changed_verdict_needs_a_raised_version(grader, percent, won, passes, score) -> None:
    built = plugins.grader(plugins.grader_ref(grader))
    grade = built.grade(trial(percent, won=won), AskingHost())
    advice = "raise code_version of the grader, then update VERSION and the examples"
    assert (grade.pass_, grade.score) == (passes, score), advice
    assert built.code_version == VERSION


def test_the_formula_is_part_of_the_version() -> None:
    official = plugins.grader(plugins.grader_ref("arc"))
    assert official.version == VERSION
    other = plugins.grader(plugins.grader_ref("arc:formula=first_play"))
    assert other.version == f"{VERSION}-first_play"
