"""assay mcp: results for agents, over the Model Context Protocol on stdio."""

import sys
from pathlib import Path

import click

from assay.cli.help import CACHE, examples, variables
from assay.cli.parameters import OutFolder, concurrency_option, help_option
from assay.cli.runs import name_runs
from assay.cli.stdio import ignore_signals, read_lines, stop_at_signals, write_stdout
from assay.errors import InputError
from assay.library.started import StartedExperiment
from assay.library.tools import ResultTools
from assay.mcp import serve


@click.command(
    short_help="Let agents ask about results, over the Model Context Protocol.",
    epilog=variables(*CACHE)
    + examples(
        "assay mcp",
        "assay mcp before.jsonl after.jsonl",
        "assay mcp --budget 5",
    ),
)
@click.argument("paths", nargs=-1)
@click.option(
    "--budget",
    type=click.FloatRange(min=0, min_open=True),
    metavar="USD",
    help="Let the agent start experiments too, which may cost this much altogether. Their agents "
    "and graders run with your rights. Default: the agent can only read.",
)
@click.option(
    "-o",
    "--output",
    "root",
    type=OutFolder(),
    default="experiments",
    metavar="DIR",
    help="Keep the experiments that it starts in this folder. Default: experiments.",
)
@concurrency_option("Run N trials of an experiment at once. Default: 1.")
@help_option
def command(paths: tuple[str, ...], budget: float | None, root: Path, concurrency: int) -> None:
    """Serve the runs in PATHS (result files, LABEL:FILE, or folders; by default the working folder)
    to an agent, on stdin and stdout, until the agent closes them.

    The agent can list runs, read verdicts, see why trials failed, open a trial, find where passes
    and failures part, and query results in SQL. It speaks the revisions 2026-07-28 and 2025-11-25
    of the protocol.
    """
    folders = [Path(path) for path in paths or (".",) if Path(path).is_dir()]
    named = name_runs(tuple(path for path in paths if not Path(path).is_dir()), ())
    for _, path in named:
        if not path.is_file():
            msg = f"{path}: no such file"
            raise InputError(msg, hint="give result files, or folders that contain some")
    if budget is not None and not any(root.resolve().is_relative_to(f.resolve()) for f in folders):
        folders.append(root)  # else the agent would not see what it has started
    started = StartedExperiment(budget, root, concurrency) if budget is not None else None
    tools = ResultTools(named, folders, started)
    stop_at_signals()
    try:
        serve(tools, read_lines(sys.stdin.fileno()), write_stdout)
    except (KeyboardInterrupt, BrokenPipeError):
        pass
    finally:
        ignore_signals()
        tools.close()
