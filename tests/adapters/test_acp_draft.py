"""Version 2 of the Agent Client Protocol, a draft, against the official SDK."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

AGENT = Path(__file__).parents[1] / "agents" / "acp_draft.mjs"


def test_the_sdk_agrees(
    acp_sdk: Path, assay: Callable, prompts: Callable, tmp_path: Path, alive: Callable
) -> None:
    """Agents of its experimental side: version 2, version 1, both, and a sign-in."""
    (tmp_path / "node_modules").symlink_to(acp_sdk / "node_modules")
    agent = shutil.copy(AGENT, tmp_path)

    def capture(*rows: Any, flags: str = "", model: str = "") -> list[dict[str, Any]]:
        path = prompts(*({"id": str(n), "input": given} for n, given in enumerate(rows)))
        options = ("--model", model) if model else ()
        done = assay(
            "capture", path, "-q", "-t", 20_000, "-s", f"acp:node {agent}{flags}", *options
        )
        return done.rows

    two, failed, refused = capture(
        ["one", "two"], "fail", ["refuse", "never"], flags=" --login,version=2", model="large"
    )
    assert [step["type"] for step in two["trajectory"]] == 2 * [
        *("thought", "message", "tool_call", "tool_call", "plan")
    ]
    assert two["trajectory"][1]["content"] == "yes one large 1!"
    assert two["output"] == "yes two large 2!"
    shell, read = two["trajectory"][7:9]
    assert (shell["name"], shell["status"]) == ("shell", "failed")
    assert (shell["output"], shell["exitCode"]) == ("ü1\n2\n", 3)
    assert (read["name"], read["output"]) == ("read", "one\ntwo")
    assert two["events"]["unknown"] == {}
    assert two["usage"]["costUsd"] == 0.5
    assert (two["agent"]["adapter"], two["agent"]["model"]) == ("draft", "large")
    assert failed["failure"]["cause"] == "provider"
    assert refused["failure"]["cause"] == "agent_refused"
    (old,) = capture("hi", flags=" --only-old,version=2")
    assert (old["output"], old["agent"]["adapter"]) == ("old hi", "old")
    assert "speaks version 1" in old["warnings"][0]
    (default,) = capture("hi")
    assert default["output"] == "old hi"
    (unasked,) = capture("hi", flags=" --only-draft")
    assert unasked["failure"]["cause"] == "harness"
    assert "version=2" in unasked["failure"]["message"]
    assert alive() == []
