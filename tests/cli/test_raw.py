"""assay raw prints what an agent wrote in a trial, wherever it is kept."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

SAYS = 'echo \'{"type":"result","result":"%s"}\'; echo trouble-%s >&2'


@pytest.fixture
def captured(assay: Callable, shell_agent: Path, prompts: Callable, tmp_path: Path) -> str:
    path = prompts({"id": "a", "input": [SAYS % ("one", 1), SAYS % ("two", 2)]}, "R")
    done = assay("capture", path, "-s", shell_agent, "-o", "out.jsonl")
    assert done.code == 0, done.stderr
    [segment] = (tmp_path / "out.raw").glob("segment-*")
    return f"out.raw/{segment.name}"


def test_all_streams_under_headings(assay: Callable, captured: str) -> None:
    done = assay("raw", "a", "out.jsonl")
    assert done.code == 0, done.stderr
    assert done.stdout.splitlines() == [
        "==> 1.err (10 bytes) <==",
        "trouble-1",
        "==> 1.out (33 bytes) <==",
        '{"type":"result","result":"one"}',
        "==> 2.err (10 bytes) <==",
        "trouble-2",
        "==> 2.out (33 bytes) <==",
        '{"type":"result","result":"two"}',
    ]


def test_streams_can_be_chosen(assay: Callable, captured: str) -> None:
    one = assay("raw", "a", "out.jsonl", "--turn", 2, "--stream", "err")
    assert one.stdout == "trouble-2\n"
    assert assay("raw", "a", "out.jsonl", "--stream", "1.err").stdout == "trouble-1\n"
    both = assay("raw", "a", "out.jsonl", "--stream", "err").stdout
    assert both.count("==>") == 2
    assert "result" not in both
    listed = assay("raw", "a", "out.jsonl", "--list", "--turn", 1).stdout
    assert listed == "10\t1.err\n33\t1.out\n"


def test_a_trial_of_several(assay: Callable, shell_agent: Path, prompts: Callable) -> None:
    words = ["trials", prompts("R"), "-s", shell_agent, "-k", 2, "-o", "t.jsonl"]
    assert assay(*words).code == 0
    assert '"result":"ok"' in assay("raw", "p0", "t.jsonl", "--trial", 2).stdout
    for more in ([], ["--trial", 3]):
        done = assay("raw", "p0", "t.jsonl", *more)
        assert done.code == 1
        assert "2 trials" in done.stderr
        assert "--trial" in done.stderr


def test_a_folder_of_an_earlier_version(assay: Callable, tmp_path: Path) -> None:
    folder = tmp_path / "old.raw" / "prompt-p0"
    (folder / "files").mkdir(parents=True)
    (folder / "1.out").write_text("hello\n")
    (folder / "10.out").write_text("last")
    (folder / "2.out").write_text("")
    (folder / "files" / "session.jsonl").write_text("{}\n")
    (folder / "3.out").symlink_to("/etc/passwd")
    (tmp_path / "old.jsonl").write_text('{"id":"p0","raw":"old.raw/prompt-p0"}\n')
    assert assay("raw", "p0", "old.jsonl", "--list").stdout.split() == [
        *("6", "1.out", "0", "2.out", "4", "10.out", "3", "files/session.jsonl"),
    ]
    assert assay("raw", "p0", "old.jsonl", "--stream", "files/session.jsonl").stdout == "{}\n"


def test_a_lost_segment_is_never_replaced_by_that_of_another_trial(
    assay: Callable, prompts: Callable, tmp_path: Path
) -> None:
    path = prompts({"id": "a", "input": "x"}, {"id": "b", "input": "y"})
    words = ["capture", path, "--shell", "echo answer to $PROMPT", "-o", "z.jsonl"]
    assert assay(*words).code == 0
    [lost] = (tmp_path / "z.raw").glob("segment-*")
    lost.unlink()
    assert assay(*words, "--resume", "--rerun", "b").code == 0
    assert not lost.exists()
    assert assay("raw", "b", "z.jsonl", "--stream", "out").stdout == "answer to y\n"
    [new] = (tmp_path / "z.raw").glob("segment-*")
    new.rename(lost)  # as versions did that gave the name again
    done = assay("raw", "a", "z.jsonl")
    assert (done.code, done.stdout) == (1, "")
    assert "removed or damaged" in done.stderr


BROKEN = {
    "no row with the id": {"id": "b", "raw": "SEGMENT@0"},
    "names no raw streams": {"id": "a"},
    "removed or damaged": {"id": "a", "raw": "SEGMENT@3"},
    "must be text": {"id": "a", "raw": 3},
}


@pytest.mark.parametrize("why", BROKEN)
def test_what_is_wrong_is_said(assay: Callable, captured: str, tmp_path: Path, why: str) -> None:
    row = json.dumps(BROKEN[why]).replace("SEGMENT", captured)
    (tmp_path / "x.jsonl").write_text(f"{row}\n")
    done = assay("raw", "a", "x.jsonl")
    assert done.code == 1
    assert why in done.stderr
    assert "Traceback" not in done.stderr


def test_a_stream_that_is_not_there(assay: Callable, captured: str) -> None:
    done = assay("raw", "a", "out.jsonl", "--turn", 3)
    assert done.code == 1
    assert "1.err, 1.out, 2.err, 2.out" in done.stderr
    assert assay("raw", "a", "out.jsonl", "--attempt", 2).code == 1
