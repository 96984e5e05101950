"""A run as columns of numbers: what a comparison needs, nothing that grows with the text."""

from functools import cached_property
from pathlib import Path
from typing import Literal

import msgspec
import numpy as np
from numpy.typing import NDArray

type Floats = NDArray[np.float64]
type Ints = NDArray[np.int64]
type Kind = Literal["capture", "trials"]


class Health(msgspec.Struct):
    """What a reader must know before believing any number of a run."""

    n_trials: int = 0
    n_graded: int = 0
    not_measured: dict[str, int] = {}
    """By cause; "not graded" where a trial simply has no grade."""
    failed: dict[str, int] = {}
    """Causes that count against the agent."""
    n_grader_failures: int = 0
    n_permission_denials: int = 0
    n_repeated: int = 0
    """Rows whose id came again later: the last one counts."""


class Run(msgspec.Struct, dict=True, kw_only=True):
    """One file, read. Prompt columns have a value per prompt, trial columns one per trial."""

    label: str
    path: Path
    kind: Kind
    ids: list[str]
    inputs: Ints
    """Fingerprint of what was asked."""
    categories: Ints
    """Number of the category in category_names."""
    category_names: list[str]
    k: Ints
    """Trials planned for each prompt."""
    pass_at_k: Floats
    pass_exp_k: Floats
    """The seed's numbers as the rows give them; NaN where they do not."""

    prompt: Ints
    """Whose trial it is; in order, so that a prompt's trials stand together."""
    passed: Floats
    """1, 0, or NaN for not measured."""
    score: Floats
    duration_ms: Floats
    first_response_ms: Floats
    cost_usd: Floats
    tokens: Floats
    n_steps: Floats
    tool_error: Floats
    timed_out: Floats
    complete: Floats

    health: Health
    richness: str | None = None
    graders: dict[str, set[str]] = {}
    """Versions seen, by grader."""
    agents: set[tuple[str, str, str]] = set()
    """Adapter, version and model."""

    @property
    def agent_names(self) -> list[str]:
        """Agents with version and model, as people write them."""
        return [" ".join(filter(None, agent)) for agent in sorted(self.agents)]

    @cached_property
    def place(self) -> dict[str, int]:
        """Where a prompt stands."""
        return {prompt_id: i for i, prompt_id in enumerate(self.ids)}

    @cached_property
    def n_passed(self) -> Ints:
        """Passed trials of each prompt."""
        return self._count(np.nan_to_num(self.passed))

    @cached_property
    def n_measured(self) -> Ints:
        """Measured trials of each prompt."""
        return self._count(~np.isnan(self.passed))

    def mean_of(self, column: Floats) -> Floats:
        """Mean over the trials of each prompt; NaN where none has a value."""
        if self._one_trial_each:
            return column
        known = ~np.isnan(column)
        n = np.bincount(self.prompt[known], minlength=len(self.ids))
        total = np.bincount(self.prompt[known], weights=column[known], minlength=len(self.ids))
        with np.errstate(invalid="ignore", divide="ignore"):
            means: Floats = total / n
        return means

    @cached_property
    def _one_trial_each(self) -> bool:
        return bool(np.array_equal(self.prompt, np.arange(len(self.ids))))

    def _count(self, weights: NDArray[np.bool_] | Floats) -> Ints:
        if self._one_trial_each:
            return weights.astype(np.int64)
        counted = np.bincount(self.prompt, weights=weights, minlength=len(self.ids))
        return np.rint(counted).astype(np.int64)
