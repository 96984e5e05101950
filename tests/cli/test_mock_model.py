"""assay mock-model: serves until it is told to stop."""

import json
import signal
import urllib.request
from collections.abc import Callable
from pathlib import Path


def test_it_serves_and_stops(start: Callable, eventually: Callable, tmp_path: Path) -> None:
    script, port_file, log = tmp_path / "s.json", tmp_path / "port", tmp_path / "log.jsonl"
    script.write_text(json.dumps({"steps": [{"text": "Four."}], "toolless": "step"}))
    process = start("mock-model", script, "--port-file", port_file, "--log", log)
    assert eventually(port_file.exists)
    body = {"model": "m", "messages": [{"role": "user", "content": "2+2?"}]}
    request = urllib.request.Request(
        f"http://127.0.0.1:{port_file.read_text()}/v1/chat/completions",
        data=json.dumps(body).encode(),
        headers={"content-type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=10) as response:
        assert json.load(response)["choices"][0]["message"]["content"] == "Four."
    process.send_signal(signal.SIGTERM)
    assert process.wait(10) == 0
    assert len(log.read_text().splitlines()) == 1


def test_a_broken_script_is_told(assay: Callable, tmp_path: Path) -> None:
    script = tmp_path / "s.json"
    script.write_text('{"steps": [{"txt": "Four."}]}')
    done = assay("mock-model", script)
    assert done.code == 1
    assert "txt" in done.stderr
    assert "Traceback" not in done.stderr
    assert assay("mock-model", tmp_path / "none.json").code == 2
