"""A report on one run in the seed's sections: Markdown, JSON, or a few lines."""

from typing import Any

from assay.benchmarks.arc_agi.report.facts import (
    completed_levels,
    cost_per_level,
    efficiency,
    level_reach,
)
from assay.benchmarks.arc_agi.report.table import money, number, table
from assay.benchmarks.arc_agi.store.card import GameRow, Scorecard
from assay.benchmarks.arc_agi.store.layout import StoredRun
from assay.benchmarks.arc_agi.store.meta import UNVERIFIED


def report_markdown(run: StoredRun, card: Scorecard) -> str:
    """Write the whole report."""
    parts = [
        ["# ARC-AGI-3 Benchmark Report", "", *_header(run, card)],
        ["## Per-Environment Breakdown", "", *_breakdown(card)],
        ["## Per-Level Detail", *_levels(card)],
        ["## Performance Analysis", "", *_analysis(card)],
    ]
    return "\n\n".join("\n".join(part).rstrip() for part in parts) + "\n"


def report_summary(run: StoredRun, card: Scorecard) -> str:
    """Write the report in a few lines."""
    mark = " [unverified]" if is_unverified(run) else ""
    lines = [
        f"{run.label}{mark}: {number(card.percent, 2)} / 100",
        f"Environments: {card.total_environments_completed}/{card.total_environments} completed",
        f"Levels: {card.total_levels_completed}/{card.total_levels}",
        f"Actions: {card.total_actions}, resets: {card.total_resets}, cost: {money(card.cost_usd)}",
    ]
    return "\n".join(lines)


def report_json(run: StoredRun, card: Scorecard) -> dict[str, Any]:
    """Give the seed's report.json, scores in percent, and ours behind it."""
    meta = run.meta
    return {
        "run_id": meta.run_id,
        "timestamp": meta.timestamp,
        "duration_seconds": meta.duration_seconds,
        "harness": meta.harness,
        "model": meta.harness_config.model,
        "game_set": meta.game_set,
        "seed": meta.seed,
        "overall_score": card.percent,
        "formula": card.formula or "seed-1.0.0",
        "scorer": card.scorer,
        "total_environments": card.total_environments,
        "total_environments_completed": card.total_environments_completed,
        "total_levels": card.total_levels,
        "total_levels_completed": card.total_levels_completed,
        "total_actions": card.total_actions,
        "total_resets": card.total_resets,
        "cost_usd": card.cost_usd,
        "cost_per_level_usd": cost_per_level(card),
        "verified": meta.verified,
        "not_measured": meta.not_measured,
        "games": [_game_json(game) for game in by_score(card)],
    }


def by_score(card: Scorecard) -> list[GameRow]:
    """Sort games best first; those without a score last."""
    return sorted(card.games, key=lambda game: (game.percent is None, -(game.percent or 0)))


def is_unverified(run: StoredRun) -> bool:
    """Whether nobody could check this run."""
    return run.meta.verified == UNVERIFIED or (run.imported and run.meta.verified is None)


def verified_words(run: StoredRun) -> str:
    """Say how far a run can be believed."""
    words = {
        "recorded": "recorded (logs written by Assay's own game process)",
        "replayed": "replayed (every action gave the same answer in the real engine here)",
        "unverified": "UNVERIFIED",
    }
    mark = run.meta.verified or (UNVERIFIED if run.imported else "unknown")
    why = f": {run.meta.verification}" if run.meta.verification else ""
    return words.get(mark, mark) + why


def _header(run: StoredRun, card: Scorecard) -> list[str]:
    meta = run.meta
    done = f"{card.total_environments_completed} / {card.total_environments}"
    facts = [
        ("Run ID", meta.run_id),
        ("Date", meta.timestamp),
        ("Duration", f"{meta.duration_seconds:.0f} s"),
        ("Harness", f"{meta.harness} ({meta.harness_config.model})"),
        ("Game Set", f"{meta.game_set} ({card.total_environments} games, {meta.trials} trials)"),
        ("Seed", str(meta.seed)),
        ("Limits", f"{_most(meta.max_steps)} steps, {_most(meta.max_resets)} resets"),
        ("Card ID", card.card_id),
        ("Competition Mode", str(card.competition_mode)),
        ("Verified", verified_words(run)),
        ("Overall Score", f"{number(card.percent, 2)} / 100 ({card.scorer or 'seed 1.0.0'})"),
        ("Environments Completed", done),
        ("Levels Completed", f"{card.total_levels_completed} / {card.total_levels}"),
        ("Total Actions", str(card.total_actions)),
        ("Total Resets", str(card.total_resets)),
        ("Cost", f"{money(card.cost_usd)} ({money(cost_per_level(card))} per level)"),
        ("Plugins", ", ".join(meta.harness_config.plugins) or "none"),
        ("MCP Servers", ", ".join(meta.harness_config.mcp_servers) or "none"),
    ]
    lines = [f"- **{name}**: {value}" for name, value in facts]
    lines += [f"- **Not measured**: {name}: {why}" for name, why in meta.not_measured.items()]
    lost = card.total_environments - card.games_scored
    if card.formula and lost:
        lines.append(f"- **Without a score**: {lost} games (see the reasons below)")
    return lines


def _breakdown(card: Scorecard) -> list[str]:
    rows = []
    for game in by_score(card):
        best = game.best
        trials = game.trials
        actions = sum(t.actions for t in trials) if trials else (best.actions if best else 0)
        resets = sum(t.resets for t in trials) if trials else (best.resets if best else 0)
        done = best.levels_completed if best else 0
        state = best.state if best else "NOT_PLAYED"
        rows.append(
            [
                game.id,
                number(game.percent),
                f"{done}/{game.n_levels}",
                str(actions),
                str(resets),
                state,
            ]
        )
    lines = table(["Game", "Score", "Levels", "Actions", "Resets", "State"], rows)
    reasons = [f"- {game.id}: no score: {game.score_reason}" for game in card.games]
    missing = [game.percent is None and game.score_reason is not None for game in card.games]
    return [*lines, *[line for line, shown in zip(reasons, missing, strict=True) if shown]]


def _levels(card: Scorecard) -> list[str]:
    lines: list[str] = []
    for game in by_score(card):
        play = game.best
        if play is None:
            continue
        rows = []
        for i, taken in enumerate(play.level_actions):
            baselines = play.level_baseline_actions
            usual = baselines[i] if i < len(baselines) else None
            done = i < play.levels_completed
            ratio = f"{taken / usual:.2f}x" if done and usual and taken else "-"
            score = play.level_scores[i] * 100 if i < len(play.level_scores) else None
            rows.append([str(i + 1), number(score), str(taken), str(usual or "-"), ratio])
        head = ["Level", "Score", "Actions", "Baseline", "Efficiency"]
        lines += ["", f"### {game.id}", "", *table(head, rows)]
    return lines


def _analysis(card: Scorecard) -> list[str]:
    scored = [game for game in by_score(card) if game.percent is not None]
    top, rest = scored[:3], scored[3:]
    lines = ["**Top**: " + (_named(top) or "none")]
    lines.append("**Bottom**: " + (_named(rest[-3:][::-1]) or "none"))
    spent = efficiency(card.games)
    words = f"{spent.actions} actions where a person needs {spent.baseline}"
    lines += ["", f"**Overall Efficiency**: {number(spent.ratio, 2, 'x')} ({words})"]
    lines += ["", "**Level Progression**:"]
    for level, done, of in level_reach(card):
        lines.append(f"- Level {level}: {done}/{of} ({100 * done / of:.0f}%)")
    over = [game for game in card.games if game.best and game.best.state == "GAME_OVER"]
    if over:
        lines += ["", "**Failure Analysis**:"]
        lines += [
            f"- {game.id}: failed at level {game.best.levels_completed + 1}"
            for game in over
            if game.best
        ]
    return lines


def _game_json(game: GameRow) -> dict[str, Any]:
    play = game.best
    pairs = completed_levels(play) if play else []
    return {
        "game_id": game.id,
        "score": game.percent,
        "score_reason": game.score_reason,
        "levels_completed": play.levels_completed if play else 0,
        "num_levels": game.n_levels,
        "actions": sum(t.actions for t in game.trials) or (play.actions if play else 0),
        "resets": sum(t.resets for t in game.trials) or (play.resets if play else 0),
        "state": play.state if play else "NOT_PLAYED",
        "level_scores": [s * 100 for s in play.level_scores] if play else [],
        "level_actions": play.level_actions if play else [],
        "level_baselines": play.level_baseline_actions if play else [],
        "efficiency": [taken / usual for taken, usual in pairs],
        "stop_reasons": [trial.stop_reason for trial in game.trials],
    }


def _named(games: list[GameRow]) -> str:
    return ", ".join(f"{game.id} ({number(game.percent)})" for game in games)


def _most(limit: int | None) -> str:
    return "no limit of" if limit is None else str(limit)
