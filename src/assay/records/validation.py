"""One line of validation.jsonl: whether a reference solution passes its own graders."""

import msgspec
from msgspec import UNSET, UnsetType

from assay.records.grade import Grade


class Validation(msgspec.Struct, kw_only=True, rename="camel"):
    """The seed's ValidationResult in both its spellings: nested and flat."""

    id: str
    input: str | list[str]
    reference: str
    passes: bool | UnsetType = UNSET
    """Absent where a grader broke: not measured."""
    grader_result: Grade | UnsetType = UNSET
    pass_: bool | UnsetType = msgspec.field(name="pass", default=UNSET)
    score: float | UnsetType = UNSET
    reasoning: str | UnsetType = UNSET
    grades: dict[str, Grade] | UnsetType = UNSET
    """What each grader said, where there are several."""
    no_op: dict[str, Grade] | UnsetType = UNSET
    """What the graders said to answers that must fail: empty, unrelated."""
    wrongly_passes: list[str] | UnsetType = UNSET
    """Those of them that passed: the graders see no difference."""
    grader_failure: str | UnsetType = UNSET
    """How a grader broke on this prompt."""
