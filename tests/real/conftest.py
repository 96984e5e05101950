"""A real agent run by `assay capture`, against a scripted model."""

import json
import os
import subprocess
import sys
import uuid
from collections.abc import Callable, Sequence
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


SECRET = "sk-live-0123456789abcdef"
"""The key that every agent is given for the scripted model."""


@dataclass(frozen=True)
class Kind:
    """What differs between the agents, for tests of what does not."""

    name: str
    model: str
    version: str | None
    """What the row says; Gemini CLI does not tell."""
    env: Callable[[str], dict[str, str]]
    """Variables that make it ask the model at an address."""
    key: str
    """The variable with the key of its provider."""
    shell: str
    mcp_tool: str
    task: dict[str, Any]
    """The call that starts a sub-agent with the job SUBJOB."""
    tokens: dict[str, int]
    """Of one answer that used 120 in, 30 out, 40 read from a cache, 7 for thinking."""
    args: Callable[[str], list[str]] = lambda _url: []
    """Arguments that make it ask the model at an address."""
    cost_source: str = "reported"

    def words(self, url: str) -> list[str]:
        """Give the options of assay that point it at an address."""
        return ["--model", self.model, *(f"--agent-arg={word}" for word in self.args(url))]


def _codex_args(url: str) -> list[str]:
    provider = {"name": "mock", "base_url": f"{url}/v1", "wire_api": "responses"}
    provider["env_key"] = "MOCK_API_KEY"
    settings = ['model_provider="mock"']
    settings += [f'model_providers.mock.{key}="{value}"' for key, value in provider.items()]
    return [word for setting in settings for word in ("-c", setting)]


def _codex_args_for_faults(url: str) -> list[str]:
    retries = [f"model_providers.mock.{kind}_max_retries=1" for kind in ("request", "stream")]
    return [*_codex_args(url), *(word for setting in retries for word in ("-c", setting))]


def _opencode_env(url: str) -> dict[str, str]:
    limit = {"context": 200000, "output": 8000}
    price = {"input": 3, "output": 15, "cache_read": 0.3, "cache_write": 3.75}
    model = {"name": "Mock", "reasoning": True, "tool_call": True, "limit": limit, "cost": price}
    options = {"baseURL": f"{url}/v1", "apiKey": "{env:MOCK_API_KEY}", "timeout": 60000}
    provider = {"npm": "@ai-sdk/openai-compatible", "name": "Mock", "options": options}
    config = {"enabled_providers": ["mock"], "share": "disabled", "autoupdate": False}
    config["provider"] = {"mock": {**provider, "models": {"mock-model": model}}}
    return {"OPENCODE_CONFIG_CONTENT": json.dumps(config), "MOCK_API_KEY": SECRET}


def _task(name: str, sort: str) -> dict[str, Any]:
    given = {"description": "sub job", "prompt": "SUBJOB do it", "subagent_type": sort}
    return {"name": name, "arguments": given}


KINDS = {
    "claude": Kind(
        "claude", "claude-sonnet-4-5", "2.1.325",
        lambda url: {"ANTHROPIC_BASE_URL": url, "ANTHROPIC_API_KEY": SECRET,
                     "CLAUDE_CODE_MAX_RETRIES": "2"},
        "ANTHROPIC_API_KEY", "Bash", "mcp__adder__{}", _task("Task", "general-purpose"),
        {"inputTokens": 120, "outputTokens": 37, "cacheReadTokens": 40},
    ),
    "codex": Kind(
        "codex", "gpt-5.5", "0.166.0", lambda _url: {"MOCK_API_KEY": SECRET},
        "MOCK_API_KEY", "exec_command", "mcp__adder__{}",
        {"name": "spawn_agent", "namespace": "multi_agent_v1",
         "arguments": {"message": "SUBJOB do it"}},
        {"inputTokens": 160, "outputTokens": 37, "cacheReadTokens": 40, "reasoningTokens": 7},
        args=_codex_args_for_faults, cost_source="estimated",
    ),
    "gemini": Kind(
        "gemini", "gemini-2.5-pro", None,
        lambda url: {"GEMINI_API_KEY": SECRET, "GOOGLE_GEMINI_BASE_URL": url},
        "GEMINI_API_KEY", "run_shell_command", "mcp_adder_{}",
        {"name": "invoke_agent",
         "arguments": {"agent_name": "generalist", "prompt": "SUBJOB do it"}},
        {"inputTokens": 160, "outputTokens": 30, "cacheReadTokens": 40, "reasoningTokens": 7},
        cost_source="estimated",
    ),
    "opencode": Kind(
        "opencode", "mock/mock-model", "1.18.33", _opencode_env,
        "MOCK_API_KEY", "bash", "adder_{}", _task("task", "general"),
        {"inputTokens": 120, "outputTokens": 30, "cacheReadTokens": 40, "reasoningTokens": 7},
    ),
}  # fmt: skip


@pytest.fixture(scope="session")
def codex_settings() -> Callable[[str], list[str]]:
    """Give the arguments of Codex that make it ask a model at an address."""
    return _codex_args


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> Kind:
    """Each of the agents in turn."""
    return KINDS[request.param]


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
        args: Sequence[str] | Callable[[str], Sequence[str]] = (),
        timeout_ms: int = 120_000,
        isolate: bool = True,
        program: str | None = None,
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
            command += ["-s", f"{agent}:{program or agent_program(agent)}", "-o", str(out)]
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


@pytest.fixture
def play(live: Callable[..., Captured], kind: Kind) -> Callable[..., Captured]:
    """Capture with the agent of this test; env has variables besides those of its provider."""

    def capture(
        script: dict[str, Any],
        *inputs: Any,
        args: Sequence[Any] = (),
        env: dict[str, str] | None = None,
        url: str | None = None,
        **more: Any,
    ) -> Captured:
        return live(
            kind.name,
            script,
            *inputs,
            env=lambda served: {**kind.env(url or served), **(env or {})},
            args=lambda served: [*kind.words(url or served), *map(str, args)],
            **more,
        )

    return capture
