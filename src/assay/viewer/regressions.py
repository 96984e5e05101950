"""The prompts that did worse in one run than in another, with what was said of their trials."""

from collections.abc import Sequence
from typing import Any

from assay.records.trial.views import shown_trials
from assay.report.pull_request import Regression, Regressions
from assay.viewer.overview import OpenRun
from assay.viewer.prompts import Prompts


def worst_regressions(overview: dict[str, Any], shown: Sequence[OpenRun], most: int) -> Regressions:
    """Find for each run against the first of its kind the prompts that lost most, worst first."""
    by_label = {run.label: run for run in shown}
    found: dict[tuple[str, str], list[Regression]] = {}
    for group in overview["groups"]:
        sections = group["sections"]
        for pair in sections["pairs"]:
            if pair["runA"] == sections["meta"]["runs"][0]:
                runs = by_label[pair["runA"]], by_label[pair["runB"]]
                ids = pair["regressed"][:most]
                found[pair["runA"], pair["runB"]] = _regressions(ids, *runs) if ids else []
    return found


def _regressions(ids: list[str], run_a: OpenRun, run_b: OpenRun) -> list[Regression]:
    prompts = Prompts([run_a.index, run_b.index])
    found = []
    for prompt_id in ids:
        number = prompts.find(prompt_id)
        if number is None:
            continue
        rates = [cell["rate"] if cell else None for cell in prompts.row(number)["cells"]]
        trials = [
            _example_trial(run, prompts.file_row(side, number), passed=not side)
            for side, run in enumerate((run_a, run_b))
        ]
        found.append(
            Regression(
                id=prompt_id,
                rate_a=rates[0] or 0.0,
                rate_b=rates[1] or 0.0,
                trial_a=trials[0][0],
                trial_b=trials[1][0],
                why_a=trials[0][1],
                why_b=trials[1][1],
            )
        )
    return found


def _example_trial(run: OpenRun, row: int | None, *, passed: bool) -> tuple[int, str]:
    """Return the number of the first trial that passed, or failed, and why."""
    if row is None:
        return 1, ""
    _, trials = shown_trials(run.index.line(row))
    chosen = next((trial for trial in trials if trial.passed is passed), None)
    return (chosen.number, chosen.why) if chosen else (1, "")
