"""Read result files into columns of numbers, a block of rows at a time."""

import gc
import zlib
from array import array
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from itertools import chain, islice
from math import nan
from operator import attrgetter, lt
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
import numpy as np
from numpy.typing import NDArray

from assay.errors import InputError
from assay.records.capture import Cause
from assay.records.rows import BOM, read_lines

type Floats = NDArray[np.float64]
type Ints = NDArray[np.int64]
type Kind = Literal["capture", "trials"]


class Health(msgspec.Struct):
    """What a reader must know before believing any number of a run."""

    n_trials: int = 0
    n_graded: int = 0
    not_measured: dict[str, int] = {}
    """By cause; "not graded" where a trial simply has no grade."""
    failed: dict[str, int] = {}
    """Causes that count against the agent."""
    n_grader_failures: int = 0
    n_permission_denials: int = 0
    n_repeated: int = 0
    """Rows whose id came again later: the last one counts."""


class Run(msgspec.Struct, dict=True, kw_only=True):
    """One file, read. Prompt columns have a value per prompt, trial columns one per trial."""

    label: str
    path: Path
    kind: Kind
    ids: list[str]
    inputs: Ints
    """Fingerprint of what was asked."""
    categories: Ints
    """Number of the category in category_names."""
    category_names: list[str]
    k: Ints
    """Trials planned for each prompt."""
    pass_at_k: Floats
    pass_exp_k: Floats
    """The seed's numbers as the rows give them; NaN where they do not."""

    prompt: Ints
    """Whose trial it is; in order, so that a prompt's trials stand together."""
    passed: Floats
    """1, 0, or NaN for not measured."""
    score: Floats
    duration_ms: Floats
    first_response_ms: Floats
    cost_usd: Floats
    tokens: Floats
    n_steps: Floats
    tool_error: Floats
    timed_out: Floats
    complete: Floats

    health: Health
    richness: str | None = None
    graders: dict[str, set[str]] = {}
    """Versions seen, by grader."""
    agents: set[tuple[str, str, str]] = set()
    """Adapter, version and model."""

    @property
    def agent_names(self) -> list[str]:
        """Agents with version and model, as people write them."""
        return [" ".join(filter(None, agent)) for agent in sorted(self.agents)]

    @cached_property
    def place(self) -> dict[str, int]:
        """Where a prompt stands."""
        return {prompt_id: i for i, prompt_id in enumerate(self.ids)}

    @cached_property
    def n_passed(self) -> Ints:
        """Passed trials of each prompt."""
        return self._count(np.nan_to_num(self.passed))

    @cached_property
    def n_measured(self) -> Ints:
        """Measured trials of each prompt."""
        return self._count(~np.isnan(self.passed))

    def mean_of(self, column: Floats) -> Floats:
        """Mean over the trials of each prompt; NaN where none has a value."""
        if self._one_trial_each:
            return column
        known = ~np.isnan(column)
        n = np.bincount(self.prompt[known], minlength=len(self.ids))
        total = np.bincount(self.prompt[known], weights=column[known], minlength=len(self.ids))
        with np.errstate(invalid="ignore", divide="ignore"):
            means: Floats = total / n
        return means

    @cached_property
    def _one_trial_each(self) -> bool:
        return bool(np.array_equal(self.prompt, np.arange(len(self.ids))))

    def _count(self, weights: NDArray[np.bool_] | Floats) -> Ints:
        if self._one_trial_each:
            return weights.astype(np.int64)
        counted = np.bincount(self.prompt, weights=weights, minlength=len(self.ids))
        return np.rint(counted).astype(np.int64)


_BLOCK = 1024 * 1024
_LINE_FEED = ord("\n")
_HINT = "assay compare reads the output of capture, grade or trials"


class Score(msgspec.Struct, frozen=True, gc=False):
    """The grade of a capture; half a grade is none."""

    pass_: bool | None = msgspec.field(name="pass")
    score: float | None


class Version(msgspec.Struct, gc=False):
    """Which grader it was."""

    version: str | None = None


class CauseOf(msgspec.Struct, frozen=True, gc=False):
    """Why a trial did not go well."""

    cause: str = ""
    answered: bool = False


class Used(msgspec.Struct, rename="camel", frozen=True, gc=False):
    """What a trial used up."""

    input_tokens: float | None = None
    output_tokens: float | None = None
    cost_usd: float | None = None


class Clock(msgspec.Struct, rename="camel", frozen=True, gc=False):
    """When it began and ended."""

    start: float | None = None
    end: float | None = None
    total: float | None = None
    first_response: float | None = None


class AgentOf(msgspec.Struct, frozen=True, gc=False):
    """Which agent it was."""

    adapter: str = ""
    version: str | None = None
    model: str | None = None


NO_FAILURE, NOTHING_USED, NO_AGENT = CauseOf(), Used(), AgentOf()
"""What most rows have; one object for all of them, so that a whole column is looked at quickly."""
NOT_GRADED = Score(None, None)


class Step(msgspec.Struct, gc=False):
    """Only counted."""


class About(msgspec.Struct, rename="camel", frozen=True, gc=False):
    """The metadata that counts; the category stands under a name of the user's choice."""

    category: Any = None
    trajectory_richness: Any = None
    timed_out: Any = None


class Attempt(msgspec.Struct, rename="camel", kw_only=True, gc=False):
    """What a capture and an entry of trials have in common."""

    trajectory: list[Step]
    tool_errors: bool = False
    grades: dict[str, Version] | None = None
    grader_failures: dict[str, str] | None = None
    failure: CauseOf = NO_FAILURE
    usage: Used = NOTHING_USED
    agent: AgentOf = NO_AGENT
    permission_denials: Annotated[int, msgspec.Meta(ge=0, le=10**9)] = 0


class CaptureRow(Attempt, rename="camel", kw_only=True, gc=False):
    """A row of results.jsonl, or of what grade wrote."""

    id: str
    input: msgspec.Raw
    output: msgspec.Raw
    timing: Clock
    metadata: About = About()
    errors: tuple[str, ...] = ()
    score: Score = NOT_GRADED


class EntryRow(Attempt, rename="camel", kw_only=True, gc=False):
    """One trial in a row of trials.jsonl."""

    duration: float
    pass_: bool | None = msgspec.field(name="pass", default=None)
    score: float | None = None
    first_response: float | None = None


class TrialsRow(msgspec.Struct, rename="camel", kw_only=True, gc=False):
    """A row of trials.jsonl."""

    id: str
    input: msgspec.Raw
    k: float | None
    trials: list[EntryRow]
    metadata: About = About()
    pass_at_k: float | None = None
    pass_exp_k: float | None = None


class _StepKind(msgspec.Struct, gc=False):
    type: Any = None


class _Steps(msgspec.Struct, gc=False):
    trajectory: list[_StepKind]


class _Probe(msgspec.Struct):
    k: Any = None
    trials: Any = None
    trajectory: Any = None
    timing: Any = None


def detect_kind(path: Path) -> Kind:
    """Say what a file holds, from its first row."""
    for place, line in read_lines(path):
        probe = decode(_PROBE, place, line)
        if isinstance(probe.trials, list) and isinstance(probe.k, int | float):
            return "trials"
        if isinstance(probe.trajectory, list) and isinstance(probe.timing, dict):
            return "capture"
        msg = f"{place}: neither a capture (trajectory, timing) nor trials (trials, k)"
        raise InputError(msg, hint=_HINT)
    msg = f"{path}: no rows"
    raise InputError(msg)


def rows_about(kind: Kind, category_key: str) -> type[Any]:
    """Give the row type whose category stands under this name."""
    row = TrialsRow if kind == "trials" else CaptureRow
    if category_key == "category":
        return row
    fields: list[tuple[str, Any, Any]] = [
        ("trajectory_richness", Any, msgspec.field(name="trajectoryRichness", default=None)),
        ("timed_out", Any, msgspec.field(name="timedOut", default=None)),
    ]
    read_anyway = next((name for name, _, field in fields if field.name == category_key), None)
    known = {"category": property(attrgetter(read_anyway))} if read_anyway else {}
    if not read_anyway:
        fields.append(("category", Any, msgspec.field(name=category_key, default=None)))
    try:
        about = msgspec.defstruct("About", fields, namespace=known, frozen=True)
    except ValueError as error:
        msg = f"--by {category_key!r}: {error}"
        raise InputError(msg, hint="choose another metadata key") from error
    return msgspec.defstruct(
        row.__name__, [("metadata", about, about())], bases=(row,), kw_only=True
    )


def shows_work(path: Path) -> bool:
    """Say whether any step of any row is more than a message; nothing else needs their kinds."""
    return any(
        step.type in ("thought", "tool_call")
        for rows in read_blocks(path, _Steps)
        for row in rows
        for step in row.trajectory
    )


def read_blocks(path: Path, kind: type[Any]) -> Iterator[list[Any]]:
    """Give the rows of a file, some megabytes at a time, through one buffer.

    Raw fields of a row point into that buffer: they are gone with the next block.
    """
    decoder = msgspec.json.Decoder(kind)
    buffer, held = bytearray(_BLOCK), 0
    try:
        with path.open("rb", buffering=0) as file:
            if file.read(len(BOM)) != BOM:
                file.seek(0)
            first = True
            while n_read := file.readinto(memoryview(buffer)[held:]):
                held += n_read
                cut = buffer.rfind(b"\n", 0, held) + 1
                if cut:
                    yield _decode_block(decoder, path, buffer, cut, look=first)
                    first = False
                    buffer[: held - cut] = buffer[cut:held]
                    held -= cut
                elif held == len(buffer):
                    buffer = buffer + bytearray(len(buffer))
            if held and not buffer[:held].isspace():
                yield _decode_block(decoder, path, buffer, held, look=True)
    except OSError as error:
        msg = f"{path}: {error.strerror}"
        raise InputError(msg, hint="check the path") from error


def _decode_block(
    decoder: msgspec.json.Decoder[Any], path: Path, buffer: bytearray, end: int, *, look: bool
) -> list[Any]:
    """Decode a block; look at its line feeds too, at the beginning and the end of a file."""
    why = "a row is not on a line of its own"
    try:
        rows = decoder.decode_lines(memoryview(buffer)[:end])
        if not look or _one_each(buffer, end, len(rows)):
            return rows
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        why = str(error)
    for place, line in read_lines(path):  # find the line to name it
        decode(decoder, place, line)
    msg = f"{path}: {why}"
    raise InputError(msg, hint=_HINT)


def _one_each(buffer: bytearray, end: int, n_rows: int) -> bool:
    """Say whether there are as many lines as rows: a decoder of lines takes other JSON too."""
    n_lines = np.count_nonzero(np.frombuffer(buffer, np.uint8, end) == _LINE_FEED)
    if n_lines == n_rows and buffer[end - 1] == _LINE_FEED:
        return True
    lines = bytes(buffer[:end]).split(b"\n")
    return sum(bool(line) and not line.isspace() for line in lines) == n_rows


def decode[T](decoder: msgspec.json.Decoder[T], place: str, line: bytes) -> T:
    """Read one row; the error names file, line and field."""
    try:
        return decoder.decode(line)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        msg = f"{place}: {error}"
        raise InputError(msg, hint=_HINT) from error


_PROBE = msgspec.json.Decoder(_Probe)


_RICHNESS = ("full", "messages-only", "minimal")
_AGENT_CAUSES = frozenset(cause.value for cause in Cause if cause.measures_agent)
_TIMEOUT = Cause.AGENT_TIMEOUT.value
_PROMPT_COLUMNS = ("inputs", "categories", "k", "pass_at_k", "pass_exp_k")
_TRIAL_COLUMNS = (
    "passed",
    "score",
    "duration_ms",
    "first_response_ms",
    "cost_usd",
    "tokens",
    "n_steps",
    "tool_error",
    "timed_out",
    "complete",
)
_MOST_TRIALS = 1e9
_LARGEST = 1e15
"""Of a length in ms, a cost, a number of tokens: with more, means and spreads overflow."""
_SCALES = (
    ("score", "a score", 1.0),
    ("pass_at_k", "passAtK", 1.0),
    ("pass_exp_k", "passExpK", 1.0),
    ("k", "k", _MOST_TRIALS),
)
_AMOUNTS = (
    ("duration_ms", "a duration"),
    ("first_response_ms", "a first response"),
    ("cost_usd", "a cost"),
    ("tokens", "a number of tokens"),
)
_NO_CATEGORY = "(uncategorized)"
_EMPTY_TEXT = 2
"""Bytes of a JSON string with nothing in it."""


type Fields = dict[str, tuple[Any, ...]]
"""A block of rows, a column for each field."""


def load_run(label: str, path: Path, kind: Kind, category_key: str) -> Run:
    """Read one file. Of rows with the same id the last one counts."""
    loader = _Loader()
    with _no_collector():
        for rows in read_blocks(path, rows_about(kind, category_key)):
            if kind == "trials":
                loader.add_trials(rows)
            else:
                loader.add_captures(rows)
    run = loader.run(label, path, kind)
    if run.richness is None and run.kind == "capture" and run.n_steps.any() and shows_work(path):
        run.richness = "full"
    return run


@contextmanager
def _no_collector() -> Iterator[None]:
    """Millions of small records and no cycles among them: the collector would only look on."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


class _Loader:
    """Collects columns while a file is read. Every pass over the rows counts: there are many."""

    def __init__(self) -> None:
        self._ids: list[str] = []
        self._category_names: dict[str, int] = {}
        self._columns: dict[str, list[NDArray[Any]]] = {
            name: [] for name in ("per_prompt", *_PROMPT_COLUMNS, *_TRIAL_COLUMNS)
        }
        self._n_attempts = 0
        self._n_said = 0
        self._n_scored = 0
        self._seen = _Seen()
        self._richness: str | None = None
        self._graders: dict[str, set[str]] = {}
        self._agents: set[tuple[str, str, str]] = set()

    def add_captures(self, rows: list[CaptureRow]) -> None:
        """Take captures: prompts with one trial each."""
        n, fields = len(rows), _transposed(rows, CaptureRow)
        ones, unknown = np.ones(n, dtype=np.int64), np.full(n, nan)
        self._add_prompts(fields, per_prompt=ones, k=ones, pass_at_k=unknown, pass_exp_k=unknown)
        causes = _causes(fields["failure"])
        errors, timing, score = fields["errors"], fields["timing"], fields["score"]
        if any(errors) or any(_each(fields["metadata"], "timed_out")):
            causes = [row.failure.cause or _old_cause(row) for row in rows]
        lengths = _numbers(_each(timing, "total"))
        if np.isnan(lengths).any():
            taken = _numbers(_each(timing, "end")) - _numbers(_each(timing, "start"))
            lengths = np.where(np.isnan(lengths), taken, lengths)
        complete = (_lengths(fields["output"]) > _EMPTY_TEXT).astype(np.float64)
        if any(errors):
            complete[[i for i, said in enumerate(errors) if said]] = 0.0
        self._add_attempts(
            fields,
            causes,
            passed=_numbers(_each(score, "pass_")),
            score=_numbers(_each(score, "score")),
            duration_ms=lengths,
            first_response_ms=_numbers(_each(timing, "first_response")),
            complete=complete,
        )

    def add_trials(self, rows: list[TrialsRow]) -> None:
        """Take prompts with all their trials."""
        prompts = _transposed(rows, TrialsRow)
        counts = _lengths(prompts["trials"]).astype(np.int64)
        self._add_prompts(
            prompts,
            per_prompt=counts,
            k=np.clip(np.nan_to_num(_numbers(prompts["k"])), counts, _LARGEST).astype(np.int64),
            pass_at_k=_numbers(prompts["pass_at_k"]),
            pass_exp_k=_numbers(prompts["pass_exp_k"]),
        )
        fields = _transposed(list(chain.from_iterable(prompts["trials"])), EntryRow)
        passed, score = _numbers(fields["pass_"]), _numbers(fields["score"])
        score = np.where(np.isnan(passed), nan, score)
        self._add_attempts(
            fields,
            _causes(fields["failure"]),
            passed=passed,
            score=score,
            duration_ms=_numbers(fields["duration"]),
            first_response_ms=_numbers(fields["first_response"]),
            complete=np.ones(len(passed)),
        )

    def run(self, label: str, path: Path, kind: Kind) -> Run:
        """Give the columns, without rows that were replaced by a later one."""
        columns = {name: _joined(parts) for name, parts in self._columns.items()}
        alive = _last_ones(self._ids)
        per_prompt = columns.pop("per_prompt").astype(np.int64)
        ids = self._ids
        if not alive.all():
            ids = [id_ for id_, keep in zip(ids, alive.tolist(), strict=True) if keep]
        kept = np.repeat(alive, per_prompt)
        for names, mask in ((_PROMPT_COLUMNS, alive), (_TRIAL_COLUMNS, kept)):
            columns |= {name: columns[name][mask] for name in names if not mask.all()}
        if not self._n_said:  # nobody graded this run: its failures are no measurement either
            columns["passed"][:] = columns["score"][:] = nan
        if not self._n_scored:  # the grader only passes or fails
            columns["score"] = columns["passed"].copy()
        _check(columns, path)
        health = self._seen.health(kept)
        health.n_repeated = int((~alive).sum())
        health.n_graded = int((~np.isnan(columns["passed"])).sum())
        per_kept = per_prompt[alive]
        return Run(
            label=label,
            path=path,
            kind=kind,
            ids=ids,
            category_names=list(self._category_names),
            prompt=np.repeat(np.arange(len(per_kept), dtype=np.int64), per_kept),
            health=health,
            richness=self._richness,
            graders=self._graders,
            agents=self._agents,
            **columns,
        )

    def _add_prompts(self, fields: Fields, **columns: NDArray[Any]) -> None:
        self._ids += fields["id"]
        inputs, about = fields["input"], fields["metadata"]
        columns["inputs"] = np.fromiter(map(zlib.crc32, inputs), np.int64, len(inputs))
        columns["categories"] = self._category_numbers(_each(about, "category"))
        for name, values in columns.items():
            self._columns[name].append(values)
        if self._richness is None:
            seen = _each(about, "trajectory_richness")
            self._richness = next((value for value in seen if value in _RICHNESS), None)

    def _category_numbers(self, categories: list[Any]) -> Ints:
        """Give each category its number; those met before need no look at their type."""
        known = self._category_names
        try:
            return np.fromiter(map(known.__getitem__, categories), np.int64, len(categories))
        except (KeyError, TypeError):
            names = map(_category, categories)
            numbers = [known.setdefault(name, len(known)) for name in names]
            return np.array(numbers, dtype=np.int64)

    def _add_attempts(self, fields: Fields, causes: list[str], **known: Floats) -> None:
        n = len(causes)
        self._n_said += int((~np.isnan(known["passed"])).sum())
        self._n_scored += int((~np.isnan(known["score"])).sum())
        self._count_health(fields, causes, known)
        self._count_agents(fields)
        cost, tokens = _usage(fields["usage"])
        known |= {
            "cost_usd": cost,
            "tokens": tokens,
            "n_steps": _lengths(fields["trajectory"]),
            "tool_error": _numbers(fields["tool_errors"]),
            "timed_out": np.fromiter(map(_TIMEOUT.__eq__, causes), np.float64, n),
        }
        for name, values in known.items():
            self._columns[name].append(values)
        self._n_attempts += n

    def _count_health(self, fields: Fields, causes: list[str], known: dict[str, Any]) -> None:
        """Note what went wrong; an agent's own failure without a grade is a failed trial."""
        seen, first = self._seen, self._n_attempts
        broken, denials = fields["grader_failures"], fields["permission_denials"]
        if any(broken):
            seen.grader_failures.extend(first + i for i, why in enumerate(broken) if why)
        if any(denials):
            denied = [i for i, n in enumerate(denials) if n]
            seen.denied.extend(first + i for i in denied)
            seen.denials.extend(denials[i] for i in denied)
        odd = unsaid = np.isnan(known["passed"])
        if any(causes):
            odd = unsaid | np.fromiter(map(bool, causes), np.bool_, len(causes))
        for i in np.flatnonzero(odd).tolist():
            cause, answered = causes[i], fields["failure"][i].answered
            if cause and not answered:
                known["complete"][i] = 0.0
            if cause in _AGENT_CAUSES:
                seen.note(seen.failed, cause, first + i)
                if unsaid[i] and not answered:
                    known["passed"][i] = known["score"][i] = 0.0
                    continue
            if unsaid[i]:
                why = cause or ("grader failed" if broken[i] else "not graded")
                seen.note(seen.not_measured, why, first + i)

    def _count_agents(self, fields: Fields) -> None:
        agents = fields["agent"]
        if agents.count(NO_AGENT) < len(agents):
            self._agents |= {
                (agent.adapter, agent.version or "", agent.model or "")
                for agent in set(agents)
                if agent.adapter
            }
        for grades in filter(None, fields["grades"]):
            for name, grade in grades.items():
                self._graders.setdefault(name, set()).add(grade.version or "unknown")


class _Seen:
    """Which trials something happened to; they are counted once it is known which rows stay."""

    def __init__(self) -> None:
        self.failed: dict[str, array[int]] = {}
        self.not_measured: dict[str, array[int]] = {}
        self.grader_failures = array("q")
        self.denied = array("q")
        self.denials = array("q")
        """How many permissions the trial at the same place of `denied` was refused."""

    def note(self, book: "dict[str, array[int]]", why: str, attempt: int) -> None:
        """Write down that this happened to a trial."""
        if why not in book:
            book[why] = array("q")
        book[why].append(attempt)

    def health(self, kept: NDArray[np.bool_]) -> Health:
        """Count over the trials that stay."""

        def count(attempts: "array[int]") -> int:
            return int(kept[np.array(attempts, dtype=np.int64)].sum())

        def counts(book: "dict[str, array[int]]") -> dict[str, int]:
            return {why: n for why, attempts in book.items() if (n := count(attempts))}

        return Health(
            n_trials=int(kept.sum()),
            not_measured=counts(self.not_measured),
            failed=counts(self.failed),
            n_grader_failures=count(self.grader_failures),
            n_permission_denials=int(np.array(self.denials)[kept[np.array(self.denied)]].sum()),
        )


def _transposed(rows: Sequence[Any], kind: type[msgspec.Struct]) -> Fields:
    """Give every field of all rows as a column: in one go, since a pass for each field is slow."""
    if not rows:
        return dict.fromkeys(kind.__struct_fields__, ())
    names = type(rows[0]).__struct_fields__
    return dict(zip(names, zip(*map(msgspec.structs.astuple, rows), strict=True), strict=True))


def _each(values: Iterable[Any], name: str) -> list[Any]:
    """Give one field of all of them."""
    return list(map(attrgetter(name), values))


def _numbers(values: Sequence[Any]) -> Floats:
    """Give numbers as a column; what is not there is NaN."""
    try:
        return np.fromiter(values, np.float64, len(values))
    except TypeError:  # some are None: slower
        return np.array(values, dtype=np.float64)


def _lengths(values: Sequence[Any]) -> Floats:
    """Give how long each is."""
    return np.fromiter(map(len, values), np.float64, len(values))


def _joined(parts: list[NDArray[Any]]) -> NDArray[Any]:
    """Put the blocks of a column together, and let go of them."""
    whole = np.concatenate(parts) if parts else np.zeros(0)
    parts.clear()
    return whole


def _last_ones(ids: list[str]) -> NDArray[np.bool_]:
    """Say of each row whether it is the last with its id."""
    alive = np.ones(len(ids), dtype=bool)
    ascending = all(map(lt, ids, islice(ids, 1, None)))  # sooner seen than a repetition
    if not ascending and len(set(ids)) < len(ids):
        alive[:] = False
        alive[list({id_: n for n, id_ in enumerate(ids)}.values())] = True
    return alive


def _causes(failures: Sequence[Any]) -> list[str]:
    if failures.count(NO_FAILURE) == len(failures):
        return [""] * len(failures)
    return _each(failures, "cause")


def _usage(used: Sequence[Any]) -> tuple[Floats, Floats]:
    """Give cost and tokens."""
    if used.count(NOTHING_USED) == len(used):
        unknown = np.full(len(used), nan)
        return unknown, unknown
    inputs, outputs = (_numbers(_each(used, f"{way}_tokens")) for way in ("input", "output"))
    with np.errstate(over="ignore"):  # what is too much is refused later, by name
        tokens = np.nan_to_num(inputs) + np.nan_to_num(outputs)
    tokens = np.where(np.isnan(inputs) & np.isnan(outputs), nan, tokens)
    return _numbers(_each(used, "cost_usd")), tokens


def _check(columns: dict[str, NDArray[Any]], path: Path) -> None:
    """Refuse numbers that mean nothing; other tools write such rows."""
    for name, what, most in _SCALES:
        _refuse(path, columns[name], 0.0, most, f"{what} must lie in 0..{most:g}, got {{:g}}")
    for name, what in _AMOUNTS:
        least = -_LARGEST if name == "first_response_ms" else 0.0  # two clocks may disagree
        _refuse(path, columns[name], least, np.inf, f"{what} cannot be negative, got {{:g}}")
        said = f"{what} of {{:g}} is not a measurement"
        _refuse(path, columns[name], -np.inf, _LARGEST, said)


def _refuse(path: Path, values: NDArray[Any], least: float, most: float, said: str) -> None:
    wrong = values[(values < least) | (values > most)]
    if wrong.size:
        msg = f"{path}: {said.format(wrong[0])} ({wrong.size} times)"
        raise InputError(msg, hint="grade the rows again, or fix them")


def _old_cause(row: CaptureRow) -> str:
    """Find a timeout in rows that carry no cause."""
    said_so = any("timeout" in error.lower() for error in row.errors)
    return _TIMEOUT if said_so or row.metadata.timed_out is True else ""


def _category(value: Any) -> str:
    if isinstance(value, str):
        return value
    return _NO_CATEGORY if value is None else msgspec.json.encode(value).decode()
