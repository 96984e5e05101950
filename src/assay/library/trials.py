"""Trials of a file or of a run, and their grades."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from html import escape
from importlib import import_module
from itertools import islice
from os import PathLike, fspath
from pathlib import Path
from typing import Any, Literal, overload

import msgspec
from msgspec import UNSET

from assay import stats
from assay.errors import InputError, OutputError, PluginError
from assay.export.table import COLUMNS, table_row
from assay.library.checks import check_values, is_path
from assay.library.reading import Trial, trials_to_read
from assay.library.wording import errors_in_python
from assay.records import trial as records
from assay.records.files import replaced_file
from assay.records.rows import Place, decode_row, encode_row, read_lines
from assay.records.text import shortened
from assay.records.trial import TrialResult, for_disk, to_entry
from assay.records.trial.files import detect_kind, is_trials_row, trials_in

type Lines = Iterable[tuple[Place, bytes]]
_FRAMES = ("pandas", "polars")
_SHOWN_ROWS = 20
_SHOWN_COLUMNS = ("id", "trial", "output", "pass", "score", "reasoning", "cause", "duration_ms")
_SHOWN_LETTERS = 100


class Trials:
    """Trials, one after the other. It may be iterated over again and again.

    Those of a file are read each time, and are never all in memory.
    """

    def __init__(
        self, lines: Lines | Callable[[], Lines], source: str, file: Path | None = None
    ) -> None:
        """Made by assay.read, assay.grade and Run.collect. lines are rows as files have them."""
        self._lines = lines
        self.source = source
        """What they are of, in words."""
        self.file = file
        """Where they are kept; None if nowhere. A comparison calls them by its name."""

    @property
    def lines(self) -> Lines:
        """The rows as they are in files, and where they stand."""
        return self._lines() if callable(self._lines) else self._lines

    def __iter__(self) -> Iterator[Trial]:
        for place, line in self.lines:
            yield from trials_to_read(line, place)

    def __len__(self) -> int:
        return sum(1 for place, line in self.lines for _ in trials_in(line, place))

    @overload
    def __getitem__(self, index: int) -> Trial: ...
    @overload
    def __getitem__(self, index: slice) -> list[Trial]: ...
    def __getitem__(self, index: int | slice) -> Trial | list[Trial]:
        return list(self)[index]

    def to(self, file: str | PathLike[str], *, overwrite: bool = False) -> "Trials":
        """Write the rows to a file that every command reads; return its trials."""
        check_values(file=file, overwrite=overwrite)
        path = Path(fspath(file))
        if path.exists() and not overwrite:
            msg = f"{path} exists already"
            raise OutputError(msg, hint="give another file, or overwrite=True")
        with replaced_file(path) as out:
            for line in _joined(self.lines):
                out.write(line.strip() + b"\n")
        return read(path)

    def frame(self, library: Literal["pandas", "polars"] | None = None) -> Any:
        """Return a data frame with one row per trial and the columns of `assay export table`.

        One more column, grader_failures, says why graders could not judge a trial.
        By default it is one of pandas or, where that is not installed, of polars.
        """
        trials = list(self)
        rows = [table_row(trial, self.source) for trial in trials]
        columns = {name: [row[name] for row in rows] for name in COLUMNS}
        columns["grader_failures"] = [
            "\n".join(f"{name}: {why}" for name, why in (trial.grader_failures or {}).items())
            or None
            for trial in trials
        ]
        return _frame_class(library)(columns)

    def __repr__(self) -> str:
        return f"<Trials of {self.source}>"

    def _repr_html_(self) -> str:
        """Show the first trials as a table in a notebook."""
        rows = [table_row(trial, "") for trial in islice(self, _SHOWN_ROWS + 1)]
        cells = [[_cell(row[name]) for name in _SHOWN_COLUMNS] for row in rows[:_SHOWN_ROWS]]
        more = "<div>… and more</div>" if len(rows) > _SHOWN_ROWS else ""
        return html_table(_SHOWN_COLUMNS, cells) + more


def rows_of(trials: Iterable[Trial]) -> list[bytes]:
    """Return a row for each of these trials, as a file has it."""
    return [_row_of(for_disk(trial)) for trial in trials]


def _row_of(trial: records.Trial) -> bytes:
    if trial.entry_number is UNSET:
        return msgspec.json.encode(trial.to_row())  # with its unknown fields
    row = TrialResult(
        id=trial.id,
        input=trial.input,
        hint=trial.hint,
        k=1,
        trials=[to_entry(trial)],
        metadata=trial.metadata,
        spec_hash=trial.spec_hash,
        identity=trial.identity,
    )
    return encode_row(row, trial.extra)


def _joined(lines: Lines) -> Iterator[bytes]:
    """Yield the rows; trials of one prompt that come one by one are put into one row."""
    found: dict[str, tuple[bytes, TrialResult, dict[str, Any]]] = {}
    for place, line in lines:
        if not is_trials_row(line):
            yield line
            continue
        row, extra = decode_row(place, line, TrialResult)
        _, first, _ = found.setdefault(row.id, (line, row, extra))
        if first is not row:
            first.trials += row.trials
    for line, row, extra in found.values():
        if row.k == len(row.trials):
            yield line
        else:
            _count(row)
            yield encode_row(row, extra)


def _count(row: TrialResult) -> None:
    row.trials.sort(key=lambda entry: entry.number)
    row.k = len(row.trials)
    causes = Counter(str(entry.failure.cause) for entry in row.trials if entry.failure)
    row.failures = dict(causes) or UNSET
    for name, value in stats.passk.pass_numbers(entry.pass_ for entry in row.trials).items():
        setattr(row, name, value)


def html_table(header: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """Return a table; the text of its cells is escaped."""
    head = "".join(f"<th>{escape(cell)}</th>" for cell in header)
    body = "".join(f"<tr>{''.join(f'<td>{escape(c)}</td>' for c in row)}</tr>" for row in rows)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def _cell(value: Any) -> str:
    return "" if value is None else shortened(str(value), _SHOWN_LETTERS)


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


@errors_in_python()
def read(path: str | PathLike[str]) -> Trials:
    """Return the trials of a file that assay.run, `assay capture` or `assay trials` wrote.

    Raises:
        InputError: There is no such file, or it holds something else.
    """
    if is_path(path) and Path(path).is_dir():
        msg = f"{path} is a folder"
        raise InputError(msg, hint="give a file that assay.run, assay capture or trials wrote")
    check_values(file=path)
    file = Path(fspath(path))
    detect_kind(file)
    return Trials(partial(read_lines, file), str(file), file)
