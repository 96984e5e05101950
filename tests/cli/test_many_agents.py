"""Five hundred agents at once."""

from collections.abc import Callable
from pathlib import Path

N = 500


def test_500_agents_that_sleep_run_at_once(
    assay: Callable, prompts: Callable, read_rows: Callable, raw_of: Callable, tmp_path: Path
) -> None:
    (tmp_path / "began").mkdir()
    # Each waits until all have begun, so that a smaller number at once would not end.
    script = (
        'touch "began/$$"; n=0; until [ $n -ge 500 ]; do sleep 1; n=$(ls began | wc -l); done; '
        'echo "$PROMPT"'
    )
    path = prompts(*[f"number {n}" for n in range(N)])
    out = tmp_path / "out.jsonl"
    words = ("capture", path, "--shell", script, "-j", N, "-o", out, "-t", 120_000)
    done = assay(*words, measure=True)
    assert done.code == 0, done.stderr
    rows = read_rows(out)
    assert sorted(row["output"] for row in rows) == sorted(f"number {n}" for n in range(N))
    assert [row for row in rows if "failure" in row] == []
    assert done.peak_mb < 150
    assert len(list((tmp_path / "out.raw").iterdir())) == 1
    for row in rows[::50]:
        assert raw_of(tmp_path, row)["1.out"] == row["output"] + "\n"
