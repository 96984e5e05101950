"""The page for users of the reference: its command lines are ours, and nothing is left out."""

import re
import shlex
from pathlib import Path

import click
import pytest

from assay.cli.group import cli

PAGE = (Path(__file__).parents[2] / "docs" / "from-agent-eval-harness.md").read_text()
ROWS = [
    [cell.strip() for cell in line.strip("|").split(" | ")]
    for line in PAGE.splitlines()
    if line.startswith("| ") and not line.startswith("|---")
]
OURS = [row[1].strip("` |") for row in ROWS if len(row) > 1 and row[1].startswith("`assay ")]
REFERENCE = {
    "capture": "-s --schema -o --output -c --cwd -t --timeout -j --concurrency --stdin"
    " --workspace-dir --progress --append -g --grader --debug",
    "trials": "-k --k",
    "summarize": "-o -m --markdown",
    "calibrate": "-o -s --sample -g",
    "validate-refs": "-o -g",
    "balance": "-o -k --key -t --threshold",
    "schemas": "-o -j --json -s --split -l --list",
    "headless": "-s -v --verbose",
    "run": "-s --simple --shell -o -c -t --progress",
    "extract": "-s -o --progress",
    "grade": "-g -o --progress",
    "format": "-f --style -o --progress",
    "compare": "--run -s --strategy -g -o -f --format --input-format --progress",
}
"""The commands and flags of the reference program."""


def parsed(line: str) -> click.Context:
    """Parse a command line as the program would, without running it."""
    words = shlex.split(line)[1:]
    group: click.Group = cli
    ctx = click.Context(cli, info_name="assay")
    while True:
        name, *words = words
        command = group.get_command(ctx, name)
        assert command is not None, line
        if not isinstance(command, click.Group):
            return command.make_context(name, list(words), parent=ctx)
        group, ctx = command, click.Context(command, info_name=name, parent=ctx)


@pytest.mark.parametrize("line", OURS)
def test_every_command_line_of_the_page_is_understood(line: str) -> None:
    assert parsed(line).params


def test_a_wrong_command_line_is_noticed() -> None:
    assert len(OURS) >= 20
    with pytest.raises(click.UsageError):
        parsed("assay capture prompts.jsonl --no-such-flag")


@pytest.mark.parametrize("command", REFERENCE)
def test_the_page_names_every_command_and_flag_of_the_reference(command: str) -> None:
    assert any(line.startswith(f"assay {command} ") for line in OURS), "side by side"
    names = [row for row in ROWS if command in row[0].split(", ")]
    if command == "capture":
        start = ROWS.index(names[0])
        names = [names[0], *[row for row in ROWS[start + 1 :] if row[0] == ""]]
    flags = " ".join(row[1] for row in names)
    assert [flag for flag in REFERENCE[command].split() if f"`{flag}`" not in flags] == []


@pytest.mark.parametrize("command", REFERENCE)
def test_every_flag_of_the_reference_is_one_of_ours(command: str) -> None:
    found = cli.get_command(click.Context(cli), command)
    assert found is not None
    ours = {flag for option in found.params for flag in option.opts}
    assert set(REFERENCE[command].split()) <= ours


def test_the_page_names_the_variables() -> None:
    names = ("QUALITY", "LATENCY", "RELIABILITY", "CAPABILITY", "CONSISTENCY")
    for name in (*names, "BOOTSTRAP_ITERATIONS"):
        assert re.search(rf"`COMPARE_{name}`", PAGE)
