"""Training data, tables and other systems' files from results: which trials are taken, and what
becomes of each.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from copy import copy
from pathlib import Path
from typing import Any, Literal, NamedTuple

import msgspec

from assay.export import every_eval
from assay.export.atif import trajectory
from assay.export.inspect_writer import sample
from assay.export.messages import (
    ChatMessage,
    Thoughts,
    ToolBook,
    conversation,
    is_answered,
    sharegpt,
)
from assay.export.otel import Experiment, trace
from assay.export.table import TableRow, table_row
from assay.pipeline.prompts import fits_all
from assay.records.capture import Thought
from assay.records.files import short_hash
from assay.records.reports import ExportSummary
from assay.records.rows import RowFile, Spot
from assay.records.spec import Prompt
from assay.records.trial import Trial
from assay.records.trial.files import trial_at, trials_of
from assay.run.workspace import our_secrets

type Format = Literal[
    "sft", "dpo", "kto", "sharegpt", "atif", "otel", "inspect", "every-eval", "table"
]
type Only = Literal["passed", "failed", "graded"]
type Example = dict[str, Any]


class TrialFilter(msgspec.Struct, frozen=True, kw_only=True):
    """Which trials are wanted."""

    only: Only | None = None
    min_score: float | None = None
    filters: tuple[str, ...] = ()

    def why_not(self, trial: Trial) -> str | None:
        """Say why a trial is left out, if it is."""
        prompt = Prompt(id=trial.id, input=trial.input, metadata=trial.metadata)
        if not fits_all(prompt, self.filters):
            return "another prompt than --filter names"
        if (self.only or self.min_score is not None) and trial.verdict is None:
            return _unmeasured(trial) or "not graded"
        if self.only == "passed" and not trial.verdict:
            return "did not pass"
        if self.only == "failed" and trial.verdict:
            return "passed"
        if self.min_score is not None and (trial.score or 0.0) < self.min_score:
            return f"score below {self.min_score:g}"
        return None


class Export:
    """One export: reads files, counts what is left out and why."""

    def __init__(self, files: Sequence[RowFile], chosen: TrialFilter, thoughts: Thoughts) -> None:
        self._files = files
        self._chosen = chosen
        self._thoughts: Thoughts = thoughts
        self._tools = ToolBook()
        self._secrets = our_secrets()
        self.summary = ExportSummary(files=[file.name for file in files])
        self.experiments = {file.name: _experiment(file) for file in files}

    def write(self, kind: Format, encode: Callable[[Example], bytes]) -> Iterator[bytes]:
        """Yield examples of one format, encoded, many at a time; files are read twice."""
        # First: a tool has one description in all examples.
        if kind not in ("table", "otel", "inspect", "every-eval"):
            for file in self._files:
                for tools in file.map(_tools_of):
                    self._tools.merge(tools)
        if kind == "dpo":  # a prompt's trials may be far apart
            yield from map(encode, self._counted(self._dpo()))
            return

        def examples_of(part: RowFile) -> tuple[bytes, ExportSummary]:
            one = self._for(part)
            return b"".join(map(encode, one._counted(one._made(kind)))), one.summary

        for file in self._files:
            for text, summary in file.map(examples_of):
                self.summary.add(summary)
                yield text

    def _for(self, part: RowFile) -> "Export":
        """The same export of a part of a file, which counts by itself."""
        one = copy(self)
        one._files, one.summary = [part], ExportSummary(files=[])
        return one

    def _made(self, kind: Format) -> Iterator[Example]:
        make: dict[str, Callable[[], Iterator[Example]]] = {
            "table": self._table,
            "sft": self._sft,
            "sharegpt": self._sharegpt,
            "atif": self._atif,
            "otel": self._otel,
            "inspect": self._inspect,
            "every-eval": self._every_eval,
            "kto": self._kto,
        }
        return make[kind]()

    def _counted(self, examples: Iterator[Example]) -> Iterator[Example]:
        for example in examples:
            masked = self._secrets.mask_record(example)
            self.summary.masked += masked is not example
            self.summary.written += 1
            yield masked

    def _table(self) -> Iterator[TableRow]:
        for number, _, trial in self._trials():
            yield table_row(trial, self._files[number].name)

    def _sft(self) -> Iterator[Example]:
        for trial, messages in self._conversations():
            yield self._example(trial, {"messages": messages})

    def _sharegpt(self) -> Iterator[Example]:
        for trial, messages in self._conversations():
            example = self._example(trial, {"conversations": sharegpt(messages)})
            if "tools" in example:  # its readers want a string
                described = [tool["function"] for tool in example["tools"]]
                example["tools"] = msgspec.json.encode(described).decode()
            yield example

    def _atif(self) -> Iterator[Example]:
        """Yield all trials that measured the agent, also those without an answer."""
        for _, _, trial in self._trials():
            if why := _unmeasured(trial):
                self._leave_out(why)
                continue
            self._note(trial)
            yield trajectory(trial, self._conversation(trial))

    def _otel(self) -> Iterator[Example]:
        """Yield a request for each trial, also of those that measured nothing."""
        for file in self._files:
            experiment = self.experiments[file.name]
            for trial in self._whole_trials(file):
                yield trace(trial, experiment)

    def _inspect(self) -> Iterator[Example]:
        """Yield a sample for each trial, also of those that measured nothing."""
        for file in self._files:
            for trial in self._whole_trials(file):
                yield sample(trial, self._conversation(trial))

    def _every_eval(self) -> Iterator[Example]:
        """Yield a sample for each trial with a verdict: the format has no place for others."""
        for file in self._files:
            for trial in self._whole_trials(file, graded=True):
                yield every_eval.sample(
                    trial, self._conversation(trial), self.experiments[file.name]
                )

    def _whole_trials(self, file: RowFile, *, graded: bool = False) -> Iterator[Trial]:
        """Yield the wanted trials of a file with everything in them, secrets masked.

        They are masked here because a format may hold JSON as a text, in which a secret with quotes
        would not be found.
        """
        for _, trial in trials_of(file, whole=True):
            self.summary.trials += 1
            why = self._chosen.why_not(trial)
            if not why and graded and trial.verdict is None:
                why = _unmeasured(trial) or "not graded"
            if why:
                self._leave_out(why)
                continue
            masked = self._secrets.mask_record(trial)
            self.summary.masked += masked is not trial
            self._note(masked)
            if self._thoughts == "drop":
                steps = [step for step in masked.steps if not isinstance(step, Thought)]
                masked = msgspec.structs.replace(masked, trajectory=steps)
            yield masked

    def _kto(self) -> Iterator[Example]:
        for trial, messages in self._conversations(single=True, graded=True):
            pair = {"prompt": messages[:1], "completion": messages[1:], "label": trial.verdict}
            yield self._example(trial, pair)

    def _dpo(self) -> Iterator[Example]:
        """Pair the best passes of a prompt with its worst failures, each trial used once."""
        groups: dict[tuple[str, str], _Group] = {}
        for number, spot, trial in self._trials():
            if self._messages(trial, single=True, graded=True) is not None:
                key = trial.id, trial.turns[0]
                place = _Place(trial.score or 0.0, number, spot, trial.number)
                group = groups.setdefault(key, _Group([], []))
                (group.passed if trial.verdict else group.failed).append(place)
        for group in groups.values():
            yield from self._pairs(group)

    def _pairs(self, group: "_Group") -> Iterator[Example]:
        passed = sorted(group.passed, key=lambda place: -place.score)
        failed = sorted(group.failed, key=lambda place: place.score)
        n_pairs = min(len(passed), len(failed))
        lacking = "passed" if not passed else "failed" if not failed else ""
        for _ in (*passed[n_pairs:], *failed[n_pairs:]):
            self._leave_out(f"no {lacking} trial of the prompt" if lacking else "no partner left")
        for good, bad in zip(passed, failed, strict=False):
            better, worse = self._read(good), self._read(bad)
            chosen, rejected = self._conversation(better), self._conversation(worse)
            if chosen == rejected:  # nothing can be learnt from it, but that the grader is in doubt
                self._leave_out("the same as its partner, but graded otherwise")
                self._leave_out("the same as its partner, but graded otherwise")
                continue
            self._note(better)
            self._note(worse)
            pair = {"prompt": chosen[:1], "chosen": chosen[1:], "rejected": rejected[1:]}
            yield self._example(better, pair, worse)

    def _read(self, place: "_Place") -> Trial:
        return trial_at(self._files[place.file], place.spot, place.trial)

    def _conversations(
        self, *, single: bool = False, graded: bool = False
    ) -> Iterator[tuple[Trial, list[ChatMessage]]]:
        for _, _, trial in self._trials():
            messages = self._messages(trial, single=single, graded=graded)
            if messages is not None:
                self._note(trial)
                yield trial, messages

    def _messages(self, trial: Trial, *, single: bool, graded: bool) -> list[ChatMessage] | None:
        """Return the conversation of a trial that can be learnt from; count any other."""
        why = _unmeasured(trial)
        if why is None and not trial.is_finished and trial.failure:
            why = f"not finished ({trial.failure.cause.words})"
        if why is None and graded and trial.verdict is None:
            why = "not graded"
        if why is None and not trial.turns:
            why = "no prompt"
        if why is None and single and len(trial.turns) != 1:
            why = "several turns"
        messages = self._conversation(trial) if why is None else []
        if why is None and not is_answered(messages):
            why = "no answer" if len(trial.turns) == 1 else "a turn without an answer"
        if why is not None:
            self._leave_out(why)
            return None
        return messages

    def _conversation(self, trial: Trial) -> list[ChatMessage]:
        return conversation(trial.turns, trial.steps, trial.output, self._thoughts)

    def _trials(self) -> Iterator[tuple[int, Spot, Trial]]:
        """Yield the wanted trials with the number of their file and the spot of their row."""
        for number, file in enumerate(self._files):
            for spot, trial in trials_of(file):
                self.summary.trials += 1
                why = self._chosen.why_not(trial)
                if why is None:
                    yield number, spot, trial
                else:
                    self._leave_out(why)

    def _example(self, trial: Trial, example: Example, other: Trial | None = None) -> Example:
        if self._tools:  # in all examples or in none: a data set has one list of columns
            steps = [*trial.steps, *(other.steps if other else ())]
            example["tools"] = self._tools.offered(steps, trial.setup or {})
        if other is None:
            return example | {"id": trial.id, "trial": trial.number}
        numbers = {"chosen_trial": trial.number, "rejected_trial": other.number}
        return example | {"id": trial.id} | numbers

    def _note(self, trial: Trial) -> None:
        kinds = [type(step).__name__ for step in trial.steps]
        if self._thoughts == "drop":
            self.summary.thoughts_dropped += kinds.count("Thought")
        self.summary.sub_agent_steps += sum(bool(step.parent) for step in trial.steps)
        self.summary.not_passed += trial.verdict is False
        self.summary.not_graded += trial.verdict is None

    def _leave_out(self, why: str) -> None:
        self.summary.left_out[why] = self.summary.left_out.get(why, 0) + 1


def _experiment(file: RowFile) -> Experiment:
    """Name a run by its file; what began at another time has another id."""
    path = Path(file.name)
    _, first = next(file.placed_lines(), ("", b""))
    written_s = path.stat().st_mtime if path.is_file() else time.time()
    return Experiment(short_hash(first), path.stem, written_s * 1000)


def _tools_of(part: RowFile) -> ToolBook:
    tools = ToolBook()
    for _, trial in trials_of(part):
        tools.add(trial.steps)
    return tools


class _Place(NamedTuple):
    score: float
    file: int
    spot: Spot
    trial: int


class _Group(NamedTuple):
    """The trials of one prompt that can be paired."""

    passed: list[_Place]
    failed: list[_Place]


def _unmeasured(trial: Trial) -> str | None:
    if not trial.failure or not trial.needs_rerun:
        return None
    return f"did not measure the agent ({trial.failure.cause.words})"
