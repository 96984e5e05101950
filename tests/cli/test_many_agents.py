"""Five hundred agents at once."""

import os
import threading
from collections.abc import Callable
from pathlib import Path

N = 500


def test_500_agents_that_sleep_run_at_once(
    assay: Callable,
    prompts: Callable,
    read_rows: Callable,
    raw_of: Callable,
    eventually: Callable,
    tmp_path: Path,
) -> None:
    began, gate, ended = tmp_path / "began", tmp_path / "gate", threading.Event()
    began.mkdir()
    os.mkfifo(gate)
    # Each waits until all have begun, so that a smaller number at once would not end.
    script = ': > "began/$$"; read -r line < gate; echo "$PROMPT"'

    def open_gate() -> None:
        with gate.open("r+b", buffering=0) as file:
            if eventually(lambda: len(os.listdir(began)) == N, 110):  # noqa: PTH208
                file.write(b"\n" * N)
            ended.wait()

    opening = threading.Thread(target=open_gate)
    opening.start()
    path = prompts(*[f"number {n}" for n in range(N)])
    out = tmp_path / "out.jsonl"
    words = ("capture", path, "--shell", script, "-j", N, "-o", out, "-t", 120_000)
    done = assay(*words, measure=True)
    ended.set()
    opening.join()
    assert done.code == 0, done.stderr
    rows = read_rows(out)
    assert sorted(row["output"] for row in rows) == sorted(f"number {n}" for n in range(N))
    assert [row for row in rows if "failure" in row] == []
    assert done.peak_mb < 150
    assert len(list((tmp_path / "out.raw").iterdir())) == 1
    for row in rows[::50]:
        assert raw_of(tmp_path, row)["1.out"] == row["output"] + "\n"
