"""Ask the graders about a trial. A broken grader is recorded; it never takes the trial with it."""

from collections.abc import Sequence

import msgspec
from msgspec import UNSET

from assay import plugins
from assay.errors import AssayError, Interrupted
from assay.records.failure import Failure
from assay.records.grade import Grade
from assay.records.trial import PluginRef
from assay.seams import Grader, Host, Trial


class Verdict(msgspec.Struct, kw_only=True):
    """What all graders together said. No score means not measured; it is never a zero."""

    score: Grade | None = None
    grades: dict[str, Grade] = {}
    broken: dict[str, str] = {}
    """Graders that failed, and how."""


def judge(
    trial: Trial, failure: Failure | None, graders: Sequence[PluginRef], host: Host
) -> Verdict:
    """Ask every grader, unless the trial's failure has decided already."""
    if not graders:
        return Verdict()
    return decided(failure) or ask_all([plugins.grader(ref) for ref in graders], trial, host)


def decided(failure: Failure | None) -> Verdict | None:
    """Give the verdict that a failure leaves, None when the graders are to be asked.

    A failure that does not measure the agent leaves the trial without a grade; one that does,
    and left no answer, counts against the agent without asking.
    """
    if failure is None or (failure.answered and failure.cause.measures_agent):
        return None
    if not failure.cause.measures_agent:
        return Verdict()
    reasoning = f"not graded, {failure.cause}: {failure.message}"
    return Verdict(score=Grade(pass_=False, score=0.0, reasoning=reasoning))


def ask_all(graders: Sequence[Grader], trial: Trial, host: Host) -> Verdict:
    """Ask every grader; one that breaks is noted and leaves the trial without a score."""
    grades: dict[str, Grade] = {}
    broken: dict[str, str] = {}
    for grader in graders:
        name = grader.name
        if name in grades or name in broken:
            name = _free_name(name, grades, broken)
        try:
            verdict = grader.grade(trial, host)
            grades[name] = msgspec.structs.replace(verdict, version=grader.version)
        except Interrupted:
            raise
        except AssayError as error:
            broken[name] = error.message
        except Exception as error:  # noqa: BLE001 - a user's grader may raise anything
            broken[name] = f"{type(error).__name__}: {error}".encode(errors="replace").decode()
    if broken or not grades:
        return Verdict(grades=grades, broken=broken)
    return Verdict(score=combine(tuple(grades.values())), grades=grades)


def combine(grades: Sequence[Grade]) -> Grade:
    """Put grades together: pass if all pass, score the mean."""
    if len(grades) == 1:
        return grades[0]
    said = [g.reasoning for g in grades if g.reasoning]
    outcome = {key: value for g in grades for key, value in (g.outcome or {}).items()}
    return Grade(
        pass_=all(g.pass_ for g in grades),
        score=sum(g.score for g in grades) / len(grades),
        reasoning="; ".join(said) if said else UNSET,
        outcome=outcome or UNSET,
    )


def _free_name(name: str, *taken: dict[str, object] | dict[str, Grade] | dict[str, str]) -> str:
    """Two graders of one name are told apart by a number."""
    number, free = 1, name
    while any(free in names for names in taken):
        number += 1
        free = f"{name}-{number}"
    return free
