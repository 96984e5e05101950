"""Compare the arms of an experiment, and write the report and its short form."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from assay.compare.columns import Floats
from assay.compare.names import Named
from assay.compare.pairs import align
from assay.compare.report import CompareOptions, load_runs
from assay.records.setup import ArmsProof
from assay.report.pull_request import MOST_REGRESSIONS, pull_request_markdown
from assay.stats.factorial import main_effects, two_level_design
from assay.stats.rates import rate_interval
from assay.stats.sequential import SequentialDecision
from assay.viewer.bundle import write_bundle
from assay.viewer.index import Index
from assay.viewer.overview import OpenRun, overview
from assay.viewer.regressions import worst_regressions

type OpenOutput = Callable[[Path], AbstractContextManager[BinaryIO]]


def judge_arms(  # noqa: PLR0913 - all that a report names
    named: Named,
    proof: ArmsProof,
    *,
    margin: float,
    seed: int,
    folder: Path,
    title: str,
    decisions: Mapping[str, SequentialDecision],
    open_output: OpenOutput,
) -> list[dict[str, Any]]:
    """Compare all arms, the control first; write report.html and verdict.md to the folder.

    Return the comparison of every two arms, as in the report. open_output makes a file.
    """
    chosen = CompareOptions(
        margin=margin, seed=seed, proof=proof, decisions=decisions, growing=bool(decisions)
    )
    shown = [OpenRun(label, Index(path, "category", keep=False)) for label, path in named]
    try:
        for run in shown:
            run.index.refresh()
        page = overview(title, shown, chosen)
        with open_output(folder / "report.html") as out:
            write_bundle(out, title, shown, chosen)
        with open_output(folder / "verdict.md") as out:
            worst = worst_regressions(page, shown, MOST_REGRESSIONS)
            out.write(pull_request_markdown(page, worst, title).encode())
    finally:
        for run in shown:
            run.index.close()
    return [pair for group in page["groups"] for pair in group["sections"]["pairs"]]


def effect_lines(named: Named, factors: Sequence[str], seed: int) -> list[str]:
    """Say what each treatment of an ablation does on its own, the largest effect first."""
    design = two_level_design(len(factors))
    effects = main_effects(factors, design, _rates(named), seed=seed)
    n_all = 2 ** len(factors)
    few = f" of {n_all}" if len(design) < n_all else ""
    lines = [f"Main effects on the pass rate, from {len(design)}{few} combinations:"]
    for effect in sorted(effects, key=lambda one: -abs(one.difference or 0.0)):
        if effect.difference is None or effect.interval is None:
            lines.append(f"  {effect.name}: not measured in all arms")
            continue
        ends = f"({effect.interval.low:+.2f} to {effect.interval.high:+.2f})"
        chance = "" if effect.adjusted_p is None else f", p {effect.adjusted_p:.3f} (Holm)"
        lines.append(f"  {effect.name}: {effect.difference:+.2f} {ends}{chance}")
    return lines


def rank_lines(named: Named) -> list[str]:
    """List the arms by pass rate, each with its interval."""
    rows = []
    for run in load_runs(named, "trials", "category", lambda label, path: None):
        rate, interval = rate_interval(run.n_passed, run.n_measured)
        ends = f" ({interval.low:.0%} to {interval.high:.0%})" if interval else ""
        said = "not measured" if rate is None else f"{rate:.0%}{ends}"
        known = run.cost_usd[~np.isnan(run.cost_usd)]
        cost = f", ${known.mean():.4f} a trial" if known.size else ""
        rows.append((-1.0 if rate is None else rate, f"{run.label}: {said}{cost}"))
    ordered = sorted(rows, key=lambda row: -row[0])
    return [f"  {place}. {words}" for place, (_, words) in enumerate(ordered, 1)]


def _rates(named: Named) -> Floats:
    """Pass rates: a row for each prompt that any arm has, a column for each arm."""
    aligned = align(load_runs(named, "trials", "category", lambda label, path: None))
    rates = np.full(aligned.where.shape, np.nan)
    for column, run in enumerate(aligned.runs):
        here = aligned.where[:, column]
        with np.errstate(invalid="ignore", divide="ignore"):
            own = run.n_passed / run.n_measured
        rates[here >= 0, column] = own[here[here >= 0]]
    return rates
