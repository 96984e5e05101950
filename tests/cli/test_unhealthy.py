"""A measurement that cannot be believed is no verdict, whoever asks and wherever it is shown."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.cli.test_ab import AGENT, Ab, Project
from tests.report.test_html import blocks

from assay import compare as compare_files
from assay import run as assay_run
from assay.library.evaluation import Gate, evaluate

GRADES = """
def grade(input, output, hint=None):
    if "crash" in output:
        raise ValueError("cannot read this")
    return {"pass": "plum" in output, "score": 1.0 if "plum" in output else 0.0}
"""
# Without the skill every trial fails. With it, they pass, or are lost: these to the provider, or
# because the grader raises an error.
PROVIDER, GRADER = {"LIKE_LOST": "3? 7?"}, {"LIKE_CRASHES": "3? 7?"}


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project(tmp_path)


@pytest.fixture
def ab(assay: Callable[..., Any], project: Project) -> Ab:
    return lambda *args, env=None: assay("ab", *args, env=project.env | (env or {}))


def run(ab: Ab, project: Project, env: dict[str, str], *more: str) -> Any:
    project.write_prompts(10)
    project.write("grader.py", GRADES)
    words = ("prompts.jsonl", "-s", AGENT, "--with", "skill=skills/relnotes")
    return ab(*words, "-k", "2", "-g", "grader.py", "--retries", "0", *more, env=env)


@pytest.mark.parametrize(
    ("env", "why", "more"),
    [
        (PROVIDER, "20% of the planned trials are not measured", ()),
        (GRADER, "the grader failed on 4 trials", ("--until", "k")),
    ],
)
def test_all_forms_of_an_experiment_say_why_there_is_no_verdict(
    ab: Ab,
    project: Project,
    env: dict[str, str],
    why: str,
    more: tuple[str, ...],
) -> None:
    done = run(ab, project, env, *more)
    assert done.code == 4, done.stderr
    verdict = project.verdict()
    assert verdict["valid"] is False
    assert verdict["proof"]["valid"] is True
    assert verdict["verdicts"] == {"relnotes": "unhealthy"}
    page = blocks((project.run / "report.html").read_text())["index"].decode()
    short = (project.run / "verdict.md").read_text()
    for text in (done.stdout, *verdict["sentences"], short, page):
        assert "UNHEALTHY" in text
        assert why in text
    for text in (done.stdout, *verdict["sentences"], short):
        assert not [word for word in ("helps", "hurts", "better", "worse than") if word in text]
    assert all(pair["verdict"]["code"] == "not-enough-data" for pair in verdict["pairs"])
    files = [project.run / f"{arm}.jsonl" for arm in ("control", "relnotes")]
    assert compare_files(*files).decision == "unhealthy"
    quiet = run(ab, project, env, "-q", *more)
    assert quiet.code == 4
    assert why in quiet.stderr
    assert ab("status").stdout.startswith("relnotes: unhealthy: UNHEALTHY (relnotes: ")


def test_what_was_lost_of_an_unhealthy_experiment_runs_again(ab: Ab, project: Project) -> None:
    """The provider is there again: the same command keeps what was measured, and decides."""
    assert run(ab, project, PROVIDER).code == 4
    kept = (project.run / "control.jsonl").read_text()
    done = run(ab, project, {})
    assert done.code == 0, done.stderr
    assert "relnotes helps: 0 % → 100 % of trials pass (+100 points" in done.stdout
    assert (project.run / "control.jsonl").read_text() == kept
    assert project.verdict()["valid"] is True


def test_trials_that_were_not_measured_could_turn_an_experiment(
    ab: Ab,
    project: Project,
) -> None:
    """Few are lost, but what is left shows too little to say it whatever they were."""
    hints = ["plum"] * 7 + ["idea"] * 5 + ["plum"] * 48
    made = [{"id": f"p{i}", "input": f"What is {i}?", "hint": h} for i, h in enumerate(hints)]
    project.write("prompts.jsonl", "".join(json.dumps(row) + "\n" for row in made))
    right = {f"{i}?" for i in range(7)}
    lost = {f"{i}?" for i in range(7, 12)}
    wrong = {f"{i}?" for i in range(12, 60)}
    env = {"LIKE_LOST": " ".join(lost), "LIKE_FAILS": " ".join(wrong)}
    assert len(right | lost | wrong) == 60
    words = ("prompts.jsonl", "-s", AGENT, "--with", "skill=skills/relnotes", "-k", "1", "-j", "4")
    done = ab(*words, "-g", "contains", "--until", "k", "--retries", "0", env=env)
    assert done.code == 0, done.stderr
    told = " ".join(done.stdout.split())
    assert "It is not decided whether relnotes helps: 0 % → 13 % of prompts pass (+13 " in told
    assert "5 trials were not measured (8 % of relnotes), which could turn it; the same" in told
    assert project.verdict()["verdicts"] == {"relnotes": "not-enough-data"}
    short = (project.run / "verdict.md").read_text()
    assert "5 trials were not measured (8 % of relnotes), which could turn it" in short


def test_attempts_that_only_one_arm_lost_could_turn_an_experiment(ab: Ab, project: Project) -> None:
    """They were made again, and all trials are measured: perhaps what failed was lost."""
    project.write_prompts(30)
    wrong = " ".join(f"{i}?" for i in range(9, 30))
    env = {"LIKE_FAILS": wrong, "LIKE_LOST_ONCE": " ".join(f"{i}?" for i in range(11))}
    words = ("prompts.jsonl", "-s", AGENT, "--with", "skill=skills/relnotes", "-k", "1", "-j", "11")
    done = ab(*words, "-g", "contains", "--until", "k", env=env)
    assert done.code == 0, done.stderr
    lost = "Attempts that were lost, in 11 trials of relnotes and 0 of control, could turn it"
    told = " ".join(done.stdout.split())
    assert "It is not decided whether relnotes helps: 0 % → 30 % of prompts pass (+30 " in told
    verdict, short = project.verdict(), (project.run / "verdict.md").read_text()
    assert verdict["verdicts"] == {"relnotes": "not-enough-data"}
    assert verdict["pairs"][0]["verdict"]["code"] == "not-enough-data"
    for text in (told, short, verdict["pairs"][0]["verdict"]["words"]):
        assert lost in text
    # Every trial is measured now.
    assert all(row["nMeasured"] == 1 for row in project.rows("relnotes"))


def rows(path: Path, passed: list[bool | None]) -> Path:
    lost = {"failure": {"cause": "provider", "message": "529"}}
    entry = {"trialNum": 1, "output": "", "trajectory": [], "duration": 1}
    made = [
        {"id": f"p{i}", "input": f"q{i}", "k": 1, "metadata": {}}
        | {"trials": [entry | (lost if one is None else {"pass": one, "score": float(one)})]}
        for i, one in enumerate(passed)
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in made))
    return path


@pytest.mark.parametrize("is_better", [True, False])
def test_trials_that_were_not_measured_could_turn_a_comparison(
    assay: Callable[..., Any], tmp_path: Path, is_better: bool
) -> None:
    low = rows(tmp_path / "low.jsonl", [False] * 7 + [True] * 5 + [False] * 48)
    lossy = rows(tmp_path / "high.jsonl", [True] * 7 + [None] * 5 + [False] * 48)
    sound = rows(tmp_path / "sound.jsonl", [True] * 12 + [False] * 48)
    for other, is_decided in ((lossy, False), (sound, True)):
        files = (low, other) if is_better else (other, low)
        done = assay("compare", *files, "-f", "json")
        (verdict,) = json.loads(done.stdout)["verdict"]
        assert verdict["healthy"] is True
        assert (verdict["code"] != "not-enough-data") == is_decided, verdict
        if not is_decided:
            assert verdict["nUnmeasured"] == 5
            share = "5 trials were not measured (8 % of high), which could turn it; "
            assert share in verdict["words"]
            assert "again with --resume" in verdict["words"]
        gate = assay("compare", *files, "--fail-on", "regression", "--margin", "0.005")
        judged = {True: 0, False: 4} if is_better else {True: 3, False: 4}
        assert gate.code == judged[is_decided], gate.stderr


def excused(path: Path, n_passed: int, n_excused: int, by: str = "") -> Path:
    """50 prompts, of which some passed at the second attempt: the agent had excused the first."""
    rows(path, [number < n_passed for number in range(50)])
    first = {"cause": "provider", "message": "529"} | ({"reportedBy": by} if by else {})
    made = [json.loads(line) for line in path.read_text().splitlines()]
    for row in made[:n_excused]:
        row["trials"][0]["retried"] = [first]
    path.write_text("".join(json.dumps(row) + "\n" for row in made))
    return path


@pytest.mark.parametrize(
    ("n_excused", "by", "is_believed"),
    [(20, "", False), (20, "the agent only", False), (20, "the gateway", True), (3, "", True)],
)
def test_an_agent_that_gets_another_attempt_by_its_own_word_is_not_believed(
    assay: Callable[..., Any], tmp_path: Path, n_excused: int, by: str, is_believed: bool
) -> None:
    """It may call each of its failures an error of its provider: what is left then passes."""
    base = excused(tmp_path / "base.jsonl", 20, 0)
    new = excused(tmp_path / "new.jsonl", 45, n_excused, by)
    done = assay("compare", base, new, "-f", "json")
    report = json.loads(done.stdout)
    (verdict,) = report["verdict"]
    assert (verdict["code"] == "better") == is_believed, verdict
    told = "rrors of the provider that only the agent reports, in 20 trials of new and 0 of base, "
    assert (f"{told}could turn it" in verdict["words"]) != is_believed
    health = report["health"]["new"]
    if by != "the gateway":
        assert health["excused"] == n_excused
        assert health["passRateAtWorst"] == (45 - n_excused) / 50
    for more in ((), ("--sequential",)):
        gate = ("--fail-on", "regression", "--margin", "0.2", *more)
        done = assay("compare", base, new, *gate)
        assert done.code == (0 if is_believed else 4), done.stderr
        assert (told in done.stderr) != is_believed
    same = excused(tmp_path / "same.jsonl", 45, 0)
    done = assay("compare", same, new, "--margin", "0.3", "-f", "json")
    code = json.loads(done.stdout)["verdict"][0]["code"]
    assert code == ("same" if is_believed else "not-enough-data")


@pytest.mark.parametrize("command", ["trials", "capture"])
def test_attempts_that_resume_replaces_are_not_forgotten(
    assay: Callable[..., Any], project: Project, tmp_path: Path, command: str
) -> None:
    """Otherwise an agent could excuse its failures until each of its trials has passed."""
    project.write_prompts(10)
    project.write("project/CLAUDE.md", "Magic word: plum\n")
    agent = (command, "prompts.jsonl", "-s", AGENT, "-g", "contains", "--retries", "0")
    words = (*agent, "--workspace-template", "project", "-o", "out.jsonl")
    words += ("-k", "1") if command == "trials" else ()
    env = project.env | {"LIKE_LOST_ONCE": "2? 5?"}
    assert assay(*words, env=env).code == 0
    again = assay(*words, "--resume", env=env)
    assert again.code == 0, again.stderr
    rows = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    ends = [row["trials"][0] if command == "trials" else row for row in rows]
    assert all("failure" not in end for end in ends)
    lost = [row["input"] for row, end in zip(rows, ends, strict=True) if "retried" in end]
    assert sorted(lost) == ["What is 2?", "What is 5?"]
    assert all(one["cause"] == "provider" for end in ends for one in end.get("retried", ()))


def test_a_gate_does_not_pass_an_agent_that_excuses_its_own_failures(
    assay: Callable[..., Any], project: Project
) -> None:
    project.write_prompts(20)
    project.write("project/CLAUDE.md", "Magic word: plum\n")
    agent = ("prompts.jsonl", "-s", AGENT, "-g", "contains", "--workspace-template", "project")
    assert assay("trials", *agent, "-k", "2", "-o", "base.jsonl", env=project.env).code == 0
    env = project.env | {"LIKE_LOST_ONCE": " ".join(f"{i}?" for i in range(8))}
    gate = ("--until", "decided", "--against", "base.jsonl", "--margin", "0.3")
    done = assay("trials", *agent, "-k", "2", *gate, "-o", "new.jsonl", "-j", "8", env=env)
    assert done.code == 4, done.stderr
    told = " ".join(done.stderr.split())
    assert "8 trials tried again after an error of the provider that only the agent reports; " in (
        told
    )
    assert "that only the agent reports, in 8 trials of fresh and 0 of base, could turn it" in told


def test_a_skill_that_is_measured_in_few_trials_has_no_verdict(
    assay: Callable[..., Any],
    project: Project,
) -> None:
    made = [{"id": f"p{i}", "input": f"Q {i}?", "shouldTrigger": i < 5} for i in range(10)]
    project.write("cases.jsonl", "".join(json.dumps(row) + "\n" for row in made))
    project.write("other.md", "Write notes for every release.")
    env = project.env | {"LIKE_LOST": "3? 7?"}
    words = (
        "trigger",
        "skills/relnotes",
        "--cases",
        "cases.jsonl",
        "-s",
        AGENT,
        "-k",
        "1",
        "-j",
        "4",
    )
    for more in ((), ("--compare", "other.md")):
        done = assay(
            *words, "--marker", "plum", "--env", "LIKE_LOST", "--retries", "0", *more, env=env
        )
        assert done.code == 4, done.stderr
        assert "the measurement is unhealthy: 20% of the planned trials are not" in done.stderr
        assert "better" not in done.stdout
        assert ("UNHEALTHY" in done.stdout) == bool(more)


def test_an_evaluation_in_pytest_believes_no_unhealthy_measurement(tmp_path: Path) -> None:
    made = assay_run(
        [{"id": f"p{i}", "input": f"q{i}"} for i in range(40)],
        agent={"shell": "echo $PROMPT"},
        graders=[fail_a_tenth],
        k=1,
        jobs=4,
    ).to(tmp_path / "out.jsonl")
    found, _ = evaluate(made, Gate(min_pass_rate=0.3), k=1)
    assert found.outcome == "undecided"
    (why,) = found.reasons
    assert why.startswith("undecided: the measurement is unhealthy: the grader failed on 4 trials")


def fail_a_tenth(trial: Any) -> bool:
    if trial.output.strip().endswith("7"):
        msg = "cannot read this"
        raise ValueError(msg)
    return True


def repeated(path: Path, passes: list[int], k: int = 5, lost: int = 0) -> Path:
    """Write trials: of each prompt so many of k pass; of the last ones some are lost."""
    rows = []
    for i, n in enumerate(passes):
        trials = [
            {"trialNum": t + 1, "output": "", "trajectory": [], "duration": 1}
            | {"pass": t < n, "score": float(t < n)}
            for t in range(k)
        ]
        if i >= len(passes) - lost:
            trials[-1] = {k: v for k, v in trials[-1].items() if k not in ("pass", "score")}
            trials[-1]["failure"] = {"cause": "provider", "message": "529"}
        rows.append({"id": f"p{i}", "input": f"q{i}", "k": k, "metadata": {}, "trials": trials})
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def test_what_is_shown_on_these_prompts_is_said_where_prompts_in_general_are_open(
    assay: Callable[..., Any], tmp_path: Path
) -> None:
    """Three of ten prompts get much better: that is no chance, but it says little of others."""
    before = repeated(tmp_path / "a.jsonl", [0, 0, 0, 3, 2, 5, 5, 1, 4, 2])
    after = repeated(tmp_path / "b.jsonl", [5, 5, 4, 3, 2, 5, 5, 1, 4, 2])
    (verdict,) = json.loads(assay("compare", before, after, "-f", "json").stdout)["verdict"]
    assert verdict["code"] == "not-enough-data"
    here = "On these prompts: better (p 0.0018); on prompts like these: not shown yet."
    assert verdict["thesePrompts"] == here
    assert verdict["words"].endswith(here)
    assert here in " ".join(assay("compare", before, after, "-f", "markdown").stdout.split())
    equal = json.loads(assay("compare", before, before, "-f", "json").stdout)["verdict"][0]
    assert "thesePrompts" not in equal
    # Trials that were lost could turn it; one trial of each prompt is McNemar's test already.
    few = repeated(tmp_path / "few.jsonl", [1, 0, 1, 3, 2, 5, 5, 1, 4, 4], lost=4)
    assert '"thesePrompts"' not in assay("compare", before, few, "-f", "json").stdout


def test_an_experiment_says_before_the_first_trial_what_it_can_show(
    ab: Ab, project: Project
) -> None:
    words = ("prompts.jsonl", "-s", AGENT, "--with", "skill=skills/relnotes", "-g", "contains")
    done = ab(*words, "-k", "2", "--smoke")
    told = " ".join(done.stderr.split())
    assert (
        "this run can show a difference of about 0.63 on prompts like these, and of about" in told
    )
    assert "0.49 on these prompts (in 4 of 5 cases); that there is none of 0.02 takes 191" in told
