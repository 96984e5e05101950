"""assay capture: outputs, resuming, timeouts, choosing prompts, money."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest


def test_a_row_has_the_fields_of_the_seed_and_ours(
    assay: Callable, agent: Callable, prompts: Callable
) -> None:
    path = prompts(
        {"id": "a", "input": "hello", "hint": "h", "metadata": {"c": 1}, "extra": {"x": [1]}}
    )
    done = assay("capture", path, "-s", agent())
    assert done.code == 0
    (row,) = done.rows
    assert list(row)[:7] == ["id", "input", "output", "hint", "trajectory", "metadata", "timing"]
    assert row["metadata"] == {
        "c": 1,
        "agent": "scripted",
        "trajectoryRichness": "messages-only",
        "turnCount": 1,
        "exitCode": 0,
        "timedOut": False,
    }
    assert row["toolErrors"] is False
    assert row["usage"] == {
        "inputTokens": 10,
        "outputTokens": 5,
        "costUsd": 0.01,
        "costSource": "reported",
    }
    assert row["extra"] == {"x": [1]}
    assert row["sessionId"] == "s-1"
    assert row["events"] == {
        "total": 3,
        "mapped": 3,
        "unknown": {},
        "unparsed": 0,
        "oversized": 0,
        "terminal": True,
    }


def test_prompts_from_stdin(assay: Callable, agent: Callable) -> None:
    done = assay("capture", "--stdin", "-s", agent(), stdin='{"id":"a","input":"x"}\n')
    assert [row["output"] for row in done.rows] == ["x"]
    assert assay("capture", "p.jsonl", "--stdin", "-s", agent()).code == 2
    assert assay("capture", "-s", agent()).code == 2


def test_existing_output_is_refused_then_resumed_appended_or_overwritten(
    assay: Callable, agent: Callable, prompts: Callable, read_rows: Callable, tmp_path: Path
) -> None:
    path, out = prompts("a", "b"), tmp_path / "out.jsonl"
    args = ("capture", path, "-s", agent(), "-o", out)
    assert assay(*args).code == 0
    before = out.read_bytes()
    refused = assay(*args)
    assert refused.code == 1
    for way in (str(out), "--resume", "--append", "--overwrite"):
        assert way in refused.stderr
    assert out.read_bytes() == before
    assert assay(*args, "--resume").code == 0
    assert out.read_bytes() == before
    assert assay(*args, "--append").code == 0
    assert out.read_bytes().startswith(before)
    assert [row["id"] for row in read_rows(out)] == ["p0", "p1", "p0", "p1"]
    assert assay(*args, "--overwrite").code == 0
    assert [row["id"] for row in read_rows(out)] == ["p0", "p1"]
    both = assay(*args, "--overwrite", "--resume")
    assert both.code == 2
    assert assay("capture", path, "-s", agent(), "--resume").code == 2


def test_resume_repairs_a_torn_row_and_runs_what_is_missing(
    assay: Callable, agent: Callable, prompts: Callable, read_rows: Callable, tmp_path: Path
) -> None:
    path, out = prompts("a", "b", "c"), tmp_path / "out.jsonl"
    args = ("capture", path, "-s", agent(), "-o", out)
    assay(*args)
    lines = out.read_bytes().splitlines(keepends=True)
    out.write_bytes(lines[0] + lines[1][: len(lines[1]) // 2])
    done = assay(*args, "--resume")
    assert done.code == 0
    rows = read_rows(out)
    assert [row["id"] for row in rows] == ["p0", "p1", "p2"]
    assert out.read_bytes().startswith(lines[0])
    out.write_bytes(b"".join(lines)[:-1])
    assay(*args, "--resume")
    assert out.read_bytes() == b"".join(lines)


@pytest.mark.parametrize("what", ["prompt", "agent"])
def test_resume_with_another_prompt_or_agent_is_refused(
    assay: Callable, agent: Callable, prompts: Callable, tmp_path: Path, what: str
) -> None:
    out = tmp_path / "out.jsonl"
    schema = agent()
    assay("capture", prompts("a"), "-s", schema, "-o", out)
    before = out.read_bytes()
    other = agent(env={"X": "1"}) if what == "agent" else schema
    text = "changed" if what == "prompt" else "a"
    done = assay("capture", prompts(text, "b"), "-s", other, "-o", out, "--resume")
    assert done.code == 1
    assert str(out) in done.stderr
    assert '"p0"' in done.stderr
    named = {"prompt": "from another prompt", "agent": "the schema or the arguments of the agent"}
    assert named[what] in done.stderr
    assert out.read_bytes() == before


def test_resume_with_more_workers_is_the_same_run(
    assay: Callable, agent: Callable, prompts: Callable, read_rows: Callable, tmp_path: Path
) -> None:
    path, out, schema = prompts("a", "b"), tmp_path / "out.jsonl", agent()
    assay("capture", path, "-s", schema, "-o", out, "--limit", 1)
    done = assay("capture", path, "-s", schema, "-o", out, "--resume", "-j", 4)
    assert done.code == 0, done.stderr
    assert len(read_rows(out)) == 2


@pytest.mark.parametrize("mode", ["--resume", "--append", "--overwrite"])
def test_a_second_writer_is_refused(
    start: Callable,
    assay: Callable,
    agent: Callable,
    prompts: Callable,
    eventually: Callable,
    tmp_path: Path,
    mode: str,
) -> None:
    path, out, schema = prompts("a", "!do wait 60"), tmp_path / "out.jsonl", agent()
    start("capture", path, "-s", schema, "-o", out)
    assert eventually(lambda: out.exists() and out.stat().st_size > 0)
    before = out.read_bytes()
    done = assay("capture", path, "-s", schema, "-o", out, mode)
    assert done.code == 1
    assert str(out) in done.stderr
    assert "another assay" in done.stderr
    assert out.read_bytes() == before


def test_a_second_writer_does_not_end_the_agents_of_the_first(
    start: Callable,
    assay: Callable,
    agent: Callable,
    prompts: Callable,
    alive: Callable,
    eventually: Callable,
    tmp_path: Path,
) -> None:
    path, out, schema = prompts("!do wait 60"), tmp_path / "out.jsonl", agent()
    start("capture", path, "-s", schema, "-o", out)
    assert eventually(alive)
    assay("capture", path, "-s", schema, "-o", out, "--resume")
    assert alive()


@pytest.mark.parametrize(
    ("row", "flags", "declared"),
    [
        ({"timeout": 400}, (), {}),
        ({"timeout": 400}, ("-t", 60_000), {"timeout": 60_000}),
        ({}, ("-t", 400), {"timeout": 60_000}),
        ({}, (), {"timeout": 400}),
        ({}, ("--trial-timeout", 400), {}),
        ({}, ("--stall", 0.4), {}),
    ],
)
def test_every_clock_ends_the_agent(
    assay: Callable,
    agent: Callable,
    prompts: Callable,
    alive: Callable,
    row: dict,
    flags: tuple,
    declared: dict,
) -> None:
    path = prompts({"id": "a", "input": "!do say hi ; wait 60", **row})
    done = assay("capture", path, "-s", agent(**declared), *flags)
    assert alive() == []
    assert done.seconds < 10
    (captured,) = done.rows
    assert captured["failure"]["cause"] == "agent_timeout"
    assert captured["trajectory"][0]["content"] == "hi"
    stalled = "--stall" in flags
    assert captured["metadata"]["timedOut"] is not stalled
    assert captured["toolErrors"] is not stalled
    assert 400 <= captured["timing"]["total"] < 5000
    assert done.code == 0


def test_filter_and_limit_choose(assay: Callable, agent: Callable, prompts: Callable) -> None:
    path = prompts(
        {"id": "math-1", "input": "x", "metadata": {"level": 1, "tags": ["a", "b"]}},
        {"id": "math-2", "input": "x", "metadata": {"level": 2, "ok": True}},
        {"id": "word-1", "input": "x", "metadata": {"level": 1, "tags": ["b"]}},
    )

    def chosen(*flags: object) -> list[str]:
        return [row["id"] for row in assay("capture", path, "-s", agent(), *flags).rows]

    assert chosen("--filter", "math-*") == ["math-1", "math-2"]
    assert chosen("--filter", "level=1") == ["math-1", "word-1"]
    assert chosen("--filter", "level=1", "--filter", "word*") == ["word-1"]
    assert chosen("--filter", "tags=a") == ["math-1"]
    assert chosen("--filter", "ok=true") == ["math-2"]
    assert chosen("--limit", 2) == ["math-1", "math-2"]
    assert chosen("--filter", "level=1", "--limit", 1) == ["math-1"]
    assert chosen("--filter", "math-2,word-*") == ["math-2", "word-1"]
    assert chosen("--filter", "level=1,2", "--filter", "!word*") == ["math-1", "math-2"]
    assert chosen("--filter", "math-1", "--filter", "word-1") == ["math-1", "word-1"]
    assert chosen("--filter", "level!=2") == ["math-1", "word-1"]
    assert chosen("--filter", "!math-1,math-2") == ["word-1"]
    assert chosen("--filter", "tags!=a") == ["math-2", "word-1"]


def test_a_filter_that_fits_nothing_is_said(
    assay: Callable, agent: Callable, prompts: Callable
) -> None:
    """A pipeline must not go on with nothing; the output is not made either."""
    path, schema = prompts("x"), agent()
    for command in ("capture", "trials", "run"):
        for text in ("nope", "!*", "level=3"):
            done = assay(command, path, "-s", schema, "--filter", text, "-o", "out.jsonl")
            assert done.code == 1
            assert f"no prompts that match the filter '{text}'" in done.stderr
            assert "such as p0" in done.stderr
            assert not Path(path).with_name("out.jsonl").exists()


def test_a_pattern_that_chooses_nothing_is_named(
    assay: Callable, agent: Callable, prompts: Callable
) -> None:
    path, schema = prompts({"id": "a,b", "input": "x", "metadata": {"level": 1}}, "x", "x"), agent()
    for text, named in (
        ("p1,nosuch", "'nosuch'"),
        ("level=1,7,8", "'7', '8'"),
        ("a,b", ""),
        ("p*,p2", ""),
        ("!p2", ""),
    ):
        done = assay("capture", path, "-s", schema, "--filter", text, "-q")
        said = f"Warning: no prompt is chosen by {named} of the filter\n" if named else ""
        assert (done.code, done.stderr) == (0, said)


def test_max_cost_stops_and_says_so(
    assay: Callable, agent: Callable, prompts: Callable, read_rows: Callable, tmp_path: Path
) -> None:
    path, out, schema = prompts(*["x"] * 10), tmp_path / "out.jsonl", agent()
    args = ("capture", path, "-s", schema, "-o", out)
    done = assay(*args, "--max-cost", 0.025)
    assert done.code == 1
    assert 3 <= len(read_rows(out)) <= 5
    assert "--max-cost 0.025" in done.stderr
    assert "not run" in done.stderr
    assert "--resume" in done.stderr
    assert assay(*args, "--resume").code == 0
    assert len(read_rows(out)) == 10


def test_retries_are_for_what_is_not_the_agents_fault(
    assay: Callable, agent: Callable, prompts: Callable, tmp_path: Path
) -> None:
    crashed = assay("capture", prompts("!do put tries x ; exit 3"), "-s", agent(), "--retries", 3)
    assert "retried" not in crashed.rows[0]
    assert (tmp_path / "tries").read_text() == "x"
    lost = assay("capture", prompts("a\0b"), "-s", agent(), "--retries", 1)
    assert [failure["cause"] for failure in lost.rows[0]["retried"]] == ["spawn"]


def test_raw_streams_stand_beside_the_output(
    assay: Callable,
    agent: Callable,
    prompts: Callable,
    read_rows: Callable,
    raw_of: Callable,
    tmp_path: Path,
) -> None:
    (tmp_path / "deep").mkdir()
    assay("capture", prompts("x"), "-s", agent(), "-o", "deep/out.jsonl")
    (row,) = read_rows(tmp_path / "deep" / "out.jsonl")
    raw = raw_of(tmp_path / "deep", row)["1.out"]
    assert json.loads(raw.splitlines()[-1])["type"] == "result"
    assay("capture", prompts("x"), "-s", agent(), "-o", "deep/two.jsonl", "--raw-dir", "else")
    (row,) = read_rows(tmp_path / "deep" / "two.jsonl")
    [segment] = (tmp_path / "else").iterdir()
    assert row["raw"] == f"../else/{segment.name}@0"


def test_a_raw_folder_that_cannot_be_made_is_said(
    assay: Callable, agent: Callable, prompts: Callable, alive: Callable, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("")
    path = prompts("x", *["!do wait 60"] * 2)
    done = assay("capture", path, "-s", agent(), "--raw-dir", tmp_path / "file" / "raw", "-j", 3)
    assert alive() == []
    assert done.code == 1
    assert str(tmp_path / "file" / "raw") in done.stderr
    assert "Traceback" not in done.stderr
    assert done.seconds < 10


def test_progress_goes_to_stderr_and_data_to_stdout(
    assay: Callable, agent: Callable, prompts: Callable
) -> None:
    done = assay("capture", prompts("a", "!do exit 3"), "-s", agent(), "--progress")
    assert len(done.rows) == 2
    for words in ("✓ p0", "! p1", "agent crashed", "2/2"):
        assert words in done.stderr
    quiet = assay("capture", prompts("a"), "-s", agent(), "-q")
    assert quiet.stderr == ""


def test_iterative_history_is_told_again_unharmed(
    assay: Callable, agent: Callable, prompts: Callable
) -> None:
    nasty = "$& $1 $$ {{output}} \\g<0> {{input}}"
    template = {"system": "Be brief.", "turnFormat": "Q: {{input}}\nA: {{output}}"}
    schema = agent(sessionMode="iterative", historyTemplate=template)
    (row,) = assay("capture", prompts({"id": "a", "input": [nasty, "next"]}), "-s", schema).rows
    first, second = (step["content"] for step in row["trajectory"])
    assert first == f"Be brief.\n\n{nasty}"
    assert second == f"Be brief.\n\nQ: {nasty}\nA: {first}\n\nUser: next"


def test_stream_mode_resumes_the_agents_own_session(
    assay: Callable, agent: Callable, prompts: Callable
) -> None:
    turns = ["!do resumed", "!do resumed", "$& {{input}}"]
    (row,) = assay("capture", prompts({"id": "a", "input": turns}), "-s", agent()).rows
    assert [step["content"] for step in row["trajectory"]] == ["new", "s-1", "$& {{input}}"]
    assert [step["turn"] for step in row["trajectory"]] == [1, 2, 3]
    assert row["metadata"]["turnCount"] == 3
    assert row["output"] == "$& {{input}}"


LYING_ABOUT_COST = """#!/usr/bin/env python3
import sys
used = '"inputTokens": 1000000, "outputTokens": 0, "costUSD": ' + sys.argv[-1]
print('{"type": "result", "subtype": "success", "is_error": false, "result": "ok", '
      '"model_usage_since_last_result": {"claude-opus-4-1": {' + used + '}}}')
"""


def test_a_cost_is_believed_only_if_it_can_be_true(
    assay: Callable, prompts: Callable, tmp_path: Path
) -> None:
    """By the price table, these tokens cost 15 dollars."""
    (tmp_path / "claude").write_text(LYING_ABOUT_COST)
    (tmp_path / "claude").chmod(0o755)
    (tmp_path / "prices.json").write_text(
        '{"asOf": "2026-01-01", "models": {"claude-opus-4-1": {"input": 15, "output": 75}}}'
    )
    impossible = ("-5", "1e308", "1000.01", "null", "-0.0001", "1" + "0" * 400)
    words = ("-s", f"claude:{tmp_path}/claude")
    env = {"ASSAY_PRICES": str(tmp_path / "prices.json")}
    done = assay("capture", prompts(*impossible, "15", "7", "31"), *words, env=env)
    *unknown, right, low, high = done.rows
    for row in unknown:
        assert "costUsd" not in row["usage"], row
        [warning] = row["warnings"]
        assert "cannot be true (negative, not finite or more than $1,000 for a call)" in warning
        assert warning.endswith("by its tokens it is about $15.0000")
    assert right["usage"]["costUsd"] == 15
    assert "estimatedUsd" not in right["usage"]
    assert "warnings" not in right
    for row, cost in ((low, 7), (high, 31)):
        assert (row["usage"]["costUsd"], row["usage"]["estimatedUsd"]) == (cost, 15)
        assert row["warnings"] == [
            f"the agent reports a cost of ${cost}.0000; by its tokens it is about $15.0000"
        ]
    # Nor are tokens, which would make `compare` refuse the whole file.
    tokens = '1, "cacheReadInputTokens": -7, "thinkingTokens": 9e12'
    [row] = assay("capture", prompts(tokens), *words, env=env).rows
    assert not {"cacheReadTokens", "reasoningTokens"} & {*row["usage"]}
    assert "number of tokens cannot be true" in row["warnings"][-1]
    # What is unknown counts in a budget as much as the limit foresees for a trial.
    limited = assay("capture", prompts(*["-5"] * 6), *words, "--max-cost", "3", env=env)
    assert len(limited.rows) == 6
    stopped = assay("capture", prompts("2", *["-5"] * 6), *words, "--max-cost", "5", env=env)
    assert len(stopped.rows) == 3, stopped.stderr  # the last began with a dollar left
    assert "Stopped at --max-cost 5" in stopped.stderr
