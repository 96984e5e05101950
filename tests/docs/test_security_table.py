"""The table of docs/security.md says what an agent can do in each mode: an agent tries it."""

import json
import os
import re
import socket
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from assay.records.signatures import key_path, user_key

PAGE = Path(__file__).parents[2] / "docs" / "security.md"
ROWS = {
    "sees instruction files": "project",
    "sees your HOME": "home",
    "sees your environment": "variable",
    "can read other files of yours": "other",
    "can read the key by which rows are signed": "key",
    "can rewrite its grader": "grader",
    "can change the output": "output",
    "can put rows among those of earlier experiments": "experiments",
    "can change what git runs in your repository": "git",
    "can reach the network": "network",
    "can leave processes behind": "process",
}
"""The beginning of each row of the table, and what the agent tries for it."""
MODES = {"in place": (), "isolate": ("--isolate",), "sandbox": ("--sandbox",)}
"""The columns of the table."""
AGENT = """
import json, os, socket
asked = json.loads(os.environ['PROMPT'])
def can(do):
    try: return bool(do())
    except OSError: return False
def write(path):
    with open(path, 'rb+') as file: return file.seek(0, 2) or file.write(b' ')
found = {
    'project': can(lambda: open('CLAUDE.md').read()),
    'home': can(lambda: open(os.path.expanduser('~/mine')).read()),
    'variable': 'UNDECLARED' in os.environ,
    'other': can(lambda: open(asked['other']).read()),
    'key': can(lambda: open(asked['key'], 'rb').read()),
    'grader': can(lambda: write(asked['grader'])),
    'output': can(lambda: open(asked['output'], 'rb+')),
    'experiments': can(lambda: open(asked['experiments'] + '/planted', 'x')),
    'git': can(lambda: write('.git/config')),
    'network': can(lambda: socket.create_connection(('127.0.0.1', asked['port']), 2)),
}
if os.fork() == 0:
    os.setsid()
    for fd in range(3): os.close(fd)
    os.execvp('sleep', ['sleep', asked['seconds']])
print(json.dumps(found))
"""


def table() -> dict[str, list[str]]:
    """Read the cells of each row."""
    lines = PAGE.read_text().split("## What holds in each mode")[1].split("\n\n")[1].splitlines()
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    return {row[0]: row[1:] for row in cells[2:]}


def is_denied(cell: str, left: str) -> bool:
    """Whether a cell says that it cannot be done; "the same" is what stands left of it."""
    cell = re.sub(r"^with `--isolate`: ", "", left if cell.startswith("the same") else cell)
    return cell.startswith(("no", "only", "not beyond"))


@pytest.fixture
def asked(tmp_path: Path) -> dict[str, Any]:
    """What the agent looks for, outside of its folder and in it."""
    project = tmp_path / "project"
    (project / ".git").mkdir(parents=True)
    (project / ".git/config").write_text("[core]\n")
    (tmp_path / "home").mkdir()
    (tmp_path / "experiments").mkdir()
    for path in (project / "CLAUDE.md", tmp_path / "home/mine", tmp_path / "other"):
        path.write_text("mine")
    (tmp_path / "grader.py").write_text("def grade(output): return True\n")
    assert user_key(make=True)
    names = {name: str(tmp_path / name) for name in ("other", "experiments")}
    seconds = f"3{int.from_bytes(os.urandom(3))}"  # by which the process is found again
    paths = {"grader": str(tmp_path / "grader.py"), "output": str(tmp_path / "out.jsonl")}
    return {**names, **paths, "key": str(key_path("rows.key")), "seconds": seconds}


@pytest.mark.parametrize("mode", MODES)
def test_each_cell_is_what_an_agent_finds(
    assay: Callable,
    prompts: Callable,
    asked: dict[str, Any],
    tmp_path: Path,
    bubblewrap: None,
    mode: str,
) -> None:
    column = list(MODES).index(mode)
    with socket.create_server(("127.0.0.1", 0)) as server:
        asked["port"] = server.getsockname()[1]
        done = assay(
            *("capture", prompts(json.dumps(asked)), "-o", "out.jsonl", "-g", "grader.py"),
            *("--shell", f'{sys.executable} -SEc "{AGENT}"', "-c", tmp_path / "project"),
            *(() if mode == "in place" else ("--workspace-dir", tmp_path / "w")),
            *MODES[mode],
            env={"HOME": str(tmp_path / "home"), "UNDECLARED": "1"},
        )
    rows = (tmp_path / "out.jsonl").read_text().splitlines()
    assert len(rows) == 1, done.stderr
    found = json.loads(json.loads(rows[0])["output"])
    found["process"] = is_alive(asked["seconds"])
    says = {}
    for name, cells in table().items():
        (what,) = (what for start, what in ROWS.items() if name.startswith(start))
        says[what] = not is_denied(cells[column], cells[column - 1])
    assert says.keys() == set(ROWS.values())
    assert found == says


def is_alive(seconds: str) -> bool:
    """Whether the agent's process outlives the run."""
    for _ in range(20):
        found = [path for path in Path("/proc").glob("[0-9]*/cmdline") if has_word(path, seconds)]
        if not found:
            return False
        time.sleep(0.1)
    return True


def has_word(path: Path, word: str) -> bool:
    try:
        return word.encode() in path.read_bytes().split(b"\0")
    except OSError:
        return False


def test_without_network_only_the_models_address_is_reached(
    assay: Callable, prompts: Callable, asked: dict[str, Any], tmp_path: Path, bubblewrap: None
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        asked["port"] = server.getsockname()[1]
        shell = ("--shell", f'{sys.executable} -SEc "{AGENT}"')
        done = assay("capture", prompts(json.dumps(asked)), *shell, "--sandbox=no-network")
    assert json.loads(done.rows[0]["output"])["network"] is False
    assert "with `--sandbox=no-network` only the model's address" in PAGE.read_text()
