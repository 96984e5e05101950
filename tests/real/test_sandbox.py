"""The four real agents under --sandbox: they work, and see nothing that is not theirs."""

import contextlib
import json
import socket
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytestmark = [pytest.mark.real, pytest.mark.usefixtures("bubblewrap")]

MODELS = {
    "claude": "claude-sonnet-4-5",
    "codex": "gpt-5.5",
    "gemini": "gemini-2.5-pro",
    "opencode": "mock/mock-model",
}
SECRET = "planted-7d1f"


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


def arguments(agent: str, url: str) -> tuple[str, ...]:
    words = ["--model", MODELS[agent]]
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
    return tuple(words)


@pytest.mark.parametrize("sandbox", ["--sandbox", "--sandbox=no-network"])
@pytest.mark.parametrize("agent", MODELS)
def test_works_and_cannot_read_a_planted_file(
    agent: str, sandbox: str, live: Callable[..., Any], tmp_path: Path
) -> None:
    planted = tmp_path / "planted.txt"
    planted.write_text(SECRET)
    assay_source = Path(__file__).parents[2] / "src"
    look = f"cat {planted}; ls {assay_source} /proc/1/root/home; ls -d /proc/[0-9]*"
    script = {
        "steps": [
            {"calls": [{"tool": "shell", "command": "echo made > made.txt && echo said-it"}]},
            {"calls": [{"tool": "shell", "command": f"{look}; true"}]},
            {"text": "Done."},
        ]
    }
    done = live(
        agent,
        script,
        env=lambda url: variables(agent, url),
        args=lambda url: (*arguments(agent, url), sandbox),
    )
    assert "failure" not in done.row, done
    assert done.row["output"] == "Done."
    assert (done.workspace / "made.txt").read_text() == "made\n"
    first, second = done.steps("tool_call")
    assert "said-it" in first["output"], done
    assert SECRET not in json.dumps(done.row)
    seen = second["output"]
    assert "No such file" in seen, seen
    assert "assay_arc" not in seen
    assert seen.count("/proc/") < 20, "it sees the processes of others"
    assert done.row["raw"]
    assert done.holds(SECRET) == []
    assert done.alive() == []


@pytest.mark.parametrize("agent", MODELS)
def test_reaches_its_model_through_the_proxy(agent: str, live: Callable[..., Any]) -> None:
    """On 127.0.0.2 the model is another machine's: there is no way to it but the proxy."""
    with Forwarder() as forwarder:
        done = live(
            agent,
            {"steps": [{"text": "Through the proxy."}]},
            env=lambda url: variables(agent, forwarder.address(url)),
            args=lambda url: (*arguments(agent, forwarder.address(url)), "--sandbox=no-network"),
        )
    assert done.row["output"] == "Through the proxy.", done


class Forwarder:
    """Passes connections to a port of 127.0.0.2 on to the same port of 127.0.0.1."""

    def __enter__(self) -> "Forwarder":
        self._sockets: list[socket.socket] = []
        return self

    def __exit__(self, *_: object) -> None:
        for one in self._sockets:
            one.close()

    def address(self, url: str) -> str:
        port = int(url.rsplit(":", 1)[1])
        if not self._sockets:
            self._sockets.append(socket.create_server(("127.0.0.2", port)))
            threading.Thread(target=self._serve, args=(port,), daemon=True).start()
        return url.replace("127.0.0.1", "127.0.0.2")

    def _serve(self, port: int) -> None:
        with contextlib.suppress(OSError):
            while True:
                client = self._sockets[0].accept()[0]
                server = socket.create_connection(("127.0.0.1", port))
                self._sockets += [client, server]
                for pair in ((client, server), (server, client)):
                    threading.Thread(target=copy, args=pair, daemon=True).start()


def copy(source: socket.socket, target: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while block := source.recv(65536):
            target.sendall(block)
        target.shutdown(socket.SHUT_WR)
