"""Runs as JUnit XML: a suite per run, a case per prompt. Not measured is skipped, never failed.

A run that a gate has judged follows it: the gate is a case of its own, and prompts fail only if it
failed and they got worse. Otherwise a prompt fails if fewer than half of its trials passed. The
verdict of an experiment on an arm is a case, too.

A file of its own because xml.sax takes 25 ms to load, which `assay format` does not need.
"""

import re
from collections.abc import Iterable, Iterator
from typing import BinaryIO
from xml.sax.saxutils import escape as escape_text
from xml.sax.saxutils import quoteattr

from assay.compare.decided import KeptDecision
from assay.compare.ledger import ArmVerdict
from assay.records.text import counted_noun
from assay.records.trial.views import ShownTrial, shown_trials

_ILLEGAL = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_MOST_TEXT = 2000


type JudgedRun = tuple[str, Iterable[bytes], KeptDecision | ArmVerdict | None]
"""Label, rows, and what a gate, or an experiment, found of them."""
type _Case = tuple[str, float, str]
"""Its kind, its seconds and its text."""


def write_junit(out: BinaryIO, runs: Iterable[JudgedRun]) -> None:
    """Write all runs; a suite is held until its counts are known."""
    out.write(b'<?xml version="1.0" encoding="UTF-8"?>\n<testsuites name="assay">\n')
    for label, lines, found in runs:
        out.write("".join(_suite(label, lines, found)).encode())
    out.write(b"</testsuites>\n")


def _suite(
    label: str, lines: Iterable[bytes], found: KeptDecision | ArmVerdict | None
) -> Iterator[str]:
    gate = found if isinstance(found, KeptDecision) else None
    cases = [] if gate is None else [_gate_case(label, gate)]
    cases += [_experiment_case(label, found)] if isinstance(found, ArmVerdict) else []
    cases += [_prompt_case(label, line, gate) for line in lines]
    kinds = [kind for kind, _, _ in cases]
    seconds = sum(time_s for _, time_s, _ in cases)
    yield (
        f'<testsuite name={_name(label)} tests="{len(cases)}" '
        f'failures="{kinds.count("failure")}" errors="{kinds.count("error")}" '
        f'skipped="{kinds.count("skipped")}" time="{seconds:.3f}">\n'
    )
    yield from (text for _, _, text in cases)
    yield "</testsuite>\n"


def _gate_case(label: str, gate: KeptDecision) -> _Case:
    kind = {"pass": "passed", "fail": "failure"}.get(gate.verdict, "error")
    name = f"gate: regression against {gate.against or 'the baseline'}"
    if kind == "passed":
        return _case(kind, (label, name), 0.0, f"<system-out>{_text(gate.reason)}</system-out>")
    inner = f"<{kind} type={_name(gate.verdict)} message={_name(gate.reason)}/>"
    return _case(kind, (label, name), 0.0, inner)


def _experiment_case(label: str, verdict: ArmVerdict) -> _Case:
    """An experiment fails if the arm is worse; one without a verdict is an error."""
    errors = dict.fromkeys(("unhealthy", "invalid"), "error")
    kind = {"worse": "failure", **errors}.get(verdict.code, "passed")
    where, name = (label, f"experiment: {verdict.arm}: {verdict.code}"), _name(verdict.code)
    said = f"<system-out>{_text(verdict.words)}</system-out>"
    if kind == "passed":
        return _case(kind, where, 0.0, said)
    return _case(kind, where, 0.0, f"<{kind} type={name} message={_name(verdict.words)}/>")


def _prompt_case(label: str, line: bytes, gate: KeptDecision | None) -> _Case:
    row, trials = shown_trials(line)
    category = row.metadata.get("category") if isinstance(row.metadata, dict) else None
    where = (f"{label}.{category}" if category is not None else label), row.id
    time_s = sum(trial.seconds for trial in trials)
    measured = [trial for trial in trials if trial.is_measured]
    if not measured:
        inner = f"<skipped message={_name(f'not measured: {_why_not(trials)}')}/>"
        return _case("skipped", where, time_s, inner)
    failed = [trial for trial in measured if not trial.passed]
    tally = f"{len(measured) - len(failed)} of {counted_noun(len(measured), 'trial')} passed"
    if len(measured) < len(trials):
        tally += f", {len(trials) - len(measured)} not measured"
    rate = next((one for one in gate.worse if one.id == row.id), None) if gate else None
    if rate is not None:
        tally += f", {rate.before:.0%} in {gate.against if gate else 'the baseline'}"
    is_failure = 2 * len(failed) > len(measured)
    if gate is not None:
        is_failure = gate.verdict == "fail" and rate is not None
    if not is_failure or not failed:
        shown = f"<system-out>{_text(tally)}</system-out>" if row.is_trials else ""
        return _case("passed", where, time_s, shown)
    return _case("failure", where, time_s, _failure(failed[0], tally if row.is_trials else ""))


def _failure(trial: ShownTrial, tally: str) -> str:
    failure = trial.failure
    cause = failure.cause if failure else "graded"
    why = (failure.message if failure else "") or trial.grader_words or "failed"
    message = f"{tally}: {why}" if tally else why
    output = _text(str(trial.output or ""))
    return f"<failure type={_name(cause)} message={_name(message)}>{output}</failure>"


def _case(kind: str, where: tuple[str, str], time_s: float, inner: str) -> _Case:
    text = f'<testcase classname={_name(where[0])} name={_name(where[1])} time="{time_s:.3f}"'
    return kind, time_s, f"{text}>{inner}</testcase>\n" if inner else f"{text}/>\n"


def _why_not(trials: Iterable[ShownTrial]) -> str:
    """Say why nothing of a prompt was measured, by its last trial."""
    last = list(trials)[-1:]
    if not last:
        return "no trial"
    failure = last[0].failure
    return f"{failure.cause}: {failure.message}" if failure else _why_ungraded(last[0])


def _why_ungraded(trial: ShownTrial) -> str:
    broken = trial.grader_failures if isinstance(trial.grader_failures, dict) else {}
    whys = "; ".join(f"{name}: {why}" for name, why in broken.items())
    return f"a grader failed: {whys}" if whys else "not graded"


def _text(text: str) -> str:
    return escape_text(_ILLEGAL.sub("�", text[:_MOST_TEXT]))


def _name(text: str) -> str:
    # A parser turns a bare line feed in an attribute into a space.
    return quoteattr(_ILLEGAL.sub("�", text[:_MOST_TEXT]), {"\n": "&#10;", "\r": "&#13;"})
