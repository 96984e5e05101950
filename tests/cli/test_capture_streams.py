"""Whatever an agent writes is captured or becomes a cause, and memory stays bounded."""

import json
import os
import sys
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from assay import system
from assay.run.sandbox import works_landlock


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
    assert last["failure"]["cause"] == "agent_limit"
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


def test_160_prompts_with_1_mb_each(assay: Callable, shell_agent: Path, prompts: Callable) -> None:
    big = (
        """printf '{"type":"message","text":"'; head -c 1000000 /dev/zero | tr '\\0' x; echo '"}'"""
    )
    path = prompts(*[f"{big}; R"] * 160)
    done = assay("capture", path, "-s", shell_agent, "-o", "out.jsonl", "-j", 8, measure=True)
    print(f"160 x 1 MB: peak {done.peak_mb:.0f} MB, {done.seconds:.1f} s")
    assert done.code == 0
    assert (path.parent / "out.jsonl").stat().st_size > 160_000_000
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


KEY = b"hidden-away-1"
MASKED = "hello [redacted]***"
PASS = "pass"
LIMIT_MS = 20_000
HOSTILE = {
    "10 TiB": "os.ftruncate(FD, 10 << 40)",
    "8 GiB": "os.ftruncate(FD, 8 << 30)",
    "a hole that is within the limit": "os.ftruncate(FD, 20 << 20)",
    "a seek and a byte": "clear(FD); os.lseek(FD, 9 << 40, 0); os.write(FD, b'x')",
    "negative seeks": "clear(FD); os.lseek(FD, -3, 1); os.write(FD, b'over'); os.lseek(FD, 0, 0)",
    "fallocate": "os.posix_fallocate(1, 0, 700 << 20); time.sleep(9)",
    "fallocate beyond the end": "libc.fallocate(1, 1, c_long(0), c_long(2 << 30)); time.sleep(9)",
    "truncation in the middle": "os.write(FD, BIG); os.ftruncate(FD, 1000); os.write(FD, b'end')",
    "truncation again and again": "[(os.write(FD, BIG), os.ftruncate(FD, n)) for n in range(50)]",
    "mode 4755": "os.write(FD, BIG); os.fchmod(FD, 0o4755)",
    "mode 0": "os.write(FD, BIG); os.fchmod(FD, 0)",
    "another owner": "os.write(FD, BIG); os.fchown(FD, 1234, 1234)",
    "attributes": "os.write(FD, BIG); os.setxattr(f'/proc/self/fd/{FD}', 'user.a', b'b')",
    "direct": "fcntl.fcntl(FD, fcntl.F_SETFL, os.O_DIRECT); time.sleep(0.05)",
    "a lease": "os.write(FD, KEY); fcntl.fcntl(FD, fcntl.F_SETLEASE, 1); time.sleep(0.1)",
    "locks": "fcntl.flock(FD, 2); fcntl.lockf(FD, 2); os.write(FD, KEY); time.sleep(0.1)",
    "a secret over what was read": (
        "os.write(FD, BIG); time.sleep(0.3); clear(FD); os.pwrite(FD, KEY, 3)"
    ),
    "a line full of secrets": "FD == 1 and [os.write(FD, KEY[:-1] * 29_999) for _ in range(4)]",
}
"""What agents do to the files that are their stdout and stderr, as Python; some of it fails."""
OVER_LIMIT = "10 TiB", "8 GiB", "a seek and a byte", "fallocate", "fallocate beyond the end"
"""What ends a trial, because its output has a limit."""
HOSTILE_AGENT = """
import ctypes, fcntl, os, time
from ctypes import c_long
libc, BIG, KEY = ctypes.CDLL(None), b'ELF' + b'x' * 400_000, b'hidden-away-1\\n'
def clear(fd): fcntl.fcntl(fd, fcntl.F_SETFL, 0)
print('hello hidden-away-1', flush=True)
for FD in (1, 2):
    try: exec(os.environ['PROMPT'])
    except OSError as error: print(error, flush=True)
    except SyntaxError: pass  # a second turn, after the history
"""
MODES = {
    "plain": (),
    "workspace": ("--isolate", "--workspace-template", "template"),
    "sandbox": ("--sandbox",),
    "no network": ("--sandbox=no-network",),
    "landlock": ("--sandbox",),
    "several turns": (),
}


def run_hostile(assay: Callable, path: Path, agent: tuple[Any, ...], *args: Any) -> None:
    """Run the table: each trial ends in time, and no other trial is the worse for it."""
    out = path.parent / "out.jsonl"
    words = ("-t", LIMIT_MS, "-j", 2, "-o", out, "--env", "MY_API_KEY")
    began = time.monotonic()
    done = assay("capture", path, *agent, *words, *args)
    # Twenty trials, two at a time: each of them would take its time limit if it hung.
    assert time.monotonic() - began < 2 * (LIMIT_MS / 1000 + 5), done.stderr
    rows = {row["id"]: row for row in map(json.loads, out.read_text().splitlines())}
    assert rows.keys() == HOSTILE.keys() | {"first", "last"}, done.stderr
    assert [rows[id_]["output"] for id_ in ("first", "last")] == [MASKED] * 2
    assert max(row["timing"]["total"] for row in rows.values()) < LIMIT_MS + 5000
    causes = {id_: row["failure"]["cause"] for id_, row in rows.items() if "failure" in row}
    # The shell gets the first turn's output in a variable, which may be too long for the second.
    assert set(causes.values()) <= {"agent_limit", "agent_crash"}, causes
    assert set(OVER_LIMIT) <= set(causes)


def check_kept(raw: Path) -> None:
    """What is kept is ours: its mode, owner and attributes, its size, and no secret in it."""
    kept = [file for file in raw.rglob("*") if file.is_file()]
    assert kept
    for file in kept:
        about = file.stat()
        assert (about.st_mode & 0o7777, about.st_uid) == (0o644, os.getuid()), file
        assert os.listxattr(file) == []
        assert about.st_size <= 512 << 20
        with file.open("rb") as stream:
            assert KEY not in stream.read(1 << 20), file
    # What fallocate took is cut at the limit.
    assert sum(file.stat().st_blocks * 512 for file in kept) < (512 + 60) << 20, "holes stay holes"


@pytest.mark.parametrize("mode", MODES)
def test_what_an_agent_does_to_its_streams_costs_only_itself(
    assay: Callable,
    prompts: Callable,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    request: pytest.FixtureRequest,
    without_bubblewrap: dict[str, str],
    mode: str,
) -> None:
    if MODES[mode] and "--sandbox" in MODES[mode][0]:
        request.getfixturevalue("bubblewrap")
    monkeypatch.setenv("MY_API_KEY", KEY.decode())
    if mode == "landlock":
        if not works_landlock():
            pytest.skip("the kernel has no Landlock")
        monkeypatch.setenv("PATH", without_bubblewrap["PATH"])
    (tmp_path / "template").mkdir()
    turns = [PASS] if mode == "several turns" else []
    rows = [{"id": id_, "input": [text, *turns]} for id_, text in HOSTILE.items()]
    ends = [{"id": id_, "input": [PASS, *turns]} for id_ in ("first", "last")]
    agent = ("--shell", f'{sys.executable} -SEc "{HOSTILE_AGENT}"')
    run_hostile(assay, prompts(ends[0], *rows, ends[1]), agent, *MODES[mode])
    check_kept(tmp_path / "out.raw")


def test_a_disk_of_300_mb_has_room_for_all_of_it(
    assay: Callable,
    prompts: Callable,
    disk: Callable[[str], Path],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    """8 GiB as a hole in stdout and in stderr, which is copied to the disk in the end."""
    monkeypatch.setenv("MY_API_KEY", KEY.decode())
    where = disk("300m")
    holes = {"stdout": "os.ftruncate(1, 8 << 30)", "stderr": "os.ftruncate(2, 8 << 30)"}
    holes["both"] = "; ".join(holes.values())
    if system.is_linux():  # elsewhere stderr is not in memory but on this disk, which refuses it
        holes["reserved"] = "os.posix_fallocate(2, 0, 700 << 20); time.sleep(9)"
    rows = [{"id": id_, "input": text.replace("FD", "1")} for id_, text in holes.items()]
    ends = [{"id": id_, "input": PASS} for id_ in ("first", "last")]
    shell = f'{sys.executable} -SEc "{HOSTILE_AGENT}"'
    words = ("-t", LIMIT_MS, "-j", 2, "-o", where / "out.jsonl", "--env", "MY_API_KEY")
    began = time.monotonic()
    done = assay("capture", prompts(ends[0], *rows, ends[1]), "--shell", shell, *words)
    assert time.monotonic() - began < 2 * (LIMIT_MS / 1000 + 5)
    got = [json.loads(line) for line in (where / "out.jsonl").read_text().splitlines()]
    assert {row["id"] for row in got} == holes.keys() | {"first", "last"}, done.stderr
    causes = {row["id"]: row["failure"]["cause"] for row in got if "failure" in row}
    assert causes == dict.fromkeys(holes, "agent_limit")


SESSIONS = {
    "10 TiB": "os.truncate(make('s.jsonl'), 10 << 40)",
    "many": "[make(f'{n}.jsonl') for n in range(3000)]",
    "modes": "os.chmod(make('s.jsonl'), 0o4755); os.setxattr(make('t.jsonl'), 'user.a', b'b')",
    "a FIFO": "os.mkfifo('sessions/s.jsonl')",
    "a link": "os.symlink('/etc/passwd', 'sessions/s.jsonl')",
    "a folder": "os.mkdir('sessions/s.jsonl')",
    "a secret": "os.write(os.open(make('s.jsonl'), 1), KEY)",
}
"""What agents leave where their session files are expected."""
SESSION_AGENT = """
import json, os, sys
KEY = os.environ['MY_API_KEY'].encode()
def make(name):
    open('sessions/' + name, 'w').close()
    return 'sessions/' + name
os.makedirs('sessions', exist_ok=True)
exec(sys.argv[1])
print(json.dumps({'type': 'result', 'result': 'done'}))
"""


@pytest.mark.parametrize("mode", ["isolate", "sandbox"])
def test_what_an_agent_makes_of_its_session_files_costs_only_itself(
    assay: Callable,
    agent: Callable,
    prompts: Callable,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    request: pytest.FixtureRequest,
    mode: str,
) -> None:
    if mode == "sandbox":
        request.getfixturevalue("bubblewrap")
    monkeypatch.setenv("MY_API_KEY", KEY.decode())
    schema = agent(command=[sys.executable, "-SEc", SESSION_AGENT], keep=["sessions/*"])
    rows = [{"id": id_, "input": text} for id_, text in SESSIONS.items()]
    words = (
        "-t",
        LIMIT_MS,
        "-j",
        2,
        "-o",
        "out.jsonl",
        "--env",
        "MY_API_KEY",
        "--workspace-dir",
        "w",
    )
    began = time.monotonic()
    done = assay("capture", prompts(*rows), "-s", schema, *words, f"--{mode}")
    assert time.monotonic() - began < 2 * (LIMIT_MS / 1000 + 5)
    got = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    assert {row["id"]: row["output"] for row in got} == dict.fromkeys(SESSIONS, "done"), done.stderr
    warned = {row["id"] for row in got if any("not kept" in one for one in row.get("warnings", ()))}
    assert warned == {"10 TiB", "many"}
    check_kept(tmp_path / "out.raw")
