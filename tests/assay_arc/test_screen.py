"""Playing and replaying in a window of any size, and the progress of a run."""

import re
import shutil
from typing import Any

import pytest

from assay.records.capture import Grade, Timing
from assay.records.trial import Trial
from assay_arc.commands.play import _show, parse_keys
from assay_arc.commands.run import LevelCount
from assay_arc.commands.shared import Screen
from assay_arc.observe import fitting_scale, frame_ansi

DOT = bytes(5 if n else 9 for n in range(4096))
"""One pixel that differs, in the upper left corner."""


@pytest.mark.parametrize(
    ("window", "scale"), [((80, 40), 1), ((64, 32), 1), ((80, 24), 2), ((63, 90), 2), ((10, 5), 8)]
)
def test_a_frame_shrinks_until_it_fits(window: tuple[int, int], scale: int) -> None:
    assert fitting_scale(*window) == scale


@pytest.mark.parametrize("scale", [1, 2, 4, 8])
def test_what_is_small_is_still_seen(scale: int) -> None:
    drawn = frame_ansi(DOT, scale)
    lines = [re.sub(r"\x1b\[[0-9;]*m", "", line) for line in drawn.splitlines()]
    assert [len(line) for line in lines] == [64 // scale] * (32 // scale)
    assert frame_ansi(bytes([5]) * 4096, scale) != drawn


@pytest.mark.parametrize("window", [(80, 24), (64, 20), (40, 60), (120, 50)])
def test_the_whole_screen_fits_the_window(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], window: tuple[int, int]
) -> None:
    monkeypatch.setattr(shutil, "get_terminal_size", lambda: shutil.os.terminal_size(window))
    screen = Screen()
    capsys.readouterr()
    screen.draw(DOT, above=["title " * 20], below=["state\x1b[2J", "help " * 30])
    seen = capsys.readouterr().out
    assert "\\u001b[2J" in seen
    plain = re.sub(r"\x1b\[[0-9;]*[mHJK]", "", seen)
    lines = plain.rstrip("\n").split("\n")
    assert len(lines) < window[1]
    assert max(map(len, lines)) <= window[0]
    assert ("Drawn at 1/" in plain) == (screen.scale > 1)


def test_what_arc_play_shows_stays_in_80_by_24(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The result and the log are two lines more, and the cursor stands below them."""
    monkeypatch.setattr(shutil, "get_terminal_size", lambda: shutil.os.terminal_size((80, 24)))
    screen = Screen()
    capsys.readouterr()
    said = ["ACTION1", "NOT_FINISHED level 1 of 5, actions 2, resets 1", "nothing changed", "more"]
    _show({"text": "\n".join(said), "grid": "5" * 4096}, screen)
    assert screen.scale == 2
    assert capsys.readouterr().out.count("\n") + 2 < 24


def test_a_click_hits_what_is_drawn_there() -> None:
    assert parse_keys("\x1b[<0;5;3M") == [{"op": "click", "x": 4, "y": 4}]
    assert parse_keys("\x1b[<0;5;3M", 2) == [{"op": "click", "x": 8, "y": 8}]
    assert parse_keys("\x1b[<0;40;3M", 2) == []


def test_progress_counts_levels_and_score() -> None:
    def played(**outcome: Any) -> Trial:
        return Trial(
            id="g",
            input="q",
            output="",
            trajectory=[],
            metadata={},
            timing=Timing(start=0, end=1, total=1),
            grade=Grade(pass_=False, score=0.0, outcome=outcome),
        )

    count = LevelCount()
    assert count.text() == ""
    count.add(played(levelsCompleted=1, levels=4, scorePercent=20.0))
    count.add(played(levelsCompleted=2, levels=3, scorePercent=None))
    assert count.text() == "3/7 levels, score 20.0 / 100"
