"""Checks that a plugin author calls in a test: each raises AssertionError and lists what is wrong.

They hold a plugin to what its base class in assay.plugin promises. What only its author can know
(which answers pass, which events an agent prints) is given to them.
"""

import copy
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import count, islice
from math import isfinite
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import msgspec

from assay import plugins
from assay.errors import AssayError, InputError
from assay.pipeline.prompts import prompt_row
from assay.pipeline.stages import AskingHost
from assay.plugin import (
    Adapter,
    Ask,
    Benchmark,
    Command,
    Executor,
    Grade,
    Grader,
    Host,
    Limits,
    PluginRef,
    Prompt,
    RawLine,
    Reading,
    Recording,
    Surroundings,
    Trial,
    TrialSpec,
    Turn,
    TurnEnd,
    Watch,
    World,
)
from assay.testing.conformance import check

_TEXT = "a prompt that stands nowhere else"
_ODD_LINES = (b"", b"not an event", b"{", b"null", b"[]", b'{"type": 7}', b"\xff\xfe", b"\0")
"""What any agent may print. An adapter reads it without an error."""


def check_adapter(adapter: Any, *recordings: Path) -> None:
    """Check an adapter: its command, odd lines, and recordings, all of which it must map.

    A recording is a folder as assay.testing.conformance describes it.
    """
    adapter = plugins.with_defaults(Adapter, adapter)
    problems = [*_name(adapter), *_tried(lambda: _command(adapter), "command")]
    problems += _tried(lambda: _odd_lines(adapter), "watch")
    problems += _tried(lambda: _reading(adapter), "read")
    for folder in recordings:
        found = check(adapter, folder)
        problems += found.problems
        if found.n_mapped < found.n_events and not found.problems:
            problems.append(f"{folder.name}: {found}")
    _raise(adapter, problems)


def _command(adapter: Adapter) -> Iterator[str]:
    ask = Ask(text=_TEXT, cwd="/workspace", scratch="/scratch", prompt_id="a")
    found = adapter.command(ask)
    if not isinstance(found, Command):
        yield f"command() returned {found!r:.80}, not a Command"
        return
    if not found.argv or not all(isinstance(word, str) for word in found.argv):
        yield f"Command.argv is {found.argv!r:.80}; it must be texts, the program first"
    given = [*found.argv, *found.env.values(), *found.files.values(), found.stdin or ""]
    if not any(_TEXT in text for text in given) and adapter.dialogue(ask.cwd) is None:
        yield "the prompt (Ask.text) is nowhere in the command: not in argv, env, stdin or files"
    if adapter.command(ask) != found:
        yield "command() returned something else for the same turn: an adapter keeps no state"


def _odd_lines(adapter: Adapter) -> Iterator[str]:
    watch = plugins.with_defaults(Watch, adapter.watch())
    if watch.ended or watch.session_id is not None:
        yield "watch() returned one that has ended or has a session before its first line"
    for text in _ODD_LINES:
        watch.feed(RawLine(0, text))
    watch.feed(RawLine(0, b"{" * 100, oversized=True))
    if not isinstance(watch.output(), str):
        yield f"Watch.output() returned {watch.output()!r:.80}, not a text"


def _reading(adapter: Adapter) -> Iterator[str]:
    lines = [RawLine(number, text) for number, text in enumerate(_ODD_LINES)]
    for n_turns in range(3):
        turn = Turn(text=_TEXT, end=TurnEnd(exit_code=0), lines=lambda: list(lines))
        recording = Recording(start_ms=0, end_ms=1000, turns=(turn,) * n_turns)
        found = adapter.read(recording)
        if not isinstance(found, Reading):
            yield f"read() returned {found!r:.80}, not a Reading"
            return
        if len(found.outputs) != n_turns:
            yield f"Reading.outputs has {len(found.outputs)} answers for {n_turns} turns"
        events = found.events
        known = events.mapped + events.unparsed + events.oversized
        if known > events.total:
            yield f"Reading.events counts {known} lines as read, of {events.total}"
        if msgspec.to_builtins(adapter.read(recording)) != msgspec.to_builtins(found):
            yield "read() returned something else for the same recording"


def check_grader(
    grader: Any,
    *,
    passes: Sequence[Trial] = (),
    fails: Sequence[Trial] = (),
    host: Host | None = None,
) -> None:
    """Check a grader on trials that it must let pass, and on others that it must not."""
    grader, host = plugins.with_defaults(Grader, grader), host or AskingHost()
    problems = [*_name(grader)]
    problems += _tried(lambda: _version(grader), "version")
    if not passes or not fails:
        problems.append("give at least one trial that passes and one that fails")
    wanted = [(trial, True) for trial in passes] + [(trial, False) for trial in fails]
    grades: list[Any] = []
    for number, (trial, should_pass) in enumerate(wanted, 1):
        what = f"trial {number} ({'passes' if should_pass else 'fails'}: {trial.output!r:.40})"
        graded = partial(_graded, grader, trial, host, grades, passes=should_pass)
        problems += _tried(graded, what)
    if len(grades) == len(wanted):
        together = list(grader.grade_many([trial for trial, _ in wanted], host))
        if together != grades:
            problems.append("grade_many() does not yield what grade() returns, in the same order")
    _raise(grader, problems)


def _version(grader: Grader) -> Iterator[str]:
    if not isinstance(grader.version, str) or not grader.version or ":" in grader.version:
        yield f"version is {grader.version!r}; it must be a text without a colon"


def _graded(
    grader: Grader, trial: Trial, host: Host, grades: list[Any], *, passes: bool
) -> Iterator[str]:
    before = copy.deepcopy(trial)
    grade = grader.grade(trial, host)
    grades.append(grade)
    if not isinstance(grade, Grade):
        yield f"grade() returned {grade!r:.80}, not a Grade"
        return
    if not isinstance(grade.pass_, bool) or grade.pass_ is not passes:
        yield f"got pass_={grade.pass_!r}, {grade.reasoning or 'without reasoning'}"
    is_number = isinstance(grade.score, int | float) and isfinite(grade.score)
    if not is_number or not 0 <= grade.score <= 1:
        yield f"the score is {grade.score!r}; it must be between 0 and 1"
    yield from _unwritable(grade, "the grade")
    if trial != before:
        yield "grade() changed the trial, which other graders get too"
    if grader.grade(before, host) != grade:
        yield "grade() returned something else for the same trial"


def check_benchmark(benchmark: Any) -> None:
    """Check a benchmark: its prompts, its graders, and the world of the first prompt."""
    benchmark = plugins.with_defaults(Benchmark, benchmark)
    rows: list[tuple[Prompt, dict[str, Any]]] = []
    problems = _tried(lambda: _prompts(benchmark, rows), "prompts")
    for ref in benchmark.graders():
        try:
            plugins.grader(ref)
        except AssayError as error:
            problems.append(f"the grader {ref.name!r} cannot be built: {error.message}")
    if rows:
        problems += _tried(lambda: _world(benchmark, rows[0][0]), "world")
    _raise(benchmark, problems)


def _prompts(benchmark: Benchmark, rows: list[tuple[Prompt, dict[str, Any]]]) -> Iterator[str]:
    rows += [prompt_row(row, f"prompt {n}") for n, row in enumerate(benchmark.prompts(), 1)]
    again = [prompt_row(row, f"prompt {n}") for n, row in enumerate(benchmark.prompts(), 1)]
    if not rows:
        yield "prompts() returned none"
    if again != rows:
        yield "prompts() returned others the second time: a run could not be resumed"
    ids = [prompt.id for prompt, _ in rows]
    for prompt_id in dict.fromkeys(ids):
        if ids.count(prompt_id) > 1:
            yield f"{ids.count(prompt_id)} prompts have the id {prompt_id!r}"
    for prompt, extra in rows:
        yield from _unwritable((prompt, extra), f"the prompt {prompt.id!r}")


def _world(benchmark: Benchmark, prompt: Prompt) -> Iterator[str]:
    with TemporaryDirectory(prefix="assay-check-") as folder:
        spec = TrialSpec(
            prompt=prompt,
            agent=PluginRef(name="nop"),
            benchmark=PluginRef(name="prompts"),
            limits=Limits(turn_s=60.0),
            surroundings=Surroundings(cwd=folder),
            folder="check",
        )
        (fitted,) = benchmark.fit_trials([spec])
        with benchmark.world(fitted, Path(folder), AskingHost()) as opened:
            world = plugins.with_defaults(World, opened)
            for name, value in world.env.items():
                if not isinstance(name, str) or not isinstance(value, str):
                    yield f"World.env has {name!r}: {value!r:.40}; both must be texts"
            if not benchmark.needs_workspace and any(Path(folder).iterdir()):
                yield "it puts files into the workspace, so needs_workspace must not be False"
            evidence = world.evidence(TurnEnd(exit_code=0))
        if not isinstance(evidence, dict):
            yield f"evidence() returned {evidence!r:.80}, not a dict"
        yield from _unwritable(evidence, "the evidence")


def check_executor(executor: Any) -> None:
    """Check an executor: results, lost items, errors that end the run, and items taken in time."""
    executor = plugins.with_defaults(Executor, executor)
    problems = _tried(lambda: _map(executor), "map")
    _raise(executor, problems)


def _map(executor: Executor) -> Iterator[str]:
    def half(n: int) -> str:
        if n == 3:
            raise LookupError
        return f"did {n}"

    found = sorted(executor.map(half, range(6), lambda n, why: f"lost {n}"))
    wanted = ["did 0", "did 1", "did 2", "did 4", "did 5", "lost 3"]
    if found != wanted:
        yield f"map() yielded {found}, not {wanted}: an error of one item is lost(item, why)"

    def refuse(n: int) -> str:
        msg = "no more"
        raise InputError(msg)

    try:
        list(executor.map(refuse, range(3), lambda n, why: f"lost {n}"))
        yield "map() did not raise an AssayError of the function, which ends the run"
    except InputError:
        pass
    taken: list[int] = []
    items = (taken.append(n) or n for n in islice(count(), 10_000))  # type: ignore[func-returns-value]
    results: Any = executor.map(str, items, lambda n, why: why)
    next(results)
    close: Callable[[], None] | None = getattr(results, "close", None)
    if close is not None:
        close()
    if len(taken) > 1000:
        yield f"map() took {len(taken)} items before the first result: take one when it can start"


def _name(plugin: Any) -> Iterator[str]:
    name = getattr(plugin, "name", None)
    if not isinstance(name, str) or not name:
        yield f"name is {name!r}; it must be a text"


def _unwritable(value: Any, what: str) -> Iterator[str]:
    try:
        msgspec.json.encode(value)
    except (TypeError, ValueError, RecursionError) as error:
        yield f"{what} cannot be written as JSON: {error}"


def _tried(run: Callable[[], Iterable[str]], what: str) -> list[str]:
    """Return what is wrong; an error is wrong too."""
    try:
        return [f"{what}: {problem}" for problem in run()]
    except Exception as error:  # noqa: BLE001 - an author's plugin may raise anything
        return [f"{what}: raised {type(error).__name__}: {error}"]


def _raise(plugin: Any, problems: Sequence[str]) -> None:
    if problems:
        listed = "".join(f"\n  {problem}" for problem in problems)
        msg = f"{type(plugin).__name__}:{listed}"
        raise AssertionError(msg)
