"""pytest: an evaluation as a test, and the fixture `assay`; see docs/python.md.

pytest loads this at every start where Assay is installed: all else is imported when it is used.
"""

import os
import warnings
from collections.abc import Callable, Generator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import assay

if TYPE_CHECKING:
    from assay.library.evaluation import Evaluation
    from assay.library.reading import Trial
    from assay.library.run import Run

_MARKER = (
    "assay(prompts, agent, graders, k, min_pass_rate, against, margin, undecided, **options): run "
    "prompts against an agent before the test, which fails if the pass rate is shown to be too low."
)
_OF_GATE = ("min_pass_rate", "against", "margin")


class Undecided(pytest.fail.Exception):  # type: ignore[misc, name-defined]
    """The trials show neither that the gate is passed nor that it is failed."""


class _Budget:
    """What the evaluations of a session may cost together, and have cost."""

    def __init__(self, limit: float | None) -> None:
        # Workers of pytest-xdist know nothing of each other: each has its share.
        n_workers = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
        self.limit = None if limit is None else limit / n_workers
        self._spent = 0.0

    @property
    def left(self) -> float | None:
        return None if self.limit is None else max(0.0, self.limit - self._spent)

    def counting(self) -> Callable[[Any], None]:
        """Return what takes the progress of a run, and adds what it costs."""
        counted = 0.0

        def count(progress: Any) -> None:
            nonlocal counted
            self._spent += max(0.0, progress.cost_usd - counted)
            counted = max(counted, progress.cost_usd)

        return count


_BUDGET = pytest.StashKey[_Budget]()
_RESULT = pytest.StashKey["tuple[Evaluation, list[Trial]]"]()


class Assay:
    """The fixture `assay`: the functions of the library, within the budget of the session."""

    def __init__(self, request: pytest.FixtureRequest) -> None:
        self._request = request
        self._budget = request.config.stash[_BUDGET]

    def run(self, prompts: Any = None, *, agent: Any, **options: Any) -> "Run":
        """As assay.run."""
        return _run(self._budget, prompts, agent, options)

    def read(self, path: Any) -> Any:
        """As assay.read."""
        return assay.read(path)

    def grade(self, rows: Any, graders: Any, **options: Any) -> Any:
        """As assay.grade."""
        return assay.grade(rows, graders, **options)

    def compare(self, *runs: Any, **options: Any) -> Any:
        """As assay.compare."""
        return assay.compare(*runs, **options)

    @property
    def trials(self) -> "list[Trial]":
        """The trials of the evaluation that the marker of this test names."""
        return self._result[1]

    @property
    def evaluation(self) -> "Evaluation":
        """What the gate of that evaluation said, and where its report is."""
        return self._result[0]

    @property
    def _result(self) -> "tuple[Evaluation, list[Trial]]":
        stash: pytest.Stash = self._request.node.stash
        if _RESULT not in stash:
            pytest.fail("only a test with @pytest.mark.assay(...) has an evaluation", pytrace=False)
        return stash[_RESULT]


@pytest.fixture(name="assay")
def _assay(request: pytest.FixtureRequest) -> Assay:
    """The functions of Assay: run, read, grade, compare; and the trials of a marked test."""
    return Assay(request)


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("assay", "evaluations of agents")
    group.addoption(
        "--assay-max-cost",
        type=float,
        metavar="USD",
        help="Start no more trials once the evaluations of this session have cost this many US "
        "dollars together. Default: no limit.",
    )
    group.addoption(
        "--assay-undecided",
        choices=["fail", "skip"],
        default="fail",
        help="What becomes of an evaluation that decides nothing. Default: fail.",
    )
    group.addoption(
        "--assay-output",
        type=Path,
        metavar="DIR",
        help="Keep trials and reports of evaluations in this folder, and continue those that are "
        "there. Default: pytest's temporary folder.",
    )


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", _MARKER)
    limit = config.getoption("--assay-max-cost")
    if limit is not None and not limit >= 0:
        msg = "--assay-max-cost must be at least 0"
        raise pytest.UsageError(msg)
    config.stash[_BUDGET] = _Budget(limit)


def _run(budget: _Budget, prompts: Any, agent: Any, options: dict[str, Any]) -> "Run":
    left = budget.left
    if left is not None:
        options["max_cost"] = min(left, options.get("max_cost", left))
    run: Run = assay.run(prompts, agent=agent, **options)
    run.on_progress(budget.counting())
    return run


@pytest.hookimpl(wrapper=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> Generator[None, Any, Any]:
    marker = pyfuncitem.get_closest_marker("assay")
    if marker is not None:
        _evaluate(pyfuncitem, marker)
    return (yield)


def _evaluate(item: pytest.Function, marker: pytest.Mark) -> None:
    """Run the evaluation of a test; fail, or say that it is undecided."""
    from assay.library.evaluation import Gate, check_marker, evaluate

    names = ("prompts", "agent")
    options = {**dict(zip(names, marker.args, strict=False)), **marker.kwargs}
    undecided = options.pop("undecided", item.config.getoption("--assay-undecided"))
    budget = item.config.stash[_BUDGET]
    problem = ""
    try:
        check_marker(options, undecided)
        gate = Gate(**{name: options.pop(name) for name in _OF_GATE if name in options})
        gate.check()
        if budget.left == 0.0:
            _leave_open(f"undecided: --assay-max-cost {budget.limit:g} is spent", undecided)
        prompts, agent = options.pop("prompts", None), options.pop("agent")
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            run = _run(budget, prompts, agent, options).to(_folder(item) / "trials.jsonl")
            evaluation, trials = evaluate(run, gate, options.get("k"))
    except assay.AssayError as error:
        problem = f"{error.message}\n  {error.hint}" if error.hint else error.message
    except TypeError as error:  # an option that there is not
        problem = str(error)
    if problem:  # not above: pytest would show both errors
        pytest.fail(problem, pytrace=False)
    for warning in said:
        item.warn(warning.message)  # type: ignore[arg-type]
    item.stash[_RESULT] = evaluation, trials
    if evaluation.report is not None:
        item.user_properties.append(("assay_report", str(evaluation.report)))
    if evaluation.outcome == "fail":
        pytest.fail(str(evaluation), pytrace=False)
    if evaluation.outcome == "undecided":
        _leave_open(str(evaluation), undecided)


def _leave_open(words: str, undecided: str) -> None:
    if undecided == "skip":
        raise pytest.skip.Exception(words, _use_item_location=True)
    raise Undecided(words, pytrace=False)


def _folder(item: pytest.Function) -> Path:
    root: Path | None = item.config.getoption("--assay-output")
    name = "".join(sign if sign.isalnum() else "-" for sign in item.name)[:60]
    if root is not None:
        folder = root / f"{item.path.stem}-{name}"
        folder.mkdir(parents=True, exist_ok=True)
        return folder
    made: Path = item.session.config._tmp_path_factory.mktemp(name)  # type: ignore[attr-defined]
    return made


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if call.excinfo is not None and isinstance(call.excinfo.value, Undecided):
        report.assay_undecided = True  # type: ignore[attr-defined]
    return report


def pytest_report_teststatus(
    report: pytest.TestReport | pytest.CollectReport,
) -> tuple[str, str, tuple[str, dict[str, bool]]] | None:
    if getattr(report, "assay_undecided", False):
        return "undecided", "u", ("UNDECIDED", {"yellow": True})
    return None


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_terminal_summary(terminalreporter: Any) -> Generator[None, None, None]:
    undecided = terminalreporter.getreports("undecided")
    if undecided:
        terminalreporter.write_sep("=", "UNDECIDED")
        for report in undecided:
            terminalreporter.write_sep("_", report.head_line)
            terminalreporter.write_line(report.longreprtext)
    yield
    # Below pytest's own short summary, which knows only its own outcomes.
    for report in undecided if terminalreporter.hasopt("f") else ():
        why = report.longreprtext.partition("\n")[0]
        terminalreporter.write_line(f"UNDECIDED {report.nodeid} - {why}")
