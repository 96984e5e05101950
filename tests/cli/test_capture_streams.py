"""Whatever an agent writes is captured or becomes a cause, and memory stays bounded."""

import sys
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import pytest


def test_one_line_of_100_mb(assay: Callable, agent: Callable, prompts: Callable) -> None:
    path = prompts("!do big 100 ; say after")
    done = assay("capture", path, "-s", agent(), "-o", "out.jsonl", measure=True)
    print(f"one line of 100 MB: peak {done.peak_mb:.0f} MB, {done.seconds:.1f} s")
    assert done.code == 0
    assert done.peak_mb < 300


def test_a_line_too_long_is_counted_and_stands_whole_in_raw(
    assay: Callable, agent: Callable, prompts: Callable, read_rows: Callable, tmp_path: Path
) -> None:
    path = prompts("!do big 20 ; say after", "!do noresult ; big 20")
    assay("capture", path, "-s", agent(), "-o", "out.jsonl")
    whole, last = read_rows(tmp_path / "out.jsonl")
    assert whole["events"]["oversized"] == 1
    assert [step["content"] for step in whole["trajectory"]] == ["after"]
    assert "failure" not in whole
    assert (tmp_path / whole["raw"] / "1.out").stat().st_size > 20_000_000
    assert last["failure"]["cause"] == "harness"
    assert "too long" in last["failure"]["message"]


def test_ten_thousand_lines_a_second(assay: Callable, agent: Callable, prompts: Callable) -> None:
    done = assay("capture", prompts("!do lines 20000 10000"), "-s", agent(), measure=True)
    (row,) = done.rows
    assert [step["content"] for step in row["trajectory"]] == [str(n) for n in range(20_000)]
    times = [step["timestamp"] for step in row["trajectory"]]
    assert times == sorted(times)
    assert 1900 < times[-1] - times[0] < 6000
    gaps = [later - earlier for earlier, later in pairwise(times)]
    assert max(gaps) < 500, "the times are those of reading late, not of arrival"
    assert done.peak_mb < 150


def test_160_prompts_with_1_mb_each(assay: Callable, agent: Callable, prompts: Callable) -> None:
    path = prompts(*["!do big 1 ; say done"] * 160)
    done = assay("capture", path, "-s", agent(), "-o", "out.jsonl", "-j", 8, measure=True)
    print(f"160 x 1 MB: peak {done.peak_mb:.0f} MB, {done.seconds:.1f} s")
    assert done.code == 0
    assert done.peak_mb < 150


@pytest.mark.parametrize(
    ("script", "said"),
    [
        ("hexa 7b2274797065223a226d657373616765222c2274657874223a2261ff62227d0a", ["a\ufffdb"]),
        ("hexa 00000a ; say a", ["a"]),
        (r'line {"type":"message","text":"a\u0000b"}', ["a\x00b"]),
        (r'line {"type":"message","text":"a\ud800b"}', ["a?b"]),
        (r'line {"type":"message","text":"\ud83d\ude00"}', ["😀"]),
        ('line {"type":"message","text":"a","x":NaN,"y":-Infinity}', ["a"]),
        ('line {"type":"message","text":"a","x":1e999}', ["a"]),
        ('line {"type":"message","text":"a","x":' + "9" * 5000 + "}", None),
        ("line [1,2] ; line 7 ; line null ; line true ; say a", ["a"]),
        ("line {broken ; line  ; say a", ["a"]),
        ('line {"type":"message","text":"a"}\r', ["a"]),
        ('line {"type":"message","text":{"a":[1,null]}}', ['{"a":[1,null]}']),
        ('line {"type":["message"]} ; line {"type":null} ; line {"type":{}} ; say a', None),
    ],
)
def test_odd_lines_hurt_nobody(
    assay: Callable, agent: Callable, prompts: Callable, script: str, said: list[str] | None
) -> None:
    path = prompts(f"!do {script} ; result ok")
    done = assay("capture", path, "-s", agent())
    assert done.code == 0, done.stderr
    (row,) = done.rows
    assert row["output"] == "ok"
    assert "failure" not in row
    if said is not None:
        assert [step["content"] for step in row["trajectory"]] == said
    events = row["events"]
    counted = events["mapped"] + sum(events["unknown"].values()) + events["unparsed"]
    assert counted == events["total"], "an event that nobody knows is counted, never dropped"


def test_a_last_line_without_newline_is_read(
    assay: Callable, agent: Callable, prompts: Callable
) -> None:
    done = assay(
        "capture", prompts('!do noresult ; raw {"type":"result","result":"x"}'), "-s", agent()
    )
    (row,) = done.rows
    assert row["output"] == "x"
    assert "failure" not in row


@pytest.mark.parametrize("levels", [50_000, 1_000_000])
def test_deep_nesting(assay: Callable, agent: Callable, prompts: Callable, levels: int) -> None:
    done = assay("capture", prompts(f"!do deep {levels} ; result ok"), "-s", agent())
    assert done.code == 0, done.stderr
    (row,) = done.rows
    assert row["output"] == "ok"
    assert row["events"]["unparsed"] == 1


def test_nesting_at_the_edge_of_what_can_be_written_again(
    assay: Callable, agent: Callable, prompts: Callable, read_rows: Callable, tmp_path: Path
) -> None:
    """What could just be read stands a few levels deeper in the row; it must fit there as well."""
    call = '{"type":"tool_call","id":"a","name":"x","status":"completed","input":'
    depths = range(900, 1520, 1)
    script = " ; ".join(f"line {call}{'[' * n}{']' * n}}}" for n in depths)
    code = tmp_path / "deep.txt"
    code.write_text(script.replace("line ", "").replace(" ; ", "\n") + "\n")
    schema = agent(
        command=["/bin/sh", "-c", f'cat {code}; echo \'{{"type":"result","result":1}}\'']
    )
    done = assay("capture", prompts("x"), "-s", schema, "-o", "out.jsonl")
    assert done.code == 0, done.stderr
    again = assay("capture", prompts("x"), "-s", schema, "-o", "out.jsonl", "--resume")
    assert again.code == 0, again.stderr
    raw = assay("run", prompts("x"), "-s", schema)
    assert assay("extract", "-s", schema, stdin=raw.stdout).code == 0


def test_stdin_of_an_agent_is_closed_or_holds_the_prompt(
    assay: Callable, agent: Callable, prompts: Callable
) -> None:
    cat = [
        sys.executable,
        "-c",
        "import sys,json;print(json.dumps({'type':'result','result':sys.stdin.read()}))",
    ]
    rows = [
        assay("capture", prompts("héllo"), "-s", agent(command=cat, prompt=prompt)).rows[0]
        for prompt in ({}, {"stdin": True}, {"stdin": True, "stdinFormat": "json"})
    ]
    assert [row["output"] for row in rows] == ["", "héllo\n", '{"prompt":"héllo"}\n']
