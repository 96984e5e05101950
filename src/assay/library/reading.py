"""Trials as a Python program reads them: what is unknown is None, or empty where there may be
several.

A trial that was read is a Trial of records, whose types say what may stand in its row. The types of
reading.pyi say what a program meets; a test compares the two.
"""

from collections.abc import Iterator

from assay.records.rows import Place, extra_fields
from assay.records.trial import Trial, TrialResult, for_reading
from assay.records.trial.files import is_trials_row, trials_in

__all__ = ["Trial", "trials_to_read"]


def trials_to_read(line: bytes, place: Place) -> Iterator[Trial]:
    """Yield the trials of a row."""
    extra = extra_fields(line, TrialResult if is_trials_row(line) else Trial)
    for trial in trials_in(line, place):
        yield for_reading(trial, extra)
