"""Tapes of the four real agents: recorded against the scripted model, replayed without it."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from assay import plugins
from assay.records.spec import PluginRef
from assay.testing.model import ScriptedModel

pytestmark = pytest.mark.real

MCP_SERVER = Path(__file__).with_name("mcp_adder.py")
USAGE = {"input": 120, "output": 30, "cacheRead": 40}
PLANTED = "sk-planted-0123456789abcdefXYZ"
Run = Callable[..., list[dict[str, Any]]]


def script(kind: Any) -> dict[str, Any]:
    tools = [
        {"tool": "shell", "command": "date +%s%N; pwd; echo made > made.txt"},
        {"tool": "mcp", "server": "adder", "name": "add", "arguments": {"a": 2, "b": 3}},
    ]
    # Codex does not wait for its sub-agent, and when that ends is in the history.
    wait = "sleep 2; " if kind.name == "codex" else ""
    steps = [
        {"thinking": "I look.", "text": "I look at {{last_user}}", "calls": tools, "usage": USAGE},
        {"calls": [{"tool": "write_file", "path": "sub/a.txt", "content": "one\n"}]},
        {"calls": [{"byProvider": {}, **kind.task}]},
        {"calls": [{"tool": "shell", "command": f"{wait}echo $MY_SECRET_KEY; cat sub/a.txt"}]},
        {"text": "Done: {{last_tool_result}}", "usage": USAGE},
        {"calls": [{"tool": "edit_file", "path": "sub/a.txt", "old": "one\n", "new": "two\n"}]},
        {"text": "Again."},
    ]
    sub = {"when": {"firstUserContains": "SUBJOB"}, "name": "sub"}
    sub["steps"] = [
        {"calls": [{"tool": "shell", "command": "echo from-the-sub-agent; date +%N"}]},
        {"text": "The sub-agent is done."},
    ]
    return {"steps": steps, "threads": [sub]}


@pytest.fixture
def run(kind: Any, agent_program: Callable[[str], Path], tmp_path: Path) -> Run:
    """Run `assay trials` with the agent of this test in a folder of its own; return its trials."""
    adder = {"command": sys.executable, "args": [str(MCP_SERVER)]}
    (tmp_path / "mcp.json").write_text(json.dumps({"mcpServers": {"adder": adder}}))

    def trials(
        folder: str, *args: Any, url: str = "http://127.0.0.1:9", k: int = 2,
        env: dict[str, str] | None = None, said: Sequence[str] = ("Do it.", "Go on."),
        wrap: Sequence[str] = (),
    ) -> list[dict[str, Any]]:  # fmt: skip
        place = tmp_path / folder
        place.mkdir()
        (place / "prompts.jsonl").write_text(json.dumps({"id": "p", "input": [*said]}) + "\n")
        more = {**kind.env(url), "MY_SECRET_KEY": PLANTED, "HOME": str(place), **(env or {})}
        command = [
            *wrap,
            sys.executable,
            "-m",
            "assay",
            "trials",
            "prompts.jsonl",
            "-k",
            str(k),
            "-q",
        ]
        command += ["-s", f"{kind.name}:{agent_program(kind.name)}", "-o", "out.jsonl"]
        command += [*kind.words(url), "--mcp", str(tmp_path / "mcp.json"), "-t", "120000"]
        command += [word for name in more if name != "HOME" for word in ("--env", name)]
        done = subprocess.run(
            [*command, "--isolate", "--workspace-dir", str(place / "ws"), *map(str, args)],
            cwd=place, env={**os.environ, **more}, capture_output=True, text=True,
            stdin=subprocess.DEVNULL, timeout=400, check=False,
        )  # fmt: skip
        assert (place / "out.jsonl").exists(), done.stderr
        (row,) = map(json.loads, (place / "out.jsonl").read_text().splitlines())
        return row["trials"]

    return trials


def acts(trial: dict[str, Any]) -> list[tuple[Any, ...]]:
    names = ("type", "name", "status", "turn")
    return [tuple(step.get(name) for name in names) for step in trial["trajectory"]]


def test_a_trial_replays_in_another_folder_and_home(run: Run, kind: Any, tmp_path: Path) -> None:
    tape = tmp_path / "a.tape"
    with ScriptedModel(script(kind)) as model:
        recorded = run("first", "--record", tape, url=model.url)
    assert not [trial.get("failure") for trial in recorded if "failure" in trial]
    replayed = run("second/deeper".replace("/", "-"), "--replay", tape)
    for before, after in zip(recorded, replayed, strict=True):
        assert "failure" not in after, after["failure"]
        assert after["replay"]["hits"] == before["wire"]["requests"] == after["wire"]["requests"]
        assert acts(before) == acts(after)
        assert after["usage"].get("costSource") in ("recorded", None)
        assert after["replay"]["differs"]  # the time
    text = subprocess.run(["zcat", tape], capture_output=True, check=True).stdout.decode()
    assert PLANTED not in text
    assert kind.env("")[kind.key] not in text
    assert str(tmp_path / "first") not in text


SKILL = """\
---
name: notes
description: {}
---
Write notes.
"""


@pytest.mark.usefixtures("bubblewrap")
def test_another_user_another_day_and_a_sandbox_change_nothing_and_another_skill_is_named(
    run: Run, kind: Any, tmp_path: Path
) -> None:
    tape, template = tmp_path / "a.tape", tmp_path / "template"
    skill = template / plugins.adapter(PluginRef(name=kind.name)).skills_folder / "notes/SKILL.md"
    skill.parent.mkdir(parents=True)
    skill.write_text(SKILL.format("Use it for notes."))
    given = ("--workspace-template", template)
    with ScriptedModel(script(kind)) as model:
        (before,) = run("first", "--record", tape, *given, url=model.url, k=1)
    wrap = ["unshare", "-U", "--map-user=1234", "--map-group=1234"]
    wrap += (
        ["faketime", "-m", "--exclude-monotonic", "2031-03-04 05:06:07"]
        if shutil.which("faketime")
        else []
    )
    # In the sandbox as another user, Codex tells its model of another environment.
    sandbox = () if kind.name == "codex" else ("--sandbox=no-network",)
    (after,) = run("second", "--replay", tape, *given, *sandbox, k=1, wrap=wrap)
    assert "failure" not in after, after["failure"]
    assert after["replay"]["hits"] == before["wire"]["requests"] == after["wire"]["requests"]
    assert acts(before) == acts(after)
    skill.write_text(SKILL.format("Never use it."))
    (missed,) = run("third", "--replay", tape, *given, k=1)
    assert missed["failure"]["cause"] == "tape"
    message = missed["failure"]["message"]
    assert message.startswith("the tape has no answer: request 1 differs from exchange 1 at ")
    assert ("Use it for notes." in message, "Never use it." in message) == (True, True)
