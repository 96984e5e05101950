"""Write a calibration report: failures for review, or a grader against people."""

from collections.abc import Iterator

from msgspec import UNSET

from assay.records.capture import AnyStep, Grade, Plan, ToolCall
from assay.records.reports import CalibrationSample, Estimate, LabelReport, SampleReport
from assay.records.text import visible, with_trial
from assay.report.text import fence, fixed, head, js_number, one_text

_CHOICES = ("Valid failure", "Grader bug", "Ambiguous")


def sample_markdown(report: SampleReport, generated: str) -> str:
    """Return the failures one by one, each with boxes to tick."""
    shown = len(report.samples)
    top = (
        f"# Grader Calibration Report\n\nGenerated: {generated}\n"
        f"Samples: {shown} of {report.failures} failures (seed {report.seed})\n\n"
        "## Instructions\n\nReview each failure below and mark whether:\n"
        "- [ ] **Valid failure** - Grader correctly identified a problem\n"
        "- [ ] **Grader bug** - Output was actually correct, grader was wrong\n"
        "- [ ] **Ambiguous** - Unclear if the output is correct or not\n\n---\n\n"
    )
    return visible(top + "".join(_sample(n, s) for n, s in enumerate(report.samples, 1)))


def label_markdown(report: LabelReport, generated: str) -> str:
    """Return the comparison with human labels: first what to distrust, then the numbers."""
    return visible("\n".join([*_label_lines(report, generated), ""]))


def _sample(number: int, sample: CalibrationSample) -> str:
    steps = "\n".join(_step(step) for step in sample.trajectory_snippet)
    mark = fence(steps)
    hint = f"**Hint:** {sample.hint}\n\n" if sample.hint else ""
    boxes = "\n".join(f"- [ ] {choice}" for choice in _CHOICES)
    name, asked = with_trial(sample.id, sample.number), one_text(sample.input, "\n")
    return (
        f"## Sample {number}: {name}\n\n**Input:** {asked}\n\n{hint}"
        f"**Output:** {head(sample.output, 500)}\n\n"
        f"{_verdict('Original Score', 'Reasoning', sample.original_score)}\n"
        f"{_second_opinion(sample)}"
        f"**Trajectory Snippet:**\n{mark}\n{steps}\n{mark}\n\n"
        f"**Review:**\n{boxes}\n\n---\n\n"
    )


def _second_opinion(sample: CalibrationSample) -> str:
    if sample.grader_failure is not UNSET:
        return f"**Re-scored:** not graded: {sample.grader_failure}\n\n"
    if sample.rescored_result is UNSET:
        return ""
    return _verdict("Re-scored", "Re-score Reasoning", sample.rescored_result) + "\n"


def _verdict(title: str, why: str, grade: Grade) -> str:
    word = "PASS" if grade.pass_ else "FAIL"
    reasoning = f"**{why}:** {grade.reasoning}\n" if grade.reasoning else ""
    return f"**{title}:** {word} ({js_number(grade.score)})\n{reasoning}"


def _step(step: AnyStep) -> str:
    if isinstance(step, ToolCall):
        return f"[tool_call] {step.name}: {step.status}"
    if isinstance(step, Plan):
        return f"[plan] {len(step.entries)} entries"
    return f"[{type(step).__name__.lower()}] {head(step.content, 100)}..."


def _label_lines(report: LabelReport, generated: str) -> Iterator[str]:
    versions = ", ".join(report.grader_versions) or "unknown"
    yield from ("# Grader against Human Labels", "", f"Generated: {generated}")
    yield f"Compared: {report.compared} of {report.labels} labels (grader version {versions})"
    if report.warnings:
        yield from ("", "## Before you trust these numbers", "")
        yield from (f"- {text}" for text in report.warnings)
    yield from ("", "## How far they agree", "", "| | value | 95 % interval | rows |")
    yield "|---|---|---|---|"
    yield _estimate_line("Agreement", report.agreement)
    yield _estimate_line("Cohen's kappa", report.kappa)
    yield _estimate_line("Sensitivity (passes what people pass)", report.sensitivity)
    yield _estimate_line("Specificity (fails what people fail)", report.specificity)
    yield _estimate_line("Pass rate as graded", report.observed_pass_rate)
    corrected = report.corrected_pass_rate
    method = "Rogan-Gladen" if corrected.method is UNSET else corrected.method
    yield _estimate_line(f"Pass rate corrected ({method})", corrected)
    yield from ("", f"## Disagreements ({len(report.disagreements)})", "")
    for each in report.disagreements:
        people, grader = ("pass" if passed else "fail" for passed in (each.label, each.grader))
        why = f": {each.reasoning}" if each.reasoning else ""
        yield f"- **{each.id}**: people {people}, grader {grader} ({js_number(each.score)}){why}"
    if not report.disagreements:
        yield "None."


def _estimate_line(name: str, estimate: Estimate) -> str:
    value = "not known" if estimate.value is None else fixed(estimate.value, 3)
    limits = (
        "" if estimate.interval is None else " to ".join(fixed(x, 3) for x in estimate.interval)
    )
    counts = f"{estimate.count}/{estimate.total}" if estimate.total is not UNSET else ""
    return f"| {name} | {value} | {limits} | {counts} |"
