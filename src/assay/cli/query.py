"""assay query: SQL over result files."""

import csv
import io
import os
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any, BinaryIO

import click
import msgspec

from assay.cli.help import examples
from assay.cli.output import derived_output, refuse_measured, refuse_same_file
from assay.cli.parameters import debug_option, help_option, output_option, replace_option
from assay.cli.runs import name_runs, pipes_as_files
from assay.errors import UsageError
from assay.export.query import Database, RowTooLong, use_database
from assay.export.table import csv_cell
from assay.records.files import copy_stream
from assay.records.text import shortened, visible_line
from assay.records.trial.files import detect_kind

_ROWS_AT_ONCE = 500
_WIDEST_CELL = 60
_SUFFIXES = {".csv": "csv", ".json": "jsonl", ".jsonl": "jsonl", ".parquet": "parquet"}


class _Options(msgspec.Struct, frozen=True, kw_only=True):
    sql: str
    files: tuple[str, ...]
    style: str | None
    output: Path | None
    overwrite: bool
    debug: bool


@click.command(
    short_help="Ask questions of result files in SQL.",
    epilog=examples(
        'assay query "SELECT id, pass, cost_usd FROM trials ORDER BY cost_usd DESC" results.jsonl',
        'assay query "SELECT tool, count(*) AS n FROM tools GROUP BY tool" results.jsonl -f csv',
        'assay query "DESCRIBE steps" results.jsonl',
    ),
)
@click.argument("sql")
@click.argument("files", nargs=-1)
@output_option
@replace_option
@click.option(
    "-f",
    "--format",
    "style",
    type=click.Choice(["table", "csv", "jsonl", "parquet"]),
    help="How the rows are written; parquet needs -o. Default: by the suffix of the output "
    "(.csv, .json, .jsonl, .parquet), otherwise a table.",
)
@debug_option
@help_option
def command(**given: Any) -> None:
    """Run SQL over FILES, results of `assay capture`, `grade` or `trials` (- is stdin).

    \b
      trials  one row per trial: prompt, answer, verdict, cause, cost, tokens, model
      steps   one row per step of a trajectory: thoughts, messages, tool calls, plans
      tools   the tool calls among them: tool, input, output, exit code, duration
      grades  one row per grader and trial

    The files are read as they are; nothing is imported. The dialect is that of DuckDB: input in
    steps and tools is JSON, so that input->>'$.command' is its field command. A table shows the
    first 60 characters of a cell; the other formats have all of it.
    """
    options = _Options(**given)
    sql = options.sql
    if Path(sql).suffix == ".jsonl" or os.access(sql, os.F_OK):
        msg = 'The SQL comes first: assay query "SELECT * FROM trials" FILE'
        raise UsageError(msg)
    if not options.files:
        msg = "No files given. Name one or more result files, or - for stdin."
        raise UsageError(msg)
    style = _style(options)
    named = name_runs(options.files, ())
    for _, path in named:
        refuse_same_file(path, options.output)
    refuse_measured(options.output, overwrite=options.overwrite)
    with pipes_as_files(named) as paths:
        for _, path in paths:
            detect_kind(path)  # refuses what is empty, missing or no result file at all
        with derived_output(options.output, overwrite=options.overwrite) as out:
            use_database(paths, lambda database: _write(database, options.sql, style, out))


def _style(options: _Options) -> str:
    suffix = options.output.suffix.lower() if options.output else ""
    by_suffix = _SUFFIXES.get(suffix)
    style = options.style or by_suffix or "table"
    if style == "parquet" and (options.output is None or str(options.output) == "-"):
        msg = "-f parquet needs -o FILE: Parquet cannot be written to a terminal or a pipe."
        raise UsageError(msg)
    if by_suffix is not None and style != by_suffix:
        msg = f"-f {style} and -o {options.output} contradict each other: leave out -f, or rename."
        raise UsageError(msg)
    return style


def _write(database: Database, sql: str, style: str, out: BinaryIO) -> None:
    while True:
        try:
            _write_once(database, sql, style, out)
        except RowTooLong:
            database.expect_longer_rows()
            out.seek(0)
            out.truncate()
        else:
            out.flush()
            return


def _write_once(database: Database, sql: str, style: str, out: BinaryIO) -> None:
    if style == "parquet":
        database.write_parquet(sql, lambda made: _copy(made, out))
        return
    result = database.run(sql)
    rows = _rows(database)
    if style == "jsonl":
        names = _distinct(result.names)
        _write_jsonl(names, [kind == "JSON" for kind in result.types], rows, out)
    elif style == "csv":
        text = io.TextIOWrapper(out, encoding="utf-8", newline="", write_through=True)
        try:
            writer = csv.writer(text)
            writer.writerow(result.names)
            writer.writerows([csv_cell(value) for value in row] for row in rows)
        finally:
            text.detach()  # else it would close the output
    else:
        _write_table(result.names, rows, out)


def _copy(made: Path, out: BinaryIO) -> None:
    with made.open("rb") as file:
        copy_stream(file, out)


def _rows(database: Database) -> Iterator[tuple[Any, ...]]:
    while rows := database.fetch(_ROWS_AT_ONCE):
        yield from rows


def _distinct(names: list[str]) -> list[str]:
    """Number equal names, as DuckDB does for Parquet: an object has each name once."""
    taken: dict[str, None] = {}
    for name in names:
        numbered = (f"{name}_{n}" for n in count(1) if f"{name}_{n}" not in {*taken, *names})
        taken[name if name not in taken else next(numbered)] = None
    return list(taken)


def _write_jsonl(
    names: list[str], are_json: list[bool], rows: Iterator[tuple[Any, ...]], out: BinaryIO
) -> None:
    for row in rows:
        cells = {
            name: msgspec.Raw(value.encode()) if is_json and value is not None else value
            for name, is_json, value in zip(names, are_json, row, strict=True)
        }
        out.write(msgspec.json.encode(cells) + b"\n")


def _write_table(names: list[str], rows: Iterator[tuple[Any, ...]], out: BinaryIO) -> None:
    """Write columns as wide as the first rows need; all rows are written."""
    first = [_cells(row) for _, row in zip(range(_ROWS_AT_ONCE), rows, strict=False)]
    heads = [visible_line(name) for name in names]
    widths = [max(map(len, column)) for column in zip(heads, *first, strict=True)]

    def line(cells: list[str]) -> bytes:
        padded = (cell.ljust(width) for cell, width in zip(cells, widths, strict=True))
        return "  ".join(padded).rstrip().encode("utf-8", "replace") + b"\n"

    out.write(line(heads) + line(["-" * width for width in widths]))
    out.writelines(map(line, first))
    out.writelines(line(_cells(row)) for row in rows)


def _cells(row: tuple[Any, ...]) -> list[str]:
    texts = ("" if value is None else str(csv_cell(value)) for value in row)
    return [shortened(visible_line(text), _WIDEST_CELL) for text in texts]
