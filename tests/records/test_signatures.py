"""Codes of rows: what is known again, and what is not."""

from pathlib import Path

import pytest

from assay.records import signatures
from assay.records.journal import Journal, changed_rows
from assay.records.signatures import Signatures, unsigned


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return tmp_path / "state/assay/outputs"


def test_a_line_that_a_kill_tore_is_not_somebody_elses(tmp_path: Path) -> None:
    found = Signatures.begin(tmp_path, "")
    assert found is not None
    found.sign(b'{"id":"a"}')
    (path := tmp_path / "rows.jsonl").write_bytes(b'{"id":"a"}\n{"id":"b","out')
    assert unsigned(path, found) == 0
    path.write_bytes(b'{"id":"a"}\n{"id":"b"}')
    assert unsigned(path, found) == 1


def test_a_row_that_was_replaced_does_not_come_back(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    with Journal(path, "new") as journal:
        journal.append(b'{"id":"a","pass":true}')
        journal.rewrite([b'{"id":"a","pass":false}'])
    assert changed_rows(path) == 0
    path.write_bytes(b'{"id":"a","pass":true}\n')
    assert changed_rows(path) == 1


def test_a_file_that_is_written_again_forgets_its_rows(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    for mode, row in (("new", b'{"id":"a"}'), ("overwrite", b'{"id":"b"}')):
        with Journal(path, mode) as journal:
            journal.append(row)
    assert changed_rows(path) == 0
    path.write_bytes(b'{"id":"a"}\n')
    assert changed_rows(path) == 1


def test_the_codes_of_few_outputs_are_kept(
    tmp_path: Path, state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(signatures, "_MOST_OUTPUTS", 10)
    for number in range(30):
        path = tmp_path / f"{number}.jsonl"
        with Journal(path, "new") as journal:
            journal.append(b'{"id":"a"}')
        assert changed_rows(path) == 0
    assert len(list(state.iterdir())) <= 12
    assert state.parent.stat().st_mode & 0o077 == 0
