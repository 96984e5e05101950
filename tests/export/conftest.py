"""Result files with everything that an export has to think about, and TRL to read what comes out.

TRL without PyTorch is enough for its data functions: 0.6 GB and about half a minute to install,
too much for everybody who works on Assay, so it goes to the cache folder of the tests.
"""

import fcntl
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

PINS = ("datasets==5.2.0", "transformers==5.22.2", "jinja2==3.1.6")
TRL = "trl==1.16.0"
LIMIT_S = 900


def step(kind: str, **more: Any) -> dict[str, Any]:
    return {"type": kind, "timestamp": 1, **more}


LS = {"name": "Bash", "input": {"command": "ls"}, "output": "a.txt", "callId": "c1"}
READ = {"name": "Read", "input": {"path": "a.txt", "limit": 3}, "output": {"lines": ["x"]}}
WORK = [
    step("thought", content="I look first."),
    step("message", content="Let me look."),
    step("tool_call", status="completed", **LS),
    step("tool_call", status="completed", parent="c1", name="Inner", input={}),
    step("plan", entries=[{"content": "read it"}]),
    step("tool_call", status="completed", **READ),
    step("thought", content="Now I know."),
    step("message", content="It says x."),
]
SAID_NOTHING = [step("thought", content="Hm.")]


def capture(prompt_id: str, output: str, passed: bool | None, **more: Any) -> dict[str, Any]:
    row: dict[str, Any] = {
        "id": prompt_id,
        "input": f"Task {prompt_id}",
        "output": output,
        "trajectory": [step("message", content=output)] if output else [],
        "metadata": {"category": "files", "agent": "x"},
        "timing": {"start": 0, "end": 5, "total": 5},
        "toolErrors": False,
    }
    if passed is not None:
        row["score"] = {"pass": passed, "score": 0.9 if passed else 0.1}
    return row | more


CAPTURES = [
    capture("work", "It says x.", True, trajectory=WORK),
    capture("fail", "I do not know.", False),
    capture("plain", "No grade.", None),
    capture("silent", "", True, trajectory=SAID_NOTHING),
    capture("down", "", None, failure={"cause": "provider", "message": "503"}),
    capture("slow", "half", None, failure={"cause": "agent_timeout", "message": "60 s"}),
    capture(
        "talk",
        "It is 42.",
        True,
        input=["Remember 42", "What was it?"],
        trajectory=[
            step("message", content="I will.", turn=1),
            step("message", content="It is 42.", turn=2),
        ],
        metadata={"category": "memory"},
    ),
]


def entry(number: int, output: str, passed: bool | None, score: float, **more: Any) -> Any:
    made = {"trialNum": number, "output": output, "trajectory": [], "duration": 7.0}
    return made | ({} if passed is None else {"pass": passed, "score": score}) | more


TRIALS = [
    {
        "id": "both",
        "input": "Which?",
        "k": 4,
        "metadata": {"category": "facts"},
        "trials": [
            entry(1, "good", True, 0.8),
            entry(2, "worst", False, 0.0, trajectory=WORK),
            entry(3, "best", True, 1.0),
            entry(4, "bad", False, 0.3),
        ],
    },
    {
        "id": "passes",
        "input": "Easy?",
        "k": 2,
        "metadata": {},
        "trials": [entry(1, "yes", True, 1.0), entry(2, "yes!", True, 1.0)],
    },
    {
        "id": "doubt",
        "input": "Same?",
        "k": 2,
        "metadata": {},
        "trials": [entry(1, "equal", True, 1.0), entry(2, "equal", False, 0.0)],
    },
]


@pytest.fixture
def results(tmp_path: Path) -> dict[str, Path]:
    """A file of each kind."""
    files = {}
    for name, rows in (("captures", CAPTURES), ("trials", TRIALS)):
        files[name] = tmp_path / f"{name}.jsonl"
        files[name].write_text("".join(json.dumps(row) + "\n" for row in rows))
    return files


READERS = (
    "opentelemetry-proto==1.45.0",
    "inspect-ai==0.3.285",
    "junitparser==5.0.3",
    "every_eval_ever==0.3.0",
)


@pytest.fixture(scope="session")
def trl_python() -> Path:
    """Install TRL's data functions unless the cache has them."""
    # TRL itself asks for PyTorch, which its data functions do not import.
    return _environment(TRL.replace("==", "-"), PINS, ("--no-deps", TRL))


@pytest.fixture(scope="session")
def readers_python() -> Path:
    """The same for the readers of other formats."""
    return _environment("readers-2", READERS)


def _environment(name: str, *packages: tuple[str, ...]) -> Path:
    """Make an environment, which the cache keeps; parallel workers wait."""
    root = Path(os.environ.get("ASSAY_TEST_CACHE") or Path.home() / ".cache" / "assay-tests")
    folder = root / f"{name}-py{sys.version_info.major}.{sys.version_info.minor}"
    root.mkdir(parents=True, exist_ok=True)
    with (root / f"{folder.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / "complete").exists():
            _install(folder, packages)
    return folder / "bin" / "python"


def _install(folder: Path, packages: tuple[tuple[str, ...], ...]) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    python = folder / "bin" / "python"
    pip = [str(python), "-m", "pip", "install", "-q", "--disable-pip-version-check"]
    for words in ([sys.executable, "-m", "venv", str(folder)], *([*pip, *one] for one in packages)):
        done = subprocess.run(words, capture_output=True, text=True, timeout=LIMIT_S, check=False)
        if done.returncode:
            shutil.rmtree(folder, ignore_errors=True)
            _unavailable(f"EXPORTS ARE NOT CHECKED WITH THEIR READERS: {done.stderr[-1500:]}")
    (folder / "complete").touch()


def _unavailable(why: str) -> None:
    if os.environ.get("CI", "").lower() in ("true", "1"):
        pytest.fail(why, pytrace=False)
    pytest.skip(why)


@pytest.fixture
def read_with_trl(trl_python: Path, tmp_path: Path) -> Callable[[str, Path], dict[str, Any]]:
    def read(kind: str, path: Path) -> dict[str, Any]:
        done = subprocess.run(
            [trl_python, Path(__file__).with_name("trl_oracle.py"), kind, path],
            cwd=tmp_path,
            env={**os.environ, "HF_HUB_OFFLINE": "1", "HF_HOME": str(tmp_path / "hf")},
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        assert done.returncode == 0, done.stderr[-3000:]
        told: dict[str, Any] = json.loads(done.stdout)
        return told

    return read


@pytest.fixture
def read_with(readers_python: Path) -> Callable[..., Any]:
    """Read a file with the reader of its format; give what it found."""

    def read(kind: str, path: Path) -> Any:
        done = subprocess.run(
            [readers_python, Path(__file__).with_name("readers.py"), kind, path],
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        assert done.returncode == 0, done.stderr[-3000:]
        return json.loads(done.stdout)

    return read
