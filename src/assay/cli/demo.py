"""assay demo: the whole flow with agents that ship with Assay; no key, no network."""

import shlex
from pathlib import Path

import click

from assay.cli.group import run_command
from assay.cli.starter import PROMPTS, TROUBLE, write_starter
from assay.records.capture import Capture
from assay.records.jsonl import decode_row, read_lines


@click.command(short_help="Show the whole flow with agents that ship with Assay.")
@click.option(
    "-o", "--output", "folder", type=click.Path(path_type=Path), default="demo-out", help="Folder."
)
@click.help_option("-h", "--help")
def command(folder: Path) -> None:
    """Capture and grade scripted agents: real processes that print a real event stream."""
    prompts, grader = write_starter(folder, PROMPTS + TROUBLE)
    results = folder / "results.jsonl"
    _step(
        f"1. Capture: {len(PROMPTS + TROUBLE)} prompts, one of two turns, one that crashes, "
        "one that hangs",
        f"capture {prompts} -s demo -g {grader} -j 4 "
        f"--workspace-dir {folder / 'work'} -o {results} --overwrite",
    )
    _show(results)
    click.echo("\nNext:")
    click.echo(f"  jq . {results} | less            look at what was captured")
    click.echo("  assay init                        start with your own prompts and agent")


def _step(title: str, line: str) -> None:
    click.secho(f"\n{title}", bold=True)
    click.echo(f"  $ assay {line}")
    code = run_command(shlex.split(line))
    if code != 0:
        raise click.exceptions.Exit(code)


def _show(results: Path) -> None:
    for place, line in read_lines(results):
        row, _ = decode_row(place, line, Capture)
        tools = sum(step.__struct_config__.tag == "tool_call" for step in row.trajectory)
        verdict = "pass" if row.score and row.score.pass_ else "FAIL"
        why = f"  ({row.failure.cause})" if row.failure else ""
        click.echo(
            f"  {row.id:12} {verdict}  {len(row.trajectory)} steps, {tools} tool calls, "
            f"{row.timing.total:.0f} ms{why}"
        )
