"""The four real agents at pinned versions, installed once into a cache folder."""

import fcntl
import hashlib
import json
import os
import platform
import shutil
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import pytest

from assay.testing.model import Request, ScriptedModel

PINS = {
    "claude": "@anthropic-ai/claude-code@2.1.325",
    "codex": "@openai/codex@0.166.0",
    "gemini": "@google/gemini-cli@0.61.0",
    "opencode": "opencode-ai@1.18.33",
}
INSTALL_LIMIT_S = 900


@dataclass(frozen=True)
class RealAgents:
    """Where the programs are, and a scratch folder for one run."""

    folder: Path

    def program(self, name: str) -> Path:
        """Give the program to start: the native binary where there is one."""
        found = sorted(self.folder.glob(f"node_modules/{_program_glob(name)}"))
        assert found, f"{name} is not in {self.folder}; remove that folder and run the tests again"
        return found[0]

    def version(self, name: str) -> str:
        """Give the pinned version."""
        return PINS[name].rsplit("@", 1)[1]


@pytest.fixture(scope="session")
def real_agents() -> RealAgents:
    """Install the agents unless the cache has them; parallel workers wait for the first."""
    root = Path(os.environ.get("ASSAY_TEST_CACHE") or Path.home() / ".cache" / "assay-tests")
    digest = hashlib.sha256(json.dumps(PINS, sort_keys=True).encode()).hexdigest()[:12]
    folder = root / f"agents-{digest}"
    root.mkdir(parents=True, exist_ok=True)
    with _locked(root / f"agents-{digest}.lock"):
        if not folder.exists():
            _install(folder)
    return RealAgents(folder)


@pytest.fixture
def one_per_core(real_agents: RealAgents) -> Iterator[None]:
    """Let as many tests start real agents as there are cores: each start takes a whole core."""
    with ExitStack() as files:
        names = [f"core-{n}.lock" for n in range(os.cpu_count() or 1)]
        slots = [files.enter_context((real_agents.folder / name).open("w")) for name in names]
        while not any(_try_lock(slot) for slot in slots):
            time.sleep(0.05)
        yield


@pytest.fixture
def agent_program(real_agents: RealAgents, one_per_core: None) -> Callable[[str], Path]:
    """Find an agent's program, for a test that runs it now."""
    return real_agents.program


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _try_lock(file: IO[str]) -> bool:
    """Lock a file until it is closed, unless another process holds it."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _install(folder: Path) -> None:
    command = ["npm", "install", "--ignore-scripts", "--no-audit", "--no-fund", *PINS.values()]
    said = " ".join([*command[:2], "--prefix", "DIR", *command[2:]])
    if shutil.which("npm") is None:
        _unavailable(f"npm is missing; install Node.js >= 20, then: {said}")
    beside = folder.with_suffix(".part")
    shutil.rmtree(beside, ignore_errors=True)
    beside.mkdir(parents=True)
    command[2:2] = ["--prefix", str(beside)]
    done = subprocess.run(
        command, cwd=beside, capture_output=True, text=True, timeout=INSTALL_LIMIT_S, check=False
    )
    if done.returncode:
        _unavailable(f"the agents cannot be installed with: {said}\n{done.stderr[-2000:]}")
    beside.rename(folder)


def _unavailable(why: str) -> None:
    if os.environ.get("CI", "").lower() in ("true", "1"):
        pytest.fail(why, pytrace=False)
    pytest.skip(why)


def _program_glob(name: str) -> str:
    machine = {"x86_64": "x64", "amd64": "x64", "aarch64": "arm64"}.get(
        platform.machine().lower(), platform.machine().lower()
    )
    target = f"{platform.system().lower()}-{machine}"
    baseline = "-baseline" if machine == "x64" and not _has_avx2() else ""
    return {
        "claude": f"@anthropic-ai/claude-code-{target}/claude",
        "codex": f"@openai/codex-{target}/vendor/*/bin/codex",
        "gemini": ".bin/gemini",
        "opencode": f"opencode-{target}{baseline}/bin/opencode",
    }[name]


def _has_avx2() -> bool:
    cpu = Path("/proc/cpuinfo")
    return not cpu.exists() or " avx2" in cpu.read_text()


@dataclass(frozen=True)
class Captured:
    """What `assay capture` made of one run of a real agent."""

    code: int
    stderr: str
    rows: list[dict[str, Any]]
    requests: list[Request]
    folder: Path
    tag: str

    @property
    def row(self) -> dict[str, Any]:
        """The only row."""
        assert len(self.rows) == 1, self
        return self.rows[0]

    def steps(self, kind: str) -> list[dict[str, Any]]:
        """Give the steps of one kind."""
        return [step for step in self.row["trajectory"] if step["type"] == kind]

    @property
    def workspace(self) -> Path:
        """Where the agent worked."""
        return Path(self.row["metadata"]["workspaceDir"])

    def alive(self) -> list[int]:
        """Give the processes of this run that still live."""
        found = []
        for path in Path("/proc").glob("[0-9]*/environ"):
            try:
                if self.tag.encode() in path.read_bytes():
                    found.append(int(path.parent.name))
            except OSError:
                continue
        return found

    def holds(self, text: str) -> list[Path]:
        """Give the files of this run that hold a text: rows, raw streams, kept files."""
        places = [path for path in self.folder.rglob("*") if path.is_file()]
        ours = [path for path in places if "workspaces" not in path.parts[-3:]]
        return [path for path in ours if text.encode() in path.read_bytes()]


@pytest.fixture
def live(agent_program: Callable[[str], Path], tmp_path: Path) -> Callable[..., Captured]:
    """Run `assay capture` with a real agent, isolated, against a scripted model.

    env gives the agent's variables for the model's address; they are let through by name.
    args may need that address too.
    """

    def capture(
        agent: str,
        script: dict[str, Any],
        *inputs: Any,
        env: Callable[[str], dict[str, str]],
        args: tuple[str, ...] | Callable[[str], tuple[str, ...]] = (),
        timeout_ms: int = 120_000,
        isolate: bool = True,
    ) -> Captured:
        folder = tmp_path / f"live-{uuid.uuid4().hex[:6]}"
        folder.mkdir()
        prompts, out = folder / "prompts.jsonl", folder / "out.jsonl"
        rows = [{"id": f"p{n}", "input": said} for n, said in enumerate(inputs or ("Do it.",))]
        prompts.write_text("".join(json.dumps(row) + "\n" for row in rows))
        tag = f"tag-{uuid.uuid4().hex}"
        with ScriptedModel(script) as model:
            more = {**env(model.url), "ASSAY_TEST_TAG": tag}
            command = [sys.executable, "-m", "assay", "capture", str(prompts), "-q"]
            command += ["--isolate"] if isolate else []
            command += ["-s", f"{agent}:{agent_program(agent)}", "-o", str(out)]
            command += args(model.url) if callable(args) else args
            command += ["-t", str(timeout_ms), "--workspace-dir", str(folder / "workspaces")]
            command += [word for name in more for word in ("--env", name)]
            done = subprocess.run(
                command, cwd=folder, env={**os.environ, **more}, capture_output=True, text=True,
                stdin=subprocess.DEVNULL, timeout=timeout_ms / 1000 * 3 + 30, check=False,
            )  # fmt: skip
            lines = out.read_text().splitlines() if out.exists() else []
            return Captured(
                code=done.returncode,
                stderr=done.stderr,
                rows=[json.loads(line) for line in lines],
                requests=model.requests,
                folder=folder,
                tag=tag,
            )

    return capture
