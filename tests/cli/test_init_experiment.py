"""assay init finds what a project has for agents, and writes an experiment that runs."""

import json
import subprocess
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

HEAD = "---\nname: {}\ndescription: Write release notes.\n---\n"
FAKES = ("claude", "codex")


@pytest.fixture
def init(assay: Callable[..., Any], tmp_path: Path) -> Callable[..., dict[str, Any]]:
    """Run init where only some agents are installed; return the experiment that it wrote."""

    def run(*agents: str) -> dict[str, Any]:
        programs = tmp_path / "bin"
        programs.mkdir()
        for name in agents:
            (programs / name).write_text("#!/bin/sh\n")
            (programs / name).chmod(0o755)
        done = assay("init", env={"PATH": f"{programs}:/usr/bin:/bin"})
        assert done.code == 0, done.stderr
        assert done.stdout.splitlines()[-1] == "  assay ab evals/experiment.toml"
        return tomllib.loads((tmp_path / "evals" / "experiment.toml").read_text())

    return run


def add_skill(folder: Path, name: str, rules: str = "") -> None:
    (folder / name).mkdir(parents=True)
    (folder / name / "SKILL.md").write_text(HEAD.format(name) + rules)


def test_a_folder_that_is_a_skill_is_measured_from_above(
    assay: Callable[..., Any], init: Callable[..., Any], tmp_path: Path
) -> None:
    add_skill(tmp_path, "relnotes")
    (tmp_path / "SKILL.md").write_text(HEAD.format("relnotes"))
    assert "cd .. && assay init" in assay("init").stderr
    (tmp_path / "SKILL.md").unlink()
    assert init("claude")["arms"]["relnotes"] == {"skills": ["../relnotes"]}


@pytest.mark.parametrize("place", ["skills", ".claude/skills", ".agents/skills", "plugin/skills"])
def test_a_skill(init: Callable[..., Any], tmp_path: Path, place: str) -> None:
    add_skill(tmp_path / place, "relnotes")
    (tmp_path / "CLAUDE.md").write_text("Be brief.")
    found = init("claude", "codex")
    assert found["agent"] == "claude"
    assert found["arms"] == {"control": {}, "relnotes": {"skills": [f"../{place}/relnotes"]}}
    text = (tmp_path / "evals" / "experiment.toml").read_text()
    assert '# [arms.claude]\n# instructions = "../CLAUDE.md"' in text
    assert '# [arms.codex]\n# agent = "codex"' in text


@pytest.mark.parametrize(
    ("name", "arm"),
    [
        ("CLAUDE.md", {"claude": {"instructions": "../CLAUDE.md"}}),
        (".mcp.json", {"servers": {"mcp": "../.mcp.json"}}),
    ],
)
def test_instructions_and_servers(
    init: Callable[..., Any], tmp_path: Path, name: str, arm: dict[str, Any]
) -> None:
    (tmp_path / name).write_text("{}")
    assert init("claude")["arms"] == {"control": {}, **arm}


def test_agents_alone(init: Callable[..., Any]) -> None:
    assert init("claude", "codex")["arms"] == {"control": {}, "codex": {"agent": "codex"}}


def test_one_agent_alone_is_compared_with_another_model(init: Callable[..., Any]) -> None:
    assert init("claude")["arms"] == {"control": {}, "larger": {"model": "NAME"}}


def test_nothing_at_all_compares_the_demo_agents(init: Callable[..., Any]) -> None:
    assert init()["arms"] == {"control": {}, "better": {"agent": "demo:better"}}


def test_from_a_skill_to_a_verdict_in_three_commands(
    assay: Callable[..., Any], tmp_path: Path
) -> None:
    add_skill(tmp_path / "skills", "relnotes", "- release notes: Added, Changed, Fixed\n")
    env = {"PATH": "/usr/bin:/bin", "HOME": str(tmp_path / "home")}
    assert assay("init", env=env).code == 0
    rows = [
        {"id": f"r{n}", "input": f"Write the release notes of 1.{n}", "hint": "Changed"}
        for n in range(10)
    ]
    prompts = tmp_path / "evals" / "prompts.jsonl"
    prompts.write_text("".join(json.dumps(row) + "\n" for row in rows))
    smoke = assay("ab", "evals/experiment.toml", "--smoke", env=env)
    assert smoke.code == 0, smoke.stderr
    done = assay("ab", "evals/experiment.toml", "-k", "2", "-j", "2", env=env)
    assert done.code == 0, done.stderr
    assert "arms differ in: skill relnotes (" in done.stdout
    assert "relnotes helps: 0 % → 100 % of " in done.stdout
    assert done.seconds < 300


def test_what_init_writes_can_be_read_whatever_folders_are_called(
    init: Callable[..., Any], tmp_path: Path
) -> None:
    for name in ("a\x1b[31m\x7fred", "control", "_private"):
        add_skill(tmp_path / "skills", name)
        head = HEAD.format("red")
        (tmp_path / "skills" / name / "SKILL.md").write_text(head)
    found = init("claude")
    assert len(found["arms"]) == 2
    text = (tmp_path / "evals" / "experiment.toml").read_text()
    everything = tomllib.loads(text.replace("\n# [", "\n[").replace("\n# skills", "\nskills"))
    assert {"control", "control-2", "private"} <= set(everything["arms"])
    assert "\x1b" not in text
    paths = [arm["skills"][0] for arm in everything["arms"].values() if "skills" in arm]
    assert all((tmp_path / "evals" / path).is_dir() for path in paths)


def test_a_skill_in_two_places_and_one_that_ab_refuses(
    assay: Callable[..., Any], tmp_path: Path
) -> None:
    add_skill(tmp_path / ".claude/skills", "relnotes")
    add_skill(tmp_path / "skills", "relnotes")
    (tmp_path / ".agents").mkdir()
    (tmp_path / ".agents/skills").symlink_to("../skills")
    (tmp_path / "skills/bare").mkdir()
    (tmp_path / "skills/bare/SKILL.md").write_text("---\nname: bare\n---\n")
    done = assay("init")
    assert "skills/bare/SKILL.md: the head has no description" in done.stderr
    text = (tmp_path / "evals" / "experiment.toml").read_text()
    assert text.count("[arms.relnotes]") == 1
    assert text.count("[arms.relnotes-2]") == 1
    assert "[arms.relnotes-3]" not in text
    assert "bare" not in text


def committed(folder: Path) -> None:
    """Make a repository of a folder."""
    who = ["-c", "user.name=t", "-c", "user.email=t@t"]
    for words in (["init", "-q"], ["add", "."], [*who, "commit", "-qm", "first"]):
        subprocess.run(["git", "-C", str(folder), *words], check=True, capture_output=True)


def test_trials_begin_with_the_repository_as_git_knows_it(
    init: Callable[..., Any], tmp_path: Path
) -> None:
    add_skill(tmp_path / "skills", "relnotes", "- notes: Added\n")
    add_skill(tmp_path / ".claude/skills", "relnotes")
    add_skill(tmp_path / "skills", "other")
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "a.py").write_text("x = 1\n")
    (tmp_path / ".gitignore").write_text("*.log\n")
    (tmp_path / "gone.txt").write_text("x")
    committed(tmp_path)
    (tmp_path / "a.log").write_text("x")
    (tmp_path / "untracked.txt").write_text("x")
    (tmp_path / "gone.txt").unlink()
    found = init("claude")
    treated = Path(next(iter(found["arms"]["relnotes"]["skills"]))).name
    assert (found["template"], treated) == ("project", "relnotes")
    project = tmp_path / "evals" / "project"
    files = {str(path.relative_to(project)) for path in project.rglob("*") if path.is_file()}
    assert files == {".gitignore", "src/a.py", "skills/other/SKILL.md"}
    assert (tmp_path / "evals" / ".gitignore").read_text() == "/project/\n"


def test_cases_of_a_skill_are_its_prompts(assay: Callable[..., Any], tmp_path: Path) -> None:
    add_skill(tmp_path / "skills", "relnotes", "- release notes: Added\n")
    cases = {
        "skill_name": "relnotes",
        "evals": [
            {"id": n, "prompt": f"release notes {n}", "assertions": ["The answer contains 'Added'"]}
            for n in range(6)
        ],
    }
    (tmp_path / "skills/relnotes/evals").mkdir()
    (tmp_path / "skills/relnotes/evals/evals.json").write_text(json.dumps(cases))
    env = {"PATH": "/usr/bin:/bin", "HOME": str(tmp_path / "home")}
    done = assay("init", env=env)
    assert "  The answer contains 'Added' → contains:" in done.stdout
    assert not (tmp_path / "evals" / "prompts.jsonl").exists()
    done = assay("ab", "evals/experiment.toml", "-k", "1", env=env)
    assert "relnotes helps: 0 % → 100 % of " in done.stdout, done.stderr
    arms = sorted(tmp_path.glob("experiments/relnotes/*/relnotes.jsonl"))
    assert '"evals.json"' not in arms[0].read_text()
    refused = assay("init", "other", "--suggest", env=env)
    assert refused.code == 0  # a skill with cases needs no others


def test_what_init_writes_about_a_skill_runs_as_it_is(
    assay: Callable[..., Any], tmp_path: Path
) -> None:
    add_skill(tmp_path / "skills", "relnotes", "- release notes: Added, Changed, Fixed\n")
    env = {"PATH": "/usr/bin:/bin", "HOME": str(tmp_path / "home")}
    assert "3 examples about relnotes" in assay("init", env=env).stdout
    prompts = tmp_path / "evals" / "prompts.jsonl"
    rows = [json.loads(line) for line in prompts.read_text().splitlines()]
    assert [row["hint"] for row in rows] == ["Added", "Added", "42"]
    done = assay("ab", "evals/experiment.toml", "-k", "1", env=env)
    assert done.code == 0, done.stderr
    assert "33 % → 100 % of prompts pass" in done.stdout
    # The grader cannot be passed by a prompt that expects nothing.
    prompts.write_text('{"id": "a", "input": "x"}\n{"id": "b", "input": "x", "hint": " "}\n')
    words = ("capture", prompts, "-s", "demo", "-g", "evals/grader.py", "-g", "contains")
    done = assay(*words, "-o", "r.jsonl", env=env)
    assert done.code == 1
    made = [json.loads(line) for line in (tmp_path / "r.jsonl").read_text().splitlines()]
    assert all("score" not in row and len(row["graderFailures"]) == 2 for row in made)


@pytest.mark.parametrize(
    ("use", "asked"),
    [
        ("Use when asked to greet someone.", "Please greet someone."),
        ("Use this skill when the user wants to cut a release.", "Please cut a release."),
        ("Use when working with PDF files.", "I need help: working with PDF files."),
        ("Use whenever users ask for a summary.", "I need help: a summary."),
    ],
)
def test_a_prompt_that_is_written_from_a_description_is_a_sentence(
    assay: Any, tmp_path: Path, use: str, asked: str
) -> None:
    folder = tmp_path / "skills/own"
    folder.mkdir(parents=True)
    (folder / "SKILL.md").write_text(
        f"---\nname: own\ndescription: Do it our way. {use}\n---\n- Always be kind\n"
    )
    assert assay("init").code == 0
    rows = [
        json.loads(line) for line in (tmp_path / "evals/prompts.jsonl").read_text().splitlines()
    ]
    assert rows[1]["input"] == asked
