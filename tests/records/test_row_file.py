"""Rows are found, counted and named by their line, whatever stands between them."""

import io
import json
import os
import threading
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay.errors import InputError
from assay.records.rows import RowFile, line_blocks, open_rows


class Row(msgspec.Struct):
    id: str


DECODER = msgspec.json.Decoder(Row)
FILLER = '"pad":"' + "x" * 3000 + '"'


def rows_of(data: bytes) -> list[str]:
    return [row.id for row in RowFile("f", io.BytesIO(data)).rows(DECODER)]


def text_of(data: bytes) -> bytes:
    out = io.BytesIO()
    RowFile("f", io.BytesIO(data)).write_texts(out)
    return out.getvalue()


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
    with pytest.raises(InputError, match=rf'^f:{bad_at}: "id" must be text, not a number'):
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
        (b"[" * 100_000, "nested too deeply|must be an object"),
        (b"[1]", "must be an object"),
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


GOOD = st.text(max_size=8).map(lambda id_: msgspec.json.encode({"id": id_, "n": [1, {}]}))
CUT = st.just(rb'{"id":"half \ud83d, whole \ud83d\ude00, no escape \\ud83d"}')
BLANK = st.sampled_from([b"", b" ", b"\t\r"])
BAD = st.sampled_from([b"nope", b'{"id":7}', b"{}", b'{"id":"a"', b'{"id":"\xff"}', b"[1]", b"}{"])
SLOPPY = st.sampled_from(
    [b' {"id":"s"} \r', b'{"id":"a"}{"id":"b"}', b'{"id":\n"a"}', b'{"id":"a"}\r']
)


def naive(data: bytes) -> tuple[list[str], int | None]:
    """Read line by line with the standard library: ids, and the number of the first bad line."""
    ids = []
    for number, line in enumerate(data.removeprefix(b"\xef\xbb\xbf").split(b"\n"), 1):
        if not line.strip():
            continue
        try:
            found = json.loads(line.decode())["id"]
            ids.append(found.encode("utf-16", "surrogatepass").decode("utf-16", "replace"))
        except (ValueError, TypeError, KeyError, AttributeError):
            return ids, number
    return ids, None


def read_with(data: bytes, size: int) -> tuple[list[str], int | None]:
    rows: list[str] = []
    try:
        for block in RowFile("f", io.BytesIO(data)).blocks(DECODER, size):
            rows += [row.id for row in block]
    except InputError as error:
        number = int(error.message.split(":")[1])
        return naive(b"\n".join(data.split(b"\n")[: number - 1]))[0], number
    return rows, None


@given(
    st.lists(st.one_of(GOOD, GOOD, CUT, BLANK, BAD, SLOPPY), max_size=12),
    st.sampled_from([b"", b"\n"]),
    st.sampled_from([b"", b"\xef\xbb\xbf"]),
)
def test_a_file_of_one_block_is_read_as_the_naive_reader_reads_it(
    lines: list[bytes], end: bytes, bom: bytes
):
    data = bom + b"\n".join(lines) + end
    assert read_with(data, 1 << 20) == naive(data)
    file = RowFile("f", io.BytesIO(data), skip_unreadable=True)
    one_by_one = [naive(line)[0] for line in data.removeprefix(bom).split(b"\n")]
    readable = [id_ for ids in one_by_one for id_ in ids]
    assert [row.id for row in file.rows(DECODER)] == readable
    assert [row.id for _, row in file.placed_rows(DECODER)] == readable


@given(st.lists(st.one_of(GOOD, GOOD, CUT, BAD), max_size=12), st.integers(1, 60))
def test_where_blocks_end_makes_no_difference(lines: list[bytes], size: int):
    data = b"\n".join(lines)
    assert read_with(data, size) == naive(data)
    blocks = list(line_blocks(io.BytesIO(data), size=size))
    assert b"".join(block for _, block in blocks) == data
    assert all(data[at : at + len(block)] == block for at, block in blocks)


def test_a_line_that_is_still_written_ends_the_reading():
    file = io.BytesIO(b'{"id":"a"}\n{"id":')
    blocks = line_blocks(file, size=11)
    assert [next(blocks), next(blocks)] == [(0, b'{"id":"a"}\n'), (11, b'{"id":')]
    file.write(b'"b"}\n')
    assert list(blocks) == []


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
