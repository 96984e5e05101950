"""The agents we know by name: how to get them, and what their adapters can read."""

import msgspec


class KnownAgent(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One agent, for people who ask what there is."""

    name: str
    program: str
    """What is looked for on the PATH."""
    install: str
    login: str
    keys: tuple[str, ...]
    """Variables that hold its key; name one with --env when isolated."""
    tested: tuple[str, ...]
    """Versions our tests run."""
    thoughts: str
    tool_output: str
    tokens: str
    cost: str


KNOWN = (
    KnownAgent(
        name="claude",
        program="claude",
        install="npm install -g @anthropic-ai/claude-code",
        login="run `claude` once and log in, or set ANTHROPIC_API_KEY",
        keys=("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN"),
        tested=("2.1.325",),
        thoughts="stream",
        tool_output="stream",
        tokens="stream, per turn",
        cost="reported",
    ),
    KnownAgent(
        name="codex",
        program="codex",
        install="npm install -g @openai/codex",
        login="run `codex login`, or set CODEX_API_KEY",
        keys=("CODEX_API_KEY", "OPENAI_API_KEY"),
        tested=("0.166.0",),
        thoughts="stream (summaries)",
        tool_output="stream; call ids and times from the session file",
        tokens="session file, per response",
        cost="estimated",
    ),
    KnownAgent(
        name="gemini",
        program="gemini",
        install="npm install -g @google/gemini-cli",
        login="run `gemini` once and log in, or set GEMINI_API_KEY",
        keys=("GEMINI_API_KEY",),
        tested=("0.61.0",),
        thoughts="session file",
        tool_output="session file",
        tokens="stream and session file",
        cost="estimated",
    ),
    KnownAgent(
        name="opencode",
        program="opencode",
        install="npm install -g opencode-ai",
        login="run `opencode auth login`, or set the provider's key",
        keys=("ANTHROPIC_API_KEY", "OPENAI_API_KEY", "GEMINI_API_KEY"),
        tested=("1.18.33",),
        thoughts="stream",
        tool_output="stream; sub-agents from its database",
        tokens="stream, per step",
        cost="reported",
    ),
)


def known_agent(name: str) -> KnownAgent | None:
    """Find an agent by its name."""
    return next((agent for agent in KNOWN if agent.name == name), None)
