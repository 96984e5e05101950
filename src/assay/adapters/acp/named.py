"""Agents that speak the Agent Client Protocol, by name: the table is ACP_AGENTS."""

from collections.abc import Callable, Sequence
from typing import Any

from assay.adapters.acp import AcpAdapter, versioned
from assay.adapters.vendor import ACP_AGENTS, TURN_TIMEOUT_MS, KnownAgent


def _factory(agent: KnownAgent) -> Callable[..., AcpAdapter]:
    def make(
        argument: str = "",
        model: str | None = None,
        args: Sequence[str] = (),
        mcp_servers: Sequence[dict[str, Any]] = (),
        auth_method: str | None = None,
        version: int = 1,
    ) -> AcpAdapter:
        """Build the adapter; NAME:PROGRAM on the command line replaces the program."""
        argument, version = versioned(argument, version)
        adapter = AcpAdapter(
            command=(argument or agent.program, *agent.acp),
            name=agent.name,
            model=model,
            args=args,
            mcp_servers=mcp_servers,
            auth_method=auth_method,
            timeout_ms=TURN_TIMEOUT_MS,
            version=version,
        )
        adapter.pass_env = agent.keys
        return adapter

    return make


auggie, cline, copilot, goose, qwen = map(_factory, ACP_AGENTS)
