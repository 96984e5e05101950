"""What a run has come to so far, counted and in words."""

import time
from pathlib import Path

import msgspec
from msgspec import field

from assay.errors import AssayError
from assay.records.capture import Cause, Identity, cause_words
from assay.records.live import MOST_RUNNING, LiveState, RunningTrial, short_text
from assay.records.setup import problems_of
from assay.records.spec import TrialSpec
from assay.records.trial import Trial
from assay.report.sentence import rate_and_ends

type Passes = dict[str, tuple[int, int]]
"""Of each prompt: how many trials passed, and how many were measured."""


class TrialInProgress(msgspec.Struct):
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
    first_grader_failure: str = ""
    setup_problems: dict[str, int] = field(default_factory=dict)
    """In how many trials the agent lacked what."""
    causes: dict[str, int] = field(default_factory=dict)
    n_unverified: int = 0
    """How many of them are excuses for which there is only the agent's word."""
    excused: tuple[int, int] = 0, 0
    """Measured trials with such an excuse for an earlier attempt, and how many of them passed."""
    running: dict[str, TrialInProgress] = field(default_factory=dict)
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

    def note_problems(self, spec: TrialSpec, row: Trial) -> None:
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
        # Copied first: a thread that draws may come between.
        counts = list(self.passes.values())
        found = rate_and_ends(*zip(*counts, strict=True)) if counts else None
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
