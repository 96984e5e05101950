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
        assert ("there is no trial 3" in done.stderr) == bool(more)


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
    assert "no streams of turn 3; the trial has those of 2 turns" in done.stderr
    assert "1.err, 1.out, 2.err, 2.out" in done.stderr
    done = assay("raw", "a", "out.jsonl", "--attempt", 2)
    assert done.code == 1
    assert "there is no attempt 2; the trial had 1 attempt" in done.stderr
    done = assay("raw", "a", "out.jsonl", "--trial", 2)
    assert done.code == 1
    assert "there is no trial 2; the prompt has 1 trial" in done.stderr
    assert "choose one of them" not in done.stderr


@pytest.mark.parametrize("raw", ["{secret}", "../secret", "link", "loop", "plain/../../secret"])
def test_a_row_leads_to_nothing_outside_its_folder(
    assay: Callable, tmp_path: Path, raw: str
) -> None:
    secret = tmp_path / "secret"
    (secret / "files").mkdir(parents=True)
    for name in ("1.out", "passwd", "files/key"):
        (secret / name).write_text("secret")
    base = tmp_path / "base"
    (base / "plain").mkdir(parents=True)
    (base / "link").symlink_to(secret)
    (base / "loop").symlink_to("loop")
    row = {"id": "a", "raw": raw.format(secret=secret)}
    (base / "x.jsonl").write_text(json.dumps(row) + "\n")
    done = assay("raw", "a", "base/x.jsonl")
    assert (done.code, done.stdout) == (1, "")
    assert "not below the folder" in done.stderr


def test_only_what_streams_are_called_is_printed(assay: Callable, tmp_path: Path) -> None:
    (tmp_path / "project" / "src").mkdir(parents=True)
    for name in ("1.out", ".env", "notes.txt", "src/2.out", "x1.out"):
        (tmp_path / "project" / name).write_text(name)
    (tmp_path / "project" / "3.out").symlink_to(tmp_path / "project" / ".env")
    (tmp_path / "x.jsonl").write_text('{"id":"a","raw":"project"}\n')
    assert assay("raw", "a", "x.jsonl").stdout == "==> 1.out (5 bytes) <==\n1.out\n"


def test_a_copy_in_another_folder(assay: Callable, captured: str, tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    assert assay("format", "out.jsonl", "-o", "sub/f.jsonl").code == 0
    done = assay("raw", "a", "sub/f.jsonl")
    assert done.code == 1
    assert f"no raw streams at {captured}@0 in {tmp_path / 'sub'}" in done.stderr
    assert "give the file that the run wrote" in done.stderr
    done = assay("raw", "a", "sub/f.jsonl", "--raw-dir", "out.raw", "--stream", "1.err")
    assert done.stdout == "trouble-1\n"


def test_a_raw_dir_elsewhere_is_named(
    assay: Callable, shell_agent: Path, prompts: Callable, tmp_path: Path
) -> None:
    (tmp_path / "sub").mkdir()
    words = ["-s", shell_agent, "-o", "sub/out.jsonl", "--raw-dir", "else"]
    assert assay("capture", prompts("R"), *words).code == 0
    done = assay("raw", "p0", "sub/out.jsonl")
    assert done.code == 1
    assert "--raw-dir" in done.stderr
    assert '"ok"' in assay("raw", "p0", "sub/out.jsonl", "--raw-dir", "else").stdout
