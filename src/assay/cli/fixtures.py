"""assay fixtures: recorded trials in, a test that asserts their verdicts out."""

from contextlib import ExitStack
from pathlib import Path
from typing import Any

import click
import msgspec

from assay.cli.help import examples
from assay.cli.options import grader_options, grader_refs, with_options
from assay.cli.output import echo_folded, note_unmasked, refuse_existing, whole_output
from assay.cli.parameters import (
    InFile,
    OutFolder,
    debug_option,
    help_option,
    overwrite_option,
    quiet_option,
)
from assay.errors import InputError
from assay.export.fixtures import (
    OTHER_ID,
    ChangedVerdict,
    Fixture,
    changed_verdicts,
    choose_fixtures,
    encode_fixtures,
    fixture_paths,
    grader_words,
)
from assay.export.training import Only, TrialFilter
from assay.records.rows import open_rows
from assay.records.text import counted_noun, visible_line
from assay.records.trial.files import HINT

_MOST_SHOWN = 10
_GRADE = "assay grade FILE -g GRADER -o graded.jsonl"
_OF_FOLDERS = ("command", "git")


class _Options(msgspec.Struct, frozen=True, kw_only=True):
    files: tuple[Path | None, ...]
    folder: Path
    graders: tuple[str, ...]
    grader_timeout: float
    only: Only | None
    ids: tuple[str, ...]
    overwrite: bool
    quiet: bool
    debug: bool


@click.command(
    short_help="Write a test that asserts the verdicts on recorded trials.",
    epilog=examples(
        "assay fixtures results.jsonl -g contains -o tests/evals --only passed",
        "assay fixtures results.jsonl -g contains -o tests/sums --id sum --id product",
    ),
)
@click.argument("files", nargs=-1, type=InFile())
@click.option(
    "-o",
    "--output",
    "folder",
    type=OutFolder(),
    required=True,
    metavar="DIR",
    help="Write the test and its data to this folder.",
)
@with_options(grader_options)
@click.option(
    "--only",
    type=click.Choice(["passed", "failed", "graded"]),
    help="Take only trials that passed, that failed, or that have a grade. Default: graded.",
)
@click.option(
    "--id",
    "ids",
    multiple=True,
    metavar="ID",
    help="Take only trials of this prompt; * matches any text. May be repeated. Default: all.",
)
@overwrite_option
@quiet_option
@debug_option
@help_option
def command(**given: Any) -> None:
    """Write a pytest file from chosen trials in FILES, results of capture, grade or trials.

    The test replays the trials (-s replay:FILE) through the graders given with -g, and asserts
    that each verdict is the one that FILES hold. It needs no agent, no key and no network: commit
    the folder, and run it with pytest. Graders that look at the agent's folder cannot be used.
    """
    options = _Options(**given)
    if not options.files:
        msg = "No files given. Name one or more result files, or - for stdin."
        raise click.UsageError(msg)
    if not options.graders:
        msg = "No grader given. Use -g GRADER, the one that judged these trials."
        raise click.UsageError(msg)
    if options.folder.exists() and not options.folder.is_dir():
        msg = f"-o {options.folder} is a file; the test and its data need a folder."
        raise click.UsageError(msg)
    paths = fixture_paths(options.folder)
    for path in paths.values():
        refuse_existing(path, overwrite=options.overwrite)
    if not options.quiet:
        note_unmasked()
    refs = grader_refs(options.graders, options.grader_timeout)
    left_out: dict[str, int] = {}
    fixtures = _chosen(options, left_out)
    if differing := list(changed_verdicts(fixtures, refs)):
        raise _refusal(differing, len(fixtures), [ref.name for ref in refs])
    words = [
        grader_words(text, ref, options.folder)
        for text, ref in zip(options.graders, refs, strict=True)
    ]
    for path, data in encode_fixtures(fixtures, words, paths).items():
        with whole_output(path, overwrite=options.overwrite) as out:
            out.write(data)
    if not options.quiet:
        why = ", ".join(f"{n} {reason}" for reason, n in left_out.items())
        echo_folded(f"{counted_noun(len(fixtures), 'trial')} -> {paths['test']}", err=True)
        echo_folded(f"Left out: {why}", err=True) if why else None
        echo_folded(f"Run them with: pytest {paths['test']}", err=True)


def _chosen(options: _Options, left_out: dict[str, int]) -> list[Fixture]:
    with ExitStack() as stack:
        files = [stack.enter_context(open_rows(path, hint=HINT)) for path in options.files]
        chosen = TrialFilter(only=options.only)
        fixtures = choose_fixtures(files, chosen, options.ids, left_out)
        names = ", ".join(file.name for file in files)
    if not fixtures:
        why = ", ".join(f"{n} {reason}" for reason, n in left_out.items()) or "no trials"
        msg = f"{names}: nothing to make fixtures of: {why}"
        raise InputError(msg, hint=_hint(left_out))
    return fixtures


def _hint(left_out: dict[str, int]) -> str:
    if "not graded" in left_out:
        return f"grade them first: {_GRADE}"
    if left_out.keys() == {OTHER_ID}:
        return "--id names no prompt of these files; * matches any text, as in --id 'sum*'"
    return "choose others with --only or --id" if left_out else HINT


def _refusal(differing: list[ChangedVerdict], n_all: int, graders: list[str]) -> InputError:
    shown = []
    for one in differing[:_MOST_SHOWN]:
        now = f"{one.now.score:g}" if one.now else "no grade"
        why = f" ({visible_line(one.why.splitlines()[0])})" if one.why else ""
        shown.append(f"{visible_line(one.id)}: {one.recorded.score:g} recorded, {now} now{why}")
    more = len(differing) - len(shown)
    lines = "\n  ".join([*shown, *([f"and {more} more"] if more else [])])
    of = f"{len(differing)} of {counted_noun(n_all, 'trial')}"
    if any(one.now for one in differing):
        msg = f"these graders judge {of} differently:\n  {lines}"
        return InputError(msg, hint=f"grade the results with these graders first: {_GRADE}")
    msg = f"these graders cannot judge {of}:\n  {lines}"
    names = " and ".join(name for name in graders if name in _OF_FOLDERS)
    hint = f"{names} looks at the agent's folder, which a fixture does not have; use another grader"
    return InputError(msg, hint=hint if names else "fix the grader first")
