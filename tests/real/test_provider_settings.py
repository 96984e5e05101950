"""A provider of the user's own settings goes with the agent into another HOME."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from assay.testing.model import ScriptedModel

pytestmark = pytest.mark.real
KEY = "sk-live-0123456789abcdef"


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def configure(name: str, home: Path, url: str) -> None:
    """Configure the scripted model in the files where a user would configure a provider."""
    if name == "claude":
        helper = home / "bin" / "key.sh"
        write(helper, f"#!/bin/sh\necho {KEY}\n")
        helper.chmod(0o755)
        settings = {"apiKeyHelper": str(helper), "env": {"ANTHROPIC_BASE_URL": url}}
        write(home / ".claude/settings.json", json.dumps(settings | {"model": "claude-sonnet-4-5"}))
    if name == "codex":
        provider = {"name": "mock", "base_url": f"{url}/v1", "wire_api": "responses"}
        provider["env_key"] = "MOCK_API_KEY"
        lines = [f'{key} = "{value}"' for key, value in provider.items()]
        top = 'model = "gpt-5.5"\nmodel_provider = "mock"\n[model_providers.mock]\n'
        write(home / ".codex/config.toml", top + "\n".join(lines))
    if name == "gemini":
        settings = {"security": {"auth": {"selectedType": "gemini-api-key"}}}
        write(home / ".gemini/settings.json", json.dumps(settings))
        write(home / ".gemini/.env", f"GEMINI_API_KEY={KEY}\nGOOGLE_GEMINI_BASE_URL={url}\n")
    if name == "opencode":
        model = {"name": "Mock", "tool_call": True, "limit": {"context": 200000, "output": 8000}}
        provider = {"npm": "@ai-sdk/openai-compatible", "name": "Mock"}
        provider |= {"options": {"baseURL": f"{url}/v1", "apiKey": KEY}}
        provider |= {"models": {"mock-model": model}}
        config = {"model": "mock/mock-model", "provider": {"mock": provider}}
        write(home / ".config/opencode/opencode.json", json.dumps(config))


@pytest.mark.parametrize("how", ["--isolate", "--sandbox=no-network"])
@pytest.mark.parametrize("name", ["claude", "codex", "gemini", "opencode"])
def test_a_provider_of_the_users_settings_is_asked(
    agent_program: Callable[[str], Path], tmp_path: Path, name: str, how: str
) -> None:
    home = tmp_path / "home"
    (tmp_path / "p.jsonl").write_text('{"id": "a", "input": "Say it."}\n')
    with ScriptedModel({"steps": [{"text": "It came from there."}]}) as model:
        configure(name, home, model.url)
        names = ("ANTHROPIC_", "CLAUDE_", "CODEX_", "OPENAI_", "GEMINI_", "GOOGLE_", "OPENCODE_")
        env = {key: value for key, value in os.environ.items() if not key.startswith(names)}
        env |= {"HOME": str(home), "MOCK_API_KEY": KEY}
        program = f"{name}:{agent_program(name)}"
        command = [sys.executable, "-m", "assay", "capture", "p.jsonl", "-s", program, how]
        done = subprocess.run(
            [*command, "-o", "out.jsonl", "-t", "120000"],
            cwd=tmp_path, env=env, capture_output=True, text=True, timeout=200, check=False,
        )  # fmt: skip
    text = (tmp_path / "out.jsonl").read_text()
    row = json.loads(text)
    assert row["output"].strip() == "It came from there.", (row.get("failure"), done.stderr)
    assert KEY not in text
    assert row["identity"]["offered"]["~/ (provider settings)"]


def test_the_cause_of_a_server_error_is_read_from_the_log(
    agent_program: Callable[[str], Path], tmp_path: Path
) -> None:
    (tmp_path / "p.jsonl").write_text('{"id": "a", "input": "Say it."}\n')
    program = f"opencode:{agent_program('opencode')}"
    command = [sys.executable, "-m", "assay", "capture", "p.jsonl", "-s", program, "--isolate"]
    subprocess.run(
        [*command, "--model", "mock/nope", "-o", "out.jsonl"],
        cwd=tmp_path, capture_output=True, text=True, timeout=200, check=False,
    )  # fmt: skip
    failure = json.loads((tmp_path / "out.jsonl").read_text())["failure"]
    assert failure["cause"] == "provider"
    assert "Model not found: mock/nope" in failure["message"]
