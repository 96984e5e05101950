"""The index: right about every trial, extended not rebuilt, never fooled by another file."""

import json
import os
import shutil
import stat
import subprocess
import sys
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from assay.compare.columns import TRIAL
from assay.compare.runs import load_run
from assay.viewer.index import Index


@pytest.fixture
def file(tmp_path: Path, sample: ModuleType) -> Path:
    return sample.write(tmp_path / "run.jsonl", sample.rows(20, seed=1, rate=0.5, agent="a"))


def opened(path: Path) -> Index:
    index = Index(path)
    index.refresh()
    return index


def test_every_trial_is_found_again(file: Path) -> None:
    index = opened(file)
    rows = [json.loads(line) for line in file.read_text().splitlines()]
    assert index.meta.n_trials == 20
    assert index.kind == "capture"
    for number, row in enumerate(rows):
        assert json.loads(index.line(number)) == row
        assert index.text(number)[0] == row["id"]
        record = {name: column[number] for name, column in index.columns.trials.items()}
        assert record["duration_ms"] == row["timing"]["total"]
        assert record["n_steps"] == len(row["trajectory"])
        passed = row.get("score", {}).get("pass")
        assert np.isnan(record["passed"]) if passed is None else record["passed"] == passed
    calls = sum(s["type"] == "tool_call" for row in rows for s in row["trajectory"])
    assert sum(n for n, _ in index.meta.facts.tools.values()) == calls
    index.close()


def test_a_kept_index_is_not_read_again(file: Path) -> None:
    first = opened(file)
    first.close()
    folder = first.folder
    before = (folder / "rows.id").stat().st_mtime_ns
    again = Index(file)
    assert again.meta.n_trials == 20
    assert again.refresh() is False
    assert (folder / "rows.id").stat().st_mtime_ns == before
    again.close()


KILLED = """
import os, sys
from pathlib import Path
from assay.viewer.index import Index
left, cache = int(sys.argv[2]), os.environ["XDG_CACHE_HOME"]
def kill(event, args):
    global left
    if event in ("open", "os.rename") and str(args[0]).startswith(cache):
        left -= 1
        if left == 0:
            os.kill(os.getpid(), 9)
sys.addaudithook(kill)
Index(Path(sys.argv[1])).refresh()
"""


def test_an_index_is_right_after_a_kill_at_any_moment(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    codes = []
    for moment in (1, 4, 12, 999):
        argv = [sys.executable, "-c", KILLED, str(file), str(moment)]
        codes.append(subprocess.run(argv, check=False).returncode)
        index = opened(file)
        assert index.meta.n_trials == 20
        ids = [json.loads(line)["id"] for line in file.read_text().splitlines()]
        assert [index.text(number)[0] for number in range(20)] == ids
        index.close()
        if moment != 999:
            shutil.rmtree(tmp_path / "cache")
    assert codes[0] == codes[1] == -9
    assert codes[-1] == 0


def test_growing_file_is_extended_and_a_torn_line_waits(file: Path) -> None:
    index = opened(file)
    row = json.loads(index.line(0)) | {"id": "more"}
    line = json.dumps(row)
    with file.open("a") as out:
        out.write(line[:100])
        out.flush()
        assert index.refresh() is False
        assert index.meta.n_bad == 0
        out.write(line[100:])
        out.flush()
        assert index.refresh() is True  # whole, only its line end is missing
        out.write("\n" + line.replace("more", "last") + "\n")
    assert index.refresh() is True
    assert [index.text(n)[0] for n in (20, 21)] == ["more", "last"]
    assert json.loads(index.line(20))["id"] == "more"
    index.close()


def test_columns_in_use_stay_as_they_are_while_the_file_grows(file: Path) -> None:
    index = opened(file)
    before = index.columns
    with file.open("ab") as out:
        out.write(file.read_bytes())
    assert index.refresh() is True
    assert len(before.rows["id"]) == len(before.trials["passed"]) == 20
    assert before.rows["id"].tolist() * 2 == index.columns.rows["id"].tolist()
    run = index.run("x")
    assert (len(run.ids), run.health.n_repeated) == (20, 20)
    index.close()


def test_another_file_under_the_same_name_is_read_anew(file: Path, sample: ModuleType) -> None:
    opened(file).close()
    sample.write(file, sample.rows(25, seed=7, rate=0.5, agent="b"))
    index = opened(file)
    assert index.meta.n_trials == 25
    assert json.loads(index.line(3))["agent"]["adapter"] == "b"
    sample.write(file, sample.rows(5, seed=8, rate=0.5, agent="c"))
    index.refresh()
    assert index.meta.n_trials == 5
    index.close()


@pytest.mark.parametrize(
    "line",
    [
        b"not json",
        b'{"id": 3, "trajectory": [], "timing": {}}',
        b'{"id": "x"}',
        b"\xff\xfe",
        b"[" * 100_000,
        b"null",
    ],
)
def test_lines_that_are_no_rows_are_counted_and_passed_over(file: Path, line: bytes) -> None:
    data = file.read_bytes()
    file.write_bytes(line + b"\n" + data + b"\n\r\n" + line + b"\n")
    index = opened(file)
    assert index.meta.n_trials == 20
    assert index.meta.n_bad == 2
    assert index.meta.bad == [1, 24]
    index.close()


def test_two_viewers_do_not_disturb_each_other(file: Path) -> None:
    first, second = opened(file), opened(file)
    assert first.folder != second.folder
    assert second.meta.n_trials == 20
    second.close()
    assert not second.folder.exists()
    first.close()


def test_the_index_is_in_the_cache_and_never_beside_the_file(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    before = sorted(file.parent.iterdir())
    index = opened(file)
    assert [path for path in sorted(file.parent.iterdir()) if path.name != "cache"] == before
    assert index.folder.is_relative_to(tmp_path / "cache")
    assert index.meta.n_trials == 20
    assert stat.S_IMODE(os.stat(index.folder / "lock").st_mode) == 0o600  # noqa: PTH116
    index.close()


def test_a_long_line_and_strange_ids(tmp_path: Path) -> None:
    ids = ["a\nb", "\u202e", "x" * 5000, '"},{"', "__proto__", ""]
    rows: list[dict[str, Any]] = [
        {
            "id": one,
            "input": "i",
            "trajectory": [],
            "timing": {"total": 1},
            "output": "o" * 9_000_000,
        }
        if n == 2
        else {
            "id": one,
            "input": ["a", "b"],
            "output": "",
            "trajectory": [],
            "timing": {"start": 1, "end": 3},
        }
        for n, one in enumerate(ids)
    ]
    file = tmp_path / "r.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    index = opened(file)
    assert [index.text(n)[0] for n in range(len(ids))] == ids
    assert index.text(0)[1] == "a → b"
    assert index.columns.trials["duration_ms"].tolist() == [2, 2, 1, 2, 2, 2]
    index.close()


NUMBER = st.one_of(st.none(), st.floats(0, 1e6))
CAUSE = st.sampled_from(["agent_timeout", "agent_crash", "provider", "odd"])
COMMON = {
    "trajectory": st.lists(
        st.sampled_from(
            [
                {"type": "message"},
                {"type": "tool_call", "name": "Read", "status": "failed"},
                {"type": "thought"},
            ]
        ),
        max_size=3,
    ),
}
OPTIONAL = {
    "toolErrors": st.booleans(),
    "usage": st.fixed_dictionaries({}, optional={"inputTokens": NUMBER, "costUsd": NUMBER}),
    "failure": st.fixed_dictionaries({"cause": CAUSE}, optional={"answered": st.booleans()}),
    "agent": st.just({"adapter": "a", "version": "1"}),
    "grades": st.just({"g": {"version": "2"}}),
    "graderFailures": st.just({"g": "broke"}),
    "permissionDenials": st.integers(0, 3),
}
METADATA = st.fixed_dictionaries(
    {},
    optional={
        "category": st.sampled_from(["x", "y", 3, None, ["z"]]),
        "timedOut": st.booleans(),
        "trajectoryRichness": st.sampled_from(["full", "minimal", "no word of ours"]),
    },
)
IDS = st.sampled_from(["a", "b", "c", "ü\n"])
CAPTURE = st.fixed_dictionaries(
    COMMON
    | {
        "id": IDS,
        "input": st.one_of(st.text(max_size=5), st.lists(st.text(max_size=5), max_size=2)),
        "output": st.sampled_from(["", "o"]),
        "timing": st.fixed_dictionaries({}, optional={"total": NUMBER, "start": st.just(1.0)}),
    },
    optional=OPTIONAL
    | {
        "metadata": METADATA,
        "errors": st.lists(st.sampled_from(["disk", "Timeout"]), max_size=2),
        "score": st.fixed_dictionaries(
            {"pass": st.sampled_from([True, False, None]), "score": st.sampled_from([0, 1, None])}
        ),
    },
)
ENTRY = st.fixed_dictionaries(
    COMMON | {"trialNum": st.integers(1, 9), "duration": st.floats(0, 1e6)},
    optional=OPTIONAL | {"pass": st.booleans(), "score": st.sampled_from([0, 0.5, 1])},
)
TRIALS = st.fixed_dictionaries(
    {"id": IDS, "input": st.text(max_size=5), "k": st.integers(0, 4), "trials": st.lists(ENTRY)},
    optional={"metadata": METADATA, "passAtK": st.floats(0, 1)},
)


@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_an_index_made_in_pieces_is_the_run_that_compare_reads(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    """The file is written in pieces of any size, and the index refreshed after each."""
    kind = data.draw(st.sampled_from(["capture", "trials"]))
    rows = data.draw(st.lists(CAPTURE if kind == "capture" else TRIALS, min_size=1, max_size=6))
    content = "".join(json.dumps(row) + "\n" for row in rows).encode()
    cuts = sorted(data.draw(st.lists(st.integers(0, len(content)), max_size=3)))
    file = tmp_path_factory.mktemp("pieces") / "run.jsonl"
    file.write_bytes(b"")
    index = Index(file)
    for start, end in pairwise([0, *cuts, len(content)]):
        with file.open("ab") as out:
            out.write(content[start:end])
        index.refresh()
    assert index.kind == kind
    assert [json.loads(index.line(n)) for n in range(index.meta.n_rows)] == rows
    assert [index.text(n)[0] for n in range(index.meta.n_rows)] == [row["id"] for row in rows]
    mine, theirs = index.run("x"), load_run("x", file, index.kind, "category")
    for name in set(theirs.columns) - {"n_trials"}:
        left, right = getattr(mine, name), getattr(theirs, name)
        assert np.array_equal(left, right, equal_nan=True), name
    assert np.array_equal(mine.prompt, theirs.prompt)
    for name in set(theirs.__struct_fields__) - {"columns"}:
        assert getattr(mine, name) == getattr(theirs, name), name
    index.close()


def forge_numbers(folder: Path) -> None:
    """All trials passed, in a column of the same size."""
    path = folder / "trials.passed"
    path.write_bytes(np.ones(20, TRIAL["passed"]).tobytes())


def forge_meta(folder: Path) -> None:
    path = folder / "meta.json"
    path.write_text(path.read_text().replace('"nTrials":20', '"nTrials":19'))


def link_elsewhere(folder: Path) -> None:
    """The viewer would cut off the file behind the link and append what rows say."""
    for name in ("texts", "rows.id", "meta.json"):
        (folder / name).unlink()
        (folder / name).symlink_to(folder.parent / "precious")


def block(folder: Path) -> None:
    (folder / "meta.json").unlink()
    os.mkfifo(folder / "meta.json.new")
    (folder / "texts").unlink()
    (folder / "texts").mkdir()


@pytest.mark.parametrize("forge", [forge_numbers, forge_meta, link_elsewhere, block])
def test_a_planted_index_is_made_again(file: Path, forge: Callable[[Path], None]) -> None:
    index = opened(file)
    passed = np.array(index.columns.trials["passed"])
    index.close()
    precious = index.folder.parent / "precious"
    precious.write_text("mine")
    forge(index.folder)
    again = opened(file)
    assert again.folder == index.folder
    assert again.meta.n_trials == 20
    np.testing.assert_array_equal(again.columns.trials["passed"], passed)
    assert precious.read_text() == "mine"
    precious.unlink()
    again.close()


def test_an_index_of_another_user_is_made_again(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened(file).close()
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "another"))
    index = Index(file)
    assert index.meta.n_trials == 0
    index.close()
