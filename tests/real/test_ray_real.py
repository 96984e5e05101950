"""Real agents on a Ray cluster of two nodes, against the scripted model."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from assay.testing.model import ScriptedModel

pytestmark = [pytest.mark.real, pytest.mark.filterwarnings("ignore")]
Play = Callable[..., Any]


def test_real_agents_run_on_other_nodes(play: Play, kind: Any, ray_cluster: Any) -> None:
    call = {"tool": "shell", "command": "echo made > made.txt && echo said-it"}
    steps = [{"calls": [call]}, {"text": "It is made."}]
    # One agent runs on both nodes; a trial of the others takes up to 8 s of CPU time.
    texts = ("One.", "Two.") if kind.name == "claude" else ("One.",)
    where = ("-j", 2, "--executor", "ray", "--address", ray_cluster.address)
    done = play({"steps": steps}, *texts, args=where)
    assert done.code == 0, done.stderr
    assert [row["output"] for row in done.rows] == ["It is made." for _ in texts], done.rows
    for row in done.rows:
        assert [step["type"] for step in row["trajectory"]][-1] == "message"
        (call_step,) = [step for step in row["trajectory"] if step["type"] == "tool_call"]
        assert "said-it" in str(call_step["output"])
        assert row["usage"]["inputTokens"] > 0
        assert row["sessionId"]
    # The workspaces came back, and the key is in nothing that was kept.
    assert len(list(done.folder.glob("workspaces/*/made.txt"))) == len(texts)
    assert done.holds(kind.env("")[kind.key]) == []
    assert done.alive() == []


def test_a_real_judge_is_asked_on_other_nodes(
    assay: Any, agent_program: Callable[[str], Path], ray_cluster: Any, tmp_path: Path
) -> None:
    rows = [
        {"id": f"r{n}", "input": "q", "output": f"answer {n}", "trajectory": []} for n in range(2)
    ]
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (tmp_path / "rubric.md").write_text("It must be an answer.")
    verdict = {"pass": True, "score": 0.75, "reasoning": "It is one."}
    judge = {"agent": f"claude:{agent_program('claude')}", "rubric": "rubric.md"}
    answer = json.dumps({"code": "{{judge_code}}", **verdict})
    with ScriptedModel({"steps": [{"text": answer}], "toolless": "step"}) as model:
        done = assay(
            *("grade", "rows.jsonl", "-g", f"judge:{json.dumps(judge)}", "-j", 2),
            *("--executor", "ray", "--address", ray_cluster.address, "-o", "graded.jsonl"),
            *("--env", "ANTHROPIC_BASE_URL", "--env", "ANTHROPIC_API_KEY"),
            env={"ANTHROPIC_BASE_URL": model.url, "ANTHROPIC_API_KEY": "sk-ant-0123456789"},
            timeout=300,
        )
        asked = json.dumps([request.body for request in model.requests])
    assert done.code == 0, done.stderr
    graded = [json.loads(line) for line in (tmp_path / "graded.jsonl").read_text().splitlines()]
    assert [row["id"] for row in graded] == ["r0", "r1"]
    for row in graded:
        grade = row["grades"]["judge"]
        assert {name: grade[name] for name in verdict} == verdict
    assert all(f"answer {n}" in asked for n in range(2))
    assert "It must be an answer." in asked
