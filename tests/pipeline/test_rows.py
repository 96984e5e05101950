"""Grading of rows on disk: what is asked, what is written, in which order."""

import json
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay.errors import InputError
from assay.pipeline.grade import grade_all
from assay.plugins import grader_ref
from assay.records.capture import Cause

ROW = {"id": "a", "input": "i", "output": "out", "trajectory": [], "metadata": {}, "timing": {}}


def graded(*rows: Any, grader: str = "contains:out", workers: int = 1) -> list[dict[str, Any]]:
    lines = [(f"f:{n}", json.dumps(row).encode() + b"\n") for n, row in enumerate(rows, 1)]
    done = grade_all(lines, [grader_ref(grader)], workers)
    return [json.loads(row.line) for row in done]


def test_the_verdict_is_put_into_the_line_and_nothing_else_changes() -> None:
    line = (
        b'{ "id":"a", "big": 12345678901234567890123, "f": 1.10, "output":"\\u006fut", "input":"i"}'
    )
    (row,) = grade_all([("f:1", line + b"  \r\n")], [grader_ref("contains:out")])
    assert row.line.startswith(line[:-1] + b',"score":{"pass":true,"score":1.0')
    assert row.line.endswith(b"}")
    assert b"\n" not in row.line


def test_an_earlier_grading_is_replaced_where_it_stands() -> None:
    old = {"pass": False, "score": 0}
    before = {
        "score": old,
        **ROW,
        "errors": ["disk", "g broke"],
        "outcome": {"old": 1},
        "grades": {"g": old},
        "graderFailures": {"g": "g broke"},
        "z": 1,
    }
    (row,) = graded(before)
    kept = [k for k in before if k not in ("graderFailures", "outcome")]
    assert [k for k in row if k in before] == kept
    assert row["score"]["pass"] is True
    assert row["errors"] == ["disk"]
    assert "outcome" not in row
    assert list(row["grades"]) == ["contains"]


@pytest.mark.parametrize("old", [("score", "grades"), ("grades",)])
def test_a_grading_at_the_end_of_the_line_is_replaced_and_the_rest_not_touched(
    old: tuple[str, ...],
) -> None:
    start = b'{"id": "a", "input":"i", "output":"out", "f": 1.10'
    ends = {"score": b',"score":{"pass":false,"score":0}', "grades": b',"grades":{"g":{}}'}
    line = start + b"".join(ends[name] for name in old) + b"}"
    (fresh,) = grade_all([("f:1", start + b"}\n")], [grader_ref("contains:out")])
    (again,) = grade_all([("f:1", line)], [grader_ref("contains:out")])
    assert again.line == fresh.line


@pytest.mark.parametrize(
    "theirs",
    [{"errors": []}, {"errors": "a text"}, {"errors": None}, {"errors": [1]}, {"outcome": [1]}],
)
def test_fields_of_other_kinds_stay_as_they_were(theirs: dict[str, Any]) -> None:
    (row,) = graded(ROW | theirs)
    assert row["score"]["pass"]
    assert {name: row[name] for name in theirs} == theirs


@pytest.mark.parametrize("theirs", [["x"], "x", None, 5])
def test_grader_failures_of_another_kind_are_replaced(theirs: Any) -> None:
    (row,) = graded(ROW | {"graderFailures": theirs, "errors": "disk"})
    assert row["score"]["pass"]
    assert row["errors"] == "disk"
    assert "graderFailures" not in row
    (row,) = graded(ROW | {"graderFailures": theirs, "errors": "disk"}, grader="exact")
    assert row["errors"] == ["disk", *row["graderFailures"].values()]


def test_a_trajectory_of_null_is_an_empty_one() -> None:
    assert graded(ROW | {"trajectory": None}, grader="tools:max_calls=0")[0]["score"]["pass"]


def test_a_broken_grader_leaves_the_row_without_a_score() -> None:
    (row,) = graded(ROW | {"score": {"pass": True, "score": 1}}, grader="exact")
    assert "score" not in row
    assert "grades" not in row
    (why,) = row["graderFailures"].values()
    assert row["errors"] == [why]
    assert "nothing to compare with" in why
    assert graded(row)[0]["score"]["pass"]
    assert "errors" not in graded(row)[0]


def test_one_broken_grader_among_several_leaves_no_score_but_the_other_grades() -> None:
    lines = [("f:1", json.dumps(ROW).encode())]
    refs = [grader_ref("contains:out"), grader_ref("exact"), grader_ref("contains:nope")]
    (done,) = grade_all(lines, refs)
    row = json.loads(done.line)
    assert "score" not in row
    assert {k: g["pass"] for k, g in row["grades"].items()} == {
        "contains": True,
        "contains-2": False,
    }


def test_several_graders_pass_together_and_score_the_mean() -> None:
    lines = [("f:1", json.dumps(ROW).encode())]
    (done,) = grade_all(lines, [grader_ref("contains:out"), grader_ref("contains:nope")])
    row = json.loads(done.line)
    assert (row["score"]["pass"], row["score"]["score"]) == (False, 0.5)
    assert len({g["version"] for g in row["grades"].values()}) == 2


UNMEASURED = [cause.value for cause in Cause if not cause.measures_agent]


@pytest.mark.parametrize("cause", UNMEASURED)
def test_what_does_not_measure_the_agent_stays_ungraded(cause: str) -> None:
    row = ROW | {"failure": {"cause": cause, "message": "m", "answered": True}}
    assert graded(row) == [row]
    assert graded(row | {"score": {"pass": True, "score": 1}}) == [row]


def test_an_agent_failure_without_an_answer_fails_without_asking() -> None:
    row = ROW | {"failure": {"cause": "agent_timeout", "message": "no result"}}
    (done,) = graded(row)
    assert done["score"]["pass"] is False
    assert done["score"]["reasoning"] == "not graded, agent_timeout: no result"
    assert "grades" not in done
    row["failure"]["answered"] = True
    assert graded(row)[0]["score"]["pass"] is True


def test_cwd_is_given_while_the_folder_is_there(tmp_path) -> None:
    def sees(**fields: Any) -> bool:
        (row,) = graded(ROW | fields, grader="command:true")
        return "score" in row

    assert sees(cwd=str(tmp_path))
    assert sees(metadata={"workspaceDir": str(tmp_path)})
    assert not sees(cwd=str(tmp_path / "gone"))
    assert not sees(metadata={"workspaceDir": 7})
    assert not sees()


def test_a_python_grader_sees_exactly_what_it_names(tmp_path) -> None:
    (tmp_path / "names.py").write_text(
        "def grade(output, trajectory, metadata):\n"
        "    return {'pass': True, 'score': 1, 'outcome': {'seen': [trajectory, metadata]}}\n"
    )
    (tmp_path / "whole.py").write_text(
        "def grade(trial):\n"
        "    seen = [trial.row, trial.trajectory]\n"
        "    return {'pass': True, 'score': 1, 'outcome': {'seen': seen}}\n"
    )
    row = ROW | {"trajectory": [{"type": "thought"}], "metadata": {"a": 1}, "extra": [1]}
    (one,) = graded(row, grader=str(tmp_path / "names.py"))
    assert one["outcome"]["seen"] == [[{"type": "thought"}], {"a": 1}]
    (two,) = graded(row, grader=str(tmp_path / "whole.py"))
    assert two["outcome"]["seen"] == [row, [{"type": "thought"}]]


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (b"{", "f:7: not a JSON object"),
        (b"[]", "f:7: must be an object"),
        (b'{"id": "a", "input": "i"}', "f:7: .*output"),
        (b'{"id": "a", "input": 3, "output": "x"}', "f:7: .*input"),
        (
            b'{"input": "i", "output": "x", "failure": {"cause": "bad luck", "message": ""}}',
            "cause",
        ),
        (b"\xff\xfe", "f:7"),
        (
            b'{"input": "i", "output": "x", "trajectory": ' + b"[" * 90_000 + b"]" * 90_000 + b"}",
            "f:7",
        ),
    ],
)
def test_an_unreadable_row_is_named(line: bytes, said: str) -> None:
    with pytest.raises(InputError) as caught:
        list(grade_all([("f:7", line)], [grader_ref("tools:x")]))
    import re

    assert re.search(said, caught.value.message)


def test_a_row_without_trials_is_refused_with_a_hint() -> None:
    line = json.dumps({"id": "a", "input": "i", "k": 1, "trials": []}).encode()
    with pytest.raises(InputError) as caught:
        list(grade_all([("f:1", line)], [grader_ref("exact")]))
    assert "at least one trial" in caught.value.hint


def test_the_order_is_kept_while_workers_overtake_each_other(tmp_path) -> None:
    slow = tmp_path / "slow.sh"
    slow.write_text(
        "#!/bin/sh\nread line\ncase $line in *slow*) sleep 0.6;; esac\n"
        'echo \'{"pass": true, "score": 1}\'\n'
    )
    slow.chmod(0o755)
    rows = [ROW | {"id": str(n), "output": "slow" if n % 7 == 0 else "x"} for n in range(28)]
    began = time.monotonic()
    done = graded(*rows, grader=str(slow), workers=8)
    assert [row["id"] for row in done] == [row["id"] for row in rows]
    assert time.monotonic() - began < 4 * 0.6 + 28 * 0.2


def test_a_bad_row_ends_the_workers_and_gives_what_came_before() -> None:
    good = json.dumps(ROW).encode()
    lines = [("f:1", good), ("f:2", b"nonsense"), ("f:3", good)]
    results = grade_all(lines, [grader_ref("contains:out")], 4)
    assert next(results).id == "a"
    with pytest.raises(InputError, match="f:2"):
        next(results)


def test_workers_do_not_read_far_ahead() -> None:
    taken = 0

    def lines():
        nonlocal taken
        for n in range(100_000):
            taken = n
            yield f"f:{n}", json.dumps(ROW | {"output": "x" * 1_000_000}).encode()

    results = grade_all(lines(), [grader_ref("contains:out")], workers=2)
    for _ in range(3):
        next(results)
    assert taken < 60
    results.close()


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**60), 2**60) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=10,
)


@given(st.dictionaries(st.text(), _JSON), st.text())
def test_any_unknown_field_survives(extra: dict[str, Any], output: str) -> None:
    known = {*ROW, "errors", "score", "outcome", "grades", "graderFailures", "hint", "cwd"}
    known |= {"reference", "failure"}
    row = {k: v for k, v in extra.items() if k not in known} | ROW | {"output": output}
    for before in (row, row | {"score": {"pass": True, "score": 1}}):
        (after,) = graded(before, grader="contains:out")
        assert after["score"]["pass"] is ("out" in output)
        ours = ("score", "grades", "earlierGrades")
        assert {k: v for k, v in after.items() if k not in ours} == row
        assert ("earlierGrades" in after) is ("score" in before)
        assert [k for k in after if k in before] == list(before)


_OLD = st.fixed_dictionaries(
    {},
    optional={
        "score": st.sampled_from([{"pass": False, "score": 0}, {"pass": True, "score": 1.0}, None]),
        "grades": st.just({"g": {"pass": False, "score": 0}}),
        "errors": st.lists(st.sampled_from(["disk", "g broke"]), max_size=2),
        "graderFailures": st.just({"g": "g broke"}),
        "outcome": st.just({"old": 1}),
        "after": st.sampled_from(['"}', "score", ',"score":{"pass":false}']),
    },
)


@given(_OLD, st.randoms(), st.sampled_from([(",", ":"), (", ", ": ")]), st.sampled_from(["", "\n"]))
def test_a_verdict_written_as_text_is_the_one_that_plain_json_would_write(
    old: dict[str, Any], chance: Any, separators: tuple[str, str], end: str
) -> None:
    items = list((ROW | old).items())
    chance.shuffle(items)
    before = dict(items)
    line = (json.dumps(before, separators=separators) + end).encode()
    (row,) = grade_all([("f:1", line)], [grader_ref("contains:out")])
    (fresh,) = graded(ROW)
    wanted = {k: v for k, v in before.items() if k not in ("score", "grades", "graderFailures")}
    if "graderFailures" in old and "errors" in old:
        wanted["errors"] = [error for error in old["errors"] if error != "g broke"]
        if not wanted["errors"]:
            del wanted["errors"]
    if {"grades", "graderFailures"} & old.keys():  # the outcome is an earlier grader's
        wanted.pop("outcome", None)
    wanted |= {"score": fresh["score"], "grades": fresh["grades"]}
    found = json.loads(row.line)
    earlier = list(old.get("grades", {})) or (["score"] if old.get("score") else [])
    assert [grade["grader"] for grade in found.pop("earlierGrades", [])] == earlier
    assert found == wanted
    assert b"\n" not in row.line
