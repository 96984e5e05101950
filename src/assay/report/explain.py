"""Words for why trials failed."""

from collections import Counter
from collections.abc import Iterator, Sequence

from assay.records.capture import cause_words
from assay.records.explanation import (
    DETECTORS,
    Cluster,
    Divergence,
    Doubts,
    ExplainedTrial,
    Explanation,
    Finding,
)
from assay.records.text import counted_noun, visible_line, with_trial

_MOST_CLUSTERS = 10
_MOST_DIVERGENCES = 10
_MOST_NAMED = 5


def explain_lines(found: Explanation, most: int) -> Iterator[str]:
    """Yield everything for a terminal; of single failures at most so many."""
    yield from notes_of(found)
    yield from _doubts(found)
    if not found.n_failed:
        return
    yield ""
    yield from reason_lines(found)
    yield ""
    yield "Alike failures, largest first:"
    for cluster in found.clusters[:_MOST_CLUSTERS]:
        yield f"  {cluster_words(cluster, found.n_failed)}"
        yield f"      {named_trials(cluster.trials, cluster.n_failures)}"
    if len(found.clusters) > _MOST_CLUSTERS:
        yield f"  and {len(found.clusters) - _MOST_CLUSTERS} smaller ones"
    yield from _divergence_lines(found.divergences)
    yield ""
    shown = found.failures[:most]
    rest = f", the first {len(shown)} of {found.n_failed}" if len(shown) < found.n_failed else ""
    if shown:
        yield f"Failures{rest}:"
    for trial in shown:
        yield from trial_lines(trial)


def reason_lines(found: Explanation) -> Iterator[str]:
    """Say in how many failures each detector found something."""
    yield f"Why they failed ({_explained_share(found)}):"
    for name in DETECTORS:
        if n := found.detectors.get(name):
            yield f"  {n:>4}  {DETECTORS[name]}"
    if found.n_not_explained:
        yield f"  {found.n_not_explained:>4}  not explained"


def notes_of(found: Explanation) -> Iterator[str]:
    """Say how many trials passed and failed, and which are neither."""
    honeypots = f", {found.n_honeypots} of honeypots" if found.n_honeypots else ""
    yield (
        f"{counted_noun(found.n_trials, 'trial')}: {found.n_passed} passed, {found.n_failed} failed"
        f"{honeypots}"
    )
    if found.not_measured:
        causes = ", ".join(f"{cause_words(name)} {n}" for name, n in found.not_measured.items())
        yield f"Not measured, so neither passed nor failed: {causes}"
    if found.n_not_graded:
        yield f"Not graded: {found.n_not_graded}; `assay grade` says which of them failed"


def _doubts(found: Explanation) -> Iterator[str]:
    doubts = Doubts(
        n_passed=found.n_passed, n_doubtful=len(found.doubtful), n_hacked=len(found.hacked)
    )
    words = iter(doubts.sentences())
    for title, trials in (("HACKED", found.hacked), ("DOUBTFUL", found.doubtful)):
        if trials:
            yield f"{title}: {next(words)}"
        for trial in trials[:_MOST_NAMED]:
            yield from trial_lines(trial)
        if len(trials) > _MOST_NAMED:
            yield f"  and {len(trials) - _MOST_NAMED} more; --json has them all"


def _explained_share(found: Explanation) -> str:
    n = found.n_failed - found.n_not_explained
    return f"{n} of {found.n_failed} explained; a failure may have several reasons"


def cluster_words(cluster: Cluster, n_failed: int) -> str:
    """Say what alike failures have in common."""
    what = DETECTORS[cluster.detector] if cluster.detector else "not explained"
    parts = [what]
    if cluster.call:
        parts.append(f"`{visible_line(cluster.call.removeprefix('shell '))}`")
    if cluster.error:
        parts.append(visible_line(cluster.error))
    at = f" at step {cluster.step}" if cluster.step else ""
    return f"{cluster.n_failures} of {n_failed}: {': '.join(parts)}{at}"


def named_trials(trials: Sequence[tuple[str, str, int | None]], n: int) -> str:
    """Name some of n trials."""
    runs = {run for run, _, _ in trials}
    names = [
        with_trial(prompt, number) + (f" of {run}" if len(runs) > 1 else "")
        for run, prompt, number in trials
    ]
    more = f" and {n - len(names)} more" if n > len(names) else ""
    return visible_line(", ".join(names)) + more


def _divergence_lines(divergences: Sequence[Divergence]) -> Iterator[str]:
    if not divergences:
        return
    yield ""
    yield "Where passes and failures of a prompt diverge:"
    ranked = sorted(divergences, key=lambda one: -abs(_difference(one)))
    for one in ranked[:_MOST_DIVERGENCES]:
        yield f"  {divergence_words(one)}"
    if len(ranked) > _MOST_DIVERGENCES:
        yield f"  and {len(ranked) - _MOST_DIVERGENCES} more prompts"


def _difference(one: Divergence) -> float:
    return one.passed_with / one.n_with - one.passed_without / one.n_without


def divergence_words(one: Divergence) -> str:
    """Say which step passes and failures part at, with both counts."""
    trial = f"trial {one.number} of {one.run}" if one.number else one.run
    return (
        f"{visible_line(one.id)}: after `{visible_line(one.call)}` {one.passed_with} of "
        f"{one.n_with} pass, without it {one.passed_without} of {one.n_without} "
        f"(step {one.step} in {trial})"
    )


def trial_lines(trial: ExplainedTrial) -> Iterator[str]:
    """Yield what was found in a trial, and the command that opens it."""
    yield f"  {visible_line(with_trial(trial.id, trial.number))} · {visible_line(trial.run)}"
    for finding in trial.findings:
        yield from _finding_lines(finding)
    if not trial.findings:
        yield "    no detector shows how" if trial.is_pass else "    not explained"
    quoted = {step for finding in trial.findings for step in finding.steps}
    failed = trial.first_failed_step
    if failed and failed not in quoted and not trial.is_pass:
        call = trial.first_failed_call.removeprefix("shell ")
        yield (
            f"    first failed call, step {failed}: "
            f"{visible_line(call)} → {visible_line(trial.error)}"
        )
    if trial.reason:
        yield f"    result: {visible_line(trial.reason)}"
    if trial.model is not None:
        label = trial.model
        said = label.problem or f"{label.label}, step {label.step}: {label.quote}"
        yield f"    a model says: {visible_line(said)}"
    yield f"    {visible_line(trial.open)}"


def _finding_lines(finding: Finding) -> Iterator[str]:
    yield f"    {DETECTORS[finding.detector]}"
    counted = Counter(finding.quotes)
    steps = dict(zip(reversed(finding.quotes), reversed(finding.steps), strict=False))
    for quote, n in list(counted.items())[:3]:
        at = f"step {steps[quote]}: " if quote in steps else ""
        times = f" ({n} times)" if n > 1 else ""
        yield f"      {at}{visible_line(quote)}{times}"
