"""Write the part of OpenCode's configuration that a trial needs."""

from typing import Any

import msgspec

from assay.adapters.vendor import McpServer, spell_variables

_KEYS = {
    "google": ("GOOGLE_GENERATIVE_AI_API_KEY", "GEMINI_API_KEY"),
    "amazon-bedrock": ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_REGION"),
}


def config_text(servers: dict[str, McpServer]) -> str:
    """Allow every tool and name the MCP servers."""
    mcp = {name: _server(server) for name, server in servers.items()}
    config: dict[str, Any] = {"$schema": "https://opencode.ai/config.json", "permission": "allow"}
    return msgspec.json.encode(config | ({"mcp": mcp} if mcp else {})).decode()


def _server(server: McpServer) -> dict[str, Any]:
    """Translate the common form; ${NAME} is {env:NAME} here."""

    def spelled(values: dict[str, str]) -> dict[str, str]:
        return {key: spell_variables(value, "{env:NAME}") for key, value in values.items()}

    if server.is_remote:
        said = {"type": "remote", "url": spell_variables(str(server.url), "{env:NAME}")}
        return {**said, "enabled": True, "headers": spelled(server.headers)}
    words = [str(server.command), *server.args]
    command = [spell_variables(word, "{env:NAME}") for word in words]
    return {
        "type": "local",
        "command": command,
        "enabled": True,
        "environment": spelled(server.env),
    }


def key_names(model: str | None) -> tuple[str, ...]:
    """Only the key of the model's provider goes into an isolated home."""
    provider, slash, _ = (model or "").partition("/")
    if not slash:
        return ()
    return _KEYS.get(provider, (f"{provider.upper().replace('-', '_')}_API_KEY",))
