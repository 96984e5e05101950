"""A result file as columns of numbers: what compare, report and viewer know about its trials.

A file becomes columns with a value per row of the file, columns with a value per trial, and facts
about the whole. Reading can go on where it stopped: the columns and the facts are extended.
"""

import contextlib
import re
import zlib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache, reduce
from itertools import chain, repeat
from math import inf, nan
from operator import attrgetter, or_
from typing import Any, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from assay.records.capture import Cause
from assay.records.rows import UNREADABLE
from assay.records.setup import Problems, SetupReader
from assay.records.trial.files import Kind
from assay.records.trial.views import (
    BOOKKEEPING,
    NO_AGENT,
    NO_FAILURE,
    NO_JSON,
    NO_USAGE,
    CaptureStepsView,
    CaptureView,
    EntryView,
    TrialsStepsView,
    TrialsView,
)

_VIEWS: dict[tuple[Kind, bool], type[Any]] = {
    ("trials", True): TrialsStepsView, ("trials", False): TrialsView,
    ("capture", True): CaptureStepsView, ("capture", False): CaptureView,
}  # fmt: skip
type Floats = NDArray[np.float64]
type Ints = NDArray[np.int64]
type Columns = dict[str, NDArray[Any]]
type Fields = dict[str, tuple[Any, ...]]
"""A block of rows, a column for each field."""

TIMEOUT = Cause.AGENT_TIMEOUT.value
NO_CATEGORY = "(uncategorized)"
_RICHNESS = {b'"%b"' % name.encode(): name for name in ("full", "messages-only", "minimal")}
_EMPTY_TEXT = 2
"""Bytes of a JSON string with nothing in it."""
_LARGEST = 1e15
"""Fits into int64; runs.py refuses a k that large."""
_MOST_TOOLS = 60_000
"""Tools that are counted by name; names beyond it are ignored."""
_TOOL_BITS = 50
"""Tools with a bit of their own in the column tools; all others share the next one. A page counts
in doubles, which hold 53 bits."""
_MOST_SETUPS = 10_000
"""Sets of problems that are told apart; the number beyond it stands for all others."""
_MOST_MEASURES = 20
"""Measures that are shown; names beyond it are ignored."""
_MOST_IDENTITIES = 200
"""Where prompts bring graders along, each has its own."""
_ANSWERS = ("expected", "answer", "reference", "solution", "target", "rubric")
"""Names under which prompts have the right answer for a user's own graders."""
_EXPECTATION = ("hint", "expect", "graders", *_ANSWERS)
_TASK = ("files", "workspace")
_SETUP_HASH = re.compile(rb'"setup":"([^"]+)"')
_OTHER_SETUPS: Problems = ("other problems with the set-up",)

ROW = {
    "offset": "<u8",
    "text": "<u8",
    "id": "<u8",
    "length": "<u4",
    "input": "<u4",
    "expectation": "<u4",
    "metadata": "<u4",
    "task": "<u4",
    "category": "<u4",
    "n_trials": "<u4",
    "k": "<i8",
    "pass_at_k": "<f8",
    "pass_exp_k": "<f8",
}
"""Columns of rows. offset and length say where its line is, text where its id and the beginning
of its input are kept, id is a fingerprint of the id; only the viewer fills these four. input is a
fingerprint of the prompt's input, expectation of what graders know of the right answer, metadata of
what the prompt has there, task of the files and the set-up that the prompt brings along; 0 where it
has none."""
TRIAL = {
    "passed": "<f8",
    "score": "<f8",
    "duration_ms": "<f8",
    "first_response_ms": "<f8",
    "cost_usd": "<f8",
    "tokens": "<f8",
    "tools": "<u8",
    "n_steps": "<u4",
    "denials": "<u4",
    "cause": "<u4",
    "setup": "<u4",
    "number": "<u2",
    "tool_error": "?",
    "complete": "?",
    "answered": "?",
    "grader_failed": "?",
    "excused": "?",
}
"""Columns of trials as their rows have them; NaN is not known or not measured. excused says that it
was tried again after an attempt that only the agent's own word took out of the measurement."""


class RunFacts(msgspec.Struct, rename="camel"):
    """Facts about a whole file."""

    kind: Kind | None = None
    """None until the first row is seen."""
    categories: list[str] = []
    """Names of the numbers in the column category."""
    causes: list[str] = msgspec.field(default_factory=lambda: [""])
    """The same for the column cause; the first stands for no failure."""
    setups: list[Problems] = msgspec.field(default_factory=lambda: [()])
    """What was wrong with the agent's set-up, for the column setup; the first is nothing."""
    graders: dict[str, set[str]] = {}
    """Versions seen, by grader."""
    agents: set[tuple[str, str, str]] = set()
    """Adapter, version and model."""
    richness: str | None = None
    """How much of the agent's work can be seen, as the rows declare it."""
    shows_work: bool = False
    """Whether any step is more than a message; only known where steps are read."""
    tools: dict[str, list[int]] = {}
    """Calls and failed calls of each tool; only where steps are read."""
    allocated: bool = False
    """Whether prompts have unequal numbers of trials on purpose: `assay trials --allocate`."""
    identities: list[str] = []
    """What the rows were made from, as JSON; the first ones, if there are many."""
    measures: dict[str, tuple[int, float]] = {}
    """Of each number in outcome.measures of the grades: of how many trials, and their sum."""


class Block(NamedTuple):
    """Some rows and their trials, in the order of the file."""

    rows: Columns
    trials: Columns


def zeros(types: Mapping[str, str], n: int) -> Columns:
    """Make columns to be filled."""
    return {name: np.zeros(n, dtype) for name, dtype in types.items()}


def joined(blocks: Sequence[Block]) -> Block:
    """Concatenate blocks, emptying them on the way: memory holds one column twice, not all."""
    rows = {name: np.concatenate([block.rows.pop(name) for block in blocks]) for name in ROW}
    trials = {name: np.concatenate([block.trials.pop(name) for block in blocks]) for name in TRIAL}
    return Block(rows, trials)


class CompactBlock(NamedTuple):
    """A block to be sent to another process; of a column with one value, only that is sent."""

    n_rows: int
    n_trials: int
    rows: dict[str, Any]
    trials: dict[str, Any]


def compact(block: Block) -> CompactBlock:
    """Leave out what repeats."""
    rows, trials = ({n: _compacted(c) for n, c in columns.items()} for columns in block)
    return CompactBlock(len(block.rows["k"]), len(block.trials["passed"]), rows, trials)


def _compacted(column: NDArray[Any]) -> Any:
    if not len(column):
        return column
    first = column[0]
    return first if _are(column, first).all() else column


def _are(values: Any, value: Any) -> Any:
    """Tell whether values are the same; NaN is the same as NaN."""
    return values == value if value == value else np.isnan(values)


class GrowingBlock:
    """Blocks one after the other. A column takes no memory while it has the same value."""

    def __init__(self) -> None:
        self._rows = {name: GrowingColumn(dtype) for name, dtype in ROW.items()}
        self._trials = {name: GrowingColumn(dtype) for name, dtype in TRIAL.items()}

    def add(self, block: CompactBlock) -> None:
        for name, values in block.rows.items():
            self._rows[name].add(values, block.n_rows)
        for name, values in block.trials.items():
            self._trials[name].add(values, block.n_trials)

    def block(self) -> Block:
        """Return all of it."""
        return Block(
            {name: column.values() for name, column in self._rows.items()},
            {name: column.values() for name, column in self._trials.items()},
        )


class GrowingColumn:
    """A column to which values are added; in one piece of memory, which leaves no holes."""

    def __init__(self, dtype: Any) -> None:
        self._dtype = np.dtype(dtype)
        self._size = 0
        self._value: Any = None
        """The value that all have, as long as there is no data."""
        self._data: bytearray | None = None

    def add(self, values: Any, n: int) -> None:
        """Add as many values, or one as many times."""
        before, self._size = self._size, self._size + n
        single = not isinstance(values, np.ndarray)
        if not n or (single and before and self._data is None and _are(values, self._value)):
            return
        if single and not before:
            self._value = values
            return
        if self._data is None:
            self._data = bytearray(np.full(before, self._value or 0, self._dtype).data)
        self._data += np.ascontiguousarray(np.broadcast_to(values, n), self._dtype).data

    def values(self) -> NDArray[Any]:
        if self._data is not None:
            return np.frombuffer(self._data, self._dtype)
        if not self._size:
            return np.zeros(0, self._dtype)
        return np.broadcast_to(self._dtype.type(self._value), self._size)


class ColumnReader:
    """Turns decoded rows of one kind into columns, with as few passes over them as it can."""

    def __init__(
        self, kind: Kind, category_key: str, facts: RunFacts, *, with_steps: bool = False
    ) -> None:
        self._kind = kind
        self.decoder = msgspec.json.Decoder(_VIEWS[kind, with_steps])
        self._category_key = category_key
        self._with_steps = with_steps
        self._setup_reader = SetupReader()
        self.extend(facts)

    def extend(self, facts: RunFacts) -> None:
        """From now on, extend these facts."""
        facts.kind = self._kind
        self._facts = facts
        self._categories = {name: n for n, name in enumerate(facts.categories)}
        self._by_name: dict[bytes, int] = {}
        self._causes = {name: n for n, name in enumerate(facts.causes)}
        self._setups = {problems: n for n, problems in enumerate(facts.setups)}

    def read(self, views: Sequence[Any]) -> Block:
        """Make columns of some rows, and extend the facts."""
        if self._facts.kind == "trials":
            return self._read_trials(views)
        return self._read_captures(views)

    def _read_captures(self, views: Sequence[CaptureView]) -> Block:
        """Read prompts with one trial each."""
        fields = _transposed(views, CaptureView)
        rows, trials = zeros(ROW, len(views)), zeros(TRIAL, len(views))
        for ones in (rows["n_trials"], rows["k"], trials["number"]):
            ones[:] = 1
        for unknown in (rows["pass_at_k"], rows["pass_exp_k"]):
            unknown[:] = nan
        self._fill_rows(rows, fields)
        errors, timing, score = fields["errors"], fields["timing"], fields["score"]
        causes = _causes(fields["failure"])
        # Old rows carry no cause; only files that hold such rows are read row by row.
        if any(errors) or any("timedOut" in about for about in fields["metadata"]):
            causes = [row.failure.cause or _old_cause(row) for row in views]
        durations_ms = _numbers(_each(timing, "total"))
        if np.isnan(durations_ms).any():
            elapsed_ms = _numbers(_each(timing, "end")) - _numbers(_each(timing, "start"))
            durations_ms = np.where(np.isnan(durations_ms), elapsed_ms, durations_ms)
        trials["passed"][:] = _numbers(_each(score, "pass_"))
        trials["score"][:] = _numbers(_each(score, "score"))
        trials["duration_ms"][:] = durations_ms
        trials["first_response_ms"][:] = _numbers(_each(timing, "first_response"))
        trials["complete"][:] = _lengths(fields["output"]) > _EMPTY_TEXT
        if any(errors):
            trials["complete"] &= ~np.fromiter(map(bool, errors), np.bool_, len(errors))
        self._fill_trials(trials, fields, causes)
        self._fill_setups(trials, fields, fields["identity"])
        return Block(rows, trials)

    def _read_trials(self, views: Sequence[TrialsView]) -> Block:
        """Read prompts with all their trials."""
        prompts = _transposed(views, TrialsView)
        fields = _transposed(list(chain.from_iterable(prompts["trials"])), EntryView)
        rows, trials = zeros(ROW, len(views)), zeros(TRIAL, len(fields["duration"]))
        counts = _lengths(prompts["trials"])
        rows["n_trials"][:] = counts
        # k may be null, or less than the trials that are there; too large a k is refused later.
        rows["k"][:] = np.clip(np.nan_to_num(_numbers(prompts["k"])), counts, _LARGEST)
        rows["pass_at_k"][:] = _numbers(prompts["pass_at_k"])
        rows["pass_exp_k"][:] = _numbers(prompts["pass_exp_k"])
        self._fill_rows(rows, prompts)
        self._facts.allocated |= any(prompts["allocation"])
        passed = _numbers(fields["pass_"])
        trials["passed"][:] = passed
        trials["score"][:] = np.where(np.isnan(passed), nan, _numbers(fields["score"]))
        trials["duration_ms"][:] = _numbers(fields["duration"])
        trials["first_response_ms"][:] = _numbers(fields["first_response"])
        trials["complete"][:] = True
        if self._with_steps:  # without them the view does not read the number
            trials["number"][:] = np.clip(_numbers(fields["number"]), 0, 65_535)
        self._fill_trials(trials, fields, _causes(fields["failure"]))
        identities = prompts["identity"]
        each = chain.from_iterable(map(repeat, identities, counts.tolist()))
        self._fill_setups(trials, fields, tuple(each))
        return Block(rows, trials)

    def _fill_rows(self, rows: Columns, fields: Fields) -> None:
        inputs, metadata = fields["input"], fields["metadata"]
        rows["input"][:] = np.fromiter(map(zlib.crc32, inputs), np.uint32, len(inputs))
        rows["expectation"][:] = _fingerprints(len(inputs), [fields[name] for name in _EXPECTATION])
        rows["metadata"][:] = [
            _metadata(about, is_ours=made) if about else 0
            for about, made in zip(metadata, fields["identity"], strict=True)
        ]
        setups = _setups_of(fields["identity"])
        rows["task"][:] = _fingerprints(
            len(inputs), [*(fields[name] for name in _TASK), *([setups] if any(setups) else ())]
        )
        self._note_identities(fields["identity"])
        categories = [bytes(about.get(self._category_key, b"")) for about in metadata]
        rows["category"][:] = self._category_numbers(categories)
        if self._facts.richness is None:
            seen = dict.fromkeys(bytes(about.get("trajectoryRichness", b"")) for about in metadata)
            self._facts.richness = next((_RICHNESS[raw] for raw in seen if raw in _RICHNESS), None)

    def _note_identities(self, identities: Sequence[msgspec.Raw]) -> None:
        known = self._facts.identities
        if len(known) >= _MOST_IDENTITIES or identities.count(NO_JSON) == len(identities):
            return
        for raw in dict.fromkeys(map(bytes, identities)):
            text = raw.decode("utf-8", "replace")
            if raw and text not in known and len(known) < _MOST_IDENTITIES:
                known.append(text)

    def _fill_trials(self, trials: Columns, fields: Fields, causes: list[str]) -> None:
        trials["cost_usd"][:], trials["tokens"][:] = _usage(fields["usage"])
        trials["n_steps"][:] = _lengths(fields["trajectory"])
        trials["tool_error"][:] = fields["tool_errors"]
        if any(fields["permission_denials"]):
            trials["denials"][:] = fields["permission_denials"]
        if any(fields["grader_failures"]):
            trials["grader_failed"][:] = list(map(bool, fields["grader_failures"]))
        if any(fields["retried"]):
            trials["excused"][:] = [any(e.is_unverified for e in one) for one in fields["retried"]]
        if any(causes):
            trials["cause"][:] = _numbered(self._causes, causes)
            self._facts.causes = list(self._causes)
            trials["answered"][:] = _each(fields["failure"], "answered")
            trials["complete"] &= (trials["cause"] == 0) | trials["answered"]
        self._note_agents(fields)
        self._note_measures(fields["outcome"])
        if self._with_steps:
            self._note_tools(trials, fields)

    def _fill_setups(
        self, trials: Columns, fields: Fields, identities: Sequence[msgspec.Raw]
    ) -> None:
        """Note which trials did not have the set-up that was asked for."""
        setups = fields["setup"]
        # Rows of other programs have neither; count compares by identity first.
        if setups.count(NO_JSON) == identities.count(NO_JSON) == len(setups):
            return
        models = _each(fields["agent"], "model")
        found = map(
            self._setup_reader.problems, setups, identities, models, fields["permission_denials"]
        )
        trials["setup"][:] = [self._setup_number(problems) for problems in found]
        self._facts.setups = list(self._setups)

    def _setup_number(self, problems: Problems) -> int:
        if problems not in self._setups and len(self._setups) >= _MOST_SETUPS:
            problems = _OTHER_SETUPS
        return self._setups.setdefault(problems, len(self._setups))

    def _category_numbers(self, categories: list[bytes]) -> Ints:
        """Number the categories; a name that was met before is only looked up."""
        for raw in dict.fromkeys(categories):
            if raw not in self._by_name:
                known = self._categories
                self._by_name[raw] = known.setdefault(_category(raw), len(known))
                self._facts.categories = list(known)
        return np.fromiter(map(self._by_name.__getitem__, categories), np.int64, len(categories))

    def _note_agents(self, fields: Fields) -> None:
        agents = fields["agent"]
        if agents.count(NO_AGENT) < len(agents):
            self._facts.agents |= {
                (agent.adapter, agent.version or "", agent.model or "")
                for agent in set(agents)
                if agent.adapter
            }
        for grades in filter(None, fields["grades"]):
            for name, grade in grades.items():
                self._facts.graders.setdefault(name, set()).add(grade.version or "unknown")

    def _note_measures(self, outcomes: Sequence[msgspec.Raw]) -> None:
        """Add up the numbers that a grader wants to be shown beside its score."""
        if outcomes.count(NO_JSON) == len(outcomes):
            return
        facts = self._facts
        for outcome in outcomes:
            if b'"measures"' not in bytes(outcome):
                continue
            for name, value in _measures(outcome).items():
                if name in facts.measures or len(facts.measures) < _MOST_MEASURES:
                    n, total = facts.measures.get(name, (0, 0.0))
                    facts.measures[name] = (n + 1, total + value)

    def _note_tools(self, trials: Columns, fields: Fields) -> None:
        facts = self._facts
        steps = list(chain.from_iterable(fields["trajectory"]))
        calls = Counter((s.name, s.status == "failed") for s in steps if s.type == "tool_call")
        facts.shows_work = facts.shows_work or bool(calls) or "thought" in _each(steps, "type")
        for (name, failed), n in calls.items():
            if name in facts.tools or len(facts.tools) < _MOST_TOOLS:
                counts = facts.tools.setdefault(name, [0, 0])
                counts[0] += n
                counts[1] += n * failed
        if calls:
            bits = {name: 1 << min(n, _TOOL_BITS) for n, name in enumerate(facts.tools)}
            other = 1 << _TOOL_BITS
            trials["tools"][:] = [
                reduce(or_, {bits.get(s.name, other) for s in each if s.type == "tool_call"}, 0)
                for each in fields["trajectory"]
            ]


class FactsTotal:
    """Puts together the facts about parts of a file, each read without a look at the others."""

    def __init__(self, kind: Kind) -> None:
        self._facts = RunFacts(kind=kind)
        self._numbers: dict[str, dict[Any, int]] = {
            "category": {},
            "cause": {"": 0},
            "setup": {(): 0},
        }

    def add(self, more: RunFacts, block: CompactBlock) -> None:
        """Add the facts about the next rows, and number their categories and so on anew."""
        self._renumber(block.rows, "category", more.categories)
        self._renumber(block.trials, "cause", more.causes)
        self._renumber(block.trials, "setup", more.setups, _MOST_SETUPS, _OTHER_SETUPS)
        facts = self._facts
        for grader, versions in more.graders.items():
            facts.graders.setdefault(grader, set()).update(versions)
        facts.agents |= more.agents
        facts.richness = facts.richness or more.richness
        facts.allocated |= more.allocated
        new = [one for one in more.identities if one not in facts.identities]
        facts.identities += new[: max(0, _MOST_IDENTITIES - len(facts.identities))]
        for name, (n, total) in more.measures.items():
            if name in facts.measures or len(facts.measures) < _MOST_MEASURES:
                n_before, before = facts.measures.get(name, (0, 0.0))
                facts.measures[name] = (n_before + n, before + total)

    def _renumber(
        self,
        columns: dict[str, Any],
        name: str,
        found: list[Any],
        most: float = inf,
        other: Any = None,
    ) -> None:
        numbers, new = self._numbers[name], list[int]()
        for value in found:
            known = value if value in numbers or len(numbers) < most else other
            new.append(numbers.setdefault(known, len(numbers)))
        if new != list(range(len(found))):
            columns[name] = np.array(new, np.uint32)[columns[name]]

    def facts(self) -> RunFacts:
        """Return the facts about all parts."""
        self._facts.categories, self._facts.causes, self._facts.setups = (
            list(self._numbers[name]) for name in ("category", "cause", "setup")
        )
        return self._facts


def tool_bit(tools: Sequence[str], name: str) -> int:
    """Return the bit of a tool in the column tools; 0 if no trial used it."""
    return 1 << min(tools.index(name), _TOOL_BITS) if name in tools else 0


def _transposed(rows: Sequence[Any], kind: type[msgspec.Struct]) -> Fields:
    """Return every field of all rows as a column, in one pass: one for each field is slow."""
    if not rows:  # the type of the view is not known; only one with steps has the number
        return dict.fromkeys((*kind.__struct_fields__, "number"), ())
    names = type(rows[0]).__struct_fields__
    return dict(zip(names, zip(*map(msgspec.structs.astuple, rows), strict=True), strict=True))


def _fingerprints(n: int, columns: Sequence[Sequence[Any]]) -> NDArray[np.uint32]:
    """Fingerprint what rows have in several fields of JSON; 0 for a row that has none of them."""
    total = np.zeros(n, np.uint32)
    for number, values in enumerate(columns):
        if values.count(NO_JSON) < n:
            before = total.tolist()
            total[:] = [
                crc32_with(bytes(raw), number, known)
                for raw, known in zip(values, before, strict=True)
            ]
    return total


def crc32_with(raw: bytes, number: int, known: int) -> int:
    """Add the field of this number to a fingerprint; one that is not there changes nothing."""
    if raw in _NOTHING:
        return known
    if raw[:1] in b"{[" or b"\\" in raw:  # JSON can be written in several ways
        with contextlib.suppress(*UNREADABLE):
            raw = msgspec.json.encode(msgspec.json.decode(raw), order="sorted")
    return zlib.crc32(raw, known + number & 0xFFFFFFFF)


_NOTHING = (b"", b"null")


def expectation_of(fields: Mapping[str, Any]) -> int:
    """Return the same number for a prompt that is still to be run."""
    found = 0
    for number, value in enumerate(map(fields.get, _EXPECTATION)):
        found = crc32_with(b"" if value is None else msgspec.json.encode(value), number, found)
    return found


def metadata_of(about: Mapping[str, Any]) -> int:
    """Fingerprint the metadata of a prompt that is still to be run, as it will stand in its row."""
    return _metadata({name: msgspec.json.encode(value) for name, value in about.items()})


def _metadata(about: Mapping[str, Any], *, is_ours: object = True) -> int:
    """Fingerprint the metadata of a row; what a run adds to it is left out.

    Other tools may add anything: of their rows only names of right answers count. A sum, because
    the order of names means nothing.
    """
    found = 0
    for name, value in about.items():
        if (name not in BOOKKEEPING) if is_ours else (name in _ANSWERS):
            raw = bytes(value)
            seed = _crc32_of(name)
            is_plain = raw[0] not in b"{[" and b"\\" not in raw
            found += zlib.crc32(raw, seed) if is_plain else crc32_with(raw, 0, seed)
    return found & 0xFFFFFFFF


@lru_cache(maxsize=1000)
def _crc32_of(name: str) -> int:
    return zlib.crc32(name.encode(errors="replace"))


def task_of(fields: Mapping[str, Any], setup: str) -> int:
    """The same for what a prompt brings along."""
    found = 0
    for number, value in enumerate((*map(fields.get, _TASK), setup or None)):
        found = crc32_with(b"" if value is None else msgspec.json.encode(value), number, found)
    return found


def _setups_of(identities: Sequence[msgspec.Raw]) -> list[bytes]:
    """Return the hash of each prompt's set-up, as JSON has it."""
    if identities.count(NO_JSON) == len(identities):
        return []
    found = map(_SETUP_HASH.search, map(bytes, identities))
    return [b'"%b"' % match[1] if match else b"" for match in found]


def _each(values: Iterable[Any], name: str) -> list[Any]:
    return list(map(attrgetter(name), values))


def _numbers(values: Sequence[Any]) -> Floats:
    """Return numbers as a column; None becomes NaN."""
    try:
        return np.fromiter(values, np.float64, len(values))
    except TypeError:  # some are None: slower
        return np.array(values, dtype=np.float64)


def _lengths(values: Sequence[Any]) -> Ints:
    return np.fromiter(map(len, values), np.int64, len(values))


def _numbered(known: dict[str, int], names: Iterable[str]) -> list[int]:
    """Number names in the order in which they are first met."""
    return [known.setdefault(name, len(known)) for name in names]


def _causes(failures: Sequence[Any]) -> list[str]:
    # All rows without a failure share one object, and count compares by identity first.
    if failures.count(NO_FAILURE) == len(failures):
        return [""] * len(failures)
    return _each(failures, "counted_cause")


def _usage(used: Sequence[Any]) -> tuple[Floats | float, Floats | float]:
    """Return cost and tokens."""
    if used.count(NO_USAGE) == len(used):
        return nan, nan
    inputs, outputs = (_numbers(_each(used, f"{side}_tokens")) for side in ("input", "output"))
    with np.errstate(over="ignore"):  # too large a number is refused later, by name
        tokens = np.nan_to_num(inputs) + np.nan_to_num(outputs)
    tokens = np.where(np.isnan(inputs) & np.isnan(outputs), nan, tokens)
    cost = _numbers(_each(used, "cost_usd"))
    return np.where(cost < 0, nan, cost), tokens  # a negative one cannot be true


def _measures(outcome: msgspec.Raw) -> dict[str, float]:
    """The finite numbers of outcome.measures; any program may have written the row."""
    try:
        found = msgspec.json.decode(outcome)["measures"]
        return {
            str(name): float(value)
            for name, value in found.items()
            if isinstance(value, int | float) and abs(value) <= _LARGEST
        }
    except (*UNREADABLE, TypeError, KeyError, AttributeError):
        return {}


def _old_cause(row: CaptureView) -> str:
    """Recognise a timeout in rows that carry no cause."""
    mentioned = any("timeout" in error.lower() for error in row.errors)
    return TIMEOUT if mentioned or bytes(row.metadata.get("timedOut", b"")) == b"true" else ""


def _category(raw: bytes) -> str:
    value = msgspec.json.decode(raw or b"null")
    if isinstance(value, str):
        return value
    return NO_CATEGORY if value is None else msgspec.json.encode(value).decode()
