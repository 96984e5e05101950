"""Measure the detectors of `assay explain` on labelled trajectories, and the first divergence.

Run: python -m benchmarks.explain [--misses]
200 trajectories: 80 recordings of the four agents, labelled by hand before the detectors were
written (labels.json), and 120 that written.py writes in the agents' own stream forms, with causes
that are known. All of them are read by the real adapters. Prints precision and recall of each
detector, and how often the first divergence is within one step of where the trials were made to
part. Ends with 1 when a goal is missed. --misses prints every error.
"""

import argparse
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import NamedTuple

import msgspec

from assay.compare.detectors import findings
from assay.compare.explain import Prompts
from assay.records.explanation import DETECTORS
from assay.records.trial import Trial
from assay.records.trial.views import ExplainedRow
from benchmarks.explain import recordings, written

LABELS = Path(__file__).with_name("labels.json")
AGAIN = Path(__file__).with_name("labels_again.json")
"""Thirty of the recordings, drawn at random and labelled by somebody who knew neither the
labels nor what the detectors find."""
PRECISION, WITHIN_ONE_STEP = 0.9, 0.6


class Case(NamedTuple):
    """A trajectory and the causes that are known."""

    row: ExplainedRow
    causes: frozenset[str]


def as_row(trial: Trial, **more: object) -> ExplainedRow:
    """Return a trial as it is read from a file."""
    row = msgspec.json.decode(msgspec.json.encode(trial)) | more
    return msgspec.convert(row, ExplainedRow)


def labelled() -> list[Case]:
    causes = msgspec.json.decode(LABELS.read_bytes(), type=dict[str, list[str]])
    with tempfile.TemporaryDirectory() as folder:
        found = {trial.id: trial for trial in recordings.trials(recordings.unpack(Path(folder)))}
    return [Case(as_row(found[name]), frozenset(known)) for name, known in causes.items()]


def agreement() -> tuple[int, int]:
    """Return how many recordings two people labelled alike, and how many both labelled."""
    first, again = (
        msgspec.json.decode(path.read_bytes(), type=dict[str, set[str]]) for path in (LABELS, AGAIN)
    )
    return sum(first[name] == causes for name, causes in again.items()), len(again)


def scripted() -> list[Case]:
    return [Case(as_row(one.trial, **one.fields), one.causes) for one in written.trials()]


class Score(NamedTuple):
    """Right and wrong findings of a detector, and causes that it missed."""

    right: int
    wrong: int
    missed: int

    @property
    def precision(self) -> float | None:
        return self.right / (self.right + self.wrong) if self.right + self.wrong else None

    @property
    def recall(self) -> float | None:
        return self.right / (self.right + self.missed) if self.right + self.missed else None


def scores(cases: list[Case], misses: list[str]) -> dict[str, Score]:
    right, wrong, missed = Counter[str](), Counter[str](), Counter[str]()
    for row, causes in cases:
        found = {one.detector: one for one in findings(row)}
        right.update(found.keys() & causes)
        wrong.update(found.keys() - causes)
        missed.update(causes - found.keys())
        for name in sorted(found.keys() - causes):
            misses.append(f"{row.id}: {name} found, not labelled: {found[name].quotes[:1]}")
        misses += [
            f"{row.id}: {name} labelled, not found" for name in sorted(causes - found.keys())
        ]
    return {name: Score(right[name], wrong[name], missed[name]) for name in DETECTORS}


def divergences(misses: list[str]) -> tuple[int, int]:
    """Return of how many prompts the divergence is within one step of where trials part."""
    prompts = Prompts()
    known: dict[str, dict[int, int]] = {}
    outcomes: dict[str, set[bool | None]] = {}
    for one in written.trials():
        row = as_row(one.trial, **one.fields)
        known.setdefault(one.prompt, {})[one.number] = one.parts_at
        outcomes.setdefault(one.prompt, set()).add(row.passed)
        prompts.add("written", msgspec.structs.replace(row, id=one.prompt, number=one.number))
    n_near = 0
    found = {one.id: one for one in prompts.divergences()}
    known = {name: steps for name, steps in known.items() if {True, False} <= outcomes[name]}
    for prompt, steps in known.items():
        one = found.get(prompt)
        wanted = steps[one.number] if one and one.number else None
        near = one is not None and wanted is not None and abs(one.step - wanted) <= 1
        n_near += near
        if not near:
            where = f"{one.call!r} at step {one.step} of trial {one.number}" if one else "none"
            misses.append(f"{prompt}: divergence {where}, not step {wanted}")
    return n_near, len(known)


def shown(share: float | None) -> str:
    return "–" if share is None else f"{share:.2f}"


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.explain")
    parser.add_argument("--misses", action="store_true", help="print every error")
    wants_misses = parser.parse_args().misses
    misses: list[str] = []
    sets = {"written": scripted(), "recorded": labelled()}
    each = {name: scores(cases, misses) for name, cases in sets.items()}
    print("| detector | precision | recall | right | wrong | missed | of these in recordings |")
    print("|---|---:|---:|---:|---:|---:|---:|")
    below = []
    for name in DETECTORS:
        parts = [each[kind][name] for kind in sets]
        both = Score(*(sum(numbers) for numbers in zip(*parts, strict=True)))
        if both.precision is None or both.precision < PRECISION:
            below.append(name)
        of = each["recorded"][name]
        print(
            f"| {name} | {shown(both.precision)} | {shown(both.recall)} | {both.right} | "
            f"{both.wrong} | {both.missed} | {of.right} / {of.wrong} / {of.missed} |"
        )
    n_near, n_prompts = divergences(misses)
    print(f"\nTrajectories: {', '.join(f'{len(cases)} {name}' for name, cases in sets.items())}.")
    print(f"First divergence within one step: {n_near} of {n_prompts} prompts.")
    n_same, n_again = agreement()
    print(f"Recordings that a second person labelled alike: {n_same} of {n_again}.")
    print(f"Errors: {len(misses)}.")
    for line in misses if wants_misses else ():
        print(f"* {line}")
    if below:
        print(f"Precision below {PRECISION}: {', '.join(below)}")
    return int(bool(below) or n_near < WITHIN_ONE_STEP * n_prompts)


if __name__ == "__main__":
    sys.exit(main())
