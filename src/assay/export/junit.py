"""Runs as JUnit XML: a suite per run, a case per trial. Not measured is skipped, never failed.

A file of its own because xml.sax takes 25 ms to load, which `assay format` does not need.
"""

import re
from collections.abc import Iterable, Iterator
from typing import Any, BinaryIO
from xml.sax.saxutils import escape as escape_text
from xml.sax.saxutils import quoteattr

import msgspec

_ILLEGAL = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_MOST_TEXT = 2000


def write_junit(out: BinaryIO, runs: Iterable[tuple[str, Iterable[bytes]]]) -> None:
    """Write all runs; a suite is held until its counts are known."""
    out.write(b'<?xml version="1.0" encoding="UTF-8"?>\n<testsuites name="assay">\n')
    for label, lines in runs:
        out.write("".join(_suite(label, lines)).encode())
    out.write(b"</testsuites>\n")


def _suite(label: str, lines: Iterable[bytes]) -> Iterator[str]:
    cases = [case for line in lines for case in _cases(label, msgspec.json.decode(line))]
    kinds = [kind for kind, _, _ in cases]
    seconds = sum(time_s for _, time_s, _ in cases)
    yield (
        f'<testsuite name={_name(label)} tests="{len(cases)}" '
        f'failures="{kinds.count("failure")}" errors="0" '
        f'skipped="{kinds.count("skipped")}" time="{seconds:.3f}">\n'
    )
    yield from (text for _, _, text in cases)
    yield "</testsuite>\n"


def _cases(label: str, row: dict[str, Any]) -> Iterator[tuple[str, float, str]]:
    category = (row.get("metadata") or {}).get("category")
    where = f"{label}.{category}" if category is not None else label
    if "trials" not in row:
        score = row.get("score") or {}
        time_s = (row.get("timing") or {}).get("total") or 0
        yield _case(where, row["id"], row, score, time_s / 1000)
        return
    for trial in row["trials"]:
        name = f"{row['id']} [trial {trial['trialNum']}]"
        yield _case(where, name, trial, trial, (trial.get("duration") or 0) / 1000)


def _case(
    where: str, name: str, entry: dict[str, Any], grade: dict[str, Any], time_s: float
) -> tuple[str, float, str]:
    failure = entry.get("failure") or {}
    why = str(failure.get("message") or grade.get("reasoning") or "")
    cause = str(failure.get("cause") or "graded")
    passed = grade.get("pass")
    kind, inner = "passed", ""
    if passed is None:
        kind = "skipped"
        reason = f"{cause}: {why}" if failure else _why_ungraded(entry)
        inner = f"<skipped message={_name(f'not measured: {reason}')}/>"
    elif not passed:
        kind = "failure"
        output = escape_text(_ILLEGAL.sub("�", str(entry.get("output") or "")[:_MOST_TEXT]))
        inner = f"<failure type={_name(cause)} message={_name(why or 'failed')}>{output}</failure>"
    text = f'<testcase classname={_name(where)} name={_name(name)} time="{time_s:.3f}"'
    return kind, time_s, f"{text}>{inner}</testcase>\n" if inner else f"{text}/>\n"


def _why_ungraded(entry: dict[str, Any]) -> str:
    broken = entry.get("graderFailures") or {}
    whys = "; ".join(f"{name}: {why}" for name, why in broken.items())
    return f"a grader failed: {whys}" if whys else "not graded"


def _name(text: str) -> str:
    # A parser turns a bare line feed in an attribute into a space.
    return quoteattr(_ILLEGAL.sub("�", text[:_MOST_TEXT]), {"\n": "&#10;", "\r": "&#13;"})
