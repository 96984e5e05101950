"""assay view: what it says, and what it refuses."""

import builtins
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from assay.cli.view import command

ROW = '{"id":"p","input":"q","output":"a","trajectory":[],"timing":{"total":1},"metadata":{}}\n'


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_ends_quietly_when_told_to(tmp_path: Path, number: signal.Signals) -> None:
    file = tmp_path / "r.jsonl"
    file.write_text(ROW)
    words = [sys.executable, "-m", "assay", "view", str(file)]
    process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline().startswith("http://127.0.0.1:")
    time.sleep(0.5)
    process.send_signal(number)
    _, stderr = process.communicate(timeout=15)
    assert process.returncode == 0
    assert stderr == "r: 1 trial\n"


def test_refuses_what_is_not_there(assay: Callable[..., Any], tmp_path: Path) -> None:
    done = assay("view", tmp_path / "no.jsonl")
    assert done.code == 1
    assert "no such file" in done.stderr
    assert assay("view").code == 2


def test_port_that_is_taken(assay: Callable[..., Any], tmp_path: Path) -> None:
    import socket

    file = tmp_path / "r.jsonl"
    file.write_text(ROW)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        done = assay("view", file, "--port", taken.getsockname()[1])
    assert done.code == 1
    assert "choose another --port" in done.stderr


def test_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def without(name: str, *args: Any, **kwargs: Any) -> Any:
        if name.startswith("assay.viewer.app"):
            raise ImportError(name="uvicorn")
        return real(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", without)
    error = CliRunner().invoke(command, [str(tmp_path)]).exception
    assert "uvicorn" in getattr(error, "message", "")
    assert ".[view]" in getattr(error, "hint", "")
