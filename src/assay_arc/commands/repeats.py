"""Games that are played several times: one row each in results.jsonl, as `assay trials` writes it.

compare, report, view and plan read such rows, and count the trials of a game as trials.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import msgspec

from assay.cli.output import open_sink
from assay.pipeline.batch import Rows
from assay.pipeline.resume import Resume
from assay.pipeline.trials import TrialRows
from assay.records.capture import Capture
from assay.records.spec import PluginRef, TrialSpec


@contextmanager
def open_rows(output: Path, k: int, graders: Sequence[PluginRef]) -> Iterator[Rows[Capture]]:
    """Open the output of a run: a capture for each game, or with k a row with k trials."""
    if k == 1:
        with open_sink(output, "resume") as sink:
            yield sink
        return
    resume = Resume(k=k, graders=graders)
    with (
        open_sink(output, "resume", kind="trials", resume=resume) as sink,
        TrialRows(sink, output, "resume", resume) as rows,
    ):
        yield _GameRows(rows)


class _GameRows:
    """Collects the trials of a game, each of which was planned under an id of its own."""

    def __init__(self, rows: TrialRows) -> None:
        self._rows = rows

    def missing(self, specs: list[TrialSpec]) -> list[TrialSpec]:
        trials = [(spec, _trial_of_game(spec)) for spec in specs]
        wanted = self._rows.missing([trial for _, trial in trials])
        numbers = {(trial.prompt.id, trial.number) for trial in wanted}
        return [spec for spec, one in trials if (one.prompt.id, one.number) in numbers]

    def add(self, spec: TrialSpec, captured: Capture) -> None:
        self._rows.add(_trial_of_game(spec), captured)


def _trial_of_game(spec: TrialSpec) -> TrialSpec:
    """The same trial under the id of its game; the folders it is played in are temporary."""
    metadata = {key: value for key, value in spec.prompt.metadata.items() if key != "trial"}
    prompt = msgspec.structs.replace(
        spec.prompt, id=str(spec.prompt.metadata["game"]), metadata=metadata
    )
    around = msgspec.structs.replace(spec.surroundings, workspace_dir=None)
    return msgspec.structs.replace(spec, prompt=prompt, surroundings=around)
