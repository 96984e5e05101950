"""Real agents whose provider answers 429: Assay waits as long as it was asked to, and goes on."""

from collections.abc import Callable
from typing import Any

import pytest

pytestmark = pytest.mark.real

Play = Callable[..., Any]


def test_claude_code_hands_on_what_the_provider_asked_for(live: Play) -> None:
    fault = {"status": 429, "headers": {"retry-after": "2"}, "times": "always"}
    variables = {"ANTHROPIC_API_KEY": "sk-ant-0123456789", "CLAUDE_CODE_MAX_RETRIES": "1"}
    done = live(
        "claude",
        {"steps": [{"text": "fine", "faults": [fault]}]},
        "Say fine.",
        env=lambda url: {**variables, "ANTHROPIC_BASE_URL": url},
        args=("--model", "claude-sonnet-4-5", "--retries", "1"),
    )
    assert done.row["failure"]["cause"] == "provider", done.row
    assert done.row["failure"]["retryAfterMs"] >= 2000
    (first,) = done.row["retried"]
    assert (first["cause"], first["retryAfterMs"]) == ("provider", pytest.approx(2000, abs=900))
    # Claude Code itself asks twice in each of two attempts.
    _, second, third, _ = [request.at_s for request in done.requests if request.status == 429]
    assert third - second > 2


def test_codex_is_started_again_after_a_pause(
    live: Play, codex_settings: Callable[[str], list[str]]
) -> None:
    def arguments(url: str) -> list[str]:
        words = ["--model", "gpt-5.5", "--retries", "1"]
        return [*words, *(f"--agent-arg={word}" for word in codex_settings(url))]

    done = live(
        "codex",
        {"steps": [{"text": "fine", "faults": [{"status": 429, "times": "always"}]}]},
        "Say fine.",
        env=lambda _url: {"MOCK_API_KEY": "dummy"},
        args=arguments,
    )
    assert done.row["failure"]["cause"] == "provider", done.row
    assert done.row["retried"][0]["retryAfterMs"] == 0  # Codex does not say how long
    first, second = [request.at_s for request in done.requests if request.status == 429]
    assert second - first > 1
