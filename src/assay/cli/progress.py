"""Tell a person how far a run is: a live view on a terminal, timed lines or JSON events elsewhere.

Counting costs a few additions per trial. What is drawn is drawn by a clock, some times a second,
so that a run of 500 trials a second pays no more than one of five.
"""

import sys
import time
from types import TracebackType
from typing import Any

import click
import msgspec

from assay.cli.tally import Running, Tally, clock_text
from assay.records.capture import Capture
from assay.records.failure import Failure
from assay.records.trajectory import AnyStep, ToolCall
from assay.records.trial import TrialSpec

_LINE_EVERY_S = 10.0


class Progress:
    """Counts finished trials, failures by cause and cost; shows them on stderr."""

    def __init__(self, total: int, *, plain: bool, quiet: bool, as_json: bool = False) -> None:
        self._plain = plain and not quiet and not as_json
        self._json = as_json
        self._timed = not (quiet or plain or as_json)
        self._live: Any = None
        self._next_line_s = time.monotonic() + _LINE_EVERY_S
        self._reasons: dict[str, str] = {}
        self.tally = Tally(total)

    def __enter__(self) -> "Progress":
        if self._timed and sys.stderr.isatty():
            from assay.cli.live_view import LiveView

            self._timed = False
            self._live = LiveView(self.tally)
            self._live.start()
        self._tell("begun", total=self.tally.total)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._live is not None:
            self._live.stop()
        if self._json:
            self._tell("interrupted" if kind else "ended", **self._numbers())

    @property
    def n_done(self) -> int:
        """How many trials have finished."""
        return self.tally.n_done

    @property
    def cost_usd(self) -> float:
        """What they cost, as far as is known."""
        return self.tally.cost_usd

    @property
    def causes(self) -> dict[str, int]:
        """Failures by cause."""
        return self.tally.causes

    @property
    def n_grader_failures(self) -> int:
        """Trials on which a grader broke."""
        return self.tally.n_grader_failures

    @property
    def watches(self) -> bool:
        """Whether anybody wants to know about single steps."""
        return self._live is not None or self._json

    def on_step(self, spec: TrialSpec, step: AnyStep | None) -> None:
        """Hear from a worker's thread that a trial began (no step) or went on."""
        name, trial = spec.prompt.id, spec.number
        if step is None:
            self.tally.running[spec.folder] = Running(name, trial, time.monotonic())
            self._tell("started", id=name, trial=trial)
            return
        said = step.name if isinstance(step, ToolCall) else type(step).__name__.lower()
        running = self.tally.running.get(spec.folder)
        if running is not None:
            running.step, running.n_steps = said, running.n_steps + 1
        self._tell("step", id=name, trial=trial, type=step.__struct_config__.tag, name=said)

    def say(self, text: str) -> None:
        """Write a line for people who asked for progress."""
        if self._plain:
            click.echo(text, err=True)

    def finished(self, prompt_id: str, failure: Failure | None, total_ms: float, cost: Any) -> None:
        """Count one trial that nobody graded."""
        self.tally.finish(failure.cause if failure else None, cost)
        self._show(prompt_id, failure, total_ms, None)

    def captured(self, capture: Capture, spec: TrialSpec | None = None) -> None:
        """Count one captured trial."""
        usage, failure = capture.usage or None, capture.failure or None
        passed = capture.score.pass_ if capture.score else None
        self.tally.n_grader_failures += bool(capture.grader_failures)
        if usage is not None:
            self.tally.tokens += (usage.input_tokens or 0) + (usage.output_tokens or 0)
        cost = (usage.cost_usd or None) if usage else None
        self.tally.finish(failure.cause if failure else None, cost, passed)
        if spec is not None:
            self.tally.running.pop(spec.folder, None)
        self._show(capture.id, failure, capture.timing.total, passed)

    def summary(self, target: str) -> str:
        """Say in one line how the run went."""
        tally = self.tally
        parts = [f"{tally.n_done} of {tally.total} trials in {tally.seconds:.1f} s"]
        for cause, n in sorted(tally.causes.items()):
            why = self._reasons.get(cause)
            parts.append(f"{n} {cause}, not measured ({why})" if why else f"{n} {cause}")
        if tally.n_grader_failures:
            parts.append(f"{tally.n_grader_failures} grader failures")
        if tally.cost_usd:
            parts.append(f"${tally.cost_usd:.4f}")
        return ", ".join(parts) + (f" -> {target}" if target else "")

    def _remember(self, failure: Failure | None) -> None:
        """Keep the first reason of what does not measure the agent: a person must act on it."""
        if failure is not None and not failure.cause.measures_agent:
            self._reasons.setdefault(failure.cause, (failure.message.splitlines() or [""])[0][:200])

    def _show(
        self, prompt_id: str, failure: Failure | None, total_ms: float, passed: bool | None
    ) -> None:
        self._remember(failure)
        if self._json:
            cause = str(failure.cause) if failure else None
            told = {"id": prompt_id, "ms": total_ms, "pass": passed, "cause": cause}
            self._tell("finished", **told, **self._numbers())
        if self._plain:
            sign = "!" if failure else "✓"
            why = f" - {failure.cause}: {failure.message}" if failure else ""
            self.say(f"{sign} {prompt_id} ({total_ms:.0f} ms){why}")
            done = f"{self.tally.n_done}/{self.tally.total}"
            self.say(f"Progress: {done} prompts completed{self.tally.short_info()}")
        elif self._timed and time.monotonic() >= self._next_line_s:
            self._next_line_s = time.monotonic() + _LINE_EVERY_S
            click.echo(f"[{clock_text(self.tally.seconds)}] {self.tally.line()}", err=True)

    def _numbers(self) -> dict[str, Any]:
        tally = self.tally
        return {
            "done": tally.n_done,
            "total": tally.total,
            "passed": tally.n_passed,
            "measured": tally.n_measured,
            "tokens": tally.tokens,
            "costUsd": round(tally.cost_usd, 6),
            "causes": {str(cause): n for cause, n in tally.causes.items()},
        }

    def _tell(self, event: str, **what: Any) -> None:
        if self._json:
            line = {"event": event, "t": round(self.tally.seconds, 3), **what}
            click.echo(msgspec.json.encode(line), err=True)
