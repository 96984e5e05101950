"""What --resume does with the rows of an earlier run: keep, refuse, grade again or run again."""

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

import msgspec
from msgspec import UnsetType

from assay.errors import InputError
from assay.records.capture import NOT_RECORDED, Identity, identity_differences
from assay.records.journal import Journal, RowKey
from assay.records.signatures import user_key
from assay.records.spec import PluginRef, TrialSpec
from assay.records.text import counted_noun
from assay.records.trial import Allocation, Judgement, Trial

FAILED, UNMEASURED = "failed", "unmeasured"
_ANOTHER = "resume with the same prompts and options, or use another -o"


class Resume(msgspec.Struct, frozen=True, kw_only=True):
    """How to continue an earlier run."""

    k: int | None = None
    """How many trials each row must hold; None for rows of one trial."""
    allocation: Mapping[str, Allocation] = {}
    """How many it must hold instead, by the id of the prompt."""
    keep_failed: bool = False
    """Whether rows that do not measure the agent stay; otherwise their trials are run again."""
    keep_unsigned: bool = False
    """Whether rows are believed that Assay did not write as this user, on this machine."""
    rerun: Sequence[str] = ()
    """Trials to run again: failed, unmeasured, or the ids of prompts."""
    can_regrade: bool = True
    """Whether the command has an option to grade rows again."""
    regrade: bool = False
    """Whether rows of other graders, or other versions of them, are graded again."""
    graders: Sequence[PluginRef] = ()
    announce: Callable[[int, int, int], None] = lambda n_again, n_graded, n_regraded: None
    """Called with the number of rows that are run again, graded for once, and graded again."""
    graded: Callable[[Trial], None] = lambda judged: None
    """Called with each finished trial that the graders judged now."""

    def n_trials(self, row_id: str) -> int:
        """Return how many trials the row of a prompt must hold."""
        given = self.allocation.get(row_id)
        return given.trials if given else self.k or 1

    def check_signed(self, journal: Journal) -> None:
        """Refuse rows that somebody else wrote or changed, such as an agent after a kill."""
        # Where no key can be kept, nothing is signed.
        if not self.keep_unsigned and user_key(make=True) and (n := journal.unsigned_rows()):
            verb = "was" if n == 1 else "were"
            msg = (
                f"{journal.path}: {counted_noun(n, 'row')} {verb} not written by Assay as this "
                "user on this machine, or somebody changed them"
            )
            raise InputError(msg, hint="use another -o, or --keep-unsigned if you trust them")

    def check(
        self,
        row_id: str,
        spec_hash: str | None,
        identity: Identity | UnsetType | None,
        spec: TrialSpec,
        path: Path,
    ) -> None:
        """Refuse a row that was made from something else, and say what the difference is."""
        if spec_hash in (None, spec.hash):
            return
        where = f'{path}: row "{row_id}"'
        if not identity or spec.identity is None:
            msg = f"{where} was made by an earlier version of Assay, or from another prompt"
            raise InputError(msg, hint=_ANOTHER)
        found = identity_differences(identity, spec.identity)
        if identity.is_old and not spec.identity.is_old:
            msg = f"{where} cannot be continued: {NOT_RECORDED}"
            raise InputError(msg, hint=_ANOTHER)
        if not found:
            msg = f"{where} was made from another prompt"
            raise InputError(msg, hint=_ANOTHER)
        # A row that no grader has judged loses nothing when these do.
        may_grade = self.regrade or (self._grades(spec) and not identity.graders)
        if may_grade and not identity_differences(_ungraded(identity), _ungraded(spec.identity)):
            return
        hint = _ANOTHER
        if self.can_regrade and all(what.startswith("the grader ") for what in found):
            hint = "use --regrade to grade the finished rows again, or use another -o"
        msg = f"{where} was made with other settings: {'; '.join(found)}"
        raise InputError(msg, hint=hint)

    def check_folder(self, row_id: str, cwd: object, spec: TrialSpec, path: Path) -> None:
        """Refuse a row whose agent worked in another folder, if that is still there.

        One that is gone may have been moved with all that is in it.
        """
        around = spec.surroundings
        if not isinstance(cwd, str) or around.workspace_dir is not None or cwd == around.cwd:
            return
        if os.path.isdir(cwd):  # noqa: PTH112 - any text is survived
            msg = f'{path}: the agent of row "{row_id}" worked in {cwd}, not in {around.cwd}'
            raise InputError(msg, hint="resume with the same -c, or use another -o")

    def grades_again(
        self,
        identity: Identity | UnsetType | None,
        spec: TrialSpec,
        attempts: Callable[[], Iterable[Judgement]],
    ) -> bool:
        """Whether a finished row is put to the graders: to others than it was, or for once, or
        again because one of them failed. attempts returns its trials.
        """
        if not self._grades(spec):
            return False
        if not identity or spec.identity is None or identity.graders == spec.identity.graders:
            return any(attempt.is_ungraded for attempt in attempts())
        return self.regrade or not identity.graders

    def _grades(self, spec: TrialSpec) -> bool:
        return bool(self.graders or spec.graders)

    def replaces(self, key: RowKey) -> bool:
        """Whether some trials of a row are to be run; refuse a row with too many of them."""
        # What the baseline lets expect may have changed since: more trials than planned are kept.
        allocated = key.id in self.allocation
        if self.k is not None and key.k is not None and key.k > self.k and not allocated:
            msg = f'row "{key.id}" has {key.k} trials, more than {self.k}'
            raise InputError(msg, hint=f"resume with -k {key.k} or more, or use another -o")
        too_few = self.k is not None and (key.k or 0) < self.n_trials(key.id)
        return too_few or any(self.runs_again(key.id, attempt) for attempt in key.attempts)

    def runs_again(self, row_id: str, attempt: Judgement) -> bool:
        """Whether a trial is run again although it has finished."""
        if row_id in self.rerun or (FAILED in self.rerun and attempt.is_failed):
            return True
        return attempt.needs_rerun and (not self.keep_failed or UNMEASURED in self.rerun)


def refuse_unknown(rerun: Sequence[str], ids: Sequence[str]) -> None:
    """Raise if a prompt that is to be run again is none of those that are run."""
    known = {FAILED, UNMEASURED, *ids}
    for name in rerun:
        if name not in known:
            msg = f"no prompt of this run has the id {name!r}, which --rerun names"
            raise InputError(msg, hint=f"it has {', '.join(ids[:3])}{', …' if ids[3:] else ''}")


def _ungraded(identity: Identity) -> Identity:
    return msgspec.structs.replace(identity, graders={})
