"""A study of coverage.py: the share found at each point of a grid, against a goal."""

from dataclasses import dataclass, field

import numpy as np

LEVELS = {
    "alarm25": 0.025,
    "alarm35": 0.035,
    "alarm100": 0.1,
    "alarm150": 0.15,
    "alarm200": 0.2,
    "alarm300": 0.3,
}
"""Largest share of each kind of alarm; 0.05 for any other."""


@dataclass
class Study:
    """The share found at each point of a grid, against a goal."""

    name: str
    goal: str
    n_repeats: int = 10**9
    points: dict[tuple[object, ...], float] = field(default_factory=dict)

    def passes(self) -> bool:
        shares = list(self.points.values())
        floor = 0.90 - 3.0 * (0.9 * 0.1 / self.n_repeats) ** 0.5
        if self.goal == "coverage":
            return min(shares) >= floor and 0.93 <= np.mean(shares) <= 0.97
        if self.goal == "floor":
            return min(shares) >= floor
        if self.goal.startswith("cost"):
            return float(np.mean(shares)) <= float(self.goal.removeprefix("cost"))
        level = LEVELS.get(self.goal, 0.05)
        ceiling = level + 3.0 * (level * (1.0 - level) / self.n_repeats) ** 0.5
        return self.goal == "info" or max(shares) <= ceiling

    def row(self) -> str:
        shares = np.array(list(self.points.values()))
        worst = max if self.goal.startswith(("alarm", "cost")) else min
        where = worst(self.points, key=lambda key: self.points[key])
        verdict = "-" if self.goal == "info" else "pass" if self.passes() else "MISSED"
        numbers = f"{shares.min():6.3f} {shares.mean():6.3f} {shares.max():6.3f}"
        size = f"{len(shares):>4} {self.n_repeats if self.n_repeats < 10**9 else 'exact':>5}"
        return f"{self.name:<51} {size} {numbers}  {verdict:<7} {where}"
