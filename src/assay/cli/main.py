"""The command `assay`: prints help and version at once, passes everything else to the commands."""

import gc
import os
import sys
from importlib import import_module

from assay import __version__
from assay.cli.help import first_page, help_page


def main() -> None:
    args = sys.argv[1:]
    if sys.platform == "win32":
        sys.exit(import_module("assay.errors").WINDOWS)  # late: it takes half of the start
    elif "_ASSAY_COMPLETE" in os.environ:  # a shell asks what may follow; see cli/completion.py
        sys.exit(_run(args))
    elif not args:
        print(first_page())
    elif args in (["-h"], ["--help"]):
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
        from assay.cli import group, output  # late: help and version need no click

        output.guard_terminal()
        return group.run_command(args)
    except KeyboardInterrupt:  # before run_command handles signals
        return 130
