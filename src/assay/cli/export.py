"""assay export: results in, training data or a table out."""

from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import click
import msgspec

from assay.cli.help import examples
from assay.cli.output import derived_output, note_unmasked, refuse_measured, refuse_same_file
from assay.cli.parameters import (
    InFile,
    Number,
    debug_option,
    filter_option,
    help_option,
    output_option,
    quiet_option,
    replace_option,
)
from assay.errors import InputError
from assay.export.every_eval import write_run
from assay.export.inspect_writer import write_log
from assay.export.messages import Thoughts
from assay.export.table import SUFFIXES, check_parquet, encode_row, write_table
from assay.export.training import Example, Export, Format, Only, TrialFilter
from assay.records.reports import ExportSummary
from assay.records.rows import open_rows
from assay.records.text import counted_noun
from assay.records.trial.files import HINT

_FORMATS = ("sft", "dpo", "kto", "sharegpt", "atif", "otel", "inspect", "every-eval", "table")
_WHOLE = ("atif", "otel", "inspect", "every-eval")
"""Formats that keep thoughts, unless they are told to drop them."""
_GRADED = ("dpo", "kto")


class _Options(msgspec.Struct, frozen=True, kw_only=True):
    kind: Format
    files: tuple[Path | None, ...]
    output: Path | None
    overwrite: bool
    only: Only | None
    min_score: float | None
    filters: tuple[str, ...]
    thoughts: Thoughts
    as_json: bool
    quiet: bool
    debug: bool


@click.command(
    short_help="Export results as training data or as a table.",
    epilog=examples(
        "assay export sft results.jsonl --only passed -o sft.jsonl",
        "assay export dpo before.jsonl after.jsonl -o pairs.jsonl",
        "assay export table before.jsonl after.jsonl -o trials.csv",
    ),
)
@click.argument("kind", type=click.Choice(_FORMATS), metavar="|".join(_FORMATS))
@click.argument("files", nargs=-1, type=InFile())
@output_option
@replace_option
@click.option(
    "--only",
    type=click.Choice(["passed", "failed", "graded"]),
    help="Take only trials that passed, that failed, or that have a grade. Default: all.",
)
@click.option(
    "--min-score",
    type=Number(0, 1),
    metavar="SCORE",
    help="Take only trials with at least this score, from 0 to 1. Default: any.",
)
@filter_option("Take only matching prompts, by id or metadata")
@click.option(
    "--thoughts",
    type=click.Choice(["drop", "field", "tags"]),
    help="What becomes of the agent's thoughts: drop them, keep them as the field "
    "reasoning_content of the message, or write them into its text between the tags <think> and "
    "</think>. Default: field for atif, otel and inspect, drop for training data.",
)
@click.option(
    "--json", "as_json", is_flag=True, help="Print the summary on stderr as one JSON object."
)
@quiet_option
@debug_option
@help_option
def command(**given: Any) -> None:
    """Export the trials in FILES, results of `assay capture`, `grade` or `trials` (- is stdin).

    \b
      sft       conversations with tool calls: {"messages", "tools"}
      dpo       a passed and a failed trial of one prompt: {"prompt", "chosen", "rejected"}
      kto       single trials with a verdict: {"prompt", "completion", "label"}
      sharegpt  conversations as {"from", "value"} pairs
      atif      whole trajectories with their rewards, for Harbor's tools (ATIF)
      otel      OpenTelemetry traces (OTLP JSON, one request per line) with grades as events
      inspect   a log of Inspect (JSON, version 2): a sample per prompt, an epoch per trial
      every-eval  documents for Every Eval Ever (schema 0.3) in a folder, one for each model
      table     one flat row per trial: Parquet, CSV or JSONL, by the suffix of the output

    The first four write JSONL that TRL reads. Secrets of the environment are masked. What was
    left out, and why, is printed to stderr; the exit code is 1 if nothing is left.
    """
    given["thoughts"] = given["thoughts"] or ("field" if given["kind"] in _WHOLE else "drop")
    options = _Options(**given)
    if not options.files:
        msg = "No files given. Name one or more result files, or - for stdin."
        raise click.UsageError(msg)
    if options.kind == "every-eval" and (len(options.files) > 1 or options.output is None):
        msg = "every-eval makes documents of one file: name one file of results, and -o FOLDER."
        raise click.UsageError(msg)
    if options.kind == "inspect" and (len(options.files) > 1 or _is_archive(options.output)):
        msg = "inspect makes one log of one file: name one file of results, and -o LOG.json."
        raise click.UsageError(msg)
    suffix = _suffix(options)
    for path in options.files:
        refuse_same_file(path, options.output)
    refuse_measured(options.output, overwrite=options.overwrite)
    if suffix == ".parquet":
        check_parquet()
    if not options.quiet:
        note_unmasked()
    summary = _export(options, suffix)
    if options.as_json:
        click.echo(msgspec.json.encode(summary).decode(), err=True)
    elif not options.quiet:
        for line in _lines(summary, options):
            click.echo(line, err=True)


def _is_archive(path: Path | None) -> bool:
    return path is not None and path.suffix == ".eval"


def _suffix(options: _Options) -> str:
    if options.kind != "table" or options.output is None:
        return ".jsonl"
    suffix = options.output.suffix.lower()
    if suffix not in SUFFIXES:
        msg = f"-o {options.output}: name a table with one of {', '.join(SUFFIXES)}."
        raise click.UsageError(msg)
    return suffix


def _export(options: _Options, suffix: str) -> ExportSummary:
    chosen = TrialFilter(only=options.only, min_score=options.min_score, filters=options.filters)
    with ExitStack() as stack:
        files = [stack.enter_context(open_rows(path, hint=HINT)) for path in options.files]
        export = Export(files, chosen, options.thoughts)
        summary = export.summary
        if options.output is not None:
            summary.output = str(options.output)
        if options.kind == "every-eval" and options.output is not None:
            [run] = export.experiments.values()
            made = write_run(export.write(options.kind, _line), options.output, run)
            if not made:
                raise _nothing_exported(summary, options)
            summary.output = ", ".join(map(str, made))
            return summary
        with derived_output(options.output, overwrite=options.overwrite) as out:
            if options.kind == "table":
                write_table(
                    export.write(options.kind, partial(encode_row, suffix=suffix)), out, suffix
                )
            elif options.kind == "inspect":
                [run] = export.experiments.values()
                write_log(export.write(options.kind, _line), out, run.name, run.written_ms)
            else:
                out.writelines(export.write(options.kind, _line))
            if not summary.written:  # an error here leaves no file behind
                raise _nothing_exported(summary, options)
    return summary


def _line(example: Example) -> bytes:
    return msgspec.json.encode(example) + b"\n"


def _nothing_exported(summary: ExportSummary, options: _Options) -> InputError:
    names = ", ".join(summary.files)
    if not summary.trials:
        return InputError(f"{names}: no trials", hint=HINT)
    n_trials = counted_noun(summary.trials, "trial")
    msg = f"{names}: nothing of {n_trials} can be exported as {options.kind}: {_why(summary)}"
    hint = ""
    if "not graded" in summary.left_out:
        hint = "grade them first: assay grade FILE -g GRADER -o graded.jsonl"
    elif options.kind == "dpo":
        hint = "dpo needs a prompt with a passed and a failed trial: run assay trials with -k"
    return InputError(msg, hint=hint)


def _why(summary: ExportSummary) -> str:
    parts = sorted(summary.left_out.items(), key=lambda item: -item[1])
    return ", ".join(f"{n} {why}" for why, n in parts)


def _lines(summary: ExportSummary, options: _Options) -> Iterator[str]:
    noun = "row" if options.kind == "table" else "example"
    target = f" -> {summary.output}" if options.output else ""
    n_trials = counted_noun(summary.trials, "trial")
    yield f"{counted_noun(summary.written, noun)} from {n_trials}{target}"
    if summary.left_out:
        yield f"Left out: {_why(summary)}"
    if summary.masked:
        yield f"Masked secrets of the environment in {counted_noun(summary.masked, noun)}"
    if options.kind == "table":
        return
    if summary.thoughts_dropped:
        yield f"Dropped {counted_noun(summary.thoughts_dropped, 'thought')} (--thoughts keeps them)"
    if summary.sub_agent_steps and options.kind not in ("otel", "inspect", "every-eval"):
        yield f"Left out {counted_noun(summary.sub_agent_steps, 'step')} of sub-agents"
    if options.kind not in _GRADED and summary.not_passed:
        n_failed = counted_noun(summary.not_passed, "example")
        yield f"{n_failed} did not pass (--only passed leaves them out)"
    if options.kind not in _GRADED and summary.not_graded:
        yield f"Not graded: {counted_noun(summary.not_graded, 'example')}"
