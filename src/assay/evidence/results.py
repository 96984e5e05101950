"""What follows from rows alone: rates, intervals, p-values and the decision.

`pack` writes it into the bundle, `verify` computes it again.
"""

import math
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec
import numpy as np

from assay.compare.names import Named
from assay.compare.pairs import extreme_looks_at_pair, look_at_pair
from assay.compare.report import CompareOptions, Comparison, compare, load_runs
from assay.compare.runs import Run
from assay.pipeline.arms import trials_in
from assay.pipeline.experiment_run import unequal_losses
from assay.records.experiment import Experiment, Standing
from assay.records.setup import ArmsProof
from assay.records.trial import REUSED
from assay.report.sentence import word_verdicts
from assay.stats.noise import JudgeErrors
from assay.stats.rates import rate_interval
from assay.stats.sequential import SequentialDecision, decide_effect, judged_look

SAME = 1e-9
"""Two numbers that differ by less than this share of them are the same on two machines."""


class _Judge(msgspec.Struct, frozen=True):
    errors: JudgeErrors | None = None
    words: str = ""


class Verdict(msgspec.Struct, rename="camel", kw_only=True):
    """What of verdict.json a comparison of the arms depends on."""

    name: str = ""
    ended: str = ""
    valid: bool = True
    verdicts: dict[str, str]
    sentences: list[str] = []
    proof: ArmsProof
    edits: dict[str, Standing] = {}
    judge: _Judge = _Judge()
    effect: float = 0.1
    decisions: dict[str, SequentialDecision] = {}
    pairs: list[dict[str, Any]] = []
    skills: list[Any] = []


def compute(
    named: Named, *, margin: float, seed: int, verdict: Verdict | None = None
) -> dict[str, Any]:
    """Return what follows from the rows of these runs; the first is the control."""
    runs = load_runs(named, "auto", "category", lambda _label, _path: None)
    found: dict[str, Any] = {"margin": margin, "seed": seed}
    found["runs"] = {run.label: _of_run(run) for run in runs}
    if len(runs) > 1:
        options = CompareOptions(margin=margin, seed=seed)
        if verdict is not None:
            options = _as_experiment(named, options, verdict)
        comparison = compare(runs, options)
        sections = word_verdicts(comparison.sections)
        first = runs[0].label
        found["pairs"] = [pair for pair in sections["pairs"] if pair["runA"] == first]
        found["verdicts"] = {
            one["runB"]: {"code": one["code"], "healthy": one["healthy"], "words": one["words"]}
            for one in sections["verdict"]
            if one["runA"] == first
        }
        found |= _decisions(comparison, verdict)
    plain: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(found))
    return plain


def _of_run(run: Run) -> dict[str, Any]:
    measured, passed = run.n_measured, run.n_passed
    rate, interval = rate_interval(passed, measured, clusters=run.clusters)
    costs, tokens = run.cost_usd, run.tokens
    return {
        "prompts": len(run.ids),
        "trials": len(run.passed),
        "measured": int(measured.sum()),
        "passed": int(passed.sum()),
        "rate": rate,
        "interval": interval,
        "meanScore": _mean(run.score),
        "costUsd": None if np.isnan(costs).all() else float(np.nansum(costs)),
        "meanTokens": _mean(tokens),
        "meanDurationMs": _mean(run.duration_ms),
        "perK": [msgspec.to_builtins(one) for one in run.per_k],
        "agents": run.agent_names,
        "graders": {name: sorted(seen) for name, seen in sorted(run.graders.items())},
        "notMeasured": run.health.not_measured,
        "failed": run.health.failed,
    }


def _mean(values: Any) -> float | None:
    return None if np.isnan(values).all() else float(np.nanmean(values))


def _as_experiment(named: Named, options: CompareOptions, verdict: Verdict) -> CompareOptions:
    """Return the options with which the verdict of an experiment is made from its rows."""
    entries = {label: trials_in(path) for label, path in named}
    reused = {name: sum(REUSED in one.metadata for one in own) for name, own in entries.items()}
    is_first = not (any(reused.values()) or any(s.n_tries for s in verdict.edits.values()))
    return msgspec.structs.replace(
        options,
        proof=verdict.proof,
        standings=verdict.edits,
        decisions=verdict.decisions,
        effect=verdict.effect if verdict.decisions else None,
        unequal=unequal_losses(entries),
        judge_errors=(verdict.judge.errors, verdict.judge.words),
        these_prompts=is_first,
        reused={name: n for name, n in reused.items() if n},
        growing=bool(verdict.decisions),
    )


def _decisions(comparison: Comparison, verdict: Verdict | None) -> dict[str, Any]:
    """Return what a sequential rule says of all the trials there are."""
    if verdict is None or not verdict.decisions:
        return {}
    errors, found = verdict.judge.errors, {}
    judged = [pair for pair in comparison.pairs if pair.run_b in verdict.decisions]
    for pair in judged:
        extremes = extreme_looks_at_pair(comparison.aligned, pair)
        decision = decide_effect(
            judged_look(look_at_pair(comparison.aligned, pair), errors, verdict.effect),
            effect=verdict.effect,
            is_last=True,
            extremes=extremes and extremes.with_noise((), errors),
            n_judged=len(judged),
        )
        found[pair.run_b] = {"outcome": decision.outcome, "difference": decision.difference}
    return {"decisions": found}


def experiment_differences(
    experiment: Experiment, verdict: Verdict, found: Mapping[str, Any]
) -> Iterator[str]:
    """Say where the verdict of an experiment is not what its rows say."""
    if not verdict.proof.valid:
        return
    kept = [pair for pair in verdict.pairs if pair.get("runA") == experiment.control]
    yield from differences(kept, found.get("pairs", []), "verdict.json: pairs")
    verdicts = found.get("verdicts", {})
    codes = {k: v["code"] if v["healthy"] else "unhealthy" for k, v in verdicts.items()}
    yield from differences(verdict.verdicts, codes, "verdict.json: verdicts")
    for name, decision in verdict.decisions.items():
        again = found.get("decisions", {}).get(name, {})
        seen = again.get("difference")
        turned = decision.outcome in ("better", "worse") and isinstance(seen, float)
        if turned and (seen > 0) != (decision.outcome == "better"):
            yield f"verdict.json: {name} is decided as {decision.outcome}, and the rows say {seen}"
    said = [one["words"] for one in verdicts.values()]
    # Of an ablation, a leaderboard or several skills something else is said instead.
    is_plain = verdict.sentences and verdict.sentences[0] in said
    if verdict.valid and len(said) == 1 and len(experiment.arms) == 2 and not is_plain:
        yield f"verdict.json: says {verdict.sentences!r}, and the rows say {said[0]!r}"


def differences(kept: Any, found: Any, place: str) -> Iterator[str]:
    """Say where two values differ, numbers by more than two machines do."""
    if isinstance(kept, dict) and isinstance(found, dict):
        for name in sorted(kept.keys() | found.keys()):
            if name not in kept or name not in found:
                which = "the rows do not say it" if name in kept else "it is missing"
                yield f"{place}.{name}: {which}"
            else:
                yield from differences(kept[name], found[name], f"{place}.{name}")
    elif isinstance(kept, list) and isinstance(found, list) and len(kept) == len(found):
        for number, pair in enumerate(zip(kept, found, strict=True)):
            yield from differences(*pair, f"{place}[{number}]")
    elif not _are_same(kept, found):
        yield f"{place}: {_shown(kept)} is written, {_shown(found)} follows from the rows"


def _are_same(kept: Any, found: Any) -> bool:
    both = (kept, found)
    if any(isinstance(one, bool) for one in both):
        return kept is found
    if all(isinstance(one, int | float) for one in both):
        return math.isclose(kept, found, rel_tol=SAME, abs_tol=SAME)
    return bool(kept == found)


def _shown(value: Any) -> str:
    text = msgspec.json.encode(value).decode()
    return text if len(text) < 200 else f"{text[:200]}…"
