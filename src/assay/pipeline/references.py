"""Ask the graders about a prompt's own reference, and about answers that must fail."""

import msgspec
from msgspec import UNSET

from assay.records.reports import Validation
from assay.records.spec import Prompt
from assay.records.trial import Verdict

REFERENCE, EMPTY, UNRELATED = "reference", "empty", "unrelated"
_UNRELATED_TEXTS = (
    "The quick brown fox jumps over the lazy dog.",
    "Heavy rain is expected along the coast by late afternoon.",
    "Our library opens at nine and closes at six on weekdays.",
)


def answers(prompt: Prompt, *, no_op: bool) -> dict[str, str]:
    """Return the answers to ask the graders about, by name; the reference comes first."""
    reference = prompt.reference or ""
    asked = {REFERENCE: reference}
    if no_op and reference.strip():
        asked[EMPTY] = ""
    if no_op:
        hint = (prompt.hint or "").casefold()  # none that has the hint by chance
        fit = [text for text in _UNRELATED_TEXTS if not hint or hint not in text.casefold()]
        asked[UNRELATED] = (fit or list(_UNRELATED_TEXTS))[0]
    return asked


def answer_row(prompt: Prompt, answer: str) -> bytes:
    """Return the row of a trial in which an agent gave this answer."""
    row = {
        "id": prompt.id,
        "input": prompt.input,
        "output": answer,
        "hint": prompt.hint,
        "trajectory": [],
        "reference": prompt.reference,
    }
    return msgspec.json.encode(row | ({"metadata": prompt.metadata} if prompt.metadata else {}))


def validation(prompt: Prompt, verdicts: dict[str, Verdict]) -> Validation:
    """Combine the verdicts on each answer of one prompt."""
    verdict = verdicts[REFERENCE]
    score = verdict.score
    no_op = {
        name: other.score for name, other in verdicts.items() if name != REFERENCE and other.score
    }
    return Validation(
        id=prompt.id,
        input=prompt.input,
        reference=prompt.reference or "",
        passes=score.pass_ if score else UNSET,
        grader_result=score or UNSET,
        pass_=score.pass_ if score else UNSET,
        score=score.score if score else UNSET,
        reasoning=score.reasoning if score else UNSET,
        grades=verdict.grades if len(verdict.grades) > 1 else UNSET,
        no_op=no_op or UNSET,
        wrongly_passes=[name for name, grade in no_op.items() if grade.pass_] or UNSET,
        grader_failure=_broken(verdicts),
    )


def _broken(verdicts: dict[str, Verdict]) -> str | msgspec.UnsetType:
    failures = [
        f"{grader}, asked about the {name} answer: {why}"
        if name != REFERENCE
        else f"{grader}: {why}"
        for name, verdict in verdicts.items()
        for grader, why in verdict.broken.items()
    ]
    return "; ".join(failures) if failures else UNSET
