"""--benchmark inspect-log:FILE: the samples of an Inspect log are prompts."""

import json
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

SAMPLES: list[dict[str, Any]] = [
    {"id": 1, "epoch": 1, "input": "What is 1 + 1?", "target": "2", "metadata": {"kind": "sum"}},
    {"id": 1, "epoch": 2, "input": "What is 1 + 1?", "target": "2", "metadata": {"kind": "sum"}},
    {
        "id": "chat",
        "epoch": 1,
        "input": [
            {"role": "system", "content": "Be brief.", "id": "m1"},
            {"role": "user", "content": [{"type": "text", "text": "attachment://ab12"}]},
        ],
        "choices": ["red", "blue"],
        "target": ["B", "blue"],
        "attachments": {"ab12": "Which colour is the sky?"},
        "scores": {"choice": {"value": float("nan")}},
        "messages": [{"role": "assistant", "content": "blue"}],
    },
]
UNFIT: list[dict[str, Any]] = [
    {"id": "files", "input": "x", "target": "", "files": ["a.txt"]},
    {"id": "set-up", "input": "x", "target": "", "setup": "touch /tmp/x"},
    {"id": "shots", "input": [{"role": "assistant", "content": "y"}], "target": ""},
    {"id": "image", "input": [{"role": "user", "content": [{"type": "image"}]}], "target": ""},
]


def log_of(*samples: dict[str, Any]) -> dict[str, Any]:
    return {"version": 2, "status": "success", "eval": {"task": "sums"}, "samples": list(samples)}


def write_json(path: Path, *samples: dict[str, Any]) -> Path:
    path.write_text(json.dumps(log_of(*samples)))
    return path


def write_archive(path: Path, *samples: dict[str, Any]) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for sample in samples:
            name = f"samples/{sample['id']}_epoch_{sample.get('epoch', 1)}.json"
            archive.writestr(name, json.dumps(sample))
        archive.writestr("summaries.json", "[]")
        archive.writestr("header.json", json.dumps({"version": 2, "eval": {"task": "sums"}}))
    return path


@pytest.mark.parametrize(("write", "name"), [(write_json, "log.json"), (write_archive, "log.eval")])
def test_each_sample_is_a_prompt(
    assay: Callable[..., Any], tmp_path: Path, write: Callable[..., Path], name: str
) -> None:
    path = write(tmp_path / name, *SAMPLES)
    words = ("capture", "--benchmark", f"inspect-log:{path}", "--simple", "echo 2 {}")
    done = assay(*words, "-g", "contains")
    rows = {row["id"]: row for row in done.rows}
    assert set(rows) == {"1", "chat"}
    assert rows["1"]["output"].strip() == "2 What is 1 + 1?"
    assert rows["1"]["hint"] == "2"
    assert rows["1"]["metadata"]["kind"] == "sum"
    assert rows["1"]["metadata"]["inspectTask"] == "sums"
    assert rows["1"]["score"]["pass"] is True
    assert rows["chat"]["input"] == "Be brief.\n\nWhich colour is the sky?\n\nA) red\nB) blue"
    assert rows["chat"]["metadata"]["targets"] == ["B", "blue"]
    assert "Be brief." in rows["chat"]["output"]
    assert "hint" not in rows["chat"]  # any of its targets will do
    assert "score" not in rows["chat"]  # so contains has nothing to look for
    rows = {row["id"]: row for row in assay(*words[:-1], "echo the sky is blue: {}").rows}
    assert (rows["chat"]["score"]["pass"], rows["1"].get("score")) == (True, None)


def test_samples_that_cannot_be_run_are_refused_and_can_be_left_out(
    assay: Callable[..., Any], tmp_path: Path
) -> None:
    path = write_json(tmp_path / "log.json", *SAMPLES, *UNFIT)
    words = ("capture", "--benchmark", f"inspect-log:{path}", "--simple", "echo {}")
    done = assay(*words, "-o", "out.jsonl")
    assert done.code == 1
    assert "4 of 6 samples cannot be run. files: it needs files" in done.stderr
    for reason in ("set-up script", "role assistant", "type image"):
        assert reason in done.stderr
    assert not (tmp_path / "out.jsonl").exists()
    assert [row["id"] for row in assay(*words, "--filter", "1").rows] == ["1"]


@pytest.mark.parametrize("content", [b"{", b"[]", b'{"samples": [{"id": 1}]}', b"PK\x05\x06"])
def test_a_file_that_is_no_log_is_named(
    assay: Callable[..., Any], tmp_path: Path, content: bytes
) -> None:
    path = tmp_path / "log.json"
    path.write_bytes(content)
    done = assay("capture", "--benchmark", f"inspect-log:{path}", "--simple", "echo {}")
    assert done.code == 1
    assert "log.json" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_missing_log_is_named(assay: Callable[..., Any]) -> None:
    done = assay("capture", "--benchmark", "inspect-log:no.json", "--simple", "echo {}")
    assert done.code == 1
    assert "no.json: No such file" in done.stderr


def test_a_sample_that_unpacks_to_gigabytes_is_refused(assay: Callable, tmp_path: Path) -> None:
    path = tmp_path / "bomb.eval"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        archive.writestr("header.json", '{"eval":{"task":"t"}}')
        with archive.open("samples/1_epoch_1.json", "w") as file:
            for _ in range(300):
                file.write(b" " * (1 << 20))
    assert path.stat().st_size < 3_000_000
    done = assay("capture", "--benchmark", f"inspect-log:{path}", "--shell", "true")
    assert done.code == 1
    assert "samples/1_epoch_1.json has more than 256 MB" in done.stderr


LOGGED: list[dict[str, Any]] = [
    {
        "id": "sum",
        "epoch": epoch,
        "input": "What is 1 + 1?",
        "target": "2",
        "metadata": {"kind": "sum"},
        "messages": [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": "What is 1 + 1?"},
            {
                "role": "assistant",
                "content": [
                    {"type": "reasoning", "reasoning": "I add."},
                    {"type": "text", "text": "Let me see."},
                ],
                "tool_calls": [{"id": "c1", "function": "add", "arguments": {"a": 1, "b": 1}}],
            },
            {"role": "tool", "tool_call_id": "c1", "content": "attachment://ab"},
            {"role": "assistant", "content": answer},
        ],
        "attachments": {"ab": "2"},
        "scores": {"includes": {"value": value, "answer": answer, "explanation": "as asked"}},
        "model_usage": {"openai/gpt-5.5": {"input_tokens": 100, "output_tokens": 10}},
        "started_at": "2026-11-18T10:00:00+00:00",
        "total_time": 1.5,
    }
    for epoch, (answer, value) in enumerate((("It is 2.", "C"), ("It is 3.", "I")), 1)
]


@pytest.mark.parametrize(("write", "name"), [(write_json, "log.json"), (write_archive, "log.eval")])
def test_a_log_is_imported_with_messages_scores_and_tokens(
    assay: Callable[..., Any], tmp_path: Path, write: Callable[..., Path], name: str
) -> None:
    out = tmp_path / "out.jsonl"
    done = assay("import", "inspect", write(tmp_path / name, *LOGGED), "-o", out)
    assert done.code == 0, done.stderr
    [row] = [json.loads(line) for line in out.read_text().splitlines()]
    assert (row["id"], row["k"], row["passRate"]) == ("sum", 2, 0.5)
    first, second = row["trials"]
    kinds = [step["type"] for step in first["trajectory"]]
    assert kinds == ["thought", "message", "tool_call", "message"]
    call = first["trajectory"][2]
    assert (call["name"], call["input"], call["output"]) == ("add", {"a": 1, "b": 1}, "2")
    assert (first["output"], first["pass"], second["pass"]) == ("It is 2.", True, False)
    assert first["reasoning"] == "as asked"
    assert first["usage"]["inputTokens"] == 100
    assert first["duration"] == 1500
    assert first["agent"]["adapter"] == "inspect"
    assert assay("summarize", out).code == 0
    assert assay("compare", f"one:{out}", f"two:{out}").code == 0


def test_rows_are_of_one_kind_where_only_some_samples_have_several_epochs(
    assay: Callable[..., Any], tmp_path: Path
) -> None:
    once = {"id": "another", "epoch": 1, "input": "x", "target": "y", "messages": []}
    done = assay("import", "inspect", write_json(tmp_path / "log.json", *LOGGED, once))
    assert done.code == 0, done.stderr
    assert {row["id"]: row["k"] for row in done.rows} == {"another": 1, "sum": 2}


def test_errors_limits_and_scores_of_a_log_that_are_none(
    assay: Callable[..., Any], tmp_path: Path
) -> None:
    base = {**LOGGED[0], "epoch": 1}
    samples = [
        {**base, "id": "error", "error": {"message": "boom", "traceback": ""}},
        {**base, "id": "limit", "limit": {"type": "token", "limit": 10}, "scores": {}},
        {**base, "id": "nan", "scores": {"x": {"value": float("nan")}, "y": {"value": [1]}}},
        {**base, "id": "several", "scores": {"x": {"value": {"a": 1, "b": 0.25}}}},
        {**base, "id": "half", "scores": {"x": {"value": "P"}}},
    ]
    done = assay("import", "inspect", write_json(tmp_path / "log.json", *samples))
    rows = {row["id"]: row for row in done.rows}
    assert rows["error"]["failure"]["cause"] == "harness"
    assert "score" not in rows["error"]
    assert rows["limit"]["failure"]["cause"] == "agent_limit"
    assert "score" not in rows["nan"]
    assert set(rows["several"]["grades"]) == {"x/a", "x/b"}
    assert rows["several"]["score"]["pass"] is False
    assert (rows["half"]["score"]["pass"], rows["half"]["score"]["score"]) == (False, 0.5)


def test_an_archive_with_zstd_is_read(assay: Callable[..., Any], tmp_path: Path) -> None:
    with_zstd = pytest.importorskip("backports.zstd.zipfile", reason="pip install backports.zstd")
    path = tmp_path / "log.eval"
    with with_zstd.ZipFile(path, "w", with_zstd.ZIP_ZSTANDARD) as archive:
        archive.writestr("samples/sum_epoch_1.json", json.dumps(LOGGED[0]))
        archive.writestr("header.json", json.dumps({"eval": {"task": "sums"}}))
    done = assay("import", "inspect", path)
    assert done.code == 0, done.stderr
    assert done.rows[0]["metadata"]["inspectTask"] == "sums"
    words = ("--benchmark", f"inspect-log:{path}", "--simple", "echo 2 {}", "-g", "contains")
    assert assay("capture", *words).rows[0]["score"]["pass"] is True


def test_a_log_without_samples_is_refused(assay: Callable[..., Any], tmp_path: Path) -> None:
    done = assay("import", "inspect", write_json(tmp_path / "log.json"), "-o", "out.jsonl")
    assert done.code == 1
    assert "no trial in this file" in done.stderr
    assert not (tmp_path / "out.jsonl").exists()
