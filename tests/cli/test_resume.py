"""--resume never mixes: what differs is named; what did not measure the agent is run again."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

GRADER = """
def grade(output):
    return {"pass": "ok" in output, "score": 1.0, "reasoning": "first"}
"""


MODEL = """#!/bin/sh
[ "$1" = --version ] && exec echo 0.61.0
name=$(printf %s%s HARB OR)
echo '{"type":"init","session_id":"s","model":"'$(cat "${0%/*}/$name")'"}'
echo '{"type":"result","status":"success","stats":{}}'
"""


@pytest.fixture
def template(tmp_path: Path) -> Path:
    skill = tmp_path / "template" / ".claude" / "skills" / "notes" / "SKILL.md"
    skill.parent.mkdir(parents=True)
    skill.write_text("---\nname: notes\n---\nWrite notes.\n")
    (tmp_path / "template" / "CLAUDE.md").write_text("Be brief.")
    return tmp_path / "template"


@pytest.fixture
def grader(tmp_path: Path) -> Path:
    path = tmp_path / "grader.py"
    path.write_text(GRADER)
    return path


def edit_skill(folder: Path) -> None:
    (folder / "template/.claude/skills/notes/SKILL.md").write_text("changed")


def add_script_to_skill(folder: Path) -> None:
    (folder / "template/.claude/skills/notes/run.sh").write_text("echo")


def edit_template(folder: Path) -> None:
    (folder / "template/data").write_text("x")


def change_mode(folder: Path) -> None:
    (folder / "template/CLAUDE.md").chmod(0o755)


def edit_grader(folder: Path) -> None:
    (folder / "grader.py").write_text(GRADER.replace("first", "second"))


CHANGES: dict[str, tuple[Any, list[str], str]] = {
    "an edited skill": (edit_skill, [], ".claude/skills/notes/SKILL.md"),
    "a file of a skill": (add_script_to_skill, [], ".claude/skills/notes/SKILL.md"),
    "another template": (edit_template, [], "the workspace template"),
    "another mode": (change_mode, [], "the workspace template"),
    "an edited grader": (edit_grader, [], "the grader grader"),
    "another grader": (None, ["-g", "contains:ok"], "the grader contains"),
    "isolation": (None, ["--isolate"], "the isolation"),
    "a time limit": (None, ["-t", "5000"], "the limit turnMs (60000 before, 5000 now)"),
    "arguments": (None, ["--agent-arg", "x"], "the arguments of the agent"),
}


@pytest.mark.parametrize("what", CHANGES)
@pytest.mark.parametrize("command", ["capture", "trials"])
def test_a_changed_setup_is_refused_and_the_difference_named(
    assay: Callable,
    agent: Callable,
    prompts: Callable,
    template: Path,
    grader: Path,
    tmp_path: Path,
    command: str,
    what: str,
) -> None:
    change, more, named = CHANGES[what]
    path, schema, out = prompts("a", "b"), agent(), tmp_path / "out.jsonl"
    args = [command, path, "-s", schema, "-g", grader, "--workspace-template", template, "-o", out]
    args += ["-k", 1] if command == "trials" else []
    assert assay(*args, "--limit", 1).code == 0
    before = out.read_bytes()
    if change is not None:
        change(tmp_path)
    done = assay(*args, "--resume", *more)
    assert (done.code, out.read_bytes()) == (1, before), done.stderr
    assert named in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("command", [("capture",), ("trials", "-k", "2")])
def test_rows_of_another_model_are_said(
    assay: Callable, prompts: Callable, tmp_path: Path, command: tuple[str, ...]
) -> None:
    """The model that an agent takes by default is known only when it has answered."""
    program = tmp_path / "agent"
    program.write_text(MODEL)
    program.chmod(0o755)
    path, out = prompts("a", "b", "c"), tmp_path / "out.jsonl"
    args = [command[0], path, "-s", f"gemini:{program}", "-o", out, *command[1:]]

    def run(model: str, *more: object) -> str:
        (tmp_path / "HARBOR").write_text(model)
        done = assay(*args, *more)
        assert done.code == 0, done.stderr
        return str(done.stderr)

    assert "mixes models" not in run("m1", "--limit", 1)
    assert "mixes models" not in run("m1", "--limit", 2, "--resume")
    said = run("m2", "--resume")
    assert "this file mixes models: the rows that were there are answers of m1, and now m2" in said


def test_the_same_setup_is_resumed(
    assay: Callable, agent: Callable, prompts: Callable, template: Path, grader: Path
) -> None:
    path, schema = prompts("a", "b"), agent()
    args = ["capture", path, "-s", schema, "-g", grader, "--workspace-template", template]
    args += ["--isolate", "-o", "out.jsonl"]
    assert assay(*args, "--limit", 1).code == 0
    done = assay(*args, "--resume")
    assert done.code == 0, done.stderr


def test_an_edited_program_of_the_agent_is_noticed(
    assay: Callable, agent: Callable, prompts: Callable, tmp_path: Path
) -> None:
    program = tmp_path / "agent.sh"
    program.write_text('#!/bin/sh\necho \'{"type":"result","result":"one"}\'\n')
    program.chmod(0o755)
    args = ["capture", prompts("a", "b"), "-s", agent(command=[str(program)]), "-o", "out.jsonl"]
    assert assay(*args, "--limit", 1).code == 0
    program.write_text('#!/bin/sh\necho \'{"type":"result","result":"two"}\'\n')
    done = assay(*args, "--resume")
    assert done.code == 1
    assert "loads: agent.sh (" in done.stderr


@pytest.mark.parametrize(
    ("first", "second"), [("run", "capture"), ("capture", "trials"), ("trials", "run")]
)
def test_rows_of_another_command_are_refused(
    assay: Callable, agent: Callable, prompts: Callable, tmp_path: Path, first: str, second: str
) -> None:
    path, schema, out = prompts("a", "b"), agent(), tmp_path / "out.jsonl"
    assert assay(first, path, "-s", schema, "-o", out, "--limit", 1).code == 0
    before = out.read_bytes()
    done = assay(second, path, "-s", schema, "-o", out, "--resume")
    assert (done.code, out.read_bytes()) == (1, before)
    assert f"was written by `assay {first}`" in done.stderr


@pytest.mark.parametrize("command", ["capture", "trials"])
def test_regrade_judges_the_finished_trials_again_before_going_on(
    assay: Callable,
    agent: Callable,
    prompts: Callable,
    read_rows: Callable,
    grader: Path,
    tmp_path: Path,
    command: str,
) -> None:
    path, out = prompts("a", "b"), tmp_path / "out.jsonl"
    args = [command, path, "-s", agent(), "-g", grader, "-o", out]
    args += ["-k", 2] if command == "trials" else []
    assert assay(*args, "--limit", 1).code == 0
    (before,) = read_rows(out)
    edit_grader(tmp_path)
    done = assay(*args, "--resume", "--regrade")
    assert done.code == 0, done.stderr
    assert "1 row of " in done.stderr
    rows = read_rows(out)
    assert len(rows) == 2
    assert len({json.dumps(row["identity"]) for row in rows}) == 1
    entries = [entry for row in rows for entry in row.get("trials", [row])]
    versions = {entry["grades"]["grader"]["version"] for entry in entries}
    assert versions == set(rows[0]["identity"]["graders"].values())
    texts = {entry["grades"]["grader"]["reasoning"] for entry in entries}
    assert texts == {"second"}
    again = next(row for row in rows if row["id"] == before["id"])
    ignored = ("identity", "specHash", "score", "grades", "earlierGrades", "trials")
    assert {k: v for k, v in again.items() if k not in ignored} == {
        k: v for k, v in before.items() if k not in ignored
    }


def test_a_prompt_that_was_interrupted_never_holds_two_versions_of_a_grader(
    start: Callable,
    assay: Callable,
    agent: Callable,
    prompts: Callable,
    grader: Path,
    eventually: Callable,
    read_rows: Callable,
    tmp_path: Path,
) -> None:
    out, partial = tmp_path / "t.jsonl", tmp_path / "t.jsonl.partial"
    args = ["trials", prompts("!do wait 0.4"), "-s", agent(), "-g", grader, "-o", out, "-k", 4]
    process = start(*args)
    assert eventually(lambda: partial.exists() and partial.read_bytes().count(b"\n") >= 2)
    process.kill()
    process.wait()
    edit_grader(tmp_path)
    done = assay(*args, "--resume")
    assert done.code == 1
    assert "the grader grader" in done.stderr
    assert "--regrade" in done.stderr
    assert assay(*args, "--resume", "--regrade").code == 0
    (row,) = read_rows(out)
    assert len({entry["grades"]["grader"]["version"] for entry in row["trials"]}) == 1


@pytest.mark.parametrize("command", ["capture", "trials", "run"])
def test_trials_that_did_not_measure_the_agent_are_run_again(
    assay: Callable,
    agent: Callable,
    prompts: Callable,
    read_rows: Callable,
    sign: Callable,
    tmp_path: Path,
    command: str,
) -> None:
    """The working folder of the agent is missing in some trials: not the agent's fault."""
    path, out = prompts("a", "b"), tmp_path / "out.jsonl"
    args = [command, path, "-s", agent(), "-o", out]
    args += ["-k", 2] if command == "trials" else []
    assert assay(*args).code == 0
    lose_one_trial(out, command)
    sign(out)
    before = out.read_bytes()
    done = assay(*args, "--resume", "--keep-failed")
    assert (done.code, out.read_bytes()) == (0, before), done.stderr
    done = assay(*args, "--resume")
    assert done.code == 0, done.stderr
    assert "1 row of " in done.stderr
    rows = read_rows(out)
    assert sorted(row["id"] for row in rows) == ["p0", "p1"]
    entries = [entry for row in rows for entry in row.get("trials", [row])]
    assert not any("failure" in entry for entry in entries)


def lose_one_trial(out: Path, command: str) -> None:
    """Make a trial look as if its worker had been lost."""
    rows = [json.loads(line) for line in out.read_text().splitlines()]
    entry = rows[0]["trials"][1] if command == "trials" else rows[0]
    entry["failure"] = {"cause": "worker_lost", "message": "the worker died"}
    out.write_text("".join(json.dumps(row) + "\n" for row in rows))


def test_chosen_trials_are_run_again(
    assay: Callable, shell_agent: Path, prompts: Callable, read_rows: Callable, tmp_path: Path
) -> None:
    count = 'echo x >> "$PWD/count-{}"'
    path = prompts(
        count.format("good") + "; R",
        count.format("bad") + "; exit 3",
        count.format("wrong") + '; echo \'{"type":"result","result":"no"}\'',
    )
    out = tmp_path / "out.jsonl"
    args = ["capture", path, "-s", shell_agent, "-g", "contains:ok", "-o", out]
    assert assay(*args).code == 0
    counts = lambda: {  # noqa: E731
        name: (tmp_path / f"count-{name}").read_text().count("x")
        for name in ("good", "bad", "wrong")
    }
    assert assay(*args, "--rerun", "failed").code == 0
    assert counts() == {"good": 1, "bad": 2, "wrong": 2}
    assert assay(*args, "--rerun", "p0").code == 0
    assert counts() == {"good": 2, "bad": 2, "wrong": 2}
    assert assay(*args, "--rerun", "unmeasured").code == 0
    assert counts() == {"good": 2, "bad": 2, "wrong": 2}
    nothing = assay(*args, "--rerun", "nosuch")
    assert (nothing.code, nothing.stdout) == (1, "")
    assert "no prompt of this run has the id 'nosuch'" in nothing.stderr
    rows = read_rows(out)
    assert sorted(row["id"] for row in rows) == ["p0", "p1", "p2"]
    segments = (tmp_path / "out.raw").glob("segment-*")
    raw = "".join(segment.read_text() for segment in segments)
    n_kept = [raw.count(f'"trial":"prompt-p{n}"') for n in range(3)]
    assert n_kept == [2, 2, 2], "earlier ones stay"


def test_a_finished_trial_without_a_grade_is_not_run_again(
    assay: Callable, shell_agent: Path, prompts: Callable, tmp_path: Path
) -> None:
    """It is not measured, but to run it again would not change that."""
    path = prompts('echo x >> "$PWD/count"; R')
    args = ["capture", path, "-s", shell_agent, "-o", tmp_path / "out.jsonl"]
    assert assay(*args).code == 0
    assert assay(*args, "--resume").code == 0
    assert assay(*args, "--rerun", "unmeasured").code == 0
    assert (tmp_path / "count").read_text() == "x\n"


@pytest.mark.parametrize("option", ["--regrade", "--keep-failed"])
def test_options_of_resume_need_it(
    assay: Callable, agent: Callable, prompts: Callable, option: str
) -> None:
    done = assay("capture", prompts("a"), "-s", agent(), "-o", "o.jsonl", option)
    assert done.code == 2
    assert f"{option} needs --resume" in done.stderr


INPUTS = {
    "the prompts": lambda p: ["capture", p["prompts"], "-s", p["schema"], "-o", p["prompts"]],
    "the schema": lambda p: ["capture", p["prompts"], "-s", p["schema"], "-o", p["schema"]],
    "a grader": lambda p: [
        *("capture", p["prompts"], "-s", p["schema"], "-g", p["grader"], "-o", p["grader"])
    ],
    "a serving grader": lambda p: [
        *("trials", p["prompts"], "-s", p["schema"], "-g", f"serve:{p['grader']}"),
        *("-o", p["grader"]),
    ],
    "the MCP file": lambda p: [
        "capture",
        p["prompts"],
        "-s",
        "claude",
        "--mcp",
        p["mcp"],
        "-o",
        p["mcp"],
    ],
    "the prompts of run": lambda p: ["run", p["prompts"], "-s", p["schema"], "-o", p["prompts"]],
    "a link to it": lambda p: ["capture", p["prompts"], "-s", p["schema"], "-o", p["link"]],
    "rows to grade": lambda p: ["grade", p["prompts"], "-g", p["grader"], "-o", p["grader"]],
    "a schema to extract": lambda p: [
        "extract",
        p["prompts"],
        "-s",
        p["schema"],
        "-o",
        p["schema"],
    ],
}


@pytest.mark.parametrize("mode", ["--overwrite", "--append", "--resume"])
@pytest.mark.parametrize("what", INPUTS)
def test_the_output_may_not_be_an_input(
    assay: Callable,
    agent: Callable,
    prompts: Callable,
    grader: Path,
    tmp_path: Path,
    what: str,
    mode: str,
) -> None:
    places = {"prompts": prompts("a"), "schema": agent(), "grader": grader}
    places["mcp"] = tmp_path / "mcp.json"
    places["mcp"].write_text('{"mcpServers": {}}')
    places["link"] = tmp_path / "link.jsonl"
    places["link"].symlink_to(places["prompts"])
    before = {name: path.read_bytes() for name, path in places.items()}
    done = assay(*INPUTS[what](places), mode)
    assert done.code in (1, 2)
    assert "-o is the same file" in done.stderr or "No such option" in done.stderr
    assert {name: path.read_bytes() for name, path in places.items()} == before


@pytest.mark.parametrize("command", ["extract", "grade"])
@pytest.mark.parametrize("content", [None, "{}\n".encode("utf-16"), b"[1]\n"])
def test_overwrite_waits_until_the_input_was_read(
    assay: Callable, tmp_path: Path, command: str, content: bytes | None
) -> None:
    old, source = tmp_path / "x.jsonl", tmp_path / "in.jsonl"
    old.write_text('{"id":"kept"}\n')
    if content is not None:
        source.write_bytes(content)
    more = ["-s", "demo"] if command == "extract" else ["-g", "contains"]
    done = assay(command, source, *more, "-o", old, "--overwrite")
    assert done.code == 1
    assert "Traceback" not in done.stderr
    assert old.read_text() == '{"id":"kept"}\n'


def test_grade_signs_the_rows_so_that_a_run_can_go_on_with_the_same_grader(
    assay: Callable, agent: Callable, prompts: Callable, read_rows: Callable, tmp_path: Path
) -> None:
    path, schema = prompts("a", "b"), agent()
    assert assay("capture", path, "-s", schema, "--limit", 1, "-o", "plain.jsonl").code == 0
    assert assay("grade", "plain.jsonl", "-g", "contains:x", "-o", "graded.jsonl").code == 0
    args = ["capture", path, "-s", schema, "-o", "graded.jsonl", "--resume"]
    done = assay(*args)
    assert done.code == 1
    assert "the grader contains" in done.stderr
    assert assay(*args, "-g", "contains:x").code == 0
    rows = read_rows(tmp_path / "graded.jsonl")
    assert rows[0]["identity"] == rows[1]["identity"]


@pytest.mark.parametrize("jobs", [[], ["-j", 2]])
def test_grade_signs_no_rows_of_a_file_that_somebody_changed(
    assay: Callable, agent: Callable, prompts: Callable, tmp_path: Path, jobs: list[str]
) -> None:
    args = ["capture", prompts("a", "b"), "-s", agent(), "-o"]
    grade = ["grade", "plain.jsonl", "-g", "contains:x", *jobs, "-o", "graded.jsonl"]
    assert assay(*args, "plain.jsonl").code == 0
    for _ in range(2):  # the second time they take the place of the first
        assert assay(*grade).code == 0
        assert assay(*args, "graded.jsonl", "-g", "contains:x", "--resume").code == 0
    plain = tmp_path / "plain.jsonl"
    plain.write_text(plain.read_text().replace('"output":"', '"output":"x'))
    assert assay(*grade).code == 0
    done = assay(*args, "graded.jsonl", "-g", "contains:x", "--resume")
    assert done.code == 1
    assert "graded.jsonl: 2 rows were not written by Assay" in done.stderr


@pytest.mark.parametrize("command", ["capture", "trials"])
def test_grader_failures_on_finished_rows_are_counted_and_said(
    assay: Callable,
    agent: Callable,
    prompts: Callable,
    read_rows: Callable,
    tmp_path: Path,
    command: str,
) -> None:
    (tmp_path / "throws.py").write_text("def grade(output):\n    raise RuntimeError('kaput')\n")
    args = [command, prompts("a", "b"), "-s", agent(), "-o", "out.jsonl"]
    args += ["-k", 1] if command == "trials" else []
    assert assay(*args).code == 0
    done = assay(*args, "--resume", "-g", "throws.py")
    assert done.code == 1, done.stderr
    assert "2 rows of out.jsonl are graded\n" in done.stderr
    assert "2 trials were not graded because a grader failed" in done.stderr
    assert "kaput" in done.stderr
    done = assay(*args, "--resume", "-g", "throws.py")
    assert done.code == 1, "the same grader fails again"
    assert "2 rows of out.jsonl are graded again\n" in done.stderr
    assert len(read_rows(tmp_path / "out.jsonl")) == 2


@pytest.mark.parametrize("command", ["capture", "trials"])
def test_another_working_folder_is_refused_while_the_first_is_there(
    assay: Callable, shell_agent: Path, prompts: Callable, tmp_path: Path, command: str
) -> None:
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
    repeats = {"capture": [[], []], "trials": [["-k", 1], ["-k", 2]]}[command]
    args = [command, prompts("R", "R"), "-s", shell_agent, "-o", "out.jsonl"]
    assert assay(*args, "-c", "one", *repeats[0], "--limit", 1).code == 0
    before = (tmp_path / "out.jsonl").read_bytes()
    done = assay(*args, "-c", "two", *repeats[1], "--resume")
    assert done.code == 1
    assert f"worked in {tmp_path}/one, not in {tmp_path}/two" in done.stderr
    assert (tmp_path / "out.jsonl").read_bytes() == before
    (tmp_path / "two").rmdir()
    (tmp_path / "one").rename(tmp_path / "two")
    assert assay(*args, "-c", "two", *repeats[1], "--resume").code == 0


@pytest.mark.parametrize("command", ["capture", "trials"])
@pytest.mark.parametrize("how", ["added", "changed", "of another user"])
def test_rows_that_somebody_else_wrote_are_refused(
    assay: Callable,
    shell_agent: Path,
    prompts: Callable,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    command: str,
    how: str,
) -> None:
    """An agent that outlives a killed run changes its rows while no writer watches."""
    args = [command, prompts("R", "R", "R"), "-s", shell_agent, "-o", "out.jsonl"]
    args += ["-g", "contains:ok", *(["-k", 1] if command == "trials" else [])]
    assert assay(*args, "--limit", 2).code == 0
    out = tmp_path / "out.jsonl"
    first, second = out.read_text().splitlines()
    forged = json.dumps(json.loads(first) | {"hint": "forged"})
    if how == "of another user":
        monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "another"))
    elif how == "added":
        out.write_text(f"{first}\n{second}\n{forged}\n")
    else:
        out.write_text(f"{forged}\n{second}\n")
    before = out.read_bytes()
    done = assay(*args, "--resume")
    assert done.code == 1
    n = "2 rows were" if how == "of another user" else "1 row was"
    assert f"out.jsonl: {n} not written by Assay as this user on this machine" in done.stderr
    assert "--keep-unsigned" in done.stderr
    assert out.read_bytes() == before
    assert assay(*args, "--resume", "--keep-unsigned").code == 0


def test_finished_trials_of_a_prompt_that_goes_on_are_signed_too(
    assay: Callable, shell_agent: Path, prompts: Callable, tmp_path: Path
) -> None:
    args = ["trials", prompts("R"), "-s", shell_agent, "-o", "out.jsonl", "-k"]
    assert assay(*args, 1).code == 0
    row = json.loads((tmp_path / "out.jsonl").read_text())
    line = {name: row[name] for name in ("id", "specHash", "identity")}
    line["entry"] = {**row["trials"][0], "trialNum": 2}
    (tmp_path / "out.jsonl.partial").write_text(json.dumps(line) + "\n")
    done = assay(*args, 3, "--resume")
    assert done.code == 1
    assert "out.jsonl.partial: 1 row was not written by Assay" in done.stderr


def test_rows_are_known_after_a_kill_and_under_another_name(
    assay: Callable, shell_agent: Path, prompts: Callable, read_rows: Callable, tmp_path: Path
) -> None:
    args = ["capture", prompts("R", "R", "R"), "-s", shell_agent, "-o"]
    assert assay(*args, "out.jsonl", "--limit", 2).code == 0
    with (tmp_path / "out.jsonl").open("a") as file:
        file.write('{"id": "torn by a kil')
    (tmp_path / "out.jsonl").rename(tmp_path / "moved.jsonl")
    done = assay(*args, "moved.jsonl", "--resume")
    assert done.code == 0, done.stderr
    assert len(read_rows(tmp_path / "moved.jsonl")) == 3
    assert assay(*args, "moved.jsonl", "--resume").code == 0
    assert assay(*args, "moved.jsonl", "--overwrite").code == 0
