"""Give a trial its grades. What could not be measured gets none; it is never a zero."""

from collections.abc import Sequence

import msgspec
from msgspec import UNSET

from assay import plugins
from assay.errors import AssayError, Interrupted
from assay.records.capture import Capture
from assay.records.grade import Grade
from assay.records.trial import PluginRef
from assay.seams import Grader, Host


def grade(trial: Capture, graders: Sequence[PluginRef], host: Host, cwd: str | None) -> Capture:
    """Ask every grader. A broken one is recorded, and the capture is kept."""
    failure = trial.failure
    if not graders or (failure and not failure.cause.measures_agent):
        return trial
    if failure and not failure.answered:
        verdict = Grade(pass_=False, score=0.0, reasoning=f"{failure.cause}: {failure.message}")
        return msgspec.structs.replace(trial, score=verdict)
    grades: dict[str, Grade] = {}
    broken: dict[str, str] = {}
    for ref in graders:
        grader = plugins.grader(ref)
        try:
            grades[grader.name] = _ask(grader, trial, cwd, host)
        except Interrupted:
            raise
        except AssayError as error:
            broken[grader.name] = error.message
        except Exception as error:  # noqa: BLE001 - a user's grader may raise anything
            broken[grader.name] = f"{type(error).__name__}: {error}"
    if broken:
        return msgspec.structs.replace(
            trial,
            grades=grades or UNSET,
            grader_failures=broken,
            errors=[*(trial.errors or []), *broken.values()],
        )
    score = combine(list(grades.values()))
    return msgspec.structs.replace(trial, grades=grades, score=score, outcome=score.outcome)


def combine(grades: Sequence[Grade]) -> Grade:
    """Put grades together: pass if all pass, score the mean."""
    if len(grades) == 1:
        return grades[0]
    said = [g.reasoning for g in grades if g.reasoning]
    outcome = {k: v for g in grades for k, v in (g.outcome or {}).items()}
    return Grade(
        pass_=all(g.pass_ for g in grades),
        score=sum(g.score for g in grades) / len(grades),
        reasoning="; ".join(said) if said else UNSET,
        outcome=outcome or UNSET,
    )


def _ask(grader: Grader, trial: Capture, cwd: str | None, host: Host) -> Grade:
    verdict = grader.grade(trial, cwd, host)
    return msgspec.structs.replace(verdict, version=grader.version)
