"""A report on one run, in the sections of the reference: Markdown, JSON, HTML, or a few lines."""

import re
from collections.abc import Sequence
from typing import Any

import msgspec

from assay.records.text import counted_noun, visible
from assay.report.markdown import escape, join_sections, section, table
from assay.report.page import markdown_page
from assay.report.text import money, number
from assay_arc import StoreProblem
from assay_arc.cards import read_card
from assay_arc.figures import (
    BUDGETS,
    curve_picture,
    efficiency,
    level_reach,
    score_at,
    score_by_actions,
    score_by_cost,
)
from assay_arc.store import (
    SHORT,
    UNVERIFIED,
    GameRow,
    RunMeta,
    Scorecard,
    Store,
    StoredRun,
    TagScore,
)
from assay_arc.stuck import StuckLevel, stuck_levels, stuck_lines, stuck_picture


def report_markdown(
    run: StoredRun, card: Scorecard, stuck: Sequence[StuckLevel] | None = None
) -> str:
    stuck = stuck_levels(run, card) if stuck is None else stuck
    parts = [
        ["# ARC-AGI-3 Benchmark Report", "", *_facts(run, card)],
        section("Per-Environment Breakdown", _games(card)),
        ["## Per-Level Detail", *_levels(card)],
        section("Effort per Level", _efforts(card)),
        section("Scores by Tag", _tags(card)),
        section("Performance Analysis", _analysis(card)),
        section("Where It Is Stuck", stuck_lines(stuck)),
    ]
    return visible(join_sections(parts))


def report_page(run: StoredRun, card: Scorecard) -> str:
    """The same as HTML, with curves of the score, and the levels that trials are stuck on."""
    stuck = stuck_levels(run, card)
    pictures = [
        curve_picture("Score against actions a trial", "actions", score_by_actions(card)),
        curve_picture("Score against cost a trial", "$", score_by_cost(card)),
        *(stuck_picture(one) for one in stuck),
    ]
    text = report_markdown(run, card, stuck)
    return markdown_page(f"ARC-AGI-3 run {run.meta.run_id}", text, pictures)


def report_summary(run: StoredRun, card: Scorecard) -> str:
    unplayed = f", {card.games_not_played} not played" if card.games_not_played else ""
    done = f"{card.total_environments_completed}/{card.total_environments} completed"
    lines = [
        f"{run_name(run)}: {score_words(run.meta, card)}",
        f"Environments: {done}{unplayed}",
        f"Levels: {card.total_levels_completed}/{card.total_levels}",
        f"Actions: {actions_words(card)}, resets: {card.total_resets}, "
        f"cost: {money(card.cost_usd)}",
    ]
    return "\n".join(lines)


def report_json(run: StoredRun, card: Scorecard) -> dict[str, Any]:
    """The fields of the reference's report.json, scores in percent, and our own."""
    meta = run.meta
    # The games that no trial measured.
    n_lost = max(meta.games_total - len(card.games), 0) if meta.not_measured else 0
    return {
        "run_id": meta.run_id,
        "timestamp": meta.timestamp,
        "duration_seconds": meta.duration_seconds,
        "harness": meta.harness,
        "model": run.models,
        "agents": meta.agents,
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
        "total_actions_claimed": card.total_actions_claimed,
        "games_not_played": card.games_not_played,
        "total_resets": card.total_resets,
        "cost_usd": card.cost_usd,
        "cost_per_level_usd": card.cost_per_level,
        "verified": meta.verified,
        "not_measured": meta.not_measured,
        "games_not_measured": n_lost,
        "tampered": meta.tampered,
        "official": meta.official,
        "tools": meta.tools,
        "tokens": card.tokens,
        "reasoning_chars": card.reasoning_chars,
        "score_by_actions": score_by_actions(card),
        "score_by_cost": score_by_cost(card),
        "tags": card.tags_scores,
        "games": [_game_json(game) for game in card.best_first],
    }


def _game_json(game: GameRow) -> dict[str, Any]:
    play = game.best
    of_trial = ("actions", "tokens", "reasoning_tokens", "reasoning_chars", "cost_usd", "levels")
    return {
        "game_id": game.id,
        "score": game.percent,
        "score_reason": game.score_reason,
        "levels_completed": play.levels_completed,
        "num_levels": game.n_levels,
        "actions": game.actions,
        "resets": game.resets,
        "state": play.state,
        "level_scores": [s * 100 for s in play.level_scores],
        "level_scores_percent": play.level_percents,
        "level_actions": play.level_actions,
        "level_baselines": play.level_baseline_actions,
        "efficiency": [taken / usual for taken, usual in play.actions_and_baselines],
        "stop_reasons": [trial.stop_reason for trial in game.trials],
        "trials": [
            {"trial": trial.trial, "score": trial.score_percent}
            | {name: getattr(trial, name) for name in of_trial}
            for trial in game.trials
        ],
    }


def unmeasured_words(meta: RunMeta) -> str:
    """How much of a run says nothing about the agent; empty if all of it does."""
    if not meta.not_measured:
        return ""
    noun = "game" if meta.trials == 1 else "trial"
    total = counted_noun(meta.games_total * meta.trials, noun)
    return f"{len(meta.not_measured)} of {total} not measured"


def tampering_words(meta: RunMeta) -> list[str]:
    """What players did that they may not do, each with the name of the trial."""
    return [f"{name}: {words}" for name, said in meta.tampered.items() for words in said]


def score_words(meta: RunMeta, card: Scorecard, note: str = "") -> str:
    """The score of a run, with a note behind it, and how much of the run was not measured."""
    score = f"{number(card.percent, 2)} / 100{note}" if card.games else "no score"
    return "; ".join(words for words in (score, unmeasured_words(meta)) if words)


def missing_game(run: StoredRun, card: Scorecard, name: str) -> StoreProblem:
    """Say why a run has no such game: it was not measured, or not played."""
    for trial_id, why in run.meta.not_measured.items():
        if name in (trial_id, trial_id.split(".trial-")[0], trial_id.split("-")[0]):
            msg = f"Game {name} of run {run.meta.run_id} was not measured: {why}"
            return StoreProblem(msg)
    msg = f"Game {name} is not in run {run.meta.run_id}"
    names = ", ".join(game.id for game in card.games)
    return StoreProblem(msg, hint=f"it has: {names}" if names else "no game of it was measured")


def run_name(run: StoredRun) -> str:
    """The label of a run, with a mark where nobody could check it."""
    return run.label + (" [unverified]" if run.is_unverified else "")


def verified_words(run: StoredRun) -> str:
    """Describe how far a run can be trusted."""
    words = {
        "recorded": "recorded (logs written by Assay's own game process)",
        "replayed": "replayed (every action gave the same answer in the real engine here)",
        "unverified": "UNVERIFIED",
    }
    mark = run.meta.verified or (UNVERIFIED if run.imported else "unknown")
    why = f": {run.meta.verification}" if run.meta.verification else ""
    return words.get(mark, mark) + why


def actions_words(card: Scorecard) -> str:
    """The actions as counted and, where a result claims a number, as claimed."""
    if card.total_actions_claimed is None:
        return str(card.total_actions)
    return (
        f"{card.total_actions} counted (a reset of a level is one), "
        f"{card.total_actions_claimed} claimed"
    )


def broken_words(game: GameRow) -> str | None:
    """In how many trials the game itself broke, and how."""
    broken = [trial.game_failure for trial in game.trials if trial.game_failure]
    if not broken:
        return None
    return f"the game died in {len(broken)} of {len(game.trials)} trials: {broken[0]}"


def remark(game: GameRow) -> str:
    """Why a game has no score or one of 0, and whether it died; else nothing."""
    if not game.is_played:
        return "not played" if game.percent is None else "not played, counted as 0"
    unscored = f"no score: {game.score_reason}" if game.percent is None else None
    return "; ".join(words for words in (unscored, broken_words(game)) if words)


def _facts(run: StoredRun, card: Scorecard) -> list[str]:
    meta, official = run.meta, run.meta.official
    scorer = f" ({card.scorer or 'seed 1.0.0'})"
    n_games = counted_noun(max(meta.games_total, card.total_environments), "game")
    limits = [
        f"no limit of {noun}s" if most is None else counted_noun(most, noun)
        for most, noun in ((meta.max_steps, "step"), (meta.max_resets, "reset"))
    ]
    claimed = " (as the other harness says)" if run.imported else ""
    facts: list[tuple[str, object]] = [
        ("Run ID", meta.run_id),
        ("Date", escape(meta.timestamp)),
        ("Duration", f"{meta.duration_seconds:.0f} s{claimed}"),
        ("Harness", escape(f"{meta.harness} ({run.models})")),
        *_agent_facts(meta),
        ("Game Set", f"{escape(meta.game_set)} ({n_games}, {counted_noun(meta.trials, 'trial')})"),
        ("Seed", meta.seed),
        ("Limits", ", ".join(limits) + claimed),
        ("Card ID", escape(card.card_id)),
        ("Competition Mode", card.competition_mode),
    ]
    if official is not None:
        score = number(official.score_percent, 2) if official.closed else "not closed yet"
        place = escape(f"{official.card_id} ({score} / 100), {official.url}")
        facts.append(("Official Scorecard", place))
    facts += [
        ("Verified", escape(verified_words(run))),
        ("Overall Score", score_words(meta, card, scorer)),
        (
            "Environments Completed",
            f"{card.total_environments_completed} / {card.total_environments}",
        ),
        ("Levels Completed", f"{card.total_levels_completed} / {card.total_levels}"),
        ("Total Actions", actions_words(card)),
        ("Total Resets", card.total_resets),
        ("Cost", f"{money(card.cost_usd)} ({money(card.cost_per_level)} per level)"),
    ]
    if card.tokens is not None:
        facts.append(("Tokens", f"{card.tokens:,}"))
    facts.append(("Plugins", escape(", ".join(meta.harness_config.plugins)) or "none"))
    facts.append(("MCP Servers", escape(", ".join(meta.harness_config.mcp_servers)) or "none"))
    if meta.tools is not None:
        facts.append(("Tools", escape(", ".join(meta.tools))))
    if meta.transcripts:
        facts.append(("Transcripts", escape(", ".join(meta.transcripts))))
    facts += [("Not measured", escape(f"{name}: {why}")) for name, why in meta.not_measured.items()]
    facts += [("Tampered", escape(words)) for words in tampering_words(meta)]
    n_unscored = card.total_environments - card.games_scored
    if card.formula and n_unscored:
        reasons = f"{counted_noun(n_unscored, 'game')} (see the reasons below)"
        facts.append(("Without a score", reasons))
    return [f"- **{name}**: {value}" for name, value in facts]


def _agent_facts(meta: RunMeta) -> list[tuple[str, str]]:
    """What the agent said about itself; of each trial apart, where they differ."""
    facts = []
    for one in meta.agents:
        words = [f"model {one.model}"] if one.model and len(meta.agents) > 1 else []
        words += [f"version {one.version}"] if one.version else []
        words += [f"{name} {setting_words(value)}" for name, value in one.setup.items()]
        where = f" in {', '.join(one.trials)}" if len(meta.agents) > 1 else ""
        facts.append((escape(f"Agent{where}"), escape("; ".join(words)) or "nothing else known"))
    return facts


def setting_words(value: Any) -> str:
    """A setting that an agent reported: a list by its names, and cut."""
    if isinstance(value, list):
        names = [str(one.get("name", one)) if isinstance(one, dict) else str(one) for one in value]
        more = f" and {len(names) - 12} more" if len(names) > 12 else ""
        return ", ".join(names[:12]) + more if names else "none"
    return str(value)[:200]


def _games(card: Scorecard) -> list[str]:
    rows = [
        [
            cell_text(game.id),
            number(game.percent),
            f"{game.best.levels_completed}/{game.n_levels}",
            str(game.actions),
            str(game.resets),
            game.best.state,
        ]
        for game in card.best_first
    ]
    lines = table(["Game", "Score", "Levels", "Actions", "Resets", "State"], rows)
    remarks = [f"{game.id}: {words}" for game in card.games if (words := remark(game))]
    return [*lines, *(f"- {escape(words)}" for words in remarks)]


def _levels(card: Scorecard) -> list[str]:
    lines: list[str] = []
    for game in card.best_first:
        play = game.best
        if not game.runs:
            continue
        rows = []
        for i, taken in enumerate(play.level_actions):
            baselines = play.level_baseline_actions
            usual = baselines[i] if i < len(baselines) else None
            done = i < play.levels_completed
            ratio = f"{taken / usual:.2f}x" if done and usual and taken else "-"
            score = play.level_percents[i] if i < len(play.level_percents) else None
            rows.append([str(i + 1), number(score), str(taken), str(usual or "-"), ratio])
        head = ["Level", "Score", "Actions", "Baseline", "Efficiency"]
        lines += ["", f"### {escape(game.id)}", "", *table(head, rows)]
    return lines


def _efforts(card: Scorecard) -> list[str]:
    """What each level took, where more than the actions is known of an agent."""
    rows = [
        [
            cell_text(f"{game.id} trial {trial.trial}"),
            str(level.level),
            str(level.actions),
            number(level.seconds),
            number(level.steps, 0),
            number(level.reasoning_chars, 0),
            number(level.tokens, 0),
            money(level.cost_usd),
        ]
        for game in card.best_first
        for trial in game.trials
        for level in trial.levels
        if level.actions and level.steps is not None
    ]
    if not rows:
        return []
    head = ["Trial", "Level", "Actions", "Seconds", "Steps", "Reasoning", "Tokens", "Cost"]
    note = (
        "Reasoning in characters. Agents report tokens and cost of a whole trial: "
        "a level's part is estimated by its steps."
    )
    curve = score_by_actions(card)
    scores = [f"{n}: {number(score_at(curve, n))}" for n in BUDGETS if curve and n <= curve[-1][0]]
    within = f"**Score within so many actions a trial**: {', '.join(scores)}"
    return [*table(head, rows), "", note, *(["", within] if scores else [])]


def _tags(card: Scorecard) -> list[str]:
    rows = []
    for score in card.tags_scores:
        try:
            tag = msgspec.convert(score, TagScore, from_attributes=True)
        except msgspec.ValidationError:
            continue  # of another program
        levels = f"{tag.levels_completed}/{tag.total_levels}"
        rows.append(
            [cell_text(tag.id), str(tag.games), number(tag.score_percent), levels, str(tag.actions)]
        )
    return table(["Tag", "Games", "Score", "Levels", "Actions"], rows) if rows else []


def _analysis(card: Scorecard) -> list[str]:
    scored = [game for game in card.best_first if game.percent is not None]
    taken, usual, ratio = efficiency(card.games)
    detail = f"{counted_noun(taken, 'action')} where a person needs {usual}"
    lines = [
        f"**Top**: {_named(scored[:3])}",
        f"**Bottom**: {_named(scored[3:][-3:][::-1])}",
        "",
        f"**Overall Efficiency**: {number(ratio, 2, 'x')} ({detail})",
        "",
        "**Level Progression**:",
    ]
    for level, done, of in level_reach(card):
        lines.append(f"- Level {level}: {done}/{of} ({100 * done / of:.0f}%)")
    lost = [game for game in card.games if game.best.state == "GAME_OVER"]
    if lost:
        lines += ["", "**Failure Analysis**:"]
        lines += [f"- {escape(g.id)}: failed at level {g.best.levels_completed + 1}" for g in lost]
    return lines


def _named(games: list[GameRow]) -> str:
    return ", ".join(f"{escape(game.id)} ({number(game.percent)})" for game in games) or "none"


def cell_text(text: str) -> str:
    """A name for a cell of a table, which escapes the bar itself; `_` within a word is plain."""
    return re.sub(r"(?<=\w)\\_(?=\w)", "_", escape(text).replace("\\|", "|"))


class PastGame(msgspec.Struct, frozen=True, kw_only=True):
    run: StoredRun
    game: GameRow

    def line(self) -> str:
        """The game in one line, worded as in the reference."""
        meta, game = self.run.meta, self.game
        mark = " [unverified]" if self.run.is_unverified else ""
        return (
            f"Run {meta.run_id[:SHORT]} ({meta.timestamp[:10]}, {meta.harness}): Score "
            f"{number(game.percent)}, Levels {game.best.levels_completed}/{game.n_levels}, "
            f"{counted_noun(game.actions, 'action')}{mark}"
        )


def past_of_games(store: Store) -> tuple[dict[str, list[PastGame]], list[str]]:
    """Return the history of each game, oldest first, and the runs whose card cannot be read."""
    past: dict[str, list[PastGame]] = {}
    problems = []
    for run in store.completed():
        try:
            games = read_card(run).games
        except StoreProblem as problem:
            problems.append(problem.message)
            continue
        for game in games:
            past.setdefault(game.id, []).append(PastGame(run=run, game=game))
    return past, problems


def best_percent(past: list[PastGame]) -> float | None:
    """The best score of all runs that are not unverified."""
    known = [p.game.percent for p in past if not p.run.is_unverified]
    return max((percent for percent in known if percent is not None), default=None)
