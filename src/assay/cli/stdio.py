"""Standard input and output of a command that serves a client until it goes away."""

import os
import select
import signal
import sys
from collections.abc import Iterator
from types import FrameType

from assay.cli.group import ENDING_SIGNALS

_WAKE_MS = 100
_BLOCK = 64 * 1024


def stop_at_signals() -> None:
    """From now on a signal is an ordinary end: it raises KeyboardInterrupt once."""
    for number in ENDING_SIGNALS:
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, _stop)


def read_lines(fd: int) -> Iterator[bytes]:
    """Yield lines as they come. No wait is long: a signal just before one would not end it."""
    poll = select.poll()
    poll.register(fd, select.POLLIN)
    parts: list[bytes] = []  # of a line that is longer than a block
    while True:
        if not poll.poll(_WAKE_MS):
            continue
        block = os.read(fd, _BLOCK)
        *ends, start = block.split(b"\n")
        for end in ends:
            yield b"".join([*parts, end, b"\n"])
            parts = []
        parts.append(start)
        if not block:
            if rest := b"".join(parts):
                yield rest
            return


def _stop(number: int, frame: FrameType | None) -> None:
    """Stop reading stdin: here a signal is an ordinary end, and one is enough."""
    ignore_signals()
    raise KeyboardInterrupt


def ignore_signals() -> None:
    """Let nothing interrupt what comes last."""
    for number in ENDING_SIGNALS:
        signal.signal(number, signal.SIG_IGN)


def write_stdout(line: bytes) -> None:
    """Bypass sys.stdout: if the client does not read, its lock would block our exit."""
    while line:
        line = line[os.write(sys.stdout.fileno(), line) :]
