"""Real agents ask through `assay mcp` why a prompt regressed; each answer reaches the model."""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.library.regressed import write_runs

pytestmark = pytest.mark.real
BOTH = {"runs": ["before", "after"]}


def asked(name: str, **arguments: Any) -> dict[str, Any]:
    return {"tool": "mcp", "server": "assay", "name": name, "arguments": arguments}


@pytest.mark.parametrize("kind", ["claude", "codex"], indirect=True)
def test_an_agent_finds_out_why_a_prompt_regressed(
    play: Callable[..., Any], kind: Any, tmp_path: Path
) -> None:
    write_runs(tmp_path)
    served = {"command": sys.executable, "args": ["-m", "assay", "mcp", str(tmp_path)]}
    (tmp_path / "mcp.json").write_text(json.dumps({"mcpServers": {"assay": served}}))
    found = "4 of 4 pass, without it 0 of 4"
    steps = [
        {"calls": [asked("list_runs")]},
        {"calls": [asked("verdict", **BOTH)], "expect": ["run after: 16 trials of 7 prompts"]},
        {
            "calls": [asked("divergence", prompt="relnotes", **BOTH)],
            "expect": ["after regressed on relnotes"],
        },
        {"calls": [asked("trial", run="after", prompt="relnotes")], "expect": [found]},
        {"text": "It no longer lists the tags.", "expect": ["lacks v1.1", "git log -1"]},
    ]
    done = play(
        {"steps": steps},
        "Why did prompt relnotes regress?",
        args=("--mcp", tmp_path / "mcp.json"),
    )
    assert "failure" not in done.row, done
    assert done.row["output"] == "It no longer lists the tags."
    calls = done.steps("tool_call")
    assert [call["status"] for call in calls] == ["completed"] * 4
    assert found in calls[2]["output"]
    assert done.alive() == []
