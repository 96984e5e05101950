"""`assay import trajectories`: ATIF and mini-swe-agent."""

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from assay.export.trajectories import read_trajectories
from assay.records.capture import ToolCall

MINI = {
    "trajectory_format": "mini-swe-agent-1",
    "info": {
        "exit_status": "Submitted", "submission": "diff --git a/x b/x", "mini_version": "1.17",
        "model_stats": {"instance_cost": 0.25, "api_calls": 2},
        "config": {"model": {"model_name": "claude-sonnet-4-5"}},
    },
    "messages": [
        {"role": "system", "content": "You are at a shell."},
        {"role": "user", "content": "Fix the bug."},
        {"role": "assistant", "content": "I look.\n\n```bash\nls\n```"},
        {"role": "user", "content": "<returncode>0</returncode>x.py"},
        {"role": "assistant", "content": "Done.", "extra": {"actions": [{"command": "submit"}]}},
    ],
}  # fmt: skip


def test_what_is_exported_as_atif_comes_back_the_same(
    assay: Callable[..., Any], tmp_path: Path
) -> None:
    prompts = tmp_path / "prompts.jsonl"
    prompts.write_text(json.dumps({"id": "sum", "input": "What is 17 + 25?", "hint": "42"}) + "\n")
    results, atif, back = (tmp_path / f"{name}.jsonl" for name in ("results", "atif", "back"))
    assay("capture", prompts, "-s", "demo", "-g", "contains", "-q", "-o", results)
    assert assay("export", "atif", results, "-o", atif).code == 0
    exported = json.loads(atif.read_text())
    assert exported["schema_version"] == "ATIF-v1.8"
    assert any("reasoning_content" in step for step in exported["steps"])
    done = assay("import", "trajectories", atif, "-o", back)
    assert done.code == 0, done.stderr
    before, after = (json.loads(path.read_text()) for path in (results, back))
    for name in ("id", "input", "output"):
        assert after[name] == before[name]
    kinds = [(step["type"], step.get("content"), step.get("name"), step.get("input"))
             for step in after["trajectory"]]  # fmt: skip
    assert kinds == [
        (step["type"], step.get("content"), step.get("name"), step.get("input"))
        for step in before["trajectory"] if step["type"] != "plan"
    ]  # fmt: skip
    assert after["score"]["pass"] is before["score"]["pass"] is True
    assert after["usage"]["outputTokens"] == before["usage"]["outputTokens"]


def test_a_trajectory_of_mini_swe_agent(assay: Callable[..., Any], tmp_path: Path) -> None:
    path = tmp_path / "task-1.traj.json"
    path.write_text(json.dumps(MINI, indent=2))
    [row] = assay("import", "trajectories", path).rows
    assert (row["id"], row["input"]) == ("task-1", "Fix the bug.")
    assert row["output"] == "diff --git a/x b/x"
    kinds = [step["type"] for step in row["trajectory"]]
    assert kinds == ["message", "tool_call", "message", "tool_call"]
    look = row["trajectory"][1]
    assert (look["input"], look["status"]) == ({"command": "ls"}, "completed")
    assert look["output"].endswith("x.py")
    assert row["usage"]["costUsd"] == 0.25
    assert row["agent"]["model"] == "claude-sonnet-4-5"


def test_any_other_file_is_refused_with_what_would_do(
    assay: Callable[..., Any], tmp_path: Path
) -> None:
    path = tmp_path / "x.json"
    for text in ('{"steps": []}', "[1]", '"ATIF"', "", '{"steps": ['):
        path.write_text(text)
        done = assay("import", "trajectories", path, "-o", tmp_path / "out.jsonl")
        assert done.code == 1
        assert "mini-swe-agent" in done.stderr
    path.write_text('{"schema_version": "ATIF-v1.8", "steps": [1, {"source": "agent"}]}')
    assert assay("import", "trajectories", path).code == 0


@pytest.mark.parametrize("command", ["inspect", "trajectories"])
def test_a_file_that_is_missing_or_something_else_is_named(
    assay: Callable[..., Any], tmp_path: Path, command: str
) -> None:
    (tmp_path / "other.json").write_text("{")
    for name, why in {"nope.json": "No such file", ".": "Is a directory", "other.json": ""}.items():
        done = assay("import", command, name, "-o", "out.jsonl")
        assert done.code == 1
        assert f"{name}: {why}" in done.stderr
        assert "--benchmark" not in done.stderr
        assert not (tmp_path / "out.jsonl").exists()


def test_blocks_that_only_begin_cost_no_time(tmp_path: Path) -> None:
    """What an agent said is read in a time that grows with its length; 400 kB took five minutes."""
    said = "```bash\nls\n``` " + "```bash\na" * 40_000
    value = {
        "trajectory_format": "mini-swe-agent-1",
        "messages": [{"role": "user", "content": "u"}, {"role": "assistant", "content": said}],
    }
    (tmp_path / "a.traj.json").write_text(json.dumps(value))
    began_s = time.process_time()
    (trial,) = read_trajectories(tmp_path / "a.traj.json")
    assert time.process_time() - began_s < 5
    assert [step.input for step in trial.trajectory if isinstance(step, ToolCall)] == [
        {"command": "ls"}
    ]


ATIF = {
    "schema_version": "ATIF-v1.8",
    "agent": {"name": "claude-code", "version": "2.1", "model_name": "claude-sonnet-4-5"},
    "steps": [
        {"step_id": 1, "source": "user", "message": "Make it so."},
        {"step_id": 2, "source": "agent", "message": "Done.", "reasoning_content": "Easy."},
    ],
}


def test_tokens_of_steps_count_without_totals_and_an_image_is_named(
    assay: Callable[..., Any], tmp_path: Path
) -> None:
    spent = {"prompt_tokens": 10, "completion_tokens": 5, "cached_tokens": 2, "cost_usd": 0.25}
    image = {"type": "image", "source": {"media_type": "image/png", "path": "a.png"}}
    steps = [
        {"step_id": 1, "source": "user", "message": [{"type": "text", "text": "Look."}, image]},
        {"step_id": 2, "source": "agent", "message": "I see.", "metrics": spent},
        {"step_id": 3, "source": "agent", "message": "Done.", "metrics": spent},
    ]
    (tmp_path / "a.json").write_text(json.dumps({**ATIF, "steps": steps}))
    [row] = assay("import", "trajectories", "a.json").rows
    assert row["input"] == "Look.\n[image: a.png]"
    assert row["usage"] == {
        "inputTokens": 20, "outputTokens": 10, "cacheReadTokens": 4, "costUsd": 0.5,
        "costSource": "reported",
    }  # fmt: skip
    (tmp_path / "row.jsonl").write_text(json.dumps(row) + "\n")
    assert assay("export", "atif", "row.jsonl", "-o", "again.jsonl").code == 0
    [back] = assay("import", "trajectories", "again.jsonl").rows
    assert back["usage"] == row["usage"]  # by the export's own numbers, which ATIF has no place for


def harbor_trial(job: Path, task: str, attempt: str, **more: Any) -> None:
    """Write what Harbor 0.24 leaves of a trial."""
    folder = job / f"{task}__{attempt}"
    (folder / "agent").mkdir(parents=True)
    (folder / "verifier").mkdir()
    result = {
        "task_name": f"terminal-bench/{task}",
        "trial_name": folder.name,
        "source": "terminal-bench",
        "agent_info": {
            "name": "claude-code", "version": "2.1", "model_info": {"name": "claude-sonnet-4-5"},
        },
        "agent_result": {"n_input_tokens": 100, "n_output_tokens": 20, "cost_usd": 0.25},
        "verifier_result": {"rewards": {"reward": 1.0}},
        "exception_info": None,
        "agent_execution": {
            "started_at": "2026-11-19T20:00:00Z", "finished_at": "2026-11-19T20:00:30Z",
        },
    }  # fmt: skip
    (folder / "result.json").write_text(json.dumps({**result, **more}))
    (folder / "agent/trajectory.json").write_text(json.dumps(ATIF))
    (folder / "verifier/test-stdout.txt").write_text("1 failed\n")


def test_a_job_of_harbor_has_rewards_failures_tokens_and_steps(
    assay: Callable[..., Any], tmp_path: Path
) -> None:
    job = tmp_path / "jobs/2026-11-19"
    harbor_trial(job, "good", "a")
    harbor_trial(job, "bad", "a", verifier_result={"rewards": {"reward": 0.0}})
    harbor_trial(job, "bad", "b")
    slow = {"exception_type": "AgentTimeoutError", "exception_message": "after 60 s"}
    harbor_trial(job, "slow", "a", exception_info=slow)
    broken = {"exception_type": "EnvironmentStartTimeoutError", "exception_message": "no image"}
    harbor_trial(job, "broken", "a", exception_info=broken, verifier_result=None)
    (job / "result.json").write_text('{"n_total_trials": 5}')
    done = assay("import", "harbor", job)
    assert done.code == 0, done
    rows = {row["id"]: row for row in done.rows}
    assert [trial["pass"] for trial in rows["bad"]["trials"]] == [False, True]
    # A file has rows of one kind, because nothing reads both in one.
    [good], [slow_one], [unmeasured] = (rows[id]["trials"] for id in ("good", "slow", "broken"))
    assert rows["good"]["input"] == "Make it so."
    assert [step["type"] for step in good["trajectory"]] == ["thought", "message"]
    assert (good["pass"], good["duration"]) == (True, 30_000)
    assert good["usage"] == {
        "inputTokens": 100, "outputTokens": 20, "costUsd": 0.25, "costSource": "agent",
    }  # fmt: skip
    assert good["agent"] == {
        "adapter": "claude-code", "version": "2.1", "model": "claude-sonnet-4-5",
    }  # fmt: skip
    assert (slow_one["failure"]["cause"], slow_one["pass"]) == ("agent_timeout", True)
    assert (unmeasured["failure"]["cause"], "pass" in unmeasured) == ("harness", False)
    (tmp_path / "job.jsonl").write_text("".join(json.dumps(row) + "\n" for row in done.rows))
    assert assay("summarize", "job.jsonl").code == 0
    shown = assay("report", "job.jsonl", "-f", "markdown")
    assert "5 of 5 trials run, 4 graded" in shown.stdout, shown
    empty = assay("import", "harbor", tmp_path / "jobs/2026-11-19/good__a/agent")
    assert (empty.code, "there is no trial of Harbor" in empty.stderr) == (1, True)


def test_of_a_job_of_several_agents_one_is_named(assay: Callable[..., Any], tmp_path: Path) -> None:
    """As one run, trials of two agents would be trials of the first."""
    job = tmp_path / "job"
    oracle = {"name": "oracle", "version": "1", "model_info": None}
    other = {"name": "claude-code", "version": "2.1", "model_info": {"name": "claude-opus-5"}}
    for attempt, more in (("a", {}), ("b", {"agent_info": oracle}), ("c", {"agent_info": other})):
        harbor_trial(job, "same", attempt, **more)
    done = assay("import", "harbor", job)
    assert done.code == 1
    assert (
        "trials of claude-code:claude-sonnet-4-5, oracle, claude-code:claude-opus-5" in done.stderr
    )
    assert "--agent" in done.stderr
    for agent in ("oracle", "claude-code:claude-opus-5"):
        [row] = assay("import", "harbor", job, "--agent", agent).rows
        assert row["agent"]["adapter"] == agent.partition(":")[0]
    assert assay("import", "harbor", job, "--agent", "codex").code == 1


def test_an_inspect_log_a_harbor_job_and_sessions_open_together(
    assay: Callable[..., Any], tmp_path: Path
) -> None:
    log = {"version": 2, "status": "success", "eval": {"task": "sums", "model": "m"}}
    sample = {"id": 1, "epoch": 1, "input": "2+2?", "target": "4", "messages": []}
    sample["scores"] = {"match": {"value": "C"}}
    (tmp_path / "log.json").write_text(json.dumps({**log, "samples": [sample]}))
    harbor_trial(tmp_path / "job", "good", "a")
    session = tmp_path / "home/.claude/projects/p/s.jsonl"
    session.parent.mkdir(parents=True)
    about = {"sessionId": "s", "cwd": str(tmp_path), "version": "2.1"}
    lines = [
        {"type": "user", "message": {"role": "user", "content": "Hello"}, "uuid": "u1",
         "timestamp": "2026-11-19T10:00:00.000Z"},
        {"type": "assistant", "uuid": "u2", "timestamp": "2026-11-19T10:00:01.000Z",
         "message": {"id": "m1", "role": "assistant", "model": "claude-sonnet-4-5",
                     "content": [{"type": "text", "text": "Hi."}],
                     "usage": {"input_tokens": 5, "output_tokens": 2}}},
    ]  # fmt: skip
    session.write_text("".join(json.dumps({**line, **about}) + "\n" for line in lines))
    env = {"HOME": str(tmp_path / "home")}
    for words in (("inspect", "log.json"), ("harbor", "job"), ("sessions", "--agent", "claude")):
        assert assay("import", *words, "-o", f"{words[0]}.jsonl", env=env).code == 0
    done = assay(
        "report", "inspect.jsonl", "harbor.jsonl", "sessions.jsonl", "-o", "all.html", env=env
    )
    assert done.code == 0, done
    page = (tmp_path / "all.html").read_text()
    assert all(name in page for name in ("inspect", "harbor", "sessions"))
