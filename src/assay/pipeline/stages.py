"""The stages of one trial in their order: run, read, grade; and each stage alone, on rows."""

import time
import uuid
from collections.abc import Callable, Generator, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import ClassVar

import msgspec
from msgspec import UNSET

from assay import plugins
from assay.errors import PluginError
from assay.pipeline.extract import extract
from assay.pipeline.grading import (
    Elsewhere,
    GradedPart,
    GradedRow,
    Verdict,
    earlier_grades,
    grade_file,
    grade_rows,
    grade_rows_elsewhere,
    judge,
)
from assay.pipeline.limiter import RateLimiter
from assay.pipeline.resume import Resume
from assay.pipeline.row_settings import RowGraders
from assay.plugin import Adapter, Machine, Trial
from assay.records.capture import AnyStep, Capture, Cause, Failure, TrialEntry
from assay.records.files import temporary_folder
from assay.records.recording import RawOutput, Recording, raw_output, recording_of
from assay.records.rows import Place, decode_row, encode_row, open_rows
from assay.records.spec import Limits, PluginRef, Prompt, Surroundings, TrialSpec
from assay.run.host import LocalHost, close_served
from assay.run.one_at_a_time import one_at_a_time
from assay.run.process import pause, prepare_to_fork, start_over, stop_all
from assay.run.resources import allow_open_files
from assay.run.secrets import Secrets
from assay.run.trial import lost_trial, recorded
from assay.run.turn import OnStep, Trace, Until
from assay.run.workspace import our_secrets

type OnTrialStep = Callable[[TrialSpec, AnyStep | None], None]
"""Called with each step of a trial; None is its beginning."""
_FIRST_PAUSE_S = 1.0
_LONGEST_PAUSE_S = 30.0
MOST_REFUSALS = 5
"""How often a question is put to an agent whose provider refuses it for too many requests."""


class CaptureTrial(msgspec.Struct, frozen=True):
    """Runs a trial, reads what the agent did, and grades it: what a batch of captures does."""

    graders: Sequence[PluginRef] = ()
    retries: int = 0
    trace: Trace | None = None
    limiter: RateLimiter = msgspec.field(default_factory=RateLimiter)
    until: Callable[[TrialSpec], Until] | None = None
    """Returns, for an attempt at a trial, what says of its steps whether they settle it."""
    elsewhere: Callable[[TrialSpec], Capture] | None = None
    """Runs one attempt on another machine."""
    n_slots: Callable[[TrialSpec], int] | None = None
    """Returns how many trials like this one the other machines can run at once."""

    def prepare(self) -> None:
        """Get ready while there are no threads yet."""
        _prepare(self.graders)

    def run(self, spec: TrialSpec, on_step: OnTrialStep | None = None) -> Capture:
        """Do the trial; on_step gets None for each attempt that begins, and then its steps."""
        on_attempt_step = partial(on_step, spec) if on_step is not None else None
        attempt: TrialSpec | None = spec
        while attempt is not None:
            self.limiter.wait(attempt)  # before the trial's own clock starts
            if on_attempt_step is not None:
                on_attempt_step(None)
            began_s = time.monotonic()
            if self.elsewhere is not None:
                one_at_a_time.give()
                captured = self.elsewhere(attempt)
            else:
                until = self.until(attempt) if self.until is not None else None
                captured = capture_attempt(attempt, on_attempt_step, self.trace, until)
            failure = captured.failure or None
            self.limiter.note(attempt, failure, began_s)
            attempt = _next_attempt(attempt, failure, self.retries, captured.raw or None)
        if not self.graders and not spec.graders:
            return captured
        one_at_a_time.give()  # graders may take long
        return grade_capture(spec, captured, self.graders)

    def lost(self, spec: TrialSpec, why: str) -> Capture:
        """Return the result of a trial whose worker died."""
        return read_recording(spec, lost_trial(why))

    def cost_usd(self, result: Capture) -> float | None:
        """Return what the last attempt cost; earlier ones failed for want of a provider."""
        return known_cost(result)


class RunTrial(msgspec.Struct, frozen=True):
    """Runs a trial and writes out its raw lines: what a batch of `assay run` does."""

    retries: int = 0
    trace: Trace | None = None
    priced: bool = False
    """Whether the lines are read for what a trial cost, as --max-cost needs it."""
    limiter: RateLimiter = msgspec.field(default_factory=RateLimiter)
    _costs: dict[str, float | None] = {}

    def prepare(self) -> None:
        """Nothing: there are no graders."""

    def run(self, spec: TrialSpec, on_step: OnTrialStep | None = None) -> RawOutput:
        """Do the trial; its lines are interpreted only where a failure may be retried."""
        attempt: TrialSpec | None = spec
        while attempt is not None:
            self.limiter.wait(attempt)
            began_s = time.monotonic()
            with recorded(attempt, trace=self.trace) as recording:
                raw = raw_output(spec.prompt, recording, _text_agent(spec))
                row = _secrets(recording).mask_record(raw)
                failure = self._read_failure(attempt, recording)
            self.limiter.note(attempt, failure, began_s)
            attempt = _next_attempt(attempt, failure, self.retries, recording.raw)
        return msgspec.structs.replace(row, spec_hash=spec.hash, identity=spec.identity or UNSET)

    def lost(self, spec: TrialSpec, why: str) -> RawOutput:
        """Return the result of a trial whose worker died."""
        return raw_output(spec.prompt, lost_trial(why), _text_agent(spec))

    def _read_failure(self, spec: TrialSpec, recording: Recording) -> Failure | None:
        """Read why a trial failed, where that may matter: reading takes longer than the rest."""
        failed = recording.turns and recording.turns[-1].end.exit_code
        if not (self.retries or self.priced or failed):
            return recording.failure
        captured = read_recording(spec, recording)
        self._costs[spec.prompt.id] = known_cost(captured)
        return captured.failure or None

    def cost_usd(self, result: RawOutput) -> float | None:
        """Return what a trial cost, if its lines were read for that."""
        return self._costs.pop(result.id, None)


def _text_agent(spec: TrialSpec) -> str | None:
    """Return the name of an agent that prints plain text, else None."""
    adapter = plugins.adapter(spec.agent)
    return adapter.name if getattr(adapter, "plain_text", False) else None


def known_cost(result: Capture) -> float | None:
    """Return what a trial cost; None if it is not known, 0 if the agent never got that far."""
    if result.usage and (result.usage.cost_usd is not UNSET or result.usage.spent_usd):
        return result.usage.spent_usd
    failure = result.failure or None
    return 0.0 if failure is not None and not failure.cause.measures_agent else None


def _next_attempt(
    spec: TrialSpec, failure: Failure | None, retries: int, raw: str | None
) -> TrialSpec | None:
    """Wait and return another attempt if the failure does not measure the agent, else None."""
    tried = len(spec.retried)
    if failure is None or failure.cause.measures_agent or tried >= retries:
        return None
    if failure.retry_after_ms is None:  # otherwise the limiter holds all trials back
        # Exponential backoff: these failures are mostly the provider's.
        pause(min(_FIRST_PAUSE_S * 2**tried, _LONGEST_PAUSE_S))
    failure = msgspec.structs.replace(failure, raw=raw or "")
    return msgspec.structs.replace(spec, retried=(*spec.retried, failure))


def capture_attempt(
    spec: TrialSpec,
    on_step: OnStep | None = None,
    trace: Trace | None = None,
    until: Until | None = None,
) -> Capture:
    """Run one attempt at a trial here and read what the agent did."""
    with recorded(spec, on_step, trace, until) as recording:
        return read_recording(spec, recording)


def grade_capture(spec: TrialSpec, captured: Capture, graders: Sequence[PluginRef]) -> Capture:
    """Put the graders' verdict into a capture, in place of an earlier one."""
    verdict, changes = judge_again(spec, captured, graders)
    outdated = (captured.grader_failures or {}).values()
    errors = [error for error in captured.errors or [] if error not in outdated]
    errors += verdict.broken.values()
    return msgspec.structs.replace(
        captured,
        score=verdict.score or UNSET,
        outcome=verdict.score.outcome if verdict.score else UNSET,
        grades=verdict.grades or UNSET,
        earlier_grades=earlier_grades(captured, verdict.grades) or UNSET,
        grader_failures=verdict.broken or UNSET,
        errors=errors or UNSET,
        warnings=[*(captured.warnings or []), *changes] or UNSET,
    )


def judge_again(
    spec: TrialSpec,
    captured: Capture | TrialEntry,
    graders: Sequence[PluginRef],
) -> tuple[Verdict, list[str]]:
    """Ask the graders, and those of the prompt's row, about what was captured of a trial.

    Also return warnings about them.
    """
    graders = (*graders, *spec.graders)
    row = msgspec.to_builtins(captured)
    trial = Trial(
        input=spec.prompt.input,
        output=captured.output,
        hint=spec.prompt.hint,
        trajectory=row["trajectory"],
        metadata=spec.prompt.metadata,
        cwd=_worked_in(captured) or spec.surroundings.cwd,
        reference=spec.prompt.reference,
        row=row,
    )
    failure = captured.failure or None
    if failure is not None and failure.cause.measures_agent and _grades_failed_trials(spec):
        failure = None  # the graders judge by the world's evidence
    verdict = our_secrets().mask_record(judge(trial, failure, graders, AskingHost()))
    return verdict, _changes(graders, trial)


def _worked_in(captured: Capture | TrialEntry) -> str | None:
    """Return where the agent worked; rows of earlier versions have it elsewhere."""
    if isinstance(captured, TrialEntry):
        return captured.cwd or captured.workspace_dir or None
    return captured.cwd or captured.metadata.get("workspaceDir")


def grade_row_again(place: Place, line: bytes, spec: TrialSpec, resume: Resume) -> bytes:
    """Return a row of capture with the verdict of other graders."""
    captured, extra = decode_row(place, line, Capture)
    graded = grade_capture(spec, captured, resume.graders)
    resume.graded(graded)
    graded = msgspec.structs.replace(graded, spec_hash=spec.hash, identity=spec.identity or UNSET)
    return encode_row(graded, extra)


def freeze(graders: Sequence[PluginRef]) -> None:
    """Let the graders note what they are made of; call it before the first agent starts."""
    _prepare(graders)
    for grader in map(plugins.grader, graders):
        if note := getattr(grader, "freeze", None):
            note(AskingHost())


def _changes(graders: Sequence[PluginRef], trial: Trial) -> list[str]:
    """Return what graders say about their files that changed since then."""
    noticed = [getattr(plugins.grader(ref), "changes", None) for ref in graders]
    return [text for changes in noticed if changes is not None for text in changes(trial)]


def _grades_failed_trials(spec: TrialSpec) -> bool:
    return getattr(plugins.benchmark(spec.benchmark), "grades_failed_trials", False)


def read_recording(spec: TrialSpec, recording: Recording) -> Capture:
    """Read what an agent did; an adapter that fails is the failure of the trial."""
    adapter = plugins.adapter(spec.agent)
    try:
        captured = extract(spec.prompt, recording, adapter)
    except Exception as error:  # noqa: BLE001 - a trial never takes the run down with it
        why = f"the adapter cannot read this: {type(error).__name__}: {error}"
        failure = Failure(cause=Cause.HARNESS, message=why)
        broken = msgspec.structs.replace(recording, turns=(), failure=failure)
        captured = extract(spec.prompt, broken, adapter)
    captured = _secrets(recording).mask_record(captured)
    return msgspec.structs.replace(captured, spec_hash=spec.hash, identity=spec.identity or UNSET)


def _secrets(recording: Recording) -> Secrets:
    """Return what masks secrets that came in pieces of a stream and are whole only in the row."""
    found: Secrets | None = recording.secrets
    return found or our_secrets()


def grade_all(
    lines: Iterable[tuple[Place, bytes]],
    graders: Sequence[PluginRef],
    workers: int = 1,
    more_waits: Callable[[], bool] | None = None,
    own: RowGraders | None = None,
    elsewhere: Elsewhere | None = None,
) -> Generator[GradedRow, None, None]:
    """Grade rows from a file or as they arrive (see grade_rows); yield them in order.

    own has the graders that the rows bring along.
    """
    start_over()
    of = own.of if own else None
    if elsewhere is not None:
        host = AskingHost()
        yield from grade_rows_elsewhere(lines, graders, host, workers, stop_all, of, elsewhere)
        return
    known = [*graders, *(own.to_prepare if own else ())]
    if workers > 1:
        allow_open_files(workers)
        _prepare(known)
    for grader in map(plugins.grader, known):
        if load := getattr(grader, "load", None):
            load(AskingHost())  # one that cannot be loaded is refused before any row is written
    try:
        yield from grade_rows(lines, graders, AskingHost(), workers, stop_all, more_waits, of)
    finally:
        close_served()


def grade_computing[T](
    path: Path,
    graders: Sequence[PluginRef],
    own: RowGraders,
    note: Callable[[Iterable[GradedRow]], T],
) -> Generator[GradedPart[T], None, None]:
    """Grade a file with all cores, by graders that only compute; see grade_file."""
    start_over()
    with open_rows(path) as file:
        yield from grade_file(file, graders, AskingHost(), own.of, note)


def _prepare(graders: Sequence[PluginRef]) -> None:
    """Start the fork server, if any grader needs it, while there are no threads yet."""
    for grader in map(plugins.grader, graders):
        if function := getattr(grader, "child_function", None):
            prepare_to_fork(function)


def extract_row(
    row: RawOutput, adapter: Adapter, base: Path, raw_dir: Path | None = None
) -> Capture:
    """Read one raw row as capture would have read the trial; see recording_of for the folders."""
    prompt = Prompt(id=row.id, input=row.input, hint=row.hint or None, metadata=row.metadata or {})
    with temporary_folder("assay-extract-") as scratch:
        recording = recording_of(row, base, Path(scratch), raw_dir)
        captured = our_secrets().mask_record(extract(prompt, recording, adapter))
    return msgspec.structs.replace(captured, spec_hash=row.spec_hash, identity=row.identity)


class AskingHost(LocalHost):
    """This machine for graders, which may also put a question to an agent."""

    limiter: ClassVar[RateLimiter] = RateLimiter()
    """Holds questions back; all graders of this process share it."""

    def ask(
        self, agent: PluginRef, text: str, *, cwd: str | None = None, timeout_s: float = 60.0
    ) -> str:
        """Run a trial of one prompt, in an empty folder unless cwd is given; return the answer."""
        with temporary_folder("assay-ask-") as empty:
            captured = self.put(asking_spec(agent, text, cwd or empty, timeout_s))
        failure = captured.failure or None
        if failure and not failure.answered:
            msg = f"{failure.cause}: {failure.message}"
            raise PluginError(msg)
        return captured.output

    def put(self, spec: TrialSpec) -> Capture:
        """Put a question; if the provider refuses it (429), put it again after a pause."""
        for _ in range(MOST_REFUSALS):
            self.limiter.wait(spec)
            began_s = time.monotonic()
            captured = self.put_once(spec)
            failure = captured.failure or None
            self.limiter.note(spec, failure, began_s)
            if failure is None or failure.retry_after_ms is None:
                break
        return captured

    def put_once(self, spec: TrialSpec) -> Capture:
        """Put a question: run its trial."""
        return capture_attempt(spec)


def asking_spec(agent: PluginRef, text: str, cwd: str, timeout_s: float = 60.0) -> TrialSpec:
    """Return the trial of one prompt that puts a question to an agent."""
    return TrialSpec(
        prompt=Prompt(id="ask", input=text),
        agent=agent,
        benchmark=PluginRef(name="prompts"),
        limits=Limits(turn_s=timeout_s),
        surroundings=Surroundings(cwd=cwd),
        folder=f"ask-{uuid.uuid4().hex}",
    )


def local_machine() -> Machine:
    """Return a Machine for use outside a trial; inside, worlds and graders are given one."""
    return LocalHost()
