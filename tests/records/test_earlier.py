"""Files that earlier states of Assay wrote are read for ever; tests/earlier.tar.xz has them by day.

Nothing in the archive is ever made again: a release adds a folder of its own.
"""

import json
import shutil
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest

ARCHIVE = Path(__file__).parents[1] / "earlier.tar.xz"
DAYS = ("2026-11-15", "2026-11-16", "2026-11-19")
WROTE = {
    "2026-11-15": "an Assay of 15 November 2026 or before",
    "2026-11-16": "an Assay of 16 to 18 November 2026",
    "2026-11-19": "an Assay of 18 or 19 November 2026",
}
READERS = {
    "summarize": "summarize capture.jsonl",
    "summarize trials": "summarize trials.jsonl",
    "format": "format capture.jsonl -f csv",
    "format trials": "format trials.jsonl -f markdown",
    "grade": "grade capture.jsonl -g contains",
    "grade trials": "grade trials.jsonl -g exact",
    "extract": "extract raw.jsonl -s demo",
    "compare": "compare capture.jsonl new:capture.jsonl -f markdown",
    "compare trials": "compare trials.jsonl new:trials.jsonl -f json",
    "explain": "explain capture.jsonl trials.jsonl",
    "report": "report capture.jsonl -f markdown",
    "export": "export sft trials.jsonl",
    "identity": "identity capture.jsonl",
    "raw": "raw sum capture.jsonl --stream out",
    "baseline": "baseline add trials.jsonl --to pooled.jsonl",
}


@pytest.fixture(scope="session")
def earlier(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("earlier")
    with tarfile.open(ARCHIVE) as archive:
        archive.extractall(folder, filter="data")
    return folder / "old"


@pytest.fixture(params=DAYS)
def day(request: pytest.FixtureRequest, earlier: Path, tmp_path: Path) -> str:
    shutil.copytree(earlier / request.param, tmp_path, dirs_exist_ok=True)
    return str(request.param)


def test_every_command_that_reads_results(day: str, assay: Callable) -> None:
    for name, line in READERS.items():
        done = assay(*line.split())
        if name in ("identity", "baseline") and day == DAYS[0]:  # nothing was known of identity
            assert " not say what " in done.stderr
            continue
        assert done.code == 0, (name, done.stderr)
        assert done.stdout or "starts pooled" in done.stderr, name


def test_the_passes_are_those_that_were_written(day: str, assay: Callable) -> None:
    done = assay("query", "SELECT id, pass FROM trials", "trials.jsonl", "-f", "csv")
    rows = sorted(done.stdout.split()[1:])
    assert rows == ["crash,false", "crash,false", "sum,true", "sum,true"]


def test_experiments(day: str, assay: Callable, tmp_path: Path) -> None:
    for run in (tmp_path / "experiments").glob("*/*"):
        done = assay("compare", run / "control.jsonl", run / "rel.jsonl", "-f", "json")
        assert done.code == 0, done.stderr
        assert assay("explain", run).code == 0


def test_games_are_proven_by_their_logs(day: str, assay: Callable, tmp_path: Path) -> None:
    pytest.importorskip("arc_agi")
    shutil.move(tmp_path / "arc", tmp_path / ".arc-agi-benchmarks")
    command = "verify" if day == DAYS[0] else "report"  # all three are the same game
    done = assay("arc", command, "latest")
    assert done.code == 0, done.stderr
    assert ("replayed, 500 actions agree" if day == DAYS[0] else "0.40") in done.stdout


def test_doctor_says_who_wrote_a_file(day: str, assay: Callable, tmp_path: Path) -> None:
    wrote = WROTE[day]
    for name, kind in (
        ("capture.jsonl", "captures, 2 rows"),
        ("trials.jsonl", "results of trials, 2 rows"),
        ("raw.jsonl", "raw output of a run, 2 rows"),
        ("arc/runs", "a run of ARC-AGI-3 games, 1 row"),
    ):
        path = next((tmp_path / name).iterdir()) if name == "arc/runs" else tmp_path / name
        done = assay("doctor", path, "--json")
        assert done.code == 0, done.stderr
        assert json.loads(done.stdout)[0]["words"] == f"{kind}, written by {wrote}"


def test_doctor_names_the_version_of_today(assay: Callable, tmp_path: Path) -> None:
    (tmp_path / "p.jsonl").write_text('{"id": "a", "input": "What is 2 + 40?"}\n')
    assert assay("capture", "p.jsonl", "-s", "demo", "-o", "new.jsonl", "-q").code == 0
    version = assay("--version").stdout.strip()
    assert f"captures, 1 row, written by Assay {version}" in assay("doctor", "new.jsonl").stdout
    (tmp_path / "mixed.jsonl").write_text(
        (tmp_path / "new.jsonl").read_text() + '{"id": "b", "trajectory": [], "timing": {}}\n'
    )
    assert " and another program, such as" in assay("doctor", "mixed.jsonl").stdout.replace(
        "\n", " "
    )


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("empty.jsonl", b"", "no rows"),
        ("text.txt", b"hello\n", "text.txt:1: not a row that Assay writes"),
        ("other.zip", b"PK\x05\x06" + bytes(18), "a zip file without manifest.json"),
    ],
)
def test_doctor_refuses_what_is_no_result(assay, tmp_path, name, content, said):
    (tmp_path / name).write_bytes(content)
    done = assay("doctor", name)
    assert (done.code, said in done.stderr) == (1, True), done.stderr
