"""Runs to look at, and a browser to look at them with."""

import base64
import fcntl
import importlib.util
import json
import os
import subprocess
import sys
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
CACHE = Path(os.environ.get("ASSAY_TEST_CACHE") or Path.home() / ".cache" / "assay-tests")


def load(path: Path) -> ModuleType:
    """Import a file that is no part of a package."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules.setdefault(path.stem, module)
    spec.loader.exec_module(module)
    return module


browsing = load(Path(__file__).with_name("browser.py"))
samples = load(ROOT / "scripts" / "sample_runs.py")


def missing(why: str) -> None:
    """Skip loudly on a service, fail in CI."""
    if os.environ.get("CI") == "true":
        pytest.fail(why)
    pytest.skip(why)


@contextmanager
def one_worker() -> Iterator[None]:
    """Let one worker fetch what is missing, and the others find it there."""
    CACHE.mkdir(parents=True, exist_ok=True)
    with (CACHE / "viewer.lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


@pytest.fixture(scope="session")
def browser(chromium_program: None) -> Iterator[Any]:
    """One Chromium for all tests of a worker."""
    with browsing.chromium() as one:
        yield one


@pytest.fixture(scope="session")
def axe(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The text of axe-core, fetched once with npm."""
    script = CACHE / "package" / "axe.min.js"
    fetch = "npm pack axe-core@4 --silent && tar xzf axe-core-*.tgz package/axe.min.js"
    with one_worker():
        if not script.exists():
            subprocess.run(["sh", "-c", fetch], cwd=CACHE, check=False, capture_output=True)
    if not script.exists():
        missing("no axe-core: `npm pack axe-core@4` did not work")
    return script.read_text(encoding="utf-8")


@pytest.fixture(scope="session")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with two captures, two trials, and a played game."""
    folder = tmp_path_factory.mktemp("runs")
    write, rows = samples.write, samples.rows
    write(folder / "before.jsonl", rows(40, seed=1, rate=0.35, agent="before", price=0.006))
    write(folder / "after.jsonl", rows(40, seed=2, rate=0.8, agent="after", slow=0.7))
    write(folder / "flaky.jsonl", samples.trial_rows(12, 4, seed=3, rate=0.5, agent="flaky"))
    write(folder / "steady.jsonl", samples.trial_rows(12, 4, seed=4, rate=0.8, agent="steady"))
    _write_game(folder / "arc" / "results.jsonl")
    return folder


@pytest.fixture(scope="session")
def games(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Two agents' results on the same game: one needs four moves, the other six."""
    folder = tmp_path_factory.mktemp("games")
    _write_game(folder / "a" / "quick.jsonl", n_moves=4)
    _write_game(folder / "b" / "slow.jsonl", n_moves=6)
    return folder / "a" / "quick.jsonl", folder / "b" / "slow.jsonl"


def _write_game(results: Path, n_moves: int = 4) -> None:
    """Write the results of one played game, and its log beside them."""
    (results.parent / "logs").mkdir(parents=True)
    (results.parent / "logs" / "game.jsonl").write_text("".join(_log_lines(n_moves)))
    samples.write(results, iter([_played(n_moves)]))


@pytest.fixture(scope="session")
def report(runs: Path) -> Path:
    """A report of both captures."""
    return _make_report(runs / "report.html", runs / "before.jsonl", runs / "after.jsonl")


@pytest.fixture
def view() -> Iterator[Callable[..., str]]:
    """Start `assay view`; give its address."""
    started: list[subprocess.Popen[str]] = []

    def start(*paths: Any) -> str:
        words = [sys.executable, "-m", "assay", "view", *map(str, paths)]
        process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        started.append(process)
        assert process.stdout is not None
        address = process.stdout.readline().strip()
        assert address.startswith("http://127.0.0.1:"), process.stderr and process.stderr.read()
        return address

    yield start
    for process in started:
        process.terminate()
        process.communicate(timeout=10)


@pytest.fixture(scope="session")
def sample() -> ModuleType:
    """What makes runs to look at."""
    return samples


@pytest.fixture(scope="session")
def make_report() -> Callable[..., Path]:
    """Call `assay report`."""
    return _make_report


def _make_report(target: Path, *files: Any) -> Path:
    words = [sys.executable, "-m", "assay", "report", *map(str, files), "-o", str(target)]
    subprocess.run([*words, "--overwrite", "-q"], check=True)
    return target


def _log_lines(n_moves: int) -> Iterator[str]:
    """A square that goes from left to right."""
    yield json.dumps({"type": "header", "schema": "assay-arc-log/1", "gameId": "sq01", "title": "Square"}) + "\n"  # fmt: skip # noqa: E501
    for n in range(n_moves):
        frame = bytearray([5]) * 4096
        for y in range(8):
            frame[y * 64 + n * 8 : y * 64 + n * 8 + 8] = bytes([9]) * 8
        answer = {
            "state": "WIN" if n == n_moves - 1 else "NOT_FINISHED",
            "levelsCompleted": int(n == n_moves - 1),
            "winLevels": 1,
            "frames": base64.b64encode(zlib.compress(bytes(frame))).decode(),
        }
        at = f"2026-09-21T14:13:{20 + n}.000+00:00"
        yield json.dumps({"type": "event", "seq": n, "at": at, "received": {"op": "start" if not n else "act"}, "outcome": "executed", "action": "RESET" if not n else f"ACTION{n}", "answer": answer, "counters": {"steps": n, "resets": 0}}) + "\n"  # fmt: skip # noqa: E501


def _played(n_moves: int) -> dict[str, Any]:
    start = 1_790_000_000_000  # 2026-09-21T14:13:20Z
    steps: list[dict[str, Any]] = []
    for n in range(1, n_moves):
        steps.append(
            {"type": "thought", "content": f"I try move {n}.", "timestamp": n * 1000 - 300}
        )
        steps.append({"type": "tool_call", "name": "act", "status": "completed", "timestamp": n * 1000 - 100, "input": {"action": f"ACTION{n}"}})  # fmt: skip # noqa: E501
    return {
        "id": "sq01",
        "input": "Play.",
        "output": "won",
        "trajectory": steps,
        "metadata": {"evidence": {"benchmark": "arc", "log": "logs/game.jsonl"}},
        "timing": {"start": start, "end": start + 5000, "total": 5000},
        "toolErrors": False,
        "score": {"pass": True, "score": 1.0, "reasoning": "1 of 1 levels"},
    }
