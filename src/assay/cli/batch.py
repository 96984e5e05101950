"""What capture, trials and run share: from the command line to a batch, and to its exit code."""

from pathlib import Path

import click

from assay import plugins
from assay.cli.options import BatchOptions, CaptureOptions, grader_refs, output_mode, setting
from assay.cli.parameters import prompt_path
from assay.cli.progress import Progress
from assay.pipeline.batch import Batch
from assay.pipeline.prompts import choose, folder_names, plan, read_prompts
from assay.records.journal import Mode
from assay.records.prompt import HINT
from assay.records.spec import PluginRef


def mode_of(options: BatchOptions) -> Mode:
    """Say how an output that is there already is treated."""
    return output_mode(
        options.output,
        resume=options.resume,
        append=options.append,
        overwrite=options.overwrite,
    )


def prompt_file(path: Path | None) -> PluginRef:
    """Give the benchmark that reads a prompt file, or stdin."""
    return PluginRef(name="prompts", options={"path": str(path)} if path else {})


def chosen_benchmark(options: CaptureOptions) -> PluginRef:
    """Read where the prompts come from: --benchmark, a file, or stdin."""
    if options.benchmark is None:
        return prompt_file(prompt_path(options.prompts, from_stdin=options.from_stdin))
    if options.prompts or options.from_stdin:
        given = f"the prompt file {options.prompts[0]!r}" if options.prompts else "--stdin"
        msg = f"--benchmark brings its own prompts; leave out {given}"
        raise click.UsageError(msg)
    return plugins.benchmark_ref(options.benchmark)


def chosen_graders(options: CaptureOptions, benchmark: PluginRef) -> list[PluginRef]:
    """Give the graders of the benchmark, then those given with -g."""
    own = plugins.benchmark(benchmark).graders()
    for ref in own:
        plugins.grader(ref)
    return [*own, *grader_refs(options.graders, options.grader_timeout)]


def plan_batch(
    options: BatchOptions,
    agent: PluginRef,
    benchmark: PluginRef,
    *,
    k: int | None = None,
    keep_raw: bool = True,
) -> Batch:
    """Make the trials of one command line; with k, so many of each prompt."""
    resume = mode_of(options) == "resume"
    shared = setting(options, agent, benchmark, keep_raw=keep_raw)
    rows = read_prompts(benchmark)
    if not rows:
        hint = f"\n  {HINT}" if benchmark.name == "prompts" else ""
        click.echo(f"{_source(benchmark)}: no prompts, nothing to run{hint}", err=True)
    names = folder_names(prompt.id for prompt, _ in rows)
    chosen = choose(rows, options.filters, options.limit)
    return Batch(
        specs=plan(chosen, names, shared, k),
        run_token=shared.run_token,
        resume=resume,
        workers=options.concurrency,
        max_cost=options.max_cost,
    )


def show_progress(
    options: BatchOptions, agent: PluginRef, benchmark: PluginRef, batch: Batch, n_missing: int
) -> Progress:
    """Make the display of how far the run is."""
    shown = Progress(
        n_missing,
        plain=options.progress or options.debug,
        quiet=options.quiet,
        as_json=options.as_json,
    )
    source = _source(benchmark)
    shown.say(f"Loaded {len(batch.specs)} trials from {source}; {n_missing} to run")
    shown.say(f"Agent: {agent.name}; concurrency: {options.concurrency}")
    shown.say(f"Output: {options.output or 'stdout'}")
    return shown


def conclude(options: BatchOptions, progress: Progress) -> None:
    """Say how it went; exit 1 when something is missing."""
    if not options.quiet and not options.as_json:
        click.echo(progress.summary(str(options.output or "")), err=True)
    tally = progress.tally
    left = tally.total - tally.n_done
    if left > 0:
        click.echo(
            f"stopped at --max-cost {options.max_cost:g}: {left} trials not run; "
            "go on with --resume, for which the limit counts anew",
            err=True,
        )
    if tally.n_grader_failures:
        click.echo(
            f"{tally.n_grader_failures} trials are not graded: their grader failed "
            "(see graderFailures in the rows)",
            err=True,
        )
    if left > 0 or tally.n_grader_failures:
        raise click.exceptions.Exit(1)


def _source(benchmark: PluginRef) -> str:
    if benchmark.name == "prompts":
        return str(benchmark.options.get("path") or "stdin")
    return f"benchmark {benchmark.name}"
