"""What `trials --until decided` decided, kept beside its output for those who report it.

The last look of a plan spends what is left of the error, and trials that were running when the
decision fell are in the file but not in the decision: a later look at the same files would say
something else.
"""

import hashlib
from pathlib import Path

import msgspec

from assay.stats.sequential import SequentialDecision


class KeptDecision(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A decision, and the contents of the files that it was made from."""

    margin: float
    baseline: str
    fresh: str
    """Hashes of both files: of others the decision says nothing."""
    n_trials: int
    decision: SequentialDecision


def keep_decision(
    baseline: Path, fresh: Path, margin: float, decision: SequentialDecision, n_trials: int
) -> None:
    """Write down a decision, beside the fresh trials."""
    kept = KeptDecision(
        margin=margin,
        baseline=_hash(baseline),
        fresh=_hash(fresh),
        n_trials=n_trials,
        decision=decision,
    )
    _place(fresh).write_bytes(msgspec.json.encode(kept) + b"\n")


def kept_decision(baseline: Path, fresh: Path, margin: float) -> KeptDecision | None:
    """Return what was decided of exactly these files and this margin, if anything was."""
    try:
        kept = msgspec.json.decode(_place(fresh).read_bytes(), type=KeptDecision)
        files = _hash(baseline), _hash(fresh)
    except (OSError, msgspec.MsgspecError):
        return None
    same = kept.margin == margin and (kept.baseline, kept.fresh) == files
    return kept if same and kept.decision.is_decided else None


def _place(fresh: Path) -> Path:
    return fresh.with_name(f"{fresh.name}.gate.json")


def _hash(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
