"""Prompt files of other formats, from the command line to a verdict."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest

JUDGE = r"""import json, re, sys
question = sys.argv[-1]
code = re.findall(r'"code": "([0-9a-f]{32})"', question)[-1]
stated = question.partition("RUBRIC")[2].partition("BEGIN")[0]
said = re.search(r"BEGIN output \w+\n(.*)\nEND output", question, re.S)[1]
found = [{"criterion": int(n), "pass": "Changed" in said or "polite" in text, "quote": said[:20],
          "reasoning": "seen"} for n, text in re.findall(r"(?m)^(\d+)\. (.*)$", stated)]
print(json.dumps({"type": "result", "result": json.dumps({"code": code, "criteria": found})}))
"""
SKILL = "---\nname: {0}\ndescription: Write {0} as we do.\n---\n- {1}\n"


@pytest.fixture
def judge(tmp_path: Path) -> Any:
    """Write a scripted judge that finds statements true if the answer says Changed."""

    def write() -> str:
        (tmp_path / "judge.py").write_text(JUDGE)
        schema = {
            "version": 1,
            "name": "scripted-judge",
            "command": [sys.executable, "-I", "-S", str(tmp_path / "judge.py")],
            "sessionMode": "stream",
            "prompt": {},
            "output": {"flag": "", "value": ""},
            "result": {"matchPath": "$.type", "matchValue": "result", "contentPath": "$.result"},
        }
        (tmp_path / "judge.json").write_text(json.dumps(schema))
        return "judge:agent=judge.json"

    return write


@pytest.fixture
def skill(tmp_path: Path) -> Any:
    """Write a skill with cases."""

    def write(name: str, rule: str, evals: list[dict[str, Any]]) -> Path:
        folder = tmp_path / "skills" / name
        (folder / "evals").mkdir(parents=True)
        (folder / "SKILL.md").write_text(SKILL.format(name, rule))
        cases = json.dumps({"skill_name": name, "evals": evals}, indent=1)
        (folder / "evals" / "evals.json").write_text(cases)
        return folder

    return write


NOTES = {
    "prompt": "Write the release notes of 1.2",
    "assertions": ["The answer contains 'Changed'", "The tone is polite"],
}


def test_a_skill_with_evals_needs_one_command_for_a_verdict(assay, skill, judge) -> None:
    skill("relnotes", "release notes: Added, Changed", [{**NOTES, "id": n} for n in range(8)])
    evals = "skills/relnotes/evals/evals.json"
    words = ("ab", evals, "-s", "demo", "--with", "skill=skills/relnotes", "-k", 1, "-j", 2)
    refused = assay(*words)
    assert refused.code == 1
    assert f'{evals}, case 1: "expect.judge": 1 statement and no judge' in refused.stderr
    assert "-g judge:agent=claude" in refused.stderr
    done = assay(*words, "-g", judge())
    assert done.code == 0, done.stderr
    assert "8 checked by graders, 8 put to a judge, 0 not mapped" in done.stderr
    assert "relnotes helps: 0 % → 100 % of prompts pass" in done.stdout


def test_a_table_says_what_each_skill_does_to_its_own_cases_and_to_others(
    assay, skill, tmp_path
) -> None:
    greet = {"prompt": "greet me", "expectations": ["The reply mentions 'good day'"]}
    skill("relnotes", "release notes: Changed", [{**NOTES, "id": n} for n in range(6)])
    skill("greet", "greet: Good day\n- notes: none", [{**greet, "id": n} for n in range(6)])
    words = ("ab", "--skills", "skills/*", "-s", "demo", "-g", "judge:agent=none")
    done = assay(*words, "-k", 2, "-j", 2)
    assert done.code == 0, done.stderr
    assert "  relnotes: own 0 → 100 % (+100, " in done.stdout
    assert ": helps | others 0 → 0 % (+0, " in done.stdout
    (verdict,) = tmp_path.glob("experiments/skills/*/verdict.json")
    short = verdict.with_suffix(".md").read_text()
    assert "- relnotes: own 0 → 100 % (+100, " in short
    assert ": helps | others 0 → 0 % (+0, " in short.replace("\\|", "|")
    effects = json.loads(verdict.read_text())["skills"]
    assert [(one["skill"], one["cases"], one["nPrompts"]) for one in effects] == [
        *(("greet", "own", 6), ("greet", "others", 6)),
        *(("relnotes", "own", 6), ("relnotes", "others", 6)),
    ]
    both = assay(*words, "--with", "skill=skills/greet")
    assert "--skills has the treatments" in both.stderr


def test_each_statement_has_a_verdict_and_a_quotation(assay, tmp_path, prompts, judge) -> None:
    file = prompts({"id": "a", "input": "x", "expect": {"judge": ["It is polite", "It is long"]}})
    words = ("capture", file, "--simple", "echo hello {}", "-o", "r.jsonl", "--overwrite")
    assert assay(*words, "-g", judge()).code == 0
    (row,) = [json.loads(line) for line in (tmp_path / "r.jsonl").read_text().splitlines()]
    assert row["score"]["pass"] is False
    assert row["score"]["score"] == 0.5
    said = {"quote": "hello x", "reasoning": "seen", "quoteFound": True}
    assert row["grades"]["judge"]["outcome"]["criteria"] == [
        {"criterion": "It is polite", "pass": True, **said},
        {"criterion": "It is long", "pass": False, **said},
    ]
    # Rows are judged later by the judge that the command line names, and by nobody else.
    assert assay(*words, "-g", "judge:agent=none").code == 0
    assert '"expect.judge": 2 statements and no judge' in assay("grade", "r.jsonl").stderr
    graded = assay("grade", "r.jsonl", "-g", judge())
    assert graded.rows[0]["score"]["score"] == 0.5


def test_a_judge_without_a_rubric_needs_statements(assay, prompts) -> None:
    done = assay("capture", prompts("x"), "-s", "demo", "-g", "judge:agent=demo")
    assert "the judge has no rubric, and no prompt states what it should judge" in done.stderr


def test_fields_that_nobody_reads_are_named_with_the_one_that_was_meant(assay, prompts) -> None:
    file = prompts(
        {"id": "a", "input": "x", "hnit": "y", "custom": 1},
        {"id": "b", "input": "x", "expected": "y", "prompt": "z"},
    )
    done = assay("capture", file, "--simple", "echo {}", "-o", "r.jsonl")
    assert done.code == 0
    named = (("hnit", "hint"), ("expected", 'hint" or "expect'), ("prompt", "input"))
    for name, meant in named:
        said = f'"{name}" of 1 prompt is not a field of a prompt and is not used.'
        assert f'{said} Did you mean "{meant}"?' in done.stderr
    assert "custom" not in done.stderr


def test_other_commands_read_the_same_files(assay, skill, tmp_path) -> None:
    cases = [{**NOTES, "id": "a", "category": "x"}, {**NOTES, "id": "b", "should_trigger": False}]
    skill("relnotes", "release notes: Changed", cases)
    evals = "skills/relnotes/evals/evals.json"
    assert '"x"' in assay("balance", evals).stdout
    words = ("trigger", "skills/relnotes", "--cases", evals, "-s", "demo:skilled", "-k", 1)
    done = assay(*words, "-o", "t.jsonl")
    assert "case" in done.stdout, done.stderr
    (tmp_path / "c.csv").write_text("input,reference,expect.contains\nx,Paris,Par\n")
    assert '"passes":true' in assay("validate-refs", "c.csv").stdout


def test_a_configuration_of_promptfoo_with_an_assertion_in_a_file(assay, tmp_path) -> None:
    (tmp_path / "check.py").write_text(
        "def get_assert(output, context):\n"
        "    found = context['vars']['who'] in output\n"
        "    return {'pass': found, 'score': 0.5, 'reason': 'looked'}\n"
    )
    (tmp_path / "promptfooconfig.yaml").write_text(
        "prompts: ['greet {{who}}']\n"
        "tests:\n"
        "  - vars: {who: Bob}\n"
        "    assert:\n"
        "      - {type: python, value: 'file://check.py'}\n"
        "      - {type: cost, threshold: 0.5}\n"
    )
    done = assay("trials", "promptfooconfig.yaml", "-s", "demo", "-k", 2, "-o", "t.jsonl")
    assert done.code == 0, done.stderr
    (row,) = [json.loads(line) for line in (tmp_path / "t.jsonl").read_text().splitlines()]
    assert row["passRate"] == 1.0
    grades = row["trials"][0]["grades"]
    assert grades["check"]["reasoning"] == "looked"
    assert grades["limits"]["reasoning"] == "within limits"
    again = assay("grade", "t.jsonl", "--prompts", "promptfooconfig.yaml")
    assert again.code == 0, again.stderr
