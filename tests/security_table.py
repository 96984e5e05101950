"""What the tests of the table in docs/security.md share: what an agent tries, and what it finds."""

import json
import os
import runpy
import time
from pathlib import Path
from typing import Any

from assay.records.signatures import key_path, user_key

SCRIPT = runpy.run_path(str(Path(__file__).parents[1] / "scripts" / "security_table.py"))
ROWS = {row["tried"]: row for row in SCRIPT["content"]()["rows"] if "tried" in row}
# It has only what is in any Python, for containers of a few programs.
AGENT = """
import os
from _socket import *
asked = dict(one.split('=', 1) for one in os.environ['PROMPT'].split(' '))
def can(do):
    try: return do() is not False
    except OSError: return False
def opened(path, flags): return os.open(path, flags)
def write(path): return os.write(opened(path, os.O_RDWR | os.O_APPEND), b' ')
def connect():
    one = socket(); one.settimeout(2); one.connect(('127.0.0.1', int(asked['port'])))
home = os.environ.get('HOME', '/')
found = {
    'project': can(lambda: opened('CLAUDE.md', 0)),
    'home': can(lambda: opened(home + '/mine', 0)),
    'variable': 'UNDECLARED' in os.environ,
    'other': can(lambda: opened(asked['other'], 0)),
    'key': can(lambda: opened(asked['key'], 0)),
    'grader': can(lambda: write(asked['grader'])),
    'output': can(lambda: opened(asked['output'], os.O_RDWR)),
    'experiments': can(lambda: opened(asked['experiments'] + '/planted', os.O_CREAT | os.O_WRONLY)),
    'git': can(lambda: write(asked['git'])),
    'network': can(connect),
    'signal': can(lambda: os.kill(int(asked['victim']), 0)),
}
if os.fork() == 0:
    os.setsid()
    for fd in range(3): os.close(fd)
    os.execvp('sleep', ['sleep', asked['seconds']])
print(str(found).lower().replace(chr(39), chr(34)))
"""


def make_places(folder: Path) -> dict[str, Any]:
    """Make what the agent looks for, outside of its folder and in it; return where it is."""
    (folder / "project/.git").mkdir(parents=True)
    (folder / "project/.git/config").write_text("[core]\n")
    for name in ("home", "experiments", "template"):
        (folder / name).mkdir()
    for path in (folder / "project/CLAUDE.md", folder / "home/mine", folder / "other"):
        path.write_text("mine")
    (folder / "grader.py").write_text("def grade(output): return True\n")
    assert user_key(make=True)
    asked = {"git": folder / "project/.git/config"}
    paths = asked | {name: str(folder / name) for name in ("other", "experiments", "grader.py")}
    seconds = f"3{int.from_bytes(os.urandom(3))}"  # by which the process is found again
    about = {"key": key_path("rows.key"), "seconds": seconds, "output": folder / "out.jsonl"}
    return {**paths, "grader": paths["grader.py"], **about}


def told(asked: dict[str, Any]) -> str:
    return " ".join(f"{name}={value}" for name, value in asked.items())


def check(mode: str, row: dict[str, Any], seconds: str) -> None:
    """Compare what an agent could do in a mode with the table."""
    found = {**json.loads(row["output"]), "process": is_alive(seconds)}
    assert found == {name: cells[mode][0] for name, cells in ROWS.items()}


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
