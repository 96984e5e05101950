"""The only file that knows the order of the stages."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path

import msgspec
from msgspec import UNSET

from assay import plugins
from assay.extract.capture import extract
from assay.grade.verdicts import judge
from assay.records.capture import Capture
from assay.records.failure import Cause, Failure
from assay.records.prompt import Prompt
from assay.records.raw_output import RawOutput, raw_output, recording_of
from assay.records.recording import Recording
from assay.records.trial import PluginRef, TrialSpec
from assay.run.family import end_leftovers as end_leftovers
from assay.run.process import LocalHost, pause, start_over, stop_all
from assay.run.trial import lost_trial, run_trial
from assay.seams import Adapter, Executor, Trial

_FIRST_PAUSE_S = 1.0
_LONGEST_PAUSE_S = 30.0


def capture_all(
    specs: Iterable[TrialSpec],
    executor: Executor,
    graders: Sequence[PluginRef] = (),
    retries: int = 0,
) -> Iterator[tuple[TrialSpec, Capture]]:
    """Run, extract and grade every trial; yield each as it finishes."""
    work = partial(_capture, graders=tuple(graders), retries=retries)
    return _map(executor, work, specs, _lost_capture)


def run_all(
    specs: Iterable[TrialSpec], executor: Executor, retries: int = 0
) -> Iterator[tuple[TrialSpec, RawOutput]]:
    """Run every trial and write it out raw; yield each as it finishes."""
    return _map(executor, partial(_run, retries=retries), specs, _lost_row)


def extract_row(row: RawOutput, adapter: Adapter, base: Path) -> Capture:
    """Read one raw row as capture would have read the trial."""
    prompt = Prompt(id=row.id, input=row.input, hint=row.hint or None, metadata=row.metadata or {})
    captured = extract(prompt, recording_of(row, base), adapter)
    return msgspec.structs.replace(captured, spec_hash=row.spec_hash)


def _map[R](
    executor: Executor,
    work: Callable[[TrialSpec], tuple[TrialSpec, R]],
    specs: Iterable[TrialSpec],
    lost: Callable[[TrialSpec, str], tuple[TrialSpec, R]],
) -> Iterator[tuple[TrialSpec, R]]:
    start_over()
    results = executor.map(work, specs, lost)
    try:
        for result in results:  # noqa: UP028 - `yield from` would end the workers before the agents
            yield result
    except BaseException:
        stop_all()
        raise


def _capture(
    spec: TrialSpec, graders: Sequence[PluginRef], retries: int
) -> tuple[TrialSpec, Capture]:
    def attempt(again: TrialSpec) -> tuple[Capture, Failure | None]:
        captured = run_trial(again, partial(_read, again))
        return captured, captured.failure or None

    captured = _retry(spec, retries, attempt)
    return spec, grade_capture(spec, captured, graders) if graders else captured


def grade_capture(spec: TrialSpec, captured: Capture, graders: Sequence[PluginRef]) -> Capture:
    """Put the graders' verdict into a capture."""
    row = msgspec.to_builtins(captured)
    trial = Trial(
        input=captured.input,
        output=captured.output,
        hint=captured.hint or None,
        trajectory=row["trajectory"],
        metadata=spec.prompt.metadata,
        cwd=captured.metadata.get("workspaceDir") or spec.surroundings.cwd,
        reference=spec.prompt.reference,
        row=row,
    )
    verdict = judge(trial, captured.failure or None, graders, LocalHost())
    broken = verdict.broken
    return msgspec.structs.replace(
        captured,
        score=verdict.score or UNSET,
        outcome=verdict.score.outcome if verdict.score else UNSET,
        grades=verdict.grades or UNSET,
        grader_failures=broken or UNSET,
        errors=[*(captured.errors or []), *broken.values()] if broken else captured.errors,
    )


def _run(spec: TrialSpec, retries: int) -> tuple[TrialSpec, RawOutput]:
    def attempt(again: TrialSpec) -> tuple[RawOutput, Failure | None]:
        def write(recording: Recording) -> tuple[RawOutput, Failure | None]:
            row = msgspec.structs.replace(raw_output(spec.prompt, recording), spec_hash=spec.hash)
            return row, (_read(again, recording).failure or None) if retries else None

        return run_trial(again, write)

    return spec, _retry(spec, retries, attempt)


def _retry[R](
    spec: TrialSpec, retries: int, attempt: Callable[[TrialSpec], tuple[R, Failure | None]]
) -> R:
    """Try again while the failure says nothing about the agent."""
    while True:
        result, failure = attempt(spec)
        tried = len(spec.retried)
        if failure is None or failure.cause.measures_agent or tried >= retries:
            return result
        spec = msgspec.structs.replace(spec, retried=(*spec.retried, failure))
        pause(min(_FIRST_PAUSE_S * 2**tried, _LONGEST_PAUSE_S))


def _read(spec: TrialSpec, recording: Recording) -> Capture:
    captured = extract(spec.prompt, recording, plugins.adapter(spec.agent))
    return msgspec.structs.replace(captured, spec_hash=spec.hash)


def _lost_capture(spec: TrialSpec, why: str) -> tuple[TrialSpec, Capture]:
    return spec, _read(spec, lost_trial(why, Cause.WORKER_LOST))


def _lost_row(spec: TrialSpec, why: str) -> tuple[TrialSpec, RawOutput]:
    return spec, raw_output(spec.prompt, lost_trial(why, Cause.WORKER_LOST))
