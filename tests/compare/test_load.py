"""Result files read into columns."""

import json
from pathlib import Path

import numpy as np
import pytest

from assay.compare.runs import load_run
from assay.errors import InputError
from assay.records.trial.files import detect_kind


def capture(id_, *, score=None, total=100.0, **more):
    row = {
        "id": id_,
        "input": "i",
        "output": "o",
        "trajectory": [{"type": "message", "content": "o", "timestamp": 1}],
        "timing": {"start": 0, "end": total, "total": total},
        "toolErrors": False,
    }
    if score is not None:
        row["score"] = {"pass": score >= 0.5, "score": score}
    return row | more


def write(path: Path, rows) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def load(path: Path, key: str = "category"):
    return load_run("x", path, detect_kind(path), key)


def test_a_row_without_a_grade_is_not_measured(tmp_path):
    run = load(write(tmp_path / "a.jsonl", [capture("a", score=1.0), capture("b")]))
    assert run.n_measured.tolist() == [1, 0]
    assert np.isnan(run.score[1])
    assert run.health.not_measured == {"not graded": 1}


def test_an_agents_own_failure_is_a_failed_trial_and_a_providers_is_none(tmp_path):
    rows = [
        capture("ok", score=1.0),
        capture("slow", failure={"cause": "agent_timeout", "message": "m"}),
        capture("down", failure={"cause": "provider", "message": "m"}),
        capture("unclean", score=0.8, failure={"cause": "agent_crash", "answered": True}),
    ]
    run = load(write(tmp_path / "a.jsonl", rows))
    assert run.n_measured.tolist() == [1, 1, 0, 1]
    assert run.n_passed.tolist() == [1, 0, 0, 1]
    assert run.timed_out.tolist() == [0, 1, 0, 0]
    assert run.complete.tolist() == [1, 0, 0, 1]
    assert run.health.not_measured == {"provider": 1}


def test_failures_of_a_run_that_nobody_graded_are_no_measurement(tmp_path):
    rows = [capture("a"), capture("slow", failure={"cause": "agent_timeout", "message": "m"})]
    run = load(write(tmp_path / "a.jsonl", rows))
    assert run.n_measured.tolist() == [0, 0]


def test_timeouts_of_old_rows_are_found(tmp_path):
    rows = [
        capture("a", score=1.0),
        capture("b", errors=["Timeout after 1s"]),
        capture("c", metadata={"timedOut": True}, score=0.0),
    ]
    run = load(write(tmp_path / "a.jsonl", rows))
    assert run.timed_out.tolist() == [0, 1, 1]
    assert run.n_measured.tolist() == [1, 1, 1]


def test_the_last_of_repeated_ids_counts(tmp_path):
    rows = [capture("a", score=1.0), capture("b", score=1.0), capture("a", score=0.0)]
    run = load(write(tmp_path / "a.jsonl", rows))
    assert run.ids == ["b", "a"]
    assert run.n_passed.tolist() == [1, 0]
    assert run.health.n_repeated == 1


def test_categories_by_any_key(tmp_path):
    levels = [3, "easy", True, ["a", 1]]
    rows = [capture(f"p{n}", metadata={"level": level}) for n, level in enumerate(levels)]
    run = load(write(tmp_path / "a.jsonl", [*rows, capture("c")]), "level")
    names = [run.category_names[i] for i in run.categories]
    assert names == ["3", "easy", "true", '["a",1]', "(uncategorized)"]


@pytest.mark.parametrize(
    "key", ["trajectoryRichness", "timedOut", "é", "a,b", "", "id", "type", 'a"b', "a\nb"]
)
def test_any_key_of_the_metadata_may_be_the_category(tmp_path, key):
    path = write(tmp_path / "a.jsonl", [capture("a", metadata={key: "full"}), capture("b")])
    run = load(path, key)
    assert [run.category_names[i] for i in run.categories] == ["full", "(uncategorized)"]
    assert run.richness == ("full" if key == "trajectoryRichness" else None)


def test_trials_are_read_with_what_was_not_measured(tmp_path):
    trial = {"output": "o", "trajectory": [], "duration": 5.0}
    row = {
        "id": "a",
        "input": "i",
        "k": 3,
        "trials": [
            trial | {"trialNum": 1, "pass": True, "score": 0.9},
            trial | {"trialNum": 2, "failure": {"cause": "auth", "message": "m"}},
            trial | {"trialNum": 3, "failure": {"cause": "agent_crash", "message": "m"}},
        ],
    }
    run = load(write(tmp_path / "t.jsonl", [row]))
    assert run.kind == "trials"
    assert (run.n_passed.tolist(), run.n_measured.tolist()) == ([1], [2])
    assert run.health.not_measured == {"auth": 1}


def test_a_bad_line_is_named(tmp_path):
    path = write(tmp_path / "a.jsonl", [capture(f"p{i}", score=1.0) for i in range(5)])
    path.write_text(path.read_text() + '\n{"id": 7}\n')
    with pytest.raises(InputError, match=r"a\.jsonl:7: .*id"):
        load(path)


def test_a_line_longer_than_the_buffer_is_read(tmp_path):
    long = capture("long", score=1.0, output="x" * 9_000_000)
    run = load(write(tmp_path / "a.jsonl", [capture("a", score=1.0), long]))
    assert run.ids == ["a", "long"]


def test_what_is_no_result_file_is_refused(tmp_path):
    with pytest.raises(InputError, match="neither a capture"):
        detect_kind(write(tmp_path / "a.jsonl", [{"id": "a"}]))
    with pytest.raises(InputError, match="no rows"):
        detect_kind(write(tmp_path / "e.jsonl", []))


def test_a_byte_order_mark_is_no_part_of_a_row(tmp_path):
    path = write(tmp_path / "a.jsonl", [capture("a", score=1.0), capture("b", score=1.0)])
    path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes())
    assert load(path).ids == ["a", "b"]
    path.write_bytes(b"\xef\xbb\xbf")
    with pytest.raises(InputError, match="no rows"):
        load(path)
    assert load_run("x", path, "capture", "category").ids == []


@pytest.mark.parametrize("between", ["", " ", "\r"])
def test_a_line_holds_one_row(tmp_path, between):
    first, *others = [json.dumps(capture(id_, score=1.0)) for id_ in "abc"]
    path = tmp_path / "a.jsonl"
    path.write_text(first + "\n" + between.join(others) + "\n")
    with pytest.raises(InputError, match=r"a\.jsonl:2: "):
        load(path)


def test_a_row_stands_on_one_line(tmp_path):
    path = tmp_path / "a.jsonl"
    rows = [json.dumps(capture("a", score=1.0)), json.dumps(capture("b", score=1.0), indent=1)]
    path.write_text("\n".join(rows) + "\n")
    with pytest.raises(InputError, match=r"a\.jsonl:2: "):
        load(path)


@pytest.mark.parametrize(
    ("steps", "richness"),
    [
        (["message", "tool_call"], "full"),
        (["thought"], "full"),
        (["message", "plan"], None),
        ([], None),
    ],
)
def test_without_a_word_the_steps_tell_how_rich_a_run_is(tmp_path, steps, richness):
    trajectory = [{"type": kind, "timestamp": 1} for kind in steps]
    rows = [capture("a"), capture("b", trajectory=trajectory)]
    assert load(write(tmp_path / "a.jsonl", rows)).richness == richness
    rows[0]["metadata"] = {"trajectoryRichness": "minimal"}
    assert load(write(tmp_path / "a.jsonl", rows)).richness == "minimal"


def test_a_trial_that_has_no_score_gets_none(tmp_path):
    """The reference writes pass: false without a score where a trial broke."""
    trial = {"output": "o", "trajectory": [], "duration": 5.0}
    entries = [
        trial | {"trialNum": 1, "pass": True, "score": 0.9},
        trial | {"trialNum": 2, "pass": False, "reasoning": "Error: no such file"},
    ]
    row = {"id": "a", "input": "i", "k": 2, "trials": entries}
    run = load(write(tmp_path / "t.jsonl", [row]))
    assert run.n_measured.tolist() == [2]
    assert run.score[0] == 0.9
    assert np.isnan(run.score[1])


def test_where_no_trial_has_a_score_passing_is_the_score(tmp_path):
    trial = {"output": "o", "trajectory": [], "duration": 5.0}
    entries = [trial | {"trialNum": n, "pass": n == 1} for n in (1, 2)]
    row = {"id": "a", "input": "i", "k": 2, "trials": entries}
    assert load(write(tmp_path / "t.jsonl", [row])).score.tolist() == [1.0, 0.0]


def test_whose_word_a_failure_is_decides_whether_it_is_an_excuse(tmp_path: Path) -> None:
    said = [
        ("provider", "", "provider", True),
        ("provider", "the agent only", "provider", True),
        ("provider", "the gateway", "provider (seen by the gateway)", False),
        ("auth", "the agent only", "auth", True),
        ("harness", "the agent only", "harness (by the agent's word)", True),
        ("harness", "", "harness", False),
        ("worker_lost", "", "worker_lost", False),
    ]
    for cause, by, counted, is_excuse in said:
        failure = {"cause": cause, "message": "m"} | ({"reportedBy": by} if by else {})
        health = load(write(tmp_path / "r.jsonl", [capture("a", failure=failure)])).health
        assert health.not_measured == {counted: 1}
        assert health.n_unverified == is_excuse
