"""assay trials: every trial counts once, is on disk at once, and is what capture would give."""

import json
import os
import random
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

COUNTING = """
def grade(trajectory):
    said = [step["content"] for step in trajectory if step["type"] == "message"]
    odd = len(said[0]) % 2 == 1
    return {"pass": odd, "score": 1.0 if odd else 0.25, "reasoning": f"{len(said[0])} starts"}
"""
"""Passes on every other start of a prompt that leaves a mark in a file and reads it out."""
MARK = "!do put starts x ; get starts"


@pytest.fixture
def grader(tmp_path: Path) -> Path:
    path = tmp_path / "grader.py"
    path.write_text(COUNTING)
    return path


def starts(folder: Path) -> int:
    path = folder / "starts"
    return len(path.read_text()) if path.exists() else 0


def partial(out: Path) -> Path:
    return out.with_name(out.name + ".partial")


def lines(path: Path) -> list[dict[str, Any]]:
    """Give the whole lines of a file that is perhaps being written."""
    data = path.read_bytes() if path.exists() else b""
    return [json.loads(line) for line in data[: data.rfind(b"\n") + 1].splitlines()]


def test_a_row_holds_the_seeds_numbers_and_the_unbiased_ones(
    assay: Callable, agent: Callable, prompts: Callable, grader: Path
):
    path = prompts({"id": "a", "input": MARK, "hint": "h", "metadata": {"category": "c"}, "own": 1})
    done = assay("trials", path, "-s", agent(), "-g", grader, "-k", 5)
    assert done.code == 0, done.stderr
    (row,) = done.rows
    assert (row["id"], row["input"], row["hint"], row["k"], row["own"]) == ("a", MARK, "h", 5, 1)
    assert row["metadata"] == {"category": "c", "agent": "scripted"}
    assert [t["trialNum"] for t in row["trials"]] == [1, 2, 3, 4, 5]
    assert [t["pass"] for t in row["trials"]] == [True, False, True, False, True]
    assert [t["score"] for t in row["trials"]] == [1, 0.25, 1, 0.25, 1]
    assert [t["reasoning"] for t in row["trials"]] == [f"{n} starts" for n in range(1, 6)]
    assert all(len(t["grades"]["grader"]["version"]) == 12 for t in row["trials"])
    assert row["passRate"] == pytest.approx(0.6)
    assert row["passAtK"] == pytest.approx(1 - 0.4**5)
    assert row["passExpK"] == pytest.approx(0.6**5)
    assert row["nMeasured"] == 5
    assert "failures" not in row
    assert [told["k"] for told in row["perK"]] == [1, 2, 3, 4, 5]
    assert [told["passAtK"] for told in row["perK"]] == pytest.approx([0.6, 0.9, 1, 1, 1])
    assert [told["passExpK"] for told in row["perK"]] == pytest.approx([0.6, 0.3, 0.1, 0, 0])
    for told in row["perK"]:
        low, high = told["passAtKInterval"]
        assert 0 <= low <= told["passAtK"] <= high <= 1
        low, high = told["passExpKInterval"]
        assert 0 <= low <= told["passExpK"] <= high <= 1


def test_without_a_grader_there_are_no_numbers(assay: Callable, agent: Callable, prompts: Callable):
    (row,) = assay("trials", prompts("hi"), "-s", agent(), "-k", 2).rows
    assert not {"passRate", "passAtK", "passExpK", "nMeasured", "perK"} & row.keys()
    assert all("pass" not in trial for trial in row["trials"])


@pytest.mark.parametrize(
    "text",
    [
        "!do result only the result",
        "!do say talk ; result said last",
        "!do say a ; noresult x",
        ["!do say one ; result first", "!do resumed x ; result second"],
        "!do call c1 Read a.txt ; done c1 text ; think hm ; result r",
    ],
)
def test_a_trial_is_what_capture_gives(
    assay: Callable, agent: Callable, prompts: Callable, text: Any
):
    path, schema = prompts({"id": "a", "input": text}), agent()
    (captured,) = assay("capture", path, "-s", schema).rows
    (row,) = assay("trials", path, "-s", schema, "-k", 1).rows
    (trial,) = row["trials"]
    assert trial["output"] == captured["output"]
    assert _timeless(trial["trajectory"]) == _timeless(captured["trajectory"])
    assert trial.get("failure") == captured.get("failure")
    assert trial.get("usage") == captured.get("usage")
    assert row["specHash"] == captured["specHash"]


def _timeless(steps: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{k: v for k, v in s.items() if k not in ("timestamp", "duration")} for s in steps]


def test_failed_trials_carry_their_cause_and_are_not_graded_as_complete(
    assay: Callable, agent: Callable, prompts: Callable, tmp_path: Path
):
    kind = tmp_path / "kind.py"
    kind.write_text("def grade(output):\n    return {'pass': True, 'score': 1.0}\n")
    path = prompts("!do say half ; wait 60", "!do say half ; exit 3", "fine")
    done = assay("trials", path, "-s", agent(), "-g", kind, "-k", 2, "-t", 1500, "-j", 6)
    assert done.code == 0, done.stderr
    slow, crashed, fine = sorted(done.rows, key=lambda row: row["id"])
    for row, cause in ((slow, "agent_timeout"), (crashed, "agent_crash")):
        assert [t["failure"]["cause"] for t in row["trials"]] == [cause] * 2
        assert [t["pass"] for t in row["trials"]] == [False, False]
        assert all("grades" not in t for t in row["trials"])
        assert row["failures"] == {cause: 2}
        assert (row["nMeasured"], row["passRate"]) == (2, 0)
    assert (fine["nMeasured"], fine["passRate"]) == (2, 1)


def test_what_does_not_measure_the_agent_is_not_measured(
    assay: Callable, agent: Callable, prompts: Callable, grader: Path, tmp_path: Path
):
    broken = tmp_path / "broken"
    broken.write_bytes(b"\x7fELF not a program")
    broken.chmod(0o755)
    schema = agent(command=[str(broken)])
    (row,) = assay("trials", prompts("hi"), "-s", schema, "-g", grader, "-k", 2).rows
    assert [t["failure"]["cause"] for t in row["trials"]] == ["spawn", "spawn"]
    assert all("pass" not in t and "score" not in t for t in row["trials"])
    assert row["failures"] == {"spawn": 2}
    assert (row["nMeasured"], row["perK"]) == (0, [])
    assert not {"passRate", "passAtK", "passExpK"} & set(row)


CLAUDE = """#!/bin/sh
case "$*" in *--version*) echo '2.0.0 (Claude Code)'; exit 0;; esac
echo x >> calls
if [ $(wc -l < calls) -eq 1 ]
then echo '{"type":"result","subtype":"success","is_error":false,"result":"xxx"}'
else echo '{"type":"result","subtype":"success","is_error":true,"terminal_reason":"api_error",\
"api_error_status":529,"result":"API Error: 529 overloaded, retry in 1 ms"}' | tr -d '\\\n'; echo
fi
"""
"""Answers once; then its provider is overloaded."""


def test_a_provider_that_is_down_is_no_failed_trial(
    assay: Callable, prompts: Callable, tmp_path: Path
):
    program = tmp_path / "bin" / "claude"
    program.parent.mkdir()
    program.write_text(CLAUDE)
    program.chmod(0o755)
    path = f"{program.parent}:{os.environ['PATH']}"
    done = assay(
        "trials", prompts("hi"), "-s", "claude", "-g", "contains:xxx", "-k", 3, env={"PATH": path}
    )
    (row,) = done.rows
    assert row["failures"] == {"provider": 2}
    assert [t.get("pass") for t in row["trials"]] == [True, None, None]
    assert (row["nMeasured"], row["passRate"]) == (1, 1)
    assert [told["k"] for told in row["perK"]] == [1]


def test_a_broken_grader_loses_no_trial(
    assay: Callable, agent: Callable, prompts: Callable, tmp_path: Path
):
    broken = tmp_path / "broken.py"
    broken.write_text("def grade(output):\n    raise RuntimeError('oops')\n")
    out = tmp_path / "t.jsonl"
    done = assay("trials", prompts("hi", "ho"), "-s", agent(), "-g", broken, "-k", 2, "-o", out)
    assert done.code == 1
    assert "4 trials were not graded" in done.stderr
    for row in lines(out):
        assert [t["output"] for t in row["trials"]] == [row["input"]] * 2
        assert all("oops" in t["graderFailures"]["broken"] for t in row["trials"])
        assert row["nMeasured"] == 0
        assert "passRate" not in row
    assert not partial(out).exists()


def test_each_trial_has_a_workspace(
    assay: Callable, agent: Callable, prompts: Callable, tmp_path: Path
):
    path = prompts({"id": "a/b", "input": "!do put note.txt hi ; ls x"})
    done = assay("trials", path, "-s", agent(), "-k", 2, "--workspace-dir", tmp_path / "w")
    (row,) = done.rows
    names = sorted(p.name for p in (tmp_path / "w").glob("prompt-*"))
    assert names == ["prompt-a_b-trial-1", "prompt-a_b-trial-2"]
    assert all((tmp_path / "w" / n / "note.txt").read_text() == "hi" for n in names)
    assert row["metadata"]["workspaceDir"] == str(tmp_path / "w")
    assert [Path(t["workspaceDir"]).name for t in row["trials"]] == names


@pytest.mark.parametrize("k", ["0", "-1", "abc", "1.5"])
def test_a_k_that_is_none_is_refused(assay: Callable, agent: Callable, prompts: Callable, k: str):
    done = assay("trials", prompts("hi"), "-s", agent(), "-k", k)
    assert done.code == 2
    assert "-k" in done.stderr
    assert done.stdout == ""


def test_killed_in_the_middle_only_missing_trials_run_again(
    start: Callable,
    assay: Callable,
    agent: Callable,
    prompts: Callable,
    grader: Path,
    eventually: Callable,
    tmp_path: Path,
):
    out, k = tmp_path / "t.jsonl", 6
    path = prompts(f"{MARK} ; wait 0.3")
    command = ("trials", path, "-s", agent(), "-g", grader, "-k", k, "-o", out)
    process = start(*command)
    assert eventually(lambda: len(lines(partial(out))) >= 2)
    process.kill()
    process.wait()
    finished = lines(partial(out))
    assert 2 <= len(finished) < k
    assert lines(out) == []
    time.sleep(0.5)  # an agent that was just starting has left its mark by now
    before = starts(tmp_path)
    done = assay(*command, "--resume")
    assert done.code == 0, done.stderr
    assert starts(tmp_path) - before == k - len(finished)
    (row,) = lines(out)
    assert [t["trialNum"] for t in row["trials"]] == list(range(1, k + 1))
    assert row["trials"][: len(finished)] == [line["entry"] for line in finished]
    assert row["nMeasured"] == k
    assert not partial(out).exists()
    assert assay(*command, "--resume").code == 0
    assert (len(lines(out)), starts(tmp_path) - before) == (1, k - len(finished))


def test_killed_at_many_moments_ends_with_every_trial_once(
    start: Callable,
    assay: Callable,
    agent: Callable,
    prompts: Callable,
    eventually: Callable,
    tmp_path: Path,
):
    chance, out, k, n = random.Random(3), tmp_path / "t.jsonl", 4, 5
    path = prompts(*["!do wait 0.1 ; say hi"] * n)
    command = ("trials", path, "-s", agent(), "-k", k, "-o", out, "-j", 3, "--resume")
    kept: dict[tuple[str, int], Any] = {}
    for _ in range(7):
        process = start(*command)
        if not kept:  # however slow the machine is, some kills come after the first trial
            assert eventually(lambda: lines(partial(out)))
        time.sleep(chance.uniform(0.3, 1.0))
        process.kill()
        process.wait()
        rows = lines(out)
        assert len({row["id"] for row in rows}) == len(rows)
        now = {(row["id"], t["trialNum"]): t for row in rows for t in row["trials"]}
        now |= {(x["id"], x["entry"]["trialNum"]): x["entry"] for x in lines(partial(out))}
        assert kept.items() <= now.items(), "a finished trial was lost or changed"
        kept = now
    assert kept, "the kills came too early to show anything"
    assert assay(*command).code == 0
    rows = lines(out)
    assert sorted(row["id"] for row in rows) == [f"p{i}" for i in range(n)]
    assert all([t["trialNum"] for t in row["trials"]] == [1, 2, 3, 4] for row in rows)
    final = {(row["id"], t["trialNum"]): t for row in rows for t in row["trials"]}
    assert kept.items() <= final.items()
    assert not partial(out).exists()


@pytest.fixture
def broken_off(
    assay: Callable,
    agent: Callable,
    prompts: Callable,
    grader: Path,
    sign: Callable,
    tmp_path: Path,
) -> Callable[..., tuple[list[Any], Path]]:
    """Give the command line and the output of a run that was killed.

    Of two prompts with three trials, the journal holds as many of each as the test says; the rows
    of prompts that the test names are written.
    """

    def make(*n_finished: int, written: tuple[str, ...] = ()) -> tuple[list[Any], Path]:
        out, path = tmp_path / "t.jsonl", prompts(MARK, MARK + " ; say 2")
        command = ["trials", path, "-s", agent(), "-g", grader, "-o", out]
        assert assay(*command, "-k", 3).code == 0
        rows = sorted(lines(out), key=lambda row: row["id"])
        out.write_text("".join(json.dumps(r) + "\n" for r in rows if r["id"] in written))
        with partial(out).open("w") as file:
            for row, n in zip(rows, n_finished, strict=True):
                for entry in row["trials"][:n]:
                    line = {name: row[name] for name in ("id", "specHash", "identity")}
                    file.write(json.dumps(line | {"entry": entry}) + "\n")
        sign(out)
        sign(partial(out))
        (tmp_path / "starts").unlink()
        return command, out

    return make


def test_killed_between_the_last_trial_and_its_row(
    assay: Callable, broken_off: Callable, tmp_path: Path
):
    command, out = broken_off(3, 1)
    done = assay(*command, "-k", 3, "--resume")
    assert done.code == 0, done.stderr
    assert starts(tmp_path) == 2
    assert [(row["id"], row["nMeasured"]) for row in lines(out)] == [("p0", 3), ("p1", 3)]
    assert not partial(out).exists()


def test_killed_between_the_row_and_the_end(assay: Callable, broken_off: Callable, tmp_path: Path):
    command, out = broken_off(3, 3, written=("p0", "p1"))
    assert assay(*command, "-k", 3, "--resume").code == 0
    assert starts(tmp_path) == 0
    assert len(lines(out)) == 2
    assert not partial(out).exists()


def test_a_torn_last_trial_runs_again(assay: Callable, broken_off: Callable, tmp_path: Path):
    command, out = broken_off(3, 2)
    data = partial(out).read_bytes()
    partial(out).write_bytes(data[:-40])
    assert assay(*command, "-k", 3, "--resume").code == 0
    assert starts(tmp_path) == 2
    assert {row["id"]: len(row["trials"]) for row in lines(out)} == {"p0": 3, "p1": 3}


def test_a_smaller_k_is_refused_and_a_larger_one_adds_trials(
    assay: Callable, broken_off: Callable, tmp_path: Path
):
    command, out = broken_off(3, 2, written=("p0",))
    before = partial(out).read_bytes(), out.read_bytes()
    done = assay(*command, "-k", 2, "--resume")
    assert done.code == 1
    assert '"p0" has 3 trials, more than 2' in done.stderr
    assert "-k 3" in done.stderr
    assert (partial(out).read_bytes(), out.read_bytes()) == before
    assert starts(tmp_path) == 0
    earlier = {t["trialNum"]: t for t in lines(out)[0]["trials"]}
    assert assay(*command, "-k", 5, "--resume").code == 0
    assert starts(tmp_path) == 2 + 3
    rows = {row["id"]: row for row in lines(out)}
    assert {(row["k"], row["nMeasured"], len(row["trials"])) for row in rows.values()} == {
        (5, 5, 5)
    }
    assert earlier.items() <= {t["trialNum"]: t for t in rows["p0"]["trials"]}.items()
    assert not partial(out).exists()


def test_a_smaller_k_is_refused_before_any_row_is_written(
    assay: Callable, broken_off: Callable, tmp_path: Path
):
    command, out = broken_off(2, 3)
    before = partial(out).read_bytes()
    done = assay(*command, "-k", 2, "--resume")
    assert done.code == 1
    assert '"p1" has a trial number 3' in done.stderr
    assert partial(out).read_bytes() == before
    assert starts(tmp_path) == 0


def test_other_prompts_or_agents_are_refused(
    assay: Callable, broken_off: Callable, agent: Callable, prompts: Callable
):
    command, out = broken_off(3, 2, written=("p0",))
    before = partial(out).read_bytes()
    other = [*command]
    other[1] = prompts(MARK, "something else")
    done = assay(*other, "-k", 3, "--resume")
    assert done.code == 1
    assert 'row "p1" was made from another prompt' in done.stderr
    other = [*command]
    other[3] = agent(name="somebody else")
    done = assay(*other, "-k", 3, "--resume")
    assert done.code == 1
    assert "the schema or the arguments of the agent" in done.stderr
    assert partial(out).read_bytes() == before


def test_finished_trials_are_not_thrown_away_by_surprise(assay: Callable, broken_off: Callable):
    command, out = broken_off(2, 2)
    before = partial(out).read_bytes()
    for more in ((), ("--append",)):
        done = assay(*command, "-k", 3, *more)
        assert done.code == 1
        assert "--resume" in done.stderr
        assert partial(out).read_bytes() == before
    assert assay(*command, "-k", 3, "--overwrite").code == 0
    assert len(lines(out)) == 2


def test_resuming_a_part_keeps_the_trials_of_the_rest(
    assay: Callable, broken_off: Callable, tmp_path: Path
):
    command, out = broken_off(2, 2)
    assert assay(*command, "-k", 3, "--resume", "--limit", 1).code == 0
    assert [row["id"] for row in lines(out)] == ["p0"]
    assert partial(out).exists()
    assert assay(*command, "-k", 3, "--resume").code == 0
    assert [row["id"] for row in lines(out)] == ["p0", "p1"]
    assert starts(tmp_path) == 2
    assert not partial(out).exists()


@pytest.mark.parametrize(
    ("flags", "overlap_in_one_prompt"),
    [((), False), (("--overlap",), True), (("--workspace-dir", "spaces"), True)],
)
def test_trials_of_one_prompt_in_one_folder_run_one_after_another(
    assay: Callable, prompts: Callable, tmp_path: Path, flags: tuple[str, ...],
    overlap_in_one_prompt: bool,
) -> None:  # fmt: skip
    """Each trial leaves a mark of its prompt while it runs, and says which others it saw."""
    marks = tmp_path / "marks"
    marks.mkdir()
    script = tmp_path / "agent.sh"
    script.write_text(
        f'm="{marks}/$1.$$"; seen=; for f in {marks}/*; do [ -e "$f" ] && seen="$seen ${{f##*/}}"; '
        'done; : > "$m"; sleep 0.3; rm "$m"; echo "seen:$seen"\n'
    )
    file = prompts({"id": "one", "input": "one"}, {"id": "two", "input": "two"})
    agent = f"sh {script} {{}}"
    done = assay("trials", file, "--simple", agent, "-k", "2", "-j", "4", *flags, "-o", "-")
    assert done.code == 0, done.stderr
    seen = {row["id"]: [entry["output"] for entry in row["trials"]] for row in done.rows}
    own = [f"{name}." in text for name, texts in seen.items() for text in texts]
    other = [
        f"{other}." in text
        for name, other in (("one", "two"), ("two", "one"))
        for text in seen[name]
    ]
    assert any(own) == overlap_in_one_prompt, seen
    assert any(other), "trials of different prompts run at the same time"
    assert ("one after another" in done.stderr) == (not flags)


def test_what_only_the_agent_excuses_is_said_beside_the_rate(
    assay: Callable, tmp_path: Path
) -> None:
    """An agent that reports an error of its provider wherever it would fail gains nothing."""
    (tmp_path / "claude").write_text(
        "#!/usr/bin/env python3\nimport json, sys\n"
        "bad = {'is_error': True, 'terminal_reason': 'api_error', 'api_error_status': 500}\n"
        "good = {'is_error': False, 'subtype': 'success', 'result': 'yes'}\n"
        "print(json.dumps({'type': 'result', **(bad if '1' in sys.argv[-1] else good)}))\n"
    )
    (tmp_path / "claude").chmod(0o755)
    rows = [{"id": f"p{n}", "input": f"say {n % 3}", "hint": "yes"} for n in range(12)]
    (tmp_path / "p.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    words = ("p.jsonl", "-s", f"claude:{tmp_path}/claude", "-g", "contains")
    trials = assay("trials", *words, "-k", 1, "-o", "t.jsonl")
    said = "not measured: 33 % (4 of 12; 67 % pass if excuses of the agent count as failures)"
    assert said in trials.stderr
    assert "8 of 8 trials" in trials.stderr
    assay("capture", *words, "-o", "a.jsonl", "-q")
    rows = [json.loads(line) for line in (tmp_path / "a.jsonl").read_text().splitlines()]
    excused = [row["failure"] for row in rows if "failure" in row]
    assert {failure["reportedBy"] for failure in excused} == {"the agent only"}
    # One of twelve: healthy enough for a verdict, which says it all the same.
    done = [row for row in rows if "failure" not in row or row["id"] == "p1"]
    for name, kept in (("a.jsonl", done), ("b.jsonl", [row for row in done if row["id"] != "p1"])):
        many = [{**row, "id": f"{row['id']}-{n}"} for n in range(2) for row in kept]
        excuses = [row for row in many if "failure" in row][:1]
        kept = [row for row in many if "failure" not in row] + excuses
        (tmp_path / name).write_text("".join(json.dumps(row) + "\n" for row in kept))
    compared = json.loads(assay("compare", "a.jsonl", "b.jsonl", "-f", "json").stdout)
    assert compared["health"]["a"]["unverified"] == 1
    [verdict] = compared["verdict"]
    assert "2 trials were not measured (6 % of a, 6 % of b)" in verdict["words"]
    assert "If excuses of the agent count as failures, a passes 94 %." in verdict["words"]
    assert verdict["healthy"]
