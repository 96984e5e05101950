"""Rows: unknown fields survive, errors name the place."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay.errors import InputError
from assay.records.rows import decode_row, encode_row, read_lines
from assay.records.spec import Prompt

names = st.text(min_size=1, max_size=8).filter(lambda n: n not in Prompt.__struct_fields__)
values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**60), 2**60) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=6,
)


@given(extra=st.dictionaries(names, values, max_size=4))
def test_unknown_fields_survive_a_round_trip(extra: dict) -> None:
    row = {"id": "a", "input": "x", **extra}
    record, unknown = decode_row("f:1", json.dumps(row).encode(), Prompt)
    assert unknown == extra
    assert json.loads(encode_row(record, unknown)) == row


def test_a_users_field_never_overwrites_ours() -> None:
    record, _ = decode_row("f:1", b'{"id":"a","input":"x"}', Prompt)
    assert json.loads(encode_row(record, {"id": "forged", "mine": 1})) == {
        "id": "a",
        "input": "x",
        "mine": 1,
    }


def test_lines_are_counted_as_an_editor_counts_them(tmp_path: Path) -> None:
    path = tmp_path / "f.jsonl"
    path.write_bytes(b'\xef\xbb\xbf{"a":1}\r\n\n  \n{"b":2}')
    assert list(read_lines(path)) == [(f"{path}:1", b'{"a":1}\r\n'), (f"{path}:4", b'{"b":2}')]


def test_a_missing_file_and_a_folder_are_named(tmp_path: Path) -> None:
    for path in (tmp_path / "nowhere", tmp_path):
        with pytest.raises(InputError, match=str(path)):
            list(read_lines(path))


@pytest.mark.parametrize(
    ("place", "file"), [("old rows.jsonl.gz:1", " old rows.jsonl.gz"), ("stdin:1", "")]
)
def test_a_compressed_file_is_named_in_the_command_that_reads_it(place: str, file: str) -> None:
    with pytest.raises(InputError, match=f"{place}: compressed with gzip") as raised:
        decode_row(place, b"\x1f\x8b\x08\x00", Prompt)
    assert raised.value.hint == f"decompress it first: zcat{file} | assay … -"
