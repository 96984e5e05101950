"""The four real agents play a built-in game, through MCP and through the shell command."""

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from assay.testing.model import ScriptedModel
from assay_arc.log import read_log

pytestmark = pytest.mark.real

MODELS = {
    "claude": "claude-sonnet-4-5",
    "codex": "gpt-5.5",
    "gemini": "gemini-2.5-pro",
    "opencode": "mock/mock-model",
}
RIGHT, DOWN = "ACTION4", "ACTION2"
N_EQUAL = 7  # Gemini CLI takes five equal calls for a loop, OpenCode three
STEPS: list[dict[str, Any]] = [
    {"calls": [{"tool": "mcp", "server": "arc", "name": "look"}]},
    {"calls": [{"tool": "mcp", "server": "arc", "name": "act", "arguments": {"action": RIGHT}}]},
    {"calls": [{"tool": "shell", "command": f'"$ARC_PLAY" act {RIGHT} {RIGHT}'}]},
    *[{"calls": [{"tool": "mcp", "server": "arc", "name": "act", "arguments": {"action": RIGHT}}]}]
    * N_EQUAL,
    {"calls": [{"tool": "shell", "command": "arc-play status || $ARC_PLAY status"}]},
    {"text": "I stop here."},
]


def variables(agent: str, url: str) -> dict[str, str]:
    """Say how the scripted model's address reaches each agent."""
    if agent == "claude":
        return {"ANTHROPIC_BASE_URL": url, "ANTHROPIC_API_KEY": "sk-dummy-0123456789"}
    if agent == "codex":
        return {"MOCK_API_KEY": "dummy"}
    if agent == "gemini":
        return {"GEMINI_API_KEY": "dummy", "GOOGLE_GEMINI_BASE_URL": url}
    limit = {"context": 200000, "output": 8000}
    options = {"baseURL": f"{url}/v1", "apiKey": "{env:MOCK_API_KEY}"}
    model = {"name": "Mock", "tool_call": True, "limit": limit}
    provider = {"npm": "@ai-sdk/openai-compatible", "name": "Mock", "options": options}
    config = {"enabled_providers": ["mock"], "share": "disabled", "autoupdate": False}
    config["provider"] = {"mock": {**provider, "models": {"mock-model": model}}}
    return {"OPENCODE_CONFIG_CONTENT": json.dumps(config), "MOCK_API_KEY": "dummy"}


def arguments(agent: str, url: str, model: str | None = None) -> list[str]:
    words = ["--model", model] if model else []
    if agent == "codex":
        provider = "model_providers.mock"
        for setting in (
            'model_provider="mock"',
            f'{provider}.name="mock"',
            f'{provider}.base_url="{url}/v1"',
            f'{provider}.wire_api="responses"',
            f'{provider}.env_key="MOCK_API_KEY"',
        ):
            words += ["--agent-arg=-c", f"--agent-arg={setting}"]
    return words


@pytest.fixture
def home(real_agents: Any) -> Iterator[Path]:
    """A HOME for the user who runs the agents; Codex makes no sandbox if it lies below /tmp."""
    with tempfile.TemporaryDirectory(dir=real_agents.folder.parent, prefix="home-") as name:
        folder = Path(name)
        (folder / ".gemini").mkdir()
        settings = '{"security": {"auth": {"selectedType": "gemini-api-key"}} /* mine */}'
        (folder / ".gemini" / "settings.json").write_text(settings)
        yield folder


@pytest.mark.usefixtures("bubblewrap")
@pytest.mark.parametrize("confined", ["", "--isolate", "--sandbox=no-network"])
@pytest.mark.parametrize("agent", MODELS)
def test_plays_both_ways_in(
    agent: str, confined: str, agent_program: Callable[[str], Path], tmp_path: Path, home: Path
) -> None:
    with ScriptedModel({"steps": STEPS}) as model:
        env = variables(agent, model.url)
        command = [sys.executable, "-m", "assay", "arc", "run", f"{agent}:{agent_program(agent)}"]
        command += ["--games", "ky01", "--max-steps", "20", "-t", "120000"]
        command += [confined] if confined else []
        command += [*arguments(agent, model.url, MODELS[agent])]
        command += [word for name in env for word in ("--env", name)]
        done = subprocess.run(
            command,
            cwd=tmp_path,
            env={**os.environ, **env, "HOME": str(home)},
            capture_output=True,
            text=True,
            timeout=200,
        )
        asked = model.requests
    assert done.returncode == 0, done.stderr
    [run] = (tmp_path / ".arc-agi-benchmarks" / "runs").iterdir()
    [line] = (run / "results.jsonl").read_text().splitlines()
    row = json.loads(line)
    assert "failure" not in row, row["failure"]
    calls = [step for step in row["trajectory"] if step["type"] == "tool_call"]
    assert [call["status"] for call in calls] == ["completed"] * (4 + N_EQUAL)
    assert "grid 64x64" in json.dumps(calls[0]["output"])
    assert "changed x8-23 y8-15: 04 -> 40" in json.dumps(calls[1]["output"])
    assert f"actions {3 + N_EQUAL} of 20" in json.dumps(calls[-1]["output"])
    result = row["metadata"]["evidence"]["result"]
    assert (result["steps"], result["stopReason"]) == (3 + N_EQUAL, "player_quit")
    assert row["output"] == "I stop here."
    log = read_log(run / row["metadata"]["evidence"]["log"])
    assert [event.action for event in log.events if event.action] == [
        *("RESET", *[RIGHT] * (3 + N_EQUAL)),
    ]
    told = json.dumps([request.body for request in asked])
    assert "arc-play" in told
    for secret in ("[10, 7, 24, 15, 19]", "10, 7, 24", log.header.source_sha256, "ky01.py"):
        assert secret not in told


def test_codex_plays_with_its_own_default_model(
    agent_program: Callable[[str], Path], assay: Callable[..., Any], tmp_path: Path, home: Path
) -> None:
    """Its tools come as an item of the input then, and the model is the one that it reports."""
    with ScriptedModel({"steps": STEPS}) as model:
        command = ["arc", "run", f"codex:{agent_program('codex')}", "--games", "ky01", "-q"]
        command += [*arguments("codex", model.url), "--env", "MOCK_API_KEY"]
        env = {**variables("codex", model.url), "HOME": str(home)}
        done = assay(*command, env=env, timeout=200)
        asked = [request.body for request in model.requests]
    assert done.code == 0, done.stderr
    assert f"Steps: {3 + N_EQUAL} |" in done.stdout
    assert any(item.get("type") == "additional_tools" for item in asked[0]["input"])
    report = assay("arc", "report").stdout
    assert f"- **Harness**: codex ({asked[0]['model']})" in report


def block_after(text: str, heading: str, language: str = "bash") -> str:
    """Return the first block of code below a heading of the instructions."""
    return text.partition(heading)[2].partition(f"```{language}\n")[2].partition("```")[0].strip()


def prepare_for(harness: str, home: Path, folder: Path, url: str) -> None:
    """Configure the scripted model in the files where a user would configure a provider."""
    if harness == "codex":
        (home / ".codex").mkdir()
        mock = f'name = "mock"\nbase_url = "{url}/v1"\nwire_api = "responses"\n'
        config = (
            f'model_provider = "mock"\n[model_providers.mock]\n{mock}env_key = "MOCK_API_KEY"\n'
        )
        (home / ".codex" / "config.toml").write_text(config)
    if harness == "opencode":
        path = folder / "opencode.json"
        mine = json.loads(variables("opencode", url)["OPENCODE_CONFIG_CONTENT"])
        path.write_text(json.dumps(json.loads(path.read_text()) | mine))


@pytest.mark.parametrize("harness", ["codex", "gemini", "opencode"])
def test_the_generated_commands_play_to_a_verified_import(
    harness: str,
    agent_program: Callable[[str], Path],
    assay: Callable[..., Any],
    tmp_path: Path,
    home: Path,
) -> None:
    """Every command stands in instructions.md; the shell has no Python of ours on its PATH."""
    assert assay("arc", "generate", harness, "--games", "ky01").code == 0
    folder = tmp_path / ".arc-agi-benchmarks" / "cross-harness" / harness
    text = (folder / "instructions.md").read_text()
    move = block_after(text, "### Execution Model").replace("<game_id>", "ky01-v1")
    move = move.replace("ACTION1", RIGHT)
    collect = block_after(text, "### Automated Collection").replace("\\\n", "")
    for name in ("<your-model-name>", "<harness-version>", "<any context>"):
        collect = collect.replace(name, "mine")
    n_moves = {"codex": 1, "gemini": 5, "opencode": 3}[harness]
    script = [
        {"calls": [{"tool": "shell", "command": one}]} for one in (*[move] * n_moves, collect)
    ]
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / harness).symlink_to(agent_program(harness))
    with ScriptedModel({"steps": [*script, {"text": "Done."}]}) as model:
        prepare_for(harness, home, folder, model.url)
        prompt = text.partition("\n> ")[2].partition("\n\n")[0]
        command = block_after(text, "### Running").replace("<model>", MODELS[harness])
        path = f"{tmp_path / 'bin'}:{Path(shutil.which('node') or '/usr/bin/node').parent}"
        env = {**variables(harness, model.url), "HOME": str(home), "PATH": f"{path}:/usr/bin:/bin"}
        env.pop("OPENCODE_CONFIG_CONTENT", None)
        done = subprocess.run(
            ["bash", "-c", command.replace("<prompt>", prompt)],
            cwd=folder,
            env=env,
            capture_output=True,
            text=True,
            timeout=120,
        )
        asked = json.dumps([request.body for request in model.requests])
    assert done.returncode == 0, done.stderr
    assert "Completed: 0" in asked, re.findall(r'"output": "[^"]*', asked)
    imported = assay("arc", "import", harness, folder / "result.json")
    assert "Verified:        replayed" in imported.stdout, imported.stderr
    [log] = (folder / "sessions").glob("*.jsonl")
    assert [event.action for event in read_log(log).events] == ["RESET", *[RIGHT] * n_moves]
