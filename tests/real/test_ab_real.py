"""assay ab with the real agents, against a model whose answer depends on what it was sent."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from assay.testing.model import ScriptedModel

pytestmark = pytest.mark.real

SERVER = Path(__file__).with_name("mcp_adder.py")
SKILL = "---\nname: relnotes\ndescription: Knows the quince of release notes.\n---\nSay plum.\n"
SCRIPT: dict[str, Any] = {
    "threads": [
        {"when": {"bodyContains": mark}, "steps": [{"text": "It is plum."}]}
        for mark in ("the quince of release notes", "the medlar rule", "Add two integers", "adder")
    ]
    + [{"when": {"modelContains": "other"}, "steps": [{"text": "It is plum."}]}],
    "steps": [{"text": "No idea."}],
    "models": ["scripted-model", "the-other"],
}


@dataclass(frozen=True)
class Kind:
    """How one agent is pointed at the scripted model, and how it calls two of its models."""

    env: Callable[[str], dict[str, str]]
    models: tuple[str, str]
    skills: str


def opencode_env(url: str) -> dict[str, str]:
    limit = {"context": 200000, "output": 8000}
    models = {name: {"name": name, "tool_call": True, "limit": limit} for name in ("m", "other")}
    options = {"baseURL": f"{url}/v1", "apiKey": "dummy"}
    provider = {"npm": "@ai-sdk/openai-compatible", "options": options, "models": models}
    config = {"enabled_providers": ["mock"], "share": "disabled", "provider": {"mock": provider}}
    return {"OPENCODE_CONFIG_CONTENT": json.dumps(config)}


KINDS = {
    "claude": Kind(
        lambda url: {"ANTHROPIC_BASE_URL": url, "ANTHROPIC_API_KEY": "sk-ant-0123456789"},
        ("claude-sonnet-4-5", "claude-other-4-5"),
        ".claude/skills",
    ),
    "codex": Kind(
        lambda url: {"MOCK_API_KEY": "dummy"},
        ("gpt-5.5", "gpt-other"),
        ".agents/skills",
    ),
    "gemini": Kind(
        lambda url: {"GEMINI_API_KEY": "dummy", "GOOGLE_GEMINI_BASE_URL": url},
        ("gemini-2.5-pro", "gemini-other"),
        ".agents/skills",
    ),
    "opencode": Kind(opencode_env, ("mock/m", "mock/other"), ".agents/skills"),
}


class Lab:
    """A project with one treatment of each kind, for one agent."""

    def __init__(self, folder: Path, kind: Kind, agent: str, url: str, args: list[str]) -> None:
        self._folder, self._kind = folder, kind
        self._env = kind.env(url)
        self._top = {
            "prompts": "prompts.jsonl",
            "graders": ["contains"],
            "k": 1,
            "concurrency": 2,
            "agent": agent,
            "model": kind.models[0],
            "agent-args": args,
            "isolate": True,
            "env": list(self._env),
            "timeout": 120_000,
        }
        # Two prompts show that a treatment reaches the agent; six would prove that it helps.
        n_prompts = 6 if agent.startswith("claude:") else 2
        rows = [
            {"id": f"p{n}", "input": f"Which fruit? {n}", "hint": "plum"} for n in range(n_prompts)
        ]
        self.write("prompts.jsonl", "".join(json.dumps(row) + "\n" for row in rows))
        self.write("skills/relnotes/SKILL.md", SKILL)
        self.write("v2.md", "Follow the medlar rule.\n")
        server = {"command": sys.executable, "args": [str(SERVER)]}
        self.write("servers.json", json.dumps({"mcpServers": {"adder": server}}))

    def write(self, name: str, text: str) -> None:
        path = self._folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def ab(self, name: str, arm: dict[str, Any], top: dict[str, Any] | None = None) -> Any:
        """Run an experiment with one treatment; JSON values are TOML's, too."""
        keys = {**self._top, **(top or {})}
        lines = [f"{key} = {json.dumps(value)}" for key, value in keys.items()]
        lines += ["[arms.control]", f"[arms.{name}]"]
        lines += [f"{key} = {json.dumps(value)}" for key, value in arm.items()]
        self.write(f"{name}.toml", "\n".join(lines))
        return subprocess.run(
            [sys.executable, "-m", "assay", "ab", f"{name}.toml", "--reuse", "all"],
            cwd=self._folder, env={**os.environ, **self._env}, capture_output=True, text=True,
            stdin=subprocess.DEVNULL, timeout=600, check=False,
        )  # fmt: skip


@pytest.mark.parametrize("agent", KINDS)
def test_each_kind_of_treatment_is_found_and_a_sabotaged_control_is_invalid(
    agent: str,
    agent_program: Callable[[str], Path],
    codex_settings: Callable[[str], list[str]],
    tmp_path: Path,
) -> None:
    kind = KINDS[agent]
    with ScriptedModel(SCRIPT) as model:
        args = codex_settings(model.url) if agent == "codex" else []
        lab = Lab(tmp_path, kind, f"{agent}:{agent_program(agent)}", model.url, args)
        done = lab.ab("relnotes", {"skills": ["skills/relnotes"]})
        assert done.returncode == 0, done.stdout + done.stderr
        assert "arms differ in: skill relnotes (" in done.stdout
        assert "), nothing else\n" in done.stdout
        assert "relnotes helps: 0 % → 100 % of " in done.stdout
        treatments = {
            "rules": ({"instructions": "v2.md"}, "instructions v2.md ("),
            "servers": ({"mcp": "servers.json"}, "MCP servers of servers.json ("),
            "other": ({"model": kind.models[1]}, f"model {kind.models[1]} (control: "),
        }
        lab.write(
            "few.jsonl",
            "".join((tmp_path / "prompts.jsonl").read_text().splitlines(keepends=True)[:2]),
        )
        for name, (arm, words) in treatments.items():
            done = lab.ab(name, arm, {"prompts": "few.jsonl"})
            assert done.returncode == 0, done.stdout + done.stderr
            assert f"arms differ in: {words}" in done.stdout
            assert f"{name} helps" in done.stdout
            assert ": 0 % → 100 % of " in done.stdout
            # The control is the same set-up every time: its trials are not run again.
            assert "4 of 4 planned trials (2 reused)" in done.stdout
        n_requests = len(model.requests)
        lab.write(f"sabotage/{kind.skills}/relnotes/SKILL.md", SKILL)
        done = lab.ab("again", {"skills": ["skills/relnotes"]}, {"template": "sabotage"})
        assert done.returncode == 4, done.stdout + done.stderr
        assert "control has the treatment: its agent can read the skill relnotes" in done.stdout
        assert len(model.requests) - n_requests < 20, "it went on after the smoke trials"
