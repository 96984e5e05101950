"""The plain benchmark: the prompts a user gave and an empty world."""

from collections.abc import Generator, Iterable, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec

from assay.plugin import Machine
from assay.records.prompt import Prompt
from assay.records.recording import TurnEnd
from assay.records.spec import PluginRef, TrialSpec


class EmptyWorld(msgspec.Struct, frozen=True):
    """Nothing around the agent but its folder."""

    env: dict[str, str] = {}
    mcp_servers: dict[str, dict[str, Any]] = {}

    def evidence(self, last: TurnEnd | None) -> dict[str, Any]:
        """Nothing was seen."""
        return {}


class PromptFile(msgspec.Struct, frozen=True):
    """The prompts are read by the prompts stage; this brings only their world."""

    def prompts(self) -> Iterable[tuple[Prompt, dict[str, Any]]]:
        """None of its own."""
        return ()

    @contextmanager
    def world(self, spec: TrialSpec, workspace: Path, host: Machine) -> Generator[EmptyWorld]:
        """Open nothing, close nothing."""
        yield EmptyWorld()

    def graders(self) -> Sequence[PluginRef]:
        """None of its own."""
        return ()
