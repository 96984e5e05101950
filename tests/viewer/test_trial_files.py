"""Rows of others must not lead us to files that have nothing to do with a trial."""

from pathlib import Path
from typing import Any

import pytest

from assay.records.trial.files import entry_of
from assay.viewer.library import game_log, raw_files

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
    files = raw_files(tmp_path, "p", {"raw": "raw"}, most=20)
    assert [file["name"] for file in files] == ["1.err", "1.out", "2.out", "10.out"]
    assert files[0] == {"name": "1.err", "size": 50, "cut": True, "text": "1.err1.err1.err1.err"}
    assert raw_files(tmp_path, "p", {"raw": "."}) == []


HEADER = '{"type":"assay-raw","run":"r","trial":"t","files":{"10.out":4,"2.out":3,"files/x":1}}\n'


def segment(folder: Path, header: str = HEADER, body: str = "last2ndx\n") -> int:
    """Write a segment with something before the record; give the record's offset."""
    folder.mkdir(exist_ok=True)
    (folder / "segment-1").write_text(f"before\n{header}{body}")
    return len("before\n")


def test_raw_streams_of_a_segment(tmp_path: Path) -> None:
    raw = f"run.raw/segment-1@{segment(tmp_path / 'run.raw')}"
    files = raw_files(tmp_path, "p", {"raw": raw}, most=3)
    assert files == [
        {"name": "2.out", "size": 3, "cut": False, "text": "2nd"},
        {"name": "10.out", "size": 4, "cut": True, "text": "las"},
    ]
    assert game_log(tmp_path, {"metadata": {"evidence": {"log": "2.out"}}, "raw": raw}) is None


DAMAGED = {
    "a stream longer than the file": HEADER.replace("4", "400"),
    "a negative size": HEADER.replace("4", "-4"),
    "a size that is no number": HEADER.replace("4", '"4"'),
    "no header": "{}\n",
    "not JSON": '{"type":"assay-raw",\n',
    "no end of the header": HEADER.rstrip("\n"),
}


@pytest.mark.parametrize("what", DAMAGED)
def test_a_damaged_segment_has_no_streams(tmp_path: Path, what: str) -> None:
    offset = segment(tmp_path / "run.raw", DAMAGED[what], "" if "no end" in what else "last2ndx")
    assert raw_files(tmp_path, "p", {"raw": f"run.raw/segment-1@{offset}"}) == []


@pytest.mark.parametrize("name", ["{}", "link/segment-1@{}", "../secret/segment-1@{}"])
def test_no_segment_outside_the_folder(tmp_path: Path, name: str) -> None:
    offset = segment(tmp_path / "secret")
    base = tmp_path / "base"
    base.mkdir()
    (base / "link").symlink_to(tmp_path / "secret")
    (base / "segment-1").symlink_to(tmp_path / "secret" / "segment-1")
    for raw in (name.format(offset), f"segment-1@{offset}", "segment-1@0", "segment-1@" + "9" * 30):
        assert raw_files(base, "p", {"raw": raw}) == []


def test_entry_of_a_row() -> None:
    assert entry_of({"id": "p"}, 1) == {"id": "p"}
    row = {"trials": [{"trialNum": 2, "x": 1}]}
    assert entry_of(row, 2) == {"trialNum": 2, "x": 1}
    assert entry_of(row, 1) is None
    assert entry_of({"trials": "?"}, 1) is None


PRINTED = [("prompt-p", 1), ("prompt-p-trial-2", 2), ("prompt-p.retry-1", 1), ("trial-3fa9", 7)]
OTHERS = [
    ("prompt-q", 1),
    ("prompt-p-trial-1", 2),
    ("prompt-p.retry-2", 1),
    ("prompt-p-trial-2.retry-1", 3),
]


@pytest.mark.parametrize(("trial", "number"), [*PRINTED, *OTHERS])
def test_only_a_record_of_the_same_attempt(tmp_path: Path, trial: str, number: int) -> None:
    offset = segment(tmp_path / "run.raw", HEADER.replace('"t"', f'"{trial}"'))
    n_retried = 1 if "retry" in trial else 0
    named = {"raw": f"run.raw/segment-1@{offset}", "trialNum": number}
    found = raw_files(tmp_path, "p", {**named, "retried": [{}] * n_retried})
    assert bool(found) == ((trial, number) in PRINTED)


@pytest.mark.parametrize("raw", ["/etc", "../secret", "link", "up/../../secret", "{absolute}"])
def test_no_folder_outside_the_folder(tmp_path: Path, raw: str) -> None:
    secret = tmp_path / "secret"
    secret.mkdir()
    (secret / "1.out").write_text("secret")
    base = tmp_path / "base"
    base.mkdir()
    (base / "link").symlink_to(secret)
    assert raw_files(base, "p", {"raw": raw.format(absolute=secret)}) == []
