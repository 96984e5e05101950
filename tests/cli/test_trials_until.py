"""assay trials --until decided: it stops as soon as it knows, and what is on disk is honest."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

N = 60
GOOD = 'echo "$PROMPT" >> starts; echo ok'
BROKEN = 'echo "$PROMPT" >> starts; echo no'


@pytest.fixture
def sixty(prompts: Callable) -> Path:
    path: Path = prompts(*({"id": f"p{i}", "input": f"q{i}", "hint": "ok"} for i in range(N)))
    return path


@pytest.fixture
def base(tmp_path: Path) -> Path:
    """Three trials of each prompt, all passed."""
    entry = {"output": "ok", "trajectory": [], "duration": 1, "pass": True, "score": 1}
    rows = [
        {"id": f"p{i}", "input": f"q{i}", "k": 3, "metadata": {}}
        | {"trials": [{"trialNum": n} | entry for n in (1, 2, 3)]}
        for i in range(N)
    ]
    path = tmp_path / "base.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


@pytest.fixture
def trials(assay: Callable, sixty: Path, base: Path, tmp_path: Path) -> Callable[..., Any]:
    def run(agent: str, *more: Any, margin: float = 0.2, seed: int | None = 1) -> Any:
        given = ("-g", "contains", "-k", 2, "-o", tmp_path / "new.jsonl", "--margin", margin)
        until = ("--until", "decided", "--against", base)
        until += () if "--seed" in more or seed is None else ("--seed", seed)
        return assay("trials", sixty, "--shell", agent, *given, *until, *more)

    return run


def starts(tmp_path: Path) -> list[str]:
    return (tmp_path / "starts").read_text().split()


def rows(tmp_path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (tmp_path / "new.jsonl").read_text().splitlines()]


def test_an_unchanged_agent_passes_when_every_prompt_has_run_once(trials: Callable, tmp_path: Path):
    done = trials(GOOD)
    assert done.code == 0, done.stderr
    n = len(starts(tmp_path))
    assert n == N
    assert "regression against base: pass (a loss of 20 points is ruled out: " in done.stderr
    assert f"{n} trials used; a fixed design with the same errors needs about " in done.stderr
    assert f"{n} of {2 * N} trials" in done.stderr
    assert "--resume" not in done.stderr
    # One trial of each prompt that ran, and nothing of the others.
    assert [row["k"] for row in rows(tmp_path)] == [1] * n
    assert [row["nMeasured"] for row in rows(tmp_path)] == [1] * n
    assert not (tmp_path / "new.jsonl.partial").exists()


def test_an_agent_that_always_crashes_cannot_be_judged(trials: Callable, tmp_path: Path):
    done = trials('echo "$PROMPT" >> starts; echo "API Error: 529" >&2; exit 1', "-q")
    assert done.code == 4, done.stderr
    assert "undecided (the measurement is unhealthy: all " in done.stderr
    assert "failed alike: agent crashed" in done.stderr
    assert len(starts(tmp_path)) < 12


def test_a_broken_agent_fails_after_a_few_prompts(trials: Callable, tmp_path: Path):
    done = trials(BROKEN, "-q")
    assert done.code == 3
    assert len(starts(tmp_path)) < 12
    assert "regression against base: fail (worse: " in done.stderr


def seeds_in(tmp_path: Path) -> set[int]:
    return {trial["metadata"]["orderSeed"] for r in rows(tmp_path) for trial in r["trials"]}


def test_every_run_has_an_order_of_its_own(trials: Callable, tmp_path: Path):
    orders, seeds = [], []
    for seed in (1, 2, 1, None):
        trials(GOOD, "--overwrite", seed=seed)
        orders.append(starts(tmp_path))
        (tmp_path / "starts").unlink()
        seeds.append(
            {trial["metadata"]["orderSeed"] for r in rows(tmp_path) for trial in r["trials"]}
        )
    assert [sorted(order) for order in orders] == [sorted(f"q{i}" for i in range(N))] * 4
    assert orders[0] == orders[2]
    assert len({tuple(order) for order in orders}) == 3
    assert seeds[:3] == [{1}, {2}, {1}]
    assert orders[0] != [f"q{i}" for i in range(N)]
    assert min(seeds[3]) > 1_700_000_000  # the time


def test_a_run_that_goes_on_keeps_its_order(trials: Callable, tmp_path: Path):
    trials(GOOD, seed=7)
    whole = starts(tmp_path)
    kept = rows(tmp_path)[:10]
    out = tmp_path / "new.jsonl"
    out.write_text("".join(out.read_text().splitlines(keepends=True)[:10]))
    (tmp_path / "starts").unlink()
    trials(GOOD, "--resume", seed=None)
    assert starts(tmp_path) == [
        one for one in whole if f"p{one[1:]}" not in {r["id"] for r in kept}
    ]
    assert {trial["metadata"]["orderSeed"] for r in rows(tmp_path) for trial in r["trials"]} == {7}


def test_what_failed_last_time_comes_first(trials: Callable, base: Path, tmp_path: Path):
    lines = [json.loads(line) for line in base.read_text().splitlines()]
    for line in lines[10:15]:
        line["trials"][-1] |= {"pass": False, "score": 0}
    lines[20]["trials"][0] |= {"pass": False, "score": 0}  # and passed since
    base.write_text("".join(json.dumps(line) + "\n" for line in lines))
    trials(GOOD)
    assert sorted(starts(tmp_path)[:5]) == [f"q{i}" for i in range(10, 15)]


def test_those_that_run_at_once_finish_and_are_kept(trials: Callable, tmp_path: Path):
    done = trials(f"sleep 0.1; {BROKEN}", "-j", 8)
    assert done.code == 3
    assert len(rows(tmp_path)) == len(starts(tmp_path)) < 30


def test_what_stays_open_is_undecided_and_a_larger_k_goes_on(trials: Callable, tmp_path: Path):
    """One of eight prompts fails now: too many to rule a loss out, too few to show it."""
    some = f"case $PROMPT in q7|q14|q21|q28|q35|q42|q49) {BROKEN};; *) {GOOD};; esac"
    done = trials(some)
    assert done.code == 4, done.stderr
    assert "regression against base: undecided (neither a loss nor its absence" in done.stderr
    assert len(starts(tmp_path)) == 2 * N
    again = trials(some, "--resume")
    assert again.code == 4
    assert len(starts(tmp_path)) == 2 * N
    more = trials(some, "--resume", "-k", 3)
    assert len(starts(tmp_path)) == 3 * N
    assert more.code == 4


def test_resuming_what_is_decided_starts_nothing(trials: Callable, tmp_path: Path):
    trials(GOOD)
    before = starts(tmp_path)
    done = trials(GOOD, "--resume")
    assert done.code == 0, done.stderr
    assert starts(tmp_path) == before
    assert f"{len(before)} trials used" in done.stderr
    assert len(rows(tmp_path)) == len(before)


def test_prompts_that_always_pass_are_not_repeated_for_nothing(trials: Callable, tmp_path: Path):
    """Sixty prompts are too few to pass at the first looks, and repeats tell nothing new."""
    done = trials(GOOD, margin=0.06)
    assert done.code == 0, done.stderr
    assert len(starts(tmp_path)) == N
    again = trials(GOOD, "--resume", margin=0.06)
    assert again.code == 0, again.stderr
    assert len(starts(tmp_path)) == N


def test_an_interrupted_run_goes_on_with_its_trials(trials: Callable, tmp_path: Path):
    """A row of one trial and a finished trial in the journal both count."""
    trials(GOOD)
    kept = rows(tmp_path)
    out = tmp_path / "new.jsonl"
    out.write_text("".join(out.read_text().splitlines(keepends=True)[:10]))
    before = len(starts(tmp_path))
    done = trials(GOOD, "--resume")
    assert done.code == 0, done.stderr
    assert len(starts(tmp_path)) - before == before - 10
    assert sorted(row["id"] for row in rows(tmp_path)) == sorted(row["id"] for row in kept)


def test_an_unhealthy_measurement_is_not_judged(trials: Callable, tmp_path: Path):
    (tmp_path / "grader.py").write_text(
        "def grade(input, output):\n"
        "    if int(input[1:]) % 2 == 0:\n"
        "        raise ValueError(input)\n"
        "    return {'pass': False, 'score': 0.0}\n"
    )
    done = trials(GOOD, "-g", tmp_path / "grader.py")
    assert done.code not in (0, 3), done.stderr
    assert "undecided (the measurement is unhealthy: " in done.stderr


@pytest.mark.parametrize(
    ("left_out", "why"),
    [
        (("-g", "contains"), "needs a grader"),
        (("-o", "new.jsonl"), "needs -o FILE"),
        (("--against", "base.jsonl"), "need each other"),
        (("--until", "decided"), "need each other"),
    ],
)
def test_what_it_needs(
    assay: Callable, sixty: Path, base: Path, left_out: tuple[str, str], why: str
):
    given = [("-g", "contains"), ("-o", "new.jsonl"), ("--against", "base.jsonl")]
    given.append(("--until", "decided"))
    words = [word for option in given if option != left_out for word in option]
    done = assay("trials", sixty, "--shell", GOOD, "--margin", 0.2, *words)
    assert done.code == 2
    assert why in done.stderr


def test_what_can_never_be_decided_is_refused_before_it_costs_anything(
    trials: Callable, base: Path, tmp_path: Path
):
    done = trials(GOOD, margin=0.02)
    assert done.code == 4
    assert "60 of 60 prompts. So few can never show that a loss of 0.02 is absent" in done.stderr
    lines = base.read_text().splitlines(keepends=True)
    base.write_text("".join(lines[:4]))
    done = trials(GOOD)
    assert done.code == 1
    assert "has 4 of 60 prompts, and at least 6 are needed" in done.stderr
    assert not (tmp_path / "starts").exists()


def test_other_graders_or_inputs_are_no_regression_test(
    trials: Callable, assay: Callable, base: Path, tmp_path: Path
):
    rows_of_base = [json.loads(line) for line in base.read_text().splitlines()]
    for row in rows_of_base:
        for trial in row["trials"]:
            trial["grades"] = {"contains": {"pass": True, "score": 1.0, "version": "0"}}
    base.write_text("".join(json.dumps(row) + "\n" for row in rows_of_base))
    done = trials(GOOD)
    assert done.code == 4, done.stderr
    assert "cannot be judged (a gate compares like with like, but grader contains" in done.stderr
    assert "differs: base: 0; this run: 1" in done.stderr
    for row in rows_of_base:
        row["input"] = "trivial"
        for trial in row["trials"]:
            del trial["grades"]
    base.write_text("".join(json.dumps(row) + "\n" for row in rows_of_base))
    done = trials(GOOD)
    assert done.code == 4, done.stderr
    assert "60 prompts (p0, p1, p2, p3, p4, …) have another input" in done.stderr
    assert not (tmp_path / "starts").exists()


def test_prompts_that_the_plan_lacks_are_named(
    trials: Callable, sixty: Path, base: Path, tmp_path: Path
):
    lines = sixty.read_text().splitlines(keepends=True)
    sixty.write_text("".join(lines[:50]))
    done = trials(GOOD)
    assert done.code == 4
    assert "10 prompts (p50, p51, p52, p53, p54, …) are not in the plan" in done.stderr
    assert not (tmp_path / "starts").exists()
    sixty.write_text("".join(lines[:57]))
    done = trials(GOOD)
    assert done.code == 0, done.stderr
    assert "3 prompts (p57, p58, p59) are not in the plan" in done.stderr
    sixty.write_text("".join(lines))
    assert trials(GOOD, "--limit", 50, "--overwrite").code == 0


def test_compare_repeats_what_the_last_look_decided(
    trials: Callable, assay: Callable, base: Path, tmp_path: Path
):
    """Sixty prompts pass at the last look only; one more look would say: go on."""
    assert trials(GOOD, margin=0.06).code == 0
    new = tmp_path / "new.jsonl"
    gate = ("--fail-on", "regression", "--sequential", "--margin")
    done = assay("compare", base, new, *gate, 0.06)
    assert done.code == 0, done.stderr
    assert "60 trials used" in done.stderr
    assert assay("compare", base, new, *gate, 0.061).code == 4
    new.write_text("".join(new.read_text().splitlines(keepends=True)[::-1]))
    assert assay("compare", base, new, *gate, 0.06).code == 4


def test_what_ran_beside_the_decision_is_told(trials: Callable):
    done = trials(f"sleep 0.1; {BROKEN}", "-j", 8)
    assert "that ran at the same time are in the file, not in the decision" in done.stderr


def test_a_budget_that_ends_leaves_the_gate_open_and_the_rows_in_the_file(
    assay: Callable, sixty: Path, base: Path, tmp_path: Path
):
    words = ("-g", "contains", "-k", 2, "-o", tmp_path / "new.jsonl", "--margin", 0.1)
    until = ("--until", "decided", "--against", base, "--max-cost", 0.001)
    done = assay("trials", sixty, "-s", "demo", *words, *until)
    assert done.code == 4, done.stderr
    assert "Stopped at --max-cost" in done.stderr
    assert rows(tmp_path)
