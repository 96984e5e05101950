"""The scripted model against the four real agents: they must take it for their provider."""

import json
import os
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from assay.testing.model import Request, ScriptedModel

pytestmark = pytest.mark.real

AGENTS = ("claude", "codex", "gemini", "opencode")
LIMIT_S = 90


@dataclass(frozen=True)
class Finished:
    """What one run of an agent left behind."""

    code: int
    events: list[dict[str, Any]]
    stderr: str
    requests: list[Request]
    workspace: Path
    home: Path

    def __str__(self) -> str:
        asked = [(r.path, r.served, r.status, r.step, r.problems) for r in self.requests]
        lines = "\n".join(json.dumps(event)[:400] for event in self.events)
        return f"code {self.code}\n{lines}\nstderr: {self.stderr[-800:]}\nasked: {asked}"


Play = Callable[[str, dict[str, Any]], Finished]


@pytest.fixture
def play(agent_program: Callable[[str], Path], tmp_path: Path) -> Play:
    """Run an agent once against a script."""

    def run(agent: str, script: dict[str, Any]) -> Finished:
        workspace, home = tmp_path / "workspace", tmp_path / "home"
        (tmp_path / "tmp").mkdir()
        workspace.mkdir()
        home.mkdir()
        with ScriptedModel(script) as model:
            argv, extra = COMMANDS[agent](model.url, workspace, home)
            env = {"PATH": os.environ["PATH"], "HOME": str(home), "LANG": "C.UTF-8"}
            env |= {"TMPDIR": str(tmp_path / "tmp"), **extra}
            code = _run([str(agent_program(agent)), *argv], env, workspace, tmp_path)
        lines = (tmp_path / "out").read_text().splitlines()
        return Finished(
            code=code,
            events=[json.loads(line) for line in lines if line.strip()],
            stderr=(tmp_path / "err").read_text(),
            requests=model.requests,
            workspace=workspace,
            home=home,
        )

    return run


@pytest.mark.parametrize("agent", AGENTS)
def test_answer_only(play: Play, agent: str) -> None:
    usage = {"input": 120, "output": 30, "cacheRead": 40, "cacheWrite": 8, "reasoning": 7}
    done = play(agent, {"steps": [{"text": "Four, and ünïcode ✓.", "usage": usage}]})
    assert finished_well(agent, done), done
    assert answer_of(agent, done.events) == "Four, and ünïcode ✓.", done
    assert [r.served for r in done.requests] == ["step"], done
    assert done.requests[0].last_user.strip() == "Do the task."
    assert tokens_of(agent, done.events) == TOKENS[agent], done


@pytest.mark.parametrize("agent", AGENTS)
def test_thinking(play: Play, agent: str) -> None:
    thought = "**Adding** I add two and two."
    done = play(agent, {"steps": [{"thinking": thought, "text": "Four."}]})
    assert finished_well(agent, done), done
    assert answer_of(agent, done.events) == "Four.", done
    assert "I add two and two." in thoughts_of(agent, done), done


@pytest.mark.parametrize("agent", AGENTS)
def test_shell_call_writes_a_file(play: Play, agent: str) -> None:
    call = {"tool": "shell", "command": "echo made > made.txt && echo said-it"}
    last = {"text": "It said {{last_tool_result}}", "expect": ["said-it"]}
    done = play(agent, {"steps": [{"text": "I write.", "calls": [call]}, last]})
    assert finished_well(agent, done), done
    assert (done.workspace / "made.txt").read_text() == "made\n"
    assert "said-it" in answer_of(agent, done.events)


@pytest.mark.parametrize("agent", AGENTS)
def test_file_tools(play: Play, agent: str) -> None:
    steps = [
        {"calls": [{"tool": "write_file", "path": "sub/a.txt", "content": "one\ntwo\n"}]},
        {"calls": [{"tool": "write_file", "path": "b.txt", "content": "it's \"bare\""}]},
        {"calls": [{"tool": "read_file", "path": "sub/a.txt"}]},
        {"expect": ["two"], "calls": [
            {"tool": "edit_file", "path": "sub/a.txt", "old": "two\n", "new": "three\n"}]},
        {"text": "Done."},
    ]  # fmt: skip
    done = play(agent, {"steps": steps})
    assert finished_well(agent, done), done
    assert (done.workspace / "sub/a.txt").read_text() == "one\nthree\n", done
    assert (done.workspace / "b.txt").read_text() == 'it\'s "bare"', done
    assert [r.step for r in done.requests] == [0, 1, 2, 3, 4], done


@pytest.mark.parametrize("agent", AGENTS)
def test_two_parallel_calls(play: Play, agent: str) -> None:
    calls = [{"tool": "shell", "command": f"echo {word} > {word}.txt"} for word in ("a", "b")]
    done = play(agent, {"steps": [{"calls": calls}, {"text": "Both."}]})
    assert finished_well(agent, done), done
    assert [r.step for r in done.requests] == [0, 1], done
    assert {path.name for path in done.workspace.iterdir()} == {"a.txt", "b.txt"}


@pytest.mark.parametrize("agent", AGENTS)
def test_unauthorised(play: Play, agent: str) -> None:
    fault = {"status": 401, "message": "no such key", "times": "always"}
    done = play(agent, {"steps": [{"text": "never", "faults": [fault]}]})
    assert not finished_well(agent, done), done
    assert done.code != 0, done
    assert {r.status for r in done.requests} == {401}, done


@pytest.mark.parametrize("agent", AGENTS)
def test_too_many_requests_then_success(play: Play, agent: str) -> None:
    fault = {"status": 429, "headers": {"retry-after": "1"}, "times": 1}
    done = play(agent, {"steps": [{"text": "Now it works.", "faults": [fault]}]})
    assert finished_well(agent, done), done
    assert answer_of(agent, done.events) == "Now it works.", done
    assert [r.status for r in done.requests] == [429, 200], done


def _run(argv: list[str], env: dict[str, str], workspace: Path, folder: Path) -> int:
    """Run to the end; stdout is a regular file, since Gemini loses its tail on a pipe."""
    prompt = folder / "prompt.txt"
    prompt.write_text("Do the task." if "--pure" in argv else "")
    with (
        prompt.open("rb") as stdin,
        (folder / "out").open("wb") as out,
        (folder / "err").open("wb") as err,
    ):
        return subprocess.run(
            argv, env=env, cwd=workspace, stdin=stdin, stdout=out, stderr=err,
            timeout=LIMIT_S, check=False,
        ).returncode  # fmt: skip


def _claude(url: str, workspace: Path, home: Path) -> tuple[list[str], dict[str, str]]:
    env = {
        "CLAUDE_CONFIG_DIR": str(home / ".claude"),
        "ANTHROPIC_BASE_URL": url,
        "ANTHROPIC_API_KEY": "dummy",
        "CLAUDE_CODE_MAX_RETRIES": "2",
    }
    for name in (
        "IS_SANDBOX", "DISABLE_AUTOUPDATER", "DISABLE_TELEMETRY", "DISABLE_ERROR_REPORTING",
        "DISABLE_BUG_COMMAND", "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC",
        "CLAUDE_CODE_DISABLE_BACKGROUND_TASKS",
    ):  # fmt: skip
        env[name] = "1"
    argv = ["-p", "--output-format", "stream-json", "--verbose", "--model", "claude-sonnet-4-5"]
    argv += ["--permission-mode", "bypassPermissions", "--setting-sources", ""]
    argv += ["--strict-mcp-config", "--max-turns", "50", "--", "Do the task."]
    return argv, env


def _codex(url: str, workspace: Path, home: Path) -> tuple[list[str], dict[str, str]]:
    (home / ".codex").mkdir()
    argv = ["exec", "--json", "--skip-git-repo-check", "-m", "gpt-5.5", "-C", str(workspace)]
    argv += ["--dangerously-bypass-approvals-and-sandbox", "--disable", "plugins"]
    argv += ["--disable", "apps"]
    provider = "model_providers.mock"
    for setting in (
        "analytics.enabled=false",
        "check_for_update_on_startup=false",
        'model_provider="mock"',
        f'{provider}.name="mock"',
        f'{provider}.base_url="{url}/v1"',
        f'{provider}.wire_api="responses"',
        f'{provider}.env_key="MOCK_API_KEY"',
        f"{provider}.request_max_retries=2",
        f"{provider}.stream_max_retries=1",
    ):
        argv += ["-c", setting]
    return [*argv, "Do the task."], {"CODEX_HOME": str(home / ".codex"), "MOCK_API_KEY": "dummy"}


def _gemini(url: str, workspace: Path, home: Path) -> tuple[list[str], dict[str, str]]:
    (home / ".gemini").mkdir()
    general = {"enableAutoUpdate": False, "enableAutoUpdateNotification": False, "maxAttempts": 2}
    settings = {
        "general": {**general, "retryFetchErrors": False},
        "privacy": {"usageStatisticsEnabled": False},
        "telemetry": {"enabled": False},
        "security": {"auth": {"selectedType": "gemini-api-key"}},
    }
    (home / ".gemini/settings.json").write_text(json.dumps(settings))
    env = {"GEMINI_CLI_HOME": str(home), "GEMINI_API_KEY": "dummy", "GOOGLE_GEMINI_BASE_URL": url}
    env |= {"GEMINI_CLI_TRUST_WORKSPACE": "true", "GEMINI_CLI_NO_RELAUNCH": "true"}
    argv = ["--output-format", "stream-json", "--approval-mode", "yolo", "-m", "gemini-2.5-pro"]
    return [*argv, "-p", "Do the task."], env


def _opencode(url: str, workspace: Path, home: Path) -> tuple[list[str], dict[str, str]]:
    (home / ".config/opencode/node_modules").mkdir(parents=True)
    lock = {"lockfileVersion": 3, "packages": {"": {"dependencies": {"@opencode-ai/plugin": "*"}}}}
    (home / ".config/opencode/package-lock.json").write_text(json.dumps(lock))
    model = {"name": "Mock", "reasoning": True, "tool_call": True}
    model["limit"] = {"context": 200000, "output": 8000}
    options = {"baseURL": f"{url}/v1", "apiKey": "dummy", "timeout": 60000}
    provider = {"npm": "@ai-sdk/openai-compatible", "name": "Mock", "options": options}
    provider["models"] = {"mock-model": model}
    config = {"model": "mock/mock-model", "share": "disabled", "autoupdate": False}
    config |= {"enabled_providers": ["mock"], "permission": "allow", "provider": {"mock": provider}}
    env = {"OPENCODE_CONFIG_CONTENT": json.dumps(config)}
    for name in (
        "MODELS_FETCH", "AUTOUPDATE", "LSP_DOWNLOAD", "DEFAULT_PLUGINS", "SHARE", "CLAUDE_CODE",
        "PROJECT_CONFIG", "TERMINAL_TITLE",
    ):  # fmt: skip
        env[f"OPENCODE_DISABLE_{name}"] = "1"
    argv = ["run", "--format", "json", "--pure", "--auto", "--thinking", "--title", "t"]
    return [*argv, "-m", "mock/mock-model", "--dir", str(workspace)], env


COMMANDS = {"claude": _claude, "codex": _codex, "gemini": _gemini, "opencode": _opencode}
TOKENS: dict[str, Any] = {
    "claude": {"input": 120, "output": 37, "read": 40, "write": 8},
    "codex": {"input": 168, "output": 37, "read": 40, "write": 8, "reasoning": 7},
    "gemini": {"input": 168, "output": 30, "read": 40, "total": 205},
    "opencode": {"input": 128, "output": 30, "read": 40, "reasoning": 7},
}


def finished_well(agent: str, done: Finished) -> bool:
    last = done.events[-1] if done.events else {}
    return (
        done.code == 0
        and {
            "claude": last.get("is_error") is False,
            "codex": last.get("type") == "turn.completed",
            "gemini": last.get("status") == "success",
            "opencode": last.get("part", {}).get("reason") == "stop",
        }[agent]
    )


def answer_of(agent: str, events: list[dict[str, Any]]) -> str:
    if agent == "claude":
        return str(events[-1]["result"])
    if agent == "codex":
        items = [event["item"] for event in events if event["type"] == "item.completed"]
        return str([item["text"] for item in items if item["type"] == "agent_message"][-1])
    start = "tool_result" if agent == "gemini" else "step_start"
    last = max((n for n, event in enumerate(events) if event["type"] == start), default=-1)
    if agent == "gemini":
        said = [e for e in events[last + 1 :] if e.get("role") == "assistant"]
        return "".join(event["content"] for event in said)
    return "".join(e["part"]["text"] for e in events[last:] if e["type"] == "text")


def thoughts_of(agent: str, done: Finished) -> str:
    if agent == "gemini":
        files = (done.home / ".gemini/tmp").glob("*/chats/session-*.jsonl")
        return "".join(path.read_text() for path in files)
    kinds = {"claude": "thinking", "codex": "reasoning", "opencode": "reasoning"}
    found = [json.dumps(event) for event in done.events]
    return "".join(line for line in found if f'"type": "{kinds[agent]}"' in line)


def tokens_of(agent: str, events: list[dict[str, Any]]) -> dict[str, int]:
    last = events[-1]
    if agent == "claude":
        usage = next(iter(last["model_usage_since_last_result"].values()))
        names = {"input": "inputTokens", "output": "outputTokens"}
        names |= {"read": "cacheReadInputTokens", "write": "cacheCreationInputTokens"}
    elif agent == "codex":
        usage = last["usage"]
        names = {"input": "input_tokens", "output": "output_tokens", "read": "cached_input_tokens"}
        names |= {"write": "cache_write_input_tokens", "reasoning": "reasoning_output_tokens"}
    elif agent == "gemini":
        usage = last["stats"]
        names = {"input": "input_tokens", "output": "output_tokens", "read": "cached"}
        names |= {"total": "total_tokens"}
    else:
        usage = {**last["part"]["tokens"], **last["part"]["tokens"]["cache"]}
        names = {"input": "input", "output": "output", "read": "read", "reasoning": "reasoning"}
    return {name: usage[key] for name, key in names.items()}
