"""Ask the graders about trials, fresh ones or rows that are on disk already."""

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from itertools import groupby, tee
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
from msgspec import UNSET

from assay import plugins, stats
from assay.errors import AssayError, InputError
from assay.pipeline.loaded import CODE, Loader
from assay.plugin import Grader, Host, Trial
from assay.records.capture import Failure, Grade, Identity
from assay.records.files import hash_file, short_hash
from assay.records.rows import (
    UNREADABLE,
    Place,
    explain,
    refuse_other_bytes,
)
from assay.records.spec import PluginRef, hash_with_graders
from assay.records.trial import PASS_FIELDS, PassNumbers, Verdict, said_turns
from assay.records.trial.files import is_trials_row, split_trials
from assay.records.trial.verdict import entry_with_verdict, line_with_verdict, value_of
from assay.records.trial.views import AnyIdView, GradingView
from assay.run.notes import folder_of_row, read_note
from assay.run.snapshot import note_tree
from assay.run.treatment import without_treatment
from assay.run.workspace import our_secrets


def judge(
    trial: Trial, failure: Failure | None, graders: Sequence[PluginRef], host: Host
) -> Verdict:
    """Ask every grader, unless the trial's failure decides the verdict."""
    if not graders:
        return Verdict()
    verdict = decided(failure)
    if verdict is None:
        (verdict,) = ask_graders([plugins.grader(ref) for ref in graders], [trial], host)
    return verdict


def decided(failure: Failure | None) -> Verdict | None:
    """Return the verdict that follows from a failure, None when the graders are to be asked.

    A failure that does not measure the agent leaves the trial without a grade; one that does,
    and left no answer, counts against the agent without asking.
    """
    if failure is None or failure.is_gradable:
        return None
    if not failure.cause.measures_agent:
        return Verdict()
    reasoning = f"not graded, {failure.cause}: {failure.message}"
    return Verdict(score=Grade(pass_=False, score=0.0, reasoning=reasoning))


def ask_graders(
    graders: Sequence[Grader], trials: Iterable[Trial], host: Host
) -> Iterator[Verdict]:
    """Yield the verdict on each trial as soon as every grader has judged it.

    A grader that fails is noted and leaves the trial without a score.
    """
    named = list(zip(_names(graders), graders, strict=True))
    copies = tee(trials, len(graders)) if len(graders) > 1 else (trials,)
    answers = [g.grade_many(each, host) for g, each in zip(graders, copies, strict=True)]
    if len(graders) == 1:
        yield from _verdicts_of_one(*named[0], answers[0])
        return
    for results in zip(*answers, strict=True):
        grades: dict[str, Grade] = {}
        broken: dict[str, str] = {}
        for (name, grader), grade in zip(named, results, strict=True):
            if isinstance(grade, Grade):
                grades[name] = _replace(grade, version=grader.version)
            else:
                broken[name] = _message(grade)
        if broken:
            yield Verdict(grades=grades, broken=broken)
        else:
            yield Verdict(score=combine(tuple(grades.values())), grades=grades)


def _verdicts_of_one(
    name: str, grader: Grader, answers: Iterator[Grade | Exception]
) -> Iterator[Verdict]:
    """Yield the verdicts of a single grader; in half the time that it takes for several."""
    version = grader.version
    for grade in answers:
        if isinstance(grade, Grade):
            final = _replace(grade, version=version)
            score = final if final.usage is UNSET else _replace(final, usage=UNSET)
            yield Verdict(score=score, grades={name: final})
        else:
            yield Verdict(broken={name: _message(grade)})


def _message(error: Exception) -> str:
    if isinstance(error, AssayError):
        return error.message
    # A lone surrogate in the text could not be written as JSON.
    return f"{type(error).__name__}: {error}".encode(errors="replace").decode()


def combine(grades: Sequence[Grade]) -> Grade:
    """Combine grades: pass if all pass; the score is the mean."""
    if len(grades) == 1:
        return grades[0]
    reasons = [g.reasoning for g in grades if g.reasoning]
    outcome = {key: value for g in grades for key, value in (g.outcome or {}).items()}
    return Grade(
        pass_=all(g.pass_ for g in grades),
        score=sum(g.score for g in grades) / len(grades),
        reasoning="; ".join(reasons) if reasons else UNSET,
        outcome=outcome or UNSET,
    )


def _names(graders: Sequence[Grader]) -> list[str]:
    """Return the graders' names; a repeated name gets a number."""
    names: list[str] = []
    for grader in graders:
        number, name = 1, grader.name
        while name in names:
            number += 1
            name = f"{grader.name}-{number}"
        names.append(name)
    return names


def grader_versions(graders: Sequence[Grader]) -> dict[str, str]:
    """Return the version of each grader under the name that its grades have.

    Of a script, also of the scripts and modules that it starts in turn: a grader that is a program
    knows only the files beside it that it names.
    """
    versions = {name: g.version for name, g in zip(_names(graders), graders, strict=True)}
    for name, grader in zip(versions, graders, strict=True):
        if loads := _loaded_by([Path(file) for file in grader.files][:1]):
            versions[name] = f"{versions[name]}+{loads}"
    return versions


_PYTHON = (".py", ".js", ".mjs", ".cjs", ".ts", ".mts")
"""Scripts whose imports their graders follow themselves."""


def _loaded_by(scripts: Sequence[Path]) -> str:
    """Hash the code that a script loads; empty if it loads none."""
    hashes: list[str] = []
    for script in scripts:
        if script.suffix not in _PYTHON:
            loader = Loader(script.parent, os.environ)
            loader.script(script)
            files = loader.found().files
            hashes += sorted(files[name] for name in files if Path(name).suffix in CODE)
            hashes = [one for one in hashes if one != hash_file(script)]
    return short_hash(msgspec.json.encode(hashes))[:6] if hashes else ""


class _Signature:
    """Puts the graders into the identity of rows that have one."""

    def __init__(self, graders: Sequence[Grader]) -> None:
        self._graders = grader_versions(graders)
        self._known: dict[bytes, bytes] = {}

    def put(self, line: bytes, row: GradingView) -> bytes:
        """Return the line as if these graders had judged it from the start."""
        old = bytes(row.identity)
        new = self.signed(old)
        if new is None:
            return line
        line = _replaced(line, b'"identity":', old, new)
        if row.spec_hash:
            changed = self.hash(row.spec_hash)
            line = _replaced(line, b'"specHash":', _encode(row.spec_hash), _encode(changed))
        return line

    def signed(self, identity: bytes) -> bytes | None:
        """Return an identity with these graders; None if it cannot be read."""
        new = self._known.get(identity)
        if new is None:
            try:
                old = msgspec.json.decode(identity, type=Identity)
            except UNREADABLE:
                return None
            new = self._known[identity] = _encode(_replace(old, graders=self._graders))
        return new

    def hash(self, spec_hash: str) -> str:
        """Return the fingerprint of a trial that these graders have judged."""
        return hash_with_graders(spec_hash, self._graders)


def _replaced(line: bytes, key: bytes, old: bytes, new: bytes) -> bytes:
    """Replace a value; ours is the last, what an agent did stands before it."""
    at = line.rfind(key + old)
    if at < 0 or old == new:
        return line
    at += len(key)
    return line[:at] + new + line[at + len(old) :]


_NONE = msgspec.Raw()


class GradedRow(NamedTuple):
    """A line with its verdict in it; a row of trials has one for each of them."""

    line: bytes
    id: Any
    verdict: Verdict
    trials: Sequence[Verdict] | None = None
    is_graded: bool = True
    """Whether there was any grader for it."""

    @property
    def verdicts(self) -> Sequence[Verdict]:
        """The verdicts on all trials of the row."""
        return [self.verdict] if self.trials is None else self.trials


_ROW = msgspec.json.Decoder(GradingView)
_ID = msgspec.json.Decoder(AnyIdView)
_ANY = msgspec.json.Decoder(dict[str, Any])
_STEPS = msgspec.json.Decoder(list[Any] | None)
_METADATA = msgspec.json.Decoder(dict[str, Any] | None)
_PIECES = msgspec.json.Decoder(dict[str, msgspec.Raw])
_encode = msgspec.json.Encoder().encode
_replace = msgspec.structs.replace


type BatchGrader = Callable[[Iterable[tuple[Place, bytes]]], Iterator[GradedRow]]
"""Grades lines and yields them in order."""


type Own = Callable[[Place, bytes], Sequence[PluginRef]]
type Ask = Callable[[Sequence[Grader], Iterable[Trial], Host], Iterator[Verdict]]
"""Asks graders about trials, as ask_graders does."""
type Elsewhere = Callable[[Sequence[PluginRef]], Ask]
"""Returns what asks these graders on other machines."""


def batch_grader(
    graders: Sequence[PluginRef],
    host: Host,
    own: Own | None,
    elsewhere: Elsewhere | None = None,
) -> BatchGrader:
    """Return what puts rows to these graders, and to those that own returns for a row."""

    def make(refs: Sequence[PluginRef]) -> BatchGrader:
        ask = ask_graders if elsewhere is None else elsewhere(refs)
        return _BatchGrader([plugins.grader(ref) for ref in refs], host, ask)

    return make(graders) if own is None else _OwnGrader(graders, own, make)


class _OwnGrader:
    """Puts each row to the graders of all rows and to those of its own.

    Rows in a row that have the same are put to them together.
    """

    def __init__(
        self,
        graders: Sequence[PluginRef],
        own: Own,
        make: Callable[[Sequence[PluginRef]], BatchGrader],
    ) -> None:
        self._graders = graders
        self._own = own
        self._make = make
        self._known: dict[bytes, BatchGrader] = {}

    def __call__(self, batch: Iterable[tuple[Place, bytes]]) -> Iterator[GradedRow]:
        for own, rows in groupby(batch, lambda row: tuple(self._own(*row))):
            key = _encode(own)
            if key not in self._known:
                refs = [*self._graders, *own]
                self._known[key] = self._make(refs) if refs else _ungraded
            yield from self._known[key](rows)


def _ungraded(batch: Iterable[tuple[Place, bytes]]) -> Iterator[GradedRow]:
    """Yield rows as they are: nobody judges them."""
    for place, line in batch:
        try:
            row_id = _ID.decode(line).id
        except UNREADABLE as error:
            raise _unreadable(place, line, error) from error
        yield GradedRow(line.strip(), row_id, Verdict(), is_graded=False)


class _BatchGrader:
    def __init__(self, graders: Sequence[Grader], host: Host, ask: Ask = ask_graders) -> None:
        self._graders = graders
        self._host = host
        self._ask = ask
        self._secrets = our_secrets()
        self._signature = _Signature(graders)
        self._said: list[str] = []
        """What graders said last that holds no secret: many say the same about many trials."""
        # A grader that does not say which fields it reads may read all of them.
        seen = [grader.sees for grader in graders]
        self._sees_all = any(names is None for names in seen)
        sees = {name for names in seen for name in names or ()}
        self._sees_metadata = self._sees_all or bool(sees & {"metadata", "cwd", "evidence"})
        self._sees_steps = self._sees_all or "trajectory" in sees

    def __call__(self, batch: Iterable[tuple[Place, bytes]]) -> Iterator[GradedRow]:
        """Yield each row as soon as it is graded; raise at one that cannot be read."""
        with ExitStack() as hiding:
            yield from self._graded(batch, hiding)

    def _graded(
        self, batch: Iterable[tuple[Place, bytes]], hiding: ExitStack
    ) -> Iterator[GradedRow]:
        rows: _Waiting = deque()
        unreadable: list[InputError] = []
        trials = self._shown(self._trials(batch, rows, unreadable), hiding)
        has_secrets = bool(self._secrets.longest)
        for verdict in self._ask(self._graders, trials, self._host):
            if rows[0][2] is not None:
                yield from _decided_rows(rows)
            line, row, _, whole = rows.popleft()
            if has_secrets:
                verdict = self._masked(verdict)
            if whole is None:
                yield GradedRow(line_with_verdict(line, row, verdict), row.id, verdict)
            elif whole.add(row, verdict):
                yield whole.graded()
        yield from _decided_rows(rows)
        for error in unreadable:
            raise error

    def _trials(
        self,
        batch: Iterable[tuple[Place, bytes]],
        rows: "_Waiting",
        unreadable: list[InputError],
    ) -> Iterator[Trial]:
        """Yield what the graders are asked about, in the order of the rows; stop at an error."""
        for place, line, whole in self._each(batch, unreadable):
            try:
                row = _ROW.decode(line)
                verdict = decided(row.failure) if row.failure is not None else None
                trial = self._trial(row, line) if verdict is None else None
            except UNREADABLE as error:
                unreadable.append(_unreadable(place, line, error))
                return
            if row.identity and whole is None:
                line = self._signature.put(line, row)
            rows.append((line, row, verdict, whole))
            if trial is not None:
                yield trial

    def _each(
        self, batch: Iterable[tuple[Place, bytes]], unreadable: list[InputError]
    ) -> "Iterator[tuple[Place, bytes, _TrialsRow | None]]":
        """Yield the rows; of a row of trials each trial, and what puts them together again."""
        for place, line in batch:
            if not is_trials_row(line):
                yield place, line, None
                continue
            try:
                trials = split_trials(place, line)
                whole = _TrialsRow(line, self._signature)
            except InputError as error:
                unreadable.append(error)
                return
            except UNREADABLE as error:
                unreadable.append(_unreadable(place, line, error))
                return
            for trial in trials:
                yield place, trial, whole

    def _shown(self, trials: Iterable[Trial], hiding: ExitStack) -> Iterator[Trial]:
        """Yield the trials; what an experiment put into their workspaces is not there meanwhile."""
        for trial in trials:
            note = read_note(Path(trial.cwd)) if trial.cwd else None
            if note is not None and note.added and trial.cwd:
                note_tree(trial.cwd)
                hiding.enter_context(without_treatment(trial.cwd, note.added))
            yield trial

    def _masked(self, verdict: Verdict) -> Verdict:
        """Mask secrets in what graders said; texts are looked at first, as nearly all have none."""
        said = list(verdict.broken.values())
        for grade in verdict.grades.values():
            said.append(grade.reasoning or "")
            if grade.outcome:
                return self._secrets.mask_record(verdict)
        if said == self._said or not self._secrets.occur_in(
            "\n".join(said).encode(errors="replace")
        ):
            self._said = said
            return verdict
        return self._secrets.mask_record(verdict)

    def _trial(self, row: GradingView, line: bytes) -> Trial:
        """Decode only what some grader reads."""
        metadata: dict[str, Any] = {}
        cwd = None
        steps: list[Any] = []
        if self._sees_metadata:
            metadata = _METADATA.decode(row.metadata or b"null") or {}
            folder = row.cwd or metadata.get("workspaceDir")
            raw = row.raw if isinstance(row.raw, str) else None
            cwd = folder_of_row(folder, raw) if isinstance(folder, str) else None
        if self._sees_steps:
            steps = _STEPS.decode(row.trajectory or b"null") or []
        return Trial(
            input=[*said_turns(row.input, row.simulated_user)] if row.simulated_user else row.input,
            output=row.output,
            hint=row.hint,
            trajectory=steps,
            metadata=metadata,
            cwd=cwd,
            reference=row.reference,
            row=_ANY.decode(line) if self._sees_all else {},
        )


type _Waiting = "deque[tuple[bytes, GradingView, Verdict | None, _TrialsRow | None]]"
"""Rows that are not graded yet, with a verdict that needs no grader, and the row of trials that
they belong to."""


def _decided_rows(rows: _Waiting) -> Iterator[GradedRow]:
    """Take the rows from the front whose verdict needs no grader."""
    while rows and (verdict := rows[0][2]) is not None:
        line, row, _, whole = rows.popleft()
        if whole is None:
            yield GradedRow(line_with_verdict(line, row, verdict), row.id, verdict)
        elif whole.add(row, verdict):
            yield whole.graded()


class _TrialsRow:
    """A row of `assay trials` whose trials are graded one by one."""

    def __init__(self, line: bytes, signature: _Signature) -> None:
        self._row = _PIECES.decode(line)
        self._entries: list[dict[str, msgspec.Raw]] = msgspec.json.decode(
            self._row["trials"], type=list[dict[str, msgspec.Raw]]
        )
        self._signature = signature
        self._verdicts: list[Verdict] = []

    def add(self, row: GradingView, verdict: Verdict) -> bool:
        """Take the verdict on the next trial; return whether it was the last."""
        entry = self._entries[len(self._verdicts)]
        self._entries[len(self._verdicts)] = entry_with_verdict(entry, row, verdict)
        self._verdicts.append(verdict)
        return len(self._verdicts) == len(self._entries)

    def graded(self) -> GradedRow:
        """Return the row with its pass rates made again."""
        scores = [verdict.score for verdict in self._verdicts]
        numbers = PassNumbers(**stats.passk.pass_numbers(s.pass_ if s else UNSET for s in scores))
        new = _PIECES.decode(_encode(numbers))
        row: dict[str, Any] = {
            k: v for k, v in self._row.items() if k not in PASS_FIELDS or k in new
        }
        row |= {**new, "trials": self._entries}
        if signed := self._signature.signed(bytes(row.get("identity") or b"")):
            row["identity"] = msgspec.Raw(signed)
            if isinstance(spec_hash := value_of(row.get("specHash") or _NONE), str):
                row["specHash"] = self._signature.hash(spec_hash)
        row_id = value_of(row.get("id") or _NONE)
        return GradedRow(_encode(row), row_id, Verdict(), self._verdicts)


def _unreadable(place: Place, line: bytes, error: Exception) -> InputError:
    try:
        refuse_other_bytes(place, line)
    except InputError as other:
        return other
    msg = f"{place}: {explain(error)}"
    if not isinstance(error, msgspec.ValidationError):
        return InputError(msg)
    hint = "assay grade reads the output of `assay capture`, `assay trials` and `assay extract`"
    return InputError(msg, hint=hint)
