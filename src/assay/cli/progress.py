"""Show how far a run is: a live view on a terminal, timed lines or JSON events elsewhere."""

import sys
import time
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Protocol

import click
import msgspec
from msgspec import field

from assay.cli.doubts import Doubts, same_text
from assay.cli.output import note_unmasked
from assay.errors import AssayError
from assay.pipeline.extract import raw_failure
from assay.records.capture import AnyStep, Capture, Cause, Failure, Identity, ToolCall, cause_words
from assay.records.live import MOST_RUNNING, LiveFile, LiveState, RunningTrial, short_text
from assay.records.recording import RawOutput
from assay.records.setup import problems_of
from assay.records.spec import TrialSpec
from assay.records.text import counted_noun, visible_line

_LINE_EVERY_S = 10.0
_SHOWN_CHARS = 300


class Scoreboard(Protocol):
    """What a benchmark counts besides passes, such as levels of a game."""

    def add(self, row: Capture) -> None:
        """Take one finished trial."""
        ...

    def text(self) -> str:
        """Say how it stands."""
        ...


class Progress:
    """Counts finished trials, failures by cause and cost; shows them on stderr."""

    def __init__(
        self,
        total: int,
        *,
        plain: bool,
        quiet: bool,
        as_json: bool = False,
        agent: str = "",
        scoreboard: Scoreboard | None = None,
        live: LiveFile | None = None,
    ) -> None:
        """live: the file in which a viewer sees how far the run is."""
        self._plain = plain and not quiet and not as_json
        self._json = as_json
        self._timed = not (quiet or plain or as_json)
        self._live: Any = None
        self._next_line_s = time.monotonic() + _LINE_EVERY_S
        self._reasons: dict[str, str] = {}
        self._alike: Failure | None = None
        """How every trial so far has failed."""
        self._scoreboard = scoreboard
        self._live_file = live
        self.tally = Tally(total, agent=visible_line(agent))
        self.notes: list[str] = []
        """What to say at the end."""
        self.doubts = Doubts()

    def __enter__(self) -> "Progress":
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
    def watches(self) -> bool:
        """Whether single steps are shown at all."""
        return self._live is not None or self._json or self._live_file is not None

    def on_step(self, spec: TrialSpec, step: AnyStep | None) -> None:
        """Called from a worker's thread when a trial starts (no step) and at each of its steps."""
        name, trial = spec.prompt.id, spec.number
        if step is None:
            self.tally.running[_place(spec)] = Running(name, trial, time.monotonic())
            self._write_event("started", id=name, trial=trial)
            return
        label = step.name if isinstance(step, ToolCall) else type(step).__name__.lower()
        running = self.tally.running.get(_place(spec))
        if running is not None:
            running.step, running.n_steps = label, running.n_steps + 1
        self._write_event("step", id=name, trial=trial, type=step.__struct_config__.tag, name=label)

    def expect(self, prompt_ids: Iterable[str], each: int | None = None) -> None:
        """Take note of the prompt of each trial to come; each: there are several of a prompt."""
        self.tally.missing = Counter(prompt_ids)
        self.tally.n_prompts = len(self.tally.missing)
        self.tally.has_repeats = each is not None

    def waiting(self, seconds: float, why: str) -> None:
        """Called from a worker's thread when trials wait before they start."""
        text = f"waiting {seconds:.0f} s {why}"
        self.tally.waiting, self.tally.waits_until_s = text, time.monotonic() + seconds
        self._write_event("waiting", text=text, ms=round(seconds * 1000))
        if self._plain or self._timed:
            click.echo(text, err=True)

    def note(self, text: str) -> None:
        """Keep a sentence for the end of the run."""
        self.notes.append(text)

    def say(self, text: str) -> None:
        """Print a line if --progress was given."""
        if self._plain:
            click.echo(text, err=True)

    def finished(self, spec: TrialSpec, result: Capture | RawOutput) -> None:
        # `or None`: what a row does not have is UNSET.
        failure = raw_failure(result) if isinstance(result, RawOutput) else result.failure or None
        cost, passed = None, None
        if isinstance(result, Capture):
            usage = result.usage or None
            cost = (usage.spent_usd or None) if usage else None
            passed = result.score.pass_ if result.score else None
            self.tally.n_grader_failures += bool(result.grader_failures)
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
        elif known and not (failure and _is_alike(known, failure)):
            self._alike = None

    def _remember(self, failure: Failure | None) -> None:
        """Keep the first reason of what does not measure the agent: a person must act on it."""
        if failure is not None and not failure.cause.measures_agent:
            self._reasons.setdefault(failure.cause, (failure.message.splitlines() or [""])[0][:200])

    def _show(
        self, spec: TrialSpec, failure: Failure | None, total_ms: float, passed: bool | None
    ) -> None:
        self._remember(failure)
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

    def _write_event(self, event: str, **what: Any) -> None:
        if self._json:
            line = {"event": event, "t": round(self.tally.seconds, 3), **what}
            click.echo(msgspec.json.encode(line).decode(), err=True)


def _place(spec: TrialSpec) -> str:
    """Tell apart what runs at once: the arms of an experiment have trials of the same name."""
    return f"{spec.surroundings.workspace_dir}/{spec.folder}"


def _is_alike(one: Failure, other: Failure) -> bool:
    return one.cause is other.cause and same_text(one.message, other.message)


type Passes = dict[str, tuple[int, int]]
"""Of each prompt: how many trials passed, and how many were measured."""


class Running(msgspec.Struct):
    """A trial that has begun and not ended."""

    prompt: str
    trial: int
    began_s: float
    step: str = "starting"
    n_steps: int = 0


class Tally(msgspec.Struct):
    """Counts; every method is cheap enough for each of 500 trials a second."""

    total: int
    n_done: int = 0
    n_passed: int = 0
    n_measured: int = 0
    n_priced: int = 0
    tokens: int = 0
    cost_usd: float = 0.0
    n_grader_failures: int = 0
    setup_problems: dict[str, int] = field(default_factory=dict)
    """In how many trials the agent lacked what."""
    causes: dict[str, int] = field(default_factory=dict)
    running: dict[str, Running] = field(default_factory=dict)
    began_s: float = field(default_factory=time.monotonic)
    n_prompts: int = 0
    has_repeats: bool = False
    missing: dict[str, int] = field(default_factory=dict)
    """How many trials of each prompt are to come."""
    passes: Passes = field(default_factory=dict)
    waiting: str = ""
    waits_until_s: float = 0.0
    """Why no trial starts, and until when of the monotonic clock."""
    agent: str = ""
    n_before: int = 0
    """Trials of the same output that an earlier run has finished."""
    budget_usd: float | None = None
    score_text: str = ""
    """What the benchmark counts, in place of the pass rate."""

    @property
    def seconds(self) -> float:
        return time.monotonic() - self.began_s

    def finish(
        self,
        cause: str | None,
        cost: float | None,
        passed: bool | None = None,
        prompt_id: str = "",
    ) -> None:
        self.n_done += 1
        if cost:
            self.cost_usd += cost
            self.n_priced += 1
        if cause:
            self.causes[cause] = self.causes.get(cause, 0) + 1
        if passed is not None:
            self.n_measured += 1
            self.n_passed += passed
            n_passed, n_measured = self.passes.get(prompt_id, (0, 0))
            self.passes[prompt_id] = n_passed + passed, n_measured + 1
        left = self.missing.get(prompt_id, 0)
        if left > 1:
            self.missing[prompt_id] = left - 1
        elif left:
            del self.missing[prompt_id]

    @property
    def n_unmeasured(self) -> int:
        """How many finished trials say nothing about the agent."""
        return sum(n for cause, n in self.causes.items() if not Cause(cause).measures_agent)

    def done_text(self) -> str:
        """How many prompts are complete, and how many trials if a prompt has several."""
        if not self.n_prompts:
            return f"{self.n_done}/{self.total} trials completed"
        done = f"{self.n_prompts - len(self.missing)}/{self.n_prompts} prompts completed"
        return f"{done} ({self.n_done}/{self.total} trials)" if self.has_repeats else done

    def note_problems(self, spec: TrialSpec, row: Capture) -> None:
        """Count what the agent lacked of the set-up that was asked for."""
        asked = Identity(adapter=spec.agent.name, model=spec.agent.options.get("model") or "")
        for problem in problems_of(row, asked):
            self.setup_problems[problem] = self.setup_problems.get(problem, 0) + 1

    @property
    def left_s(self) -> float | None:
        """How long the rest will take at this pace; None before anything is known."""
        if not self.n_done or self.n_done >= self.total:
            return None
        return self.seconds / self.n_done * (self.total - self.n_done)

    @property
    def expected_usd(self) -> float | None:
        """What the whole run will cost if the rest costs as much per trial."""
        if not self.n_priced:
            return None
        return self.cost_usd / self.n_done * self.total

    def rate_text(self) -> str:
        """The pass rate so far, with its interval."""
        found = _rate_and_ends(self.passes)
        return f"pass {found[0]} ({found[1]})" if found else ""

    def cost_text(self) -> str:
        if self.expected_usd is None:
            return ""
        limit = "" if self.budget_usd is None else f" (budget ${self.budget_usd:.2f})"
        return f"${self.cost_usd:.2f} of about ${self.expected_usd:.2f}{limit}"

    def causes_text(self) -> str:
        return ", ".join(f"{cause_words(cause)} in {n}" for cause, n in sorted(self.causes.items()))

    def line(self) -> str:
        return ", ".join(part for part in (self.pace_text(), self.result_text()) if part)

    def pace_text(self) -> str:
        """How far the run is, and how long the rest will take."""
        left = self.left_s
        of_agent = f"{self.agent}: " if self.agent else ""
        done = f"{of_agent}{self.n_done}/{self.total} done"
        return done if left is None else f"{done}, {clock_text(left)} left"

    def result_text(self) -> str:
        """The results so far, and what they cost."""
        tokens = f"{self.tokens:,} tokens" if self.tokens else ""
        waiting = self.waiting if time.monotonic() < self.waits_until_s else ""
        score = self.score_text or self.rate_text()
        parts = [score, tokens, self.cost_text(), self.causes_text(), waiting]
        return ", ".join(part for part in parts if part)

    def live_state(self) -> LiveState:
        """The same as the terminal shows, for a viewer."""
        now_s, clock_s = time.monotonic(), time.time()
        # Copied first: the workers' threads add and remove trials meanwhile.
        running = sorted(list(self.running.values()), key=lambda one: one.began_s)
        return LiveState(
            agent=self.agent,
            started=clock_s - self.seconds,
            done=self.n_done,
            total=self.total,
            before=self.n_before,
            left_s=self.left_s,
            spent_usd=self.cost_usd,
            budget_usd=self.budget_usd,
            result=self.result_text(),
            running=[
                RunningTrial(
                    short_text(one.prompt),
                    one.trial,
                    clock_s - (now_s - one.began_s),
                    short_text(one.step),
                    one.n_steps,
                )
                for one in running[:MOST_RUNNING]
            ],
            n_running=len(running),
        )

    def short_info(self) -> str:
        """Failures and cost, if there are any."""
        failed = sum(self.causes.values())
        cost = f"${self.cost_usd:.2f}" if self.cost_usd else ""
        parts = [f"{failed} failed" if failed else "", cost]
        return "".join(f"  {part}" for part in parts if part)


def rate_text(passes: Passes) -> str:
    """The pass rate with its interval in words; nothing without a grade."""
    found = _rate_and_ends(passes)
    if not found:
        return ""
    n_passed, n_measured = (sum(counts) for counts in zip(*passes.values(), strict=True))
    of = f"{n_passed} of {counted_noun(n_measured, 'trial')}"
    return f"Pass rate {found[0]} (95% interval {found[1]}), {of}."


def _rate_and_ends(passes: Passes) -> tuple[str, str] | None:
    """The pass rate and its interval as in reports: trials of a prompt are no prompts."""
    if not passes:
        return None
    from assay.stats.rates import rate_interval  # late: numpy

    # Copied first: a thread that draws may come between.
    n_passed, n_measured = zip(*list(passes.values()), strict=True)
    rate, interval = rate_interval(n_passed, n_measured)
    if rate is None or interval is None:
        return None
    return f"{rate:.0%}", f"{interval.low:.0%} to {interval.high:.0%}"


def saved_passes(output: Path, *, is_trials: bool) -> Passes | None:
    """Count the grades of an output that holds rows of an earlier run, too."""
    from assay.compare.runs import load_run  # late: numpy

    try:
        run = load_run(output.name, output, "trials" if is_trials else "capture", "category")
    except AssayError:  # it may hold anything that somebody added
        return None
    counts = zip(run.n_passed.tolist(), run.n_measured.tolist(), strict=True)
    return {str(n): count for n, count in enumerate(counts) if count[1]}


def clock_text(seconds: float) -> str:
    """Format a duration as 1:05 or 2:00:09."""
    whole = int(seconds)
    hours, minutes, rest = whole // 3600, whole // 60 % 60, whole % 60
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
