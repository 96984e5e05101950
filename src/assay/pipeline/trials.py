"""Combine the trials of a prompt into its row; keep finished ones until it is complete."""

import contextlib
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import msgspec
from msgspec import UNSET

from assay import plugins
from assay.errors import InputError, OutputError
from assay.pipeline.extract import ENDED_EARLY
from assay.pipeline.grading import earlier_grades, pass_numbers
from assay.pipeline.resume import Resume
from assay.pipeline.stages import judge_again
from assay.records.capture import Capture, FinishedTrial, TrialEntry, TrialResult
from assay.records.journal import Attempt, Journal, Mode
from assay.records.rows import Place, decode_row, encode_row, read_lines
from assay.records.spec import PluginRef, TrialSpec
from assay.run.workspace import our_secrets

_OWN = {"score", "metadata"}
_SHARED = (set(TrialEntry.__struct_fields__) & set(Capture.__struct_fields__)) - _OWN


def trial_entry(number: int, captured: Capture) -> TrialEntry:
    """Make one entry of what capture would have written for this trial."""
    entry = TrialEntry(
        trial_num=number,
        duration=captured.timing.total,
        first_response=captured.timing.first_response,
        workspace_dir=captured.metadata.get("workspaceDir", UNSET),
        **{name: getattr(captured, name) for name in _SHARED},
    )
    own = {name: captured.metadata.get(name) for name in ("evidence", ENDED_EARLY)}
    if any(own.values()):
        entry.metadata = {name: value for name, value in own.items() if value}
    if captured.score:
        grade = captured.score
        entry.pass_, entry.score, entry.reasoning = grade.pass_, grade.score, grade.reasoning
    return entry


def trial_result(spec: TrialSpec, entries: Sequence[TrialEntry], *, graded: bool) -> TrialResult:
    """Combine all trials of one prompt into its row, with pass rates if there was a grader."""
    prompt, workspaces = our_secrets().mask_record(spec.prompt), spec.surroundings.workspace_dir
    about = {"agent": plugins.adapter(spec.agent).name}
    if workspaces is not None:
        about["workspaceDir"] = workspaces
    failures = Counter(str(entry.failure.cause) for entry in entries if entry.failure)
    result = TrialResult(
        id=prompt.id,
        input=prompt.input,
        hint=prompt.hint or UNSET,
        k=len(entries),
        trials=sorted(entries, key=lambda entry: entry.trial_num),
        metadata={**prompt.metadata, **about},
        failures=dict(failures) or UNSET,
        spec_hash=spec.hash,
        identity=spec.identity or UNSET,
    )
    if graded:
        for name, value in pass_numbers(entry.pass_ for entry in result.trials).items():
            setattr(result, name, value)
    return result


def grade_row_again(place: Place, line: bytes, spec: TrialSpec, resume: Resume) -> bytes:
    """Return a row of trials with the verdicts of other graders, and its pass rates made again."""
    row, extra = decode_row(place, line, TrialResult)
    entries = [grade_entry_again(spec, entry, resume.graders) for entry in row.trials]
    for entry in entries:
        if not resume.runs_again(row.id, *_attempts(entry)):
            resume.graded(entry)
    graded = trial_result(spec, entries, graded=True)
    kept = msgspec.structs.replace(graded, metadata=row.metadata, allocation=row.allocation)
    return encode_row(kept, extra)


def grade_entry_again(
    spec: TrialSpec, entry: TrialEntry, graders: Sequence[PluginRef]
) -> TrialEntry:
    """Return one trial with the verdict of other graders."""
    verdict, changes = judge_again(spec, entry, graders)
    grade = verdict.score
    return msgspec.structs.replace(
        entry,
        pass_=grade.pass_ if grade else UNSET,
        score=grade.score if grade else UNSET,
        reasoning=grade.reasoning if grade else UNSET,
        outcome=grade.outcome if grade else UNSET,
        grades=verdict.grades or UNSET,
        earlier_grades=earlier_grades(entry, verdict.grades) or UNSET,
        grader_failures=verdict.broken or UNSET,
        warnings=[*(entry.warnings or []), *changes] or UNSET,
    )


class TrialSink(Protocol):
    """Where the rows of trials go."""

    def missing(self, specs: list[TrialSpec], reopen: Callable[[bytes], None]) -> list[TrialSpec]:
        """Return the trials whose row is missing; reopen gets rows that are not complete."""
        ...

    def add(self, spec: TrialSpec, result: TrialResult) -> None:
        """Save the row of a prompt."""
        ...


class TrialRows:
    """Keeps finished trials until their prompt is complete; a kill -9 loses none of them."""

    def __init__(
        self,
        rows: TrialSink,
        output: Path | None,
        mode: Mode,
        resume: Resume,
    ) -> None:
        """The output is rows, which has one row per prompt; resume has the number of trials."""
        self._rows = rows
        self._resume = resume
        self._path = None
        # Not beside a pipe or a device such as /dev/stdout.
        if output is not None and (output.is_file() or not output.exists()):
            self._path = output.with_name(f"{output.name}.partial")
        self._mode = mode
        self._journal: Journal | None = None
        self._finished: dict[str, list[FinishedTrial]] = {}
        self._open: set[str] = set()
        self._specs: dict[str, TrialSpec] = {}
        self._known = False
        """Whether it is known which prompts are open: before that nothing may be deleted."""

    def __enter__(self) -> "TrialRows":
        if self._path is not None:
            self._refuse_surprise(self._path)
            resume = self._mode == "resume"
            self._journal = Journal(self._path, "resume" if resume else "overwrite")
            if resume:
                for place, line in read_lines(self._path):
                    self._take(decode_row(place, line, FinishedTrial)[0])
        return self

    def __exit__(self, *error: Any) -> None:
        if self._journal is not None:
            self._journal.__exit__(*error)
        if self._path is not None and self._known and not self._open:
            with contextlib.suppress(OSError):
                self._path.unlink()

    def missing(self, specs: list[TrialSpec]) -> list[TrialSpec]:
        """Return the trials that have not finished yet; write rows that a kill prevented.

        Trials of prompts that are not in specs belong to a part of the run that was not asked for
        this time, and are kept for later.
        """
        wanted = self._rows.missing(specs, self._reopen)
        self._specs = by_id = {spec.prompt.id: spec for spec in wanted}
        self._check(by_id)
        ours = {spec.prompt.id for spec in specs}
        self._open = by_id.keys() | (self._finished.keys() - ours)
        self._finished = {id_: done for id_, done in self._finished.items() if id_ in by_id}
        self._known = True
        for prompt_id in list(self._finished):
            self._write_if_complete(by_id[prompt_id])
        numbers = {
            (done.id, done.entry.trial_num) for all_ in self._finished.values() for done in all_
        }
        complete = ours - self._open
        return [
            spec
            for spec in wanted
            if spec.prompt.id not in complete and (spec.prompt.id, spec.number) not in numbers
        ]

    def add(self, spec: TrialSpec, captured: Capture) -> None:
        """Save a finished trial; the last one of its prompt writes the row."""
        self.add_entry(spec, trial_entry(spec.number, captured))

    def add_entry(self, spec: TrialSpec, entry: TrialEntry) -> None:
        """The same for a trial whose entry is there already: an earlier run made it."""
        self._save(_finished(spec, entry))
        self._write_if_complete(spec)

    def settle(self) -> None:
        """Write the rows of prompts that get no more trials for now, with those that they have.

        A later run takes such a row up again, because it has fewer trials than it wants.
        """
        for prompt_id in list(self._finished):
            entries = [done.entry for done in self._finished.pop(prompt_id)]
            if entries:
                spec = self._specs[prompt_id]
                self._rows.add(spec, self._result(spec, entries))
        self._open -= self._specs.keys()

    def open_entries(self) -> Iterator[tuple[str, TrialEntry]]:
        """Yield the finished trials of prompts that have no row yet, each with its prompt's id."""
        for prompt_id, finished in self._finished.items():
            yield from ((prompt_id, done.entry) for done in finished)

    def _save(self, done: FinishedTrial) -> None:
        if self._journal is not None:
            self._journal.append(msgspec.json.encode(done))
        self._take(done)

    def _take(self, done: FinishedTrial) -> None:
        """Keep a finished trial, in place of an earlier one of this number."""
        (attempt,) = _attempts(done.entry)
        known = self._finished.setdefault(done.id, [])
        known[:] = [other for other in known if other.entry.trial_num != done.entry.trial_num]
        if self._known or not self._resume.runs_again(done.id, attempt):
            known.append(done)

    def _reopen(self, line: bytes) -> None:
        """Take the trials of a row that is not complete any more."""
        row = msgspec.json.decode(line, type=TrialResult)
        for entry in row.trials:
            self._save(
                FinishedTrial(
                    id=row.id, spec_hash=row.spec_hash or "", identity=row.identity, entry=entry
                )
            )

    def _write_if_complete(self, spec: TrialSpec) -> None:
        if len(self._finished[spec.prompt.id]) >= self._resume.n_trials(spec.prompt.id):
            entries = [done.entry for done in self._finished.pop(spec.prompt.id)]
            self._open.discard(spec.prompt.id)
            self._rows.add(spec, self._result(spec, entries))

    def _result(self, spec: TrialSpec, entries: Sequence[TrialEntry]) -> TrialResult:
        graded = bool(self._resume.graders or spec.graders)
        result = trial_result(spec, entries, graded=graded)
        result.allocation = self._resume.allocation.get(spec.prompt.id, UNSET)
        return result

    def _check(self, specs: dict[str, TrialSpec]) -> None:
        """Refuse trials that were made from something else; grade those again that may be."""
        resume, path = self._resume, self._path or Path("output")
        for prompt_id in self._finished.keys() & specs.keys():
            spec = specs[prompt_id]
            for number, done in enumerate(self._finished[prompt_id]):
                resume.check(prompt_id, done.spec_hash, done.identity, spec, path)
                resume.check_folder(prompt_id, done.entry.cwd, spec, path)
                if resume.grades_again(done.identity, spec, partial(_attempts, done.entry)):
                    entry = grade_entry_again(spec, done.entry, resume.graders)
                    resume.graded(entry)
                    self._finished[prompt_id][number] = _finished(spec, entry)
                if done.entry.trial_num > resume.n_trials(prompt_id) and not resume.allocation:
                    msg = f'{path}: "{prompt_id}" has a trial number {done.entry.trial_num}'
                    hint = f"resume with -k {done.entry.trial_num} or more, or use another -o"
                    raise InputError(msg, hint=hint)

    def _refuse_surprise(self, path: Path) -> None:
        if self._mode in ("new", "append") and path.is_file() and path.stat().st_size > 0:
            msg = f"{path} holds finished trials of an interrupted run"
            raise OutputError(
                msg, hint="use --resume to continue that run, or --overwrite to start again"
            )


def _attempts(entry: TrialEntry) -> list[Attempt]:
    passed = None if entry.pass_ is UNSET else entry.pass_
    return [Attempt(failure=entry.failure or None, pass_=passed)]


def _finished(spec: TrialSpec, entry: TrialEntry) -> FinishedTrial:
    identity = spec.identity or UNSET
    return FinishedTrial(id=spec.prompt.id, spec_hash=spec.hash, identity=identity, entry=entry)
