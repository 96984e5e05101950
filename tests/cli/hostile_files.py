"""Files that a command may be given by mistake or on purpose, by names that say what they are."""

import json
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

PROMPT = {"id": "a", "input": "What is 2+3?", "hint": "5", "reference": "5", "metadata": {"c": "x"}}
STEP = {"type": "message", "content": "5", "timestamp": 1}
CAPTURE = {
    "id": "a",
    "input": "What is 2+3?",
    "output": "5",
    "hint": "5",
    "trajectory": [STEP, {"type": "tool_call", "name": "t", "status": "failed", "timestamp": 2}],
    "metadata": {"category": "x"},
    "timing": {"start": 0, "end": 5, "total": 5, "firstResponse": 1},
    "toolErrors": False,
    "errors": [],
    "score": {"pass": False, "score": 0.0, "reasoning": "r"},
    "grades": {"g": {"pass": False, "score": 0.0, "version": "1"}},
    "usage": {"inputTokens": 1, "outputTokens": 2, "costUsd": 0.1},
    "failure": {"cause": "agent_crash", "message": "m", "answered": True},
    "agent": {"adapter": "a", "version": "1", "model": "m"},
    "setup": {"mcpServers": [{"name": "n", "status": "failed"}], "skills": []},
    "identity": {"adapter": "claude", "model": "opus", "offered": {"a": "b"}},
    "permissionDenials": 1,
    "raw": "raw/a",
    "warnings": ["w"],
}
ENTRY = {name: CAPTURE[name] for name in CAPTURE if name not in ("id", "input", "timing", "score")}
ENTRY |= {"trialNum": 1, "duration": 5, "pass": False, "score": 0.0, "reasoning": "r"}
TRIALS = {"id": "a", "input": "x", "k": 1, "trials": [ENTRY], "metadata": {"category": "x"}}
TRIALS |= {"passRate": 0.0, "passAtK": 0.0, "passExpK": 0.0, "identity": CAPTURE["identity"]}
COMPARISON = {"verdict": [], "health": {}, "meta": {"runs": ["a"]}, "quality": {"a": {}}}
SCHEMA = {"version": 1, "name": "n", "command": ["true"], "sessionMode": "stream", "prompt": {}}
KINDS: dict[str, Any] = {
    "prompt": PROMPT,
    "capture": CAPTURE,
    "trials": TRIALS,
    "comparison": COMPARISON,
    "schema": SCHEMA,
    "mcp": {"mcpServers": {"a": {"command": "true"}}},
    "number": 3,
    "list": [CAPTURE],
    "text": "x",
    "null": None,
}
ODD: tuple[Any, ...] = (None, 7, -1.5, 1e308, True, "x", ["x"], [None], {"x": 1}, {}, [])


def contents(row: dict[str, Any]) -> dict[str, bytes]:
    """Return hostile contents; row is what the command expects."""
    line = json.dumps(row).encode()
    deep = b"[" * 100_000 + b"]" * 100_000
    made = {
        "empty": b"",
        "blank": b"\n \r\n\t\n",
        "only-bom": b"\xef\xbb\xbf",
        "bom": b"\xef\xbb\xbf" + line + b"\n",
        "bom-in-the-middle": line + b"\n\xef\xbb\xbf" + line + b"\n",
        "utf-16": b"\xff\xfe" + line.decode().encode("utf-16-le"),
        "utf-16-be": b"\xfe\xff" + line.decode().encode("utf-16-be"),
        "utf-32": line.decode().encode("utf-32"),
        "latin-1": json.dumps(row | {"hint": "é"}, ensure_ascii=False).encode("latin-1"),
        "nul": b"\0" * 1000,
        "nul-inside": line[:20] + b"\0" + line[20:],
        "bad-bytes": line + b"\n" + line[:10] + b"\xff\xfe\x80" + line[10:] + b"\n" + line,
        "bad-bytes-in-a-string": line.replace(b'"id": "a"', b'"id": "\xc3\x28"') + b"\n",
        "cut": line + b"\n" + line[: len(line) // 2],
        "cut-at-once": line[:1],
        "deep": deep,
        "deep-inside": line[:-1] + b', "metadata": ' + deep + b"}\n",
        "deep-unclosed": b'{"a":' * 100_000,
        "long-line": line[:-1] + b', "more": "' + b"x" * 2_000_000 + b'"}\n',
        "infinite": line[:-1] + b', "more": 1e999, "timing": {"start": 1e999, "end": 1e999}}\n',
        "nan": line[:-1] + b', "more": NaN, "k": Infinity}\n',
        "digits": line[:-1] + b', "more": ' + b"9" * 5000 + b', "k": ' + b"9" * 5000 + b"}\n",
        "repeated-keys": line[:-1] + b', "id": "b", "id": "c", "input": "y"}\n',
        "repeated-ids": (line + b"\n") * 3,
        "line-ends": line + b"\r\n\r\n" + line.replace(b'"a"', b'"b"', 1) + b"\r" + b"\n",
        "only-cr": line + b"\r" + line + b"\r",
        "no-line-end": line,
        "several-on-a-line": line + line + b" " + line,
        "over-lines": json.dumps(row, indent=1).encode(),
        "lone-surrogate": json.dumps(row | {"input": "\ud800", "output": "\udfff"}).encode(),
        "control": json.dumps(row | {"id": "\x1b]0;owned\x07\x00"}).encode(),
        "long-id": json.dumps(row | {"id": "i" * 100_000}).encode(),
        "binary": bytes(range(256)) * 100,
        "not-json": b"hello world\n",
        "html": b"<!doctype html><html></html>",
    }
    for kind, value in KINDS.items():
        made[f"kind-{kind}"] = json.dumps(value).encode() + b"\n"
    return made


def mutated(row: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the row without each field, and with a value of each type in it."""
    for name, inner in row.items():
        yield f"without {name}", {key: value for key, value in row.items() if key != name}
        yield from ((f"{name} {odd!r}", row | {name: odd}) for odd in ODD)
        if isinstance(inner, dict):
            for key in inner:
                for odd in ODD:
                    yield f"{name}.{key} {odd!r}", row | {name: inner | {key: odd}}
        if isinstance(inner, list) and inner and isinstance(inner[0], dict):
            for odd in ODD:
                yield f"{name}[] {odd!r}", row | {name: [odd]}
            for key in inner[0]:
                for odd in ODD:
                    yield f"{name}[].{key} {odd!r}", row | {name: [inner[0] | {key: odd}]}


@contextmanager
def places(folder: Path) -> Iterator[dict[str, Path]]:
    """Things under a file name that are no file; the pipe is closed as soon as it is opened."""
    (folder / "folder").mkdir()
    pipe = folder / "pipe"
    os.mkfifo(pipe)
    ended = threading.Event()
    writer = threading.Thread(target=_close_at_once, args=(pipe, ended.is_set), daemon=True)
    writer.start()
    (folder / "loop").symlink_to("loop")
    unreadable = folder / "unreadable"
    unreadable.write_text("x")
    unreadable.chmod(0)
    yield {
        "missing": folder / "missing",
        "folder": folder / "folder",
        "pipe": pipe,
        "loop": folder / "loop",
        "unreadable": unreadable,
        "below-a-file": unreadable / "x",
        "long-name": folder / ("n" * 5000),
    }
    ended.set()
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)  # lets the writer go on, and end
    writer.join(5)
    os.close(reader)


def _close_at_once(pipe: Path, is_over: Callable[[], bool]) -> None:
    while not is_over():
        os.close(os.open(pipe, os.O_WRONLY))
