"""Compare the labels that people gave outputs with a grader's verdicts on the same outputs."""

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from msgspec import UNSET

from assay.compare.calibration import calibration_of
from assay.errors import InputError
from assay.records.capture import Grade, grader_version
from assay.records.reports import Disagreement, Estimate, LabelReport, LabelRow, Stale
from assay.records.rows import Place, RowFile, Spot
from assay.records.text import with_trial
from assay.records.trial import Verdict
from assay.records.trial.views import JudgedView
from assay.stats.agreement import (
    Agreement,
    LabelledFile,
    Share,
    clustered_rate,
    correct_rate,
    measure_agreement,
    stratified_rate,
)
from assay.stats.rates import Interval, rate_interval, wilson_interval

_YES = (True, 1, "pass", "true", "yes")
_NO = (False, 0, "fail", "false", "no")
_UNSURE = ("ambiguous", "unsure", "unclear")
type GradeAgain = Callable[[list[tuple[Place, bytes]]], Iterable[Verdict]]
"""Asks other graders about some rows of a file."""


class Labels(msgspec.Struct, kw_only=True):
    """A labelling sheet that people have filled in."""

    rows: dict[str, LabelRow] = {}
    """Labelled ones, by id and trial; label is true or false in each."""
    n_rows: int = 0
    n_unlabelled: int = 0
    n_ambiguous: int = 0


class Match(msgspec.Struct, kw_only=True):
    """One output with its label and the grader's verdict."""

    id: str
    prompt: str
    label: bool
    spot: Spot
    verdict: Grade
    version: str | None


class Matches(msgspec.Struct, kw_only=True):
    """All that was found, and what the whole file looks like."""

    found: dict[str, Match] = {}
    not_graded: list[str] = []
    other_output: list[str] = []
    not_found: list[str] = []
    n_graded: int = 0
    n_passed: int = 0
    by_prompt: dict[str, tuple[int, int]] = {}
    """Graded rows of each prompt, and how many of them passed."""
    repeated: set[str] = msgspec.field(default_factory=set)
    """Labelled ids that are in the file more than once, with labels that name no output."""


def read_labels(sheet: RowFile) -> Labels:
    """Read a sheet; count rows without a label, refuse one that contradicts another."""
    labels = Labels()
    for spot, row in sheet.placed_rows(msgspec.json.Decoder(LabelRow)):
        labels.n_rows += 1
        label = _read_label(row.label)
        if row.label is None or _word(row.label) == "":
            labels.n_unlabelled += 1
        elif label is None and _word(row.label) in _UNSURE:
            labels.n_ambiguous += 1
        elif label is None:
            msg = f'{sheet.place(spot)}: "label" is {row.label!r}'
            raise InputError(msg, hint='give "pass", "fail", "ambiguous", true, false or null')
        else:
            name = with_trial(row.id, row.number)
            earlier = labels.rows.get(name)
            if earlier is not None and earlier.label != label:
                msg = f'{sheet.place(spot)}: "{name}" has a different label on an earlier line'
                raise InputError(msg, hint="keep one label for each row")
            labels.rows[name] = msgspec.structs.replace(row, label=label)
    return labels


def match_labels(results: RowFile, labels: Labels) -> Matches:
    """Find the verdict on each labelled output; a label counts only for the output it was for."""
    matches = Matches()
    seen: dict[str, str] = {}
    for spot, row in results.placed_rows(msgspec.json.Decoder(JudgedView)):
        verdict = row.score if row.is_finished else None
        if verdict is not None:
            matches.n_graded += 1
            matches.n_passed += verdict.pass_
            n, n_passed = matches.by_prompt.get(row.id, (0, 0))
            matches.by_prompt[row.id] = n + 1, n_passed + verdict.pass_
        name = with_trial(row.id, row.number)
        label = labels.rows.get(name)
        if label is None:
            continue
        if name in matches.found:
            if label.output is UNSET:
                matches.repeated.add(name)
        elif label.output is not UNSET and label.output != row.output:
            # An id may occur again with the right output: do not overwrite "not graded".
            seen.setdefault(name, "other output")
        elif verdict is None:
            seen[name] = "not graded"
        else:
            version = grader_version(verdict, row.grades or {})
            matches.found[name] = Match(
                id=name,
                prompt=row.id,
                label=label.label,
                spot=spot,
                verdict=verdict,
                version=version,
            )
    missing = [row_id for row_id in labels.rows if row_id not in matches.found]
    matches.not_graded = [row_id for row_id in missing if seen.get(row_id) == "not graded"]
    matches.other_output = [row_id for row_id in missing if seen.get(row_id) == "other output"]
    matches.not_found = [row_id for row_id in missing if row_id not in seen]
    return matches


def _read_label(value: Any) -> bool | None:
    word = _word(value)
    if word in _YES:
        return True
    return False if word in _NO else None


def _word(value: Any) -> Any:
    if isinstance(value, str):
        return value.strip().casefold()
    return value if isinstance(value, bool | int | float) else None


_FEW_LABELS = 30
_FEW_OF_A_KIND = 10
_UNKNOWN = Estimate(value=None, interval=None)
_NO_RATE = (
    "the pass rate of this grader over all rows is not known: "
    "grade the whole file with it to get the corrected rate"
)


def compare_with_labels(
    results: RowFile,
    sheet: RowFile,
    grade_again: GradeAgain | None = None,
    save: Path | None = None,
) -> LabelReport:
    """Compare the verdicts in the results, or those of other graders, with the labels.

    save is where the grader's errors are kept, for comparisons of what it judges.
    """
    labels = read_labels(sheet)
    matches = match_labels(results, labels)
    found = list(matches.found.values())
    broken: dict[str, str] = {}
    if grade_again:
        found, broken = _graded_again(results, found, grade_again)
    if not found:
        raise _nothing_to_compare(sheet, labels, matches, broken)
    file = labelled_file(matches, found)
    agreement = measure_agreement(
        file.human, file.grader, prompts=file.prompts if file.is_clustered else None
    )
    report = _report(labels, matches, found, agreement)
    report.grader_failures = broken or UNSET
    drawn = all(labels.rows[m.id].grader_version == m.version is not None for m in found)
    notes = [_NO_RATE]
    if not grade_again:
        notes = _set_pass_rates(report, agreement, file, drawn=drawn)
    report.warnings = [*_warnings(report, agreement, matches), *notes]
    if save is not None:
        kept = calibration_of(file, report.grader_versions)
        save.write_bytes(msgspec.json.format(msgspec.json.encode(kept), indent=2) + b"\n")
    return report


def labelled_file(matches: Matches, found: list[Match]) -> LabelledFile:
    """Number the prompts: rows of one prompt are a cluster, whoever judges them."""
    number = {prompt: n for n, prompt in enumerate(matches.by_prompt)}
    tallies = np.array(list(matches.by_prompt.values()), dtype=np.int64).reshape(-1, 2)
    return LabelledFile(
        graded=tallies[:, 0],
        passed=tallies[:, 1],
        prompts=np.array([number[match.prompt] for match in found], dtype=np.int64),
        human=np.array([match.label for match in found], dtype=bool),
        grader=np.array([match.verdict.pass_ for match in found], dtype=bool),
    )


def _report(
    labels: Labels, matches: Matches, found: list[Match], agreement: Agreement
) -> LabelReport:
    """Make the report without pass rates and warnings, which follow from it."""
    return LabelReport(
        labels=labels.n_rows,
        compared=len(found),
        unlabelled=labels.n_unlabelled,
        ambiguous=labels.n_ambiguous,
        not_found=matches.not_found,
        not_graded=matches.not_graded,
        other_output=matches.other_output,
        grader_versions=sorted({match.version for match in found if match.version}),
        stale=_stale(labels, found),
        unversioned=sum(
            labels.rows[match.id].grader_version is None and match.version is not None
            for match in found
        ),
        agreement=_share(agreement.agreement),
        kappa=Estimate(value=agreement.kappa, interval=_limits(agreement.kappa_interval)),
        sensitivity=_share(agreement.sensitivity),
        specificity=_share(agreement.specificity),
        observed_pass_rate=_UNKNOWN,
        corrected_pass_rate=_UNKNOWN,
        disagreements=_disagreements(found),
        warnings=[],
    )


def _graded_again(
    results: RowFile, found: list[Match], grade_again: GradeAgain
) -> tuple[list[Match], dict[str, str]]:
    lines = [(results.place(match.spot), results.line_at(match.spot)) for match in found]
    again: list[Match] = []
    broken: dict[str, str] = {}
    for match, verdict in zip(found, grade_again(lines), strict=True):
        if verdict.score is None:
            broken[match.id] = "; ".join(verdict.broken.values()) or "no verdict"
        else:
            version = grader_version(verdict.score, verdict.grades)
            again.append(msgspec.structs.replace(match, verdict=verdict.score, version=version))
    return again, broken


def _nothing_to_compare(
    sheet: RowFile, labels: Labels, matches: Matches, broken: dict[str, str]
) -> InputError:
    counts = {
        "not labelled yet": labels.n_unlabelled,
        "ambiguous": labels.n_ambiguous,
        "not in the results": len(matches.not_found),
        "not graded": len(matches.not_graded),
        "for another output": len(matches.other_output),
        "on which the grader failed": len(broken),
    }
    reasons = ", ".join(f"{n} {what}" for what, n in counts.items() if n) or "no rows"
    msg = f"{sheet.name}: no labels can be compared: {reasons}"
    hint = 'fill in "label": "pass" or "fail", for rows of these results'
    if broken:
        hint = "the grader first failed on {}: {}".format(*next(iter(broken.items())))
    return InputError(msg, hint=hint)


def _disagreements(found: list[Match]) -> list[Disagreement]:
    return [
        Disagreement(
            id=match.id,
            label=match.label,
            grader=match.verdict.pass_,
            score=match.verdict.score,
            reasoning=match.verdict.reasoning,
        )
        for match in found
        if match.label != match.verdict.pass_
    ]


def _stale(labels: Labels, found: list[Match]) -> Stale | msgspec.UnsetType:
    made_for = {match.id: labels.rows[match.id].grader_version for match in found}
    old = [match for match in found if made_for[match.id] and made_for[match.id] != match.version]
    if not old:
        return UNSET
    return Stale(
        labels=len(old),
        label_versions=sorted({made_for[match.id] or "" for match in old}),
        grader_versions=sorted({match.version or "unknown" for match in old}),
    )


def _set_pass_rates(
    report: LabelReport, agreement: Agreement, file: LabelledFile, *, drawn: bool
) -> list[str]:
    """Set the observed and corrected pass rate of the whole file; return notes on them.

    drawn says that the labelled rows were drawn by the verdicts they are compared with.
    """
    rate, n_passed, n_graded = file.rate, int(file.passed.sum()), int(file.graded.sum())
    observed = rate_interval(file.passed, file.graded)[1]
    report.observed_pass_rate = Estimate(
        value=rate,
        interval=_limits(observed if file.is_clustered else wilson_interval(n_passed, n_graded)),
        count=n_passed,
        total=n_graded,
    )
    corrected = correct_rate(rate, n_graded, agreement)
    if drawn:
        stratified = stratified_rate(n_passed, n_graded, agreement)
        corrected = stratified if stratified.rate is not None else corrected
    clustered = clustered_rate(file, drawn=drawn) or clustered_rate(file, drawn=False)
    if clustered is not None and clustered.interval and corrected.interval:
        low = min(clustered.interval.low, corrected.interval.low)
        high = max(clustered.interval.high, corrected.interval.high)
        method = clustered.interval.method
        wider = msgspec.structs.replace(clustered.interval, low=low, high=high, method=method)
        corrected = msgspec.structs.replace(corrected, interval=wider)
    report.corrected_pass_rate = Estimate(
        value=corrected.rate,
        interval=_limits(corrected.interval),
        method=corrected.interval.method if corrected.interval else UNSET,
    )
    notes = [f"corrected pass rate: {corrected.note}"] if corrected.note else []
    n_passed = agreement.both_pass + agreement.only_grader_passes
    # Drawn at random, the labelled rows would have about the pass rate of the file.
    fair = wilson_interval(n_passed, agreement.n)
    if fair is not None and not fair.contains(rate):
        notes.append(
            "the labelled rows are not a fair sample: the grader passes "
            f"{n_passed / agreement.n:.0%} of them, {rate:.0%} of all; "
            "these numbers do not apply to the whole file (draw the sample with --export)"
        )
    return notes


def _warnings(report: LabelReport, agreement: Agreement, matches: Matches) -> Iterator[str]:
    if report.stale is not UNSET:
        yield (
            f"stale: {report.stale.labels} labels were made for grader version "
            f"{', '.join(report.stale.label_versions)}, but the verdicts are from "
            f"{', '.join(report.stale.grader_versions)}"
        )
    if report.unversioned:
        yield f"{report.unversioned} labels do not name the grader version they were made for"
    if report.compared < _FEW_LABELS:
        yield f"few labels: {report.compared}; with fewer than {_FEW_LABELS} the intervals are wide"
    for share, what in ((agreement.sensitivity, "pass"), (agreement.specificity, "fail")):
        if share.total < _FEW_OF_A_KIND:
            name = "sensitivity" if what == "pass" else "specificity"
            yield f"people {what} only {share.total} of the rows, so {name} is very uncertain"
    if agreement.kappa is None:
        yield "all labels and verdicts are the same, so kappa cannot be computed"
    for ids, what in (
        (report.not_found, "are not in the results"),
        (report.not_graded, "were not graded"),
        (report.other_output, "were made for another output"),
    ):
        if ids:
            yield f"{len(ids)} labels {what}: {', '.join(ids[:5])}{' ...' if len(ids) > 5 else ''}"
    if matches.repeated:
        yield (
            f"{len(matches.repeated)} labelled ids appear more than once in the results; "
            "the first row of each was used"
        )


def _share(share: Share) -> Estimate:
    return Estimate(
        value=share.rate, interval=_limits(share.interval), count=share.count, total=share.total
    )


def _limits(interval: Interval | None) -> tuple[float, float] | None:
    return None if interval is None else (interval.low, interval.high)
