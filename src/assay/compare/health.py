"""Say whether a measurement can be believed, before any number of it is shown."""

from typing import Any

from assay.compare.align import Aligned
from assay.compare.columns import Run

_MOST_NOT_MEASURED = 0.10
_MOST_GRADER_FAILURES = 0.05


def check_health(aligned: Aligned, run_number: int) -> dict[str, Any]:
    """Count what was planned, run and graded, and name what is wrong."""
    run = aligned.runs[run_number]
    missing = len(aligned.ids) - len(run.ids)
    per_prompt = int(run.k.max()) if len(run.k) else 1
    planned = int(run.k.sum()) + missing * per_prompt
    problems = _problems(run, planned)
    health = run.health
    return {
        "planned": planned,
        "run": health.n_trials,
        "graded": health.n_graded,
        "notMeasured": dict(sorted(health.not_measured.items())),
        "agentFailures": dict(sorted(health.failed.items())),
        "graderFailures": health.n_grader_failures,
        "permissionDenials": health.n_permission_denials,
        "healthy": not problems,
        "problems": problems,
    }


def _problems(run: Run, planned: int) -> list[str]:
    health = run.health
    if not health.n_graded:
        return ["nothing is graded"]
    problems = []
    share = 1 - health.n_graded / max(planned, 1)
    if share > _MOST_NOT_MEASURED:
        problems.append(f"{share:.0%} of the planned trials are not measured")
    if health.n_grader_failures > _MOST_GRADER_FAILURES * health.n_trials:
        problems.append(f"the grader failed on {health.n_grader_failures} trials")
    return problems
