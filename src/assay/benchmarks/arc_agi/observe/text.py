"""Writes a game's picture as short text: what changed first, the whole grid when asked for."""

from collections.abc import Sequence

from assay.benchmarks.arc_agi.log.frames import FRAME_BYTES, SIDE
from assay.benchmarks.arc_agi.observe.blocks import Blocks, Box, changed_boxes, find_blocks
from assay.benchmarks.arc_agi.observe.palette import DIGITS, NAMES

MAX_BOXES = 6
MAX_SHOWN_FRAMES = 8


def grid_text(frame: bytes) -> str:
    """Write the whole picture, one hex digit for each block of equal pixels, with its legend."""
    blocks = find_blocks([frame])
    lines = [_scale_line(blocks), *_rows(frame, blocks), _legend(frame)]
    return "\n".join(lines)


def change_text(before: bytes, now: bytes) -> str:
    """Write only what differs, old and new side by side; the whole picture if most of it does."""
    boxes = changed_boxes(before, now)
    if not boxes:
        return "nothing changed"
    if len(boxes) > MAX_BOXES:
        boxes = [_hull(boxes)]
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
    """Say where columns begin; the first may be narrower when the picture is not aligned."""
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


def _legend(frame: bytes) -> str:
    used = sorted(set(frame))
    names = (f"{value:x}={NAMES[value]}" for value in used if value < len(NAMES))
    return "colours: " + " ".join(names)


def _span(start: int, end: int) -> str:
    return f"{start}-{end - 1}" if end - start > 1 else str(start)


def _hull(boxes: Sequence[Box]) -> Box:
    x0, y0, x1, y1 = zip(*boxes, strict=True)
    return min(x0), min(y0), max(x1), max(y1)
