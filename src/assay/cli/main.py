"""The command `assay`: prints help and version at once, passes everything else to the commands."""

import gc
import sys

from assay import __version__
from assay.cli.help import help_page


def main() -> None:
    args = sys.argv[1:]
    if not args or args in (["-h"], ["--help"]):
        print(help_page())
    elif args in (["-v"], ["--version"]):
        print(__version__)
    else:
        sys.exit(_run(args))


def _run(args: list[str]) -> int:
    # Off until the command is loaded: modules are not garbage, and scanning them takes 15 ms of
    # the 90 ms that a small `summarize` needs (min of 30 runs, user and system time).
    gc.disable()
    try:
        from assay.cli.group import run_command  # late: help and version need no click
        from assay.cli.output import guard_terminal

        guard_terminal()
        return run_command(args)
    except KeyboardInterrupt:  # before run_command handles signals
        return 130
