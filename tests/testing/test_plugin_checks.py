"""The checks for plugin authors: our own plugins pass, and each promise that is broken is named."""

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest

from assay.adapters.text import ShellAdapter
from assay.executors import LocalExecutor
from assay.graders.answer import Contains
from assay.plugin import (
    Adapter,
    Ask,
    AssayError,
    Benchmark,
    Command,
    Events,
    Grade,
    Grader,
    PluginRef,
    Prompt,
    Reading,
    Recording,
    Trial,
    World,
)
from assay.testing import check_adapter, check_benchmark, check_executor, check_grader

YES, NO = Trial(input="?", output="yes"), Trial(input="?", output="no")


def test_our_own_plugins_pass() -> None:
    check_adapter(ShellAdapter("cat"))
    check_grader(Contains(text=["yes"]), passes=[YES], fails=[NO])
    check_executor(LocalExecutor(workers=2))
    check_benchmark(Words())


class Toy(Adapter):
    name = "toy"

    def command(self, ask: Ask) -> Command:
        return Command(argv=("toy", ask.text))

    def read(self, recording: Recording) -> Reading:
        return Reading(steps=[], outputs=[""] * len(recording.turns), events=Events())


class Unnamed(Toy):
    name = ""


class Deaf(Toy):
    def command(self, ask: Ask) -> Command:
        return Command(argv=("toy",))


class Fickle(Toy):
    def command(self, ask: Ask) -> Command:
        return Command(argv=("toy", ask.text, str(random.random())))


class OneAnswer(Toy):
    def read(self, recording: Recording) -> Reading:
        return Reading(steps=[], outputs=["only one"], events=Events())


class Strict(Toy):
    def read(self, recording: Recording) -> Reading:
        return Reading(steps=[], outputs=[next(iter(recording.turns)).text], events=Events())


@pytest.mark.parametrize(
    ("adapter", "problem"),
    [
        (Unnamed(), "name is ''"),
        (Deaf(), "nowhere in the command"),
        (Fickle(), "something else for the same turn"),
        (OneAnswer(), "1 answers for 2 turns"),
        (Strict(), "read: raised RuntimeError"),
        (Adapter(), "command: raised NotImplementedError"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Adapter) else "",
)
def test_a_broken_adapter_is_named_with_what_is_wrong(adapter: Adapter, problem: str) -> None:
    check_adapter(Toy())
    with pytest.raises(AssertionError, match=problem):
        check_adapter(adapter)


def test_an_adapter_is_held_to_its_recordings(tmp_path: Path) -> None:
    (tmp_path / "1.out").write_text('{"type": "dream"}\n')
    (tmp_path / "end.json").write_text('{"end": {"exitCode": 0}}')

    class Dreams(Toy):
        def read(self, recording: Recording) -> Reading:
            events = Events(total=sum(len(list(turn.lines())) for turn in recording.turns))
            return Reading(steps=[], outputs=[""] * len(recording.turns), events=events)

    check_adapter(Dreams())
    with pytest.raises(AssertionError, match=r"0\.0% of events"):
        check_adapter(Dreams(), tmp_path)


def grader(judge: Callable[[Trial], Any], version: str = "1") -> Grader:
    class Judge(Grader):
        name = "judge"

        def grade(self, trial: Trial, host: Any) -> Any:
            return judge(trial)

    made = Judge()
    made.version = version  # type: ignore[misc]
    return made


def says_yes(trial: Trial) -> Grade:
    return Grade(pass_=trial.output == "yes", score=float(trial.output == "yes"))


def test_a_trial_that_a_test_makes_is_like_one_of_a_run() -> None:
    def says_so(trial: Trial) -> Grade:
        expected = trial.metadata.get("answer", "yes")
        assert trial.evidence.get("seen") is None
        return Grade(pass_=trial.output == expected, score=float(trial.output == expected))

    check_grader(grader(says_so), passes=[YES], fails=[NO])


def test_evidence_is_that_of_the_row_or_of_the_metadata() -> None:
    about = {"evidence": {"seen": 1}}
    assert Trial(input="?", output="yes", metadata=about).evidence == {"seen": 1}
    assert Trial(input="?", output="yes", row={"metadata": about}).evidence == {"seen": 1}
    assert YES.evidence == {}


def spoils(trial: Trial) -> Grade:
    trial.row["seen"] = True
    return says_yes(trial)


@pytest.mark.parametrize(
    ("broken", "problem"),
    [
        (grader(says_yes, version=""), "version is ''"),
        (
            grader(lambda _: Grade(pass_=True, score=1.0)),
            r"trial 2 \(fails: 'no'\): got pass_=True",
        ),
        (grader(lambda trial: trial.output == "yes"), "returned True, not a Grade"),
        (grader(lambda trial: Grade(pass_=trial is YES, score=7.0)), "score is 7.0"),
        (grader(lambda trial: trial.row["none"]), "raised KeyError: 'none'"),
        (grader(lambda t: Grade(pass_=t.output == "yes", score=random.random())), "something else"),
        (grader(spoils), "changed the trial"),
    ],
)
def test_a_broken_grader_is_named_with_what_is_wrong(broken: Grader, problem: str) -> None:
    check_grader(grader(says_yes), passes=[YES], fails=[NO])
    with pytest.raises(AssertionError, match=problem):
        check_grader(broken, passes=[YES], fails=[Trial(input="?", output="no")])


def test_a_grader_that_judges_many_otherwise_is_named() -> None:
    class Many(Contains):
        def grade_many(self, trials: Any, host: Any) -> Iterator[Grade | Exception]:
            return iter([Grade(pass_=True, score=1.0) for _ in trials])

        def grade(self, trial: Trial, host: Any) -> Grade:
            return says_yes(trial)

    with pytest.raises(AssertionError, match="grade_many"):
        check_grader(Many(text=["yes"]), passes=[YES], fails=[NO])
    with pytest.raises(AssertionError, match="at least one trial"):
        check_grader(Contains(text=["yes"]))


class Words(Benchmark):
    given: Any = (Prompt(id="a", input="x"), (Prompt(id="b", input="y"), {"n": 1}))

    def prompts(self) -> Any:
        return self.given


class Twice(Words):
    given = (Prompt(id="a", input="x"), Prompt(id="a", input="y"))


class Empty(Words):
    given = ()


class Dicts(Words):
    given = ({"id": "a", "input": "x"},)


class Random(Words):
    def prompts(self) -> Any:
        return [Prompt(id=str(random.random()), input="x")]


class Ungraded(Words):
    def graders(self) -> Any:
        return [PluginRef(name="nobody")]


class Speechless(Words):
    @contextmanager
    def world(self, *_: Any) -> Iterator[World]:
        class Odd(World):
            env = MappingProxyType({"A": 1})  # type: ignore[assignment]

            def evidence(self, last: Any) -> Any:
                return {"seen": object()}

        yield Odd()


@pytest.mark.parametrize(
    ("benchmark", "problem"),
    [
        (Twice(), "2 prompts have the id 'a'"),
        (Empty(), "returned none"),
        (Dicts(), "expected a Prompt"),
        (Random(), "others the second time"),
        (Ungraded(), "there is no grader called 'nobody'"),
        (Speechless(), r"World.env has 'A': 1"),
        (Speechless(), "the evidence cannot be written as JSON"),
    ],
)
def test_a_broken_benchmark_is_named_with_what_is_wrong(benchmark: Any, problem: str) -> None:
    with pytest.raises(AssertionError, match=problem):
        check_benchmark(benchmark)


class Writes(Words):
    @contextmanager
    def world(self, spec: Any, workspace: Path, host: Any) -> Iterator[World]:
        (workspace / "task.txt").write_text(spec.prompt.input)
        yield World()


def test_a_benchmark_that_fills_shared_folders_is_named() -> None:
    check_benchmark(Writes())

    class Careless(Writes):
        needs_workspace = False

    with pytest.raises(AssertionError, match="puts files into the workspace"):
        check_benchmark(Careless())


class Forgetful:
    def map(self, fn: Any, items: Any, lost: Any) -> Iterator[Any]:
        for item in items:
            try:
                yield fn(item)
            except AssayError:
                raise
            except Exception:  # noqa: BLE001
                continue


class Swallows(Forgetful):
    def map(self, fn: Any, items: Any, lost: Any) -> Iterator[Any]:
        for item in items:
            try:
                yield fn(item)
            except Exception as error:  # noqa: BLE001
                yield lost(item, str(error))


class Greedy(Swallows):
    def map(self, fn: Any, items: Any, lost: Any) -> Iterator[Any]:
        return super().map(fn, list(items), lost)


@pytest.mark.parametrize(
    ("executor", "problem"),
    [
        (Forgetful(), "an error of one item is lost"),
        (Swallows(), "did not raise an AssayError"),
        (Greedy(), "took 10000 items before the first result"),
    ],
)
def test_a_broken_executor_is_named_with_what_is_wrong(executor: Any, problem: str) -> None:
    with pytest.raises(AssertionError, match=problem):
        check_executor(executor)
