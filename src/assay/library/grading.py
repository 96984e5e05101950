"""Grade trials again from Python."""

from collections.abc import Iterable
from functools import partial
from os import PathLike
from typing import Any

from assay import functions
from assay.errors import UsageError
from assay.library.checks import check_values, checked_graders
from assay.library.reading import Trial
from assay.library.run import Grader, Run, resolve_grader
from assay.library.trials import Trials, read, rows_of
from assay.library.wording import errors_in_python
from assay.library.worker import UngradedCount, compute
from assay.pipeline.grade import GradeRequest, execute, plan
from assay.records.trial.files import trials_in
from assay.run.background import Send

_TIMEOUT_S = 60.0


@errors_in_python()
def grade(
    rows: str | PathLike[str] | Trials | Run | Iterable[Trial],
    graders: Iterable[Grader],
    *,
    jobs: int = 1,
    grader_timeout_s: float = _TIMEOUT_S,
) -> Trials:
    """Grade trials with these graders, as `assay grade` does; return them with the new grades.

    The file that they come from stays as it is. A grader that is a Python function takes the trial,
    or by name any of input, output, hint, trajectory, metadata, cwd and reference. It returns True
    or False; a score from 0 to 1, which passes from 0.5 on; a Grade; or a dict with "pass", "score"
    and "reasoning". It is called in a process of its own, and ended after grader_timeout_s.

    Args:
        rows: A file, or what assay.read, assay.run or assay.grade returned; or some trials of it.
        graders: As for assay.run.
        jobs: How many trials are graded at once.
        grader_timeout_s: Time limit for grading one trial.
    """
    check_values(jobs=jobs, grader_timeout_s=grader_timeout_s)
    given = checked_graders(graders)
    if not given:
        msg = "there is no grader"
        raise UsageError(msg, hint='give at least one, as in graders=["contains"]')
    if isinstance(rows, str | PathLike):
        rows = read(rows)
    trials = trials_given(rows)
    known = functions.by_key(grader for grader in given if callable(grader))

    work = partial(_grade, trials, given, grader_timeout_s, jobs)
    lines: list[Any] = compute(work, known)
    ungraded = UngradedCount()
    for line in lines:
        for trial in trials_in(line, trials.source):
            ungraded.add(trial)
    ungraded.say()
    return Trials([(trials.source, line) for line in lines], trials.source, trials.file)


def _grade(
    trials: Trials, graders: list[Grader], timeout_s: float, jobs: int, _: Send
) -> list[bytes]:
    """Grade the trials, in a process of its own."""
    request = GradeRequest(
        lines=trials.lines,
        graders=[resolve_grader(grader, timeout_s) for grader in graders],
        grader_timeout_s=timeout_s,
        jobs=jobs,
    )
    return [row.line for some in execute(plan(request), list) for row in some]


def trials_given(rows: Any) -> Trials:
    """Return the trials that an argument stands for."""
    if isinstance(rows, Trials):
        return rows
    if isinstance(rows, Run):
        return rows.collect()
    if isinstance(rows, Trial):
        rows = [rows]
    found = list(rows) if isinstance(rows, Iterable) else []
    if not found or not all(isinstance(one, Trial) for one in found):
        kind = type(rows).__name__
        msg = f"rows is of type {kind}; give a file, or what assay.read or run returned"
        raise UsageError(msg)
    return Trials([("trials", line) for line in rows_of(found)], "trials")
