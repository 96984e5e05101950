"""The plain benchmark: the prompts of a file and an empty world."""

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import msgspec

from assay.errors import InputError
from assay.plugin import Machine, PromptRow
from assay.records.recording import TurnEnd
from assay.records.rows import decode_row, read_lines
from assay.records.spec import HINT, PluginRef, Prompt, TrialSpec, check_prompt


class EmptyWorld(msgspec.Struct, frozen=True):
    """Nothing around the agent but its folder."""

    env: dict[str, str] = {}
    mcp_servers: dict[str, dict[str, Any]] = {}

    def evidence(self, last: TurnEnd | None) -> dict[str, Any]:
        return {}


class PromptFile(msgspec.Struct, frozen=True):
    """Fields are the options a user may set."""

    path: str | None = None
    """None reads stdin."""

    def prompts(self) -> list[PromptRow]:
        """Read the whole file before anything runs; stdin must hold at least one prompt."""
        path = Path(self.path) if self.path is not None else None
        rows: list[PromptRow] = []
        places: dict[str, str] = {}
        for place, line in read_lines(path):
            prompt, extra = decode_row(place, line, Prompt, hint=HINT)
            check_prompt(prompt, place, places)
            rows.append((prompt, extra))
        if not rows and path is None:
            msg = "stdin: no prompts"
            raise InputError(msg, hint=HINT)
        return rows

    def world(
        self, spec: TrialSpec, workspace: Path, host: Machine
    ) -> AbstractContextManager[EmptyWorld]:
        return nullcontext(EmptyWorld())

    def graders(self) -> Sequence[PluginRef]:
        return ()
