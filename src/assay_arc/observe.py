"""Frames for players and people: as text, as a picture, in a terminal."""

import struct
import zlib
from collections import Counter
from collections.abc import Sequence
from math import gcd

import msgspec

from assay_arc.log import FRAME_BYTES, SIDE

Box = tuple[int, int, int, int]
WHOLE: Box = (0, 0, SIDE, SIDE)


class Blocks(msgspec.Struct, frozen=True, kw_only=True):
    """A region cut into equal blocks of one colour each; a first block may be cut by the edge."""

    xs: tuple[int, ...]
    ys: tuple[int, ...]
    width: int
    height: int


def find_blocks(frames: Sequence[bytes], box: Box = WHOLE) -> Blocks:
    """Cut a box into the largest blocks such that no frame changes colour inside any."""
    x0, y0, x1, y1 = box
    columns = [
        b"".join(f[y0 * SIDE + x : (y1 - 1) * SIDE + x + 1 : SIDE] for f in frames)
        for x in range(x0, x1)
    ]
    rows = [b"".join(f[y * SIDE + x0 : y * SIDE + x1] for f in frames) for y in range(y0, y1)]
    xs, width = _cut(columns, x0, x1)
    ys, height = _cut(rows, y0, y1)
    return Blocks(xs=xs, ys=ys, width=width, height=height)


def changed_boxes(before: bytes, now: bytes) -> list[Box]:
    """Return boxes round the pixels that differ, split wherever a whole row or column is equal."""
    masks = {}  # for each changed row, one bit for each changed column
    for y in range(SIDE):
        old, new = before[y * SIDE : (y + 1) * SIDE], now[y * SIDE : (y + 1) * SIDE]
        if old != new:
            masks[y] = sum(1 << x for x in range(SIDE) if old[x] != new[x])
    return _split(masks) if masks else []


def _cut(lines: Sequence[bytes], start: int, end: int) -> tuple[tuple[int, ...], int]:
    """Find where each block along one axis begins, and the size of blocks."""
    edges = [i for i in range(1, len(lines)) if lines[i] != lines[i - 1]]
    if not edges:
        return (start,), end - start
    # The largest size that fits all edges is the greatest common divisor of their distances.
    size = 0
    for edge in edges:
        size = gcd(size, edge - edges[0])
    # A single edge has no distances: the longer side of it is one block.
    size = size or max(edges[0], len(lines) - edges[0])
    first = edges[0] % size
    starts = ([start] if first else []) + list(range(start + first, end, size))
    return tuple(starts), size


def _split(masks: dict[int, int]) -> list[Box]:
    """Cut at unchanged rows and columns until none is left (a recursive X-Y cut)."""
    bands = _runs(sorted(masks))
    if len(bands) > 1:
        return [box for y0, y1 in bands for box in _split({y: masks[y] for y in range(y0, y1)})]
    union = 0
    for mask in masks.values():
        union |= mask
    runs = _runs([x for x in range(SIDE) if union >> x & 1])
    if len(runs) == 1:
        return [(runs[0][0], bands[0][0], runs[0][1], bands[0][1])]
    boxes = []
    for x0, x1 in runs:
        within = (1 << x1) - (1 << x0)
        boxes += _split({y: mask & within for y, mask in masks.items() if mask & within})
    return boxes


def _runs(numbers: Sequence[int]) -> list[tuple[int, int]]:
    """Join consecutive numbers into half-open spans."""
    runs: list[tuple[int, int]] = []
    for number in numbers:
        if runs and runs[-1][1] == number:
            runs[-1] = (runs[-1][0], number + 1)
        else:
            runs.append((number, number + 1))
    return runs


MAX_BOXES = 6
MAX_SHOWN_FRAMES = 8


def grid_text(frame: bytes) -> str:
    """Write the whole picture, one hex digit for each block of equal pixels, with its legend."""
    blocks = find_blocks([frame])
    names = [f"{value:x}={NAMES[value]}" for value in sorted(set(frame)) if value < len(NAMES)]
    colours = f"colours: {' '.join(names)}"
    return "\n".join([_scale_line(blocks), *_rows(frame, blocks), colours])


def change_text(before: bytes, now: bytes) -> str:
    """Write only what differs, old and new side by side; the whole picture if most of it does."""
    boxes = changed_boxes(before, now)
    if not boxes:
        return "nothing changed"
    if len(boxes) > MAX_BOXES:
        x0, y0, x1, y1 = zip(*boxes, strict=True)
        boxes = [(min(x0), min(y0), max(x1), max(y1))]
    if sum((x1 - x0) * (y1 - y0) for x0, y0, x1, y1 in boxes) > FRAME_BYTES // 2:
        return "most of the picture changed\n" + grid_text(now)
    return "\n".join(_box_text(before, now, box) for box in boxes)


def frames_text(frames: Sequence[bytes], before: bytes) -> str:
    """Write an animation as the changes from each frame to the next."""
    shown = list(frames[:MAX_SHOWN_FRAMES])
    lines = []
    for number, frame in enumerate(shown, 1):
        lines.append(f"frame {number} of {len(frames)}: {change_text(before, frame)}")
        before = frame
    return "\n".join(lines)


def _scale_line(blocks: Blocks) -> str:
    if blocks.width == blocks.height == 1:
        return f"grid {SIDE}x{SIDE}, one hex digit per pixel, x from the left, y from the top"
    return (
        f"grid {SIDE}x{SIDE}, one hex digit = {blocks.width}x{blocks.height} pixels; "
        f"columns begin at x = {_starts(blocks.xs)}"
    )


def _starts(xs: Sequence[int]) -> str:
    """Where columns begin; the first may be narrower when the picture is not aligned."""
    if len(xs) < 4:
        return ", ".join(map(str, xs))
    return f"{xs[0]}, {xs[1]}, {xs[2]}, ... {xs[-1]}"


def _rows(frame: bytes, blocks: Blocks) -> list[str]:
    """Write the rows; equal rows that follow each other become one line."""
    texts = [_row_text(frame, blocks, y) for y in blocks.ys]
    ends = [*blocks.ys[1:], SIDE]
    lines: list[tuple[int, int, str]] = []
    for start, end, text in zip(blocks.ys, ends, texts, strict=True):
        if lines and lines[-1][2] == text:
            lines[-1] = (lines[-1][0], end, text)
        else:
            lines.append((start, end, text))
    return [f"y{_span(start, end)} {text}" for start, end, text in lines]


def _row_text(frame: bytes, blocks: Blocks, y: int) -> str:
    return bytes(frame[y * SIDE + x] for x in blocks.xs).translate(DIGITS).decode("ascii")


def _box_text(before: bytes, now: bytes, box: Box) -> str:
    """Write one changed box as rows of old -> new."""
    x0, y0, x1, y1 = box
    blocks = find_blocks([before, now], box)
    head = f"changed x{_span(x0, x1)} y{_span(y0, y1)}"
    pairs = [(_row_text(before, blocks, y), _row_text(now, blocks, y)) for y in blocks.ys]
    if len(pairs) == 1:
        return f"{head}: {pairs[0][0]} -> {pairs[0][1]}"
    rows = [f"y{y} {a} -> {b}" for y, (a, b) in zip(blocks.ys, pairs, strict=True)]
    return "\n".join([f"{head} (digit = {blocks.width}x{blocks.height})", *rows])


def _span(start: int, end: int) -> str:
    return f"{start}-{end - 1}" if end - start > 1 else str(start)


PALETTE = """
white ffffff  light-grey cccccc  grey 999999  dark-grey 666666
charcoal 333333  black 000000  magenta e53aa3  pink ff7bcc
red f93c31  blue 1e93ff  light-blue 88d8f1  yellow ffdc00
orange ff851b  maroon 921231  green 4fcc30  purple a356d6
"""
NAMES = PALETTE.split()[::2]
RGB = [tuple(bytes.fromhex(code)) for code in PALETTE.split()[1::2]]
# One character for each byte value; anything beyond the palette is a question mark.
DIGITS = bytes.maketrans(bytes(range(256)), b"0123456789abcdef" + b"?" * 240)


SIGNATURE = b"\x89PNG\r\n\x1a\n"
SCALE = 8


def frame_png(frame: bytes, scale: int = SCALE) -> bytes:
    """Draw one frame, each pixel as a square of `scale` pixels."""
    rows = []
    for y in range(SIDE):
        pixels = bytes(min(value, len(RGB) - 1) for value in frame[y * SIDE : (y + 1) * SIDE])
        wide = b"".join(pixels[x : x + 1] * scale for x in range(SIDE))
        rows.append((b"\x00" + wide) * scale)  # every row begins with its filter: 0, none
    side = SIDE * scale
    # 8 bits a pixel, colour type 3: indices into the palette.
    header = struct.pack(">IIBBBBB", side, side, 8, 3, 0, 0, 0)
    palette = b"".join(bytes(rgb) for rgb in RGB)
    data = zlib.compress(b"".join(rows), 9)
    chunks = ((b"IHDR", header), (b"PLTE", palette), (b"IDAT", data), (b"IEND", b""))
    return SIGNATURE + b"".join(
        struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))
        for kind, body in chunks
    )


# Upper half block: the foreground colours one pixel, the background the one below it.
UPPER = "\u2580"
RESET = "\x1b[0m"
UNKNOWN = (0xFF, 0x00, 0xFF)


def fitting_scale(columns: int, lines: int) -> int:
    """By how much a frame must shrink to fit into a window: 1, 2, 4 or 8 pixels become one."""
    fits = (s for s in (1, 2, 4, 8) if SIDE // s <= columns and SIDE // (2 * s) <= lines)
    return next(fits, 8)


def frame_ansi(frame: bytes, scale: int = 1) -> str:
    """Draw 64x64 pixels as 32 lines of 64 characters; a colour is written only when it changes.

    With a scale of 2 there are 16 lines of 32 characters.
    """
    frame, side = _shrunk(frame, scale), SIDE // scale
    lines = []
    for y in range(0, side, 2):
        parts, before = [], None
        for x in range(side):
            pair = (frame[y * side + x], frame[(y + 1) * side + x])
            if pair != before:
                parts.append(_colours(*pair))
                before = pair
            parts.append(UPPER)
        lines.append("".join(parts) + RESET)
    return "\n".join(lines)


def _shrunk(frame: bytes, scale: int) -> bytes:
    """Put squares of pixels together; of several colours the one that is rarest in the frame.

    Most of a frame is background: what a player must see is small.
    """
    if scale == 1:
        return frame
    n_of = Counter(frame)
    squares = (
        {frame[(y + dy) * SIDE + x + dx] for dy in range(scale) for dx in range(scale)}
        for y in range(0, SIDE, scale)
        for x in range(0, SIDE, scale)
    )
    return bytes(min(colours, key=lambda colour: (n_of[colour], colour)) for colours in squares)


def grid_frame(grid: str) -> bytes:
    """Read a grid of hex digits, as in a game's answer, back into a frame."""
    return bytes(int(digit, 16) if digit != "?" else 255 for digit in grid)


def _colours(upper: int, lower: int) -> str:
    r, g, b = _rgb(upper)
    r2, g2, b2 = _rgb(lower)
    return f"\x1b[38;2;{r};{g};{b};48;2;{r2};{g2};{b2}m"


def _rgb(value: int) -> tuple[int, ...]:
    return RGB[value] if value < len(RGB) else UNKNOWN
