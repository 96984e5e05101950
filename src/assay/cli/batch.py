"""What capture, trials and run share: from the command line to a batch, and to its exit code."""

from collections.abc import Sequence

import click

from assay import plugins
from assay.cli.options import (
    BatchOptions,
    CaptureOptions,
    chosen_agent,
    grader_refs,
    output_mode,
    setting,
)
from assay.cli.parameters import prompt_path
from assay.cli.progress import Progress
from assay.pipeline.batch import Batch
from assay.pipeline.prompts import choose, folder_names, plan, read_prompts
from assay.pipeline.stages import CaptureTrial, freeze
from assay.records.spec import HINT, PluginRef


class CommandBatch:
    """The batch of one command line, its progress and its exit code; k trials of each prompt."""

    def __init__(
        self,
        options: BatchOptions,
        agent: PluginRef,
        benchmark: PluginRef,
        *,
        k: int | None = None,
        keep_raw: bool = True,
    ) -> None:
        self._options = options
        self.mode = output_mode(options.output, options.resume, options.append, options.overwrite)
        shared = setting(options, agent, benchmark, keep_raw=keep_raw)
        self._agent, self._source = agent.name, f"benchmark {benchmark.name}"
        if benchmark.name == "prompts":
            self._source = benchmark.options.get("path") or "stdin"
        rows = read_prompts(benchmark)
        if not rows:
            hint = f"\n  {HINT}" if benchmark.name == "prompts" else ""
            click.echo(f"{self._source}: no prompts, so there is nothing to run{hint}", err=True)
        names = folder_names(prompt.id for prompt, _ in rows)
        self.batch = Batch(
            specs=plan(choose(rows, options.filters, options.limit), names, shared, k),
            run_token=shared.run_token,
            resume=self.mode == "resume",
            workers=options.concurrency,
            max_cost=options.max_cost,
        )

    def show(self, n_missing: int) -> Progress:
        """Make the progress display and print what will run."""
        options = self._options
        plain = options.progress or options.debug
        shown = Progress(n_missing, plain=plain, quiet=options.quiet, as_json=options.as_json)
        n_all = len(self.batch.specs)
        shown.say(f"Loaded {n_all} trials from {self._source}; {n_missing} to run")
        shown.say(f"Agent: {self._agent}; concurrency: {options.concurrency}")
        shown.say(f"Output: {options.output or 'stdout'}")
        return shown

    def conclude(self, progress: Progress) -> None:
        """Print how it went; exit with 1 when trials or grades are missing."""
        options, tally = self._options, progress.tally
        for line in [] if options.as_json else progress.doubts.lines():
            click.echo(line, err=True)
        if not options.quiet and not options.as_json:
            click.echo(progress.summary(str(options.output or "")), err=True)
        left = tally.total - tally.n_done
        if left > 0:
            click.echo(
                f"Stopped at --max-cost {options.max_cost:g}: {left} trials were not run. "
                "Continue with --resume; the limit then applies to the new trials only.",
                err=True,
            )
        if tally.n_grader_failures:
            click.echo(
                f"{tally.n_grader_failures} trials were not graded because a grader failed "
                "(see graderFailures in the rows)",
                err=True,
            )
        if left > 0 or tally.n_grader_failures:
            raise click.exceptions.Exit(1)


def plan_captures(
    ctx: click.Context, options: CaptureOptions, k: int | None = None
) -> tuple[CommandBatch, CaptureTrial]:
    """Read prompts, agent and graders of capture or trials; a benchmark's graders come first."""
    benchmark = _benchmark(options)
    agent = chosen_agent(ctx, options)
    graders = [*plugins.benchmark(benchmark).graders()]
    for ref in graders:
        plugins.grader(ref)  # one that cannot be built is refused before anything runs
    graders += grader_refs(options.graders, options.grader_timeout)
    work = CaptureTrial(graders, options.retries)
    batch = CommandBatch(options, agent, benchmark, k=k)
    freeze(graders)
    return batch, work


def prompt_file(arguments: Sequence[str], *, from_stdin: bool) -> PluginRef:
    """The benchmark that reads a prompt file, or stdin."""
    path = prompt_path(arguments, from_stdin=from_stdin)
    return PluginRef(name="prompts", options={"path": str(path)} if path else {})


def _benchmark(options: CaptureOptions) -> PluginRef:
    if options.benchmark is None:
        return prompt_file(options.prompts, from_stdin=options.from_stdin)
    if options.prompts or options.from_stdin:
        given = f"the prompt file {options.prompts[0]!r}" if options.prompts else "--stdin"
        msg = f"--benchmark brings its own prompts; leave out {given}"
        raise click.UsageError(msg)
    return plugins.benchmark_ref(options.benchmark)
