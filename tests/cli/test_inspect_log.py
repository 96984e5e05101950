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
