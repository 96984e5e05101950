"""Assemble a comparison: the seed's report, and above it health and statistics."""

import datetime
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import msgspec
import numpy as np
from msgspec import UNSET

from assay import plugins
from assay.compare import describe
from assay.compare.builds import builds_section, read_builds
from assay.compare.calibration import calibration_for
from assay.compare.decided import KeptDecision, kept_decision
from assay.compare.doubts import Treatment, doubts_of, is_too_large
from assay.compare.head_to_head import (
    CustomJudgement,
    Totals,
    capture_prompts,
    judge_section,
    pairwise,
    pass_k,
    rank_statistically,
    trials_prompts,
    weigh,
    weights_of,
)
from assay.compare.pairs import (
    MOST_NOT_MEASURED,
    Aligned,
    Pair,
    UnequalLosses,
    align,
    compare_pairs,
    count_clusters,
    count_out_of_turn,
    differences,
    extreme_looks_at_pair,
    extremes_of_pair,
    look_at_pair,
    unequal_excuses,
    unlike,
)
from assay.compare.runs import Run, SetupProblem, cluster_copies, load_run, number_clusters
from assay.errors import InputError
from assay.records.capture import cause_words
from assay.records.experiment import Standing
from assay.records.explanation import Doubts
from assay.records.setup import REPLAYED_WORDS, ArmsProof, counted
from assay.records.text import counted_noun
from assay.records.trial.files import Kind, detect_kind
from assay.stats.factorial import FactorialEffects
from assay.stats.means import N_RESAMPLES
from assay.stats.noise import JudgeErrors
from assay.stats.ranking import RANKING_RESAMPLES, rank_runs
from assay.stats.sequential import SequentialDecision, decide_gate, describe_use, judged_look
from assay.stats.verdict import (
    GateName,
    Outcome,
    Verdict,
    VerdictCode,
    judge_difference,
    judge_gate,
)

_FEWEST_RANKED = 3
NOT_ALIKE = "a gate compares like with like, but "
type Judge = Callable[[Aligned], CustomJudgement]
"""A user's own strategy."""


class CompareOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What the user chose for a comparison."""

    strategy: str = "weighted"
    margin: float = 0.02
    seed: int = 20_260_101
    weights: Mapping[str, float] = {}
    """By the names of the seed's variables; those that are missing have their usual values."""
    n_resamples: int | None = None
    """Of each bootstrap; None leaves it to each method."""
    judge: Judge | None = None
    decisions: Mapping[str, SequentialDecision] = {}
    """What a sequential rule has decided about a run and the first one, by the run's label."""
    unequal: Mapping[str, UnequalLosses] = {}
    """Of an experiment, by the label of the arm: what was lost of it or of the control."""
    standings: Mapping[str, Standing] = {}
    """Of an experiment: the earlier looks at each arm, by its label."""
    calibration: Path | None = None
    """What is known of the errors of the runs' judge."""
    judge_errors: tuple[JudgeErrors | None, str] | None = None
    """Of an experiment, by which its decisions were corrected already, and what to say of it."""
    proof: ArmsProof | None = None
    """Of an experiment: how its arms differ, and whether a verdict is valid at all."""
    reused: Mapping[str, int] = {}
    """Of an experiment, by the label of the arm: how many of its trials an earlier run made."""
    effect: float | None = None
    """The difference that decisions find or rule out, in place of the margin."""
    arms: Mapping[str, Sequence[str]] = {}
    """Of an ablation: the treatments of each arm, by its label."""
    effects: FactorialEffects | None = None
    """Of an ablation: the effect of each treatment, and of pairs of them."""
    now: datetime.datetime | None = None
    """When the report is made; None is the present."""
    these_prompts: bool = True
    """Whether to say what is shown on these very prompts, where prompts in general are open: not if
    trials are of another day, or this is not the first look."""
    growing: bool = False
    """Whether trials are still to come: prompts that a run lacks are no fault of it then."""
    allow_replayed: bool = False
    """Whether runs that a tape answered have a verdict: of the harness, not of the agent."""
    doubtful: Treatment | None = None
    """What becomes of passes in doubt; None shows them unless a file is large."""


class Comparison(msgspec.Struct):
    """A report: small sections at once, rows per prompt on demand."""

    sections: dict[str, Any]
    rows: Callable[[], Iterator[list[bytes]]]
    rows_key: tuple[str, ...]
    pairs: list[Pair]
    warnings: list[str]
    """How the runs differ, which --strict refuses."""
    doubts: list[str]
    """What puts passes of the runs in doubt, one sentence each."""
    aligned: Aligned

    def judge(self, gate: GateName, margin: float) -> list[tuple[Pair, Outcome, str]]:
        """Judge every other run against the first; the report shows what was found."""
        found = list(self._judge(gate, margin))
        self.sections["gate"] = [
            {"gate": gate, "runA": p.run_a, "runB": p.run_b, "outcome": outcome, "words": words}
            for p, outcome, words in found
        ]
        return found

    def judge_at_any_look(self, margin: float) -> list[tuple[Pair, str, str]]:
        """Judge the gate `regression` by the sequential rule; the verdicts say what it says.

        Made for runs that grow: see CompareOptions.growing.
        """
        judged, found = self._judged_pairs(), list[tuple[Pair, str, str]]()
        self.sections["gate"] = []
        for pair in judged:
            decision, n_trials, kept = self._decision(pair, margin, len(judged))
            outcome, words = self._open_words(pair, decision)
            # What changed was known to the gate that decided: it has set that aside.
            unlike = self._unlike(pair) if kept is None else None
            if kept is not None:
                outcome, words = kept.verdict, kept.reason
            excused = outcome == "pass" and kept is None and self._excused(pair)
            if refused := self._unhealthy(pair) or unlike or excused:
                outcome, words = "cannot-judge", refused
            use = describe_use(decision, n_trials)
            self.sections["gate"].append(
                {"gate": "regression", "runA": pair.run_a, "runB": pair.run_b}
                | {"outcome": outcome, "words": words}
                | {"sequential": msgspec.to_builtins(use)}
                | _kept_section(kept)
            )
            if unlike is None:
                self._replace_verdict(pair, decision, margin)
            found.append((pair, outcome, words))
        self.sections["notes"].append(_ONE_LOOK.format("gate holds"))
        return found

    def _open_words(self, pair: Pair, decision: SequentialDecision) -> tuple[str, str]:
        """Return what a look says, and what is still to run."""
        outcome, words = str(decision.outcome), decision.words
        if decision.n_unmeasured:
            words += "; the commands that made the runs run these trials again with --resume"
        if outcome == "go-on" and (n_absent := count_out_of_turn(self.aligned, pair)):
            words += f"; {_absent_words(pair, n_absent)}"
        return outcome, words

    def _decision(
        self, pair: Pair, margin: float, n_judged: int
    ) -> tuple[SequentialDecision, int, KeptDecision | None]:
        """Return what trials --until decided found of these very files, or look now."""
        first, second = (self._run(label).path for label in (pair.run_a, pair.run_b))
        if n_judged == 1 and (kept := kept_decision(first, second, margin)):
            return kept.decision, kept.n_trials, kept
        decision = decide_gate(
            judged_look(look_at_pair(self.aligned, pair), self._run(pair.run_a).judge, margin),
            margin=margin,
            extremes=extreme_looks_at_pair(self.aligned, pair),
            n_judged=n_judged,
        )
        return decision, self.sections["health"][pair.run_b]["graded"], None

    def _run(self, label: str) -> Run:
        return next(run for run in self.aligned.runs if run.label == label)

    def _replace_verdict(self, pair: Pair, decision: SequentialDecision, margin: float) -> None:
        """Put the sequential decision in place of a verdict that looking often would spoil."""
        new = {"code": _code_of(decision, margin), "nMorePrompts": None, **_look(pair, decision)}
        if decision.n_unmeasured:
            new["nUnmeasured"] = decision.n_unmeasured
        for shown in (*self.sections["verdict"], *self.sections["pairs"]):
            if (shown["runA"], shown["runB"]) != (pair.run_a, pair.run_b):
                continue
            if "verdict" not in shown:
                shown |= new if shown["healthy"] else {}
            elif self._unhealthy(pair) is None:
                shown["verdict"] = {k: v for k, v in new.items() if k in _VERDICT_FIELDS}

    def _judged_pairs(self) -> list[Pair]:
        return [p for p in self.pairs if p.run_a == self.sections["meta"]["runs"][0]]

    def _unhealthy(self, pair: Pair) -> str | None:
        """Say which measurement cannot be believed; None if both can."""
        health = self.sections["health"]
        unhealthy = [r for r in (pair.run_a, pair.run_b) if not health[r]["healthy"]]
        return f"the measurement of {' and '.join(unhealthy)} is unhealthy" if unhealthy else None

    def _excused(self, pair: Pair) -> str:
        """Say why a pass is not believed: the agent excuses too many of its trials itself."""
        unequal = unequal_excuses(self._run(pair.run_a), self._run(pair.run_b))
        return unequal.could_turn if unequal else ""

    def _unlike(self, pair: Pair) -> str | None:
        """Say why the runs are no measurements of the same thing; None if they are."""
        labels = self.sections["meta"]["runs"]
        found = unlike(self.aligned, labels.index(pair.run_a), labels.index(pair.run_b))
        return NOT_ALIKE + "; ".join(found) if found else None

    def _judge(self, gate: GateName, margin: float) -> Iterator[tuple[Pair, Outcome, str]]:
        """Yield the outcome of each; what is unhealthy cannot be judged."""
        judged = self._judged_pairs()
        for pair in judged:
            result = judge_gate(
                gate,
                pair.pass_rate,
                margin=margin,
                adjusted_p=pair.adjusted_p,
                n_judged=len(judged),
                extremes=extremes_of_pair(self.aligned, pair, "first"),
            )
            refused = self._unhealthy(pair) or (result.outcome == "pass" and self._excused(pair))
            if unlike := self._unlike(pair):
                yield pair, "cannot-judge", unlike
            elif refused and result.outcome != "cannot-judge":
                yield pair, "cannot-judge", refused
            else:
                yield pair, result.outcome, result.words


def load_runs(
    named: Sequence[tuple[str, Path]],
    wanted: Kind | Literal["auto"],
    category_key: str,
    announce: Callable[[str, Path], None],
    cluster_key: str | None = None,
) -> list[Run]:
    """Read the files of all runs, which must be of one kind.

    cluster_key names what prompts that are not independent have in common in their metadata.
    """
    kinds: list[Kind] = [detect_kind(path) if wanted == "auto" else wanted for _, path in named]
    if len(set(kinds)) > 1:
        found = ", ".join(f"{label}: {kind}" for (label, _), kind in zip(named, kinds, strict=True))
        msg = f"captures and trials cannot be compared with each other ({found})"
        raise InputError(msg, hint="run both with assay trials, or both with assay capture")
    runs = []
    for label, path in named:
        announce(label, path)
        plugins.check_output(path)
        run = load_run(label, path, kinds[0], category_key)
        if cluster_key is not None:
            run.clusters = number_clusters(run, cluster_key)
        runs.append(run)
    return runs


def compare(runs: Sequence[Run], options: CompareOptions) -> Comparison:
    """Compare two or more runs of one kind."""
    doubts, copies = {}, cluster_copies(runs)
    for run in runs:
        run.builds = read_builds(run)
        doubts[run.label] = doubts_of(run, options.doubtful)
    doubtful = [text for label, one in doubts.items() for text in one.sentences(label)]
    aligned = align(runs)
    trials = runs[0].kind == "trials"
    # The arms of an experiment differ on purpose, and its proof says in what.
    warnings = differences(aligned, growing=options.growing, of_arms=options.proof is not None)
    judged = options.judge(aligned) if options.judge is not None else None
    totals = judged.totals if judged is not None else _totals(aligned, options)
    errors, judge_words = options.judge_errors or calibration_for(runs, options.calibration)
    for run in runs:
        run.judge = errors
    pairs = compare_pairs(
        aligned,
        margin=options.margin,
        seed=options.seed,
        n_resamples=options.n_resamples or N_RESAMPLES,
        growing=options.growing,
    )
    health = {
        run.label: check_health(
            aligned, i, growing=options.growing, allow_replayed=options.allow_replayed
        )
        for i, run in enumerate(runs)
    }
    sections: dict[str, Any] = {
        **({"proof": msgspec.to_builtins(options.proof)} if options.proof else {}),
        **({"edits": msgspec.to_builtins(options.standings)} if options.standings else {}),
        **({"reused": dict(options.reused)} if options.reused else {}),
        **({"arms": msgspec.to_builtins(options.arms)} if options.arms else {}),
        **_judge_sections(aligned, judged, health),
        "verdict": [
            _verdict(pair, health, options, _unequal(pair, runs, options)) for pair in pairs
        ],
        "health": health,
        "notes": [
            *doubtful,
            *([copies] if copies else []),
            *warnings,
            *_not_searched(runs, options.doubtful),
            *([judge_words] if judge_words else []),
            *_replayed_notes(runs),
        ],
        **_doubts_section(doubts, doubtful, options.doubtful),
        "meta": _meta(aligned, totals, options),
    }
    # Graders that name measures give scores that say more than whether a trial passed.
    scored = {run.label for run in runs if run.measures}
    for pair, verdict in zip(pairs, sections["verdict"], strict=True):
        if verdict["healthy"] and {pair.run_a, pair.run_b} <= scored:
            found = judge_difference(
                pair.score, margin=options.margin, adjusted_p=pair.adjusted_p_score
            )
            verdict["byScore"] = msgspec.to_builtins(found)
    of_kind = _trials_sections if trials else _capture_sections
    sections |= of_kind(aligned, totals, options)
    sections["pairs"] = [msgspec.to_builtins(pair) for pair in pairs]
    for pair, verdict in zip(sections["pairs"], sections["verdict"], strict=True):
        told = pair["runB"] in options.decisions or pair["runB"] in options.standings
        if verdict.get("code") == "not-enough-data" or told:
            pair["verdict"] = {k: v for k, v in verdict.items() if k in _VERDICT_FIELDS}
    sections["notes"] += [
        f"{_AMOUNTS[name]} of {pair.run_b} against {pair.run_a}: {amount.tail}"
        for pair in pairs
        for name, amount in pair.amounts.items()
        if amount.tail
    ]
    if options.decisions:
        sections["notes"].append(_ONE_LOOK.format("verdict holds"))
    sections["variance"] = {run.label: describe.describe_variance(run) for run in runs}
    sections["categories"] = {run.label: describe.describe_categories(run) for run in runs}
    if any(run.measures for run in runs):
        sections["measures"] = {run.label: run.measures for run in runs}
    if len(runs) >= _FEWEST_RANKED:
        sections["ranking"] = _ranking(aligned, options)
    return Comparison(
        sections=sections,
        rows=lambda: (trials_prompts if trials else capture_prompts)(aligned, totals, judged),
        rows_key=("perPrompt",) if trials else ("headToHead", "prompts"),
        pairs=pairs,
        warnings=warnings,
        doubts=doubtful,
        aligned=aligned,
    )


def _not_searched(runs: Sequence[Run], treatment: Treatment | None) -> Iterator[str]:
    large = [run.label for run in runs if treatment is None and is_too_large(run.path)]
    if large:
        what = f"passes of {', '.join(large)} were not searched for doubtful ones"
        yield f"{what}, because the files are large; --doubtful show does that"


def _doubts_section(
    doubts: Mapping[str, Doubts], sentences: list[str], treatment: Treatment | None
) -> dict[str, Any]:
    """Return what a verdict has to say of doubtful passes; nothing where there are none."""
    if not sentences:
        return {}
    return {
        "doubts": {
            "countedAs": "failed" if treatment == "fail" else "passed",
            "sentences": sentences,
            "runs": {label: msgspec.to_builtins(one) for label, one in doubts.items()},
        }
    }


def _judge_sections(
    aligned: Aligned, judged: CustomJudgement | None, health: dict[str, dict[str, Any]]
) -> dict[str, Any]:
    if judged is None:
        return {}
    problems = {label: found["problems"] for label, found in health.items()}
    return {"judge": judge_section(aligned, judged, problems)}


def _totals(aligned: Aligned, options: CompareOptions) -> Totals:
    if options.strategy == "statistical":
        return [rank_statistically(run) for run in aligned.runs]
    weights = weights_of(options.weights, aligned.runs[0].kind)
    return [weigh(run, weights) for run in aligned.runs]


def _meta(aligned: Aligned, totals: Totals, options: CompareOptions) -> dict[str, Any]:
    runs = aligned.runs
    now = options.now or datetime.datetime.now(datetime.UTC)
    meta: dict[str, Any] = {
        "generatedAt": now.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
        "runs": [run.label for run in runs],
        "promptCount": len(aligned.ids),
    }
    if runs[0].kind == "trials":
        ks = {int(k) for run in runs for k in run.k}
        meta |= {
            "trialsPerPrompt": ks.pop() if len(ks) == 1 else None,
            "inputFormat": "trials",
        }
    else:
        meta["promptsWithAllRuns"] = _in_all(aligned, totals)
    if (n_clusters := count_clusters(aligned)) is not None:
        meta["clusters"] = n_clusters
    return meta | {
        "strategy": options.strategy,
        **_strategy(options, runs[0].kind),
        "intervals": interval_words(options.n_resamples),
        "margin": options.margin,
        "seed": options.seed,
        **({"bootstrapIterations": options.n_resamples} if options.n_resamples else {}),
        "promptsInAllRuns": int((aligned.where >= 0).all(axis=1).sum()),
        "files": {run.label: run.path.name for run in runs},
        "agents": {run.label: run.agent_names for run in runs},
        "graders": {
            run.label: {name: sorted(seen) for name, seen in sorted(run.graders.items())}
            for run in runs
        },
    }


_STRATEGIES = {
    ("statistical", "capture"): "statistical: the higher score wins a prompt",
    ("statistical", "trials"): "statistical: the higher median of resampled pass@k wins a prompt",
}


def _strategy(options: CompareOptions, kind: Kind) -> dict[str, Any]:
    """Say how the winner of a prompt is found, with the weights, and which of them were set."""
    if options.strategy != "weighted":
        said = _STRATEGIES.get((options.strategy, kind), "custom: the judge ranks the runs")
        return {"strategyWords": said}
    by_variable = weights_of(options.weights, kind)
    weights = {name.removeprefix("COMPARE_").lower(): w for name, w in by_variable.items()}
    shown = ", ".join(f"{name} {weight:g}" for name, weight in weights.items())
    named = [name for name in by_variable if name in options.weights]
    given = f" (set by {', '.join(named)})" if named else ""
    return {"weights": weights, "strategyWords": f"weighted: {shown}{given}"}


def interval_words(n_resamples: int | None) -> str:
    """Say which intervals COMPARE_BOOTSTRAP_ITERATIONS changes, and which it does not."""
    return (
        "Intervals of time, cost and tokens (of 8 to 1000 prompts) resample the prompts "
        f"{n_resamples or N_RESAMPLES} times, those of a ranking "
        f"{n_resamples or RANKING_RESAMPLES} times. Intervals of pass rate, score, pass@k, pass^k "
        "and their differences are computed, not resampled."
    )


def _in_all(aligned: Aligned, totals: Totals) -> int:
    """Count the prompts that every run has with a total."""
    everywhere = (aligned.where >= 0).all(axis=1)
    places = aligned.where[everywhere]
    good = np.ones(len(places), dtype=bool)
    for column, values in enumerate(totals):
        good &= ~np.isnan(values[places[:, column]])
    return int(good.sum())


def _capture_sections(aligned: Aligned, totals: Totals, options: CompareOptions) -> dict[str, Any]:
    runs = aligned.runs
    return {
        "quality": {run.label: describe.describe_quality(run) for run in runs},
        "performance": {
            run.label: describe.describe_performance(
                run, options.seed, options.n_resamples or N_RESAMPLES
            )
            for run in runs
        },
        "reliability": {run.label: describe.describe_reliability(run) for run in runs},
        "trajectoryInfo": {run.label: describe.describe_trajectories(run) for run in runs},
        "headToHead": {"pairwise": pairwise(aligned, totals)},
    }


def _trials_sections(aligned: Aligned, totals: Totals, options: CompareOptions) -> dict[str, Any]:
    runs = aligned.runs
    sections: dict[str, Any] = {
        "capability": {run.label: describe.describe_capability(run) for run in runs},
        "reliability": {run.label: describe.describe_trial_reliability(run) for run in runs},
        "flakiness": {run.label: describe.describe_flakiness(run) for run in runs},
        "completion": {run.label: describe.describe_completion(run) for run in runs},
    }
    quality = {run.label: describe.describe_trial_quality(run) for run in runs}
    if any(quality.values()):
        sections["quality"] = quality
    both = [pass_k(run) for run in runs]
    return sections | {
        "performance": {
            run.label: describe.describe_performance(
                run, options.seed, options.n_resamples or N_RESAMPLES
            )
            for run in runs
        },
        "headToHead": {
            "capability": pairwise(aligned, [pair[0] for pair in both]),
            "reliability": pairwise(aligned, [pair[1] for pair in both]),
            "overall": pairwise(aligned, totals),
        },
    }


def _ranking(aligned: Aligned, options: CompareOptions) -> list[dict[str, Any]]:
    """Rank all runs by how often they score higher than the others on the same prompt."""
    table = np.full(aligned.where.shape, np.nan)
    for column, run in enumerate(aligned.runs):
        here = aligned.where[:, column]
        table[here >= 0, column] = run.mean_of(run.score)[here[here >= 0]]
    measured = ~np.isnan(table)
    ranked = rank_runs(
        np.nan_to_num(table),
        seed=options.seed,
        measured=measured,
        n_resamples=options.n_resamples or RANKING_RESAMPLES,
    )
    labels = [run.label for run in aligned.runs]
    return [msgspec.to_builtins(row) | {"run": labels[row.run]} for row in ranked]


def _verdict(
    pair: Pair,
    health: dict[str, dict[str, Any]],
    options: CompareOptions,
    unequal: UnequalLosses | None,
) -> dict[str, Any]:
    """Return the verdict with all facts that its sentence needs: see assay.report.sentence."""
    verdict: dict[str, Any] = {"runA": pair.run_a, "runB": pair.run_b}
    verdict |= msgspec.to_builtins(pair.verdict) if pair.verdict else {}
    is_first = pair.run_a == next(iter(health))
    decision = options.decisions.get(pair.run_b) if is_first else None
    if decision is not None:
        verdict |= _decided(pair, decision)
        verdict |= {"margin": options.effect} if options.effect is not None else {}
    margin = options.margin if options.effect is None else options.effect
    if unequal is not None and _is_turned(verdict, pair, decision, unequal.share, margin):
        verdict |= {"code": "not-enough-data", "turned": unequal.words, "nMorePrompts": None}
    unhealthy = {
        label: "; ".join(health[label]["problems"])
        for label in (pair.run_a, pair.run_b)
        if not health[label]["healthy"]
    }
    is_valid = not unhealthy and (options.proof is None or options.proof.valid)
    if unhealthy:
        verdict["problems"] = unhealthy
    if not is_valid:
        verdict |= {"code": "not-enough-data", "nMorePrompts": None}
    standing = options.standings.get(pair.run_b) if is_first else None
    if standing is not None and is_valid:
        verdict["code"] = standing.code(verdict.get("code", ""))
        verdict |= {"standing": standing.words} if standing.words else {}
    if is_valid and pair.verdict and decision is None:
        verdict |= _these_prompts(pair, pair.verdict, options)
    return verdict | {"healthy": is_valid}


def _these_prompts(pair: Pair, verdict: Verdict, options: CompareOptions) -> dict[str, Any]:
    """Say what is shown on these prompts, where it is open for prompts like these."""
    rate, p_value, bounds = pair.pass_rate, pair.these_prompts_p, pair.bounds
    is_open = verdict.code == "not-enough-data" and verdict.n_unmeasured is UNSET
    if not is_open or options.growing or not options.these_prompts or not rate.difference:
        return {}
    if p_value is None or p_value > _ALPHA or (rate.trials_per_prompt or 1.0) <= 1.0:
        return {}
    if bounds is not None and not bounds.low * bounds.high > 0.0:
        return {}  # what was not measured could turn it
    way = "better" if rate.difference > 0.0 else "worse"
    here = f"On these prompts: {way} (p {p_value:.2g}); on prompts like these: not shown yet."
    return {"thesePrompts": here, "facts": [here]}


_ALPHA = 0.05
_AMOUNTS = {"latencyMs": "time", "costUsd": "cost", "tokens": "tokens"}
_ONE_LOOK = "intervals and p-values of the tables hold for one look; the {} at every look"
_VERDICT_FIELDS = (
    *("code", "nMorePrompts", "nUnmeasured", "difference", "interval", "look", "facts"),
)


def _unequal(pair: Pair, runs: Sequence[Run], options: CompareOptions) -> UnequalLosses | None:
    if options.proof is not None:
        return options.unequal.get(pair.run_b)
    first, second = (next(r for r in runs if r.label == one) for one in (pair.run_a, pair.run_b))
    return unequal_excuses(first, second)


def _is_turned(
    verdict: dict[str, Any],
    pair: Pair,
    decision: SequentialDecision | None,
    share: float,
    margin: float,
) -> bool:
    """Whether attempts that were lost could have made this verdict of another one."""
    known = decision.interval if decision is not None else None
    interval = known or pair.pass_rate.interval
    if interval is None:
        return False
    far = {"better": interval.low, "worse": -interval.high}
    far["same"] = margin - max(-interval.low, interval.high)
    return far.get(verdict.get("code", ""), 1.0) <= share


def _decided(pair: Pair, decision: SequentialDecision) -> dict[str, Any]:
    """Return a decision in place of a verdict that looking often would spoil."""
    code = decision.outcome if decision.is_decided else "not-enough-data"
    unmeasured = None if decision.is_decided else decision.n_unmeasured or None
    return {"code": code, "nMorePrompts": None, "nUnmeasured": unmeasured, **_look(pair, decision)}


def _look(pair: Pair, decision: SequentialDecision) -> dict[str, Any]:
    """Return what the look saw that decided; nothing if none could be taken."""
    # Trials that were running then come after it.
    seen = decision.difference
    difference = pair.pass_rate.difference if seen is UNSET else seen
    if decision.interval is None or difference is None:
        return {}
    seen_then = {"difference": difference, "interval": msgspec.to_builtins(decision.interval)}
    return {"look": seen_then, **seen_then}


def _kept_section(kept: KeptDecision | None) -> dict[str, Any]:
    """What a gate knew beside its decision: what was set aside, who accepted it, the anchor."""
    if kept is None:
        return {}
    anchor = kept.anchor
    found = {
        "setAside": kept.set_aside or None,
        "leftOut": kept.left_out or None,
        "graders": kept.graders or None,
        "accepted": kept.consent and kept.consent.words,
        "anchor": anchor
        and {"name": anchor.name, "outcome": anchor.outcome, "words": anchor.words},
    }
    return {name: value for name, value in found.items() if value}


def _code_of(decision: SequentialDecision, margin: float) -> VerdictCode:
    """A pass rules out a loss; whether there is a gain, or none, is told by its interval."""
    interval = decision.interval
    if decision.outcome == "fail":
        return "worse"
    if decision.outcome != "pass" or interval is None:
        return "not-enough-data"
    if interval.low > 0.0:
        return "better"
    return "same" if interval.high < margin else "not-worse"


def _absent_words(pair: Pair, n_absent: int) -> str:
    prompts = counted_noun(n_absent, "prompt")
    return (
        f"{prompts} of {pair.run_a} that {pair.run_b} lacks count as lost until they have run, "
        "because those it has did not come in the random order of trials --until decided"
    )


_MOST_GRADER_FAILURES = 0.05
_FEW_IDS = 3
_MOST_IDS = 100


def _replayed_notes(runs: Sequence[Run]) -> list[str]:
    return [
        f"{run.label}: {counted(problem.words, problem.n_trials, run.health.n_trials)}"
        for run in runs
        for problem in run.health.setup_problems
        if problem.words == REPLAYED_WORDS
    ]


def problems_of(run: Run) -> list[str]:
    """Say why a run by itself cannot be believed; nothing if it can."""
    found: list[str] = check_health(align([run]), 0)["problems"]
    return found


def check_health(
    aligned: Aligned, run_number: int, *, growing: bool = False, allow_replayed: bool = False
) -> dict[str, Any]:
    """Count what was planned, run and graded, and name what is wrong."""
    run = aligned.runs[run_number]
    missing = 0 if growing else len(aligned.ids) - len(run.ids)
    # A prompt that only other runs have was planned here too, with as many trials as any.
    per_prompt = int(run.k.max()) if len(run.k) else 1
    planned = int(run.k.sum()) + missing * per_prompt
    problems = _problems(run, planned, allow_replayed=allow_replayed)
    health = run.health
    return {
        "planned": planned,
        "run": health.n_trials,
        "graded": health.n_graded,
        "notMeasured": dict(sorted(health.not_measured.items())),
        **_with_excuses(run),
        "agentFailures": dict(sorted(health.failed.items())),
        "graderFailures": health.n_grader_failures,
        "permissionDenials": health.n_permission_denials,
        "setupProblems": [_setup_problem(problem) for problem in health.setup_problems],
        "healthy": not problems,
        "problems": problems,
        **builds_section(run),
    }


def _with_excuses(run: Run) -> dict[str, Any]:
    """Count what only the agent excuses, and the pass rate of all trials if that is failure."""
    health = run.health
    if not health.n_unverified and not health.n_excused:
        return {}
    n_passed = int(run.n_passed.sum()) - health.n_excused_passed
    n = int(run.n_measured.sum()) + health.n_unverified
    found = {"unverified": health.n_unverified, "excused": health.n_excused}
    return {name: n for name, n in found.items() if n} | {"passRateAtWorst": n_passed / n}


def _problems(run: Run, planned: int, *, allow_replayed: bool) -> list[str]:
    health = run.health
    # A set-up that failed is no result, in however few trials.
    problems = [
        _setup_words(problem, run)
        for problem in health.setup_problems
        if not (allow_replayed and problem.words == REPLAYED_WORDS)
    ]
    if not health.n_graded:
        return [*problems, "nothing is graded"]
    share = 1 - health.n_graded / max(planned, 1)
    if share > MOST_NOT_MEASURED:
        problems.append(f"{share:.0%} of the planned trials are not measured")
    if run.builds is not None and run.builds.problem:
        problems.append(run.builds.problem)
    if health.alike:
        all_trials = counted_noun(health.n_trials, "trial")
        problems.append(f"all {all_trials} failed alike: {cause_words(health.alike)}")
    if health.n_grader_failures > _MOST_GRADER_FAILURES * health.n_trials:
        problems.append(f"the grader failed on {health.n_grader_failures} trials")
    return problems


def _setup_words(problem: SetupProblem, run: Run) -> str:
    words, ids = counted(problem.words, problem.n_trials, run.health.n_trials), problem.prompts
    if len(ids) == len(run.ids):
        return words
    more = f" and {len(ids) - _FEW_IDS} more" if len(ids) > _FEW_IDS else ""
    return f"{words} (prompt{'' if len(ids) == 1 else 's'} {', '.join(ids[:_FEW_IDS])}{more})"


def _setup_problem(problem: SetupProblem) -> dict[str, Any]:
    return {
        "problem": problem.words,
        "trials": problem.n_trials,
        "nPrompts": len(problem.prompts),
        "prompts": problem.prompts[:_MOST_IDS],
    }
