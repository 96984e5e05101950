"""Shuts off what the toolkit does unasked: .env loading, logging to stdout, settings, network."""

import logging
import os
import sys

# Settings that would change which games are found, how resets count, or who is called.
SETTINGS = (
    "ARC_API_KEY",
    "ARC_BASE_URL",
    "OPERATION_MODE",
    "ENVIRONMENTS_DIR",
    "RECORDINGS_DIR",
    "ONLY_RESET_LEVELS",
    "STALE_MINUTES",
    "MAX_OPEN_FOR_MINUTES",
)


def silence_toolkit() -> logging.Logger:
    """Import arc_agi so that it reads no .env and prints nothing; give the logger to hand to it."""
    for name in SETTINGS:
        os.environ.pop(name, None)
    before = os.environ.get("PYTHON_DOTENV_DISABLED")
    os.environ["PYTHON_DOTENV_DISABLED"] = "1"
    try:
        import arc_agi.scorecard
    finally:
        os.environ.pop("PYTHON_DOTENV_DISABLED")
        if before is not None:
            os.environ["PYTHON_DOTENV_DISABLED"] = before
    _mute(arc_agi.scorecard.logger)
    logger = logging.getLogger("assay.arc_agi.toolkit")
    _mute(logger)
    return logger


def shut_network() -> None:
    """Refuse every connection of this process but local sockets, for as long as it lives."""
    sys.addaudithook(_refuse_network)


def _refuse_network(event: str, args: tuple[object, ...]) -> None:
    if event in ("socket.getaddrinfo", "socket.gethostbyname"):
        message = "a game process has no network"
        raise PermissionError(message)
    if event in ("socket.connect", "socket.bind", "socket.sendto") and not isinstance(
        args[1], str | bytes
    ):
        message = "a game process has no network"
        raise PermissionError(message)


def _mute(logger: logging.Logger) -> None:
    logger.handlers.clear()
    logger.addHandler(logging.NullHandler())
    logger.propagate = False
