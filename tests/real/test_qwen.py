"""Qwen Code by its name, over the Agent Client Protocol, without an account."""

from collections.abc import Callable
from typing import Any

SCRIPT = {
    "select": "counter",  # it puts messages of its own before the prompt
    "steps": [
        {
            "thinking": "I add.",
            "text": "I write it.",
            "calls": [{"tool": "shell", "command": "echo made > made.txt && echo said-it"}],
            "usage": {"input": 120, "output": 30, "cacheRead": 40},
        },
        {"text": "It was said-it.", "expect": ["said-it"]},
    ],
}


def test_a_trial_of_qwen_code(live: Callable[..., Any], qwen_code: str) -> None:
    done = live(
        "qwen",
        SCRIPT,
        "Say it",
        program=qwen_code,
        env=lambda url: {
            "OPENAI_BASE_URL": f"{url}/v1",
            "OPENAI_API_KEY": "sk-live-0123456789abcdef",
            "OPENAI_MODEL": "mock",
        },
    )
    assert "failure" not in done.row, done
    assert [step["type"] for step in done.row["trajectory"]] == [
        *("thought", "message", "tool_call", "message")
    ]
    (call,) = done.steps("tool_call")
    assert (call["name"], call["status"]) == ("run_shell_command", "completed")
    assert (done.workspace / "made.txt").read_text() == "made\n"
    assert done.row["output"].endswith("It was said-it.")
    usage = done.row["usage"]
    assert (usage["inputTokens"], usage["outputTokens"], usage["cacheReadTokens"]) == (260, 50, 40)
    assert (done.row["agent"]["adapter"], done.row["agent"]["version"]) == ("qwen", "0.15.10")
    assert done.row["events"]["unknown"] == {}
    assert done.alive() == []
