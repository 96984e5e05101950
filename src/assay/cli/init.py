"""assay init: a folder to start from."""

import json
import os
import re
import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import click

from assay import plugins
from assay.cli.help import examples
from assay.cli.output import echo_folded
from assay.cli.parameters import OutFolder, help_option
from assay.errors import InputError, OutputError
from assay.pipeline.material import Skill, read_skill
from assay.records.text import visible, visible_line

_AGENTS = ("claude", "codex", "gemini", "opencode")


@click.command(
    short_help="Write prompts, a grader and an experiment to start from.",
    epilog=examples(
        "assay init",
        "assay init my-evals",
    ),
)
@click.argument("folder", type=OutFolder(), default="evals")
@click.option("--force", is_flag=True, help="Replace files that exist.")
@help_option
def command(folder: Path, *, force: bool) -> None:
    """Write example prompts, a grader and an experiment to FOLDER (default: evals), and show how
    to run them.

    The experiment compares an agent with and without what is found in the current folder: a skill,
    a CLAUDE.md, AGENTS.md or GEMINI.md, MCP servers.
    """
    names = ("prompts.jsonl", "grader.py", _EXPERIMENT)
    taken = [name for name in names if (folder / name).exists()]
    if taken and not force:
        msg = f"{folder / taken[0]} already exists"
        raise OutputError(msg, hint="choose another folder, or use --force")
    prompts, grader = write_starter(folder)
    echo_folded(f"Wrote {prompts} ({len(PROMPTS)} prompts) and {grader}.")
    agents = _found()
    if agents == ["demo"]:
        echo_folded(f"None of {', '.join(_AGENTS)} is installed; start with the demo agent.")
    question = write_experiment(folder / _EXPERIMENT, Path(), agents)
    echo_folded(f"Wrote {folder / _EXPERIMENT}, an experiment.")
    echo_folded("\nRun them:")
    for agent in agents:
        echo_folded(f"  assay capture {prompts} -s {agent} -g {grader} -o {folder / agent}.jsonl")
    echo_folded(f"\n{question} One command says it:\n  assay ab {folder / _EXPERIMENT}")


def write_experiment(path: Path, project: Path, agents: list[str]) -> str:
    """Write an experiment about what a project has; return the question that it answers."""
    found = [*_with_own_names([*_treatments(path.parent, project), *_others(agents)])]
    name = found[0].lines[0].removeprefix("[arms.").removesuffix("]")
    head = _EXPERIMENT_HEAD.format(question=found[0].question, name=name, agent=agents[0])
    lines = head.splitlines()
    lines += ["", "[arms.control]", "", *found[0].lines]
    if found[1:]:
        lines += ["", "# Also found here; each may be an arm of its own:"]
    for other in found[1:]:
        lines += ["#", *(f"# {line}" for line in other.lines)]
    try:
        path.write_text("\n".join([*lines, ""]), encoding="utf-8")
    except OSError as error:
        msg = f"cannot write {path}: {error.strerror}"
        raise OutputError(msg, hint="choose another folder") from error
    return found[0].question


class _Treatment(NamedTuple):
    """Something whose effect can be measured."""

    question: str
    lines: list[str]


def _treatments(folder: Path, project: Path) -> Iterator[_Treatment]:
    """Yield what the project has for agents: skills, instructions, MCP servers."""

    def value(path: Path) -> str:
        text = json.dumps(os.path.relpath(path.resolve(), folder.resolve()), ensure_ascii=False)
        return visible(text)  # JSON may have characters that TOML wants escaped

    for skill in _skills(project):
        name = skill.folder.name
        lines = [f"[arms.{_key(name)}]", f"skills = [{value(skill.folder)}]"]
        yield _Treatment(f"Does the skill {visible_line(name)} help?", lines)
    for name in ("CLAUDE.md", "AGENTS.md", "GEMINI.md"):
        if (project / name).is_file():
            lines = [f"[arms.{_key(Path(name).stem.lower())}]"]
            lines += [f"instructions = {value(project / name)}"]
            yield _Treatment(f"Does {name} help?", lines)
    if (project / ".mcp.json").is_file():
        lines = ["[arms.servers]", f"mcp = {value(project / '.mcp.json')}"]
        yield _Treatment("Do the MCP servers of .mcp.json help?", lines)


def _skills(project: Path) -> Iterator[Skill]:
    """Yield the skills of a project, each folder once; say which ones `assay ab` would refuse."""
    seen: set[Path] = set()
    for pattern in _SKILLS:
        for file in sorted(project.glob(pattern)):
            folder = file.parent.resolve()
            if folder in seen:
                continue
            seen.add(folder)
            try:
                str(folder).encode()  # a name that is not UTF-8 cannot stand in the file
                yield read_skill(file.parent)
            except UnicodeEncodeError:
                echo_folded(f"Left out, because its name is not UTF-8: {file.parent}", err=True)
            except InputError as error:
                echo_folded(f"Left out: {visible_line(error.message)}", err=True)


def _with_own_names(found: Iterable[_Treatment]) -> Iterator[_Treatment]:
    """Number arms whose names were used before: a table of TOML may be given once."""
    used = {"control"}
    for one in found:
        name = wanted = one.lines[0].removeprefix("[arms.").removesuffix("]")
        number = 1
        while name in used:
            number += 1
            name = f"{wanted}-{number}"
        used.add(name)
        yield one._replace(lines=[f"[arms.{name}]", *one.lines[1:]])


def _others(agents: list[str]) -> Iterator[_Treatment]:
    """Yield other agents than the first, which every machine has: the demo's, if nothing else."""
    for agent in agents[1:]:
        yield _Treatment(f"Is {agent} better?", [f"[arms.{agent}]", f'agent = "{agent}"'])
    if agents == ["demo"]:
        yield _Treatment("Is demo:better better?", ["[arms.better]", 'agent = "demo:better"'])
    else:
        yield _Treatment("Does a larger model help?", ["[arms.larger]", 'model = "NAME"'])


def _key(name: str) -> str:
    """A name as a key of TOML, which may name a file, too."""
    return re.sub(r"[^A-Za-z0-9_-]+", "-", name).strip("-_")[:50] or "arm"


_EXPERIMENT = "experiment.toml"
_SKILLS = (
    *(".claude/skills/*/SKILL.md", ".agents/skills/*/SKILL.md", "skills/*/SKILL.md"),
    "plugin*/skills/*/SKILL.md",
)
_EXPERIMENT_HEAD = """\
# {question} The keys of this file are in docs/ab.md.
name = "{name}"
prompts = "prompts.jsonl"  # put prompts of your own here
graders = ["grader.py"]
k = 5  # trials of each prompt in each arm
agent = "{agent}"
# budget = 2.00  # US dollars; the run then ends as soon as the verdict is sure
"""


def _found() -> list[str]:
    known = plugins.names("assay.adapters")
    return [name for name in _AGENTS if name in known and shutil.which(name)] or ["demo"]


def _prompt(
    prompt_id: str, category: str, text: str | list[str], hint: str, reference: str = ""
) -> dict[str, Any]:
    about = {"id": prompt_id, "input": text, "hint": hint, "reference": reference or hint}
    return about | {"metadata": {"category": category}}


PROMPTS = [
    _prompt("sum", "math", "What is 17 + 25?", "42"),
    _prompt("difference", "math", "What is 100 - 58?", "42", "It is 42."),
    _prompt("product", "math", "What is 123 * 456?", "56088"),
    _prompt("reverse", "text", "Reverse the word lantern", "nretnal"),
    _prompt("capital", "facts", "Name the capital of Kenya", "Nairobi"),
    _prompt("capital-2", "facts", "Name the capital of Peru", "Lima"),
    _prompt(
        "file", "files", "Write a short note into notes.txt", "notes.txt", "I wrote notes.txt."
    ),
    _prompt("memory", "memory", ["Remember the number 42", "Which number was it?"], "42"),
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
