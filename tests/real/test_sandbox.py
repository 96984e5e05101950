"""The four real agents under --sandbox: they work, and see nothing that is not theirs."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytestmark = [pytest.mark.real, pytest.mark.usefixtures("bubblewrap")]

MODELS = {
    "claude": "claude-sonnet-4-5",
    "codex": "gpt-5.5",
    "gemini": "gemini-2.5-pro",
    "opencode": "mock/mock-model",
}
SECRET = "planted-7d1f"


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


def arguments(agent: str, url: str) -> tuple[str, ...]:
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
    return tuple(words)


@pytest.mark.parametrize("sandbox", ["--sandbox", "--sandbox=no-network"])
@pytest.mark.parametrize("agent", MODELS)
def test_works_and_cannot_read_a_planted_file(
    agent: str, sandbox: str, live: Callable[..., Any], tmp_path: Path
) -> None:
    planted = tmp_path / "planted.txt"
    planted.write_text(SECRET)
    assay_source = Path(__file__).parents[2] / "src"
    look = f"cat {planted}; ls {assay_source} /proc/1/root/work; ls -d /proc/[0-9]*"
    script = {
        "steps": [
            {"calls": [{"tool": "shell", "command": "echo made > made.txt && echo said-it"}]},
            {"calls": [{"tool": "shell", "command": f"{look}; true"}]},
            {"text": "Done."},
        ]
    }
    done = live(
        agent,
        script,
        env=lambda url: variables(agent, url),
        args=lambda url: (*arguments(agent, url), sandbox),
    )
    assert "failure" not in done.row, done
    assert done.row["output"] == "Done."
    assert (done.workspace / "made.txt").read_text() == "made\n"
    first, second = done.steps("tool_call")
    assert "said-it" in first["output"], done
    assert SECRET not in json.dumps(done.row)
    seen = second["output"]
    assert "No such file" in seen, seen
    assert "assay_arc" not in seen
    assert seen.count("/proc/") < 20, "it sees the processes of others"
    assert done.row["raw"]
    assert done.holds(SECRET) == []
    assert done.alive() == []
