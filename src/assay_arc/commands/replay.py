"""assay arc replay: watch a game of a run again."""

import sys
import textwrap
import time
from typing import Any

import click

from assay.cli.help import examples
from assay.cli.options import with_options
from assay.cli.output import echo_raw
from assay.cli.parameters import help_option
from assay.records.text import counted_noun, visible
from assay_arc import StoreProblem
from assay_arc.cards import intact_log, read_card
from assay_arc.commands.shared import Screen, StoreOptions, store_options
from assay_arc.log import Event, read_log, unpack_frames
from assay_arc.observe import change_text, grid_text
from assay_arc.report import missing_game
from assay_arc.store import GameRow, StoredRun, TrialRow
from assay_arc.stuck import read_effort, thoughts_before

HIDE, SHOW = "\x1b[?25l", "\x1b[?25h"


class ReplayOptions(StoreOptions, frozen=True, kw_only=True):
    trial: int
    fps: float
    first: int
    text: bool


@click.command(
    short_help="Watch a game of a run again.",
    epilog=examples(
        "assay arc replay latest ky01 --fps 10",
        "assay arc replay latest ky01 --text --from 3",
    ),
)
@click.argument("run")
@click.argument("game")
@click.option(
    "--trial",
    type=click.IntRange(min=1),
    default=1,
    metavar="N",
    help="Number of the trial to show. Default: 1.",
)
@click.option(
    "--fps",
    type=click.FloatRange(min=0, min_open=True),
    default=5.0,
    metavar="N",
    help="Frames per second. Default: 5.",
)
@click.option(
    "--from",
    "first",
    type=click.IntRange(min=0),
    default=0,
    metavar="N",
    help="Start at this action. Default: 0.",
)
@click.option(
    "--text",
    is_flag=True,
    help="Print what changed at each action as text, instead of an animation.",
)
@with_options(store_options)
@help_option
def command(run: str, game: str, **given: Any) -> None:
    """Show what happened in GAME of RUN, frame by frame, until the end or Ctrl-C.

    RUN is an id, the beginning of an id, `latest` or `previous`.
    """
    options = ReplayOptions(**given)
    stored = options.store.find(run)
    row, trial = _find(stored, game, options.trial)
    if trial.log is None:
        msg = f"{row.id} of run {stored.meta.run_id} has no log: it was imported without one"
        raise StoreProblem(msg, hint="only games with a log can be replayed")
    log = read_log(intact_log(stored, trial.log))
    events = [event for event in log.events if event.answer is not None]
    title = f"{row.id}, {stored.label}, trial {trial.trial}"
    thoughts = thoughts_before(log, events, read_effort(stored, trial.log))
    if options.text or not sys.stdout.isatty():
        _print_changes(title, events, thoughts, options.first)
    else:
        _animate(title, events, thoughts, options.first, 1 / options.fps)
    click.echo(
        f"{trial.levels_completed}/{trial.total_levels} levels, "
        f"{counted_noun(trial.actions, 'action')}, "
        f"{counted_noun(trial.resets, 'reset')}, stopped: {trial.stop_reason.replace('_', ' ')}"
    )


def _find(stored: StoredRun, game: str, number: int) -> tuple[GameRow, TrialRow]:
    card = read_card(stored)
    found = [row for row in card.games if row.id == game or row.id.split("-")[0] == game]
    if not found:
        raise missing_game(stored, card, game)
    for trial in found[0].trials:
        if trial.trial == number:
            return found[0], trial
    msg = f"{found[0].id} has no trial {number} in run {stored.meta.run_id}"
    raise StoreProblem(msg, hint=f"it has {len(found[0].trials)}")


type Thoughts = list[list[str]]
"""What the agent told itself before each action, and after the last."""


def _animate(
    title: str, events: list[Event], thoughts: Thoughts, first: int, pause_s: float
) -> None:
    screen = Screen()
    echo_raw(HIDE, nl=False)
    try:
        for number, event in enumerate(events):
            if number < first or event.answer is None:
                continue
            for frame in unpack_frames(event.answer.frames):
                above = [title, _line(number, event), *_shorter(thoughts[number][-1:])]
                screen.draw(frame, above=above)
                time.sleep(pause_s)
    finally:
        echo_raw(SHOW, nl=False)


def _shorter(texts: list[str]) -> list[str]:
    return [textwrap.shorten(text, 150, placeholder=" ...") for text in texts]


def _print_changes(title: str, events: list[Event], thoughts: Thoughts, first: int) -> None:
    click.echo(title)
    before, level = None, -1
    for number, event in enumerate(events):
        if event.answer is None:
            continue
        frame = unpack_frames(event.answer.frames)[-1]
        if number >= first:
            for text in thoughts[number]:
                click.echo(f"\nThought: {visible(text)}")
            click.echo(f"\n{_line(number, event)}")
            if before is None or event.answer.levels_completed != level:
                click.echo(grid_text(frame))
            else:
                click.echo(change_text(before, frame))
        before, level = frame, event.answer.levels_completed
    for text in thoughts[-1]:
        click.echo(f"\nThought: {visible(text)}")


def _line(number: int, event: Event) -> str:
    answer = event.answer
    place = f" x{event.x} y{event.y}" if event.x is not None else ""
    if answer is None:
        return f"{number}. {event.action}{place}"
    level = min(answer.levels_completed + 1, answer.win_levels)
    full = " (new game)" if event.action == "RESET" and answer.full_reset else ""
    return (
        f"{number}. {event.action}{place}{full}  {answer.state}  level {level} of "
        f"{answer.win_levels}  actions {event.counters.play_actions}"
    )
