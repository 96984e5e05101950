"""Prompts that carry what they expect: graders, files, a workspace, a set-up, tags."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

SHELL = ("-s",)


def results(path: Path) -> dict[str, dict[str, Any]]:
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    return {row["id"]: row for row in rows}


def row(name: str, script: str = "R", **more: Any) -> dict[str, Any]:
    return {"id": name, "input": script, **more}


def test_each_row_is_judged_by_its_own_graders(assay, shell_agent, prompts, tmp_path) -> None:
    (tmp_path / "own.py").write_text(
        "def grade(input, output, **_):\n    return {'pass': 'ok' in output, 'score': 1.0}\n"
    )
    file = prompts(
        row("good", "say Paris", expect={"contains": "Paris", "regex": ["^P", "s$"]}),
        row("bad", "say London", expect={"contains": ["Lon", "Paris"]}, tags=["capital"]),
        row("file", graders=["./own.py", "regex:ok"]),
        row("none", custom={"kept": 1}),
    )
    done = assay("capture", file, "-s", shell_agent, "-o", "r.jsonl")
    assert done.code == 0, done.stderr
    made = results(tmp_path / "r.jsonl")
    assert made["good"]["score"]["pass"] is True
    assert set(made["good"]["grades"]) == {"contains", "regex", "regex-2"}
    assert made["bad"]["score"]["score"] == 0.5
    assert set(made["file"]["grades"]) == {"own.py", "regex"} or len(made["file"]["grades"]) == 2
    assert "score" not in made["none"]
    assert made["none"]["custom"] == {"kept": 1}
    assert made["bad"]["tags"] == ["capital"]
    assert made["bad"]["expect"] == {"contains": ["Lon", "Paris"]}
    # Each grade has a version, and the identity of a row names its own graders.
    for each in ("good", "bad", "file"):
        versions = {name: grade["version"] for name, grade in made[each]["grades"].items()}
        assert made[each]["identity"]["graders"] == versions
    assert "graders" not in made["none"]["identity"]


def test_graders_of_the_command_line_come_first(assay, shell_agent, prompts, tmp_path) -> None:
    file = prompts(row("a", "say xy", expect={"contains": "x"}), row("b", "say y"))
    done = assay("capture", file, "-s", shell_agent, "-g", "contains:y", "-o", "r.jsonl")
    assert done.code == 0, done.stderr
    made = results(tmp_path / "r.jsonl")
    assert list(made["a"]["grades"]) == ["contains", "contains-2"]
    assert list(made["b"]["grades"]) == ["contains"]


def test_the_stages_alone_see_the_same(assay, shell_agent, prompts, tmp_path) -> None:
    check = tmp_path / "evals" / "check.py"
    check.parent.mkdir()
    check.write_text("import pathlib, sys\nsys.exit(not pathlib.Path('made.txt').exists())\n")
    rows = [
        row("pure", "say Paris", expect={"contains": "Paris"}),
        row("run", "touch made.txt; R", expect={"command": "python3 check.py"}, files={"a": "b"}),
    ]
    file = check.parent / "prompts.jsonl"
    file.write_text("".join(json.dumps(each) + "\n" for each in rows))
    words = ("-s", shell_agent)
    assert assay("capture", file, *words, "-o", "c.jsonl").code == 0
    raw = assay("run", file, *words)
    assert raw.code == 0, raw.stderr
    read = assay("extract", *words, stdin=raw.stdout)
    refused = assay("grade", stdin=read.stdout)
    assert refused.code == 1
    assert 'stdin:2: "expect.command" names a program' in refused.stderr
    graded = assay("grade", "--prompts", file, stdin=read.stdout)
    assert graded.code == 0, graded.stderr
    captured = results(tmp_path / "c.jsonl")
    for made in graded.rows:
        like = captured[made["id"]]
        for name in ("score", "grades", "identity", "specHash"):
            assert made[name] == like[name], name
        assert like["score"]["pass"] is True


def test_trials_have_pass_rates_only_where_something_judges(
    assay, shell_agent, prompts, tmp_path
) -> None:
    file = prompts(row("a", "say x", expect={"contains": "x"}), row("b"))
    assert assay("trials", file, "-s", shell_agent, "-k", 2, "-o", "t.jsonl").code == 0
    made = results(tmp_path / "t.jsonl")
    assert made["a"]["passRate"] == 1.0
    assert "passRate" not in made["b"]
    again = assay("grade", tmp_path / "t.jsonl", "-o", "g.jsonl")
    assert again.code == 0, again.stderr
    assert "2 of 2 trials passed, 1 without a grader" in again.stderr
    assert results(tmp_path / "g.jsonl") == made


def test_resume_sees_another_expectation_and_regrades(
    assay, shell_agent, prompts, tmp_path
) -> None:
    file = prompts(row("a", "say x", expect={"contains": "x"}), row("b", "say y"))
    words = ("capture", file, "-s", shell_agent, "-o", "r.jsonl")
    assert assay(*words).code == 0
    text = file.read_text()
    file.write_text(text.replace('"contains": "x"', '"contains": "z"'))
    refused = assay(*words, "--resume")
    assert refused.code == 1
    assert "the grader contains" in refused.stderr
    assert assay(*words, "--resume", "--regrade").code == 0
    made = results(tmp_path / "r.jsonl")
    assert made["a"]["score"]["pass"] is False
    assert made["a"]["earlierGrades"][0]["pass"] is True
    # An expectation where there was none is judged without being asked.
    file.write_text(file.read_text().replace('"say y"', '"say y", "expect": {"contains": "y"}'))
    assert assay(*words, "--resume").code == 0
    assert results(tmp_path / "r.jsonl")["b"]["score"]["pass"] is True


def test_files_a_template_and_a_set_up_fill_a_private_workspace(
    assay, shell_agent, prompts, tmp_path
) -> None:
    (tmp_path / "template").mkdir()
    (tmp_path / "template" / "base.txt").write_text("base")
    file = prompts(
        row(
            "a",
            "cat base.txt src/x.txt made.txt > all.txt; touch wrong; R",
            workspace="template",
            files={"src/x.txt": "-file-"},
            setup="printf made > made.txt && sleep 0.5",
            expect={"file": {"all.txt": "base-file-made"}},
        ),
        row("b"),
    )
    done = assay("capture", file, "-s", shell_agent, "-o", "r.jsonl")
    assert done.code == 0, done.stderr
    assert "1 prompt brings files, a workspace or a set-up" in done.stderr
    assert "The agent works in" in done.stderr  # the other one
    made = results(tmp_path / "r.jsonl")
    assert made["a"]["score"]["pass"] is True, made["a"]
    assert made["a"]["identity"]["template"]
    assert "template" not in made["b"]["identity"]
    assert made["a"]["cwd"] != made["b"]["cwd"] == str(tmp_path)
    assert not (tmp_path / "wrong").exists()
    assert made["a"]["timing"]["total"] < 450  # the set-up is not the agent's time
    shutil.rmtree(Path(made["a"]["cwd"]).parent)


def test_the_template_is_part_of_the_identity_and_frozen(
    assay, shell_agent, prompts, tmp_path
) -> None:
    template = tmp_path / "template"
    template.mkdir()
    (template / "x").write_text("1")
    script = f"echo 2 > {template}/x; say $(cat x)"
    rows = [row(f"p{n}", script, workspace="template", expect={"contains": "1"}) for n in range(2)]
    file = prompts(*rows)
    words = ("capture", file, "-s", shell_agent, "-o", "r.jsonl")
    assert assay(*words).code == 0
    assert [each["output"] for each in results(tmp_path / "r.jsonl").values()] == ["1", "1"]
    refused = assay(*words, "--resume")
    assert refused.code == 1
    assert "the workspace template" in refused.stderr


@pytest.mark.parametrize("isolation", [(), ("--isolate",)])
def test_a_set_up_that_fails_is_not_the_agents_fault(
    assay, shell_agent, prompts, tmp_path, isolation
) -> None:
    file = prompts(
        row("fails", "touch started; R", setup="echo reason >&2; exit 7", graders=["contains:ok"]),
        row("hangs", "touch started; R", setup="sleep 60", timeout=400),
    )
    done = assay("capture", file, "-s", shell_agent, "-o", "r.jsonl", *isolation)
    assert done.code == 1
    assert "Nothing was measured" in done.stderr
    made = results(tmp_path / "r.jsonl")
    fails, hangs = made["fails"]["failure"], made["hangs"]["failure"]
    assert (fails["cause"], hangs["cause"]) == ("world", "world")
    assert "exit code 7\nreason" in fails["message"]
    assert "did not end in 0.4 s" in hangs["message"]
    assert "score" not in made["fails"]


def test_a_set_up_has_the_agents_isolation(assay, shell_agent, prompts, tmp_path) -> None:
    setup = 'printf "%s %s" "$HOME" "$OUR_SECRET_TOKEN" > env.txt'
    file = prompts(row("a", 'printf " %s" "$HOME" >> env.txt; R', setup=setup))
    env = {"OUR_SECRET_TOKEN": "abcdefgh12345"}
    done = assay("capture", file, "-s", shell_agent, "-o", "r.jsonl", "--isolate", env=env)
    assert done.code == 0, done.stderr
    workspace = Path(results(tmp_path / "r.jsonl")["a"]["cwd"])
    before, after = (workspace / "env.txt").read_text().split()
    assert before == after != str(Path.home())
    shutil.rmtree(workspace)


def test_a_set_up_runs_in_the_sandbox(bubblewrap, assay, shell_agent, prompts, tmp_path) -> None:
    secret = tmp_path / "secret.txt"
    secret.write_text("secret")
    file = prompts(
        row("a", 'say "$(head -1 seen.txt)"', setup=f"ls {secret} >seen.txt 2>&1; echo x>>seen.txt")
    )
    done = assay("capture", file, "-s", shell_agent, "-o", "r.jsonl", "--sandbox")
    assert done.code == 0, done.stderr
    made = results(tmp_path / "r.jsonl")["a"]
    assert "No such file" in made["output"]


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"files": {"../x": "y"}}, "\"files\": '../x' leads out of the workspace"),
        ({"files": {"/etc/x": "y"}}, "\"files\": '/etc/x' is not relative"),
        ({"files": {"a/../b": "y"}}, "leads out of the workspace"),
        ({"files": {"a//b": "y"}}, "is not the path of a file"),
        ({"files": {"a": "y", "a/b": "y"}}, "is a file and a folder at once"),
        ({"files": {"a": 1}}, '"files" must be text or an object, not a number'),
        ({"files": ["a"]}, '"files" must be an object, not a list'),
        ({"workspace": "missing"}, '"workspace": '),
        ({"setup": " "}, '"setup" is empty'),
        ({"setup": ["ls"]}, '"setup" must be text or an object, not a list'),
        ({"graders": "contains"}, '"graders" must be a list, not text'),
        ({"graders": ["contains:x", "nope.py"]}, '"graders[1]": Grader not found'),
        (
            {"expect": {"contain": "x"}},
            'unknown field "expect.contain"; did you mean "expect.contains"?',
        ),
        ({"expect": "x"}, '"expect" must be an object, not text'),
        ({"expect": {"contains": []}}, '"expect.contains" is empty'),
        ({"expect": {"regex": "("}}, '"expect.regex": not a regular expression'),
        ({"expect": {"file": "../x"}}, '"expect.file"'),
        ({"expect": {"command": "a 'b"}}, '"expect.command"'),
        ({"tags": 7}, '"tags" must be text or a list, not a number'),
        ({"input": ""}, '"input" is empty'),
        ({"input": [" ", "b"]}, '"input[0]" is empty'),
        ({"timeout": 0}, '"timeout" is 0'),
    ],
)
def test_errors_name_line_and_field_before_anything_runs(
    assay, shell_agent, prompts, tmp_path, more, said
) -> None:
    file = prompts(row("first", "touch started; R"), row("second", **more))
    done = assay("capture", file, "-s", shell_agent, "-o", "r.jsonl")
    assert done.code == 1, done.stderr
    assert f"{file}:2: " in done.stderr
    assert said in done.stderr
    assert not (tmp_path / "started").exists()


def test_no_link_of_a_template_leads_files_elsewhere(assay, shell_agent, prompts, tmp_path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "keep.txt").write_text("mine")
    template = tmp_path / "template"
    template.mkdir()
    (template / "out").symlink_to(outside)
    (template / "link.txt").symlink_to(outside / "keep.txt")
    file = prompts(row("a", workspace="template", files={"out/x.txt": "y"}))
    done = assay("capture", file, "-s", shell_agent, "-o", "r.jsonl")
    assert done.code == 1
    assert list(outside.iterdir()) == [outside / "keep.txt"]
    file = prompts(row("b", "say $(cat link.txt)", workspace="template", files={"link.txt": "new"}))
    assert assay("capture", file, "-s", shell_agent, "-o", "s.jsonl").code == 0
    assert results(tmp_path / "s.jsonl")["b"]["output"] == "new"
    assert (outside / "keep.txt").read_text() == "mine"


def test_filters_know_tags(assay, shell_agent, prompts, tmp_path) -> None:
    file = prompts(
        row("a", tags=["math", "easy"], expect={"contains": "ok"}),
        row("b", tags="math", metadata={"level": 2}, expect={"contains": "ok"}),
        row("c", metadata={"tags": ["prose"]}, expect={"contains": "no"}),
    )
    words = ("capture", file, "-s", shell_agent)
    assert [r["id"] for r in assay(*words, "--filter", "tags=ma*").rows] == ["a", "b"]
    assert assay(*words, "-o", "r.jsonl").code == 0
    out = tmp_path / "r.jsonl"
    assert [r["id"] for r in assay("grade", out, "--filter", "tags=easy").rows] == ["a"]
    assert [r["id"] for r in assay("grade", out, "--filter", "tags=prose").rows] == ["c"]
    assert [r["id"] for r in assay("grade", out, "--filter", "level=2").rows] == ["b"]
    assert [r["id"] for r in assay("grade", out, "--filter", "!a,b").rows] == ["c"]
    assert [r["id"] for r in assay("grade", out, "--filter", "level=1,2").rows] == ["b"]
    picked = assay("grade", out, "--filter", "[ab]", "--filter", "tags=math", "-g", "contains:o")
    assert [(r["id"], len(r["grades"])) for r in picked.rows] == [("a", 2), ("b", 2)]


def test_validate_refs_asks_what_the_rows_expect(assay, prompts) -> None:
    file = prompts(
        row("right", reference="Paris", expect={"contains": "Paris", "tool": "Read"}),
        row("wrong", reference="London", expect={"contains": "Paris"}),
    )
    done = assay("validate-refs", file, "--strict")
    assert done.code == 3
    assert [r["passes"] for r in done.rows] == [True, False]
    assert "Not checked, because a reference is only an answer: expect tool" in done.stderr
    bare = prompts(row("bare", reference="x"))
    assert assay("validate-refs", bare).code == 2


def test_tools_and_skills_are_expected(assay, agent, prompts, tmp_path, schema) -> None:
    rows = [
        {
            "id": "a", "input": "x", "output": "done", "metadata": {},
            "timing": {"start": 0, "end": 1, "total": 1},
            "trajectory": [
                {"type": "tool_call", "name": "Skill", "status": "completed",
                 "input": {"skill": "relnotes"}, "timestamp": 1},
            ],
            "expect": {"skill": "relnotes", "no_skill": "decoy", "tool": "Skill",
                       "no_tool": "Bash"},
        },
    ]  # fmt: skip
    source = tmp_path / "rows.jsonl"
    source.write_text("".join(json.dumps(each) + "\n" for each in rows))
    done = assay("grade", source)
    assert done.code == 0, done.stderr
    (made,) = done.rows
    assert made["score"]["pass"] is True
    assert list(made["grades"]) == ["tools", "tools-2", "skill", "skill-2"]
    source.write_text(source.read_text().replace('"no_skill": "decoy"', '"no_skill": "rel*"'))
    (made,) = assay("grade", source).rows
    assert made["score"]["pass"] is False
    assert "rel* was used" in made["score"]["reasoning"]


def test_a_row_of_others_starts_no_program(assay, tmp_path) -> None:
    base = {"id": "a", "input": "x", "output": "y", "trajectory": []}
    marker = tmp_path / "ran"
    for more in (
        {"expect": {"command": f"touch {marker}"}},
        {"graders": [f"command:touch {marker}"]},
        {"graders": ["judge:agent=demo,rubric=x"]},
        {"graders": ["./grader.py"]},
    ):
        source = tmp_path / "rows.jsonl"
        source.write_text(json.dumps({**base, **more}) + "\n")
        for words in ((), ("-g", "contains:y")):
            done = assay("grade", source, *words)
            assert done.code == 1, done.stderr
            assert f"{source}:1: " in done.stderr
            assert "--prompts" in done.stderr
    assert not marker.exists()


def test_many_rows_with_patterns_keep_few_processes(assay, shell_agent, prompts) -> None:
    file = prompts(*(row(f"p{n}", f"say x{n}", expect={"regex": f"^x{n}$"}) for n in range(60)))
    done = assay("capture", file, "-s", shell_agent, "-j", 4)
    assert done.code == 0, done.stderr
    assert all(made["score"]["pass"] for made in done.rows)
