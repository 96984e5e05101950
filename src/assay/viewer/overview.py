"""What the first page says: comparison, health and pictures of the runs that are looked at."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from assay import __version__
from assay.compare.columns import Run
from assay.compare.load import load_run
from assay.compare.report import Wish, compare
from assay.viewer.charts import charts
from assay.viewer.index import Index
from assay.viewer.prompts import Prompts
from assay.viewer.whole_rows import read_whole


@dataclass(frozen=True)
class Shown:
    """A run that is looked at."""

    label: str
    index: Index

    @property
    def path(self) -> Path:
        """Give the file."""
        return self.index.path


def overview(
    title: str, shown: Sequence[Shown], wish: Wish, by: str = "category"
) -> dict[str, Any]:
    """Describe the runs; captures and trials cannot be compared, so each kind stands for itself."""
    categories = {name for run in shown for name in run.index.meta.categories}
    causes = {name for run in shown for name in run.index.meta.causes if name}
    return {
        "title": title,
        "made": f"Made by assay {__version__}.",
        "runs": [_about(run) for run in shown],
        "categories": sorted(categories),
        "causes": sorted(causes),
        "groups": [
            _group([run for run in shown if run.index.kind == kind and run.index.meta.n], wish, by)
            for kind in ("capture", "trials")
            if any(run.index.kind == kind and run.index.meta.n for run in shown)
        ],
    }


def _about(run: Shown) -> dict[str, Any]:
    meta = run.index.meta
    return {
        "label": run.label,
        "kind": run.index.kind,
        "file": run.path.name,
        "trials": meta.n,
        "size": meta.size,
        "nBad": meta.n_bad,
        "bad": meta.bad,
    }


def _group(shown: list[Shown], wish: Wish, by: str) -> dict[str, Any]:
    runs = [_load(run, by) for run in shown]
    comparison = compare(runs, wish)
    indexes = [run.index for run in shown]
    labels = [run.label for run in shown]
    return {
        "kind": shown[0].index.kind,
        "sections": comparison.sections,
        "charts": charts(labels, indexes, Prompts(indexes)),
    }


def _load(run: Shown, by: str) -> Run:
    """Read the columns of a run; lines that nobody can read are left out, and counted elsewhere."""
    loaded = read_whole(run.index, lambda path: load_run(run.label, path, run.index.kind, by))
    loaded.path = run.path
    return loaded
