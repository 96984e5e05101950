"""A labelling sheet that people fill in in the browser; every label is saved immediately.

The sheet is that of `assay calibrate --export`: rows drawn by shares, shuffled, without the
grader's verdicts. An existing one is continued.
"""

import os
import threading
from pathlib import Path
from typing import Any

import msgspec
from msgspec import UNSET

from assay.compare.sampling import SHEET_ROWS, draw_sheet, sheet_lines
from assay.errors import AssayError
from assay.records.reports import LabelRow
from assay.records.rows import open_rows
from assay.records.text import with_trial
from assay.records.trial import NUMBER
from assay.records.trial.files import open_trials
from assay.records.trial.views import StepsView, shown_trials
from assay.stats.agreement import Agreement, measure_agreement
from assay.viewer.index import Index
from assay.viewer.prompts import Prompts

WORDS = ("pass", "fail", "ambiguous")
_MOST_STEPS_BYTES = 400_000


class LabelSheet:
    """The rows to label, in their order, without the grader's verdicts."""

    def __init__(self, target: Path, rows: list[LabelRow], steps: dict[str, Any]) -> None:
        self._target, self._rows, self._steps = target, rows, steps
        self._lock = threading.Lock()

    @classmethod
    def open(cls, results: Path, target: Path, key: str) -> "LabelSheet | str":
        """Read the sheet, or draw one from the readable rows; a string says why there is none."""
        try:
            rows = _stored_rows(target) or _drawn_rows(results, key)
            if not rows:
                return "Nothing here is graded yet: labels are for checking a grader."
            return cls(target, rows, _steps_of(results, rows))
        except AssayError as error:
            return error.message

    def shown(self) -> dict[str, Any]:
        """Return what a person needs to judge."""
        with self._lock:
            rows = [msgspec.to_builtins(row) for row in self._rows]
        for row in rows:
            row.pop("graderVersion", None)
            name = with_trial(row["id"], row.get(NUMBER))
            row["trajectory"] = self._steps.get(name, [])
            row["label"] = _word(row.get("label"))
        return {"file": str(self._target), "rows": rows}

    def set(self, number: int, label: str | None) -> dict[str, Any]:
        """Store one label; the file is replaced as a whole, so that it is never half written."""
        if label not in (*WORDS, None) or not 0 <= number < len(self._rows):
            return {"error": "no such row or label"}
        with self._lock:
            self._rows[number] = msgspec.structs.replace(self._rows[number], label=label)
            data = msgspec.json.Encoder().encode_lines(self._rows)
            fresh = self._target.with_name(f".{self._target.name}.new")
            try:
                with fresh.open("wb") as file:
                    file.write(data)
                    file.flush()
                    os.fsync(file.fileno())  # on disk before the old sheet is given up
                fresh.replace(self._target)
            except OSError as error:
                return {"error": f"cannot write {self._target}: {error.strerror}"}
        return {"saved": str(self._target)}


def _stored_rows(target: Path) -> list[LabelRow]:
    """Read a sheet that is already there."""
    if not target.is_file():
        return []
    with open_rows(target) as sheet:
        return list(sheet.rows(msgspec.json.Decoder(LabelRow)))


def _drawn_rows(results: Path, key: str) -> list[LabelRow]:
    with open_trials(results, skip_unreadable=True) as file:
        return sheet_lines(file, draw_sheet(file, SHEET_ROWS, 0, key).spots)


def _steps_of(results: Path, rows: list[LabelRow]) -> dict[str, Any]:
    """Read the steps of the drawn rows; very long ones are left out."""
    wanted = {with_trial(row.id, row.number): row.output for row in rows}
    found: dict[str, Any] = {}
    with open_trials(results, skip_unreadable=True) as file:
        for row in file.rows(msgspec.json.Decoder(StepsView)):
            # A sheet may hold no outputs; where it does, of repeated ids only that row counts.
            name = with_trial(row.id, row.number)
            output = wanted.get(name)
            same = name in wanted and (output is UNSET or output == row.output)
            if same and len(bytes(row.trajectory)) <= _MOST_STEPS_BYTES:
                found[name] = msgspec.json.decode(bytes(row.trajectory))
    return found


def _word(label: Any) -> str | None:
    if isinstance(label, bool):
        return "pass" if label else "fail"
    return label if isinstance(label, str) else None


class RunLabels(msgspec.Struct, rename="camel"):
    """What people said of the trials of one run, and how far its grader agrees."""

    words: dict[str, dict[int, str]] = {}
    """By prompt and number of the trial: pass, fail or ambiguous."""
    agreement: Agreement | None = None
    disagreements: list[tuple[str, int, str, str]] = []
    """Prompt, trial, what people said, what the grader said."""

    @property
    def shown(self) -> dict[str, Any] | None:
        """What the overview tells; nothing without labels."""
        if not self.words:
            return None
        n_labels = sum(map(len, self.words.values()))
        agreement = msgspec.to_builtins(self.agreement) if self.agreement else None
        return {"n": n_labels, "agreement": agreement, "disagreements": self.disagreements}


def label_file(results: Path) -> Path:
    """Where the labels of a result file are, unless --labels says otherwise."""
    return results.with_suffix(".labels.jsonl")


def read_run_labels(index: Index, sheet: Path) -> RunLabels:
    """Read a sheet beside a run; a label counts only for the output that it was given for."""
    found = RunLabels()
    prompts = Prompts([index])
    pairs = []
    for row in _readable_rows(sheet):
        number = row.number or 1
        word, prompt = _word(row.label), prompts.find(row.id)
        place = prompts.file_row(0, prompt) if prompt is not None else None
        if word not in WORDS or place is None:
            continue
        about, trials = shown_trials(index.line(place))
        named = (one for one in trials if not about.is_trials or one.number == number)
        trial = next(named, None)
        if trial is None or (row.output is not UNSET and row.output != trial.output):
            continue
        found.words.setdefault(row.id, {})[number] = word
        # No grader was asked about a trial that did not come to its end.
        passed = trial.verdict if trial.is_finished else None
        if passed is not None and word != "ambiguous":
            pairs.append((word == "pass", passed))
            if (word == "pass") != passed:
                verdict = "pass" if passed else "fail"
                found.disagreements.append((row.id, number, word, verdict))
    if pairs:
        people, grader = zip(*pairs, strict=True)
        found.agreement = measure_agreement(people, grader)
    return found


def _readable_rows(sheet: Path) -> list[LabelRow]:
    try:
        return _stored_rows(sheet)
    except AssayError:  # the page Label says what is wrong with it
        return []
