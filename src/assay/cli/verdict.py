"""Compare the arms of an experiment, and write the report and its short form."""

from pathlib import Path
from typing import Any, NamedTuple

from assay.cli.output import whole_output
from assay.cli.runs import Named
from assay.compare.report import CompareOptions
from assay.records.setup import ArmsProof
from assay.report.comparison import short_markdown
from assay.viewer.bundle import write_bundle
from assay.viewer.index import Index
from assay.viewer.overview import OpenRun, overview


class Judged(NamedTuple):
    """What the comparison of the arms found."""

    pairs: list[dict[str, Any]]
    """As in the report."""


def judge_arms(
    named: Named, proof: ArmsProof, *, margin: float, seed: int, folder: Path, title: str
) -> Judged:
    """Compare all arms, the control first; write report.html and verdict.md to the folder."""
    chosen = CompareOptions(margin=margin, seed=seed, proof=proof)
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
    pairs = [pair for group in page["groups"] for pair in group["sections"]["pairs"]]
    return Judged(pairs)
