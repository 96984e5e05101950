"""assay init: a folder to start from."""

import json
import os
import re
import shlex
import shutil
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import click

from assay import plugins
from assay.benchmarks import PromptFile
from assay.benchmarks.skills import cases_of
from assay.cli.editor_files import FIRST_LINE, write_schemas, write_vscode
from assay.cli.help import examples
from assay.cli.output import echo_folded
from assay.cli.parameters import OutFolder, help_option
from assay.errors import InputError, OutputError
from assay.pipeline.descriptions import PaidHost, suggest_prompts, written_prompts
from assay.pipeline.imports import prompt_notes
from assay.pipeline.material import Skill, read_skill
from assay.pipeline.project import write_template
from assay.pipeline.steps import Budget
from assay.pipeline.trigger_run import ASK_TIMEOUT_S
from assay.records.text import counted_noun, visible, visible_line

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
@click.option(
    "--suggest",
    is_flag=True,
    help="Let the installed agent write the prompts about a skill, which costs a question to it. "
    "Default: ask on a terminal, otherwise write three examples.",
)
@click.option(
    "--vscode",
    is_flag=True,
    help="Also write .vscode/tasks.json, which runs the experiment, and .vscode/settings.json, "
    "which checks its files. Existing ones are left as they are.",
)
@help_option
def command(folder: Path, *, force: bool, suggest: bool, vscode: bool) -> None:
    """Write prompts, a grader and an experiment to FOLDER (default: evals), and show how to run
    them.

    The experiment compares an agent with and without what is found in the current folder: a skill,
    a CLAUDE.md, AGENTS.md or GEMINI.md, MCP servers. The prompts are those of the skill's
    evals/evals.json if there is one, or else about the skill. In a git repository each trial begins
    with a copy of its tracked files, without what is compared.
    """
    names = ("prompts.jsonl", "grader.py", _EXPERIMENT, _PROJECT)
    taken = [name for name in names if (folder / name).exists()]
    if taken and not force:
        msg = f"{folder / taken[0]} already exists"
        raise OutputError(msg, hint="choose another folder, or use --force")
    if Path("SKILL.md").is_file():
        msg = "this folder is a skill: prompts and results in it would become a part of it"
        raise InputError(msg, hint="run it in the folder above: cd .. && assay init")
    agents = _found()
    if agents == ["demo"]:
        echo_folded(f"None of {', '.join(_AGENTS)} is installed; start with the demo agent.")
    found = [*_with_own_names([*_treatments(folder, Path()), *_others(agents)])]
    material = _write_material(folder, found[0].skill, agents, suggest=suggest)
    template = _write_project(folder, found[0].paths)
    write_experiment(folder / _EXPERIMENT, found, agents[0], material, template=template)
    echo_folded(f"Wrote {folder / _EXPERIMENT}, an experiment.")
    if vscode:
        write_vscode(folder, folder / _EXPERIMENT, force=force)
    echo_folded("\nRun them:")
    graders = "".join(f" -g {shlex.quote(grader)}" for grader in material.graders)
    for agent in agents:
        prompts = shlex.quote(str(material.prompts))
        echo_folded(f"  assay capture {prompts} -s {agent}{graders} -o {folder / agent}.jsonl")
    echo_folded(f"\n{found[0].question} One command says it:\n  assay ab {folder / _EXPERIMENT}")


class _Material(NamedTuple):
    """The prompts of an experiment, and who judges them."""

    prompts: Path
    graders: list[str]
    """As -g takes them from the current folder."""


def _write_material(
    folder: Path, skill: Skill | None, agents: list[str], *, suggest: bool
) -> _Material:
    """Use the cases that a skill brings along, or write prompts about it, or samples."""
    cases = cases_of(skill.folder) if skill is not None else None
    if cases is not None:
        return _use_cases(cases, agents[0])
    if suggest and (skill is None or agents == ["demo"]):
        what = "skill here" if skill is None else "agent installed that could write prompts"
        msg = f"--suggest: there is no {what}"
        raise InputError(msg, hint="run assay init without --suggest")
    rows, words = PROMPTS, f"{len(PROMPTS)} prompts"
    if skill is not None and (suggest or _agrees(skill, agents)):
        asking = PaidHost(Budget(None, 1))
        rows = suggest_prompts(skill, plugins.adapter_ref(agents[0]), asking, 8, ASK_TIMEOUT_S)
        words = f"{len(rows)} prompts by {agents[0]}, for {asking.cost_words}; check their hints"
    elif skill is not None:
        rows = written_prompts(skill)
        words = (
            f"{len(rows)} examples about {visible_line(skill.name)}; put requests of your users in "
            "their place, at least ten, each with a hint that a good answer has"
        )
    prompts, grader = write_starter(folder, rows)
    echo_folded(f"Wrote {prompts} ({words}) and {grader}.")
    return _Material(prompts, [str(grader)])


def _agrees(skill: Skill, agents: list[str]) -> bool:
    """Ask on a terminal whether the agent may write the prompts."""
    if agents == ["demo"] or "CI" in os.environ or not (sys.stdin.isatty() and sys.stderr.isatty()):
        return False
    question = f"Let {agents[0]} write prompts about {visible_line(skill.name)}? It is asked once"
    return click.confirm(question, err=True)


def _use_cases(cases: Path, agent: str) -> _Material:
    """Take the cases of a skill as they are; say what becomes of them."""
    rows = PromptFile(path=str(cases)).prompts()
    for words in prompt_notes(rows, str(cases)):
        echo_folded(visible_line(words))
    graders = [f"judge:agent={agent}"] if any(prompt.statements for prompt, _ in rows) else []
    if graders and agent == "demo":
        echo_folded(
            "The demo agent cannot judge, so the statements about an answer are left open "
            "until the experiment names a judge: judge:agent=claude, or "
            "judge:model=NAME for a model by its URL."
        )
        graders = ["judge:agent=none"]
    echo_folded(f"The prompts are the {len(rows)} cases of {cases}.")
    return _Material(cases, graders)


def _write_project(folder: Path, treatment: Sequence[Path]) -> bool:
    """Copy the repository, if there is one, as the template of all workspaces."""
    target = folder / _PROJECT
    n = write_template(Path(), target, [*treatment, folder, Path("experiments")])
    if n:
        files = counted_noun(n, "tracked file")
        echo_folded(f"Wrote {target}, which every trial begins with: {files} of this repository.")
        ignored = folder / ".gitignore"
        if not ignored.exists():
            ignored.write_text(f"/{_PROJECT}/\n", encoding="utf-8")
    return bool(n)


def write_experiment(
    path: Path,
    found: Sequence["_Treatment"],
    agent: str,
    material: _Material,
    *,
    template: bool,
) -> None:
    """Write an experiment about what a project has, the first of it in an arm."""
    name = found[0].lines[0].removeprefix("[arms.").removesuffix("]")

    def beside(file: Path) -> str:
        return visible(json.dumps(os.path.relpath(file.resolve(), path.parent.resolve())))

    graders = [
        beside(Path(text)) if Path(text).is_file() else json.dumps(text)
        for text in material.graders
    ]
    head = _EXPERIMENT_HEAD.format(
        question=found[0].question,
        name=name,
        agent=agent,
        prompts=beside(material.prompts),
        graders=", ".join(graders),
    )
    lines = head.splitlines()
    if template:
        lines += [f'template = "{_PROJECT}"  # assay init --force copies the repository again']
    lines += ["", "[arms.control]", "", *found[0].lines]
    if found[1:]:
        lines += ["", "# Also found here; each may be an arm of its own:"]
    for other in found[1:]:
        lines += ["#", *(f"# {line}" for line in other.lines)]
    try:
        write_schemas(path.parent / "schemas")
        path.write_text("\n".join([*lines, ""]), encoding="utf-8")
    except OSError as error:
        msg = f"cannot write {path}: {error.strerror}"
        raise OutputError(msg, hint="choose another folder") from error


class _Treatment(NamedTuple):
    """Something whose effect can be measured."""

    question: str
    lines: list[str]
    paths: tuple[Path, ...] = ()
    """Where it is in the project."""
    skill: Skill | None = None


def _treatments(folder: Path, project: Path) -> Iterator[_Treatment]:
    """Yield what the project has for agents: skills, instructions, MCP servers."""

    def value(path: Path) -> str:
        text = json.dumps(os.path.relpath(path.resolve(), folder.resolve()), ensure_ascii=False)
        return visible(text)  # JSON may have characters that TOML wants escaped

    for skill in _skills(project):
        name = skill.folder.name
        lines = [f"[arms.{_key(name)}]", f"skills = [{value(skill.folder)}]"]
        question = f"Does the skill {visible_line(name)} help?"
        copies = [one.parent for pattern in _SKILLS for one in project.glob(pattern)]
        paths = [one for one in copies if one.name == name]  # in the folder of each agent
        yield _Treatment(question, lines, (skill.folder, *paths), skill)
    for name in ("CLAUDE.md", "AGENTS.md", "GEMINI.md"):
        if (project / name).is_file():
            lines = [f"[arms.{_key(Path(name).stem.lower())}]"]
            lines += [f"instructions = {value(project / name)}"]
            yield _Treatment(f"Does {name} help?", lines, (project / name,))
    if (project / ".mcp.json").is_file():
        lines = ["[arms.servers]", f"mcp = {value(project / '.mcp.json')}"]
        servers = (project / ".mcp.json",)
        yield _Treatment("Do the MCP servers of .mcp.json help?", lines, servers)


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
_PROJECT = "project"
"""The template of all workspaces."""
_SKILLS = (
    *(".claude/skills/*/SKILL.md", ".agents/skills/*/SKILL.md", "skills/*/SKILL.md"),
    *("plugin*/skills/*/SKILL.md", "*/SKILL.md"),
)
_EXPERIMENT_HEAD = f"""\
{FIRST_LINE}
# {{question}} The keys of this file are in docs/ab.md.
name = "{{name}}"
prompts = {{prompts}}
graders = [{{graders}}]
k = 5  # trials of each prompt in each arm
agent = "{{agent}}"
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
hint = (trial.get("hint") or "").strip().lower()
if not hint:
    sys.exit("the prompt has no hint, so there is nothing to compare the answer with")
found = hint in trial["output"].lower()
print(json.dumps({
    "pass": found,
    "score": 1.0 if found else 0.0,
    "reasoning": f"{'has' if found else 'lacks'} {hint!r}",
}))
'''


def write_starter(
    folder: Path, rows: Sequence[dict[str, Any]] = tuple(PROMPTS)
) -> tuple[Path, Path]:
    """Write prompts and grader; return their paths."""
    try:
        grader = folder / "grader.py"
        prompts = write_prompts(folder / "prompts.jsonl", rows)
        grader.write_text(GRADER, encoding="utf-8")
        grader.chmod(0o755)
    except OSError as error:
        msg = f"cannot write to {folder}: {error.strerror}"
        raise OutputError(msg, hint="choose another folder") from error
    return prompts, grader


def write_prompts(path: Path, prompts: Sequence[dict[str, Any]]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = [json.dumps(prompt, ensure_ascii=False) + "\n" for prompt in prompts]
    path.write_text("".join(lines), encoding="utf-8")
    return path
