"""Raw streams of small trials share a segment, from which a kill takes nothing that a row names."""

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from assay.records.raw_streams import kept_streams
from assay.run.raw import RawStreams, SegmentWriter, remove_kept

LARGE = "seq 1 100000 >&2"


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[int]:
    fd = os.open(tmp_path, os.O_RDONLY | os.O_DIRECTORY)
    yield fd
    os.close(fd)


def only_segment(folder: Path) -> Path:
    [found] = folder.glob("segment-*")
    return found


def number(name: str) -> int:
    """Give the number of the segment that a record is in."""
    return int(name.split("-")[1])


def read(folder: Path, name: str) -> dict[str, bytes]:
    return {one.name: one.read() for one in kept_streams(folder / name)}


def test_records_of_one_run_share_a_segment(tmp_path: Path, folder: int) -> None:
    writer = SegmentWriter("run")
    streams = [{"1.out": b"one\n", "1.err": b""}, {"1.out": b"\x00\xff{"}, {}, {"files/a/ü": b"x"}]
    names = [writer.append(f"trial-{n}", each, folder)[0] for n, each in enumerate(streams)]
    assert names[0] == f"{only_segment(tmp_path).name}@0"
    assert number(names[0]) == 1
    assert [read(tmp_path, name) for name in names] == streams


@pytest.mark.parametrize("cut", [*range(1, 60, 4), 70, 85])
def test_a_torn_record_is_not_read_and_the_next_run_writes_elsewhere(
    tmp_path: Path, folder: int, cut: int
) -> None:
    writer = SegmentWriter("run")
    first, _ = writer.append("a", {"1.out": b"one\n"}, folder)
    segment = only_segment(tmp_path)
    whole = segment.read_bytes()
    second, _ = writer.append("b", {"1.out": b"two\n" * 5}, folder)
    assert second == f"{segment.name}@{len(whole)}"
    torn = segment.read_bytes()[: len(whole) + cut]
    segment.write_bytes(torn)
    again, _ = SegmentWriter("run").append("b", {"1.out": b"three\n"}, folder)
    assert number(again) == 2
    assert segment.read_bytes() == torn
    assert read(tmp_path, first) == {"1.out": b"one\n"}
    assert read(tmp_path, second) == {}
    assert read(tmp_path, again) == {"1.out": b"three\n"}


@pytest.mark.parametrize(
    "content", [b"notes of mine", b"{}\n", b"", b'{"type":"assay-raw","files":1}\nx']
)
def test_a_file_that_is_no_segment_of_ours_stays_as_it_is(
    tmp_path: Path, folder: int, content: bytes
) -> None:
    (tmp_path / "segment-7").write_bytes(content)
    name, _ = SegmentWriter("run").append("a", {"1.out": b"one\n"}, folder)
    if content:
        assert number(name) == 8
        assert (tmp_path / "segment-7").read_bytes() == content
        remove_kept(str(tmp_path), ["segment-7@0", name, "segment-9@0", ""])
        assert [path.name for path in tmp_path.iterdir()] == ["segment-7"]


def test_the_largest_names_leave_room_for_another(tmp_path: Path, folder: int) -> None:
    for name in (
        "segment-99999999",
        "segment-100000000",
        "segment-999999999",
        "segment-" + "9" * 99,
    ):
        (tmp_path / name).mkdir()
    name, _ = SegmentWriter("run").append("a", {"1.out": b"one\n"}, folder)
    assert number(name) == 100000000
    assert read(tmp_path, name) == {"1.out": b"one\n"}


def test_two_runs_with_one_raw_folder_do_not_share_a_segment(tmp_path: Path, folder: int) -> None:
    one, two = SegmentWriter("one"), SegmentWriter("two")
    assert number(one.append("a", {"1.out": b"1"}, folder)[0]) == 1
    assert number(two.append("a", {"1.out": b"2"}, folder)[0]) == 2
    # Not even the same run, while another process of it writes.
    assert number(SegmentWriter("two").append("a", {"1.out": b"3"}, folder)[0]) == 3
    assert number(one.append("b", {"1.out": b"4"}, folder)[0]) == 1


@pytest.mark.parametrize("how", ["removed", "truncated", "replaced", "changed"])
def test_a_segment_that_somebody_touched_is_left_alone(
    tmp_path: Path, folder: int, how: str
) -> None:
    writer = SegmentWriter("run")
    first, _ = writer.append("a", {"1.out": b"one\n"}, folder)
    segment = only_segment(tmp_path)
    data = segment.read_bytes()
    if how in ("removed", "replaced"):
        segment.unlink()
    if how != "removed":
        segment.write_bytes({"truncated": b"", "replaced": data, "changed": data + b"x"}[how])
    name, warnings = writer.append("b", {"1.out": b"two\n"}, folder)
    assert read(tmp_path, name) == {"1.out": b"two\n"}
    assert segment.name in warnings[0]
    assert name.partition("@")[0] != first.partition("@")[0]
    assert writer.append("c", {"1.out": b"three\n"}, folder)[1] == []


def test_a_raw_folder_that_is_removed_during_the_run_is_made_again(tmp_path: Path) -> None:
    for n in range(3):
        with RawStreams(str(tmp_path / "raw"), "run") as streams:
            os.write(streams.make("1.out"), b"%d" % n)
            name, _, warnings = streams.keep("trial")
        assert name is not None
        assert read(tmp_path / "raw", name) == {"1.out": b"%d" % n}
        assert bool(warnings) == (n > 0)
        only_segment(tmp_path / "raw").unlink()
        (tmp_path / "raw").rmdir()


def test_large_streams_have_files_of_their_own(
    assay: Callable,
    shell_agent: Path,
    prompts: Callable,
    read_rows: Callable,
    raw_of: Callable,
    tmp_path: Path,
) -> None:
    path = prompts("R", f"{LARGE}; R", "R")
    assert assay("capture", path, "-s", shell_agent, "-o", "out.jsonl").code == 0
    rows = read_rows(tmp_path / "out.jsonl")
    segment = f"out.raw/{only_segment(tmp_path / 'out.raw').name}"
    names = [row["raw"].partition("@")[0] for row in rows]
    assert names == [segment, "out.raw/prompt-p1", segment]
    assert sorted(raw_of(tmp_path, rows[1])) == ["1.err", "1.out"]
    assert len(raw_of(tmp_path, rows[1])["1.err"]) > 500_000


def test_session_files_are_packed_and_extract_finds_them(
    assay: Callable, agent: Callable, prompts: Callable, read_rows: Callable, tmp_path: Path
) -> None:
    script = "mkdir ~/s; echo x > ~/s/a.txt; R"
    command = ["bash", "-c", 'R() { echo \'{"type":"result","result":"ok"}\'; }; eval "${@: -1}"']
    schema = agent(command=command, keep=["~/s/*"])
    words = [prompts(script), "-s", schema, "--isolate"]
    assert assay("run", *words, "-o", "raw.jsonl", "--raw-dir", "kept").code == 0
    (row,) = read_rows(tmp_path / "raw.jsonl")
    assert row["raw"] == f"kept/{only_segment(tmp_path / 'kept').name}@0"
    assert read(tmp_path, row["raw"])["files/s/a.txt"] == b"x\n"
    done = assay("extract", "raw.jsonl", "-s", schema)
    assert done.rows[0]["output"] == "ok"


def test_a_retried_trial_names_the_raw_streams_of_each_attempt(
    assay: Callable,
    agent: Callable,
    prompts: Callable,
    read_rows: Callable,
    raw_of: Callable,
    tmp_path: Path,
) -> None:
    script = """
    if test -e once; then echo '{"type":"result","result":"ok"}'
    else touch once; echo '{"type":"error","message":"overloaded"}'; exit 1; fi"""
    errors = [{"match": {"path": "$.type", "value": "error"}, "cause": "provider"}]
    schema = agent(command=["/bin/sh", "-c", script], errors=errors)
    done = assay("capture", prompts("x"), "-s", schema, "-o", "o.jsonl", "--retries", 1)
    assert done.code == 0, done.stderr
    (row,) = read_rows(tmp_path / "o.jsonl")
    (failure,) = row["retried"]
    assert "overloaded" in raw_of(tmp_path, failure)["1.out"]
    assert "ok" in raw_of(tmp_path, row)["1.out"]
    first = assay("raw", "p0", "o.jsonl", "--attempt", 1, "--stream", "out").stdout
    assert "overloaded" in first


def test_kill_9_loses_no_raw_stream_that_a_row_names(
    assay: Callable,
    start: Callable,
    eventually: Callable,
    shell_agent: Path,
    prompts: Callable,
    read_rows: Callable,
    raw_of: Callable,
    tmp_path: Path,
) -> None:
    out = tmp_path / "out.jsonl"
    path = prompts(*[f"echo '\"answer {n}\"'; R" for n in range(300)])
    words = ("capture", path, "-s", shell_agent, "-o", out, "-j", 8)
    for n_rows in (20, 120):
        process = start(*words, "--resume")
        assert eventually(lambda n=n_rows: out.exists() and out.read_bytes().count(b"\n") > n)
        process.send_signal(signal.SIGKILL)
        process.wait()
    for torn in (tmp_path / "out.raw").iterdir():
        with torn.open("ab") as segment:
            segment.write(b'{"type":"assay-raw","run')
    done = assay(*words, "--resume")
    assert done.code == 0, done.stderr
    rows = read_rows(out)
    assert sorted(row["id"] for row in rows) == sorted(f"p{n}" for n in range(300))
    for row in rows:
        assert f'answer {row["id"][1:]}"' in raw_of(tmp_path, row)["1.out"]
    segments = sorted(path.name[:10] for path in (tmp_path / "out.raw").iterdir())
    assert segments == ["segment-1-", "segment-2-", "segment-3-"], "one for each process"
