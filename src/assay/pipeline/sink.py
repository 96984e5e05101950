"""Where the rows of a command go: a journal that grows row by row, or whoever takes them."""

import contextlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import msgspec

from assay.errors import InputError
from assay.pipeline import stages, trials
from assay.pipeline.resume import Resume
from assay.records.capture import Failure
from assay.records.journal import RESUMABLE, Journal, Kind, Mode, RowKey, replaced_rows
from assay.records.rows import decode_line, encode_row, open_rows, read_lines
from assay.records.spec import TrialSpec

type Write = Callable[[bytes], None]
"""Takes one row, without the end of the line."""


class Sink:
    """Takes finished rows, one at a time."""

    def __init__(
        self,
        journal: Journal | None,
        kind: Kind = "capture",
        resume: Resume | None = None,
        write: Write | None = None,
    ) -> None:
        """With resume, the journal holds rows of an earlier run that was not finished.

        Without a journal, rows are written with write, if there is such a function.
        """
        self._journal = journal
        self._kind = kind
        self._resume = resume
        self._write = write
        self._lost: dict[str, list[Failure]] = {}
        """Of rows that are replaced: the attempts that did not measure the agent."""

    def append(self, line: bytes) -> None:
        """Write one row at once, so that a kill cannot lose it."""
        if self._journal is not None:
            self._journal.append(line)
        elif self._write is not None:
            self._write(line)

    def add(self, spec: TrialSpec, result: msgspec.Struct) -> None:
        """Write the row of a finished trial, with the unknown fields of its prompt's row."""
        result = trials.with_earlier(result, self._lost.get(spec.prompt.id, []))
        self.append(encode_row(result, stages.masked_extra(spec)))

    def settle(self) -> None:
        """Nothing: every finished trial has its row."""

    def missing(
        self, specs: list[TrialSpec], reopen: Callable[[bytes], None] | None = None
    ) -> list[TrialSpec]:
        """The trials that have no row yet, or whose row is to be replaced.

        Rows that were made from something else are refused. Rows to be replaced are removed from
        the output; reopen is given each of them before.
        """
        journal, resume = self._journal, self._resume
        if journal is None or resume is None:
            return specs
        by_id = {spec.prompt.id: spec for spec in specs}
        done: set[str] = set()
        again: set[str] = set()
        outdated: set[str] = set()
        ungraded: set[str] = set()
        for key in journal.rows():
            if key.kind != self._kind:
                msg = f'{journal.path}: row "{key.id}" was written by `assay {key.kind}`'
                raise InputError(msg, hint="continue as the file was begun, or use another -o")
            done.add(key.id)
            if (spec := by_id.get(key.id)) is None:
                continue
            resume.check(key.id, key.spec_hash, key.identity, spec, journal.path)
            for attempt in key.attempts:
                resume.check_folder(key.id, attempt.cwd, spec, journal.path)
            if resume.grades_again(key.identity, spec, partial(getattr, key, "attempts")):
                outdated.add(key.id)
                if not key.identity or not key.identity.graders:
                    ungraded.add(key.id)
            if resume.replaces(key):
                again.add(key.id)
                self._lost[key.id] = trials.lost_attempts(key)
        resume.check_signed(journal)
        if again or outdated:
            finished = outdated - again
            resume.announce(len(again), len(finished & ungraded), len(finished - ungraded))
            journal.rewrite(_rewritten(journal.path, resume, by_id, again, outdated, reopen))
        return [spec for spec in specs if spec.prompt.id not in done or spec.prompt.id in again]


def _rewritten(
    path: Path,
    resume: Resume,
    specs: dict[str, TrialSpec],
    again: set[str],
    outdated: set[str],
    reopen: Callable[[bytes], None] | None,
) -> Iterator[bytes]:
    """Yield the rows that stay, graded again where the grader is another one now."""
    for place, line in read_lines(path):
        row_id = decode_line(_KEYS, place, line).id
        if row_id in outdated and resume.k is not None:
            line = trials.grade_row_again(place, line, specs[row_id], resume)
        elif row_id in outdated - again:
            line = stages.grade_row_again(place, line, specs[row_id], resume)
        if row_id not in again:
            yield line
        elif reopen is not None:
            reopen(line)


_KEYS = msgspec.json.Decoder(RowKey)


def kept_raw(output: Path) -> Iterator[str]:
    """Yield the names of the raw streams that the rows of an output name."""
    if not output.is_file():
        return
    with contextlib.suppress(InputError), open_rows(output) as file:  # it may be anything
        for row in file.rows(msgspec.json.Decoder(_RawView)):
            for entry in (row, *row.trials):
                yield from (Path(each.raw).name for each in (entry, *entry.retried))


def answering_models(output: Path) -> set[str]:
    """Return the models that the rows of an output say answered, also those not yet complete."""
    found: set[str] = set()
    for path in (output, output.with_name(f"{output.name}.partial")):
        if path.is_file():
            with open_rows(path) as file:
                for row in file.rows(msgspec.json.Decoder(_ModelView)):
                    views = (row, *row.trials, *([row.entry] if row.entry else ()))
                    found.update(view.agent.model for view in views if view.agent)
    return found - {""}


class _AgentView(msgspec.Struct, gc=False):
    model: str = ""


class _ModelView(msgspec.Struct, gc=False):
    agent: _AgentView | None = None
    trials: list["_ModelView"] = []
    entry: "_ModelView | None" = None


class _RawView(msgspec.Struct, gc=False):
    raw: str = ""
    retried: list["_RawView"] = []
    trials: list["_RawView"] = []


@contextmanager
def open_sink(
    output: Path | None,
    mode: Mode,
    hint: str = RESUMABLE,
    *,
    kind: Kind = "capture",
    resume: Resume | None = None,
    guarded: bool = True,
    write: Write | None = None,
) -> Iterator[Sink]:
    """Open the output of a command; one that runs no agents need not guard it.

    write takes the rows if there is no output.
    """
    if output is None:
        yield Sink(None, write=write)
        return
    if mode == "replace" and output.is_file():
        with replaced_rows(output) as write:
            yield Sink(None, write=write)
        return
    with Journal(output, mode, hint, guarded=guarded) as journal:
        yield Sink(journal, kind, (resume or Resume()) if mode == "resume" else None)
