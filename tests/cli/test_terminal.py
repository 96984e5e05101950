"""Nothing in a file can steer the terminal: every command against rows full of control codes."""

import json
import os
import re
import subprocess
import sys
import time
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from assay.cli.help import COMMANDS
from assay.records.tape import Exchange, Lane, TapeWriter
from assay.records.text import visible, visible_line

EVIL = "\x1b]0;pwned\x07\x1b[2J\x9b31m\x9d0;x\x9c\u202eevil\u2066\x7f\r"
FORBIDDEN = re.compile(
    "[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]"
)
GRADER = f"""
import sys
def grade(*, output, **_):
    print(output)
    print(output, file=sys.stderr)
    if "raise" in output:
        raise ValueError({EVIL!r})
    return {{"pass": False, "score": 0.0, "reasoning": {EVIL!r}, "outcome": {{{EVIL!r}: {EVIL!r}}}}}
"""


def rows(n: int = 3) -> list[dict[str, Any]]:
    def row(i: int) -> dict[str, Any]:
        grade = {"pass": i == 0, "score": i / 10, "reasoning": EVIL, "outcome": {EVIL: EVIL}}
        steps = [
            {"type": "tool_call", "name": EVIL, "status": EVIL, "timestamp": 1, "error": EVIL},
            {"type": "message", "content": EVIL, "timestamp": 2},
            {"type": "plan", "entries": [{"content": EVIL, "status": EVIL}], "timestamp": 3},
        ]
        return {
            "id": f"{EVIL}{i}",
            "input": EVIL,
            "output": EVIL + ("raise" if i == 2 else ""),
            "hint": EVIL,
            "trajectory": steps,
            "metadata": {"category": f"{EVIL}{i}", "agent": EVIL, EVIL: EVIL},
            "timing": {"start": 1, "end": 2, "total": 5},
            "toolErrors": True,
            "errors": [EVIL],
            "score": grade,
            "grades": {EVIL: grade},
            "agent": {"adapter": EVIL, "version": EVIL, "model": EVIL},
            "reference": EVIL + ("raise" if i == 2 else ""),
            "rawLines": [json.dumps({"type": "result", "result": EVIL})],
            "setup": {"skills": [EVIL]},
        }

    failed = row(n) | {"failure": {"cause": "provider", "message": EVIL}}
    return [*map(row, range(n)), {k: v for k, v in failed.items() if k not in ("score", "grades")}]


def trials() -> list[dict[str, Any]]:
    return [
        {
            "id": f"{EVIL}{i}",
            "input": EVIL,
            "k": 2,
            "trials": [
                {"trialNum": n, "output": EVIL, "trajectory": [], "duration": 5, "pass": n == i}
                for n in (1, 2)
            ],
            "metadata": {"category": EVIL},
            "passRate": 0.5,
        }
        for i in range(3)
    ]


def pooled() -> list[dict[str, Any]]:
    builds = {n: {"id": f"{EVIL}{n}", "label": EVIL, "date": EVIL} for n in (1, 2)}
    identity = {"adapter": EVIL, "program": EVIL, "model": EVIL}
    return [
        {
            **row,
            "identity": identity,
            "specHash": EVIL,
            "trials": [{**each, "build": builds[each["trialNum"]]} for each in row["trials"]],
        }
        for row in trials()
    ]


@pytest.fixture
def place(tmp_path: Path) -> Path:
    files = {"rows": rows(), "other": rows(4), "trials": trials(), "pool": pooled()}
    for name, content in files.items():
        text = "".join(json.dumps(row) + "\n" for row in content)
        (tmp_path / f"{name}.jsonl").write_text(text)
    kept = tmp_path / "kept.raw" / "prompt-evil"
    (kept / "files").mkdir(parents=True)
    (kept / "1.out").write_text(EVIL)
    (kept / "files" / EVIL.replace("/", "")).write_text(EVIL)
    names = {"evil": "kept.raw/prompt-evil", "gone": f"kept.raw/{EVIL}"}
    text = "".join(json.dumps({"id": n, "raw": raw}) + "\n" for n, raw in names.items())
    (tmp_path / "kept.jsonl").write_text(text)
    raw = {name: rows()[0][name] for name in ("id", "input", "metadata", "timing", "rawLines")}
    (tmp_path / "raw.jsonl").write_text(json.dumps(raw) + "\n")
    labels = [{"id": row["id"], "label": "pass"} for row in rows()[:3]]
    (tmp_path / "labels.jsonl").write_text("".join(json.dumps(row) + "\n" for row in labels))
    # Not JSON, and a field of the wrong type: messages quote what they refuse.
    (tmp_path / "broken.jsonl").write_bytes(f'{{"id":"{EVIL}" {EVIL}\n'.encode())
    (tmp_path / "wrong.jsonl").write_text(json.dumps({"id": EVIL, "input": {EVIL: 1}}) + "\n")
    (tmp_path / "grader.py").write_text(GRADER)
    for name, said in (("evil", EVIL), ("other", f"another {EVIL}")):
        with TapeWriter(tmp_path / f"{name}.tape") as tape:
            about = {"agent": {"name": EVIL, "options": {"model": EVIL}}}
            tape.add_lane(Lane(lane=0, prompt=EVIL, agent=EVIL, version=EVIL, about=about))
            answer = json.dumps({"content": [{"type": "text", "text": said}]})
            tape.add(
                Exchange(lane=1, number=1, method="POST", path=EVIL, request={EVIL: said},
                         status=200, answer=[(1, answer)], model=EVIL)
            )  # fmt: skip
    with zipfile.ZipFile(tmp_path / "evil.zip", "w") as bundle:
        bundle.writestr("manifest.json", json.dumps({"assay": EVIL, EVIL: EVIL}))
        bundle.writestr(EVIL, EVIL)
    answer = json.dumps({"type": "result", "result": EVIL})
    schema = {
        "version": 1,
        "name": EVIL,
        "command": [
            sys.executable,
            "-c",
            f"import sys; print({answer!r}); sys.stderr.write({EVIL!r} + '\\n'); sys.exit(3)",
        ],
        "sessionMode": "stream",
        "prompt": {},
        "output": {"flag": "", "value": ""},
        "outputEvents": [],
        "result": {"matchPath": "$.type", "matchValue": "result", "contentPath": "$.result"},
    }
    (tmp_path / "agent.json").write_text(json.dumps(schema))
    said = [{"source": "user", "message": EVIL}, {"source": "agent", "message": EVIL}]
    other = {"schema_version": "ATIF-v1.8", "trajectory_id": EVIL, "steps": said}
    (tmp_path / "other.json").write_text(json.dumps(other | {"agent": {"name": EVIL}}))
    return tmp_path


PLAIN = {"TERM": "dumb", "NO_COLOR": "1"}


def refuse_controls(text: str, what: object) -> None:
    assert not FORBIDDEN.search(text.replace("\r\n", "\n")), (what, text)


CASES: dict[str, tuple[str, ...]] = {
    "capture": ("capture", "rows.jsonl", "-s", "agent.json", "-g", "grader.py"),
    "capture --progress": (
        *("capture", "rows.jsonl", "-s", "agent.json", "-g", "grader.py", "--progress"),
        *("-o", "out.jsonl"),
    ),
    "capture --progress-json": (
        *("capture", "rows.jsonl", "-s", "agent.json", "--json", "-o", "out.jsonl"),
    ),
    "trials": ("trials", "rows.jsonl", "-s", "agent.json", "-k", "2", "-g", "grader.py"),
    "run": ("run", "rows.jsonl", "-s", "agent.json", "--progress"),
    "extract": ("extract", "raw.jsonl", "-s", "agent.json", "--progress"),
    "import": ("import", "trajectories", "other.json", "-o", "imported.jsonl"),
    "raw": ("raw", "evil", "kept.jsonl"),
    "raw --list": ("raw", "evil", "kept.jsonl", "--list"),
    "raw of no row": ("raw", EVIL, "kept.jsonl"),
    "raw of no stream": ("raw", "gone", "kept.jsonl"),
    "grade": ("grade", "rows.jsonl", "-g", "grader.py", "--progress"),
    "grade -j 2": ("grade", "rows.jsonl", "-g", "grader.py", "-j", "2"),
    "grade command": ("grade", "rows.jsonl", "-g", "command:cat rows.jsonl; exit 1", "--progress"),
    "summarize": ("summarize", "rows.jsonl"),
    "identity": ("identity", "rows.jsonl"),
    "explain": ("explain", "rows.jsonl"),
    "summarize --markdown": ("summarize", "rows.jsonl", "--markdown"),
    "format": ("format", "rows.jsonl", "--progress"),
    "format csv": ("format", "rows.jsonl", "-f", "csv"),
    "format markdown": ("format", "rows.jsonl", "-f", "markdown"),
    "calibrate": ("calibrate", "rows.jsonl"),
    "calibrate again": ("calibrate", "rows.jsonl", "-g", "grader.py"),
    "calibrate --json": ("calibrate", "rows.jsonl", "--json"),
    "calibrate --labels": ("calibrate", "rows.jsonl", "--labels", "labels.jsonl"),
    "calibrate --export": ("calibrate", "rows.jsonl", "--export", "/dev/stdout"),
    "validate-refs": ("validate-refs", "rows.jsonl", "-g", "grader.py", "--no-op"),
    "balance": ("balance", "rows.jsonl"),
    "compare": ("compare", f"{EVIL}a:rows.jsonl", "b:other.jsonl"),
    "compare trials": ("compare", "a:trials.jsonl", f"{EVIL}:trials.jsonl"),
    "compare markdown": ("compare", "a:rows.jsonl", "b:other.jsonl", "-f", "markdown"),
    "compare json": ("compare", "a:rows.jsonl", "b:other.jsonl", "-f", "json"),
    "compare --fail-on": (
        *("compare", f"{EVIL}:rows.jsonl", "b:other.jsonl", "--fail-on", "regression"),
    ),
    "export": ("export", "sft", "rows.jsonl"),
    "query": ("query", "SELECT * FROM steps", f"{EVIL}:rows.jsonl"),
    "query wrong": ("query", EVIL, "rows.jsonl"),
    "fixtures": ("fixtures", "rows.jsonl", "-g", "grader.py", "-o", "fixtures"),
    "tape": ("tape", "show", "evil.tape"),
    "tape request": ("tape", "show", "evil.tape", "--lane", "1", "--request", "1"),
    "tape stats": ("tape", "stats", "evil.tape"),
    "tape diff": ("tape", "diff", "evil.tape", "other.tape"),
    "tape cut": ("tape", "cut", "evil.tape", "--trial", EVIL, "-o", "bug.tape"),
    "tape scrub": ("tape", "scrub", "evil.tape", "--pattern", "o"),
    "evidence": ("evidence", "pack", f"{EVIL}:rows.jsonl", "-o", "bundle.zip"),
    "evidence of another": ("evidence", "verify", "evil.zip"),
    "report": ("report", f"{EVIL}:rows.jsonl", "b:other.jsonl", "-o", "r.html"),
    "report markdown": ("report", f"{EVIL}:rows.jsonl", "b:other.jsonl", "-f", "markdown"),
    "report junit": ("report", "rows.jsonl", "-f", "junit"),
    "view": ("view", f"{EVIL}:rows.jsonl", "--port", "0"),
    "plan": ("plan", "rows.jsonl", "other.jsonl"),
    "baseline": ("baseline", "show", "pool.jsonl"),
    "baseline json": ("baseline", "show", "pool.jsonl", "--json"),
    "baseline add": ("baseline", "add", f"{EVIL}:trials.jsonl", "--to", "pool.jsonl"),
    "baseline again": ("baseline", "add", f"{EVIL}:pool.jsonl", "--to", "new.jsonl"),
    "baseline prune": ("baseline", "prune", "pool.jsonl", "--keep", "1"),
    "compare baseline": ("compare", "a:pool.jsonl", f"{EVIL}:trials.jsonl"),
    "doctor": ("doctor", "agent.json"),
    "agents": ("agents",),
    "schemas": ("schemas", EVIL),
    "headless": ("headless", "-s", "agent.json", "-v"),
    "mcp": ("mcp", f"{EVIL}:trials.jsonl"),
    "an unknown command": (EVIL,),
    "an unknown option": ("grade", "rows.jsonl", f"--{EVIL}"),
    "a missing file": ("grade", f"{EVIL}.jsonl", "-g", "contains"),
    "a wrong grader": ("grade", "rows.jsonl", "-g", EVIL),
}
NO_DATA = {"ab", "clean", "completion", "demo", "init", "mock-model", "skills", "trigger"}
"""Commands that print nothing from a file."""


def test_every_command_is_in_the_matrix() -> None:
    assert {words[0] for words in CASES.values()} >= COMMANDS.keys() - NO_DATA


@pytest.mark.parametrize("name", CASES)
def test_no_control_code_reaches_the_terminal(
    on_terminal: Callable, place: Path, name: str
) -> None:
    stop = b"Ctrl-C stops" if name == "view" else b""
    code, seen = on_terminal(*CASES[name], cwd=place, env=PLAIN, stop_at=stop)
    assert "Traceback" not in seen, seen
    refuse_controls(seen, name)
    expected = (1, 2) if name.startswith(("a ", "an ", "schemas")) else (0, 1, 3, 4, 130)
    assert code in expected, seen
    if name not in (
        "agents",
        "headless",
        "identity",
        "import",
        "mcp",
        "plan",
        "report",
        "report junit",
    ):
        assert "\\u001b" in seen or "\\x1b" in seen, seen


READERS = ("capture", "run", "extract", "grade", "summarize", "format", "calibrate", "balance")
READERS += ("validate-refs", "compare", "report", "plan")


@pytest.mark.parametrize("debug", [False, True])
@pytest.mark.parametrize("file", ["broken.jsonl", "wrong.jsonl"])
@pytest.mark.parametrize("command", READERS)
def test_nor_in_the_message_about_a_bad_file(
    on_terminal: Callable, place: Path, command: str, file: str, debug: bool
) -> None:
    more = {"capture": ("-s", "agent.json"), "run": ("-s", "agent.json")}
    more |= {"extract": ("-s", "agent.json"), "grade": ("-g", "grader.py")}
    more |= {"validate-refs": ("-g", "grader.py"), "compare": ("rows.jsonl",)}
    flags = ("--debug",) if debug and command not in ("plan",) else ()
    code, seen = on_terminal(command, file, *more.get(command, ()), *flags, cwd=place, env=PLAIN)
    assert code in (0, 1, 2, 4), seen
    refuse_controls(seen, command)


def test_nor_from_the_live_view(on_terminal: Callable, place: Path) -> None:
    """It moves the cursor itself, so only the codes of the data are looked for."""
    args = ("capture", "rows.jsonl", "-s", "agent.json", "-o", "out.jsonl")
    code, seen = on_terminal(*args, cwd=place, env={"TERM": "xterm", "NO_COLOR": "1"})
    assert code == 0, seen
    for code_of_data in ("\x1b]0;", "\x07", "\x1b[2J\x9b", "\x9b", "\u202e", "\x7f"):
        assert code_of_data not in seen


@pytest.mark.parametrize("name", ["format markdown", "summarize --markdown", "calibrate"])
def test_markdown_has_none_in_a_file_either(assay: Callable, place: Path, name: str) -> None:
    done = assay(*CASES[name], "-o", place / "out.md")
    assert done.code == 0, done.stderr
    refuse_controls((place / "out.md").read_text(), name)


def test_rows_in_a_pipe_stay_as_they_are(
    assay: Callable, on_terminal: Callable, place: Path
) -> None:
    done = assay("format", "rows.jsonl")
    assert done.rows == rows()
    seen = on_terminal("format", "rows.jsonl", cwd=place, env=PLAIN)[1]
    assert [json.loads(line) for line in seen.splitlines()] == rows()  # other spelling, same JSON


def test_visible() -> None:
    assert visible("a\tb\r\nc\n") == "a\tb\r\nc\n"
    assert visible("\r\x1b[m\x9b\u202e\ud800é😀") == "\\u000d\\u001b[m\\u009b\\u202e\\ud800é😀"
    assert visible_line("a\tb\r\nc\u2028") == "a\\u0009b\\u000d\\u000ac\\u2028"


WRITER = """
import signal, sys
from assay.cli.output import guard_terminal
guard_terminal()
signal.signal(signal.SIGALRM, lambda *_: None)
signal.setitimer(signal.ITIMER_REAL, 0.001, 0.001)
sys.stdout.buffer.write(b"x" * 4_000_000 + b"\\n")
sys.stdout.write("y" * 4_000_000 + "\\n")
sys.stdout.flush()
signal.setitimer(signal.ITIMER_REAL, 0)
"""


@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_a_large_row_reaches_a_pipe_whole_whatever_signals_come(unbuffered: str) -> None:
    writer = subprocess.Popen(
        [sys.executable, "-c", WRITER],
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONUNBUFFERED": unbuffered},
    )
    assert writer.stdout is not None
    got = b""
    while block := os.read(writer.stdout.fileno(), 65536):
        got += block
        time.sleep(0.0005)  # slower than the writer, which then waits in the middle of a write
    writer.stdout.close()
    assert writer.wait() == 0
    assert got == b"x" * 4_000_000 + b"\n" + b"y" * 4_000_000 + b"\n"
