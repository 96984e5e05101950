"""What capture, trials and run share: from the command line to trials, and to the end of a run."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

from assay.cli.options import output_mode, setting
from assay.cli.progress import Progress
from assay.executors.local import LocalExecutor
from assay.pipeline.prompts import HINT, choose, folder_names, plan, read_prompts
from assay.pipeline.stages import end_leftovers
from assay.records.journal import Mode
from assay.records.spec import PluginRef, TrialSpec


class Batch:
    """The trials of one command line; with k, so many of each prompt."""

    def __init__(
        self,
        path: Path | None,
        agent: PluginRef,
        options: dict[str, Any],
        *,
        k: int | None = None,
        keep_raw: bool = True,
    ) -> None:
        self.mode: Mode = output_mode(options)
        self.output: Path | None = options["output"]
        self._options = options
        self._shared = setting(agent, options, keep_raw=keep_raw)
        rows = read_prompts(path)
        if not rows:
            click.echo(f"{path}: no prompts, so there is nothing to run\n  {HINT}", err=True)
        names = folder_names(prompt.id for prompt, _ in rows)
        chosen = choose(rows, options["filters"], options["limit"])
        self.specs: list[TrialSpec] = plan(chosen, names, self._shared, k)
        self._where = path or "stdin"

    def clear_leftovers(self) -> None:
        """End what an earlier, killed run of this output left behind."""
        if self.mode == "resume":
            end_leftovers(self._shared.run_token)

    def progress(self, specs: list[TrialSpec]) -> Progress:
        """Make the display of how far the run is."""
        options = self._options
        shown = Progress(
            len(specs),
            plain=options["progress"] or options["debug"],
            quiet=options["quiet"],
            as_json=options["as_json"],
        )
        shown.say(f"Loaded {len(self.specs)} trials from {self._where}; {len(specs)} to run")
        shown.say(f"Agent: {self._shared.agent.name}; concurrency: {options['concurrency']}")
        shown.say(f"Output: {self.output or 'stdout'}")
        return shown

    def executor(self, specs: list[TrialSpec]) -> LocalExecutor:
        """Give the workers."""
        return LocalExecutor(max(1, min(self._options["concurrency"], len(specs))))

    def affordable(self, specs: list[TrialSpec], progress: Progress) -> Iterator[TrialSpec]:
        """Give trials as long as the money lasts."""
        limit: float | None = self._options["max_cost"]
        for spec in specs:
            if limit is not None and progress.cost_usd >= limit:
                return
            yield spec

    def conclude(self, progress: Progress, specs: list[TrialSpec]) -> None:
        """Say how it went; exit 1 when something is missing."""
        if not self._options["quiet"] and not self._options["as_json"]:
            click.echo(progress.summary(str(self.output or "")), err=True)
        left = len(specs) - progress.n_done
        if left > 0:
            limit = self._options["max_cost"]
            click.echo(
                f"Stopped at --max-cost {limit:g}: {left} trials were not run. "
                "Continue with --resume; the limit then applies to the new trials only.",
                err=True,
            )
        if progress.n_grader_failures:
            click.echo(
                f"{progress.n_grader_failures} trials were not graded because a grader failed "
                "(see graderFailures in the rows)",
                err=True,
            )
        if left > 0 or progress.n_grader_failures:
            raise click.exceptions.Exit(1)
