"""What only Claude Code has or does, live."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from assay.records.setup import setup_problems
from assay.testing.model import ScriptedModel

pytestmark = pytest.mark.real

ENV = {"ANTHROPIC_API_KEY": "sk-ant-0123456789", "CLAUDE_CODE_MAX_RETRIES": "1"}
Play = Callable[..., Any]


@pytest.fixture
def play(live: Play) -> Play:
    def run(script: dict[str, Any], *inputs: Any, args: tuple[str, ...] = (), **more: Any) -> Any:
        args = ("--model", "claude-sonnet-4-5", *args)
        env = {"env": lambda url: {**ENV, "ANTHROPIC_BASE_URL": url}}
        return live("claude", script, *inputs, **{**env, **more}, args=args)

    return run


def test_tasks_become_a_plan(play: Play) -> None:
    create = {"name": "TaskCreate", "arguments": {"subject": "First", "description": "do it"}}
    update = {"name": "TaskUpdate", "arguments": {"taskId": "1", "status": "completed"}}
    done = play({"steps": [{"calls": [create]}, {"calls": [update]}, {"text": "Planned."}]})
    assert [plan["entries"] for plan in done.steps("plan")] == [
        [{"id": "1", "content": "First", "status": "pending"}],
        [{"id": "1", "content": "First", "status": "completed"}],
    ]
    assert len(done.steps("tool_call")) == 2


def test_setup_proves_what_the_agent_had(play: Play, tmp_path: Any) -> None:
    skill = tmp_path / "template/.claude/skills/greeting/SKILL.md"
    skill.parent.mkdir(parents=True)
    skill.write_text("---\nname: greeting\ndescription: greets\n---\nSay hello.\n")
    args = ("--workspace-template", str(tmp_path / "template"))
    setup = play({"steps": [{"text": "Hi."}]}, args=args).row["setup"]
    assert "greeting" in setup["skills"]
    assert "Bash" in setup["tools"]
    assert setup["permissionMode"] == "bypassPermissions"
    assert setup["apiKeySource"] == "ANTHROPIC_API_KEY"
    assert setup["mcpServers"] == []


def test_wrong_option_is_no_measurement(play: Play) -> None:
    done = play({"steps": [{"text": "x"}]}, args=("--agent-arg=--no-such-flag",))
    assert done.row["failure"]["cause"] == "spawn", done.row
    assert "--no-such-flag" in done.row["failure"]["message"]
    assert done.requests == []


def test_no_key(play: Play) -> None:
    done = play({"steps": [{"text": "x"}]}, env=lambda url: {"ANTHROPIC_BASE_URL": url})
    assert done.row["failure"]["cause"] == "auth", done.row


def test_a_set_up_that_failed_is_said(play: Play, tmp_path: Path) -> None:
    servers = {"gone": {"command": "no-such-program"}, "adder": {"command": sys.executable}}
    servers["adder"]["args"] = ["no-such-file.py"]
    (tmp_path / "mcp.json").write_text(json.dumps({"mcpServers": servers}))
    args = ("--mcp", str(tmp_path / "mcp.json"), "--agent-arg=--plugin-dir=no-such-plugin")
    done = play({"steps": [{"text": "yes"}]}, args=args)
    assert done.code == 0
    for name in servers:
        assert f'MCP server "{name}" failed to start in 1 of 1 trial' in done.stderr
    assert 'plugin "no-such-plugin" did not load' in done.stderr
    command = [sys.executable, "-m", "assay", "report", str(done.folder / "out.jsonl")]
    shown = subprocess.run([*command, "-f", "markdown"], capture_output=True, text=True, check=True)
    assert "UNHEALTHY" in shown.stdout.partition("| run |")[0]


def test_relative_paths_of_an_mcp_file_are_found_beside_it(play: Play, tmp_path: Path) -> None:
    shutil.copy(Path(__file__).with_name("mcp_adder.py"), tmp_path / "adder.py")
    server = {"command": sys.executable, "args": ["./adder.py"]}
    (tmp_path / "mcp.json").write_text(json.dumps({"mcpServers": {"adder": server}}))
    done = play({"steps": [{"text": "yes"}]}, args=("--mcp", str(tmp_path / "mcp.json")))
    assert done.row["setup"]["mcpServers"] == [{"name": "adder", "status": "connected"}]
    assert "UNHEALTHY" not in done.stderr


def test_a_skill_that_claude_lists_is_no_problem_and_another_is(play: Play, tmp_path: Path) -> None:
    for name, text in (("good", "---\nname: good\ndescription: d\n---\nx\n"), ("bare", "x\n")):
        folder = tmp_path / "template" / ".claude" / "skills" / name
        folder.mkdir(parents=True)
        (folder / "SKILL.md").write_text(text)
    args = ("--workspace-template", str(tmp_path / "template"))
    row = play({"steps": [{"text": "yes"}]}, args=args).row
    names = ("good", "bare")
    offered = {f".claude/skills/{name}/SKILL.md": "ab12" for name in names}
    identity = {"adapter": "claude", "offered": offered}
    found = setup_problems(row["setup"], identity, row["agent"]["model"], 0)
    # Claude Code 2.1 does not list a skill whose file has no front matter.
    assert found == ('skill "bare" was offered but is not listed by the agent',)


def steps(done: Any) -> list[dict[str, Any]]:
    return [step for step in done.row["trajectory"] if step["type"] != "thought"]


NO_SKILL = {
    "template": ("--workspace-template", "none"),
    "isolate": ("--isolate",),
    "both": ("--workspace-template", "none", "--isolate"),
    "sandbox": ("--sandbox",),
    "sandboxed template": ("--workspace-template", "none", "--sandbox"),
}


@pytest.mark.parametrize("mode", NO_SKILL)
def test_an_arm_without_the_skill_has_it_in_no_mode(
    agent_program: Callable[[str], Path], tmp_path: Path, mode: str
) -> None:
    """The project around has a skill and a CLAUDE.md; the arm must see neither."""
    if "--sandbox" in NO_SKILL[mode] and shutil.which("bwrap") is None:
        pytest.skip("needs bubblewrap: apt install bubblewrap")
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    skill = tmp_path / ".claude/skills/relnotes/SKILL.md"
    skill.parent.mkdir(parents=True)
    skill.write_text("---\nname: relnotes\ndescription: writes release notes\n---\nWrite.\n")
    (tmp_path / "CLAUDE.md").write_text("Always say PLANTED-WORD first.")
    (tmp_path / "none").mkdir()
    (tmp_path / "prompts.jsonl").write_text('{"id":"a","input":"Write release notes"}\n')
    bare = capture_in(tmp_path, agent_program("claude"), "bare.jsonl", ())
    assert "relnotes" in bare[0]["setup"]["skills"], "in place, the project is seen"
    assert ".claude/skills/relnotes/SKILL.md" in bare[0]["identity"]["offered"]
    assert "PLANTED-WORD" in bare[1]
    row, asked = capture_in(tmp_path, agent_program("claude"), "arm.jsonl", NO_SKILL[mode])
    assert "relnotes" not in row["setup"]["skills"]
    assert "offered" not in row["identity"]
    assert "PLANTED-WORD" not in asked
    assert "relnotes" not in asked


def capture_in(
    folder: Path, program: Path, out: str, options: tuple[str, ...]
) -> tuple[dict[str, Any], str]:
    """Run a trial in a folder; return its row and all that the model was asked."""
    home = folder.with_name(f"{folder.name}-home")
    home.mkdir(exist_ok=True)
    log = folder.with_name(f"{folder.name}-{out}.log")
    with ScriptedModel({"steps": [{"text": "Done."}]}, log=log, log_bodies=True) as model:
        env = {**os.environ, **ENV, "ANTHROPIC_BASE_URL": model.url, "HOME": str(home)}
        command = [sys.executable, "-m", "assay", "capture", "prompts.jsonl", "-o", out]
        command += ["-s", f"claude:{program}", "--model", "claude-sonnet-4-5", *options]
        done = subprocess.run(
            command, cwd=folder, env=env, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
    asked = log.read_text()
    return json.loads((folder / out).read_text()), asked


def test_in_plain_text_without_a_schema(
    agent_program: Callable[[str], Path], assay: Callable, prompts: Callable, tmp_path: Path
) -> None:
    """Its -p without any format is a text agent; the second turn is told of the first."""
    script = {"steps": [{"text": "Noted: 42."}], "threads": []}
    later = {"when": {"firstUserContains": "Assistant: Noted"}, "steps": [{"text": "It was 42."}]}
    file = prompts({"id": "a", "input": ["Remember 42.", "Which number?"], "hint": "42"})
    with ScriptedModel(script | {"threads": [later]}) as model:
        env = {**ENV, "ANTHROPIC_BASE_URL": model.url}
        names = [word for name in env for word in ("--env", name)]
        agent = ("--simple", f"{agent_program('claude')} -p {{}}", "-g", "contains")
        done = assay("capture", file, *agent, "--isolate", *names, "-t", 120_000, env=env)
    (row,) = done.rows
    assert "failure" not in row, done
    assert [step["content"] for step in row["trajectory"]] == ["Noted: 42.", "It was 42."]
    assert row["score"]["pass"] is True
    assert row["metadata"]["agent"] == "claude"
