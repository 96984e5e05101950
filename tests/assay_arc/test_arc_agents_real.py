"""The four real agents play a built-in game, through MCP and through the shell command."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from assay.testing.model import ScriptedModel
from assay_arc.log import read_log

pytestmark = pytest.mark.real

MODELS = {
    "claude": "claude-sonnet-4-5",
    "codex": "gpt-5.5",
    "gemini": "gemini-2.5-pro",
    "opencode": "mock/mock-model",
}
RIGHT, DOWN = "ACTION4", "ACTION2"
N_EQUAL = 7  # Gemini CLI takes five equal calls for a loop, OpenCode three
STEPS: list[dict[str, Any]] = [
    {"calls": [{"tool": "mcp", "server": "arc", "name": "look"}]},
    {"calls": [{"tool": "mcp", "server": "arc", "name": "act", "arguments": {"action": RIGHT}}]},
    {"calls": [{"tool": "shell", "command": f'"$ARC_PLAY" act {RIGHT} {RIGHT}'}]},
    *[{"calls": [{"tool": "mcp", "server": "arc", "name": "act", "arguments": {"action": RIGHT}}]}]
    * N_EQUAL,
    {"calls": [{"tool": "shell", "command": "arc-play status || $ARC_PLAY status"}]},
    {"text": "I stop here."},
]


def variables(agent: str, url: str) -> dict[str, str]:
    """Say how the scripted model's address reaches each agent."""
    if agent == "claude":
        return {"ANTHROPIC_BASE_URL": url, "ANTHROPIC_API_KEY": "sk-dummy-0123456789"}
    if agent == "codex":
        return {"MOCK_API_KEY": "dummy"}
    if agent == "gemini":
        return {"GEMINI_API_KEY": "dummy", "GOOGLE_GEMINI_BASE_URL": url}
    limit = {"context": 200000, "output": 8000}
    options = {"baseURL": f"{url}/v1", "apiKey": "{env:MOCK_API_KEY}"}
    model = {"name": "Mock", "tool_call": True, "limit": limit}
    provider = {"npm": "@ai-sdk/openai-compatible", "name": "Mock", "options": options}
    config = {"enabled_providers": ["mock"], "share": "disabled", "autoupdate": False}
    config["provider"] = {"mock": {**provider, "models": {"mock-model": model}}}
    return {"OPENCODE_CONFIG_CONTENT": json.dumps(config), "MOCK_API_KEY": "dummy"}


def arguments(agent: str, url: str) -> list[str]:
    words = ["--model", MODELS[agent]]
    if agent == "codex":
        provider = "model_providers.mock"
        for setting in (
            'model_provider="mock"',
            f'{provider}.name="mock"',
            f'{provider}.base_url="{url}/v1"',
            f'{provider}.wire_api="responses"',
            f'{provider}.env_key="MOCK_API_KEY"',
        ):
            words += ["--agent-arg=-c", f"--agent-arg={setting}"]
    return words


def own_home(folder: Path) -> dict[str, str]:
    """Make a HOME for the user who runs Assay, so that the tests leave nothing in the real one."""
    home = folder / "home"
    home.mkdir(exist_ok=True)
    names = ("XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_STATE_HOME", "XDG_CACHE_HOME")
    return {"HOME": str(home), "CODEX_HOME": "", **dict.fromkeys(names, "")}


@pytest.mark.usefixtures("bubblewrap")
@pytest.mark.parametrize("confined", ["", "--isolate", "--sandbox=no-network"])
@pytest.mark.parametrize("agent", MODELS)
def test_plays_both_ways_in(
    agent: str, confined: str, agent_program: Callable[[str], Path], tmp_path: Path
) -> None:
    with ScriptedModel({"steps": STEPS}) as model:
        env = variables(agent, model.url)
        command = [sys.executable, "-m", "assay", "arc", "run", f"{agent}:{agent_program(agent)}"]
        command += ["--games", "ky01", "--max-steps", "20", "-t", "120000"]
        command += [confined] if confined else []
        command += [*arguments(agent, model.url)]
        command += [word for name in env for word in ("--env", name)]
        done = subprocess.run(
            command,
            cwd=tmp_path,
            env={**os.environ, **env, **own_home(tmp_path)},
            capture_output=True,
            text=True,
            timeout=200,
        )
        asked = model.requests
    assert done.returncode == 0, done.stderr
    [run] = (tmp_path / ".arc-agi-benchmarks" / "runs").iterdir()
    [line] = (run / "results.jsonl").read_text().splitlines()
    row = json.loads(line)
    assert "failure" not in row, row["failure"]
    calls = [step for step in row["trajectory"] if step["type"] == "tool_call"]
    assert [call["status"] for call in calls] == ["completed"] * (4 + N_EQUAL)
    assert "grid 64x64" in json.dumps(calls[0]["output"])
    assert "changed x8-23 y8-15: 04 -> 40" in json.dumps(calls[1]["output"])
    assert f"actions {3 + N_EQUAL} of 20" in json.dumps(calls[-1]["output"])
    result = row["metadata"]["evidence"]["result"]
    assert (result["steps"], result["stopReason"]) == (3 + N_EQUAL, "player_quit")
    assert row["output"] == "I stop here."
    log = read_log(run / row["metadata"]["evidence"]["log"])
    assert [event.action for event in log.events if event.action] == [
        *("RESET", *[RIGHT] * (3 + N_EQUAL)),
    ]
    told = json.dumps([request.body for request in asked])
    assert "arc-play" in told
    for secret in ("[10, 7, 24, 15, 19]", "10, 7, 24", log.header.source_sha256, "ky01.py"):
        assert secret not in told
