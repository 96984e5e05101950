"""What capture, trials and run share: from the command line to a batch, and to its exit code."""

import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import click
import msgspec

from assay import plugins
from assay.cli.doubts import Doubts
from assay.cli.options import (
    TEXT_AGENTS,
    BatchOptions,
    CaptureOptions,
    chosen_agent,
    findable,
    grader_refs,
    output_mode,
    resume_of,
    setting,
)
from assay.cli.output import kept_raw, refuse_inputs
from assay.cli.parameters import prompt_path
from assay.cli.progress import Progress, rate_text, saved_passes
from assay.pipeline.batch import Batch, check_startable
from assay.pipeline.prompts import choose, plan, read_prompts
from assay.pipeline.row_settings import RowSettings
from assay.pipeline.stages import CaptureTrial, freeze
from assay.plugin import PromptRow
from assay.records.capture import Allocation, Capture, TrialEntry
from assay.records.live import LiveFile
from assay.records.raw_streams import folder_names
from assay.records.recording import FORGETS
from assay.records.setup import counted
from assay.records.spec import HINT, PluginRef, Surroundings, TrialSpec
from assay.records.text import counted_noun, visible_line
from assay.run.conversation import forgets_turns
from assay.run.raw import remove_kept
from assay.run.workspace import frozen_template, inherited, private_root

if TYPE_CHECKING:
    from assay.cli.debug import DebugTrace


type Allocate = Callable[[list[str]], Mapping[str, Allocation]]
"""Says for each id of a prompt how many trials it gets, and why."""


class Repeats(NamedTuple):
    """How often each prompt is run: k times, or as often as is allocated to it."""

    k: int
    allocate: Allocate | None = None


class CommandBatch:
    """The batch of one command line, its progress and its exit code; k trials of each prompt."""

    def __init__(
        self,
        options: BatchOptions,
        agent: PluginRef,
        benchmark: PluginRef,
        *,
        graders: Sequence[PluginRef] = (),
        k: "int | Repeats | None" = None,
        keep_raw: bool = True,
        turns_alone: bool = False,
    ) -> None:
        """turns_alone: a text agent is told nothing of earlier turns, as in the seed's `run`."""
        self._options = options
        refuse_inputs(options.output, *options.prompts, options.schema, options.mcp)
        k, allocate = k if isinstance(k, Repeats) else (k, None)
        resume = options.resume or bool(options.rerun)
        self.mode = output_mode(options.output, resume, options.append, options.overwrite)
        self._doubts, self._n_grader_failures = Doubts(), 0
        self._k = k
        self._source, rows = self._read(benchmark)
        if turns_alone and _have_turns(rows) and agent.name in TEXT_AGENTS:
            agent = msgspec.structs.replace(agent, options={**agent.options, "history": False})
        self._setting = setting(options, agent, benchmark, graders, keep_raw=keep_raw)
        chosen = choose(rows, options.filters, options.limit)
        self._agent = plugins.adapter(agent)
        self._text_hint = _TEXT_HINT if agent.name == "acp" else ""
        self._forgets = _have_turns(chosen) and forgets_turns(self._agent, "a session")
        shared, names = self._setting, folder_names(prompt.id for prompt, _ in rows)
        grading = options if isinstance(options, CaptureOptions) else None
        timeout_s = grading.grader_timeout if grading else 0.0
        self.own = RowSettings(shared, graders, timeout_s, findable)
        self.own.take(chosen, graded=grading is not None)
        refuse_inputs(options.output, *(ref.options.get("path") for ref in self.own.graders))
        is_graded = bool(graders or self.own.graders)
        self.resume = resume_of(options, graders, k, self._note_graded, is_graded=is_graded)
        if allocate is not None:
            given = allocate([prompt.id for prompt, _ in chosen])
            self.resume = msgspec.structs.replace(self.resume, allocation=given)
        self.batch = Batch(
            specs=plan(chosen, names, shared, k, self.own.of, self.resume.allocation),
            run_token=shared.run_token,
            resume=self.mode == "resume",
            workers=options.concurrency,
            max_cost=options.max_cost,
            executor=options.executor_ref,
            rate_per_s=options.rate,
        )
        if not self.batch.resume:  # before an output is made or emptied
            check_startable(self.batch.specs, self.batch.workers, here=self.batch.is_local)

    def _read(self, benchmark: PluginRef) -> tuple[str, list[PromptRow]]:
        """Return where the prompts come from, and the prompts."""
        return _read(benchmark)

    @property
    def _target(self) -> str:
        """The output, as it is named to the user."""
        return str(self._options.output or "")

    @contextmanager
    def place(self) -> Iterator[None]:
        """Where the trials run: says what agents can see there, and freezes the templates."""
        around = self._setting.surroundings
        if self._talks:
            _say_where(around, self.own.n_private, len(self.batch.specs) // (self._k or 1))
            if self._forgets:
                click.echo(f"Warning: {FORGETS}. {_REMEDY}", err=True)
        if self.mode == "overwrite" and around.raw_dir is not None and self._options.output:
            remove_kept(around.raw_dir, kept_raw(self._options.output))
        source = self._options.workspace_template
        copy = around.workspace_template or ""
        with frozen_template(str(source) if source else None, copy), self.own.templates():
            yield

    @property
    def _talks(self) -> bool:
        return not self._options.quiet and not self._options.as_json

    def tells(self, code: int) -> bool:
        """Whether an outcome with this exit code is printed: -q leaves out only what went well."""
        return not self._options.quiet or code != 0

    def show(self, missing: list[TrialSpec]) -> Progress:
        """Make the progress display and print what will run."""
        options, k = self._options, self._k
        plain = options.progress or options.debug
        shown = Progress(
            len(missing),
            plain=plain,
            quiet=options.quiet,
            as_json=options.as_json,
            agent=self._agent.name,
            live=live_file(options.output),
        )
        shown.tally.n_before = len(self.batch.specs) - len(missing)
        shown.tally.budget_usd = options.max_cost
        shown.doubts, shown.tally.n_grader_failures = self._doubts, self._n_grader_failures
        shown.expect([spec.prompt.id for spec in missing], each=k)
        if self._forgets and self._talks:
            shown.doubts.said.add(FORGETS)
        n_prompts = len({spec.prompt.id for spec in self.batch.specs})
        loaded, trials = counted_noun(n_prompts, "prompt"), counted_noun(len(missing), "trial")
        to_run = f"{len(missing)} to run" if k is None else f"{self._per_prompt()}, {trials} to run"
        shown.say(f"Loaded {loaded} from {self._source}; {to_run}")
        shown.say(f"Agent: {visible_line(self._agent.name)}; concurrency: {options.concurrency}")
        shown.say(f"Output: {options.output or 'stdout'}")
        return shown

    def _per_prompt(self) -> str:
        numbers = [given.trials for given in self.resume.allocation.values()]
        if not numbers:
            return f"{self._k} trials of each"
        return f"{min(numbers)} to {max(numbers)} trials of each, {self._k} on average"

    def _note_graded(self, judged: Capture | TrialEntry) -> None:
        """Count what graders say of trials that finished in an earlier run."""
        broken = judged.grader_failures or {}
        self._n_grader_failures += bool(broken)
        self._doubts.add(judged.grades or {}, broken)

    def conclude(self, progress: Progress, *, ended_early: bool = False) -> None:
        """Print how it went; exit with 1 when trials, grades or all measurements are missing.

        ended_early: what did not run is not needed any more.
        """
        options, tally = self._options, progress.tally
        for line in [] if options.as_json else progress.doubts.lines():
            click.echo(line, err=True)
        if self._talks:
            click.echo(progress.summary(self._target), err=True)
        for note in progress.notes if self._talks else ():
            click.echo(note, err=True)
        for problem, n in tally.setup_problems.items():
            line = visible_line(counted(problem, n, tally.n_done))
            click.echo(f"UNHEALTHY: {line} (see setup in the rows)", err=True)
        left = 0 if ended_early else tally.total - tally.n_done
        if left > 0:
            were = f"{counted_noun(left, 'trial')} {'was' if left == 1 else 'were'}"
            click.echo(
                f"Stopped at --max-cost {options.max_cost:g}: {were} not run. "
                "Continue with --resume; the limit then applies to the new trials only.",
                err=True,
            )
        _say_ungraded(tally.n_grader_failures)
        if nothing := progress.nothing_measured():
            click.echo(nothing, err=True)
        if (why := progress.all_failed()) and not options.as_json:
            click.echo(f"{why}{self._text_hint}", err=True)
        if self._talks and isinstance(options, CaptureOptions):
            self._say_result(progress, ended_early=ended_early)
        if left > 0 or tally.n_grader_failures or nothing:
            raise click.exceptions.Exit(1)

    def _say_result(self, progress: Progress, *, ended_early: bool) -> None:
        """Print the pass rate of all trials in the output, and what to do with them."""
        output, tally = self._options.output, progress.tally
        passes = tally.passes
        if self.mode == "resume" and output and output.is_file():
            passes = saved_passes(output, is_trials=self._k is not None) or passes
        incomplete = (tally.n_done < tally.total and not ended_early) or tally.n_unmeasured > 0
        parts = [rate_text(passes), self._next_command(incomplete, graded=bool(passes))]
        if line := " ".join(filter(None, parts)):
            click.echo(line, err=True)

    def _next_command(self, incomplete: bool, *, graded: bool) -> str:
        output = self._options.output
        if output is None or not output.is_file():
            return ""
        if incomplete:
            return "Next: the same command with --resume runs the trials that are missing."
        name = visible_line(shlex.quote(str(output)))
        if graded:
            return f"Next: assay view {name}"
        has_hints = all(spec.prompt.hint for spec in self.batch.specs)
        to = visible_line(shlex.quote(str(output.with_suffix(".graded.jsonl"))))
        return f"Next: assay grade {name} -g {'contains' if has_hints else 'GRADER'} -o {to}"


def live_file(output: Path | None) -> LiveFile | None:
    """The file that tells a viewer how far the run is; not beside a pipe or a device."""
    return LiveFile(output) if output is not None and output.is_file() else None


def _say_ungraded(n: int) -> None:
    if n:
        were = f"{counted_noun(n, 'trial')} {'was' if n == 1 else 'were'}"
        why = "because a grader failed (see graderFailures in the rows)"
        click.echo(f"{were} not graded {why}", err=True)


_TEXT_HINT = (
    "\n  A program after the prompts must speak the Agent Client Protocol; one that prints its "
    "answer as text needs --simple 'PROGRAM {}'."
)
_REMEDY = (
    'A schema can give "resume", or "sessionMode": "iterative"; assay capture --simple and --shell '
    "put the earlier turns into the prompt."
)


def _read(benchmark: PluginRef) -> tuple[str, list[PromptRow]]:
    """Read the prompts, and say where they come from."""
    is_file = benchmark.name == "prompts"
    source = f"benchmark {benchmark.name}"
    if is_file:
        source = benchmark.options.get("path") or "stdin"
    rows = read_prompts(benchmark)
    if not rows:
        hint = f"\n  {HINT}" if is_file else ""
        click.echo(f"{source}: no prompts, so there is nothing to run{hint}", err=True)
    return source, rows


def _have_turns(rows: Sequence[PromptRow]) -> bool:
    return any(len(prompt.turns) > 1 for prompt, _ in rows)


def _say_where(around: Surroundings, n_private: int, n_prompts: int) -> None:
    """Say once what the agents can see besides their prompts."""
    if n_private:
        bring = "brings" if n_private == 1 else "bring"
        click.echo(
            f"{counted_noun(n_private, 'prompt')} {bring} files, a workspace or a set-up: each of "
            f"their trials works in a folder of its own below {private_root()}.",
            err=True,
        )
    if around.workspace_dir is None and n_private < n_prompts:
        click.echo(
            f"The agent works in {around.cwd} itself; --workspace-template or --isolate gives "
            "each trial a folder of its own.",
            err=True,
        )
    if around.workspace_dir is None:
        return
    if found := inherited(Path(around.workspace_dir)):
        click.echo(
            f"Warning: the workspaces are inside a project. Agents will also read "
            f"{', '.join(map(str, found))}. Leave out --workspace-dir to avoid it.",
            err=True,
        )


def debug_trace(options: BatchOptions) -> "DebugTrace | None":
    """What --debug prints of each trial, if it is asked for."""
    if not options.debug or options.quiet or options.as_json:
        return None
    if options.executor != "local":
        click.echo("--debug shows nothing of trials that run on other machines.", err=True)
        return None
    from assay.cli.debug import DebugTrace  # late: few runs need it

    return DebugTrace()


def plan_captures(
    ctx: click.Context,
    options: CaptureOptions,
    k: int | Repeats | None = None,
) -> tuple[CommandBatch, CaptureTrial]:
    """Read prompts, agent and graders of capture or trials; a benchmark's graders come first."""
    refuse_inputs(options.output, *options.graders)
    benchmark = _benchmark(options)
    agent = chosen_agent(ctx, options)
    graders = [*plugins.benchmark(benchmark).graders()]
    for ref in graders:
        plugins.grader(ref)  # one that cannot be built is refused before anything runs
    graders += grader_refs(options.graders, options.grader_timeout)
    work = CaptureTrial(graders, options.retries, debug_trace(options))
    batch = CommandBatch(options, agent, benchmark, graders=graders, k=k)
    freeze([*graders, *batch.own.graders])
    if ctx.meta["taken_back"] and not options.quiet and not options.as_json:
        _say_program(ctx)
    return batch, work


def _say_program(ctx: click.Context) -> None:
    """Say whose the options behind the program are: some could be meant for it."""
    program, ours = shlex.join(ctx.meta["program"]), ", ".join(ctx.meta["taken_back"])
    click.echo(
        f"The agent is the program: {visible_line(program)}\n"
        f"Assay itself takes {ours} from behind it. Put -- before the program to pass it all.",
        err=True,
    )


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
