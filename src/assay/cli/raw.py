"""assay raw: what an agent printed in a trial, as it came."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NoReturn

import click
import msgspec

from assay.cli.help import examples
from assay.cli.output import derived_output, refuse_same_file
from assay.cli.parameters import (
    InFile,
    debug_option,
    help_option,
    kept_raw_option,
    output_option,
    replace_option,
)
from assay.errors import InputError
from assay.records.raw_streams import Attempt, KeptStream, is_there, named_streams, place_inside
from assay.records.rows import open_rows
from assay.records.text import counted_noun, visible_line
from assay.records.trial.views import RawTrialView


class _Options(msgspec.Struct, frozen=True, kw_only=True):
    prompt_id: str
    file: Path | None
    trial: int | None
    attempt: int | None
    turn: int | None
    stream: str | None
    only_list: bool
    raw_dir: Path | None
    output: Path | None
    overwrite: bool
    debug: bool


@click.command(
    short_help="Print what the agent of a trial wrote, as it came.",
    epilog=examples(
        "assay raw sum results.jsonl",
        "assay raw sum results.jsonl --turn 1 --stream out",
        "assay raw sum results.jsonl --list",
    ),
)
@click.argument("prompt_id", metavar="ID")
@click.argument("file", type=InFile())
@click.option(
    "--trial",
    type=click.IntRange(min=1),
    metavar="N",
    help="Print this trial of the prompt, from 1. Default: the only one.",
)
@click.option(
    "--attempt",
    type=click.IntRange(min=1),
    metavar="N",
    help="Print this attempt at a trial that was retried, from 1. Default: the last.",
)
@click.option(
    "--turn",
    type=click.IntRange(min=1),
    metavar="N",
    help="Print only the streams of the process of turn N, from 1; an agent that has one process "
    "for all turns has only turn 1. Default: all.",
)
@click.option(
    "--stream",
    metavar="NAME",
    help="Print only the streams of this name: out, err, in (stdin), or a session file as in "
    "files/session.jsonl. Default: all.",
)
@click.option(
    "--list", "only_list", is_flag=True, help="Print only the names and sizes of the streams."
)
@kept_raw_option
@output_option
@replace_option
@debug_option
@help_option
def command(**given: Any) -> None:
    """Print the raw streams of the trial of the prompt ID in FILE, results of capture or trials.

    These are stdout, stderr and stdin of every turn (1.out, 1.err, 1.in), and the session files
    of the agent that were kept, each under a heading. If --turn and --stream leave only one, it is
    printed without a heading, as it came.
    """
    options = _Options(**given)
    refuse_same_file(options.file, options.output)
    streams = _streams(options)
    chosen = [one for one in streams if _is_chosen(one, options)]
    if not chosen:
        raise _no_such_stream(streams, options)
    alone = len(chosen) == 1 and (options.turn is not None or options.stream is not None)
    text = _names(chosen) if options.only_list else _blocks(chosen, headings=not alone)
    with derived_output(options.output, overwrite=options.overwrite) as out:
        for block in text:
            out.write(block)


def _no_such_stream(streams: list[KeptStream], options: _Options) -> InputError:
    source, turn = options.file or "stdin", options.turn
    numbers = {one.name.partition(".")[0] for one in streams if not one.is_session_file}
    if turn is not None and str(turn) not in numbers:
        n_turns = counted_noun(len(numbers), "turn")
        msg = f"{source}: there are no streams of turn {turn}; the trial has those of {n_turns}"
    else:
        msg = f"{source}: the trial has no such stream"
    names = ", ".join(visible_line(one.name) for one in streams)
    return InputError(f"{msg}: {names}", hint="choose others with --turn and --stream")


def _names(streams: list[KeptStream]) -> Iterator[bytes]:
    return (f"{one.size}\t{visible_line(one.name)}\n".encode() for one in streams)


def _blocks(streams: list[KeptStream], *, headings: bool) -> Iterator[bytes]:
    for one in streams:
        if headings:
            size = counted_noun(one.size, "byte")
            yield f"==> {visible_line(one.name)} ({size}) <==\n".encode()
        last = b"\n"
        for block in one.blocks():
            yield block
            last = block
        if headings and not last.endswith(b"\n"):
            yield b"\n"


def _is_chosen(stream: KeptStream, options: _Options) -> bool:
    number, _, kind = stream.name.partition(".")
    if options.turn is not None and (stream.is_session_file or number != str(options.turn)):
        return False
    return options.stream in (None, stream.name, "" if stream.is_session_file else kind)


def _streams(options: _Options) -> list[KeptStream]:
    """Find the streams of the trial that was asked for."""
    source = options.file or "stdin"
    trial = _trial(options)
    attempts = [*(attempt.raw for attempt in trial.retried), trial.raw]
    number = len(attempts) if options.attempt is None else options.attempt
    if number > len(attempts):
        n_attempts = counted_noun(len(attempts), "attempt")
        msg = f"{source}: there is no attempt {number}; the trial had {n_attempts}"
        raise InputError(msg, hint="choose another one with --attempt")
    name = attempts[number - 1]
    if not name:
        msg = f"{source}: the row names no raw streams"
        raise InputError(msg, hint="they are kept by capture with -o FILE, or with --raw-dir DIR")
    attempt = Attempt(options.prompt_id, trial.number, number - 1)
    base = options.file.parent if options.file else Path.cwd()
    if options.raw_dir is not None:
        base, name = options.raw_dir, Path(name).name
    return named_streams(base, name, attempt) or _refuse(base, name, source)


def _refuse(base: Path, name: str, source: Path | str) -> NoReturn:
    """Say why there are no streams."""
    place, shown = place_inside(base, name), visible_line(name)
    if place is None:
        msg = f"{source}: the row names {shown}, which is not below the folder of the file"
        hint = "if the run was given this folder with --raw-dir, give it here too"
    elif not is_there(place):
        msg = f"{source}: no raw streams at {shown} in {visible_line(str(base.resolve()))}"
        hint = "give the file that the run wrote, not a copy elsewhere; or they were removed"
    else:
        msg = f"{source}: the raw streams at {shown} were removed or damaged"
        hint = "what is there now belongs to another trial, or was not written by Assay"
    raise InputError(msg, hint=hint)


def _trial(options: _Options) -> RawTrialView:
    found = None
    with open_rows(options.file) as file:
        for row in file.rows(msgspec.json.Decoder(RawTrialView)):
            if row.id == options.prompt_id:
                found = row  # of repeated ones the last
    source = options.file or "stdin"
    if found is None:
        msg = f"{source}: there is no row with the id {visible_line(repr(options.prompt_id))}"
        raise InputError(msg, hint="give the id of a prompt in this file")
    trials = found.entries
    if options.trial is None and len(trials) == 1:
        return trials[0]
    for trial in trials:
        if trial.number == options.trial:
            return trial
    msg = f"the prompt has {counted_noun(len(trials), 'trial')}"
    if options.trial is not None:
        msg = f"there is no trial {options.trial}; {msg}"
    hint = "choose one of them with --trial N" if len(trials) > 1 else "leave out --trial"
    full = f"{source}: {msg}"
    raise InputError(full, hint=hint)
