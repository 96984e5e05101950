"""The examples in the help of the ARC commands, run as they stand."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from assay_arc.commands import COMMANDS

pytestmark = pytest.mark.recorded
TRANSCRIPT = """{"type": "thread.started", "thread_id": "t"}
{"type": "turn.completed", "usage": {"input_tokens": 10, "output_tokens": 2}}
"""
QUIT = '{"command": "quit"}\n'


@pytest.fixture(scope="module")
def made(examples, tmp_path_factory) -> Path:
    """A folder with two finished runs, one that is not, and results of other harnesses."""
    folder = tmp_path_factory.mktemp("made")
    examples.run("assay arc run random search --games ky01 --max-steps 20 -j 2", folder)
    examples.run("! assay arc run random --games ky01 --max-steps 5 --max-cost 0", folder)
    examples.run("assay arc generate codex --games ky01", folder)
    generated = folder / ".arc-agi-benchmarks" / "cross-harness" / "codex"
    for name in ("codex", "first", "second"):
        shutil.copytree(generated, folder / name)
        play_elsewhere(folder / name)
    (folder / "first" / "codex.jsonl").write_text(TRANSCRIPT)
    examples.run("assay arc export recording -o my-recordings", folder)
    shutil.copytree(folder / "codex", folder / "gemini")
    return folder


def play_elsewhere(folder: Path) -> None:
    """Do what the instructions of `assay arc generate` ask of another harness."""
    env = {"PATH": os.defpath, "HOME": str(folder)}
    steps = {"game_driver.py ky01 0": QUIT, "collect_results.py --sessions-dir sessions": ""}
    for words, stdin in steps.items():
        argv = [sys.executable, *words.split()]
        subprocess.run(argv, cwd=folder, env=env, input=stdin, text=True, check=True, timeout=60)


@pytest.mark.parametrize("name", COMMANDS)
def test_examples_run(name, made, examples, tmp_path):
    shutil.copytree(made, tmp_path / "here")
    examples.run_all("arc", name, folder=tmp_path / "here")


def test_examples_of_arc_itself_run(examples, tmp_path):
    examples.run_all("arc", folder=tmp_path)
