"""assay init: a folder to start from."""

import shutil
from pathlib import Path

import click

from assay import plugins
from assay.cli.starter import PROMPTS, write_starter
from assay.errors import OutputError

_AGENTS = ("claude", "codex", "gemini", "opencode")


@click.command(short_help="Write a starting folder for the agents found on this machine.")
@click.argument("folder", type=click.Path(path_type=Path), default="evals")
@click.option("--force", is_flag=True, help="Write over files that are there.")
@click.help_option("-h", "--help")
def command(folder: Path, *, force: bool) -> None:
    """Write prompts, a grader and the line to run them into FOLDER (default: evals)."""
    taken = [name for name in ("prompts.jsonl", "grader.py") if (folder / name).exists()]
    if taken and not force:
        msg = f"{folder / taken[0]} already exists"
        raise OutputError(msg, hint="choose another folder, or use --force")
    prompts, grader = write_starter(folder)
    click.echo(f"wrote {prompts} ({len(PROMPTS)} prompts) and {grader}")
    agents = _found()
    if agents == ["demo"]:
        click.echo(f"found none of {', '.join(_AGENTS)}; the demo agent will do for a start")
    click.echo("\nRun them:")
    for agent in agents:
        click.echo(f"  assay capture {prompts} -s {agent} -g {grader} -o {folder / agent}.jsonl")


def _found() -> list[str]:
    known = plugins.names("assay.adapters")
    return [name for name in _AGENTS if name in known and shutil.which(name)] or ["demo"]
