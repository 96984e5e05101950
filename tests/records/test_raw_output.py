"""Raw rows carry the agent's session files, and names in a row lead nowhere else."""

import base64
from pathlib import Path

import pytest

from assay.records.recording import NOT_READ, RawOutput, Recording, raw_output, recording_of
from assay.records.spec import Prompt


@pytest.fixture
def kept(tmp_path) -> Path:
    folder = tmp_path / "kept"
    (folder / "deep").mkdir(parents=True)
    (folder / "deep" / "session.jsonl").write_bytes(b"\xff\x00 not text")
    return folder


def test_session_files_travel_in_the_row(kept, tmp_path):
    prompt = Prompt(id="a", input="x")
    row = raw_output(prompt, Recording(start_ms=0, end_ms=1, kept=kept))
    again = recording_of(row, tmp_path, tmp_path / "scratch")
    assert (again.kept / "deep" / "session.jsonl").read_bytes() == b"\xff\x00 not text"


def test_they_stay_in_the_raw_folder_where_there_is_one(kept, tmp_path):
    recording = Recording(start_ms=0, end_ms=1, kept=kept, raw="x.raw/a")
    assert not raw_output(Prompt(id="a", input="x"), recording).files


@pytest.mark.parametrize("name", ["../out.txt", "/tmp/assay-out.txt", "a/../../out.txt"])
def test_a_name_that_leads_out_is_not_written(kept, tmp_path, name):
    row = raw_output(Prompt(id="a", input="x"), Recording(start_ms=0, end_ms=1, kept=kept))
    row.files = {name: base64.b64encode(b"x").decode()}
    recording_of(row, tmp_path, tmp_path / "scratch")
    assert not list(tmp_path.rglob("out.txt"))
    assert not Path("/tmp/assay-out.txt").exists()


def row_with(raw: str, kept: Path) -> RawOutput:
    recording = Recording(start_ms=0, end_ms=1, kept=kept, raw=raw)
    return raw_output(Prompt(id="a", input="x"), recording)


@pytest.fixture
def base(tmp_path) -> Path:
    """A folder of results with a trial of its own, beside one that is nobody's business."""
    for folder in (tmp_path / "base/x.raw/a/files", tmp_path / "secret/files"):
        folder.mkdir(parents=True)
        (folder / "session.jsonl").write_text(folder.parent.name)
    (tmp_path / "base/link").symlink_to(tmp_path / "secret")
    (tmp_path / "base/x.raw/a/files/link.jsonl").symlink_to(tmp_path / "secret/files/session.jsonl")
    return tmp_path / "base"


def test_session_files_below_the_folder_of_the_row_are_read(kept, base, tmp_path):
    again = recording_of(row_with("x.raw/a", kept), base, tmp_path / "scratch")
    assert {file.name: file.read_text() for file in again.kept.iterdir()} == {"session.jsonl": "a"}
    assert again.warnings == ()


@pytest.mark.parametrize("raw", ["../secret", "{secret}", "link", "x.raw/../../secret", ".", "\0"])
def test_session_files_elsewhere_are_not_read(kept, base, tmp_path, raw):
    row = row_with(raw.format(secret=tmp_path / "secret"), kept)
    again = recording_of(row, base, tmp_path / "scratch")
    assert again.kept is None
    assert again.warnings == (NOT_READ,)


def test_session_files_are_read_in_a_folder_that_the_user_names(kept, base, tmp_path):
    row = row_with("../elsewhere/secret", kept)
    again = recording_of(row, base, tmp_path / "scratch", raw_dir=tmp_path)
    assert (again.kept / "session.jsonl").read_text() == "secret"
    assert again.warnings == ()


@pytest.mark.parametrize(
    "files",
    [
        {"a\0b": "eA=="},
        {"n" * 5000: "eA=="},
        {"a": "eA==", "a/b": "eA=="},
        {"a": "no base 64!"},
        {"": "eA=="},
    ],
)
def test_files_that_cannot_be_written_are_left_out(kept, tmp_path, files):
    row = raw_output(Prompt(id="a", input="x"), Recording(start_ms=0, end_ms=1, kept=kept))
    row.files = {"good": "eA==", **files}
    again = recording_of(row, tmp_path, tmp_path / "scratch")
    assert (again.kept / "good").read_bytes() == b"x"
