"""Result files as tables of SQL: DuckDB reads the lines themselves, nothing is imported first."""

import os
import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import msgspec

from assay.errors import AssayError, InputError, UsageError
from assay.export.table import COLUMNS, duckdb_module, explained_memory
from assay.records.files import copy_stream, remove_abandoned_folders, temporary_folder
from assay.records.forked import compute_in_child_process
from assay.records.memory import free_memory
from assay.records.rows import BOM, open_rows, read_lines
from assay.records.trial import NUMBER
from assay.records.trial.files import HINT, trials_of

_STEP = {
    "type": "VARCHAR",
    "content": "VARCHAR",
    "name": "VARCHAR",
    "status": "VARCHAR",
    "timestamp": "DOUBLE",
    "input": "JSON",
    "output": "JSON",
    "duration": "DOUBLE",
    "exitCode": "BIGINT",
    "error": "VARCHAR",
    "callId": "VARCHAR",
    "turn": "BIGINT",
    "parent": "VARCHAR",
}
_USAGE = {
    "inputTokens": "BIGINT",
    "outputTokens": "BIGINT",
    "cacheReadTokens": "BIGINT",
    "cacheWriteTokens": "BIGINT",
    "reasoningTokens": "BIGINT",
    "costUsd": "DOUBLE",
    "costSource": "VARCHAR",
}


def _struct(fields: dict[str, str]) -> str:
    return f"STRUCT({', '.join(f'"{name}" {kind}' for name, kind in fields.items())})"


_ATTEMPT = {
    "output": "VARCHAR",
    "trajectory": f"{_struct(_STEP)}[]",
    "toolErrors": "BOOLEAN",
    "grades": "JSON",
    "usage": _struct(_USAGE),
    "failure": _struct({"cause": "VARCHAR", "message": "VARCHAR", "answered": "BOOLEAN"}),
    "agent": _struct({"adapter": "VARCHAR", "version": "VARCHAR", "model": "VARCHAR"}),
}
"""What a capture and an entry of trials have in common."""
_ENTRY = {
    **_ATTEMPT,
    NUMBER: "BIGINT",
    "duration": "DOUBLE",
    "firstResponse": "DOUBLE",
    "pass": "BOOLEAN",
    "score": "DOUBLE",
    "reasoning": "VARCHAR",
}
_PROMPT = {"id": "VARCHAR", "input": "JSON", "hint": "VARCHAR", "metadata": "JSON"}
_ROW = {
    **_PROMPT,
    **_ATTEMPT,
    "timing": _struct({"total": "DOUBLE", "firstResponse": "DOUBLE"}),
    "score": _struct({"pass": "BOOLEAN", "score": "DOUBLE", "reasoning": "VARCHAR"}),
    "trials": f"{_struct(_ENTRY)}[]",
}
"""A row of captures or of trials: a file may have both."""
_IN_EITHER = {
    "number": ("1::BIGINT", f'"{NUMBER}"'),
    "passed": ("score.pass", "pass"),
    "mark": ("score.score", "score"),
    "reasoning": ("score.reasoning", "reasoning"),
    "duration": ("timing.total", "duration"),
    "first": ('timing."firstResponse"', '"firstResponse"'),
    **{name: (f'"{name}"', f'"{name}"') for name in _ATTEMPT},
}
"""Where a capture has it, and where an entry of trials has it."""
_CELLS = {
    "trial": "number::INTEGER",
    "input": "CASE json_type(input) WHEN 'ARRAY' "
    "THEN array_to_string(from_json(input, '[\"VARCHAR\"]'), chr(10)) ELSE input->>'$' END",
    "pass": "passed",
    "score": "mark",
    # As Judged.passed in records/trial.
    "measured": "passed IS NOT NULL OR ({by_agent} AND NOT coalesce(failure.answered, false))",
    "cause": "failure.cause",
    "message": "failure.message",
    "duration_ms": "coalesce(duration, 0)",
    "first_response_ms": "first",
    "turns": "CASE json_type(input) WHEN 'ARRAY' THEN json_array_length(input) ELSE 1 END::INTEGER",
    "steps": "coalesce(len(trajectory), 0)::INTEGER",
    "thoughts": "len(list_filter(coalesce(trajectory, []), lambda s: s.type = 'thought'))::INTEGER",
    "tool_calls": "len({calls})::INTEGER",
    "tool_names": "array_to_string(list_transform(list_filter({calls}, lambda s, i: "
    "list_position(list_transform({calls}, lambda c: c.name), s.name) = i), lambda s: s.name), "
    "',')",
    "tool_errors": 'coalesce("toolErrors", false)',
    "input_tokens": 'usage."inputTokens"',
    "output_tokens": 'usage."outputTokens"',
    "cache_read_tokens": 'usage."cacheReadTokens"',
    "cache_write_tokens": 'usage."cacheWriteTokens"',
    "reasoning_tokens": 'usage."reasoningTokens"',
    "cost_usd": 'usage."costUsd"',
    "cost_source": 'usage."costSource"',
    "adapter": "agent.adapter",
    "agent_version": "agent.version",
    "model": "agent.model",
    "category": "metadata->>'$.category'",
    "metadata": "coalesce(metadata, '{}')::VARCHAR",
    "grades": "coalesce(grades, '{}')::VARCHAR",
}
"""How a column of the table of trials is made; the others are called as in the rows."""
_IS_CAPTURE = "(trials IS NULL OR coalesce(output, '') <> '')"
"""As RowForm.is_trials in records/trial."""
_BY_AGENT = "coalesce(failure.cause LIKE 'agent\\_%' ESCAPE '\\', false)"
_CALLS = "list_filter(coalesce(trajectory, []), lambda s: s.type = 'tool_call')"
_STEPS = """
SELECT file, id, trial, step, s.type AS type, s.turn AS turn, s.timestamp AS timestamp_ms,
  s.content AS content, s.name AS tool, s.status AS status, s."exitCode" AS exit_code,
  s.duration AS duration_ms, s.input AS input, s.output->>'$' AS output, s.error AS error,
  s."callId" AS call_id, s.parent AS parent
FROM (SELECT file, id, number::INTEGER AS trial, unnest(trajectory) AS s,
      generate_subscripts(trajectory, 1)::INTEGER AS step FROM {attempts})"""
_TOOLS = """
SELECT file, id, trial, step, turn, timestamp_ms, tool, status, exit_code, duration_ms, input,
  output, error, call_id, parent
FROM steps WHERE type = 'tool_call'"""
_GRADES = """
SELECT file, id, trial, grader, try_cast(grade->>'$.pass' AS BOOLEAN) AS pass,
  try_cast(grade->>'$.score' AS DOUBLE) AS score, grade->>'$.reasoning' AS reasoning,
  grade->>'$.version' AS version
FROM (SELECT file, id, trial, given.key AS grader, given.value AS grade
      FROM (SELECT file, id, number::INTEGER AS trial,
            unnest(map_entries(from_json(grades, '"MAP(VARCHAR, JSON)"'))) AS given
            FROM {attempts}))"""
_LARGEST = (16 << 20, 128 << 20, 1 << 30)
"""Bytes of a row, at most. DuckDB reserves twice as much for each thread, so we begin small."""
_MOST_MEMORY = 1 << 30
"""What is beyond is kept on disk while the query runs."""
_LEAST_MEMORY = 64 << 20
_OF_A_THREAD = 512 << 20
"""With less memory for each of them, threads are left out: each reserves much, and uses little."""
_LOCKED = (
    "autoinstall_known_extensions = false",
    "autoload_known_extensions = false",
    "allow_community_extensions = false",
    "enable_external_access = false",
    "lock_configuration = true",
)
"""Nothing is fetched, and no file is read or written but those that were allowed before."""
_QUERIES = "SELECT, FROM, WITH, VALUES, PIVOT, DESCRIBE, SUMMARIZE or SHOW"
_TABLES = "the tables are trials, steps, tools and grades; DESCRIBE trials lists columns"
_NAMED_ONLY = "a query reads the files on the command line and no others, and writes with -o only"


class QueryFailed(AssayError):
    """The query itself is wrong, or cannot be carried out."""


class RowTooLong(AssayError):
    """A row is longer than DuckDB was told to expect: expect_longer_rows, and begin again."""


class Result(msgspec.Struct, frozen=True):
    """What a query returns: its columns. The database has the rows."""

    names: list[str]
    types: list[str]


class _Source(msgspec.Struct, frozen=True):
    label: str
    path: Path
    readable: Path
    """The same under a name in which DuckDB finds no pattern, without a byte order mark."""


def use_database(files: Sequence[tuple[str, Path]], use: Callable[["Database"], None]) -> None:
    """Open a database in memory over files, label and path, and use it.

    That is done in a copy of this process: DuckDB may abort when memory runs out, and cannot be
    interrupted everywhere. So what use writes must be a file, flushed in the end.
    """
    remove_abandoned_folders()
    with temporary_folder("assay-query-") as folder:
        compute_in_child_process(partial(_with_database, files, Path(folder), use), "DuckDB")


def _with_database(
    files: Sequence[tuple[str, Path]], folder: Path, use: Callable[["Database"], None]
) -> None:
    sources = [
        _Source(label, path, _readable(path, Path(folder, f"{n}.jsonl")))
        for n, (label, path) in enumerate(files)
    ]
    use(Database(duckdb_module(), sources, folder))


class Database:
    """The views trials, steps, tools and grades."""

    def __init__(self, duckdb: Any, sources: Sequence[_Source], folder: Path) -> None:
        self._duckdb = duckdb
        self._sources = sources
        self._scratch = folder / "scratch"
        self._scratch.mkdir()
        self._largest = _LARGEST[0]
        free = free_memory()
        limit = max(_LEAST_MEMORY, min(_MOST_MEMORY, free // 3))
        threads = max(1, min(free // _OF_A_THREAD, os.cpu_count() or 1))
        fitting = {"memory_limit": f"{limit >> 20}MiB", "threads": str(threads)}
        self._connection = self._explaining(partial(duckdb.connect, config=fitting))
        paths = ", ".join(_quoted(str(source.readable)) for source in sources)
        for setting in (
            f"temp_directory = {_quoted(str(folder / 'spilled'))}",
            f"allowed_paths = [{paths}]",
            f"allowed_directories = [{_quoted(str(self._scratch))}]",
            *_LOCKED,
        ):
            self._connection.execute(f"SET {setting}")

    def expect_longer_rows(self) -> None:
        self._largest = _LARGEST[_LARGEST.index(self._largest) + 1]

    def run(self, sql: str) -> Result:
        """Start a query."""
        statement = self._statement(sql)
        return self._explaining(lambda: self._start(statement))  # type: ignore[no-any-return]

    def write_parquet(self, sql: str, use: Callable[[Path], None]) -> None:
        """Write what a query returns to a temporary file, to be used."""
        statement, target = self._statement(sql), self._scratch / "rows.parquet"

        def write() -> None:
            self._make_views()
            self._connection.sql(statement).write_parquet(str(target), compression="zstd")

        self._explaining(write)
        use(target)

    def fetch(self, n: int) -> list[tuple[Any, ...]]:
        """Return the next rows, n at most."""
        rows: list[tuple[Any, ...]] = self._explaining(lambda: self._connection.fetchmany(n))
        return rows

    def _statement(self, sql: str) -> Any:
        """Return the only statement, which must be a query: nothing else is of use here."""
        statements = self._explaining(lambda: self._parsed(sql))
        if len(statements) != 1:
            msg = f"The SQL must be one statement; this has {len(statements) or 'none'}."
            raise UsageError(msg, hint='for example: "SELECT * FROM trials"')
        kind = self._duckdb.StatementType
        # Any statement with PIVOT inside is a MULTI, even one that writes.
        pivots = re.match(r"\s*(PIVOT|SELECT|FROM|WITH)\b", sql, re.IGNORECASE)
        allowed = (kind.SELECT, kind.MULTI) if pivots else (kind.SELECT,)
        if statements[0].type not in allowed:
            msg = f"The SQL must be a query: {_QUERIES}."
            raise UsageError(msg, hint=_NAMED_ONLY)
        return statements[0]

    def _parsed(self, sql: str) -> list[Any]:
        """Return the statements; a single one without its semicolon, which no subquery may have."""
        parse = self._connection.extract_statements
        statements: list[Any] = parse(sql)
        for end in (found.start() for found in re.finditer(";", sql)):
            with suppress(self._duckdb.Error):
                if len(statements) == 1 and len(parse(sql[:end])) == 1 and not parse(sql[end:]):
                    return parse(sql[:end])  # type: ignore[no-any-return]
        return statements

    def _start(self, statement: Any) -> Result:
        self._make_views()
        relation = self._connection.sql(statement)
        names, types = list(relation.columns), [str(kind) for kind in relation.types]
        if any("WITH TIME ZONE" in kind for kind in types):
            # Python would need another package for such values; as text they are complete.
            cells = (
                f"#{n}{'::VARCHAR' if 'WITH TIME ZONE' in kind else ''} AS c{n}"
                for n, kind in enumerate(types, 1)
            )
            relation.project(", ".join(cells)).create_view("assay_rows", replace=True)
            self._connection.execute("SELECT * FROM assay_rows")
        else:
            self._connection.execute(statement)
        return Result(names, types)

    def _make_views(self) -> None:
        columns = _columns()
        parts = [_attempts(source, columns, self._largest) for source in self._sources]
        attempts = f"({' UNION ALL '.join(parts)})"
        views = {"trials": _trials_view(), "steps": _STEPS, "tools": _TOOLS, "grades": _GRADES}
        for name, sql in views.items():
            whole = sql.replace("{attempts}", attempts)
            self._connection.execute(f"CREATE OR REPLACE TEMP VIEW {name} AS {whole}")

    def _explaining(self, work: Callable[[], Any]) -> Any:
        try:
            with explained_memory(self._duckdb):
                return work()
        except self._duckdb.Error as error:
            raise self._explained(error) from error

    def _explained(self, error: Exception) -> AssayError:
        said = str(error)
        if "maximum_object_size" in said and self._largest != _LARGEST[-1]:
            return RowTooLong("a row is too long")
        for source in self._sources:
            if str(source.readable) in said:
                self._find_unreadable_row(source, said)
            said = said.replace(str(source.readable), str(source.path))
        hint = ""
        if isinstance(error, (self._duckdb.CatalogException, self._duckdb.BinderException)):
            hint = _TABLES
        elif isinstance(error, self._duckdb.PermissionException):
            hint = _NAMED_ONLY
        return QueryFailed(re.sub(r"\n\s*\n", "\n", said.strip()), hint=hint)

    def _find_unreadable_row(self, source: _Source, said: str) -> None:
        """Raise an error with the line, if the message is about a row."""
        found = re.search(r"in line (\d+)", said)
        if found is None:
            return
        _check_rows(source.path)  # our own reader names the line and the field
        # DuckDB does not count blank lines, and it counts one too many for some errors.
        n = int(found[1])
        for place, line in islice(read_lines(source.path), max(0, n - 2), n):
            if reason := self._refusal(line):
                hint = "`assay export table` may read this row: it checks and converts by itself"
                msg = f"{place}: {reason}"
                raise InputError(msg, hint=hint)

    def _refusal(self, line: bytes) -> str:
        """Say why DuckDB does not read a row; empty if it does."""
        alone = self._scratch / "row.jsonl"
        alone.write_bytes(line)
        sql = f"SELECT * FROM {_read_json(alone, _columns(), 2 * len(line) + 1024)}"
        try:
            self._connection.cursor().execute(sql).fetchall()
        except self._duckdb.Error as error:
            return str(error).partition("\n")[0].rpartition("in line 1: ")[2].strip()
        return ""


def _readable(path: Path, link: Path) -> Path:
    with path.open("rb") as file:
        if file.read(len(BOM)) != BOM:
            link.symlink_to(path.resolve())
            return link
        with link.open("wb") as copy:
            copy_stream(file, copy)
    return link


def _check_rows(path: Path) -> None:
    with open_rows(path, hint=HINT) as rows:
        for _ in trials_of(rows):
            pass


def _columns() -> str:
    return ", ".join(f"{_quoted(name)}: {_quoted(type_)}" for name, type_ in _ROW.items())


def _read_json(path: Path, columns: str, largest: int) -> str:
    return (
        f"read_json({_quoted(str(path))}, columns = {{{columns}}}, "
        f"format = 'newline_delimited', maximum_object_size = {largest})"
    )


def _attempts(source: _Source, columns: str, largest: int) -> str:
    """One row for each trial; a capture is expanded as if it were a list of one."""
    rows = _read_json(source.readable, columns, largest)
    entries = f"unnest(CASE WHEN {_IS_CAPTURE} THEN [NULL] ELSE trials END) AS entry"
    fields = ", ".join(
        f'CASE WHEN is_capture THEN {of_capture} ELSE entry.{of_entry} END AS "{name}"'
        for name, (of_capture, of_entry) in _IN_EITHER.items()
    )
    return (
        f"SELECT {_quoted(source.label)} AS file, id, input, hint, metadata, {fields} "
        f"FROM (SELECT *, {_IS_CAPTURE} AS is_capture, {entries} FROM {rows})"
    )


def _trials_view() -> str:
    parts = {"{calls}": _CALLS, "{by_agent}": _BY_AGENT}
    cells = {name: _CELLS.get(name, name) for name in COLUMNS}
    for part, sql in parts.items():
        cells = {name: cell.replace(part, sql) for name, cell in cells.items()}
    made = ", ".join(f"{cell} AS {name}" for name, cell in cells.items())
    return f"SELECT {made} FROM {{attempts}}"


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
