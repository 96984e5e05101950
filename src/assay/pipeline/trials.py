"""Put the trials of one prompt together, and keep finished ones until their prompt is complete."""

import contextlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

import msgspec
from msgspec import UNSET

from assay.errors import InputError, OutputError
from assay.records.capture import Capture
from assay.records.journal import Journal, Mode
from assay.records.prompt import Prompt
from assay.records.rows import decode_row, read_lines
from assay.records.spec import TrialSpec
from assay.records.trials import FinishedTrial, PassAtK, TrialEntry, TrialResult


def trial_entry(number: int, captured: Capture) -> TrialEntry:
    """Make one entry of what capture would have written for this trial."""
    score = captured.score or None
    return TrialEntry(
        trial_num=number,
        output=captured.output,
        trajectory=captured.trajectory,
        duration=captured.timing.total,
        pass_=score.pass_ if score else UNSET,
        score=score.score if score else UNSET,
        reasoning=score.reasoning if score else UNSET,
        outcome=score.outcome if score else UNSET,
        tool_errors=captured.tool_errors,
        grades=captured.grades,
        grader_failures=captured.grader_failures,
        usage=captured.usage,
        failure=captured.failure,
        agent=captured.agent,
        session_id=captured.session_id,
        first_response=captured.timing.first_response,
        events=captured.events,
        turn_usage=captured.turn_usage,
        setup=captured.setup,
        permission_denials=captured.permission_denials,
        provider_retries=captured.provider_retries,
        retried=captured.retried,
        stderr=captured.stderr,
        raw=captured.raw,
        workspace_dir=captured.metadata.get("workspaceDir", UNSET),
    )


def trial_result(
    prompt: Prompt, entries: Sequence[TrialEntry], about: dict[str, Any], spec_hash: str
) -> TrialResult:
    """Make the row of one prompt, without the numbers that need a grader."""
    failures: dict[str, int] = {}
    for entry in entries:
        if entry.failure:
            failures[entry.failure.cause] = failures.get(entry.failure.cause, 0) + 1
    return TrialResult(
        id=prompt.id,
        input=prompt.input,
        hint=prompt.hint or UNSET,
        k=len(entries),
        trials=sorted(entries, key=lambda entry: entry.trial_num),
        metadata={**prompt.metadata, **about},
        failures=failures or UNSET,
        spec_hash=spec_hash,
    )


def count_passes(result: TrialResult) -> tuple[int, int]:
    """Give how many trials passed and how many were measured."""
    measured = [entry.pass_ for entry in result.trials if entry.pass_ is not UNSET]
    return sum(measured), len(measured)


def set_pass_numbers(
    result: TrialResult, seed: tuple[float, float] | None, per_k: list[PassAtK]
) -> None:
    """Write the numbers of a graded prompt into its row; seed is None when none was measured."""
    n_passed, n_measured = count_passes(result)
    result.n_measured = n_measured
    if seed is not None:
        result.pass_rate = n_passed / n_measured
        result.pass_at_k, result.pass_exp_k = seed
    result.per_k = per_k


type Entries = list[TrialEntry]


class TrialStore:
    """Holds entries by prompt; a kill -9 loses none that had finished."""

    def __init__(self, output: Path | None, mode: Mode) -> None:
        self._path = None
        if output is not None and (output.is_file() or not output.exists()):
            self._path = output.with_name(f"{output.name}.partial")
        self._mode = mode
        self._journal: Journal | None = None
        self._entries: dict[str, Entries] = {}
        self._hashes: dict[str, str] = {}
        self._open: set[str] = set()
        self._known = False
        """Whether it is known which prompts are open: before that nothing may be thrown away."""

    def __enter__(self) -> "TrialStore":
        if self._path is not None:
            self._refuse_surprise(self._path)
            resume = self._mode == "resume"
            self._journal = Journal(self._path, "resume" if resume else "overwrite")
            if resume:
                self._load()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._journal is not None:
            self._journal.__exit__(kind, error, trace)
        if self._path is not None and self._known and not self._open:
            with contextlib.suppress(OSError):
                self._path.unlink()

    def missing(
        self, specs: list[TrialSpec], k: int, all_specs: list[TrialSpec] | None = None
    ) -> list[TrialSpec]:
        """Give the trials that have not finished yet.

        all_specs are those of prompts that have their row, too: trials of any other prompt belong
        to a part of the run that was not asked for this time, and are kept for later.
        """
        self._check(specs, k)
        ours = {spec.prompt.id for spec in all_specs or specs}
        wanted = {spec.prompt.id for spec in specs}
        self._open = wanted | (self._entries.keys() - ours)
        self._entries = {id_: e for id_, e in self._entries.items() if id_ in wanted}
        self._known = True
        done = {(id_, e.trial_num) for id_, entries in self._entries.items() for e in entries}
        return [spec for spec in specs if (spec.prompt.id, spec.number) not in done]

    def complete(self, specs: list[TrialSpec], k: int) -> Iterator[tuple[TrialSpec, Entries]]:
        """Give prompts whose trials had all finished before a kill kept them from being written."""
        by_id = {spec.prompt.id: spec for spec in specs}
        for prompt_id in [id_ for id_, entries in self._entries.items() if len(entries) >= k]:
            self._open.discard(prompt_id)
            yield by_id[prompt_id], self._entries.pop(prompt_id)

    def add(self, spec: TrialSpec, entry: TrialEntry, k: int) -> Entries | None:
        """Keep a finished trial; give all of its prompt when it was the last."""
        if self._journal is not None:
            line = FinishedTrial(id=spec.prompt.id, spec_hash=spec.hash, entry=entry)
            self._journal.append(msgspec.json.encode(line))
        entries = self._entries.setdefault(spec.prompt.id, [])
        entries.append(entry)
        if len(entries) < k:
            return None
        self._open.discard(spec.prompt.id)
        return self._entries.pop(spec.prompt.id)

    def _check(self, specs: list[TrialSpec], k: int) -> None:
        """Refuse trials that were made from other prompts or agents, or for another k."""
        hashes = {spec.prompt.id: spec.hash for spec in specs}
        for prompt_id in self._entries.keys() & hashes.keys():
            if self._hashes[prompt_id] != hashes[prompt_id]:
                msg = (
                    f'{self._path}: trials of "{prompt_id}" were made from another prompt or agent'
                )
                raise InputError(
                    msg, hint="resume with the same prompts and agent, or use another -o"
                )
            most = max(entry.trial_num for entry in self._entries[prompt_id])
            if most > k:
                msg = f'{self._path}: "{prompt_id}" has a trial number {most}, more than {k}'
                raise InputError(
                    msg, hint=f"resume with the -k of that run, which is at least {most}"
                )

    def _refuse_surprise(self, path: Path) -> None:
        if self._mode in ("new", "append") and path.is_file() and path.stat().st_size > 0:
            msg = f"{path} holds finished trials of an interrupted run"
            raise OutputError(
                msg, hint="use --resume to continue that run, or --overwrite to start again"
            )

    def _load(self) -> None:
        assert self._path is not None
        for place, line in read_lines(self._path):
            finished, _ = decode_row(place, line, FinishedTrial)
            self._entries.setdefault(finished.id, []).append(finished.entry)
            self._hashes[finished.id] = finished.spec_hash
