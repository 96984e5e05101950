"""Read result files into columns, a block of rows at a time."""

import gc
import zlib
from array import array
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import repeat
from math import nan
from operator import attrgetter
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from assay.compare.columns import Health, Kind, Run
from assay.compare.rows import CaptureRow, TrialsRow, read_blocks, rows_about
from assay.records.failure import Cause

_RICHNESS = ("full", "messages-only", "minimal")
_AGENT_CAUSES = frozenset(cause.value for cause in Cause if cause.measures_agent)
_TIMEOUT = Cause.AGENT_TIMEOUT.value
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
_NO_CATEGORY = "(uncategorized)"
_EMPTY_TEXT = 2
"""Bytes of a JSON string with nothing in it."""


def load_run(label: str, path: Path, kind: Kind, category_key: str) -> Run:
    """Read one file. Of rows with the same id the last one counts."""
    loader = _Loader()
    with _no_collector():
        for rows in read_blocks(path, rows_about(kind, category_key)):
            if kind == "trials":
                loader.add_trials(rows)
            else:
                loader.add_captures(rows)
    return loader.run(label, path, kind)


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
    """Collects columns while a file is read."""

    def __init__(self) -> None:
        self._ids: list[str] = []
        self._categories = array("q")
        self._category_names: dict[str, int] = {}
        self._place: dict[str, int] = {}
        self._replaced: list[int] = []
        self._inputs, self._k = array("q"), array("q")
        self._at_k, self._exp_k = array("d"), array("d")
        self._prompt = array("q")
        self._columns: dict[str, list[NDArray[np.float64]]] = {name: [] for name in _TRIAL_COLUMNS}
        self._health = Health()
        self._n_said = 0
        self._richness: str | None = None
        self._graders: dict[str, set[str]] = {}
        self._agents: set[str] = set()

    def add_captures(self, rows: list[CaptureRow]) -> None:
        """Take captures: prompts with one trial each."""
        n = len(rows)
        self._prompt.extend(range(len(self._ids), len(self._ids) + n))
        self._add_prompts(rows)
        self._k.extend(repeat(1, n))
        self._at_k.extend(repeat(nan, n))
        self._exp_k.extend(repeat(nan, n))
        causes = _each(rows, "failure.cause")
        errors = _each(rows, "errors")
        if any(errors) or any(_each(rows, "metadata.timed_out")):
            causes = [row.failure.cause or _old_cause(row) for row in rows]
        lengths = _floats(_each(rows, "timing.total"))
        if np.isnan(lengths).any():
            ends, starts = _each(rows, "timing.end"), _each(rows, "timing.start")
            lengths = np.where(np.isnan(lengths), _floats(ends) - _floats(starts), lengths)
        empty = np.array(list(map(len, _each(rows, "output")))) <= _EMPTY_TEXT
        self._add_attempts(
            rows,
            causes,
            passed=_floats(_each(rows, "score.pass_")),
            score=_floats(_each(rows, "score.score")),
            duration_ms=lengths,
            first_response_ms=_floats(_each(rows, "timing.first_response")),
            complete=~(empty | np.array(list(map(bool, errors)))),
        )

    def add_trials(self, rows: list[TrialsRow]) -> None:
        """Take prompts with all their trials."""
        for number, row in enumerate(rows, len(self._ids)):
            self._prompt.extend(repeat(number, len(row.trials)))
        self._add_prompts(rows)
        self._k.extend([max(int(row.k or 0), len(row.trials)) for row in rows])
        self._at_k.extend(_floats(_each(rows, "pass_at_k")).tolist())
        self._exp_k.extend(_floats(_each(rows, "pass_exp_k")).tolist())
        entries = [entry for row in rows for entry in row.trials]
        passed, score = _floats(_each(entries, "pass_")), _floats(_each(entries, "score"))
        score = np.where(np.isnan(score), passed, np.where(np.isnan(passed), nan, score))
        self._add_attempts(
            entries,
            _each(entries, "failure.cause"),
            passed=passed,
            score=score,
            duration_ms=_floats(_each(entries, "duration")),
            first_response_ms=_floats(_each(entries, "first_response")),
            complete=np.ones(len(entries), dtype=bool),
        )

    def run(self, label: str, path: Path, kind: Kind) -> Run:
        """Give the columns, without rows that were replaced by a later one."""
        n = len(self._ids)
        alive = np.ones(n, dtype=bool)
        alive[self._replaced] = False
        prompt = np.array(self._prompt, dtype=np.int64)
        kept = alive[prompt] if n else np.zeros(0, dtype=bool)
        renumbered = np.cumsum(alive) - 1
        columns = {
            name: np.concatenate([*parts, np.zeros(0)])[kept]
            for name, parts in self._columns.items()
        }
        where = np.flatnonzero(alive)
        if not self._n_said:  # nobody graded this run: its failures are no measurement either
            columns["passed"][:] = columns["score"][:] = nan
        self._health.n_repeated = len(self._replaced)
        self._health.n_trials = int(kept.sum())
        self._health.n_graded = int((~np.isnan(columns["passed"])).sum())
        whole = not self._replaced
        return Run(
            label=label,
            path=path,
            kind=kind,
            ids=self._ids if whole else [self._ids[i] for i in where],
            inputs=np.array(self._inputs, dtype=np.int64)[where],
            categories=np.array(self._categories, dtype=np.int64)[where],
            category_names=list(self._category_names),
            k=np.array(self._k, dtype=np.int64)[where],
            pass_at_k=np.array(self._at_k)[where],
            pass_exp_k=np.array(self._exp_k)[where],
            prompt=renumbered[prompt[kept]] if n else prompt,
            health=self._health,
            richness=self._richness,
            graders=self._graders,
            agents=self._agents,
            **columns,
        )

    def _add_prompts(self, rows: list[Any]) -> None:
        ids = _each(rows, "id")
        start = len(self._ids)
        fresh = dict(zip(ids, range(start, start + len(ids)), strict=True))
        if len(fresh) < len(ids) or not self._place.keys().isdisjoint(ids):
            for number, id_ in enumerate(ids, start):
                if id_ in self._place:
                    self._replaced.append(self._place[id_])
                self._place[id_] = number
        else:
            self._place.update(fresh)
        self._ids += ids
        self._inputs.extend(map(zlib.crc32, _each(rows, "input")))
        names = self._category_names
        found = map(_category, _each(rows, "metadata.category"))
        self._categories.extend([names.setdefault(name, len(names)) for name in found])
        if self._richness is None:
            seen = _each(rows, "metadata.trajectory_richness")
            self._richness = next((value for value in seen if value in _RICHNESS), None)

    def _add_attempts(
        self,
        attempts: list[Any],
        causes: list[str],
        **known: NDArray[np.float64] | NDArray[np.bool_],
    ) -> None:
        self._n_said += int((~np.isnan(known["passed"])).sum())
        self._count_health(attempts, causes, known)
        self._count_agents(attempts)
        inputs = _floats(_each(attempts, "usage.input_tokens"))
        outputs = _floats(_each(attempts, "usage.output_tokens"))
        tokens = np.nan_to_num(inputs) + np.nan_to_num(outputs)
        known |= {
            "cost_usd": _floats(_each(attempts, "usage.cost_usd")),
            "tokens": np.where(np.isnan(inputs) & np.isnan(outputs), nan, tokens),
            "n_steps": _floats(list(map(len, _each(attempts, "trajectory")))),
            "tool_error": _floats(_each(attempts, "tool_errors")),
            "timed_out": _floats([cause == _TIMEOUT for cause in causes]),
        }
        for name, values in known.items():
            self._columns[name].append(values.astype(np.float64))

    def _count_health(self, attempts: list[Any], causes: list[str], known: dict[str, Any]) -> None:
        """Count what went wrong; an agent's own failure without a grade is a failed trial."""
        health = self._health
        health.n_grader_failures += sum(map(bool, _each(attempts, "grader_failures")))
        health.n_permission_denials += sum(_each(attempts, "permission_denials"))
        unsaid = np.isnan(known["passed"])
        for i in np.flatnonzero(unsaid | np.array(list(map(bool, causes)))).tolist():
            cause, attempt = causes[i], attempts[i]
            if cause and not attempt.failure.answered:
                known["complete"][i] = False
            if cause in _AGENT_CAUSES:
                health.failed[cause] = health.failed.get(cause, 0) + 1
                if unsaid[i] and not attempt.failure.answered:
                    known["passed"][i] = known["score"][i] = 0.0
                    continue
            if unsaid[i]:
                why = cause or ("grader failed" if attempt.grader_failures else "not graded")
                health.not_measured[why] = health.not_measured.get(why, 0) + 1

    def _count_agents(self, attempts: list[Any]) -> None:
        for agent in set(_each(attempts, "agent")):
            if agent.adapter:
                self._agents.add(
                    " ".join(filter(None, (agent.adapter, agent.version, agent.model)))
                )
        for grades in filter(None, _each(attempts, "grades")):
            for name, grade in grades.items():
                self._graders.setdefault(name, set()).add(grade.version or "unknown")


def _each(rows: list[Any], name: str) -> list[Any]:
    """Give one field of all rows."""
    return list(map(attrgetter(name), rows))


def _floats(values: list[Any]) -> NDArray[np.float64]:
    """Give numbers as a column; what is not there is NaN."""
    return np.array(values, dtype=np.float64)


def _old_cause(row: CaptureRow) -> str:
    """Find a timeout in rows that carry no cause."""
    said_so = any("timeout" in error.lower() for error in row.errors)
    return _TIMEOUT if said_so or row.metadata.timed_out is True else ""


def _category(value: Any) -> str:
    return value if isinstance(value, str) else _NO_CATEGORY if value is None else str(value)
