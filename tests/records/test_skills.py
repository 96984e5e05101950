"""Which skills an agent used: what counts as a use, and what only looks like one."""

import json
from pathlib import Path
from typing import Any

import pytest

from assay.records.capture import Message, ToolCall
from assay.records.skills import SkillUse, skills_in, skills_used

PATH = ".agents/skills/relnotes/SKILL.md"
RECORDINGS = sorted((Path(__file__).parents[1] / "recordings").glob("*/*/expected.json"))


def call(name: str, given: Any, **more: Any) -> dict[str, Any]:
    return {"type": "tool_call", "name": name, "status": "completed", "input": given, **more}


@pytest.mark.parametrize(
    ("name", "given"),
    [
        ("Skill", {"skill": "relnotes", "args": "v2"}),
        ("Skill", {"skill": "tools:relnotes"}),
        ("Skill", {"command": "/relnotes"}),
        ("activate_skill", {"name": "relnotes"}),
        ("skill", {"name": "relnotes"}),
        ("Read", {"file_path": f"/home/u/{PATH}"}),
        ("read_file", {"file_path": PATH}),
        ("read_many_files", {"paths": ["README.md", PATH]}),
        ("read", {"filePath": f"/w/{PATH}", "limit": 200}),
        ("read_file", {"path": "SKILL.md", "cwd": "/w/.agents/skills/relnotes"}),
        ("exec_command", {"cmd": f"cat {PATH}"}),
        ("exec_command", {"cmd": f"sed -n '1,200p' {PATH}"}),
        ("exec_command", {"cmd": "cat SKILL.md", "workdir": "/w/.agents/skills/relnotes"}),
        ("exec_command", {"cmd": "cd .agents/skills/relnotes && ls && cat SKILL.md"}),
        ("exec_command", {"cmd": f"pwd; LC_ALL=C head -50 '{PATH}' 2>/dev/null | cut -c1-80"}),
        ("exec_command", {"cmd": f"if true; then cat {PATH}; fi"}),
        ("exec_command", {"command": f"/bin/bash -lc 'cat {PATH}'"}),
        ("shell", {"command": ["bash", "-lc", f"cat {PATH}"]}),
        ("shell", {"command": ["cat", PATH]}),
        ("run_shell_command", {"command": f"git status &&\ncat {PATH}\n"}),
        ("bash", {"command": f"python3 -c \"print(open('{PATH}').read())\""}),
        ("bash", {"command": f"cat < README.md {PATH} > copy.md"}),
    ],
)
def test_a_skill_is_used_when_it_is_called_or_its_file_is_read(name: str, given: Any) -> None:
    assert skills_in(call(name, given)) == ["relnotes"]
    assert skills_in(ToolCall(name=name, input=given)) == ["relnotes"]  # while it still runs


@pytest.mark.parametrize(
    ("name", "given"),
    [
        ("Write", {"file_path": PATH, "content": "---\nname: relnotes\n---\n"}),
        ("write_file", {"file_path": PATH, "content": "x"}),
        ("Edit", {"file_path": PATH, "old_string": "a", "new_string": "b"}),
        ("replace", {"file_path": PATH, "old_string": "a", "new_string": "b"}),
        ("apply_patch", f"*** Begin Patch\n*** Update File: {PATH}\n*** End Patch"),
        ("Glob", {"pattern": "**/SKILL.md"}),
        ("Grep", {"pattern": "name", "path": PATH}),
        ("exec_command", {"cmd": f"ls -l {PATH}"}),
        ("exec_command", {"cmd": f"cat > {PATH} <<'EOF'\nhello\nEOF"}),
        ("exec_command", {"cmd": f"sed -i s/a/b/ {PATH}"}),
        ("exec_command", {"cmd": f"echo 'cat {PATH}'"}),
        ("exec_command", {"cmd": "find . -name SKILL.md"}),
        ("exec_command", {"cmd": f"cat {PATH}.orig"}),
        ("Task", {"prompt": f"Read {PATH} and do what it says."}),
        ("Read", {"file_path": "skills/relnotes/reference.md"}),
        ("Skill", {}),
        ("Skill", {"skill": 7}),
        ("exec_command", None),
    ],
)
def test_what_only_names_a_skill_does_not_use_it(name: str, given: Any) -> None:
    assert skills_in(call(name, given)) == []


def test_a_call_that_failed_used_nothing_unless_its_output_shows_the_file() -> None:
    assert skills_in(call("Skill", {"skill": "relnotes"}) | {"status": "failed"}) == []
    read = call("exec_command", {"cmd": f"cat {PATH} && false"}) | {"status": "failed"}
    assert skills_in(read | {"output": f"cat: {PATH}: No such file or directory"}) == []
    assert skills_in(read | {"output": "---\nname: relnotes\ndescription: x\n---\n"}) == [
        "relnotes"
    ]


def test_a_pattern_is_resolved_by_what_was_read() -> None:
    output = "---\nname: one\n---\nDo.\n     1\t---\n     2\tname: 'two'\n     3\t---\n"
    step = call("exec_command", {"cmd": "cat .agents/skills/*/SKILL.md"}, output=output)
    assert skills_in(step) == ["one", "two"]
    assert skills_in({**step, "output": ""}) == []


def test_each_skill_is_named_once_with_the_step_of_its_first_use() -> None:
    steps = [
        Message(content="I use the skill relnotes."),
        call("Task", {"prompt": "x"}),
        call("Skill", {"skill": "decoy"}, parent="toolu_1"),  # by a sub-agent
        ToolCall(name="Skill", input={"skill": "relnotes"}),
        call("Skill", {"skill": "decoy"}),
        "not a step",
    ]
    assert skills_used(steps) == [SkillUse("decoy", 2), SkillUse("relnotes", 3)]


def test_no_recording_without_skills_shows_one() -> None:
    assert len(RECORDINGS) > 20
    for path in RECORDINGS:
        steps = json.loads(path.read_bytes())["steps"]
        assert skills_used(steps) == [], path
