"""Tell a person how far a run is: a bar on a terminal, plain lines elsewhere."""

import sys
import time
from types import TracebackType
from typing import Any

import click

from assay.records.capture import Capture
from assay.records.failure import Failure


class Progress:
    """Counts finished trials, failures by cause and cost; shows them on stderr."""

    def __init__(self, total: int, *, plain: bool, quiet: bool) -> None:
        self._total = total
        self._plain = plain and not quiet
        self._quiet = quiet
        self._bar: Any = None
        self._task: Any = None
        self._started_s = time.monotonic()
        self.n_done = 0
        self.cost_usd = 0.0
        self.causes: dict[str, int] = {}
        self.n_grader_failures = 0

    def __enter__(self) -> "Progress":
        if not self._quiet and not self._plain and sys.stderr.isatty():
            self._start_bar()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._bar is not None:
            self._bar.stop()

    def say(self, text: str) -> None:
        """Write a line for people who asked for progress."""
        if self._plain:
            click.echo(text, err=True)

    def finished(self, prompt_id: str, failure: Failure | None, total_ms: float, cost: Any) -> None:
        """Count one trial."""
        self.n_done += 1
        self.cost_usd += cost or 0.0
        if failure:
            self.causes[failure.cause] = self.causes.get(failure.cause, 0) + 1
        if self._bar is not None:
            self._bar.update(self._task, advance=1, info=self._info())
        sign = "!" if failure else "✓"
        why = f" - {failure.cause}: {failure.message}" if failure else ""
        self.say(f"{sign} {prompt_id} ({total_ms:.0f} ms){why}")
        self.say(f"Progress: {self.n_done}/{self._total} prompts completed{self._info()}")

    def captured(self, capture: Capture) -> None:
        """Count one captured trial."""
        self.n_grader_failures += bool(capture.grader_failures)
        cost = capture.usage.cost_usd if capture.usage else None
        self.finished(capture.id, capture.failure or None, capture.timing.total, cost)

    def summary(self, target: str) -> str:
        """Say in one line how the run went."""
        seconds = time.monotonic() - self._started_s
        parts = [f"{self.n_done} of {self._total} prompts in {seconds:.1f} s"]
        parts += [f"{n} {cause}" for cause, n in sorted(self.causes.items())]
        if self.n_grader_failures:
            parts.append(f"{self.n_grader_failures} grader failures")
        if self.cost_usd:
            parts.append(f"${self.cost_usd:.4f}")
        return ", ".join(parts) + (f" -> {target}" if target else "")

    def _info(self) -> str:
        failed = sum(self.causes.values())
        parts = [f"{failed} failed" if failed else "", f"${self.cost_usd:.2f}"]
        return "  ".join(["", *filter(None, parts)]) if self.cost_usd or failed else ""

    def _start_bar(self) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
        from rich.progress import Progress as Bar

        self._bar = Bar(
            TextColumn("[bold]trials"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeRemainingColumn(compact=True),
            TextColumn("{task.fields[info]}"),
            console=Console(stderr=True),
            transient=True,
        )
        self._task = self._bar.add_task("trials", total=self._total, info="")
        self._bar.start()
