"""Rows are found, counted and named by their line, whatever stands between them."""

import io
import os
import threading
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay.errors import InputError
from assay.records.rows import RowFile, open_rows


class Row(msgspec.Struct):
    id: str


DECODER = msgspec.json.Decoder(Row)
FILLER = '"pad":"' + "x" * 3000 + '"'


def rows_of(data: bytes) -> list[str]:
    return [row.id for row in RowFile("f", io.BytesIO(data)).rows(DECODER)]


def text_of(data: bytes) -> bytes:
    return b"".join(RowFile("f", io.BytesIO(data)).texts())


def test_bom_crlf_blank_lines_and_a_missing_last_line_feed_are_fine():
    data = b'\xef\xbb\xbf{"id":"a"}\r\n\n   \n{"id":"b"}\n{"id":"c"}'
    assert rows_of(data) == ["a", "b", "c"]


def test_rows_over_many_blocks_are_all_there():
    data = "".join(f'{{"id":"{i}",{FILLER}}}\n' for i in range(500)).encode()
    assert rows_of(data) == [str(i) for i in range(500)]


@pytest.mark.parametrize("bad_at", [1, 2, 130, 499, 500])
def test_a_bad_row_is_named_by_its_line_in_any_block(bad_at: int):
    lines = [f'{{"id":"{i}",{FILLER}}}' for i in range(1, 501)]
    lines[bad_at - 1] = '{"id": 7}'
    with pytest.raises(InputError, match=rf"^f:{bad_at}: Expected `str`, got `int` - at `\$.id`"):
        rows_of("\n".join(lines).encode())


def test_blank_lines_count_in_the_line_number():
    with pytest.raises(InputError, match=r"^f:4: missing field `id`"):
        rows_of(b'{"id":"a"}\n\n\n{}\n')


@pytest.mark.parametrize(
    ("line", "why"),
    [
        (b"nope", "not a JSON object"),
        (b'{"id":"a"', "not a JSON object"),
        (b'{"id":"\xff"}', "not UTF-8"),
        (b"[" * 100_000, "nested too deeply|Expected `object`"),
        (b"[1]", "Expected `object`"),
    ],
)
def test_what_is_wrong_is_said(line: bytes, why: str):
    with pytest.raises(InputError, match=f"f:2: .*({why})"):
        rows_of(b'{"id":"a"}\n' + line + b"\n")


@pytest.mark.parametrize(
    ("data", "line"),
    [
        (b'{"id":"a"}{"id":"b"}\n\n', 1),
        (b'{"id":"a"}\n{"id":"b"} {"id":"c"}\n\n', 2),
        (b'{"id":"a"}\n{\n"id":"b"\n}\n', 2),
        (b'{"id":"a"}\r{"id":"b"}\n', 1),
        (b'{"id":"a"}{"id":\n"b"}\n', 1),
    ],
)
def test_a_line_holds_one_whole_row(data: bytes, line: int):
    """Rows side by side and rows over several lines are JSON, but no JSONL."""
    for read in (rows_of, text_of):
        with pytest.raises(InputError, match=f"^f:{line}: not a JSON object"):
            read(data)


def test_rows_as_they_are_written_keep_every_byte_but_the_blanks_round_them():
    data = b'\xef\xbb\xbf{"id" : "a", "n": 1.50}\r\n\n  {"id":"\\ud83d"} \n{"id":"c"}'
    assert text_of(data) == b'{"id" : "a", "n": 1.50}\n{"id":"\\ud83d"}\n{"id":"c"}\n'


def test_nothing_but_a_byte_order_mark_is_empty():
    assert RowFile("f", io.BytesIO(b"\xef\xbb\xbf\n \n")).empty
    assert not RowFile("f", io.BytesIO(b'\xef\xbb\xbf{"id":"a"}')).empty


def test_half_a_character_is_replaced_not_refused():
    assert rows_of(b'{"id":"cut \\ud83d"}\n{"id":"\\ud83d\\ude00"}\n') == ["cut \ufffd", "😀"]


def test_a_literal_backslash_u_is_left_alone():
    assert rows_of(b'{"id":"\\\\ud83d"}\n') == ["\\ud83d"]


@given(st.lists(st.text(max_size=20), max_size=30), st.sampled_from(["\n", "\r\n", "\n\n"]))
def test_every_row_comes_back_in_order(ids: list[str], end: str):
    data = "".join(msgspec.json.encode({"id": i}).decode() + end for i in ids).encode()
    file = RowFile("f", io.BytesIO(data))
    assert [row.id for row in file.rows(DECODER)] == ids
    placed = list(file.placed_rows(DECODER))
    assert [row.id for _, row in placed] == ids
    assert [file.row_at(spot, DECODER).id for spot, _ in placed] == ids


def test_a_pipe_may_be_read_twice(tmp_path: Path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    writer = threading.Thread(target=pipe.write_bytes, args=(b'{"id":"a"}\n',))
    writer.start()
    with open_rows(pipe) as rows:
        assert [r.id for r in rows.rows(DECODER)] == [r.id for r in rows.rows(DECODER)] == ["a"]
    writer.join()


def test_a_missing_file_is_an_input_error(tmp_path: Path):
    with pytest.raises(InputError, match="No such file"), open_rows(tmp_path / "none"):
        pass
