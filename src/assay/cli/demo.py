"""assay demo: the whole flow with agents that ship with Assay; no key, no network."""

import shlex
from pathlib import Path

import click

from assay import plugins
from assay.cli.group import COLOUR, examples, run_command, variables
from assay.cli.init import PROMPTS, TROUBLE, write_prompts, write_starter
from assay.cli.output import echo_raw
from assay.cli.parameters import help_option
from assay.errors import InputError
from assay.records.capture import Capture
from assay.records.rows import decode_row, read_lines

_OURS = "prompts-with-trouble.jsonl"
"""The file by which a folder is known as one of the demo's."""


@click.command(
    short_help="Run the whole flow with agents that ship with Assay.",
    epilog=variables(*COLOUR)
    + examples(
        "assay demo",
        "assay view demo-out",
    ),
)
@click.option(
    "-o",
    "--output",
    "folder",
    type=click.Path(path_type=Path),
    default="demo-out",
    metavar="DIR",
    help="Write all files to this folder. Default: demo-out.",
)
@help_option
def command(folder: Path) -> None:
    """Capture, grade, repeat and compare scripted agents, without keys or network."""
    _refuse_others_files(folder)
    prompts, grader = write_starter(folder)
    more = write_prompts(folder / _OURS, PROMPTS + TROUBLE)
    results = folder / "results.jsonl"
    _step(
        f"1. Capture {len(PROMPTS + TROUBLE)} prompts, including one of two turns, one that "
        "crashes and one that hangs",
        f"capture {more} -s demo -g {grader} -j 4 "
        f"--workspace-dir {folder / 'work'} -o {results} --overwrite",
    )
    _show(results)
    flaky, better = folder / "flaky.jsonl", folder / "better.jsonl"
    common = f"-g contains -k 5 -j 4 --workspace-dir {folder / 'work'}"
    for name, output in (("flaky", flaky), ("better", better)):
        _step(
            f"2. Repeat every prompt five times with the agent {name!r}",
            f"trials {prompts} -s demo:{name} {common} -o {output} --overwrite",
        )
    _step("3. Is one better than the other?", f"compare {flaky} {better} --format table")
    _play(folder / "arc")
    report = folder / "report.html"
    _step(
        "5. Write a report, one file to read or to send",
        f"report {flaky} {better} -o {report} --overwrite",
    )
    click.echo("\nNext:")
    click.echo(f"  open {report.resolve()}    the report")
    click.echo(f"  assay view {folder}    the same in a browser, live")
    click.echo(
        f"  assay plan {flaky} {better}    how many prompts are needed to detect a small difference"
    )
    click.echo("  assay init    start with your own prompts and agents")


def _refuse_others_files(folder: Path) -> None:
    """Refuse a folder that has files in it and was not made by an earlier demo."""
    if folder.is_dir() and any(folder.iterdir()) and not (folder / _OURS).is_file():
        msg = f"{folder} is not empty, and no earlier demo made it"
        raise InputError(msg, hint="give an empty or new folder with -o")


def _play(folder: Path) -> None:
    """Let the command `arc` show itself, where it is installed; it is a plugin like any other."""
    echo_raw("\n4. Play the ARC-AGI-3 games that ship with Assay", bold=True)
    if "arc" not in plugins.names("assay.commands"):
        click.echo("  skipped: the command arc is not installed")
        return
    code = run_command(["arc", "demo", "-o", str(folder)])
    if code != 0:
        raise click.exceptions.Exit(code)


def _step(title: str, line: str) -> None:
    echo_raw(f"\n{title}", bold=True)
    click.echo(f"  $ assay {line}")
    code = run_command(shlex.split(line))
    if code != 0:
        raise click.exceptions.Exit(code)


def _show(results: Path) -> None:
    for place, line in read_lines(results):
        row, _ = decode_row(place, line, Capture)
        tools = sum(step.__struct_config__.tag == "tool_call" for step in row.trajectory)
        verdict = "pass" if row.score and row.score.pass_ else "FAIL"
        why = f"  ({row.failure.cause.words})" if row.failure else ""
        click.echo(
            f"  {row.id:12} {verdict}  {len(row.trajectory)} steps, {tools} tool calls, "
            f"{row.timing.total:.0f} ms{why}"
        )
