"""A pooled baseline: trials of many builds of one and the same set-up, in one file of trials."""

import contextlib
import datetime
import hashlib
import re
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from msgspec import UNSET, UnsetType

from assay.compare.builds import BuildSummary, read_builds
from assay.compare.pairs import align, changed_prompts
from assay.compare.report import check_health
from assay.compare.runs import load_run
from assay.errors import InputError, OutputError
from assay.records.capture import NOT_RECORDED, Identity, identity_differences
from assay.records.journal import Journal, changed_rows
from assay.records.rows import (
    Place,
    RowFile,
    Spot,
    decode_line,
    decode_row,
    encode_row,
    open_rows,
)
from assay.records.text import counted_noun
from assay.records.trial import (
    NUMBER,
    PASS_FIELDS,
    Allocation,
    Build,
    PassNumbers,
    Trial,
    TrialResult,
    to_entry,
)
from assay.records.trial.files import detect_kind, is_trials_row
from assay.records.trial.views import JudgedEntry
from assay.stats.drift import Drift
from assay.stats.passk import pass_numbers
from assay.stats.pooled import allocate_trials, trial_spread

_SHORT = 16
_WHOLE = re.compile(rb"(\d)\.0(?=[,}\]])")
_NAMED = 3
_MOST_LACKING = 0.1
"""Of the prompts of a baseline, what a run that is pooled with it may lack."""
_HINT = "give what `assay trials` or `assay capture` wrote with a grader"
_DROPPED = ("raw", "workspaceDir")
"""Of a trial: the raw streams and folders stay with the run."""
_MADE_AGAIN = PASS_FIELDS | {"failures", "allocation"}
type _Content = Counter[bytes]
"""The trials of a build, as hashes."""


class Addition(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What became of one run."""

    label: str
    outcome: str
    """added, started (a new baseline), continued (in place of a build that it contains, because it
    was resumed with more trials), or known (nothing was changed)."""
    n_trials: int = 0
    n_unmeasured: int = 0
    notes: list[str] = []


def add_build(path: Path, label: str, source: Path, *, replace: bool = False) -> Addition:
    """Add the measured trials of a run to the baseline at path, which is started if it is missing.

    A run of another identity is refused; with replace, it starts the baseline again. If no more
    than some prompts changed, only these start again then.
    """
    with _writing(path) as journal, open_rows(source, hint=_HINT) as rows:
        new, old = _Run(label, source, rows), _Pool(path)
        refused = old.differences_from(new)
        again: Collection[str] = ()
        if refused and replace and (changed := old.only_changed(new)):
            again, refused = changed, []
        if refused and not replace:
            msg = f"{source} cannot be pooled with {path}: {'; '.join(refused)}"
            raise InputError(msg, hint="use --replace to start the baseline again with this run")
        _check_health(new)
        outcome, dropped = ("started", set(old.builds)) if refused else old.place_of(new)
        if outcome != "known":
            journal.rewrite(_merged(old, dropped, new, again))
    return Addition(
        label=label,
        outcome=outcome,
        n_trials=0 if outcome == "known" else new.content.total(),
        n_unmeasured=new.n_unmeasured,
        notes=[*(refused or old.notes_on(new, again)), *_changed_note(changed_rows(path))],
    )


def _changed_note(n: int) -> list[str]:
    rows = counted_noun(n, "row")
    return [f"{rows} not as Assay signed them: look, then `assay baseline sign`"] if n else []


class Description(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What a baseline is made of."""

    setup: dict[str, str]
    identity: Identity
    n_prompts: int
    n_trials: int
    fewest_trials: int
    most_trials: int
    """Measured trials of a prompt."""
    builds: list[BuildSummary]
    drift: Drift
    drift_words: str
    problem: str = ""
    """Why nothing can be judged against it, and what to do."""


def describe_baseline(path: Path) -> Description:
    """Read a baseline: what it was made from, its builds, and whether they drift."""
    pool = _Pool(path, must_exist=True)
    assert pool.identity is not None  # a file with rows has one
    run = load_run("baseline", path, "trials", "category")
    builds = read_builds(run)
    assert builds is not None  # _Pool refuses other files
    identity = pool.identity
    agent = identity.adapter
    if agent == "declared":  # a schema file, which has a name of its own
        agent = ", ".join(run.agent_names) or agent
    setup = {"agent": agent, "version": identity.program, "model": identity.model}
    return Description(
        setup={name: value for name, value in setup.items() if value},
        identity=identity,
        n_prompts=len(run.ids),
        n_trials=int(run.n_measured.sum()),
        fewest_trials=int(run.n_measured.min()),
        most_trials=int(run.n_measured.max()),
        builds=builds.summaries,
        drift=builds.drift,
        drift_words=builds.words,
        problem=builds.problem,
    )


def prune_builds(
    path: Path, *, keep: int | None, older_than: datetime.timedelta | None
) -> list[Build]:
    """Remove all builds but the newest, or those that are too old; return what was removed."""
    _Pool(path, must_exist=True)  # before a file is made
    with _writing(path) as journal:
        pool = _Pool(path)
        # Of builds with one date, the one that was added last is the newest.
        last_first = reversed(pool.builds.values())
        newest_first = sorted(last_first, key=lambda build: build.date, reverse=True)
        removed = newest_first[keep:] if keep is not None else []
        if older_than is not None:
            limit = timestamp(datetime.datetime.now(datetime.UTC) - older_than)
            removed = [build for build in newest_first if build.date < limit]
        if removed and len(removed) == len(newest_first):
            msg = f"{path}: all {len(removed)} builds would be removed"
            raise InputError(msg, hint="remove the file itself, or keep some")
        if removed:
            journal.rewrite(_merged(pool, {build.id for build in removed}, None))
    return removed


def sign_baseline(path: Path) -> int:
    """Sign the rows of a baseline as they are now; return how many were not signed."""
    _Pool(path, must_exist=True)
    with _writing(path, trusted=True) as journal, open_rows(path) as file:
        n = journal.unsigned_rows()
        journal.rewrite(line for _, line in file.placed_lines())
    return n


def allocate(path: Path, ids: Sequence[str], mean: int) -> dict[str, Allocation]:
    """Spend `mean` trials a prompt where the results of a baseline, or of any run, vary most."""
    run = load_run(path.stem, path, detect_kind(path), "category")
    if not run.n_measured.any():
        msg = f"{path}: nothing is graded, so that no prompt is known to vary"
        raise InputError(msg, hint="grade it, or leave out --allocate")
    place = {row_id: number for number, row_id in enumerate(run.ids)}
    # Of a prompt that the baseline does not have, nothing was seen.
    known = [
        (run.n_passed[n], run.n_measured[n]) if n is not None else (0, 0)
        for n in map(place.get, ids)
    ]
    passed, measured = np.array(known, dtype=np.int64).reshape(-1, 2).T
    spread = trial_spread(passed, measured)
    trials = allocate_trials(spread, mean)
    return {
        row_id: Allocation(trials=n, mean=mean, spread=round(each, 4))
        for row_id, n, each in zip(ids, trials.tolist(), spread.tolist(), strict=True)
    }


def timestamp(moment: datetime.datetime) -> str:
    """Write a time as dates in a baseline are written."""
    return moment.astimezone(datetime.UTC).isoformat(timespec="seconds").replace("+00:00", "Z")


@contextlib.contextmanager
def _writing(path: Path, *, trusted: bool = False) -> Iterator[Journal]:
    """Be the only writer of a file; one that was not there is not left behind empty.

    What somebody changed is not signed with the rest, unless it is trusted.
    """
    if path.exists() and not path.is_file():
        msg = f"{path}: is not a file"
        raise OutputError(msg, hint="name a file for the baseline")
    existed = path.exists()
    try:
        signed = trusted or not (existed and changed_rows(path))
        with Journal(path, "resume", guarded=False, signed=signed) as journal:
            yield journal
    finally:
        with contextlib.suppress(OSError):
            if not existed and path.stat().st_size == 0:
                path.unlink()


class _TrialView(JudgedEntry):
    output: str = ""
    trajectory: Any = None
    duration: float = 0
    build: Build | None = None

    def digest(self, row_id: str) -> bytes:
        """Hash what the agent did, not how it was graded."""
        did = msgspec.json.encode(
            (row_id, self.output, self.trajectory, self.duration), order="sorted"
        )
        # A row that was read and written again has 86.0 where it had 86.
        return hashlib.sha256(_WHOLE.sub(rb"\1", did)).digest()[:_SHORT]


class _IdView(msgspec.Struct, gc=False):
    id: str


class _RowView(msgspec.Struct, rename="camel"):
    id: str
    trials: list[_TrialView]
    spec_hash: str | None = None
    identity: Identity | None = None


_VIEWS = msgspec.json.Decoder(_RowView)
_IDS = msgspec.json.Decoder(_IdView)
_PIECES = msgspec.json.Decoder(dict[str, msgspec.Raw])
_ENTRIES = msgspec.json.Decoder(list[dict[str, msgspec.Raw]])


class _Rows:
    """The rows of a file as rows of trials; of several with one id the last counts."""

    def __init__(self, file: RowFile) -> None:
        self._file = file
        self.spots: dict[str, Spot] = {}
        for spot, row in file.placed_rows(_IDS):
            self.spots[row.id] = spot

    def line(self, row_id: str) -> bytes:
        spot = self.spots[row_id]
        line, place = self._file.line_at(spot), self._file.place(spot)
        return line if is_trials_row(line) else _as_trials(place, line)

    def views(self) -> Iterator[_RowView]:
        for row_id, spot in self.spots.items():
            yield decode_line(_VIEWS, self._file.place(spot), self.line(row_id), hint=_HINT)


def _as_trials(place: Place, line: bytes) -> bytes:
    """Return a row of capture as a row of trials with a single one."""
    captured, extra = decode_row(place, line, Trial, hint=_HINT)
    of_trial = ("workspaceDir", "evidence")
    row = TrialResult(
        id=captured.id,
        input=captured.input,
        hint=captured.hint,
        k=1,
        trials=[to_entry(captured)],
        metadata={k: v for k, v in captured.metadata.items() if k not in of_trial},
        spec_hash=captured.spec_hash,
        identity=captured.identity,
    )
    return encode_row(row, extra)


class _Run:
    """A run that is to be added: its trials, and what it was made from."""

    def __init__(self, label: str, path: Path, file: RowFile) -> None:
        self.label, self.path = label, path
        self.kind = detect_kind(path)
        self.rows = _Rows(file)
        self.content: _Content = Counter()
        self.n_unmeasured = 0
        self.specs: dict[str, str] = {}
        identities: list[Identity] = []
        for row in self.rows.views():
            if row.identity is None or row.spec_hash is None:
                msg = f'{path}: row "{row.id}" does not say what it was made from'
                raise InputError(msg, hint="run the prompts again with this version of Assay")
            if (identity := _of_run(row.identity)) not in identities:
                identities.append(identity)
            self.specs[row.id] = row.spec_hash
            measured = [trial for trial in row.trials if trial.is_measured]
            self.content.update(trial.digest(row.id) for trial in measured)
            self.n_unmeasured += len(row.trials) - len(measured)
        if len(identities) > 1:
            what = "; ".join(identity_differences(*identities[:2]))
            msg = f"{path}: its rows were not made with the same settings: {what}"
            raise InputError(msg, hint="run the prompts again, with one set-up")
        self.identity = identities[0]
        written = datetime.datetime.fromtimestamp(path.stat().st_mtime, datetime.UTC)
        whole = hashlib.sha256(b"".join(sorted(self.content.elements()))).hexdigest()[:_SHORT]
        self.build = Build(id=whole, label=label, date=timestamp(written))


class _Pool:
    """The baseline as it is: its builds, and what they were made from."""

    def __init__(self, path: Path, *, must_exist: bool = False) -> None:
        self.path = path
        self.rows: dict[str, str] = {}
        """The fingerprint of each prompt."""
        self.builds: dict[str, Build] = {}
        self._contents: dict[str, _Content] = {}
        self.identity: Identity | None = None
        if not must_exist and (not path.exists() or path.stat().st_size == 0):
            return
        with open_rows(path, hint=_HINT) as file:
            for row in _Rows(file).views():
                self._take(row)
        if not self.rows:
            msg = f"{path}: no rows"
            raise InputError(msg, hint="`assay baseline add` starts a baseline")

    def _take(self, row: _RowView) -> None:
        if row.identity is None or row.spec_hash is None or not all(t.build for t in row.trials):
            msg = f'{self.path}: row "{row.id}" is not of a pooled baseline'
            raise InputError(msg, hint="give --to a file that `assay baseline add` may start")
        self.identity = _of_run(row.identity)
        self.rows[row.id] = row.spec_hash
        for trial in row.trials:
            assert trial.build is not None  # checked above
            self.builds[trial.build.id] = trial.build
            self._contents.setdefault(trial.build.id, Counter())[trial.digest(row.id)] += 1

    def differences_from(self, new: _Run) -> list[str]:
        """Say why a run cannot be pooled with these builds."""
        if self.identity is None:
            return []
        if found := identity_differences(self.identity, new.identity):
            return found
        changed, lacks = self._changed_in(new), self._lacked_by(new)
        many = self._lacks_many(new)
        share = f"{len(lacks)} of {counted_noun(len(self.rows), 'prompt')}"
        return [
            *([f"{_named(changed)} changed"] if changed else []),
            *([f"the run lacks {share} of the baseline: {_listed(lacks)}"] if many else []),
        ]

    def only_changed(self, new: _Run) -> list[str]:
        """Return the prompts that changed, if nothing else did and most are as they were."""
        if self.identity is None or identity_differences(self.identity, new.identity):
            return []
        changed = self._changed_in(new)
        few = 2 * len(changed) <= len(self.rows) and not self._lacks_many(new)
        return changed if few else []

    def _lacks_many(self, new: _Run) -> bool:
        return len(self._lacked_by(new)) > _MOST_LACKING * len(self.rows)

    def _changed_in(self, new: _Run) -> list[str]:
        """Return the prompts that are not the same in a run."""
        assert self.identity is not None  # of a pool that has rows
        if self.identity.is_old == new.identity.is_old:
            return [id_ for id_, spec in new.specs.items() if self.rows.get(id_, spec) != spec]
        # An earlier version of Assay made other fingerprints: what rows have of their prompts.
        pool, run = load_run("", self.path, "trials", ""), load_run("", new.path, new.kind, "")
        found = changed_prompts(align([pool, run]), 0, 1)
        return list(dict.fromkeys((*found.inputs, *found.expectations, *found.tasks)))

    def _lacked_by(self, new: _Run) -> list[str]:
        return [id_ for id_ in self.rows if id_ not in new.specs]

    def place_of(self, new: _Run) -> tuple[str, set[str]]:
        """Return what adding a run means, and which builds it takes the place of."""
        if any(new.content <= content for content in self._contents.values()):
            return "known", set()
        contained = {id_ for id_, content in self._contents.items() if content <= new.content}
        if contained:
            return "continued", contained
        return "added" if self.rows else "started", set()

    def notes_on(self, new: _Run, again: Collection[str]) -> list[str]:
        """Say how the prompts of a run differ from those that the baseline had."""
        if not self.rows:
            return []
        missing = self._lacked_by(new)
        more = [id_ for id_ in new.specs if id_ not in self.rows]
        words = {
            "the run lacks": missing,
            "new in the baseline:": more,
            "changed and begun again:": [*again],
        }
        notes = [f"{what} {_named(ids)}" for what, ids in words.items() if ids]
        if self.identity is not None and self.identity.is_old != new.identity.is_old:
            notes.append(f"the baseline and the run: {NOT_RECORDED}")
        return notes


def _of_run(identity: Identity) -> Identity:
    """Return an identity without what the prompt of the row brings along."""
    return msgspec.structs.replace(identity, setup="") if identity.setup else identity


def _named(ids: list[str]) -> str:
    return f"the prompt{'' if len(ids) == 1 else 's'} {_listed(ids)}"


def _listed(ids: list[str]) -> str:
    more = f" and {len(ids) - _NAMED} more" if len(ids) > _NAMED else ""
    return f"{', '.join(ids[:_NAMED])}{more}"


def _check_health(new: _Run) -> None:
    """Refuse a run that is no measurement."""
    run = load_run(new.label, new.path, new.kind, "category")
    health = check_health(align([run]), 0)
    if not health["healthy"]:
        why = "; ".join(health["problems"])
        msg = f"{new.path} is not added: the measurement is unhealthy ({why})"
        raise InputError(
            msg, hint="find out why, run what is missing with --resume, and add it then"
        )


def _merged(
    old: _Pool, dropped: Collection[str], new: _Run | None, again: Collection[str] = ()
) -> Iterator[bytes]:
    """Yield the rows without some builds, and with the trials of a run; memory holds one row.

    Of prompts that begin again only the run's trials stay.
    """
    done: set[str] = set()
    if old.rows:
        with open_rows(old.path) as file:
            rows = _Rows(file)
            for row_id in rows.spots:
                kept = None if row_id in again else _kept(rows.line(row_id), dropped)
                added = new.rows.line(row_id) if new and row_id in new.rows.spots else None
                done.add(row_id)
                if line := _pooled(kept, added, new):
                    yield line
    if new is None:
        return
    for row_id in new.rows.spots:
        if row_id not in done and (line := _pooled(None, new.rows.line(row_id), new)):
            yield line


type _Pieces = dict[str, msgspec.Raw]


def _kept(line: bytes, dropped: Collection[str]) -> tuple[_Pieces, list[_Pieces]]:
    row = _PIECES.decode(line)
    entries = _ENTRIES.decode(row["trials"])
    builds = [msgspec.json.decode(entry["build"], type=Build) for entry in entries]
    both = zip(entries, builds, strict=True)
    return row, [entry for entry, build in both if build.id not in dropped]


def _pooled(
    kept: tuple[_Pieces, list[_Pieces]] | None, added: bytes | None, new: _Run | None
) -> bytes | None:
    """Return the row of a prompt, with its pass rates made again; None if it has no trial."""
    row, entries = kept or (None, [])
    if added is not None and new is not None:
        fresh = _PIECES.decode(added)
        row = fresh if row is None or not entries else row
        entries = entries + _measured_entries(fresh, new.build)
    if row is None or not entries:
        return None
    for number, entry in enumerate(entries, 1):
        entry[NUMBER] = msgspec.Raw(b"%d" % number)
    whole: dict[str, Any] = {k: v for k, v in row.items() if k not in _MADE_AGAIN}
    whole |= {"k": len(entries), "trials": entries, **_numbers(entries)}
    return msgspec.json.encode(whole)


def _measured_entries(row: _Pieces, build: Build) -> list[_Pieces]:
    entries = _ENTRIES.decode(row["trials"])
    views = msgspec.json.decode(row["trials"], type=list[_TrialView])
    mark = msgspec.Raw(msgspec.json.encode(build))
    return [
        {name: value for name, value in entry.items() if name not in _DROPPED} | {"build": mark}
        for entry, view in zip(entries, views, strict=True)
        if view.is_measured
    ]


class _Numbers(PassNumbers, kw_only=True, rename="camel"):
    failures: dict[str, int] | UnsetType


def _numbers(entries: list[_Pieces]) -> _Pieces:
    views = [msgspec.json.decode(msgspec.json.encode(entry), type=_TrialView) for entry in entries]
    failures = Counter(str(view.failure.cause) for view in views if view.failure)
    passes = (UNSET if view.pass_ is None else view.pass_ for view in views)
    made = _Numbers(failures=dict(failures) or UNSET, **pass_numbers(passes))
    return _PIECES.decode(msgspec.json.encode(made))
