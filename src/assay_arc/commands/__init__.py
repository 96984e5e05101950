"""assay arc: play, verify and compare ARC-AGI-3 games."""

from importlib import import_module

import click

from assay.cli.group import refuse_command
from assay.cli.help import examples
from assay.cli.parameters import help_option

COMMANDS = {
    "setup": ("", "Check this machine and write the configuration."),
    "browse": ("[GAME] [--filter P] [--tag T]", "List the games, or show one."),
    "play": ("GAME", "Play a game yourself, in the terminal."),
    "run": ("AGENT... [--games LIST]", "Let agents play games, and keep logs and scores."),
    "generate": (
        "HARNESS [--ref RUN] [--seed N] [--games LIST]",
        "Write instructions and scripts for another harness.",
    ),
    "import": (
        "HARNESS|recording PATH...",
        "Import, check and score results of other harnesses, or recordings.",
    ),
    "export": ("recording [RUN]", "Export games as recordings of the official toolkit."),
    "compare": ("[RUN...] [--all]", "Compare runs, also of different harnesses."),
    "report": ("[RUN|latest] [--format F]", "Report on one run."),
    "replay": ("RUN GAME", "Watch a game of a run again."),
    "verify": ("[RUN...]", "Verify a run by replaying its logs in the engine."),
    "rescore": ("[RUN] [--formula F]", "Score a stored run again with any formula."),
}
"""Syntax and purpose: the table that `assay arc` shows."""
HIDDEN = ("demo",)
"""Sub-commands that the table leaves out."""
EXAMPLES = examples(
    "assay arc browse",
    "assay arc run random --games ky01 --max-steps 50",
    "assay arc report latest --format summary",
)


class ArcGroup(click.Group):
    """Imports a sub-command only when it is used."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS and cmd_name not in HIDDEN:
            return None
        module = "import_" if cmd_name == "import" else cmd_name  # `import` is a keyword
        found: click.Command = import_module(f"assay_arc.commands.{module}").command
        return found

    def get_help(self, ctx: click.Context) -> str:
        return table()  # click's own help would import every sub-command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Refuse an unknown sub-command: with the table, and the one that was probably meant."""
        if not args[0].startswith("-") and self.get_command(ctx, args[0]) is None:
            click.echo(f"{table()}\n", err=True)
            refuse_command(ctx, "sub-command", args[0], COMMANDS)
        return super().resolve_command(ctx, args)


def table() -> str:
    width = max(map(len, COMMANDS))
    lines = []
    for name, (syntax, purpose) in COMMANDS.items():
        lines.append(f"  {name:{width}}  {purpose}")
        lines.append(f"  {'':{width}}  {f'assay arc {name} {syntax}'.rstrip()}")
    shown = EXAMPLES.removeprefix("\b\n")
    usage = "Usage: assay arc SUB-COMMAND [OPTIONS]"
    return "\n".join([usage, "", "Sub-commands:", *lines, "", shown])


@click.group(
    cls=ArcGroup,
    invoke_without_command=True,
    short_help="Play, verify and compare ARC-AGI-3 games.",
)
@help_option
@click.pass_context
def command(ctx: click.Context) -> None:
    """Play ARC-AGI-3 games with any agent, and compare agents and harnesses."""
    if ctx.invoked_subcommand is None:
        click.echo(table())
