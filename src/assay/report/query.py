"""Result files as tables of SQL: DuckDB reads the lines themselves, nothing is imported first."""

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from assay.errors import AssayError
from assay.records.files import temporary_folder
from assay.records.rows import open_rows
from assay.records.trials import HINT, trials_of
from assay.report.table import COLUMNS, duckdb_module

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
    "graderFailures": "JSON",
    "failure": _struct({"cause": "VARCHAR", "message": "VARCHAR", "answered": "BOOLEAN"}),
    "agent": _struct({"adapter": "VARCHAR", "version": "VARCHAR", "model": "VARCHAR"}),
}
"""What a capture and an entry of trials have in common."""
_ENTRY = {
    **_ATTEMPT,
    "trialNum": "BIGINT",
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
    "number": ("1::BIGINT", '"trialNum"'),
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
    "measured": "CASE WHEN passed IS NULL AND {broken} THEN {by_agent} AND "
    "NOT coalesce(failure.answered, false) ELSE failure.cause IS NULL OR {by_agent} END",
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
_BY_AGENT = "coalesce(failure.cause LIKE 'agent\\_%' ESCAPE '\\', false)"
_BROKEN = 'coalesce(len(json_keys("graderFailures")) > 0, false)'
_CALLS = "list_filter(coalesce(trajectory, []), lambda s: s.type = 'tool_call')"
_STEPS = """
SELECT file, id, trial, step, s.type AS type, s.turn AS turn, s.timestamp AS timestamp_ms,
  s.content AS content, s.name AS tool, s.status AS status, s."exitCode" AS exit_code,
  s.duration AS duration_ms, s.input AS input, s.output->>'$' AS output, s.error AS error,
  s."callId" AS call_id, s.parent AS parent
FROM (SELECT file, id, number::INTEGER AS trial, unnest(trajectory) AS s,
      generate_subscripts(trajectory, 1)::INTEGER AS step FROM attempts)"""
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
            FROM attempts))"""
_LARGEST = (16 << 20, 128 << 20, 1 << 30)
"""Bytes of a row, at most. DuckDB reserves twice as much for each thread, so we begin small."""
_MEMORY = "1GB"
"""What is beyond is kept on disk while the query runs."""


class QueryFailed(AssayError):
    """The query itself is wrong, or cannot be carried out."""


@contextmanager
def open_database(files: Sequence[tuple[str, Path]]) -> Iterator["Database"]:
    """Open a database in memory over files: label and path."""
    duckdb = duckdb_module()
    with temporary_folder("assay-query-") as folder, duckdb.connect() as connection:
        connection.execute(f"SET memory_limit = '{_MEMORY}'")
        connection.execute(f"SET temp_directory = {_quoted(folder)}")
        # Nothing is fetched from anywhere: what the wheel brings is enough.
        connection.execute("SET autoinstall_known_extensions = false")
        yield Database(connection, files, duckdb.Error)


class Database:
    """The views trials, steps, tools and grades."""

    def __init__(
        self, connection: Any, files: Sequence[tuple[str, Path]], error: type[Exception]
    ) -> None:
        self._connection = connection
        self._files = files
        self._error = error

    def run(self, sql: str) -> Any:
        """Run a query; return a relation that can be fetched in parts, or None if it has no rows.

        A row that is longer than DuckDB was told to expect makes it begin again.
        """
        for largest in _LARGEST:
            self._make_views(largest)
            try:
                return self._connection.execute(sql)
            except self._error as error:
                if "maximum_object_size" in str(error) and largest != _LARGEST[-1]:
                    continue
                raise self._explained(error) from error
        raise AssertionError

    def write(self, sql: str, target: Path, options: str) -> None:
        """Write what a query returns to a file, in a format of DuckDB's."""
        self.run(f"COPY ({sql.rstrip().rstrip(';')}) TO {_quoted(str(target))} ({options})")

    def fetch(self, result: Any, n: int) -> list[tuple[Any, ...]]:
        """Return the next rows, n at most."""
        try:
            rows: list[tuple[Any, ...]] = result.fetchmany(n)
        except self._error as error:
            raise self._explained(error) from error
        return rows

    def _make_views(self, largest: int) -> None:
        parts = [_attempts(*file, largest) for file in self._files]
        views = {
            "attempts": " UNION ALL ".join(parts),
            "trials": _trials_view(),
            "steps": _STEPS,
            "tools": _TOOLS,
            "grades": _GRADES,
        }
        for name, sql in views.items():
            self._connection.execute(f"CREATE OR REPLACE TEMP VIEW {name} AS {sql}")

    def _explained(self, error: Exception) -> AssayError:
        first, _, rest = str(error).partition("\n")
        if " in file " in first:
            for _, path in self._files:
                _check_rows(path)  # our own reader names the line and the field
        where = f"\n{rest.strip()}" if rest.strip() else ""
        hint = "the tables are trials, steps, tools and grades; DESCRIBE trials lists columns"
        return QueryFailed(f"{first}{where}", hint=hint)


def _check_rows(path: Path) -> None:
    with open_rows(path, hint=HINT) as rows:
        for _ in trials_of(rows):
            pass


def _attempts(label: str, path: Path, largest: int) -> str:
    """One row for each trial; a capture is expanded as if it were a list of one."""
    typed = ", ".join(f"{_quoted(name)}: {_quoted(type_)}" for name, type_ in _ROW.items())
    source = (
        f"read_json({_quoted(_escaped(path))}, columns = {{{typed}}}, "
        f"format = 'newline_delimited', maximum_object_size = {largest})"
    )
    entries = "unnest(CASE WHEN trials IS NULL THEN [NULL] ELSE trials END) AS entry"
    fields = ", ".join(
        f'CASE WHEN is_capture THEN {of_capture} ELSE entry.{of_entry} END AS "{name}"'
        for name, (of_capture, of_entry) in _IN_EITHER.items()
    )
    return (
        f"SELECT {_quoted(label)} AS file, id, input, hint, metadata, {fields} "
        f"FROM (SELECT *, trials IS NULL AS is_capture, {entries} FROM {source})"
    )


def _trials_view() -> str:
    parts = {"{calls}": _CALLS, "{by_agent}": _BY_AGENT, "{broken}": _BROKEN}
    cells = {name: _CELLS.get(name, name) for name in COLUMNS}
    for part, sql in parts.items():
        cells = {name: cell.replace(part, sql) for name, cell in cells.items()}
    return f"SELECT {', '.join(f'{cell} AS {name}' for name, cell in cells.items())} FROM attempts"


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def _escaped(path: Path) -> str:
    """A path in which DuckDB finds no pattern."""
    return re.sub(r"([*?\[])", r"[\1]", str(path))
