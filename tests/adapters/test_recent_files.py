"""What an agent may leave where past sessions are looked for."""

import os
from pathlib import Path

from assay.adapters.reading import recent_files


def test_only_files_of_a_sensible_size_are_sessions(tmp_path: Path) -> None:
    """A pipe or a device would be read for ever, and a broken link hid all the others."""
    (tmp_path / "good.jsonl").write_text("{}\n")
    os.mkfifo(tmp_path / "a.jsonl")
    (tmp_path / "b.jsonl").symlink_to("/dev/zero")
    (tmp_path / "c.jsonl").symlink_to("nowhere")
    (tmp_path / "d.jsonl").touch()
    os.truncate(tmp_path / "d.jsonl", 5 << 40)
    (tmp_path / "e.jsonl").mkdir()
    assert recent_files(tmp_path, "*.jsonl", 0) == [tmp_path / "good.jsonl"]
