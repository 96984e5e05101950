"""Every JSON that the program writes fits its exported schema, and so do the seed's examples."""

import json
from pathlib import Path
from typing import Any

import pytest

STEPS = [
    {"type": "thought", "content": "I'll search for this...", "timestamp": 100},
    {
        "type": "tool_call",
        "name": "WebSearch",
        "status": "completed",
        "input": {"query": "CEO"},
        "output": {"hits": 1},
        "duration": 500,
    },
    {"type": "message", "content": "It is Dario Amodei.", "timestamp": 700},
]
LATENCY = {"p50": 1200, "p90": 3400, "p99": 5100, "mean": 1500, "min": 800, "max": 5200}
AS_THE_SEED_PRINTS_THEM: list[tuple[str, dict[str, Any]]] = [
    ("PromptInput", {"id": "t", "input": "Create a button", "hint": "should contain <button>"}),
    ("PromptInput", {"id": "t", "input": ["Create", "Blue"], "metadata": {"category": "ui"}}),
    (
        "CaptureResult",
        {
            "id": "test-001",
            "input": "Find the CEO of Anthropic",
            "output": "It is Dario Amodei.",
            "hint": "should mention Dario Amodei",
            "trajectory": STEPS,
            "metadata": {
                "category": "search",
                "agent": "--schema ./claude.json",
                "trajectoryRichness": "full",
                "turnCount": 1,
            },
            "timing": {
                "start": 1704067200000,
                "end": 1704067201234,
                "firstResponse": 100,
                "sessionCreation": 234,
                "total": 1234,
                "inputTokens": 150,
                "outputTokens": 85,
            },
            "toolErrors": False,
        },
    ),
    (
        "TrialResult",
        {
            "id": "search-001",
            "input": "Find the CEO",
            "k": 5,
            "trials": [{"trialNum": 1, "output": "...", "trajectory": STEPS, "duration": 1234}],
        },
    ),
    (
        "TrialResult",
        {
            "id": "search-001",
            "input": "Find the CEO",
            "k": 5,
            "passRate": 0.8,
            "passAtK": 0.99,
            "passExpK": 0.33,
            "trials": [{"trialNum": 1, "output": "...", "pass": True, "score": 1.0}],
        },
    ),
    (
        "ValidationResult",
        {
            "id": "test-001",
            "input": "Create a button component",
            "reference": "export const Button = () => <button>Click</button>",
            "pass": True,
            "score": 1.0,
            "reasoning": "Contains hint content",
        },
    ),
    (
        "BalanceAnalysis",
        {
            "totalCases": 50,
            "categories": [{"name": "ui", "count": 20, "percentage": 40}],
            "underrepresented": ["edge-case"],
            "suggestions": ["Consider adding more test cases for: edge-case"],
        },
    ),
    ("GraderResult", {"pass": True, "score": 1, "reasoning": "x", "outcome": {"type": "files"}}),
    (
        "ComparisonReport",
        {
            "meta": {"generatedAt": "...", "runs": ["baseline", "variant"], "promptCount": 100},
            "quality": {
                "baseline": {
                    "avgScore": 0.85,
                    "passRate": 0.82,
                    "confidenceIntervals": {"avgScore": [0.82, 0.88], "passRate": [0.79, 0.85]},
                },
                "variant": {"avgScore": 0.85, "passRate": 0.82},
            },
            "performance": {
                "baseline": {"latency": {"p50": 1200, "p90": 3400}},
                "variant": {
                    "latency": {"p50": 1200, "mean": 1350},
                    "confidenceIntervals": {"latencyMean": [1280, 1420]},
                },
            },
            "reliability": {"baseline": {"type": "run", "toolErrors": 5, "completionRate": 0.99}},
            "headToHead": {
                "pairwise": [{"runA": "baseline", "runB": "variant", "aWins": 35, "bWins": 55}]
            },
        },
    ),
    (
        "TrialsComparisonReport",
        {
            "meta": {
                "generatedAt": "...",
                "runs": ["claude", "gemini"],
                "promptCount": 50,
                "trialsPerPrompt": 5,
                "inputFormat": "trials",
            },
            "capability": {
                "claude": {
                    "avgPassAtK": 0.92,
                    "medianPassAtK": 0.95,
                    "confidenceIntervals": {"avgPassAtK": [0.88, 0.95]},
                }
            },
            "reliability": {
                "claude": {
                    "type": "trial",
                    "avgPassExpK": 0.78,
                    "medianPassExpK": 0.82,
                    "confidenceIntervals": {"avgPassExpK": [0.72, 0.84]},
                }
            },
            "flakiness": {"claude": {"avgFlakiness": 0.14, "flakyPromptCount": 12}},
            "quality": {
                "claude": {
                    "avgScore": 0.85,
                    "medianScore": 0.90,
                    "p25Score": 0.75,
                    "p75Score": 0.95,
                    "confidenceIntervals": {"avgScore": [0.82, 0.88]},
                }
            },
            "performance": {
                "claude": {
                    "latency": LATENCY,
                    "totalDuration": 375000,
                    "confidenceIntervals": {"latencyMean": [1380, 1620]},
                }
            },
            "headToHead": {
                "capability": [
                    {"runA": "claude", "runB": "gemini", "aWins": 28, "bWins": 18, "ties": 4}
                ],
                "reliability": [],
                "overall": [],
            },
        },
    ),
    ("ReliabilityMetrics", {"type": "run", "toolErrors": 5, "completionRate": 0.99}),
    ("TrialsReliabilityMetrics", {"type": "trial", "avgPassExpK": 0.78, "medianPassExpK": 0.82}),
]


@pytest.fixture(scope="module")
def schemas() -> dict[str, Any]:
    from assay.cli.schemas import all_kinds
    from assay.records.catalogue import json_schema

    found = {name: json_schema(name, kind) for name, kind in all_kinds().items()}
    return json.loads(json.dumps(found))  # with lists for tuples


def check(schemas: dict[str, Any], name: str, value: Any) -> None:
    import jsonschema

    jsonschema.Draft202012Validator(schemas[name]).validate(value)


def rows_of(path: Path) -> list[Any]:
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    assert rows
    return rows


@pytest.mark.parametrize(("name", "row"), AS_THE_SEED_PRINTS_THEM)
def test_what_the_seed_prints_is_valid(schemas, name, row):
    check(schemas, name, row)


@pytest.mark.parametrize("name", [name for name, _ in AS_THE_SEED_PRINTS_THEM])
def test_a_wrong_value_is_not_valid(schemas, name):
    import jsonschema

    with pytest.raises(jsonschema.ValidationError):
        check(schemas, name, {"nothing": "that belongs there"})


def test_all_are_valid_schemas_without_references(schemas, assay):
    import jsonschema

    for name, schema in schemas.items():
        jsonschema.Draft202012Validator.check_schema(schema)
        assert schema["title"] == name
        assert "$ref" not in json.dumps(schema)
    assert json.loads(assay("schemas", "--json").stdout) == schemas


GRADER = "def grade(input, output, **more):\n    raise ValueError('broken')\n"
PROMPTS = [
    {"id": "a", "input": "What is 2 + 40?", "hint": "42", "reference": "42", "mine": [1]},
    {"id": "b", "input": ["Remember 7", "What is 1 + 2?"], "hint": "3", "metadata": {"c": None}},
    {"id": "c", "input": "Write a short note into notes.txt", "hint": "zzz", "reference": "no"},
]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("made")
    (folder / "p.jsonl").write_text("".join(json.dumps(row) + "\n" for row in PROMPTS))
    (folder / "grader.py").write_text(GRADER)
    return folder


def test_the_rows_of_every_stage(schemas, assay, made, tmp_path):
    prompts, broken = made / "p.jsonl", made / "grader.py"
    common = ["-s", "demo", "--isolate", "-q"]
    for flags, out in ((["-g", "contains"], "r"), (["-g", broken], "broken"), ([], "plain")):
        done = assay("capture", prompts, *common, *flags, "-o", f"{out}.jsonl")
        assert done.code == (out == "broken"), done.stderr
        for row in rows_of(tmp_path / f"{out}.jsonl"):
            check(schemas, "CaptureResult", row)
    assay("trials", prompts, *common, "-k", "2", "-g", "contains", "-o", "t.jsonl")
    assay("run", prompts, *common, "-o", "raw.jsonl")
    assay("extract", "raw.jsonl", "-s", "demo", "-o", "e.jsonl")
    assay("grade", "e.jsonl", "-g", "contains", "-g", "regex:.", "-o", "g.jsonl")
    assay("summarize", "g.jsonl", "-o", "s.jsonl")
    assay("validate-refs", prompts, "-g", "contains", "--no-op", "-o", "v.jsonl")
    assay("validate-refs", prompts, "-g", broken, "-o", "v2.jsonl")
    assay("calibrate", "r.jsonl", "--export", "sheet.jsonl")
    for name, kind in {
        "t": "TrialResult",
        "raw": "RawOutput",
        "e": "CaptureResult",
        "g": "CaptureResult",
        "s": "SummaryResult",
        "v": "ValidationResult",
        "v2": "ValidationResult",
        "sheet": "LabelRow",
    }.items():
        for row in rows_of(tmp_path / f"{name}.jsonl"):
            check(schemas, kind, row)
    assert rows_of(tmp_path / "r.jsonl")[0]["mine"] == [1]


def test_the_trials_of_an_unfinished_prompt(schemas, assay, made, tmp_path):
    words = ["trials", made / "p.jsonl", "-s", "demo", "--isolate", "-k", "3"]
    assert assay(*words, "--max-cost", "0.001", "-o", "t.jsonl").code == 1
    for row in rows_of(tmp_path / "t.jsonl.partial"):
        check(schemas, "FinishedTrial", row)


def write_runs(folder: Path, *, trials: bool) -> list[str]:
    names = []
    for number, name in enumerate(("x.jsonl", "y.jsonl", "z.jsonl")):
        rows: list[dict[str, Any]] = []
        for i in range(12):
            passes = [(i + number + j) % 3 > 0 for j in range(2)]
            ms = 100.0 + i * (number + 1)
            row: dict[str, Any] = {"id": f"p{i}", "input": "x", "metadata": {"category": "c"}}
            if trials:
                entries = [
                    {"trialNum": j + 1, "output": "o", "trajectory": [], "duration": ms, "pass": ok}
                    for j, ok in enumerate(passes)
                ]
                scored = [entry | {"score": float(entry["pass"])} for entry in entries]
                rows.append(row | {"k": 2, "trials": scored})
            else:
                timing = {"start": 0, "end": ms, "total": ms, "firstResponse": 3}
                usage = {"inputTokens": 5, "outputTokens": 2, "costUsd": 0.01}
                row |= {"output": "o", "trajectory": STEPS, "timing": timing, "usage": usage}
                if i:
                    row["score"] = {"pass": passes[0], "score": float(passes[0])}
                else:
                    row["failure"] = {"cause": "provider", "message": "down"}
                rows.append(row)
        (folder / name).write_text("".join(json.dumps(row) + "\n" for row in rows))
        names.append(name)
    return names


@pytest.mark.parametrize("strategy", ["weighted", "statistical"])
@pytest.mark.parametrize("trials", [False, True])
@pytest.mark.parametrize("n_runs", [2, 3])
def test_comparisons(schemas, assay, tmp_path, trials, strategy, n_runs):
    names = write_runs(tmp_path, trials=trials)[:n_runs]
    report = json.loads(assay("compare", *names, "-s", strategy).stdout)
    check(schemas, "TrialsComparisonReport" if trials else "ComparisonReport", report)
    part = "TrialsReliabilityMetrics" if trials else "ReliabilityMetrics"
    for metrics in report["reliability"].values():
        check(schemas, part, metrics)
    assert ("ranking" in report) == (n_runs == 3)


def test_a_comparison_of_nothing_measured(schemas, assay, tmp_path):
    row = {"id": "p", "input": "x", "output": "", "trajectory": [], "timing": {"total": 1}}
    row["failure"] = {"cause": "auth", "message": "no key"}
    for name in ("a.jsonl", "b.jsonl"):
        (tmp_path / name).write_text(json.dumps(row) + "\n")
    check(schemas, "ComparisonReport", json.loads(assay("compare", "a.jsonl", "b.jsonl").stdout))


def test_the_other_reports(schemas, assay, made, tmp_path):
    names = write_runs(tmp_path, trials=False)
    prompts = made / "p.jsonl"
    for words, kind in {
        ("balance", prompts): "BalanceAnalysis",
        ("calibrate", names[0], "--json"): "CalibrationReport",
        ("calibrate", names[0], "-g", "contains:o", "--json"): "CalibrationReport",
        ("plan", *names[:2], "--json"): "PlanReport",
        ("plan", "--rate", "0.5", "--json"): "PlanReport",
        ("plan", "--rate", "0.5", "-n", "400", "--fail-on", "regression", "--json"): "PlanReport",
        ("agents", "--json"): "AgentsReport",
        ("doctor", "--json"): "DoctorReport",
        ("doctor", "demo", "--json"): "DoctorReport",
    }.items():
        done = assay(*words)
        assert done.stdout, done.stderr
        check(schemas, kind, json.loads(done.stdout))


def test_labels(schemas, assay, tmp_path):
    name = write_runs(tmp_path, trials=False)[0]
    assay("calibrate", name, "--export", "sheet.jsonl")
    sheet = [row | {"label": "pass"} for row in rows_of(tmp_path / "sheet.jsonl")]
    (tmp_path / "sheet.jsonl").write_text("".join(json.dumps(row) + "\n" for row in sheet))
    report = assay("calibrate", name, "--labels", "sheet.jsonl", "--json").stdout
    check(schemas, "LabelReport", json.loads(report))


def test_explanations_and_doubts(schemas, assay, tmp_path):
    name = write_runs(tmp_path, trials=False)[0]
    rows = [row | {"honeypot": True} for row in rows_of(tmp_path / name)]
    (tmp_path / "h.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    for file in (name, "h.jsonl"):
        check(schemas, "Explanation", json.loads(assay("explain", file, "--json").stdout))
    report = json.loads(assay("compare", name, "h.jsonl", "-f", "json").stdout)
    assert report["doubts"]["countedAs"] == "passed"
    check(schemas, "ComparisonReport", report)


def test_progress_events(schemas, assay, made):
    done = assay("capture", made / "p.jsonl", "-s", "demo", "--isolate", "--json", "-o", "r.jsonl")
    events = [json.loads(line) for line in done.stderr.splitlines()]
    kinds = {event["event"] for event in events}
    assert kinds == {"begun", "started", "step", "finished", "ended"}
    for event in events:
        check(schemas, "ProgressEvent", event)
