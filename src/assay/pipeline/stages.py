"""The only file that knows the order of the stages."""

import uuid
from collections.abc import Callable, Generator, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
from msgspec import UNSET

from assay import plugins
from assay.errors import PluginError
from assay.graders.python_code import CHILD_FUNCTION
from assay.pipeline.extract import extract
from assay.pipeline.grading import GradedRow, grade_rows, judge
from assay.pipeline.trials import count_passes, set_pass_numbers, trial_result
from assay.plugin import Adapter, Executor, Trial
from assay.records.capture import Capture, Cause, Failure
from assay.records.prompt import Prompt
from assay.records.recording import RawOutput, Recording, raw_output, recording_of
from assay.records.rows import Place
from assay.records.spec import Limits, PluginRef, Surroundings, TrialSpec
from assay.records.trajectory import AnyStep
from assay.records.trials import TrialEntry, TrialResult
from assay.run.family import end_leftovers as end_leftovers
from assay.run.host import LocalHost, close_served
from assay.run.process import pause, prepare_to_fork, start_over, stop_all
from assay.run.trial import lost_trial, run_trial
from assay.run.workspace import our_secrets

type OnTrialStep = Callable[[TrialSpec, AnyStep | None], None]
"""Hears of a step of a trial; None is its beginning."""
_FIRST_PAUSE_S = 1.0
_LONGEST_PAUSE_S = 30.0


def capture_all(
    specs: Iterable[TrialSpec],
    executor: Executor,
    graders: Sequence[PluginRef] = (),
    retries: int = 0,
    on_step: OnTrialStep | None = None,
) -> Generator[tuple[TrialSpec, Capture], None, None]:
    """Run, extract and grade every trial; yield each as it finishes. Closing ends the agents.

    on_step hears from the workers' threads: when a trial begins, and of each of its steps.
    """
    _prepare(graders)
    work = partial(_capture, graders=tuple(graders), retries=retries, on_step=on_step)
    return _map(executor, work, specs, _lost_capture)


def run_all(
    specs: Iterable[TrialSpec], executor: Executor, retries: int = 0
) -> Generator[tuple[TrialSpec, RawOutput], None, None]:
    """Run every trial and write it out raw; yield each as it finishes. Closing ends the agents."""
    return _map(executor, partial(_run, retries=retries), specs, _lost_row)


def gather_trials(spec: TrialSpec, entries: Sequence[TrialEntry], *, graded: bool) -> TrialResult:
    """Put all trials of one prompt into its row, with pass numbers where there was a grader."""
    about: dict[str, Any] = {"agent": plugins.adapter(spec.agent).name}
    if spec.surroundings.workspace_dir is not None:
        about["workspaceDir"] = spec.surroundings.workspace_dir
    result = trial_result(spec.prompt, entries, about, spec.hash)
    if graded:
        from assay.stats.prompt_passk import prompt_pass_k, seed_pass_k

        n_passed, n_measured = count_passes(result)
        seed = seed_pass_k(n_passed, n_measured) if n_measured else None
        set_pass_numbers(result, seed, prompt_pass_k(n_passed, n_measured))
    return result


def grade_all(
    lines: Iterable[tuple[Place, bytes]],
    graders: Sequence[PluginRef],
    workers: int = 1,
    more_waits: Callable[[], bool] = lambda: True,
) -> Generator[GradedRow, None, None]:
    """Grade rows that are on disk or come one by one (see grade_rows); give them in their order."""
    start_over()
    if workers > 1:
        _prepare(graders)
    try:
        yield from grade_rows(lines, graders, AskingHost(), workers, stop_all, more_waits)
    finally:
        close_served()


def _prepare(graders: Sequence[PluginRef]) -> None:
    """Start what graders are forked from, if any needs it, while there are no threads yet."""
    if any(getattr(plugins.grader(ref), "can_hang", False) for ref in graders):
        prepare_to_fork(CHILD_FUNCTION)


def extract_row(row: RawOutput, adapter: Adapter, base: Path) -> Capture:
    """Read one raw row as capture would have read the trial."""
    import tempfile

    prompt = Prompt(id=row.id, input=row.input, hint=row.hint or None, metadata=row.metadata or {})
    with tempfile.TemporaryDirectory(prefix="assay-extract-") as scratch:
        recording = recording_of(row, base, Path(scratch))
        captured = _covered(extract(prompt, recording, adapter))
    return msgspec.structs.replace(captured, spec_hash=row.spec_hash)


class AskingHost(LocalHost):
    """This machine for graders, which may also put a question to an agent."""

    def ask(
        self, agent: PluginRef, text: str, *, cwd: str | None = None, timeout_s: float = 60.0
    ) -> str:
        """Run a trial of one prompt, in an empty folder unless cwd is given; give its answer."""
        import tempfile

        with tempfile.TemporaryDirectory(prefix="assay-ask-", ignore_cleanup_errors=True) as empty:
            spec = TrialSpec(
                prompt=Prompt(id="ask", input=text),
                agent=agent,
                benchmark=PluginRef(name="prompts"),
                limits=Limits(turn_s=timeout_s),
                surroundings=Surroundings(cwd=cwd or empty),
                folder=f"ask-{uuid.uuid4().hex}",
            )
            captured = run_trial(spec, partial(_read, spec))
        failure = captured.failure or None
        if failure and not failure.answered:
            msg = f"{failure.cause}: {failure.message}"
            raise PluginError(msg)
        return captured.output


def _map[R](
    executor: Executor,
    work: Callable[[TrialSpec], tuple[TrialSpec, R]],
    specs: Iterable[TrialSpec],
    lost: Callable[[TrialSpec, str], tuple[TrialSpec, R]],
) -> Generator[tuple[TrialSpec, R], None, None]:
    start_over()
    results = executor.map(partial(_stop_on_error, work), specs, lost)
    try:
        for result in results:  # noqa: UP028 - `yield from` would end the workers before the agents
            yield result
    except BaseException:
        stop_all()
        raise
    finally:
        close_served()


def _stop_on_error[R](
    work: Callable[[TrialSpec], tuple[TrialSpec, R]], spec: TrialSpec
) -> tuple[TrialSpec, R]:
    """Do the work; what it raises ends the whole run, so the other agents end as well."""
    try:
        return work(spec)
    except BaseException:
        stop_all()
        raise


def _capture(
    spec: TrialSpec,
    graders: Sequence[PluginRef],
    retries: int,
    on_step: OnTrialStep | None = None,
) -> tuple[TrialSpec, Capture]:
    hear = partial(on_step, spec) if on_step is not None else None

    def attempt(again: TrialSpec) -> tuple[Capture, Failure | None]:
        if hear is not None:
            hear(None)
        captured = run_trial(again, partial(_read, again), hear)
        return captured, captured.failure or None

    captured = _retry(spec, retries, attempt)
    return spec, grade_capture(spec, captured, graders) if graders else captured


def grade_capture(spec: TrialSpec, captured: Capture, graders: Sequence[PluginRef]) -> Capture:
    """Put the graders' verdict into a capture."""
    row = msgspec.to_builtins(captured)
    trial = Trial(
        input=captured.input,
        output=captured.output,
        hint=spec.prompt.hint,
        trajectory=row["trajectory"],
        metadata=spec.prompt.metadata,
        cwd=captured.metadata.get("workspaceDir") or spec.surroundings.cwd,
        reference=spec.prompt.reference,
        row=row,
    )
    verdict = judge(trial, captured.failure or None, graders, AskingHost())
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
    adapter = plugins.adapter(spec.agent)
    try:
        captured = extract(spec.prompt, recording, adapter)
    except Exception as error:  # noqa: BLE001 - a trial never takes the run down with it
        why = f"the adapter cannot read this: {type(error).__name__}: {error}"
        failure = Failure(cause=Cause.HARNESS, message=why)
        broken = msgspec.structs.replace(recording, turns=(), failure=failure)
        captured = extract(spec.prompt, broken, adapter)
    return msgspec.structs.replace(_covered(captured), spec_hash=spec.hash)


def _covered(captured: Capture) -> Capture:
    """Cover secrets that stand whole only now that the pieces of a stream are put together."""
    secrets = our_secrets()
    if not secrets.longest:
        return captured
    said = msgspec.json.encode(captured)
    masked = secrets.mask(said)
    return captured if masked is said else msgspec.json.decode(masked, type=Capture)


def _lost_capture(spec: TrialSpec, why: str) -> tuple[TrialSpec, Capture]:
    return spec, _read(spec, lost_trial(why, Cause.WORKER_LOST))


def _lost_row(spec: TrialSpec, why: str) -> tuple[TrialSpec, RawOutput]:
    return spec, raw_output(spec.prompt, lost_trial(why, Cause.WORKER_LOST))
