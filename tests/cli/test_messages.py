"""What a new user gets wrong first, and what is said then."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from assay.compare.baseline import describe_baseline
from assay.run.process import Launch, _why_not_started

type Assay = Callable[..., Any]
LIKE = Path(__file__).parents[1] / "agents" / "claude_like.pl"


def test_a_misspelt_agent_names_the_nearest_and_lists_only_agents(
    assay: Assay, prompts: Callable[..., Path]
) -> None:
    done = assay("capture", prompts("x"), "-s", "cluade")
    assert done.code == 1
    assert "there is no agent called 'cluade'" in done.stderr
    known = "acp, auggie, claude, cline, codex, copilot, demo, gemini, goose, opencode, qwen"
    assert f"did you mean 'claude'? There are: {known}\n" in done.stderr


@pytest.mark.parametrize("returned", ["1", "0.7", '"yes"'])
def test_what_a_grader_should_return(
    assay: Assay, prompts: Callable[..., Path], tmp_path: Path, returned: str
) -> None:
    (tmp_path / "g.py").write_text(f"def grade(trial): return {returned}\n")
    done = assay("capture", prompts("x"), "--simple", "echo {}", "-g", "g.py")
    shown = returned.replace('"', "'")
    told = f'Invalid grader result: {shown}; return {{"pass": true, "score": 1.0}}, or True or'
    assert told in done.stderr


def test_what_to_do_after_a_grader_failed(
    assay: Assay, prompts: Callable[..., Path], tmp_path: Path
) -> None:
    (tmp_path / "g.py").write_text("def grade(trial): return 1\n")
    words = (prompts("x"), "--simple", "echo {}", "-o", "o.jsonl")
    done = assay("capture", *words, "-g", "g.py")
    then = "fix the grader; then assay grade o.jsonl -g g.py -o o.graded.jsonl"
    assert f"Next: {then}" in done.stderr
    done = assay("capture", *words, "-g", "contians")
    assert "did you mean 'contains'?" in done.stderr


def test_a_file_without_a_grade(assay: Assay, prompts: Callable[..., Path], tmp_path: Path) -> None:
    (tmp_path / "g.py").write_text("x = 1\n")
    done = assay("capture", prompts("x"), "--simple", "echo {}", "-g", "g.py")
    assert "Grader produced no output; it prints {" in done.stderr
    assert "or it is a file that defines grade" in done.stderr


def test_a_broken_json_document_is_not_json_lines(assay: Assay, tmp_path: Path) -> None:
    (tmp_path / "p.jsonl").write_text('{\n "id": "a",\n "input": hi\n}\n')
    done = assay("capture", "p.jsonl", "--simple", "echo {}")
    assert done.code == 1
    assert "p.jsonl:1: this looks like one JSON document over several lines" in done.stderr
    assert "jq -c " in done.stderr


@pytest.mark.parametrize("command", ["compare", "explain", "grade -g contains", "report -o r.html"])
@pytest.mark.parametrize("several", [False, True])
def test_results_that_were_printed_over_lines_are_named(
    assay: Assay, prompts: Callable[..., Path], tmp_path: Path, command: str, several: bool
) -> None:
    assay("capture", prompts("x"), "--simple", "echo {}", "-o", "o.jsonl")
    row = json.loads((tmp_path / "o.jsonl").read_text())
    (tmp_path / "p.json").write_text(json.dumps([row] if several else row, indent=2))
    name, *options = command.split()
    others = ["o.jsonl"] if name == "compare" else []
    done = assay(name, "p.json", *others, *options)
    assert done.code == 1
    assert "p.json:1: this looks like one JSON document over several lines" in done.stderr
    what = "'.[]'" if several else "."
    assert f"jq -c {what} p.json > lines.jsonl" in done.stderr


def test_prompt_is_called_input(assay: Assay, tmp_path: Path) -> None:
    (tmp_path / "p.jsonl").write_text('{"id": "a", "prompt": "hi"}\n')
    done = assay("capture", "p.jsonl", "--simple", "echo {}")
    assert 'rename "prompt" to "input"' in done.stderr


def test_a_nul_is_named(assay: Assay, prompts: Callable[..., Path]) -> None:
    done = assay("capture", prompts("a\0b"), "--simple", "echo {}", "-o", "o.jsonl")
    assert "the prompt has a NUL character, which no program can be given" in done.stderr
    then = "remove the NUL characters from the prompts; then the same command with --overwrite."
    assert f"Next: {then}" in done.stderr
    launch = Launch(argv=["x"], cwd="/", env={}, stdout=1, stderr=2)
    assert "NUL" not in _why_not_started(launch, PermissionError(13, "Permission denied"))


def test_what_an_agent_reads_in_a_repository_is_named(
    assay: Assay, prompts: Callable[..., Path], tmp_path: Path
) -> None:
    (tmp_path / "CLAUDE.md").write_text("Be brief.")
    (tmp_path / ".claude" / "skills" / "mine").mkdir(parents=True)
    done = assay("capture", prompts("x"), "-s", f"claude:{LIKE}")
    reads = f"itself and reads {tmp_path}/CLAUDE.md, {tmp_path}/.claude/skills/mine there;"
    assert reads in done.stderr


def test_the_first_page_has_five_commands_and_help_has_headings(assay: Assay) -> None:
    from assay.cli.help import COMMANDS, FIRST, HEADINGS, SHIPPED, first_page, help_page

    lines = [line for line in first_page().splitlines() if line.startswith("  assay ")]
    assert [line.split()[1] for line in lines] == list(FIRST)
    assert len(FIRST) == 5
    page = help_page()
    for heading in HEADINGS:
        assert f"\n{heading}:\n" in page
    named = [name for names in HEADINGS.values() for name in names]
    assert len(named) == len(set(named))
    assert set(COMMANDS) | set(SHIPPED) <= set(named), "a command has no heading"
    assert all(len(line) <= 80 for line in (*page.splitlines(), *first_page().splitlines()))


def test_a_baseline_of_a_schema_file_names_its_agent(
    assay: Assay, prompts: Callable[..., Path], agent: Callable[..., Path], tmp_path: Path
) -> None:
    rows = [{"id": f"p{n}", "input": "x", "hint": "x"} for n in range(3)]
    words = ("-s", agent(), "-g", "regex:.", "-k", 1, "-o", "run.jsonl")
    assert assay("trials", prompts(*rows), *words).code == 0
    done = assay("baseline", "add", "run.jsonl", "-o", "baseline.jsonl")
    assert done.code == 0, done.stderr
    name = json.loads((tmp_path / "run.jsonl").read_text().splitlines()[0])["metadata"]["agent"]
    shown = describe_baseline(tmp_path / "baseline.jsonl").setup["agent"]
    assert shown == name != "declared"
