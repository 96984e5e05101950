"""Categories are counted, compared with an even spread, and talked about."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay.pipeline.balance import UNCATEGORIZED, analyse, category_of
from assay.records.spec import Prompt


def names(**counts: int) -> list[str]:
    return [name for name, n in counts.items() for _ in range(n)]


def test_the_seeds_example():
    found = analyse(names(ui=20, logic=15, api=10, edge=5), 50)
    assert [(c.name, c.count, c.percentage) for c in found.categories] == [
        ("ui", 20, 40),
        ("logic", 15, 30),
        ("api", 10, 20),
        ("edge", 5, 10),
    ]
    assert found.underrepresented == ["edge"]
    assert found.suggestions == ["Consider adding more test cases for: edge"]


def test_each_suggestion_has_its_reason():
    assert analyse(names(a=10, b=10), 50).suggestions == ["Test set appears well-balanced"]
    said = analyse(names(a=15, b=2), 50).suggestions
    assert [text.split()[0:2] for text in said] == [
        ["Consider", "adding"],
        ["Category", "'a'"],
        ["Categories", "with"],
        ["Consider", "expanding"],
    ]


def test_the_rounded_percentage_is_compared_as_in_the_seed():
    assert analyse(names(a=100, b=66, c=33), 50).underrepresented == []
    assert analyse(names(a=100, b=66, c=32), 50).underrepresented == ["c"]


def test_nothing_is_balanced_without_prompts():
    found = analyse([], 50)
    assert (found.total_cases, found.categories, found.underrepresented) == (0, [], [])
    assert "currently 0 cases" in found.suggestions[0]


@pytest.mark.parametrize(
    ("value", "name"),
    [
        ("ui", "ui"),
        ("", ""),
        (None, UNCATEGORIZED),
        (1, "1"),
        (1.0, "1"),
        (1.5, "1.5"),
        (True, "true"),
        (["a", "b"], "a,b"),
        ({"z": 1}, '{"z":1}'),
    ],
)
def test_values_become_names(value: Any, name: str):
    assert category_of(Prompt(id="p", input="x", metadata={"k": value}), "k") == name


def test_a_missing_key_is_uncategorized():
    assert category_of(Prompt(id="p", input="x"), "k") == UNCATEGORIZED


@given(st.lists(st.sampled_from("abcdef"), max_size=50), st.floats(0, 200))
def test_counts_add_up_and_fall(drawn: list[str], threshold: float):
    found = analyse(drawn, threshold)
    counts = [c.count for c in found.categories]
    assert sum(counts) == found.total_cases == len(drawn)
    assert counts == sorted(counts, reverse=True)
    assert set(found.underrepresented) <= {c.name for c in found.categories}
    assert found.suggestions
