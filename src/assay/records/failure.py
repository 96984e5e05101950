"""Why a trial did not go well: data, not an exception."""

from enum import StrEnum

import msgspec


class Cause(StrEnum):
    """Who or what ended the trial; it decides whether the trial measures the agent."""

    AGENT_TIMEOUT = "agent_timeout"
    AGENT_CRASH = "agent_crash"
    AGENT_REFUSED = "agent_refused"
    AGENT_LIMIT = "agent_limit"
    PROVIDER = "provider"
    AUTH = "auth"
    SPAWN = "spawn"
    WORLD = "world"
    HARNESS = "harness"
    WORKER_LOST = "worker_lost"

    @property
    def measures_agent(self) -> bool:
        """Whether the trial counts against the agent; if not, it is no measurement at all."""
        return self.value.startswith("agent_")


class Failure(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One cause, in words for a person."""

    cause: Cause
    message: str
    answered: bool = False
    """The agent ended by itself with an answer (only its ending was unclean): still graded."""
