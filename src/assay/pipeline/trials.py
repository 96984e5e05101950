"""Combine the trials of a prompt into its row; keep finished ones until it is complete."""

import contextlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import msgspec
from msgspec import UNSET

from assay import plugins, stats
from assay.errors import InputError, OutputError
from assay.pipeline.resume import Resume
from assay.pipeline.stages import grade_capture
from assay.records.capture import Failure
from assay.records.journal import Journal, Mode, RowKey
from assay.records.rows import Place, decode_row, encode_row, read_lines
from assay.records.signatures import forget_output
from assay.records.spec import Prompt, TrialSpec
from assay.records.trial import (
    FinishedTrial,
    Trial,
    TrialResult,
    decode_trials,
    encode_finished,
    of_entry,
    to_entry,
)
from assay.run.workspace import our_secrets


def trial_result(spec: TrialSpec, trials: Iterable[Trial], *, graded: bool) -> TrialResult:
    """Combine all trials of one prompt into its row, with pass rates if there was a grader."""
    prompt, workspaces = our_secrets().mask_record(spec.prompt), spec.surroundings.workspace_dir
    about = {"agent": plugins.adapter(spec.agent).name}
    if workspaces is not None:
        about["workspaceDir"] = workspaces
    row = row_of_trials(prompt, {**prompt.metadata, **about}, trials, graded=graded)
    row.spec_hash, row.identity = spec.hash, spec.identity or UNSET
    return row


def row_of_trials(
    prompt: Prompt | Trial, metadata: dict[str, Any], trials: Iterable[Trial], *, graded: bool
) -> TrialResult:
    """Combine trials of one prompt, which any of them may stand for, wherever they come from."""
    trials = sorted(trials, key=lambda trial: trial.number)
    failures = Counter(str(trial.failure.cause) for trial in trials if trial.failure)
    result = TrialResult(
        id=prompt.id,
        input=prompt.input,
        hint=prompt.hint or UNSET,
        k=len(trials),
        trials=[to_entry(trial) for trial in trials],
        metadata=metadata,
        failures=dict(failures) or UNSET,
    )
    if graded:
        numbers = stats.passk.pass_numbers(entry.pass_ for entry in result.trials)
        for name, value in numbers.items():
            setattr(result, name, value)
    return result


def grade_row_again(place: Place, line: bytes, spec: TrialSpec, resume: Resume) -> bytes:
    """Return a row of trials with the verdicts of other graders, and its pass rates made again."""
    row, extra = decode_row(place, line, TrialResult)
    trials = [grade_capture(spec, of_entry(entry, row), resume.graders) for entry in row.trials]
    for trial in trials:
        if not resume.runs_again(row.id, trial):
            resume.graded(trial)
    graded = trial_result(spec, trials, graded=True)
    kept = msgspec.structs.replace(graded, metadata=row.metadata, allocation=row.allocation)
    return encode_row(kept, extra)


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
        self._finished: dict[str, list[Trial]] = {}
        self._open: set[str] = set()
        self._specs: dict[str, TrialSpec] = {}
        self._lost: dict[tuple[str, int], list[Failure]] = {}
        """Of trials that run again: the attempts that did not measure the agent."""
        self.notes: dict[str, Any] = {}
        """What is written into the metadata of every trial that is added."""
        self._known = False
        """Whether it is known which prompts are open: before that nothing may be deleted."""

    def __enter__(self) -> "TrialRows":
        if self._path is not None:
            resume, path = self._mode == "resume", self._path
            if self._mode in ("new", "append") and path.is_file() and path.stat().st_size > 0:
                msg = f"{path} holds finished trials of an interrupted run"
                hint = "use --resume to continue that run, or --overwrite to start again"
                raise OutputError(msg, hint=hint)
            self._journal = Journal(self._path, "resume" if resume else "overwrite")
            if resume:
                for place, line in read_lines(self._path):
                    done, _ = decode_row(place, line, FinishedTrial)
                    self._take(of_entry(done.entry, done))
        return self

    def __exit__(self, *error: Any) -> None:
        if self._journal is not None:
            self._journal.__exit__(*error)
        if self._path is not None and self._known and not self._open:
            with contextlib.suppress(OSError):
                self._path.unlink()
                forget_output(self._path)

    def missing(self, specs: list[TrialSpec]) -> list[TrialSpec]:
        """Return the trials that have not finished yet; write rows that a kill prevented.

        Trials of prompts that are not in specs belong to a part of the run that was not asked for
        this time, and are kept for later.
        """
        wanted = self._rows.missing(specs, self._reopen)
        self._specs = by_id = {spec.prompt.id: spec for spec in wanted}
        self._check(by_id)
        if self._journal is not None and self._mode == "resume":
            self._resume.check_signed(self._journal)
        ours = {spec.prompt.id for spec in specs}
        self._open = by_id.keys() | (self._finished.keys() - ours)
        self._finished = {id_: done for id_, done in self._finished.items() if id_ in by_id}
        self._known = True
        for prompt_id in list(self._finished):
            self._write_if_complete(by_id[prompt_id])
        numbers = {(done.id, done.number) for all_ in self._finished.values() for done in all_}
        complete = ours - self._open
        return [
            spec
            for spec in wanted
            if spec.prompt.id not in complete and (spec.prompt.id, spec.number) not in numbers
        ]

    def add(self, spec: TrialSpec, trial: Trial) -> None:
        """Save a finished trial; the last one of its prompt writes the row."""
        for name, value in self.notes.items():
            trial = trial.with_note(name, value)
        trial = with_earlier(trial, self._lost.get((spec.prompt.id, spec.number), []))
        self._save(_made_from(spec, trial))
        self._write_if_complete(spec)

    def settle(self) -> None:
        """Write the rows of prompts that get no more trials for now, with those that they have.

        A later run takes such a row up again, because it has fewer trials than it wants.
        """
        for prompt_id in list(self._finished):
            if trials := self._finished.pop(prompt_id):
                spec = self._specs[prompt_id]
                self._rows.add(spec, self._result(spec, trials))
        self._open -= self._specs.keys()

    def open_trials(self) -> Iterator[Trial]:
        """Yield the finished trials of prompts that have no row yet."""
        for finished in self._finished.values():
            yield from finished

    def _save(self, done: Trial) -> None:
        if self._journal is not None:
            self._journal.append(encode_finished(done))
        self._take(done)

    def _take(self, done: Trial) -> None:
        """Keep a finished trial, in place of an earlier one of this number."""
        known = self._finished.setdefault(done.id, [])
        known[:] = [other for other in known if other.number != done.number]
        if self._known or not self._resume.runs_again(done.id, done):
            known.append(done)
        else:
            self._lost[done.id, done.number] = lost_attempts(done)

    def _reopen(self, line: bytes) -> None:
        """Take the trials of a row that is not complete any more."""
        for trial in decode_trials(line):
            self._save(trial)

    def _write_if_complete(self, spec: TrialSpec) -> None:
        if len(self._finished[spec.prompt.id]) >= self._resume.n_trials(spec.prompt.id):
            trials = self._finished.pop(spec.prompt.id)
            self._open.discard(spec.prompt.id)
            self._rows.add(spec, self._result(spec, trials))

    def _result(self, spec: TrialSpec, trials: Iterable[Trial]) -> TrialResult:
        graded = bool(self._resume.graders or spec.graders)
        result = trial_result(spec, trials, graded=graded)
        result.allocation = self._resume.allocation.get(spec.prompt.id, UNSET)
        return result

    def _check(self, specs: dict[str, TrialSpec]) -> None:
        """Refuse trials that were made from something else; grade those again that may be."""
        resume, path = self._resume, self._path or Path("output")
        for prompt_id in self._finished.keys() & specs.keys():
            spec = specs[prompt_id]
            for place, done in enumerate(self._finished[prompt_id]):
                resume.check(prompt_id, done.spec_hash or "", done.identity, spec, path)
                resume.check_folder(prompt_id, done.cwd, spec, path)
                if resume.grades_again(done.identity, spec, partial(list, [done])):
                    graded = grade_capture(spec, done, resume.graders)
                    resume.graded(graded)
                    self._finished[prompt_id][place] = _made_from(spec, graded)
                if done.number > resume.n_trials(prompt_id) and not resume.allocation:
                    msg = f'{path}: "{prompt_id}" has a trial number {done.number}'
                    hint = f"resume with -k {done.number} or more, or use another -o"
                    raise InputError(msg, hint=hint)


def lost_attempts(done: Trial | RowKey) -> list[Failure]:
    """Return the attempts at a trial that is run again which did not measure the agent."""
    lost = [*(done.retried or ())]
    if done.failure and not done.failure.measures_agent:
        # Streams in a segment stay where they are; those in a folder may make room for new ones.
        raw = done.raw if isinstance(done.raw, str) and "@" in done.raw else ""
        lost.append(msgspec.structs.replace(done.failure, raw=raw))
    return lost


def with_earlier[T: msgspec.Struct](result: T, lost: Sequence[Failure]) -> T:
    """Let a trial that was run again say which attempts were lost before."""
    if not lost:
        return result
    own = getattr(result, "retried", None) or ()
    return msgspec.structs.replace(result, retried=[*lost, *own])


def _made_from(spec: TrialSpec, trial: Trial) -> Trial:
    """Return a trial with what its spec says of it."""
    return msgspec.structs.replace(
        trial,
        id=spec.prompt.id,
        entry_number=trial.entry_number or spec.number,
        spec_hash=spec.hash,
        identity=spec.identity or UNSET,
    )
