"""assay arc browse: list the games, or show one."""

import os
import sys
from pathlib import Path
from typing import Any

import click
import msgspec

from assay.cli.help import examples
from assay.cli.options import with_options
from assay.cli.output import echo_raw
from assay.cli.parameters import help_option
from assay.cli.tables import draw_table, terminal
from assay.pipeline.stages import local_machine
from assay.records.text import counted_noun
from assay.report.text import number
from assay_arc import GameProblem
from assay_arc.catalog import GameInfo, find_game, list_games, tagged
from assay_arc.commands.shared import (
    Place,
    PlaceOptions,
    count_levels,
    need_toolkit,
    place_options,
)
from assay_arc.engine import engine_env
from assay_arc.log import Answer, unpack_frames
from assay_arc.observe import frame_ansi, grid_text
from assay_arc.report import best_percent, past_of_games

LOOK = (sys.executable, "-m", "assay_arc.engine_process", "look")


class BrowseOptions(PlaceOptions, frozen=True, kw_only=True):
    prefix: str
    tag: str | None
    seed: int
    source: bool


@click.command(
    short_help="List the games, or show one.",
    epilog=examples(
        "assay arc browse",
        "assay arc browse --tag keyboard",
        "assay arc browse ky01",
    ),
)
@click.argument("game", required=False)
@click.option(
    "--filter",
    "prefix",
    default="",
    metavar="PREFIX",
    help="List only games whose id starts with this.",
)
@click.option("--tag", metavar="NAME", help="List only games with this tag.")
@click.option(
    "--seed",
    type=int,
    default=0,
    metavar="N",
    help="Seed of the first frame that is shown. Default: 0.",
)
@click.option(
    "--source", is_flag=True, help="Also print the source of the game, which reveals its solution."
)
@with_options(place_options)
@help_option
def command(game: str | None, **given: Any) -> None:
    """List all games with levels, tags, baselines and the best score so far, or show GAME."""
    options = BrowseOptions(**given)
    place = options.open()
    if game is not None:
        info = find_game(game, place.games)
        _detail(place, info, options.seed)
        if options.source:
            click.echo("\n" + info.source.read_text(encoding="utf-8", errors="replace"))
    else:
        _listing(place, options.prefix, options.tag)


def _listing(place: Place, prefix: str, tag: str | None) -> None:
    found = list_games(place.games)
    if not found.games:
        msg = f"No ARC-AGI environments found in {place.games}."
        raise GameProblem(msg, hint="check the installation with: assay arc setup")
    chosen = [info for info in found.games if info.game_id.startswith(prefix)]
    if tag is not None:
        chosen = [info for info in chosen if info in tagged(found.games, tag)]
    if not chosen:
        asked = [f"--filter {prefix}"] if prefix else []
        asked += [f"--tag {tag}"] if tag is not None else []
        names = ", ".join(info.game_id for info in found.games[:10])
        msg = f"No game matches {' and '.join(asked)}."
        raise GameProblem(msg, hint=f"there are: {names}")
    levels = count_levels(chosen, place.store)
    past, unread = past_of_games(place.store)
    rows = []
    for info in chosen:
        seen = past.get(info.game_id, [])
        rows.append(
            [
                info.game_id,
                str(levels[info.game_id] or "?"),
                ", ".join(info.tags) or "-",
                _baselines(info, levels[info.game_id]),
                number(best_percent(seen)),
                f"{len(seen)}x" if seen else "no",
            ]
        )
    head = ["Game ID", "Levels", "Tags", "Baselines", "Best score", "Played"]
    draw_table(terminal(sys.stdout), "", head, rows)
    matching = f" ({len(chosen)} matching filter)" if len(chosen) != len(found.games) else ""
    total = counted_noun(len(found.games), "environment")
    click.echo(f"\nTotal: {total}{matching} in {_near(place.games)}")
    for problem in (*found.problems, *unread):
        click.echo(f"WARNING: {problem}", err=True)


def _baselines(info: GameInfo, levels: int | None) -> str:
    """Whether the game can be scored; the list does not reveal the numbers."""
    if info.baselines is None:
        return "none"
    if levels is not None and len(info.baselines) != levels:
        return f"{len(info.baselines)} for {levels} levels"
    return "known"


def _detail(place: Place, info: GameInfo, seed: int) -> None:
    need_toolkit()
    argv = (*LOOK, str(info.folder.resolve()), str(seed))
    done = local_machine().run(argv, env=engine_env(), timeout_s=120.0)
    if done.exit_code != 0:
        reason = done.stderr.decode("utf-8", "replace").strip().splitlines()[-1:] or ["no answer"]
        raise GameProblem(reason[0])
    seed_used, first = msgspec.json.decode(done.stdout, type=tuple[bool, Answer])
    frame = unpack_frames(first.frames)[-1]
    actions = [f"ACTION{n} ({'complex' if n == 6 else 'simple'})" for n in first.available_actions]
    levels = [", ".join(tags) or "-" for tags in info.level_tags]
    facts = [
        ("Game", f"{info.game_id}  {info.title}"),
        ("Tags", ", ".join(info.tags) or "-"),
        ("Levels", str(first.win_levels)),
        ("Level tags", " | ".join(levels) or "-"),
        ("Baselines", ", ".join(map(str, info.baselines or ())) or "none: it cannot be scored"),
        ("Grid", "64x64"),
        ("State", first.state),
        ("Seed", "changes the game" if seed_used else "not used by this game"),
        ("Actions", ", ".join(actions)),
        ("Source", f"{_near(info.source)} (sha256 {info.source_sha256[:16]})"),
    ]
    for name, value in facts:
        click.echo(f"{name + ':':12}{value}")
    click.echo()
    echo_raw(draw(frame))
    click.echo("\nHistory:")
    past, _ = past_of_games(place.store)
    lines = [one.line() for one in past.get(info.game_id, [])]
    for line in lines or ["No previous benchmark results found for this game."]:
        click.echo(f"  {line}")


def draw(frame: bytes) -> str:
    """Draw in colour on a terminal unless NO_COLOR is set; as text elsewhere."""
    coloured = sys.stdout.isatty() and "NO_COLOR" not in os.environ
    return frame_ansi(frame) if coloured else grid_text(frame)


def _near(path: Path) -> str:
    """The path relative to the current folder, unless that is longer."""
    relative = os.path.relpath(path)
    return relative if len(relative) < len(str(path)) else str(path)
