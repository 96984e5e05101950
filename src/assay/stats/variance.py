"""Split the variance into prompts and trials, to say whether more prompts or more trials help."""

import msgspec
import numpy as np
from numpy.typing import ArrayLike

from assay.stats.checked import Floats, Ints, as_counts, as_tallies, as_values, require_same_length

# Below this share of the mean's variance, new prompts gain nothing that repeats would not.
_TRIALS_SHARE = 0.8


class VarianceSplit(msgspec.Struct, frozen=True, rename="camel"):
    """One-way random effects; None is what the data cannot tell.

    `between` prompts, `within` one prompt (of a single trial), `total` of a single trial, and
    `trial_share`: how much of the mean's variance is chance between trials.
    """

    between: float | None
    within: float | None
    total: float | None
    icc: float | None
    n_prompts: int
    n_trials: int
    trials_per_prompt: float
    trial_share: float | None
    advice: str
    words: str


def split_variance(values: ArrayLike, prompt_index: ArrayLike) -> VarianceSplit:
    """Split values of single trials; prompt_index says which prompt each belongs to (0, 1, ...)."""
    sample, index = as_values(values), as_counts(prompt_index, "prompt_index")
    require_same_length(sample, index, "values and prompt_index")
    if sample.size == 0:
        return _split(np.zeros(0), np.zeros(0, dtype=np.int64), 0.0)
    sizes = np.bincount(index)
    means = np.bincount(index, weights=sample) / np.maximum(sizes, 1)
    within_ss = float(np.square(sample - means[index]).sum())
    return _split(means[sizes > 0], sizes[sizes > 0], within_ss)


def split_rate_variance(passes: ArrayLike, measured: ArrayLike) -> VarianceSplit:
    """Split pass/fail trials given as counts per prompt."""
    n_passed, n_measured = as_tallies(passes, measured)
    seen = n_measured > 0
    sizes = n_measured[seen]
    rates = n_passed[seen] / sizes
    return _split(rates, sizes, float((sizes * rates * (1.0 - rates)).sum()))


def _split(means: Floats, sizes: Ints, within_ss: float) -> VarianceSplit:
    n_prompts, n_trials = int(sizes.size), int(sizes.sum())
    per_prompt = n_trials / n_prompts if n_prompts else 0.0
    if n_prompts < 2 or n_trials == n_prompts:
        total = float(means.var(ddof=1)) if n_prompts >= 2 else None
        return _unsplit(total, n_prompts, n_trials, per_prompt)
    within = within_ss / (n_trials - n_prompts)
    grand = float((sizes * means).sum()) / n_trials
    between_ms = float((sizes * np.square(means - grand)).sum()) / (n_prompts - 1)
    # n0 is the size of a balanced design with the same information.
    n0 = (n_trials - float(np.square(sizes).sum()) / n_trials) / (n_prompts - 1)
    between = max(0.0, (between_ms - within) / n0)
    total = between + within
    of_mean = between + within / per_prompt
    share = within / per_prompt / of_mean if of_mean > 0 else None
    advice, words = _advise(share, per_prompt)
    return VarianceSplit(
        between=between,
        within=within,
        total=total,
        icc=between / total if total > 0 else None,
        n_prompts=n_prompts,
        n_trials=n_trials,
        trials_per_prompt=per_prompt,
        trial_share=share,
        advice=advice,
        words=words,
    )


def _advise(share: float | None, per_prompt: float) -> tuple[str, str]:
    if share is None:
        return "add-prompts", "all trials gave the same result; only new prompts can tell more"
    percent = round(100 * share)
    seen = f"chance between trials makes {percent} % of the uncertainty"
    if share >= _TRIALS_SHARE:
        return "add-trials", f"{seen}; more trials of the same prompts help as much as new prompts"
    return (
        "add-prompts",
        f"{seen} at {per_prompt:.3g} trials a prompt; only new prompts cut the rest",
    )


def _unsplit(
    total: float | None, n_prompts: int, n_trials: int, per_prompt: float
) -> VarianceSplit:
    words = "one trial a prompt cannot tell chance from difficulty; new prompts always help"
    if n_prompts < 2:
        words = "fewer than two prompts have no spread; add prompts"
    return VarianceSplit(
        between=None,
        within=None,
        total=total,
        icc=None,
        n_prompts=n_prompts,
        n_trials=n_trials,
        trials_per_prompt=per_prompt,
        trial_share=None,
        advice="add-prompts",
        words=words,
    )
