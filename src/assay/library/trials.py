"""Trials of a file or of a run, and their grades."""

from collections.abc import Callable, Iterable, Iterator
from importlib import import_module
from itertools import islice
from os import PathLike, fspath
from pathlib import Path
from typing import Any, Literal

from assay.errors import InputError, PluginError
from assay.export.table import COLUMNS, table_row
from assay.library.verdict import html_table
from assay.records.rows import Place, read_lines
from assay.records.trial import Trial
from assay.records.trial.files import detect_kind, trials_in

type Lines = Iterable[tuple[Place, bytes]]
_FRAMES = ("pandas", "polars")
_SHOWN_ROWS = 20
_SHOWN_COLUMNS = ("id", "trial", "output", "pass", "score", "reasoning", "cause", "duration_ms")
_SHOWN_LETTERS = 100


class Trials:
    """Trials, one after the other. It may be iterated over again and again.

    Those of a file are read each time, and are never all in memory.
    """

    def __init__(self, lines: Lines | Callable[[], Lines], source: str) -> None:
        """Made by assay.read, assay.grade and Run.collect. lines are rows as files have them."""
        self._lines = lines
        self.source = source
        """What they are of, in words."""

    @property
    def lines(self) -> Lines:
        """The rows as they are in files, and where they stand."""
        return self._lines() if callable(self._lines) else self._lines

    def __iter__(self) -> Iterator[Trial]:
        for place, line in self.lines:
            yield from trials_in(line, place)

    def frame(self, library: Literal["pandas", "polars"] | None = None) -> Any:
        """Return a data frame with one row per trial and the columns of `assay export table`.

        By default it is one of pandas or, where that is not installed, of polars.
        """
        rows = [table_row(trial, self.source) for trial in self]
        columns = {name: [row[name] for row in rows] for name in COLUMNS}
        return _frame_class(library)(columns)

    def __repr__(self) -> str:
        return f"<Trials of {self.source}>"

    def _repr_html_(self) -> str:
        """Show the first trials as a table in a notebook."""
        rows = [table_row(trial, "") for trial in islice(self, _SHOWN_ROWS + 1)]
        cells = [[_cell(row[name]) for name in _SHOWN_COLUMNS] for row in rows[:_SHOWN_ROWS]]
        more = "<div>… and more</div>" if len(rows) > _SHOWN_ROWS else ""
        return html_table(_SHOWN_COLUMNS, cells) + more


def _cell(value: Any) -> str:
    text = "" if value is None else str(value)
    return text if len(text) <= _SHOWN_LETTERS else f"{text[:_SHOWN_LETTERS]}…"


def _frame_class(library: str | None) -> Any:
    for name in (library,) if library else _FRAMES:
        if name not in _FRAMES:
            msg = f"there is no data frame of {name!r}"
            raise PluginError(msg, hint='use frame("pandas") or frame("polars")')
        try:
            return import_module(name).DataFrame
        except ImportError:
            continue
    msg = f"a data frame needs {library or 'pandas or polars'}, which is not installed"
    raise PluginError(msg, hint=f"pip install {library or 'pandas'}")


def read(path: str | PathLike[str]) -> Trials:
    """Return the trials of a file that assay.run, `assay capture` or `assay trials` wrote.

    Raises:
        InputError: There is no such file, or it holds something else.
    """
    file = Path(fspath(path))
    if file.is_dir():
        msg = f"{file} is a folder"
        raise InputError(msg, hint="give a file that assay capture or assay trials wrote")
    detect_kind(file)
    return Trials(lambda: read_lines(file), str(file))
