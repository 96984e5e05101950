"""assay capture: prompts in, full trajectories out."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

from assay import plugins
from assay.cli.options import (
    agent_options,
    agent_ref,
    output_mode,
    output_options,
    run_options,
    setting,
    with_options,
)
from assay.cli.progress import Progress
from assay.cli.prompt_source import AfterDashes, prompt_path
from assay.cli.sink import open_sink
from assay.executors.local import LocalExecutor
from assay.pipeline import capture_all, end_leftovers
from assay.prompts.plan import folder_names, plan
from assay.prompts.prompt_file import choose, read_prompts
from assay.records.jsonl import encode_row
from assay.records.trial import PluginRef, TrialSpec


@click.command(
    cls=AfterDashes, short_help="Run prompts against an agent and record full trajectories."
)
@click.argument("prompts", nargs=-1)
@with_options(agent_options, output_options)
@click.option("-g", "--grader", "graders", multiple=True, help="Program that grades each trial.")
@click.option("--stdin", "from_stdin", is_flag=True, help="Read the prompts from stdin.")
@click.option("--max-cost", type=click.FloatRange(min=0), metavar="USD", help="Stop when spent.")
@with_options(run_options)
@click.help_option("-h", "--help")
@click.pass_context
def command(ctx: click.Context, /, **options: Any) -> None:
    """Run every prompt of PROMPTS against an agent; write one JSON line per trial.

    The agent is a schema file or the name of an adapter (-s), or, behind --, a command that
    speaks the Agent Client Protocol on stdio:  assay capture PROMPTS -- COMMAND ARGS...
    """
    path = prompt_path(options["prompts"], from_stdin=options["from_stdin"])
    agent = _agent(ctx, options)
    graders = [plugins.grader_ref(text) for text in options["graders"]]
    mode = output_mode(options)
    shared = setting(agent, options)
    rows = read_prompts(path)
    names = folder_names(prompt.id for prompt, _ in rows)
    specs = plan(choose(rows, options["filters"], options["limit"]), names, shared)
    with open_sink(options["output"], mode) as sink:
        if mode == "resume":
            end_leftovers(shared.run_token)
            specs = sink.missing(specs)
        with Progress(len(specs), plain=_plain(options), quiet=options["quiet"]) as progress:
            _announce(progress, path, options, len(specs))
            items = _affordable(specs, progress, options["max_cost"])
            executor = LocalExecutor(min(options["concurrency"], max(len(specs), 1)))
            for spec, captured in capture_all(items, executor, graders, options["retries"]):
                sink.append(encode_row(captured, spec.extra))
                progress.captured(captured)
    _conclude(progress, options, len(specs))


def _agent(ctx: click.Context, options: dict[str, Any]) -> PluginRef:
    words: list[str] = ctx.meta.get("after_dashes", [])
    if words and options["schema"]:
        msg = "give the agent either with -s or behind --, not both"
        raise click.UsageError(msg)
    if words:
        return PluginRef(name="acp", options={"command": words})
    if not options["schema"]:
        msg = "which agent? give -s SCHEMA, or a command behind --"
        raise click.UsageError(msg)
    return agent_ref(options)


def _affordable(
    specs: list[TrialSpec], progress: Progress, max_cost: float | None
) -> Iterator[TrialSpec]:
    for spec in specs:
        if max_cost is not None and progress.cost_usd >= max_cost:
            return
        yield spec


def _plain(options: dict[str, Any]) -> bool:
    return bool(options["progress"] or options["debug"])


def _announce(
    progress: Progress, path: Path | None, options: dict[str, Any], n_trials: int
) -> None:
    progress.say(f"Loaded {n_trials} prompts from {path or 'stdin'}")
    progress.say(f"Agent: {options['schema'] or 'Agent Client Protocol'}")
    progress.say(f"Concurrency: {options['concurrency']}")
    progress.say(f"Output: {options['output'] or 'stdout'}")


def _conclude(progress: Progress, options: dict[str, Any], n_trials: int) -> None:
    if not options["quiet"]:
        click.echo(progress.summary(str(options["output"] or "")), err=True)
    if progress.n_done < n_trials:
        click.echo(
            f"stopped at --max-cost {options['max_cost']:g}: {n_trials - progress.n_done} prompts "
            "not run; go on with --resume and a higher limit",
            err=True,
        )
        raise click.exceptions.Exit(1)
    if progress.n_grader_failures:
        click.echo(
            f"{progress.n_grader_failures} trials are not graded: their grader failed "
            "(see graderFailures in the rows)",
            err=True,
        )
        raise click.exceptions.Exit(1)
