"""Parameters that need nothing but click: strict numbers, prompt files, words after --."""

import sys
from collections.abc import Sequence
from math import isnan
from pathlib import Path
from typing import Any

import click


class Number(click.FloatRange):
    """A number in a range; "nan" is in none."""

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """Read the number."""
        number: float = super().convert(value, param, ctx)
        if isnan(number):
            self.fail(f"{value!r} is not a number", param, ctx)
        return number


class AfterDashes(click.Command):
    """A command that sets apart the words behind --; they are another program's."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Cut at the first --."""
        if "--" in args:
            cut = args.index("--")
            ctx.meta["after_dashes"] = args[cut + 1 :]
            args = args[:cut]
        return super().parse_args(ctx, args)


def prompt_path(arguments: Sequence[str], *, from_stdin: bool) -> Path | None:
    """Give the prompt file; None means stdin. Exactly one of the two must be said."""
    if from_stdin and arguments:
        msg = "Give either a prompt file or --stdin, not both."
        raise click.UsageError(msg)
    if not from_stdin and not arguments:
        msg = "No prompts given. Name a file, or use --stdin."
        raise click.UsageError(msg)
    for word in arguments[1:]:
        click.echo(f"Ignored {word!r}: only one prompt file is read.", err=True)
    if from_stdin:
        refuse_terminal()
        return None
    return Path(arguments[0])


def refuse_terminal() -> None:
    """Refuse to wait for a person who was not asked to type."""
    if sys.stdin is None or sys.stdin.isatty():
        msg = "stdin is a terminal. Name a file, or pipe the rows in."
        raise click.UsageError(msg)
