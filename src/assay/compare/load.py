"""Read result files into columns, a block of rows at a time."""

import gc
import zlib
from array import array
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import chain, islice
from math import nan
from operator import attrgetter, lt
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from assay.compare.columns import Floats, Health, Ints, Kind, Run
from assay.compare.rows import (
    NO_AGENT,
    NO_FAILURE,
    NOTHING_USED,
    CaptureRow,
    EntryRow,
    TrialsRow,
    read_blocks,
    rows_about,
    shows_work,
)
from assay.errors import InputError
from assay.records.failure import Cause

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
        said = f"{what} of {{:g}} is no measurement"
        _refuse(path, columns[name], -np.inf, _LARGEST, said)


def _refuse(path: Path, values: NDArray[Any], least: float, most: float, said: str) -> None:
    wrong = values[(values < least) | (values > most)]
    if wrong.size:
        msg = f"{path}: {said.format(wrong[0])} ({wrong.size} times)"
        raise InputError(msg, hint="grade the rows again, or mend them")


def _old_cause(row: CaptureRow) -> str:
    """Find a timeout in rows that carry no cause."""
    said_so = any("timeout" in error.lower() for error in row.errors)
    return _TIMEOUT if said_so or row.metadata.timed_out is True else ""


def _category(value: Any) -> str:
    if isinstance(value, str):
        return value
    return _NO_CATEGORY if value is None else msgspec.json.encode(value).decode()
