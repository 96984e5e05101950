"""An agent that answers from a result file: the same steps, answers and failures, at no cost."""

import hashlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
from msgspec import UNSET, UnsetType

from assay.errors import InputError, SpawnError
from assay.plugin import Adapter, Ask, Command, Reading, Watch
from assay.records.capture import AgentInfo, AnyStep, Events, Failure, Message, Usage
from assay.records.recording import RawLine, Recording
from assay.records.rows import UNREADABLE, Spot, open_rows
from assay.records.spec import TrialSpec
from assay.records.trial import Trial
from assay.records.trial.files import HINT, trial_at
from assay.records.trial.views import NumbersView

_MOST_NAMED = 10
_SHORT = 12


class _Place(msgspec.Struct, frozen=True):
    """Where a trial stands: the row, and its number in the row."""

    spot: Spot
    number: int


class _RecordedPrompt(msgspec.Struct):
    input: str | list[str]
    trials: dict[int, _Place]


class Line(msgspec.Struct, kw_only=True, rename="camel", omit_defaults=True):
    """A line that the replaying process prints: a step, or the end of a turn."""

    step: AnyStep | UnsetType = UNSET
    output: str | UnsetType = UNSET
    """The answer to the turn; a line that has it ends the turn."""
    usage: Usage | UnsetType = UNSET
    turn_usage: list[Usage] = []
    failure: Failure | UnsetType = UNSET
    model: str | UnsetType = UNSET
    session_id: str | UnsetType = UNSET
    setup: dict[str, Any] = {}


_LINES = msgspec.json.Decoder(Line)


class ReplayAdapter(Adapter):
    """replay:FILE, where FILE holds captures or trials; the k-th trial answers the k-th.

    The process is `cat`: it prints the recorded trial, which it gets on stdin.
    """

    name = "replay"
    reads = ()
    """It looks at nothing that it is offered."""

    def __init__(self, argument: str = "") -> None:
        if not argument:
            msg = "replay needs a result file"
            raise InputError(msg, hint="give it as in -s replay:results.jsonl")
        self._path = Path(argument).absolute()
        self._recorded, self._ids_by_text = _index(Path(argument))
        with self._path.open("rb") as file:
            self.content_hash: str = hashlib.file_digest(file, "sha256").hexdigest()[:_SHORT]

    def check_trials(self, specs: Sequence[TrialSpec]) -> None:
        """Refuse prompts that the file has no answer to."""
        missing, changed, short = [], [], []
        for spec in specs:
            found = self._recorded.get(spec.prompt.id)
            if found is None:
                missing.append(spec.prompt.id)
            elif found.input != spec.prompt.input:
                changed.append(spec.prompt.id)
            elif spec.number not in found.trials:
                short.append(f"{spec.prompt.id} (trial {spec.number})")
        parts = [f"{_names(missing)} not recorded"] if missing else []
        parts += [f"{_names(changed)} changed since"] if changed else []
        parts += [f"{_names(short)} not repeated as often"] if short else []
        if parts:
            msg = f"{self._path.name} cannot answer: {'; '.join(parts)}"
            hint = "record these prompts again, or leave them out with --filter"
            raise InputError(msg, hint=hint)

    def command(self, ask: Ask) -> Command:
        if not ask.text and not ask.prompt_id:  # asked only for the program
            return Command(argv=("cat",))
        lines = self._lines(ask)
        return Command(argv=("cat",), stdin="".join(f"{line}\n" for line in lines))

    def watch(self) -> Watch:
        return _ReplayWatch()

    def read(self, recording: Recording) -> Reading:
        steps: list[AnyStep] = []
        outputs: list[str] = []
        events, last = Events(), Line()
        for turn in recording.turns:
            watch = _ReplayWatch()
            for line in turn.lines():
                steps += watch.feed(line)
                events.total += 1
            outputs.append(watch.output())
            events.mapped += watch.n_read
            events.terminal, last = watch.ended, watch.end
        events.unparsed = events.total - events.mapped
        return Reading(
            steps=steps,
            outputs=outputs,
            events=events,
            usage=last.usage or None,
            turn_usage=last.turn_usage,
            session_id=last.session_id or None,
            failure=last.failure or None,
            setup=last.setup or None,
            agent=AgentInfo(adapter=self.name, version=self.content_hash, model=last.model),
        )

    def _lines(self, ask: Ask) -> Iterator[str]:
        trial, number = self._trial(ask), len(ask.history) + 1
        own = [step for step in trial.steps if (step.turn or 1) == number]
        for step in own:
            yield _encoded(Line(step=step))
        if number < len(trial.turns):
            said = [step.content for step in own if isinstance(step, Message)]
            yield _encoded(Line(output=said[-1] if said else ""))
            return
        agent, failure = trial.agent, trial.failure
        yield _encoded(
            Line(
                output=trial.output,
                usage=(trial.usage or Usage()).paid_before(),
                turn_usage=[usage.paid_before() for usage in trial.turn_usage or ()],
                failure=failure or UNSET,
                model=agent.model if agent else UNSET,
                session_id=trial.session_id or UNSET,
                setup=trial.setup or {},
            )
        )

    def _trial(self, ask: Ask) -> Trial:
        """Find a trial by the id of its prompt or, where that says nothing, by the first turn."""
        first = ask.history[0][0] if ask.history else ask.text
        prompt_id = ask.prompt_id
        if prompt_id not in self._recorded:
            prompt_id = self._ids_by_text.get(first, "")
        found = self._recorded.get(prompt_id)
        place = found.trials.get(ask.trial) if found else None
        if place is None:
            msg = (
                f"{self._path.name} has no trial {ask.trial} of a prompt that begins {first[:60]!r}"
            )
            raise SpawnError(msg)
        with open_rows(self._path) as rows:
            return trial_at(rows, place.spot, place.number)


class _ReplayWatch(Watch):
    def __init__(self) -> None:
        self.end = Line()
        self.n_read = 0

    def feed(self, line: RawLine) -> Sequence[AnyStep]:
        try:
            read = _LINES.decode(line.text)
        except UNREADABLE:  # cut off, or from another program in the raw rows of `assay run`
            return ()
        self.n_read += 1
        if read.step is not UNSET:
            return (read.step,)
        if read.output is not UNSET:
            self.ended, self.end = True, read
        return ()

    def output(self) -> str:
        return self.end.output or ""


def _index(path: Path) -> tuple[dict[str, _RecordedPrompt], dict[str, str]]:
    """Note where each trial stands. Rows of one id, as --append makes them, are its trials."""
    recorded: dict[str, _RecordedPrompt] = {}
    by_text: dict[str, str] = {}
    with open_rows(path, hint=HINT) as rows:
        for spot, row in rows.placed_rows(msgspec.json.Decoder(NumbersView)):
            if not row.is_trials and not row.output:
                msg = f"{rows.place(spot)}: no trial to replay: the row has no output"
                raise InputError(msg, hint=f"{HINT}; `assay extract` makes captures of raw rows")
            found = recorded.setdefault(row.id, _RecordedPrompt(row.input, {}))
            before = len(found.trials)
            found.trials |= {before + number: _Place(spot, number) for number in row.numbers}
            turns = [row.input] if isinstance(row.input, str) else row.input
            by_text.setdefault(turns[0] if turns else "", row.id)
    if not recorded:
        msg = f"{path}: no trials to replay"
        raise InputError(msg, hint=HINT)
    return recorded, by_text


def _encoded(line: Line) -> str:
    return msgspec.json.encode(line).decode()


def _names(ids: Sequence[str]) -> str:
    more = f" and {len(ids) - _MOST_NAMED} more" if len(ids) > _MOST_NAMED else ""
    return f"{', '.join(ids[:_MOST_NAMED])}{more} {'was' if len(ids) == 1 else 'were'}"
