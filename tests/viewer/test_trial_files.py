"""Rows of others must not lead us to files that have nothing to do with a trial."""

from pathlib import Path
from typing import Any

import pytest

from assay.viewer.library import entry_of, game_log, raw_files

LOG = '{"type":"header","schema":"assay-arc-log/1"}\n'


def entry(**more: Any) -> dict[str, Any]:
    return {"metadata": {"evidence": {"log": "logs/g.jsonl"}}} | more


def test_log_beside_the_results_or_with_the_raw_streams(tmp_path: Path) -> None:
    assert game_log(tmp_path, entry()) is None
    beside = tmp_path / "logs" / "g.jsonl"
    beside.parent.mkdir()
    beside.write_text(LOG)
    assert game_log(tmp_path, entry()) == beside
    kept = tmp_path / "run.raw" / "p" / "game.jsonl"
    kept.parent.mkdir(parents=True)
    kept.write_text(LOG)
    evidence = {"metadata": {"evidence": {"log": "game.jsonl"}}, "raw": "run.raw/p"}
    assert game_log(tmp_path, evidence) == kept


@pytest.mark.parametrize(
    "name", [".env", "secret.jsonl", "../out.jsonl", "/etc/passwd", "", None, 3]
)
def test_nothing_that_is_no_log(tmp_path: Path, name: Any) -> None:
    base = tmp_path / "base"
    base.mkdir()
    (base / ".env").write_text("KEY=1")
    (base / "secret.jsonl").write_text('{"key": "1"}\n')
    (tmp_path / "out.jsonl").write_text(LOG)
    assert game_log(base, {"metadata": {"evidence": {"log": name}}}) is None
    assert game_log(base, {"metadata": name}) is None


def test_raw_streams_in_the_order_of_turns_and_cut(tmp_path: Path) -> None:
    folder = tmp_path / "raw"
    folder.mkdir()
    for name in ("10.out", "2.out", "1.out", "1.err", "notes.txt"):
        (folder / name).write_text(name * 10)
    (folder / "3.out").write_text("")
    files = raw_files(tmp_path, {"raw": "raw"}, most=20)
    assert [file["name"] for file in files] == ["1.err", "1.out", "2.out", "10.out"]
    assert files[0] == {"name": "1.err", "size": 50, "cut": True, "text": "1.err1.err1.err1.err"}
    assert raw_files(tmp_path, {"raw": "."}) == []


def test_entry_of_a_row() -> None:
    assert entry_of({"id": "p"}, 1) == {"id": "p"}
    row = {"trials": [{"trialNum": 2, "x": 1}]}
    assert entry_of(row, 2) == {"trialNum": 2, "x": 1}
    assert entry_of(row, 1) is None
    assert entry_of({"trials": "?"}, 1) is None
