"""assay validate-refs: do the reference solutions pass their own graders?"""

from collections import deque
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import click
import msgspec

from assay.cli.help import examples
from assay.cli.options import grader_options, grader_refs, with_options
from assay.cli.output import (
    echo_folded,
    note_unmasked,
    refuse_empty_stdin,
    refuse_inputs,
    refuse_measured,
    write_row,
)
from assay.cli.parameters import (
    concurrency_option,
    debug_option,
    help_option,
    input_argument,
    output_option,
    quiet_option,
    replace_option,
)
from assay.pipeline.grade import grade_all
from assay.pipeline.references import answer_row, answers, validation
from assay.pipeline.row_settings import ANSWER_ONLY, RowGraders, expectations
from assay.pipeline.sink import open_sink
from assay.records.cases import open_prompts
from assay.records.reports import Validation
from assay.records.rows import RowFile
from assay.records.spec import HINT, PluginRef, Prompt
from assay.records.text import counted_noun, visible_line

_EXIT_STRICT = 3


class _Options(msgspec.Struct, frozen=True, kw_only=True):
    prompts: Path | None
    graders: tuple[str, ...]
    grader_timeout: float
    output: Path | None
    overwrite: bool
    concurrency: int
    no_op: bool
    strict: bool
    quiet: bool
    debug: bool


@click.command(
    short_help="Check that reference solutions pass their graders.",
    epilog=examples(
        "assay validate-refs evals/prompts.jsonl -g evals/grader.py",
        "assay validate-refs evals/prompts.jsonl -g contains --no-op --strict -o refs.jsonl",
    ),
)
@input_argument("prompts")
@with_options(grader_options)
@output_option
@replace_option
@concurrency_option("Check up to N prompts at once. Default: 1.")
@click.option("--no-op", is_flag=True, help="Also check that empty and unrelated answers fail.")
@click.option(
    "--strict",
    is_flag=True,
    help="Exit with code 3 if a reference fails, or an answer of --no-op passes.",
)
@quiet_option
@debug_option
@help_option
def command(**given: Any) -> None:
    """Grade the "reference" of each prompt in the file PROMPTS (default: stdin) as if an agent had
    answered it.

    A reference that fails its own grader means that the task, the grader or the hint is wrong.
    """
    options = _Options(**given)
    refuse_inputs(options.output, options.prompts, *options.graders)
    refuse_measured(options.output, overwrite=options.overwrite)
    graders = grader_refs(options.graders, options.grader_timeout)
    tally = _Tally()
    with open_prompts(options.prompts) as rows:
        if options.graders or not rows.empty:
            refuse_empty_stdin(rows, options.prompts, HINT)
        own = RowGraders(options.grader_timeout)
        _take_graders(own, rows, options)
        n_without, n_with = 0, 0
        for prompt in rows.rows(msgspec.json.Decoder(Prompt)):  # all, before a grader is asked
            n_without += prompt.reference is None
            n_with += prompt.reference is not None
        if not n_with:
            echo_folded("No prompts with reference solutions found", err=True)
            return
        if not options.quiet:
            note_unmasked()
            echo_folded(f"Validating {n_with} reference solutions...", err=True)
        with open_sink(options.output, "replace", guarded=False, write=write_row) as sink:
            for row in _validate(rows, graders, own, options):
                sink.append(msgspec.json.encode(row))
                tally.add(row)
                if not options.quiet:
                    echo_folded(f"  {_shown(row)}", err=True)
    _conclude(tally, n_without, options)


def _take_graders(own: RowGraders, rows: RowFile, options: _Options) -> None:
    """Take the graders that prompts bring along; refuse to go on without any."""
    prompts = [prompt for prompt in rows.rows(msgspec.json.Decoder(Prompt)) if prompt.reference]
    path = {"path": str(options.prompts)} if options.prompts else {}
    own.use_prompts(PluginRef(name="prompts", options=path), prompts, only=ANSWER_ONLY)
    if not options.graders and not own.to_prepare:
        msg = "No grader given. Use -g GRADER."
        raise click.UsageError(msg)
    left_out = {
        name
        for prompt in prompts
        for name, *_ in expectations(prompt.expect)
        if name not in ANSWER_ONLY
    }
    if left_out and not options.quiet:
        names = ", ".join(sorted(left_out))
        echo_folded(f"Not checked, because a reference is only an answer: expect {names}", err=True)


def _validate(
    rows: RowFile, graders: Sequence[PluginRef], own: RowGraders, options: _Options
) -> Iterator[Validation]:
    # grade_all reads ahead, but yields in the order of the lines.
    waiting: deque[tuple[Prompt, list[str]]] = deque()

    def lines() -> Iterator[tuple[str, bytes]]:
        for prompt in rows.rows(msgspec.json.Decoder(Prompt)):
            if prompt.reference is None:
                continue
            asked = answers(prompt, no_op=options.no_op)
            waiting.append((prompt, list(asked)))
            for text in asked.values():
                yield prompt.id, answer_row(prompt, text)

    graded = grade_all(lines(), graders, options.concurrency, own=own)
    for first in graded:
        prompt, names = waiting.popleft()
        verdicts = [first.verdict, *(next(graded).verdict for _ in names[1:])]
        yield validation(prompt, dict(zip(names, verdicts, strict=True)))


class _Tally:
    """Counts results; keeps only what is printed at the end."""

    def __init__(self) -> None:
        self.n_passed = 0
        self.failing: list[str] = []
        self.lenient: list[str] = []
        self.broken: list[str] = []

    def add(self, row: Validation) -> None:
        if row.grader_failure:
            self.broken.append(f"{visible_line(row.id)}: {row.grader_failure}")
        if row.passes is False:
            self.failing.append(f"{visible_line(row.id)}: {row.reasoning or 'no reasoning'}")
        self.n_passed += row.passes is True
        if row.wrongly_passes:
            self.lenient.append(f"{visible_line(row.id)}: {', '.join(row.wrongly_passes)}")


def _shown(row: Validation) -> str:
    if row.grader_failure:
        return f"! {visible_line(row.id)}: {row.grader_failure}"
    lenient = f" (also passes: {', '.join(row.wrongly_passes)})" if row.wrongly_passes else ""
    return f"{'✓' if row.passes else '✗'} {visible_line(row.id)}{lenient}"


def _conclude(tally: _Tally, n_without: int, options: _Options) -> None:
    if not options.quiet:
        parts = [f"{tally.n_passed} passed", f"{len(tally.failing)} failed"]
        parts += [f"{len(tally.broken)} not graded"] if tally.broken else []
        parts += [f"{counted_noun(n_without, 'prompt')} without a reference"] if n_without else []
        echo_folded(f"\nResults: {', '.join(parts)}", err=True)
        _list("Failing references:", tally.failing)
        _list("Answers that should fail but pass:", tally.lenient)
    if options.strict and (tally.failing or tally.lenient):
        raise click.exceptions.Exit(_EXIT_STRICT)
    if tally.broken:
        were = "was" if len(tally.broken) == 1 else "were"
        echo_folded(
            f"{counted_noun(len(tally.broken), 'prompt')} {were} not graded because a grader "
            f"failed (see graderFailure in the rows). The first: {tally.broken[0]}",
            err=True,
        )
        raise click.exceptions.Exit(1)


def _list(title: str, items: list[str]) -> None:
    if items:
        echo_folded(f"\n{title}", err=True)
        for item in items:
            echo_folded(f"  - {item}", err=True)
