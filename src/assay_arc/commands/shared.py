"""What the arc commands share: where runs and games are, and the engine in a child process."""

import shutil
import sys
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import click
import msgspec

from assay.cli.output import echo_raw
from assay.cli.parameters import Decorator, debug_option
from assay.cli.tables import draw_markdown, terminal
from assay.errors import PluginError
from assay.pipeline.stages import local_machine
from assay.records.text import visible_line
from assay_arc.catalog import BUILT_IN, GameInfo, level_counts
from assay_arc.engine import engine_env
from assay_arc.observe import fitting_scale, frame_ansi
from assay_arc.store import (
    BUILT_IN_NAME,
    CONFIG,
    FOLDER,
    Store,
    StoreConfig,
    games_folder,
    read_config,
)

_HOME, _CLEAR = "\x1b[H", "\x1b[2J"
PROBE = (sys.executable, "-m", "assay_arc.engine_process", "probe")
PROBE_S = 300.0

store_option: Decorator = click.option(
    "--store",
    "root",
    type=click.Path(path_type=Path, file_okay=False),
    default=FOLDER,
    metavar="DIR",
    help=f"Folder that holds all runs. Default: {FOLDER}.",
)
games_option: Decorator = click.option(
    "--env-dir",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="Folder of games, or `builtin` for the games that ship with Assay. "
    "Default: environment_files if it has games, otherwise builtin.",
)
store_options: list[Decorator] = [store_option, debug_option]
place_options: list[Decorator] = [games_option, store_option, debug_option]


class StoreOptions(msgspec.Struct, frozen=True, kw_only=True):
    root: Path
    debug: bool

    @property
    def store(self) -> Store:
        return Store(self.root.absolute())


class PlaceOptions(StoreOptions, frozen=True, kw_only=True):
    env_dir: Path | None

    def open(self) -> "Place":
        """Read the configuration and find the games."""
        return open_place(self.root, self.env_dir)


@dataclass(frozen=True)
class Place:
    """The store of this folder, its configuration and its games."""

    store: Store
    config: StoreConfig
    games: Path


def open_place(root: Path, env_dir: Path | None) -> Place:
    root = root.absolute()
    config = read_config(root)
    games = games_folder(root, config, env_dir)
    asked = BUILT_IN_NAME in (str(env_dir), config.environments_dir)
    if games == BUILT_IN and not asked and (root / CONFIG).is_file():
        where = f"{config.environments_dir} (environments_dir in {CONFIG})"
        click.echo(f"Games: those that ship with Assay, since {where} has none.", err=True)
    return Place(Store(root), config, games)


def count_levels(games: Sequence[GameInfo], store: Store) -> dict[str, int | None]:
    """Return the levels of each game; the engine is started only for sources not in the cache."""
    return level_counts(games, store.root / "levels.json", _probe)


class Screen:
    """The window of a terminal, in which a frame and some lines of text are drawn."""

    def __init__(self) -> None:
        self.scale = 1
        """How many pixels of the frame one drawn pixel stands for."""
        echo_raw(_CLEAR, nl=False)

    def draw(
        self, frame: bytes | None, *, above: Sequence[str] = (), below: Sequence[str] = ()
    ) -> None:
        """Draw everything anew, so that it fits: a frame that is too large is drawn smaller."""
        window = shutil.get_terminal_size()
        texts = [_folded(lines, window.columns) for lines in (above, below)]
        room = window.lines - sum(map(len, texts)) - 1
        self.scale = fitting_scale(window.columns, room)
        if self.scale > 1:
            note = f"Drawn at 1/{self.scale}; whole in a window of 64 x {window.lines - room + 32}."
            texts[1] += _folded([note], window.columns)
            self.scale = fitting_scale(window.columns, window.lines - sum(map(len, texts)) - 1)
        drawn = [] if frame is None else frame_ansi(frame, self.scale).splitlines()
        # Each line is emptied to its end, and the rest of the window below the last one.
        lines = [*texts[0], *drawn, *texts[1]]
        echo_raw(_HOME + "\n".join(f"{line}\x1b[K" for line in lines) + "\x1b[J")


def _folded(lines: Sequence[str], columns: int) -> list[str]:
    return [part for line in lines for part in textwrap.wrap(visible_line(line), columns) or [""]]


def show_markdown(text: str, form: str | None) -> None:
    """Print a report as it is, or drawn for a person: the default at a terminal."""
    if form == "table" or (form is None and sys.stdout.isatty()):
        draw_markdown(terminal(sys.stdout), text)
    else:
        click.echo(text, nl=False)


def need_toolkit() -> str:
    """Return the version of arc-agi, or raise with a hint how to install it."""
    try:
        return version("arc-agi")
    except PackageNotFoundError as error:
        msg = "arc-agi is not installed"
        raise PluginError(msg, hint="in a checkout of Assay: pip install '.[arc]'") from error


def _probe(games: Sequence[GameInfo]) -> dict[str, int | None]:
    need_toolkit()
    lines = "".join(f"{info.folder.resolve()}\n" for info in games)
    done = local_machine().run(PROBE, stdin=lines.encode(), env=engine_env(), timeout_s=PROBE_S)
    try:
        counts: dict[str, Any] = msgspec.json.decode(done.stdout)
    except msgspec.DecodeError:
        return {}
    return counts
