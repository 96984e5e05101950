"""Whatever ends a command ends its agents and graders: every command, every signal, every key."""

import fcntl
import json
import os
import signal
import subprocess
import sys
import termios
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

SIGNALS = [signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT]
CTRL_C, CTRL_BACKSLASH = b"\x03", b"\x1c"
WAITS = "!do deaf ; daemon plain ; wait 300"
"""An agent that ignores SIGTERM and has a child in the background."""


@pytest.fixture
def commands(agent: Callable, prompts: Callable, tmp_path: Path, tag: str) -> dict[str, list[Any]]:
    """Commands that start agents or graders which never end."""
    path, schema = prompts(*[WAITS] * 3), agent()
    # The tag is not on the command line of assay itself, only on that of the graders' child.
    sleep = f"subprocess.run([sys.executable, '-c', 'import time; time.sleep(300)', {tag!r}])"
    (tmp_path / "serve.py").write_text(f"import subprocess, sys\n{sleep}\n")
    (tmp_path / "python.py").write_text(
        f"import subprocess, sys\ndef grade(output):\n    {sleep}\n"
    )
    rows = tmp_path / "rows.jsonl"
    rows.write_text('{"id": "a", "input": "?", "output": "!"}\n' * 3)
    return {
        "capture": ["capture", path, "-s", schema, "-j", 3],
        "trials": ["trials", path, "-s", schema, "-k", 2, "-j", 3],
        "run": ["run", path, "-s", schema, "-j", 3],
        "grade": ["grade", rows, "-g", "python.py"],
        "grade -j 2": ["grade", rows, "-g", "python.py", "-j", 2],
        "grade serve": ["grade", rows, "-g", "serve:serve.py"],
        "headless": ["headless", "-s", schema],
    }


@pytest.fixture
def begin(
    commands: dict[str, list[Any]],
    tmp_path: Path,
    alive: Callable,
    eventually: Callable,
    start: Callable,
):
    """Start a command and wait until its agents or graders run.

    Only what talks through its stdin or gets a terminal of its own needs a new process.
    """
    started: list[subprocess.Popen[str]] = []

    def begin(name: str, **more: Any) -> "subprocess.Popen[str]":
        if name == "headless" or more:
            words = [sys.executable, "-m", "assay", *map(str, commands[name])]
            files = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
            process = subprocess.Popen(words, cwd=tmp_path, text=True, **(files | more))
            started.append(process)
        else:
            process = start(*commands[name])
        if name == "headless":
            talk(process, tmp_path)
        assert eventually(lambda: len(alive()) >= 1 + (name == "headless"))
        return process

    yield begin
    for process in started:
        process.kill()
        process.communicate()


def talk(process: "subprocess.Popen[str]", cwd: Path) -> None:
    """Open a session and put the prompt of an agent that never ends."""
    asked: list[tuple[str, dict[str, Any]]] = [
        ("initialize", {"protocolVersion": 1}),
        ("session/new", {"cwd": str(cwd), "mcpServers": []}),
    ]
    assert process.stdin is not None
    assert process.stdout is not None
    for number, (method, params) in enumerate(asked):
        message = {"jsonrpc": "2.0", "id": number, "method": method, "params": params}
        process.stdin.write(json.dumps(message) + "\n")
        process.stdin.flush()
        line = process.stdout.readline()
        assert line, process.communicate()[1]
        answer = json.loads(line)
    params = {
        "sessionId": answer["result"]["sessionId"],
        "prompt": [{"type": "text", "text": WAITS}],
    }
    message = {"jsonrpc": "2.0", "id": 9, "method": "session/prompt", "params": params}
    process.stdin.write(json.dumps(message) + "\n")
    process.stdin.flush()


NAMES = ["capture", "trials", "run", "grade", "grade -j 2", "grade serve", "headless"]


@pytest.mark.parametrize("number", SIGNALS)
@pytest.mark.parametrize("name", NAMES)
def test_a_signal_leaves_nothing_behind(
    begin: Callable, alive: Callable, name: str, number: int
) -> None:
    process = begin(name)
    process.send_signal(number)
    _, stderr = process.communicate(timeout=30)
    assert alive() == []
    assert process.returncode == (0 if name == "headless" else 130), stderr
    assert "Traceback" not in stderr


@pytest.mark.parametrize("keys", [CTRL_C, CTRL_C * 2, CTRL_BACKSLASH, CTRL_BACKSLASH * 2])
@pytest.mark.parametrize("name", ["capture", "grade", "headless"])
def test_a_key_on_the_terminal_leaves_nothing_behind(
    begin: Callable, alive: Callable, name: str, keys: bytes
) -> None:
    ours, theirs = os.openpty()
    # headless needs its stdin for the protocol: there the terminal is only the controlling one.
    more: dict[str, Any] = {} if name == "headless" else {"stdin": theirs}

    def take_terminal() -> None:
        os.setsid()
        fcntl.ioctl(theirs, termios.TIOCSCTTY, 0)

    process = begin(name, preexec_fn=take_terminal, **more)
    os.write(ours, keys)  # the terminal turns them into signals to our whole process group
    process.communicate(timeout=30)
    os.close(ours)
    os.close(theirs)
    assert alive() == []
    assert process.returncode == (0 if name == "headless" else 130)


def test_a_suite_whose_starter_ignores_signals_still_sends_them() -> None:
    """As `make test &` in a script does, which begins with SIGINT and SIGQUIT ignored."""
    names = [f"{__file__}::test_a_signal_leaves_nothing_behind[run-{n}]" for n in (2, 1, 3)]
    words = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *names]
    done = subprocess.run(
        ["sh", "-c", 'trap "" INT QUIT HUP; exec "$@"', "sh", *words],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stdout
    assert "3 passed" in done.stdout
