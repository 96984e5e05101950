"""Draw rows for people to inspect, and read them as samples or labelling sheets."""

import hashlib
import heapq

import msgspec
from msgspec import UNSET

from assay.records.capture import AnyStep, grader_version
from assay.records.reports import CalibrationSample, LabelRow
from assay.records.rows import RowFile, Spot
from assay.records.trial import Verdict
from assay.records.trial.views import SampleView, VerdictView

FAILURES_DRAWN = 10
SHEET_ROWS = 50


class RowSample(msgspec.Struct, kw_only=True):
    """The positions of the drawn rows, and what they were drawn from."""

    spots: list[Spot]
    n_rows: int
    """How many there were to draw from."""
    n_undecided: int
    """Rows that failed before any grader was asked."""
    n_strata: int = 1
    n_graded: int = 0
    """Rows with a verdict, whatever it is."""
    n_ungraded: int = 0
    """Rows that a grader could have judged, and none has."""
    n_unmeasured: int = 0
    """Rows that do not measure the agent, and so cannot be graded."""


def draw_failures(rows: RowFile, size: int, seed: int) -> RowSample:
    """Draw some of the rows that a grader failed; they stay in the order of the file."""
    reservoir = _Reservoir(size, f"failures:{seed}")
    n_undecided = n_graded = n_ungraded = n_unmeasured = 0
    for spot, row in rows.placed_rows(msgspec.json.Decoder(VerdictView)):
        if row.score is None:
            n_ungraded += row.is_ungraded
            n_unmeasured += row.needs_rerun
            continue
        n_graded += 1
        if row.score.pass_:
            continue
        if row.is_finished:  # else the verdict follows from the failure
            reservoir.offer(row.id, spot)
        else:
            n_undecided += 1
    return RowSample(
        spots=sorted(reservoir.drawn(size)),
        n_rows=reservoir.n_offered,
        n_undecided=n_undecided,
        n_graded=n_graded,
        n_ungraded=n_ungraded,
        n_unmeasured=n_unmeasured,
    )


def draw_sheet(rows: RowFile, size: int, seed: int, key: str) -> RowSample:
    """Draw graded rows, stratified by verdict and category, and shuffle them.

    Proportional shares make the labelled rows represent the file without weights.
    """
    reservoirs: dict[tuple[bool, str], _Reservoir] = {}
    n_undecided = 0
    for spot, row in rows.placed_rows(msgspec.json.Decoder(VerdictView)):
        if row.score is None:
            continue
        if not row.is_finished:
            n_undecided += 1
            continue
        stratum = (row.score.pass_, str((row.metadata or {}).get(key)))
        reservoir = reservoirs.setdefault(stratum, _Reservoir(size, f"sheet:{seed}"))
        reservoir.offer(row.id, spot)
    counts = _stratified(size, {k: one.n_offered for k, one in reservoirs.items()}, seed)
    spots = [spot for key, n in counts.items() for spot in reservoirs[key].drawn(n)]
    return RowSample(
        spots=sorted(spots, key=lambda spot: _hash(f"order:{seed}", str(spot.offset))),
        n_rows=sum(reservoir.n_offered for reservoir in reservoirs.values()),
        n_undecided=n_undecided,
        n_strata=len(reservoirs),
    )


class _Reservoir:
    """Reservoir sampling: keeps the rows with the smallest hashes, however many are offered."""

    def __init__(self, size: int, salt: str) -> None:
        self._size = size
        self._salt = salt
        self._kept: list[tuple[int, Spot]] = []
        self.n_offered = 0

    def offer(self, row_id: str, spot: Spot) -> None:
        self.n_offered += 1
        # Negated: the heap's smallest item is the largest hash, the first to be replaced.
        item = (-_hash(self._salt, f"{spot.offset}:{row_id}"), spot)
        if len(self._kept) < self._size:
            heapq.heappush(self._kept, item)
        elif self._kept and item > self._kept[0]:
            heapq.heapreplace(self._kept, item)

    def drawn(self, n: int) -> list[Spot]:
        return [spot for _, spot in heapq.nlargest(n, self._kept)]


def _hash(salt: str, text: str) -> int:
    return int.from_bytes(hashlib.blake2b(f"{salt}:{text}".encode(), digest_size=8).digest())


type _Stratum = tuple[bool, str]
"""Verdict and category."""


def _stratified(size: int, counts: dict[_Stratum, int], seed: int) -> dict[_Stratum, int]:
    """Share out a sample: in proportion to verdicts first, then to categories.

    Every verdict gets a row, and every category of it if there are enough: of 60 categories with
    few failures each, shares of all strata at once would be rows that passed only.
    """
    verdicts = {v: sum(n for key, n in counts.items() if key[0] == v) for v, _ in counts}
    found: dict[_Stratum, int] = {}
    for verdict, n in _shares(size, verdicts, seed).items():
        own = {key: count for key, count in counts.items() if key[0] == verdict}
        found |= _shares(n, own, seed)
    return {key: found[key] for key in counts}


def _shares[K](size: int, counts: dict[K, int], seed: int) -> dict[K, int]:
    """Split a number in proportion to counts, by the largest remainder method.

    If there is enough for all, each gets at least 1. Equal remainders are drawn by hash.
    """
    total = sum(counts.values())
    if size >= total:
        return dict(counts)
    exact = {key: size * count / total for key, count in counts.items()}
    least = 1 if size >= len(counts) else 0
    whole = {key: max(least, int(share)) for key, share in exact.items()}
    order = sorted(
        counts, key=lambda key: (whole[key] - exact[key], _hash(f"share:{seed}", str(key)))
    )
    for key in order[: max(0, size - sum(whole.values()))]:
        whole[key] += 1
    while sum(whole.values()) > size:  # those that got a first row take it from the largest
        whole[max(whole, key=lambda key: whole[key] - exact[key])] -= 1
    return whole


_SHOWN_STEPS = 5


def read_samples(rows: RowFile, spots: list[Spot]) -> list[CalibrationSample]:
    """Read the drawn failures."""
    decoder = msgspec.json.Decoder(SampleView)
    found = [rows.row_at(spot, decoder) for spot in spots]
    return [
        CalibrationSample(
            id=row.id,
            number=row.number or UNSET,
            input=row.input,
            output=row.output,
            hint=row.hint or UNSET,
            original_score=row.score,
            trajectory_snippet=snippet(row.trajectory),
        )
        for row in found
    ]


def sheet_lines(rows: RowFile, spots: list[Spot]) -> list[LabelRow]:
    """Return what a person needs to judge the drawn rows, without the grader's verdicts."""
    decoder = msgspec.json.Decoder(SampleView)
    found = [rows.row_at(spot, decoder) for spot in spots]
    return [
        LabelRow(
            id=row.id,
            number=row.number or UNSET,
            input=row.input,
            output=row.output,
            hint=row.hint,
            grader_version=grader_version(row.score, row.grades or {}),
        )
        for row in found
    ]


def rescored(sample: CalibrationSample, verdict: Verdict) -> CalibrationSample:
    """Add the verdict of a second grader."""
    broken = "; ".join(f"{name}: {why}" for name, why in verdict.broken.items())
    return msgspec.structs.replace(
        sample, rescored_result=verdict.score or UNSET, grader_failure=broken or UNSET
    )


def snippet(steps: list[AnyStep]) -> list[AnyStep]:
    """Return all of a short trajectory; of a long one the first two, the middle, the last two."""
    if len(steps) <= _SHOWN_STEPS:
        return steps
    return [*steps[:2], steps[len(steps) // 2], *steps[-2:]]
