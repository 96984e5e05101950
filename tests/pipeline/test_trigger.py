"""Cases, versions of a skill, and when a trial is settled."""

import json
from pathlib import Path
from typing import Any

import pytest

from assay.errors import InputError
from assay.pipeline.material import read_skill
from assay.pipeline.trigger import (
    StopRule,
    beside,
    marker_of,
    read_cases,
    read_description,
    read_fires,
    skills_below,
    split_cases,
    with_description,
)
from assay.records.capture import AnyStep, Message, ToolCall
from assay.records.skills import fires, loaded_from
from assay.records.spec import Limits, PluginRef, Prompt, Surroundings, TrialSpec

SPEC = TrialSpec(
    prompt=Prompt(id="a", input="x"),
    agent=PluginRef(name="demo"),
    benchmark=PluginRef(name="prompts"),
    limits=Limits(),
    surroundings=Surroundings(cwd="/"),
    folder="a",
)


def written(folder: Path, text: str | bytes) -> Path:
    path = folder / "cases.jsonl"
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


def a_skill(folder: Path, description: str = "Write notes.", body: str = "# How\n") -> Path:
    folder.mkdir(parents=True)
    head = f"---\nname: {folder.name}\ndescription: {description}\n---\n"
    (folder / "SKILL.md").write_text(head + body)
    return folder


OURS = {"id": "a", "input": "x", "shouldTrigger": True}
THEIRS = {"query": "y", "should_trigger": False}


@pytest.mark.parametrize(
    "text",
    [
        f"{json.dumps(OURS)}\n\n{json.dumps(THEIRS)}\n",
        json.dumps([OURS, THEIRS]),
        "\ufeff" + json.dumps([OURS, THEIRS], indent=2),
    ],
    ids=["lines", "array", "indented array with a BOM"],
)
def test_both_spellings_and_both_forms_are_read(tmp_path: Path, text: str) -> None:
    (one, _), (two, _) = read_cases(written(tmp_path, text))
    assert (one.id, one.input, one.metadata) == ("a", "x", {"shouldTrigger": True})
    assert (two.id, two.input, two.metadata) == ("case-2", "y", {"shouldTrigger": False})


def test_other_fields_of_a_case_survive(tmp_path: Path) -> None:
    row = {**OURS, "id": 7, "metadata": {"lang": "de"}, "timeout": 500, "owner": "me"}
    ((prompt, extra),) = read_cases(written(tmp_path, json.dumps(row)))
    assert prompt.id == "7"
    assert prompt.metadata == {"lang": "de", "shouldTrigger": True}
    assert prompt.timeout == 500
    assert extra == {"owner": "me"}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('{"input": "x"}', ':1: "shouldTrigger" is missing'),
        ('\n{"shouldTrigger": true}', ':2: "input" is missing'),
        ('{"input": "x", "shouldTrigger": "yes"}', "shouldTrigger"),
        ('{"input": "x", "should_trigger": 1}', "should_trigger"),
        ('{"input": 5, "shouldTrigger": true}', "input"),
        ('{"input": " ", "shouldTrigger": true}', ':1: "input" is empty'),
        ('{"input": [], "shouldTrigger": true}', ':1: "input" is empty'),
        ('{"input": "x", "query": "y", "shouldTrigger": true}', '"input" and "query" differ'),
        ('{"input": "x", "shouldTrigger": true, "should_trigger": false}', "differ"),
        ('{"input": "x", "shouldTrigger": true, "metadata": 3}', "metadata"),
        ('[{"input": "x", "shouldTrigger": true}, 5]', ", case 2: "),
        ('[{"input": "x"}]', ', case 1: "shouldTrigger" is missing'),
        ("[1, 2", "not JSON"),
        ("{broken", ":1: "),
        ("", "there are no cases"),
        ("[]", "there are no cases"),
        (b'{"input": "\xff", "shouldTrigger": true}', ":1: "),
        (f"{json.dumps(OURS)}\n{json.dumps(OURS)}", ':2: id "a" was used before, at '),
    ],
)
def test_a_wrong_file_is_refused_with_line_and_field(
    tmp_path: Path, text: str | bytes, said: str
) -> None:
    with pytest.raises(InputError) as caught:
        read_cases(written(tmp_path, text))
    assert said in caught.value.message


def test_halves_have_both_kinds_and_stay_the_same(tmp_path: Path) -> None:
    rows = [{"id": f"{n}", "input": "x", "shouldTrigger": n % 3 > 0} for n in range(15)]
    cases = read_cases(written(tmp_path, json.dumps(rows)))
    first, second = split_cases(cases, seed=1)
    kinds = [sum(p.metadata["shouldTrigger"] for p, _ in half) for half in (first, second)]
    assert (len(first), len(second), kinds) == (8, 7, [5, 5])
    assert {p.id for p, _ in first} | {p.id for p, _ in second} == {f"{n}" for n in range(15)}
    assert split_cases(list(reversed(cases)), seed=1)[0] == list(reversed(first))
    assert split_cases(cases, seed=2)[0] != first
    with pytest.raises(InputError, match="only one case should not trigger"):
        split_cases(cases[:3], seed=1)


@pytest.mark.parametrize(
    "old",
    ["Plain text.", '"quoted: text"', ">\n  folded\n  text", "|\n  a block\n\n  of text"],
)
def test_another_description_changes_nothing_else(tmp_path: Path, old: str) -> None:
    skill = read_skill(a_skill(tmp_path / "relnotes", old, "# How\ndescription: not this\n"))
    made = with_description(skill, 'Use "it": always', tmp_path / "made")
    again = read_skill(tmp_path / "made")
    assert again == made
    assert again.description == 'Use "it": always'
    before = (skill.folder / "SKILL.md").read_text()
    after = (made.folder / "SKILL.md").read_text()
    assert after.partition("\n---\n")[2] == before.partition("\n---\n")[2]
    assert read_skill(skill.folder) == skill


def test_a_description_is_read_from_text_or_from_a_head(tmp_path: Path) -> None:
    path = tmp_path / "v2.md"
    path.write_text("Use it\n  for notes.\n")
    assert read_description(path) == "Use it for notes."
    path.write_text("---\nname: relnotes\ndescription: From the head.\n---\n# Rest\n")
    assert read_description(path) == "From the head."
    for text in ("", " \n", "x" * 1025, "---\nname: a\n---\n"):
        path.write_text(text)
        with pytest.raises(InputError):
            read_description(path)


def test_copies_of_the_skill_are_left_out(tmp_path: Path) -> None:
    skill = read_skill(a_skill(tmp_path / "mine/relnotes"))
    a_skill(tmp_path / "home/relnotes", "Old.")
    a_skill(tmp_path / "home/other")
    others = [*skills_below(tmp_path / "home"), *skills_below(tmp_path / "mine")]
    kept, copies = beside(skill, others)
    assert [other.name for other in kept] == ["other"]
    assert copies == [tmp_path / "home/relnotes"]
    with pytest.raises(InputError, match="no skill in this folder"):
        skills_below(tmp_path)


def test_the_marker_stands_in_a_comment(tmp_path: Path) -> None:
    skill = read_skill(a_skill(tmp_path / "relnotes", body="# How\n<!-- marker: [RN 7] -->\n"))
    assert marker_of(skill) == "[RN 7]"
    assert marker_of(read_skill(a_skill(tmp_path / "other"))) == ""


def call(name: str, status: str = "completed", **more: Any) -> ToolCall:
    return ToolCall(name=name, status=status, **more)


def skill_call(status: str, skill: str = "relnotes", **more: Any) -> ToolCall:
    return call("Skill", status, input={"skill": skill}, call_id=more.pop("call_id", "s"), **more)


@pytest.mark.parametrize(
    ("steps", "settled"),
    [
        ([skill_call("pending"), skill_call("completed")], [False, True]),
        ([skill_call("failed")], [True]),
        ([skill_call("pending"), Message(content="next")], [False, True]),
        ([skill_call("completed", parent="task")], [True]),
        ([skill_call("completed", "news"), Message(content="relnotes")], [False, False]),
        ([Message(content="so [RN 7]")], [True]),
        ([call("Bash", output="x [RN 7] y", call_id="b")], [True]),
        ([call("Bash", call_id="1"), call("Bash", call_id="1"), call("Bash", call_id="2")],
         [False, False, True]),
        ([call("Bash", parent="t", call_id=f"{n}") for n in range(3)], [False] * 3),
        ([call("Bash", "pending", call_id=f"{n}") for n in range(3)], [False] * 3),
    ],
)  # fmt: skip
def test_when_a_trial_is_settled(steps: list[AnyStep], settled: list[bool]) -> None:
    rule = StopRule(skill="relnotes", marker="[RN 7]", max_calls=2)(SPEC)
    assert [rule(step) for step in steps] == settled


def test_an_offered_skill_that_was_only_listed_does_not_fire() -> None:
    listed = {"type": "tool_call", "name": "Bash", "status": "completed",
              "input": {"command": "ls .agents/skills/relnotes"}}  # fmt: skip
    assert not fires(listed, "relnotes")
    assert not fires({"type": "thought", "content": "[RN 7]"}, "relnotes", "[RN 7]")
    assert fires({"type": "message", "content": "[RN 7]"}, "relnotes", "[RN 7]")


@pytest.mark.parametrize(
    ("step", "folder"),
    [
        ({"name": "exec_command", "input": {"cmd": "cat /h/.codex/skills/.system/a/SKILL.md"}},
         "/h/.codex/skills/.system/a"),
        ({"name": "Read", "input": {"file_path": "~/.claude/skills/a/SKILL.md"}},
         "~/.claude/skills/a"),
        ({"name": "exec_command", "input": {"cmd": "cat .agents/skills/a/SKILL.md"}},
         ".agents/skills/a"),
        ({"name": "activate_skill", "input": {"name": "a"}, "output": "/w/.agents/skills/a/\n└"},
         "/w/.agents/skills/a"),
        ({"name": "Skill", "input": {"skill": "a"}, "output": "Launching skill: a"}, None),
        ({"name": "Skill", "input": {"skill": "b"}, "output": "/x/a/SKILL.md"}, None),
    ],
)  # fmt: skip
def test_where_a_skill_was_loaded_from(step: dict[str, Any], folder: str | None) -> None:
    assert loaded_from({"type": "tool_call", "status": "completed", **step}, "a") == folder


def trial(fired: bool | None, *others: str, setup: Any = None, **more: Any) -> dict[str, Any]:
    outcome = {} if fired is None else {"fired": fired, "otherSkills": list(others)}
    return {"outcome": outcome | more.pop("outcome", {}), "setup": setup, **more}


def summed(tmp_path: Path, *rows: tuple[bool, list[dict[str, Any]]]) -> Any:
    lines = [
        {"id": f"c{n}", "metadata": {"shouldTrigger": should}, "trials": trials}
        for n, (should, trials) in enumerate(rows)
    ]
    path = tmp_path / "out.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return read_fires(path, "claude", "relnotes")


CRASH = {"cause": "agent_crash", "message": "died"}
DOWN = {"cause": "provider", "message": "down"}


def test_rates_are_means_over_cases_and_failures_are_no_silence(tmp_path: Path) -> None:
    run = summed(
        tmp_path,
        (True, [trial(True), trial(True)]),
        (True, [trial(False, "news"), trial(None, failure=CRASH), trial(None, failure=DOWN)]),
        (False, [trial(False), trial(None, failure=CRASH)]),
        (False, [trial(None, failure=CRASH)]),
    )
    assert (run.recall.rate, run.recall.n_fired, run.recall.n_trials) == (0.5, 2, 4)
    assert (run.false_fires.rate, run.false_fires.n_cases, run.false_fires.n_trials) == (0, 1, 1)
    assert run.recall.low < 0.5 < run.recall.high
    assert run.instead == {"news": 1}
    assert run.invalid == []
    assert [(c.n_fired, c.n_measured, c.n_trials) for c in run.cases] == [
        (2, 2, 2), (0, 2, 3), (0, 1, 2), (0, 0, 1),
    ]  # fmt: skip


LISTED = {"skills": ["relnotes", "news"]}


@pytest.mark.parametrize(
    ("rows", "why"),
    [
        ([(True, [trial(False)]), (False, [trial(False)])], "no skill was used in any of 2"),
        ([(False, [trial(False)])], "no case should trigger the skill"),
        ([(True, [trial(True, setup={"skills": ["news"]})])], "did not list the skill in 1 of 1"),
        ([(True, [trial(True, setup={"skills": ["relnotes", "plug:relnotes"]})])],
         "another skill of the same name in 1 of 1"),
        ([(True, [trial(True, outcome={"loadedFrom": "/home/me/relnotes"}, setup=LISTED)])],
         "another copy of the skill was used in 1 of 1 trials, from /home/me/relnotes"),
    ],
)  # fmt: skip
def test_what_makes_a_measurement_invalid(tmp_path: Path, rows: Any, why: str) -> None:
    (said,) = summed(tmp_path, *rows).invalid
    assert why in said


def test_a_decoy_that_always_wins_is_a_finding(tmp_path: Path) -> None:
    run = summed(tmp_path, (True, [trial(False, "news", setup=LISTED)]))
    assert run.invalid == []
    assert run.recall.rate == 0


def test_nothing_measured_says_nothing_about_the_skill(tmp_path: Path) -> None:
    run = summed(tmp_path, (True, [trial(None, failure=DOWN)]))
    assert (run.recall, run.invalid, run.n_not_measured) == (None, [], 1)
