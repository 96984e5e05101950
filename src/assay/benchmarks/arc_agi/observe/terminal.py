"""Draws a frame in a terminal: half blocks in true colour, two pixels to a character."""

from assay.benchmarks.arc_agi.log.frames import SIDE
from assay.benchmarks.arc_agi.observe.palette import RGB

UPPER = "\u2580"
RESET = "\x1b[0m"
UNKNOWN = (0xFF, 0x00, 0xFF)


def frame_ansi(frame: bytes) -> str:
    """Draw 64x64 pixels as 32 lines of 64 characters; a colour is written only when it changes."""
    lines = []
    for y in range(0, SIDE, 2):
        parts, before = [], None
        for x in range(SIDE):
            pair = (frame[y * SIDE + x], frame[(y + 1) * SIDE + x])
            if pair != before:
                parts.append(_colours(*pair))
                before = pair
            parts.append(UPPER)
        lines.append("".join(parts) + RESET)
    return "\n".join(lines)


def grid_frame(grid: str) -> bytes:
    """Read a grid of hex digits, as a game's answers have it, back into a frame."""
    return bytes(int(digit, 16) if digit != "?" else 255 for digit in grid)


def _colours(upper: int, lower: int) -> str:
    r, g, b = _rgb(upper)
    r2, g2, b2 = _rgb(lower)
    return f"\x1b[38;2;{r};{g};{b};48;2;{r2};{g2};{b2}m"


def _rgb(value: int) -> tuple[int, int, int]:
    return RGB[value] if value < len(RGB) else UNKNOWN
