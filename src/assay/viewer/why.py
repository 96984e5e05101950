"""The page "Why": what detectors find in the failures of the chosen runs."""

from collections.abc import Sequence
from typing import Any

from assay.compare.explain import explain_files
from assay.records.explanation import DETECTORS, Cluster, Divergence, ExplainedTrial, Explanation
from assay.report.explain import cluster_words, divergence_words, notes_of
from assay.viewer.overview import OpenRun

_MOST_CLUSTERS = 50
_MOST_PARTINGS = 100
_MOST_TRIALS = 300


def why(shown: Sequence[OpenRun]) -> dict[str, Any]:
    """Say why the trials of these runs failed, ready to be sent as JSON."""
    named = [(run.label, run.path) for run in shown if run.index.meta.n_trials]
    found = explain_files(named, skip_unreadable=True)
    return {
        "failed": found.n_failed,
        "notExplained": found.n_not_explained,
        "notes": list(notes_of(found)),
        "detectors": [
            [words, found.detectors[name]]
            for name, words in DETECTORS.items()
            if name in found.detectors
        ],
        "clusters": [_cluster(one, found) for one in found.clusters[:_MOST_CLUSTERS]],
        "partings": [_divergence(one) for one in found.divergences[:_MOST_PARTINGS]],
        "hacked": [_trial(one) for one in found.hacked[:_MOST_TRIALS]],
        "doubtful": [_trial(one) for one in found.doubtful[:_MOST_TRIALS]],
        "failures": [_trial(one) for one in found.failures[:_MOST_TRIALS]],
    }


def _cluster(cluster: Cluster, found: Explanation) -> dict[str, Any]:
    return {
        "words": cluster_words(cluster, found.n_failed),
        "failures": cluster.n_failures,
        "trials": [{"run": run, "id": name, "n": n or 1} for run, name, n in cluster.trials],
    }


def _divergence(one: Divergence) -> dict[str, Any]:
    trial = {"run": one.run, "id": one.id, "n": one.number or 1, "step": one.step}
    return {"words": divergence_words(one), **trial}


def _trial(trial: ExplainedTrial) -> dict[str, Any]:
    return {
        "run": trial.run,
        "id": trial.id,
        "n": trial.number or 1,
        "result": trial.reason,
        "findings": [
            {"words": DETECTORS[one.detector], "steps": one.steps, "quotes": one.quotes}
            for one in trial.findings
        ],
        "failedStep": None if trial.is_pass else trial.first_failed_step,
        "failedCall": f"{trial.first_failed_call.removeprefix('shell ')} → {trial.error}"
        if trial.first_failed_step
        else "",
    }
