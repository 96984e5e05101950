"""capture PROMPTS PROGRAM ARGS…: whose a word is, with and without -- before the program."""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import pytest

from assay.cli.capture import command as capture
from assay.cli.program import _CommandLine

HEADLESS = ("headless", "--schema", "./claude.json")


def divided(line: str) -> tuple[str, str]:
    words = _CommandLine(capture, click.Context(capture), line.split())
    return " ".join(words.ours), " ".join(words.program)


@pytest.mark.parametrize(
    ("line", "ours", "program"),
    [
        ("p.jsonl -s demo -o o", "p.jsonl -s demo -o o", ""),
        ("p.jsonl bun ./my-adapter.ts -o r.jsonl", "p.jsonl -o r.jsonl", "bun ./my-adapter.ts"),
        (
            "p.jsonl bunx @plaited/agent-eval-harness headless --schema ./c.json -o results.jsonl",
            "p.jsonl -o results.jsonl",
            "bunx @plaited/agent-eval-harness headless --schema ./c.json",
        ),
        ("p.jsonl headless -s ./c.json -j4 -o o", "p.jsonl -j4 -o o", "headless -s ./c.json"),
        ("-o o -j 2 p.jsonl sh x --acp y -t 500", "-o o -j 2 p.jsonl -t 500", "sh x --acp y"),
        ("p.jsonl sh --x=1 --model m --sandbox -q", "p.jsonl --sandbox -q", "sh --x=1 --model m"),
        ("p.jsonl -o o -- sh -o x -s y", "p.jsonl -o o", "sh -o x -s y"),
        ("p.jsonl sh run -o o -- -o x", "p.jsonl -o o", "sh run -- -o x"),
        ("p.jsonl -qj 4 sh x -qj4", "p.jsonl -qj 4 -qj4", "sh x"),
        ("--stdin sh x -o o", "--stdin -o o", "sh x"),
        ("--benchmark b sh x", "--benchmark b", "sh x"),
        # A second prompt file is no program, wherever the agent is named.
        ("p.jsonl q.jsonl -s demo", "p.jsonl q.jsonl -s demo", ""),
        ("-s demo p.jsonl q.jsonl", "-s demo p.jsonl q.jsonl", ""),
        ("p.jsonl q --simple cat", "p.jsonl q --simple cat", ""),
        ("- sh x", "-", "sh x"),
        ("p.jsonl", "p.jsonl", ""),
        ("", "", ""),
    ],
)  # fmt: skip
def test_whose_a_word_is(line: str, ours: str, program: str) -> None:
    assert divided(line) == (ours, program)


@pytest.fixture
def schema_file(agent: Callable, tmp_path: Path) -> Path:
    return agent().rename(tmp_path / "claude.json")


@pytest.mark.parametrize("command", ["capture", "trials"])
@pytest.mark.parametrize("dashes", [(), ("--",)])
def test_the_seeds_command_lines(
    assay: Callable,
    prompts: Callable,
    schema_file: Path,
    read_rows: Callable,
    tmp_path: Path,
    command: str,
    dashes: tuple[str, ...],
) -> None:
    """capture multi-turn.jsonl … headless --schema ./claude.json -o results.jsonl."""
    file = prompts(["Remember this number: 42", "What number did I ask you to remember?"])
    options = ("-o", "results.jsonl") + (("-k", 1) if command == "trials" else ())
    words = (file, *options, *dashes, *HEADLESS) if dashes else (file, *HEADLESS, *options)
    done = assay(command, *words)
    assert done.code == 0, done.stderr
    (row,) = read_rows(tmp_path / "results.jsonl")
    entry = row["trials"][0] if command == "trials" else row
    assert entry["output"] != ""
    assert "failure" not in entry
    assert {step["turn"] for step in entry["trajectory"]} == {1, 2}
    assert ("Put -- before the program" in done.stderr) is not bool(dashes)
    assert row["metadata"]["agent"] == "assay headless --schema ./claude.json"


def test_a_local_adapter_script(
    assay: Callable, prompts: Callable, read_rows: Callable, tmp_path: Path, tag: str
) -> None:
    """capture prompts.jsonl bun ./my-adapter.ts -o results.jsonl."""
    script = Path(__file__).parents[1] / "agents" / "acp_scripted.py"
    (tmp_path / "my-adapter.py").write_text(script.read_text())
    words = (sys.executable, "./my-adapter.py", tag, "-o", "results.jsonl")
    done = assay("capture", prompts("hello"), *words)
    assert done.code == 0, done.stderr
    (row,) = read_rows(tmp_path / "results.jsonl")
    assert "failure" not in row
    assert "my-adapter.py" in row["metadata"]["agent"]
    assert "takes -o from behind it" in done.stderr
    quiet = assay("capture", prompts("hello"), *words[:3], "-o", "again.jsonl", "-q")
    assert quiet.stderr == ""
    events = assay("capture", prompts("hello"), *words[:3], "-o", "json.jsonl", "--json").stderr
    assert all(json.loads(line)["event"] for line in events.splitlines())


def test_a_schema_is_found_from_the_workspace(
    assay: Callable, prompts: Callable, schema_file: Path
) -> None:
    done = assay("capture", prompts("hi"), *HEADLESS, "--workspace-dir", "w")
    assert "failure" not in done.rows[0], done


def test_an_unknown_option_behind_the_program_is_its_own(
    assay: Callable, prompts: Callable, tmp_path: Path
) -> None:
    agent = tmp_path / "agent.sh"
    agent.write_text('#!/bin/sh\nprintf "%s\\n" "$@" > seen\n')
    agent.chmod(0o755)
    words = ("./agent.sh", "--acp", "--model", "m", "-x", "y", "--progress")
    done = assay("capture", prompts("x"), *words, "-o", "o.jsonl")
    assert (tmp_path / "seen").read_text().split() == ["--acp", "--model", "m", "-x", "y"]
    assert "Assay itself takes --progress, -o from behind it" in done.stderr
    before = assay("capture", "--acp", prompts("x"), "./agent.sh")
    assert before.code == 2
    assert "--acp" in before.stderr


def test_the_agent_is_named_once(assay: Callable, prompts: Callable, agent: Callable) -> None:
    both = assay("capture", prompts("x"), "-s", agent(), "sh", "x")
    assert both.code == 2
    assert "not both" in both.stderr
    second = assay("capture", prompts("x"), prompts("y"), "-s", agent())
    assert second.code == 0
    assert "only one prompt file is read" in second.stderr
    missing = assay("capture", prompts("x"), "no-such-program", "-o", "o.jsonl")
    assert missing.code == 1
    assert "no-such-program" in missing.stderr
    refused = assay("capture", prompts("x"), "--max-turns", 3, "sh", "x")
    assert refused.code == 1
    assert "--max-turns" in refused.stderr
    two = assay("run", prompts("x"), "--simple", "echo {}", "--shell", "true")
    assert two.code == 2
    assert "either with --simple or with --shell" in two.stderr


def test_no_agent_says_every_way_to_name_one(assay: Callable, prompts: Callable) -> None:
    done = assay("capture", prompts("x"))
    assert done.code == 2
    for way in ("-s", "--simple", "--shell", "program"):
        assert way in done.stderr


def test_headless_without_assay_on_the_path(
    assay: Callable, prompts: Callable, schema_file: Path, tmp_path: Path
) -> None:
    env = {"PATH": "/usr/bin:/bin"}
    for words in (HEADLESS, ("assay", *HEADLESS)):
        done = assay("capture", prompts("hi"), *words, env=env)
        assert done.code == 0, done.stderr
        assert "failure" not in json.loads(done.stdout)


def test_help_says_whose_the_words_are(assay: Callable) -> None:
    text: Any = " ".join(assay("capture", "--help").stdout.split())
    assert "PROMPTS [PROGRAM ARGS...]" in text
    assert "After -- everything is the program's" in text


@pytest.mark.parametrize(
    ("program", "reason"),
    [
        (["echo", "hello"], "ended without its terminal event"),
        (["true"], "ended without its terminal event"),
        (["headless", "--schema", "nosuch"], "nosuch"),
    ],
)
def test_a_program_that_does_not_speak_the_protocol(
    assay: Callable, prompts: Callable, program: list[str], reason: str
) -> None:
    done = assay("capture", prompts("a", "b"), *program)
    (line,) = [line for line in done.stderr.splitlines() if line.startswith("All 2 trials")]
    assert line.startswith("All 2 trials failed alike, agent crashed: ")
    assert reason in line
    assert "--simple 'PROGRAM {}'" in done.stderr
    assert all("answered" not in row["failure"] for row in done.rows)
