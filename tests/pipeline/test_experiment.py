"""experiment.toml is read strictly, and says in which line something is wrong."""

from pathlib import Path

import pytest

from assay.errors import InputError
from assay.pipeline.experiment import Difference, differences, read_experiment

GOOD = """\
prompts = "prompts.jsonl"
graders = ["contains"]
agent = "claude"
model = "sonnet"
skills = ["skills/common"]

[arms.control]

[arms.relnotes]
skills = ["skills/relnotes"]
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("common", "relnotes"):
        skill = tmp_path / "skills" / name
        skill.mkdir(parents=True)
        (skill / "SKILL.md").write_text(f"---\nname: {name}\ndescription: Do it.\n---\n")
    (tmp_path / "prompts.jsonl").write_text('{"id": "a", "input": "b"}\n')
    return tmp_path


def write(folder: Path, text: str) -> Path:
    path = folder / "experiment.toml"
    path.write_text(text)
    return path


def refused(folder: Path, text: str) -> str:
    with pytest.raises(InputError) as caught:
        read_experiment(write(folder, text))
    return f"{caught.value.message}\n{caught.value.hint}".replace(str(folder), "HERE")


def test_what_is_common_stands_once_and_lists_of_an_arm_are_added(folder: Path) -> None:
    found = read_experiment(write(folder, GOOD))
    assert found.name == folder.name
    assert found.control == "control"
    assert found.treatments == ["relnotes"]
    control, arm = found.resolved("control"), found.resolved("relnotes")
    assert (control.model, arm.model) == ("sonnet", "sonnet")
    common, relnotes = (str(folder / "skills" / name) for name in ("common", "relnotes"))
    assert (control.skills, arm.skills) == ([common], [common, relnotes])
    names = {common: "common", relnotes: "relnotes"}
    assert differences(control, arm, names) == [Difference(kind="skill", value=relnotes)]


def test_an_arm_replaces_single_values_and_any_way_to_name_an_agent(folder: Path) -> None:
    text = GOOD + '\n[arms.other]\nsimple = "echo {}"\nmodel = "opus"\n'
    found = read_experiment(write(folder, text))
    other = found.resolved("other")
    assert (other.agent, other.simple, other.model) == (None, "echo {}", "opus")
    words = [one.words for one in differences(found.resolved("control"), other, {})]
    assert words == ["agent echo {} (control: claude)", "model opus (control: sonnet)"]


def test_arguments_of_an_arm_are_added_and_may_repeat_a_word(folder: Path) -> None:
    text = 'agent-args = ["-c", "a=1"]\n' + GOOD + 'agent-args = ["-c", "b=2"]\n'
    found = read_experiment(write(folder, text))
    assert found.resolved("control").agent_args == ["-c", "a=1"]
    assert found.resolved("relnotes").agent_args == ["-c", "a=1", "-c", "b=2"]


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("graders =", "grader =", "HERE/experiment.toml:2: there is no key 'grader'\n"
         "did you mean 'graders'?"),
        ("\nskills = [\"skills/relnotes\"]", "\nskill = [\"skills/relnotes\"]",
         "HERE/experiment.toml:10: there is no key 'skill' in [arms.relnotes]\n"
         "did you mean 'skills'?"),
        ("[arms.control]", "[arms.control]\nk = 3",
         "HERE/experiment.toml:8: there is no key 'k' in [arms.control]\n'k' is the same"),
        ('model = "sonnet"', "model = 3", "toml:4: model: must be text, not a number"),
        (
            'agent = "claude"',
            'agent = "claude"\nsandbox = "yes"',
            "HERE/experiment.toml:4: sandbox: must be one of: network, no-network",
        ),
        ('agent = "claude"', 'agent = "claude"\nk = 0', "4: k: must be a number of at least 1"),
        ('agent = "claude"', 'agent = "claude"\nbudget = "1"', "4: budget: must be a number, not"),
        ("\n[arms.control]\n", "\n", "needs two arms or more, and has relnotes"),
        ('agent = "claude"', 'agent = "claude"\ncontrol = "base"', "'base' is not an arm"),
        ('agent = "claude"', "", "arm control has no agent"),
        ('prompts = "prompts.jsonl"', "", "give either prompts or benchmark"),
        ("skills/relnotes", "skills/none", "not a skill: it has no SKILL.md"),
        ("[arms.control]", '[arms.control]\ntemplate = "none"', "template: there is no folder"),
        ("[arms.control]", '[arms."a/b"]', "'a/b' cannot name a file"),
        ("[arms.control]", "[arms.control", "not TOML: "),
        ("[arms.control]\n\n[arms.relnotes]", "[arm.control]\n\n[arm.relnotes]",
         "HERE/experiment.toml: there is no key 'arm'\ndid you mean 'arms'?"),
        (GOOD, GOOD.partition("[arms")[0], "there are no arms"),
        (GOOD, GOOD.partition("[arms")[0] + "arms = 3\n", "arms must be tables"),
        ("[arms.control]", "[arms]\ncontrol = 3", "the arm 'control' must be a table"),
    ],
)  # fmt: skip
def test_wrong_input_is_named_with_its_place(
    folder: Path, old: str, new: str, message: str
) -> None:
    assert old in GOOD
    assert message in refused(folder, GOOD.replace(old, new, 1))


def test_a_missing_file_says_how_to_make_one(tmp_path: Path) -> None:
    with pytest.raises(InputError) as caught:
        read_experiment(tmp_path / "none.toml")
    assert "No such file" in caught.value.message
    assert "assay init" in caught.value.hint


def test_the_digest_is_about_what_is_compared(folder: Path) -> None:
    first = read_experiment(write(folder, GOOD)).digest
    same = GOOD.replace('agent = "claude"', 'agent = "claude"  # the best\nbudget = 3.0')
    assert read_experiment(write(folder, same)).digest == first
    other = GOOD.replace("sonnet", "opus")
    assert read_experiment(write(folder, other)).digest != first
