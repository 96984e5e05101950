"""assay demo: the whole flow with agents that ship with Assay; no key, no network."""

import shlex
from pathlib import Path
from typing import Any

import click
import msgspec

from assay import plugins
from assay.cli.group import run_command
from assay.cli.help import COLOUR, examples, variables
from assay.cli.init import PROMPTS, TROUBLE, write_prompts, write_starter
from assay.cli.output import echo_folded, echo_raw
from assay.cli.parameters import help_option
from assay.errors import InputError
from assay.records.rows import decode_row, read_lines
from assay.records.trial import Trial

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
    """Measure a skill, capture, repeat, compare and play with scripted agents, without keys or
    network.
    """
    if folder.is_dir() and any(folder.iterdir()) and not (folder / _OURS).is_file():
        msg = f"{folder} is not empty, and no earlier demo made it"
        raise InputError(msg, hint="give an empty or new folder with -o")
    prompts, grader = write_starter(folder)
    more = write_prompts(folder / _OURS, PROMPTS + TROUBLE)
    verdict = _experiment(folder)
    results = folder / "results.jsonl"
    _step(
        "2. What does an agent do? Every step is kept, also of one that crashes or hangs",
        f"capture {more} -s demo -g {grader} -j 4 -q "
        f"--workspace-dir {folder / 'work'} -o {results} --overwrite",
    )
    _show(results)
    _compare_agents(folder, prompts)
    _play(folder / "arc")
    report = folder / "report.html"
    _step(
        "5. One page to read or to send",
        f"report {folder / 'flaky.jsonl'} {folder / 'better.jsonl'} -o {report} --overwrite",
    )
    _prove(folder, Path(verdict["folder"]))
    echo_raw("\nThe verdict", bold=True)
    for sentence in verdict["sentences"]:
        echo_folded(f"  {sentence}")
    echo_folded(f"  {Path(verdict['folder'], 'report.html').resolve()}")
    echo_raw("Next", bold=True)
    echo_folded(f"  open {report.resolve()}    the other report")
    echo_folded(f"  assay view {folder}    the same in a browser, live")
    echo_folded(f"  assay explain {folder / 'flaky.jsonl'}    why its trials failed")
    echo_folded("  assay init    an experiment about your own skill, instructions or servers")


def _experiment(folder: Path) -> dict[str, Any]:
    """Run an agent with and without a skill; return what was found."""
    skill = folder / "skills" / "relnotes"
    skill.mkdir(parents=True, exist_ok=True)
    (skill / "SKILL.md").write_text(_SKILL, encoding="utf-8")
    prompts = write_prompts(folder / "release-prompts.jsonl", _RELEASES)
    runs = folder / "experiments"
    _step(
        "1. Does a skill help? The agent runs with it and without it, on the same prompts",
        f"ab {prompts} -s demo --with skill={skill} -g contains -k 2 -j 4 -q -o {runs}",
    )
    newest = max((runs / "relnotes").glob("*/verdict.json"), key=lambda path: path.stat().st_mtime)
    found: dict[str, Any] = msgspec.json.decode(newest.read_bytes())
    for line in (*found["proof"]["words"], *found["sentences"]):
        echo_folded(f"  {line}")
    return {**found, "folder": str(newest.parent)}


_SKILL = """\
---
name: relnotes
description: Write release notes the way this project does.
---
- release notes: Added, Changed, Fixed
"""
_RELEASES = [
    {"id": f"notes-{n}", "input": f"Write the release notes of 1.{n}", "hint": "Changed"}
    for n in range(8)
] + [{"id": f"sum-{n}", "input": f"What is {n} + 40?", "hint": str(n + 40)} for n in range(4)]


def _compare_agents(folder: Path, prompts: Path) -> None:
    title = "3. Is one agent better than another? Every prompt runs five times with each"
    files = {name: folder / f"{name}.jsonl" for name in ("flaky", "better")}
    common = f"-g contains -k 5 -j 4 -q --workspace-dir {folder / 'work'} --overwrite"
    for name, output in files.items():
        _step(title, f"trials {prompts} -s demo:{name} {common} -o {output}")
        title = ""
    compared = folder / "comparison.json"
    words = f"compare {files['flaky']} {files['better']} -f json -o {compared} --overwrite"
    _step("", words)
    for verdict in msgspec.json.decode(compared.read_bytes())["verdict"]:
        echo_folded(f"  {verdict['words']}")


def _play(folder: Path) -> None:
    """Let the command `arc` show itself, where it is installed; it is a plugin like any other."""
    echo_raw("\n4. Play the ARC-AGI-3 games that ship with Assay", bold=True)
    if "arc" not in plugins.names("assay.commands"):
        echo_folded("  skipped: the command arc is not installed")
        return
    code = run_command(["arc", "demo", "-o", str(folder)])
    if code != 0:
        raise click.exceptions.Exit(code)


def _prove(folder: Path, experiment: Path) -> None:
    bundle = folder / "evidence.zip"
    title = "6. A result that nobody has to believe: one file, and what of it holds"
    _step(title, f"evidence pack {experiment} -o {bundle} -q")
    _step("", f"evidence verify {bundle} -q")
    echo_folded("  It holds: every file, and every row, grade and number made once more.")


def _step(title: str, line: str) -> None:
    if title:
        echo_raw(f"\n{title}", bold=True)
    click.echo(f"  $ assay {line}")
    code = run_command(shlex.split(line))
    if code != 0:
        raise click.exceptions.Exit(code)


def _show(results: Path) -> None:
    for place, line in read_lines(results):
        row, _ = decode_row(place, line, Trial)
        tools = sum(step.__struct_config__.tag == "tool_call" for step in row.trajectory)
        verdict = "pass" if row.passed else "FAIL"
        why = f"  ({row.failure.cause.words})" if row.failure else ""
        echo_folded(
            f"  {row.id:12} {verdict}  {len(row.trajectory)} steps, {tools} tool calls, "
            f"{row.timing.total:.0f} ms{why}"
        )
