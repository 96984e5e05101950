"""Trials as a Python program reads them: what is unknown is None, or empty where there may be
several.

A trial that was read is a Trial of records, whose types say what may stand in its row. The types of
reading.pyi say what a program meets; a test compares the two.
"""

from collections.abc import Iterator

from assay.records.rows import Place
from assay.records.trial import Trial, for_reading
from assay.records.trial.files import trials_in

__all__ = ["Trial", "trials_to_read"]


def trials_to_read(line: bytes, place: Place) -> Iterator[Trial]:
    """Yield the trials of a row."""
    return map(for_reading, trials_in(line, place))
