"""Files that are replaced, and what a kill leaves of them."""

import fcntl
import os
from pathlib import Path

from assay.records.files import replaced_file


def make(path: Path, age_s: float) -> Path:
    path.write_text("half")
    about = path.stat()
    os.utime(path, (about.st_atime, about.st_mtime - age_s))
    return path


def test_what_killed_processes_left_is_removed_and_nothing_else(tmp_path: Path) -> None:
    old = make(tmp_path / ".out.jsonl.0123abcd", 3600)
    new = make(tmp_path / ".out.jsonl.0123abce", 0)
    others = [make(tmp_path / name, 3600) for name in (".out.jsonl.mine", ".other.0123abcd")]
    used = make(tmp_path / ".out.jsonl.0123abcf", 3600)
    with used.open("rb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        with replaced_file(tmp_path / "out.jsonl") as out:
            out.write(b"whole")
    assert (tmp_path / "out.jsonl").read_bytes() == b"whole"
    assert not old.exists()
    assert all(path.exists() for path in (new, used, *others))
