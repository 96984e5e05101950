"""The stages of one trial in their order: run, read, grade; and each stage alone, on a row."""

import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import msgspec
from msgspec import UNSET

from assay import plugins
from assay.adapters.model import ModelAdapter, answer_lines
from assay.errors import PluginError
from assay.graders.kept_verdicts import asking_anew
from assay.pipeline.extract import extract
from assay.pipeline.grading import judge
from assay.pipeline.limiter import RateLimiter
from assay.pipeline.resume import Resume
from assay.pipeline.simulated_user import user_of
from assay.pipeline.steps import DoTrial, OnTrialStep, Outcome, Step
from assay.plugin import Adapter, Answer, Machine
from assay.plugin import Trial as TrialForGraders
from assay.records.capture import Cause, Failure
from assay.records.files import temporary_folder
from assay.records.http import NoAnswer
from assay.records.recording import RawOutput, Recording, Turn, TurnEnd, raw_output, recording_of
from assay.records.rows import Place, decode_row, encode_row
from assay.records.spec import Limits, PluginRef, Prompt, Surroundings, TrialSpec
from assay.records.tape import TapeUse
from assay.records.trial import Trial, Verdict
from assay.run.host import LocalHost
from assay.run.notes import folder_of_row
from assay.run.process import prepare_to_fork
from assay.run.secrets import Secrets
from assay.run.snapshot import leave_out, opened_repository
from assay.run.tapes import open_tapes
from assay.run.treatment import without_treatment
from assay.run.trial import lost_trial, recorded
from assay.run.turn import OnStep, Trace, Until
from assay.run.workspace import our_secrets

MOST_REFUSALS = 5
"""How often a question is put to an agent whose provider refuses it for too many requests."""


class CaptureTrial(msgspec.Struct, frozen=True, kw_only=True):
    """Runs a trial, reads what the agent did, and grades it: what a batch of captures does."""

    graders: Sequence[PluginRef] = ()
    trace: Trace | None = None
    until: Callable[[TrialSpec], Until] | None = None
    """Returns, for an attempt at a trial, what says of its steps whether they settle it."""

    def prepare(self) -> None:
        """Get ready while there are no threads yet."""
        prepare_graders(self.graders)

    @property
    def steps(self) -> Sequence[Step]:
        """What happens around all attempts at a trial: the last one is graded."""
        return (GradingStep(self.graders),)

    def attempt(self, spec: TrialSpec, on_step: OnTrialStep | None = None) -> Outcome:
        """Make one attempt at a trial here; on_step gets None when it begins, then its steps."""
        on_attempt_step = None
        if on_step is not None:
            on_step(spec, None)
            on_attempt_step = partial(on_step, spec)
        until = self.until(spec) if self.until is not None else None
        return capture_outcome(capture_attempt(spec, on_attempt_step, self.trace, until))

    def lost(self, spec: TrialSpec, why: str) -> Outcome:
        """Return the result of a trial whose worker died."""
        return capture_outcome(read_recording(spec, lost_trial(why)))


class GradingStep(Step):
    """Puts a trial to the graders when its last attempt is over."""

    def __init__(self, graders: Sequence[PluginRef]) -> None:
        self._graders = graders

    def around(self, run: DoTrial) -> DoTrial:
        def graded(spec: TrialSpec, on_step: OnTrialStep | None) -> Outcome:
            outcome = run(spec, on_step)
            if not self._graders and not spec.graders:
                return outcome
            host = AskingHost(spec.surroundings)
            graded = grade_capture(spec, outcome.result, self._graders, host)
            return outcome._replace(result=graded, extra_usd=outcome.extra_usd + host.spent_usd)

        return graded


class RunTrial(msgspec.Struct, frozen=True, kw_only=True):
    """Runs a trial and writes out its raw lines: what a batch of `assay run` does."""

    trace: Trace | None = None
    needs_failure: bool = False
    """Whether the lines are always read for why a trial failed and what it cost, as retries and a
    budget need it: that takes longer than the rest."""

    def prepare(self) -> None:
        """Nothing: there are no graders."""

    @property
    def steps(self) -> Sequence[Step]:
        """Nothing happens to a trial after its last attempt."""
        return ()

    def attempt(self, spec: TrialSpec, on_step: OnTrialStep | None = None) -> Outcome:
        """Make one attempt at a trial; its lines are interpreted only where that may matter."""
        user = user_of(spec.prompt, AskingHost(spec.surroundings, "user"))
        with recorded(spec, trace=self.trace, user=user) as recording:
            recording = recording if user is None else user.recorded(recording, spec.prompt)
            raw = raw_output(spec.prompt, recording, _text_agent(spec))
            row = _secrets(recording).mask_record(raw)
            failure, cost = recording.failure, None
            failed = recording.turns and recording.turns[-1].end.exit_code
            if self.needs_failure or failed:
                captured = read_recording(spec, recording)
                failure, cost = captured.failure or None, captured.cost_usd
        row = msgspec.structs.replace(row, spec_hash=spec.hash, identity=spec.identity or UNSET)
        return Outcome(row, failure, cost, recording.raw)

    def lost(self, spec: TrialSpec, why: str) -> Outcome:
        """Return the result of a trial whose worker died."""
        return Outcome(raw_output(spec.prompt, lost_trial(why), _text_agent(spec)))


def _text_agent(spec: TrialSpec) -> str | None:
    """Return the name of an agent that prints plain text, else None."""
    adapter = plugins.adapter(spec.agent)
    return adapter.name if adapter.plain_text else None


def capture_outcome(captured: Trial) -> Outcome:
    """Return a capture with what the steps around a trial need to know of it.

    It costs what the last attempt cost: earlier ones failed for want of a provider.
    """
    failure, raw = captured.failure or None, captured.raw or None
    return Outcome(captured, failure, captured.cost_usd, raw, captured.user_usd)


def capture_attempt(
    spec: TrialSpec,
    on_step: OnStep | None = None,
    trace: Trace | None = None,
    until: Until | None = None,
) -> Trial:
    """Run one attempt at a trial here and read what the agent did."""
    user = user_of(spec.prompt, AskingHost(spec.surroundings, "user"))
    with recorded(spec, on_step, trace, until, user) as recording:
        recording = recording if user is None else user.recorded(recording, spec.prompt)
        return read_recording(spec, recording)


def grade_capture(
    spec: TrialSpec,
    captured: Trial,
    graders: Sequence[PluginRef],
    host: "AskingHost | None" = None,
) -> Trial:
    """Put the graders' verdict into a capture, in place of an earlier one."""
    return captured.with_verdict(*judge_again(spec, captured, graders, host))


def judge_again(
    spec: TrialSpec,
    captured: Trial,
    graders: Sequence[PluginRef],
    host: "AskingHost | None" = None,
) -> tuple[Verdict, list[str]]:
    """Ask the graders, and those of the prompt's row, about what was captured of a trial.

    Also return what graders say about their files that changed since the run began.
    """
    graders = (*graders, *spec.graders)
    # A row on disk, which is graded later, has the prompt's unknown fields as well.
    row = {**masked_extra(spec), **captured.to_row()}
    folder = captured.folder
    trial = TrialForGraders(
        input=[*captured.turns] if captured.simulated_user else spec.prompt.input,
        output=captured.output,
        hint=spec.prompt.hint,
        trajectory=row["trajectory"],
        metadata=spec.prompt.metadata,
        cwd=folder_of_row(folder, captured.raw or None) if folder else spec.surroundings.cwd,
        reference=spec.prompt.reference,
        row=row,
    )
    failure = captured.failure or None
    if (
        failure is not None
        and failure.cause.measures_agent
        and plugins.benchmark(spec.benchmark).grades_failed_trials
    ):
        failure = None  # the graders judge by the world's evidence
    host = host or AskingHost(spec.surroundings)
    hiding = without_treatment(trial.cwd, spec.surroundings.added)
    with opened_repository(trial.cwd) as env, hiding as hidden:
        leave_out(env, trial.cwd or "", hidden)
        trial = msgspec.structs.replace(trial, env=env)
        verdict = our_secrets().mask_record(judge(trial, failure, graders, host))
    return verdict, [text for ref in graders for text in plugins.grader(ref).changes(trial)]


def masked_extra(spec: TrialSpec) -> dict[str, Any]:
    """Return the unknown fields of a prompt's row, without secrets: its trials' rows have them."""
    extra: dict[str, Any] = our_secrets().mask_record(spec.extra) if spec.extra else spec.extra
    return extra


def grade_row_again(place: Place, line: bytes, spec: TrialSpec, resume: Resume) -> bytes:
    """Return a row of capture with the verdict of other graders."""
    captured, extra = decode_row(place, line, Trial)
    graded = grade_capture(spec, captured, resume.graders)
    resume.graded(graded)
    graded = msgspec.structs.replace(graded, spec_hash=spec.hash, identity=spec.identity or UNSET)
    return encode_row(graded, extra)


def freeze(graders: Sequence[PluginRef]) -> None:
    """Let the graders note what they are made of; call it before the first agent starts."""
    prepare_graders(graders)
    for grader in map(plugins.grader, graders):
        grader.freeze(AskingHost())


def read_recording(spec: TrialSpec, recording: Recording) -> Trial:
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


def prepare_graders(graders: Sequence[PluginRef]) -> None:
    """Start the fork server, if any grader needs it, while there are no threads yet."""
    for grader in map(plugins.grader, graders):
        if grader.child_function:
            prepare_to_fork(grader.child_function)


def extract_row(row: RawOutput, adapter: Adapter, base: Path, raw_dir: Path | None = None) -> Trial:
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
    spent_usd: float = 0.0
    """What questions to this host have cost, as far as it is known, with those that failed."""
    hides_env: ClassVar[bool] = True
    """Whether an agent that is asked gets only variables that were declared."""

    tape: ClassVar[TapeUse | None] = None
    """What becomes of the answers to questions that are about no trial that runs."""

    def __init__(self, around: Surroundings | None = None, role: str = "judge") -> None:
        """Questions about a trial are put in the sandbox in which it ran, and on its tape."""
        tape = around.tape if around is not None else self.tape
        if tape is not None:
            tape = msgspec.structs.replace(tape, role=role, faults=())
        self._tape = tape if tape is not None and (tape.written or tape.replay) else None
        sandbox = around.sandbox if around is not None else ""
        # The image of a container has the agent's program, not the judge's.
        in_container = around is not None and around.container
        self._sandbox = "no-network" if in_container else sandbox

    def ask(
        self,
        agent: PluginRef,
        text: str,
        *,
        cwd: str | None = None,
        timeout_s: float = 60.0,
        env: Sequence[str] = (),
    ) -> str:
        """Return the text of an answer alone."""
        return self.answer(agent, text, cwd=cwd, timeout_s=timeout_s, env=env).text

    def answer(
        self,
        agent: PluginRef,
        text: str,
        *,
        cwd: str | None = None,
        timeout_s: float = 60.0,
        env: Sequence[str] = (),
    ) -> Answer:
        """Run a trial of one prompt, without tools in an empty folder unless cwd is given."""
        with temporary_folder("assay-ask-") as empty:
            spec = asking_spec(agent, text, cwd or empty, timeout_s)
            around = msgspec.structs.replace(
                spec.surroundings,
                tools=cwd is not None,
                sandbox=self._sandbox,
                env_names=tuple(env),
                isolate=self.hides_env,
                own_home=True,
                tape=self._tape,
            )
            captured = self.put(msgspec.structs.replace(spec, surroundings=around))
        self.spent_usd += captured.cost_usd or 0.0
        failure = captured.failure or None
        if failure and not failure.answered:
            msg = f"{failure.cause}: {failure.message}"
            raise PluginError(msg)
        model = captured.agent.model or "" if captured.agent else ""
        return Answer(text=captured.output, usage=captured.usage or None, model=model)

    def put(self, spec: TrialSpec) -> Trial:
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

    def put_once(self, spec: TrialSpec) -> Trial:
        """Put a question: run its trial, or send it to the URL of a model."""
        adapter = plugins.adapter(spec.agent)
        if isinstance(adapter, ModelAdapter):
            return ask_model(spec, adapter)
        return capture_attempt(spec)


@contextmanager
def tapes_in_use(uses: Iterable[TapeUse | None]) -> Iterator[None]:
    """Hold tapes open while trials run, or rows are graded; questions of judges go to them too."""
    known = [use for use in uses if use is not None]
    with asking_anew() if known else nullcontext(), open_tapes(known):
        AskingHost.tape = msgspec.structs.replace(known[0], arm="") if known else None
        try:
            yield
        finally:
            AskingHost.tape = None


def ask_model(spec: TrialSpec, model: ModelAdapter) -> Trial:
    """Put the prompt of a trial to a model by its URL.

    It is sent from this process, outside of any sandbox: nothing but that URL is reached.
    """
    # Late: with ssl 50 ms, and few runs ask a model by its URL.
    from assay.run import http, proxy

    text, start_ms, began_s = spec.prompt.turns[0], round(time.time() * 1000), time.monotonic()
    try:
        with proxy.through_tape(spec, model.request(text)) as (request, lane):
            lines = answer_lines(http.post(request, spec.limits.turn_s))
    except NoAnswer as error:
        took_ms = round((time.monotonic() - began_s) * 1000)
        lost = Recording(start_ms=start_ms, end_ms=start_ms + took_ms, failure=error.failure)
        return read_recording(spec, lost)
    took_ms = round((time.monotonic() - began_s) * 1000)
    turn = Turn(text, TurnEnd(end_ms=took_ms, exit_code=0), lambda: lines)
    end_ms = start_ms + took_ms
    recording = Recording(
        start_ms=start_ms,
        end_ms=end_ms,
        turns=(turn,),
        replay=lane.replay() if lane else None,
        wire=lane.wire() if lane else None,
    )
    return read_recording(spec, recording)


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
