"""assay init: a folder to start from."""

import json
import shutil
from pathlib import Path
from typing import Any

import click

from assay import plugins
from assay.cli.group import examples
from assay.cli.parameters import OutFolder, help_option
from assay.errors import OutputError

_AGENTS = ("claude", "codex", "gemini", "opencode")


@click.command(
    short_help="Write prompts and a grader to start from.",
    epilog=examples(
        "assay init",
        "assay init my-evals",
    ),
)
@click.argument("folder", type=OutFolder(), default="evals")
@click.option("--force", is_flag=True, help="Replace files that exist.")
@help_option
def command(folder: Path, *, force: bool) -> None:
    """Write example prompts and a grader to FOLDER (default: evals), and show how to run them."""
    taken = [name for name in ("prompts.jsonl", "grader.py") if (folder / name).exists()]
    if taken and not force:
        msg = f"{folder / taken[0]} already exists"
        raise OutputError(msg, hint="choose another folder, or use --force")
    prompts, grader = write_starter(folder)
    click.echo(f"Wrote {prompts} ({len(PROMPTS)} prompts) and {grader}.")
    agents = _found()
    if agents == ["demo"]:
        click.echo(f"None of {', '.join(_AGENTS)} is installed; start with the demo agent.")
    click.echo("\nRun them:")
    for agent in agents:
        click.echo(f"  assay capture {prompts} -s {agent} -g {grader} -o {folder / agent}.jsonl")


def _found() -> list[str]:
    known = plugins.names("assay.adapters")
    return [name for name in _AGENTS if name in known and shutil.which(name)] or ["demo"]


PROMPTS: list[dict[str, Any]] = [
    {
        "id": "sum",
        "input": "What is 17 + 25?",
        "hint": "42",
        "reference": "42",
        "metadata": {"category": "math"},
    },
    {
        "id": "difference",
        "input": "What is 100 - 58?",
        "hint": "42",
        "reference": "It is 42.",
        "metadata": {"category": "math"},
    },
    {
        "id": "product",
        "input": "What is 123 * 456?",
        "hint": "56088",
        "reference": "56088",
        "metadata": {"category": "math"},
    },
    {
        "id": "reverse",
        "input": "Reverse the word lantern",
        "hint": "nretnal",
        "reference": "nretnal",
        "metadata": {"category": "text"},
    },
    {
        "id": "capital",
        "input": "Name the capital of Kenya",
        "hint": "Nairobi",
        "reference": "Nairobi",
        "metadata": {"category": "facts"},
    },
    {
        "id": "capital-2",
        "input": "Name the capital of Peru",
        "hint": "Lima",
        "reference": "Lima",
        "metadata": {"category": "facts"},
    },
    {
        "id": "file",
        "input": "Write a short note into notes.txt",
        "hint": "notes.txt",
        "reference": "I wrote notes.txt.",
        "metadata": {"category": "files"},
    },
    {
        "id": "memory",
        "input": ["Remember the number 42", "Which number was it?"],
        "hint": "42",
        "reference": "42",
        "metadata": {"category": "memory"},
    },
]
TROUBLE: list[dict[str, Any]] = [
    {"id": "crash", "input": "Please crash now", "metadata": {"category": "trouble"}},
    {
        "id": "hang",
        "input": "Please hang for a while",
        "timeout": 700,
        "metadata": {"category": "trouble"},
    },
]
GRADER = '''#!/usr/bin/env python3
"""Passes when the hint is in the answer. One JSON object on stdin, one on stdout."""
import json
import sys

trial = json.load(sys.stdin)
hint = (trial.get("hint") or "").lower()
found = hint in trial["output"].lower()
print(json.dumps({
    "pass": found,
    "score": 1.0 if found else 0.0,
    "reasoning": f"{'has' if found else 'lacks'} {hint!r}",
}))
'''


def write_starter(folder: Path) -> tuple[Path, Path]:
    """Write prompts and grader; return their paths."""
    try:
        grader = folder / "grader.py"
        prompts = write_prompts(folder / "prompts.jsonl", PROMPTS)
        grader.write_text(GRADER, encoding="utf-8")
        grader.chmod(0o755)
    except OSError as error:
        msg = f"cannot write to {folder}: {error.strerror}"
        raise OutputError(msg, hint="choose another folder") from error
    return prompts, grader


def write_prompts(path: Path, prompts: list[dict[str, Any]]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = [json.dumps(prompt, ensure_ascii=False) + "\n" for prompt in prompts]
    path.write_text("".join(lines), encoding="utf-8")
    return path
