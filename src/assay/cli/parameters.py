"""Parameters that several commands take, and that need nothing but click."""

import os
import re
import sys
from collections.abc import Callable, Sequence
from importlib import import_module
from math import isnan
from pathlib import Path
from typing import Any, ClassVar

import click

from assay.records.experiment import RETRIES
from assay.records.files import is_bundle
from assay.records.spec import KEEP_ALL, KEEP_FAILED, KEEP_NONE, LONGEST_WAIT_S
from assay.records.text import LEAST_MEMORY, parse_age, parse_size

type Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]


class Number(click.FloatRange):
    """A number in a range. Click's own type lets "nan" through."""

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        number: float = super().convert(value, param, ctx)
        if isnan(number):
            self.fail(f"{value!r} is not a number", param, ctx)
        return number


class SandboxCommand(click.Command):
    """A command whose option --sandbox may stand alone: the word after it is not its value."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        pairs = zip(["", *args], args, strict=False)
        # Another program's option, as in --agent-arg --sandbox, stays as it is.
        spelled = [
            f"{word}=network" if word == "--sandbox" and before != "--agent-arg" else word
            for before, word in pairs
        ]
        return super().parse_args(ctx, spelled)


class Size(click.ParamType):  # type: ignore[type-arg] # generic only in newer versions of click
    """A number of bytes, with K, M, G or T for powers of 1024."""

    name = "size"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        if isinstance(value, int):
            return value
        n_bytes = parse_size(value) or 0
        if n_bytes < LEAST_MEMORY:
            self.fail(f"{value!r} is not a size of at least 1M, such as 512M or 4G", param, ctx)
        return n_bytes


class Age(click.ParamType):  # type: ignore[type-arg] # as above
    """A length of time in seconds, given as in 7d, 12h, 30m or 2w."""

    name = "age"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        seconds = parse_age(value) if isinstance(value, str) else None
        if seconds is None:
            self.fail(f"{value!r} is not an age such as 7d, 12h, 30m or 2w", param, ctx)
        return seconds


class Rate(click.ParamType):  # type: ignore[type-arg] # as above
    """How often something may happen, as in 30/min; comes out as a number per second."""

    name = "rate"
    _UNITS: ClassVar = {"s": 1, "sec": 1, "": 60, "m": 60, "min": 60, "h": 3600, "hour": 3600}

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        if isinstance(value, float):
            return value
        found = re.fullmatch(r"(\d{1,9}(?:\.\d{1,9})?)(?:/([a-z]+))?", str(value), re.ASCII)
        unit = self._UNITS.get(found[2] or "") if found else None
        if not found or unit is None or not float(found[1]) > 0:
            self.fail(f"{value!r} is not a rate such as 30/min, 2/s or 500/h", param, ctx)
        return float(found[1]) / unit


DASH = Path("-")
"""Stdin or stdout, where None means that nothing was given."""
_STDIN = "assay.stdin"


class InFile(click.Path):
    """A file to read. "-" is stdin, which is read once and never from a terminal.

    It comes out as None, or as another value for it.
    """

    def __init__(self, stdin: Path | None = None, *, exists: bool = False) -> None:
        super().__init__(path_type=Path, exists=exists, dir_okay=not exists)
        self._stdin = stdin

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if value == "-":
            claim_stdin()
            return self._stdin
        path = Path(os.fsdecode(super().convert(value, param, ctx)))
        if ctx is not None and is_bundle(path):
            # Which imports this module.
            rows: Path = import_module("assay.cli.runs").single_run(path, ctx)
            return rows
        return path


class OutFile(click.Path):
    """A file to write. "-" is stdout and comes out as None, or as another value for it."""

    def __init__(self, stdout: Path | None = None) -> None:
        super().__init__(path_type=Path)
        self._stdout = stdout

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        return self._stdout if value == "-" else super().convert(value, param, ctx)


class NamedFile(click.Path):
    """A file that is read or written at many places, so it needs a name: "-" is refused."""

    def __init__(self, *, exists: bool = False) -> None:
        super().__init__(path_type=Path, dir_okay=False, exists=exists)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if str(value) == "-":
            self.fail(
                "- is a stream; a file is needed here (./- for one of that name).", param, ctx
            )
        return super().convert(value, param, ctx)


class OutFolder(click.Path):
    """A folder to write to. "-" is refused: a folder cannot go to stdout."""

    def __init__(self) -> None:
        super().__init__(path_type=Path)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if str(value) == "-":
            self.fail(
                "- is stdout; a folder is needed here (./- for one of that name).", param, ctx
            )
        return super().convert(value, param, ctx)


def claim_stdin() -> None:
    """Refuse what cannot work: to read stdin twice, or from somebody who would have to type."""
    ctx = click.get_current_context()
    if ctx.meta.get(_STDIN):
        msg = "stdin can be read only once: use - for one input, and files for the others."
        raise click.UsageError(msg)
    ctx.meta[_STDIN] = True
    if sys.stdin is None:
        msg = "stdin is closed. Name a file, or pipe the rows in."
        raise click.UsageError(msg)
    if sys.stdin.isatty():
        msg = "stdin is a terminal. Name a file, or pipe the rows in."
        raise click.UsageError(msg)


def input_argument(name: str, **given: Any) -> Decorator:
    """An argument that names a file to read; without it, stdin is read."""
    return click.argument(name, type=InFile(), default="-", **given)


def prompt_path(arguments: Sequence[str], *, from_stdin: bool) -> Path | None:
    """The prompt file, or None for stdin; exactly one of the two must be given."""
    if from_stdin and arguments:
        msg = "Give either a prompt file or --stdin, not both."
        raise click.UsageError(msg)
    if not from_stdin and not arguments:
        msg = "No prompts given. Name a file, or use --stdin."
        raise click.UsageError(msg)
    for word in arguments[1:]:
        click.echo(f"Ignored {word!r}: only one prompt file is read.", err=True)
    if from_stdin or arguments[0] == "-":
        claim_stdin()
        return None
    return Path(arguments[0])


def concurrency_option(text: str) -> Decorator:
    """The option -j; the help text says what is done at once."""
    return click.option(
        "-j", "--concurrency", type=click.IntRange(min=1), default=1, metavar="N", help=text
    )


def repeats_option(text: str) -> Decorator:
    """The option -k; the help text says what is run N times."""
    return click.option(
        "-k", "--k", "k", type=click.IntRange(min=1), default=5, metavar="N", help=text
    )


def filter_option(text: str) -> Decorator:
    """The option --filter; the help text says what is done with what matches."""
    return click.option(
        "--filter",
        "filters",
        multiple=True,
        metavar="ID|KEY=VALUE",
        help=f"{text}; * matches any text, a comma separates several values, and !ID and "
        "KEY!=VALUE leave out what matches. May be repeated: one of those for ids and for each key "
        "must match, and all for tags. Default: all.",
    )


SEED = 20_260_101

help_option: Decorator = click.help_option("-h", "--help")
debug_option: Decorator = click.option(
    "--debug", is_flag=True, help="Show a traceback if the command fails."
)
kept_raw_option: Decorator = click.option(
    "--raw-dir",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    metavar="DIR",
    help="Look for raw streams in this folder, the one that the run was given with --raw-dir. "
    "Default: where a row says, if that is below the folder of its file.",
)
output_option: Decorator = click.option(
    "-o",
    "--output",
    type=OutFile(),
    metavar="FILE",
    help="Write to this file. Default: stdout, which is also -.",
)
overwrite_option: Decorator = click.option(
    "--overwrite", is_flag=True, help="Replace the output file if it exists."
)
replace_option: Decorator = click.option(
    "--overwrite",
    is_flag=True,
    help="Replace the output file even if it holds trials of an agent; anything else is replaced "
    "anyway.",
)
append_option: Decorator = click.option(
    "--append", is_flag=True, help="Add rows to the output file if it exists."
)
quiet_option: Decorator = click.option(
    "-q", "--quiet", is_flag=True, help="Print nothing but errors."
)
progress_option: Decorator = click.option(
    "--progress", is_flag=True, help="Print progress to stderr."
)
stdin_option: Decorator = click.option(
    "--stdin", "from_stdin", is_flag=True, help="Read the prompts from stdin instead of a file."
)
labelled_option: Decorator = click.option(
    "--run",
    "labelled",
    multiple=True,
    metavar="LABEL:FILE",
    help="Add a run under this label. May be repeated.",
)
doubtful_option: Decorator = click.option(
    "--doubtful",
    type=click.Choice(["fail", "keep", "show"]),
    help="What becomes of passes that a detector puts in doubt (tests edited, expected answer "
    "read, honeypot passed; see assay explain): count them as failures, keep them, or keep them "
    "and say how many there are. Default: show, without a search in files of more than 32 MB.",
)
category_option: Decorator = click.option(
    "--by",
    "category_key",
    default="category",
    metavar="KEY",
    help="Metadata key to break the results down by. Default: category.",
)
margin_option: Decorator = click.option(
    "--margin",
    type=Number(0, 1, max_open=True),
    default=0.02,
    metavar="RATE",
    help="Treat a smaller difference in pass rate as no difference. Default: 0.02.",
)
allow_replayed_option: Decorator = click.option(
    "--allow-replayed",
    is_flag=True,
    help="Compare trials that a tape answered like others. Default: they have no "
    "verdict, because they check the harness and not the agent.",
)
fractions_option: Decorator = click.option(
    "--fractions",
    is_flag=True,
    help="Write rates and differences as fractions, for scripts: 0.45 in place of 45 %. JSON "
    "always has fractions. Default: percent and points.",
)
seed_option: Decorator = click.option(
    "--seed",
    type=click.IntRange(min=0),
    default=SEED,
    metavar="N",
    help=f"Random seed for resampling. Default: {SEED}.",
)
model_option: Decorator = click.option(
    "--model", metavar="NAME", help="Model to use. Default: the agent's own choice."
)
retries_option: Decorator = click.option(
    "--retries",
    type=click.IntRange(min=0),
    metavar="N",
    help="Retry trials that failed for reasons other than the agent (provider errors, lost "
    f"workers) up to N times. Default: 0, or {RETRIES} in experiments and for gates.",
)
rate_option: Decorator = click.option(
    "--rate",
    type=Rate(),
    metavar="N/min",
    help="Start at most N trials a minute of each provider and model; N/s and N/h work too. If "
    "a provider answers 429, no trial of it is started until the pause that it asks for is over. "
    "Default: no limit.",
)
longest_wait_option: Decorator = click.option(
    "--longest-wait",
    type=Number(min=0),
    default=LONGEST_WAIT_S,
    metavar="SECONDS",
    help="Wait at most this many seconds at once after an answer of 429, however long a pause the "
    f"provider, or an agent in its name, asks for. Default: {LONGEST_WAIT_S:g}.",
)
calibration_option: Decorator = click.option(
    "--judge",
    type=InFile(exists=True),
    metavar="FILE",
    help="Correct differences for the errors of the judge that graded, as assay calibrate --save "
    "kept them. Default: judge.json beside the runs, if it is of the same version of the grader.",
)
sandbox_option: Decorator = click.option(
    "--sandbox",
    type=click.Choice(["network", "no-network"]),
    metavar="[=no-network]",
    help="Run each agent under bubblewrap, with its own HOME, /tmp and processes. It sees the "
    "system read-only and its workspace, and nothing else; --sandbox=no-network lets it reach "
    "only its models. Default: no sandbox.",
)
container_option: Decorator = click.option(
    "--container",
    metavar="IMAGE",
    help="Run each agent in a container of this image, with docker or podman. Add "
    "--sandbox=no-network to let it reach only its models. The word task is the image that each "
    "task of a benchmark brings along. Default: no container.",
)
memory_option: Decorator = click.option(
    "--memory",
    type=Size(),
    metavar="SIZE",
    help="Let the processes of a trial use at most this much memory together, as in 512M or 4G. "
    "Default: no limit.",
)
cpus_option: Decorator = click.option(
    "--cpus",
    type=Number(min=0, min_open=True),
    metavar="N",
    help="Let the processes of a trial use at most N CPUs together, as in 1.5. Default: no limit.",
)
isolate_option: Decorator = click.option(
    "--isolate",
    is_flag=True,
    help="Give each trial its own HOME and hide your environment variables, except those the "
    "adapter declares and --env names.",
)
share_home_option: Decorator = click.option(
    "--share-home",
    is_flag=True,
    help="Let all trials use your HOME. By default each has one of its own with a copy of the "
    "agent's login, because what an agent remembers there would pass from trial to trial.",
)
keep_workspaces_option: Decorator = click.option(
    "--keep-workspaces",
    type=click.Choice([KEEP_FAILED, KEEP_ALL, KEEP_NONE]),
    help="Which workspaces are left when their trials are graded: those that did not pass, all, or "
    "none. Default: all of the newest run, and of earlier runs those that did not pass. See also "
    "assay clean.",
)
env_option: Decorator = click.option(
    "--env",
    "env_names",
    multiple=True,
    metavar="NAME",
    help="If agents are isolated, in a sandbox or in a container, pass this environment variable "
    "to them. May be repeated.",
)
stall_option: Decorator = click.option(
    "--stall",
    type=Number(min=0, min_open=True),
    metavar="SECONDS",
    help="Kill an agent that prints nothing for this many seconds. Default: never.",
)
