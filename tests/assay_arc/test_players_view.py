"""The player is told how to play, not what: a hostile agent looks everywhere it can."""

import json
import os
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.cold

SPY = """
    import json, os, pathlib, shutil, subprocess, sys
    found, words = {}, json.loads(sys.argv[1])
    def note(kind, where, text):
        text = text.decode("utf-8", "replace") if isinstance(text, bytes) else text
        hits = [word for word in words if word in text]
        if hits:
            found.setdefault(kind, []).append([str(where), hits])
    def read(path):
        try:
            return pathlib.Path(path).read_bytes()
        except OSError:
            return b""
    def link(path):
        try:
            return os.readlink(path)
        except OSError:
            return ""
    for name, value in os.environ.items():
        note("environment", name, f"{name}={value}")
    note("cwd", "cwd", os.getcwd())
    for fd in os.listdir("/proc/self/fd"):
        note("handles", fd, link(f"/proc/self/fd/{fd}"))
    for part in ("cmdline", "environ", "mountinfo"):
        note("self", part, read(f"/proc/self/{part}").replace(sys.argv[1].encode(), b""))
    for name in ("assay", "arc-agi"):
        if shutil.which(name):
            found.setdefault("path", []).append(shutil.which(name))
    for folder in os.environ["PATH"].split(":"):
        for program in ("python", "python3"):
            try:
                subprocess.run([f"{folder}/{program}", "-c", "import arcengine"], check=True,
                               capture_output=True)
                found.setdefault("path", []).append(f"{folder}/{program} has the engine")
            except (OSError, subprocess.CalledProcessError):
                pass
    pid = os.getppid()
    while pid > 1:
        stat = read(f"/proc/{pid}/stat").decode()
        if not stat:
            break
        for part in ("cmdline", "environ"):
            note("parents", f"{pid}/{part}", read(f"/proc/{pid}/{part}"))
        note("parents", f"{pid}/cwd", link(f"/proc/{pid}/cwd"))
        for fd in range(64):
            note("parents", f"{pid}/fd/{fd}", link(f"/proc/{pid}/fd/{fd}"))
        if b"assay" in read(f"/proc/{pid}/cmdline"):
            break  # what is above was not started by Assay
        pid = int(stat.rpartition(")")[2].split()[1])
    for kind in (os.getcwd(), os.path.dirname(os.getcwd())):
        for path in pathlib.Path(kind).rglob("*"):
            note("neighbours", path, str(path))
    everywhere = subprocess.run(["find", "/", "-xdev", "-not", "-path", "/proc/*", "("] +
        " -o ".join(f"-name *{word}*" for word in words[:2]).split() + [")"],
        capture_output=True, text=True) if os.environ.get("FIND") else None
    if everywhere and everywhere.stdout:
        found["find"] = everywhere.stdout.splitlines()
    subprocess.run([os.environ["ARC_PLAY"], "act", "ACTION4"], capture_output=True)
    print(json.dumps({"type": "result", "result": json.dumps(found)}))
"""


@pytest.fixture
def spy(tmp_path: Path, schema: dict[str, Any]) -> Callable[..., Path]:
    """Write a schema of the spy, which looks for words."""
    program = tmp_path / "agents" / "spy.py"
    program.parent.mkdir()
    program.write_text(textwrap.dedent(SPY))

    def write(*words: str) -> Path:
        python = str(Path(sys.executable).resolve())
        path = tmp_path / "agents" / "spy.json"
        command = [python, "-IS", str(program), json.dumps(words)]
        path.write_text(json.dumps(schema | {"command": command}))
        return path

    return write


def run(folder: Path, *words: Any, **env: str) -> dict[str, Any]:
    """Run `assay arc run` in a project as a user would, with assay and its Python on the PATH."""
    folder.mkdir()
    bin_folder = Path(sys.executable).parent
    surroundings = {
        **os.environ,
        "PATH": f"{bin_folder}:{os.environ['PATH']}",
        "PWD": str(folder),
        "OLDPWD": str(folder),
        "VIRTUAL_ENV": sys.prefix,
        **env,
    }
    done = subprocess.run(
        [bin_folder / "assay", "arc", "run", *words, "--games", "ky01", "--max-steps", "9"],
        cwd=folder,
        env=surroundings,
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert done.returncode == 0, done.stderr
    [row] = (folder / ".arc-agi-benchmarks").glob("runs/*/results.jsonl")
    told: dict[str, Any] = json.loads(row.read_text())
    assert told["metadata"]["evidence"]["result"]["steps"] == 1, told
    return told


SECRETS = ("ky01", "Ky01", "secret-project", "agi-benchmarks", "prompt-")


@pytest.mark.parametrize("how", ["default", "--isolate"])
def test_what_the_player_has_names_neither_game_nor_project(
    spy: Callable[..., Path], tmp_path: Path, how: str
) -> None:
    words = [] if how == "default" else [how]
    row = run(tmp_path / "secret-project", spy(*SECRETS), *words)
    found = json.loads(row["output"])
    if os.geteuid() == 0:  # root may read what is hidden from other processes of the user
        parents = found.pop("parents", [])
        assert [where for where, _ in parents if where.endswith("cmdline")] == []
    assert found == {}


@pytest.mark.usefixtures("bubblewrap")
def test_in_a_sandbox_there_is_nothing_to_find(spy: Callable[..., Path], tmp_path: Path) -> None:
    folder = tmp_path / "secret-project"
    row = run(folder, spy(*SECRETS), "--sandbox", "--env", "FIND", FIND="1")
    assert json.loads(row["output"]) == {}


def test_the_spy_would_find_what_is_there(spy: Callable[..., Path], tmp_path: Path) -> None:
    """A run in a folder above the player's, with a variable that names the game."""
    row = run(tmp_path / "secret-project", spy(*SECRETS, "ARC_PLAY"), LEAK="ky01")
    found = json.loads(row["output"])
    assert ["LEAK", ["ky01"]] in found["environment"]
    assert any("ARC_PLAY" in hits for _, hits in found["environment"])


def test_the_stored_run_has_readable_names(spy: Callable[..., Path], tmp_path: Path) -> None:
    folder = tmp_path / "secret-project"
    row = run(folder, spy(*SECRETS))
    [stored] = (folder / ".arc-agi-benchmarks" / "runs").iterdir()
    assert row["raw"] == "raw/prompt-ky01-v1"
    assert (stored / row["raw"] / "1.out").is_file()
    assert row["metadata"]["evidence"]["log"] == "logs/prompt-ky01-v1.jsonl"


LOOK = """
import ctypes, os, subprocess, sys
from assay_arc.world import hide_process

def look():
    me = f"/proc/{os.getpid()}"
    words = f"cat {me}/environ; ls {me}/fd; readlink {me}/cwd; tr '\\\\0' ' ' < {me}/cmdline"
    env = {"PATH": "/usr/bin:/bin"}
    done = subprocess.run(["sh", "-c", words], capture_output=True, text=True, env=env)
    print(done.stdout.replace("\\0", " ").replace("\\n", " "), flush=True)

if os.geteuid() == 0:  # root may look into everything
    os.setgid(65534)
    os.setuid(65534)
    ctypes.CDLL(None).prctl(4, 1, 0, 0, 0)
look()
hide_process()
look()
"""


def test_another_process_of_the_user_cannot_look_into_assay(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", LOOK, "arc", "--games", "ky01"],
        env={**os.environ, "SECRET_PROJECT": "mine"},
        cwd="/",
        capture_output=True,
        text=True,
    )
    before, after = done.stdout.splitlines()
    assert "SECRET_PROJECT=mine" in before, done.stderr
    assert "--games ky01" in before
    assert after.strip() == "assay arc run"


FAKE_GEMINI = """#!/bin/sh
[ "$1" = --version ] && exec echo 0.61.0
echo '{"type":"init","session_id":"s1","model":"m","timestamp":"2026-01-01T00:00:00Z"}'
mkdir OFFERED 2> /dev/null && arc-play act ACTION4 > /dev/null
echo '{"type":"result","status":"success","stats":{},"timestamp":"2026-01-01T00:00:01Z"}'
"""


def test_games_whose_tools_were_not_offered_are_told_apart_loudly(
    assay: Callable[..., Any], tmp_path: Path
) -> None:
    """As with a Gemini CLI that refuses the settings with the MCP server in them."""
    program = tmp_path / "gemini"
    program.write_text(FAKE_GEMINI.replace("OFFERED", str(tmp_path / "offered")))
    program.chmod(0o755)
    done = assay("arc", "run", f"gemini:{program}", "--games", "ky01,mx01", "--max-steps", "9")
    assert done.code == 1, done.stderr
    assert "tools were not offered" in done.stderr
    assert "mx01-v1" in done.stderr
    assert (
        "Game: mx01-v1 | not measured: environment failed: the game's tools were not offered"
        in done.stdout
    )
    [run] = (tmp_path / ".arc-agi-benchmarks" / "runs").iterdir()
    for name in ("run-meta.json", "scorecard.json"):
        written = json.loads((run / name).read_text())
        assert list(written["not_measured"]) == ["mx01-v1"]
    assert [game["id"] for game in written["games"]] == ["ky01-v1"]
    assert assay("arc", "rescore", run.name, "--write").code == 0
    assert json.loads((run / "scorecard.json").read_text())["not_measured"]


def test_a_resumed_run_plays_as_many_games_at_once(
    assay: Callable[..., Any], agent: Callable[..., Path], tmp_path: Path
) -> None:
    """Each agent waits for the other."""
    place = tmp_path / "met"
    place.mkdir()
    meet = f"mkdir {place}/$$; until [ $(ls {place} | wc -l) -ge 2 ]; do sleep 0.1; done"
    path = agent(command=["bash", "-c", f'{meet}; echo \'{{"type":"result"}}\''])
    words = ("arc", "run", path, "--games", "ky01,mx01", "-j", "2", "-t", "20000")
    assert assay(*words, "--max-cost", "0").code == 1
    done = assay("arc", "run", "--resume", "latest")
    assert done.code == 0, done.stderr
    [rows] = (tmp_path / ".arc-agi-benchmarks" / "runs").glob("*/results.jsonl")
    assert "agent_timeout" not in rows.read_text()


def test_games_must_be_named(assay: Callable[..., Any], tmp_path: Path) -> None:
    for command in (("run", "random"), ("generate", "codex")):
        for empty in ("", ",", " "):
            done = assay("arc", *command, "--games", empty)
            assert done.code == 2
            assert "--games names no game" in done.stderr
    assert not (tmp_path / ".arc-agi-benchmarks").exists()
