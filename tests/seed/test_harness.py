"""What the seed of the evaluation harness says of commands, flags, fields and behaviour."""

import json
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

CAPTURE = "assay capture prompts.jsonl --schema claude.json"
TRIALS = "assay trials prompts.jsonl --schema claude.json"
type Line = Callable[..., Any]
type Rows = Callable[..., list[dict[str, Any]]]


def has(value: Any, shape: Any) -> None:
    """Check that every key of a shape is there, with a value of its type."""
    if isinstance(shape, dict):
        assert shape.keys() <= value.keys(), shape.keys() - value.keys()
        for key, inner in shape.items():
            has(value[key], inner)
    elif isinstance(shape, list):
        assert isinstance(value, list)
        for one in value if shape else ():
            has(one, shape[0])
    else:
        assert isinstance(value, shape), (value, shape)


NUMBER = (int, float)
INTERVAL = [NUMBER]


def test_a_trajectory_holds_thoughts_tools_plans_and_messages(rows: Rows):
    first = rows(CAPTURE)[0]
    assert [s["type"] for s in first["trajectory"]] == ["thought", "tool_call", "plan", "message"]


def test_capture_has_no_format_flag_and_always_writes_jsonl(line: Line, rows: Rows):
    assert line(f"{CAPTURE} --format markdown").returncode == 2
    assert [row["id"] for row in rows(CAPTURE)] == ["test-001", "test-002", "test-003"]


SPELLINGS = [
    *[("-s claude.json", "--schema claude.json"), ("-g ./grader.py", "--grader ./grader.py")],
    *[("-c .", "--cwd ."), ("-t 9000", "--timeout 9000"), ("-j 2", "--concurrency 2")],
    ("-o x.jsonl", "--output x.jsonl"),
]


@pytest.mark.parametrize(("short", "long"), SPELLINGS)
def test_both_spellings_of_an_option_of_capture(
    short: str, long: str, line: Line, project: Path, read_rows: Callable[..., Any]
):
    schema = "" if short.startswith("-s") else "-s claude.json"
    target = "" if short.startswith("-o") else "-o x.jsonl"
    found = []
    for words in (short, long):
        (project / "x.jsonl").unlink(missing_ok=True)
        done = line(f"assay capture prompts.jsonl {schema} {target} {words}")
        assert done.returncode == 0, done.stderr
        written = read_rows(project / "x.jsonl")
        found.append(sorted((row["id"], "score" in row) for row in written))
    assert found[0] == found[1]
    assert len(found[0]) == 3


def test_a_schema_is_required(line: Line):
    done = line("assay capture prompts.jsonl")
    assert done.returncode == 2
    assert "No agent given" in done.stderr


def test_output_goes_to_stdout_or_to_the_file(line: Line, rows: Rows, project: Path):
    assert len(rows(CAPTURE)) == 3
    done = line(f"{CAPTURE} -o deep/down/out.jsonl")
    assert (done.returncode, done.stdout) == (0, "")
    assert len((project / "deep/down/out.jsonl").read_text().splitlines()) == 3


def test_cwd_is_where_the_agent_works(line: Line, project: Path):
    (project / "there").mkdir()
    assert line(f"{CAPTURE} --cwd there").returncode == 0
    assert (project / "there" / "memory.txt").exists()


def test_the_timeout_is_in_milliseconds_and_60000_by_default(rows: Rows, line: Line):
    for row in rows(f"{CAPTURE} -t 300 --limit 1", AGENT_SLEEP_S="30"):
        assert row["metadata"]["timedOut"] is True
        assert row["timing"]["total"] < 20_000
    assert "60000" in line("assay capture --help").stdout


def test_workers_share_the_prompts_and_one_is_the_default(line: Line, project: Path):
    lines = [json.dumps({"id": f"p{n}", "input": "x"}) + "\n" for n in range(4)]
    (project / "four.jsonl").write_text("".join(lines))
    seconds = {}
    for words in ("", "-j 4"):
        began = time.monotonic()
        command = f"assay capture four.jsonl -s claude.json {words}"
        assert line(command, AGENT_SLEEP_S="1").returncode == 0
        seconds[words] = time.monotonic() - began
    assert seconds[""] >= 4
    assert seconds["-j 4"] < seconds[""] - 1.5


def test_workspaces_are_folders_of_their_own_that_stay(line: Line, project: Path):
    assert line(f"{CAPTURE} --workspace-dir ./workspaces -j 3").returncode == 0
    found = {p.parent.name: p.read_text() for p in (project / "workspaces").glob("*/memory.txt")}
    assert set(found) == {"prompt-test-001", "prompt-test-002", "prompt-test-003"}
    assert found["prompt-test-001"].startswith("Create a button component")


def test_without_a_workspace_dir_all_work_in_the_current_folder(rows: Rows, project: Path):
    (project / "memory.txt").unlink(missing_ok=True)
    assert all("workspaceDir" not in row["metadata"] for row in rows(CAPTURE))
    assert (project / "memory.txt").exists()


def test_progress_is_shown_on_stderr_only_when_asked_for(line: Line):
    with_progress = line(f"{CAPTURE} --progress")
    assert "test-002" in with_progress.stderr
    assert "3/3" in with_progress.stderr
    assert "3/3" not in with_progress.stdout
    assert "test-002" not in line(CAPTURE).stderr


def test_append_adds_to_the_file(line: Line, project: Path):
    for _ in range(2):
        assert line(f"{CAPTURE} -o more.jsonl --append").returncode == 0
    assert len((project / "more.jsonl").read_text().splitlines()) == 6


@pytest.mark.parametrize("command", ["capture", "trials", "grade", "calibrate", "validate-refs"])
def test_commands_take_a_grader(command: str, line: Line):
    words = {
        "capture": "prompts.jsonl -s claude.json",
        "trials": "prompts.jsonl -s claude.json -k 1",
        "grade": "extracted.jsonl",
        "calibrate": "results.jsonl",
        "validate-refs": "prompts.jsonl",
    }[command]
    done = line(f"assay {command} {words} --grader ./grader.py")
    assert done.returncode == 0, done.stderr
    assert "hint" in done.stdout


def test_a_grader_adds_its_score_to_each_row(rows: Rows):
    found = rows(f"{CAPTURE} --grader ./grader.py")
    assert [row["score"]["pass"] for row in found] == [True, True, False]
    has(found[0]["score"], {"pass": bool, "score": NUMBER, "reasoning": str})


def test_a_grader_may_give_an_outcome_and_sees_cwd_and_trajectory(line: Line, project: Path):
    (project / "sees.py").write_text(
        "def grade(input, output, hint, trajectory, cwd=None):\n"
        "    steps = [step['type'] for step in trajectory]\n"
        "    return {'pass': True, 'score': 1, 'outcome': {'cwd': cwd, 'steps': steps,\n"
        "            'turns': len(input) if isinstance(input, list) else 1}}\n"
    )
    done = line(f"{CAPTURE} -g ./sees.py --workspace-dir ws")
    found = [json.loads(row)["outcome"] for row in done.stdout.splitlines()]
    assert [outcome["turns"] for outcome in found] == [1, 2, 1]
    assert found[0]["cwd"].endswith("ws/prompt-test-001")
    assert "tool_call" in found[0]["steps"]


def test_a_row_of_trials_without_a_grader(rows: Rows):
    (row, *_) = rows(f"{TRIALS} -k 2")
    trial = {"trialNum": int, "output": str, "trajectory": [dict], "duration": NUMBER}
    has(row, {"id": str, "input": str, "k": int, "trials": [trial]})
    assert not {"passRate", "passAtK", "passExpK"} & row.keys()
    assert not {"pass", "score"} & row["trials"][0].keys()


def test_a_row_of_trials_with_a_grader(rows: Rows):
    (row, *_) = rows(f"{TRIALS} -k 2 --grader ./grader.py")
    trial = {"trialNum": int, "output": str, "pass": bool, "score": NUMBER}
    has(row, {"passRate": NUMBER, "passAtK": NUMBER, "passExpK": NUMBER, "trials": [trial]})
    assert (row["k"], row["passRate"], row["passAtK"], row["passExpK"]) == (2, 1, 1, 1)


def test_trials_run_five_times_by_default(rows: Rows):
    assert [row["k"] for row in rows(f"{TRIALS} -j 3")] == [5, 5, 5]


def test_each_trial_has_a_workspace_named_by_prompt_and_number_that_stays(
    line: Line, project: Path
):
    assert line(f"{TRIALS} -k 2 -j 4 --workspace-dir ./workspaces -o t.jsonl").returncode == 0
    names = {path.name for path in (project / "workspaces").glob("prompt-*")}
    assert names == {f"prompt-test-00{i}-trial-{n}" for i in (1, 2, 3) for n in (1, 2)}


def test_all_trials_of_a_prompt_stand_in_one_row_however_many_workers_there_are(rows: Rows):
    found = rows(f"{TRIALS} -k 3 -j 4 -g ./grader.py")
    assert sorted(row["id"] for row in found) == ["test-001", "test-002", "test-003"]
    assert all([t["trialNum"] for t in row["trials"]] == [1, 2, 3] for row in found)


def test_a_summary_has_the_fields_of_the_seed(rows: Rows):
    (row, *_) = rows("assay summarize results.jsonl")
    has(row, {"id": str, "input": str, "output": str, "toolCalls": [str], "duration": NUMBER})
    assert row["toolCalls"] == ["WebSearch"]


def test_a_summary_for_a_judge_is_markdown(line: Line):
    text = line("assay summarize results.jsonl --markdown").stdout
    assert "test-001" in text
    assert "WebSearch" in text
    assert text.startswith("#")


def test_calibrate_samples_the_failures(line: Line):
    text = line("assay calibrate results.jsonl --sample 10").stdout
    assert "test-003" in text
    assert "test-001" not in text


def test_calibrate_asks_a_second_grader(line: Line, project: Path):
    (project / "loose.py").write_text("def grade(output):\n    return {'pass': True, 'score': 1}\n")
    text = line("assay calibrate results.jsonl --grader ./loose.py --sample 10").stdout
    assert "test-003" in text
    assert re.search("pass", text, re.IGNORECASE)
    assert text != line("assay calibrate results.jsonl --sample 10").stdout


def test_a_checked_reference_has_the_fields_of_the_seed(rows: Rows):
    found = rows("assay validate-refs prompts.jsonl --grader ./grader.py")
    shape = {"id": str, "reference": str, "pass": bool, "score": NUMBER, "reasoning": str}
    for row in found:
        has(row, {**shape, "input": (str, list)})
    assert [row["pass"] for row in found] == [True, True, False]


def test_balance_has_the_fields_of_the_seed(line: Line):
    found = json.loads(line("assay balance prompts.jsonl").stdout)
    category = {"name": str, "count": int, "percentage": int}
    has(found, {"totalCases": int, "categories": [category], "suggestions": [str]})
    assert found["underrepresented"] == []
    assert found["categories"][0] == {"name": "ui", "count": 2, "percentage": 67}


def test_balance_gives_the_ratio_of_positive_and_negative_cases_by_their_key(line: Line):
    found = json.loads(line("assay balance prompts.jsonl --key case").stdout)
    assert {c["name"]: c["count"] for c in found["categories"]} == {"positive": 2, "negative": 1}


def test_the_stages_give_what_capture_gives(rows: Rows):
    stages = "assay run prompts.jsonl -s claude.json | assay extract -s claude.json"
    whole = rows(f"{CAPTURE} -g ./grader.py")
    parts = rows(f"{stages} | assay grade -g ./grader.py")
    for one, other in zip(whole, parts, strict=True):
        assert (one["id"], one["output"], one["score"]) == (
            other["id"], other["output"], other["score"],
        )  # fmt: skip
        assert [s["type"] for s in one["trajectory"]] == [s["type"] for s in other["trajectory"]]


def test_a_hostile_prompt_stays_a_prompt_in_the_modes_of_the_warning(rows: Rows, project: Path):
    hostile = "'; touch owned; $(touch owned) `touch owned` \""
    (project / "bad.jsonl").write_text(json.dumps({"id": "a", "input": hostile}) + "\n")
    for mode in ("--simple 'echo {}'", "--shell 'echo \"$PROMPT\"'"):
        (row,) = rows(f"assay run bad.jsonl {mode}")
        assert row["rawLines"] == [hostile]
    assert not (project / "owned").exists()


def test_a_csv_has_a_line_for_each_row(line: Line):
    text = line("assay format results.jsonl --style csv").stdout
    head, *rest = text.splitlines()
    assert head == "id,input,hint,output,tool_errors,duration_ms,pass,score,reasoning"
    assert len(rest) == 3


def test_jsonl_is_the_default_format_and_changes_nothing(line: Line, project: Path):
    text = (project / "results.jsonl").read_text()
    for words in ("", "--style jsonl", "-f jsonl"):
        assert line(f"assay format results.jsonl {words}").stdout == text


LATENCY = {name: NUMBER for name in ("p50", "p90", "p99", "mean", "min", "max")}
PAIR = {"runA": str, "runB": str, "aWins": int, "bWins": int, "ties": int}


def compared(line: Line, words: str, **env: str) -> dict[str, Any]:
    done = line(f"assay compare {words} --format json", **env)
    assert done.returncode == 0, done.stderr
    report: dict[str, Any] = json.loads(done.stdout)
    return report


def test_a_comparison_of_captures_has_the_fields_of_the_seed(line: Line):
    report = compared(line, "baseline:run1.jsonl variant:run2.jsonl")
    assert report["meta"]["runs"] == ["baseline", "variant"]
    has(report["meta"], {"generatedAt": str, "promptCount": int})
    for run in ("baseline", "variant"):
        has(report["quality"][run], {"avgScore": NUMBER, "passRate": NUMBER})
        has(report["performance"][run]["latency"], LATENCY)
        has(report["reliability"][run], {"type": str, "toolErrors": int, "completionRate": NUMBER})
        assert report["reliability"][run]["type"] == "run"
    has(report["headToHead"]["pairwise"], [PAIR])


def test_runs_of_two_models_are_compared(line: Line, project: Path):
    for model in ("small", "large"):
        assert line(f"{CAPTURE} -g ./grader.py --model {model} -o {model}.jsonl").returncode == 0
        rows = [json.loads(row) for row in (project / f"{model}.jsonl").read_text().splitlines()]
        assert [row["agent"]["model"] for row in rows] == [model] * 3
    report = compared(line, "small.jsonl large.jsonl")
    assert report["meta"]["runs"] == ["small", "large"]
    assert report["quality"]["small"]["passRate"] == report["quality"]["large"]["passRate"]


def test_the_statistical_strategy_adds_intervals_to_captures(line: Line):
    report = compared(line, "a1:run1.jsonl b1:run2.jsonl --strategy statistical")
    quality = report["quality"]["a1"]["confidenceIntervals"]
    assert [len(quality[name]) for name in ("avgScore", "passRate")] == [2, 2]
    latency = report["performance"]["a1"]["confidenceIntervals"]["latencyMean"]
    assert latency[0] <= report["performance"]["a1"]["latency"]["mean"] <= latency[1]


def test_a_comparison_of_trials_has_the_fields_of_the_seed(line: Line):
    report = compared(line, "claude:trials1.jsonl gemini:trials2.jsonl")
    meta = {"generatedAt": str, "promptCount": int, "trialsPerPrompt": int}
    has(report["meta"], meta)
    assert (report["meta"]["inputFormat"], report["meta"]["trialsPerPrompt"]) == ("trials", 2)
    for run in ("claude", "gemini"):
        has(report["capability"][run], {"avgPassAtK": NUMBER, "medianPassAtK": NUMBER})
        has(report["reliability"][run], {"avgPassExpK": NUMBER, "medianPassExpK": NUMBER})
        assert report["reliability"][run]["type"] == "trial"
        has(report["flakiness"][run], {"avgFlakiness": NUMBER, "flakyPromptCount": int})
        scores = ("avgScore", "medianScore", "p25Score", "p75Score")
        has(report["quality"][run], dict.fromkeys(scores, NUMBER))
        has(report["performance"][run], {"latency": LATENCY, "totalDuration": NUMBER})
    for name in ("capability", "reliability", "overall"):
        has(report["headToHead"][name], [PAIR])
        assert len(report["headToHead"][name]) == 1


def test_the_statistical_strategy_adds_intervals_to_trials(line: Line):
    report = compared(line, "a1:trials1.jsonl b1:trials2.jsonl --strategy statistical")
    for part, name in (
        ("capability", "avgPassAtK"),
        ("reliability", "avgPassExpK"),
        ("quality", "avgScore"),
        ("performance", "latencyMean"),
    ):
        low, high = report[part]["a1"]["confidenceIntervals"][name]
        assert low <= high


def test_quality_of_trials_is_there_only_with_a_grader_and_performance_always(line: Line):
    assert line(f"{TRIALS} -k 2 -o plain.jsonl").returncode == 0
    report = compared(line, "a1:plain.jsonl b1:plain.jsonl")
    assert "quality" not in report
    assert report["performance"]["a1"]["latency"]["max"] > 0


def test_the_metrics_of_trials_are_those_of_the_formulas(line: Line, project: Path):
    """2 of 4 trials pass: p = 0.5, k = 4."""
    row = tried((False, False, True, True))
    for trial in row["trials"]:
        trial["score"] = float(trial["pass"])
    (project / "half.jsonl").write_text(json.dumps(row) + "\n")
    report = compared(line, "a1:half.jsonl b1:half.jsonl")
    assert report["capability"]["a1"]["avgPassAtK"] == pytest.approx(1 - 0.5**4)
    assert report["reliability"]["a1"]["avgPassExpK"] == pytest.approx(0.5**4)
    assert report["flakiness"]["a1"]["avgFlakiness"] == pytest.approx(1 - 2 * 0.5**4)
    assert report["quality"]["a1"]["avgScore"] == 0.5
    assert report["performance"]["a1"]["latency"]["p90"] == 100


@pytest.mark.parametrize("files", ["run1.jsonl run2.jsonl", "trials1.jsonl trials2.jsonl"])
def test_the_format_of_the_input_is_detected_or_said(files: str, line: Line):
    kind = "trials" if "trials" in files else "capture"
    detected, said = compared(line, files), compared(line, f"{files} --input-format {kind}")
    del detected["meta"]["generatedAt"], said["meta"]["generatedAt"]
    assert detected == said
    other = {"trials": "capture", "capture": "trials"}[kind]
    assert line(f"assay compare {files} --input-format {other}").returncode == 1


def test_weighted_json_is_what_a_program_gets_by_default(line: Line):
    default = json.loads(line("assay compare run1.jsonl run2.jsonl").stdout)
    weighted = compared(line, "run1.jsonl run2.jsonl --strategy weighted")
    del default["meta"]["generatedAt"], weighted["meta"]["generatedAt"]
    assert default == weighted


def captured(score: float, total: int, *, tool_errors: bool) -> dict[str, Any]:
    timing = {"start": 0, "end": total, "sessionCreation": 0, "total": total}
    row = {"id": "a", "input": "x", "output": "y", "trajectory": [], "metadata": {}}
    grade = {"pass": score > 0.5, "score": score}
    return {**row, "timing": timing, "toolErrors": tool_errors, "score": grade}


def tried(passed: tuple[bool, ...]) -> dict[str, Any]:
    trial = {"output": "x", "trajectory": [], "duration": 100}
    trials = [{**trial, "trialNum": n, "pass": p} for n, p in enumerate(passed, 1)]
    p, k = sum(passed) / len(passed), len(passed)
    numbers = {"passRate": p, "passAtK": 1 - (1 - p) ** k, "passExpK": p**k}
    return {"id": "a", "input": "x", "k": k, "trials": trials, "metadata": {}, **numbers}


@pytest.mark.parametrize(
    ("name", "winner"),
    [("COMPARE_QUALITY", "good"), ("COMPARE_LATENCY", "fast"), ("COMPARE_RELIABILITY", "clean")],
)
def test_a_weight_of_captures_decides_who_wins(name: str, winner: str, line: Line, project: Path):
    runs = {
        "good": captured(1, 9000, tool_errors=True),
        "fast": captured(0, 10, tool_errors=True),
        "clean": captured(0, 9000, tool_errors=False),
    }
    for label, row in runs.items():
        (project / f"{label}.jsonl").write_text(json.dumps(row) + "\n")
    weights = dict.fromkeys(("COMPARE_QUALITY", "COMPARE_LATENCY", "COMPARE_RELIABILITY"), "0")
    report = compared(line, "good.jsonl fast.jsonl clean.jsonl", **weights | {name: "1"})
    assert [prompt["winner"] for prompt in report["headToHead"]["prompts"]] == [winner]


@pytest.mark.parametrize(
    ("name", "wins"),
    [
        ("COMPARE_CAPABILITY", (1, 0)),
        ("COMPARE_RELIABILITY", (1, 0)),
        ("COMPARE_CONSISTENCY", (0, 1)),
    ],
)
def test_a_weight_of_trials_decides_who_wins(
    name: str, wins: tuple[int, int], line: Line, project: Path
):
    """One passes now and then, the other fails every time."""
    (project / "flaky.jsonl").write_text(json.dumps(tried((True, False))) + "\n")
    (project / "steady.jsonl").write_text(json.dumps(tried((False, False))) + "\n")
    names = ("COMPARE_CAPABILITY", "COMPARE_RELIABILITY", "COMPARE_CONSISTENCY")
    weights = dict.fromkeys(names, "0") | {name: "1"}
    report = compared(line, "flaky.jsonl steady.jsonl", **weights)
    (pair,) = report["headToHead"]["overall"]
    assert (pair["aWins"], pair["bWins"]) == wins


SCHEMAS = ("CaptureResult", "TrialResult", "GraderResult", "PromptInput", "TrajectoryStep")


@pytest.mark.parametrize("name", [*SCHEMAS, "SummaryResult"])
def test_a_schema_is_listed_and_exported_by_name_and_with_all(name: str, line: Line):
    assert f"- {name} " in line("assay schemas").stdout
    one = json.loads(line(f"assay schemas {name} --json").stdout)
    assert one["title"] == name
    assert json.loads(line("assay schemas --json").stdout)[name] == one


def test_rows_are_checked_in_python_as_the_seed_shows(line: Line, project: Path):
    assert line("assay schemas --json -o schemas.json").returncode == 0
    (project / "check.py").write_text(
        "import json\n"
        "from jsonschema import validate\n"
        "schemas = json.load(open('schemas.json'))\n"
        "for row in map(json.loads, open('results.jsonl')):\n"
        "    validate(row, schemas['CaptureResult'])\n"
        "    print(row['id'], 'valid')\n"
    )
    done = line("python check.py")
    assert done.stdout.split("\n")[:3] == [f"test-00{n} valid" for n in (1, 2, 3)], done.stderr


@pytest.mark.parametrize("field", ["id", "input"])
def test_a_prompt_needs_its_fields(field: str, line: Line, project: Path):
    prompt = {"id": "a", "input": "x"}
    del prompt[field]
    (project / "bad.jsonl").write_text(json.dumps(prompt) + "\n")
    done = line("assay capture bad.jsonl -s claude.json")
    assert done.returncode == 1
    assert f"`{field}`" in done.stderr


def test_ids_of_prompts_are_unique(line: Line, project: Path):
    (project / "bad.jsonl").write_text('{"id":"a","input":"x"}\n{"id":"a","input":"y"}\n')
    done = line("assay capture bad.jsonl -s claude.json")
    assert done.returncode == 1
    assert '"a"' in done.stderr


def test_hint_and_metadata_of_a_prompt_reach_the_row_and_the_grader(rows: Rows):
    first = rows(f"{CAPTURE} -g ./grader.py")[0]
    assert first["hint"] == "<button>"
    assert first["metadata"]["category"] == "ui"
    assert first["score"]["reasoning"] == "Contains hint"


def test_metadata_filters_prompts(rows: Rows):
    assert [r["id"] for r in rows(f"{CAPTURE} --filter category=edge-case")] == ["test-003"]


def test_a_prompt_has_a_timeout_of_its_own(rows: Rows, project: Path):
    prompts = [{"id": "a", "input": "x", "timeout": 300}, {"id": "b", "input": "x"}]
    (project / "two.jsonl").write_text("".join(json.dumps(p) + "\n" for p in prompts))
    found = rows("assay capture two.jsonl -s claude.json -j 2", AGENT_SLEEP_S="1.5")
    timed_out = {row["id"]: row["metadata"]["timedOut"] for row in found}
    assert timed_out == {"a": True, "b": False}


def test_a_list_is_one_session_of_several_turns_and_a_text_is_one_turn(rows: Rows):
    single, several, _ = rows(CAPTURE)
    assert (single["metadata"]["turnCount"], several["metadata"]["turnCount"]) == (1, 2)
    assert several["input"] == ["Create a button", "Make it blue"]
    assert several["output"] == "A <button> for: Create a button; Make it blue; "
    assert single["output"] == "A <button> for: Create a button component; "


def test_the_answer_in_the_row_is_that_of_the_whole_trajectory(rows: Rows):
    row = rows(CAPTURE)[0]
    thought = {"type": str, "content": str, "timestamp": NUMBER}
    has(row["trajectory"][0], thought)
    call = {"name": str, "status": str, "input": dict, "output": dict, "duration": NUMBER}
    has(row["trajectory"][1], {"type": str, **call})
    assert row["trajectory"][1]["output"] == {"hits": 1}
    has(row["trajectory"][3], thought)


def test_metadata_of_a_row(rows: Rows):
    metadata = rows(CAPTURE)[0]["metadata"]
    assert metadata["agent"] == "claude"
    assert (metadata["trajectoryRichness"], metadata["turnCount"]) == ("full", 1)


def test_the_richness_of_a_trajectory(rows: Rows, project: Path):
    schema = json.loads((project / "claude.json").read_text())
    for kinds, richness in ((("message",), "messages-only"), ((), "minimal")):
        events = [e for e in schema["outputEvents"] if e["emitAs"] in kinds]
        (project / "less.json").write_text(json.dumps(schema | {"outputEvents": events}))
        (row,) = rows("assay capture prompts.jsonl -s less.json --limit 1")
        assert row["metadata"]["trajectoryRichness"] == richness


def test_timing_of_a_row(rows: Rows):
    timing = rows(CAPTURE, AGENT_SLEEP_S="0.2")[0]["timing"]
    names = ("start", "end", "firstResponse", "sessionCreation", "total")
    has(timing, dict.fromkeys(names, NUMBER))
    assert timing["total"] == pytest.approx(timing["end"] - timing["start"], abs=1)
    assert timing["total"] >= 200
    assert timing["start"] > 1_700_000_000_000
    assert timing["firstResponse"] <= timing["total"]
    assert (timing["inputTokens"], timing["outputTokens"]) == (150, 85)


def test_tool_errors_are_told_apart_from_pass_and_fail(rows: Rows, project: Path):
    assert [row["toolErrors"] for row in rows(CAPTURE)] == [False] * 3
    program = project / "bin" / "claude"
    program.write_text(program.read_text().replace('"completed"', '"failed"'))
    found = rows(f"{CAPTURE} -g ./grader.py")
    assert [row["toolErrors"] for row in found] == [True] * 3
    assert [row["score"]["pass"] for row in found] == [True, True, False]
    assert all("status" not in row for row in found)


@pytest.mark.parametrize("schema", ["claude-headless.json", "gemini-headless.json"])
def test_turns_remember_each_other_in_stream_and_iterative_mode(schema: str, rows: Rows):
    for words in (f"-s {schema}", f"-- assay headless --schema ./{schema}"):
        found = rows(f"assay capture multi-turn.jsonl {words}")
        assert "42" in found[0]["output"]
        assert "Alice" in found[1]["output"]
        assert "Alice" not in found[0]["output"], "each entry is a session of its own"


def test_help_is_shown_without_a_command(line: Line):
    text = line("assay").stdout
    for name in ("capture", "trials", "summarize", "calibrate", "validate-refs", "balance"):
        assert f"  {name}" in text
    for name in ("schemas", "run", "extract", "grade", "format", "compare", "headless"):
        assert f"  {name}" in text


def test_running_again_from_the_recording_gives_the_same_rows(rows: Rows):
    once = rows("assay extract raw.jsonl -s claude.json")
    assert once == rows("assay extract raw.jsonl -s claude.json")


def put(path: Path, rows: list[dict[str, Any]]) -> None:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def test_the_statistical_strategy_looks_at_scores_and_passes_alone(line: Line, project: Path):
    """By the weights the other run of each pair would win."""
    put(project / "good.jsonl", [captured(0.9, 60_000, tool_errors=True)])
    put(project / "fast.jsonl", [captured(0.8, 10, tool_errors=False)])
    put(project / "flaky.jsonl", [tried((True, False))])
    put(project / "steady.jsonl", [tried((False, False))])
    steady = {"COMPARE_CAPABILITY": "0", "COMPARE_RELIABILITY": "0", "COMPARE_CONSISTENCY": "1"}
    for files, name, env in (
        ("good.jsonl fast.jsonl", "pairwise", {}),
        ("flaky.jsonl steady.jsonl", "overall", steady),
    ):
        wins = {}
        for strategy in ("weighted", "statistical"):
            report = compared(line, f"{files} --strategy {strategy}", **env)
            (pair,) = report["headToHead"][name]
            wins[strategy] = pair["aWins"], pair["bWins"]
            assert report["meta"]["strategy"] == strategy
        assert wins == {"weighted": (0, 1), "statistical": (1, 0)}, files


def test_the_statistical_intervals_hold_the_numbers_beside_them(line: Line, project: Path):
    rows = [captured(n % 5 / 4, 100 + 37 * n % 91, tool_errors=False) for n in range(20)]
    put(project / "a1.jsonl", [row | {"id": f"p{n}"} for n, row in enumerate(rows)])
    report = compared(line, "a1.jsonl b1:a1.jsonl --strategy statistical")
    quality, latency = report["quality"]["a1"], report["performance"]["a1"]
    for part, name, value in (
        (quality, "avgScore", quality["avgScore"]),
        (quality, "passRate", quality["passRate"]),
        (latency, "latencyMean", latency["latency"]["mean"]),
    ):
        low, high = part["confidenceIntervals"][name]
        assert low < value < high
        assert high - low < 2 * value, "twenty prompts say something"


def test_latency_is_that_of_all_trials(line: Line, project: Path):
    """Durations 10, 20, ..., 110 ms: every number is known."""
    rows = []
    for number in range(11):
        row = tried((True,))
        row["trials"][0]["duration"] = 10 * (number + 1)
        rows.append(row | {"id": f"p{number}"})
    put(project / "a1.jsonl", rows)
    performance = compared(line, "a1.jsonl b1:a1.jsonl")["performance"]["a1"]
    wanted = {"p50": 60, "p90": 100, "p99": 109, "mean": 60, "min": 10, "max": 110}
    assert performance["latency"] == pytest.approx(wanted)
    assert performance["totalDuration"] == 660


def test_runs_of_two_agents_are_compared(line: Line, project: Path):
    """One repeats what it is asked, and so passes other prompts than the other."""
    assert (
        line("assay capture prompts.jsonl -s claude.json -g ./grader.py -q -o x1.jsonl").returncode
        == 0
    )
    words = "--simple 'echo never said {}' -g ./grader.py -q -o x2.jsonl"
    assert line(f"assay capture prompts.jsonl {words}").returncode == 0
    report = compared(line, "claude:x1.jsonl echo:x2.jsonl")
    assert report["meta"]["agents"]["claude"] != report["meta"]["agents"]["echo"]
    assert "claude" in report["meta"]["agents"]["claude"][0]
    (pair,) = report["pairs"]
    assert (pair["regressed"], pair["improved"]) == (["test-001"], ["test-003"])
    assert report["quality"]["claude"]["passRate"] == pytest.approx(2 / 3)


COMPARISON_GRADER = """
export const grade = async ({ id, input, hint, runs }) => {
  const order = Object.keys(runs).sort((a, b) => runs[a].score.score - runs[b].score.score)
  const seen = order.map(run => {
    const { output, trajectory, duration, toolErrors } = runs[run]
    return `${run}=${output.length},${trajectory.length},${duration},${toolErrors}`
  })
  return {
    rankings: order.map((run, n) => ({ run, rank: n + 1, score: 1 / (n + 1) })),
    reasoning: `${id}|${input}|${hint}|${seen.join(';')}`,
  }
}
"""


def test_a_comparison_grader_in_typescript_decides_and_its_reasoning_is_shown(
    line: Line, project: Path, bun: Path
):
    """It prefers the lower score, as nothing else would, and tells what it was given."""
    low, high = captured(0.2, 300, tool_errors=True), captured(0.9, 200, tool_errors=False)
    put(project / "low.jsonl", [low | {"hint": "h"}])
    put(project / "high.jsonl", [high | {"hint": "h"}])
    (project / "judge.ts").write_text(COMPARISON_GRADER)
    words = "assay compare high.jsonl low.jsonl --strategy custom --grader ./judge.ts"
    report = json.loads(line(words, bun).stdout)
    (prompt,) = report["headToHead"]["prompts"]
    assert prompt["winner"] == "low"
    assert prompt["reasoning"] == "a|x|h|low=1,0,300,true;high=1,0,200,false"
    assert report["judge"]["verdict"][0]["preferred"] == "low"
    text = line(f"{words} --format markdown", bun).stdout.replace("\\", "")
    assert text.startswith("# Comparison\n\n**judge.ts prefers low to high: 1 prompt to 0")
    assert "| a | low | a|x|h|low=1,0,300,true;high=1,0,200,false |" in text
