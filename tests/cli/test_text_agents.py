"""Agents that print text and no events, from the command line: without a schema, and with one."""

import asyncio
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from assay.adapters.text import ShellAdapter, SimpleAdapter

ODD_AGENT = r"""
import os, signal, sys, time
tag, prompt = sys.argv[-2:]
say = sys.stdout.buffer.write
for word in prompt.split("+"):
    name, _, value = word.partition(":")
    if name == "nothing":
        pass
    elif name == "long":
        say(b"x" * int(value))
    elif name == "lines":
        say(b"0123456789abcde\n" * int(value))
    elif name == "json":
        say(b'{"type":"result","result":"not the answer"}\n')
    elif name == "bytes":
        say(b"caf\xe9 \xff\xfe end\n")
    elif name == "nul":
        say(b"a\0b\n")
    elif name == "deaf":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    elif name == "sleep":
        sys.stdout.flush()
        time.sleep(float(value))
    elif name == "err":
        sys.stderr.write(value + "\n")
    elif name == "env":
        say(os.environ.get(value, "unset").encode() + b"\n")
    elif name == "exit":
        sys.stdout.flush()
        os._exit(int(value))
    else:
        say(word.encode() + b"\n")
"""
CODE = "\n  def f():\n\n    return 1  \n\n"


@pytest.fixture
def odd(tmp_path: Path, tag: str) -> str:
    """The command line of an agent that does what its prompt says."""
    (tmp_path / "odd.py").write_text(ODD_AGENT)
    return f"{sys.executable} -I -S odd.py {tag}"


@pytest.fixture
def text_schema(tmp_path: Path, odd: str) -> Callable[..., Path]:
    def write(**changes: Any) -> Path:
        path = tmp_path / "text.json"
        schema = {"version": 1, "name": "odd", "command": odd.split(), "prompt": {}}
        path.write_text(json.dumps(schema | {"outputMode": "text"} | changes))
        return path

    return write


@pytest.fixture
def ways(odd: str, text_schema: Callable) -> dict[str, tuple[Any, ...]]:
    """The three ways to name the same agent."""
    return {
        "simple": ("--simple", f"{odd} {{}}"),
        "shell": ("--shell", f'{odd} "$PROMPT"'),
        "schema": ("-s", text_schema()),
    }


WAYS = pytest.mark.parametrize("way", ["simple", "shell", "schema"])


@WAYS
def test_the_answer_is_stdout_and_the_exit_code_decides(
    assay: Callable, prompts: Callable, ways: dict[str, Any], way: str
) -> None:
    file = prompts("hello", "half+err:first\nlast+exit:7", "nothing", "json")
    done = assay("capture", file, *ways[way])
    assert done.code == 0, done.stderr
    hello, crashed, nothing, looks_like_json = done.rows
    assert hello["output"] == "hello"
    assert "failure" not in hello
    assert [step["type"] for step in hello["trajectory"]] == ["message"]
    assert hello["metadata"]["exitCode"] == 0
    assert hello["metadata"]["agent"] == ("odd" if way == "schema" else "odd.py")
    assert crashed["output"] == "half"
    assert crashed["failure"] == {
        "cause": "agent_crash",
        "message": "ended with exit code 7: last",
    }
    assert (nothing["output"], nothing["trajectory"]) == ("", [])
    assert "failure" not in nothing
    assert looks_like_json["output"] == '{"type":"result","result":"not the answer"}'


@WAYS
def test_capture_is_run_then_extract_without_a_schema(
    assay: Callable, prompts: Callable, ways: dict[str, Any], way: str, tmp_path: Path
) -> None:
    texts = (CODE, "bytes", "nothing", "long:300000+\n\n+end", "x+exit:7", "nul")
    file = prompts(*({"id": f"p{i}", "input": t, "hint": "def"} for i, t in enumerate(texts)))
    captured = assay("capture", file, *ways[way], "-g", "contains").rows
    assay("run", file, *ways[way], "-o", "raw.jsonl")
    extracted = assay("extract", "raw.jsonl")
    assert extracted.code == 0, extracted.stderr
    graded = assay("grade", "-g", "contains", stdin=extracted.stdout)
    assert graded.code == 0, graded.stderr
    assert [without_clock(row) for row in graded.rows] == [without_clock(row) for row in captured]
    assert captured[0]["output"] == "  def f():\n\n    return 1"
    assert captured[0]["score"]["pass"] is True
    assert captured[1]["output"] == "caf\ufffd \ufffd\ufffd end"
    assert captured[3]["output"] == "x" * 300000 + "\n\n\nend"


def test_a_schema_reads_the_rows_of_a_simple_agent_that_prints_events(
    assay: Callable, prompts: Callable, agent: Callable
) -> None:
    """The seed's own line: run --simple "claude -p {} --output-format stream-json" | extract -s."""
    schema = agent()
    words = json.loads(schema.read_text())["command"]
    raw = assay("run", prompts("hi"), "--simple", " ".join([*words, "{}"]))
    (row,) = assay("extract", "-s", schema, stdin=raw.stdout).rows
    (captured,) = assay("capture", prompts("hi"), "-s", schema).rows
    assert row["output"] == captured["output"] != ""
    assert row["trajectory"][0]["type"] == captured["trajectory"][0]["type"]
    (plain,) = assay("extract", stdin=raw.stdout).rows
    assert plain["output"].startswith('{"type"')


def test_extract_without_a_schema_refuses_rows_of_events(
    assay: Callable, prompts: Callable, agent: Callable, tmp_path: Path
) -> None:
    raw = assay("run", prompts("x"), "-s", agent()).stdout
    done = assay("extract", "-o", "out.jsonl", stdin=raw)
    assert done.code == 2
    assert "-s SCHEMA" in done.stderr
    assert '"p0"' in done.stderr
    assert not (tmp_path / "out.jsonl").exists()


def test_a_row_of_an_agent_that_never_started_is_read_without_a_schema(
    assay: Callable, prompts: Callable, tmp_path: Path
) -> None:
    program = tmp_path / "broken"
    program.write_bytes(b"\x7fELF not a program")
    program.chmod(0o755)
    raw = assay("run", prompts("x"), "--simple", f"{program} {{}}")
    (row,) = assay("extract", stdin=raw.stdout).rows
    assert row["failure"]["cause"] == "spawn"
    assert row["output"] == ""


@pytest.mark.parametrize("command", ["capture", "trials", "run", "headless"])
def test_simple_without_a_place_for_the_prompt_is_refused(
    assay: Callable, prompts: Callable, command: str
) -> None:
    file = [] if command == "headless" else [prompts("x")]
    done = assay(command, *file, "--simple", "echo hello")
    assert done.code == 2
    assert "echo hello {}" in done.stderr
    assert "$PROMPT" in done.stderr
    assert done.stdout == ""


def test_options_that_a_text_agent_cannot_have_are_refused(
    assay: Callable, prompts: Callable
) -> None:
    for words in (["--model", "m"], ["--max-turns", 3], ["--agent-arg", "x"]):
        done = assay("capture", prompts("x"), "--simple", "echo {}", *words)
        assert done.code == 1
        assert words[0] in done.stderr


@WAYS
def test_turns_are_told_as_history(
    assay: Callable, prompts: Callable, ways: dict[str, Any], way: str
) -> None:
    file = prompts(["Remember 42", "nul", "Which number?"])
    (row,) = assay("capture", file, *ways[way]).rows
    told = "User: Remember 42\nAssistant: Remember 42\n\nUser: nul\nAssistant: "
    assert row["output"].startswith(told)
    assert row["output"].endswith("\n\nUser: Which number?")
    assert [step["turn"] for step in row["trajectory"]] == [1, 2, 3]
    assert "warnings" not in row


def test_history_is_told_as_the_schema_says(
    assay: Callable, prompts: Callable, text_schema: Callable
) -> None:
    template = {"system": "Be short.", "turnFormat": "<{{input}}|{{output}}>"}
    schema = text_schema(historyTemplate=template, sessionMode="iterative", prompt={"flag": "-p"})
    (row,) = assay("capture", prompts(["one", "two"]), "-s", schema).rows
    assert row["output"] == "Be short.\n\n<one|Be short.\n\none>\n\nUser: two"


def test_an_empty_last_answer_is_not_that_of_an_earlier_turn(
    assay: Callable, prompts: Callable
) -> None:
    agent = ["--shell", 'case "$PROMPT" in *Which*) ;; *) echo 42;; esac']
    file = prompts({"id": "a", "input": ["Remember 42", "Which?"], "hint": "42"})
    (row,) = assay("capture", file, *agent, "-g", "contains").rows
    assert row["output"] == ""
    assert row["score"]["pass"] is False


def test_history_that_no_argument_can_hold_is_the_agents_failure(
    assay: Callable, prompts: Callable, odd: str
) -> None:
    (row,) = assay("capture", prompts(["long:200000", "next"]), "--simple", f"{odd} {{}}").rows
    assert row["failure"]["cause"] == "agent_crash"
    assert "too long" in row["failure"]["message"]
    assert "stdin" in row["failure"]["message"]


def test_history_of_any_length_goes_through_stdin(assay: Callable, prompts: Callable) -> None:
    agent = ["--shell", "head -c 300000 /dev/zero | tr '\\0' x"]
    schema = {
        "version": 1,
        "name": "count",
        "command": ["wc", "-c"],
        "prompt": {"stdin": True},
        "outputMode": "text",
    }
    path = prompts(["a", "b"])
    Path(path.parent / "count.json").write_text(json.dumps(schema))
    assert assay("capture", path, *agent).rows[0]["failure"]["cause"] == "agent_crash"
    (row,) = assay("capture", path, "-s", "count.json").rows
    assert row["output"].isdigit()
    assert "failure" not in row


def test_a_stream_schema_without_resume_says_once_that_turns_forget(
    assay: Callable, prompts: Callable, agent: Callable, read_rows: Callable, tmp_path: Path
) -> None:
    schema = agent(resume=None)
    file = prompts(["one", "two"], ["three", "four"], "single")
    done = assay("capture", file, "-s", schema, "-o", "out.jsonl")
    assert done.code == 0
    assert done.stderr.count("do not remember each other") == 1
    assert "resume" in done.stderr
    rows = read_rows(tmp_path / "out.jsonl")
    for row in rows[:2]:
        assert len([w for w in row["warnings"] if "do not remember each other" in w]) == 1
    assert "warnings" not in rows[2]
    piped = assay("run", file, "-s", schema)
    assert piped.stderr.count("do not remember each other") == 1
    again = assay("extract", "-s", schema, stdin=piped.stdout).rows
    assert [row.get("warnings") for row in again] == [row.get("warnings") for row in rows]
    (trials,) = assay("trials", file, "-s", schema, "-k", 2, "--limit", 1).rows
    assert all(len(entry["warnings"]) == 1 for entry in trials["trials"])


def test_headless_in_capture_says_that_turns_forget(
    assay: Callable, prompts: Callable, agent: Callable
) -> None:
    file = prompts(["one", "two"], "single")
    done = assay("capture", file, "headless", "--schema", agent(resume=None))
    several, single = done.rows
    assert len(several["warnings"]) == 1
    assert "warnings" not in single
    assert done.stderr.count("do not remember each other") == 1
    kept = assay("capture", file, "headless", "--schema", agent())
    assert "remember" not in kept.stderr + kept.stdout


def test_extract_shows_a_failed_trial_as_failed(assay: Callable, prompts: Callable) -> None:
    raw = assay("run", prompts("exit 7", "true"), "--shell", 'echo x; eval "$PROMPT"')
    shown = assay("extract", "--progress", stdin=raw.stdout).stderr.splitlines()
    assert shown[0] == "! p0: 1 step - agent crashed: ended with exit code 7"
    assert shown[1] == "✓ p1: 1 step"


def test_a_stream_schema_whose_session_was_not_found_says_so(
    assay: Callable, prompts: Callable, agent: Callable
) -> None:
    schema = agent(resume={"flag": "--resume", "sessionIdPath": "$.nowhere"})
    done = assay("capture", prompts(["one", "two"], "single"), "-s", schema)
    assert "do not remember each other" in done.rows[0]["warnings"][0]
    assert done.stderr.count("do not remember each other") == 1
    kept = assay("capture", prompts(["one", "two"]), "-s", agent())
    assert "remember" not in kept.stderr
    assert "warnings" not in kept.rows[0]


def test_run_puts_each_turn_to_a_simple_agent_alone_as_the_seed_does(
    assay: Callable, prompts: Callable
) -> None:
    done = assay("run", prompts(["one", "two"]), "--simple", "echo {}")
    assert done.rows[0]["rawLines"] == ["one", "two"]
    assert done.stderr.count("do not remember each other") == 1
    (row,) = assay("extract", stdin=done.stdout).rows
    assert row["output"] == "two"
    assert len(row["warnings"]) == 1


def test_five_megabytes_without_a_line_end(
    assay: Callable, prompts: Callable, ways: dict[str, Any]
) -> None:
    done = assay("capture", prompts("long:5000000"), *ways["simple"], measure=True)
    (row,) = done.rows
    assert row["output"] == "x" * 5_000_000
    assert "failure" not in row
    assert done.peak_mb < 150


@pytest.mark.parametrize("text", ["long:20000000", "lines:1300000"])
def test_an_answer_beyond_all_measure_counts_against_the_agent(
    assay: Callable, prompts: Callable, ways: dict[str, Any], text: str
) -> None:
    (row,) = assay("capture", prompts(text), *ways["simple"], "-g", "contains").rows
    assert row["failure"]["cause"] == "agent_limit"
    assert "16 MB" in row["failure"]["message"]
    assert len(row["output"]) < 17 * 1024 * 1024


def test_a_deaf_agent_is_killed_and_its_words_are_kept(
    assay: Callable, prompts: Callable, ways: dict[str, Any], alive: Callable
) -> None:
    done = assay("capture", prompts("deaf+begun+sleep:60"), *ways["simple"], "-t", 500)
    assert done.seconds < 15
    assert alive() == []
    (row,) = done.rows
    assert row["failure"]["cause"] == "agent_timeout"
    assert row["output"] == "begun"


@WAYS
def test_resume_and_the_identity_of_a_text_agent(
    assay: Callable,
    prompts: Callable,
    ways: dict[str, Any],
    way: str,
    read_rows: Callable,
    raw_of: Callable,
    tmp_path: Path,
) -> None:
    file, words = prompts("a", "b"), ways[way]
    assay("capture", file, *words, "-o", "out.jsonl", "--limit", 1)
    done = assay("capture", file, *words, "-o", "out.jsonl", "--resume")
    assert done.code == 0, done.stderr
    rows = read_rows(tmp_path / "out.jsonl")
    assert [row["output"] for row in rows] == ["a", "b"]
    assert [raw_of(tmp_path, row)["1.out"] for row in rows] == ["a\n", "b\n"]
    (tmp_path / "odd.py").write_text(ODD_AGENT + "\nprint('changed')")
    refused = assay("capture", file, *words, "-o", "out.jsonl", "--resume")
    assert refused.code == 1
    assert "loads: odd.py (" in refused.stderr
    if way == "simple":
        other = assay("capture", file, "--simple", "cat {}", "-o", "out.jsonl", "--resume")
        assert other.code == 1
        assert "the schema or the arguments of the agent" in other.stderr


@WAYS
def test_secrets_are_masked_in_plain_text(
    assay: Callable, prompts: Callable, ways: dict[str, Any], way: str, tmp_path: Path
) -> None:
    secret = "sk-live-0123456789abcdef"
    env = {"MY_API_KEY": secret}
    done = assay("capture", prompts("env:MY_API_KEY"), *ways[way], "-o", "out.jsonl", env=env)
    assert done.code == 0
    written = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert not [path for path in written if secret.encode() in path.read_bytes()]
    assert "[redacted]" in (tmp_path / "out.jsonl").read_text()
    raw = assay("run", prompts("env:MY_API_KEY"), *ways[way], env=env)
    assert secret not in raw.stdout


@WAYS
@pytest.mark.parametrize("place", ["--isolate", "--workspace-dir=w", "--sandbox"])
def test_a_relative_script_is_found_from_other_folders(
    assay: Callable,
    prompts: Callable,
    ways: dict[str, Any],
    way: str,
    place: str,
    request: pytest.FixtureRequest,
) -> None:
    if place == "--sandbox":
        request.getfixturevalue("bubblewrap")
    done = assay("capture", prompts("hello"), *ways[way], place)
    assert done.rows[0]["output"] == "hello", done
    assert "failure" not in done.rows[0]


def test_the_identity_of_a_shell_command_knows_its_scripts(
    assay: Callable, prompts: Callable, tmp_path: Path
) -> None:
    (tmp_path / "agent.sh").write_text("echo one")
    words = ("capture", prompts("a"), "--shell", "sh './agent.sh'; true")
    (first,) = assay(*words).rows
    (tmp_path / "agent.sh").write_text("echo two")
    (second,) = assay(*words).rows
    assert first["identity"]["program"] != second["identity"]["program"]


def test_trials_of_a_text_agent(assay: Callable, prompts: Callable, ways: dict[str, Any]) -> None:
    file = prompts({"id": "a", "input": "yes", "hint": "yes"})
    (row,) = assay("trials", file, *ways["simple"], "-k", 3, "-g", "contains").rows
    assert (row["passRate"], row["k"]) == (1.0, 3)
    assert [entry["output"] for entry in row["trials"]] == ["yes"] * 3


def test_headless_serves_a_text_agent(tmp_path: Path, ways: dict[str, Any]) -> None:
    import acp
    from acp.helpers import text_block

    class Client:
        def __init__(self) -> None:
            self.texts: list[str] = []

        async def session_update(self, session_id: str, update: Any, **more: Any) -> None:
            self.texts.append(update.content.text)

    async def talk(client: Any) -> list[str]:
        command = [sys.executable, "-m", "assay", "headless", *map(str, ways["simple"])]
        spawn = acp.spawn_agent_process(
            client, *command, cwd=tmp_path, transport_kwargs={"stderr": None}
        )
        async with spawn as (connection, _):
            met = await connection.initialize(protocol_version=acp.PROTOCOL_VERSION)
            assert met.agent_capabilities.load_session is False
            session = await connection.new_session(cwd=str(tmp_path), mcp_servers=[])
            for text in ("one", "two"):
                done = await connection.prompt(
                    prompt=[text_block(text)], session_id=session.session_id
                )
                assert done.stop_reason == "end_turn"
            with pytest.raises(acp.RequestError, match="exit code 7"):
                await connection.prompt(
                    prompt=[text_block("+exit:7+")], session_id=session.session_id
                )
            return client.texts

    texts = asyncio.run(talk(Client()))
    assert texts == ["one", "User: one\nAssistant: one\n\nUser: two"]


def test_headless_in_capture_gives_what_the_agent_said(
    assay: Callable, prompts: Callable, ways: dict[str, Any]
) -> None:
    served = ["assay", "headless", "--schema", ways["schema"][1]]
    single, empty = assay("capture", prompts("hello", "nothing"), *served).rows
    assert (single["output"], empty["output"]) == ("hello", "")
    assert "failure" not in single
    assert "failure" not in empty


@pytest.mark.parametrize(
    ("changes", "word"),
    [
        (
            {"outputEvents": [{"match": {"path": "$.a", "value": "b"}, "emitAs": "message"}]},
            "outputEvents",
        ),
        ({"resume": {"flag": "-r"}}, "resume"),
        ({"outputMode": "jsonpath"}, "sessionMode"),
    ],
)
def test_a_text_schema_has_no_events(
    assay: Callable, prompts: Callable, text_schema: Callable, changes: dict[str, Any], word: str
) -> None:
    done = assay("capture", prompts("x"), "-s", text_schema(**changes))
    assert done.code == 1
    assert word in done.stderr
    assert "outputMode" in done.stderr


def test_a_text_schema_may_have_what_the_seed_requires(
    assay: Callable, prompts: Callable, text_schema: Callable
) -> None:
    schema = text_schema(
        sessionMode="stream",
        output={"flag": "", "value": ""},
        result={"matchPath": "$.type", "matchValue": "result", "contentPath": "$.result"},
    )
    (row,) = assay("capture", prompts(["one", "two"]), "-s", schema).rows
    assert row["output"].startswith("User: one")


def test_names_of_agents() -> None:
    assert SimpleAdapter("/usr/bin/python3 -I ./tools/agent.py {}").name == "agent.py"
    assert SimpleAdapter("claude -p {} --output-format text").name == "claude"
    assert ShellAdapter('KEY=secret ./agent "$PROMPT" | tail -1').name == "agent"
    assert ShellAdapter("echo 'unclosed").name == "echo"


def without_clock(row: dict[str, Any]) -> dict[str, Any]:
    """A row without its times, which differ from one run of an agent to the next."""
    row = row | {"timing": None}
    return row | {"trajectory": [{**step, "timestamp": 0} for step in row["trajectory"]]}


@pytest.mark.parametrize(
    "command",
    [
        "{}",
        'sh -c "echo {}"',
        'env X=1 /bin/bash -o pipefail -lc "echo {} | cat"',
        "python3.12 -c 'print(\"{}\")'",
        "node --eval='console.log(`{}`)'",
        "perl -ne '{}'",
        "ruby -e 'puts %q({})'",
    ],
)
def test_simple_refuses_to_run_a_prompt(assay, prompts, command: str) -> None:
    done = assay("capture", prompts("a"), "--simple", command, "-o", "out.jsonl")
    assert done.code == 2, done.stderr
    assert "would run the prompt as" in done.stderr
    assert command == "{}" or '--shell, with the prompt as "$PROMPT"' in done.stderr


@pytest.mark.parametrize(
    "command", ["""sh -c 'echo "$1"' _ {}""", "bash agent.sh -c {}", "python -m agent -c {}"]
)
def test_simple_takes_a_prompt_as_an_argument(command: str) -> None:
    assert SimpleAdapter(template=command).template == command


def test_a_shell_command_without_the_prompt_is_warned_about_once(assay, prompts) -> None:
    done = assay("capture", prompts("a", "b"), "--shell", "echo no prompt")
    assert done.code == 0
    assert done.stderr.count('does not use "$PROMPT"') == 1
    done = assay("capture", prompts("a"), "--shell", 'echo "$PROMPT"')
    assert "does not use" not in done.stderr


def test_two_text_agents_are_wrong_usage(assay, prompts) -> None:
    done = assay("capture", prompts("a"), "--simple", "echo {}", "--shell", 'echo "$PROMPT"')
    assert done.code == 2
    assert "either with --simple or with --shell" in done.stderr
