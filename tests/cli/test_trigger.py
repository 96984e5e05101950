"""assay trigger, with agents that really read their folder."""

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from assay.adapters import demo

SKILLED = Path(__file__).parents[1] / "agents" / "skilled.py"
BASH = """
use() {
  printf '{"type":"tool_call","id":"%s","name":"Read","status":"pending",' "$1"
  printf '"input":{"file_path":".agents/skills/%s/SKILL.md"}}\\n' "$1"
  cat ".agents/skills/$1/SKILL.md" > /dev/null && done_ "$1" completed || done_ "$1" failed
}
done_() { printf '{"type":"tool_call","id":"%s","status":"%s","output":"x"}\\n' "$1" "$2"; }
work() { printf '{"type":"tool_call","id":"%s","name":"Bash","status":"completed"}\\n' "$1"; }
say() { printf '{"type":"result","result":"%s"}\\n' "$1"; }
R() { say ok; }
eval "${@: -1}"
"""
"""An agent whose prompt is a shell script; `use NAME` reads a skill."""


@pytest.fixture
def reader(agent: Callable[..., Path], tag: str) -> Callable[..., Path]:
    def write(**changes: Any) -> Path:
        known = {"title": "$.name", "status": "$.status", "callId": "$.id", "output": "$.output"}
        event = {
            "match": {"path": "$.type", "value": "tool_call"},
            "emitAs": "tool_call",
            "extract": {**known, "input": "$.input"},
        }
        command = ["bash", "-c", BASH, tag]
        return agent(command=command, outputEvents=[event], **changes)

    return write


@pytest.fixture
def skills(tmp_path: Path) -> Path:
    """Two skills: the one that is tested, and another that may be used instead."""
    write_skill(tmp_path / "skills/relnotes", "Write release notes from the git history.", "OURS")
    write_skill(tmp_path / "skills/news", "Write a blog post with an announcement.")
    return tmp_path / "skills"


def write_skill(folder: Path, description: str, body: str = "# How") -> None:
    folder.mkdir(parents=True)
    head = f"---\nname: {folder.name}\ndescription: {description}\n---\n"
    (folder / "SKILL.md").write_text(f"{head}{body}\n")


@pytest.fixture
def cases(tmp_path: Path) -> Callable[..., Path]:
    def write(*rows: tuple[str, str, bool]) -> Path:
        path = tmp_path / "cases.jsonl"
        full = [dict(zip(("id", "input", "shouldTrigger"), row, strict=True)) for row in rows]
        path.write_text("".join(json.dumps(row) + "\n" for row in full))
        return path

    return write


def rows_of(path: Path) -> dict[str, dict[str, Any]]:
    return {row["id"]: row for row in map(json.loads, path.read_text().splitlines())}


def test_fires_are_counted_and_trials_end_when_decided(
    assay, reader, skills, cases, alive, tmp_path
):
    given = cases(
        ("fire", "use relnotes; sleep 60; R", True),
        ("decoy", "use news; R", True),
        ("near", "R", False),
        ("false", "use relnotes; sleep 60; R", False),
    )
    args = ("--cases", given, "-s", reader(), "-k", 2, "-j", 4, "--with", skills)
    done = assay("trigger", skills / "relnotes", *args, "-o", "out.jsonl")
    assert done.code == 0, done
    assert done.seconds < 40
    assert alive() == []
    assert "fired where it should:     50.0 % (" in done.stdout
    assert "2 of 4 trials, 2 cases" in done.stdout
    assert "used instead: news in 2 trials" in done.stdout
    assert "4 of 8 trials ended when decided" in done.stdout
    assert "✗ decoy  should      fired 0 of 2   (news 2x)" in done.stdout
    rows = rows_of(tmp_path / "out.jsonl")
    assert {name: row["passRate"] for name, row in rows.items()} == {
        "fire": 1, "decoy": 0, "near": 1, "false": 0,
    }  # fmt: skip
    first = rows["fire"]["trials"][0]
    assert first["metadata"] == {"endedEarly": True}
    assert "failure" not in first
    assert first["outcome"] == {"fired": True, "otherSkills": []}
    assert "metadata" not in rows["near"]["trials"][0]
    assert {name: row["trials"][0]["reasoning"] for name, row in rows.items()} == {
        "fire": "it fired, as it should",
        "decoy": "it did not fire; used instead: news",
        "near": "it did not fire, which is right",
        "false": "it fired and should not have",
    }


def test_the_output_is_an_ordinary_file_of_trials(assay, reader, skills, cases, tmp_path):
    given = cases(("fire", "use relnotes; R", True), ("near", "R", False))
    args = ("--cases", given, "-s", reader(), "-k", 2, "-q")
    for name in ("a.jsonl", "b.jsonl"):
        assert assay("trigger", skills / "relnotes", *args, "-o", name).code == 0
    assert json.loads(assay("compare", "a.jsonl", "b.jsonl").stdout)["meta"]["promptCount"] == 2
    assert assay("report", "a.jsonl", "-o", "a.html").code == 0
    again = assay("grade", "a.jsonl", "-g", "trigger:news", "-o", "graded.jsonl")
    assert again.code == 0, again
    assert rows_of(tmp_path / "graded.jsonl")["fire"]["passRate"] == 0


def test_no_skill_at_all_is_invalid(assay, reader, skills, cases):
    given = cases(("a", "R", True), ("b", "R", False))
    done = assay("trigger", skills / "relnotes", "--cases", given, "-s", reader(), "-k", 2)
    assert done.code == 4, done
    assert "INVALID: relnotes in scripted: no skill was used in any of 4 trials" in done.stderr
    assert "fired 0 of 2" in done.stdout
    assert "-o FILE keeps them" in done.stderr


def test_an_agent_that_does_much_else_is_ended_as_not_fired(assay, reader, skills, cases, tmp_path):
    given = cases(("fire", "use relnotes; R", True), ("busy", "work 1; work 2; sleep 60; R", False))
    args = ("--cases", given, "-s", reader(), "-k", 1, "-j", 2, "--max-calls", 2)
    done = assay("trigger", skills / "relnotes", *args, "-o", "out.jsonl")
    assert done.code == 0, done
    assert done.seconds < 40
    busy = rows_of(tmp_path / "out.jsonl")["busy"]["trials"][0]
    assert (busy["pass"], busy["metadata"]) == (True, {"endedEarly": True})


def test_an_agent_that_crashes_has_not_kept_quiet(assay, reader, skills, cases, tmp_path):
    given = cases(("fire", "use relnotes; R", True), ("crash", "exit 3", False))
    args = ("--cases", given, "-s", reader(), "-k", 1, "-o", "out.jsonl")
    done = assay("trigger", skills / "relnotes", *args)
    assert "fired where it should not: not measured" in done.stdout, done
    assert "? crash  should not  fired 0 of 0   (1 not measured)" in done.stdout
    assert rows_of(tmp_path / "out.jsonl")["crash"]["trials"][0]["pass"] is False


def test_workers_share_neither_home_nor_folder(assay, reader, skills, cases, tmp_path):
    script = 'use relnotes; test -e "$HOME/x" -o -e x && say shared; touch x "$HOME/x"; say "$HOME"'
    # Not ended early: the answer is what is looked at.
    write_skill(tmp_path / "other/quiet", "Nothing.")
    given = cases(*((f"c{n}", script.replace("use relnotes;", ""), False) for n in range(6)))
    args = ("--cases", given, "-s", reader(), "-k", 2, "-j", 4, "-o", "out.jsonl", "-q")
    assert assay("trigger", tmp_path / "other/quiet", *args).code == 4  # no case should trigger it
    trials = [t for row in rows_of(tmp_path / "out.jsonl").values() for t in row["trials"]]
    assert len({t["output"] for t in trials}) == 12
    assert "shared" not in {t["output"] for t in trials}
    assert len({t["cwd"] for t in trials}) == 12


def test_an_installed_copy_cannot_be_used_in_its_place(assay, reader, skills, cases, tmp_path):
    home = tmp_path / "home"
    write_skill(home / ".agents/skills/relnotes", "An old copy.", "OLD")
    write_skill(home / ".agents/skills/other", "Something else.")
    (home / ".agents/skills/broken").mkdir()
    (home / ".agents/skills/broken/SKILL.md").write_text("no head")
    look = "use relnotes; grep -q OURS .agents/skills/relnotes/SKILL.md && use other; R"
    given = cases(("look", look.replace("use relnotes;", ""), True))
    args = ("--cases", given, "-s", reader(), "-k", 1, "--with-installed")
    done = assay("trigger", skills / "relnotes", *args, env={"HOME": str(home)})
    assert "used instead: other in 1 trial" in done.stdout, done
    assert "home/.agents/skills/relnotes is another copy of relnotes; it is left out" in done.stderr
    assert "broken/SKILL.md: does not start with a head" in done.stderr


def test_several_agents_have_a_file_each(assay, reader, skills, cases, tmp_path):
    given = cases(("fire", "use relnotes; R", True), ("near", "R", False))
    agents = ",".join(str(reader(name=name)) for name in ("one", "two"))
    args = ("--cases", given, "-s", agents, "-k", 1, "-j", 2)
    done = assay("trigger", skills / "relnotes", *args, "-o", "out.jsonl", "--json")
    assert done.code == 0, done
    report = json.loads(done.stdout)
    assert [(run["agent"], run["output"]) for run in report["runs"]] == [
        ("one", "out.one.jsonl"), ("two", "out.two.jsonl"),
    ]  # fmt: skip
    assert {event["event"] for event in map(json.loads, done.stderr.splitlines())} >= {"ended"}
    assert rows_of(tmp_path / "out.two.jsonl").keys() == {"fire", "near"}
    twice = assay("trigger", skills / "relnotes", "--cases", given, "-s", f"{reader()},{reader()}")
    assert (twice.code, "given twice" in twice.stderr) == (2, True)


def test_resume_runs_only_what_is_missing(assay, reader, skills, cases, tmp_path):
    count = f"echo x >> {tmp_path}/count; use relnotes; R"
    given = cases(("a", count, True), ("b", count, True))
    schema = reader()
    args = (
        "trigger",
        skills / "relnotes",
        "--cases",
        given,
        "-s",
        schema,
        "-k",
        2,
        "-o",
        "o.jsonl",
    )
    assert assay(*args, "--filter", "a").code == 0
    assert assay(*args).code == 1  # it exists
    done = assay(*args, "--resume")
    assert done.code == 0, done
    assert (tmp_path / "count").read_text().count("x") == 4
    assert rows_of(tmp_path / "o.jsonl").keys() == {"a", "b"}
    judged = assay(*args, "--resume", "--marker", "[RN]")
    assert (judged.code, "the grader trigger" in judged.stderr) == (1, True)
    assert "--regrade" not in judged.stderr  # trigger has no such option
    (skills / "relnotes/SKILL.md").write_text("---\nname: relnotes\ndescription: New.\n---\n")
    changed = assay(*args, "--resume")
    assert (changed.code, "made with other settings" in changed.stderr) == (1, True)


def test_the_marker_of_the_file_fires_without_any_tool(assay, reader, skills, cases):
    (skills / "relnotes/SKILL.md").write_text(
        "---\nname: relnotes\ndescription: Notes.\n---\n<!-- marker: [RN 7] -->\n"
    )
    read = 'say "$(tail -1 .agents/skills/relnotes/SKILL.md)"'
    given = cases(("yes", read, True), ("no", "R", False))
    done = assay("trigger", skills / "relnotes", "--cases", given, "-s", reader(), "-k", 1)
    assert done.code == 0, done
    assert "✓ yes  should      fired 1 of 1" in done.stdout
    assert "✓ no   should not  fired 0 of 1" in done.stdout


def test_two_descriptions_are_compared_in_pairs(assay, skills, cases, tmp_path):
    rows = [(f"n{n}", f"Write the release notes number {n}", True) for n in range(8)]
    given = cases(*rows, ("film", "Review the film", False))
    (tmp_path / "v2.md").write_text("Use for film reviews.")
    args = ("--cases", given, "-s", "demo:skilled", "-k", 2, "-j", 4, "--with", skills)
    done = assay(
        "trigger", skills / "relnotes", *args, "--compare", "v2.md", "-o", "out.jsonl", "--json"
    )
    assert done.code == 0, done
    report = json.loads(done.stdout)
    assert [run["description"] for run in report["runs"]] == ["current", "candidate"]
    (verdict,) = report["verdicts"]
    assert (verdict["agent"], verdict["code"]) == ("demo-skilled", "worse")
    assert rows_of(tmp_path / "out.candidate.jsonl")["n0"]["passRate"] == 0
    for same in ("relnotes", "relnotes/SKILL.md"):  # of the file, the head counts
        done = assay("trigger", skills / "relnotes", *args, "--compare", skills / same)
        assert done.code == 1, done
        assert "this is the same " in done.stderr
        assert "Loaded" not in done.stderr  # nothing was run
    other = assay("trigger", skills / "relnotes", *args, "--compare", skills / "news")
    assert (other.code, "called 'news', not 'relnotes'" in other.stderr) == (1, True)


@pytest.fixture
def skilled(tmp_path: Path) -> Callable[..., tuple[Path, dict[str, str]]]:
    """The demo agent that reads skills, and gives this answer when it is asked to write."""

    def write(answer: str) -> tuple[Path, dict[str, str]]:
        folder = tmp_path / "answers"
        folder.mkdir(exist_ok=True)
        (folder / "answer.txt").write_text(answer)
        schema = demo._schema("skilled") | {
            "command": [sys.executable, str(SKILLED), "--persona", "skilled"]
        }
        path = tmp_path / "skilled.json"
        path.write_text(json.dumps(schema))
        place = str(Path(demo.__file__).parent)
        return path, {"ASSAY_DEMO_FOLDER": place, "ASSAY_TEST_ANSWERS": str(folder)}

    return write


ENV = ("--env", "ASSAY_DEMO_FOLDER", "--env", "ASSAY_TEST_ANSWERS")


def test_better_descriptions_are_found_on_each_half_and_judged_on_the_other(
    assay, skills, cases, skilled, tmp_path
):
    rows = [(f"c{n}", f"Compose the changelog of version {n}", True) for n in range(12)]
    rows += [(f"n{n}", f"Tell me a joke about number {n}", False) for n in range(4)]
    given = cases(*rows, ("r1", "Write release notes", True), ("r2", "git history notes", True))
    better = "Write release notes or compose the changelog of a version, from the git history."
    path, env = skilled(f"Here it is:\n<description>{better}</description>")
    args = (
        "--cases",
        given,
        "-s",
        path,
        "-k",
        1,
        "-j",
        4,
        "--optimize",
        3,
        "-o",
        "out.jsonl",
        *ENV,
    )
    done = assay("trigger", skills / "relnotes", *args, env=env)
    assert done.code == 0, done
    assert f"The best description: {better}" in done.stdout
    assert "candidate is better" in done.stdout, done.stdout
    asked = (tmp_path / "answers/asked.txt").read_text().split("=====")
    assert len(asked) == 3, "nothing is left to improve after the first proposal of each half"
    assert "was not loaded in 1 of 1 trials: Compose the changelog" in asked[0]
    assert "the verdict is on both proposals together" in " ".join(done.stdout.split())
    for train, test in (("train-1", "test-1"), ("second-train-1", "test-2")):
        seen, unseen = (set(rows_of(tmp_path / f"out.{part}.jsonl")) for part in (train, test))
        assert seen.isdisjoint(unseen)
        assert len(seen | unseen) == 18
        assert unseen == set(rows_of(tmp_path / f"out.{test}.candidate.jsonl"))
    for version in ("out.test.jsonl", "out.test.candidate.jsonl"):
        assert len(rows_of(tmp_path / version)) == 18, "every case judges"
    assert (tmp_path / "out.description-1.md").read_text().strip() == better
    assert better not in (skills / "relnotes/SKILL.md").read_text()
    for option in (["--resume"], ["--rerun", "r1"]):
        again = assay("trigger", skills / "relnotes", *args, *option, env=env)
        assert again.code == 0, again
        assert (tmp_path / "answers/asked.txt").read_text().count("=====") == 2


def test_a_proposal_that_is_none_leaves_the_description(assay, skills, cases, skilled):
    rows = [(f"c{n}", "Write release notes" if n else "Compose it", True) for n in range(4)]
    path, env = skilled("I cannot.")
    args = ("--cases", cases(*rows), "-s", path, "-k", 1, "--optimize", 1, "--seed", 3, *ENV)
    done = assay("trigger", skills / "relnotes", *args, env=env)
    assert "No proposal did better than the present description." in done.stdout, done


@pytest.mark.parametrize(
    ("price", "limit", "n_asked", "words"),
    [
        ("0.6", "1", 1, "The agent's work on proposals: $0.60."),
        ("0.6", None, 2, "The agent's work on proposals: $1.20."),
        (None, "1", 2, "2 answers of unknown cost, for which --max-cost counts $"),
        (None, None, 2, "The agent's work on proposals: 2 answers of unknown cost."),
    ],
)
def test_the_budget_counts_proposals(
    assay, skills, cases, skilled, tmp_path, price, limit, n_asked, words
):
    """One proposal for each half. Trials cost nothing, or at most an even share if they are ended;
    no proposal is better."""
    rows = [(f"c{n}", f"Compose the changelog {n}", True) for n in range(3)]
    given = cases(*rows, ("n1", "Write release notes", True))
    path, env = skilled("<description>Write release notes, somehow.</description>")
    env["ASSAY_TEST_TRIAL_USD"] = "0"
    if price is not None:
        (tmp_path / "answers/price.txt").write_text(price)
    args = ("--cases", given, "-s", path, "-k", 1, "-j", 4, "--optimize", 1, *ENV)
    args = (*args, "--env", "ASSAY_TEST_TRIAL_USD", *(("--max-cost", limit) if limit else ()))
    done = assay("trigger", skills / "relnotes", *args, env=env)
    assert (tmp_path / "answers/asked.txt").read_text().count("=====") == n_asked
    assert words in " ".join(done.stderr.split())
    assert "Stopped at --max-cost" not in done.stderr
    refused = "and asking the agent may cost $0.60" in done.stderr
    assert refused is (n_asked == 1)


def test_a_budget_is_for_all_runs_of_an_optimization(assay, skills, cases, tmp_path, skilled):
    """The first run of trials spends most of it; the rest does not suffice for a proposal."""
    rows = [(f"c{n}", f"Compose the changelog {n}", True) for n in range(4)]
    given = cases(*rows, *((f"n{n}", f"Write release notes {n}", True) for n in range(4)))
    path, env = skilled("<description>Write release notes, somehow.</description>")
    env["ASSAY_TEST_TRIAL_USD"] = "0.1"
    args = ("--cases", given, "-s", path, "-k", 1, "--optimize", 3, "-o", "out.jsonl", *ENV)
    args = (*args, "--env", "ASSAY_TEST_TRIAL_USD")
    done = assay("trigger", skills / "relnotes", *args, "--max-cost", "0.45", env=env)
    assert not (tmp_path / "answers/asked.txt").exists()
    assert "There is no proposal 1: $0.0500 is left of --max-cost" in done.stderr
    # When nothing runs, any rest is enough for one more trial; then it ends.
    assert done.code == 1
    assert "Stopped at --max-cost 0.45: 3 trials were not run." in done.stderr
    args = (*args, "--overwrite", "--json", "--max-cost", "0.45")
    report = assay("trigger", skills / "relnotes", *args, env=env)
    assert json.loads(report.stdout)["proposalsUsd"] == 0


def test_the_cost_of_suggested_cases_is_said_and_limited(assay, skills, skilled, tmp_path):
    lines = [json.dumps({"input": f"q{n}", "shouldTrigger": n < 3}) for n in range(6)]
    path, env = skilled("\n".join(lines))
    args = ("trigger", skills / "relnotes", "--suggest", "-s", path, "--cases", "new.jsonl")
    none = assay(*args, "--max-cost", "0", env=env)
    assert (none.code, "$0.00 is left of --max-cost" in none.stderr) == (1, True)
    assert not (tmp_path / "answers/asked.txt").exists()
    (tmp_path / "answers/price.txt").write_text("0.25")
    done = assay(*args, "--max-cost", "1", env=env)
    assert (done.code, "The agent's work on them: $0.25." in done.stderr) == (0, True)


def test_cases_are_suggested_and_never_overwritten(assay, skills, skilled, tmp_path):
    lines = [json.dumps({"input": f"q{n}", "shouldTrigger": n < 3}) for n in range(6)]
    path, env = skilled("```json\n" + "\n".join(lines) + "\n```\nDone.")
    args = ("trigger", skills / "relnotes", "--suggest", "-s", path, "--cases", "new.jsonl")
    done = assay(*args, env=env)
    assert done.code == 0, done
    rows = rows_of(tmp_path / "new.jsonl")
    assert rows["case-6"] == {"id": "case-6", "input": "q5", "shouldTrigger": False}
    assert "Edit them" in done.stderr
    before = (tmp_path / "new.jsonl").read_text()
    again = assay(*args, env=env)
    assert (again.code, "already exists" in again.stderr) == (1, True)
    assert (tmp_path / "new.jsonl").read_text() == before
    path, env = skilled("No idea.")
    none = assay(*args[:-1], "other.jsonl", env=env)
    assert (none.code, "no usable set of cases" in none.stderr) == (1, True)
    assert not (tmp_path / "other.jsonl").exists()


@pytest.mark.parametrize(
    ("head", "said"),
    [
        (None, "there is no SKILL.md"),
        ("no head at all", "does not start with a head"),
        ("---\nname: relnotes\ndescription: x\n", "does not start with a head"),
        ("---\nname: relnotes\n---\n", "the head has no description"),
        ("---\nname: ../x\ndescription: y\n---\n", "cannot be the name of a skill"),
    ],
)
def test_a_folder_that_is_no_skill_is_refused(assay, cases, tmp_path, head, said):
    folder = tmp_path / "broken"
    folder.mkdir()
    if head is not None:
        (folder / "SKILL.md").write_text(head)
    done = assay("trigger", folder, "--cases", cases(("a", "x", True)), "-s", "demo:skilled")
    assert (done.code, said in done.stderr) == (1, True), done
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("args", "code", "said"),
    [
        (("--cases", "none.jsonl"), 1, "none.jsonl"),
        (("--resume",), 2, "need -o FILE"),
        (("-s", "claude,codex", "--model", "m"), 2, "for one agent"),
        (("-s", "demo:skilled,demo", "--optimize", "1"), 2, "for one agent"),
        (("-s", "nobody"), 1, "nobody"),
        (("-k", "0"), 2, "-k"),
        (("-o", "cases.jsonl"), 2, "same file"),
        (("--compare", "empty.md"), 1, "the description is empty"),
        (("--with", "."), 1, "there is no skill in this folder"),
    ],
)
def test_wrong_usage_is_refused_before_anything_runs(
    assay, skills, cases, tmp_path, args, code, said
):
    (tmp_path / "empty.md").write_text(" \n")
    given = cases(("a", "x", True), ("b", "y", True))
    usual = ("--cases", given, "-s", "demo:skilled")
    done = assay("trigger", skills / "relnotes", *usual, *args)
    assert done.code == code, done
    assert said in done.stderr
    assert "Traceback" not in done.stderr
    assert not list(tmp_path.glob("*.raw"))


def test_names_of_cases_and_skills_cannot_write_to_the_terminal(assay, reader, skills, cases):
    given = cases(("\x1b[31mred", "use relnotes; R", True))
    done = assay("trigger", skills / "relnotes", "--cases", given, "-s", reader(), "-k", 1)
    assert "\x1b" not in done.stdout + done.stderr, done
    assert os.linesep in done.stdout


def test_the_agent_gets_a_copy_of_its_login_and_no_row_shows_it(assay, skills, cases, tmp_path):
    home = tmp_path / "home"
    (home / ".assay-agent").mkdir(parents=True)
    (home / ".assay-agent/auth.json").write_text('{"token": "t0psecret-token-1234"}')
    (home / "settings.json").write_text("mine")
    script = """ls ~/settings.json; printf '{"type":"result","result":"%s"}\\n' """
    script += """"$(cut -d: -f2 ~/.assay-agent/auth.json | tr -d '\"} ') of $(ls -a ~ | wc -l)\""""
    schema = {
        "version": 1, "name": "loggedin", "command": ["bash", "-c", 'eval "${@: -1}"', "x"],
        "sessionMode": "stream", "prompt": {}, "output": {"flag": "", "value": ""},
        "login": ["~/.assay-agent/auth.json"], "outputEvents": [],
        "result": {"matchPath": "$.type", "matchValue": "result", "contentPath": "$.result"},
    }  # fmt: skip
    (tmp_path / "agent.json").write_text(json.dumps(schema))
    args = ("--cases", cases(("a", script, True)), "-s", "agent.json", "-k", 1, "-o", "out.jsonl")
    done = assay("trigger", skills / "relnotes", *args, env={"HOME": str(home)})
    (trial,) = rows_of(tmp_path / "out.jsonl")["a"]["trials"]
    assert trial["output"].startswith("[redacted]*"), (trial, done)
    assert "No such file" in trial["stderr"], "the rest of HOME stays behind"
    assert "t0psecret" not in (tmp_path / "out.jsonl").read_text() + done.stdout + done.stderr


def test_a_trial_is_ended_early_in_a_sandbox_too(assay, reader, skills, cases, alive, tmp_path):
    given = cases(("fire", "use relnotes; sleep 60; R", True), ("near", "R", False))
    args = ("--cases", given, "-s", reader(), "-k", 1, "-j", 2, "--sandbox", "-o", "out.jsonl")
    done = assay("trigger", skills / "relnotes", *args)
    assert done.code == 0, done
    assert alive() == []
    fire = rows_of(tmp_path / "out.jsonl")["fire"]["trials"][0]
    assert (fire["pass"], fire["metadata"]) == (True, {"endedEarly": True})
    assert "failure" not in fire


@pytest.mark.parametrize(
    ("args", "code", "said"),
    [
        (["--filter", "nosuch=1"], 1, "cases.jsonl: no cases that match the filter"),
        (["--optimize", "2", "--compare", "v2.md"], 2, "--optimize and --compare cannot be used"),
        (["--suggest", "--compare", "v2.md"], 2, "--suggest and --compare cannot be used"),
        (["-s", ""], 2, "-s '' names no agent. Use -s AGENT or -s AGENT,AGENT."),
        (["-s", "demo,"], 2, "-s 'demo,' names no agent before or after a comma."),
        (["-o", "old.jsonl"], 1, "use --resume to run only what is missing, or --overwrite"),
    ],
)
def test_what_cannot_work_is_refused_before_anything_runs(
    assay, skills, cases, tmp_path, args, code, said
):
    given = cases(("a", "Write the release notes", True))
    (tmp_path / "v2.md").write_text("Use for film reviews.")
    (tmp_path / "old.jsonl").write_text("{}\n")
    all_args = ("--cases", given, "-s", "demo:skilled", "-k", 1, *args)
    done = assay("trigger", skills / "relnotes", *all_args)
    assert done.code == code, done
    assert said in " ".join(done.stderr.split())
    assert "--append" not in done.stderr
    assert "--simple" not in done.stderr
    assert done.stdout == ""


def test_cases_stand_in_the_order_of_the_file_and_all_outputs_are_named(
    assay, reader, skills, cases
):
    given = cases(("slow", "sleep 0.5; use relnotes; R", True), ("fast", "use relnotes; R", True))
    args = ("--cases", given, "-k", 1, "-j", 2)
    done = assay("trigger", skills / "relnotes", *args, "-s", f"{reader()},demo", "-o", "m.jsonl")
    assert done.stdout.index("slow") < done.stdout.index("fast"), done
    (last,) = [line for line in done.stderr.splitlines() if " -> " in line]
    assert last.count(".jsonl") == 2
    assert "m.demo-steady.jsonl" in last
    quiet = assay("trigger", skills / "relnotes", *args, "-s", reader(), "-q")
    assert (quiet.code, quiet.stdout, quiet.stderr) == (0, "", "")
