"""assay run | assay extract, as a person types it."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

CLOCK = {"timing", "raw", "specHash", "sessionId"}


def steps_without_clock(row: dict[str, Any]) -> list[dict[str, Any]]:
    clock = ("timestamp", "duration")
    return [{k: v for k, v in step.items() if k not in clock} for step in row["trajectory"]]


def test_run_pipe_extract_equals_capture(
    assay: Callable, agent: Callable, prompts: Callable, tmp_path: Path
) -> None:
    schema = agent()
    path = prompts(
        {"id": "a", "input": "hello", "hint": "h", "metadata": {"c": 1}, "mine": [1]},
        {"id": "b", "input": ["one $& {{input}}", "!do resumed ; call 1 Read x ; done 1 y"]},
        {"id": "c", "input": "!do err oops ; exit 4"},
        {"id": "d", "input": "!do say a ; noresult", "metadata": {}},
    )
    captured = assay("capture", path, "-s", schema).rows
    command = f"{sys.executable} -m assay"
    line = f"{command} run {path} -s {schema} | {command} extract -s {schema}"
    piped = subprocess.run(
        ["/bin/sh", "-c", line], cwd=tmp_path, capture_output=True, check=True, text=True
    )
    extracted = [json.loads(row) for row in piped.stdout.splitlines()]
    assert len(captured) == len(extracted) == 4
    for one, other in zip(captured, extracted, strict=True):
        assert steps_without_clock(one) == steps_without_clock(other)
        assert one["specHash"] == other["specHash"]
        rest = CLOCK | {"trajectory"}
        assert {k: v for k, v in one.items() if k not in rest} == {
            k: v for k, v in other.items() if k not in rest
        }
    assert captured[0]["mine"] == [1]
    assert captured[0]["hint"] == "h"


def test_extract_keeps_the_times_of_the_raw_row(
    assay: Callable, agent: Callable, prompts: Callable, tmp_path: Path
) -> None:
    schema = agent()
    raw = assay("run", prompts("!do wait 0.2 ; say a ; wait 0.3 ; say b"), "-s", schema)
    (row,) = raw.rows
    (tmp_path / "raw.jsonl").write_text(raw.stdout)
    first, second = (
        assay("extract", *args, "-s", schema, stdin=stdin).rows[0]
        for args, stdin in (([tmp_path / "raw.jsonl"], None), ([], raw.stdout))
    )
    assert first == second
    times = [step["timestamp"] for step in first["trajectory"]]
    assert times == row["rawTimes"][1:3]
    assert first["timing"]["firstResponse"] == times[0] >= 200
    assert times[1] - times[0] >= 100  # on a busy machine the first line may be read late


def test_extract_says_how_much_it_understood(
    assay: Callable, agent: Callable, prompts: Callable
) -> None:
    raw = assay("run", prompts("!do event odd ; event odd ; line nonsense"), "-s", agent())
    done = assay("extract", "-s", agent(), stdin=raw.stdout)
    assert "2 of 5 events mapped (40.0%)" in done.stderr
    assert "odd x2" in done.stderr
    assert "1 lines are not JSON" in done.stderr


def test_rows_of_the_seed_without_times_and_turns_are_read(
    assay: Callable, agent: Callable
) -> None:
    row = {
        "id": "a",
        "input": ["x", "y"],
        "rawLines": ['{"type":"message","text":"m"}', '{"type":"result","result":"r"}'],
        "timing": {"start": 1000, "end": 2000, "total": 1000},
        "mine": 1,
    }
    (read,) = assay("extract", "-s", agent(), stdin=json.dumps(row)).rows
    assert (read["output"], read["mine"]) == ("r", 1)
    assert "failure" not in read


def test_the_error_of_a_row_of_the_seed_is_kept(
    assay: Callable, agent: Callable, tmp_path: Path
) -> None:
    times = {"start": 1000, "end": 2000, "total": 1000}
    row = {"id": "a", "input": "x", "rawLines": [], "timing": times, "error": "no such program"}
    (tmp_path / "raw.jsonl").write_text(json.dumps(row))
    (read,) = assay("extract", "raw.jsonl", "-s", agent()).rows
    assert (read["error"], read["toolErrors"]) == ("no such program", True)
    assert read["failure"]["message"] == "no such program"


def test_an_empty_file_has_no_rows(assay: Callable, agent: Callable, tmp_path: Path) -> None:
    (tmp_path / "raw.jsonl").write_text("\n")
    done = assay("extract", "raw.jsonl", "-s", agent())
    assert (done.code, done.stdout) == (0, "")
    assert "raw.jsonl: no rows" in done.stderr


def test_bad_rows_are_named(assay: Callable, agent: Callable, tmp_path: Path) -> None:
    good = {"id": "a", "input": "x", "rawLines": [], "timing": {"start": 0, "end": 1}}
    (tmp_path / "raw.jsonl").write_text(json.dumps(good) + "\n" + '{"id": "b"}\n')
    done = assay("extract", "raw.jsonl", "-s", agent())
    assert done.code == 1
    assert "raw.jsonl:2" in done.stderr
    assert "input" in done.stderr
    empty = assay("extract", "-s", agent(), stdin="")
    assert empty.code == 1
    assert "no rows" in empty.stderr
    missing = assay("extract", "nowhere.jsonl", "-s", agent())
    assert missing.code == 1
    assert "nowhere.jsonl" in missing.stderr
    assert assay("extract", "raw.jsonl").code == 2


def test_an_existing_output_is_replaced_when_all_went_well(
    assay: Callable, agent: Callable, tmp_path: Path
) -> None:
    (tmp_path / "out.jsonl").write_text('{"id":"old"}\n')
    row = {"id": "a", "input": "x", "rawLines": [], "timing": {"start": 0, "end": 1}}
    args = ("extract", "-s", agent(), "-o", "out.jsonl")
    refused = assay(*args, stdin=json.dumps(row) + "\nno json\n")
    assert refused.code == 1
    assert (tmp_path / "out.jsonl").read_text() == '{"id":"old"}\n'
    assert assay(*args, stdin=json.dumps(row)).code == 0
    assert json.loads((tmp_path / "out.jsonl").read_text())["id"] == "a"


def test_a_raw_folder_elsewhere_is_read_only_if_it_is_named(
    assay: Callable, agent: Callable, prompts: Callable, tmp_path: Path
) -> None:
    (tmp_path / "sub").mkdir()
    schema = agent()
    words = ("-s", schema, "-o", "sub/raw.jsonl", "--raw-dir", "else")
    assert assay("run", prompts("hello", "again"), *words).code == 0
    done = assay("extract", "sub/raw.jsonl", "-s", schema)
    assert (done.code, len(done.rows)) == (0, 2)
    said = "2 rows name raw streams that are not below the folder of the file"
    assert said in " ".join(done.stderr.split())
    assert "--raw-dir" in done.stderr
    assert all("session files were not read" in row["warnings"][0] for row in done.rows)
    named = assay("extract", "sub/raw.jsonl", "-s", schema, "--raw-dir", "else")
    assert "Warning" not in named.stderr
    assert all("warnings" not in row for row in named.rows)
