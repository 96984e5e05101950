"""A benchmark as somebody else would write it: it knows assay.plugin and nothing else of Assay.

Each prompt asks for some lines in a ledger. The world hands the agent a ledger to write to and
reads it afterwards; the grader believes the ledger, not the agent.
"""

import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from assay.plugin import (
    Grade,
    Host,
    Machine,
    PluginError,
    PluginRef,
    Prompt,
    PromptRow,
    Trial,
    TrialSpec,
    TurnEnd,
)


@dataclass
class LedgerWorld:
    path: Path
    mcp_servers: dict[str, dict[str, Any]] = field(default_factory=dict)

    @property
    def env(self) -> dict[str, str]:
        return {"LEDGER": str(self.path)}

    def evidence(self, last: TurnEnd | None) -> dict[str, Any]:
        return {"ledger": self.path.read_text().splitlines()}


@dataclass(frozen=True)
class Ledger:
    count: int = 3
    """How many prompts there are: they ask for one line, two lines and so on."""
    word: str = "apple"
    fault: str = ""
    """Something to do wrong: raise, or repeat the first id."""

    needs_workspace = False  # its worlds leave the agent's folder alone
    grades_failed_trials = True

    def prompts(self) -> Iterator[PromptRow]:
        if self.fault == "raise":
            raise LookupError("the ledger is not open yet")
        for n in range(1, self.count + 1):
            number = 1 if self.fault == "repeat" else n
            metadata = {"lines": n, "size": "small" if n < 3 else "large"}
            prompt = Prompt(id=f"lines-{number}", input=f"{n} {self.word}", metadata=metadata)
            yield prompt, {"source": "ledger"}

    @contextmanager
    def world(self, spec: TrialSpec, workspace: Path, host: Machine) -> Iterator[LedgerWorld]:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, "ledger")
            path.touch()
            yield LedgerWorld(path)

    def graders(self) -> Sequence[PluginRef]:
        return [PluginRef(name="ledger-kept")]


class LedgerKept:
    name = "ledger-kept"
    version = "7"

    def grade(self, trial: Trial, host: Host) -> Grade:
        lines = trial.evidence.get("ledger")
        if lines is None:
            message = "this trial has no ledger"
            raise PluginError(message)
        share = len(lines) / trial.metadata["lines"]
        return Grade(pass_=share == 1, score=min(share, 1.0), reasoning=f"{len(lines)} lines")
