"""What an agent in another HOME gets of the user's settings: endpoint, model and keys by name."""

import json
import tomllib
from pathlib import Path
from typing import Any

import pytest

from assay import plugins
from assay.adapters import claude, codex, opencode
from assay.plugin import Ask, Command
from assay.records.spec import PluginRef

KEY = "sk-live-0123456789abcdef"
ASK = Ask(text="hi", cwd="/w", home="/h", scratch="/s")


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("CODEX_HOME", "CLAUDE_CONFIG_DIR", "GEMINI_CLI_HOME", "XDG_CONFIG_HOME"):
        monkeypatch.delenv(name, raising=False)
    for name in ("OPENCODE_CONFIG", "OPENCODE_CONFIG_CONTENT", "OPENCODE_CONFIG_DIR"):
        monkeypatch.delenv(name, raising=False)
    for name in ("GEMINI_API_KEY", "GOOGLE_GEMINI_BASE_URL", "GOOGLE_GENAI_USE_VERTEXAI"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    return tmp_path


def write(path: Path, text: str | dict[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text if isinstance(text, str) else json.dumps(text))


def isolated(name: str, **options: Any) -> Command:
    return plugins.adapter(PluginRef(name=name, options=options)).command(ASK)


def settings_of(name: str) -> dict[str, Any]:
    return plugins.adapter(PluginRef(name=name)).provider_settings()


CODEX = f"""
model = "big"
model_provider = "mine"
profile = "work"
approval_policy = "never"
notify = ["say"]
[profiles.work]
model = "small"
[model_providers.mine]
name = "Mine"
base_url = "http://127.0.0.1:9/v1"
env_key = "MINE_KEY"
env_http_headers = {{ "X-Org" = "MINE_ORG" }}
http_headers = {{ Authorization = "{KEY}" }}
query_params = {{ api-version = "1" }}
[model_providers.other]
base_url = "http://127.0.0.1:8/v1"
[mcp_servers.tool]
command = "tool"
"""


def test_codex(home: Path) -> None:
    write(home / ".codex/config.toml", CODEX)
    command = isolated("codex")
    text = command.files["/h/.codex/config.toml"]
    config = tomllib.loads(text)
    assert KEY not in text
    assert (config["model"], config["model_provider"]) == ("small", "mine")
    assert config["model_providers"] == {
        "mine": {
            "name": "Mine",
            "base_url": "http://127.0.0.1:9/v1",
            "env_key": "MINE_KEY",
            "env_http_headers": {"X-Org": "MINE_ORG"},
            "query_params": {"api-version": "1"},
        }
    }
    assert config.keys().isdisjoint({"approval_policy", "notify", "mcp_servers", "profiles"})
    assert config["analytics"] == {"enabled": False}, "our own settings are still there"
    assert {"MINE_KEY", "MINE_ORG"} <= set(command.pass_env)
    assert command.endpoints == ("http://127.0.0.1:9/v1",)
    token = CODEX.replace('env_key = "MINE_KEY"', f'experimental_bearer_token = "{KEY}"')
    write(home / ".codex/config.toml", token)
    command = isolated("codex")
    assert KEY not in command.files["/h/.codex/config.toml"]
    assert KEY in command.env.values()
    assert KEY not in json.dumps(settings_of("codex"))
    write(home / ".codex/config.toml", "not = [toml")
    assert codex.users_provider().settings == {}


def test_claude(home: Path) -> None:
    helper = home / "key.sh"
    write(helper, "#!/bin/sh\n")
    env = {"ANTHROPIC_BASE_URL": "http://127.0.0.1:9", "ANTHROPIC_AUTH_TOKEN": KEY, "FOO": "bar"}
    given = {"env": env, "apiKeyHelper": str(helper), "model": "opus", "hooks": {"Stop": []}}
    write(home / ".claude/settings.json", given | {"permissions": {"deny": ["Bash"]}})
    command = isolated("claude")
    words = command.argv
    assert words[words.index("--model") + 1] == "opus"
    assert json.loads(words[words.index("--settings") + 1]) == {"apiKeyHelper": str(helper)}
    assert command.env["ANTHROPIC_BASE_URL"] == "http://127.0.0.1:9"
    assert command.env["ANTHROPIC_AUTH_TOKEN"] == KEY
    assert "FOO" not in command.env
    assert str(helper) in command.visible
    assert command.endpoints == ("http://127.0.0.1:9",)
    assert "CLAUDE_CONFIG_DIR" in command.home_env
    assert isolated("claude", model="mine").argv[words.index("--model") + 1] == "mine"
    assert KEY not in json.dumps(settings_of("claude"))
    in_place = plugins.adapter(PluginRef(name="claude")).command(Ask(text="hi", cwd="/w"))
    assert "--settings" not in in_place.argv
    write(home / ".claude/settings.json", "{broken")
    assert claude.users_provider().env == {}


def test_gemini(home: Path) -> None:
    def chosen() -> str:
        files = isolated("gemini").files
        found = json.loads(files["/h/.gemini/settings.json"])["security"]["auth"]["selectedType"]
        return str(found)

    assert chosen() == "gemini-api-key"
    write(home / ".gemini/settings.json", {"security": {"auth": {"selectedType": "vertex-ai"}}})
    assert chosen() == "vertex-ai"
    auth = {"selectedType": "oauth-personal"}
    write(home / ".gemini/settings.json", {"security": {"auth": auth}, "mcpServers": {"x": {}}})
    assert chosen() == "gemini-api-key", "without a copy of the login there is only a key"
    assert settings_of("gemini") == {"selectedType": "oauth-personal"}
    write(
        home / ".gemini/.env", f'export GEMINI_API_KEY="{KEY}"\nGOOGLE_GEMINI_BASE_URL=http://x\n'
    )
    command = isolated("gemini")
    assert command.env["GEMINI_API_KEY"] == KEY
    assert settings_of("gemini")["GOOGLE_GEMINI_BASE_URL"] == "http://x"
    write(home / ".gemini/settings.json", "{broken")
    assert chosen() == "gemini-api-key"


def provider(number: int, key: str) -> dict[str, Any]:
    options = {"baseURL": f"http://127.0.0.1:{number}/v1", "apiKey": key, "headers": {"X": KEY}}
    return {"npm": "@ai-sdk/openai-compatible", "options": options, "models": {"m": {}}}


def test_opencode(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one = {
        "model": "one/m",
        "mcp": {"x": {}},
        "plugin": ["y"],
        "provider": {"one": provider(1, KEY)},
    }
    write(home / ".config/opencode/opencode.jsonc", "// mine\n" + json.dumps(one))
    command = isolated("opencode")
    text = command.files["/h/.config/opencode/opencode.json"]
    config = json.loads(text)
    assert KEY not in text
    assert config["model"] == "one/m"
    assert config.keys().isdisjoint({"mcp", "plugin"})
    options = config["provider"]["one"]["options"]
    assert options == {
        "baseURL": "http://127.0.0.1:1/v1",
        "apiKey": "{env:ASSAY_ONE_API_KEY}",
    }
    assert command.env["ASSAY_ONE_API_KEY"] == KEY
    assert command.endpoints == ("http://127.0.0.1:1/v1",)
    # The file of a variable, and the text of one, stand above it.
    write(home / "more.json", {"provider": {"two": provider(2, "{env:TWO}")}})
    monkeypatch.setenv("OPENCODE_CONFIG", str(home / "more.json"))
    monkeypatch.setenv("OPENCODE_CONFIG_CONTENT", json.dumps({"model": "two/m"}))
    command = isolated("opencode")
    config = json.loads(command.files["/h/.config/opencode/opencode.json"])
    assert config["model"] == "two/m"
    assert list(config["provider"]) == ["two"], "only the provider that is asked"
    assert "TWO" in command.pass_env
    assert {"OPENCODE_CONFIG", "OPENCODE_CONFIG_CONTENT"} <= set(command.home_env)
    given = isolated("opencode", model="one/m")
    config = json.loads(given.files["/h/.config/opencode/opencode.json"])
    assert list(config["provider"]) == ["one"]
    write(home / "key.txt", f"{KEY}\n")
    from_file = {"provider": {"two": provider(2, f"{{file:{home}/key.txt}}")}}
    write(home / "more.json", from_file)
    assert isolated("opencode").env["ASSAY_TWO_API_KEY"] == KEY
    assert KEY not in json.dumps(opencode.users_provider(None).settings)
