"""One flat row for each trial, as Parquet, CSV or JSONL."""

import csv
import io
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO

import msgspec
from msgspec import UNSET

from assay.errors import OutOfResources, PluginError
from assay.records.capture import USAGE_NUMBERS, Thought, ToolCall, Usage
from assay.records.files import copy_stream, named_temporary_file, temporary_folder
from assay.records.forked import compute_in_child_process
from assay.records.trial import Trial

COLUMNS = {
    "file": "VARCHAR",
    "id": "VARCHAR",
    "trial": "INTEGER",
    "input": "VARCHAR",
    "output": "VARCHAR",
    "hint": "VARCHAR",
    "pass": "BOOLEAN",
    "score": "DOUBLE",
    "reasoning": "VARCHAR",
    "measured": "BOOLEAN",
    "cause": "VARCHAR",
    "message": "VARCHAR",
    "duration_ms": "DOUBLE",
    "first_response_ms": "DOUBLE",
    "turns": "INTEGER",
    "steps": "INTEGER",
    "thoughts": "INTEGER",
    "tool_calls": "INTEGER",
    "tool_names": "VARCHAR",
    "tool_errors": "BOOLEAN",
    "input_tokens": "BIGINT",
    "output_tokens": "BIGINT",
    "cache_read_tokens": "BIGINT",
    "cache_write_tokens": "BIGINT",
    "reasoning_tokens": "BIGINT",
    "cost_usd": "DOUBLE",
    "cost_source": "VARCHAR",
    "adapter": "VARCHAR",
    "agent_version": "VARCHAR",
    "model": "VARCHAR",
    "category": "VARCHAR",
    "metadata": "VARCHAR",
    "grades": "VARCHAR",
}
"""Columns in their order, with their types in SQL. metadata and grades are JSON."""
SUFFIXES = (".parquet", ".csv", ".jsonl")
type TableRow = dict[str, Any]


def table_row(trial: Trial, file: str) -> TableRow:
    """Return one trial as a flat row; None is unknown."""
    calls = [step.name for step in trial.steps if isinstance(step, ToolCall)]
    agent, failure = trial.agent, trial.failure
    category = trial.metadata.get("category")
    used = trial.usage or Usage()
    usage = {name: _known(getattr(used, name)) for name in USAGE_NUMBERS}
    return {
        "file": file,
        "id": trial.id,
        "trial": trial.number,
        "input": "\n".join(trial.turns),
        "output": trial.output,
        "hint": _known(trial.hint),
        "pass": trial.verdict,
        "score": trial.score,
        "reasoning": trial.reasoning,
        "measured": trial.is_measured,
        "cause": str(failure.cause) if failure else None,
        "message": failure.message if failure else None,
        "duration_ms": trial.duration_ms,
        "first_response_ms": trial.first_response_ms,
        "turns": len(trial.turns),
        "steps": len(trial.steps),
        "thoughts": sum(isinstance(step, Thought) for step in trial.steps),
        "tool_calls": len(calls),
        "tool_names": ",".join(dict.fromkeys(calls)),
        "tool_errors": trial.tool_errors,
        **usage,
        "cost_source": _known(used.cost_source),
        "adapter": agent.adapter if agent else None,
        "agent_version": _known(agent.version) if agent else None,
        "model": _known(agent.model) if agent else None,
        "category": category if isinstance(category, str) else None,
        "metadata": msgspec.json.encode(trial.metadata).decode(),
        "grades": msgspec.json.encode(trial.grades or {}).decode(),
    }


def encode_row(row: TableRow, suffix: str) -> bytes:
    """Return a row as a line of CSV or, for the other formats, of JSON."""
    if suffix != ".csv":
        return msgspec.json.encode({name: row[name] for name in COLUMNS}) + b"\n"
    text = io.StringIO(newline="")
    csv.writer(text).writerow([csv_cell(row[name]) for name in COLUMNS])
    return text.getvalue().encode()


def write_table(lines: Iterable[bytes], out: BinaryIO, suffix: str) -> None:
    """Write encoded rows in the format of a suffix."""
    if suffix == ".parquet":
        _write_parquet(lines, out)
        return
    if suffix == ".csv":
        out.write(f"{','.join(COLUMNS)}\r\n".encode())
    out.writelines(lines)


def check_parquet() -> None:
    """Refuse to start without what writes Parquet."""
    duckdb_module("Parquet", "; or write .csv or .jsonl")


def csv_cell(value: Any) -> Any:
    """Return a value as it is written to CSV: true and false as in JSON."""
    return str(value).lower() if isinstance(value, bool) else value


def _write_parquet(rows: Iterable[bytes], out: BinaryIO) -> None:
    """Let DuckDB convert a file of JSON lines: rows are never all in memory."""
    with named_temporary_file() as lines, temporary_folder("assay-table-") as folder:
        lines.writelines(rows)
        lines.flush()
        target = Path(folder, "table.parquet")
        compute_in_child_process(partial(_convert, lines.name, target), "DuckDB")
        with target.open("rb") as made:
            copy_stream(made, out)


def _convert(source: str, target: Path) -> None:
    columns = ", ".join(f"'{name}': '{kind}'" for name, kind in COLUMNS.items())
    duckdb = duckdb_module()
    with explained_memory(duckdb), duckdb.connect() as database:
        database.execute(
            f"COPY (SELECT * FROM read_json($source, columns = {{{columns}}}, "
            "format = 'newline_delimited', maximum_object_size = 1073741824)) "
            f"TO '{str(target).replace("'", "''")}' (FORMAT parquet, COMPRESSION zstd)",
            {"source": source},
        )


@contextmanager
def explained_memory(duckdb: Any) -> Iterator[None]:
    """Say what to do when DuckDB has too little memory."""
    try:
        yield
    except (MemoryError, duckdb.OutOfMemoryException) as error:
        msg = f"memory ran out: {str(error).partition('\n')[0]}"
        raise OutOfResources(msg, hint="ask for less at once, or free some memory") from error


def duckdb_module(purpose: str = "SQL", instead: str = "") -> Any:
    """Return DuckDB, which is an extra; say how to install it where it is missing."""
    try:
        import duckdb  # late: slow to load
    except ImportError as error:
        if not isinstance(error, ModuleNotFoundError):  # it is there
            msg = f"{purpose} needs DuckDB, which cannot be loaded: {error}"
            hint = "perhaps memory ran out: free some, or raise the limit of `ulimit -v`"
            raise OutOfResources(msg, hint=hint) from error
        msg = f"{purpose} needs {error.name}"
        hint = f"in a checkout of Assay: pip install '.[query]'{instead}"
        raise PluginError(msg, hint=hint) from error
    return duckdb


def _known(value: Any) -> Any:
    return None if value is UNSET else value
