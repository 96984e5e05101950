"""Compare the arms of an experiment, and write the report and its short form."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from assay.cli.output import whole_output
from assay.cli.runs import Named
from assay.compare.report import CompareOptions
from assay.records.setup import ArmsProof
from assay.report.comparison import short_markdown
from assay.stats.sequential import SequentialDecision
from assay.viewer.bundle import write_bundle
from assay.viewer.index import Index
from assay.viewer.overview import OpenRun, overview


def judge_arms(
    named: Named,
    proof: ArmsProof,
    *,
    margin: float,
    seed: int,
    folder: Path,
    title: str,
    decisions: Mapping[str, SequentialDecision],
) -> list[dict[str, Any]]:
    """Compare all arms, the control first; write report.html and verdict.md to the folder.

    Return the comparison of every two arms, as in the report.
    """
    chosen = CompareOptions(
        margin=margin, seed=seed, proof=proof, decisions=decisions, growing=bool(decisions)
    )
    shown = [OpenRun(label, Index(path, "category", keep=False)) for label, path in named]
    try:
        for run in shown:
            run.index.refresh()
        page = overview(title, shown, chosen)
        with whole_output(folder / "report.html", overwrite=True) as out:
            write_bundle(out, title, shown, chosen)
        with whole_output(folder / "verdict.md", overwrite=True) as out:
            out.write(short_markdown(page, heading=title).encode())
    finally:
        for run in shown:
            run.index.close()
    return [pair for group in page["groups"] for pair in group["sections"]["pairs"]]
