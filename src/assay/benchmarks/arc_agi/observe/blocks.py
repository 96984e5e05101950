"""Finds the coarsest blocks that still show every pixel of a region, so that text can be short."""

from collections.abc import Sequence
from math import gcd

import msgspec

from assay.benchmarks.arc_agi.log.frames import SIDE

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
    columns = [_column(frames, x, y0, y1) for x in range(x0, x1)]
    rows = [_row(frames, y, x0, x1) for y in range(y0, y1)]
    xs, width = _cut(columns, x0, x1)
    ys, height = _cut(rows, y0, y1)
    return Blocks(xs=xs, ys=ys, width=width, height=height)


def changed_boxes(before: bytes, now: bytes) -> list[Box]:
    """Give boxes round the pixels that differ, split wherever a whole row or column is equal."""
    masks = {}
    for y in range(SIDE):
        old, new = before[y * SIDE : (y + 1) * SIDE], now[y * SIDE : (y + 1) * SIDE]
        if old != new:
            masks[y] = sum(1 << x for x in range(SIDE) if old[x] != new[x])
    return _split(masks) if masks else []


def _column(frames: Sequence[bytes], x: int, y0: int, y1: int) -> bytes:
    return b"".join(f[y0 * SIDE + x : (y1 - 1) * SIDE + x + 1 : SIDE] for f in frames)


def _row(frames: Sequence[bytes], y: int, x0: int, x1: int) -> bytes:
    return b"".join(f[y * SIDE + x0 : y * SIDE + x1] for f in frames)


def _cut(lines: Sequence[bytes], start: int, end: int) -> tuple[tuple[int, ...], int]:
    """Find the size of blocks along one axis, and where each begins."""
    edges = [i for i in range(1, len(lines)) if lines[i] != lines[i - 1]]
    if not edges:
        return (start,), end - start
    size = 0
    for edge in edges:
        size = gcd(size, edge - edges[0])
    size = size or max(edges[0], len(lines) - edges[0])
    first = edges[0] % size
    starts = ([start] if first else []) + list(range(start + first, end, size))
    return tuple(starts), size


def _split(masks: dict[int, int]) -> list[Box]:
    """Cut changed rows, each a mask of columns, at empty rows and columns until none is left."""
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
    """Join numbers that follow each other into spans."""
    runs: list[tuple[int, int]] = []
    for number in numbers:
        if runs and runs[-1][1] == number:
            runs[-1] = (runs[-1][0], number + 1)
        else:
            runs.append((number, number + 1))
    return runs
