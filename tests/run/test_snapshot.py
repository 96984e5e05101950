"""An agent leaves more files than can be compared with what was there before."""

import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from assay.errors import Interrupted
from assay.records.capture import Cause, Failure
from assay.records.spec import Surroundings
from assay.run import process, snapshot
from assay.run.snapshot import Snapshot, TooManyFilesError
from assay.run.trial import recorded

RESULT = '{"type":"result","result":"x"}'


@pytest.fixture
def taken(tmp_path: Path) -> Snapshot:
    (tmp_path / "kept.txt").write_text("one\n")
    before = Snapshot(tmp_path, Surroundings(cwd=str(tmp_path), workspace_dir=str(tmp_path)))
    for n in range(20):
        (tmp_path / f"new-{n}.txt").write_text(f"{n}\n")
    return before


def test_what_an_agent_adds_is_not_copied(taken: Snapshot) -> None:
    changes = taken.changes()
    assert (changes.n_files, changes.insertions) == (20, 20)
    assert not (Path(snapshot._store()) / snapshot._digest(b"7\n")).exists()
    assert (Path(snapshot._store()) / snapshot._digest(b"one\n")).exists()


def test_a_file_that_was_only_compared_is_kept_when_it_is_there_before(
    taken: Snapshot, tmp_path: Path
) -> None:
    taken.changes()
    again = Snapshot(tmp_path, Surroundings(cwd=str(tmp_path), workspace_dir=str(tmp_path)))
    (tmp_path / "new-7.txt").write_text("7\nmore\n")
    changes = again.changes()
    assert (changes.modified, changes.insertions, changes.deletions) == (["new-7.txt"], 1, 0)


def test_the_comparison_ends_in_time_and_with_a_signal(taken: Snapshot) -> None:
    with pytest.raises(TooManyFilesError):
        taken.changes(until_s=time.monotonic())
    process.stop_all()
    try:
        with pytest.raises(Interrupted):
            taken.changes()
    finally:
        process.start_over()


def test_more_new_files_than_can_be_looked_at_are_the_agents_failure(
    spec: Callable, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(snapshot, "_MOST_NEW", 5)

    def failure_after(n_files: int) -> Failure | None:
        folder = tmp_path / str(n_files)
        folder.mkdir()
        script = f"for n in $(seq {n_files}); do touch $n.txt; done; echo '{RESULT}'"
        trial = spec("x", schema={"command": ["/bin/sh", "-c", script]})
        around = msgspec.structs.replace(trial.surroundings, cwd=str(folder), snapshot=True)
        with recorded(msgspec.structs.replace(trial, surroundings=around)) as recording:
            assert recording.changes is not None
            assert recording.changes.n_files == n_files
            return recording.failure

    assert failure_after(5) is None
    failure = failure_after(6)
    assert failure is not None
    assert failure.cause is Cause.AGENT_LIMIT


def test_the_folder_of_a_process_goes_with_it_and_without_a_warning() -> None:
    code = "from assay.run import snapshot; print(snapshot._store())"
    words = [sys.executable, "-W", "error", "-c", code]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    assert done.stderr == ""
    assert not Path(done.stdout.strip()).exists()
