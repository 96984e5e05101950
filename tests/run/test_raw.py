"""Raw streams are out of the agent's reach while it runs, and nothing it plants is followed."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from assay.records import files
from assay.run.raw import RawStreams

HERE = 'd=$(dirname "$(readlink /proc/$$/fd/1)")'
"""As an agent finds out where its stdout is."""
PLANT = {
    "a link": "ln -sfn {victim} {place}",
    "a folder": "mkdir -p {place}",
    "a FIFO": "mkfifo {place}",
}


@pytest.mark.parametrize("what", PLANT)
@pytest.mark.parametrize("name", ["1.err", "1.out", "prompt-p0", "prompt-p0/1.err", "prompt-p1"])
def test_what_an_agent_plants_is_never_followed_and_costs_no_measurement(
    assay: Callable,
    shell_agent: Path,
    prompts: Callable,
    read_rows: Callable,
    tmp_path: Path,
    what: str,
    name: str,
) -> None:
    victim = tmp_path / "victim"
    victim.mkdir() if name.startswith("prompt") and "/" not in name else victim.write_text("mine")
    plant = PLANT[what].format(victim=victim, place=f'"$d/{name}"')
    script = f'{HERE}; mkdir -p "$d/$(dirname {name})"; {plant}; echo "text" >&2; R'
    done = assay("capture", prompts(script, "R"), "-s", shell_agent, "-o", "out.jsonl")
    rows = read_rows(tmp_path / "out.jsonl")
    assert done.code == 0
    assert [(row["output"], row.get("failure")) for row in rows] == [("ok", None)] * 2
    assert list(victim.iterdir()) == [] if victim.is_dir() else victim.read_text() == "mine"
    for row in rows:
        assert "result" in (tmp_path / row["raw"] / "1.out").read_text()
    assert (tmp_path / rows[0]["raw"] / "1.err").read_text() == "text\n"
    if name.startswith("prompt-"):  # it stands where a trial's folder would have been
        planted_for = rows[int(name[8])]
        assert planted_for["raw"].endswith(".2")
        assert "somebody made" in planted_for["warnings"][0]


def test_a_later_turn_cannot_touch_the_streams_of_an_earlier_one(
    assay: Callable, shell_agent: Path, prompts: Callable, read_rows: Callable, tmp_path: Path
) -> None:
    turns = [
        f'{HERE}; ln -s "$PWD/victim" "$d/2.out"; ln -s "$PWD/victim" "$d/2.err"; R',
        f'{HERE}; find "$d" -name "1.*" -exec sh -c \'echo forged > "$1"\' _ {{}} ";"; R',
    ]
    path = prompts({"id": "p0", "input": turns})
    assert assay("capture", path, "-s", shell_agent, "-o", "out.jsonl").code == 0
    (row,) = read_rows(tmp_path / "out.jsonl")
    raw = tmp_path / row["raw"]
    assert not (tmp_path / "victim").exists()
    assert "forged" not in (raw / "1.out").read_text()
    assert (raw / "2.out").read_text() == '{"type":"result","result":"ok"}\n'


def test_session_files_are_kept_without_links_that_leave_the_home(
    assay: Callable, agent: Callable, prompts: Callable, read_rows: Callable, tmp_path: Path
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
    kept = tmp_path / row["raw"] / "files"
    assert [path.name for path in kept.rglob("*") if path.is_file()] == ["plain"]


def test_a_file_system_without_nameless_files_is_served_too(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(files, "_TMPFILE", 0)
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
