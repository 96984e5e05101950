"""What to say before any number: that graders changed, or that all trials failed in one way."""

import re
from collections.abc import Iterable, Mapping

from assay.graders.frozen import CHANGED
from assay.records.capture import Grade
from assay.records.text import counted_noun, shortened

_LEAST_TRIALS = 2
_SHOWN_CHARS = 200
_MOST_LINES = 5
_VARIES = r"/[^\s'\":]*/|\d+\.\d+ ?m?s\b"
"""What differs from trial to trial in messages that are otherwise the same: folders, durations."""


class Doubts:
    """Looks at every verdict of a run; cheap enough for each row of `assay grade`."""

    def __init__(self) -> None:
        self._n_trials = 0
        self._alike: dict[tuple[str, bool], str] | None = None
        """By grader, and whether it broke: the reason, the same for all trials so far; None before
        any."""
        self._warnings: dict[str, int] = {}
        self.said: set[str] = set()
        """Warnings that were printed before; they are not repeated."""

    def add(self, grades: Mapping[str, Grade], broken: Mapping[str, str]) -> None:
        """Take the grades of one trial, and the failures of graders."""
        self._n_trials += 1
        if not broken and not self._alike and self._alike is not None:
            return  # the usual case: trials differ, and no grader broke
        if broken:
            self.add_warnings(why for why in broken.values() if CHANGED in why)
        if self._alike is None:
            self._alike = dict(_failed(grades, broken))
        elif self._alike:
            self._keep_alike(dict(_failed(grades, broken)))

    def merge(self, other: "Doubts") -> None:
        """Add what was seen of the trials after these."""
        self._n_trials += other._n_trials
        for text, n in other._warnings.items():
            self._warnings[text] = self._warnings.get(text, 0) + n
        if self._alike is None:
            self._alike = other._alike
        elif other._alike is not None:
            self._keep_alike(other._alike)

    def _keep_alike(self, others: Mapping[tuple[str, bool], str]) -> None:
        alike = self._alike or {}
        self._alike = {key: why for key, why in alike.items() if same_text(why, others.get(key))}

    def add_warnings(self, warnings: Iterable[str]) -> None:
        for text in warnings:
            self._warnings[text] = self._warnings.get(text, 0) + 1

    @property
    def names_failure(self) -> bool:
        """Whether the lines give the reason why a grader failed."""
        alike = self._alike or {}
        return self._n_trials >= _LEAST_TRIALS and any(is_broken for _, is_broken in alike)

    def lines(self) -> list[str]:
        """Return what to print, one line each."""
        unsaid = [item for item in self._warnings.items() if item[0] not in self.said]
        counted = sorted(unsaid, key=lambda item: -item[1])
        lines = [f"In {counted_noun(n, 'trial')}: {text}" for text, n in counted[:_MOST_LINES]]
        if len(counted) > _MOST_LINES:
            lines.append(f"There are {len(counted) - _MOST_LINES} other warnings in the rows.")
        if self._n_trials >= _LEAST_TRIALS:
            lines += [
                f'The grader "{name}" failed on all {self._n_trials} trials: {_one_line(why)}'
                if is_broken
                else f'All {self._n_trials} trials failed the grader "{name}" with the same '
                f"output: {_one_line(why)}. Check the grader."
                for (name, is_broken), why in (self._alike or {}).items()
            ]
        return ["".join(sign if sign.isprintable() else "?" for sign in line) for line in lines]


def _failed(
    grades: Mapping[str, Grade], broken: Mapping[str, str]
) -> Iterable[tuple[tuple[str, bool], str]]:
    for name, why in broken.items():
        yield (name, True), why
    for name, grade in grades.items():
        if not grade.pass_:
            yield (name, False), grade.reasoning or "no reasoning"


def first_failure(broken: Mapping[str, str]) -> str:
    """How a grader failed, in one line; the last line of a traceback often says most."""
    name, why = next(iter(broken.items()))
    lines = why.splitlines() or [""]
    return f"{name}: {lines[0]}" + (f" … {lines[-1].strip()}" if len(lines) > 1 else "")


def same_text(why: str, other: str | None) -> bool:
    """Whether two messages say the same, whatever their folders and durations."""
    if other is None or why == other:
        return other is not None
    return re.sub(_VARIES, "", why) == re.sub(_VARIES, "", other)


def _one_line(text: str) -> str:
    return shortened(" ".join(text.split()), _SHOWN_CHARS)
