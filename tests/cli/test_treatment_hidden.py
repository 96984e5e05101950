"""Graders that search the workspace do not find the treatment itself there."""

import json
import stat
from pathlib import Path

import pytest

SKILL = "---\nname: relnotes\ndescription: Write release notes.\n---\nBegin with: Changed\n"
IDLE = "say nothing; R"
PYTHON = """
import pathlib

def grade(cwd):
    return any("Changed" in p.read_text() for p in pathlib.Path(cwd).rglob("*") if p.is_file())
"""
PROGRAM = """#!/bin/sh
cwd=$(python3 -c 'import json,sys; print(json.load(sys.stdin)["cwd"])')
grep -rq Changed "$cwd" && echo '{"pass": true, "score": 1}' || echo '{"pass": false, "score": 0}'
"""
GIT = """#!/bin/sh
cat > /dev/null
status=$(git status --porcelain)
[ -n "$status" ] && echo '{"pass": true, "score": 1}' || echo '{"pass": false, "score": 0}'
"""
GRADERS = {
    "command": "command:grep -rq Changed .",
    "file": "file:SKILLS/relnotes/SKILL.md",
    "git test": "git:test=grep -rq Changed .",
    "python": "grader.py",
    "program": "./grader.sh",
    "a git of the user's": "./git.sh",
}


@pytest.fixture
def place(tmp_path) -> Path:
    (tmp_path / "skill").mkdir()
    (tmp_path / "skill" / "SKILL.md").write_text(SKILL)
    (tmp_path / "rules.md").write_text("Write Changed at the top.\n")
    (tmp_path / "grader.py").write_text(PYTHON)
    for name, text in {"grader.sh": PROGRAM, "git.sh": GIT}.items():
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755 | stat.S_IXUSR)
    return tmp_path


def arms(place: Path) -> dict[str, list[dict]]:
    newest = max(place.glob("experiments/*/*/control.jsonl"), key=lambda p: p.stat().st_mtime)
    found = {}
    for file in newest.parent.glob("*.jsonl"):
        rows = [json.loads(line) for line in file.read_text().splitlines()]
        name = "control" if file.stem == "control" else "treated"
        found[name] = [trial for row in rows for trial in row["trials"]]
    return found


@pytest.mark.parametrize("how", ["skill=skill", "instructions=rules.md"])
def test_no_grader_finds_the_treatment(assay, place, prompts, shell_agent, how):
    folder = ".agents/skills"
    graders = [text.replace("SKILLS", folder) for text in GRADERS.values()]
    words = [word for grader in graders for word in ("-g", grader)]
    path = prompts(IDLE, IDLE)
    done = assay("ab", path, "-s", shell_agent, "--with", how, *words, "-k", 1)
    assert "Traceback" not in done.stderr
    trials = arms(place)["treated"]
    assert trials
    for trial in trials:
        found = {name: grade["pass"] for name, grade in trial["grades"].items()}
        assert set(found.values()) == {False}, found
        assert len(found) + len(trial.get("graderFailures", {})) == len(graders)
        assert not trial.get("graderFailures")
        # It is there again when the graders have looked.
        inside = [p for p in Path(trial["cwd"]).rglob("*") if p.is_file()]
        assert any("Changed" in p.read_text() for p in inside)


def test_what_the_agent_changed_in_it_is_its_work(assay, place, prompts, shell_agent):
    change = "[ -d .agents ] && echo Changed >> .agents/skills/relnotes/SKILL.md; R"
    path = prompts(change, change)
    words = ["-g", GRADERS["command"], "-g", "git:changed=.agents/*"]
    assay("ab", path, "-s", shell_agent, "--with", "skill=skill", *words, "-k", 1)
    found = arms(place)
    assert [trial["pass"] for trial in found["treated"]] == [True, True]
    assert [trial["pass"] for trial in found["control"]] == [False, False]


def test_a_link_that_the_agent_put_there_is_not_followed(assay, place, prompts, shell_agent):
    own = place / "own"
    (own / "relnotes").mkdir(parents=True)
    (own / "relnotes" / "SKILL.md").write_text(SKILL)
    script = f"rm -rf .agents/skills && ln -s {own} .agents/skills; R"
    path = prompts(script, script)
    grader = f"command:test -f {own}/relnotes/SKILL.md"
    assay("ab", path, "-s", shell_agent, "--with", "skill=skill", "-g", grader, "-k", 1)
    assert [trial["pass"] for trial in arms(place)["treated"]] == [True, True]
    assert (own / "relnotes" / "SKILL.md").read_text() == SKILL


def test_grading_later_does_not_find_it_either(assay, place, prompts, shell_agent, read_rows):
    path = prompts(IDLE, IDLE)
    args = ("-s", shell_agent, "--with", "skill=skill", "-g", "contains:x", "-g", "git", "-k", 1)
    assay("ab", path, *args)
    (file,) = [p for p in place.glob("experiments/*/*/*.jsonl") if p.stem != "control"]
    graders = ("-g", GRADERS["command"], "-g", GRADERS["git test"], "-g", "grader.py")
    done = assay("grade", file, *graders, "-o", "graded.jsonl")
    assert done.code == 0, done.stderr
    for row in read_rows(place / "graded.jsonl"):
        (trial,) = row["trials"]
        assert {grade["pass"] for grade in trial["grades"].values()} == {False}
        assert len(trial["grades"]) == 3
        assert (Path(trial["cwd"]) / ".agents/skills/relnotes/SKILL.md").read_text() == SKILL


def test_what_a_template_tells_agents_is_hidden_as_well(assay, place, prompts, shell_agent):
    (place / "tpl/docs").mkdir(parents=True)
    (place / "tpl/CLAUDE.md").write_text("Write Changed at the top.\n")
    (place / "tpl/.agents/skills/relnotes").mkdir(parents=True)
    (place / "tpl/.agents/skills/relnotes/SKILL.md").write_text(SKILL)
    (place / "tpl/docs/notes.md").write_text("old\n")
    graders = ["-g", GRADERS["command"], "-g", "file:docs/notes.md"]
    treated = ["--with", "template=tpl", *graders, "-k", 1]
    done = assay("ab", prompts(IDLE, IDLE), "-s", shell_agent, *treated)
    assert done.code == 0, done.stderr
    for trial in arms(place)["treated"]:
        found = {name.partition(":")[0]: grade["pass"] for name, grade in trial["grades"].items()}
        assert found == {"command": False, "file": True}
        assert (Path(trial["cwd"]) / "CLAUDE.md").exists()


def test_a_common_template_is_not_hidden(assay, place, prompts, shell_agent):
    (place / "tpl").mkdir()
    (place / "tpl/CLAUDE.md").write_text("Be brief.\n")
    both = ["--workspace-template", "tpl", "--with", "skill=skill", "-g", "file:CLAUDE.md"]
    done = assay("ab", prompts(IDLE, IDLE), "-s", shell_agent, *both, "-k", 1)
    assert done.code == 0, done.stderr
    assert all(trial["pass"] for trials in arms(place).values() for trial in trials)


@pytest.mark.parametrize(("word", "code"), [("Changed", 4), ("nothing", 0)])
def test_a_template_that_passes_by_itself_gives_no_verdict(
    assay, place, prompts, shell_agent, word: str, code: int
):
    (place / "tpl").mkdir()
    (place / "tpl" / "notes.txt").write_text(word)
    treated = ["--with", "template=tpl", "-g", GRADERS["command"], "-k", 1]
    done = assay("ab", prompts(IDLE, IDLE), "-s", shell_agent, *treated)
    assert done.code == code, done
    said = "pass the template of tpl before any agent has worked there, and not that of control"
    assert (said in done.stdout) is (code == 4), done
    started = [path for path in place.glob("experiments/*/*/*.jsonl") if path.stat().st_size]
    assert bool(started) is (code == 0)  # nothing is paid for a verdict that cannot be


def test_the_graders_of_every_prompt_are_asked(assay, place, prompts, shell_agent):
    (place / "tpl").mkdir()
    (place / "tpl" / "notes.txt").write_text("Changed")
    rows = [{"id": "a", "input": IDLE, "graders": ["contains:R"]}]
    rows += [{"id": "b", "input": IDLE, "graders": [GRADERS["command"]]}]
    done = assay("ab", prompts(*rows), "-s", shell_agent, "--with", "template=tpl", "-k", 1)
    assert done.code == 4, done
    assert "the graders of b pass the template of tpl" in done.stdout
