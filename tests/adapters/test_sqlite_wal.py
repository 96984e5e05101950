"""A database whose log had bytes covered can still be read whole."""

import sqlite3
from contextlib import closing
from pathlib import Path
from shutil import copyfile

import pytest

from assay.adapters.opencode.files import repair_wal


@pytest.mark.parametrize("page_size", [512, 4096])
def test_covered_log_is_read_to_its_end(tmp_path: Path, page_size: int) -> None:
    source, copy = tmp_path / "a.db", tmp_path / "b.db"
    with closing(sqlite3.connect(source)) as connection:
        connection.execute(f"pragma page_size={page_size}")
        connection.execute("pragma journal_mode=wal")
        connection.execute("create table t (x text)")
        for n in range(50):
            connection.execute("insert into t values (?)", (f"row {n} secret-key-{n:03}",))
            connection.commit()
        copyfile(source, copy)
        log = source.with_name("a.db-wal").read_bytes()
    covered = log.replace(b"secret-key-007", b"[redacted]****")
    assert covered != log
    assert read(copy, covered) < 50
    assert read(copy, repair_wal(covered)) == 50
    assert repair_wal(log) == log


def test_what_is_no_log_stays_as_it_is() -> None:
    for data in (b"", b"x" * 31, b"x" * 500):
        assert repair_wal(data) == data


def read(path: Path, log: bytes) -> int:
    path.with_name(path.name + "-shm").unlink(missing_ok=True)
    path.with_name(path.name + "-wal").write_bytes(log)
    try:
        with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as connection:
            return int(connection.execute("select count(*) from t").fetchone()[0])
    except sqlite3.OperationalError:
        return 0
