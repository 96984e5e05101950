"""Following a file: every byte is in exactly one line, read live or again."""

import json
import os
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from assay.records.recording import RawLine
from assay.run.secrets import Secrets
from assay.run.tail import LineSplitter, Tail, mask_again, recorded_lines
from assay.run.turn import opened_again

NO_SECRETS = Secrets({})
pieces = st.lists(
    st.binary(max_size=40)
    | st.sampled_from([b"\n", b"\n\n", b"a\n", b"\r\n", b"\x00", b"x" * 700, b"y" * 1500]),
    max_size=12,
)


@given(chunks=pieces, limit=st.integers(1024, 3000))
def test_the_splitter_gives_what_split_gives(chunks: list[bytes], limit: int) -> None:
    splitter = LineSplitter(limit)
    got = [line for chunk in chunks for line in splitter.feed(chunk)]
    rest = splitter.rest()
    got += [rest] if rest is not None else []
    whole = b"".join(chunks).split(b"\n")
    expected = whole if whole[-1] else whole[:-1]
    assert got == [(want[:1024], True) if len(want) > limit else (want, False) for want in expected]


def make(path: Path) -> int:
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND)


@given(chunks=pieces, limit=st.sampled_from([1024, 2000]))
@settings(max_examples=60, deadline=None)
def test_reading_again_gives_the_same_lines_with_the_same_times(
    tmp_path_factory: pytest.TempPathFactory, chunks: list[bytes], limit: int
) -> None:
    path = str(tmp_path_factory.mktemp("tail") / "out")
    tail = Tail(make(Path(path)), limit, NO_SECRETS)
    live: list[RawLine] = []
    with Path(path).open("ab", buffering=0) as file:
        for t_ms, chunk in enumerate(chunks):
            file.write(chunk)
            live += tail.read(t_ms)
    live += tail.close(len(chunks))
    # a last line without end has the time of its last byte in the file, that of its end live
    again = list(recorded_lines(tail.fd, tail.marks, limit))
    ended = live[:-1] if b"".join(chunks)[-1:] not in (b"\n", b"") else live
    assert again[: len(ended)] == ended
    assert [line.text for line in again] == [line.text for line in live]


def test_a_part_of_a_file_can_be_read_again(tmp_path: Path) -> None:
    path = tmp_path / "out"
    path.write_bytes(b"one\ntwo\nthree\n")
    with path.open("rb") as file:
        marks = [(4, 1), (8, 2), (14, 3)]
        lines = list(recorded_lines(file.fileno(), marks, 100, first=4, last=8))
    assert lines == [RawLine(2, b"two")]


def test_one_call_reads_a_bounded_amount(tmp_path: Path) -> None:
    """An agent that writes faster than we read must not keep us from looking at the clock."""
    path = tmp_path / "out"
    tail = Tail(make(path), 1000, NO_SECRETS)
    path.write_bytes(b"y\n" * 400_000)
    assert len(list(tail.read(0))) <= 200_000
    assert tail.is_behind
    assert tail.size == 800_000
    n_left = 400_000 - tail.offset // 2
    assert len(list(tail.close(1))) == n_left


def test_of_an_oversized_line_only_the_head_is_held() -> None:
    splitter = LineSplitter(10_000)
    for _ in range(1000):
        assert list(splitter.feed(b"x" * 10_000)) == []
        assert sum(map(len, splitter._parts)) <= 20_000
    ((line, cut),) = splitter.feed(b"\n")
    assert (len(line), cut) == (1024, True)


@given(
    secret=st.text('abcdefgh0123/+="\\é', min_size=8, max_size=30).filter(
        lambda s: not s.startswith("/")
    ),
    cuts=st.lists(st.integers(0, 200), max_size=6),
)
@settings(max_examples=80, deadline=None)
def test_a_secret_is_covered_however_its_bytes_arrive(
    tmp_path_factory: pytest.TempPathFactory, secret: str, cuts: list[int]
) -> None:
    path = tmp_path_factory.mktemp("tail") / "out"
    tail = Tail(make(path), 10_000, Secrets({"MY_API_KEY": secret}))
    data = b"before " + secret.encode() + b" between\n" + secret.encode() + b" after"
    places = sorted({0, len(data), *(min(cut, len(data)) for cut in cuts)})
    lines: list[RawLine] = []
    with path.open("ab", buffering=0) as file:
        for first, last in pairwise(places):
            file.write(data[first:last])
            lines += tail.read(0)
    lines += tail.close(0)
    assert secret.encode() not in path.read_bytes()
    assert not any(secret.encode() in line.text for line in lines)
    assert len(path.read_bytes()) == len(data)
    assert [line.text for line in lines] == path.read_bytes().split(b"\n")


def test_who_opens_the_stream_anew_writes_over_nobodys_lines(tmp_path: Path) -> None:
    secrets = Secrets({"API_KEY": "hidden-away"})
    tail = Tail(make(tmp_path / "out"), 1024, secrets)
    agent = opened_again(tail.fd)
    os.write(agent, b"one hidden-away\n")
    got = list(tail.read(1))
    with Path(f"/proc/self/fd/{tail.fd}").open("ab") as again:
        again.write(b"two\n")
    os.write(agent, b"three\n")
    got += [*tail.read(2), *tail.close(3)]
    assert [line.text for line in got] == [b"one [redacted]*", b"two", b"three"]
    assert (tmp_path / "out").read_bytes() == b"one [redacted]*\ntwo\nthree\n"


@pytest.mark.parametrize("before", [b"one\ntwo\nhal", b"one\ntwo", b"one\ntwo\n"])
def test_a_stream_that_is_cut_off_is_read_from_its_beginning(tmp_path: Path, before: bytes) -> None:
    path = tmp_path / "out"
    tail = Tail(make(path), 1024, NO_SECRETS)
    agent = opened_again(tail.fd)
    os.write(agent, before)
    got = list(tail.read(1))
    with Path(f"/proc/self/fd/{tail.fd}").open("wb") as again:
        again.write(b"three\n")
    got += tail.read(2)
    os.write(agent, b"four\n")
    got += [*tail.read(3), *tail.close(4)]
    assert [line.text for line in got] == [
        *before.splitlines()[: before.count(b"\n")],
        b"three",
        b"four",
    ]
    again_read = list(recorded_lines(tail.fd, tail.marks, 1024))
    assert again_read == [RawLine(2, b"three"), RawLine(3, b"four")]


def test_a_file_that_is_emptied_at_the_end_is_no_trap(tmp_path: Path) -> None:
    tail = Tail(make(tmp_path / "err"), 1024, NO_SECRETS)
    os.write(tail.fd, b"one\n")
    assert [line.text for line in tail.read(1)] == [b"one"]
    os.ftruncate(tail.fd, 0)
    assert list(tail.close(2)) == []


def test_the_tail_keeps_up_with_a_writer(tmp_path: Path) -> None:
    path = tmp_path / "out"
    tail = Tail(make(path), 1000, NO_SECRETS)
    with path.open("ab", buffering=0) as file:
        file.write(b"half")
        assert list(tail.read(5)) == []
        file.write(b" line\nnext")
        assert list(tail.read(9)) == [RawLine(9, b"half line")]
    assert list(tail.close(12)) == [RawLine(12, b"next")]


def test_half_a_secret_at_the_cut_of_an_oversized_line_is_covered(tmp_path: Path) -> None:
    path = tmp_path / "out"
    tail = Tail(make(path), 2000, Secrets({"TOKEN": "s3cr3t" * 5}))
    path.write_bytes(b"x" * 1010 + b"s3cr3t" * 5 + b"y" * 3000 + b"\n")
    (line,) = [*tail.read(0), *tail.close(0)]
    assert line.oversized
    assert b"s3" not in line.text


def test_a_json_line_stays_json_with_the_same_numbers(tmp_path: Path) -> None:
    path = tmp_path / "out"
    tail = Tail(make(path), 10_000, Secrets({"DB_PASSWORD": "12345678"}))
    line = b'{"result":"it is 12345678","input_tokens":12345678}'
    lines: list[RawLine] = []
    for i in range(len(line)):  # as slowly as an agent can write
        os.write(tail.fd, line[i : i + 1])
        lines += tail.read(0)
    os.write(tail.fd, b"\n12345678 alone\n")
    lines += [*tail.read(0), *tail.close(0)]
    masked = b'{"result":"it is [redacte","input_tokens":12345678}'
    assert [got.text for got in lines] == [masked, b"[redacte alone"]
    assert path.read_bytes() == masked + b"\n[redacte alone\n"


def test_what_is_not_read_any_more_is_masked_all_the_same(tmp_path: Path) -> None:
    """An agent that wrote too much is ended, and the rest of its output is not read as lines."""
    path = tmp_path / "out"
    secrets = Secrets({"API_KEY": "hidden-away-1"})
    tail = Tail(make(path), 1000, secrets)
    os.write(tail.fd, b"x" * 200 * 1024 + b" half hidd")
    list(tail.read(0))
    os.write(tail.fd, b"en-away-1\n" + (b"y" * 100_000 + b" hidden-away-1\n") * 8)
    list(tail.read(0))
    size = path.stat().st_size
    list(tail.close(0, to_the_end=False))
    assert mask_again(tail.fd, tail.end, 1000, secrets, lambda: True) == size
    assert b"hidden" not in path.read_bytes()
    assert path.stat().st_size == size


def test_every_part_of_an_oversized_line_is_masked(tmp_path: Path) -> None:
    path = tmp_path / "out"
    tail = Tail(make(path), 2000, Secrets({"API_KEY": "hidden-away-1"}))
    with path.open("ab", buffering=0) as file:
        for _ in range(40):
            file.write(b"z" * 9_999 + b"hidden-away-1")
            assert list(tail.read(0)) == []
        file.write(b"\nnext\n")
    assert [line.text for line in tail.read(0)][1:] == [b"next"]
    list(tail.close(0))
    assert b"hidden" not in path.read_bytes()
    assert path.read_bytes().count(b"[redacted]***") == 40


@pytest.mark.parametrize(
    "line", [b"hidden-away-1 " * 9000, json.dumps(["hidden-away-1"] * 9000).encode()]
)
def test_what_there_was_no_time_to_mask_is_not_kept(tmp_path: Path, line: bytes) -> None:
    secrets, path = Secrets({"API_KEY": "hidden-away-1"}), tmp_path / "out"
    tail = Tail(make(path), 1 << 20, secrets, has_time=lambda: False)
    path.write_bytes(b"one\n" + line + b"\ntwo\n")
    got = [line for _ in range(4) for line in tail.read(0)] + list(tail.close(0))
    assert [(line.text, line.oversized) for line in got] == [
        (b"one", False),
        (b"", True),
        (b"two", False),
    ]
    assert tail.end == 4
    assert mask_again(tail.fd, path.stat().st_size, 1 << 20, secrets, lambda: False) == 0


@pytest.mark.parametrize("n_lines", [1, 40_000])
def test_a_secret_that_is_written_over_lines_that_were_read_is_masked(
    tmp_path: Path, n_lines: int
) -> None:
    secrets, path = Secrets({"API_KEY": "hidden-away-1"}), tmp_path / "out"
    fd = make(path)
    path.write_bytes(b"a line of twenty by\n" * n_lines + b"the last")
    before = path.read_bytes()
    with path.open("r+b") as again:
        again.seek(len(before) // 2 // 20 * 20)
        again.write(b"hidden-away-1")
    assert mask_again(fd, len(before), 1024, secrets, lambda: True) == len(before)
    after = path.read_bytes()
    assert b"hidden" not in after
    assert (len(after), after.count(b"[redacted]***")) == (len(before), 1)
