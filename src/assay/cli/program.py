"""The agent as a program behind the prompts: assay capture PROMPTS PROGRAM ARGS."""

import os
import shlex
import sys
from pathlib import Path
from typing import Any

import click

from assay.cli.options import (
    AgentOptions,
    BatchOptions,
    agent_options_given,
    agent_ref,
    with_agent_options,
)
from assay.cli.output import echo_folded
from assay.cli.parameters import SandboxCommand
from assay.records.spec import PluginRef
from assay.records.text import visible_line
from assay.run.process import is_program, program_places


class ProgramCommand(SandboxCommand):
    """A command that takes the command line of an agent: behind --, or behind the prompts.

    Behind the prompts, its first word is a program. What follows is the program's, except for
    options of this command that do not describe an agent, such as -o.
    """

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        line = _CommandLine(self, ctx, args)
        ctx.meta["program"], ctx.meta["options_behind"] = line.program, line.options_behind
        return super().parse_args(ctx, line.ours)


class _CommandLine:
    """The words of a command line, divided between this command and a program."""

    def __init__(self, command: click.Command, ctx: click.Context, args: list[str]) -> None:
        self._options = {
            name: option
            for option in command.get_params(ctx)
            if isinstance(option, click.Option)
            for name in (*option.opts, *option.secondary_opts)
        }
        self.ours: list[str] = []
        self.program: list[str] = []
        self.options_behind: list[str] = []
        """Names of our options that stand behind the program's first word."""
        self._names_agent = False
        self._n_words = 0
        rest = list(args)
        while rest:
            self._take(rest.pop(0), rest)

    def _take(self, word: str, rest: list[str]) -> None:
        if word == "--":
            self.program += [word, *rest] if self.program else rest
            rest.clear()
        elif word.startswith("-") and len(word) > 1:
            self._take_option(word, rest)
        elif self.program or self._starts_program(word, rest):
            self.program.append(word)
        else:
            self._n_words += 1
            self.ours.append(word)

    def _take_option(self, word: str, rest: list[str]) -> None:
        name = word.partition("=")[0] if word[:2] == "--" else word[:2]
        option = self._options.get(name)
        describes_agent = option is not None and option.name in _DESCRIBES_AGENT
        if self.program and (option is None or describes_agent):
            self.program.append(word)
            return
        self._names_agent = self._names_agent or _names_agent(word)
        self._n_words += name in ("--stdin", "--benchmark")  # in place of the prompt file
        if self.program:
            self.options_behind.append(name)
        self.ours.append(word)
        if self._value_follows(word) and rest:
            self.ours.append(rest.pop(0))

    def _value_follows(self, word: str) -> bool:
        """Whether the next word is the value of this option; -qj 4 is -q and -j 4."""
        if word[:2] == "--":
            # --sandbox may stand alone: see SandboxCommand.
            return "=" not in word and word != "--sandbox" and self._takes_value(word)
        takes = [self._takes_value(f"-{letter}") for letter in word[1:]]
        return True in takes and takes.index(True) == len(takes) - 1

    def _takes_value(self, name: str) -> bool:
        option = self._options.get(name)
        return option is not None and not option.is_flag

    def _starts_program(self, word: str, rest: list[str]) -> bool:
        """Whether a word behind the prompts is a program; a second prompt file is none."""
        if self._n_words == 0:
            return False
        named = self._names_agent or any(map(_names_agent, rest))
        is_file = word.endswith((".jsonl", ".json"))
        return not named or "headless" in (word, *rest) or (not is_file and can_start(word))


def can_start(program: str) -> bool:
    """Whether there is such a program, here or on the PATH."""
    places = program_places(program, str(Path.cwd()), os.environ.get("PATH", os.defpath))
    try:
        return any(map(is_program, places))
    except (OSError, ValueError):  # too long for a name, or with a NUL
        return False


def _names_agent(word: str) -> bool:
    is_short = word.startswith("-s") and not word.startswith("--")
    return is_short or word.partition("=")[0] in ("--schema", "--simple", "--shell")


_DESCRIBES_AGENT = frozenset(AgentOptions.__struct_fields__)
"""Options that say which agent it is: behind a program, which is one itself, they are its own."""


def chosen_agent(ctx: click.Context, options: AgentOptions) -> PluginRef:
    """The agent given by name, or as a program that speaks the Agent Client Protocol."""
    program: list[str] = ctx.meta.get("program", [])
    given = agent_options_given(options)
    if not program and not given:
        msg = (
            "No agent given. Use -s SCHEMA, --simple COMMAND or --shell COMMAND, or name a program "
            "that speaks the Agent Client Protocol after the prompts."
        )
        raise click.UsageError(msg)
    if not program:
        return agent_ref(options)
    if given:
        msg = (
            f"Give the agent either with {given[0][0]} or as a program ({program[0]}), not both. "
            "Only one prompt file is read."
        )
        raise click.UsageError(msg)
    # Our own server of agents, also where `assay` is not on the PATH.
    ours = {"assay": program[1:], "headless": program}.get(program[0])
    about: dict[str, Any] = {"command": program}
    if ours is not None and not can_start(program[0]):
        in_one_file = sys.argv[0].endswith(".pyz")
        own = [str(Path(sys.argv[0]).absolute())] if in_one_file else ["-m", "assay"]
        about["command"] = [sys.executable, *own, *ours]
        about["name"] = shlex.join(["assay", *ours])
    return with_agent_options(PluginRef(name="acp", options=about), options)


def say_program(ctx: click.Context, options: BatchOptions) -> None:
    """Say whose the options behind the program are: some could be meant for it."""
    if not ctx.meta["options_behind"] or not options.prints_notes:
        return
    program, ours = shlex.join(ctx.meta["program"]), ", ".join(ctx.meta["options_behind"])
    echo_folded(
        f"The agent is the program: {visible_line(program)}\n"
        f"Assay itself takes {ours} from behind it. Put -- before the program to pass it all.",
        err=True,
    )
