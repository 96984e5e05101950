"""Find and run a sub-command; turn errors into messages and exit codes."""

import contextlib
import gc
import io
import os
import signal
import sys
from collections.abc import Iterable
from importlib import import_module
from pathlib import Path
from types import FrameType, ModuleType
from typing import NoReturn

import click
from click.shell_completion import CompletionItem

from assay.cli.help import COMMANDS, SHIPPED, help_page
from assay.cli.output import echo_folded
from assay.cli.parameters import help_option
from assay.errors import AssayError, Interrupted, NotJudged
from assay.records.text import closest

ENDING_SIGNALS = (
    signal.SIGINT,
    signal.SIGTERM,
    signal.SIGHUP,
    signal.SIGQUIT,
    signal.SIGUSR1,
    signal.SIGUSR2,
    signal.SIGXCPU,
)
"""All that would end us without a word and leave the agents, except those that no program can
handle. Batch systems send the last three before they kill. Python itself ignores SIGPIPE."""
_LONGEST_NAME = 500


class LazyGroup(click.Group):
    """Imports a command's module only when that command is used."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The names in their order of use, then those of installed plugins."""
        return [*COMMANDS, *_plugins().names("assay.commands")]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name in COMMANDS:
            name = "imports" if cmd_name == "import" else cmd_name.replace("-", "_")  # a keyword
            module = import_module(f"assay.cli.{name}")
            command: click.Command | None = module.command
        else:
            command = _plugin_command(cmd_name)
        gc.freeze()  # main.py disabled it; what was loaded until now is never scanned again
        gc.enable()
        return command

    def get_help(self, ctx: click.Context) -> str:
        return help_page()  # click's own help would import every command

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Complete names of commands; click's own would import all of them."""
        shipped = {name: text for name, (_, text) in SHIPPED.items()}
        known = {**dict.fromkeys(self.list_commands(ctx), ""), **COMMANDS, **shipped}
        return [
            CompletionItem(name, help=text)
            for name, text in known.items()
            if name.startswith(incomplete)
        ]

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Refuse an unknown command, naming the one that was probably meant."""
        if args[:2] == ["ab", "status"]:
            # Found here, because what `ab` itself needs takes as long to load as all the rest.
            return "ab status", import_module("assay.cli.ab_status").status, args[2:]
        is_unknown = not args[0].startswith("-") and self.get_command(ctx, args[0]) is None
        if is_unknown and not ctx.resilient_parsing:
            refuse_command(ctx, "command", args[0], self.list_commands(ctx))
        return super().resolve_command(ctx, args)


def refuse_command(ctx: click.Context, kind: str, name: str, known: Iterable[str]) -> NoReturn:
    """Exit with a message that names the command that was probably meant."""
    meant = closest(name, known)
    hint = f"Did you mean {meant!r}?" if meant else f"See {ctx.command_path} --help."
    ctx.fail(f"There is no {kind} {name!r}. {hint}")


def _plugin_command(name: str) -> click.Command | None:
    """Load a command of another package; called only for names that are not ours."""
    command: click.Command | None = _plugins().command(name)
    if command is None and name in SHIPPED:
        msg = f"the command {name!r} is not installed: there is no package {SHIPPED[name][0]}"
        raise click.UsageError(msg)
    return command


def _plugins() -> ModuleType:
    from assay import plugins  # late: our own commands load it themselves if they need it

    return plugins


@click.group(cls=LazyGroup)
@help_option
def cli() -> None:
    """Evaluate any command-line agent."""


def run_command(args: list[str]) -> int:
    """Run one command line and return its exit code."""
    for number in ENDING_SIGNALS:
        # One that is ignored stays so: nohup ignores SIGHUP.
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, _interrupt)
    try:
        if "_ASSAY_COMPLETE" in os.environ:
            import_module("assay.cli.completion").answer(cli)
            return 0
        _refuse_bytes(args)
        code = cli.main(args, prog_name="assay", standalone_mode=False)
    except click.ClickException as error:
        said = io.StringIO()
        error.show(said)
        for line in said.getvalue().splitlines():
            _print_error(line)
        return 2 if isinstance(error, click.UsageError) else 1
    except (KeyboardInterrupt, click.Abort, Interrupted):
        _print_error(f"Interrupted. {_continue_hint(args)}")
        return 130
    except BrokenPipeError:
        # Python flushes stdout when it exits, which must not fail once more.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except _REPORTED as error:
        if "--debug" in args:
            raise
        return _report(error)
    return code if isinstance(code, int) else 0


def _refuse_bytes(args: list[str]) -> None:
    """Refuse arguments and a working folder that are not text: rows and reports are UTF-8.

    Python has the bytes that are not UTF-8 as halves of characters, which cannot be written.
    """
    for arg in args:
        if not _is_text(arg):
            msg = f"The argument {_shown(arg)} is not UTF-8; rename the file, or write it in UTF-8."
            raise click.UsageError(msg)
    with contextlib.suppress(OSError):  # it has been removed, which is said elsewhere
        folder = os.getcwd()  # noqa: PTH109 - no path is needed
        if not _is_text(folder):
            msg = f"the name of the working folder is not UTF-8: {_shown(folder)}"
            raise AssayError(msg, hint="rename it, or change to another one")


def _is_text(text: str) -> bool:
    return text.isascii() or not any("\ud800" <= char <= "\udfff" for char in text)


def _shown(text: str) -> str:
    is_bytes = all(
        char < "\ud800" or "\udc80" <= char <= "\udcff" or char > "\udfff" for char in text
    )
    how = "surrogateescape" if is_bytes else "backslashreplace"
    return repr(text.encode("utf-8", how)[:_LONGEST_NAME])[1:]


def _continue_hint(args: list[str]) -> str:
    """Say what continues a command that was interrupted."""
    name = args[0] if args else ""
    if name == "ab":
        return "Every finished trial is saved; run the same command again to go on."
    module = sys.modules.get(f"assay.cli.{name.replace('-', '_')}")
    command = getattr(module, "command", None)  # not there while it is still being imported
    options = {option for param in getattr(command, "params", ()) for option in param.opts}
    journal = sys.modules.get("assay.records.journal")
    if (
        journal is None
        or not journal.Journal.has_saved
        or (name in COMMANDS and "--resume" not in options)
    ):
        return "Run the same command again."  # rows that went to stdout are saved by nobody
    return "Every finished row is saved; continue with --resume."


_REPORTED = (AssayError, OSError, RuntimeError, UnicodeEncodeError, ImportError, MemoryError)


def _report(error: Exception) -> int:
    """Print what is wrong and what to do; return the exit code."""
    if isinstance(error, AssayError):
        # That something could not be judged is a result, not an error.
        _print_error(f"{'' if isinstance(error, NotJudged) else 'Error: '}{error.message}")
        if error.hint:
            _print_error(f"  {error.hint}")
        return error.exit_code
    if isinstance(error, UnicodeEncodeError):
        near = error.object[max(0, error.start - 200) : error.end + 200]
        shown = near.encode("utf-8", "backslashreplace").decode()
        _print_error(f"Error: a name or a text is not UTF-8 and cannot be written: {shown}")
        return 1
    if isinstance(error, ImportError | MemoryError):
        what = [line for line in str(error).splitlines() if line.strip()] or ["out of memory"]
        _print_error(f"Error: not enough memory, or a broken installation: {what[-1]}")
        _print_error("  allow more memory (see ulimit -v), or install Assay again")
        return 1
    if isinstance(error, FileNotFoundError) and not _has_current_folder():
        _print_error("Error: the current folder has been removed; change to another one")
    # A path that no system call takes: too long, or a link to itself.
    elif isinstance(error, OSError):
        file = str(error.filename or _file_of(error) or "a file")[:_LONGEST_NAME]
        _print_error(f"Error: {file}: {error.strerror or error}")
    elif "Symlink loop" in str(error):
        _print_error(f"Error: {error}")
    else:
        raise error
    return 1


def _file_of(error: OSError) -> str | None:
    """Return the file that was being written: what fails after it was opened does not name it."""
    trace, found = error.__traceback__, None
    while trace is not None:
        for value in trace.tb_frame.f_locals.values():
            named = getattr(value, "name", None) if hasattr(value, "write") else None
            if isinstance(value, Path) or isinstance(named, str):
                found = str(value) if isinstance(value, Path) else named
        trace = trace.tb_next
    return found


def _has_current_folder() -> bool:
    try:
        os.getcwd()  # noqa: PTH109 - no path is needed
    except FileNotFoundError:
        return False
    return True


def _interrupt(number: int, frame: FrameType | None) -> None:
    """Kill the agents first: an exit waits for the workers, and they wait for their agents."""
    for again in ENDING_SIGNALS:
        signal.signal(again, signal.SIG_IGN)
    stop_all = getattr(sys.modules.get("assay.run.process"), "stop_all", None)
    if stop_all is not None:  # else nothing was started yet
        stop_all()
    raise KeyboardInterrupt


def _print_error(text: str) -> None:
    echo_folded(_masked(text), err=True)


def _masked(text: str) -> str:
    """Mask secrets, which only a program that was started can have said."""
    workspace = sys.modules.get("assay.run.workspace")
    return workspace.our_secrets().mask_text(text) if workspace else text
