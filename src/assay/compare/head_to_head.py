"""Who wins which prompt by the chosen strategy, and how often each run beats each other."""

from collections.abc import Iterator, Mapping
from itertools import combinations
from typing import Any, NamedTuple

import msgspec
import numpy as np

from assay.compare.columns import Floats, Ints
from assay.compare.packed import texts_at
from assay.compare.pairs import Aligned
from assay.compare.runs import Run
from assay.records.text import counted_noun
from assay.stats.passk import resampled_pass_at_k
from assay.stats.significance import mcnemar_p

_ROWS_AT_ONCE = 2_000
_SHOWN_REASONS = 20
_CHANCE = 0.05
_NOT_THE_JUDGES = "nothing is graded"
"""What makes pass rates unhealthy, but not the judge, who reads the answers."""
type Totals = list[Floats]
"""For each run the strategy's total of each of its prompts; NaN is not measured."""


class CustomJudgement(NamedTuple):
    """What a user's own strategy said of each prompt."""

    grader: str
    """Name of its file."""
    totals: Totals
    reasoning: dict[int, str]
    """By the number of the prompt, where there is any."""


def pairwise(aligned: Aligned, totals: Totals) -> list[dict[str, Any]]:
    """Count wins between every two runs, each pair on its own; equal totals are a tie."""
    rows = []
    for a, b in combinations(range(len(aligned.runs)), 2):
        in_a, in_b = aligned.both(a, b)
        left, right = totals[a][in_a], totals[b][in_b]
        rows.append(
            {
                "runA": aligned.runs[a].label,
                "runB": aligned.runs[b].label,
                "aWins": int((left > right).sum()),
                "bWins": int((right > left).sum()),
                "ties": int((left == right).sum()),
                "notMeasured": int((np.isnan(left) | np.isnan(right)).sum()),
            }
        )
    return rows


def judge_section(
    aligned: Aligned, judged: CustomJudgement, problems: Mapping[str, list[str]]
) -> dict[str, Any]:
    """Describe what a user's own strategy decided, in words and with its first reasons.

    problems say for each run why its measurement cannot be believed: then there is no verdict.
    """
    rows = _Rows(aligned)
    winners = rows.winners(judged.totals).labels()
    shown = list(zip(aligned.in_several.tolist(), winners, strict=True))[:_SHOWN_REASONS]
    ids = texts_at(aligned.ids, aligned.in_several[:_SHOWN_REASONS])
    return {
        "grader": judged.grader,
        "asked": len(aligned.in_several),
        "verdict": [
            _preference(judged.grader, row, problems) for row in pairwise(aligned, judged.totals)
        ],
        "reasons": [
            {"id": prompt_id, "winner": winner, "reasoning": judged.reasoning.get(number)}
            for prompt_id, (number, winner) in zip(ids, shown, strict=True)
        ],
    }


def _preference(
    grader: str, row: dict[str, Any], problems: Mapping[str, list[str]]
) -> dict[str, Any]:
    a, b, wins_a, wins_b = row["runA"], row["runB"], row["aWins"], row["bWins"]
    unhealthy = [
        f"{run}: {'; '.join(found)}"
        for run in (a, b)
        if (found := [one for one in problems[run] if one != _NOT_THE_JUDGES])
    ]
    preferred = None if unhealthy or wins_a == wins_b else (a if wins_a > wins_b else b)
    p_value = mcnemar_p(wins_a, wins_b)
    tied = f"{row['ties']} tied"
    rest = f"{tied}, {row['notMeasured']} not ranked" if row["notMeasured"] else tied
    if unhealthy:
        words = f"{grader} has no verdict, UNHEALTHY ({', '.join(unhealthy)})"
    elif preferred is None:
        words = (
            f"{grader} prefers neither {a} nor {b}: {counted_noun(wins_a, 'prompt')} each, {rest}"
        )
    else:
        other, count = (b, (wins_a, wins_b)) if preferred == a else (a, (wins_b, wins_a))
        won = f"{counted_noun(count[0], 'prompt')} to {count[1]}"
        words = f"{grader} prefers {preferred} to {other}: {won}, {rest}"
        chance = ", which may be chance" if p_value > _CHANCE else ""
        words += f" (sign test p = {p_value:.2g}{chance})"
    judged = {"preferred": preferred, "pValue": None if unhealthy else p_value}
    return row | judged | {"words": words, "healthy": not unhealthy}


def capture_prompts(
    aligned: Aligned, totals: Totals, judged: CustomJudgement | None = None
) -> Iterator[list[bytes]]:
    """Yield a JSON row for each prompt that two or more runs have, many rows at a time."""
    latencies = [run.mean_of(run.duration_ms) for run in aligned.runs]
    errors = [run.mean_of(run.tool_error) > 0 for run in aligned.runs]
    rows = _Rows(aligned)
    return rows.write(
        {
            "winner": rows.winners(totals),
            "scores": totals,
            "latencies": latencies,
            "hadErrors": errors,
            **rows.reasoning(judged),
        }
    )


def trials_prompts(
    aligned: Aligned, totals: Totals, judged: CustomJudgement | None = None
) -> Iterator[list[bytes]]:
    """Yield a JSON row for each prompt that two or more runs have repeated, many at a time."""
    both = [pass_k(run) for run in aligned.runs]
    at_k, exp_k = [pair[0] for pair in both], [pair[1] for pair in both]
    rows = _Rows(aligned)
    return rows.write(
        {
            "capabilityWinner": rows.winners(at_k),
            "reliabilityWinner": rows.winners(exp_k),
            "overallWinner": rows.winners(totals),
            "passAtK": at_k,
            "passExpK": exp_k,
            "flakiness": [np.maximum(0.0, a - e) for a, e in both],
            **rows.reasoning(judged),
        }
    )


class _Rows:
    """The prompts that several runs have, written as rows of a report.

    Columns are encoded some thousand values at a time and split again: many times faster than row
    by row, and memory holds no more than that.
    """

    def __init__(self, aligned: Aligned) -> None:
        self._aligned = aligned
        self._chosen = aligned.in_several
        self._where = aligned.where[self._chosen]
        self._labels = [run.label for run in aligned.runs]

    def write(self, fields: dict[str, Any]) -> Iterator[list[bytes]]:
        """Yield the rows as JSON; a field holds a value per prompt, or a column per run."""
        for start in range(0, len(self._where), _ROWS_AT_ONCE):
            yield self._write(fields, slice(start, start + _ROWS_AT_ONCE))

    def _write(self, fields: dict[str, Any], some: slice) -> list[bytes]:
        where = self._where[some]
        ids = _texts(texts_at(self._aligned.ids, self._chosen[some]))
        columns: list[tuple[int | None, list[bytes]]] = [(None, ids)]
        for value in fields.values():
            if isinstance(value, _PromptValues):
                columns.append((None, value.tokens(some)))
            else:
                columns += [(r, _tokens(column, where[:, r])) for r, column in enumerate(value)]
        present = where >= 0
        if present.all():  # the usual case: one pattern for all rows
            pattern = self._pattern(fields, tuple([True] * len(self._labels)))
            values = zip(*(tokens for _, tokens in columns), strict=True)
            return list(map(pattern.__mod__, values))
        return [
            self._pattern(fields, here)
            % tuple(tokens[i] for r, tokens in columns if r is None or here[r])
            for i, here in enumerate(map(tuple, present.tolist()))
        ]

    def reasoning(self, judged: CustomJudgement | None) -> dict[str, "_PromptValues"]:
        """Return the field with what a judge said; none, if there was no judge."""
        if judged is None:
            return {}
        reasons = map(judged.reasoning.get, self._chosen.tolist())
        return {"reasoning": _PromptValues([msgspec.json.encode(each) for each in reasons])}

    def winners(self, totals: Totals) -> "_PromptValues":
        """Return the winner of each prompt: the one run that has the highest total alone."""
        table = np.full(self._where.shape, -np.inf)
        unknown = np.zeros(len(self._where), dtype=bool)
        for r, values in enumerate(totals):
            here = self._where[:, r] >= 0
            table[here, r] = values[self._where[here, r]]
            unknown |= here & np.isnan(table[:, r])
        # -inf stands for a run without the prompt; one that was not measured leaves no winner.
        best = np.argmax(np.nan_to_num(table, nan=-np.inf), axis=1)
        top = table[np.arange(len(table)), best]
        no_winner = unknown | ((table == top[:, None]).sum(axis=1) > 1)
        names = [*map(msgspec.json.encode, self._labels), b"null"]
        numbers = np.where(no_winner, len(self._labels), best)
        return _PromptValues(names, numbers)

    def _pattern(self, fields: dict[str, Any], present: tuple[bool, ...]) -> bytes:
        text = b'{"id":%b'
        for name, value in fields.items():
            text += b"," + msgspec.json.encode(name) + b":"
            if isinstance(value, _PromptValues):
                text += b"%b"
                continue
            # The row is filled in with %: a percent sign in a label is doubled.
            keys = [msgspec.json.encode(label).replace(b"%", b"%%") for label in self._labels]
            slots = [key + b":%b" for key, here in zip(keys, present, strict=True) if here]
            text += b"{" + b",".join(slots) + b"}"
        return text + b"}"


class _PromptValues:
    """A value of each prompt, as JSON; where values repeat, with the number of each."""

    def __init__(self, values: list[bytes], numbers: Ints | None = None) -> None:
        self._values, self._numbers = values, numbers

    def tokens(self, some: slice) -> list[bytes]:
        """Return the values of some prompts."""
        if self._numbers is None:
            return self._values[some]
        return [self._values[number] for number in self._numbers[some].tolist()]

    def labels(self) -> list[str | None]:
        """Return all of them, as labels or None."""
        return [msgspec.json.decode(token) for token in self.tokens(slice(None))]


def _texts(texts: list[str]) -> list[bytes]:
    encoded = msgspec.json.encode(texts)
    if b"\\" in encoded:  # with escaped quotes a text may contain the separator
        return [msgspec.json.encode(text) for text in texts]
    return [b'"%b"' % text for text in encoded[2:-2].split(b'","')]


def _tokens(column: Any, where: Ints) -> list[bytes]:
    # Where a run lacks the prompt (-1), any value will do: the pattern has no slot for it.
    values = column[np.maximum(where, 0)].tolist()
    return msgspec.json.encode(values)[1:-1].split(b",")


_CAPTURE_WEIGHTS = {
    "COMPARE_QUALITY": 0.5,
    "COMPARE_LATENCY": 0.3,
    "COMPARE_RELIABILITY": 0.2,
}
_TRIALS_WEIGHTS = {
    "COMPARE_CAPABILITY": 0.4,
    "COMPARE_RELIABILITY": 0.4,
    "COMPARE_CONSISTENCY": 0.2,
}


def weights_of(given: Mapping[str, float], kind: str) -> dict[str, float]:
    """Return the weights of one kind of run, by the seed's names for them, in their order."""
    usual = _TRIALS_WEIGHTS if kind == "trials" else _CAPTURE_WEIGHTS
    return {name: given.get(name, value) for name, value in usual.items()}


def weigh(run: Run, by_name: Mapping[str, float]) -> Floats:
    """Return the seed's total of each prompt; NaN where it was not measured."""
    weights = list(by_name.values())
    if run.kind == "trials":
        at_k, exp_k = pass_k(run)
        flaky = np.maximum(0.0, at_k - exp_k)
        return at_k * weights[0] + exp_k * weights[1] + (1.0 - flaky) * weights[2]
    score = run.mean_of(run.score)
    duration_ms = run.mean_of(run.duration_ms)
    duration_ms = np.where(np.isnan(duration_ms), 10_000.0, duration_ms)
    clean = 1.0 - run.mean_of(run.tool_error)
    speed = 1.0 / (1.0 + duration_ms / 1000.0)
    return score * weights[0] + speed * weights[1] + clean * weights[2]


def rank_statistically(run: Run) -> Floats:
    """Return the score of each prompt, or for trials the resampled median of pass@k."""
    if run.kind != "trials":
        return run.mean_of(run.score)
    totals = np.full(len(run.ids), np.nan)
    seen = run.n_measured > 0
    if seen.any():
        totals[seen] = resampled_pass_at_k(run.n_passed[seen], run.n_measured[seen])[0]
    return totals


def pass_k(run: Run) -> tuple[Floats, Floats]:
    """Return the seed's passAtK and passExpK: as the rows have them, else from their trials."""
    n, c = run.n_measured, run.n_passed
    with np.errstate(invalid="ignore", divide="ignore"):
        rate = c / n
        at_k = np.where(np.isnan(run.pass_at_k), 1.0 - (1.0 - rate) ** n, run.pass_at_k)
        exp_k = np.where(np.isnan(run.pass_exp_k), rate**n, run.pass_exp_k)
    return np.where(n > 0, at_k, np.nan), np.where(n > 0, exp_k, np.nan)
