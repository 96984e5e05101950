import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay.stats.agreement import (
    LabelledFile,
    clustered_rate,
    correct_rate,
    measure_agreement,
    stratified_rate,
)

labels = st.lists(st.tuples(st.booleans(), st.booleans()), min_size=1, max_size=80)


@given(labels)
def test_kappa_is_statsmodels(pairs):
    from statsmodels.stats.inter_rater import cohens_kappa

    human, grader = zip(*pairs, strict=True)
    found = measure_agreement(human, grader)
    table = [
        [found.both_pass, found.only_human_passes],
        [found.only_grader_passes, found.both_fail],
    ]
    if found.kappa is None:
        assert len(set(pairs)) == 1
        return
    with np.errstate(invalid="ignore"):
        expected = cohens_kappa(np.array(table))
    assert found.kappa == pytest.approx(expected.kappa)
    interval = found.kappa_interval
    assert interval.high > interval.low
    if interval.method == "large-sample":
        low, high = max(-1.0, expected.kappa_low), min(1.0, expected.kappa_upp)
        assert (interval.low, interval.high) == pytest.approx((low, high), abs=1e-6)


@given(labels)
def test_shares_are_counts_with_wilson(pairs):
    from statsmodels.stats.proportion import proportion_confint

    human, grader = zip(*pairs, strict=True)
    found = measure_agreement(human, grader)
    assert found.agreement.count == sum(h == g for h, g in pairs)
    for share, mine in ((found.sensitivity, True), (found.specificity, False)):
        relevant = [g == h for h, g in pairs if h is mine]
        assert (share.count, share.total) == (sum(relevant), len(relevant))
        if relevant:
            expected = proportion_confint(sum(relevant), len(relevant), method="wilson")
            assert (share.interval.low, share.interval.high) == pytest.approx(expected, abs=1e-9)
        else:
            assert share.rate is share.interval is None


def test_perfect_agreement_is_not_certainty():
    found = measure_agreement([1, 0] * 10, [1, 0] * 10)
    assert found.kappa == 1.0
    assert found.kappa_interval.high == 1.0
    assert 0.6 < found.kappa_interval.low < 0.8


def test_disagreement_throughout_is_not_certainty_either():
    found = measure_agreement([1, 1, 1], [0, 0, 0])
    assert found.kappa == 0.0
    assert found.kappa_interval.high > 0.5


def test_one_label_only_leaves_kappa_open():
    found = measure_agreement([1, 1], [1, 1])
    assert found.kappa is found.kappa_interval is None
    assert found.agreement.rate == 1.0


def test_no_labels():
    found = measure_agreement([], [])
    assert found.n == 0
    assert found.kappa is found.agreement.rate is None


def test_labels_are_yes_or_no():
    for wrong in ([0.5], [np.nan], [2], [None]):
        with pytest.raises(ValueError, match="true or false"):
            measure_agreement(wrong, [1])
    with pytest.raises(ValueError, match="as many"):
        measure_agreement([1], [1, 0])


@pytest.mark.parametrize("cells", [(16, 4, 6, 14), (81, 9, 2, 8), (72, 18, 4, 6), (57, 3, 1, 39)])
def test_the_interval_of_kappa_holds_with_few_labels_of_a_kind(cells):
    p = np.array(cells) / sum(cells)
    both, human, grader, neither = p
    chance = (both + human) * (both + grader) + (grader + neither) * (human + neither)
    truth = (both + neither - chance) / (1 - chance)
    rng, held = np.random.default_rng(7), 0
    for drawn in rng.multinomial(30, p, 500):
        labels = np.repeat([[1, 1], [1, 0], [0, 1], [0, 0]], drawn, axis=0)
        interval = measure_agreement(labels[:, 0], labels[:, 1]).kappa_interval
        held += interval is None or interval.contains(truth)
    assert held / 500 >= 0.92


def test_labels_drawn_by_verdict_narrow_the_corrected_rate():
    rng, held, widths = np.random.default_rng(8), 0, []
    for _ in range(300):
        truth = rng.random(400) < 0.8
        verdicts = np.where(truth, rng.random(400) < 0.9, rng.random(400) < 0.3)
        n_pass = round(60 * verdicts.mean())
        chosen = [
            rng.choice(np.flatnonzero(verdicts == v), n, replace=False)
            for v, n in ((1, n_pass), (0, 60 - n_pass))
        ]
        some = np.concatenate(chosen)
        agreement = measure_agreement(truth[some], verdicts[some])
        ours = stratified_rate(int(verdicts.sum()), 400, agreement).interval
        other = correct_rate(float(verdicts.mean()), 400, agreement).interval
        held += ours.contains(0.8)
        widths.append((other.high - other.low) / (ours.high - ours.low))
    assert held / 300 >= 0.92
    assert np.mean(widths) > 1.4


def test_a_verdict_without_labels_has_no_stratified_rate():
    found = stratified_rate(5, 10, measure_agreement([1, 1], [1, 1]))
    assert found.rate is None
    assert "no label" in found.note


def test_rows_of_one_prompt_are_no_independent_labels():
    rng = np.random.default_rng(31)
    prompts = np.repeat(np.arange(20), 10)
    human = rng.random(20)[prompts] < 0.7  # each prompt passes always, or never
    grader = human ^ (rng.random(20)[prompts] < 0.2)
    alone = measure_agreement(human, grader)
    clustered = measure_agreement(human, grader, prompts=prompts)
    assert clustered.sensitivity.rate == alone.sensitivity.rate
    for name in ("agreement", "sensitivity", "specificity"):
        widths = [
            getattr(one, name).interval.high - getattr(one, name).interval.low
            for one in (alone, clustered)
        ]
        assert widths[1] > 2 * widths[0]
    assert clustered.sensitivity.interval.method == "Wilson, clustered by prompt"
    single = measure_agreement(human, grader, prompts=np.arange(200))
    assert single.sensitivity == alone.sensitivity


def test_the_corrected_rate_takes_prompts_as_units():
    rng, n, k = np.random.default_rng(5), 20, 10
    human = np.repeat(rng.random(n) < 0.6, k)
    grader = human ^ (rng.random(n * k) < 0.1)
    prompts = np.repeat(np.arange(n), k)
    passed = grader.reshape(n, k).sum(axis=1)
    file = LabelledFile(np.full(n, k), passed, prompts, human, grader)
    for drawn in (True, False):
        found = clustered_rate(file, drawn=drawn)
        assert found.rate == pytest.approx(human.mean(), abs=0.02)
        assert found.interval.high - found.interval.low > 0.3, "about that of 20 rows"
    assert (
        clustered_rate(
            LabelledFile(np.ones(200, int), grader.astype(int), np.arange(200), human, grader),
            drawn=True,
        )
        is None
    )
