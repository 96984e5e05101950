"""What is shown on the very prompts that were run, and what a run can show before it is paid."""

import numpy as np
import pytest
from scipy import stats

from assay.stats.paired import compare_rates
from assay.stats.planning import Difficulty, reach_of_design
from assay.stats.significance import mcnemar_p, stratified_p
from assay.stats.verdict import judge_difference, prompts_for_same


def arm(passes: list[int], k: int) -> tuple[np.ndarray, np.ndarray]:
    return np.array(passes), np.full(len(passes), k)


def test_single_trials_are_mcnemars_test() -> None:
    a, b = [1, 0, 0, 0, 0, 1, 0, 1, 1], [0, 1, 1, 1, 1, 1, 0, 1, 0]
    assert stratified_p(arm(a, 1), arm(b, 1)) == pytest.approx(mcnemar_p(2, 4, mid_p=True))


def test_one_prompt_is_fishers_test() -> None:
    own = stats.hypergeom(20, 9, 10)
    expected = 2 * (own.sf(7) + 0.5 * own.pmf(7))
    assert stratified_p(arm([2], 10), arm([7], 10)) == pytest.approx(expected)


def test_many_prompts_come_to_the_same_by_the_normal_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(2)
    a, b = (arm(rng.binomial(5, 0.5 + d, 400).tolist(), 5) for d in (0.0, 0.03))
    exact = stratified_p(a, b)
    monkeypatch.setattr("assay.stats.significance._MOST_CONVOLVED", 0)
    assert stratified_p(a, b) == pytest.approx(exact, rel=0.02)


def test_nothing_measured_and_nothing_different() -> None:
    none = arm([0, 0], 0)
    assert stratified_p(none, arm([1, 1], 2)) is None
    assert stratified_p(arm([2, 0], 2), arm([2, 0], 2)) == 1.0


def test_a_run_shows_what_was_said_before_it() -> None:
    rng, agent, n, k = np.random.default_rng(5), Difficulty(0.5, 0.5), 20, 5
    reach = reach_of_design(n, k, agent)
    assert reach.in_general is not None
    shown = {"general": 0, "here": 0}
    for easy in agent.draw((200, n), rng):
        a = rng.binomial(k, easy), np.full(n, k)
        b = rng.binomial(k, agent.moved(easy, reach.in_general)), np.full(n, k)
        found = judge_difference(compare_rates(a, b, seed=1), margin=0.02)
        shown["general"] += found.code == "better"
        b = rng.binomial(k, agent.moved(easy, reach.on_these)), np.full(n, k)
        shown["here"] += (stratified_p(a, b) or 1.0) <= 0.05
    assert 0.7 < shown["general"] / 200 < 0.97
    assert 0.65 < shown["here"] / 200 < 0.9


@pytest.mark.parametrize("margin", [0.1, 0.3])
def test_fewer_prompts_cannot_show_that_there_is_no_difference(margin: float) -> None:
    fewest = prompts_for_same(margin)
    assert fewest is not None
    for n, code in ((fewest, "same"), (fewest - 1, "not-enough-data")):
        same = arm([1] * n, 1)
        assert judge_difference(compare_rates(same, same, seed=1), margin=margin).code == code
