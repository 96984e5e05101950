"""The journal loses no row, keeps no half row, and has one writer."""

import errno
import json
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from assay.errors import InputError, OutputError
from assay.records.journal import Journal

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=8,
)
rows = st.builds(lambda name, more: more | {"id": name}, texts, st.dictionaries(texts, values))


@pytest.fixture(scope="module")
def memory() -> Iterator[Path]:
    """A folder where a sync to disk costs nothing."""
    shared = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=shared if shared.is_dir() else None) as folder:
        yield Path(folder)


def write(path: Path, *lines: bytes, mode: str = "append") -> None:
    with Journal(path, mode) as journal:
        for line in lines:
            journal.append(line)


@given(kept=st.lists(rows, max_size=3), torn=rows)
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_a_row_torn_at_any_byte_is_dropped_and_the_rows_before_it_stay(
    memory: Path, kept: list[dict], torn: dict
) -> None:
    path = memory / "out.jsonl"
    before = b"".join(msgspec.json.encode(row) + b"\n" for row in kept)
    last = msgspec.json.encode(torn)
    for cut in range(len(last)):
        path.write_bytes(before + last[:cut])
        write(path, b'{"id":"next"}', mode="resume")
        assert path.read_bytes() == before + b'{"id":"next"}\n', f"cut at byte {cut}"


@given(row=rows)
@settings(max_examples=40, deadline=None)
def test_a_whole_row_that_only_lacks_its_newline_is_kept(memory: Path, row: dict) -> None:
    path = memory / "out.jsonl"
    line = msgspec.json.encode(row)
    path.write_bytes(line)
    write(path, b'{"id":"next"}', mode="resume")
    assert path.read_bytes() == line + b'\n{"id":"next"}\n'


@pytest.mark.parametrize("size", [100, 64 * 1024 - 1, 64 * 1024, 64 * 1024 + 1, 1_000_000])
def test_repair_finds_the_start_of_a_long_torn_row(tmp_path: Path, size: int) -> None:
    path = tmp_path / "out.jsonl"
    path.write_bytes(b'{"id":"a"}\n{"id":"b","output":"' + b"x" * size)
    write(path)
    assert path.read_bytes() == b'{"id":"a"}\n'


def test_a_deeply_nested_whole_row_without_newline_is_not_taken_for_torn(tmp_path: Path) -> None:
    path = tmp_path / "out.jsonl"
    row = b'{"id":"a","x":' + b"[" * 900 + b"]" * 900 + b"}"
    path.write_bytes(row)
    write(path)
    assert path.read_bytes() == row + b"\n"


def test_an_existing_output_is_refused_with_the_three_ways_to_go_on(tmp_path: Path) -> None:
    path = tmp_path / "out.jsonl"
    write(path, b'{"id":"a"}')
    with pytest.raises(OutputError, match="already exists") as refused:
        Journal(path, "new")
    for way in ("--resume", "--append", "--overwrite"):
        assert way in refused.value.hint
    assert path.read_bytes() == b'{"id":"a"}\n'


def test_an_empty_output_is_no_reason_to_refuse(tmp_path: Path) -> None:
    path = tmp_path / "out.jsonl"
    path.touch()
    write(path, b"{}", mode="new")
    assert path.read_bytes() == b"{}\n"


def test_append_keeps_and_overwrite_throws_away(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "er" / "out.jsonl"
    write(path, b'{"id":"a"}', mode="new")
    write(path, b'{"id":"b"}', mode="append")
    assert path.read_bytes() == b'{"id":"a"}\n{"id":"b"}\n'
    write(path, b'{"id":"c"}', mode="overwrite")
    assert path.read_bytes() == b'{"id":"c"}\n'


@pytest.mark.parametrize("mode", ["append", "resume", "overwrite"])
def test_one_writer_per_file(tmp_path: Path, mode: str) -> None:
    path = tmp_path / "out.jsonl"
    with Journal(path, "new") as journal:
        journal.append(b'{"id":"a"}')
        with pytest.raises(OutputError, match="another assay"):
            Journal(path, mode)
        journal.append(b'{"id":"b"}')
    assert path.read_bytes() == b'{"id":"a"}\n{"id":"b"}\n'


def test_a_full_disk_is_said_and_leaves_nothing_of_the_row(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "out.jsonl"
    really_write = os.write
    room = 15

    def small_disk(fd: int, data: bytes) -> int:
        nonlocal room
        if room == 0:
            raise OSError(errno.ENOSPC, "No space left on device")
        written = really_write(fd, data[:room])
        room -= written
        return written

    with Journal(path, "new", signed=False) as journal:
        monkeypatch.setattr(os, "write", small_disk)
        journal.append(b'{"id":"a"}')
        with pytest.raises(OutputError, match="No space left") as refused:
            journal.append(b'{"id":"b"}')
    assert "--resume" in refused.value.hint
    assert path.read_bytes() == b'{"id":"a"}\n'


def test_rows_give_id_and_hash_and_name_a_line_that_is_none(tmp_path: Path) -> None:
    path = tmp_path / "out.jsonl"
    write(path, b'{"id":"a","specHash":"x","output":{"id":"inner"}}', b'{"id":"b"}')
    with Journal(path, "resume") as journal:
        assert [(row.id, row.spec_hash) for row in journal.rows()] == [("a", "x"), ("b", None)]
        journal.append(b"[1]")
        with pytest.raises(InputError) as refused:
            list(journal.rows())
    assert f"{path}:3" in refused.value.message


def test_a_row_nested_deeper_than_can_be_read_is_named(tmp_path: Path) -> None:
    path = tmp_path / "out.jsonl"
    write(path, b'{"id":"a","x":' + b"[" * 100_000 + b"]" * 100_000 + b"}")
    with Journal(path, "resume") as journal, pytest.raises(InputError, match=r"out\.jsonl:1"):
        list(journal.rows())


def test_an_output_that_cannot_be_opened_says_so(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(OutputError, match="cannot open") as refused:
        Journal(tmp_path / "file" / "out.jsonl", "new")
    assert refused.value.hint
    with pytest.raises(OutputError, match="cannot open"):
        Journal(tmp_path, "append")


def test_every_row_is_on_its_own_line_whatever_is_in_it(tmp_path: Path) -> None:
    path = tmp_path / "out.jsonl"
    nasty = {"id": "\u2028\n\r\x00\x85", "output": "a\nb"}
    write(path, msgspec.json.encode(nasty))
    assert [json.loads(line) for line in path.read_bytes().split(b"\n")[:-1]] == [nasty]


def test_a_file_that_is_removed_while_it_is_written_is_put_back(tmp_path: Path) -> None:
    path = tmp_path / "folder" / "out.jsonl"
    journal = Journal(path, "new")
    journal.append(b'{"id":"a"}')
    path.unlink()
    path.parent.rmdir()
    journal.append(b'{"id":"b"}')
    with pytest.raises(OutputError, match="was removed") as error:
        journal.__exit__(None, None, None)
    assert "no row is lost" in error.value.hint
    assert path.read_bytes() == b'{"id":"a"}\n{"id":"b"}\n'


def test_a_file_that_another_took_the_place_of_is_not_written_over(tmp_path: Path) -> None:
    path = tmp_path / "out.jsonl"
    journal = Journal(path, "new")
    journal.append(b'{"id":"a"}')
    path.unlink()
    path.write_text("mine")
    journal.append(b'{"id":"b"}')
    with pytest.raises(OutputError, match="was replaced") as error:
        journal.__exit__(None, None, None)
    assert path.read_bytes() == b'{"id":"a"}\n{"id":"b"}\n'
    (aside,) = tmp_path.glob("out.changed*")
    assert str(aside) in error.value.message
    assert aside.read_text() == "mine"


def forge(path: Path) -> None:
    """Change a verdict in place, and hide it as well as one can."""
    before = path.stat()
    path.write_bytes(path.read_bytes().replace(b'"a"', b'"x"'))
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


def add_row(path: Path) -> None:
    with path.open("ab") as file:
        file.write(b'{"id":"forged"}\n')


CHANGES = {
    "rename": lambda path: path.rename(path.with_name("other.jsonl")),
    "truncate": lambda path: path.write_text(""),
    "write over": lambda path: path.write_text("x"),
    "change in place": forge,
    "add a row": add_row,
}


@pytest.mark.parametrize("how", CHANGES)
@pytest.mark.parametrize("rows_after", [0, 1])
def test_whatever_is_done_to_the_file_no_row_is_lost(
    tmp_path: Path, how: str, rows_after: int
) -> None:
    path = tmp_path / "out.jsonl"
    path.write_bytes(b'{"id":"earlier"}\n')
    journal = Journal(path, "resume")
    journal.append(b'{"id":"a"}')
    CHANGES[how](path)
    rows = [b'{"id":"%d"}' % n for n in range(rows_after)]
    for row in rows:
        journal.append(row)
    with pytest.raises(OutputError, match="while it was being written"):
        journal.__exit__(None, None, None)
    expected = [b'{"id":"earlier"}', b'{"id":"a"}', *rows]
    assert path.read_bytes().splitlines() == expected


def test_overwrite_keeps_the_old_rows_until_there_is_a_new_one(tmp_path: Path) -> None:
    path = tmp_path / "out.jsonl"
    write(path, b'{"id":"a"}')

    def fail() -> None:
        with Journal(path, "overwrite"):
            raise InputError("no input")

    with pytest.raises(InputError):
        fail()
    assert path.read_bytes() == b'{"id":"a"}\n'
    write(path, mode="overwrite")
    assert path.read_bytes() == b""


def test_rewriting_replaces_the_file_at_once_and_keeps_the_lock(tmp_path: Path) -> None:
    path = tmp_path / "out.jsonl"
    write(path, b'{"id":"a"}', b'{"id":"b"}')
    with Journal(path, "resume") as journal:
        journal.rewrite(line for line in [b'{"id":"b"}'])
        with pytest.raises(OutputError, match="another assay"):
            Journal(path, "append")
        journal.append(b'{"id":"c"}')
    assert path.read_bytes() == b'{"id":"b"}\n{"id":"c"}\n'
    assert list(tmp_path.iterdir()) == [path]
