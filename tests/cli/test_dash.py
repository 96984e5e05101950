"""`-` is stdin or stdout in every command that takes a file, and -o treats existing files alike."""

import gzip
import json
import os
import pty
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import pytest

from assay.cli.group import cli
from assay.cli.parameters import InFile, NamedFile, OutFile

READERS = {
    "capture": (["capture", "{}", "-s", "demo", "-q"], "p.jsonl"),
    "trials": (["trials", "{}", "-s", "demo", "-k", "1", "-q"], "p.jsonl"),
    "run": (["run", "{}", "-s", "demo", "-q"], "p.jsonl"),
    "extract": (["extract", "{}", "-s", "demo", "-q"], "raw.jsonl"),
    "raw": (["raw", "p0", "{}", "--stream", "out"], "r.jsonl"),
    "grade": (["grade", "{}", "-g", "contains", "-q"], "r.jsonl"),
    "summarize": (["summarize", "{}"], "r.jsonl"),
    "format": (["format", "{}", "-f", "csv"], "r.jsonl"),
    "calibrate": (["calibrate", "{}", "--json"], "r.jsonl"),
    "calibrate sheet": (["calibrate", "{}", "--export", "-", "-q"], "r.jsonl"),
    "calibrate labels": (["calibrate", "r.jsonl", "--labels", "{}", "--json"], "labels.jsonl"),
    "validate-refs": (["validate-refs", "{}", "-g", "contains", "-q"], "p.jsonl"),
    "balance": (["balance", "{}", "-q"], "p.jsonl"),
    "compare": (["compare", "old:r.jsonl", "new:{}", "-f", "markdown"], "r.jsonl"),
    "compare --run": (["compare", "r.jsonl", "--run", "n:{}", "-f", "markdown"], "r.jsonl"),
    "report": (["report", "a:{}", "-f", "junit"], "r.jsonl"),
    "plan": (["plan", "{}"], "r.jsonl"),
    "export": (["export", "sft", "{}", "-q"], "r.jsonl"),
    "query": (["query", "SELECT id, pass FROM trials", "{}"], "r.jsonl"),
    "export kto": (["export", "kto", "{}", "-q"], "r.jsonl"),
    "schema": (["extract", "raw.jsonl", "-s", "{}", "-q"], "agent.json"),
}
"""Each command, with {} for the file, and a file to give it."""
WITHOUT_FILE = ["extract", "grade", "summarize", "format", "calibrate", "validate-refs", "balance"]
WRITERS = {name: words for name, (words, _) in READERS.items() if name != "calibrate sheet"}
WRITERS |= {"schemas": ["schemas", "--json"], "schemas list": ["schemas"]}
WRITERS |= {"schemas name": ["schemas", "CaptureResult"], "plan json": ["plan", "--rate", "0.5"]}
ARE_NOT_DATA = {
    ("trigger", "skill_dir"),  # a folder
    ("trigger", "--compare"),  # may be a folder
    ("clean", "folders"),
    ("identity", "path"),  # may be a folder
    ("identity", "other"),
    ("ab", "source"),  # is read again by the command that continues the run
    ("view", "--labels"),  # grows while the page is open, so it must be a file
}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory, run: Callable[..., Any]) -> Path:
    """A folder with a file of every kind."""
    folder = tmp_path_factory.mktemp("made")
    prompts = [
        {"id": f"p{n}", "input": f"What is {i} + 40?", "hint": "42", "reference": "42"}
        for n, i in enumerate((2, 3, 2, 4))
    ]
    (folder / "p.jsonl").write_text("".join(json.dumps(row) + "\n" for row in prompts))
    run(folder, "capture", "p.jsonl", "-s", "demo", "-g", "contains", "-o", "r.jsonl", "-q")
    run(folder, "run", "p.jsonl", "-s", "demo", "-o", "raw.jsonl", "-q")
    run(folder, "calibrate", "r.jsonl", "--export", "labels.jsonl", "-q")
    labelled = (folder / "labels.jsonl").read_text().replace('"label":null', '"label":"pass"')
    (folder / "labels.jsonl").write_text(labelled)
    (folder / "agent.json").write_text(
        json.dumps(
            {
                "version": 1,
                "name": "x",
                "command": ["x"],
                "sessionMode": "stream",
                "prompt": {},
                "output": {"flag": "", "value": ""},
                "result": {
                    "matchPath": "$.type",
                    "matchValue": "result",
                    "contentPath": "$.result",
                },
            }
        )
    )
    return folder


@pytest.fixture(scope="module")
def run(warm_assays: Any) -> Callable[..., Any]:
    """Run assay to its end in a folder."""

    def start(folder: Path, *words: str, stdin: bytes = b"", check: bool = True) -> Any:
        done = warm_assays.run(list(map(str, words)), folder, os.environ, stdin, 120)
        assert not check or done.returncode == 0, done.stderr.decode()
        assert b"Traceback" not in done.stderr
        return done

    return start


def words_with(words: list[str], file: str) -> list[str]:
    return [word.replace("{}", file) for word in words]


def steady(output: bytes) -> Any:
    """Leave out what differs between two runs of one command: clocks, versions and folders."""
    if output.startswith((b'{"id"', b'{"messages"')):
        rows = [json.loads(line) for line in output.splitlines()]
        return [(row["id"], row.get("output"), row.get("score"), row.get("label")) for row in rows]
    return b"\n".join(line for line in output.splitlines() if b"Generated" not in line)


@pytest.mark.parametrize("name", READERS)
def test_a_dash_reads_stdin_as_the_file_is_read(name, made, run):
    words, file = READERS[name]
    from_file = run(made, *words_with(words, file))
    from_stdin = run(made, *words_with(words, "-"), stdin=(made / file).read_bytes())
    assert from_file.stdout
    assert steady(from_stdin.stdout) == steady(from_file.stdout)


@pytest.mark.parametrize("name", WITHOUT_FILE)
def test_without_a_file_stdin_is_read(name, made, run):
    words, file = READERS[name]
    data = (made / file).read_bytes()
    implied = run(made, *(word for word in words if word != "{}"), stdin=data)
    assert steady(implied.stdout) == steady(run(made, *words_with(words, "-"), stdin=data).stdout)


@pytest.mark.parametrize("name", [*WITHOUT_FILE, "capture", "run", "trials", "plan", "compare"])
def test_stdin_without_rows_is_refused(name, made, run):
    done = run(made, *words_with(READERS[name][0], "-"), check=False)
    assert done.returncode == 1
    assert b"stdin" in done.stderr


@pytest.mark.parametrize("name", READERS)
def test_a_terminal_as_stdin_is_refused(name, made, start):
    terminal, other_end = pty.openpty()
    process = start(*words_with(READERS[name][0], "-"), cwd=made, stdin=other_end)
    _, stderr = process.communicate(timeout=60)
    os.close(terminal)
    os.close(other_end)
    assert process.returncode == 2, stderr
    assert "stdin is a terminal" in stderr


def test_a_closed_stdin_is_no_terminal(tmp_path: Path) -> None:
    command = f"{shlex.quote(sys.executable)} -m assay summarize <&-"
    done = subprocess.run(command, shell=True, cwd=tmp_path, capture_output=True, check=False)
    assert done.returncode == 2
    assert b"stdin is closed" in done.stderr
    assert b"terminal" not in done.stderr


UNREADABLE = [
    ["summarize"],
    ["format", "-f", "csv"],
    ["format"],
    ["grade", "-g", "contains"],
    ["export", "sft"],
    ["raw", "a"],
    ["capture", "-s", "demo:flaky"],
    ["compare", "good.jsonl"],
    ["report", "-o", "-"],
]


@pytest.mark.parametrize("words", UNREADABLE, ids=" ".join)
def test_a_compressed_file_gets_a_hint(assay: Callable, tmp_path: Path, words: list[str]) -> None:
    row = b'{"id":"a","output":"y","trajectory":[],"timing":{"start":0,"end":1,"total":1}}\n'
    (tmp_path / "good.jsonl").write_bytes(row)
    (tmp_path / "x.jsonl.gz").write_bytes(gzip.compress(row, mtime=10))
    done = assay(*words, "x.jsonl.gz")
    assert done.code == 1
    assert "zcat x.jsonl.gz | assay" in done.stderr


@pytest.mark.parametrize(
    "words", [["summarize"], ["format", "-f", "csv"], ["grade", "-g", "contains"]]
)
def test_a_field_whose_name_is_not_text(assay: Callable, tmp_path: Path, words: list[str]) -> None:
    (tmp_path / "x.jsonl").write_bytes(b'{"id":"a","input":"x","out\xffput":"y"}\n')
    done = assay(*words, "x.jsonl")
    assert done.code == 1
    assert "x.jsonl:1: not UTF-8: invalid start byte at byte 26 of the line" in done.stderr


@pytest.mark.parametrize(
    "words",
    [
        ["compare", "a:-", "b:-"],
        ["compare", "-", "--run", "b:-"],
        ["report", "a:-", "b:-", "-o", "-"],
        ["plan", "-", "-"],
        ["export", "sft", "-", "-"],
        ["fixtures", "-", "-", "-g", "contains", "-o", "made"],
        ["calibrate", "--labels", "-"],
        ["calibrate", "-", "--labels", "-"],
        ["extract", "-", "-s", "-"],
        ["capture", "-", "-s", "-"],
        ["capture", "-", "-s", "claude", "--mcp", "-"],
    ],
)
def test_stdin_is_read_only_once(words, made, run):
    done = run(made, *words, stdin=b'{"a": 1}\n', check=False)
    assert done.returncode == 2
    assert b"stdin can be read only once" in done.stderr


@pytest.mark.parametrize("name", WRITERS)
def test_a_dash_writes_to_stdout(name, made, run):
    words = words_with(WRITERS[name], READERS.get(name, ("", ""))[1])
    plain = run(made, *words)
    dashed = run(made, *words, "-o", "-")
    assert steady(dashed.stdout) == steady(plain.stdout)
    assert not (made / "-").exists()


def test_report_writes_its_page_to_stdout_only_when_asked(made, run):
    assert run(made, "report", "r.jsonl", "-o", "-").stdout.startswith(b"<!doctype html>")
    assert not (made / "report.html").exists()


MEASURED = {name for name, words in WRITERS.items() if words[0] in ("capture", "run", "trials")}


@pytest.mark.parametrize("name", WRITERS)
def test_what_can_be_made_again_is_overwritten_and_nothing_else(name, made, tmp_path, run):
    output = tmp_path / "out.json"
    output.write_text("mine")
    words = [*words_with(WRITERS[name], READERS.get(name, ("", ""))[1]), "-o", str(output)]
    done = run(made, *words, check=False)
    if name in MEASURED:
        assert (done.returncode, output.read_text()) == (1, "mine")
        assert b"already exists" in done.stderr
        assert b"--overwrite" in done.stderr
        run(made, *words, "--overwrite")
    else:
        assert done.returncode == 0, done.stderr
    assert "mine" not in output.read_text()
    fresh = tmp_path / "new" / "out.json"
    run(made, *words[:-1], str(fresh))
    assert fresh.stat().st_size


@pytest.mark.parametrize("name", sorted(WRITERS.keys() - MEASURED))
def test_trials_of_an_agent_are_never_overwritten_by_surprise(name, made, tmp_path, run):
    output = tmp_path / "out.jsonl"
    output.write_bytes((made / "r.jsonl").read_bytes())
    (tmp_path / "out.raw").mkdir()  # what capture leaves beside its rows
    if "table" in WRITERS[name] and "export" in WRITERS[name]:
        pytest.skip("the ending of the name decides what is written")
    words = [*words_with(WRITERS[name], READERS.get(name, ("", ""))[1]), "-o", str(output)]
    done = run(made, *words, check=False)
    assert done.returncode == 1
    assert output.read_bytes() == (made / "r.jsonl").read_bytes()
    assert b"--overwrite" in done.stderr
    run(made, *words, "--overwrite")
    assert output.read_bytes() != (made / "r.jsonl").read_bytes() or name in ("format", "grade")


def test_split_schemas_are_replaced(made, tmp_path, run):
    (tmp_path / "Session.json").write_text("mine")
    run(made, "schemas", "--split", "-o", str(tmp_path))
    assert "mine" not in (tmp_path / "Session.json").read_text()


@pytest.mark.parametrize("words", [["grade", "-g", "contains"], ["summarize"], ["format", "-"]])
def test_what_comes_on_stdin_is_not_written_over(words, made, tmp_path, start):
    rows = tmp_path / "r.jsonl"
    rows.write_bytes((made / "r.jsonl").read_bytes())
    with rows.open("rb") as stdin:
        process = start(*words, "-o", rows, "--overwrite", stdin=stdin.fileno())
        _, stderr = process.communicate()
    assert process.returncode == 2
    assert "same file as stdin" in stderr
    assert rows.read_bytes() == (made / "r.jsonl").read_bytes()


def test_view_says_why_it_does_not_read_stdin(made, run):
    for path in ("-", "new:-"):
        done = run(made, "view", path, stdin=b"{}", check=False)
        assert done.returncode == 2
        assert b"write what comes on stdin to a file first" in done.stderr


def all_options() -> list[tuple[str, click.Parameter]]:
    context = click.Context(cli)
    found = []
    for name in cli.list_commands(context):
        command = cli.get_command(context, name)
        assert command is not None
        found += [(name, parameter) for parameter in command.params]
    return found


def test_every_parameter_that_is_a_file_knows_the_dash():
    files = 0
    for command, parameter in all_options():
        is_file = isinstance(parameter.type, click.Path) and parameter.metavar != "DIR"
        if (
            not is_file
            or parameter.name == "folder"
            or (command, parameter.opts[0]) in ARE_NOT_DATA
        ):
            continue
        files += 1
        assert isinstance(parameter.type, InFile | OutFile | NamedFile), (command, parameter.opts)
    assert files >= 20


def test_every_command_with_an_output_file_can_overwrite_it():
    options = all_options()
    overwriting = {command for command, parameter in options if "--overwrite" in parameter.opts}
    writing = {
        command
        for command, parameter in options
        if "--output" in parameter.opts and parameter.metavar == "FILE"
    }
    assert writing <= overwriting
    assert {"capture", "compare", "report", "schemas", "plan", "calibrate"} <= writing


@pytest.mark.parametrize(
    "words",
    [
        ["init", "-"],
        ["fixtures", "r.jsonl", "-g", "contains", "-o", "-"],
        ["capture", "p.jsonl", "-s", "demo", "--raw-dir", "-"],
        ["capture", "p.jsonl", "-s", "demo", "--workspace-dir", "-"],
    ],
)
def test_a_folder_cannot_be_stdout(assay, tmp_path, words) -> None:
    done = assay(*words)
    assert done.code == 2
    assert "- is stdout; a folder is needed here" in done.stderr
    assert not (tmp_path / "-").exists()


def test_a_tape_needs_a_name(assay, made):
    for option in ("--record", "--replay"):
        done = assay("capture", made / "p.jsonl", "-s", "demo", option, "-")
        assert done.code == 2
        assert f"'{option}': - is a stream; a file is needed here" in done.stderr
