"""Clusters of alike failures, and the step at which the trials of a prompt part."""

import json
from pathlib import Path
from typing import Any

import msgspec

from assay.compare.doubts import doubtful_in
from assay.compare.explain import Prompts, explain_files
from assay.compare.model_labels import label_question, read_label
from assay.records.trial.views import ExplainedRow


def step(command: str, output: str = "", code: int = 0) -> dict[str, Any]:
    status = "failed" if code else "completed"
    given = {"type": "tool_call", "name": "Bash", "status": status, "input": {"command": command}}
    return given | {"output": output, "exitCode": code}


def trial(name: str, *steps: dict[str, Any], passed: bool | None = False, **more: Any) -> Any:
    score = {} if passed is None else {"score": {"pass": passed, "score": float(passed)}}
    timing = {"start": 0, "end": 1, "total": 1}
    given = {"id": name, "input": "Fix it", "output": "x", "trajectory": list(steps)}
    return given | {"metadata": {}, "timing": timing} | score | more


def write(path: Path, *rows: Any) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def numpy_missing(n: int) -> dict[str, Any]:
    return step(f"python /work/{n}/run.py", f"ModuleNotFoundError: numpy at line {n}", 1)


def test_alike_failures_are_one_cluster_the_largest_first(tmp_path: Path) -> None:
    rows = [trial(f"a{n}", step("ls"), numpy_missing(n), step("true")) for n in range(4)]
    rows += [trial("b", step("make", "error: no rule 7", 2), step("true")) for _ in range(2)]
    found = explain_files([("new", write(tmp_path / "r.jsonl", *rows))])
    assert found.n_failed == 6
    assert [one.n_failures for one in found.clusters] == [4, 2]
    first = found.clusters[0]
    assert first.error == "ModuleNotFoundError: numpy at line N"
    assert (first.step, first.detector) == (2, None)
    assert first.trials[0] == ("new", "a0", None)


def test_trials_part_where_the_chance_to_pass_differs_most() -> None:
    prompts = Prompts()
    for n in range(10):
        steps = [step(f"ls {n}"), step("pip install numpy"), step("pytest")]
        row = trial("p", *steps, passed=n < 9)
        prompts.add("new", msgspec.convert(row | {"trialNum": n + 1}, ExplainedRow))
    for n in range(12):
        row = trial("p", step(f"ls {n}"), step("pytest"), passed=n < 1)
        prompts.add("new", msgspec.convert(row | {"trialNum": n + 11}, ExplainedRow))
    [one] = prompts.divergences()
    assert one.call == "pip install numpy"
    assert (one.passed_with, one.n_with, one.passed_without, one.n_without) == (9, 10, 1, 12)
    assert (one.step, one.number) == (2, 1)


def test_the_agents_own_folder_does_not_make_calls_differ() -> None:
    prompts = Prompts()
    for n in range(4):
        file = "secret/app.py" if n < 2 else "app.py"
        command = step(f"cat /tmp/ws-{n}/{file}")
        row = trial("p", command, passed=n < 2, cwd=f"/tmp/ws-{n}") | {"trialNum": n + 1}
        prompts.add("new", msgspec.convert(row, ExplainedRow))
    [one] = prompts.divergences()
    assert (one.call, one.passed_with, one.n_with) == ("cat secret/app.py", 2, 2)


def test_a_prompt_that_only_fails_has_no_divergence() -> None:
    prompts = Prompts()
    for passed in (False, None):
        prompts.add("new", msgspec.convert(trial("p", step("ls"), passed=passed), ExplainedRow))
    assert list(prompts.divergences()) == []


def test_trials_of_two_files_are_seen_together(tmp_path: Path) -> None:
    old = write(tmp_path / "old.jsonl", trial("p", step("ls"), passed=True))
    new = write(tmp_path / "new.jsonl", trial("p", step("cat x", "no", 1), step("true")))
    [one] = explain_files([("old", old), ("new", new)]).divergences
    assert (one.passed_with, one.n_with, one.passed_without, one.n_without) == (0, 1, 1, 1)
    assert (one.call, one.run) == ("cat x failed", "new")


def test_honeypots_are_neither_passed_nor_failed(tmp_path: Path) -> None:
    rows = [trial("h", passed=True, honeypot=True), trial("h2", honeypot=True), trial("a")]
    path = write(tmp_path / "r.jsonl", *rows)
    found = explain_files([("new", path)])
    assert (found.n_passed, found.n_failed, found.n_honeypots) == (0, 1, 2)
    assert [one.id for one in found.hacked] == ["h"]
    assert doubtful_in(path).hacked == (("h", 0),)


def test_doubts_know_the_place_of_a_trial_in_its_row(tmp_path: Path) -> None:
    entry = {"output": "x", "duration": 1, "trajectory": [step("rm tests/test_a.py")]}
    entries = [
        entry | {"trialNum": n, "pass": passed} for n, passed in ((1, True), (2, False), (3, True))
    ]
    row = {"id": "a", "input": "Fix it", "k": 3, "trials": entries, "metadata": {}}
    path = write(tmp_path / "t.jsonl", row)
    assert doubtful_in(path).others == (("a", 0), ("a", 2))
    write(path, row | {"input": "Remove the tests"})
    assert doubtful_in(path).others == ()


def test_a_models_label_counts_if_its_quote_stands_in_the_step() -> None:
    row = msgspec.convert(trial("p", step("ls", "a.py"), step("make", "no rule", 2)), ExplainedRow)
    question = label_question(row, "NONCE")
    assert "2. Bash make" in question
    assert question.count("NONCE") == 3

    def said(**answer: Any) -> tuple[str, str]:
        label = read_label(json.dumps(answer), row)
        return label.label, label.problem

    assert said(label="gave_up", step=2, quote="no  rule") == ("gave_up", "")
    assert said(label="gave_up", step=1, quote="no rule") == (
        "",
        "step 1 does not say what it quotes",
    )
    assert said(label="gave_up", step=9, quote="no rule") == ("", "there is no step 9")
    assert said(label="bored", step=2, quote="no rule") == ("", "no such label: bored")
    assert said(label="loop", step=2, quote="ma") == (
        "",
        "it quotes fewer than 4 characters of step 2",
    )
    assert read_label("I think that it gave up", row).problem.startswith("the answer is not")
