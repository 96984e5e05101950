"""demo, init and schemas: what a newcomer types first."""

import json
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.recorded  # `make demo` of the README
def test_demo_runs_the_whole_flow(assay, tmp_path):
    done = assay("demo", "-o", tmp_path / "out")
    assert done.code == 0, done.stderr
    assert "better is better than flaky" in done.stdout or "not enough data" in done.stdout
    lines = done.stdout.splitlines()
    assert len(lines) <= 48, "the story must fit on two screens"
    assert lines[1].startswith("1. Does a skill help?")
    end = lines[lines.index("The verdict") :]
    assert len(end) <= 24
    assert "relnotes helps: 33 % → 100 % of trials pass (+67 points" in end[1]
    assert "$0." in end[1]
    assert Path(end[2].strip()).is_file()
    rows = [
        json.loads(line) for line in (tmp_path / "out" / "results.jsonl").read_text().splitlines()
    ]
    causes = {row["id"]: row["failure"]["cause"] for row in rows if "failure" in row}
    assert causes == {"crash": "agent_crash", "hang": "agent_timeout"}
    assert (tmp_path / "out" / "work" / "prompt-file" / "notes.txt").exists()
    assert len(rows) == 10


def test_init_writes_what_it_says_and_refuses_to_write_over_it(assay, tmp_path):
    first = assay("init", "evals")
    assert first.code == 0
    line = next(text for text in first.stdout.splitlines() if "assay capture" in text)
    done = assay(*line.split()[1:])
    assert done.code == 0, done.stderr
    again = assay("init", "evals")
    assert again.code == 1
    assert "--force" in again.stderr
    assert assay("init", "evals", "--force").code == 0


def test_schemas_are_valid_and_describe_our_rows(assay, tmp_path, agent, prompts):
    import jsonschema

    everything = json.loads(assay("schemas", "--json").stdout)
    for name, schema in everything.items():
        jsonschema.Draft202012Validator.check_schema(schema)
        assert schema["title"] == name
    assert {"PromptInput", "PromptCase", "AdapterSchema", "CaptureResult"} <= everything.keys()
    path = agent()
    jsonschema.validate(json.loads(path.read_text()), everything["AdapterSchema"])
    rows = assay("capture", prompts("hello"), "-s", path).rows
    jsonschema.validate(rows[0], everything["CaptureResult"])


def test_what_the_other_commands_write_fits_its_schema(assay, agent, prompts):
    import jsonschema

    everything = json.loads(assay("schemas", "--json").stdout)
    path, asked = agent(), prompts("hello", "again")
    assay("capture", asked, "-s", path, "-g", "contains:hello", "-o", "r.jsonl")
    made = {
        "TrialResult": assay("trials", asked, "-s", path, "-k", "2", "-g", "contains:x").rows,
        "SummaryResult": assay("summarize", "r.jsonl").rows,
        "RawOutput": assay("run", asked, "-s", path).rows,
    }
    made["TrialEntry"] = made["TrialResult"][0]["trials"]
    made["TrajectoryStep"] = made["TrialEntry"][0]["trajectory"]
    made["GraderResult"] = [row["score"] for row in assay("format", "r.jsonl").rows]
    for name, rows in made.items():
        assert rows
        for row in rows:
            jsonschema.validate(row, everything[name])


def test_schemas_have_the_form_that_the_seed_exports(assay):
    step = json.loads(assay("schemas", "TrajectoryStep").stdout)
    kinds = [one["properties"]["type"] for one in step["oneOf"]]
    assert kinds == [
        {"type": "string", "const": name} for name in ("thought", "message", "tool_call", "plan")
    ]
    prompt = json.loads(assay("schemas", "PromptCase").stdout)
    assert prompt["required"] == ["id", "input"]
    assert prompt["additionalProperties"] is False
    assert prompt["properties"]["timeout"] == {"type": "number"}
    assert prompt["properties"]["metadata"]["additionalProperties"] == {}
    everything = assay("schemas", "--json").stdout
    assert "$ref" not in everything
    assert '"const": 1' in everything


def test_schemas_split_and_unknown_names(assay, tmp_path):
    assert assay("schemas", "--split", "-o", "out").code == 0
    one = json.loads((tmp_path / "out" / "TrialResult.json").read_text())
    assert one["$schema"].endswith("2020-12/schema")
    assert assay("schemas", "--split").code == 2
    unknown = assay("schemas", "Nope")
    assert unknown.code == 1
    assert "CaptureResult" in unknown.stderr


@pytest.mark.parametrize(
    ("where", "why"), [("> /dev/full", "No space left"), (">&-", "it is closed")]
)
@pytest.mark.parametrize("words", ["schemas --json", "run p.jsonl --shell true"])
def test_a_stdout_that_takes_nothing_is_said(assay, tmp_path, words, where, why):
    (tmp_path / "p.jsonl").write_text('{"id": "a", "input": "x"}')
    line = f"{sys.executable} -m assay {words} {where}"
    done = subprocess.run(["/bin/sh", "-c", line], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 1
    assert f"cannot write to stdout: {why}" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("words", [["--help"], ["-h"]])
def test_help_lists_every_command(assay, words):
    done = assay(*words)
    assert done.code == 0
    for name in ("capture", "trials", "compare", "schemas", "demo"):
        assert f"  {name} " in done.stdout


def test_version(assay):
    assert assay("--version").stdout.strip() == assay("-v").stdout.strip() == "0.1.0"


def test_the_demo_overwrites_nobodys_files(assay, tmp_path):
    (tmp_path / "ex").mkdir()
    (tmp_path / "ex" / "prompts.jsonl").write_text("mine")
    done = assay("demo", "-o", tmp_path / "ex")
    assert done.code == 1
    assert "is not empty" in done.stderr
    assert (tmp_path / "ex" / "prompts.jsonl").read_text() == "mine"
