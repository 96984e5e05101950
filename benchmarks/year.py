"""A year of a repository with the workflow of docs/ci.md: 200 days, a pull request on each.

Called by benchmarks.coverage; alone: python -m benchmarks.year [--seed N] [--years N]. Trials are
drawn, and then judged by the functions that the workflow's commands call: drift and pruning of the
baseline, the gate with its anchor, the health rule.

What happens: builds vary; the provider loses 3 points for good on day 60, and one trial of ten
during two outages; every twentieth day two prompts are edited; every tenth day a pull request
changes the set-up, so that the baseline starts again; releases on days 0, 90 and 180 set the
anchor; from day 100 on every fifth pull request loses two points; on day 160 one loses 15. A pull
request that is not decided is run once more. If one that changes nothing does not pass, somebody
looks why: a main that has lost something is repaired, an anchor that is out of date set anew.
"""

import argparse
from collections.abc import Iterator
from dataclasses import dataclass, field

import msgspec
import numpy as np

from assay.stats.distributions import Floats, Ints
from assay.stats.drift import count_alike, measure_drift
from assay.stats.sequential import decide_gate, look_at_rates
from benchmarks.builds import AGENT, MARGINS, TRIALS, Pool, draw_build, gate_outcome
from benchmarks.study import Study

DAYS, BUILDS, NOISE = 200, 10, 0.01
SHIFT_DAY, SHIFT = 60, -0.03
OUTAGES, MOST_LOST = (30, 120), 0.10
DECLINE, LOSS, MOST_DECLINE = range(100, 200, 5), 0.02, 0.08
REGRESSION_DAY, REGRESSION = 160, 0.15
EDITS, MERGES, RELEASES = range(20, DAYS, 20), range(5, DAYS, 10), (0, 90, 180)
EDITED = 2


@dataclass
class Repository:
    """Main, what has been measured of it, and what it has lost."""

    easy: Floats
    rng: np.random.Generator
    provider: float = 0.0
    lost: float = 0.0
    builds: list[tuple[Ints, Ints]] = field(default_factory=list)
    anchor: Pool | None = None
    blocked: int = 0
    """Days on which a pull request that changes nothing could not be merged to a sound main."""
    n_good: int = 0
    is_regressed: bool = False
    released: float = 0.0
    """What had been lost at the last release, which sets the anchor."""
    most_decline: float = 0.0
    """What was lost since, at most."""

    @property
    def margin(self) -> float:
        return MARGINS[self.easy.size]

    def pool(self) -> Pool:
        passes, measured = zip(*self.builds, strict=True)
        return np.stack(passes, axis=1), np.stack(measured, axis=1)

    def nightly(self) -> None:
        """Measure main and keep it; after drift keep the builds that are alike, as told."""
        chances = AGENT.moved(self.easy, -self.lost)
        passes = draw_build(chances, self.provider + self.rng.normal(0.0, NOISE), self.rng)
        self.builds = [*self.builds, (passes, np.full(self.easy.size, TRIALS))][-BUILDS:]
        if measure_drift(*self.pool()).found:
            # Somebody reads the red night, prunes, and sets the anchor anew.
            self.builds = self.builds[-count_alike(*self.pool()) :]
            self.anchor = self.pool()
        if self.anchor is not None and self._is_below_anchor(self.anchor):
            # A red night: main has lost something, or the provider has changed.
            if self.lost > self.released:
                self.lost, self.builds = self.released, []
                self.nightly()
            else:
                self.anchor = self.pool()

    def _is_below_anchor(self, anchor: Pool) -> bool:
        """Compare all builds of main with the anchor at half the margin, as is done every night."""
        pools = (anchor, self.pool())
        first, second = (measure_drift(*pool).noise for pool in pools)
        sides = [tuple(table.sum(axis=1) for table in pool) for pool in pools]
        known = [noise for noise in (first, second) if noise is not None]
        one = len(known) == 1
        noise = tuple(each.of_difference() if one else each.of_mean() for each in known)
        look = msgspec.structs.replace(look_at_rates(*sides), noise=noise)
        return decide_gate(look, margin=0.5 * self.margin).outcome == "fail"

    def judge(self, loss: float, day: int) -> bool:
        """Run the gate on a pull request, once more if it is not decided; return if it passes."""
        if day in OUTAGES:
            return False  # a tenth of all trials is lost: unhealthy, exit code 4
        pools = [self.pool()] + ([self.anchor] if self.anchor is not None else [])
        outcome = self._outcome(pools, loss)
        if outcome == "undecided":
            outcome = self._outcome(pools, loss)
        return outcome == "pass"

    def _outcome(self, pools: list[Pool], loss: float) -> str:
        chances = AGENT.moved(self.easy, -self.lost - loss)
        chances = AGENT.moved(chances, self.provider + self.rng.normal(0.0, NOISE))
        return gate_outcome(pools, chances, self.margin, self.rng)[0]

    def look_into(self) -> None:
        """A pull request that changes nothing was stopped: somebody looks why.

        If main has lost something, that is undone. If only the anchor stops it, the provider has
        changed since, and the anchor is set anew.
        """
        if self.lost > self.released:
            self.lost, self.builds = self.released, []
            self.nightly()
            return
        self.blocked += 1
        if self.anchor is not None and self._outcome([self.pool()], 0.0) == "pass":
            self.anchor = self.pool()

    def edit_prompts(self) -> None:
        """Two prompts are others from now on: what was measured of them is set aside."""
        changed = self.rng.permutation(self.easy.size)[:EDITED]
        self.easy = self.easy.copy()
        self.easy[changed] = AGENT.draw((1, EDITED), self.rng)[0]
        for passes, measured in self.builds:
            passes[changed] = measured[changed] = 0
        if self.anchor is not None:
            for table in self.anchor:
                table[changed] = 0

    def live(self) -> None:
        """Go through the days."""
        for day in range(DAYS):
            if day == SHIFT_DAY:
                self.provider = SHIFT
            if day in EDITS:
                self.edit_prompts()
            if day not in OUTAGES or not self.builds:
                self.nightly()
            if day in RELEASES:
                self.anchor, self.released = self.pool(), self.lost
            loss = LOSS if day in DECLINE else REGRESSION if day == REGRESSION_DAY else 0.0
            is_merged = self.judge(loss, day)
            if not loss:
                self.n_good += 1
                if not is_merged:
                    self.look_into()
            elif is_merged:
                self.lost += loss
                self.is_regressed |= loss == REGRESSION
                self.most_decline = max(self.most_decline, self.lost - self.released)
                self.builds = []
                self.nightly()
            if is_merged and not loss and day in MERGES:
                self.builds = []
                self.nightly()


def study_year(rng: np.random.Generator, n_years: int) -> Iterator[Study]:
    """Days blocked for nothing, and what got through."""
    blocked = Study("a year: days blocked for nothing", "cost0.05", n_years * DAYS)
    regressed = Study("a year: a loss of 0.15 is merged", "alarm", n_years)
    declined = Study("a year: main declines by 0.08 or more", "alarm200", n_years)
    far = Study("a year: main declines by the margin or more", "alarm", n_years)
    for n in MARGINS:
        years = [Repository(AGENT.draw((1, n), rng)[0], rng) for _ in range(n_years)]
        for year in years:
            year.live()
        blocked.points[n,] = sum(y.blocked for y in years) / sum(y.n_good for y in years)
        regressed.points[n,] = float(np.mean([y.is_regressed for y in years]))
        declined.points[n,] = float(np.mean([y.most_decline >= MOST_DECLINE - 1e-9 for y in years]))
        far.points[n,] = float(np.mean([y.most_decline >= MARGINS[n] for y in years]))
    yield from (blocked, regressed, declined, far)


def main() -> None:
    """Print the studies."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=26)
    parser.add_argument("--years", type=int, default=20)
    given = parser.parse_args()
    for study in study_year(np.random.default_rng(given.seed), given.years):
        print(study.row(), flush=True)
        print("   ", {key[0]: round(share, 4) for key, share in study.points.items()})


if __name__ == "__main__":
    main()
