"""Packed ids and columns come out exactly as they went in."""

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from assay.compare import packed, pairs
from assay.compare.packed import Ids, pack, repeated, union, unpack
from assay.compare.pairs import align
from assay.compare.runs import load_run

TEXTS = st.lists(st.text(st.characters(codec="utf-8"), max_size=5), max_size=30)


@given(TEXTS, st.data())
def test_ids_are_a_list_of_texts(texts: list[str], data: st.DataObject):
    ids = Ids.of(texts)
    assert list(ids) == texts
    assert ids == texts
    assert ids == Ids.of(texts)
    assert len(ids) == len(texts)
    some = data.draw(st.slices(len(texts)))
    assert ids[some] == texts[some]
    if texts:
        at = data.draw(st.integers(-len(texts), len(texts) - 1))
        assert ids[at] == texts[at]
        assert ids != Ids.of([*texts[:-1], texts[-1] + "x"])
    with pytest.raises(IndexError):
        ids[len(texts)]


@given(st.lists(st.integers(0, 9)))
def test_what_is_repeated_is_found(numbers: list[int]):
    found = repeated(np.array(numbers, np.int64)).tolist()
    assert found == [n for n, value in enumerate(numbers) if numbers.count(value) > 1]


VALUES = st.one_of(
    st.just(float("nan")), st.floats(allow_nan=False), st.sampled_from([0.1, 0.25, 1e6, 3.0])
)


@given(
    st.one_of(
        st.lists(VALUES, min_size=1, max_size=40).map(np.array),
        st.sampled_from([0.0, 1.0, float("nan")]).map(lambda value: np.full(5, value)),
        arrays(np.int64, st.integers(1, 20), elements=st.integers(-(2**62), 2**62)),
        arrays(np.uint32, st.integers(1, 20)),
        arrays(np.bool_, st.integers(1, 20)),
    )
)
def test_numbers_come_out_as_they_went_in(values: np.ndarray):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(packed, "FEW", 0)
        column = unpack(pack(values))
    assert column.dtype == values.dtype
    assert np.array_equal(column, values, equal_nan=values.dtype.kind == "f")


@given(st.lists(st.lists(st.text("abc", max_size=2), unique=True), min_size=1, max_size=4))
def test_all_ids_in_the_order_of_their_first_appearance(every: list[list[str]]):
    found = union([Ids.of(ids) for ids in every])
    assert found is not None
    ids, places = found
    assert list(ids) == list(dict.fromkeys(one for some in every for one in some))
    for mine, where in zip(every, places, strict=True):
        assert ids.take(where) == mine


def test_large_runs_are_aligned_as_small_ones_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    runs = []
    for name, ids in (("a", ["x", "y", "z"]), ("b", ["z", "new", "x"])):
        path = tmp_path / f"{name}.jsonl"
        rows = [
            {"id": i, "input": i, "output": "o", "trajectory": [], "timing": {"total": 1}}
            for i in ids
        ]
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
        runs.append(load_run(name, path, "capture", "category"))
    small = align(runs)
    monkeypatch.setattr(pairs, "FEW", 0)
    large = align(runs)
    assert isinstance(large.ids, Ids)
    assert list(large.ids) == list(small.ids) == ["x", "y", "z", "new"]
    assert large.where.tolist() == small.where.tolist()
