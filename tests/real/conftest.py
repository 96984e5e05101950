"""A real agent run by `assay capture`, against a scripted model."""

import json
import os
import subprocess
import sys
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from assay.testing.model import Request, ScriptedModel


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


@pytest.fixture(scope="session")
def codex_settings() -> Callable[[str], list[str]]:
    """Give the arguments of Codex that make it ask a model at an address."""

    def point(url: str) -> list[str]:
        provider = {"name": "mock", "base_url": f"{url}/v1", "wire_api": "responses"}
        provider["env_key"] = "MOCK_API_KEY"
        settings = ['model_provider="mock"']
        settings += [f'model_providers.mock.{key}="{value}"' for key, value in provider.items()]
        return [word for setting in settings for word in ("-c", setting)]

    return point


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
