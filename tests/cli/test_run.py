"""assay run: raw rows, and prompts that cannot break a command line."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

NASTY = """$& $$ $(touch pwned) `touch pwned` "; touch pwned; ' {} \\ $PROMPT %s\n* ~ é"""


def test_a_raw_row_holds_every_line_with_its_time(
    assay: Callable, agent: Callable, prompts: Callable
) -> None:
    row = {"id": "a", "input": "!do event odd ; line junk ; say x", "hint": "h", "mine": 1}
    (raw,) = assay("run", prompts(row), "-s", agent()).rows
    kinds = [json.loads(line)["type"] if line[0] == "{" else line for line in raw["rawLines"]]
    assert kinds == ["system", "odd", "junk", "message", "result"]
    assert len(raw["rawTimes"]) == 5
    assert (raw["hint"], raw["mine"]) == ("h", 1)
    assert raw["turns"][0]["lines"] == 5
    assert raw["timing"]["total"] == raw["timing"]["end"] - raw["timing"]["start"]


def test_prompts_come_from_stdin_too(assay: Callable, agent: Callable) -> None:
    done = assay("run", "-s", agent(), stdin='{"id":"a","input":"x"}')
    assert [row["id"] for row in done.rows] == ["a"]


def test_the_schema_timeout_is_honoured(
    assay: Callable, agent: Callable, prompts: Callable, alive: Callable
) -> None:
    done = assay("run", prompts("!do wait 60"), "-s", agent(timeout=500))
    assert alive() == []
    assert done.seconds < 10
    assert done.rows[0]["turns"][0]["timedOut"] is True


@pytest.mark.parametrize(
    ("flag", "command"),
    [
        ("--simple", "printf %s {}"),
        ("--simple", 'printf %s "{}"'),
        ("--simple", "printf %s '{}'"),
        ("--shell", 'printf %s "$PROMPT"'),
    ],
)
def test_no_prompt_breaks_out_of_a_simple_command(
    assay: Callable, prompts: Callable, tmp_path: Path, flag: str, command: str
) -> None:
    done = assay("run", prompts(NASTY), flag, command)
    assert done.code == 0, done.stderr
    (row,) = done.rows
    assert row["rawLines"] == NASTY.split("\n")
    assert not (tmp_path / "pwned").exists()


def test_simple_starts_no_shell(assay: Callable, prompts: Callable) -> None:
    refused = assay("run", prompts("x"), "--simple", "echo {} | tee out")
    assert refused.code == 1
    assert "|" in refused.stderr
    assert "--shell" in refused.stderr
    kept = assay("run", prompts("x"), "--simple", "echo $HOME {}").rows
    assert kept[0]["rawLines"] == ["$HOME x"]


def test_simple_and_shell_record_how_it_ended(
    assay: Callable, prompts: Callable, alive: Callable
) -> None:
    (row,) = assay("run", prompts("x"), "--shell", "echo out; echo err >&2; exit 3").rows
    assert (row["rawLines"], row["stderr"]) == (["out"], "err")
    assert row["turns"][0]["exitCode"] == 3
    (slow,) = assay("run", prompts("x"), "--shell", "sleep 60", "-t", 300).rows
    assert slow["turns"][0]["timedOut"] is True


def test_an_agent_must_be_said(assay: Callable, prompts: Callable) -> None:
    done = assay("run", prompts("x"))
    assert done.code == 2
    for flag in ("-s", "--simple", "--shell"):
        assert flag in done.stderr


def test_a_program_that_cannot_be_started_is_a_row(
    assay: Callable, prompts: Callable, tmp_path: Path
) -> None:
    program = tmp_path / "broken"
    program.write_bytes(b"\x7fELF not a program")
    program.chmod(0o755)
    done = assay("run", prompts("x"), "--simple", f"{program} {{}}")
    assert done.code == 1
    (row,) = done.rows
    assert row["failure"]["cause"] == "spawn"
    assert str(program) in row["error"]


def test_run_is_a_journal_too(
    assay: Callable, agent: Callable, prompts: Callable, read_rows: Callable, tmp_path: Path
) -> None:
    path, schema = prompts("a", "b", "c"), agent()
    assay("run", path, "-s", schema, "-o", "raw.jsonl", "--limit", 1)
    refused = assay("run", path, "-s", schema, "-o", "raw.jsonl")
    assert refused.code == 1
    assert assay("run", path, "-s", schema, "-o", "raw.jsonl", "--resume", "-j", 2).code == 0
    assert sorted(row["id"] for row in read_rows(tmp_path / "raw.jsonl")) == ["p0", "p1", "p2"]
