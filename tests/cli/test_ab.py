"""assay ab: an agent that really reads its folder, with and without a treatment."""

import json
import os
import re
import shutil
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.report.test_html import blocks

import assay as library
from assay.stats.sequential import FEWEST_UNITS

LIKE = Path(__file__).parents[1] / "agents" / "claude_like.pl"
AGENT = f"claude:{LIKE}"
SKILL = "---\nname: relnotes\ndescription: Write release notes.\n---\nMagic word: plum\n"


SHARED = "share-home = true"
"""The agents of an experiment then read the skills in the user's HOME."""


class Project:
    """A user's folder: prompts, a skill, and what `assay ab` makes there."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.write_prompts(8)
        self.write("skills/relnotes/SKILL.md", SKILL)
        self.home = folder / "home"
        self.home.mkdir()

    def write(self, name: str, text: str) -> Path:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path

    def write_prompts(self, n: int, hint: str = "plum") -> None:
        rows = [{"id": f"p{i}", "input": f"What is {i}?", "hint": hint} for i in range(n)]
        self.write("prompts.jsonl", "".join(json.dumps(row) + "\n" for row in rows))

    def experiment(self, arms: str, top: str = "", k: int = 1) -> Path:
        text = f'prompts = "prompts.jsonl"\ngraders = ["contains"]\nagent = "{AGENT}"\nk = {k}\n'
        return self.write("experiment.toml", f'name = "mine"\n{text}{top}\n{arms}')

    @property
    def env(self) -> dict[str, str]:
        cache = str(self.home / ".cache")
        log = str(self.folder / "started.txt")
        return {"HOME": str(self.home), "XDG_CACHE_HOME": cache, "LIKE_LOG": log}

    @property
    def runs(self) -> list[Path]:
        return sorted((self.folder / "experiments").glob("*/*"))

    @property
    def run(self) -> Path:
        assert len(self.runs) == 1, self.runs
        return self.runs[0]

    def verdict(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads((self.run / "verdict.json").read_text())
        return found

    def rows(self, arm: str) -> list[dict[str, Any]]:
        return [json.loads(line) for line in (self.run / f"{arm}.jsonl").read_text().splitlines()]

    @property
    def started(self) -> list[str]:
        """The folders in which agents were started, in order."""
        path = self.folder / "started.txt"
        return path.read_text().splitlines() if path.exists() else []


SKILL_ARMS = '[arms.control]\n[arms.relnotes]\nskills = ["skills/relnotes"]\n'
type Ab = Callable[..., Any]


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project(tmp_path)


@pytest.fixture
def ab(assay: Callable[..., Any], project: Project) -> Ab:
    def run(*args: Any, env: dict[str, str] | None = None) -> Any:
        return assay("ab", *args, env={**project.env, **(env or {})})

    return run


def test_a_skill_that_helps(ab: Ab, project: Project) -> None:
    done = ab(project.experiment(SKILL_ARMS, k=2))
    assert done.code == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[0].startswith("arms differ in: skill relnotes (")
    assert lines[0].endswith("), nothing else")
    assert lines[1].startswith("relnotes helps: 0 % → 100 % of ")
    assert "It was used in 16 of 16 trials. Costs as much ($0.000075 a prompt)" in lines[1]
    assert lines[2].startswith("32 of 32 planned trials, $")
    folder = project.run.relative_to(project.folder)
    assert lines[-2] == f"Report: {folder}/report.html"
    assert lines[-1].startswith(f"Next: assay view {folder}. Look first at prompt p")
    assert "relnotes against control: skill relnotes" in done.stderr
    verdict = project.verdict()
    assert verdict["valid"] is True
    assert verdict["verdicts"] == {"relnotes": "better"}
    assert verdict["sentences"] == [lines[1]]
    assert [row["k"] for row in project.rows("control")] == [2] * 8
    made = {path.name for path in project.run.iterdir()}
    assert made >= {"resolved.json", "verdict.json", "verdict.md", "report.html"}
    assert made >= {"control.jsonl", "control.raw", "relnotes.jsonl", "relnotes.raw"}
    assert not [name for name in made if name.endswith(".partial")]
    # Above the verdict, everywhere.
    short = (project.run / "verdict.md").read_text()
    assert short.index("arms differ in: skill relnotes") < short.index("relnotes helps")

    # The arms are interleaved in private folders.
    started = [Path(folder) for folder in project.started]
    assert len({*started}) == 32
    private = project.home / ".cache" / "assay" / "workspaces"
    assert all(folder.parent.parent == private for folder in started)
    blocks = list(zip(started[::2], started[1::2], strict=True))
    for one, other in blocks:  # the same prompt and trial in both arms
        assert one.name == other.name
        assert one.parent != other.parent
    assert len({one.parent for one, _ in blocks}) == 2, "one arm always came first"
    assert {one.name.rpartition("-")[2] for one, _ in blocks[:8]} == {"1"}
    # Nothing in the path tells an agent which arm it is in.
    paths = [str(folder.relative_to(private)) for folder in started]
    assert not [path for path in paths if "relnotes" in path or "control" in path]


def test_without_a_file(ab: Ab, project: Project) -> None:
    args = ("prompts.jsonl", "-s", AGENT, "-g", "contains", "-k", "2")
    done = ab(*args, "--with", "skill=skills/relnotes")
    assert done.code == 0, done.stderr
    assert "relnotes helps: 0 % → 100 % of " in done.stdout
    assert project.run.parent.name == "relnotes"


@pytest.mark.parametrize(
    ("option", "hint", "arm"),
    [
        ("instructions=v2.md", "peach", "v2"),
        ("mcp=servers.json", "adder", "servers"),
        ("model=claude-opus-4-1", "opus", "claude-opus-4-1"),
        ("template=folder", "lemon", "folder"),
    ],
)
def test_other_treatments(ab: Ab, project: Project, option: str, hint: str, arm: str) -> None:
    project.write_prompts(8, hint)
    project.write("v2.md", "Magic word: peach")
    project.write("folder/CLAUDE.md", "Magic word: lemon")
    project.write("servers.json", json.dumps({"mcpServers": {"adder": {"command": "true"}}}))
    done = ab("prompts.jsonl", "-s", AGENT, "-g", "contains", "-k", "1", "--with", option)
    assert done.code == 0, done.stdout
    assert f"{arm} helps: 0 % → 100 % of " in done.stdout
    assert ", nothing else" in done.stdout


def test_a_control_that_has_the_skill_makes_the_verdict_invalid(ab: Ab, project: Project) -> None:
    project.write("home/.claude/skills/relnotes/SKILL.md", SKILL)
    done = ab(project.experiment(SKILL_ARMS, SHARED))
    assert done.code == 4
    assert "INVALID" in done.stdout
    assert "control has the treatment: its agent can read the skill relnotes" in done.stdout
    assert "~/.claude/skills/relnotes/SKILL.md" in done.stdout
    assert "No trial was run." in done.stdout
    assert project.started == [], "money was spent on what is known without it"
    verdict = project.verdict()
    assert (verdict["valid"], verdict["verdicts"]) == (False, {"relnotes": "invalid"})
    assert "INVALID (control has the treatment" in (project.run / "verdict.md").read_text()


def test_trials_of_an_invalid_run_are_not_used_again(ab: Ab, project: Project) -> None:
    project.write_prompts(2)
    file = project.experiment(SKILL_ARMS, k=1)
    done = ab(file, env={"LIKE_BLIND": "1"})
    assert done.code == 4
    assert "When the cause is fixed, run the same command." in done.stderr
    done = ab(file)
    assert done.code == 0, done.stdout
    assert "4 of 4 planned trials, $" in done.stdout
    assert "reused" not in done.stdout
    assert len(project.runs) == 2


def test_a_copy_under_another_name_is_found_by_its_content(ab: Ab, project: Project) -> None:
    project.write("home/.claude/skills/notes/SKILL.md", SKILL)
    done = ab(project.experiment(SKILL_ARMS, SHARED))
    assert done.code == 4
    assert "control has the treatment" in done.stdout


def test_a_copy_with_another_name_in_its_head_is_found_by_its_body(
    ab: Ab, project: Project
) -> None:
    renamed = SKILL.replace("relnotes", "other").replace("release", "all")
    project.write("home/.claude/skills/other/SKILL.md", renamed)
    done = ab(project.experiment(SKILL_ARMS, SHARED, k=1))
    assert done.code == 4
    assert "control has the treatment: its agent can read the skill relnotes" in done.stdout
    assert "(~/.claude/skills/other/SKILL.md)" in done.stdout


TWO_VERSIONS = '[arms.old]\nskills = ["v1/relnotes"]\n[arms.new]\nskills = ["v2/relnotes"]\n'


@pytest.mark.parametrize(
    "old", [SKILL.replace("plum", "fig"), SKILL.replace("Write", "Never write")]
)
def test_two_versions_of_a_skill_are_compared(ab: Ab, project: Project, old: str) -> None:
    project.write("v1/relnotes/SKILL.md", old)
    project.write("v2/relnotes/SKILL.md", SKILL)
    project.experiment(TWO_VERSIONS, k=1)
    done = ab("experiment.toml")
    assert done.code == 0, done.stdout
    words = r"arms differ in: skill relnotes \((\w+); control (\w+)\), nothing else"
    found = re.match(words, done.stdout)
    assert found, done.stdout
    assert found[1] != found[2]
    assert "new against old: skill v2/relnotes (control: v1/relnotes)" in done.stderr
    if "fig" in old:
        assert "new helps: 0 % → 100 % of " in done.stdout


def test_two_versions_that_are_the_same_or_mixed_up_are_invalid(ab: Ab, project: Project) -> None:
    project.write("v1/relnotes/SKILL.md", SKILL)
    project.write("v2/relnotes/SKILL.md", SKILL)
    done = ab(project.experiment(TWO_VERSIONS, k=1))
    assert done.code == 4
    assert "the skill of old and new have the same content" in done.stdout
    project.write("v1/relnotes/SKILL.md", SKILL.replace("plum", "fig"))
    project.write("home/.claude/skills/relnotes/SKILL.md", SKILL)
    done = ab(project.experiment(TWO_VERSIONS, SHARED, k=1))
    assert done.code == 4
    assert "old has the treatment: its agent can read the skill relnotes (~/" in done.stdout


def test_what_is_edited_during_the_run_was_not_measured(
    ab: Ab, project: Project, start: Callable[..., Any], eventually: Callable[..., bool]
) -> None:
    project.experiment(SKILL_ARMS, k=1)
    slow = {"LIKE_S": "0.1"}
    process = start("ab", "experiment.toml", env={**project.env, **slow})
    assert eventually(lambda: len(project.started) > 2, 90)
    project.write("skills/relnotes/SKILL.md", "Not even a skill any more.")
    stdout, stderr = process.communicate(timeout=60)
    assert process.returncode == 0, stderr
    done = ab("status", "--check", env=slow)
    assert done.code == 3
    assert "skills/relnotes has changed" in done.stdout
    project.write("skills/relnotes/SKILL.md", SKILL)
    assert ab("status", "--check", env=slow).code == 0
    assert stdout.splitlines()[0] == ab("experiment.toml", env=slow).stdout.splitlines()[0]


@pytest.mark.parametrize(
    ("row", "words"),
    [
        ({"files": {".claude/skills/relnotes/SKILL.md": SKILL}}, "control has the treatment"),
        ({"files": {".claude/skills/relnotes/SKILL.md": "nothing"}}, "relnotes lacks its"),
        ({"setup": "rm -rf .claude"}, "relnotes lacks its treatment"),
        ({"setup": "mkdir -p .claude/skills; cp -r $SKILLS/* .claude/skills"}, "control has the"),
        ({"setup": "mkdir -p .claude/skills/relnotes; touch .claude/skills/relnotes/more"}, ""),
    ],
)
def test_what_prompts_put_into_the_workspace_belongs_to_the_proof(
    ab: Ab, project: Project, row: dict[str, Any], words: str
) -> None:
    if "setup" in row:
        row = {"setup": row["setup"].replace("$SKILLS", str(project.folder / "skills"))}
    project.write("prompts.jsonl", json.dumps({"id": "p", "input": "?", "hint": "plum", **row}))
    done = ab(project.experiment(SKILL_ARMS, k=1))
    assert done.code == (4 if words else 0), done.stdout
    assert words in done.stdout
    if words:
        assert "by the files or the set-up of prompt p" in done.stdout


@pytest.mark.parametrize("row", [{"files": {"a.txt": "1"}}, {"setup": "touch a.txt"}])
def test_an_agent_that_deletes_its_treatment_spoils_nothing(
    ab: Ab, project: Project, row: dict[str, Any]
) -> None:
    rows = ({"id": f"p{i}", "input": f"{i}?", "hint": "plum", **row} for i in range(3))
    project.write("prompts.jsonl", "".join(json.dumps(one) + "\n" for one in rows))
    experiment = project.experiment(SKILL_ARMS, k=1)
    done = ab(experiment, "--keep-workspaces", "all", env={"LIKE_DELETES": "1"})
    assert "INVALID" not in done.stdout + done.stderr
    assert project.verdict()["valid"] is True
    # Workspaces of a run that is gone are no evidence about the next one.
    shutil.rmtree(project.folder / "experiments")
    n_before = len(project.started)
    again = ab(experiment, "--keep-workspaces", "all")
    assert "INVALID" not in again.stdout + again.stderr
    assert len(project.started) == n_before + 6


def test_a_grader_that_fails_is_named_before_the_rest(ab: Ab, project: Project) -> None:
    grader = "#!/usr/bin/env python3\nimport os\nif not os.path.exists('ok'): raise SystemExit(1)\n"
    grader += 'print(\'{"pass": true, "score": 1}\')\n'
    (file := project.write("bad.py", grader.replace("'ok'", f"'{project.folder}/ok'"))).chmod(0o755)
    project.write_prompts(3)
    words = ("prompts.jsonl", "-s", AGENT, "-k", "1", "--with", "skill=skills/relnotes")
    done = ab(*words, "-g", file)
    assert done.code == 1
    assert "arm control: the grader bad failed: " in done.stderr
    assert len(project.started) == 2
    project.write("ok", "")
    done = ab(*words, "-g", file)
    assert done.code == 0, done.stderr


def test_trials_that_crash_are_said(ab: Ab, project: Project) -> None:
    project.write_prompts(3)
    crash = "test -d .agents && exit 3; echo plum"
    words = ("prompts.jsonl", "--shell", crash, "--with", "skill=skills/relnotes", "-k", "1")
    done = ab(*words, "-g", "contains")
    assert done.code == 4, done.stderr
    assert "UNHEALTHY (relnotes: all 3 trials failed alike: agent crashed)" in done.stdout
    assert "Warning: 1 of 1 trial of relnotes failed (agent crashed: " in done.stderr
    assert "3 of 3 trials of relnotes failed (agent crashed: " in done.stdout


def test_an_arm_that_lacks_its_skill_is_invalid(ab: Ab, project: Project) -> None:
    done = ab(project.experiment(SKILL_ARMS), env={"LIKE_BLIND": "1"})
    assert done.code == 4
    assert "relnotes lacks its treatment: its agent does not list the skill relnotes" in done.stdout


@pytest.mark.parametrize(
    ("kind", "content", "place", "words"),
    [
        ("instructions", "Magic word: peach", "CLAUDE.md", "control has the treatment: CLAUDE.md"),
        ("skills", SKILL, ".claude/skills/relnotes/SKILL.md", "can read the skill relnotes"),
    ],
)
def test_a_template_that_brings_the_treatment_is_found(
    ab: Ab, project: Project, kind: str, content: str, place: str, words: str
) -> None:
    project.write(f"folder/{place}", content)
    project.write("v2.md", content)
    value = '"v2.md"' if kind == "instructions" else '["skills/relnotes"]'
    arms = f"[arms.control]\n[arms.changed]\n{kind} = {value}\n"
    done = ab(project.experiment(arms, 'template = "folder"'))
    assert done.code == 4
    assert words in done.stdout


def test_both_arms_with_the_same_model_are_invalid(ab: Ab, project: Project) -> None:
    arms = '[arms.control]\n[arms.sonnet]\nmodel = "claude-sonnet-4-5"\n'
    done = ab(project.experiment(arms))
    assert done.code == 4
    assert "both control and sonnet used the model claude-sonnet-4-5" in done.stdout


def test_arms_without_a_difference_are_invalid(ab: Ab, project: Project) -> None:
    done = ab(project.experiment("[arms.control]\n[arms.same]\n"))
    assert done.code == 4
    assert "same and control are the same set-up" in done.stdout
    assert ab(project.folder / "experiment.toml").code == 4
    assert len(project.runs) == 1
    assert project.started == []


def test_an_agent_that_is_not_logged_in_is_found_before_the_rest(ab: Ab, project: Project) -> None:
    done = ab(project.experiment(SKILL_ARMS), "--retries", "0", env={"LIKE_LOGGED_OUT": "1"})
    assert done.code == 1
    assert "arm control: auth: " in done.stderr
    assert "log in, or set ANTHROPIC_API_KEY" in done.stderr


def test_smoke_runs_one_trial_of_each_arm_and_they_count(ab: Ab, project: Project) -> None:
    project.write_prompts(3)
    file = project.experiment(SKILL_ARMS, k=2)
    done = ab(file, "--smoke")
    assert done.code == 0, done.stderr
    assert "The smoke trials went well." in done.stdout
    assert "Estimate for 10 more trials: about $" in done.stderr
    assert len(project.started) == 2
    assert not (project.run / "verdict.json").exists()
    assert ab(file).code == 0
    assert len(project.started) == 12
    assert len({*project.started}) == 12


def test_the_same_command_again_runs_nothing(ab: Ab, project: Project) -> None:
    project.write_prompts(3)
    file = project.experiment(SKILL_ARMS, k=2)
    first, again = ab(file), ab(file)
    assert again.code == 0
    assert again.stdout == first.stdout
    assert len(project.started) == 12
    assert ab(file, "--fresh").code == 0
    assert len(project.runs) == 2
    assert len(project.started) == 24


def test_a_changed_skill_runs_only_its_own_arm_again(ab: Ab, project: Project) -> None:
    project.write_prompts(3)
    file = project.experiment(SKILL_ARMS, k=2)
    ab(file)
    project.write("skills/relnotes/SKILL.md", SKILL + "More words.\n")
    done = ab(file, "--reuse", "all")
    assert done.code == 0, done.stderr
    first = project.runs[0].relative_to(project.folder / "experiments")
    other = project.runs[1].relative_to(project.folder / "experiments")
    assert f"6 trials reused from {first}" in done.stdout.replace(str(other), str(first))
    assert "12 of 12 planned trials (6 reused)" in done.stdout
    assert len(project.started) == 18


GRADER = """def grade(input, output, **rest):
    return {{"pass": {word!r} in str(output), "score": 1.0, "reasoning": "looked for {word}"}}
"""


def graded_by(project: Project, word: str) -> tuple[Any, ...]:
    """The command line of an experiment whose grader looks for a word."""
    project.write("judge.py", GRADER.format(word=word))
    words = ("prompts.jsonl", "-s", AGENT, "-k", "2", "--with", "skill=skills/relnotes")
    return (*words, "-g", "judge.py", "-j", "2")


def test_a_changed_grader_grades_the_finished_trials_again(ab: Ab, project: Project) -> None:
    project.write_prompts(3)
    first = ab(*graded_by(project, "plum"))
    assert first.code == 0, first.stderr
    old = project.runs[0]
    before = (old / "relnotes.jsonl").read_bytes()
    done = ab(*graded_by(project, "pear"))
    assert done.code == 0, done.stderr
    assert len(project.started) == 12, "agents were started again"
    assert "graded again" in done.stderr
    assert "12 of 12 planned trials (12 reused)" in done.stdout
    assert "12 trials reused from relnotes/" in done.stdout
    assert (old / "relnotes.jsonl").read_bytes() == before
    (new,) = (path for path in project.runs if path != old)
    rows = [json.loads(line) for line in (new / "relnotes.jsonl").read_text().splitlines()]
    versions = {json.loads(line)["identity"]["graders"]["judge"] for line in before.splitlines()}
    for row in rows:
        assert row["passRate"] == 0
        version = row["identity"]["graders"]["judge"]
        assert version not in versions
        for trial in row["trials"]:
            assert trial["pass"] is False
            assert trial["grades"]["judge"]["version"] == version
            assert trial["earlierGrades"][0]["version"] in versions
            assert trial["metadata"]["reusedFrom"] == f"relnotes/{old.name}"
    verdict = json.loads((new / "verdict.json").read_text())
    assert verdict["regraded"] == 12
    # Back to the first grader: that verdict is there, and nothing is run or graded.
    assert ab(*graded_by(project, "plum")).stdout == first.stdout
    assert len(project.started) == 12


def test_the_estimate_leaves_out_what_is_only_graded_again(ab: Ab, project: Project) -> None:
    project.write_prompts(3)
    assert ab(*graded_by(project, "plum")).code == 0
    done = ab(*graded_by(project, "pear"), "--max-cost", "0.0000001", "--until", "k")
    assert done.code == 0, done.stderr
    assert "Estimate" not in done.stderr
    project.write("skills/relnotes/SKILL.md", SKILL + "More words.\n")
    done = ab(*graded_by(project, "fig"), "--reuse", "all")
    assert "Estimate for 5 more trials" in done.stderr  # after the smoke trial of the other arm


def test_an_interrupted_regrade_goes_on(
    ab: Ab, project: Project, start: Callable[..., Any], eventually: Callable[..., bool]
) -> None:
    project.write_prompts(3)
    assert ab(*graded_by(project, "plum")).code == 0
    words = graded_by(project, "pear")
    # The first gradings are slow, so that it is killed among them; each is noted.
    slow = GRADER.format(word="pear").replace(
        "    return", "    import time; open(NOTES, 'a').write('x'); time.sleep(0.3)\n    return"
    )
    project.write("judge.py", f"NOTES = {str(project.folder / 'graded.txt')!r}\n{slow}")
    notes = project.folder / "graded.txt"
    process = start("ab", *words, env=project.env)
    assert eventually(lambda: notes.exists() and len(notes.read_text()) > 5, 60)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    n_noted = len(notes.read_text())
    assert n_noted < 12
    done = ab(*words)
    assert done.code == 0, done.stderr
    assert len(project.started) == 12
    assert len(notes.read_text()) <= 12 + 2, "what was graded was graded again"
    assert "12 of 12 planned trials (12 reused)" in done.stdout


def test_a_trial_that_cannot_be_graded_again_is_run_again(ab: Ab, project: Project) -> None:
    project.write_prompts(2)
    words = ("prompts.jsonl", "-s", AGENT, "-k", "1", "--with", "skill=skills/relnotes")
    assert ab(*words, "-g", "contains").code == 0
    assert len(project.started) == 4
    # Nobody looked at the folders before these agents started.
    assert ab(*words, "-g", "git").code == 0
    assert len(project.started) == 8
    shutil.rmtree(project.home / ".cache" / "assay" / "workspaces")
    assert ab(*words, "-g", "command:true").code == 0
    assert len(project.started) == 12
    # An answer is enough for this one.
    assert ab(*words, "-g", "exact").code == 0
    assert len(project.started) == 12


def test_a_fixed_grader_grades_what_it_could_not_before(ab: Ab, project: Project) -> None:
    project.write_prompts(2)
    words = ("prompts.jsonl", "-s", AGENT, "-k", "1", "--with", "skill=skills/relnotes")
    project.write("judge.py", "def grade(**rest):\n    raise ValueError('broken')\n")
    assert ab(*words, "-g", "judge.py").code == 1
    assert len(project.started) == 2
    project.write("judge.py", GRADER.format(word="plum"))
    done = ab(*words, "-g", "judge.py")
    assert done.code == 0, done.stderr
    assert len(project.started) == 4
    assert "(2 reused)" in done.stdout


def test_expectations_of_prompts_that_change_grade_again(ab: Ab, project: Project) -> None:
    words = ("prompts.jsonl", "-s", AGENT, "-k", "1", "--with", "skill=skills/relnotes")
    for word, n_helped in (("plum", "+100 points"), ("quince", "0 points")):
        rows = [{"id": f"p{i}", "input": "?", "expect": {"contains": word}} for i in range(2)]
        project.write("prompts.jsonl", "".join(json.dumps(row) + "\n" for row in rows))
        done = ab(*words)
        assert n_helped in done.stdout, done.stdout + done.stderr
    assert len(project.started) == 4


def test_more_trials_reuse_those_that_are_there(ab: Ab, project: Project) -> None:
    project.write_prompts(3)
    ab(project.experiment(SKILL_ARMS, k=2))
    done = ab(project.experiment(SKILL_ARMS, k=3))
    assert "18 of 18 planned trials (12 reused)" in done.stdout, done.stderr
    assert len(project.started) == 18


def test_kill_9_and_the_same_command_goes_on(
    ab: Ab, project: Project, start: Callable[..., Any], eventually: Callable[..., bool]
) -> None:
    project.write_prompts(4)
    file = project.experiment(SKILL_ARMS, k=3)
    env = {**project.env, "LIKE_S": "0.05"}
    process = start("ab", file, "-j", "2", env=env)
    assert eventually(lambda: len(project.started) > 9, 90)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    time.sleep(0.3)
    before = len(project.started)
    assert before < 24
    assert len(kept(project)) >= before - 2 - 2, "finished trials were lost"
    done = ab(file, "-j", "2", env={"LIKE_S": "0.05"})
    assert done.code == 0, done.stderr
    assert "24 of 24 planned trials" in done.stdout
    # Only what was running when it was killed was started a second time.
    assert 24 <= len(project.started) <= 24 + 2 + 2
    numbers = [
        (arm, row["id"], trial["trialNum"])
        for arm in ("control", "relnotes")
        for row in project.rows(arm)
        for trial in row["trials"]
    ]
    assert len(numbers) == len({*numbers}) == 24


def kept(project: Project) -> list[tuple[str, str, int]]:
    """Every finished trial on disk, in rows or in the journal beside them."""
    found = set()
    for path in project.run.glob("*.jsonl*"):
        for line in path.read_text().splitlines():
            row = json.loads(line)
            for trial in row.get("trials") or [row["entry"]]:
                found.add((path.name.partition(".")[0], row["id"], trial["trialNum"]))
    return sorted(found)


def test_ctrl_c_says_how_to_go_on(
    project: Project, start: Callable[..., Any], eventually: Callable[..., bool]
) -> None:
    file = project.experiment(SKILL_ARMS)
    process = start("ab", file, env={**project.env, "LIKE_S": "0.2"})
    assert eventually(lambda: len(project.started) > 3, 90)
    process.send_signal(signal.SIGINT)
    _, stderr = process.communicate(timeout=30)
    assert process.returncode == 130
    assert "run the same command again to go on" in stderr


def test_an_estimate_beyond_the_budget_is_refused(ab: Ab, project: Project) -> None:
    file = project.experiment(SKILL_ARMS, "budget = 0.1", k=2)
    done = ab(file, env={"LIKE_TOKENS": "1000"})
    assert done.code == 1
    assert "the estimate of $0.45 passes the $0.0700 left in the budget" in done.stderr
    assert len(project.started) == 2


def test_a_budget_ends_the_run_and_a_higher_one_goes_on(ab: Ab, project: Project) -> None:
    env = {"LIKE_TOKENS": "1000"}
    done = ab(project.experiment(SKILL_ARMS, "budget = 0.1", k=2), "--yes", env=env)
    assert done.code == 0, done.stderr
    n_first = len(project.started)
    assert n_first * 0.015 <= 0.1 + 0.015
    assert f"{n_first} of 32 planned trials, $" in done.stdout
    assert "The same command with a higher budget runs the rest." in done.stderr
    again = ab(project.experiment(SKILL_ARMS, 'budget = 1.0\nuntil = "k"', k=2), env=env)
    assert "32 of 32 planned trials, $0.48" in again.stdout, again.stderr
    assert len(project.started) == 32


def test_a_spent_budget_stays_spent(ab: Ab, project: Project) -> None:
    env = {"LIKE_TOKENS": "1000"}
    file = project.experiment(SKILL_ARMS, "budget = 0.05")
    ab(file, "--yes", env=env)
    n_first = len(project.started)
    assert n_first * 0.015 <= 0.05 + 0.015
    assert ab(file, "--yes", env=env).code == 0
    assert len(project.started) == n_first


def test_without_money_nothing_is_started(ab: Ab, project: Project) -> None:
    done = ab(project.experiment(SKILL_ARMS), "--max-cost", "0", "--yes")
    assert done.code == 1
    assert "its first trial was not run: the budget is spent" in done.stderr
    assert project.started == []


def test_a_budget_says_how_it_counts_trials_of_unknown_cost(ab: Ab, project: Project) -> None:
    words = ("prompts.jsonl", "--shell", "echo plum", "--with", "skill=skills/relnotes", "-k", "1")
    done = ab(*words, "-g", "contains", "--max-cost", "1.6")
    assert done.code == 0, done.stderr
    assert "Not all agents say what a trial costs. Where one does not, $0.10 is" in done.stderr
    done = ab(*words, "-g", "contains", "--max-cost", "0", "--fresh")
    assert done.code == 1
    assert "the budget is spent" in done.stderr


def test_several_arms_are_each_compared_with_the_control(ab: Ab, project: Project) -> None:
    project.write("v2.md", "Magic word: peach")
    arms = SKILL_ARMS + '[arms.peach]\ninstructions = "v2.md"\n'
    done = ab(project.experiment(arms))
    assert done.code == 0, done.stdout
    assert "relnotes differs from control in: skill relnotes (" in done.stdout
    assert "peach differs from control in: instructions v2.md (" in done.stdout
    assert "relnotes helps: 0 % → 100 % of " in done.stdout
    assert project.verdict()["verdicts"]["relnotes"] == "better"
    assert project.verdict()["verdicts"]["peach"] != "better"


@pytest.mark.parametrize(
    ("args", "code", "words"),
    [
        (("none.jsonl", "-s", AGENT, "--with", "skill=skills/relnotes", "-g", "contains"), 1,
         "none.jsonl"),
        (("none.toml",), 1, "none.toml: No such file"),
        (("prompts.jsonl", "-s", AGENT, "-g", "contains"), 2, "Nothing to compare"),
        (("prompts.jsonl", "--with", "model=a", "-g", "contains"), 2, "No agent given"),
        (("prompts.jsonl", "-s", AGENT, "--with", "model=a"), 1, "no grader judges"),
        (("prompts.jsonl", "-s", AGENT, "--with", "modell=a", "-g", "contains"), 2, "KIND"),
        (("prompts.jsonl", "-s", AGENT, "--with", "skill=none", "-g", "contains"), 1,
         "none is not a skill"),
        (("prompts.jsonl", "-s", AGENT, "--with", "model=a", "--with", "model=b", "-g", "contains"),
         1, "--with model is given twice"),
        (("prompts.jsonl", "-s", AGENT, "--with", "model=a", "-g", "contains", "--ablate"), 2,
         "--ablate needs two to eight --with, not 1"),
        (("prompts.jsonl", "-s", AGENT, *("--with", "skill=skills/relnotes") * 2, "--ablate", "-g",
          "contains"), 2, "--ablate takes each --with once, and has skill=skills/relnotes twice"),
        (("prompts.jsonl", "-s", AGENT, "--with", "skill=skills/relnotes", "--with",
          "skill=skills/copy", "-g", "contains"), 1,
         "skills/relnotes and skills/copy are both a skill named relnotes"),
        (("prompts.jsonl", "-g", "contains", "--matrix", "model=a,b"), 2, "No agent given"),
        (("prompts.jsonl", "-s", AGENT, "-g", "contains", "--matrix", "model=a"), 2,
         "needs two values or more"),
        (("prompts.jsonl", "-g", "contains", "--matrix", "agent=a,b", "--with", "model=a"), 2,
         "cannot be used together"),
        (("experiment.toml", "-s", "codex"), 2, "-s describes an arm: put it into experiment.toml"),
        (("experiment.toml", "--with", "model=a"), 2, "--with describes an arm"),
        (("experiment.toml", "--filter", "none"), 1, "no prompts that match the filter"),
        ((), 2, "Give an experiment, a file of prompts, or --skills"),
    ],
)  # fmt: skip
def test_wrong_use(ab: Ab, project: Project, args: tuple[str, ...], code: int, words: str) -> None:
    project.experiment(SKILL_ARMS)
    project.write("skills/copy/SKILL.md", SKILL)
    done = ab(*args)
    assert done.code == code, done.stderr
    assert words in done.stderr
    assert project.started == []
    assert project.runs == []


class TestStatus:
    def test_nothing_yet(self, ab: Ab, project: Project) -> None:
        done = ab("status")
        assert (done.code, done.stdout) == (0, "There are no experiments in experiments.\n")
        assert ab("status", "--check").code == 4
        assert ab("status", "none").code == 1

    def test_up_to_date_then_stale_then_again_up_to_date(self, ab: Ab, project: Project) -> None:
        project.experiment(SKILL_ARMS, k=1)
        file = Path("experiment.toml")
        ab(file)
        done = ab("status", "--check")
        assert done.code == 0
        assert done.stdout.startswith("mine: up to date: relnotes helps")
        for name, text in (
            ("skills/relnotes/more.txt", "more"),
            ("prompts.jsonl", '{"id": "q", "input": "?", "hint": "plum"}\n'),
            ("experiment.toml", (project.folder / file).read_text().replace("k = 1", "k = 2")),
        ):
            path = project.folder / name
            before = path.read_text() if path.exists() else None
            path.write_text(text)
            done = ab("status", "--check")
            assert done.code == 3, name
            assert "mine: stale: " in done.stdout
            assert name.partition("/more")[0] in done.stdout
            assert ab("status").code == 0
            path.unlink() if before is None else path.write_text(before)
            assert ab("status", "--check").code == 0
        assert len(project.started) == 16

    def test_an_invalid_verdict_is_no_verdict(self, ab: Ab, project: Project) -> None:
        ab(project.experiment("[arms.control]\n[arms.same]\n"))
        done = ab("status", "--check", "--json")
        assert done.code == 4
        assert json.loads(done.stdout)[0]["status"] == "invalid"

    def test_a_run_with_other_graders_is_not_about_the_file(self, ab: Ab, project: Project) -> None:
        project.write_prompts(2)
        project.experiment(SKILL_ARMS)
        assert ab("experiment.toml", "-k", "1", "--limit", "1").code == 0
        done = ab("status", "--check")
        assert done.code == 3
        assert "experiment.toml describes another experiment than was run" in done.stdout
        assert ab("experiment.toml", "-k", "1").code == 0
        assert ab("status", "--check").code == 0

    def test_a_clone_is_judged_as_the_original_is(self, ab: Ab, project: Project) -> None:
        project.write_prompts(1)
        for text in ("1", "2"):
            project.write("skills/relnotes/SKILL.md", SKILL + text)
            assert ab(project.experiment(SKILL_ARMS, k=1)).code == 0
        runs = [run / "verdict.json" for run in project.runs]
        for newest in runs:  # whichever was written last by the clone
            for run in runs:
                os.utime(run, (1, 2 if run == newest else 1))
            assert ab("status", "--check").code == 0

    @pytest.mark.parametrize(
        ("row", "grader", "file"),
        [
            ({}, "command:python3 check.py", "check.py"),
            ({}, "json-schema:sch.json", "sch.json"),
            ({"graders": ["command:python3 check.py"]}, None, "check.py"),
            ({"expect": {"command": "python3 check.py"}}, None, "check.py"),
        ],
    )
    def test_files_of_graders_belong_to_a_verdict(
        self, ab: Ab, project: Project, row: dict[str, Any], grader: str | None, file: str
    ) -> None:
        project.write("check.py", "print(1)\n")
        project.write("sch.json", '{"type": "string"}')
        project.write("prompts.jsonl", json.dumps({"id": "p", "input": "?", **row}) + "\n")
        words = ("prompts.jsonl", "-s", AGENT, "--with", "skill=skills/relnotes", "-k", "1")
        words += ("-g", grader) if grader else ()
        assert ab(*words).code == 0
        assert ab("status", "--check").code == 0
        before = (project.folder / file).read_text()
        project.write(file, before.replace("1", "2").replace("string", "number"))
        done = ab("status", "--check")
        assert done.code == 3
        assert f"{file} has changed" in done.stdout


def test_a_file_that_cannot_be_written_is_found_before_the_first_trial(
    ab: Ab, project: Project
) -> None:
    project.write("shop/real/x", "")
    (project.folder / "shop" / "link").symlink_to("real")
    row = {"id": "q", "input": "?", "hint": "plum", "workspace": "shop", "files": {"link/x": "y"}}
    text = (project.folder / "prompts.jsonl").read_text()
    project.write("prompts.jsonl", text + json.dumps(row) + "\n")
    words = ("prompts.jsonl", "-s", AGENT, "--with", "skill=skills/relnotes", "-g", "contains")
    done = ab(*words)
    assert done.code == 1
    assert 'prompts.jsonl:9: "files": link/x: link is a link in its workspace' in done.stderr
    assert project.started == []


class TestUntilDecided:
    def test_a_clear_case_ends_early_and_the_same_command_repeats_it(
        self, ab: Ab, project: Project
    ) -> None:
        project.write_prompts(20)
        file = project.experiment(SKILL_ARMS, 'until = "decided"', k=3)
        done = ab(file)
        assert done.code == 0, done.stderr
        n = len(project.started)
        assert 2 * FEWEST_UNITS <= n < 60
        assert "relnotes helps: 0 % → 100 % of " in done.stdout
        assert f"{n} of 120 planned trials" in done.stdout
        assert project.verdict()["decisions"]["relnotes"]["outcome"] == "better"
        assert "relnotes helps: 0 % → 100 % of" in (project.run / "verdict.md").read_text()
        again = ab(file)
        first, second = (re.sub(r"\d+ seconds", "", text) for text in (done.stdout, again.stdout))
        assert first == second
        assert len(project.started) == n

    def test_it_is_the_default_if_there_is_a_budget(self, ab: Ab, project: Project) -> None:
        project.write_prompts(20)
        file = project.experiment(SKILL_ARMS, "budget = 1.0", k=1)
        done = ab(file)
        assert done.code == 0, done.stderr
        assert len(project.started) < 40
        assert ab(file, "--until", "k").code == 0
        assert len(project.started) == 40

    def test_no_difference_is_not_called_one(self, ab: Ab, project: Project) -> None:
        project.write_prompts(20, hint="nobody knows")
        file = project.experiment(SKILL_ARMS, 'until = "decided"\neffect = 0.4', k=2)
        done = ab(file)
        assert "relnotes makes no difference of 40 points or more: 0 % → 0 % of " in done.stdout, (
            done.stdout
        )
        assert len(project.started) < 80

    def test_few_prompts_run_all_trials(self, ab: Ab, project: Project) -> None:
        project.write_prompts(FEWEST_UNITS - 1)
        done = ab(project.experiment(SKILL_ARMS, 'until = "decided"', k=1))
        assert f"prompts: fewer than {FEWEST_UNITS} decide nothing early" in done.stderr
        assert len(project.started) == 2 * (FEWEST_UNITS - 1)

    def test_two_treatments_go_on_until_both_are_decided(self, ab: Ab, project: Project) -> None:
        project.write_prompts(20)
        project.write("v2.md", "Nothing.")
        arms = SKILL_ARMS + '[arms.v2]\ninstructions = "v2.md"\n'
        done = ab(project.experiment(arms, 'until = "decided"\neffect = 0.4', k=3))
        assert done.code == 0, done.stderr
        assert project.verdict()["verdicts"] == {"relnotes": "better", "v2": "same"}
        assert len(project.started) < 180


def test_ablation_gives_the_effect_of_each_treatment(ab: Ab, project: Project) -> None:
    project.write("v2.md", "Be brief.")
    words = ("--with", "skill=skills/relnotes", "--with", "instructions=v2.md", "--ablate")
    done = ab("prompts.jsonl", "-s", AGENT, "-g", "contains", "-k", "1", *words)
    assert done.code == 0, done.stderr
    words, relnotes, v2, both = project.verdict()["sentences"]
    assert re.match(
        r"relnotes matters \(\+100 points, \+\d+ to \+100\); v2 does not show an ", words
    )
    alone = "together not shown to be more than relnotes alone (0 points, -"
    assert alone in words
    assert re.fullmatch(r"  relnotes {16}\| *-*o \+100 \(\+\d+ to \+100\)", relnotes), relnotes
    assert re.fullmatch(r"  v2 +-+o-+ +0 \(-\d+ to \+\d+\)", v2), v2
    assert {arm.stem for arm in project.run.glob("*.jsonl")} == {
        "control", "relnotes", "v2", "relnotes+v2"
    }  # fmt: skip
    assert len(project.started) == 4 * 8
    short = (project.run / "verdict.md").read_text()
    page = blocks((project.run / "report.html").read_text())["index"].decode()
    for text in (done.stdout, short.replace("\\", ""), page):
        assert "relnotes matters (" in text
        assert alone in text
    assert both.startswith("relnotes and v2 are not shown to change each other's effect (0 points,")


def test_a_matrix_is_a_leaderboard(ab: Ab, project: Project) -> None:
    axes = ("--matrix", "model=claude-sonnet-4-5,claude-opus-4-1")
    axes += ("--matrix", "skill=none,skills/relnotes")
    done = ab("prompts.jsonl", "-s", AGENT, "-g", "contains", "-k", "1", *axes)
    assert done.code == 0, done.stdout + done.stderr
    ranked = [line.strip() for line in done.stdout.splitlines() if line.startswith("  ")]
    assert {line.split()[1] for line in ranked[:2]} == {
        "claude-sonnet-4-5+relnotes:", "claude-opus-4-1+relnotes:"
    }  # fmt: skip
    assert [line.split()[2] for line in ranked] == ["100", "100", "0", "0"]
    told = " ".join(done.stdout.split())
    assert told.count(" % expected, the best with a chance of ") == 4
    assert "the best with a chance of 5" in told, "of two that are alike each in half of the cases"


def test_an_unhealthy_arm_is_not_ranked_and_leaves_no_effects(ab: Ab, project: Project) -> None:
    project.write("v2.md", "Be brief.")
    words = ("prompts.jsonl", "-s", AGENT, "-g", "contains", "-k", "1", "--retries", "0")
    env = {"LIKE_LOST": "3? 7?"}  # of the arms with the skill
    done = ab(*words, "--matrix", "skill=none,skills/relnotes", env=env)
    assert done.code == 4, done.stderr
    assert (
        "relnotes: not ranked: UNHEALTHY: 25% of the planned trials are not measured" in done.stdout
    )
    both = ("--with", "skill=skills/relnotes", "--with", "instructions=v2.md", "--ablate")
    done = ab(*words, *both, env=env)
    assert done.code == 4, done.stderr
    assert "UNHEALTHY" in done.stdout
    assert "matters" not in done.stdout


def test_prompts_may_bring_graders_files_and_workspaces(ab: Ab, project: Project) -> None:
    """The material of an arm is put into the workspace of a prompt, too."""
    project.write("small/notes.txt", "Old.")
    rows = [
        {"id": f"p{n}", "input": "?", "workspace": "small", "expect": {"contains": "plum"}}
        for n in range(8)
    ]
    project.write("prompts.jsonl", "".join(json.dumps(row) + "\n" for row in rows))
    args = ("prompts.jsonl", "-s", AGENT, "-k", "1")
    done = ab(*args, "--with", "skill=skills/relnotes")
    assert done.code == 0, done.stdout + done.stderr
    assert "arms differ in: skill relnotes (" in done.stdout
    assert ", nothing else" in done.stdout
    assert "relnotes helps: 0 % → 100 % of " in done.stdout
    assert all((Path(folder) / "notes.txt").exists() for folder in project.started)
    assert ab("status", "--check").code == 0
    project.write("small/notes.txt", "New.")
    assert "small has changed" in ab("status").stdout
    project.write("small/.claude/skills/relnotes/SKILL.md", SKILL)
    done = ab(*args, "--with", "skill=skills/relnotes")
    assert done.code == 4
    assert "control has the treatment: its agent can read the skill relnotes" in done.stdout


PROMPTS = ("prompts.jsonl", "-s", AGENT, "-g", "contains", "-k", "1")
WITH_SKILL = ("--with", "skill=skills/relnotes")


def test_quiet_and_json_say_what_a_program_needs(ab: Ab, project: Project) -> None:
    """A verdict that went well needs no word; one that is invalid is said on stderr."""
    done = ab(*PROMPTS, *WITH_SKILL, "--limit", 2, "-q")
    assert (done.code, done.stdout, done.stderr) == (0, "", "")
    done = ab(*PROMPTS, *WITH_SKILL, "--limit", 2, "--json")
    assert json.loads(done.stdout) == project.verdict(), "also of a run that had ended before"
    blind = {"LIKE_BLIND": "1"}
    done = ab(*PROMPTS, *WITH_SKILL, "--limit", 2, "-q", "--fresh", "--name", "blind", env=blind)
    assert (done.code, done.stdout) == (4, "")
    assert done.stderr.startswith("INVALID: ")


def test_smoke_says_when_no_trial_was_run(ab: Ab, project: Project) -> None:
    done = ab(*PROMPTS, *WITH_SKILL, "--limit", 1, "--smoke")
    assert "The smoke trials went well." in done.stdout
    assert "1 prompt x 1 trial x 2 arms" in done.stderr
    done = ab(*PROMPTS, *WITH_SKILL, "--limit", 1, "--smoke")
    assert "went well" not in done.stdout
    assert "of an earlier run" in done.stdout
    assert len(project.started) == 2
    done = ab(*PROMPTS, *WITH_SKILL, "--limit", 1, "--smoke", "-q")
    assert (done.code, done.stdout, done.stderr) == (0, "", "")
    done = ab(*PROMPTS, *WITH_SKILL, "--limit", 1, "--smoke", "--json")
    assert json.loads(done.stdout)["smoke"] == 0


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["--matrix", "agent=demo", "--matrix", "agent=demo:better"], "agent=demo,demo:better"),
        (["--matrix", "agent=demo,,"], "'agent=demo,,' has an empty value"),
        (["--matrix", "agent=demo"], "--matrix needs two values or more"),
        ([*WITH_SKILL, "--name", "../x"], "--name '../x' cannot name a folder"),
    ],
)
def test_a_wrong_command_line_is_wrong_usage(
    ab: Ab, project: Project, args: list[str], said: str
) -> None:
    done = ab("prompts.jsonl", "-s", "demo", "-g", "contains", *args)
    assert done.code == 2, done
    assert said in done.stderr
    assert project.runs == []


def test_a_size_in_the_file_is_named_by_its_line(ab: Ab, project: Project) -> None:
    done = ab(project.experiment(SKILL_ARMS, top="memory = 'lots'"))
    assert done.code == 1
    assert "experiment.toml:6: memory: must be a size such as 512M or 4G, not 'lots'" in done.stderr
    done = ab(project.experiment(SKILL_ARMS, top="memory = '1K'"))
    assert done.code == 1
    assert "memory: '1K' is not a size of at least 1M" in done.stderr


def test_status_from_another_folder_and_of_a_damaged_verdict(
    assay: Callable[..., Any], ab: Ab, project: Project
) -> None:
    assert ab(project.experiment(SKILL_ARMS, top="limit = 2", k=1)).code == 0
    below = project.folder / "below"
    below.mkdir()
    from_below = assay("ab", "status", "-o", "../experiments", "--check", cwd=below)
    assert from_below.code == 0, from_below
    assert from_below.stdout.startswith("mine: up to date: ")
    project.write("experiments/broken/1/verdict.json", "{")
    done = ab("status", "--check")
    first, second = done.stdout.split("\n\n")
    assert (done.code, first.count("\n"), second.count("\n")) == (4, 0, 1)
    assert first.startswith("broken: unreadable: experiments/broken/1/verdict.json: ")
    assert second.startswith("mine: up to date: ")
    assert ab("status", "--help").stdout.startswith("Usage: assay ab status ")


MEMORY = """\
import os, pathlib
memory = pathlib.Path.home() / ".remembered"
if pathlib.Path("facts.txt").exists():
    memory.write_text("blue")
print(memory.read_text() if memory.exists() else "no idea")
print(os.environ.get("CHOSEN"))
"""


@pytest.fixture
def remembering(tmp_path, monkeypatch):
    """An agent that keeps what it learns in HOME, and a template that teaches it."""
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("CHOSEN", "small")
    (tmp_path / "home").mkdir()
    (tmp_path / "agent.py").write_text(MEMORY)
    (tmp_path / "tpl").mkdir()
    (tmp_path / "tpl" / "facts.txt").write_text("blue")
    rows = [{"id": f"p{n}", "input": f"{n}?", "hint": "blue"} for n in range(4)]
    (tmp_path / "p.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return f"{sys.executable} {tmp_path / 'agent.py'} {{}}"


def rates(folder):
    found = {}
    for name in ("control", "tpl"):
        (file,) = folder.glob(f"experiments/*/*/{name}.jsonl")
        rows = [json.loads(line) for line in file.read_text().splitlines()]
        found[name] = sum(row["passRate"] for row in rows) / len(rows)
        assert {trial["output"].split("\n")[1] for row in rows for trial in row["trials"]} == {
            "small"
        }
    return found


@pytest.mark.parametrize("how", ["options", "file", "python"])
def test_what_an_agent_remembers_in_home_does_not_reach_the_other_arm(
    assay, remembering, tmp_path, how
):
    """The first trial of the treatment would teach the control, and the difference be 0."""
    if how == "options":
        args = ("p.jsonl", "--simple", remembering, "--with", "template=tpl", "-g", "contains")
        done = assay("ab", *args, "-k", 2, "--seed", 3)
        assert "HOME of its own with a copy of the agent's login" in done.stderr
        assert rates(tmp_path) == {"control": 0.0, "tpl": 1.0}, done.stderr
        assert "HOME of its own" not in assay("ab", *args, "-k", 2, "--seed", 3).stderr
        assert assay("ab", *args, "-k", 2, "--share-home", "-o", "shared/experiments").code == 0
        assert rates(tmp_path / "shared")["control"] > 0
    elif how == "file":
        text = f"""
            prompts = "p.jsonl"
            simple = '{remembering}'
            graders = ["contains"]
            k = 2
            SHARE
            [arms.control]
            [arms.tpl]
            template = "tpl"
        """
        (tmp_path / "experiment.toml").write_text(text.replace("SHARE", ""))
        assert assay("ab", "experiment.toml").code == 0
        assert rates(tmp_path) == {"control": 0.0, "tpl": 1.0}
        (tmp_path / "experiment.toml").write_text(text.replace("SHARE", "share-home = true"))
        assert assay("ab", "experiment.toml", "-o", "shared/experiments").code == 0
        assert rates(tmp_path / "shared")["control"] > 0
    else:
        verdict = library.ab(
            tmp_path / "p.jsonl",
            agent={"simple": remembering},
            treatment={"template": tmp_path / "tpl"},
            graders=["contains"],
            k=2,
            output=tmp_path / "experiments",
        )
        assert verdict.difference == 1.0


def test_a_skill_that_is_never_used_is_the_headline(ab: Ab, project: Project) -> None:
    words = ("prompts.jsonl", "-s", AGENT, "--with", "skill=skills/relnotes", "-k", "1")
    offered = ab(*words, "-g", "contains", "-o", "offered", env={"LIKE_UNUSED": "1"})
    told = " ".join(offered.stdout.split())
    assert "relnotes helps: 0 % → 100 % of" in told, "its description can be enough"
    assert "It was never used in 8 trials: only the offer of it can have made the diff" in told
    done = ab(*words, "-g", "contains:nothing", env={"LIKE_UNUSED": "1"})
    assert done.code == 0, done.stderr
    told = "relnotes was never used in 8 trials: nothing was tested; `assay trigger` shows why. "
    (sentence,) = project.verdict()["sentences"]
    assert sentence.startswith(told)
    assert sentence in done.stdout
    assert "Both arms fail everything" in sentence
    assert project.verdict()["proof"]["uses"][0]["used"] == 0
    assert "Next: assay trigger skills/relnotes --cases CASES -s claude:" in done.stdout


def test_the_prompts_of_an_experiment_may_be_those_of_a_benchmark(assay, tmp_path):
    sample = {"id": 1, "epoch": 1, "input": "What is 2 + 40?", "target": "42", "messages": []}
    log = {"version": 2, "status": "success", "eval": {"task": "sums"}, "samples": [sample]}
    (tmp_path / "log.json").write_text(json.dumps(log))
    words = ("-s", "demo", "--with", "agent=demo:better", "-g", "contains", "-k", 1, "--yes")
    done = assay("ab", "--benchmark", "inspect-log:log.json", *words)
    assert done.code == 0, done.stderr
    assert "1 prompt x 1 trial x 2 arms" in done.stdout + done.stderr
    both = assay("ab", "prompts.jsonl", "--benchmark", "inspect-log:log.json", *words)
    assert (both.code, "one of them only" in both.stderr) == (2, True)
