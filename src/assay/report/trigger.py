"""What `assay trigger` found out, as lines of text."""

from collections.abc import Iterator

from assay.records.reports import CaseFires, TriggerRate, TriggerReport, TriggerRun
from assay.records.text import counted_noun, visible_line
from assay.report.text import percents

_WIDEST_ID = 40


def trigger_lines(report: TriggerReport) -> Iterator[str]:
    """Yield for each agent how often the skill fired, then each case."""
    for run in report.runs:
        yield from _run_lines(report.skill, run)
        yield ""


def invalid_lines(report: TriggerReport) -> list[str]:
    """Say what makes a measurement worthless; nothing if all are sound."""
    return [
        visible_line(f"INVALID: {report.skill} in {_name(run)}: {why}")
        for run in report.runs
        for why in run.invalid
    ]


def _run_lines(skill: str, run: TriggerRun) -> Iterator[str]:
    yield visible_line(f"{skill} in {_name(run)}")
    yield f"  fired where it should:     {_rate(run.recall)}"
    yield f"  fired where it should not: {_rate(run.false_fires)}"
    if run.instead:
        used = ", ".join(f"{name} in {counted_noun(n, 'trial')}" for name, n in run.instead.items())
        yield visible_line(f"  used instead: {used}")
    early = f"{run.n_ended_early} of {counted_noun(run.n_trials, 'trial')} ended when decided"
    cost = f", ${run.cost_usd:.4f}" if run.cost_usd else ""
    lost = f", {run.n_not_measured} not measured" if run.n_not_measured else ""
    yield f"  {early}{lost}{cost}"
    width = min(_WIDEST_ID, max((len(visible_line(case.id)) for case in run.cases), default=0))
    for case in run.cases:
        yield f"  {_case(case, width)}"


def _name(run: TriggerRun) -> str:
    return f"{run.agent}, {run.description}" if run.description else run.agent


def _rate(rate: TriggerRate | None) -> str:
    if rate is None:
        return "not measured"
    shown, low, high = percents(rate.rate, rate.low, rate.high)
    of = f"{rate.n_fired} of {counted_noun(rate.n_trials, 'trial')}"
    ends = f"95 % interval {low} to {high}"
    return f"{shown} % ({ends}), {of}, {counted_noun(rate.n_cases, 'case')}"


def _case(case: CaseFires, width: int) -> str:
    right = case.n_fired if case.should_trigger else case.n_measured - case.n_fired
    sign = "✓" if right == case.n_measured == case.n_trials else "✗" if case.n_measured else "?"
    should = "should    " if case.should_trigger else "should not"
    name = visible_line(case.id)
    name = name if len(name) <= width else f"{name[: width - 1]}…"
    lost = case.n_trials - case.n_measured
    more = [f"{lost} not measured"] if lost else []
    more += [f"{visible_line(other)} {n}x" for other, n in case.instead.items()]
    shown = f"   ({', '.join(more)})" if more else ""
    return f"{sign} {name:{width}}  {should}  fired {case.n_fired} of {case.n_measured}{shown}"
