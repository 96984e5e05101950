"""Raw streams are out of the agent's reach while it runs, and nothing it plants is followed."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from assay import system
from assay.run.raw import RawStreams

HERE = 'd=$(dirname "$(readlink /proc/$$/fd/1)")'
"""As an agent finds out where its stdout is."""
PLANT = {
    "a link": "ln -sfn {victim} {place}",
    "a folder": "mkdir -p {place}",
    "a FIFO": "mkfifo {place}",
}


@pytest.mark.parametrize("what", PLANT)
@pytest.mark.parametrize("name", ["1.err", "1.out", "segment-1", "segment-2", "prompt-p0"])
@pytest.mark.parametrize("large", [False, True])
def test_what_an_agent_plants_is_never_followed_and_costs_no_measurement(
    assay: Callable,
    shell_agent: Path,
    prompts: Callable,
    read_rows: Callable,
    raw_of: Callable,
    tmp_path: Path,
    what: str,
    name: str,
    large: bool,
) -> None:
    victim = tmp_path / "victim"
    victim.mkdir() if name == "prompt-p0" else victim.write_text("mine")
    plant = PLANT[what].format(victim=victim, place=f'"$d/{name}"')
    more = "seq 1 100000 >&2; " if large else ""
    script = f'{HERE}; {plant}; {more}echo "text" >&2; R'
    done = assay("capture", prompts(script, "R"), "-s", shell_agent, "-o", "out.jsonl")
    rows = read_rows(tmp_path / "out.jsonl")
    assert done.code == 0
    assert [(row["output"], row.get("failure")) for row in rows] == [("ok", None)] * 2
    assert list(victim.iterdir()) == [] if victim.is_dir() else victim.read_text() == "mine"
    for row in rows:
        assert "result" in raw_of(tmp_path, row)["1.out"]
    assert raw_of(tmp_path, rows[0])["1.err"].endswith("text\n")
    if large and name == "prompt-p0":  # it stands where the trial's folder would have been
        assert rows[0]["raw"].endswith(".2")
        assert "somebody made" in rows[0]["warnings"][0]
    if not large and name.startswith("segment-"):
        assert rows[0]["raw"].startswith(f"out.raw/segment-{int(name[8]) + 1}-")


@pytest.mark.parametrize("what", [*PLANT, "nothing"])
@pytest.mark.parametrize("how", ["mv out.raw moved", "rm -r out.raw"])
@pytest.mark.parametrize("large", [False, True])
def test_an_agent_that_takes_away_the_folder_of_all_streams_stops_nothing(
    assay: Callable,
    shell_agent: Path,
    prompts: Callable,
    read_rows: Callable,
    raw_of: Callable,
    tmp_path: Path,
    what: str,
    how: str,
    large: bool,
) -> None:
    victim = tmp_path / "victim"
    victim.mkdir()
    plant = PLANT.get(what, "true").format(victim=victim, place="out.raw")
    more = "; seq 1 100000 >&2" if large else ""
    scripts = "R", f"{how}; {plant}{more}; R", "R"
    done = assay("capture", prompts(*scripts), "-s", shell_agent, "-o", "out.jsonl")
    assert done.code == 0, done.stderr
    rows = read_rows(tmp_path / "out.jsonl")
    assert [(row["output"], row.get("failure")) for row in rows] == [("ok", None)] * 3
    assert "somebody moved, removed or replaced out.raw" in rows[1]["warnings"][0]
    assert list(victim.iterdir()) == []
    for row in rows if how.startswith("mv") else rows[1:]:
        assert "result" in raw_of(tmp_path, row)["1.out"]


def test_a_later_turn_cannot_touch_the_streams_of_an_earlier_one(
    assay: Callable,
    shell_agent: Path,
    prompts: Callable,
    read_rows: Callable,
    raw_of: Callable,
    tmp_path: Path,
) -> None:
    turns = [
        f'{HERE}; ln -s "$PWD/victim" "$d/2.out"; ln -s "$PWD/victim" "$d/2.err"; R',
        f'{HERE}; find "$d" -name "1.*" -exec sh -c \'echo forged > "$1"\' _ {{}} ";"; R',
    ]
    path = prompts({"id": "p0", "input": turns})
    assert assay("capture", path, "-s", shell_agent, "-o", "out.jsonl").code == 0
    (row,) = read_rows(tmp_path / "out.jsonl")
    raw = raw_of(tmp_path, row)
    assert not (tmp_path / "victim").exists()
    assert "forged" not in raw["1.out"]
    assert raw["2.out"] == '{"type":"result","result":"ok"}\n'


def test_session_files_are_kept_without_links_that_leave_the_home(
    assay: Callable,
    agent: Callable,
    prompts: Callable,
    read_rows: Callable,
    raw_of: Callable,
    tmp_path: Path,
) -> None:
    (tmp_path / "secret").write_text("of the operator")
    script = (
        "mkdir -p ~/s ~/t; echo good > ~/t/real; ln -s ~/t/real ~/s/inside; echo x > ~/s/plain; "
        f"ln -s {tmp_path} ~/s/out; ln -s {tmp_path}/secret ~/s/link; mkfifo ~/s/fifo; R"
    )
    schema = agent(
        command=[
            "bash",
            "-c",
            'R() { echo \'{"type":"result","result":"ok"}\'; }; eval "${@: -1}"',
        ],
        keep=["~/s/**/*"],
    )
    done = assay("capture", prompts(script), "-s", schema, "--isolate", "-o", "out.jsonl")
    assert done.code == 0, done.stderr
    (row,) = read_rows(tmp_path / "out.jsonl")
    assert row["output"] == "ok"
    kept = [name for name in raw_of(tmp_path, row) if name.startswith("files/")]
    assert kept == ["files/s/plain"]


def test_a_file_system_without_nameless_files_is_served_too(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(system, "open_nameless", lambda *_: None)
    with RawStreams(str(tmp_path / "raw")) as streams:
        os.write(streams.make("1.out"), b"one\n")
        streams.write("files/a/b", b"two\n")
        assert list((tmp_path / "raw").iterdir()) == []
        assert streams.keep("trial")[0] == "trial"
    kept = {str(p.relative_to(tmp_path)): p.read_text() for p in tmp_path.rglob("*") if p.is_file()}
    assert kept == {"raw/trial/1.out": "one\n", "raw/trial/files/a/b": "two\n"}


TAMPER = {
    "adds a row": "head -1 out.jsonl | sed 's/p0/p2/' >> out.jsonl",
    "edits a verdict": 'sed -i \'s/"pass":false/"pass":true/\' out.jsonl',
    "removes the output": "rm out.jsonl",
}


@pytest.mark.parametrize("what", TAMPER)
def test_an_agent_that_finds_the_output_changes_no_row(
    assay: Callable,
    shell_agent: Path,
    prompts: Callable,
    read_rows: Callable,
    tmp_path: Path,
    what: str,
) -> None:
    wait = "until [ -s out.jsonl ]; do sleep 0.05; done"
    path = prompts("R", f"{wait}; {TAMPER[what]}; R", "R")
    done = assay("capture", path, "-s", shell_agent, "-g", "contains:never", "-o", "out.jsonl")
    assert done.code == 1
    assert "while it was being written" in done.stderr
    rows = read_rows(tmp_path / "out.jsonl")
    assert [(row["id"], row["score"]["pass"]) for row in rows] == [
        ("p0", False),
        ("p1", False),
        ("p2", False),
    ]


def test_an_agent_that_removes_its_own_program_has_crashed(
    assay: Callable, agent: Callable, prompts: Callable, tmp_path: Path
) -> None:
    program = tmp_path / "agent.sh"
    program.write_text('#!/bin/sh\necho \'{"type":"result","result":"ok"}\'; rm -f "$0"\n')
    program.chmod(0o755)
    path = prompts({"id": "a", "input": ["one", "two"]})
    (row,) = assay("capture", path, "-s", agent(command=[str(program)])).rows
    assert row["failure"]["cause"] == "agent_crash"
