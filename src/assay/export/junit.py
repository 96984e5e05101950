"""Runs as JUnit XML: a suite per run, a case per trial. Not measured is skipped, never failed.

A file of its own because xml.sax takes 25 ms to load, which `assay format` does not need.
"""

import re
from collections.abc import Iterable, Iterator
from typing import BinaryIO
from xml.sax.saxutils import escape as escape_text
from xml.sax.saxutils import quoteattr

from assay.records.trial.views import ShownTrial, shown_trials

_ILLEGAL = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_MOST_TEXT = 2000


def write_junit(out: BinaryIO, runs: Iterable[tuple[str, Iterable[bytes]]]) -> None:
    """Write all runs; a suite is held until its counts are known."""
    out.write(b'<?xml version="1.0" encoding="UTF-8"?>\n<testsuites name="assay">\n')
    for label, lines in runs:
        out.write("".join(_suite(label, lines)).encode())
    out.write(b"</testsuites>\n")


def _suite(label: str, lines: Iterable[bytes]) -> Iterator[str]:
    cases = [case for line in lines for case in _cases(label, line)]
    kinds = [kind for kind, _, _ in cases]
    seconds = sum(time_s for _, time_s, _ in cases)
    yield (
        f'<testsuite name={_name(label)} tests="{len(cases)}" '
        f'failures="{kinds.count("failure")}" errors="0" '
        f'skipped="{kinds.count("skipped")}" time="{seconds:.3f}">\n'
    )
    yield from (text for _, _, text in cases)
    yield "</testsuite>\n"


def _cases(label: str, line: bytes) -> Iterator[tuple[str, float, str]]:
    row, trials = shown_trials(line)
    category = row.metadata.get("category") if isinstance(row.metadata, dict) else None
    where = f"{label}.{category}" if category is not None else label
    for trial in trials:
        name = f"{row.id} [trial {trial.number}]" if row.is_trials else row.id
        yield _case(where, name, trial)


def _case(where: str, name: str, trial: ShownTrial) -> tuple[str, float, str]:
    failure, time_s = trial.failure, trial.seconds
    kind, inner = "passed", ""
    if not trial.is_measured:
        kind = "skipped"
        reason = f"{failure.cause}: {failure.message}" if failure else _why_ungraded(trial)
        inner = f"<skipped message={_name(f'not measured: {reason}')}/>"
    elif not trial.passed:
        kind = "failure"
        cause = failure.cause if failure else "graded"
        why = (failure.message if failure else "") or trial.grader_words or "failed"
        output = escape_text(_ILLEGAL.sub("�", str(trial.output or "")[:_MOST_TEXT]))
        inner = f"<failure type={_name(cause)} message={_name(why)}>{output}</failure>"
    text = f'<testcase classname={_name(where)} name={_name(name)} time="{time_s:.3f}"'
    return kind, time_s, f"{text}>{inner}</testcase>\n" if inner else f"{text}/>\n"


def _why_ungraded(trial: ShownTrial) -> str:
    broken = trial.grader_failures if isinstance(trial.grader_failures, dict) else {}
    whys = "; ".join(f"{name}: {why}" for name, why in broken.items())
    return f"a grader failed: {whys}" if whys else "not graded"


def _name(text: str) -> str:
    # A parser turns a bare line feed in an attribute into a space.
    return quoteattr(_ILLEGAL.sub("�", text[:_MOST_TEXT]), {"\n": "&#10;", "\r": "&#13;"})
