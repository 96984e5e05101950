"""Run every line of the workflows of docs/ci.md, and of the action that the short one uses, as
GitHub would, with scripted agents."""

import json
import os
import re
import shutil
import stat
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
import yaml

pytestmark = pytest.mark.recorded
PAGE = Path(__file__).parents[2] / "docs" / "ci.md"
ROOT = PAGE.parents[1]
FENCES = re.findall(r"^```yaml\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL)
SHORT: dict[str, Any]
WORKFLOW: dict[str, Any]
SHORT, PRE_COMMIT, WORKFLOW = map(yaml.safe_load, FENCES)
ACTION: dict[str, Any] = yaml.safe_load((ROOT / "action.yml").read_text())
OURS = "YOUR-ORGANISATION/assay@COMMIT"
# The prompt is the chance to pass in per cent; the trial's folder and SALT are the dice.
AGENT = r"""
answer=wrong
world=$(printf '%s' FOLDER)
read -r salt loss < "$world/world"
dice=$(printf '%s' "$salt ${PWD##*/}" | cksum)
[ $(( ${dice%% *} % 100 )) -lt $(( ${@: -1} - loss )) ] && answer=right
printf '{"type":"result","result":"%s"}\n' "$answer"
"""
HOSTILE = "<img src=x onerror=alert(1)> @octocat [x](https://evil.example)"
GRADER = f"""
def grade(output, **given):
    passed = output == "right"
    why = "fine" if passed else {HOSTILE!r}
    return {{"pass": passed, "score": float(passed), "reasoning": why}}
"""
BROKEN_GRADER = "def grade(**given):\n    raise ValueError('no')\n"
PROGRAMS = ("pip", "npm", "gh")
EXPRESSION = re.compile(r"\$\{\{\s*([\w.*()-]+)(?: \|\| '(\w*)')?\s*\}\}")


@dataclass
class Runner:
    """What GitHub does with a workflow: steps, conditions, a cache and a summary."""

    folder: Path
    env: dict[str, str]
    cache: dict[str, bytes] = field(default_factory=dict)
    anchors: dict[str, bytes] = field(default_factory=dict)
    """Those of the newest cache, by the names of their files."""
    n_runs: int = 0
    artifacts: list[str] = field(default_factory=list)
    given: dict[str, str] = field(default_factory=dict)
    """Inputs of the action in place of those of the page."""

    def run(
        self,
        event: str,
        *,
        attempt: int = 1,
        keep: str = "",
        anchor: str = "",
        labels: str = "",
        **variables: str,
    ) -> "Result":
        """Run the job for a push to main or a pull request, in a new checkout.

        keep is what a person gave who started it by hand.
        """
        facts = {
            "inputs.keep": keep,
            "inputs.anchor": anchor,
            "join(github.event.pull_request.labels.*.name)": labels,
        }
        return self.play(
            WORKFLOW, event, facts, {"AGENT": "evals/agent.json", **variables}, attempt
        )

    def play(
        self,
        workflow: dict[str, Any],
        event: str,
        more: dict[str, str],
        variables: dict[str, str],
        attempt: int = 1,
    ) -> "Result":
        """Play a workflow; more has what its expressions mean besides."""
        self.n_runs += 1
        place = self.folder / f"run-{self.n_runs}"
        shutil.copytree(self.folder / "repository", place)
        on_main = event == "push"
        facts = {
            "github.ref": "refs/heads/main" if on_main else "refs/pull/7/merge",
            "github.event_name": event,
            "github.event.number": "7",
            "github.event.pull_request.head.repo.full_name": "us/agent",
            "github.repository": "us/agent",
            "github.run_id": str(self.n_runs if attempt == 1 else self.n_runs - 1),
            "github.run_attempt": str(attempt),
            "github.event.repository.default_branch": "",
            "github.action_path": str(ROOT),
            "github.token": "",
            "secrets.ANTHROPIC_API_KEY": "",
            **more,
        }
        summary = place / "summary.md"
        env = {**self.env, **_filled(workflow.get("env", {}), facts)}
        env |= {"GITHUB_ENV": str(place / "env.txt"), "GITHUB_ACTOR": "octo"}
        env |= {"GITHUB_SHA": f"{self.n_runs:040d}", "GITHUB_OUTPUT": str(place / "outputs.txt")}
        env |= {"GITHUB_STEP_SUMMARY": str(summary), **variables}
        # A provider's moods are no part of the agent: no variable that it would be identified by.
        salt, loss = (env.pop(name) for name in ("SALT", "LOSS"))
        (self.folder / "world").write_text(f"{salt.replace(' ', '-')} {loss}\n")
        result = Result(place)
        for step in workflow["jobs"]["evaluate"]["steps"]:
            if step.get("uses") != OURS:
                self._step(step, facts, env, result)
                continue
            own = {name: str(about.get("default", "")) for name, about in ACTION["inputs"].items()}
            given = {**own, **step["with"], **self.given}
            inside = facts | {f"inputs.{name}": value for name, value in given.items()}
            for part in ACTION["runs"]["steps"]:
                self._step(part, inside, env | _filled(step["env"], facts), result)
        result.summary = summary.read_text() if summary.exists() else ""
        return result

    def _step(
        self, step: dict[str, Any], facts: dict[str, str], env: dict[str, str], result: "Result"
    ) -> None:
        if not _wanted(step.get("if", ""), facts, failed=bool(result.failed)):
            return
        name = step.get("name") or step.get("uses", "")
        result.steps.append(name)
        if "run" not in step:
            self._use(_filled(step, facts), result.folder)
            return
        set_before = Path(env["GITHUB_ENV"])
        lines = set_before.read_text().splitlines() if set_before.exists() else []
        own = {**env, **dict(line.split("=", 1) for line in lines)}
        own |= _filled(step.get("env", {}), facts)
        done = subprocess.run(
            ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", _filled(step["run"], facts)],
            cwd=result.folder,
            env=own,
            capture_output=True,
            text=True,
            timeout=300,
            stdin=subprocess.DEVNULL,
            check=False,
        )
        result.output += f"\n== {name}: {done.returncode}\n{done.stdout}{done.stderr}"
        if done.returncode:
            result.failed[name] = done.returncode
        said = Path(env["GITHUB_OUTPUT"])
        for line in said.read_text().splitlines() if said.exists() else ():
            key, value = line.split("=", 1)
            facts[f"steps.{step['id']}.outputs.{key}"] = result.outputs[key] = value
        said.unlink(missing_ok=True)

    def _use(self, step: dict[str, Any], folder: Path) -> None:
        action, given = step["uses"].partition("@")[0], step.get("with", {})
        if action == "actions/cache/restore":
            keys = [k for k in self.cache if k.startswith(given["restore-keys"])]
            file, anchors = _cached(folder, given["path"])
            if keys:
                file.write_bytes(self.cache[keys[-1]])
            for name, content in self.anchors.items():
                anchors.mkdir(exist_ok=True)
                (anchors / name).write_bytes(content)
        elif action == "actions/cache/save":
            assert given["key"] not in self.cache
            file, anchors = _cached(folder, given["path"])
            self.cache[given["key"]] = file.read_bytes()
            self.anchors = {path.name: path.read_bytes() for path in anchors.glob("*")}
        elif action == "actions/upload-artifact":
            self.artifacts = [p for p in given["path"].split() if (folder / p).exists()]
        else:
            assert action in ("actions/checkout", "actions/setup-python", "actions/setup-node")


@dataclass
class Result:
    folder: Path
    steps: list[str] = field(default_factory=list)
    failed: dict[str, int] = field(default_factory=dict)
    output: str = ""
    summary: str = ""
    outputs: dict[str, str] = field(default_factory=dict)


def _cached(folder: Path, paths: str) -> tuple[Path, Path]:
    """The baseline and, if they are kept, its anchors."""
    file, *more = (folder / path for path in paths.split())
    return file, more[0] if more else file.with_suffix(".anchors")


def _wanted(condition: str, facts: dict[str, str], *, failed: bool) -> bool:
    always = "always()" in condition
    parts = [p.strip() for p in condition.split("&&") if p.strip() not in ("", "always()")]
    for part in parts:
        left, sign, right = part.split(" ")
        equal = facts[left] == (right.strip("'") if right.startswith("'") else facts[right])
        if equal != {"==": True, "!=": False}[sign]:
            return False
    return always or not failed


def _filled(value: Any, facts: dict[str, str]) -> Any:
    if isinstance(value, dict):
        return {key: _filled(each, facts) for key, each in value.items()}
    return (
        EXPRESSION.sub(lambda m: facts[m[1]] or m[2] or "", value)
        if isinstance(value, str)
        else value
    )


@pytest.fixture(scope="module")
def make_runner(tmp_path_factory: pytest.TempPathFactory) -> Callable[[], Runner]:
    def make() -> Runner:
        folder = tmp_path_factory.mktemp("ci")
        evals = folder / "repository" / "evals"
        (evals / "workspace").mkdir(parents=True)
        (evals / "workspace" / "notes.txt").write_text("a file that every trial starts with\n")
        (evals / "grader.py").write_text(GRADER)
        # Most are easy, some middling, some hard: of 100 trials 80 pass.
        chances = [100] * 25 + [96] * 5 + [90] * 5 + [60] * 8 + [45] * 3 + [0] * 2 + [35] * 2
        rows = [
            {"id": f"p{n}", "input": str(chance), "metadata": {"number": n}}
            for n, chance in enumerate(chances)
        ]
        (evals / "prompts.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        schema = {
            "version": 1,
            "name": "dice",
            "command": ["bash", "-c", AGENT.replace("FOLDER", str(folder)), "agent"],
            "sessionMode": "stream",
            "prompt": {},
            "output": {"flag": "", "value": ""},
            "outputEvents": [],
            "result": {"matchPath": "$.type", "matchValue": "result", "contentPath": "$.result"},
        }
        (evals / "agent.json").write_text(json.dumps(schema))
        return Runner(folder, _environment(folder))

    return make


def _environment(folder: Path) -> dict[str, str]:
    """Programs of other people only note that they were called: there is no network here."""
    bin_folder = folder / "bin"
    bin_folder.mkdir()
    for name in PROGRAMS:
        program = bin_folder / name
        program.write_text(f'#!/bin/sh\necho "{name} $*" >> {folder}/called.txt\n')
        program.chmod(program.stat().st_mode | stat.S_IXUSR)
    path = f"{bin_folder}:{Path(sys.executable).parent}:{os.environ['PATH']}"
    return {**os.environ, "PATH": path, "SALT": "main", "LOSS": "0"}


@pytest.fixture(scope="module")
def after_main(make_runner: Callable[[], Runner]) -> Runner:
    """A repository whose main was measured once."""
    runner = make_runner()
    first = runner.run("push")
    assert not first.failed, first.output
    assert "Keep the baseline" in first.steps
    assert "Measure the branch until it is decided" not in first.steps
    return runner


def test_actions_are_pinned_to_commits_of_majors_that_run_on_node_24() -> None:
    text = PAGE.read_text() + (ROOT / "action.yml").read_text()
    used = dict(re.findall(r"uses: actions/(\S+)@[0-9a-f]{40} # v(\d+)\.\d+\.\d+$", text, re.M))
    steps = [*WORKFLOW["jobs"]["evaluate"]["steps"], *ACTION["runs"]["steps"]]
    steps += [one for one in SHORT["jobs"]["evaluate"]["steps"] if one.get("uses") != OURS]
    assert {one["uses"].partition("@")[0] for one in steps if "uses" in one} == {
        f"actions/{name}" for name in used
    }
    majors = {"checkout": 7, "setup-python": 7, "setup-node": 7, "upload-artifact": 7}
    majors |= {"cache/restore": 6, "cache/save": 6}
    assert {name: int(major) for name, major in used.items()} == majors


def test_the_first_build_of_main_is_the_baseline(after_main: Runner) -> None:
    called = (after_main.folder / "called.txt").read_text()
    assert called.startswith("pip install ./assay\nnpm install --global @anthropic-ai/claude-code@")
    (kept,) = list(after_main.cache.values())[:1]
    rows = [json.loads(line) for line in kept.splitlines()]
    assert len(rows) == 50
    assert {row["k"] for row in rows} == {int(WORKFLOW["env"]["TRIALS"])}
    assert {entry["build"]["label"] for row in rows for entry in row["trials"]} == {"0" * 12}


def test_an_unchanged_agent_passes(after_main: Runner) -> None:
    before = dict(after_main.cache)
    done = after_main.run("pull_request", SALT="the branch")
    assert not done.failed, done.output
    assert done.summary.startswith("## Passed: the agent is not worse by 0.12")
    assert "✅ **Passed: new is not worse than main by 12 points.**" in done.summary
    _check_summary(done)
    assert after_main.cache == before
    assert after_main.artifacts == ["report.html", "junit.xml", "new.jsonl", "new.jsonl.gate.json"]
    suites = ElementTree.parse(done.folder / "junit.xml").getroot().findall("testsuite")
    assert [suite.get("name") for suite in suites] == ["new"]
    assert 10 <= int(suites[0].get("tests", "0")) <= 51, "the gate, and a case for each prompt"
    assert suites[0].get("failures") == "0", "the gate is green"


def test_a_broken_agent_is_stopped(after_main: Runner) -> None:
    before = dict(after_main.cache)
    done = after_main.run("pull_request", SALT="the branch", LOSS="30")
    assert done.failed == {"Measure the branch until it is decided": 3}, done.output
    assert done.summary.startswith("## Failed: the agent is worse")
    assert "❌ **Failed: new is worse than main.**" in done.summary
    _check_summary(done)
    assert after_main.cache == before
    assert done.summary.count("; new: `") == 5, "the five worst prompts, with the reason"
    assert (
        "gh pr comment 7 --body-file comment.md" in (after_main.folder / "called.txt").read_text()
    )


def test_the_margin_follows_the_baseline_and_not_the_prompts_of_the_branch(
    after_main: Runner,
) -> None:
    prompts = after_main.folder / "repository" / "evals" / "prompts.jsonl"
    all_of_them = prompts.read_text()
    prompts.write_text("".join(all_of_them.splitlines(keepends=True)[:46]))
    try:
        done = after_main.run("workflow_dispatch", SALT="the branch", LOSS="60")
    finally:
        prompts.write_text(all_of_them)
    assert (done.folder / "env.txt").read_text() == "MARGIN=0.12\nHALF=0.06\n"
    assert done.failed == {"Measure the branch until it is decided": 3}, "by hand on a branch"
    assert "Post the result as a comment" not in done.steps


def test_reworded_prompts_are_set_aside_or_accepted_by_a_label(after_main: Runner) -> None:
    prompts = after_main.folder / "repository" / "evals" / "prompts.jsonl"
    before = prompts.read_text()
    rows = [json.loads(line) for line in before.splitlines()]
    for row in rows[:8]:
        row["input"] = "99"
    prompts.write_text("".join(json.dumps(row) + "\n" for row in rows))
    try:
        refused = after_main.run("pull_request", SALT="the branch", LOSS="30")
        done = after_main.run(
            "pull_request", SALT="the branch", LOSS="30", labels="bug,accept-eval-changes"
        )
    finally:
        prompts.write_text(before)
    assert refused.failed == {"Measure the branch until it is decided": 4}, refused.output
    assert "--accept-changes" in refused.output
    assert done.failed == {"Measure the branch until it is decided": 3}, done.output
    assert "accepted by octo" in done.output


def test_a_drifted_nightly_is_red_and_an_anchor_is_kept(make_runner: Callable[[], Runner]) -> None:
    runner = make_runner()
    first = runner.run("push", SALT="one", TRIALS="4", anchor="v1")
    assert not first.failed, first.output
    assert list(runner.anchors) == ["v1.jsonl"]
    drifted = runner.run("push", SALT="two", LOSS="40", TRIALS="4")
    assert drifted.failed == {"Judge main": 3}, drifted.output
    assert "assay baseline prune baseline.jsonl --keep 1" in drifted.summary
    again = runner.run("push", SALT="three", LOSS="40", TRIALS="4", keep="1")
    assert "Keep the baseline" in again.steps
    branch = runner.run("pull_request", SALT="four", LOSS="40")
    assert branch.failed == {"Measure the branch until it is decided": 3}, branch.output
    assert "against the anchor v1: fail" in branch.output


def _check_summary(done: Result) -> None:
    text = done.summary
    assert "UNHEALTHY" not in text, text
    number = r"[+-]\d+\.\d+"
    shown = re.search(
        rf"\| new - main \| {number} points \| ({number} to {number}) at every look \|", text
    )
    assert shown, text
    terminal = " ".join(done.output.partition("== Report")[0].split())
    assert f"{shown[1]} points at every look" in terminal
    assert "- Cost: " in text or "cost" in text.lower()
    chances = re.search(r"unchanged agent, (\d+) pass; .* by 0.1, (\d+) are stopped", text)
    assert chances, text
    assert min(int(chances[1]), int(chances[2])) >= 80
    # What a grader said is code, in the summary and in the comment.
    comment = (done.folder / "comment.md").read_text()
    assert comment in text
    for line in text.splitlines():
        if "octocat" in line:
            assert not re.search(r"@octocat|<img|\]\(", re.sub(r"(`+).*?\1", "", line)), line


def test_more_builds_are_pooled_and_a_new_set_up_starts_again(
    make_runner: Callable[[], Runner],
) -> None:
    runner = make_runner()
    for attempt, salt in enumerate(("one", "two"), 1):
        done = runner.run("push", attempt=attempt, SALT=salt, TRIALS="2")
        assert not done.failed, done.output
        # A build is compared with those before it, never with itself.
        assert ("new - main" in done.summary) == (attempt == 2)
    assert len(runner.cache) == 2
    rows = [json.loads(line) for line in list(runner.cache.values())[-1].splitlines()]
    assert {row["k"] for row in rows} == {4}
    assert not runner.run("push", keep="1", SALT="two again", TRIALS="2").failed
    rows = [json.loads(line) for line in list(runner.cache.values())[-1].splitlines()]
    assert {row["k"] for row in rows} == {2}
    (runner.folder / "repository" / "evals" / "workspace" / "notes.txt").write_text("changed\n")
    done = runner.run("push", SALT="three", TRIALS="2")
    assert not done.failed, done.output
    assert "the workspace template" in done.output
    rows = [json.loads(line) for line in list(runner.cache.values())[-1].splitlines()]
    assert {row["k"] for row in rows} == {2}


def test_what_was_not_measured_is_never_kept(make_runner: Callable[[], Runner]) -> None:
    runner = make_runner()
    (runner.folder / "repository" / "evals" / "grader.py").write_text(BROKEN_GRADER)
    done = runner.run("push", TRIALS="1")
    assert done.failed == {"Measure main": 1}, done.output
    assert "Keep the baseline" not in done.steps
    assert runner.cache == {}
    first = runner.run("pull_request", TRIALS="1")
    assert first.failed == {"Measure the branch until it is decided": 4}, first.output
    assert "There is no baseline yet" in first.summary


def _short(runner: Runner, event: str, salt: str, loss: str = "0", **given: str) -> Result:
    """Play the short workflow, with these inputs of the action in place of its own."""
    runner.given = {
        "agent": "evals/agent.json", "template": "evals/workspace", "trials": "4", **given
    }  # fmt: skip
    return runner.play(SHORT, event, {}, {"SALT": salt, "LOSS": loss})


@pytest.fixture(scope="module")
def measured_by_action(make_runner: Callable[[], Runner]) -> Runner:
    runner = make_runner()
    first = _short(runner, "push", "main")
    assert not first.failed, first.output
    assert first.outputs["outcome"] == "baseline"
    assert "Judge the branch" not in first.steps
    assert len(runner.cache) == 1
    return runner


def test_the_action_lets_an_unchanged_agent_pass(measured_by_action: Runner) -> None:
    runner = measured_by_action
    before = dict(runner.cache)
    done = _short(runner, "pull_request", "branch", margin="0.3")
    assert not done.failed, done.output
    assert done.outputs["outcome"] == "passed"
    assert done.summary.startswith("## Passed: the agent is not worse by 0.3")
    assert "new - main" in done.summary
    assert (done.folder / "assay-evaluation/report.html").is_file()
    assert runner.artifacts == [
        f"assay-evaluation/{name}" for name in ("report.html", "new.jsonl", "new.jsonl.gate.json")
    ]
    assert runner.cache == before
    assert "Post the result as a comment" not in done.steps, "only when asked"
    assert SHORT["permissions"] == {"contents": "read"}


def test_the_action_stops_a_broken_agent_and_comments_when_asked(
    measured_by_action: Runner,
) -> None:
    runner = measured_by_action
    done = _short(runner, "pull_request", "branch", loss="60", comment="true")
    assert done.failed == {"Judge the branch": 3}, done.output
    assert done.outputs["outcome"] == "failed"
    assert done.outputs["margin"] == "0.12", "by the 50 prompts of the baseline"
    assert "gh pr comment 7 --body-file" in (runner.folder / "called.txt").read_text()
    assert _short(runner, "push", "main 2", comment="true").outputs["outcome"] == "baseline"


def test_the_action_takes_a_baseline_of_yours_several_graders_and_a_budget(
    measured_by_action: Runner,
) -> None:
    runner = measured_by_action
    own = runner.folder / "repository" / "own.jsonl"
    own.write_bytes(next(iter(runner.cache.values())))
    before = dict(runner.cache)
    graders = "evals/grader.py\n\nregex:right|wrong\n"
    try:
        # On the default branch too: a baseline of yours is never written.
        done = _short(runner, "push", "x", loss="60", baseline="own.jsonl", budget="0.5")
        odd = _short(runner, "push", "x", baseline="own.jsonl", graders=graders, trials="1")
    finally:
        own.unlink()
    assert done.failed == {"Judge the branch": 3}, done.output
    assert runner.cache == before
    assert odd.failed == {"Judge the branch": 4}, "other graders are another question"
    nothing = Runner(runner.folder, runner.env, n_runs=100)
    first = _short(nothing, "pull_request", "x")
    assert first.failed == {"Judge the branch": 4}, first.output
    assert "there is no baseline yet" in first.summary
    assert first.outputs["outcome"] == "cannot-judge"


def test_inputs_never_become_part_of_a_script() -> None:
    for step in ACTION["runs"]["steps"]:
        assert "${{" not in step.get("run", ""), step["name"]
    assert set(ACTION["inputs"]) >= {
        *("prompts", "agent", "graders", "baseline", "margin", "budget", "comment"),
    }
    assert ACTION["inputs"]["comment"]["default"] == "false"


def test_the_hook_refuses_a_stale_verdict(tmp_path: Path) -> None:
    (hook,) = yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text())
    assert hook["id"] == PRE_COMMIT["repos"][0]["hooks"][0]["id"]
    prompts = [{"id": f"p{n}", "input": f"What is {n} + 2?", "hint": str(n + 2)} for n in range(2)]
    text = "".join(json.dumps(one) + "\n" for one in prompts)
    (tmp_path / "prompts.jsonl").write_text(text)
    env = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}

    def run(command: str) -> int:
        return subprocess.run(command.split(), cwd=tmp_path, env=env, check=False,
                              capture_output=True).returncode  # fmt: skip

    run("assay ab prompts.jsonl -s demo:flaky --with agent=demo:better -g contains -k 1 -q")
    assert run(hook["entry"]) == 0
    (tmp_path / "prompts.jsonl").write_text(text.replace("What", "And what"))
    assert run(hook["entry"]) == 3
