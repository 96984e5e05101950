"""assay tape: look at what models answered, and make smaller or cleaner tapes of it."""

import re
import sys
from collections.abc import Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import click
import msgspec

from assay.cli.help import examples
from assay.cli.output import echo_folded, refuse_existing, refuse_same_file
from assay.cli.parameters import Decorator, NamedFile, debug_option, help_option, overwrite_option
from assay.cli.tables import draw_table, terminal
from assay.errors import InputError
from assay.export.tapes import (
    LaneOnTape,
    Scrubbed,
    cut,
    describe_lanes,
    prompts_on,
    prune,
    scrub,
    tape_differences,
    tape_stats,
)
from assay.pipeline.prompts import read_prompts
from assay.records.spec import PluginRef
from assay.records.tape import Exchange, Tape, TapeWriter
from assay.records.text import counted_noun, visible_line

_FILE = NamedFile(exists=True)
_tape = click.argument("tape", type=_FILE)
_json_option: Decorator = click.option("--json", "as_json", is_flag=True, help="Write it as JSON.")
_output_option: Decorator = click.option(
    "-o",
    "--output",
    type=NamedFile(),
    metavar="TAPE",
    help="Write the new tape to this file. Default: the tape itself is replaced.",
)
_MOST_TEXT = 60


@click.group(
    short_help="Show, compare and cut recorded answers of models.",
    epilog=examples(
        "assay tape show answers.tape",
        "assay tape cut answers.tape --trial sum:2 -o bug.tape",
        "assay tape stats answers.tape",
    ),
)
@help_option
def command() -> None:
    """Work with tapes: the requests of agents and the answers of models that runs have kept."""


@command.command(
    "show",
    short_help="List the trials of a tape, with what was asked and answered.",
    epilog=examples(
        "assay tape show answers.tape",
        "assay tape show answers.tape --lane 1 --request 2",
        "assay tape show answers.tape --prompts > prompts.jsonl",
    ),
)
@_tape
@click.option("--lane", type=int, metavar="N", help="Show only this lane. Default: all.")
@click.option(
    "--request",
    "number",
    type=int,
    metavar="N",
    help="With --lane, write this request and its answer in full, as JSON.",
)
@click.option(
    "--prompts", is_flag=True, help="Write the prompts of the tape instead, as a prompt file."
)
@_json_option
@debug_option
@help_option
def show(tape: Path, lane: int | None, number: int | None, **given: Any) -> None:
    """List the lanes of TAPE (one for each attempt at a trial) and their requests.

    Each request is shown with its turn of the prompt, model, status, tokens by the provider's
    count, time, and what was answered.
    """
    if number is not None and lane is None:
        msg = "--request needs --lane."
        raise click.UsageError(msg)
    with Tape(tape) as opened:
        if lane is not None and all(one.lane != lane for one in opened.lanes):
            msg = f"{tape} has no lane {lane}"
            raise InputError(msg, hint=f"it has {counted_noun(len(opened.lanes), 'lane')}")
        if number is not None and lane is not None:
            _write_json(_exchange(opened, lane, number))
        elif given["prompts"]:
            for row in prompts_on(opened):
                click.echo(msgspec.json.encode(row).decode())
        elif given["as_json"]:
            for one in describe_lanes(opened, lane):
                click.echo(msgspec.json.encode(one).decode())
        else:
            _print_lanes(opened, lane)


def _exchange(opened: Tape, lane: int, number: int) -> Exchange:
    for spot in opened.spots(lane):
        if spot.number == number:
            return opened.exchange(spot)
    msg = f"lane {lane} of {opened.path} has no request {number}"
    raise InputError(msg, hint=f"it has {counted_noun(len(opened.spots(lane)), 'request')}")


def _write_json(value: Any) -> None:
    click.echo(msgspec.json.format(msgspec.json.encode(value), indent=2).decode())


_HEADER = ("Request", "Turn", "Model", "Status", "Input", "Output", "ms", "Answer")


def _print_lanes(opened: Tape, lane: int | None) -> None:
    if opened.n_torn:
        echo_folded(
            f"The last {opened.n_torn} bytes were not written to their end and are left out."
        )
    console = terminal(sys.stdout)
    for one in describe_lanes(opened, lane):
        agent = f" ({f'{one.agent} {one.version}'.strip()})" if one.agent else ""
        old = "" if one.is_current else "; a later lane takes its place"
        draw_table(
            console,
            f"Lane {one.lane}: {one.words}{agent}{old}",
            _HEADER,
            [_row(one, number) for number in range(len(one.turns))],
        )


def _row(lane: LaneOnTape, number: int) -> Sequence[str]:
    one = lane.turns[number]
    text = visible_line(one.text)
    short = text if len(text) <= _MOST_TEXT else f"{text[:_MOST_TEXT]}…"
    said = [short] if short else []
    said += [f"calls {', '.join(one.calls)}"] if one.calls else []
    said += ["cut off"] if one.cut else []
    tokens = ["-" if n is None else str(n) for n in (one.input_tokens, one.output_tokens)]
    status = str(one.status) if one.status else "no answer"
    turn = str(one.turn) if one.turn else "-"
    return (str(one.request), turn, one.model or "-", status, *tokens, str(one.ms), "; ".join(said))


@command.command(
    "diff",
    short_help="Say where two tapes differ.",
    epilog=examples(
        "assay tape diff before.tape after.tape",
        "assay tape diff answers.tape clean.tape",
    ),
)
@click.argument("old", type=_FILE)
@click.argument("new", type=_FILE)
@debug_option
@help_option
def diff(old: Path, new: Path, **_given: Any) -> None:
    """Compare the trials of the tapes OLD and NEW: requests, results of tools and answers.

    Of each request, the first place that differs is named with both values.
    """
    with Tape(old) as before, Tape(new) as after:
        lines = [*tape_differences(before, after)]
    for line in lines or ["The tapes do not differ."]:
        echo_folded(visible_line(line))


@command.command(
    "stats",
    short_help="Show what a replay of a tape saves.",
    epilog=examples("assay tape stats answers.tape", "assay tape stats answers.tape --json"),
)
@_tape
@_json_option
@debug_option
@help_option
def stats(tape: Path, **given: Any) -> None:
    """Count requests and tokens of TAPE by model, and the cost and the time that a replay saves.

    The cost is an estimate by the table of prices.
    """
    with Tape(tape) as opened:
        found = tape_stats(opened)
    if given["as_json"]:
        _write_json(found)
        return
    trials = counted_noun(found.trials, "trial")
    requests = counted_noun(found.requests, "request")
    echo_folded(f"{tape}: {trials}, {requests}, {found.bytes / 1024:.1f} KiB")
    for name, one in found.models.items():
        used = f"{one.input_tokens} tokens in, {one.output_tokens} out"
        asked = counted_noun(one.requests, "request")
        echo_folded(visible_line(f"{name or '(no model)'}: {asked}, {used}, {_cost(one.cost_usd)}"))
    echo_folded(
        f"A replay saves {_cost(found.cost_usd)} and {found.seconds:.1f} s of models' time."
    )


def _cost(usd: float | None) -> str:
    return "a cost that is not known" if usd is None else f"${usd:.4f}"


@command.command(
    "cut",
    short_help="Write a tape with one trial alone, for a bug report.",
    epilog=examples(
        "assay tape cut answers.tape --trial sum -o bug.tape",
        "assay tape cut answers.tape --trial sum:2 --arm with-skill -o bug.tape",
    ),
)
@_tape
@click.option(
    "--trial",
    "trial",
    required=True,
    metavar="ID",
    help="The prompt of the trial, and its number if there are several, as in sum:2.",
)
@click.option("--arm", metavar="NAME", help="The arm of an experiment. Default: the only one.")
@click.option(
    "-o",
    "--output",
    type=NamedFile(),
    required=True,
    metavar="TAPE",
    help="Write the new tape to this file.",
)
@overwrite_option
@debug_option
@help_option
def cut_command(tape: Path, trial: str, arm: str | None, output: Path, **given: Any) -> None:
    """Cut one trial out of TAPE, with its prompt, the agent's version and its set-up.

    It becomes trial 1 of its prompt, so that `capture` replays it on another machine.
    """
    refuse_same_file(tape, output)
    refuse_existing(output, overwrite=given["overwrite"])
    with Tape(tape) as opened:
        prompt, number = _trial(opened, trial)
        lane = cut(opened, output, prompt, number, arm)
        about = opened.about(lane)
    version = f"{lane.agent} {lane.version}".strip()
    echo_folded(
        f"{output}: {lane.words}{f', recorded with {version}' if version else ''}", err=True
    )
    options = (about.get("agent") or {}).get("options") or {}
    model = f" --model {options['model']}" if options.get("model") else ""
    isolation = (about.get("identity") or {}).get("isolation", "none")
    echo_folded(f"It ran with: {_set_up(about)}", err=True)
    echo_folded("Replay it anywhere with:", err=True)
    click.echo(f"  assay tape show {output} --prompts > prompts.jsonl", err=True)
    how = {"none": "", "isolate": " --isolate", "sandbox": " --sandbox"}.get(isolation, "")
    click.echo(
        visible_line(
            f"  assay capture prompts.jsonl -s {lane.agent or 'AGENT'}{model}{how} "
            f"--replay {output} -o replayed.jsonl"
        ),
        err=True,
    )


def _set_up(about: dict[str, Any]) -> str:
    """Say what the other machine needs, from the identity of the trial."""
    identity = about.get("identity") or {}
    found = [f"isolation {identity.get('isolation', 'none')}"]
    found += [f"{name} ({identity['offered'][name]})" for name in identity.get("offered") or ()]
    found += ["a file of MCP servers (--mcp)"] if identity.get("mcp") else []
    found += ["a workspace template"] if identity.get("template") else []
    found += [f"--env {name}" for name in identity.get("env") or ()]
    return visible_line(", ".join(found))


def _trial(opened: Tape, name: str) -> tuple[str, int | None]:
    """Return prompt and number; an id may have a colon of its own."""
    prompt, colon, number = name.rpartition(":")
    if colon and number.isdigit() and all(lane.prompt != name for lane in opened.lanes):
        return prompt, int(number)
    return name, None


@command.command(
    "prune",
    short_help="Remove what no replay uses.",
    epilog=examples(
        "assay tape prune answers.tape",
        "assay tape prune answers.tape --prompts prompts.jsonl -o smaller.tape",
    ),
)
@_tape
@click.option(
    "--prompts",
    type=_FILE,
    metavar="FILE",
    help="Keep only the trials of the prompts in this file. Default: of all prompts.",
)
@_output_option
@overwrite_option
@debug_option
@help_option
def prune_command(tape: Path, prompts: Path | None, output: Path | None, **given: Any) -> None:
    """Remove the lanes of TAPE that a later recording of the same trial takes the place of."""
    wanted = None if prompts is None else _ids(prompts)
    with _replacing(tape, output, overwrite=given["overwrite"]) as opened:
        before = tape.stat().st_size
        n_lanes, n_requests = prune(opened, output or tape, wanted)
    after = (output or tape).stat().st_size
    went = f"{counted_noun(n_lanes, 'lane')} with {counted_noun(n_requests, 'request')}"
    echo_folded(f"{went} removed: {before / 1024:.1f} KiB became {after / 1024:.1f} KiB", err=True)


def _ids(prompts: Path) -> set[str]:
    ref = PluginRef(name="prompts", options={"path": str(prompts)})
    return {prompt.id for prompt, _ in read_prompts(ref)}


@command.command(
    "scrub",
    short_help="Remove texts by pattern, and say what can still be replayed.",
    epilog=examples(
        "assay tape scrub answers.tape --pattern 'ACME-[0-9]+' -o clean.tape",
        "assay tape scrub answers.tape --pattern me@example.org --pattern ACME --overwrite",
    ),
)
@_tape
@click.option(
    "--pattern",
    "patterns",
    multiple=True,
    required=True,
    metavar="REGEX",
    help="Remove what fits this regular expression. May be repeated.",
)
@_output_option
@overwrite_option
@debug_option
@help_option
def scrub_command(tape: Path, patterns: Sequence[str], output: Path | None, **given: Any) -> None:
    """Replace what fits a pattern by [removed] in requests, results of tools and answers of TAPE.

    A replay has what models and tools wrote from the tape, so that they may be scrubbed. Where the
    prompt or the instructions of an agent had such a text, its request is not found any more: this
    is said for each lane.
    """
    compiled = [_compiled(pattern) for pattern in patterns]
    with _replacing(tape, output, overwrite=given["overwrite"]) as opened:
        found = scrub(opened, output or tape, compiled)
    n_texts = sum(one.n_texts for one in found)
    echo_folded(f"{counted_noun(n_texts, 'place')} changed.", err=True)
    for one in found:
        echo_folded(visible_line(_left_words(one)), err=True)


def _left_words(one: Scrubbed) -> str:
    left = f"{one.lane.words}: {one.n_left} of {counted_noun(one.n_requests, 'request')}"
    where = f"; {one.where} has a text that was removed" if one.where else ""
    return f"{left} can still be replayed{where}"


def _compiled(pattern: str) -> re.Pattern[str]:
    try:
        return re.compile(pattern)
    except re.error as error:
        msg = f"--pattern {pattern!r} is no regular expression: {error}"
        raise click.UsageError(msg) from error


def _replacing(tape: Path, output: Path | None, *, overwrite: bool) -> AbstractContextManager[Tape]:
    """Open a tape; one that is replaced has no other writer at the same time."""
    if output is None or (output.exists() and output.samefile(tape)):
        return TapeWriter(tape)
    refuse_existing(output, overwrite=overwrite)
    return Tape(tape)
