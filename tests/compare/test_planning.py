"""Plans from pilots: the spread they show, what it costs, and gates that could never speak."""

import json
import random
from pathlib import Path

import numpy as np
import pytest

from assay.compare.planning import (
    Rates,
    difficulty_of,
    plan_rows,
    power_with,
    rates_of_pilot,
    spread_of_pilot,
    spread_of_rates,
)
from assay.compare.runs import load_run
from assay.errors import InputError
from assay.records.trial.files import detect_kind
from assay.stats.paired import compare_rates
from assay.stats.planning import Difficulty


def pilot(path: Path, passes: list[list[bool | None]], *, cost: float | None = None):
    rows = []
    for i, of_prompt in enumerate(passes):
        entries = []
        for number, passed in enumerate(of_prompt, 1):
            entry = {"trialNum": number, "output": "o", "trajectory": [], "duration": 3000}
            entry |= {} if passed is None else {"pass": passed, "score": int(passed)}
            entry |= {} if cost is None else {"usage": {"costUsd": cost}}
            entries.append(entry)
        rows.append({"id": f"p{i}", "input": "i", "k": len(of_prompt), "trials": entries})
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return load_run(path.stem, path, detect_kind(path), "category")


def drawn(n: int, k: int, seed: int, rate: float = 0.6) -> list[list[bool | None]]:
    chance = random.Random(seed)
    return [[chance.random() < rate for _ in range(k)] for _ in range(n)]


def rows_for(spread, difference=0.1, trials=(1, 3, 5, 10), **rates):
    return plan_rows(
        spread, difference, trials=trials, power=0.8, rates=Rates(**rates), concurrency=2
    )


def test_more_trials_need_fewer_prompts_but_more_runs_of_the_agent(tmp_path: Path):
    run = pilot(tmp_path / "a.jsonl", drawn(60, 3, 1))
    rows = rows_for(spread_of_pilot([run])[0])
    prompts = [row["nPrompts"] for row in rows]
    assert prompts == sorted(prompts, reverse=True)
    assert all(row["nRunsOfAgent"] == 2 * row["nPrompts"] * row["nTrials"] for row in rows)


def test_repeats_are_not_sample_size(tmp_path: Path):
    """Where every prompt always passes or always fails, repeating it tells nothing new."""
    firm = [[i % 2 == 0] * 4 for i in range(40)]
    run = pilot(tmp_path / "a.jsonl", firm)
    one, _, _, ten = rows_for(spread_of_pilot([run])[0])
    assert ten["nPrompts"] > 0.8 * one["nPrompts"]


def test_a_smaller_difference_needs_about_its_square_more(tmp_path: Path):
    spread, _ = spread_of_rates(0.6, 0.1)
    (large,), (small,) = (rows_for(spread, d, (1,)) for d in (0.1, 0.05))
    assert small["nPrompts"] / large["nPrompts"] == pytest.approx(4, rel=0.15)


def test_money_and_time_come_from_the_pilot(tmp_path: Path):
    run = pilot(tmp_path / "a.jsonl", drawn(30, 2, 1), cost=0.25)
    rates = rates_of_pilot([run])
    assert (rates.cost_usd, rates.seconds) == (0.25, 3.0)
    (row,) = rows_for(spread_of_rates(0.6, 0.1)[0], trials=(1,), cost_usd=0.25, seconds=3.0)
    assert row["costUsd"] == pytest.approx(row["nRunsOfAgent"] * 0.25)
    assert row["hours"] == pytest.approx(row["nRunsOfAgent"] * 3.0 / 2 / 3600)


def test_without_cost_there_is_no_price(tmp_path: Path):
    run = pilot(tmp_path / "a.jsonl", drawn(30, 2, 1))
    assert rates_of_pilot([run]).cost_usd is None
    (row,) = rows_for(spread_of_rates(0.6, 0.1)[0], trials=(1,))
    assert row["costUsd"] is row["hours"] is None


def test_two_pilots_that_agree_need_fewer_prompts_than_two_that_do_not(tmp_path: Path):
    base = drawn(80, 1, 1)
    a = pilot(tmp_path / "a.jsonl", base)
    flipped = [[not row[0]] if i % 20 == 0 else row for i, row in enumerate(base)]
    alike, other = (
        pilot(tmp_path / "b.jsonl", flipped),
        pilot(tmp_path / "c.jsonl", drawn(80, 1, 2)),
    )
    needs = [
        rows_for(spread_of_pilot([a, b], correlation=0.9)[0], trials=(1,))[0]["nPrompts"]
        for b in (alike, other)
    ]
    assert needs[0] < needs[1]
    assert spread_of_pilot([a, other], correlation=0.9)[1] == "two pilot runs"


def test_pilots_that_show_no_spread_are_refused(tmp_path: Path):
    same = pilot(tmp_path / "same.jsonl", [[True]] * 20)
    ungraded = pilot(tmp_path / "none.jsonl", [[None]] * 20)
    good = pilot(tmp_path / "good.jsonl", drawn(20, 1, 1))
    for runs, said in (
        ([same], "no variation"),
        ([ungraded], "no variation"),
        ([good, ungraded], "fewer than two graded prompts"),
    ):
        with pytest.raises(InputError, match=said) as caught:
            spread_of_pilot(runs)
        assert "--rate" in caught.value.hint


def test_two_pilots_that_are_alike_promise_no_more_than_one(tmp_path: Path):
    passes = drawn(50, 10, 1)
    runs = [pilot(tmp_path / f"{name}.jsonl", passes) for name in "ab"]
    spread, words = spread_of_pilot(runs)
    assert spread == spread_of_pilot(runs[:1])[0]
    assert "no less spread" in words


@pytest.mark.parametrize(("rate", "mirror"), [(1.0, 0.9), (0.95, 0.85)])
def test_a_rate_without_room_above_goes_down(rate: float, mirror: float):
    told, same = (spread_of_rates(r, 0.1)[0] for r in (rate, mirror))
    assert (told.between, told.within) == pytest.approx((same.between, same.within))
    assert told.between > 0


def test_a_difference_without_any_room_is_refused():
    with pytest.raises(InputError, match=r"0\.5 cannot go up or down by 0\.7"):
        spread_of_rates(0.5, 0.7)
    assert spread_of_rates(0.7, 0.3)[0].within > 0


def test_power_grows_with_prompts():
    spread, _ = spread_of_rates(0.6, 0.1)
    told = [power_with(spread, 0.1, n, 1) for n in (10, 100, 1000)]
    power = [row["power"] for row in told]
    assert power == sorted(power)
    assert power[0] < 0.2
    assert power[2] > 0.95
    margins = [row["narrowestMargin"] for row in told]
    assert margins == sorted(margins, reverse=True)


def test_a_plan_keeps_its_promise():
    """Simulated: with the prompts asked for, the difference is seen about as often as wanted."""
    rate, difference, chance = 0.6, 0.15, random.Random(5)
    spread, _ = spread_of_rates(rate, difference)
    (row,) = rows_for(spread, difference, (1,))
    seen, n_repeats = 0, 300
    for _ in range(n_repeats):
        a, b = [], []
        for _ in range(row["nPrompts"]):
            # On half of the prompts chance falls the same way in both runs, as the plan assumes.
            shared = chance.random() < 0.5
            draw = chance.random()
            a.append(int(draw < rate))
            b.append(int((draw if shared else chance.random()) < rate + difference))
        ones = [1] * len(a)
        seen += (compare_rates((a, ones), (b, ones), seed=1).p_value or 1.0) <= 0.05
    assert 0.65 < seen / n_repeats < 0.95


def test_a_plan_from_a_pilot_keeps_its_promise_for_a_loss(tmp_path: Path):
    """An agent that passes 80 % varies more than the pilot that passed 90 %."""
    rng, before, after = np.random.default_rng(4), Difficulty(0.9, 0.5), Difficulty(0.8, 0.5)
    (easy,) = before.draw((1, 400), rng)
    run = pilot(tmp_path / "a.jsonl", (rng.random((3, 400)) < easy).T.tolist())
    (row,) = rows_for(spread_of_pilot([run], -0.1)[0], -0.1, (1,))
    n, seen, n_repeats = row["nPrompts"], 0, 300
    ones = np.ones(n, dtype=np.int64)
    for easy in before.draw((n_repeats, n), rng):
        # On half of the prompts the same is hard for both agents, as the plan assumes.
        (other,) = after.draw((1, n), rng)
        now = np.where(rng.random(n) < 0.5, before.moved(easy, -0.1), other)
        runs = [((rng.random(n) < chances).astype(np.int64), ones) for chances in (easy, now)]
        seen += (compare_rates(*runs, seed=1).p_value or 1.0) <= 0.05
    assert 0.7 < seen / n_repeats < 0.9
    with pytest.raises(InputError, match=r"cannot go down by 0\.95"):
        spread_of_pilot([run], -0.95)


def test_the_difficulty_of_a_pilot(tmp_path: Path):
    repeated = pilot(tmp_path / "k.jsonl", [[True] * 4] * 30 + [[False] * 4] * 10)
    found, words = difficulty_of(repeated, 0.3)
    assert (found.rate, found.icc) == (0.75, 1.0)
    assert "as in the pilot" in words
    single = pilot(tmp_path / "one.jsonl", [[True]] * 30 + [[False]] * 10)
    found, words = difficulty_of(single, 0.3)
    assert (found.rate, found.icc) == (0.75, 0.3)
    assert "ICC 0.3 assumed" in words
    with pytest.raises(InputError, match="nothing is graded"):
        difficulty_of(pilot(tmp_path / "none.jsonl", [[None]] * 5), 0.3)


def test_one_trial_a_prompt_does_not_show_chance_within_it(tmp_path: Path):
    """Planned as if all variance lay between prompts, half of it would cancel out."""
    run = pilot(tmp_path / "one.jsonl", drawn(200, 1, 1))
    total = spread_of_pilot([run], icc=1.0)[0].variance(1)
    assert spread_of_pilot([run], icc=0.5)[0].variance(1) == pytest.approx(1.5 * total)


def test_what_a_given_number_of_prompts_can_show(tmp_path: Path):
    """Six could give p <= 0.05 if all change alike: 2 / 2^6 = 0.031; of five it is 0.063."""
    spread = spread_of_pilot([pilot(tmp_path / "a.jsonl", drawn(60, 3, 1))])[0]
    few, many = (power_with(spread, 0.2, n, 3) for n in (20, 200))
    assert (few["nPrompts"], few["nTrials"], few["fewestPrompts"]) == (20, 3, 6)
    assert many["fewestPrompts"] == few["fewestPrompts"]
    assert few["power"] < many["power"] <= 1.0
    assert few["narrowestMargin"] > many["narrowestMargin"] > 0.0
