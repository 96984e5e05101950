"""What a game process is told at its start: by environment or stdin, never on the command line."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import IO

import msgspec

from assay.benchmarks.arc_agi.log.records import Limits
from assay.benchmarks.arc_agi.problems import ServeProblem

VARIABLE = "ASSAY_ARC_GAME"
MAX_SOCKET_PATH = 100


class ServeConfig(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One game for one trial."""

    game: Path
    """The folder that holds metadata.json."""
    log: Path
    socket: Path
    token: str
    """The player's; every request carries it."""
    owner_token: str
    """The world's; only it can close the game with a reason."""
    seed: int = 0
    limits: Limits = Limits()
    stay_when_orphaned: bool = False


def read_config(environ: Mapping[str, str], stdin: IO[str]) -> ServeConfig:
    """Read the settings from the variable ASSAY_ARC_GAME, or else the first line of stdin."""
    text = environ.get(VARIABLE) or stdin.readline()
    try:
        config = msgspec.json.decode(text, type=ServeConfig, dec_hook=lambda kind, text: kind(text))
    except msgspec.DecodeError as error:
        message = f"the game process needs its settings as JSON in {VARIABLE} or on stdin: {error}"
        raise ServeProblem(message) from error
    _check(config)
    return config


def write_config(config: ServeConfig) -> str:
    """Write settings as read_config reads them."""
    return msgspec.json.encode(config, enc_hook=str).decode()


def open_socket_folder(socket: Path) -> None:
    """Make the folder of the socket, or check that nobody else can look into it."""
    folder = socket.parent
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    status = folder.lstat()
    if folder.is_symlink() or status.st_uid != os.getuid() or status.st_mode & 0o077:
        message = f"{folder}: the folder of the game's socket must be ours alone (mode 0700)"
        raise ServeProblem(message)


def _check(config: ServeConfig) -> None:
    if not all(path.is_absolute() for path in (config.game, config.log, config.socket)):
        message = "a game process needs absolute paths for its game, log and socket"
        raise ServeProblem(message)
    if len(os.fsencode(config.socket)) > MAX_SOCKET_PATH:
        message = f"{config.socket}: longer than {MAX_SOCKET_PATH} bytes; choose a shorter folder"
        raise ServeProblem(message)
    if len(config.token) < 16 or len(config.owner_token) < 16:
        message = "the tokens of a game process need at least 16 characters each"
        raise ServeProblem(message)
    if config.token == config.owner_token:
        message = "the player's token and the owner's token must differ"
        raise ServeProblem(message)
