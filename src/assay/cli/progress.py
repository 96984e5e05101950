"""Show how far a run is: a live view on a terminal, timed lines or JSON events elsewhere."""

import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any, Protocol, Self

import click
import msgspec

from assay.cli.output import echo_folded, note_unmasked
from assay.cli.tally import Tally, TrialInProgress, clock_text
from assay.pipeline.doubts import Doubts, first_failure, same_text
from assay.pipeline.extract import raw_failure
from assay.pipeline.run import BatchProgress
from assay.records.capture import AnyStep, Failure, ToolCall, cause_words
from assay.records.live import LiveFile
from assay.records.recording import RawOutput
from assay.records.spec import TrialSpec
from assay.records.text import counted_noun, visible_line
from assay.records.trial import Trial, graders_usd

_LINE_EVERY_S = 10.0
_SHOWN_CHARS = 300


class Scoreboard(Protocol):
    """What a benchmark counts besides passes, such as levels of a game."""

    def add(self, row: Trial) -> None:
        """Take one finished trial."""
        ...

    def text(self) -> str:
        """Say how it stands."""
        ...


class Progress(BatchProgress):
    """Counts finished trials, failures by cause and cost; shows them on stderr."""

    def __init__(
        self,
        total: int = 0,
        *,
        plain: bool,
        quiet: bool,
        as_json: bool = False,
        agent: str = "",
        scoreboard: Scoreboard | None = None,
    ) -> None:
        self._plain = plain and not quiet and not as_json
        self._json = as_json
        self._timed = not (quiet or plain or as_json)
        self._live: Any = None
        self._next_line_s = time.monotonic() + _LINE_EVERY_S
        self._reasons: dict[str, str] = {}
        self._alike: Failure | None = None
        """How every trial so far has failed."""
        self._scoreboard = scoreboard
        self._live_file: LiveFile | None = None
        self.tally = Tally(total, agent=visible_line(agent))
        self.notes: list[str] = []
        """What to say at the end."""
        self.doubts = Doubts()

    def begin(self, missing: list[TrialSpec], n_planned: int) -> None:
        """Count from here: these trials, of n_planned, are to run."""
        tally, now_s = self.tally, time.monotonic()
        tally.total, tally.began_s, self._next_line_s = len(missing), now_s, now_s + _LINE_EVERY_S
        tally.missing = Counter(spec.prompt.id for spec in missing)
        tally.n_prompts, tally.n_before = len(tally.missing), n_planned - len(missing)

    def follow(self, output: Path | None) -> None:
        """Let a viewer see how far the run is; not beside a pipe or a device."""
        if output is not None and output.is_file():
            self._live_file = LiveFile(output)

    def __enter__(self) -> Self:
        if self._timed or self._plain:
            note_unmasked()
        if self._timed and sys.stderr.isatty():
            self._timed = False
            from assay.cli.live_view import LiveView  # late: only a terminal needs rich

            self._live = LiveView(self.tally)
            self._live.start()
        self._write_event("begun", total=self.tally.total)
        if self._live_file is not None:
            self._live_file.follow(self.tally.live_state)
        return self

    def __exit__(self, kind: type[BaseException] | None, *error: object) -> None:
        if self._live is not None:
            self._live.stop()
        if self._live_file is not None:
            self._live_file.close()
        if self._json:
            for line in self.doubts.lines():
                self._write_event("warning", text=line)
            self._write_event("interrupted" if kind else "ended", **self._numbers())

    @property
    def watches(self) -> bool:  # type: ignore[override]
        """Whether single steps are shown at all."""
        return self._live is not None or self._json or self._live_file is not None

    def on_step(self, spec: TrialSpec, step: AnyStep | None) -> None:
        """Called from a worker's thread when a trial starts (no step) and at each of its steps."""
        name, trial = spec.prompt.id, spec.number
        if step is None:
            self.tally.running[_place(spec)] = TrialInProgress(name, trial, time.monotonic())
            self._write_event("started", id=name, trial=trial)
            return
        label = step.name if isinstance(step, ToolCall) else type(step).__name__.lower()
        running = self.tally.running.get(_place(spec))
        if running is not None:
            running.step, running.n_steps = label, running.n_steps + 1
        self._write_event("step", id=name, trial=trial, type=step.__struct_config__.tag, name=label)

    def waiting(self, seconds: float, why: str) -> None:
        """Called from a worker's thread when trials wait before they start."""
        text = f"waiting {seconds:.0f} s {why}"
        self.tally.waiting, self.tally.waits_until_s = text, time.monotonic() + seconds
        self._write_event("waiting", text=text, ms=round(seconds * 1000))
        if self._plain or self._timed:
            echo_folded(text, err=True)

    def note(self, text: str) -> None:
        """Keep a sentence for the end of the run."""
        self.notes.append(text)

    def note_broken(self, result: Trial) -> None:
        """Count a trial whose graders failed; say why at once, the first time."""
        if not result.grader_failures:
            return
        self.tally.n_grader_failures += 1
        if self.tally.first_grader_failure:
            return
        failed = visible_line(f"{result.id}: {first_failure(result.grader_failures)}")
        self.tally.first_grader_failure = failed
        text = f"A grader failed on {failed}"
        self._write_event("warning", text=text)
        if self._live is not None:
            self._live.say(text)
        elif self._plain or self._timed:
            echo_folded(text, err=True)

    def say(self, text: str) -> None:
        """Print a line if --progress was given."""
        if self._plain:
            echo_folded(text, err=True)

    def finished(self, spec: TrialSpec, result: Trial | RawOutput) -> None:
        # `or None`: what a row does not have is UNSET.
        failure = raw_failure(result) if isinstance(result, RawOutput) else result.failure or None
        cost, passed = None, None
        if isinstance(result, Trial):
            usage = result.usage or None
            cost = (usage.spent_usd if usage else 0.0) + graders_usd(result.grades)
            cost = cost + result.user_usd or None
            passed = result.verdict
            self.note_broken(result)
            if result.grades or result.grader_failures:
                self.doubts.add(result.grades or {}, result.grader_failures or {})
            self.doubts.add_warnings(result.warnings or ())
            self.tally.note_problems(spec, result)
            if self._scoreboard is not None:
                self._scoreboard.add(result)
                self.tally.score_text = self._scoreboard.text()
            if usage is not None:
                self.tally.tokens += (usage.input_tokens or 0) + (usage.output_tokens or 0)
        self.tally.finish(failure.cause if failure else None, cost, passed, result.id)
        self.tally.n_unverified += failure is not None and failure.is_unverified
        if passed is not None and any(one.is_unverified for one in result.retried or ()):
            n_excused, n_passed = self.tally.excused
            self.tally.excused = n_excused + 1, n_passed + passed
        self._compare(None if passed else failure)
        self.tally.running.pop(_place(spec), None)
        self._show(spec, failure, result.timing.total, passed)

    def summary(self, target: str) -> str:
        """How the run went, in one line."""
        tally = self.tally
        parts = [f"{tally.n_done} of {tally.total} trials in {tally.seconds:.1f} s"]
        parts += [tally.score_text] if tally.score_text else []
        for cause, n in sorted(tally.causes.items()):
            why = self._reasons.get(cause)
            words = f"{cause_words(cause)} in {n}"
            parts.append(f"{words}, not measured ({why})" if why else words)
        if tally.n_grader_failures:
            parts.append(counted_noun(tally.n_grader_failures, "grader failure"))
        if tally.cost_usd:
            parts.append(f"${tally.cost_usd:.4f}")
        return ", ".join(parts) + (f" -> {target}" if target else "")

    def nothing_measured(self) -> str:
        """Say so when no finished trial measures the agent; otherwise return an empty text."""
        n_done, causes = self.tally.n_done, self.tally.causes
        if not n_done or self.tally.n_unmeasured < n_done:
            return ""
        most = max(causes, key=lambda cause: causes[cause])
        why = f": {self._reasons[most]}" if self._reasons.get(most) else ""
        return (
            f"Nothing was measured: none of {counted_noun(n_done, 'trial')} says anything about "
            f"the agent. The most frequent cause: {cause_words(most)}{why}"
        )

    def all_failed(self) -> str:
        """Say why when every finished trial failed alike, by the agent's own doing."""
        failure, n_done = self._alike, self.tally.n_done
        if failure is None or not failure.cause.measures_agent:
            return ""
        which = "The trial failed" if n_done == 1 else f"All {n_done} trials failed alike"
        return visible_line(f"{which}, {failure.cause.words}: {failure.message[:_SHOWN_CHARS]}")

    def _compare(self, failure: Failure | None) -> None:
        """Take the failure of the trial that was counted last."""
        known = self._alike
        if self.tally.n_done == 1:
            self._alike = failure
        elif known:
            same = failure is not None and failure.cause is known.cause
            if not same or not same_text(known.message, failure.message if failure else None):
                self._alike = None

    def _show(
        self, spec: TrialSpec, failure: Failure | None, total_ms: float, passed: bool | None
    ) -> None:
        if failure is not None and not failure.cause.measures_agent:
            # The first reason of what does not measure the agent: a person must act on it.
            self._reasons.setdefault(failure.cause, (failure.message.splitlines() or [""])[0][:200])
        if self._json:
            cause = str(failure.cause) if failure else None
            event = {"id": spec.prompt.id, "ms": total_ms, "pass": passed, "cause": cause}
            self._write_event("finished", **event, **self._numbers())
        if self._plain:
            sign = "!" if failure else "✗" if passed is False else "✓"
            why = f" - {failure.cause.words}: {failure.message}" if failure else ""
            why = why or (" - did not pass" if passed is False else "")
            name = visible_line(spec.prompt.id)
            name += f" #{spec.number}" if self.tally.has_repeats else ""
            self.say(f"{sign} {name} ({total_ms:.0f} ms){why}")
            scored = f"  {self.tally.score_text}" if self.tally.score_text else ""
            self.say(f"Progress: {self.tally.done_text()}{scored}{self.tally.short_info()}")
        elif self._timed and time.monotonic() >= self._next_line_s:
            self._next_line_s = time.monotonic() + _LINE_EVERY_S
            echo_folded(f"[{clock_text(self.tally.seconds)}] {self.tally.line()}", err=True)

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

    def _write_event(self, event: str, **what: Any) -> None:
        if self._json:
            line = {"event": event, "t": round(self.tally.seconds, 3), **what}
            click.echo(msgspec.json.encode(line).decode(), err=True)


def _place(spec: TrialSpec) -> str:
    """Tell apart what runs at once: the arms of an experiment have trials of the same name."""
    return f"{spec.surroundings.workspace_dir}/{spec.folder}"
