"""What capture, trials, run and trigger share: from options to a batch, and what they print."""

import shlex
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

import click
import msgspec

from assay import plugins
from assay.cli.debug import DebugTrace
from assay.cli.options import (
    BatchOptions,
    CaptureOptions,
    grader_refs,
    run_request,
)
from assay.cli.output import closing_lines, echo_folded, refuse_inputs, write_row
from assay.cli.parameters import prompt_path
from assay.cli.program import chosen_agent
from assay.cli.progress import Progress
from assay.cli.tally import saved_passes
from assay.errors import RequestError
from assay.pipeline.run import Batch, RunRequest, execute, plan
from assay.pipeline.steps import StopRule
from assay.records.recording import FORGETS
from assay.records.setup import counted
from assay.records.spec import PluginRef, TrialSpec
from assay.records.text import counted_noun, visible_line
from assay.records.trial import Trial
from assay.report.sentence import run_sentence

_TEXT_HINT = (
    "\n  A program after the prompts must speak the Agent Client Protocol; one that prints its "
    "answer as text needs --simple 'PROGRAM {}'."
)


def capture_request(ctx: click.Context, options: CaptureOptions) -> RunRequest:
    """Return what capture and trials ask for; prompts, agent and graders are found."""
    refuse_inputs(options.output, *options.graders)
    if options.regrade and not options.resume and not options.rerun:
        msg = "--regrade needs --resume."
        raise click.UsageError(msg)
    benchmark = _benchmark(options)
    agent = chosen_agent(ctx, options)
    return msgspec.structs.replace(
        run_request(options, agent, benchmark),
        graders=grader_refs(options.graders, options.grader_timeout),
        grader_timeout_s=options.grader_timeout,
        regrade=options.regrade,
        skip_unsupported=options.skip_unsupported,
    )


def plan_run(request: RunRequest, options: BatchOptions) -> Batch:
    """Plan a run; refuse an output that is one of its inputs."""
    refuse_inputs(options.output, *options.prompts, options.schema, options.mcp)
    with usage_errors():
        return plan(request)


def run_batch(batch: Batch, options: BatchOptions, stop: StopRule | None = None) -> "RunDisplay":
    """Run what is missing; return what was shown of it."""
    display = RunDisplay(batch, options)
    trace = debug_trace(options)
    for _ in execute(batch, progress=display, stop=stop, write=write_row, trace=trace):
        pass
    return display


@contextmanager
def usage_errors() -> Iterator[None]:
    """Show a request that does not fit together as a wrong command line."""
    try:
        yield
    except RequestError as error:
        raise click.UsageError(error.message) from error


class RunDisplay(Progress):
    """Shows how a run goes, and says at the end how it went."""

    def __init__(self, batch: Batch, options: BatchOptions) -> None:
        self._batch, self._options = batch, options
        agent = batch.arms[0].request.agent
        self._agent = plugins.adapter(agent).name
        self._text_hint = _TEXT_HINT if agent.name == "acp" else ""
        super().__init__(
            plain=options.progress or options.debug,
            quiet=options.quiet,
            as_json=options.as_json,
            agent=self._agent,
        )

    def opened(self) -> None:
        """Say what to know before the first agent starts."""
        for note in self._batch.notes:
            if note.is_important or self._options.prints_notes:
                echo_folded(note.text, err=True)
        if self._batch.arms[0].forgets and self._options.prints_notes:
            self.doubts.said.add(FORGETS)

    def resumed(self, output: Path, n_again: int, n_graded: int, n_regraded: int) -> None:
        """Say what becomes of rows of an earlier run."""
        counts = ((n_again, "run again"), (n_graded, "graded"), (n_regraded, "graded again"))
        for n, what in counts:
            if n and not self._options.quiet:
                verb = "is" if n == 1 else "are"
                echo_folded(f"{counted_noun(n, 'row')} of {output} {verb} {what}", err=True)

    def judged(self, result: Trial) -> None:
        """Count what graders say of a trial that finished in an earlier run."""
        self.note_broken(result)
        self.doubts.add(result.grades or {}, result.grader_failures or {})

    def begin(self, missing: list[TrialSpec], n_planned: int) -> None:
        """Print what will run."""
        super().begin(missing, n_planned)
        batch, options = self._batch, self._options
        first = batch.arms[0]
        k = first.request.k
        self.tally.budget_usd = batch.max_cost
        self.tally.has_repeats = k is not None
        self.follow(first.request.output)
        loaded = counted_noun(len({spec.prompt.id for spec in batch.specs}), "prompt")
        to_run = f"{len(missing)} to run"
        if k is not None:
            numbers = [given.trials for given in first.resume.allocation.values()]
            each = f"{k} trials of each"
            if numbers:
                each = f"{min(numbers)} to {max(numbers)} trials of each, {k} on average"
            to_run = f"{each}, {counted_noun(len(missing), 'trial')} to run"
        self.say(f"Loaded {loaded} from {first.source}; {to_run}")
        self.say(f"Agent: {visible_line(self._agent)}; concurrency: {options.concurrency}")
        self.say(f"Output: {first.request.output or 'stdout'}")

    def conclude(self, *, ended_early: bool = False, target: str | None = None) -> None:
        """Print how it went; exit with 1 when trials, grades or all measurements are missing.

        ended_early: what did not run is not needed any more. target: the outputs by name.
        """
        options, tally = self._options, self.tally
        for line in [] if options.as_json else self.doubts.lines():
            echo_folded(line, err=True)
        if options.prints_notes:
            target = str(options.output or "") if target is None else target
            for line in (self.summary(target), *self.notes):
                echo_folded(line, err=True)
        for problem, n in tally.setup_problems.items():
            line = visible_line(counted(problem, n, tally.n_done))
            echo_folded(f"UNHEALTHY: {line} (see setup in the rows)", err=True)
        left = 0 if ended_early else tally.total - tally.n_done
        if left > 0:
            were = f"{counted_noun(left, 'trial')} {'was' if left == 1 else 'were'}"
            echo_folded(
                f"Stopped at --max-cost {options.max_cost:g}: {were} not run. "
                "Continue with --resume; the limit then applies to the new trials only.",
                err=True,
            )
        first = "" if self.doubts.names_failure else tally.first_grader_failure
        _say_ungraded(tally.n_grader_failures, first)
        if nothing := self.nothing_measured():
            echo_folded(nothing, err=True)
        if (why := self.all_failed()) and not options.as_json:
            echo_folded(f"{why}{self._text_hint}", err=True)
        if options.prints_notes and isinstance(options, CaptureOptions):
            self._say_result(ended_early=ended_early)
        if left > 0 or tally.n_grader_failures or nothing:
            raise click.exceptions.Exit(1)

    def _say_result(self, *, ended_early: bool) -> None:
        """Print the pass rate of all trials in the output, and what to do with them."""
        output, tally = self._options.output, self.tally
        request = self._batch.arms[0].request
        passes = tally.passes
        if request.mode == "resume" and output and output.is_file():
            passes = saved_passes(output, is_trials=request.k is not None) or passes
        incomplete = (tally.n_done < tally.total and not ended_early) or tally.n_unmeasured > 0
        line = run_sentence(
            [n for n, _ in passes.values()],
            [n for _, n in passes.values()],
            k=request.k,
            n_unmeasured=tally.n_unmeasured,
            n_unverified=tally.n_unverified,
            excused=tally.excused,
        )
        if line:
            echo_folded(line, err=True)
        if output is None or not output.is_file():
            return
        name, page = _quoted(output), _quoted(output.with_suffix(".html"))
        lines = closing_lines(
            [output],
            failed=bool(tally.causes) or any(n < of for n, of in passes.values()),
            report=f"assay report {name} -o {page}" if passes else "",
            then=self._next_command(name, incomplete, graded=bool(passes)),
        )
        for line in lines:
            echo_folded(line, err=True)

    def _next_command(self, name: str, incomplete: bool, *, graded: bool) -> str:
        if incomplete:
            return self._how_to_complete()
        if graded:
            return f"assay view {name}"
        has_hints = all(spec.prompt.hint for spec in self._batch.specs)
        options = self._options
        graders = options.graders if isinstance(options, CaptureOptions) else ()
        own = [shlex.quote(str(grader)) for grader in graders]
        to = _quoted(Path(str(options.output)).with_suffix(".graded.jsonl"))
        words = " ".join(f"-g {one}" for one in own or ["contains" if has_hints else "GRADER"])
        then = f"assay grade {name} {visible_line(words)} -o {to}"
        return f"fix the grader; then {then}" if own else then

    def _how_to_complete(self) -> str:
        again = "the same command with --resume runs the trials that are missing."
        if self.tally.causes.keys() != {"spawn"}:
            return again
        if any("\0" in text for spec in self._batch.specs for text in spec.prompt.turns):
            fix = "remove the NUL characters from the prompts"
            return f"{fix}; then the same command with --overwrite."  # they become other prompts
        return f"fix what keeps the agent from starting; then {again}"


def _quoted(path: Path) -> str:
    return visible_line(shlex.quote(str(path)))


def _say_ungraded(n: int, first: str) -> None:
    if n:
        were = f"{counted_noun(n, 'trial')} {'was' if n == 1 else 'were'}"
        why = "because a grader failed (see graderFailures in the rows)"
        named = f". The first: {first}" if first else ""
        echo_folded(f"{were} not graded {why}{named}", err=True)


class _DisplayOptions(Protocol):
    """Options that say what is printed, and where the trials run."""

    @property
    def debug(self) -> bool: ...
    @property
    def prints_notes(self) -> bool: ...
    @property
    def executor(self) -> str: ...


def debug_trace(options: _DisplayOptions) -> DebugTrace | None:
    """What --debug prints of each trial, if it is asked for."""
    if not options.debug or not options.prints_notes:
        return None
    if options.executor != "local":
        echo_folded("--debug shows nothing of trials that run on other machines.", err=True)
        return None
    return DebugTrace()


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
