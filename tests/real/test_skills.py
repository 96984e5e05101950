"""The skills in real agents: they are offered, loaded, and their commands run."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from assay.records.skills import SkillUse, skills_used

pytest.importorskip("assay_arc")  # the skill that the agents load is one of its
pytestmark = pytest.mark.real

ROOT = Path(__file__).parents[2]
PLUGIN = ROOT / "plugin"
PATH = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
ENV = {"ANTHROPIC_API_KEY": "sk-ant-0123456789", "CLAUDE_CODE_MAX_RETRIES": "1", "PATH": PATH}
NAMES = sorted(path.name for path in (PLUGIN / "skills").iterdir())
Play = Callable[..., Any]


def command_of(skill: str) -> str:
    """Give the first command that a skill names."""
    text = (PLUGIN / "skills" / skill / "SKILL.md").read_text()
    found = re.search(r"^```sh\n(.+)$", text, re.MULTILINE)
    assert found is not None
    return found[1]


@pytest.mark.parametrize("target", ["plugin", "."])
def test_claude_code_finds_the_plugin_valid(
    agent_program: Callable[[str], Path], target: str, tmp_path: Path
) -> None:
    command = [str(agent_program("claude")), "plugin", "validate", "--strict", "--json", target]
    env = os.environ | {"HOME": str(tmp_path)}
    done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
    report = json.loads(done.stdout)
    assert report["success"] is True
    assert report["manifest"]["warnings"] == report["manifest"]["errors"] == []


def test_the_plugin_is_installed_from_a_checkout(
    agent_program: Callable[[str], Path], tmp_path: Path
) -> None:
    env = os.environ | {"HOME": str(tmp_path)}
    for words in (
        ("marketplace", "add", str(ROOT)),
        ("install", "assay@assay"),
        ("details", "assay"),
    ):
        command = [str(agent_program("claude")), "plugin", *words]
        done = subprocess.run(command, env=env, cwd=tmp_path, capture_output=True, text=True,
                              timeout=120, check=False)  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr
    assert f"Skills ({len(NAMES)})  {', '.join(NAMES)}" in done.stdout


@pytest.mark.parametrize("place", ["project", "plugin"])
def test_claude_code_loads_a_skill_and_runs_the_command_it_names(
    live: Play, place: str, tmp_path: Path
) -> None:
    args: tuple[str, ...] = ("--model", "claude-sonnet-4-5")
    if place == "project":
        args += ("--workspace-template", str(installed("claude", tmp_path)))
        prefix = ""
    else:
        args += (f"--agent-arg=--plugin-dir={PLUGIN}",)
        prefix = "assay:"
    load = {"name": "Skill", "arguments": {"skill": f"{prefix}arc-browse"}}
    browse = {"tool": "shell", "command": command_of("arc-browse")}
    script = {"steps": [{"calls": [load]}, {"calls": [browse]}, {"text": "Six games."}]}
    env = {"env": lambda url: {**ENV, "ANTHROPIC_BASE_URL": url}}
    done = live("claude", script, "Which games are there?", args=args, **env)
    assert {f"{prefix}{name}" for name in NAMES} <= set(done.row["setup"]["skills"])
    skill, shell = done.steps("tool_call")
    assert (skill["status"], shell["status"]) == ("completed", "completed"), done.row
    assert skills_used(done.row["trajectory"]) == [SkillUse("arc-browse", 0)]
    assert "# Browse the games" in json.dumps(done.requests[1].body)
    assert "ky01" in shell["output"]
    assert done.row["output"] == "Six games."


def installed(agent: str, folder: Path) -> Path:
    """Give a project in which the skills were installed for an agent."""
    project = folder / "project"
    project.mkdir()
    command = [sys.executable, "-m", "assay", "skills", "install", "--agent", agent]
    subprocess.run(command, cwd=project, check=True, capture_output=True)
    return project


@pytest.mark.parametrize("agent", ["codex", "gemini", "opencode"])
def test_other_agents_are_offered_the_installed_skills_and_load_one(
    live: Play, codex_settings: Callable[[str], list[str]], agent: str, tmp_path: Path
) -> None:
    browse = {"tool": "shell", "command": f"PATH={PATH} {command_of('arc-browse')}"}
    script = {"steps": [{"calls": [LOAD[agent]]}, {"calls": [browse]}, {"text": "Six games."}]}
    template = ("--workspace-template", str(installed(agent, tmp_path)))
    done = live(
        agent,
        script,
        "Which games are there?",
        env=lambda url: variables(agent, url),
        args=lambda url: (*arguments(agent, codex_settings(url)), *template),
    )
    offered, *later = [json.dumps(request.body) for request in done.requests]
    assert [name for name in NAMES if name not in offered] == []
    assert "# Browse the games" not in offered
    assert "# Browse the games" in later[-1], done.row
    assert skills_used(done.row["trajectory"]) == [SkillUse("arc-browse", 0)]
    assert "ky01" in done.steps("tool_call")[1]["output"], done.row
    assert done.row["output"] == "Six games."


CAT = {"tool": "shell", "command": "cat .agents/skills/arc-browse/SKILL.md"}
LOAD: dict[str, dict[str, Any]] = {
    "codex": CAT,
    "gemini": {"name": "activate_skill", "arguments": {"name": "arc-browse"}},
    "opencode": CAT,
}
"""How each reads a skill. Codex opens the file. OpenCode has a tool for it that needs ripgrep, and
would have to download that, so here it opens the file too."""


def variables(agent: str, url: str) -> dict[str, str]:
    if agent == "codex":
        return {"MOCK_API_KEY": "dummy"}
    if agent == "gemini":
        return {"GEMINI_API_KEY": "dummy", "GOOGLE_GEMINI_BASE_URL": url}
    options = {"baseURL": f"{url}/v1", "apiKey": "dummy"}
    limit = {"context": 200000, "output": 8000}
    model = {"name": "Mock", "tool_call": True, "limit": limit}
    provider = {"npm": "@ai-sdk/openai-compatible", "options": options, "models": {"m": model}}
    config = {"enabled_providers": ["mock"], "share": "disabled", "provider": {"mock": provider}}
    return {"OPENCODE_CONFIG_CONTENT": json.dumps(config)}


def arguments(agent: str, more: list[str]) -> list[str]:
    models = {"codex": "gpt-5.5", "gemini": "gemini-2.5-pro", "opencode": "mock/m"}
    words = ["--model", models[agent]]
    return [*words, *(f"--agent-arg={word}" for word in more if agent == "codex")]
