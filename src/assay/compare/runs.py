"""One run, ready to be compared: the columns of its file without rows that were replaced."""

import re
import zlib
from collections.abc import Iterable, Mapping, Sequence, Set
from functools import cached_property, partial
from itertools import chain
from math import inf, nan
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
    CompactBlock,
    FactsTotal,
    Floats,
    GrowingBlock,
    GrowingColumn,
    Ints,
    RunFacts,
    compact,
    joined,
)
from assay.compare.packed import (
    FEW,
    Column,
    IdPiece,
    Ids,
    each_at,
    hashes_of,
    id_piece,
    pack,
    repeated,
    texts_at,
    unpack,
)
from assay.errors import InputError
from assay.records.capture import AGENT_CAUSES, CLAIMED, SEEN, UNVERIFIED_CAUSES, Cause
from assay.records.rows import RowFile, open_rows
from assay.records.setup import Problems
from assay.records.trial.files import HINT, Kind
from assay.records.trial.views import TrajectoryView
from assay.stats.passk import PassK, average_pass_k
from assay.system.calls import return_memory

_BLOCK = 256 * 1024
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


_PROVIDER = Cause.PROVIDER.value


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
    n_unverified: int = 0
    """Trials that are not measured only because the agent says so."""
    n_excused: int = 0
    """Measured trials of which an earlier attempt counts for nothing because the agent says so."""
    n_excused_passed: int = 0
    alike: str = ""
    """The cause by which every trial failed without an answer: more likely an outage than the
    agent."""


class Run(msgspec.Struct, dict=True, kw_only=True):
    """One file, read. Prompt columns have a value per prompt, trial columns one per trial."""

    label: str
    path: Path
    kind: Kind
    ids: Sequence[str]
    category_names: list[str]
    columns: dict[str, Column]
    """Numbers as they are kept; the properties below give them as they are used."""

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
    judge: Any = None
    """The errors of the judge that gave the verdicts; None if they are not known."""
    identities: list[str] = []
    """What the rows were made from, as JSON; the first ones, if there are many."""
    measures: dict[str, float] = {}
    """Means over the trials of what the grader measured besides the score."""

    @property
    def inputs(self) -> Ints:
        """Fingerprint of the input of each prompt."""
        return self._whole("inputs")

    @property
    def expectations(self) -> Ints:
        """Fingerprint of what graders know of the right answer to each prompt."""
        return self._whole("expectations")

    @property
    def metadata(self) -> Ints:
        """Fingerprint of the metadata of each prompt."""
        return self._whole("metadata")

    @property
    def tasks(self) -> Ints:
        """Fingerprint of the files and the set-up that each prompt brings along."""
        return self._whole("tasks")

    @property
    def categories(self) -> Ints:
        """Number of the category of each prompt in category_names."""
        return self._whole("categories")

    @property
    def k(self) -> Ints:
        """Trials planned for each prompt."""
        return self._whole("k")

    @property
    def pass_at_k(self) -> Floats:
        """The seed's number of each prompt as its row has it, else NaN."""
        return self._column("pass_at_k")

    @property
    def pass_exp_k(self) -> Floats:
        """The same for passExpK."""
        return self._column("pass_exp_k")

    @property
    def prompt(self) -> Ints:
        """Whose trial each is; in order, so that a prompt's trials stand together."""
        return np.repeat(np.arange(len(self.ids), dtype=np.int64), self._whole("n_trials"))

    @property
    def passed(self) -> Floats:
        """Of each trial 1, 0, or NaN for not measured."""
        return self._column("passed")

    @property
    def score(self) -> Floats:
        """Of each trial, as are the following; NaN is not known."""
        return self._column("score")

    @property
    def duration_ms(self) -> Floats:
        return self._column("duration_ms")

    @property
    def first_response_ms(self) -> Floats:
        return self._column("first_response_ms")

    @property
    def cost_usd(self) -> Floats:
        return self._column("cost_usd")

    @property
    def tokens(self) -> Floats:
        return self._column("tokens")

    @property
    def n_steps(self) -> Floats:
        return self._column("n_steps")

    @property
    def tool_error(self) -> Floats:
        return self._column("tool_error")

    @property
    def timed_out(self) -> Floats:
        return self._column("timed_out")

    @property
    def complete(self) -> Floats:
        return self._column("complete")

    def _whole(self, name: str) -> Ints:
        return unpack(self.columns[name]).astype(np.int64, copy=False)

    def _column(self, name: str) -> Floats:
        return unpack(self.columns[name]).astype(np.float64, copy=False)

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

    @property
    def n_passed(self) -> Ints:
        """Passed trials of each prompt."""
        return unpack(self._tallies[0])

    @property
    def n_measured(self) -> Ints:
        """Measured trials of each prompt."""
        return unpack(self._tallies[1])

    @cached_property
    def _tallies(self) -> tuple[Column, Column]:
        passed = self.passed
        return pack(self._count(np.nan_to_num(passed))), pack(self._count(~np.isnan(passed)))

    @cached_property
    def per_k(self) -> list[PassK]:
        """Unbiased pass@k and pass^k, for every k."""
        return average_pass_k(self.n_passed, self.n_measured, self.k, clusters=self.clusters)

    @property
    def lost(self) -> Any:
        """Whether the provider kept a trial from being measured."""
        return self._column("lost")

    @cached_property
    def n_lost(self) -> Ints:
        """Trials of each prompt that the provider kept from being measured."""
        return self._count(self.lost)

    def count_as_failed(self, trials: Iterable[tuple[str, int]]) -> None:
        """Let trials count as failures, each given by its prompt and its place in the row, from 0.

        To be called before anything is computed from the columns.
        """
        first = np.concatenate(([0], np.cumsum(self._whole("n_trials"))))
        numbers = {name: number for number, name in enumerate(self.ids)}
        failed = [(numbers[name], place) for name, place in trials if name in numbers]
        for name in ("passed", "score"):
            values = self._column(name).copy()
            values[[first[prompt] + place for prompt, place in failed]] = 0
            self.columns[name] = pack(values)
        for name in ("pass_at_k", "pass_exp_k"):  # of the row, which knows nothing of this
            values = self._column(name).copy()
            values[[prompt for prompt, _ in failed]] = np.nan
            self.columns[name] = pack(values)

    def mean_of(self, column: Floats) -> Floats:
        """Mean over the trials of each prompt; NaN where none has a value."""
        if self._one_trial_each:
            return column
        return mean_by_group(column, self.prompt, len(self.ids))

    @cached_property
    def _one_trial_each(self) -> bool:
        return bool((self._whole("n_trials") == 1).all())

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
    reader = ColumnReader(kind, category_key, RunFacts())
    total, columns = FactsTotal(kind), GrowingBlock()
    text, sizes, hashes = bytearray(), GrowingColumn(np.uint32), GrowingColumn(np.int64)
    has_steps = False
    with open_rows(path, hint=HINT) as file:
        for ids, facts, block in file.map(partial(_read_part, reader)):
            total.add(facts, block)
            columns.add(block)
            text += ids.text
            sizes.add(ids.sizes, block.n_rows)
            hashes.add(ids.hashes, block.n_rows)
            has_steps = has_steps or bool(np.any(block.trials["n_steps"]))
        facts = total.facts()
        if facts.richness is None and kind == "capture" and has_steps:
            facts.shows_work = any(file.map(_shows_work))
    found = columns.block()
    del columns  # make_run empties the block, and nothing else must hold what was in it
    run = make_run(label, path, facts, Ids(text, sizes.values()), found, hashes.values())
    if len(run.ids) > FEW:
        return_memory()
    return run


def _read_part(reader: ColumnReader, part: RowFile) -> tuple[IdPiece, RunFacts, CompactBlock]:
    facts = RunFacts()
    reader.extend(facts)
    ids: list[str] = []
    blocks = [reader.read([])]
    for views in part.blocks(reader.decoder, _BLOCK):
        ids += [view.id for view in views]
        blocks.append(reader.read(views))
    return id_piece(ids), facts, compact(joined(blocks))


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


_MOST_SINGLE = 0.98
"""Of many prompts a few may have one fingerprint by chance."""
_FACTORS = (1, 1_000_003, 998_244_353, 2_147_483_629)
_NO_INPUT = zlib.crc32(b'""')
"""Rows of other tools may not say what was asked."""


def cluster_copies(runs: Sequence[Run]) -> str:
    """Put prompts that differ in nothing but their ids into one cluster; say how many there are.

    Copies of a prompt are further trials of it: they say nothing about other prompts. Clusters that
    the user names are left as they are. What stands in their metadata makes prompts others only
    where a grader may read it.
    """
    prints = [_fingerprints(run, read_metadata(run.graders)) for run in runs]
    n_copies = max(len(one) - len(np.unique(one)) for one in prints)
    n_prompts = max(len(one) for one in prints)
    few = n_copies <= (1.0 - _MOST_SINGLE) * n_prompts
    # Rows of which all ask the same come from a tool that does not keep what it asked.
    is_known = not any((run.inputs == _NO_INPUT).any() for run in runs)
    is_known = is_known and all(len(np.unique(run.inputs)) > 1 for run in runs)
    if few or not is_known or any(run.clusters is not None for run in runs):
        return ""
    of: dict[str, int] = {}
    for run, own in zip(runs, prints, strict=True):
        for id_, number in zip(run.ids, own.tolist(), strict=True):
            of.setdefault(id_, number)
    for run in runs:
        run.clusters = np.array([of[id_] for id_ in run.ids], dtype=np.int64)
    return (
        f"{n_copies} of {n_prompts} prompts are copies of others under another id; "
        "all copies of a prompt count as one"
    )


def read_metadata(graders: Mapping[str, Set[str]]) -> bool:
    """Whether graders may take the right answer from metadata; built-in ones do not."""
    versions = chain.from_iterable(graders.values())
    return not (graders and graders.keys() <= _NO_METADATA and all(map(_BUILT_IN, versions)))


_NO_METADATA = frozenset({
    "exact", "contains", "regex", "numeric", "json-schema", "command", "git", "file", "tools",
    "skill", "judge",
})  # fmt: skip
_BUILT_IN = re.compile(r"\d+(?:-[0-9a-f]{8})?").fullmatch
"""Of the version of a built-in grader; a user's own may have the same name."""


def _fingerprints(run: Run, with_metadata: bool) -> Ints:
    """Return a number for all that makes each prompt what it is, but its id."""
    found = np.zeros(len(run.ids), dtype=np.int64)
    columns = (run.inputs, run.expectations, run.tasks, *([run.metadata] if with_metadata else []))
    for factor, column in zip(_FACTORS[: len(columns)], columns, strict=True):
        found += column.astype(np.int64) * factor
    return found


def _shows_work(part: RowFile) -> bool:
    """Return whether any step is more than a message; only this needs the types of steps."""
    return any(
        step.type in ("thought", "tool_call")
        for row in part.rows(msgspec.json.Decoder(TrajectoryView))
        for step in row.trajectory
    )


def make_run(
    label: str,
    path: Path,
    facts: RunFacts,
    ids: Sequence[str],
    columns: Block,
    hashes: NDArray[np.int64] | None = None,
) -> Run:
    """Make a run from the columns of its file, leaving out rows that a later one replaced.

    The columns are emptied on the way: memory holds one of them twice, not all.
    """
    rows, trials = columns
    last = _last_of_each(ids, hashes_of(ids) if hashes is None else hashes)
    kept = np.repeat(last, rows["n_trials"])
    grades = _Grades(trials, facts.causes)
    health = grades.health(kept)
    health.n_repeated = int((~last).sum())
    trials |= {"passed": grades.passed, "score": grades.score, "timed_out": grades.timed_out}
    trials["lost"] = grades.lost
    del grades
    setups = trials["setup"]
    if health.n_repeated:
        ids = Ids.of(each_at(ids, np.flatnonzero(last)))
        setups = setups[kept]
        rows |= {name: column[last] for name, column in rows.items()}
        trials |= {name: column[kept] for name, column in trials.items()}
    numbers = {name: pack(rows.pop(source)) for name, source in _ROW_COLUMNS.items()}
    numbers |= {name: pack(trials.pop(name)) for name in _TRIAL_COLUMNS}
    run = Run(
        label=label,
        path=path,
        kind=facts.kind or "capture",
        ids=ids,
        category_names=facts.categories,
        columns=numbers,
        health=health,
        richness=facts.richness,
        graders=facts.graders,
        agents=facts.agents,
        allocated=facts.allocated,
        identities=facts.identities,
        measures={name: total / n for name, (n, total) in facts.measures.items()},
    )
    if run.richness is None and run.kind == "capture" and facts.shows_work and run.n_steps.any():
        run.richness = "full"
    _check(run)
    health.setup_problems = _setup_problems(facts.setups, setups, run)
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
        prompts = np.unique(run.prompt[np.concatenate(parts)])
        n_trials = sum(map(len, parts))
        found.append(SetupProblem(words, n_trials, texts_at(run.ids, prompts)))
    return sorted(found, key=lambda problem: -problem.n_trials)


_ROW_COLUMNS = {
    "inputs": "input",
    "expectations": "expectation",
    "metadata": "metadata",
    "tasks": "task",
    "categories": "category",
    "k": "k",
    "n_trials": "n_trials",
    "pass_at_k": "pass_at_k",
    "pass_exp_k": "pass_exp_k",
}
_TRIAL_COLUMNS = (
    "passed",
    "score",
    "timed_out",
    "duration_ms",
    "first_response_ms",
    "cost_usd",
    "tokens",
    "n_steps",
    "tool_error",
    "complete",
    "lost",
)


class _Grades:
    """Verdicts as they are compared: an agent's own failure without a grade is a failed trial."""

    def __init__(self, trials: Columns, causes: list[str]) -> None:
        self._trials, self._causes = trials, causes
        cause = trials["cause"]
        self.passed, self.score = trials["passed"].copy(), trials["score"].copy()
        self.timed_out = cause == causes.index(TIMEOUT) if TIMEOUT in causes else cause < 0
        self._by_agent = _by_agent(trials, causes)
        ungraded = np.isnan(self.passed)
        scored = not np.isnan(self.score).all()
        failed = failed_ungraded(trials, causes)
        self._not_measured = ungraded & ~(self._by_agent & ~trials["answered"])
        is_provider = np.array([name.removesuffix(SEEN) == _PROVIDER for name in causes])
        self.lost = self._not_measured & is_provider[cause]
        if ungraded.all():
            self.score[:] = nan
        self.passed[failed] = self.score[failed] = 0.0
        if not scored:  # the grader only passes or fails
            self.score = self.passed.copy()

    def health(self, kept: NDArray[np.bool_]) -> Health:
        """Count over the trials that are kept."""
        broken = self._trials["grader_failed"]
        not_measured = self._by_cause(kept & self._not_measured)
        not_measured.pop("", 0)  # those without a cause are counted below
        excused = self._trials["excused"] & ~np.isnan(self.passed)
        uncaused = kept & self._not_measured & (self._trials["cause"] == 0)
        for why, trials in (("grader failed", broken), ("not graded", ~broken)):
            if n := int((uncaused & trials).sum()):
                not_measured[why] = not_measured.get(why, 0) + n
        return Health(
            n_trials=int(kept.sum()),
            not_measured=not_measured,
            n_unverified=sum(n for cause, n in not_measured.items() if _is_excuse(cause)),
            failed=self._by_cause(kept & self._by_agent),
            n_grader_failures=int((broken & kept).sum()),
            n_permission_denials=int(self._trials["denials"][kept].sum()),
            n_excused=int((kept & excused).sum()),
            n_excused_passed=int((kept & excused & (self.passed == 1.0)).sum()),
            alike=self._alike(kept),
        )

    def _alike(self, kept: NDArray[np.bool_]) -> str:
        """Return the cause by which all trials failed; a limit that was set is a result."""
        causes = self._trials["cause"][kept]
        if len(causes) < 2 or (causes != causes[0]).any() or (self.score[kept] > 0.0).any():
            return ""
        cause = self._causes[int(causes[0])]
        failed = cause in AGENT_CAUSES and not self._trials["answered"][kept].any()
        return cause if failed and cause != Cause.AGENT_LIMIT.value else ""

    def _by_cause(self, chosen: NDArray[np.bool_]) -> dict[str, int]:
        counts = np.bincount(self._trials["cause"][chosen], minlength=len(self._causes)).tolist()
        return {name: n for name, n in zip(self._causes, counts, strict=True) if n}


def _is_excuse(cause: str) -> bool:
    return cause in UNVERIFIED_CAUSES or cause.endswith(CLAIMED)


def failed_ungraded(trials: Columns, causes: list[str]) -> NDArray[np.bool_]:
    """Tell trials without a verdict that count as failed, as Judged.passed in records/trial does.

    Where no trial is graded there are none: failures alone are no measurement.
    """
    ungraded = np.isnan(trials["passed"])
    if ungraded.all():
        return np.zeros(len(ungraded), dtype=bool)
    failed: NDArray[np.bool_] = ungraded & _by_agent(trials, causes) & ~trials["answered"]
    return failed


def _by_agent(trials: Columns, causes: list[str]) -> NDArray[np.bool_]:
    """Tell trials that ended by a failure of the agent's own."""
    # An array with a flag for each cause, looked up by the cause of each trial.
    return np.array([name in AGENT_CAUSES for name in causes])[trials["cause"]]


def _last_of_each(ids: Sequence[str], hashes: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Return for each row whether it is the last with its id."""
    last = np.ones(len(ids), dtype=bool)
    twice = repeated(hashes)
    last[twice] = False
    last[list({ids[n]: n for n in twice.tolist()}.values())] = True
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
