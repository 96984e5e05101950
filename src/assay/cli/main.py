"""The command `assay`: finds the sub-command, turns errors into messages and exit codes."""

import os
import signal
import sys
from importlib import import_module
from types import FrameType
from typing import Any

import click

from assay import __version__
from assay.errors import AssayError, Interrupted

COMMANDS = {
    "capture": "Run prompts against an agent and record full trajectories.",
    "run": "Run prompts and write the agent's raw output.",
    "extract": "Read raw output into trajectories.",
    "headless": "Make a declared agent speak the Agent Client Protocol on stdio.",
    "schemas": "List or export JSON Schema for every file format.",
    "init": "Write a starting folder for the agents found on this machine.",
    "demo": "Show the whole flow with agents that ship with Assay.",
}
"""Name and one line of help: the help page needs no command's code."""


class LazyGroup(click.Group):
    """Imports a command's module only when that command is used."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Give the names in their order of use."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Load one command."""
        if cmd_name not in COMMANDS:
            return None
        module = import_module(f"assay.cli.{cmd_name.replace('-', '_')}")
        command: click.Command = module.command
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the commands without loading them."""
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Say what was probably meant when there is no such command."""
        if args and not args[0].startswith("-") and args[0] not in COMMANDS:
            from difflib import get_close_matches

            close = get_close_matches(args[0], COMMANDS, n=1)
            hint = f" Did you mean {close[0]!r}?" if close else " See: assay --help"
            ctx.fail(f"There is no command {args[0]!r}.{hint}")
        return super().resolve_command(ctx, args)


@click.group(cls=LazyGroup, invoke_without_command=True)
@click.version_option(__version__, "-v", "--version", message="%(version)s")
@click.help_option("-h", "--help")
@click.pass_context
def cli(ctx: click.Context) -> None:
    """Evaluate any command-line agent: capture, grade, repeat, compare."""
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help())


def main() -> None:
    """Run, and end the process with the right code."""
    debug = "--debug" in sys.argv
    signal.signal(signal.SIGTERM, _interrupt)
    try:
        cli.main(standalone_mode=False)
    except click.exceptions.Exit as error:
        _exit(error.exit_code)
    except click.UsageError as error:
        error.show()
        _exit(2)
    except click.ClickException as error:
        error.show()
        _exit(1)
    except (KeyboardInterrupt, click.Abort, Interrupted):
        _say("interrupted: every finished row is saved; go on with --resume")
        _exit(130)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        _exit(1)
    except AssayError as error:
        if debug:
            raise
        _say(f"Error: {error.message}")
        if error.hint:
            _say(f"  {error.hint}")
        _exit(error.exit_code)


def _interrupt(number: int, frame: FrameType | None) -> Any:
    raise KeyboardInterrupt


def _say(text: str) -> None:
    click.echo(text, err=True)


def _exit(code: int) -> None:
    sys.exit(code)
