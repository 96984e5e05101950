"""Combine the trials of a prompt into its row; keep finished ones until it is complete."""

import contextlib
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
from msgspec import UNSET

from assay import plugins
from assay.errors import InputError, OutputError
from assay.pipeline.batch import Rows
from assay.records.capture import Capture, FinishedTrial, TrialEntry, TrialResult
from assay.records.journal import Journal, Mode
from assay.records.rows import decode_row, read_lines
from assay.records.spec import TrialSpec
from assay.run.workspace import our_secrets

_SHARED = (set(TrialEntry.__struct_fields__) & set(Capture.__struct_fields__)) - {"score"}


def trial_entry(number: int, captured: Capture) -> TrialEntry:
    """Make one entry of what capture would have written for this trial."""
    entry = TrialEntry(
        trial_num=number,
        duration=captured.timing.total,
        first_response=captured.timing.first_response,
        workspace_dir=captured.metadata.get("workspaceDir", UNSET),
        **{name: getattr(captured, name) for name in _SHARED},
    )
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
    )
    if graded:
        _set_pass_numbers(result)
    return result


def _set_pass_numbers(result: TrialResult) -> None:
    from assay.stats.passk import prompt_pass_k, seed_pass_k  # numpy

    measured = [entry.pass_ for entry in result.trials if entry.pass_ is not UNSET]
    n_passed, n_measured = sum(measured), len(measured)
    result.n_measured = n_measured
    if n_measured:
        result.pass_rate = n_passed / n_measured
        result.pass_at_k, result.pass_exp_k = seed_pass_k(n_passed, n_measured)
    result.per_k = prompt_pass_k(n_passed, n_measured)


class TrialRows:
    """Keeps finished trials until their prompt is complete; a kill -9 loses none of them."""

    def __init__(
        self, rows: Rows[TrialResult], output: Path | None, mode: Mode, k: int, *, graded: bool
    ) -> None:
        """The output is rows, which has one row per prompt."""
        self._rows = rows
        self._k = k
        self._graded = graded
        self._path = None
        # Not beside a pipe or a device such as /dev/stdout.
        if output is not None and (output.is_file() or not output.exists()):
            self._path = output.with_name(f"{output.name}.partial")
        self._mode = mode
        self._journal: Journal | None = None
        self._entries: dict[str, list[TrialEntry]] = {}
        self._hashes: dict[str, str] = {}
        self._open: set[str] = set()
        self._known = False
        """Whether it is known which prompts are open: before that nothing may be deleted."""

    def __enter__(self) -> "TrialRows":
        if self._path is not None:
            self._refuse_surprise(self._path)
            resume = self._mode == "resume"
            self._journal = Journal(self._path, "resume" if resume else "overwrite")
            if resume:
                self._load(self._path)
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
        wanted = self._rows.missing(specs)
        by_id = {spec.prompt.id: spec for spec in wanted}
        self._check(by_id)
        ours = {spec.prompt.id for spec in specs}
        self._open = by_id.keys() | (self._entries.keys() - ours)
        self._entries = {id_: e for id_, e in self._entries.items() if id_ in by_id}
        self._known = True
        done = {(id_, e.trial_num) for id_, entries in self._entries.items() for e in entries}
        for prompt_id in list(self._entries):
            self._write_if_complete(by_id[prompt_id])
        return [spec for spec in wanted if (spec.prompt.id, spec.number) not in done]

    def add(self, spec: TrialSpec, captured: Capture) -> None:
        """Save a finished trial; the last one of its prompt writes the row."""
        entry = trial_entry(spec.number, captured)
        if self._journal is not None:
            line = FinishedTrial(id=spec.prompt.id, spec_hash=spec.hash, entry=entry)
            self._journal.append(msgspec.json.encode(line))
        self._entries.setdefault(spec.prompt.id, []).append(entry)
        self._write_if_complete(spec)

    def _write_if_complete(self, spec: TrialSpec) -> None:
        if len(self._entries[spec.prompt.id]) >= self._k:
            entries = self._entries.pop(spec.prompt.id)
            self._open.discard(spec.prompt.id)
            self._rows.add(spec, trial_result(spec, entries, graded=self._graded))

    def _check(self, specs: dict[str, TrialSpec]) -> None:
        """Refuse trials that were made from other prompts or agents, or for another k."""
        for prompt_id in self._entries.keys() & specs.keys():
            if self._hashes[prompt_id] != specs[prompt_id].hash:
                what = "were made from another prompt or agent"
                msg = f'{self._path}: trials of "{prompt_id}" {what}'
                raise InputError(
                    msg, hint="resume with the same prompts and agent, or use another -o"
                )
            most = max(entry.trial_num for entry in self._entries[prompt_id])
            if most > self._k:
                msg = f'{self._path}: "{prompt_id}" has a trial number {most}, more than {self._k}'
                hint = f"resume with the -k of that run, which is at least {most}"
                raise InputError(msg, hint=hint)

    def _refuse_surprise(self, path: Path) -> None:
        if self._mode in ("new", "append") and path.is_file() and path.stat().st_size > 0:
            msg = f"{path} holds finished trials of an interrupted run"
            raise OutputError(
                msg, hint="use --resume to continue that run, or --overwrite to start again"
            )

    def _load(self, path: Path) -> None:
        for place, line in read_lines(path):
            finished, _ = decode_row(place, line, FinishedTrial)
            self._entries.setdefault(finished.id, []).append(finished.entry)
            self._hashes[finished.id] = finished.spec_hash
