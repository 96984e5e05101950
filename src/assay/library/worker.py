"""The work of a run in a process of its own, and the messages that tell of it."""

import contextlib
import traceback
import warnings
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from assay import errors, plugins
from assay.errors import AssayError, UsageError
from assay.library.reading import Trial, trials_to_read
from assay.library.wording import in_python
from assay.pipeline.doubts import first_failure
from assay.pipeline.run import BatchProgress, RunRequest, execute, plan
from assay.pipeline.stages import masked_extra
from assay.pipeline.steps import Budget
from assay.records import trial as records
from assay.records.rows import decode_row, encode_row, read_lines
from assay.records.spec import TrialSpec
from assay.records.text import counted_noun
from assay.records.trial import FinishedTrial, TrialEntry, TrialResult, to_entry
from assay.run.background import Background, Send


class AssayWarning(UserWarning):
    """Something that the reader of a result should know."""


class Progress(msgspec.Struct, frozen=True, kw_only=True):
    """How far a run is."""

    n_done: int
    """Trials that have finished, those of earlier runs included."""
    n_total: int
    n_passed: int
    cost_usd: float
    """Of the trials that were run now. With max_cost, a trial of unknown cost counts as much as the
    most expensive one so far, or an even share."""
    trial: Trial | None
    """The trial that has just finished; None at the beginning."""


def warn(text: str) -> None:
    """Warn at the line of the program that called the library."""
    warnings.warn(text, AssayWarning, stacklevel=2, skip_file_prefixes=_OURS)


_OURS = (str(Path(errors.__file__).parent), contextlib.__file__.removesuffix(".py"))
"""Where no program is: Assay, and the decorator round its functions. A whole name never matches."""


class UngradedCount:
    """Counts trials that a grader failed to judge."""

    def __init__(self) -> None:
        self._n_trials = self._n_broken = 0
        self._first = ""

    def add(self, trial: records.Trial) -> None:
        self._n_trials += 1
        if trial.grader_failures:
            self._n_broken += 1
            self._first = self._first or first_failure(trial.grader_failures)

    @property
    def words(self) -> str:
        """What is to be said of them; nothing if there are none."""
        were = "was" if self._n_broken == 1 else "were"
        of = f"{self._n_broken} of {counted_noun(self._n_trials, 'trial')} {were}"
        why = f"not graded because a grader failed (see grader_failures): {self._first}"
        return f"{of} {why}" if self._n_broken else ""

    def say(self) -> None:
        if self.words:
            warn(self.words)


class _Beginning(msgspec.Struct, frozen=True, tag=True):
    n_total: int
    n_before: int = 0
    """Trials that have finished before, and of which nothing is sent."""


class _FinishedTrial(msgspec.Struct, frozen=True, tag=True):
    row: bytes
    """As a file would have it, with one trial."""
    cost_usd: float


class _Note(msgspec.Struct, frozen=True, tag=True):
    text: str


class _Failure(msgspec.Struct, frozen=True, tag=True):
    kind: str
    message: str
    hint: str


class _Result(msgspec.Struct, frozen=True, tag=True):
    value: msgspec.Raw


class _End(msgspec.Struct, frozen=True, tag=True):
    pass


type _Message = _Beginning | _FinishedTrial | _Note | _Failure | _Result | _End
_MESSAGES: msgspec.msgpack.Decoder[_Message] = msgspec.msgpack.Decoder(_Message)
_encode = msgspec.msgpack.Encoder().encode


def note(text: str) -> bytes:
    """Encode a warning for the program that started the work."""
    return _encode(_Note(in_python(text)))


class Reader:
    """Reads the messages of a process; keeps what it sent."""

    def __init__(
        self, source: str, on_progress: Callable[[Progress], object] | None = None
    ) -> None:
        self._source, self._on_progress = source, on_progress
        self._n_total = self._n_done = self._n_passed = 0
        self._cost_usd = 0.0
        self._ungraded = UngradedCount()
        self.is_over = False
        self.rows: deque[bytes] = deque()
        """Of trials that have finished and nobody has taken yet."""
        self.value: Any = None
        """What the work returned."""

    def take(self, message: bytes | None, background: Background) -> None:
        """Take a message, None at the end; raise the error that it tells of."""
        if message is None:
            why = background.how_it_ended or "the process that ran the trials ended too early"
            raise AssayError(why, hint="what has finished is kept: run the same again")
        match _MESSAGES.decode(message):
            case _Beginning(n_total, n_before):
                self._n_total, self._n_done = n_total, n_before
                self._report_progress(None)
            case _FinishedTrial(row, cost_usd):
                self._n_done, self._cost_usd = self._n_done + 1, cost_usd
                self.rows.append(row)
                (trial,) = trials_to_read(row, self._source)
                self._n_passed += trial.passed is True
                self._ungraded.add(trial)
                self._report_progress(trial)
            case _Note(text):
                warn(text)
            case _Failure(kind, words, hint):
                raise getattr(errors, kind, AssayError)(words, hint=hint)
            case _Result(value):
                self.value = msgspec.msgpack.decode(value)
            case _End():
                self.is_over = True
                self._ungraded.say()

    def _report_progress(self, trial: Trial | None) -> None:
        if self._on_progress is not None:
            self._on_progress(
                Progress(
                    n_done=self._n_done,
                    n_total=self._n_total,
                    n_passed=self._n_passed,
                    cost_usd=self._cost_usd,
                    trial=trial,
                )
            )


def send_errors(work: Callable[[Send], object], send: Send) -> None:
    """Do work, and send a message at its end: that it is over, or how it failed."""
    try:
        value = work(send)
        if value is not None:
            send(_encode(_Result(msgspec.Raw(_encode(value)))))
        send(_encode(_End()))
    except AssayError as error:
        words, hint = in_python(error.message), in_python(error.hint)
        send(_encode(_Failure(type(error).__name__, words, hint)))
    except BaseException as error:  # noqa: BLE001 - the program is told of it
        words = f"the run failed: {type(error).__name__}: {error}"
        send(_encode(_Failure("AssayError", words, traceback.format_exc())))


def compute(
    work: Callable[[Send], object],
    known: dict[str, Callable[..., Any]],
    on_progress: Callable[[Progress], object] | None = None,
) -> Any:
    """Return what work returns, from a process of its own."""
    reader = Reader("", on_progress)
    background = Background(partial(send_errors, work), known)
    with closing(background):
        while not reader.is_over:
            reader.take(background.receive(), background)
    return reader.value


def execute_request(make: Callable[[], RunRequest], needs_grades: bool, send: Send) -> None:
    """Plan and execute a request; tell of what happens."""
    request = make()
    batch = plan(request)
    prompts = (spec.prompt for spec in batch.specs)
    if needs_grades and not batch.graders:
        for prompt in prompts:
            if not prompt.graders and not prompt.expect:
                msg = f"no grader judges the prompt {prompt.id!r}"
                raise UsageError(msg, hint='give graders, as in graders=["contains"]')
    important = [note.text for note in batch.notes if note.is_important]
    for text in (*plugins.adapter(request.agent).warnings, *important):
        send(note(text))
    if request.max_cost is not None:
        budget = Budget(request.max_cost, len(batch.specs))
        batch = msgspec.structs.replace(batch, budget=budget)
    progress = _SendingProgress(request, batch.specs, batch.budget, send)
    for _ in execute(batch, progress=progress):
        pass
    if n_left := progress.n_left:
        trials = "1 trial was" if n_left == 1 else f"{n_left} trials were"
        text = f"stopped at max_cost {request.max_cost:g}: {trials} not run"
        send(note(text))


class _SendingProgress(BatchProgress):
    """Sends the row of each trial, those of earlier runs first."""

    def __init__(
        self, request: RunRequest, specs: list[TrialSpec], budget: Budget | None, send: Send
    ) -> None:
        self._request, self._send, self._budget = request, send, budget
        self._specs = {(spec.prompt.id, spec.number): spec for spec in specs}
        self._known_usd = 0.0
        self.n_left = 0

    def begin(self, missing: list[TrialSpec], n_planned: int) -> None:
        self.n_left = len(missing)
        self._send(_encode(_Beginning(n_planned)))
        left = {(spec.prompt.id, spec.number) for spec in missing}
        for key, row in self._earlier():
            if key in self._specs and key not in left:
                self._send(_encode(_FinishedTrial(row, 0.0)))

    def finished(self, spec: TrialSpec, result: Any) -> None:
        self.n_left -= 1
        usage = result.usage
        self._known_usd += usage.spent_usd if usage else 0.0
        limit, cost_usd = self._request.max_cost, self._known_usd
        if self._budget is not None and limit is not None:
            cost_usd = limit - self._budget.left
        if self._request.k is None:
            row = encode_row(result, masked_extra(spec))
        else:
            row = _single(spec, to_entry(result, spec.number))
        self._send(_encode(_FinishedTrial(row, cost_usd)))

    def note(self, text: str) -> None:
        self._send(note(text))

    def _earlier(self) -> Iterator[tuple[tuple[str, int], bytes]]:
        """Yield the trials that the output has, and those that wait beside it for others."""
        output = self._request.output
        if output is None or not output.is_file():
            return
        for place, line in read_lines(output):
            if self._request.k is None:
                yield (decode_row(place, line, _Id)[0].id, 1), line
                continue
            row, extra = decode_row(place, line, TrialResult)
            for entry in row.trials:
                one = msgspec.structs.replace(row, trials=[entry], k=1)
                yield (row.id, entry.number), encode_row(one, extra)
        partial = output.with_name(f"{output.name}.partial")
        for place, line in read_lines(partial) if partial.is_file() else ():
            done, _ = decode_row(place, line, FinishedTrial)
            key = done.id, done.entry.number
            if spec := self._specs.get(key):
                yield key, _single(spec, done.entry)


class SentTrials:
    """Tells how far the trials of an experiment are."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self._known_usd = 0.0

    def begin(self, missing: list[TrialSpec], n_planned: int) -> None:
        self._send(_encode(_Beginning(n_planned, n_planned - len(missing))))

    def finished(self, spec: TrialSpec, result: Any) -> None:
        usage = result.usage
        self._known_usd += usage.spent_usd if usage else 0.0
        row = _single(spec, to_entry(result, spec.number))
        self._send(_encode(_FinishedTrial(row, self._known_usd)))


class _Id(msgspec.Struct):
    id: str


def _single(spec: TrialSpec, entry: TrialEntry) -> bytes:
    """Return the row of a prompt with one of its trials."""
    prompt = spec.prompt
    row = TrialResult(
        id=prompt.id,
        input=prompt.input,
        hint=prompt.hint or msgspec.UNSET,
        k=1,
        trials=[entry],
        metadata=prompt.metadata,
        spec_hash=spec.hash,
        identity=spec.identity or msgspec.UNSET,
    )
    return encode_row(row, masked_extra(spec))
