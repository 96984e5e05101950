"""One line of summary.jsonl: what was asked, what came out, which tools were used."""

import msgspec
from msgspec import UNSET, UnsetType


class Summary(msgspec.Struct, kw_only=True, rename="camel", gc=False):
    """The seed's SummaryResult; behind it the verdict and the cause, where there is one."""

    id: str
    input: str
    """Turns of a conversation are joined with a line feed."""
    output: str
    tool_calls: list[str]
    duration: int | float
    """Milliseconds from start to end."""
    pass_: bool | UnsetType = msgspec.field(name="pass", default=UNSET)
    score: int | float | UnsetType = UNSET
    cause: str | UnsetType = UNSET
    """Why the trial did not go well; an empty output alone does not say."""
