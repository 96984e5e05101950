"""run-meta.json: the seed's fields, and behind them what Assay knows besides."""

import hashlib
from typing import Any

import msgspec

RECORDED, REPLAYED, UNVERIFIED = "recorded", "replayed", "unverified"
"""How far a run can be believed: our own game process wrote its logs; they were replayed in the
engine and agreed; or nobody could check it."""


class HarnessConfig(msgspec.Struct, kw_only=True):
    """What the agent was set up with."""

    model: str = "unknown"
    plugins: list[str] = []
    skills: list[str] = []
    mcp_servers: list[str] = []


class RunMeta(msgspec.Struct, kw_only=True):
    """One run of one agent over some games."""

    run_id: str
    harness: str
    timestamp: str
    duration_seconds: float = 0
    game_set: str = "all"
    game_ids: list[str] = []
    seed: int = 0
    max_steps: int | None = 0
    max_resets: int | None = 0
    config_hash: str = ""
    harness_config: HarnessConfig = msgspec.field(default_factory=HarnessConfig)
    status: str = "running"
    arc_agi_version: str = "unknown"
    plugin_version: str = "1.0.0"
    games_played: int = 0
    games_total: int = 0
    trials: int = 1
    """Trials of each game."""
    verified: str | None = None
    verification: str | None = None
    """Why it is not verified, or what was found besides."""
    game_sources: dict[str, str] = {}
    """sha256 of each game's source: the version that was played."""
    cost_usd: float | None = None
    not_measured: dict[str, str] = {}
    """Trials that say nothing about the agent, and why."""
    content_sha256: str | None = None
    """Of an imported result, so that the same content is not taken twice."""
    notes: str | None = None
    agent: dict[str, Any] | None = None
    """Which plugin with which options, for --resume."""
    benchmark: dict[str, Any] | None = None
    options: dict[str, Any] | None = None


def config_hash(config: HarnessConfig) -> str:
    """Give the seed's fingerprint of an agent's set-up: sha256 of its JSON with sorted keys."""
    encoded = msgspec.json.encode(msgspec.to_builtins(config), order="sorted")
    return hashlib.sha256(encoded).hexdigest()
