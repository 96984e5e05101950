"""Real agents on a Ray cluster of two nodes, against the scripted model."""

import json
from collections.abc import Callable
from typing import Any

import pytest

pytestmark = [pytest.mark.real, pytest.mark.filterwarnings("ignore")]
KEY = "sk-live-0123456789abcdef"
Variables = Callable[[str], dict[str, str]]


def claude(url: str) -> dict[str, str]:
    return {"ANTHROPIC_BASE_URL": url, "ANTHROPIC_API_KEY": KEY}


def opencode(url: str) -> dict[str, str]:
    options = {"baseURL": f"{url}/v1", "apiKey": "{env:MOCK_API_KEY}"}
    provider = {"npm": "@ai-sdk/openai-compatible", "name": "Mock", "options": options}
    config = {"provider": {"mock": {**provider, "models": {"mock-model": {"name": "Mock"}}}}}
    return {"OPENCODE_CONFIG_CONTENT": json.dumps(config), "MOCK_API_KEY": KEY}


@pytest.mark.parametrize(
    ("agent", "variables", "model"),
    [("claude", claude, "claude-sonnet-4-5"), ("opencode", opencode, "mock/mock-model")],
)
def test_real_agents_run_on_other_nodes(
    live: Any, ray_cluster: Any, agent: str, variables: Variables, model: str
) -> None:
    call = {"tool": "shell", "command": "echo made > made.txt && echo said-it"}
    steps = [{"calls": [call]}, {"text": "It is made."}]
    given = ("--model", model, "-j", "2", "--executor", "ray", "--address", ray_cluster.address)
    done = live(agent, {"steps": steps}, "One.", "Two.", env=variables, args=given)
    assert done.code == 0, done.stderr
    assert [row["output"] for row in done.rows] == ["It is made."] * 2, done.rows
    for row in done.rows:
        assert [step["type"] for step in row["trajectory"]][-1] == "message"
        (call_step,) = [step for step in row["trajectory"] if step["type"] == "tool_call"]
        assert "said-it" in str(call_step["output"])
        assert row["usage"]["inputTokens"] > 0
        assert row["sessionId"]
    # The workspaces came back, and the key is in nothing that was kept.
    assert len(list(done.folder.glob("workspaces/*/made.txt"))) == 2
    assert done.holds(KEY) == []
    assert done.alive() == []
