"""The table of prompts against plain Python: search, filter, sort, join."""

import json
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from assay.viewer.index import Index
from assay.viewer.overview import OpenRun
from assay.viewer.prompts import Prompts, Query
from assay.viewer.search import Searcher


@pytest.fixture
def two(tmp_path: Path, sample: ModuleType) -> tuple[Prompts, list[list[dict[str, Any]]]]:
    files, all_rows = [], []
    for name, seed, n in (("a", 1, 30), ("b", 2, 25)):
        rows = list(sample.rows(n, seed=seed, rate=0.5, agent=name))
        files.append(sample.write(tmp_path / f"{name}.jsonl", iter(rows)))
        all_rows.append(rows)
    indexes = [Index(file) for file in files]
    for index in indexes:
        index.refresh()
    return Prompts(indexes), all_rows


def ids(prompts: Prompts, **query: Any) -> list[str]:
    page = prompts.page(Query(**query))
    assert page["total"] >= len(page["rows"])
    return [row["id"] for row in page["rows"]]


def test_join_keeps_the_order_of_first_sight(two: Any) -> None:
    prompts, (a, b) = two
    assert ids(prompts) == [row["id"] for row in a]
    rows = prompts.page(Query())["rows"]
    assert [row["cells"][1] is not None for row in rows] == [True] * 25 + [False] * 5
    assert rows[3]["cells"][1]["ms"] == b[3]["timing"]["total"]
    assert rows[3]["category"] == a[3]["metadata"]["category"]


def test_search_looks_at_id_and_input_whatever_the_case(two: Any) -> None:
    prompts, (a, _) = two
    assert ids(prompts, q="DOCS-") == [row["id"] for row in a if "docs-" in row["id"]]
    assert ids(prompts, q="number 7 in") == ["docs-007"]
    assert ids(prompts, q='no "such\\ thing') == []


@pytest.mark.parametrize("status", ["pass", "fail", "differ", "open"])
def test_filters(two: Any, status: str) -> None:
    prompts, (a, b) = two
    wanted = []
    for n, row in enumerate(a):
        both = [row] + ([b[n]] if n < len(b) else [])
        said = [one.get("score", {}).get("pass") for one in both]
        known = [one for one in said if one is not None]
        wanted += [row["id"]] * {
            "pass": True in known,
            "fail": False in known,
            "differ": len(set(known)) == 2,
            "open": None in said,
        }[status]
    assert wanted
    assert ids(prompts, status=status) == wanted


def test_category_and_cause(two: Any) -> None:
    prompts, (a, b) = two
    assert len(ids(prompts, category="docs")) == 6
    late = {r["id"] for r in a + b if r.get("failure", {}).get("cause") == "agent_timeout"}
    assert set(ids(prompts, cause="agent_timeout")) == late
    assert ids(prompts, cause="no such") == []


def test_sorts_and_pages(two: Any) -> None:
    prompts, (a, _) = two
    assert ids(prompts, sort="id") == sorted(row["id"] for row in a)
    assert ids(prompts, sort="id", down=True) == sorted((row["id"] for row in a), reverse=True)
    times = [row["cells"][0]["ms"] for row in Prompts(prompts._indexes[:1]).page(Query(sort="time"))["rows"]]  # fmt: skip # noqa: E501
    assert times == sorted(times)
    assert ids(prompts, offset=10, limit=5) == [row["id"] for row in a[10:15]]
    ungraded = [
        row["id"] for row in Prompts(prompts._indexes[:1]).page(Query(sort="score"))["rows"]
    ]
    n_open = sum("score" not in row for row in a)
    assert all("score" not in row for row in a if row["id"] in ungraded[30 - n_open :])


def test_of_rows_with_one_id_the_last_counts(tmp_path: Path, sample: ModuleType) -> None:
    rows = list(sample.rows(3, seed=1, rate=1.0, agent="a"))
    again = rows[1] | {"output": "second time"}
    file = sample.write(tmp_path / "r.jsonl", iter([*rows, again]))
    index = Index(file)
    index.refresh()
    prompts = Prompts([index])
    assert len(prompts.ids) == 3
    number = prompts.find(rows[1]["id"])
    assert number == 1
    row = prompts.file_row(0, number)
    assert row == 3
    assert json.loads(index.line(row))["output"] == "second time"
    assert len(prompts.row(1)["cells"][0]["trials"]) == 1
    assert prompts.find("nobody") is None


@pytest.mark.parametrize("status", ["regressed", "improved", "lower", "higher"])
def test_changes_between_two_runs(two: Any, status: str) -> None:
    prompts, (a, b) = two
    wanted = []
    for before, after in zip(a, b, strict=False):
        if "score" not in before or "score" not in after:
            continue
        rate = after["score"]["pass"] - before["score"]["pass"]
        score = after["score"]["score"] - before["score"]["score"]
        wanted += [before["id"]] * {
            "regressed": rate < 0,
            "improved": rate > 0,
            "lower": rate == 0 and score < 0,
            "higher": rate == 0 and score > 0,
        }[status]
    assert wanted
    assert ids(prompts, status=status, pair="0,1") == wanted
    assert ids(prompts, status=status) == wanted
    turned = {"regressed": "improved", "improved": "regressed", "lower": "higher"}
    assert ids(prompts, status=turned.get(status, "lower"), pair="1,0") == wanted
    losses = [row["cells"] for row in prompts.page(Query(sort="difference"))["rows"]]
    known = [b["score"] - a["score"] for a, b in losses if b and None not in (a["rate"], b["rate"])]
    assert known[0] == min(known)


def test_tool_and_time_of_one_run(two: Any) -> None:
    prompts, (a, b) = two
    uses = [
        {step["name"] for step in row["trajectory"] if step["type"] == "tool_call"} for row in b
    ]
    wanted = [row["id"] for row, used in zip(b, uses, strict=True) if "Grep" in used]
    assert ids(prompts, tool="Grep", in_run=1) == wanted
    assert set(wanted) < set(ids(prompts, tool="Grep"))
    assert ids(prompts, tool="no such tool") == []
    slow = [row["id"] for row in a if 8000 <= row["timing"]["total"] < 12000]
    assert ids(prompts, least_ms=8000, most_ms=12000, in_run=0) == slow


def test_around_names_the_neighbours_in_the_filter(two: Any) -> None:
    prompts, _ = two
    query = Query(status="regressed", sort="difference")
    listed = [row["id"] for row in prompts.page(query)["rows"]]
    told = prompts.around(query, listed[1])
    assert told is not None
    assert (told["position"], told["total"]) == (2, len(listed))
    assert (told["previous"]["id"], told["next"]["id"]) == (listed[0], listed[2])
    assert prompts.around(query, "no such prompt") is None
    outside = next(one for one in ids(prompts) if one not in listed)
    assert prompts.around(query, outside) is None


CRASH = {"cause": "agent_crash", "message": "exit code 1"}


def as_trials(row: dict[str, Any]) -> dict[str, Any]:
    entry = {"trialNum": 1, "output": row["output"], "trajectory": [], "duration": 1}
    entry |= {"failure": row["failure"]} if "failure" in row else {}
    entry |= row.get("score", {})
    return {"id": row["id"], "input": "x", "k": 1, "trials": [entry], "metadata": {}}


@pytest.mark.parametrize("kind", ["capture", "trials"])
@pytest.mark.parametrize("is_graded", [True, False])
def test_an_ungraded_crash_counts_as_in_a_comparison(
    tmp_path: Path, kind: str, is_graded: bool
) -> None:
    """Where others are graded it is failed; a file without any grade measures nothing."""
    grade = {"score": {"pass": True, "score": 1.0}} if is_graded else {}
    ends: dict[str, dict[str, Any]] = {
        "graded": grade,
        "crash": {"failure": CRASH},
        "answered": {"failure": {**CRASH, "answered": True}},
        "provider": {"failure": {"cause": "provider", "message": "529"}},
    }
    timing = {"start": 0, "end": 1, "total": 1}
    shared = {"input": "x", "output": "o", "trajectory": [], "metadata": {}, "timing": timing}
    rows = [{"id": name, **shared, **end} for name, end in ends.items()]
    path = tmp_path / "run.jsonl"
    lines = [json.dumps(row if kind == "capture" else as_trials(row)) for row in rows]
    path.write_text("\n".join(lines) + "\n")
    index = Index(path)
    index.refresh()
    run, prompts = index.run("run"), Prompts([index])
    compared = dict(zip(run.ids, run.passed.tolist(), strict=True))
    shown = {row["id"]: row["cells"][0] for row in prompts.page(Query())["rows"]}
    for name, cell in shown.items():
        expected = None if compared[name] != compared[name] else compared[name]
        assert (cell["trials"][0]["passed"], cell["rate"]) == (expected, expected), name
    assert ids(prompts, status="fail") == (["crash"] if is_graded else [])
    open_ones = ["answered", "provider"] if is_graded else list(ends)
    assert ids(prompts, status="open") == open_ones
    assert prompts.tallies(0)[1].sum() == run.n_measured.sum()
    found = Searcher().search([OpenRun("run", index)], prompts, "failed:true o", "")
    assert {hit["id"] for hit in found["hits"]} == ({"crash"} if is_graded else set())
