"""Raw rows carry the agent's session files, and names in a row lead nowhere else."""

import base64
from pathlib import Path

import pytest

from assay.records.recording import Recording, raw_output, recording_of
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
