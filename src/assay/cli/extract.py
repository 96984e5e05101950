"""assay extract: raw output in, trajectories out."""

from collections.abc import Iterator
from itertools import chain, islice
from pathlib import Path
from typing import Any

import click

from assay import plugins
from assay.adapters.text import TextRows
from assay.cli.help import PRICES, examples, variables
from assay.cli.options import AgentOptions, agent_options, agent_ref, with_options
from assay.cli.output import echo_folded, refuse_inputs, refuse_measured, write_row
from assay.cli.parameters import (
    debug_option,
    help_option,
    input_argument,
    kept_raw_option,
    output_option,
    progress_option,
    quiet_option,
    replace_option,
)
from assay.errors import InputError
from assay.pipeline.sink import open_sink
from assay.pipeline.stages import extract_row
from assay.records.capture import Events
from assay.records.recording import NOT_READ, RawOutput
from assay.records.rows import decode_row, encode_row, read_lines
from assay.records.text import counted_noun, visible_line
from assay.records.trial import Trial

_HINT = "extract reads what `assay run` wrote"


class _Options(AgentOptions, frozen=True, kw_only=True):
    raw: Path | None
    raw_dir: Path | None
    output: Path | None
    overwrite: bool
    progress: bool
    quiet: bool
    debug: bool


@click.command(
    short_help="Turn raw output into trajectories.",
    epilog=variables(*PRICES)
    + examples(
        "assay extract raw.jsonl -s demo -o trajectories.jsonl",
        "assay run evals/prompts.jsonl -s demo | assay extract -s demo | assay grade -g contains",
    ),
)
@input_argument("raw")
@with_options(agent_options)
@kept_raw_option
@output_option
@replace_option
@progress_option
@quiet_option
@debug_option
@help_option
def command(**given: Any) -> None:
    """Turn the rows that `assay run` wrote to the file RAW (default: stdin) into trajectories.

    The result is the same as that of `assay capture` for the same trial. Rows of agents that print
    plain text say so themselves and need no -s.
    """
    options = _Options(**given)
    refuse_inputs(options.output, options.raw, options.schema)
    refuse_measured(options.output, overwrite=options.overwrite, rows=True)
    source = options.raw
    adapter = plugins.adapter(agent_ref(options)) if options.schema else None
    rows = _rows(source)
    if adapter is None:
        rows = _readable(rows)
    base = source.parent if source else Path.cwd()
    events = Events()
    n_rows, n_unread = 0, 0
    with open_sink(options.output, "replace", guarded=False, write=write_row) as sink:
        for row, extra in rows:
            reader = adapter or TextRows(row.agent or "text")
            captured = extract_row(row, reader, base, options.raw_dir)
            n_unread += NOT_READ in (captured.warnings or ())
            sink.append(encode_row(captured, _with_error(row, extra)))
            n_rows += 1
            if captured.events:
                _add(events, captured.events)
            if options.progress:
                click.echo(_progress(captured), err=True)
    if not n_rows and source is None:
        msg = "stdin: no rows"
        raise InputError(msg, hint=_HINT)
    if not n_rows:
        click.echo(f"{source}: no rows; {_HINT}", err=True)
    elif not options.quiet:
        click.echo(_share(events), err=True)
    if n_unread:
        _say_unread(n_unread)


def _say_unread(n: int) -> None:
    name = "row names" if n == 1 else "rows name"
    echo_folded(
        f"Warning: {n} {name} raw streams that are not below the folder of the file. The agent's "
        "session files there were not read. If the run was given this folder with --raw-dir, give "
        "it here too.",
        err=True,
    )


type _Row = tuple[RawOutput, dict[str, Any]]


def _rows(source: Path | None) -> Iterator[_Row]:
    for place, line in read_lines(source):
        yield decode_row(place, line, RawOutput, hint=_HINT)


def _readable(rows: Iterator[_Row]) -> Iterator[_Row]:
    """Refuse rows that only an adapter can read; the first one before an output is made."""

    def checked() -> Iterator[_Row]:
        for row, extra in rows:
            if row.output_mode != "text":
                msg = f'No agent given. Use -s SCHEMA to say whose output row "{row.id}" is.'
                raise click.UsageError(msg)
            yield row, extra

    readable = checked()
    return chain(list(islice(readable, 1)), readable)


def _with_error(row: RawOutput, extra: dict[str, Any]) -> dict[str, Any]:
    """Keep the error of a row that another harness made; ours have a failure."""
    return {**extra, "error": row.error} if row.error and not row.turns else extra


def _progress(row: Trial) -> str:
    line = f"{visible_line(row.id)}: {counted_noun(len(row.trajectory), 'step')}"
    failure = row.failure or None
    return f"! {line} - {failure.cause.words}: {failure.message}" if failure else f"✓ {line}"


def _add(total: Events, more: Events) -> None:
    total.total += more.total
    total.mapped += more.mapped
    total.unparsed += more.unparsed
    total.oversized += more.oversized
    for name, n in more.unknown.items():
        total.unknown[name] = total.unknown.get(name, 0) + n


def _share(events: Events) -> str:
    share = events.mapped / events.total if events.total else 1.0
    unknown = ", ".join(f"{name} x{n}" for name, n in sorted(events.unknown.items()))
    parts = [f"{events.mapped} of {events.total} events mapped ({share:.1%})"]
    parts += [f"unknown: {unknown}"] if unknown else []
    parts += [f"{events.unparsed} lines are not JSON"] if events.unparsed else []
    parts += [f"{events.oversized} lines too long"] if events.oversized else []
    return "; ".join(parts)
