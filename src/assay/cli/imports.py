"""assay import: what agents and other harnesses have recorded, as captures or as prompts."""

import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import click
import msgspec

from assay.adapters.vendor import KNOWN
from assay.cli.help import examples
from assay.cli.output import (
    derived_output,
    note_unmasked,
    refuse_measured,
    refuse_same_file,
    whole_output,
)
from assay.cli.parameters import (
    Age,
    debug_option,
    help_option,
    output_option,
    quiet_option,
    replace_option,
)
from assay.errors import InputError
from assay.export.harbor_job import job_rows
from assay.export.inspect_log import logged_rows
from assay.export.trajectories import read_trajectories
from assay.pipeline.past_sessions import past_sessions, session_prompt, session_trial
from assay.plugin import PastSession
from assay.records.rows import encode_row
from assay.records.text import counted_noun, visible_line


@click.group(
    short_help="Bring in your agents' own sessions and logs of other harnesses.",
    epilog=examples(
        "assay import sessions --since 7d -o sessions.jsonl",
        "assay import inspect log.json -o logged.jsonl",
    ),
)
@help_option
def command() -> None:
    """Read what agents and other harnesses have recorded on this machine.

    Nothing is sent anywhere, and secrets of the environment are masked.
    """


class _Options(msgspec.Struct, frozen=True, kw_only=True):
    agents: tuple[str, ...]
    since: float | None
    project: Path | None
    output: Path | None
    overwrite: bool
    quiet: bool
    debug: bool


def _session_options(function: Callable[..., Any]) -> Callable[..., Any]:
    for option in (
        help_option,
        debug_option,
        quiet_option,
        replace_option,
        output_option,
        click.option(
            "--project",
            type=click.Path(path_type=Path, exists=True, file_okay=False),
            metavar="DIR",
            help="Take only sessions that worked in this folder or below it. Default: all.",
        ),
        click.option(
            "--since",
            type=Age(),
            metavar="AGE",
            help="Take only sessions that went on within this time, as in 7d, 12h, 30m or 2w. "
            "Default: all.",
        ),
        click.option(
            "--agent",
            "agents",
            multiple=True,
            type=click.Choice([agent.name for agent in KNOWN]),
            metavar="NAME",
            help="Read the sessions of this agent; may be repeated. Default: all known agents.",
        ),
    ):
        function = option(function)
    return function


@command.command(
    "sessions",
    short_help="Read the sessions that agents have kept as captures.",
    epilog=examples(
        "assay import sessions --since 7d -o sessions.jsonl",
        "assay import sessions --agent claude -o claude.jsonl",
    ),
)
@_session_options
def sessions(**given: Any) -> None:
    """Write each session of Claude Code, Codex, Gemini CLI and OpenCode as a captured trial: what
    was asked, steps, tokens, cost, model and results of tools.

    All commands that read captures read the file: view, explain, grade, export.
    """
    options = _Options(**given)
    refuse_measured(options.output, overwrite=options.overwrite)
    found = _SessionReader(options)
    n_steps, cost = 0, 0.0
    with whole_output(options.output, overwrite=options.overwrite) as out:
        for session in found.sessions():
            trial = session_trial(session)
            out.write(encode_row(trial, {}) + b"\n")
            n_steps += len(trial.trajectory)
            cost += (trial.usage.cost_usd or 0.0) if trial.usage else 0.0
    found.say(f"{counted_noun(n_steps, 'step')}, about ${cost:.2f}")
    if options.output is not None and not options.quiet:
        click.echo(f"To look at them: assay view {visible_line(str(options.output))}", err=True)


@command.command(
    "prompts",
    short_help="Make a prompt file of what you asked in sessions.",
    epilog=examples(
        "assay import prompts --since 30d -o prompts.jsonl",
        "assay import prompts --agent claude -o asked.jsonl",
    ),
)
@_session_options
def prompts(**given: Any) -> None:
    """Write what was asked in each session as a prompt, with the folder, branch and commit that the
    agent noted as metadata.

    What a good answer is does not stand in a session: add a hint to each prompt, or grade with a
    judge.
    """
    options = _Options(**given)
    found, n_turns = _SessionReader(options), 0
    with derived_output(options.output, overwrite=options.overwrite) as out:
        for session in found.sessions():
            out.write(msgspec.json.encode(session_prompt(session)) + b"\n")
            n_turns += len(session.turns)
    found.say(f"{counted_noun(n_turns, 'message')} of yours")


class _SessionReader:
    """Sessions that are read one at a time, and what is to be said of them."""

    def __init__(self, options: _Options) -> None:
        self._options = options
        self._models: dict[str, Counter[str]] = {}

    def sessions(self) -> Iterator[PastSession]:
        """Yield them. Raises InputError if there are none."""
        options = self._options
        agents = options.agents or tuple(agent.name for agent in KNOWN)
        since_ms = 0.0 if options.since is None else (time.time() - options.since) * 1000
        for session in past_sessions(agents, since_ms, options.project):
            models = self._models.setdefault(session.agent.adapter, Counter())
            models[session.agent.model or "unknown model"] += 1
            yield session
        if not self._models:
            which = " of this project" if options.project is not None else ""
            age = " in this time" if options.since is not None else ""
            msg = f"there are no sessions of {', '.join(agents)}{which}{age}"
            hint = "they are read from your HOME; a longer --since or no --project takes more"
            raise InputError(msg, hint=hint)

    def say(self, what: str) -> None:
        """Print how many there were of each agent and model."""
        if self._options.quiet:
            return
        note_unmasked()
        for agent, models in self._models.items():
            named = ", ".join(f"{n} with {visible_line(model)}" for model, n in models.items())
            click.echo(f"  {agent}: {named}", err=True)
        output = self._options.output
        target = f" -> {visible_line(str(output))}" if output is not None else ""
        n = sum(models.total() for models in self._models.values())
        click.echo(f"{counted_noun(n, 'session')}, {what}{target}", err=True)


@command.command(
    "inspect",
    short_help="Read an Inspect log as results.",
    epilog=examples(
        "assay import inspect log.json -o logged.jsonl",
        "assay import inspect log.json | assay summarize",
    ),
)
@click.argument("log", type=click.Path(path_type=Path))
@output_option
@replace_option
@quiet_option
@debug_option
@help_option
def inspect(log: Path, **given: Any) -> None:
    """Write the samples of an Inspect LOG (.eval or .json) with their messages, calls of tools,
    scores, tokens and errors; the epochs of a sample are trials of its prompt.

    C counts as 1 and P as 0.5; a trial passes with 1. A log has no times of single steps.
    """
    _write((log,), logged_rows(log), given)


@command.command(
    "trajectories",
    short_help="Read trajectories in ATIF or of mini-swe-agent.",
    epilog=examples(
        "assay import trajectories trajectory.json -o imported.jsonl",
        "assay import trajectories trajectory.json | assay summarize",
    ),
)
@click.argument(
    "files",
    nargs=-1,
    required=True,
    type=click.Path(path_type=Path),
)
@output_option
@replace_option
@quiet_option
@debug_option
@help_option
def trajectories(files: tuple[Path, ...], **given: Any) -> None:
    """Write the trajectories in FILES as captured trials: ATIF, as Harbor writes it, with its
    rewards as grades, or .traj.json of mini-swe-agent.
    """
    found = ((trial, 1) for path in files for trial in read_trajectories(path))
    _write(files, found, given)


@command.command(
    "harbor",
    short_help="Read a job of Harbor as results.",
    epilog=examples(
        "assay import harbor jobs/2026-11-19 -o job.jsonl",
        "assay import harbor jobs/2026-11-19 | assay summarize",
    ),
)
@click.argument("job", type=click.Path(path_type=Path, exists=True, file_okay=False))
@click.option(
    "--agent",
    metavar="NAME[:MODEL]",
    help="Take only trials of this agent. Needed for a job of several agents or models. Default: "
    "the only one.",
)
@output_option
@replace_option
@quiet_option
@debug_option
@help_option
def harbor(job: Path, agent: str | None, **given: Any) -> None:
    """Write the trials in the folder JOB of Harbor as results: rewards become grades, and agents'
    trajectories (ATIF) steps. If tasks were tried several times, rows are those of `assay trials`.
    """
    _write((job,), job_rows(job, agent), given)


def _write(
    files: Sequence[Path], rows: Iterable[tuple[msgspec.Struct, int]], given: dict[str, Any]
) -> None:
    """Write rows, each with the number of its trials, and say how many there are."""
    output: Path | None = given["output"]
    for path in files:
        refuse_same_file(path, output)
    n_rows, n_trials = 0, 0
    with derived_output(output, overwrite=given["overwrite"], rows=True) as out:
        for row, n in rows:
            out.write(encode_row(row, {}) + b"\n")
            n_rows, n_trials = n_rows + 1, n_trials + n
        if not n_rows:
            msg = f"{files[0]}: there is no trial in this file"
            raise InputError(msg, hint="it may have been broken off before the first one ended")
    if not given["quiet"]:
        note_unmasked()
        prompts = counted_noun(n_rows, "prompt")
        click.echo(f"{counted_noun(n_trials, 'trial')} of {prompts}", err=True)
