"""What formats of others have no place for, so that exports lose nothing."""

from collections.abc import Set as AbstractSet
from typing import Any

import msgspec

from assay.records.trial import Trial


def leftovers(trial: Trial, placed: AbstractSet[str]) -> dict[str, Any]:
    """Return the fields of a trial's row, as on disk, that a format has not placed elsewhere."""
    row = msgspec.to_builtins(msgspec.structs.replace(trial, trajectory=[]))
    known = {key: value for key, value in row.items() if value not in (None, [], {})}
    return {key: value for key, value in known.items() if key not in placed | {"trajectory"}}
