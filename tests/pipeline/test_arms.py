"""The trials of all arms in one order, and trials of earlier runs."""

import random
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import mean

import msgspec

from assay.pipeline.arms import EarlierTrials, arm_key, interleave
from assay.pipeline.trials import trial_result
from assay.records.capture import Cause, Failure, Identity
from assay.records.signatures import Signatures
from assay.records.spec import Prompt, TrialSpec, made_from
from assay.records.trial import FinishedTrial, Trial, TrialEntry, of_entry, to_entry

N_PROMPTS, K = 20, 5


def plan(spec: TrialSpec, arm: str) -> list[TrialSpec]:
    """All trials of one arm, in the order of the file."""
    return [
        msgspec.structs.replace(
            spec, prompt=Prompt(id=f"p{n}", input="?"), number=number, run_token=arm
        )
        for n in range(N_PROMPTS)
        for number in range(1, K + 1)
    ]


def test_each_prompt_and_repeat_is_a_block_of_all_arms(spec: Callable[..., TrialSpec]) -> None:
    arms = [plan(spec("?"), arm) for arm in ("a", "b", "c")]
    order = interleave(arms, seed=1)
    assert Counter(map(id, order)) == Counter(id(one) for arm in arms for one in arm)
    blocks = [order[at : at + 3] for at in range(0, len(order), 3)]
    for block in blocks:
        assert {arm_key(one) for one in block} == {"a", "b", "c"}
        assert len({(one.prompt.id, one.number) for one in block}) == 1
    numbers = [block[0].number for block in blocks]
    assert numbers == sorted(numbers)
    firsts = Counter(arm_key(block[0]) for block in blocks)
    assert min(firsts.values()) > len(blocks) / 6
    assert [one.prompt.id for one in order] != [one.prompt.id for one in interleave(arms, seed=2)]
    assert order == interleave(arms, seed=1)


def test_interleaving_removes_the_bias_of_a_provider_that_degrades(
    spec: Callable[..., TrialSpec],
) -> None:
    """Two equal arms, while the chance to pass falls from 0.9 to 0.4 during the run."""
    arms = [plan(spec("?"), arm) for arm in ("control", "treatment")]
    one_after_the_other = [*arms[0], *arms[1]]
    sequential = [difference(one_after_the_other, seed) for seed in range(200)]
    interleaved = [difference(interleave(arms, seed), seed) for seed in range(200)]
    # Half of the fall is what the second arm seems to be worse by.
    assert -0.28 < mean(sequential) < -0.22
    assert abs(mean(interleaved)) < 0.015
    # And it is not more spread out than chance makes it: sqrt(2 * 0.22 / 100) = 0.066.
    assert mean(one * one for one in interleaved) ** 0.5 < 0.08


def difference(order: Sequence[TrialSpec], seed: int) -> float:
    """Run the trials in this order; return treatment - control."""
    chance = random.Random(f"trials {seed}")
    passed: dict[str, list[bool]] = {"control": [], "treatment": []}
    for at, one in enumerate(order):
        passed[arm_key(one)].append(chance.random() < 0.9 - 0.5 * at / (len(order) - 1))
    return mean(passed["treatment"]) - mean(passed["control"])


def entry(number: int, **changes: object) -> Trial:
    made = TrialEntry(number=number, output="x", trajectory=[], duration=1.0, pass_=True)
    row = FinishedTrial(id="p", spec_hash="", entry=made)
    return of_entry(msgspec.structs.replace(made, **changes), row)


def sign(folder: Path) -> None:
    """Say of all rows in a folder that Assay wrote them."""
    signatures = Signatures.begin(folder, "{}")
    assert signatures is not None
    for file in folder.glob("*.jsonl"):
        for line in file.read_bytes().splitlines():
            signatures.sign(line)


def test_only_trials_that_measured_the_same_are_reused(
    spec: Callable[..., TrialSpec], tmp_path: Path
) -> None:
    ours, other = spec("What?"), spec("Why?")
    old = tmp_path / "mine" / "2026-01-01-aaaa"
    old.mkdir(parents=True)
    broken = Failure(cause=Cause.PROVIDER, message="429")
    crashed = Failure(cause=Cause.AGENT_CRASH, message="3")
    entries = [
        entry(1, raw="control.raw/p-trial-1"),
        entry(2, failure=broken, pass_=msgspec.UNSET),
        entry(3, failure=crashed, pass_=msgspec.UNSET),
        entry(4, pass_=msgspec.UNSET),
    ]
    rows = [trial_result(ours, entries, graded=True), trial_result(other, [entry(5)], graded=True)]
    lines = [msgspec.json.encode(row) for row in rows]
    (old / "control.jsonl").write_bytes(b"\n".join(lines) + b'\n{"torn')
    sign(old)
    new = tmp_path / "other" / "2026-01-02-bbbb"
    wanted = [msgspec.structs.replace(ours, number=number) for number in range(1, 6)]
    found = EarlierTrials(tmp_path, new).find(wanted)
    assert {number: earlier.is_graded for (_, number), earlier in found.items()} == {
        1: True,
        3: True,
        4: False,
    }
    reused = found[made_from(ours.hash), 1].trial
    assert to_entry(reused).metadata == {"reusedFrom": "mine/2026-01-01-aaaa"}
    assert reused.raw == "../../mine/2026-01-01-aaaa/control.raw/p-trial-1"
    assert EarlierTrials(tmp_path, old).find(wanted) == {}


def test_a_trial_that_these_graders_judged_comes_before_an_older_one(
    spec: Callable[..., TrialSpec], tmp_path: Path
) -> None:
    asked = spec("What?")
    by: dict[str, TrialSpec] = {
        version: msgspec.structs.replace(
            asked, identity=Identity(adapter="demo", graders={"judge": version})
        )
        for version in ("1", "2", "3")
    }
    for version, day in (("1", "01"), ("2", "02")):
        folder = tmp_path / "mine" / f"2026-01-{day}-aaaa"
        folder.mkdir(parents=True)
        row = trial_result(by[version], [entry(1, pass_=version == "2")], graded=True)
        (folder / "control.jsonl").write_bytes(msgspec.json.encode(row) + b"\n")
        sign(folder)
    known = EarlierTrials(tmp_path, tmp_path / "mine" / "new")
    judged = {version: next(iter(known.find([one]).values())) for version, one in by.items()}
    assert {version: one.is_graded for version, one in judged.items()} == {
        "1": True,
        "2": True,
        "3": False,
    }
    assert {version: one.trial.verdict for version, one in judged.items()} == {
        "1": False,
        "2": True,
        "3": True,  # the newest
    }
