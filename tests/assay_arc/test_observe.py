"""Observations: short, and nothing is lost: every pixel can be read back from the text."""

import io
import json
import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from assay_arc.observe import (
    change_text,
    changed_boxes,
    find_blocks,
    frame_png,
    frames_text,
    grid_text,
)


def paint(*boxes, background=4):
    frame = np.full((64, 64), background, dtype=np.uint8)
    for x0, y0, x1, y1, colour in boxes:
        frame[y0:y1, x0:x1] = colour
    return frame.tobytes()


def read_grid(text):
    """Read a grid back from its text alone, as a player would."""
    head, *rows = [line for line in text.splitlines() if line.startswith(("grid", "y"))]
    size = re.search(r"one hex digit = (\d+)x(\d+)", head)
    starts = _starts(head, int(size[1])) if size else list(range(64))
    frame = np.zeros((64, 64), dtype=np.uint8)
    for row in rows:
        span, digits = row.split(" ")
        y0, _, y1 = span[1:].partition("-")
        ends = [*starts[1:], 64]
        for x0, x1, digit in zip(starts, ends, digits, strict=True):
            frame[int(y0) : int(y1 or y0) + 1, x0:x1] = int(digit, 16)
    return frame.tobytes()


def _starts(head, width):
    named = head.split("x = ")[1].replace("... ", "").split(", ")
    first = [int(n) for n in named]
    if "..." not in head:
        return first
    return [first[0], *range(first[1], first[-1] + 1, width)]


boxes = st.lists(
    st.tuples(
        st.integers(0, 15),
        st.integers(0, 15),
        st.integers(0, 16),
        st.integers(0, 16),
        st.integers(0, 15),
    ),
    max_size=6,
)


@settings(max_examples=150, deadline=None)
@given(boxes=boxes, scale=st.sampled_from([1, 2, 3, 4]), dx=st.integers(0, 5), dy=st.integers(0, 5))
def test_a_grid_can_be_read_back_from_its_text(boxes, scale, dx, dy):
    scaled = [
        (x0 * scale + dx, y0 * scale + dy, x1 * scale + dx, y1 * scale + dy, c)
        for x0, y0, x1, y1, c in boxes
    ]
    frame = paint(*scaled)
    assert read_grid(grid_text(frame)) == frame


@settings(max_examples=100, deadline=None)
@given(before=boxes, after=boxes)
def test_changed_boxes_cover_every_changed_pixel(before, after):
    a, b = paint(*before), paint(*after)
    patched = np.frombuffer(a, np.uint8).reshape(64, 64).copy()
    new = np.frombuffer(b, np.uint8).reshape(64, 64)
    for x0, y0, x1, y1 in changed_boxes(a, b):
        patched[y0:y1, x0:x1] = new[y0:y1, x0:x1]
    assert patched.tobytes() == b
    assert change_text(a, b)


def test_blocks_of_an_even_picture_are_coarse():
    blocks = find_blocks([paint((8, 8, 16, 16, 0))])
    assert (blocks.width, blocks.height) == (8, 8)


def test_a_move_reads_as_old_and_new():
    text = change_text(paint((8, 8, 16, 16, 0)), paint((16, 8, 24, 16, 0)))
    assert text == "changed x8-23 y8-15: 04 -> 40"


def test_two_far_changes_are_two_boxes():
    text = change_text(paint(), paint((0, 0, 2, 2, 8), (60, 60, 61, 61, 9)))
    assert text.splitlines() == ["changed x0-1 y0-1: 4 -> 8", "changed x60 y60: 4 -> 9"]


def test_nothing_and_nearly_everything():
    assert change_text(paint(), paint()) == "nothing changed"
    assert "grid 64x64" in change_text(paint(), paint((0, 0, 64, 60, 3)))


def test_an_animation_is_told_frame_by_frame():
    text = frames_text([paint((0, 0, 4, 4, 1)), paint((0, 0, 4, 4, 2))], paint())
    assert text.splitlines() == [
        "frame 1 of 2: changed x0-3 y0-3: 4 -> 1",
        "frame 2 of 2: changed x0-3 y0-3: 1 -> 2",
    ]


def test_noise_is_still_readable():
    rng = np.random.default_rng(0)
    frame = rng.integers(0, 16, 4096, dtype=np.uint8).tobytes()
    assert read_grid(grid_text(frame)) == frame
    assert len(grid_text(frame)) < 4700


@pytest.mark.parametrize(
    "game_id", ["ky01-v1", "od01-v1", "tg01-v1", "so01-v1", "mx01-v1", "gd01-v1"]
)
def test_observations_are_a_tenth_of_the_json_frames(table, solutions, game_id):
    game = table(game_id)
    text, frames = 0, 0
    for step in (step for way in solutions[game_id] for step in way):
        reply = game.step(step)
        text += len(reply["text"].encode())
        frames += sum(len(json.dumps(_rows(frame))) for frame in game.session.seen.frames)
    assert text * 10 < frames
    look = len(game.do("look")["text"].encode())
    assert look * 10 < len(json.dumps(_rows(game.session.seen.frame)))


def _rows(frame):
    return np.frombuffer(frame, np.uint8).reshape(64, 64).tolist()


def test_the_picture_is_a_png_of_the_same_pixels():
    from PIL import Image

    frame = paint((3, 5, 10, 20, 8), (30, 30, 40, 41, 15))
    image = Image.open(io.BytesIO(frame_png(frame, 2)))
    assert image.size == (128, 128)
    assert image.convert("RGB").getpixel((7, 11)) == (0xF9, 0x3C, 0x31)
    assert image.convert("RGB").getpixel((0, 0)) == (0x33, 0x33, 0x33)
    pixels = np.asarray(image)[::2, ::2]
    assert pixels.astype(np.uint8).tobytes() == frame
