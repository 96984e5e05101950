"""What a grader thought of one trial."""

from typing import Annotated, Any

import msgspec
from msgspec import UNSET, UnsetType


class Grade(msgspec.Struct, kw_only=True, frozen=True, rename="camel"):
    """A verdict. No grade means not measured; it is never read as zero."""

    pass_: bool = msgspec.field(name="pass")
    score: Annotated[float, msgspec.Meta(ge=0, le=1)]
    reasoning: str | UnsetType = UNSET
    outcome: dict[str, Any] | UnsetType = UNSET
    version: str | UnsetType = UNSET
    """Content hash of the grader that said this."""
