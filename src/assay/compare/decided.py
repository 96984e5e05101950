"""What `trials --until decided` found, kept beside its output for those who report it.

The last look of a plan spends what is left of the error, trials that were running when the
decision fell are in the file but not in the decision, and prompts that changed are set aside: a
later look at the same files would say something else.
"""

import hashlib
from pathlib import Path

import msgspec

from assay.stats.sequential import SequentialDecision


class Consent(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Somebody accepted what a branch changes in prompts and graders."""

    by: str
    changes: list[str]

    @property
    def words(self) -> str:
        """Say who accepted what."""
        return f"accepted by {self.by}: {'; '.join(self.changes)}"


class AnchorDecision(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What the second gate says, against a baseline that merges do not move."""

    name: str
    outcome: str
    words: str
    decision: SequentialDecision


class Worse(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A prompt that passes less often than in the baseline, by more than chance explains."""

    id: str
    before: float
    after: float


class KeptDecision(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A decision, and the contents of the files that it was made from."""

    margin: float
    baseline: str
    fresh: str
    """Hashes of both files: of others the decision says nothing."""
    n_trials: int
    decision: SequentialDecision
    outcome: str = ""
    """Of the gate as a whole: pass, fail or undecided. Files of earlier versions have none."""
    words: str = ""
    """Why, if it is not the decision that says so: an unhealthy measurement, an anchor."""
    against: str = ""
    """The label of the baseline."""
    set_aside: list[str] = []
    """Prompts that changed and were not judged."""
    left_out: list[str] = []
    """Prompts of the baseline that the plan lacks: removed, or not asked for."""
    graders: str = ""
    """How graders differ in text, and what they said of kept answers."""
    consent: Consent | None = None
    anchor: AnchorDecision | None = None
    worse: list[Worse] = []

    @property
    def verdict(self) -> str:
        """The outcome of the gate as a whole."""
        return self.outcome or str(self.decision.outcome)

    @property
    def reason(self) -> str:
        """Say why, as the terminal did."""
        return self.words or self.decision.words


def keep_decision(baseline: Path, fresh: Path, kept: KeptDecision) -> None:
    """Write down a decision, beside the fresh trials."""
    kept = msgspec.structs.replace(kept, baseline=_hash(baseline), fresh=_hash(fresh))
    _place(fresh).write_bytes(msgspec.json.encode(kept) + b"\n")


def kept_decision(baseline: Path, fresh: Path, margin: float) -> KeptDecision | None:
    """Return what was found of exactly these files and this margin, if anything was."""
    kept = kept_for(fresh)
    try:
        same = kept is not None and kept.margin == margin and kept.baseline == _hash(baseline)
    except OSError:
        return None
    return kept if same else None


def kept_for(fresh: Path) -> KeptDecision | None:
    """Return what a gate found of exactly these trials, whatever it compared them with."""
    try:
        kept = msgspec.json.decode(_place(fresh).read_bytes(), type=KeptDecision)
        return kept if kept.fresh == _hash(fresh) else None
    except (OSError, msgspec.MsgspecError):
        return None


def _place(fresh: Path) -> Path:
    return fresh.with_name(f"{fresh.name}.gate.json")


def _hash(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
