"""Comparisons: honest about ties, about what was not measured, and about how sure they are."""

import json
import random
from datetime import UTC, datetime
from itertools import chain

import pytest

from assay.compare.report import CompareOptions, compare, load_runs
from assay.compare.runs import load_run
from assay.errors import InputError
from assay.records.trial.files import detect_kind
from assay.report.sentence import word_verdicts


def write(path, scores, *, total=100.0, grader="v1", **more):
    rows = []
    for id_, score in scores.items():
        row = {
            "id": id_,
            "input": f"ask {id_}",
            "output": "o",
            "trajectory": [],
            "timing": {"start": 0, "end": total, "total": total},
            "toolErrors": False,
        }
        if score is not None:
            row["score"] = {"pass": score >= 0.5, "score": score}
            row["grades"] = {"g": {"pass": score >= 0.5, "score": score, "version": grader}}
        rows.append(row | more)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def compared(*paths, **options):
    runs = [load_run(path.stem, path, detect_kind(path), "category") for path in paths]
    comparison = compare(runs, CompareOptions(**options))
    word_verdicts(comparison.sections)
    return comparison


def scores(n, rate, seed):
    chance = random.Random(seed)
    return {f"p{i}": float(chance.random() < rate) for i in range(n)}


def test_identical_runs_have_no_winner(tmp_path):
    same = scores(40, 0.7, 1)
    told = compared(write(tmp_path / "a.jsonl", same), write(tmp_path / "b.jsonl", same))
    pair = told.sections["headToHead"]["pairwise"][0]
    assert (pair["aWins"], pair["bWins"], pair["ties"]) == (0, 0, 40)
    assert told.pairs[0].pass_rate.difference == 0
    assert told.sections["verdict"][0]["code"] in ("same", "not-enough-data")
    assert all(json.loads(row)["winner"] is None for row in chain.from_iterable(told.rows()))


def test_pairs_of_three_runs_are_counted_each_for_itself(tmp_path):
    a = write(tmp_path / "a.jsonl", {"p": 0.6, "q": 0.6})
    b = write(tmp_path / "b.jsonl", {"p": 0.7, "q": 0.5})
    c = write(tmp_path / "c.jsonl", {"p": 1.0, "q": 1.0})
    told = compared(a, b, c, strategy="statistical")
    ab = told.sections["headToHead"]["pairwise"][0]
    assert (ab["aWins"], ab["bWins"], ab["ties"]) == (1, 1, 0)
    assert told.sections["ranking"][0]["run"] == "c"


@pytest.mark.parametrize("n", [1, 2, 5])
def test_five_prompts_are_not_enough_however_clear(tmp_path, n):
    a = write(tmp_path / "a.jsonl", {f"p{i}": 0.0 for i in range(n)})
    b = write(tmp_path / "b.jsonl", {f"p{i}": 1.0 for i in range(n)})
    assert compared(a, b).sections["verdict"][0]["code"] == "not-enough-data"


def test_a_clear_difference_is_called_better(tmp_path):
    a = write(tmp_path / "a.jsonl", scores(100, 0.3, 1))
    b = write(tmp_path / "b.jsonl", scores(100, 0.9, 2))
    told = compared(a, b)
    assert told.sections["verdict"][0]["code"] == "better"
    assert told.pairs[0].pass_rate.interval.low > 0
    assert len(told.pairs[0].improved) == told.pairs[0].pass_rate.wins


def test_runs_without_grades_are_not_measured(tmp_path):
    none = {f"p{i}": None for i in range(10)}
    told = compared(write(tmp_path / "a.jsonl", none), write(tmp_path / "b.jsonl", none))
    assert told.sections["quality"]["a"]["passRate"] is None
    assert told.sections["quality"]["a"]["avgScore"] is None
    assert told.sections["verdict"][0]["code"] == "not-enough-data"
    assert told.sections["health"]["a"]["problems"] == ["nothing is graded"]
    pair = told.sections["headToHead"]["pairwise"][0]
    assert (pair["aWins"], pair["bWins"], pair["notMeasured"]) == (0, 0, 10)


def test_what_is_unlike_is_named(tmp_path):
    a = write(tmp_path / "a.jsonl", {"p": 1.0, "only": 1.0})
    b = write(tmp_path / "b.jsonl", {"p": 1.0}, grader="v2")
    rows = [json.loads(line) for line in b.read_text().splitlines()]
    rows[0]["input"] = "something else"
    b.write_text(json.dumps(rows[0]) + "\n")
    notes = " | ".join(compared(a, b).warnings)
    assert "1 of 2 prompts are not in every run" in notes
    assert "have different inputs under the same id" in notes
    assert "grader g differs: a: v1; b: v2" in notes


@pytest.mark.parametrize(
    ("agents", "mixed"),
    [
        ([("claude", "2.1", "opus"), ("claude", None, None)], False),
        ([("claude", "2.1", None), ("claude", None, "opus")], False),
        ([("claude", "2.1", "opus"), ("claude", "2.2", "opus")], True),
        ([("claude", "2.1", "opus"), ("claude", "2.1", "haiku"), ("claude", None, None)], True),
        ([("claude", None, None), ("codex", None, None)], True),
    ],
)
def test_a_trial_that_ended_early_is_not_another_agent(tmp_path, agents, mixed):
    path = write(tmp_path / "a.jsonl", {f"p{n}": 1.0 for n in range(len(agents))})
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    for row, known in zip(rows, agents, strict=True):
        named = zip(("adapter", "version", "model"), known, strict=True)
        row["agent"] = {name: value for name, value in named if value}
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    notes = compared(path, write(tmp_path / "b.jsonl", {"p0": 1.0})).warnings
    assert any("mixes agents" in note for note in notes) == mixed


def test_an_unclear_verdict_among_several_names_its_pair(tmp_path):
    from assay.report.comparison import markdown

    paths = [write(tmp_path / f"{name}.jsonl", scores(10, 0.5, 7)) for name in "abc"]
    text = markdown(compared(*paths).sections)
    for pair in ("b is better than a", "c is better than a", "c is better than b"):
        assert f"**It is not decided whether {pair}: " in text


def test_an_unhealthy_measurement_says_so_before_any_number(tmp_path):
    from assay.report.comparison import markdown, verdict_lines

    clear = {f"p{i}": float(i >= 20) for i in range(40)}
    holes = {id_: None if int(id_[1:]) % 5 == 0 else 1.0 for id_ in clear}
    a, b = write(tmp_path / "a.jsonl", clear), write(tmp_path / "b.jsonl", holes)
    sections = compared(a, b).sections
    (verdict,) = sections["verdict"]
    assert (verdict["code"], verdict["healthy"]) == ("not-enough-data", False)
    told = "UNHEALTHY (b: 20% of the planned trials are not measured): no verdict on b."
    assert verdict["words"] == sections["pairs"][0]["verdict"]["words"] == told
    assert markdown(sections).splitlines()[2].startswith("**UNHEALTHY (b: 20%")
    assert [code for code, _ in verdict_lines(sections)] == ["unhealthy"]
    (sound,) = compared(a, a).sections["verdict"]
    assert sound["healthy"]
    assert "UNHEALTHY" not in sound["words"]


def test_every_form_shows_the_difference_in_score_and_who_flipped(tmp_path):
    from assay.report.comparison import flip_lines, markdown, tables

    before = {f"p{i}": 0.6 if i % 2 else 0.4 for i in range(40)}
    after = {id_: score + 0.2 for id_, score in before.items()}
    paths = write(tmp_path / "a.jsonl", before), write(tmp_path / "b.jsonl", after)
    sections = compared(*paths).sections
    title, header, rows = next(table for table in tables(sections) if table[0] == "Pairs")
    rate, score = (dict(zip(header, row, strict=True)) for row in rows)
    assert (title, rate["what"], score["what"]) == ("Pairs", "pass rate, points", "score")
    assert rate["difference"].startswith("+50.0 (")
    assert score["difference"].startswith("+0.200 (+0.1")
    assert rate["p (Holm)"] == score["p (Holm)"] == "<0.0001"
    assert (rate["win/tie/loss"], score["win/tie/loss"]) == ("20/20/0", "40/0/0")
    flips, meaning = flip_lines(sections)
    assert flips.startswith("b improved on p0 (0.5000), p2 (0.5000), ")
    assert flips.endswith("p18 (0.5000) and 10 more")
    assert "by luck alone" in meaning
    assert f"- {flips.split(' (')[0]}" in markdown(sections).replace("\\", "")


def test_not_measured_trials_leave_bounds_open(tmp_path):
    base = scores(20, 0.5, 3)
    down = base | {"p0": None, "p1": None}
    a, b = write(tmp_path / "a.jsonl", base), write(tmp_path / "b.jsonl", down)
    bounds = compared(a, b).pairs[0].bounds
    assert bounds.n_not_measured == 2
    assert bounds.high - bounds.low == pytest.approx(2 / 20)


def test_the_same_files_give_the_same_bytes(tmp_path):
    a = write(tmp_path / "a.jsonl", scores(30, 0.5, 1))
    b = write(tmp_path / "b.jsonl", scores(30, 0.6, 2), total=140.0)
    now = datetime(2026, 1, 2, tzinfo=UTC)
    first, second = compared(a, b, now=now), compared(a, b, now=now)
    assert first.sections["meta"]["generatedAt"] == "2026-01-02T00:00:00.000Z"
    assert json.dumps(first.sections) == json.dumps(second.sections)
    assert list(first.rows()) == list(second.rows())


def test_scores_on_an_edge_belong_to_the_bin_above(tmp_path):
    seen = [0.0, 0.19, 0.2, 0.4, 0.59, 0.6, 0.8, 1.0, None]
    path = write(tmp_path / "a.jsonl", {f"p{i}": score for i, score in enumerate(seen)})
    told = compared(path, write(tmp_path / "b.jsonl", {"p0": 1.0}))
    bins = told.sections["quality"]["a"]["scoreDistribution"]
    assert list(bins.values()) == [2, 1, 2, 1, 2]


def test_weights_that_are_not_given_have_their_usual_values(tmp_path):
    a = write(tmp_path / "a.jsonl", {"p": 1.0})
    b = write(tmp_path / "b.jsonl", {"p": 0.0})
    row = json.loads(next(compared(a, b, weights={"COMPARE_QUALITY": 2.0}).rows())[0])
    assert row["scores"]["a"] == pytest.approx(2.0 + 0.3 / 1.1 + 0.2)


def test_the_number_of_resamples_reaches_every_bootstrap(tmp_path):
    runs = [
        write(tmp_path / f"{name}.jsonl", scores(60, rate, seed))
        for seed, (name, rate) in enumerate((("a", 0.4), ("b", 0.6), ("c", 0.5)))
    ]
    few, usual = compared(*runs, n_resamples=100).sections, compared(*runs).sections
    assert few["meta"]["bootstrapIterations"] == 100
    assert "bootstrapIterations" not in usual["meta"]
    assert few["ranking"] != usual["ranking"]


def test_many_prompts_are_written_once_each_and_in_order(tmp_path):
    many = scores(4500, 0.5, 1)
    some = {id_: score for id_, score in scores(4500, 0.6, 2).items() if not id_.endswith("7")}
    told = compared(write(tmp_path / "a.jsonl", many), write(tmp_path / "b.jsonl", some))
    rows = [json.loads(row) for row in chain.from_iterable(told.rows())]
    assert [row["id"] for row in rows] == list(some)
    assert all(row["latencies"] == {"a": 100.0, "b": 100.0} for row in rows)
    better = {row["id"] for row in rows if row["winner"] == "b"}
    assert better == {id_ for id_ in some if some[id_] > many[id_]}


def test_labels_and_ids_are_data(tmp_path):
    odd = '%s "quoted", \u2028 </script>'
    a = write(tmp_path / "a%d.jsonl", {odd: 1.0, "x": 0.0})
    b = write(tmp_path / "b.jsonl", {odd: 0.0, "y": 1.0})
    rows = [json.loads(row) for row in chain.from_iterable(compared(a, b).rows())]
    assert rows == [
        {
            "id": odd,
            "winner": "a%d",
            "scores": rows[0]["scores"],
            "latencies": {"a%d": 100.0, "b": 100.0},
            "hadErrors": {"a%d": False, "b": False},
        }
    ]


def test_equal_totals_are_ties_whatever_the_order(tmp_path):
    """Every strategy, the JSON and the rows per prompt agree."""
    same = {f"p{i}": 1.0 if i < 80 else 0.0 for i in range(100)}
    other = same | {"p0": 0.0, "p99": 1.0}
    a, b = write(tmp_path / "a.jsonl", same), write(tmp_path / "b.jsonl", other)
    for strategy in ("weighted", "statistical"):
        one, two = (compared(*pair, strategy=strategy) for pair in ((a, b), (b, a)))
        (forth,), (back,) = (c.sections["headToHead"]["pairwise"] for c in (one, two))
        assert (forth["aWins"], forth["bWins"], forth["ties"]) == (1, 1, 98)
        assert (back["aWins"], back["bWins"], back["ties"]) == (1, 1, 98)
        winners = [json.loads(row)["winner"] for row in chain.from_iterable(one.rows())]
        assert sorted(filter(None, winners)) == ["a", "b"]


def test_an_estimate_lies_in_its_interval_with_unequal_trials(tmp_path):
    """Prompts with many trials count as much as those with one."""
    path = tmp_path / "t.jsonl"
    rows = []
    for i in range(20):
        k = 1 if i % 2 else 20
        grade = {"pass": i % 2 == 0, "score": float(i % 2 == 0)}
        trials = [
            {"trialNum": n + 1, "output": "o", "duration": 5, "trajectory": [], **grade}
            for n in range(k)
        ]
        rows.append({"id": f"p{i}", "input": "x", "k": k, "trials": trials})
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    quality = compared(path, path).sections["quality"]["t"]
    low, high = quality["confidenceIntervals"]["avgScore"]
    assert low <= quality["avgScore"] <= high
    assert quality["avgScore"] == pytest.approx(0.5)


def test_absent_prompts_count_against_a_pass(tmp_path):
    full = dict.fromkeys([f"p{i}" for i in range(200)], 1.0)
    a = write(tmp_path / "a.jsonl", full)
    b = write(tmp_path / "b.jsonl", dict(list(full.items())[:182]))
    comparison = compared(a, b)
    assert comparison.pairs[0].gate_bounds.low == pytest.approx(-0.09)
    ((_, outcome, words),) = comparison.judge("regression", 0.05)
    assert outcome == "cannot-judge"
    assert "-9.0 points" in words
    ((_, outcome, _),) = compared(b, a).judge("regression", 0.05)
    assert outcome == "pass"  # new prompts are no regression


def test_clusters_of_prompts_widen_every_interval(tmp_path):
    before = {f"p{i}": 1.0 for i in range(100)}
    after = {id_: 0.0 if i // 10 in (0, 3) else 1.0 for i, id_ in enumerate(before)}
    paths = [tmp_path / "a.jsonl", tmp_path / "b.jsonl"]
    for path, marks in zip(paths, (before, after), strict=True):
        rows = [json.loads(line) for line in write(path, marks).read_text().splitlines()]
        for i, row in enumerate(rows):
            row["metadata"] = {"repository": f"r{i // 10}"}
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))

    def compared_by(key):
        named = [(path.stem, path) for path in paths]
        runs = load_runs(named, "auto", "category", lambda *_: None, key)
        return compare(runs, CompareOptions())

    alone, together = compared_by(None), compared_by("repository")
    assert alone.pairs[0].verdict.code == "worse"
    assert together.pairs[0].verdict.code == "not-enough-data"
    assert together.pairs[0].pass_rate.n_units == 10
    widths = [
        high - low
        for c in (alone, together)
        for low, high in [c.sections["quality"]["b"]["confidenceIntervals"]["passRate"]]
    ]
    assert widths[1] > 1.5 * widths[0]
    words = word_verdicts(together.sections)["verdict"][0]["words"]
    assert "100 prompts in 10 clusters leave it open" in words
    assert together.sections["meta"]["clusters"] == 10
    with pytest.raises(InputError, match="100 of 100 prompts have no 'colour'"):
        compared_by("colour")


def test_the_outcome_of_a_gate_is_in_the_report(tmp_path):
    from assay.report.comparison import markdown

    same = scores(40, 0.7, 1)
    a, b = write(tmp_path / "a.jsonl", same), write(tmp_path / "b.jsonl", same)
    comparison = compared(a, b)
    comparison.judge("regression", 0.02)
    (gate,) = comparison.sections["gate"]
    assert (gate["runB"], gate["outcome"]) == ("b", "cannot-judge")
    assert "Gate regression, b against a: cannot be judged" in markdown(comparison.sections)
