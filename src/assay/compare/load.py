"""Read result files into columns, one row at a time."""

import zlib
from array import array
from math import nan
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from assay.compare.columns import Health, Kind, Run
from assay.compare.rows import Attempt, CaptureRow, EntryRow, TrialsRow, decode, lines_of
from assay.records.failure import Cause

_RICHNESS = ("full", "messages-only", "minimal")
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
_AGENT_CAUSES = frozenset(cause.value for cause in Cause if cause.measures_agent)


def load_run(label: str, path: Path, kind: Kind, category_key: str) -> Run:
    """Read one file. Of rows with the same id the last one counts."""
    loader = _Loader(category_key)
    if kind == "trials":
        trials = msgspec.json.Decoder(TrialsRow)
        for place, line, offset in lines_of(path):
            loader.add_trials(decode(trials, place, line), offset)
    else:
        captures = msgspec.json.Decoder(CaptureRow)
        for place, line, offset in lines_of(path):
            loader.add_capture(decode(captures, place, line), offset)
    return loader.run(label, path, kind)


class _Loader:
    """Collects columns while a file is read."""

    def __init__(self, category_key: str) -> None:
        self._key = category_key
        self._ids: list[str] = []
        self._categories: list[str] = []
        self._place: dict[str, int] = {}
        self._replaced: list[int] = []
        self._offsets, self._inputs, self._k = array("q"), array("q"), array("q")
        self._at_k, self._exp_k = array("d"), array("d")
        self._prompt = array("q")
        self._columns = {name: array("d") for name in _TRIAL_COLUMNS}
        self._health = Health()
        self._n_said = 0
        self._richness: str | None = None
        self._graders: dict[str, set[str]] = {}
        self._agents: set[str] = set()

    def add_capture(self, row: CaptureRow, offset: int) -> None:
        """Take a capture: a prompt with one trial."""
        self._add_prompt(row.id, row.input, row.metadata, offset, 1)
        self._at_k.append(nan)
        self._exp_k.append(nan)
        clock = row.timing
        length = clock.total
        if length is None:
            length = clock.end - clock.start if clock.end is not None and clock.start else nan
        timed_out = bool((row.metadata or {}).get("timedOut")) or any(
            "timeout" in error.lower() for error in row.errors or ()
        )
        score = row.score
        said = None if score is None else (score.pass_, score.score)
        empty = len(row.output) <= 2
        bad_end = empty or bool(row.errors)
        self._add_attempt(row, said, length, clock.first_response, timed_out, bad_end)

    def add_trials(self, row: TrialsRow, offset: int) -> None:
        """Take a prompt with all its trials."""
        k = int(row.k) if row.k is not None else len(row.trials)
        self._add_prompt(row.id, row.input, row.metadata, offset, max(k, len(row.trials)))
        self._at_k.append(nan if row.pass_at_k is None else row.pass_at_k)
        self._exp_k.append(nan if row.pass_exp_k is None else row.pass_exp_k)
        for entry in row.trials:
            self._add_attempt(entry, _said(entry), entry.duration, entry.first_response)

    def run(self, label: str, path: Path, kind: Kind) -> Run:
        """Give the columns, without rows that were replaced by a later one."""
        n = len(self._ids)
        alive = np.ones(n, dtype=bool)
        alive[self._replaced] = False
        prompt = np.array(self._prompt, dtype=np.int64)
        kept = alive[prompt] if n else np.zeros(0, dtype=bool)
        renumbered = np.cumsum(alive) - 1
        columns = {name: np.array(values)[kept] for name, values in self._columns.items()}
        where = np.flatnonzero(alive)
        if not self._n_said:  # nobody graded this run: its failures are no measurement either
            columns["passed"][:] = columns["score"][:] = nan
        self._health.n_repeated = len(self._replaced)
        self._health.n_trials = int(kept.sum())
        self._health.n_graded = int((~np.isnan(columns["passed"])).sum())
        return Run(
            label=label,
            path=path,
            kind=kind,
            ids=[self._ids[i] for i in where],
            offsets=np.array(self._offsets, dtype=np.int64)[where],
            inputs=np.array(self._inputs, dtype=np.int64)[where],
            categories=[self._categories[i] for i in where],
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

    def _add_prompt(self, id_: str, asked: msgspec.Raw, metadata: Any, offset: int, k: int) -> None:
        if id_ in self._place:
            self._replaced.append(self._place[id_])
        self._place[id_] = len(self._ids)
        self._ids.append(id_)
        self._offsets.append(offset)
        self._inputs.append(zlib.crc32(asked))
        self._k.append(k)
        known = metadata or {}
        category = known.get(self._key)
        self._categories.append("(uncategorized)" if category is None else str(category))
        if self._richness is None and known.get("trajectoryRichness") in _RICHNESS:
            self._richness = known["trajectoryRichness"]

    def _add_attempt(
        self,
        attempt: Attempt,
        said: tuple[bool, float] | None,
        length: float,
        first: float | None,
        timed_out: bool = False,
        bad_end: bool = False,
    ) -> None:
        cause = attempt.failure.cause if attempt.failure else ""
        if not cause and timed_out:
            cause = Cause.AGENT_TIMEOUT.value
        said = self._count_health(attempt, cause, said)
        used = attempt.usage
        columns = self._columns
        self._prompt.append(len(self._ids) - 1)
        columns["passed"].append(nan if said is None else said[0])
        columns["score"].append(nan if said is None else said[1])
        columns["duration_ms"].append(length)
        columns["first_response_ms"].append(nan if first is None else first)
        columns["cost_usd"].append(nan if used is None or used.cost_usd is None else used.cost_usd)
        columns["tokens"].append(_tokens(used))
        columns["n_steps"].append(len(attempt.trajectory))
        columns["tool_error"].append(attempt.tool_errors)
        columns["timed_out"].append(cause == Cause.AGENT_TIMEOUT.value)
        columns["complete"].append(not bad_end and not (cause and not _answered(attempt)))

    def _count_health(
        self, attempt: Attempt, cause: str, said: tuple[bool, float] | None
    ) -> tuple[bool, float] | None:
        """Count what went wrong; an agent's own failure without a grade is a failed trial."""
        health = self._health
        self._n_said += said is not None
        health.n_grader_failures += bool(attempt.grader_failures)
        health.n_permission_denials += attempt.permission_denials
        if attempt.agent is not None:
            agent = attempt.agent
            self._agents.add(" ".join(filter(None, (agent.adapter, agent.version, agent.model))))
        for name, grade in (attempt.grades or {}).items():
            self._graders.setdefault(name, set()).add(grade.version or "unknown")
        if cause in _AGENT_CAUSES:
            health.failed[cause] = health.failed.get(cause, 0) + 1
            if said is None and not _answered(attempt):
                return (False, 0.0)
        if said is None:
            why = cause or ("grader failed" if attempt.grader_failures else "not graded")
            health.not_measured[why] = health.not_measured.get(why, 0) + 1
        return said


def _answered(attempt: Attempt) -> bool:
    return attempt.failure is not None and attempt.failure.answered


def _said(entry: EntryRow) -> tuple[bool, float] | None:
    if entry.pass_ is None:
        return None
    return entry.pass_, (float(entry.pass_) if entry.score is None else entry.score)


def _tokens(used: Any) -> float:
    if used is None or (used.input_tokens is None and used.output_tokens is None):
        return nan
    return float((used.input_tokens or 0) + (used.output_tokens or 0))
