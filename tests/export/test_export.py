"""assay export: which trials become which examples, and what is said about the others."""

import csv
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from assay.cli.schemas import all_kinds
from assay.export.table import COLUMNS
from assay.records.catalogue import json_schema

SHAPES = {
    "sft": "SftExample",
    "dpo": "DpoExample",
    "kto": "KtoExample",
    "sharegpt": "ShareGptExample",
    "atif": "AtifExample",
    "table": "TableRow",
}


def rows(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


@pytest.fixture
def export(assay, results, tmp_path):
    """Export one of the files; give the examples and the summary."""

    import jsonschema

    def run(kind: str, *words: Any, of: str = "captures", env: Any = None) -> Any:
        out = tmp_path / f"{kind}.jsonl"
        done = assay(
            "export", kind, results[of], "-o", out, "--overwrite", "--json", *words, env=env
        )
        assert done.code == 0, done.stderr
        summary = json.loads(done.stderr.splitlines()[-1])
        for example in rows(out):
            jsonschema.validate(example, json_schema(kind, all_kinds()[SHAPES[kind]]))
        return rows(out), summary

    return run


def test_a_conversation_has_calls_and_results_in_their_order(export):
    examples, _ = export("sft")
    [work] = [one for one in examples if one["id"] == "work"]
    call, read = work["messages"][1], work["messages"][3]
    assert [message["role"] for message in work["messages"]] == [
        "user",
        "assistant",
        "tool",
        "assistant",
        "tool",
        "assistant",
    ]
    assert work["messages"][0] == {"role": "user", "content": "Task work"}
    assert call == {
        "role": "assistant",
        "content": "Let me look.",
        "tool_calls": [
            {
                "id": "c1",
                "type": "function",
                "function": {"name": "Bash", "arguments": {"command": "ls"}},
            }
        ],
    }
    assert work["messages"][2] == {
        "role": "tool",
        "tool_call_id": "c1",
        "name": "Bash",
        "content": "a.txt",
    }
    assert work["messages"][4]["tool_call_id"] == read["tool_calls"][0]["id"]
    assert json.loads(work["messages"][4]["content"]) == {"lines": ["x"]}
    assert work["messages"][-1] == {"role": "assistant", "content": "It says x."}


def test_a_tool_is_described_alike_in_all_examples(export):
    examples, _ = export("sft")
    tools = {one["id"]: [tool["function"] for tool in one["tools"]] for one in examples}
    assert tools["fail"] == []
    assert [tool["name"] for tool in tools["work"]] == ["Bash", "Read"]
    assert tools["work"][1]["parameters"] == {
        "type": "object",
        "properties": {"limit": {"type": "integer"}, "path": {"type": "string"}},
    }


def test_thoughts_are_dropped_or_kept_as_asked(export):
    def texts(*words: str) -> str:
        examples, _ = export("sft", *words)
        return json.dumps([one for one in examples if one["id"] == "work"])

    assert "I look first" not in texts()
    field = json.loads(texts("--thoughts", "field"))[0]["messages"]
    assert field[1]["reasoning_content"] == "I look first."
    assert field[-1] == {
        "role": "assistant",
        "content": "It says x.",
        "reasoning_content": "Now I know.",
    }
    tags = json.loads(texts("--thoughts", "tags"))[0]["messages"]
    assert tags[-1]["content"] == "<think>\nNow I know.\n</think>\n\nIt says x."


def test_turns_are_put_in_their_places(export):
    examples, _ = export("sft", "--filter", "category=memory")
    assert [(m["role"], m["content"]) for m in examples[0]["messages"]] == [
        ("user", "Remember 42"),
        ("assistant", "I will."),
        ("user", "What was it?"),
        ("assistant", "It is 42."),
    ]


def test_what_was_left_out_is_said_with_its_reason(export, assay, results):
    import jsonschema

    examples, summary = export("sft")
    assert [one["id"] for one in examples] == ["work", "fail", "plain", "talk"]
    assert summary["leftOut"] == {
        "no answer": 1,
        "did not measure the agent (provider error)": 1,
        "not finished (ran out of time)": 1,
    }
    assert (summary["trials"], summary["written"]) == (7, 4)
    assert (summary["thoughtsDropped"], summary["subAgentSteps"]) == (2, 1)
    assert (summary["notPassed"], summary["notGraded"]) == (1, 1)
    jsonschema.validate(summary, json_schema("ExportSummary", all_kinds()["ExportSummary"]))
    said = assay("export", "sft", results["captures"]).stderr
    for text in ("4 examples from 7 trials", "1 no answer", "Dropped 2 thoughts", "--only passed"):
        assert text in said
    assert assay("export", "sft", results["captures"], "-q").stderr == ""


@pytest.mark.parametrize(
    ("words", "ids"),
    [
        (["--only", "passed"], ["work", "talk"]),
        (["--only", "failed"], ["fail"]),
        (["--only", "graded"], ["work", "fail", "talk"]),
        (["--min-score", "0.5"], ["work", "talk"]),
        (["--filter", "category=files", "--filter", "*a*"], ["fail", "plain"]),
        (["--only", "passed", "--filter", "category=mem*"], ["talk"]),
        (["--filter", "category!=files", "--filter", "!*x*,*y*"], ["talk"]),
    ],
)
def test_filters(export, words, ids):
    examples, summary = export("sft", *words)
    assert [one["id"] for one in examples] == ids
    assert sum(summary["leftOut"].values()) + len(ids) == summary["trials"]


def test_pairs_are_the_best_passes_and_the_worst_failures_of_a_prompt(export):
    pairs, summary = export("dpo", of="trials")
    said = [(p["chosen"][-1]["content"], p["rejected"][-1]["content"]) for p in pairs]
    assert said == [("best", "worst"), ("good", "bad")]
    assert {p["prompt"][0]["content"] for p in pairs} == {"Which?"}
    assert (pairs[0]["chosen_trial"], pairs[0]["rejected_trial"]) == (3, 2)
    assert len(pairs[0]["rejected"]) == 6
    assert [tool["function"]["name"] for tool in pairs[0]["tools"]] == ["Bash", "Read"]
    assert summary["leftOut"] == {
        "no failed trial of the prompt": 2,
        "the same as its partner, but graded otherwise": 2,
    }


def test_pairs_are_made_across_files_of_any_kind(assay, results, tmp_path):
    one = {"id": "passes", "input": "Easy?", "output": "no", "trajectory": [], "metadata": {}}
    graded = {"score": {"pass": False, "score": 0}, "timing": {"total": 1}}
    other = one | graded | {"input": "Another text of this id?"}
    (tmp_path / "more.jsonl").write_text(f"{json.dumps(one | graded)}\n{json.dumps(other)}\n")
    done = assay("export", "dpo", results["trials"], "more.jsonl", "--filter", "passes")
    assert [row["rejected"][0]["content"] for row in done.rows] == ["no"]
    assert "1 no passed trial of the prompt" in done.stderr


def test_single_verdicts(export):
    examples, summary = export("kto")
    assert [(one["id"], one["label"]) for one in examples] == [("work", True), ("fail", False)]
    assert len(examples[0]["completion"]) == 5
    assert summary["leftOut"]["several turns"] == 1
    assert summary["leftOut"]["not graded"] == 1


def test_atif_has_a_step_for_each_message_and_results_with_their_calls(export):
    examples, summary = export("atif", "--thoughts", "field")
    [work] = [one for one in examples if one["extra"]["task"] == "work"]
    assert [step["step_id"] for step in work["steps"]] == [*range(1, len(work["steps"]) + 1)]
    assert work["steps"][0]["source"] == "user"
    calls = [step for step in work["steps"] if "tool_calls" in step]
    assert calls
    for step in calls:
        [call], [result] = step["tool_calls"], step["observation"]["results"]
        assert call["tool_call_id"] == result["source_call_id"]
        assert isinstance(result["content"], str)
    graded = [one["extra"] for one in examples if "rewards" in one["extra"]]
    assert graded
    assert all(0 <= extra["rewards"]["reward"] <= 1 for extra in graded)
    left_out = sum(summary["leftOut"].values())
    assert len(examples) == summary["written"] == summary["trials"] - left_out


def test_sharegpt_alternates(export):
    examples, _ = export("sharegpt")
    pairs = examples[0]["conversations"]
    speakers = [pair["from"] for pair in pairs]
    assert speakers == [
        "human",
        "function_call",
        "observation",
        "function_call",
        "observation",
        "gpt",
    ]
    assert json.loads(pairs[1]["value"]) == {"name": "Bash", "arguments": {"command": "ls"}}
    assert [tool["name"] for tool in json.loads(examples[0]["tools"])] == ["Bash", "Read"]


def test_secrets_of_the_environment_are_masked(export, results):
    text = results["captures"].read_text()
    results["captures"].write_text(text.replace("It says x.", "It says hunter2-secret-9!"))
    examples, summary = export("sft", env={"DEPLOY_TOKEN": "hunter2-secret-9!"})
    assert "hunter2-secret" not in json.dumps(examples)
    assert "It says " in examples[0]["messages"][-1]["content"]
    assert summary["masked"] == 1
    table, _ = export("table", env={"DEPLOY_TOKEN": "hunter2-secret-9!"})
    assert "hunter2-secret" not in json.dumps(table)


# What TRL makes of it


def test_trl_reads_conversations(export, read_with_trl, tmp_path):
    for thoughts in ("drop", "field", "tags"):
        examples, _ = export("sft", "--thoughts", thoughts)
        told = read_with_trl("sft", tmp_path / "sft.jsonl")
        assert told["rows"] == examples
        text = told["texts"][0]["text"]
        assert '<tool_call>\n{"name": "Bash", "arguments": {"command": "ls"}}' in text
        assert '"name": "Read"' in text.partition("<|im_start|>user")[0], "the tools are offered"
        assert "<tool_response>\na.txt\n</tool_response>" in text
        assert ("Now I know." in text) == (thoughts != "drop")


def test_trl_reads_pairs(export, read_with_trl, tmp_path):
    pairs, _ = export("dpo", of="trials")
    told = read_with_trl("dpo", tmp_path / "dpo.jsonl")
    assert told["rows"] == pairs
    assert told["texts"][0]["chosen"].startswith("best") or "best" in told["texts"][0]["chosen"]
    assert "Which?" in told["texts"][0]["prompt"]
    assert "Which?" not in told["texts"][0]["rejected"]
    assert [row["label"] for row in told["unpaired"]] == [True, True, False, False]
    assert [row["prompt"] for row in told["extracted"]] == [pair["prompt"] for pair in pairs]


def test_trl_reads_single_verdicts(export, read_with_trl, tmp_path):
    examples, _ = export("kto")
    told = read_with_trl("kto", tmp_path / "kto.jsonl")
    assert told["rows"] == examples
    assert [row["label"] for row in told["texts"]] == [True, False]
    assert "I do not know." in told["texts"][1]["completion"]


def test_trl_reads_sharegpt(export, read_with_trl, tmp_path):
    examples, _ = export("sharegpt")
    told = read_with_trl("sharegpt", tmp_path / "sharegpt.jsonl")
    assert told["rows"] == examples
    assert told["chat"][1]["messages"] == [
        {"role": "human", "content": "Task fail"},
        {"role": "gpt", "content": "I do not know."},
    ]


# The table


@pytest.fixture
def table(assay, results, tmp_path):
    def write(name: str) -> Path:
        files = [results["captures"], results["trials"]]
        done = assay("export", "table", *files, "-o", name)
        assert done.code == 0, done.stderr
        assert "15 rows from 15 trials" in done.stderr
        return tmp_path / name

    return write


def test_a_table_is_read_by_duckdb_and_pandas(table):
    import duckdb
    import pandas

    parquet, text, lines = (str(table(f"t{suffix}")) for suffix in (".parquet", ".csv", ".jsonl"))
    by_file = "SELECT parse_filename(file), count(*), avg(score) FROM $1 GROUP BY 1 ORDER BY 1"
    for path in (parquet, text, lines):
        found = duckdb.sql(by_file.replace("$1", f"'{path}'")).fetchall()
        assert [row[:2] for row in found] == [("captures.jsonl", 7), ("trials.jsonl", 8)]
        assert found[1][2] == pytest.approx(5.1 / 8)
    described = duckdb.sql(f"DESCRIBE SELECT * FROM '{parquet}'").fetchall()
    assert {row[0]: row[1] for row in described} == COLUMNS
    frame = pandas.read_json(lines, lines=True)
    assert list(frame.columns) == list(COLUMNS)
    assert frame.groupby("id")["pass"].mean()["both"] == 0.5
    assert pandas.read_csv(text).shape == (15, len(COLUMNS))


def test_a_table_has_every_trial_also_those_that_measured_nothing(table):
    found = {(row["id"], row["trial"]): row for row in rows(table("t.jsonl"))}
    assert found["down", 1]["cause"] == "provider"
    assert found["down", 1]["measured"] is False
    assert found["down", 1]["pass"] is None
    assert found["both", 2]["tool_names"] == "Bash,Inner,Read"
    assert found["talk", 1]["turns"] == 2
    assert json.loads(found["work", 1]["metadata"]) == {"category": "files", "agent": "x"}
    with table("t.csv").open(newline="") as file:
        cells = list(csv.DictReader(file))
    assert [row["pass"] for row in cells][:3] == ["true", "false", ""]


def test_a_table_needs_a_known_suffix_and_for_parquet_duckdb(assay, results, tmp_path):
    wrong = assay("export", "table", results["trials"], "-o", "t.xlsx")
    assert wrong.code == 2
    assert ".parquet, .csv, .jsonl" in wrong.stderr
    (tmp_path / "sitecustomize.py").write_text("import sys\nsys.modules['duckdb'] = None\n")
    env = {"PYTHONPATH": str(tmp_path)}
    lacking = assay("export", "table", results["trials"], "-o", "t.parquet", env=env)
    assert lacking.code == 1
    assert "pip install '.[query]'" in lacking.stderr
    assert not (tmp_path / "t.parquet").exists()
    assert assay("export", "table", results["trials"], "-o", "t.csv", env=env).code == 0


# Wrong input


@pytest.mark.parametrize("kind", ["sft", "dpo", "kto", "sharegpt", "table"])
@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("", "no trials"),
        ('{"id": "a", "input": "x", "output": "y", "traj', ":1: "),
        ("[1, 2]", ":1: "),
        ('{"id": "a", "input": "x"}', "neither a capture nor trials"),
        ('{"id": "a", "input": "x", "k": 1, "trials": []}', "no trials"),
    ],
)
def test_a_file_that_holds_no_trials_is_refused_and_leaves_no_output(
    assay, tmp_path, kind, content, said
):
    (tmp_path / "in.jsonl").write_text(content)
    done = assay("export", kind, "in.jsonl", "-o", "out.jsonl")
    assert done.code == 1
    assert "in.jsonl" in done.stderr
    assert said in done.stderr
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "out.jsonl").exists()


def test_a_truncated_last_line_is_named(assay, results, tmp_path):
    text = results["captures"].read_text()
    results["captures"].write_text(text[:-40])
    done = assay("export", "sft", results["captures"], "-o", "out.jsonl")
    assert done.code == 1
    assert "captures.jsonl:7: " in done.stderr
    assert not (tmp_path / "out.jsonl").exists()


def test_pairs_of_ungraded_trials_say_how_to_grade(assay, results):
    lines = [json.loads(line) for line in results["captures"].read_text().splitlines()]
    for line in lines:
        line.pop("score", None)
    results["captures"].write_text("".join(json.dumps(line) + "\n" for line in lines))
    for kind in ("dpo", "kto"):
        done = assay("export", kind, results["captures"])
        assert (done.code, done.stdout) == (1, "")
        assert "not graded" in done.stderr
        assert "assay grade FILE -g GRADER" in done.stderr


def test_a_prompt_with_passes_only_has_no_pairs(assay, results):
    done = assay("export", "dpo", results["trials"], "--filter", "passes")
    assert done.code == 1
    assert "2 no failed trial of the prompt" in done.stderr
    assert "assay trials with -k" in done.stderr


def test_a_prompt_without_turns_is_left_out(assay, tmp_path):
    row = {"id": "a", "input": [], "output": "x", "trajectory": [], "timing": {"total": 1}}
    (tmp_path / "in.jsonl").write_text(json.dumps(row | {"score": {"pass": True, "score": 1}}))
    for kind in ("sft", "dpo", "kto", "sharegpt"):
        done = assay("export", kind, "in.jsonl")
        assert done.code == 1
        assert "1 no prompt" in done.stderr
    assert assay("export", "table", "in.jsonl").rows[0]["turns"] == 0


def test_usage(assay, results):
    assert assay("export").code == 2
    assert assay("export", "sft").code == 2
    assert assay("export", "nonsense", results["trials"]).code == 2
    assert assay("export", "sft", "-", "-", stdin="{}").code == 2
    assert assay("export", "sft", results["trials"], "--min-score", "2").code == 2
    same = assay("export", "sft", results["trials"], "-o", results["trials"], "--overwrite")
    assert same.code == 2
    again = assay("export", "sft", "nosuch.jsonl")
    assert again.code == 1
    assert "nosuch.jsonl" in again.stderr


def test_stdin_and_stdout(assay, results):
    piped = assay("export", "sft", "-", stdin=results["trials"].read_text())
    assert piped.stdout == assay("export", "sft", results["trials"], "-o", "-").stdout
    assert len(piped.rows) == 8


def test_memory_does_not_grow_with_the_file(assay, tmp_path):
    row = {"id": "p", "input": "x", "output": "y" * 20_000, "trajectory": [], "metadata": {}}
    row |= {"timing": {"total": 1}, "score": {"pass": True, "score": 1}}
    with (tmp_path / "big.jsonl").open("w") as file:
        for number in range(5_000):
            row["id"], row["score"]["pass"] = f"p{number // 2}", bool(number % 2)
            row["output"] = f"{number} " + "y" * 20_000
            file.write(json.dumps(row) + "\n")
    for kind in ("sft", "dpo", "table"):
        done = assay("export", kind, "big.jsonl", "-o", f"{kind}.jsonl", measure=True)
        assert done.code == 0
        assert done.peak_mb < 100, kind


def test_a_reader_that_closes_its_end_early_ends_it_quietly(results, tmp_path):
    line = f"{sys.executable} -m assay export table {results['trials']} -q | head -n 1"
    done = subprocess.run(
        ["bash", "-c", line], cwd=tmp_path, env=os.environ, capture_output=True, text=True
    )
    assert done.stderr == ""
    assert json.loads(done.stdout)["id"] == "both"


def test_reasons_for_what_was_left_out_begin_with_the_most_frequent(assay, results, tmp_path):
    work, *_ = rows(results["captures"])
    none = [{**work, "id": f"none-{n}", "output": "", "trajectory": []} for n in range(2)]
    down = {**work, "id": "down", "failure": {"cause": "provider", "message": "503"}}
    path = tmp_path / "left.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in (down, work, *none)))
    said = assay("export", "sft", path).stderr
    assert "2 no answer, 1 did not measure the agent (provider error)" in said
