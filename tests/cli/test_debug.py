"""--debug: what the author of an adapter needs, on stderr, without secrets and escape codes."""

import asyncio
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

SECRET = "sk-live-0123456789abcdef"
SCRIPT = """
echo '{"type":"message","text":"hi"}'
echo '{"type":"tool_call","name":"clock","status":"pending","id":"c1"}'
echo '{"type":"tool_call","name":"clock","status":"completed","id":"c1","output":"12:00"}'
echo '{"type":"surprise","text":"new"}'
echo '{"type":"system","session_id":"s-1"}'
echo 'no event at all'
printf '\\033[31mred\\033[0m\\n'
printf '{"type":"message","text":"%s"}\\n' "$MY_API_KEY"
echo 'last words' >&2
say done
exit 7
"""


@pytest.fixture
def debug(assay: Callable, prompts: Callable) -> Callable[..., Any]:
    def run(command: str, text: Any, *agent: Any, **more: Any) -> Any:
        return assay(command, prompts(text), *agent, "--debug", **more)

    return run


@pytest.mark.parametrize("command", ["capture", "trials", "run"])
def test_shows_each_line_and_what_it_was_mapped_to(
    debug: Callable, shell_agent: Path, command: str, tmp_path: Path
) -> None:
    more = ["-k", 1] if command == "trials" else []
    done = debug(command, SCRIPT, "-s", shell_agent, *more, env={"MY_API_KEY": SECRET})
    shown = [line.removeprefix("[p0] ") for line in done.stderr.splitlines() if "[p0] " in line]
    assert shown[0].startswith("starts: bash -c ")
    assert shown[1] == f"in: {tmp_path}"
    names = shown[2].partition(": ")[2].split()
    assert {"MY_API_KEY", "PATH", "HOME"} <= set(names)
    assert not any("=" in name for name in names)
    fates = [
        (shown[i].partition(": ")[2], line.removeprefix("  -> "))
        for i, line in enumerate(shown[1:])
        if line.startswith("  -> ")
    ]
    assert [fate for _, fate in fates] == [
        "message",
        "tool_call clock (pending)",
        "tool_call clock (completed)",
        "UNMATCHED: no rule takes an event of type surprise",
        "session id s-1",
        "not JSON: left out",
        "not JSON: left out",
        "message",
        "the result, the end of the turn",
    ]
    assert fates[0][0] == '{"type":"message","text":"hi"}'
    assert "ended: exit code 7, after " in shown[-1]
    assert shown[-1].endswith("answer: done")
    assert "stderr: last words" in shown
    assert any("unmatched: surprise x1; 2 not JSON" in line for line in shown)
    assert "! p0" in done.stderr
    assert "agent crashed: ended with exit code 7: last words" in done.stderr


def test_shows_neither_secrets_nor_escape_codes(debug: Callable, shell_agent: Path) -> None:
    env = {"MY_API_KEY": SECRET}
    for agent in (("-s", shell_agent), ("--simple", f"echo {SECRET} {{}}")):
        done = debug("capture", f"{SCRIPT} # {SECRET}", *agent, env=env)
        assert SECRET not in done.stderr
        assert "[redacted]" in done.stderr
        assert "\x1b" not in done.stderr
    assert "\\u001b[31mred" in debug("capture", SCRIPT, "-s", shell_agent).stderr
    assert "\x1b" not in debug("run", "x", "--shell", "printf '\\033[2J\\n'; exit 1").stderr


def test_stdout_has_nothing_but_rows(debug: Callable, shell_agent: Path) -> None:
    plain = debug("capture", "R", "-s", shell_agent)
    assert [row["output"] for row in plain.rows] == ["ok"]
    assert debug("capture", "R", "-s", shell_agent, "-q").stderr == ""
    events = debug("capture", "R", "-s", shell_agent, "--json").stderr.splitlines()
    assert all(json.loads(line)["event"] for line in events)


def test_trials_and_turns_are_told_apart(debug: Callable) -> None:
    done = debug("trials", ["one", "two"], "--simple", "echo {}", "-k", 2)
    assert done.stderr.count("[p0] starts: echo one") == 1
    assert done.stderr.count("[p0 #2] starts: echo one") == 1
    assert "starts: echo 'User: one\\u000aAssistant: one" in done.stderr
    assert "  -> part of the answer" in done.stderr


def test_what_never_starts_and_what_is_killed(
    debug: Callable, tmp_path: Path, alive: Callable
) -> None:
    program = tmp_path / "broken"
    program.write_bytes(b"\x7fELF not a program")
    program.chmod(0o755)
    done = debug("capture", "x", "--simple", f"{program} {{}}")
    assert f"starts: {program} x" in done.stderr
    assert "agent did not start: cannot start" in done.stderr
    slow = debug("capture", "x", "--shell", "echo begun; sleep 60", "-t", 300)
    assert ", timed out, signal SIGTERM, after " in slow.stderr
    assert "ran out of time" in slow.stderr


def test_long_lines_are_cut(debug: Callable) -> None:
    done = debug("run", "x", "--shell", "head -c 1000000 /dev/zero | tr '\\0' x")
    assert len(done.stderr) < 20_000
    assert "998000 more characters" in done.stderr


def test_headless_shows_the_same(tmp_path: Path, shell_agent: Path) -> None:
    import acp
    from acp.helpers import text_block

    async def talk() -> bytes:
        with (tmp_path / "log").open("wb") as log:
            command = [sys.executable, "-m", "assay", "headless", "-s", str(shell_agent), "--debug"]
            spawn = acp.spawn_agent_process(
                Quiet(), *command, cwd=tmp_path, transport_kwargs={"stderr": log}
            )
            async with spawn as (connection, _):
                await connection.initialize(protocol_version=acp.PROTOCOL_VERSION)
                session = await connection.new_session(cwd=str(tmp_path), mcp_servers=[])
                await connection.prompt(prompt=[text_block("R")], session_id=session.session_id)
        return (tmp_path / "log").read_bytes()

    shown = asyncio.run(talk()).decode()
    assert "starts: bash -c " in shown
    assert "-> the result, the end of the turn" in shown
    assert "ended: exit code 0" in shown


class Quiet:
    async def session_update(self, session_id: str, update: Any, **more: Any) -> None:
        pass
