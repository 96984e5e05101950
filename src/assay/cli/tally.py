"""The numbers of a run that is under way, and what follows from them."""

import time

import msgspec
from msgspec import field


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
    causes: dict[str, int] = field(default_factory=dict)
    running: dict[str, Running] = field(default_factory=dict)
    began_s: float = field(default_factory=time.monotonic)

    @property
    def seconds(self) -> float:
        """Time since the beginning."""
        return time.monotonic() - self.began_s

    def finish(self, cause: str | None, cost: float | None, passed: bool | None = None) -> None:
        """Count one trial."""
        self.n_done += 1
        if cost:
            self.cost_usd += cost
            self.n_priced += 1
        if cause:
            self.causes[cause] = self.causes.get(cause, 0) + 1
        if passed is not None:
            self.n_measured += 1
            self.n_passed += passed

    @property
    def left_s(self) -> float | None:
        """Time that the rest will take at this pace; None before anything is known."""
        if not self.n_done or self.n_done >= self.total:
            return None
        return self.seconds / self.n_done * (self.total - self.n_done)

    @property
    def expected_usd(self) -> float | None:
        """What the whole run will cost if the rest costs what the first did."""
        if not self.n_priced:
            return None
        return self.cost_usd / self.n_done * self.total

    def rate_text(self) -> str:
        """Give the pass rate so far, with its interval."""
        if not self.n_measured:
            return ""
        from assay.stats.rates import wilson_interval

        interval = wilson_interval(self.n_passed, self.n_measured)
        ends = f" ({interval.low:.0%} to {interval.high:.0%})" if interval else ""
        return f"pass {self.n_passed / self.n_measured:.0%}{ends}"

    def cost_text(self) -> str:
        """Give the cost so far and the expected total."""
        if self.expected_usd is None:
            return ""
        return f"${self.cost_usd:.2f} of about ${self.expected_usd:.2f}"

    def causes_text(self) -> str:
        """Give the failures by cause."""
        return ", ".join(f"{n} {cause}" for cause, n in sorted(self.causes.items()))

    def line(self) -> str:
        """Say all of it in one line."""
        return ", ".join(part for part in (self.pace_text(), self.result_text()) if part)

    def pace_text(self) -> str:
        """Say how far the run is, and how long the rest will take."""
        left = self.left_s
        done = f"{self.n_done}/{self.total} done"
        return done if left is None else f"{done}, {clock_text(left)} left"

    def result_text(self) -> str:
        """Say what has come out so far, and what it took."""
        tokens = f"{self.tokens:,} tokens" if self.tokens else ""
        parts = [self.rate_text(), tokens, self.cost_text(), self.causes_text()]
        return ", ".join(part for part in parts if part)

    def short_info(self) -> str:
        """Give failures and cost, where there are any."""
        failed = sum(self.causes.values())
        parts = [f"{failed} failed" if failed else "", f"${self.cost_usd:.2f}"]
        return "  ".join(["", *filter(None, parts)]) if self.cost_usd or failed else ""


def clock_text(seconds: float) -> str:
    """Write a length of time as 1:05 or 2:00:09."""
    whole = int(seconds)
    hours, minutes, rest = whole // 3600, whole // 60 % 60, whole % 60
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
