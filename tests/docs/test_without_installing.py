"""Assay without installing it: one file for a bare Python, uvx and pipx from the checkout."""

import os
import subprocess
import sys
import venv
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
BARE = [getattr(sys, "_base_executable", sys.executable), "-I", "-S"]
pytestmark = pytest.mark.install


@pytest.fixture(scope="module")
def pyz(tmp_path_factory: pytest.TempPathFactory) -> Path:
    target = tmp_path_factory.mktemp("dist") / "assay.pyz"
    build = [sys.executable, ROOT / "scripts/build_zipapp.py", target]
    done = subprocess.run(build, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stderr
    assert target.stat().st_size < 5_000_000
    return target


@pytest.fixture
def bare(pyz: Path, tmp_path: Path) -> Callable[..., Any]:
    """Run the file on a Python without any package, in a folder and a HOME of its own."""

    def run(*words: Any, **env: str) -> subprocess.CompletedProcess[str]:
        own = {"HOME": str(tmp_path), "PATH": "/usr/bin:/bin", **env}
        argv = [*BARE, pyz, *words]
        return subprocess.run(
            argv, cwd=tmp_path, env=own, capture_output=True, text=True, timeout=120, check=False
        )

    return run


def test_the_file_captures_grades_and_formats_on_a_bare_python(
    bare: Callable[..., Any], tmp_path: Path
) -> None:
    for words in (
        ["init", "evals"],
        ["capture", "evals/prompts.jsonl", "-s", "demo", "-g", "contains", "-o", "r.jsonl"],
        ["grade", "r.jsonl", "-g", "evals/grader.py", "-o", "g.jsonl"],
        ["run", "evals/prompts.jsonl", "-s", "demo", "-q", "-o", "raw.jsonl"],
        ["extract", "raw.jsonl", "-s", "demo", "-o", "e.jsonl"],
        ["format", "g.jsonl", "-f", "csv", "-o", "g.csv"],
        ["summarize", "g.jsonl", "--markdown", "-o", "s.md"],
        ["validate-refs", "evals/prompts.jsonl", "-g", "contains", "-o", "v.jsonl"],
        ["balance", "evals/prompts.jsonl", "-o", "b.json"],
    ):
        done = bare(*words)
        assert done.returncode == 0, (words, done.stderr)
        assert "Traceback" not in done.stderr, (words, done.stderr)
    assert len((tmp_path / "g.jsonl").read_text().splitlines()) == 8
    # Unpacked once, and nothing else is left in the cache folder.
    assert len(list((tmp_path / ".cache/assay").glob("pyz-*"))) == 1


def test_a_command_that_needs_numpy_says_so_before_anything_runs(
    bare: Callable[..., Any], tmp_path: Path
) -> None:
    (tmp_path / "p.jsonl").write_text('{"id": "a", "input": "touch ran"}\n')
    trials = ["trials", "p.jsonl", "--shell", 'sh -c "$PROMPT"', "-k", "2", "-o", "t.jsonl"]
    for words in (trials, ["compare", "a.jsonl", "b.jsonl"], ["plan", "--rate", "0.5"]):
        done = bare(*words)
        assert done.returncode == 1
        assert "needs numpy, which is not part of assay.pyz" in done.stderr
        assert "install" in done.stderr
        assert "Traceback" not in done.stderr
    assert not (tmp_path / "ran").exists()
    assert not (tmp_path / "t.jsonl").exists()
    assert bare("trials", "--help").returncode == 0
    assert bare("arc", "games").returncode == 2


def test_a_cache_folder_that_cannot_be_written_is_named(bare: Callable[..., Any]) -> None:
    done = bare("--version", XDG_CACHE_HOME="/proc/nowhere")
    assert done.returncode == 1
    assert "/proc/nowhere" in done.stderr
    assert "Traceback" not in done.stderr


def test_another_python_is_refused_with_what_the_file_was_built_for(
    pyz: Path, tmp_path: Path
) -> None:
    code = (
        "import runpy, sys; sys.implementation.cache_tag = 'cpython-39'; "
        "runpy.run_path(sys.argv[1], run_name='__main__')"
    )
    done = subprocess.run(
        [*BARE, "-c", code, pyz, "--version"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert f"built for {sys.implementation.cache_tag}" in done.stderr


@pytest.fixture(scope="module")
def tools(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tools")
    venv.create(folder, with_pip=True)
    pip = [folder / "bin/pip", "install", "-q", "uv", "pipx"]
    subprocess.run(pip, check=True, capture_output=True, timeout=600)
    return folder


@pytest.mark.parametrize(
    "words",
    [["uvx", "--python", BARE[0], "--from"], ["pipx", "run", "--python", BARE[0], "--spec"]],
)
def test_uvx_and_pipx_run_the_checkout(tools: Path, tmp_path: Path, words: list[str]) -> None:
    own = {"UV_CACHE_DIR": "uv", "UV_TOOL_DIR": "uv-tools", "PIPX_HOME": "pipx"}
    env = {**os.environ, **{name: str(tmp_path / folder) for name, folder in own.items()}}
    env.pop("VIRTUAL_ENV", None)
    argv = [tools / "bin" / words[0], *words[1:], ROOT, "assay"]
    for more in (["--version"], ["plan", "--rate", "0.5"]):
        done = subprocess.run(
            [*argv, *more], cwd=tmp_path, env=env, capture_output=True, text=True, timeout=600,
            check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        assert done.stdout
