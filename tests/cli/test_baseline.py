"""assay baseline: what may be pooled, what is refused, and what a kill leaves."""

import json
import os
import re
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

# The prompt says how often of ten it passes; the folder's number of calls is the dice.
SCRIPT = 'n=$(cat "n-{0}" 2>/dev/null || echo 0); echo $((n+1)) > "n-{0}"; '
SCRIPT += "if [ $((n % 10)) -lt {1} ]; then say yes; else say no; fi"


@pytest.fixture
def run(
    assay: Callable[..., Any], shell_agent: Path, prompts: Callable[..., Path], tmp_path: Path
) -> Callable[..., Path]:
    """Run trials of eight prompts with an agent that says yes or no."""
    rows = [
        {"id": f"p{i}", "input": SCRIPT.format(i, passes), "hint": "yes"}
        for i, passes in enumerate((10, 10, 9, 8, 6, 5, 3, 0))
    ]
    file = prompts(*rows)

    def run(name: str, *more: Any, k: int = 2, command: str = "trials") -> Path:
        path = tmp_path / f"{name}.jsonl"
        times = () if command == "capture" else ("-k", k)
        words = (command, file, "-s", shell_agent, "-g", "exact", *times, "-q", "-o", path, *more)
        done = assay(*words)
        assert done.code == 0, done.stderr
        return path

    return run


def rows_of(path: Path) -> dict[str, Any]:
    return {row["id"]: row for row in map(json.loads, path.read_text().splitlines())}


def test_builds_are_pooled_and_every_trial_knows_its_own(
    assay: Callable[..., Any], run: Callable[..., Path], tmp_path: Path
) -> None:
    one, two, single = run("one"), run("two", k=3), run("single", command="capture")
    baseline = tmp_path / "b.jsonl"
    done = assay("baseline", "add", one, f"second:{two}", single, "--to", baseline)
    assert done.code == 0, done.stderr
    assert f"one starts {baseline}: 16 trials" in done.stderr
    assert f"second added to {baseline}: 24 trials" in done.stderr
    pooled = rows_of(baseline)
    for row in pooled.values():
        assert row["k"] == row["nMeasured"] == 6
        assert [entry["trialNum"] for entry in row["trials"]] == [1, 2, 3, 4, 5, 6]
        labels = [entry["build"]["label"] for entry in row["trials"]]
        assert labels == ["one"] * 2 + ["second"] * 3 + ["single"]
        passes = [entry["pass"] for entry in row["trials"]]
        assert row["passRate"] == sum(passes) / 6
        assert "raw" not in row["trials"][0]
    kept = {**rows_of(one)["p3"]["trials"][1], "trialNum": 2}
    assert {k: v for k, v in pooled["p3"]["trials"][1].items() if k != "build"} == {
        k: v for k, v in kept.items() if k != "raw"
    }


def test_every_command_reads_it(
    assay: Callable[..., Any], run: Callable[..., Path], tmp_path: Path
) -> None:
    files = [run(name) for name in ("one", "two", "three")]
    baseline = tmp_path / "b.jsonl"
    assert assay("baseline", "add", *files[:2], "--to", baseline, "-q").stderr == ""
    compared = assay("compare", baseline, files[2], "--strict")
    assert compared.code == 0, compared.stderr
    health = json.loads(compared.stdout)["health"]["b"]
    assert health["baseline"]["nBuilds"] == 2
    assert "pooled from 2 builds; " in assay("compare", baseline, files[2], "-f", "table").stdout
    for words in (("report", baseline, files[2], "-f", "markdown"), ("summarize", baseline)):
        assert assay(*words).code == 0
    assert assay("plan", baseline, "-d", "0.3").code == 0
    graded = tmp_path / "graded.jsonl"
    assert assay("grade", baseline, "-g", "contains", "-o", graded).code == 0
    shown = assay("baseline", "show", graded)
    assert shown.code == 0, shown.stderr
    assert "8 prompts, 32 trials" in shown.stdout


def test_the_same_build_changes_nothing_and_a_longer_one_takes_its_place(
    assay: Callable[..., Any], run: Callable[..., Path], tmp_path: Path
) -> None:
    one, baseline = run("one"), tmp_path / "b.jsonl"
    assay("baseline", "add", one, "--to", baseline)
    before = baseline.read_bytes()
    shuffled = tmp_path / "renamed.jsonl"
    shuffled.write_text("".join(reversed(one.read_text().splitlines(keepends=True))))
    done = assay("baseline", "add", shuffled, one, "--to", baseline)
    assert done.code == 0
    assert "renamed is in" in done.stderr
    assert baseline.read_bytes() == before
    longer = run("one", "--resume", k=4)
    assert "takes the place" in assay("baseline", "add", longer, "--to", baseline).stderr
    assert {row["k"] for row in rows_of(baseline).values()} == {4}
    shuffled.write_bytes(before)


@pytest.mark.parametrize(
    ("change", "named"),
    [
        (("-g", "exact", "-g", "contains"), "the grader contains (none before, 1 now)"),
        (("-t", "30000"), "the limit turnMs (60000 before, 30000 now)"),
    ],
)
def test_another_set_up_is_refused_and_named(
    assay: Callable[..., Any],
    run: Callable[..., Path],
    tmp_path: Path,
    change: tuple[str, ...],
    named: str,
) -> None:
    baseline, other = tmp_path / "b.jsonl", run("other", *change)
    assay("baseline", "add", run("one"), "--to", baseline)
    before = baseline.read_bytes()
    done = assay("baseline", "add", other, "--to", baseline)
    assert done.code == 1
    assert named in done.stderr
    assert "--replace" in done.stderr
    assert baseline.read_bytes() == before
    done = assay("baseline", "add", other, "--to", baseline, "--replace")
    assert done.code == 0
    assert f"note: {named}" in done.stderr
    labels = {e["build"]["label"] for row in rows_of(baseline).values() for e in row["trials"]}
    assert labels == {"other"}


def test_a_changed_prompt_is_refused_and_a_new_one_is_added(
    assay: Callable[..., Any], run: Callable[..., Path], tmp_path: Path
) -> None:
    one, baseline = run("one"), tmp_path / "b.jsonl"
    assay("baseline", "add", one, "--to", baseline)
    rows = rows_of(run("two"))
    rows["p1"]["specHash"] = "0123456789abcdef-01234567"
    changed = tmp_path / "changed.jsonl"
    changed.write_text("".join(json.dumps(row) + "\n" for row in rows.values()))
    done = assay("baseline", "add", changed, "--to", baseline)
    assert done.code == 1
    assert "the prompt p1 changed" in done.stderr
    other = tmp_path / "other.jsonl"
    other.write_bytes(baseline.read_bytes())
    done = assay("baseline", "add", changed, "--to", other, "--replace")
    assert "changed and begun again: the prompt p1" in done.stderr, "the others keep their builds"
    assert {id_: row["k"] for id_, row in rows_of(other).items()} == {
        id_: 2 if id_ == "p1" else 4 for id_ in rows
    }
    assert rows_of(other)["p1"]["specHash"] == rows["p1"]["specHash"]
    rows = rows_of(run("three"))
    rows["new"] = rows.pop("p7") | {"id": "new"}
    changed.write_text("".join(json.dumps(row) + "\n" for row in rows.values()))
    short = assay("baseline", "add", changed, "--to", baseline)
    assert short.code == 1, "one of eight prompts is missing: more than a tenth"
    assert "the run lacks 1 of 8 prompts of the baseline: p7" in short.stderr
    assert "--replace" in short.stderr
    rows["p7"] = rows_of(run("four"))["p7"]
    changed.write_text("".join(json.dumps(row) + "\n" for row in rows.values()))
    done = assay("baseline", "add", changed, "--to", baseline)
    assert done.code == 0, done.stderr
    assert "new in the baseline: the prompt new" in done.stderr
    assert rows_of(baseline)["new"]["k"] == 2


def test_many_prompts_removed_on_purpose_start_the_baseline_again(
    assay: Callable[..., Any], run: Callable[..., Path], tmp_path: Path
) -> None:
    baseline = tmp_path / "b.jsonl"
    assay("baseline", "add", run("one"), "--to", baseline)
    fewer = tmp_path / "fewer.jsonl"
    fewer.write_text(
        "".join(json.dumps(row) + "\n" for row in list(rows_of(run("two")).values())[:6])
    )
    done = assay("baseline", "add", fewer, "--to", baseline, "--replace")
    assert done.code == 0, done.stderr
    assert f"fewer starts {baseline}: 12 trials" in done.stderr
    assert "note: the run lacks 2 of 8 prompts of the baseline: p6, p7" in done.stderr
    assert len(rows_of(baseline)) == 6
    before = baseline.read_bytes()
    assert (
        "nothing was changed"
        in assay("baseline", "add", fewer, "--to", baseline, "--replace").stderr
    )
    assert baseline.read_bytes() == before


def test_what_was_not_measured_is_left_out_and_an_unhealthy_run_refused(
    assay: Callable[..., Any], run: Callable[..., Path], tmp_path: Path
) -> None:
    baseline = tmp_path / "b.jsonl"
    rows = rows_of(run("one", k=4))
    lost = rows["p1"]["trials"][1]
    lost["failure"] = {"cause": "provider", "message": "down"}
    del lost["pass"], lost["score"]
    timed_out = rows["p2"]["trials"][0]
    timed_out["failure"] = {"cause": "agent_timeout", "message": "slow"}
    del timed_out["pass"], timed_out["score"]
    some = tmp_path / "some.jsonl"
    some.write_text("".join(json.dumps(row) + "\n" for row in rows.values()))
    done = assay("baseline", "add", some, "--to", baseline)
    assert done.code == 0, done.stderr
    assert "31 trials, 1 not measured and left out" in done.stderr
    assert len(rows_of(baseline)["p1"]["trials"]) == 3
    assert rows_of(baseline)["p2"]["failures"] == {"agent_timeout": 1}
    before = baseline.read_bytes()
    for row in list(rows.values())[:4]:
        for entry in row["trials"]:
            entry["failure"] = {"cause": "auth", "message": "not logged in"}
            entry.pop("pass", None)
    some.write_text("".join(json.dumps(row) + "\n" for row in rows.values()))
    for target, kept in ((baseline, before), (tmp_path / "other.jsonl", None)):
        done = assay("baseline", "add", some, "--to", target, "--replace")
        assert done.code == 1
        assert "the measurement is unhealthy (50% of the planned trials" in done.stderr
        assert (target.read_bytes() if target.exists() else None) == kept


def test_a_build_that_crashed_in_every_trial_is_no_measurement(
    assay: Callable[..., Any], run: Callable[..., Path], tmp_path: Path
) -> None:
    baseline, down = tmp_path / "b.jsonl", tmp_path / "down.jsonl"
    assay("baseline", "add", run("one"), "--to", baseline)
    before = baseline.read_bytes()
    rows = rows_of(run("two"))
    crashed = {"failure": {"cause": "agent_crash", "message": "API Error: 529"}}
    for row in rows.values():
        row["trials"] = [{**one, "pass": False, "score": 0, **crashed} for one in row["trials"]]
    down.write_text("".join(json.dumps(row) + "\n" for row in rows.values()))
    for target in (baseline, tmp_path / "other.jsonl"):
        done = assay("baseline", "add", down, "--to", target, "--replace")
        assert done.code == 1
        assert "unhealthy (all 16 trials failed alike: agent crashed)" in done.stderr
    assert baseline.read_bytes() == before
    for more in ((), ("--sequential",)):
        gate = ("--fail-on", "regression", "--margin", "0.3", *more)
        assert assay("compare", baseline, down, *gate).code == 4
    rows["p0"]["trials"][0] = {**rows["p0"]["trials"][0], "failure": None}
    down.write_text("".join(json.dumps(row) + "\n" for row in rows.values()))
    done = assay("baseline", "add", down, "--to", baseline)
    assert "alike" not in done.stderr, "one trial was answered"


@pytest.mark.parametrize("name", ["rows of another harness", "a run in place of a baseline"])
def test_other_files_are_refused(
    assay: Callable[..., Any], run: Callable[..., Path], tmp_path: Path, name: str
) -> None:
    one = run("one")
    rows = rows_of(one)
    for row in rows.values():
        del row["identity"]
    plain = tmp_path / "plain.jsonl"
    plain.write_text("".join(json.dumps(row) + "\n" for row in rows.values()))
    if name.startswith("rows"):
        done = assay("baseline", "add", plain, "--to", tmp_path / "b.jsonl")
        assert "does not say what it was made from" in done.stderr
        assert not (tmp_path / "b.jsonl").exists()
    else:
        before = one.read_bytes()
        done = assay("baseline", "add", run("two"), "--to", one)
        assert "is not of a pooled baseline" in done.stderr
        assert one.read_bytes() == before
        assert assay("baseline", "show", one).code == 1
        assert assay("baseline", "prune", one, "--keep", 1).code == 1
    assert done.code == 1


def test_old_builds_are_pruned(
    assay: Callable[..., Any], run: Callable[..., Path], tmp_path: Path
) -> None:
    baseline = tmp_path / "b.jsonl"
    for age_days, name in ((40, "old"), (20, "middle"), (1, "young")):
        path = run(name)
        os.utime(path, (time.time() - 86400 * age_days,) * 2)
        assay("baseline", "add", path, "--to", baseline)
    assert assay("baseline", "prune", baseline).code == 2
    assert "0 builds removed" in assay("baseline", "prune", baseline, "--keep", 3).stderr
    done = assay("baseline", "prune", baseline, "--older-than", 30)
    assert done.stderr == "1 build removed: old\n"
    done = assay("baseline", "prune", baseline, "--keep", 1)
    assert done.stderr == "1 build removed: middle\n"
    about = json.loads(assay("baseline", "show", baseline, "--json").stdout)
    assert [build["label"] for build in about["builds"]] == ["young"]
    assert about["nTrials"] == 16
    assert assay("baseline", "prune", baseline, "--older-than", 0).code == 1
    assert assay("baseline", "prune", tmp_path / "none.jsonl", "--keep", 1).code == 1
    assert not (tmp_path / "none.jsonl").exists()


def test_of_builds_with_one_date_the_last_that_was_added_is_kept(
    assay: Callable[..., Any], run: Callable[..., Path], tmp_path: Path
) -> None:
    baseline = tmp_path / "b.jsonl"
    for name in ("first", "second", "third"):
        path = run(name)
        os.utime(path, (1_700_000_000,) * 2)
        assay("baseline", "add", path, "--to", baseline)
    done = assay("baseline", "prune", baseline, "--keep", 1)
    assert done.stderr == "2 builds removed: second, first\n"


def test_drift_is_said(assay: Callable[..., Any], tmp_path: Path, run: Callable[..., Path]) -> None:
    baseline = tmp_path / "b.jsonl"
    template = next(iter(rows_of(run("one", k=1)).values()))
    for build in range(6):
        rows = []
        for n in range(40):
            entries = [
                {**template["trials"][0], "trialNum": t + 1, "duration": 100 * build + n + t / 7,
                 "pass": (n * 7 + t * 3 + build) % 10 >= build, "score": 1.0}
                for t in range(4)
            ]  # fmt: skip
            about = {"id": f"p{n}", "specHash": f"{n:016d}", "trials": entries, "k": 4}
            rows.append({**template, **about})
        path = tmp_path / f"build-{build}.jsonl"
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
        os.utime(path, (1_700_000_000 + 86400 * build,) * 2)
        assert assay("baseline", "add", path, "--to", baseline).code == 0
    shown = assay("baseline", "show", baseline).stdout
    assert "DRIFT: the builds do not measure the same, -0." in shown
    checked = assay("baseline", "show", baseline, "--check")
    assert checked.code == 4
    assert "assay baseline prune --keep" in checked.stderr
    table = assay("compare", baseline, tmp_path / "build-5.jsonl", "-f", "table").stdout
    assert "DRIFT" in table.splitlines()[0]
    _check_that_nothing_is_judged(assay, baseline, tmp_path / "build-5.jsonl")


def _check_that_nothing_is_judged(assay: Callable[..., Any], baseline: Path, last: Path) -> None:
    gate = ("--fail-on", "regression", "--margin", "0.2")
    done = assay("compare", baseline, last, *gate, "--sequential", "-f", "table")
    assert done.code == 4, "the baseline is a mean of the past"
    advice = re.search(r"assay baseline prune --keep (\d)", done.stdout)
    assert advice, done.stdout
    planned = assay("plan", "--against", baseline, *gate)
    assert planned.code == 4
    assert "cannot be judged against: its builds drift (-0." in planned.stderr
    prompts = last.with_name("many.jsonl")
    prompts.write_text("".join(f'{{"id": "p{n}", "input": "q", "hint": "x"}}\n' for n in range(40)))
    until = ("--until", "decided", "--against", baseline, "--margin", "0.2")
    output = ("-o", last.with_name("new.jsonl"))
    tried = assay("trials", prompts, "-s", "demo", "-g", "exact", *until, *output)
    assert tried.code == 4
    assert advice[0] in tried.stderr
    assert assay("baseline", "prune", baseline, "--keep", advice[1]).code == 0
    wide = (*gate[:3], "0.3")
    assert assay("compare", baseline, last, *wide, "--sequential").code == 0
    assert assay("plan", "--against", baseline, *gate).code == 0


def test_one_writer_and_a_kill_leaves_the_old_file(
    assay: Callable[..., Any],
    start: Callable[..., Any],
    run: Callable[..., Path],
    tmp_path: Path,
) -> None:
    import fcntl

    baseline, one, two = tmp_path / "b.jsonl", run("one"), run("two")
    assay("baseline", "add", one, "--to", baseline)
    before = baseline.read_bytes()
    with baseline.open("rb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        done = assay("baseline", "add", two, "--to", baseline)
    assert done.code == 1
    assert "is being written by another assay process" in done.stderr
    for delay_s in (0.15, 0.3, 0.45, 0.6, 0.9):
        process = start("baseline", "add", two, "--to", baseline)
        time.sleep(delay_s)
        process.send_signal(signal.SIGKILL)
        process.wait()
        after = baseline.read_bytes()
        if after != before:
            break
    assert assay("baseline", "add", two, "--to", baseline).code == 0
    assert {row["k"] for row in rows_of(baseline).values()} == {4}
    assert json.loads(assay("baseline", "show", baseline, "--json").stdout)["nTrials"] == 32


def test_trials_are_spent_where_the_baseline_varies(
    assay: Callable[..., Any], run: Callable[..., Path], tmp_path: Path
) -> None:
    baseline = tmp_path / "b.jsonl"
    assay("baseline", "add", run("one", k=10), "--to", baseline)
    rows = rows_of(run("branch", "--allocate", baseline, k=4))
    numbers = {row_id: row["k"] for row_id, row in rows.items()}
    assert sum(numbers.values()) == 32
    assert numbers["p5"] > numbers["p2"] > numbers["p0"] >= 1
    for row in rows.values():
        assert len(row["trials"]) == row["k"] == row["allocation"]["trials"]
    assert {row["allocation"]["mean"] for row in rows.values()} == {4}
    compared = assay("compare", baseline, tmp_path / "branch.jsonl", "--strict")
    assert compared.code == 0, compared.stderr
    pair = json.loads(compared.stdout)["pairs"][0]["passRate"]
    means = [row["passRate"] for row in rows.values()]
    assert pair["meanB"] == pytest.approx(sum(means) / len(means))
    more = rows_of(run("branch", "--allocate", baseline, "--resume", k=5))
    assert sum(row["k"] for row in more.values()) >= 40
    same = (tmp_path / "branch.jsonl").read_bytes()
    run("branch", "--allocate", baseline, "--resume", k=5)
    assert (tmp_path / "branch.jsonl").read_bytes() == same
    done = assay("trials", "x.jsonl", "-s", "demo", "--allocate", tmp_path / "none.jsonl")
    assert done.code == 2


def test_plan_prints_how_often_the_gate_is_right(
    assay: Callable[..., Any], run: Callable[..., Path], tmp_path: Path
) -> None:
    rows = rows_of(run("one", k=10))
    many = tmp_path / "many.jsonl"
    with many.open("w") as file:
        for n in range(48):
            file.write(json.dumps({**rows[f"p{n % 8}"], "id": f"q{n}"}) + "\n")
    gate = ("--fail-on", "regression", "--margin", "0.2", "-d", "0.2", "-k", "8")
    done = assay("plan", "--against", many, *gate, "--json")
    assert done.code == 0, done.stderr
    found = json.loads(done.stdout)["gate"]
    assert found["goodPasses"] > 0.9
    assert found["badStopped"] > 0.9
    assert found["goodTrials"] < found["mostTrials"] == 48 * 8
    assert "of 100 builds of an unchanged agent" in assay("plan", "--against", many, *gate).stdout
    assert assay("plan", many, "--against", many, *gate).code == 2
    assert assay("plan", "--against", many).code == 2


def test_a_baseline_that_somebody_changed_is_said_until_it_is_signed(
    assay: Callable[..., Any], run: Callable[..., Path], tmp_path: Path
) -> None:
    """An agent with `-c REPO` writes to the checkout, with the baseline in it."""
    one, two, three = run("one"), run("two", k=3), run("three")
    baseline = tmp_path / "b.jsonl"
    assay("baseline", "add", one, "--to", baseline)
    former = baseline.read_bytes()
    assay("baseline", "add", two, "--to", baseline)
    whole = baseline.read_bytes()
    words = "not as Assay signed them"
    assert words not in assay("baseline", "show", baseline).stdout
    forged = whole.replace(b'"pass":true', b'"pass":false', 1)
    for content, n in ((former, "8 rows are"), (forged, "1 row is")):
        assert content != whole
        baseline.write_bytes(content)
        assert f"{n} {words}" in assay("baseline", "show", baseline).stdout
        assert f"{n} {words}" in assay("compare", baseline, three, "-f", "table").stdout
    added = assay("baseline", "add", three, "--to", baseline)
    assert words in added.stderr, "what is added does not sign the rest"
    signed = assay("baseline", "sign", baseline)
    assert "8 rows" in signed.stderr
    assert words not in assay("baseline", "show", baseline).stdout
