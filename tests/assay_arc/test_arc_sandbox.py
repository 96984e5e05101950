"""Games for sandboxed agents: they can be played, and nothing else of them can be seen."""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import assay_arc

pytestmark = [pytest.mark.cold, pytest.mark.usefixtures("bubblewrap")]

PEEK = """
"$ARC_PLAY" act ACTION4 ACTION4 > moved 2>&1
ls -d /proc/[0-9]* | wc -l
find / -xdev \\( -name '*.jsonl' -o -name 'ky01*' -o -name 'assay_arc' \\) 2>/dev/null
cat GAMES/ky01/v1/ky01.py
ls -A "$(dirname "$ARC_PLAY")" "$(dirname "$ARC_PLAY_SOCKET")"
"""


def rows_of(folder: Path) -> list[dict[str, Any]]:
    [run] = (folder / ".arc-agi-benchmarks" / "runs").iterdir()
    return [json.loads(line) for line in (run / "results.jsonl").read_text().splitlines()]


@pytest.mark.parametrize("sandbox", ["--sandbox", "--sandbox=no-network"])
def test_an_agent_plays_and_sees_neither_source_nor_log(
    assay: Callable, tmp_path: Path, schema: dict[str, Any], sandbox: str
) -> None:
    games = Path(assay_arc.__file__).parent / "games"
    script = PEEK.replace("GAMES", str(games)) + 'echo "{\\"type\\":\\"result\\"}"'
    path = tmp_path / "agent.json"
    path.write_text(json.dumps(schema | {"command": ["/bin/sh", "-c", script]}))
    done = assay("arc", "run", path, "--games", "ky01", sandbox, "--max-steps", "20")
    assert done.code == 0, done.stderr
    [row] = rows_of(tmp_path)
    assert row["metadata"]["evidence"]["result"]["steps"] == 2
    [run] = (tmp_path / ".arc-agi-benchmarks" / "runs").iterdir()
    [said] = run.glob("raw/*/1.out")
    lines = said.read_text().splitlines()
    assert int(lines[0]) < 10, "it sees no process of the game"
    assert [line for line in lines if "ky01" in line or line.endswith(".jsonl")] == []
    assert [line for line in lines if line in ("arc-play", "arc-mcp", "g")] == [
        *("arc-mcp", "arc-play", "g"),
    ]


@pytest.mark.parametrize("player", ["random", "search"])
def test_the_built_in_players_work(assay: Callable, tmp_path: Path, player: str) -> None:
    words = ("arc", "run", player, "--games", "ky01,mx01", "--max-steps", "9", "-j", "2")
    done = assay(*words, "--sandbox=no-network")
    assert done.code == 0, done.stderr
    assert [row["metadata"]["evidence"]["result"]["steps"] for row in rows_of(tmp_path)] == [9, 9]


def test_a_run_that_is_resumed_keeps_its_sandbox(
    assay: Callable, tmp_path: Path, schema: dict[str, Any]
) -> None:
    script = f'ls {Path(sys.prefix).parent}; echo \'{{"type":"result"}}\''
    path = tmp_path / "agent.json"
    path.write_text(json.dumps(schema | {"command": ["/bin/sh", "-c", script]}))
    words = ("arc", "run", path, "--games", "ky01,mx01", "--sandbox", "--memory", "1G")
    assert assay(*words, "--max-cost", "0").code == 1
    assert assay("arc", "run", "--resume", "latest").code == 0
    for row in rows_of(tmp_path):
        assert "No such file" in row["stderr"]
        assert row["metadata"]["limits"]["memoryBytes"] == 1 << 30
