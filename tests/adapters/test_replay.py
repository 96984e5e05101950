"""-s replay:FILE: recorded trials answer again, the same and for nothing."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest

PROMPTS = [
    {"id": "sum", "input": "What is 2 + 40?", "hint": "42", "metadata": {"category": "math"}},
    {"id": "note", "input": "Write a short note into notes.txt", "hint": "notes.txt"},
    {"id": "talk", "input": ["Remember the number 42", "What number was it?"], "hint": "42"},
    {"id": "crash", "input": "Please crash", "hint": "x"},
]
SAME = ("id", "input", "output", "hint", "trajectory", "score", "failure", "sessionId", "setup")


@pytest.fixture
def recorded(assay, tmp_path: Path) -> Path:
    """Captures of the demo agent; one of them is a crash."""
    write(tmp_path / "p.jsonl", PROMPTS)
    done = assay("capture", "p.jsonl", "-s", "demo", "-g", "contains", "-o", "r.jsonl", "-j", "2")
    assert done.code == 0, done.stderr
    return tmp_path / "r.jsonl"


@pytest.fixture
def recorded_trials(assay, tmp_path: Path) -> Path:
    write(tmp_path / "p.jsonl", PROMPTS[:2])
    words = ["-s", "demo:flaky", "-k", "4", "-g", "contains", "-j", "2", "-o", "t.jsonl"]
    assert assay("trials", "p.jsonl", *words).code == 0
    return tmp_path / "t.jsonl"


def write(path: Path, rows: list[Any]) -> None:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def rows(path: Path) -> dict[str, Any]:
    return {row["id"]: row for row in map(json.loads, path.read_text().splitlines())}


def test_captures_answer_the_same_and_cost_nothing(assay, recorded, tmp_path):
    words = ["-s", "replay:r.jsonl", "-g", "contains", "-o", "again.jsonl", "--max-cost", "0.0001"]
    done = assay("capture", "p.jsonl", *words)
    assert done.code == 0, done.stderr
    assert "$" not in done.stderr, "a cost was counted"
    before, after = rows(recorded), rows(tmp_path / "again.jsonl")
    assert before.keys() == after.keys()
    for prompt_id, row in before.items():
        for name in SAME:
            assert after[prompt_id].get(name) == row.get(name), (prompt_id, name)
    paid, replayed = before["sum"]["usage"], after["sum"]["usage"]
    assert replayed == paid | {"costSource": "replayed"}
    assert [usage["costSource"] for usage in after["talk"].get("turnUsage", [])] == [
        "replayed" for _ in before["talk"].get("turnUsage", [])
    ]
    assert after["sum"]["agent"]["adapter"] == "replay"
    assert after["sum"]["agent"]["model"] == before["sum"]["agent"]["model"]
    assert after["crash"]["failure"]["cause"] == "agent_crash"


def test_the_kth_trial_answers_the_kth(assay, recorded_trials, tmp_path):
    words = ["trials", "p.jsonl", "-s", "replay:t.jsonl", "-g", "contains", "-j", "2"]
    assert assay(*words, "-k", "4", "-o", "again.jsonl").code == 0
    before, after = rows(recorded_trials), rows(tmp_path / "again.jsonl")
    for prompt_id, row in before.items():
        assert after[prompt_id]["passRate"] == row["passRate"]
        for old, new in zip(row["trials"], after[prompt_id]["trials"], strict=True):
            for name in ("trialNum", "output", "trajectory", "pass", "score"):
                assert new[name] == old[name]
    assert assay(*words, "-k", "2", "-o", "fewer.jsonl").code == 0
    more = assay(*words, "-k", "5", "-o", "more.jsonl")
    assert more.code == 1
    assert "sum (trial 5), note (trial 5) were not repeated as often" in more.stderr
    assert not (tmp_path / "more.jsonl").exists()


def test_a_capture_takes_the_first_trial_and_repeated_rows_are_trials(
    assay, recorded_trials, tmp_path
):
    once = assay("capture", "p.jsonl", "-s", "replay:t.jsonl").rows
    before = rows(recorded_trials)
    for row in once:
        assert row["output"] == before[row["id"]]["trials"][0]["output"]
    for _ in range(2):
        assay("capture", "p.jsonl", "-s", "demo", "-o", "twice.jsonl", "--append")
    done = assay("trials", "p.jsonl", "-s", "replay:twice.jsonl", "-k", "2")
    assert [len(row["trials"]) for row in done.rows] == [2, 2]


def test_missing_and_changed_prompts_are_named_before_anything_runs(assay, recorded, tmp_path):
    changed = PROMPTS[0] | {"input": "What is 2 + 41?"}
    write(tmp_path / "new.jsonl", [changed, {"id": "new", "input": "Hi"}, *PROMPTS[1:]])
    done = assay("capture", "new.jsonl", "-s", "replay:r.jsonl", "-o", "out.jsonl")
    assert done.code == 1
    assert "r.jsonl cannot answer: new was not recorded; sum was changed since" in done.stderr
    assert "--filter" in done.stderr
    assert not (tmp_path / "out.jsonl").exists()
    some = assay("capture", "new.jsonl", "-s", "replay:r.jsonl", "--filter", "note")
    assert (some.code, len(some.rows)) == (0, 1)
    hinted = PROMPTS[0] | {"hint": "43", "metadata": {"category": "other"}}
    write(tmp_path / "hinted.jsonl", [hinted])
    graded = assay("capture", "hinted.jsonl", "-s", "replay:r.jsonl", "-g", "contains")
    assert graded.rows[0]["score"]["pass"] is False, "hints may change, they are for graders"


def test_an_interrupted_replay_is_resumed_only_from_the_same_content(assay, recorded, tmp_path):
    words = ["capture", "p.jsonl", "-s", "replay:r.jsonl", "-g", "contains", "-o", "out.jsonl"]
    assert assay(*words).code == 0
    out = tmp_path / "out.jsonl"
    whole = out.read_text()
    out.write_text("".join(whole.splitlines(keepends=True)[:2]))
    (tmp_path / "moved.jsonl").write_text(recorded.read_text())
    moved = [word.replace("r.jsonl", "moved.jsonl") if "replay" in word else word for word in words]
    done = assay(*moved, "--resume")
    assert done.code == 0, done.stderr
    assert "2 of 2 trials" in done.stderr
    assert rows(out).keys() == rows(recorded).keys()
    recorded.write_text(recorded.read_text().replace("42", "43", 1))
    refused = assay(*words, "--resume")
    assert refused.code == 1
    assert "the version of the agent's program" in refused.stderr


def test_run_and_extract_give_the_same_rows(assay, recorded, tmp_path):
    assay("run", "p.jsonl", "-s", "replay:r.jsonl", "-o", "raw.jsonl")
    done = assay("extract", "raw.jsonl", "-s", "replay:r.jsonl")
    captured = {row["id"]: row for row in assay("capture", "p.jsonl", "-s", "replay:r.jsonl").rows}
    assert {row["id"]: row["trajectory"] for row in done.rows} == {
        prompt_id: row["trajectory"] for prompt_id, row in captured.items()
    }


@pytest.mark.parametrize("flag", ["--isolate", "--sandbox"])
def test_it_runs_where_the_agent_is_shut_in(assay, recorded, request, flag):
    if flag == "--sandbox":
        request.getfixturevalue("bubblewrap")
    done = assay("capture", "p.jsonl", "-s", "replay:r.jsonl", "--filter", "sum", flag)
    assert done.code == 0, done.stderr
    assert done.rows[0]["output"] == rows(recorded)["sum"]["output"]


def test_the_output_may_not_be_what_is_replayed(assay, recorded):
    words = ["capture", "p.jsonl", "-s", "replay:r.jsonl", "-o", "r.jsonl", "--overwrite"]
    assert assay(*words).code == 2
    assert rows(recorded).keys() == {"sum", "note", "talk", "crash"}


@pytest.mark.parametrize(
    ("text", "said"),
    [("", "no trials to replay"), ('{"id": "a"}', "input"), ('{"id": "a", "inp', ":1: ")],
)
def test_a_file_without_trials_is_refused(assay, tmp_path, text, said):
    write(tmp_path / "p.jsonl", PROMPTS[:1])
    (tmp_path / "bad.json").write_text(text)
    done = assay("capture", "p.jsonl", "-s", "replay:bad.json", "-o", "out.jsonl")
    assert done.code == 1
    assert "bad.json" in done.stderr
    assert said in done.stderr
    assert not (tmp_path / "out.jsonl").exists()
    for name in ("replay", "replay:", "replay:nosuch.jsonl"):
        missing = assay("capture", "p.jsonl", "-s", name)
        assert missing.code == 1
        assert "Traceback" not in missing.stderr


def test_a_judge_can_be_replayed_by_its_question(assay, tmp_path):
    write(tmp_path / "p.jsonl", PROMPTS[:1])
    assay("capture", "p.jsonl", "-s", "demo", "-o", "r.jsonl")
    write(tmp_path / "other.jsonl", [PROMPTS[0] | {"id": "another-id"}])
    done = assay("headless", "-s", "replay:r.jsonl", stdin="")
    assert done.code == 0, done.stderr
    program = [sys.executable, "-m", "assay", "headless", "-s", "replay:r.jsonl"]
    served = assay("capture", "other.jsonl", "--", *program)
    assert served.code == 0, served.stderr
    assert served.rows[0]["output"] == json.loads((tmp_path / "r.jsonl").read_text())["output"]


@pytest.mark.parametrize("file", ["p.jsonl", "raw.jsonl"])
def test_a_file_without_results_is_refused_before_anything_runs(assay, tmp_path, file):
    write(tmp_path / "p.jsonl", PROMPTS[:2])
    assert assay("run", "p.jsonl", "-s", "demo", "-o", "raw.jsonl").code == 0
    done = assay("capture", "p.jsonl", "-s", f"replay:{file}", "-o", "out.jsonl")
    assert done.code == 1
    assert f"{file}:1: no trial to replay: the row has no output" in done.stderr
    assert "--resume" not in done.stderr
    assert not (tmp_path / "out.jsonl").exists()
