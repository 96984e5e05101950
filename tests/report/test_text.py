"""Texts are cut where the seed cuts them, but never through a character."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay.report.text import fence, head, shorten

TEXTS = st.text(alphabet=st.sampled_from("aé漢😀𝄞\n\u200d`"), max_size=60)


def units(text: str) -> int:
    return len(text.encode("utf-16-le")) // 2


def test_an_emoji_on_the_border_is_left_out_whole():
    assert head("a" * 99 + "😀b", 100) == "a" * 99
    assert head("a" * 98 + "😀b", 100) == "a" * 98 + "😀"
    assert shorten("😀" * 51, 100) == "😀" * 50 + "..."
    assert shorten("😀" * 50, 100) == "😀" * 50


@given(TEXTS, st.integers(0, 40))
def test_the_head_is_the_longest_start_that_fits(text: str, limit: int):
    cut = head(text, limit)
    assert text.startswith(cut)
    assert units(cut) <= limit
    assert cut == text or units(text[: len(cut) + 1]) > limit
    cut.encode()


@given(TEXTS, st.integers(0, 40))
def test_dots_stand_exactly_behind_what_was_cut(text: str, limit: int):
    shown = shorten(text, limit)
    assert shown == (text if units(text) <= limit else head(text, limit) + "...")


@pytest.mark.parametrize("text", ["plain", "```py\nx\n```", "a ````` b ``` c"])
def test_no_text_ends_its_own_fence(text: str):
    mark = fence(text)
    assert mark not in text
    assert set(mark) == {"`"}
    assert len(mark) >= 3
