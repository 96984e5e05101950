"""Exports for other systems: their readers accept them, and nothing they can hold is lost."""

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from assay.stats.rates import rate_interval


@pytest.fixture
def rich(tmp_path: Path) -> Path:
    """Captures with everything that a trial may have."""
    step = {"type": "tool_call", "status": "completed", "timestamp": 3}
    row: dict[str, Any] = {
        "id": "work",
        "input": "What is in a.txt?",
        "output": "It says x.",
        "hint": "x",
        "trajectory": [
            {"type": "thought", "content": "I look first.", "timestamp": 1},
            {"type": "message", "content": "Let me look.", "timestamp": 2},
            step | {"name": "Task", "input": {"q": 'say "x"'}, "callId": "c1", "duration": 5.0},
            step | {"name": "Inner", "input": {}, "parent": "c1", "callId": "c2", "timestamp": 4},
            {"type": "plan", "entries": [{"content": "read it"}], "timestamp": 9},
            step | {"name": "Read", "input": {"path": "a.txt"}, "callId": "c3", "timestamp": 10,
                    "status": "failed", "error": "no such file", "exitCode": 1},
            {"type": "message", "content": "It says x.", "timestamp": 12},
        ],
        "metadata": {"category": "files", "agent": "claude"},
        "timing": {"start": 1_790_000_000_000, "end": 1_790_000_000_020, "total": 20},
        "toolErrors": True,
        "score": {"pass": True, "score": 0.75, "reasoning": "mostly"},
        "grades": {
            "judge": {"pass": True, "score": 1.0, "reasoning": "good", "outcome": {"a": 1}},
            "style": {"pass": False, "score": 0.5, "version": "2"},
        },
        "usage": {"inputTokens": 100, "outputTokens": 20, "cacheReadTokens": 60,
                  "cacheWriteTokens": 7, "reasoningTokens": 5, "costUsd": 0.25},
        "agent": {"adapter": "claude", "version": "2.1", "model": "claude-sonnet-4-5"},
        "sessionId": "s-1",
        "warnings": ["look twice"],
        "graderFailures": {"slow": "it hung"},
    }  # fmt: skip
    down = {key: row[key] for key in ("input", "metadata", "timing", "agent")}
    down |= {"id": "down", "output": "", "trajectory": [], "toolErrors": False}
    down["failure"] = {"cause": "provider", "message": "503"}
    path = tmp_path / "rich.jsonl"
    path.write_text("".join(json.dumps(one) + "\n" for one in (row, down)))
    return path


def values(attributes: list[dict[str, Any]]) -> dict[str, Any]:
    return {one["key"]: next(iter(one["value"].values())) for one in attributes}


def spans_of(line: str) -> list[dict[str, Any]]:
    [resource] = json.loads(line)["resourceSpans"]
    [scope] = resource["scopeSpans"]
    spans: list[dict[str, Any]] = scope["spans"]
    return spans


def test_a_trace_has_answers_calls_and_the_calls_of_sub_agents(
    assay: Callable[..., Any], rich: Path
) -> None:
    done = assay("export", "otel", rich)
    work, down = map(spans_of, done.stdout.splitlines())
    by_id = {span["spanId"]: span["name"] for span in work}
    assert [(by_id.get(span.get("parentSpanId")), span["name"]) for span in work] == [
        (None, "invoke_agent claude"),
        ("invoke_agent claude", "chat claude-sonnet-4-5"),
        ("chat claude-sonnet-4-5", "execute_tool Task"),
        ("execute_tool Task", "chat claude-sonnet-4-5"),
        ("chat claude-sonnet-4-5", "execute_tool Inner"),
        ("invoke_agent claude", "chat claude-sonnet-4-5"),
        ("chat claude-sonnet-4-5", "execute_tool Read"),
        ("invoke_agent claude", "chat claude-sonnet-4-5"),
    ]
    task, read = values(work[2]["attributes"]), values(work[6]["attributes"])
    assert json.loads(task["gen_ai.tool.call.arguments"]) == {"q": 'say "x"'}
    assert (task["gen_ai.tool.call.id"], read["assay.tool.exit_code"]) == ("c1", "1")
    assert work[6]["status"] == {"code": 2, "message": "no such file"}
    assert work[2]["endTimeUnixNano"] == "1790000000008000000"
    [answer] = json.loads(values(work[1]["attributes"])["gen_ai.output.messages"])
    assert [part["type"] for part in answer["parts"]] == ["reasoning", "text", "tool_call"]
    assert down[0]["status"] == {"code": 2, "message": "503"}
    assert values(down[0]["attributes"])["error.type"] == "provider"


def test_the_root_of_a_trace_has_tokens_grades_and_what_has_no_name_of_its_own(
    assay: Callable[..., Any], rich: Path
) -> None:
    [root, *_] = spans_of(assay("export", "otel", rich).stdout.splitlines()[0])
    known = values(root["attributes"])
    names = ("input_tokens", "output_tokens", "cache_read.input_tokens")
    names = (*names, "cache_write.input_tokens", "reasoning.output_tokens")
    counts = [known[f"gen_ai.usage.{name}"] for name in names]
    assert counts == ["100", "20", "60", "7", "5"]
    assert known["gen_ai.provider.name"] == "anthropic"
    assert known["langfuse.experiment.name"] == "rich"
    assert known["langfuse.experiment.item.id"] == "work"
    assert known["langfuse.experiment.item.expected_output"] == "x"
    assert known["langfuse.experiment.item.metadata.category"] == "files"
    assert known["langfuse.experiment.item.root_observation_id"] == root["spanId"]
    assert json.loads(known["assay.warnings"]) == ["look twice"]
    assert json.loads(known["assay.usage"])["costUsd"] == 0.25
    plan, *grades, broken = root["events"]
    assert values(broken["attributes"]) == {
        "gen_ai.evaluation.name": "slow",
        "error.type": "grader_error",
        "gen_ai.evaluation.explanation": "it hung",
    }
    assert json.loads(values(plan["attributes"])["assay.plan"]) == [{"content": "read it"}]
    assert {grade["name"] for grade in grades} == {"gen_ai.evaluation.result"}
    found = {
        event["gen_ai.evaluation.name"]: (
            event["gen_ai.evaluation.score.label"],
            event["gen_ai.evaluation.score.value"],
            event.get("gen_ai.evaluation.explanation"),
        )
        for event in (values(grade["attributes"]) for grade in grades)
    }
    assert found == {
        "judge": ("pass", 1.0, "good"),
        "style": ("fail", 0.5, None),
        "verdict": ("pass", 0.75, "mostly"),
    }


def test_trials_have_traces_of_their_own_at_the_time_of_their_file(
    assay: Callable[..., Any], results: dict[str, Path]
) -> None:
    lines = assay("export", "otel", results["trials"]).stdout.splitlines()
    roots = [spans_of(line)[0] for line in lines]
    assert len({root["traceId"] for root in roots}) == len(roots) == 8
    assert len({values(root["attributes"])["langfuse.experiment.id"] for root in roots}) == 1
    assert any(span["name"] == "execute_tool Read" for line in lines for span in spans_of(line))
    assert min(int(root["startTimeUnixNano"]) for root in roots) > 1_700_000_000 * 10**9


def test_a_secret_with_quotes_is_masked_in_every_format(
    assay: Callable[..., Any], rich: Path
) -> None:
    env = {"DEPLOY_TOKEN": 'say "x"-hunter2'}
    rich.write_text(rich.read_text().replace('say \\"x\\"', 'say \\"x\\"-hunter2'))
    for kind in ("otel", "inspect"):
        assert "hunter2" in assay("export", kind, rich).stdout
        done = assay("export", kind, rich, env=env)
        assert "hunter2" not in done.stdout
        assert "Masked secrets of the environment in 1 example" in done.stderr


def test_a_collector_reads_the_traces(
    assay: Callable[..., Any], rich: Path, tmp_path: Path, read_with: Callable[..., Any]
) -> None:
    assert assay("export", "otel", rich, "-o", tmp_path / "otel.jsonl").code == 0
    work, down = read_with("otel", tmp_path / "otel.jsonl")
    assert work[0][:2] == ["", "invoke_agent claude"]
    assert work[0][2] == ["assay.plan", *["gen_ai.evaluation.result"] * 4]
    assert [name for _, name, _ in work if name.startswith("execute_tool")] == [
        "execute_tool Task", "execute_tool Inner", "execute_tool Read",
    ]  # fmt: skip
    assert [span[:2] for span in down] == [["", "invoke_agent claude"]]


def test_what_is_exported_as_an_inspect_log_comes_back_the_same(
    assay: Callable[..., Any], rich: Path, tmp_path: Path
) -> None:
    log = tmp_path / "log.json"
    assert assay("export", "inspect", rich, "-o", log).code == 0
    down, work = assay("import", "inspect", log).rows
    before, before_down = (json.loads(line) for line in rich.read_text().splitlines())
    same = ("id", "input", "output", "hint", "score", "grades", "usage", "agent", "toolErrors")
    assert {name: work[name] for name in same} == {name: before[name] for name in same}
    names = ("type", "content", "name", "input", "status", "error", "callId")
    own = [one for one in before["trajectory"] if one["type"] != "plan" and "parent" not in one]
    assert [[step.get(name) for name in names] for step in work["trajectory"]] == [
        [step.get(name) for name in names] for step in own
    ]
    assert work["metadata"]["category"] == "files"
    assert work["timing"]["start"] == before["timing"]["start"]
    assert (down["failure"], "score" in down) == (before_down["failure"], False)


def test_epochs_of_an_inspect_log_are_trials(
    assay: Callable[..., Any], results: dict[str, Path], tmp_path: Path
) -> None:
    log = tmp_path / "log.json"
    assert assay("export", "inspect", results["trials"], "-o", log).code == 0
    rows = {row["id"]: row for row in assay("import", "inspect", log).rows}
    found = [(one["trialNum"], one["output"], one["pass"]) for one in rows["both"]["trials"]]
    assert found == [(1, "good", True), (2, "worst", False), (3, "best", True), (4, "bad", False)]
    for words in ((results["trials"], results["captures"]), (results["trials"], "-o", "x.eval")):
        assert assay("export", "inspect", *words).code == 2


def test_inspect_reads_the_log(
    assay: Callable[..., Any], rich: Path, tmp_path: Path, read_with: Callable[..., Any]
) -> None:
    assert assay("export", "inspect", rich, "-o", tmp_path / "log.json").code == 0
    log = read_with("inspect", tmp_path / "log.json")
    assert (log["status"], log["eval"]["model"]) == ("success", "claude-sonnet-4-5")
    assert log["results"]["total_samples"] == 2
    means = {one["name"]: one["metrics"]["mean"]["value"] for one in log["results"]["scores"]}
    assert means == {"judge": 1.0, "style": 0.5}
    work, down = log["samples"]
    roles = [message["role"] for message in work["messages"]]
    assert roles == ["user", "assistant", "tool", "assistant", "tool", "assistant"]
    assert work["messages"][4]["error"]["message"] == "no such file"
    assert work["model_usage"]["claude-sonnet-4-5"]["input_tokens_cache_write"] == 7
    assert work["output"]["completion"] == "It says x."
    assert [step.get("name") for step in work["store"]["assay"]["otherSteps"]] == ["Inner", None]
    assert down["error"]["message"] == "provider: 503"


def test_a_limit_ends_a_sample_of_inspect_and_an_error_spoils_it(
    assay: Callable[..., Any], rich: Path
) -> None:
    work, down = (json.loads(line) for line in rich.read_text().splitlines())
    limits = {"agent_timeout": "time", "agent_limit": "custom"}
    rows = [
        down | {"id": cause, "failure": {"cause": cause, "message": f"why {cause}"}}
        for cause in (*limits, "provider")
    ]
    rich.write_text("".join(json.dumps(row) + "\n" for row in (work, *rows)))
    samples = {
        one["id"]: one for one in json.loads(assay("export", "inspect", rich).stdout)["samples"]
    }
    for cause, kind in limits.items():
        assert samples[cause]["limit"] == {"type": kind, "limit": 0, "reason": f"why {cause}"}
        assert "error" not in samples[cause]
    assert samples["provider"]["error"]["message"] == "provider: why provider"
    assert "limit" not in samples["provider"]
    assert not {"limit", "error"} & samples["work"].keys()


def test_every_eval_ever_accepts_results_and_samples_and_nothing_is_lost(
    assay: Callable[..., Any], rich: Path, tmp_path: Path, read_with: Callable[..., Any]
) -> None:
    done = assay("export", "every-eval", rich, "-o", tmp_path)
    assert done.code == 0, done
    assert "1 did not measure the agent (provider error)" in done.stderr
    [path] = tmp_path.glob("data/rich/anthropic/claude-sonnet-4-5/*.json")
    document, samples = read_with("every_eval", path)
    assert document["schema_version"] == "0.3.0"
    assert document["model_info"]["id"] == "anthropic/claude-sonnet-4-5"
    rates = {
        one["evaluation_result_id"].partition("/")[2]: one["score_details"]["score"]
        for one in document["evaluation_results"]
    }
    assert rates == {"pass": 1.0, "pass/judge": 1.0, "pass/style": 0.0}
    [work] = samples
    assert (work["interaction_type"], work["sample_id"]) == ("agentic", "work")
    assert work["evaluation"] == {
        "score": 0.75, "is_correct": True, "num_turns": 1, "tool_calls_count": 2,
    }  # fmt: skip
    assert [one["role"] for one in work["messages"]] == [
        "user", "assistant", "tool", "assistant", "tool", "assistant",
    ]  # fmt: skip
    assert work["messages"][1]["reasoning_trace"] == "I look first."
    assert work["messages"][1]["tool_calls"][0]["arguments"] == {"q": 'say "x"'}
    assert work["token_usage"]["input_tokens_cache_write"] == 7
    kept = json.loads(work["metadata"]["assay"])
    before = json.loads(rich.read_text().splitlines()[0])
    same = ("score", "grades", "usage", "agent", "sessionId", "warnings", "metadata")
    assert {name: kept[name] for name in same} == {name: before[name] for name in same}


def test_every_eval_has_the_interval_of_compare_and_a_sample_for_each_trial(
    assay: Callable[..., Any], results: dict[str, Path], tmp_path: Path
) -> None:
    words = ("export", "every-eval", results["trials"])
    assert assay(*words, "-o", tmp_path).code == 0
    [path] = tmp_path.glob("data/*/*/*/*.json")
    document = json.loads(path.read_text())
    kept = document["detailed_evaluation_results"]
    samples = (tmp_path / kept["file_path"]).read_bytes()
    assert kept["checksum"] == hashlib.sha256(samples).hexdigest()
    assert kept["total_rows"] == len(samples.splitlines())
    [result, *_] = document["evaluation_results"]
    interval = result["score_details"]["uncertainty"]["confidence_interval"]
    _, wanted = rate_interval([2, 2, 1], [4, 2, 2])
    assert (interval["lower"], interval["upper"]) == (wanted.low, wanted.high)
    assert assay(*words).code == 2
    assert assay(*words, results["captures"], "-o", tmp_path).code == 2
