"""Run trials from Python: `for trial in assay.run(...)`, `async for trial in assay.arun(...)`."""

import os
import shutil
import tempfile
import threading
import warnings
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from os import PathLike, fspath
from pathlib import Path
from typing import Any, Literal, Self, TypedDict, Unpack

import msgspec

from assay import functions, plugins
from assay.errors import InputError, UsageError
from assay.library.checks import (
    check_agent,
    check_names,
    check_values,
    checked_graders,
)
from assay.library.reading import Trial, trials_to_read
from assay.library.trials import Lines, Trials
from assay.library.wording import errors_in_python
from assay.library.worker import Progress, Reader, execute_request, send_errors
from assay.pipeline.agents import agent_ref, text_agent
from assay.pipeline.run import RunRequest
from assay.plugin import PromptRow
from assay.records.rows import decode_row, read_lines
from assay.records.spec import HINT, PluginRef, Prompt, check_prompt
from assay.run.background import Background

type Agent = str | PathLike[str] | Mapping[str, Any] | Callable[..., Any]
"""An adapter's name or a schema file; a schema; {"simple": COMMAND}, {"shell": COMMAND} or
{"acp": [PROGRAM, ...]}; or a Python function that takes a text and returns the answer."""
type Grader = str | PathLike[str] | Callable[..., Any]
"""What -g takes; or a Python function that takes a trial and returns its grade."""
type Prompts = str | PathLike[str] | Iterable[str | Mapping[str, Any]]
"""A prompt file; or prompts, each a text or what a line of such a file holds."""


class SharedOptions(TypedDict, total=False):
    """What both a run and an experiment may be told."""

    model: str
    agent_args: Sequence[str]
    mcp: str | PathLike[str]
    max_turns: int
    timeout_s: float
    trial_timeout_s: float
    stall_s: float
    grader_timeout_s: float
    retries: int
    max_cost: float
    workspace_template: str | PathLike[str]
    keep_workspaces: Literal["failed", "all", "none"]
    isolate: bool
    sandbox: Literal["network", "no-network"]
    container: str
    cpus: float
    env: Sequence[str]
    filters: Sequence[str]
    limit: int


class RunOptions(SharedOptions, total=False):
    """What a run may be told besides prompts, agent, graders, k, jobs and progress."""

    rate_per_s: float
    longest_wait_s: float
    cwd: str | PathLike[str]
    workspace_dir: str | PathLike[str]
    memory_bytes: int
    benchmark: str
    raw_dir: str | PathLike[str]
    keep_failed: bool
    keep_unsigned: bool
    rerun: Sequence[str]
    regrade: bool
    overlap: bool


_PATHS = ("cwd", "workspace_dir", "workspace_template", "raw_dir")
_OF_AGENT = {"model": "model", "agent_args": "args", "mcp": "mcp", "max_turns": "max_turns"}
_WAYS = ("simple", "shell", "acp")
"""How an agent can be given besides by name, by schema and as a function."""


class RunPlan:
    """What a run is asked for; the base of Run and AsyncRun."""

    def __init__(
        self,
        prompts: Prompts | None,
        agent: Agent,
        graders: Iterable[Grader],
        on_progress: Callable[[Progress], object] | None,
        options: Mapping[str, Any],
    ) -> None:
        check_names(options, ("k", "jobs", *RunOptions.__annotations__), "a run")
        check_values(progress=on_progress, **options)
        check_agent(agent)
        resolve_agent(agent)
        self._agent = agent
        self._graders = checked_graders(graders)
        given = [*([agent] if callable(agent) else []), *filter(callable, self._graders)]
        self._functions = functions.by_key(given)
        self._on_progress = on_progress
        self._options = {name: value for name, value in options.items() if value is not None}
        self._prompts, self._rows = _read_prompts(prompts, self._options.pop("benchmark", None))
        self._output: Path | None = None
        self._mode: Literal["resume", "overwrite"] = "resume"
        self._folder: str | None = None
        self._is_started = self._is_complete = False
        self.needs_grades = False
        """Whether prompts that nobody judges are refused."""

    @property
    def output(self) -> Path | None:
        """The file of .to(); None if the trials are kept in no file."""
        return self._output

    def to(self, output: str | PathLike[str], *, overwrite: bool = False) -> Self:
        """Keep the trials in a file, and continue what it has; return the run itself.

        The file is that of `assay capture` or, with k, of `assay trials`. Trials that it has
        already are not run again, except those that did not measure the agent. A file that was made
        with another set-up is refused, unless it is to be overwritten.
        """
        check_values(file=output, overwrite=overwrite)
        if self._is_started:
            msg = "the run has begun: its trials are kept elsewhere"
            raise UsageError(msg, hint="call .to() before the first trial")
        self._output = Path(fspath(output))
        self._mode = "overwrite" if overwrite else "resume"
        return self

    def on_progress(self, call: Callable[[Progress], object]) -> None:
        """Have another function called with the progress, before the one that was given."""
        given = self._on_progress

        def both(progress: Progress) -> None:
            call(progress)
            if given is not None:
                given(progress)

        self._on_progress = both

    def __repr__(self) -> str:
        where = f", in {self._output}" if self._output else ""
        return f"<{type(self).__name__} of {self._source}{where}>"

    def __del__(self) -> None:
        if getattr(self, "_output", None) is not None and not self._is_started:
            text = f"{self!r} was never started: iterate over it, or call .collect()"
            warnings.warn(text, RuntimeWarning, stacklevel=2)

    @property
    def _source(self) -> str:
        return str(self._prompts.options.get("path") or f"benchmark {self._prompts.name}")

    def _start(self) -> tuple[Background, Reader]:
        """Start the process of the run."""
        if self._folder is None and self._output is None:
            self._folder = tempfile.mkdtemp(prefix="assay-run-")
            weakref.finalize(self, _remove, self._folder, os.getpid())
        self._is_started = True
        asked = (self._prompts, self._rows, self._agent, self._graders, self._options)
        request = partial(_request, *asked, self._path, self._mode)
        # What was overwritten once is continued from now on.
        self._mode = "resume"
        background = Background(
            partial(send_errors, partial(execute_request, request, self.needs_grades)),
            self._functions,
        )
        return background, Reader(self._source, self._on_progress)

    @property
    def _path(self) -> Path:
        """Where the rows are: in the file, or in a folder that ends with this object."""
        return self._output or Path(self._folder or "", "trials.jsonl")


def _request(
    prompts: PluginRef,
    rows: list[PromptRow] | None,
    agent: Agent,
    graders: Iterable[Grader],
    given: Mapping[str, Any],
    output: Path,
    mode: Literal["resume", "overwrite"],
) -> RunRequest:
    """Return the request, in the process of the run: what is wrong with it is told there."""
    options: dict[str, Any] = {
        name: Path(value) if name in _PATHS else value for name, value in given.items()
    }
    of_agent = {key: options.pop(name) for name, key in _OF_AGENT.items() if name in options}
    if "mcp" in of_agent:
        of_agent["mcp"] = Path(of_agent["mcp"])
    options["env_names"] = tuple(options.pop("env", ()))
    timeout_s = options.get("grader_timeout_s", 60.0)
    return RunRequest(
        prompts=prompts,
        rows=rows,
        agent=agent_ref(resolve_agent(agent), **of_agent),
        graders=[resolve_grader(grader, timeout_s) for grader in graders],
        output=output,
        mode=mode,
        **options,
    )


class Run(RunPlan):
    """A run that is about to start: iterating over it runs the trials and yields each as it ends.

    Leaving the loop early ends the agents that are still at work; what has finished is kept. When
    it is iterated over again, the trials that are there come first, and only the others are run.
    """

    def __iter__(self) -> Iterator[Trial]:
        if self._is_complete:
            return iter(self._kept())
        return _TrialIterator(self, *self._start())

    def collect(self) -> Trials:
        """Run to the end, and return all trials."""
        if self._is_complete:
            return self._kept()
        rows = _TrialIterator(self, *self._start()).rows()
        return Trials([(self._source, row) for row in rows], self._source, self._output)

    def frame(self, library: Literal["pandas", "polars"] | None = None) -> Any:
        """Run to the end, and return all trials as a data frame; see Trials.frame."""
        return self.collect().frame(library)

    def _kept(self) -> Trials:
        """Return the trials of a run that is over."""
        return Trials(partial(_lines_of, self._path), self._source, self._output)


class _TrialIterator(Iterator[Trial]):
    """Only the loop has it: when the loop is left, it is gone, and the run ends."""

    def __init__(self, run: Run, background: Background, reader: Reader) -> None:
        self._run, self._background, self._reader = run, background, reader
        self._close = weakref.finalize(self, background.close)
        self._lock = threading.Lock()

    def __next__(self) -> Trial:
        row = self._next_row()
        if row is None:
            raise StopIteration
        (trial,) = trials_to_read(row, self._run._source)
        return trial

    def rows(self) -> list[bytes]:
        """Run to the end; return the rows of all trials."""
        return list(iter(self._next_row, None))

    def _next_row(self) -> bytes | None:
        with self._lock:
            try:
                while not self._reader.rows and not self._reader.is_over:
                    self._reader.take(self._background.receive(), self._background)
            except BaseException:
                self._close()
                raise
            if self._reader.rows:
                return self._reader.rows.popleft()
            self._close()
            self._run._is_complete = True
            return None


@errors_in_python()
def run(
    prompts: Prompts | None = None,
    *,
    agent: Agent,
    graders: Iterable[Grader] = (),
    k: int | None = None,
    jobs: int = 1,
    progress: Callable[[Progress], object] | None = None,
    **options: Unpack[RunOptions],
) -> Run:
    """Run prompts against an agent: `for trial in assay.run(...)` yields each trial as it ends.

    Nothing starts before the first trial is asked for. `.to(FILE)` keeps the trials in a file and
    continues what is there; `.collect()` runs to the end.

    Args:
        prompts: A prompt file; or a list of prompts, each a text or a dict with the fields of a
            prompt file (`id`, `input`, `hint`, ...). Without an id, a prompt gets its number.
        agent: The name of an adapter ("claude", "demo:flaky") or a schema file; a schema as a dict;
            {"simple": "PROGRAM {}"}, {"shell": 'PROGRAM "$PROMPT"'} or {"acp": ["PROGRAM"]}; or a
            Python function that takes the text of a prompt and returns the answer.
        graders: As -g takes them ("contains", "./grader.py"), or Python functions.
        k: Trials of each prompt. Without it, each prompt is run once and rows are captures.
        jobs: How many trials run at once. Those of one prompt that work in the same folder (without
            isolate and workspace_dir) run one after another, unless overlap is True.
        progress: Called with a Progress at the beginning and for each trial.
        options: As on the command line: model, agent_args, mcp, max_turns, timeout_s,
            trial_timeout_s, stall_s, grader_timeout_s, retries, rate_per_s, longest_wait_s,
            max_cost, cwd, workspace_dir, keep_workspaces, workspace_template, isolate, sandbox,
            container, memory_bytes, cpus, env, filters, limit, benchmark, raw_dir, keep_failed,
            keep_unsigned, rerun, regrade, overlap.

    Raises:
        AssayError: While iterating: what is wrong, and in `hint` what to do.
    """
    return Run(prompts, agent, graders, progress, {"k": k, "jobs": jobs, **options})


def _lines_of(path: Path) -> Lines:
    return read_lines(path) if path.is_file() else ()


def _remove(folder: str, owner: int) -> None:
    if os.getpid() == owner:  # and not in a copy of the program
        shutil.rmtree(folder, ignore_errors=True)


def _read_prompts(
    prompts: Prompts | None, benchmark: str | None
) -> tuple[PluginRef, list[PromptRow] | None]:
    """Return where prompts come from, and those that are given as they are."""
    if (prompts is None) == (benchmark is None):
        msg = "give either prompts or a benchmark"
        raise UsageError(msg)
    if benchmark is not None:
        return plugins.benchmark_ref(benchmark), None
    if isinstance(prompts, str | PathLike):
        check_prompt_file(fspath(prompts))
        return PluginRef(name="prompts", options={"path": fspath(prompts)}), None
    # The files that prompts name are found from the current folder, which is that of this path.
    return PluginRef(name="prompts", options={"path": "prompts"}), read_prompt_rows(prompts)


def check_prompt_file(path: str) -> None:
    """Refuse a text that is meant as a prompt."""
    if path and (Path(path).suffix or os.path.lexists(path)) and not path.endswith((".", "?")):
        return
    msg = f"prompts is {path!r}, which is no file"
    raise InputError(msg, hint=f"a single prompt is written in a list: [{path or 'PROMPT'!r}]")


def read_prompt_rows(prompts: Any) -> list[PromptRow]:
    """Return prompts that are given as they are; refuse what a prompt file may not hold either."""
    if isinstance(prompts, Mapping) or not isinstance(prompts, Iterable):
        kind = type(prompts).__name__
        msg = f"prompts is of type {kind}; give a file, or a list of texts or dicts"
        hint = "give a list: [prompt]" if isinstance(prompts, Mapping) else HINT
        raise UsageError(msg, hint=hint)
    rows: list[PromptRow] = []
    places: dict[str, str] = {}
    for number, given in enumerate(prompts, 1):
        place = f"prompts[{number - 1}]"
        fields = {"input": given} if isinstance(given, str) else given
        if not isinstance(fields, Mapping):
            msg = f"{place} is of type {type(given).__name__}; a prompt is a text or a dict"
            raise InputError(msg, hint=HINT)
        try:
            line = msgspec.json.encode({"id": str(number), **fields})
        except (TypeError, ValueError, RecursionError) as error:
            msg = f"{place} cannot be written as JSON: {error}"
            raise InputError(msg, hint=HINT) from error
        try:
            prompt, extra = decode_row(place, line, Prompt, hint=HINT)
        except InputError as error:  # without how the line was read
            raise error from None
        check_prompt(prompt, place, places)
        rows.append((prompt, extra))
    return rows


def resolve_agent(agent: Agent) -> str | PluginRef:
    """Return an agent as commands know it."""
    if callable(agent):
        return functions.as_text(agent)
    if not isinstance(agent, Mapping):
        text = fspath(agent)
        if len(text.split()) > 1 and ":" not in text and not Path(text).exists():
            msg = f"agent is {text!r}, which is neither the name of an adapter nor a file"
            raise UsageError(msg, hint=f'a command line is given as {{"simple": {text!r}}}')
        return text
    ways = [way for way in _WAYS if way in agent]
    if not ways:
        return PluginRef(name="declared", options={"schema": dict(agent), "source": "the schema"})
    if len(agent) > 1:
        msg = f"an agent is given by one of {', '.join(_WAYS)}, and not by {', '.join(agent)}"
        raise UsageError(msg)
    value = agent[ways[0]]
    command = [value] if isinstance(value, str) else value
    several = isinstance(command, list | tuple) and ways == ["acp"]
    if not (isinstance(value, str) or (several and all(isinstance(word, str) for word in command))):
        msg = f"the agent's {ways[0]!r} is {value!r}; give a command line as a text"
        raise UsageError(msg, hint='or for acp a list, as in {"acp": ["my-agent", "--acp"]}')
    if ways == ["acp"]:
        return PluginRef(name="acp", options={"command": list(command)})
    return text_agent(ways[0], value)


def resolve_grader(grader: Grader, timeout_s: float) -> PluginRef:
    """Return a grader as commands know it."""
    text = functions.as_text(grader) if callable(grader) else fspath(grader)
    return plugins.grader_ref(text, timeout_s)
