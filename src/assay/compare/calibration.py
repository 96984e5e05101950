"""What is known of a judge's errors: kept by `assay calibrate --save`, used where it judged."""

from collections.abc import Collection, Sequence
from contextlib import suppress
from pathlib import Path

import msgspec
import numpy as np

from assay.compare.runs import Run
from assay.errors import InputError
from assay.stats.agreement import LabelledFile, judge_errors
from assay.stats.noise import JudgeErrors

FILE = "judge.json"
_JUDGE = "judge"
"""The built-in grader that asks a model."""


class Calibration(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A judge's errors, and the versions of the grader that they belong to."""

    grader_versions: list[str]
    n_labels: int
    n_prompts: int
    """How many labels, of how many prompts."""
    errors: JudgeErrors

    @property
    def words(self) -> str:
        """Say what is known, and from how much."""
        errors = self.errors
        return (
            f"sensitivity {errors.sensitivity:.2f}, specificity {errors.specificity:.2f}, from "
            f"{self.n_labels} labels of {self.n_prompts} prompts"
        )


def calibration_of(file: LabelledFile, versions: Sequence[str]) -> Calibration:
    """Return what labels say of a grader; refuse one that is no better than chance."""
    found = judge_errors(file)
    if found is None or found.gain <= 0.0:
        why = "no row that people pass, or fail, is labelled" if found is None else "it guesses"
        msg = f"the errors of this grader cannot be corrected: {why}"
        raise InputError(msg, hint="label more rows, of both kinds, or use another judge")
    right, wrong = found.influence
    n = len(np.unique(file.prompts))
    # A label of each kind is added: few labels may show no error at all.
    n_good, n_bad = int(file.human.sum()), int((~file.human).sum())
    fewest = 0.25 / (n_good + 2) ** 2 + 0.25 / (n_bad + 2) ** 2
    variance = max(n / max(n - 1, 1) * float(np.square(right + wrong).sum()), fewest)
    errors = JudgeErrors(
        sensitivity=found.sensitivity,
        specificity=found.specificity,
        variance=variance,
        df=max(n - 1, 1),
    )
    return Calibration(
        grader_versions=sorted(versions), n_labels=len(file.human), n_prompts=n, errors=errors
    )


def read_calibration(path: Path) -> Calibration:
    """Read what `assay calibrate --save` kept."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=Calibration)
    except OSError as error:
        msg = f"{path}: {error.strerror}"
        raise InputError(msg, hint="`assay calibrate --labels … --save FILE` writes one") from error
    except msgspec.MsgspecError as error:
        msg = f"{path}: is no calibration ({error})"
        raise InputError(msg, hint="`assay calibrate --labels … --save FILE` writes one") from error


def calibration_for(runs: Sequence[Run], given: Path | None) -> tuple[JudgeErrors | None, str]:
    """Return the errors of the grader of these runs, and what to say about them.

    given is a file; otherwise judge.json beside the runs, or in this folder, is used if it is of
    the same version of the grader.
    """
    versions = {f"{name}:{v}" for run in runs for name, seen in run.graders.items() for v in seen}
    return find_calibration(versions, [run.path.parent for run in runs], given)


def find_calibration(
    versions: Collection[str], folders: Sequence[Path], given: Path | None
) -> tuple[JudgeErrors | None, str]:
    """Return the errors of graders by their names and versions ("judge:1"); see calibration_for."""
    if given is not None:
        known = read_calibration(given)
        if versions and not set(versions) & set(known.grader_versions):
            made, seen = (", ".join(sorted(some)) for some in (known.grader_versions, versions))
            msg = f"{given} is of grader version {made}; these runs have {seen}"
            raise InputError(msg, hint="label some of their rows and calibrate again")
        return known.errors, f"corrected for the judge's errors by {given.name}: {known.words}"
    for folder in dict.fromkeys((*folders, Path())):
        with suppress(InputError):  # a file of this name may be anything
            known = read_calibration(folder / FILE)
            if set(versions) & set(known.grader_versions):
                return known.errors, f"corrected for the judge's errors by {FILE}: {known.words}"
    if any(one.partition(":")[0] == _JUDGE for one in versions):
        return None, _UNCORRECTED
    return None, ""


_UNCORRECTED = (
    "a judge gave these verdicts, and its own errors are not in the intervals: see --judge"
)
