"""One run, ready to be compared: the columns of its file without rows that were replaced."""

import zlib
from functools import cached_property
from itertools import islice
from math import inf, nan
from operator import lt
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from assay.compare.columns import (
    TIMEOUT,
    Block,
    ColumnReader,
    Columns,
    Floats,
    Ints,
    Kind,
    RunFacts,
    joined,
)
from assay.errors import InputError
from assay.records.capture import Cause
from assay.records.rows import RowFile, open_rows
from assay.records.setup import Problems
from assay.records.trials import HINT
from assay.records.views import TrajectoryView
from assay.stats.passk import PassK, average_pass_k

_BLOCK = 1024 * 1024
_AGENT_CAUSES = frozenset(cause.value for cause in Cause if cause.measures_agent)
_MOST_TRIALS = 1e9
_LARGEST = 1e15
"""Of a duration in ms, a cost, a number of tokens: beyond it, means and variances overflow."""
_SCALES = (
    ("score", "a score", 1.0),
    ("pass_at_k", "passAtK", 1.0),
    ("pass_exp_k", "passExpK", 1.0),
    ("k", "k", _MOST_TRIALS),
)
_AMOUNTS = (
    ("duration_ms", "a duration", 0.0),
    ("first_response_ms", "a first response", -_LARGEST),  # two clocks may disagree
    ("cost_usd", "a cost", 0.0),
    ("tokens", "a number of tokens", 0.0),
)
_LIMITS = (
    *((n, 0.0, most, f"{what} must lie in 0..{most:g}, got {{:g}}") for n, what, most in _SCALES),
    *((n, least, inf, f"{what} cannot be negative, got {{:g}}") for n, what, least in _AMOUNTS),
    *((n, -inf, _LARGEST, f"{what} of {{:g}} is not a measurement") for n, what, _ in _AMOUNTS),
)
"""Column, least, most, and what to say beyond them."""


class SetupProblem(msgspec.Struct, frozen=True):
    """Something that the agent did not have although it was asked for."""

    words: str
    n_trials: int
    prompts: list[str]
    """Ids, in the order of the file."""


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
    setup_problems: list[SetupProblem] = []
    """Those of most trials first."""


class Run(msgspec.Struct, dict=True, kw_only=True):
    """One file, read. Prompt columns have a value per prompt, trial columns one per trial."""

    label: str
    path: Path
    kind: Kind
    ids: list[str]
    inputs: Ints
    """Fingerprint of the input."""
    categories: Ints
    """Number of the category in category_names."""
    category_names: list[str]
    k: Ints
    """Trials planned for each prompt."""
    pass_at_k: Floats
    pass_exp_k: Floats
    """The seed's numbers as the rows have them, else NaN."""

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
    clusters: Any = None
    """Number of the cluster that each prompt belongs to; None if prompts are independent."""
    allocated: bool = False
    """Whether prompts have unequal numbers of trials on purpose."""
    builds: Any = None
    """The builds of a pooled baseline; None if it is none, or was not looked at."""
    measures: dict[str, float] = {}
    """Means over the trials of what the grader measured besides the score."""

    @property
    def agent_names(self) -> list[str]:
        """Agents with version and model, as people write them."""
        return [" ".join(filter(None, agent)) for agent in sorted(self.distinct_agents)]

    @property
    def distinct_agents(self) -> set[tuple[str, str, str]]:
        """The agents without those that say less of another: a trial that ended early."""
        return {
            agent
            for agent in self.agents
            if not any(agent != other and _says_less(agent, other) for other in self.agents)
        }

    @property
    def mixes_agents(self) -> bool:
        """Whether two of the agents cannot be the same one."""
        some = sorted(self.distinct_agents)
        return any(
            a and b and a != b
            for n, one in enumerate(some)
            for other in some[n + 1 :]
            for a, b in zip(one, other, strict=True)
        )

    @cached_property
    def n_passed(self) -> Ints:
        """Passed trials of each prompt."""
        return self._count(np.nan_to_num(self.passed))

    @cached_property
    def n_measured(self) -> Ints:
        """Measured trials of each prompt."""
        return self._count(~np.isnan(self.passed))

    @cached_property
    def per_k(self) -> list[PassK]:
        """Unbiased pass@k and pass^k, for every k."""
        return average_pass_k(self.n_passed, self.n_measured, self.k, clusters=self.clusters)

    def mean_of(self, column: Floats) -> Floats:
        """Mean over the trials of each prompt; NaN where none has a value."""
        if self._one_trial_each:
            return column
        return mean_by_group(column, self.prompt, len(self.ids))

    @cached_property
    def _one_trial_each(self) -> bool:
        return bool(np.array_equal(self.prompt, np.arange(len(self.ids))))

    def _count(self, weights: NDArray[np.bool_] | Floats) -> Ints:
        if self._one_trial_each:
            return weights.astype(np.int64)
        counted = np.bincount(self.prompt, weights=weights, minlength=len(self.ids))
        return np.rint(counted).astype(np.int64)


def mean_by_group(values: Floats, group: Ints, n_groups: int) -> Floats:
    """Average the known values of each group; NaN where there is none."""
    known = ~np.isnan(values)
    n = np.bincount(group[known], minlength=n_groups)
    total = np.bincount(group[known], weights=values[known], minlength=n_groups)
    with np.errstate(invalid="ignore", divide="ignore"):
        means: Floats = total / n
    return means


def load_run(label: str, path: Path, kind: Kind, category_key: str) -> Run:
    """Read one file. Of rows with the same id the last one counts."""
    facts = RunFacts()
    reader = ColumnReader(kind, category_key, facts)
    ids: list[str] = []
    blocks = [reader.read([])]  # so that a file without rows has columns too
    with open_rows(path, hint=HINT) as file:
        for views in file.blocks(reader.decoder, _BLOCK):
            ids += [view.id for view in views]
            blocks.append(reader.read(views))
        has_steps = any(block.trials["n_steps"].any() for block in blocks)
        if facts.richness is None and kind == "capture" and has_steps:
            facts.shows_work = _shows_work(file)
    return make_run(label, path, facts, ids, joined(blocks))


class _ClusterView(msgspec.Struct):
    id: str
    metadata: dict[str, Any] = {}


def number_clusters(run: Run, key: str) -> Ints:
    """Number the clusters of a run's prompts, which are named in their metadata under a key.

    The number is a fingerprint of the name, so that runs can be compared.
    """
    names: dict[str, Any] = {}
    with open_rows(run.path, hint=HINT) as file:
        for row in file.rows(msgspec.json.Decoder(_ClusterView)):
            names[row.id] = row.metadata.get(key)
    without = [id_ for id_ in run.ids if names[id_] is None]
    if without:
        n = f"{len(without)} of {len(run.ids)} prompts"
        msg = f"{run.path}: {n} have no {key!r} in their metadata"
        hint = f"the first is {without[0]}; give all of them one, or leave out --cluster"
        raise InputError(msg, hint=hint)
    numbers = (zlib.crc32(msgspec.json.encode(names[id_])) for id_ in run.ids)
    return np.fromiter(numbers, np.int64, count=len(run.ids))


def _shows_work(file: RowFile) -> bool:
    """Return whether any step is more than a message; only this needs the types of steps."""
    return any(
        step.type in ("thought", "tool_call")
        for row in file.rows(msgspec.json.Decoder(TrajectoryView))
        for step in row.trajectory
    )


def make_run(label: str, path: Path, facts: RunFacts, ids: list[str], columns: Block) -> Run:
    """Make a run from the columns of its file, leaving out rows that a later one replaced."""
    rows, trials = columns
    last = _last_of_each(ids)
    kept = np.repeat(last, rows["n_trials"])
    grades = _Grades(trials, facts.causes)
    health = grades.health(kept)
    health.n_repeated = int((~last).sum())
    if health.n_repeated:
        ids = [id_ for id_, keep in zip(ids, last.tolist(), strict=True) if keep]
        rows = {name: column[last] for name, column in rows.items()}
        trials = {name: column[kept] for name, column in trials.items()}
    numbers = {name: trials[name].astype(np.float64, copy=False) for name in _TRIAL_COLUMNS}
    run = Run(
        label=label,
        path=path,
        kind=facts.kind or "capture",
        ids=ids,
        inputs=rows["input"].astype(np.int64),
        categories=rows["category"].astype(np.int64),
        category_names=facts.categories,
        k=rows["k"],
        pass_at_k=rows["pass_at_k"],
        pass_exp_k=rows["pass_exp_k"],
        prompt=np.repeat(np.arange(len(ids), dtype=np.int64), rows["n_trials"]),
        passed=grades.passed if kept.all() else grades.passed[kept],
        score=grades.score if kept.all() else grades.score[kept],
        timed_out=grades.timed_out[kept].astype(np.float64),
        health=health,
        richness=facts.richness,
        graders=facts.graders,
        agents=facts.agents,
        allocated=facts.allocated,
        measures={name: total / n for name, (n, total) in facts.measures.items()},
        **numbers,
    )
    if run.richness is None and run.kind == "capture" and facts.shows_work and run.n_steps.any():
        run.richness = "full"
    _check(run)
    health.setup_problems = _setup_problems(facts.setups, trials["setup"], run)
    health.n_graded = int((~np.isnan(run.passed)).sum())
    return run


def _says_less(agent: tuple[str, str, str], other: tuple[str, str, str]) -> bool:
    return all(part in ("", whole) for part, whole in zip(agent, other, strict=True))


def _setup_problems(setups: list[Problems], numbers: Ints, run: Run) -> list[SetupProblem]:
    """Count the trials and name the prompts of each problem."""
    if not numbers.any():
        return []
    trials: dict[str, list[Ints]] = {}
    for number in np.unique(numbers[numbers > 0]).tolist():
        for words in setups[number]:
            trials.setdefault(words, []).append(np.flatnonzero(numbers == number))
    found = []
    for words, parts in trials.items():
        prompts = np.unique(run.prompt[np.concatenate(parts)]).tolist()
        n_trials = sum(map(len, parts))
        found.append(SetupProblem(words, n_trials, [run.ids[n] for n in prompts]))
    return sorted(found, key=lambda problem: -problem.n_trials)


_TRIAL_COLUMNS = (
    "duration_ms",
    "first_response_ms",
    "cost_usd",
    "tokens",
    "n_steps",
    "tool_error",
    "complete",
)


class _Grades:
    """Verdicts as they are compared: an agent's own failure without a grade is a failed trial."""

    def __init__(self, trials: Columns, causes: list[str]) -> None:
        self._trials, self._causes = trials, causes
        cause = trials["cause"]
        self.passed, self.score = trials["passed"].copy(), trials["score"].copy()
        self.timed_out = cause == causes.index(TIMEOUT) if TIMEOUT in causes else cause < 0
        # An array with a flag for each cause, looked up by the cause of each trial.
        self._by_agent = np.array([name in _AGENT_CAUSES for name in causes])[cause]
        ungraded = np.isnan(self.passed)
        scored = not np.isnan(self.score).all()
        failed = ungraded & self._by_agent & ~trials["answered"]
        self._not_measured = ungraded & ~failed
        if ungraded.all():  # no row is graded: the failures are no measurement either
            self.score[:] = nan
        else:
            self.passed[failed] = self.score[failed] = 0.0
        if not scored:  # the grader only passes or fails
            self.score = self.passed.copy()

    def health(self, kept: NDArray[np.bool_]) -> Health:
        """Count over the trials that are kept."""
        broken = self._trials["grader_failed"]
        not_measured = self._by_cause(kept & self._not_measured)
        not_measured.pop("", 0)  # those without a cause are counted below
        uncaused = kept & self._not_measured & (self._trials["cause"] == 0)
        for why, trials in (("grader failed", broken), ("not graded", ~broken)):
            if n := int((uncaused & trials).sum()):
                not_measured[why] = not_measured.get(why, 0) + n
        return Health(
            n_trials=int(kept.sum()),
            not_measured=not_measured,
            failed=self._by_cause(kept & self._by_agent),
            n_grader_failures=int((broken & kept).sum()),
            n_permission_denials=int(self._trials["denials"][kept].sum()),
        )

    def _by_cause(self, chosen: NDArray[np.bool_]) -> dict[str, int]:
        counts = np.bincount(self._trials["cause"][chosen], minlength=len(self._causes)).tolist()
        return {name: n for name, n in zip(self._causes, counts, strict=True) if n}


def _last_of_each(ids: list[str]) -> NDArray[np.bool_]:
    """Return for each row whether it is the last with its id."""
    last = np.ones(len(ids), dtype=bool)
    ascending = all(map(lt, ids, islice(ids, 1, None)))  # the usual case, checked without a set
    if not ascending and len(set(ids)) < len(ids):
        last[:] = False
        last[list({id_: n for n, id_ in enumerate(ids)}.values())] = True
    return last


def impossible_rows(columns: Block) -> NDArray[np.bool_]:
    """Return for each row whether a number in it means nothing: what _check refuses."""
    rows, trials = columns
    wrong = np.zeros(len(rows["k"]), dtype=bool)
    owners = np.repeat(np.arange(len(wrong)), rows["n_trials"])
    for name, least, most, _ in _LIMITS:
        in_row = name in rows
        values = rows[name] if in_row else trials[name]
        beyond = (values < least) | (values > most)
        if beyond.any():
            wrong[np.flatnonzero(beyond) if in_row else owners[beyond]] = True
    return wrong


def _check(run: Run) -> None:
    """Refuse numbers that mean nothing; other tools write such rows."""
    for name, least, most, message in _LIMITS:
        _refuse(run, name, least, most, message)


def _refuse(run: Run, name: str, least: float, most: float, message: str) -> None:
    values = getattr(run, name)
    wrong = values[(values < least) | (values > most)]
    if wrong.size:
        msg = f"{run.path}: {message.format(wrong[0])} ({wrong.size} times)"
        raise InputError(msg, hint="grade the rows again, or fix them")
