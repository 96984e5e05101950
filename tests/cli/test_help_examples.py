"""The help of every command: its options say what they do, its examples run as they stand."""

import json
import re
import shutil
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import click
import pytest

from assay.cli.group import cli
from assay.cli.help import COMMANDS, SHIPPED
from assay.records.tape import Exchange, Lane, TapeWriter

FIRST = ("init", "capture", "run", "trials")
"""They make the files that the examples of the others read."""
OF_OTHERS = {
    "log.json": {"eval": {"task": "sums"}, "samples": [{"id": 1, "input": "2 + 2?"}]},
    "trajectory.json": {"schema_version": "ATIF-v1.8", "steps": []},
}
WITHOUT_ARC = "import sys\nsys.modules['arc_agi'] = None\n"


def commands(
    group: click.Group, before: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    with click.Context(group) as ctx:
        for name in group.list_commands(ctx):
            found = group.get_command(ctx, name)
            assert found is not None
            yield (*before, name), found
            if isinstance(found, click.Group):
                yield from commands(found, (*before, name))


ALL = dict(commands(cli))
REST = [name[0] for name in ALL if len(name) == 1 and name[0] not in (*FIRST, "arc", "demo")]


@pytest.fixture(scope="module")
def made(examples, tmp_path_factory) -> Path:
    """A folder as the examples of init, capture, run and trials leave it, and what people add."""
    folder = tmp_path_factory.mktemp("made")
    for name in FIRST:
        examples.run_all(name, folder=folder)
    examples.run("assay calibrate results.jsonl --export labels.jsonl", folder)
    labels = folder / "labels.jsonl"
    rows = [json.loads(line) | {"label": "pass"} for line in labels.read_text().splitlines()]
    labels.write_text("".join(json.dumps(row) + "\n" for row in rows))
    skill = folder / "skills" / "relnotes"
    skill.mkdir(parents=True)
    (skill / "SKILL.md").write_text("---\nname: relnotes\ndescription: Write release notes.\n---\n")
    (folder / "v2.md").write_text("Write release notes from the git history.\n")
    cases = [
        {"input": "Write the release notes", "shouldTrigger": True},
        {"input": "What is 2 + 2?", "shouldTrigger": False},
    ]
    (folder / "cases.jsonl").write_text("".join(json.dumps(case) + "\n" for case in cases))
    (folder / "script.json").write_text('{"steps": [{"text": "Four."}]}')
    for name, content in OF_OTHERS.items():
        (folder / name).write_text(json.dumps(content))
    with TapeWriter(folder / "answers.tape") as tape:
        for trial in (1, 2):
            lane = tape.add_lane(Lane(lane=0, prompt="sum", trial=trial, asked=["Say hello."]))
            tape.add(Exchange(lane=lane.lane, number=1, method="POST", path="/v1/messages"))
    session = Path(examples.env["HOME"], ".claude/projects/x/s.jsonl")
    session.parent.mkdir(parents=True, exist_ok=True)
    asked = {"content": "Say hello."}
    line = {"type": "user", "timestamp": datetime.now(UTC).isoformat(), "message": asked}
    session.write_text(json.dumps(line))
    return folder


@pytest.mark.recorded
def test_the_first_examples_make_what_the_others_read(made):
    for name in ("evals/prompts.jsonl", "my-evals/grader.py", "results.jsonl", "acp.jsonl"):
        assert (made / name).stat().st_size
    for name in ("raw.jsonl", "echo.jsonl", "before.jsonl", "after.jsonl"):
        assert len((made / name).read_text().splitlines()) == 8


@pytest.mark.recorded
@pytest.mark.parametrize("name", REST)
def test_examples_run(name, made, examples, tmp_path):
    shutil.copytree(made, tmp_path / "here")
    examples.run_all(name, folder=tmp_path / "here")


@pytest.mark.recorded
def test_examples_of_demo_run_where_the_games_are_not_installed(examples, tmp_path, monkeypatch):
    (tmp_path / "sitecustomize.py").write_text(WITHOUT_ARC)
    monkeypatch.setitem(examples.env, "PYTHONPATH", str(tmp_path))
    first, *others = examples.of("demo")
    assert "skipped: " in examples.run(first, tmp_path)
    for line in others:
        examples.run(line, tmp_path)


@pytest.mark.parametrize("name", ALL, ids=" ".join)
def test_each_command_has_two_or_three_examples_of_its_own(name, examples):
    lines = examples.of(*name)
    assert len(lines) in (2, 3)
    assert f"assay {' '.join(name)}" in lines[0]


@pytest.mark.parametrize("name", ALL, ids=" ".join)
def test_the_help_of_an_option_is_a_sentence_with_its_default(name):
    assert ALL[name].get_short_help_str(200).endswith(".")
    for option in ALL[name].params:
        if not isinstance(option, click.Option):
            continue
        text, default = option.help or "", option.to_info_dict()["default"]
        assert text[:1].isupper(), option.opts
        assert text.endswith("."), option.opts
        if not option.is_flag and not isinstance(option.type, click.Choice):
            assert option.metavar, f"{option.opts}: click would show a type of Python"
        if default is not None and not option.is_flag and default != "":
            shown = f"{default:g}" if isinstance(default, float) else str(default)
            assert f"Default: {shown}" in text, option.opts


@pytest.mark.parametrize("name", ALL, ids=" ".join)
def test_help_names_only_options_that_the_command_has(name):
    command = ALL[name]
    options = [param for param in command.params if isinstance(param, click.Option)]
    own = {text for option in options for text in (*option.opts, *option.secondary_opts)}
    texts = [command.help or "", *(option.help or "" for option in options)]
    for sentence in re.split(r"(?<=[.:;]) ", " ".join(" ".join(texts).split())):
        # That of another command follows its name.
        mentioned = re.findall(r"(?<![\w-])--[a-z][a-z-]*", re.split(r"`?assay [a-z]", sentence)[0])
        assert set(mentioned) <= own, sentence


@pytest.mark.parametrize("name", ALL, ids=" ".join)
def test_the_page_of_all_commands_says_the_same(name):
    short_help = ALL[name].short_help
    if len(name) > 1:  # the page of a group names its sub-commands
        group = ALL[name[:-1]]
        assert f"  {short_help}\n" in group.get_help(click.Context(group))
    elif name[0] in SHIPPED:
        assert SHIPPED[name[0]][1] == short_help
    else:
        assert COMMANDS[name[0]] == short_help
