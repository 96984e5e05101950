"""A comparison shows what it did, in every form: strategy, head-to-head, judge, flakiness."""

import base64
import gzip
import html
import json
import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from rich.cells import cell_len

JUDGE = """
def grade(id, runs):
    first = "b" if id in ("p0", "p1", "p2") else "a"
    order = sorted(runs, key=lambda label: label != first)
    ranked = [{"run": r, "rank": n, "score": 1 / n} for n, r in enumerate(order, 1)]
    if id == "p4":
        ranked = [{"run": r, "rank": 1, "score": 1} for r in order]
    return {"rankings": ranked, "reasoning": f"{first} says more about {id} <b>|SECRET-TEXT"}
"""
FORMS = ("markdown", "table", "html", "report")


def capture(number: int, *, passed: bool, label: str) -> dict[str, Any]:
    total = 100 + 10 * number + (7 if label == "b" else 0)
    row = {"id": f"p{number}", "input": "ask", "output": f"answer of {label}", "trajectory": []}
    row |= {"timing": {"start": 0, "end": total, "total": total}, "toolErrors": number == 1}
    return row | {"score": {"pass": passed, "score": float(passed)}}


def trials(number: int, passes: tuple[bool, ...]) -> dict[str, Any]:
    entries = [
        {"trialNum": n, "output": "o", "trajectory": [], "duration": 100 + 9 * number + n}
        | {"pass": passed, "score": float(passed), "toolErrors": n == 1}
        for n, passed in enumerate(passes, 1)
    ]
    return {"id": f"p{number}", "input": "ask", "k": len(passes), "trials": entries}


@pytest.fixture
def runs(tmp_path: Path) -> list[str]:
    for label in ("a", "b"):
        rows = [capture(n, passed=(n + (label == "b")) % 3 > 0, label=label) for n in range(10)]
        (tmp_path / f"{label}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        kinds = [(True, True), (True, False), (False, False)]
        many = [trials(n, kinds[(n + (label == "b")) % 3]) for n in range(10)]
        path = tmp_path / f"many-{label}.jsonl"
        path.write_text("".join(json.dumps(row) + "\n" for row in many))
    (tmp_path / "judge.py").write_text(JUDGE)
    return ["a.jsonl", "b.jsonl"]


MANY = ["a:many-a.jsonl", "b:many-b.jsonl"]


@pytest.fixture
def shown(assay: Callable[..., Any], tmp_path: Path) -> Callable[..., str]:
    """What a form of a comparison says; of a page, what a reader sees or its script is given."""

    def show(form: str, *words: str, **env: str) -> str:
        if form == "report":
            done = assay("report", *words, "-q", "-o", "page.html", env=env)
            page = (tmp_path / "page.html").read_text()
            packed = re.findall(r'id="data-index">([^<]+)<', page)[0]
            return gzip.decompress(base64.b64decode(packed)).decode()
        done = assay("compare", *words, "-f", form, env=env)
        assert done.code == 0, done.stderr
        text = html.unescape(done.stdout) if form == "html" else done.stdout.replace("\\", "")
        return " ".join(re.sub(r"[│┃]", " ", text).split())

    return show


@pytest.mark.parametrize("form", FORMS)
def test_every_form_shows_the_strategy_with_its_weights(shown, runs, form):
    env = {"COMPARE_QUALITY": "0.7", "COMPARE_LATENCY": "0.25"}
    text = shown(form, *runs, **env)
    assert "weighted: quality 0.7, latency 0.25, reliability 0.2" in text
    assert "(set by COMPARE_QUALITY, COMPARE_LATENCY)" in text
    assert "weighted: capability 0.4, reliability 0.4, consistency 0.2" in shown(form, *MANY)
    assert "set by" not in shown(form, *runs)
    assert "statistical: the higher score" in shown(form, *runs, "-s", "statistical")


@pytest.mark.parametrize("form", ["markdown", "table", "html"])
def test_every_form_shows_head_to_head_completion_latency_and_flakiness(assay, shown, runs, form):
    text = shown(form, *runs)
    report = json.loads(assay("compare", *runs).stdout)
    (pair,) = report["headToHead"]["pairwise"]
    numbers = [pair[name] for name in ("aWins", "bWins", "ties", "notMeasured")]
    wins = re.search(r"A wins.*?ties.*?\bb\b\D*(\d+)\D+(\d+)\D+(\d+)\D+(\d+)", text)
    assert wins is not None
    assert list(map(int, wins.groups())) == numbers
    for word in ("completed", "tool errors", "timeouts", "p50 ms", "p99 ms", "100.0 %"):
        assert word in text
    repeated = shown(form, *MANY)
    for word in ("capability", "reliability", "overall", "tool errors", "flaky prompts"):
        assert word in repeated
    assert "p1 (0.500), p4 (0.500), p7 (0.500)" in repeated


def test_the_page_shows_the_same(shown, runs):
    overview = json.loads(shown("report", *MANY))["overview"]["groups"][0]["sections"]
    assert overview["completion"]["a"]["toolErrors"] == 10
    assert overview["flakiness"]["a"]["topFlakyPrompts"][0]["id"] == "p1"


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("files", [["a.jsonl", "b.jsonl"], MANY])
def test_the_verdict_of_a_judge_is_the_headline(shown, runs, form, files):
    text = shown(form, *files, "-s", "custom", "-g", "judge.py")
    headline = "judge.py prefers a to b: 6 prompts to 3, 1 tied"
    assert headline in text
    assert "(sign test p = 0.51, which may be chance)" in text
    verdict = "is better than"
    # On a terminal the last line stays in sight.
    ahead = text.rindex(verdict) < text.rindex(headline)
    assert ahead if form == "table" else text.index(headline) < text.index(verdict)
    for number in (0, 4, 9):
        assert f"says more about p{number}" in text
    assert text != shown(form, *files)


@pytest.mark.parametrize("files", [["a.jsonl", "b.jsonl"], MANY])
def test_the_json_has_what_a_judge_said_of_each_prompt(assay, runs, files):
    done = assay(
        "compare", *files, "-s", "custom", "-g", "judge.py", env={"MY_TOKEN": "SECRET-TEXT"}
    )
    report = json.loads(done.stdout)
    rows = report.get("perPrompt") or report["headToHead"]["prompts"]
    said = {row["id"]: row["reasoning"] for row in rows}
    assert said["p0"].startswith("b says more about p0 <b>|")
    assert "SECRET-TEXT" not in done.stdout
    winners = [row.get("overallWinner", row.get("winner")) for row in rows]
    assert winners == ["b", "b", "b", "a", None, "a", "a", "a", "a", "a"]
    (verdict,) = report["judge"]["verdict"]
    assert (verdict["preferred"], verdict["aWins"], verdict["bWins"]) == ("a", 6, 3)
    assert "reasoning" not in json.loads(assay("compare", *files).stdout)["headToHead"]


def test_a_judge_needs_no_grades_but_a_healthy_measurement(assay, runs, tmp_path):
    rows = [json.loads(row) for row in (tmp_path / "a.jsonl").read_text().splitlines()]
    for row in rows:
        del row["score"]
    (tmp_path / "b.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    words = ["compare", "a.jsonl", "b.jsonl", "-s", "custom", "-g", "judge.py"]
    (verdict,) = json.loads(assay(*words).stdout)["judge"]["verdict"]
    assert verdict["preferred"] == "a"
    rows[0]["score"] = {"pass": True, "score": 1.0}
    (tmp_path / "b.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (verdict,) = json.loads(assay(*words).stdout)["judge"]["verdict"]
    assert (verdict["preferred"], verdict["pValue"]) == (None, None)
    assert "judge.py has no verdict, UNHEALTHY (b: 90% of the planned" in verdict["words"]


@pytest.mark.parametrize("command", ["compare", "report"])
def test_a_grader_without_its_strategy_is_refused(assay, runs, command):
    for words in ((), ("-s", "statistical")):
        done = assay(command, *runs, "-g", "./nonexistent.ts", *words)
        assert done.code == 2
        assert "--strategy custom" in done.stderr
        assert done.stdout == ""


@pytest.mark.parametrize("words", [(), ("-s", "custom", "-g", "judge.py")])
@pytest.mark.parametrize("files", [["a.jsonl", "b.jsonl"], [*MANY, "third:many-a.jsonl"]])
def test_a_table_fits_80_columns(assay, runs, files, words):
    if words and len(files) > 2:
        pytest.skip("the judge knows two runs")
    done = assay("compare", *files, "-f", "table", *words)
    assert max(map(cell_len, done.stdout.splitlines())) <= 80


def intervals(value: Any, path: str = "") -> dict[str, Any]:
    """Every interval of a report, by its place."""
    if isinstance(value, dict):
        if {"low", "high", "method"} <= value.keys():
            return {path: (value["low"], value["high"])}
        found = {}
        for name, part in value.items():
            if name == "confidenceIntervals":
                found |= {f"{path}/{key}": tuple(ends) for key, ends in part.items()}
            else:
                found |= intervals(part, f"{path}/{name}")
        return found
    if isinstance(value, list):
        return {
            k: v for n, part in enumerate(value) for k, v in intervals(part, f"{path}/{n}").items()
        }
    return {}


RESAMPLED = re.compile(r"latencyMean|/amounts/.*/(?!median)|^/ranking/")


@pytest.mark.parametrize("files", [["a.jsonl", "b.jsonl"], MANY])
def test_iterations_change_every_interval_made_by_resampling_and_no_other(assay, runs, files):
    three = [*files, f"c1:{files[0].partition(':')[2] or files[0]}"]
    some, many = (
        json.loads(assay("compare", *three, env={"COMPARE_BOOTSTRAP_ITERATIONS": n}).stdout)
        for n in ("100", "3000")
    )
    here, there = intervals(some), intervals(many)
    assert here.keys() == there.keys()
    for place, ends in here.items():
        same_runs = place.startswith("/pairs/1/") or place.startswith("/variance")
        if not same_runs:  # runs with equal times have nothing to resample
            assert (ends != there[place]) == bool(RESAMPLED.search(place)), place
    assert "resample the prompts 100 times" in some["meta"]["intervals"]
    assert "pass rate, score, pass@k, pass^k" in some["meta"]["intervals"]


@pytest.mark.parametrize("form", FORMS)
def test_every_form_says_which_intervals_are_resampled(shown, runs, form):
    text = shown(form, *runs, COMPARE_BOOTSTRAP_ITERATIONS="700")
    assert "resample the prompts 700 times" in text
    assert "are computed, not resampled" in text


def test_a_report_has_the_time_at_which_it_was_made(assay, runs):
    before = datetime.now(UTC) - timedelta(milliseconds=1)
    made = json.loads(assay("compare", *runs).stdout)["meta"]["generatedAt"]
    assert made.endswith("Z")
    assert before <= datetime.fromisoformat(made) <= datetime.now(UTC)


def test_the_page_is_written_by_the_ending_of_its_name(assay, runs, tmp_path):
    assert assay("compare", *runs, "-o", "comparison.html").code == 0
    page = (tmp_path / "comparison.html").read_text()
    assert page.startswith("<!doctype html>")
    assert "<script" not in page


@pytest.mark.parametrize("form", ["markdown", "table"])
def test_fractions_are_for_scripts(shown, runs, form):
    people, scripts = shown(form, *runs), shown(form, *runs, "--fractions")
    assert "60 % → 70 % of prompts pass (+10 points" in people
    assert "0.600 → 0.700 of prompts pass (+0.10" in scripts
    assert "pass rate, points" in people
    assert " % (" not in scripts.replace("95 % (", "")
