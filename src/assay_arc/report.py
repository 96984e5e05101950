"""A report on one run, in the sections of the reference: Markdown, JSON, HTML, or a few lines."""

import html
import re
from collections.abc import Sequence
from typing import Any, NamedTuple

import msgspec

from assay.records.text import counted_noun, visible
from assay_arc import StoreProblem
from assay_arc.curves import curve_picture, score_at, score_by_actions, score_by_cost
from assay_arc.store import (
    SHORT,
    UNVERIFIED,
    GameRow,
    PlayRow,
    RunMeta,
    Scorecard,
    Store,
    StoredRun,
    TagScore,
    TrialRow,
)


def report_markdown(run: StoredRun, card: Scorecard) -> str:
    parts = [
        ["# ARC-AGI-3 Benchmark Report", "", *_header(run, card)],
        ["## Per-Environment Breakdown", "", *_breakdown(card)],
        ["## Per-Level Detail", *_levels(card)],
        _effort(card),
        _tags(card),
        ["## Performance Analysis", "", *_analysis(card)],
    ]
    return visible("\n\n".join("\n".join(part).rstrip() for part in parts if part) + "\n")


def report_summary(run: StoredRun, card: Scorecard) -> str:
    mark = " [unverified]" if is_unverified(run) else ""
    unplayed = f", {card.games_not_played} not played" if card.games_not_played else ""
    done = f"{card.total_environments_completed}/{card.total_environments} completed"
    lines = [
        f"{run.label}{mark}: {_score(card)}{_lost(run)}",
        f"Environments: {done}{unplayed}",
        f"Levels: {card.total_levels_completed}/{card.total_levels}",
        f"Actions: {actions_words(card)}, resets: {card.total_resets}, "
        f"cost: {money(card.cost_usd)}",
    ]
    return "\n".join(lines)


def unmeasured_words(meta: RunMeta) -> str:
    """How much of a run says nothing about the agent; empty if all of it does."""
    if not meta.not_measured:
        return ""
    noun = "game" if meta.trials == 1 else "trial"
    total = counted_noun(meta.games_total * meta.trials, noun)
    return f"{len(meta.not_measured)} of {total} not measured"


def _n_lost(meta: RunMeta, card: Scorecard) -> int:
    """The games that no trial measured."""
    return max(meta.games_total - len(card.games), 0) if meta.not_measured else 0


def missing_game(run: StoredRun, card: Scorecard, name: str) -> StoreProblem:
    """Say why a run has no such game: it was not measured, or not played."""
    for trial_id, why in run.meta.not_measured.items():
        if name in (trial_id, trial_id.split(".trial-")[0], trial_id.split("-")[0]):
            msg = f"Game {name} of run {run.meta.run_id} was not measured: {why}"
            return StoreProblem(msg)
    msg = f"Game {name} is not in run {run.meta.run_id}"
    names = ", ".join(game.id for game in card.games)
    return StoreProblem(msg, hint=f"it has: {names}" if names else "no game of it was measured")


def _score(card: Scorecard) -> str:
    return f"{number(card.percent, 2)} / 100" if card.games else "no score"


def _lost(run: StoredRun) -> str:
    words = unmeasured_words(run.meta)
    return f"; {words}" if words else ""


def report_json(run: StoredRun, card: Scorecard) -> dict[str, Any]:
    """The fields of the reference's report.json, scores in percent, and our own."""
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
        "total_actions_claimed": card.total_actions_claimed,
        "games_not_played": card.games_not_played,
        "total_resets": card.total_resets,
        "cost_usd": card.cost_usd,
        "cost_per_level_usd": cost_per_level(card),
        "verified": meta.verified,
        "not_measured": meta.not_measured,
        "games_not_measured": _n_lost(meta, card),
        "official": meta.official,
        "tools": meta.tools,
        "tokens": card.tokens,
        "reasoning_chars": card.reasoning_chars,
        "score_by_actions": score_by_actions(card),
        "score_by_cost": score_by_cost(card),
        "tags": card.tags_scores,
        "games": [_game_json(game) for game in by_score(card)],
    }


def by_score(card: Scorecard) -> list[GameRow]:
    """Sort games best first; those without a score last."""
    return sorted(card.games, key=lambda game: (game.percent is None, -(game.percent or 0)))


def is_unverified(run: StoredRun) -> bool:
    """Whether nobody could check this run."""
    return run.meta.verified == UNVERIFIED or (run.imported and run.meta.verified is None)


def run_name(run: StoredRun) -> str:
    """The label of a run, with a mark where nobody could check it."""
    return run.label + (" [unverified]" if is_unverified(run) else "")


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


def _header(run: StoredRun, card: Scorecard) -> list[str]:
    meta = run.meta
    done = f"{card.total_environments_completed} / {card.total_environments}"
    scorer = f" ({card.scorer or 'seed 1.0.0'})" if card.games else ""
    n_games = counted_noun(max(meta.games_total, card.total_environments), "game")
    facts = [
        ("Run ID", meta.run_id),
        ("Date", meta.timestamp),
        ("Duration", f"{meta.duration_seconds:.0f} s"),
        ("Harness", f"{meta.harness} ({meta.harness_config.model})"),
        ("Game Set", f"{meta.game_set} ({n_games}, {counted_noun(meta.trials, 'trial')})"),
        ("Seed", str(meta.seed)),
        ("Limits", f"{_most(meta.max_steps, 'step')}, {_most(meta.max_resets, 'reset')}"),
        ("Card ID", card.card_id),
        ("Competition Mode", str(card.competition_mode)),
        *_official(meta),
        ("Verified", verified_words(run)),
        ("Overall Score", f"{_score(card)}{scorer}{_lost(run)}"),
        ("Environments Completed", done),
        ("Levels Completed", f"{card.total_levels_completed} / {card.total_levels}"),
        ("Total Actions", actions_words(card)),
        ("Total Resets", str(card.total_resets)),
        ("Cost", f"{money(card.cost_usd)} ({money(cost_per_level(card))} per level)"),
        *([("Tokens", f"{card.tokens:,}")] if card.tokens is not None else []),
        ("Plugins", ", ".join(meta.harness_config.plugins) or "none"),
        ("MCP Servers", ", ".join(meta.harness_config.mcp_servers) or "none"),
        *([("Tools", ", ".join(meta.tools))] if meta.tools is not None else []),
    ]
    lines = [f"- **{name}**: {value}" for name, value in facts]
    if meta.transcripts:
        lines.append(f"- **Transcripts**: {', '.join(meta.transcripts)}")
    lines += [f"- **Not measured**: {name}: {why}" for name, why in meta.not_measured.items()]
    lost = card.total_environments - card.games_scored
    if card.formula and lost:
        lines.append(f"- **Without a score**: {counted_noun(lost, 'game')} (see the reasons below)")
    return lines


def _official(meta: RunMeta) -> list[tuple[str, str]]:
    card = meta.official
    if card is None:
        return []
    score = number(card.score_percent, 2) if card.closed else "not closed yet"
    return [("Official Scorecard", f"{card.card_id} ({score} / 100), {card.url}")]


def _breakdown(card: Scorecard) -> list[str]:
    rows = [
        [
            game.id,
            number(game.percent),
            f"{game.best.levels_completed}/{game.n_levels}",
            str(game.actions),
            str(game.resets),
            game.best.state,
        ]
        for game in by_score(card)
    ]
    lines = table(["Game", "Score", "Levels", "Actions", "Resets", "State"], rows)
    return [*lines, *(f"- {game.id}: {words}" for game in card.games if (words := remark(game)))]


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


def _levels(card: Scorecard) -> list[str]:
    lines: list[str] = []
    for game in by_score(card):
        play = game.best
        if not game.runs:
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


def _effort(card: Scorecard) -> list[str]:
    """What each level took, where more than the actions is known of an agent."""
    rows = [
        [
            f"{game.id} trial {trial.trial}",
            str(level.level),
            str(level.actions),
            number(level.seconds),
            number(level.steps, 0),
            number(level.reasoning_chars, 0),
            number(level.tokens, 0),
            money(level.cost_usd),
        ]
        for game in by_score(card)
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
    return ["## Effort per Level", "", *table(head, rows), "", note, *_curve_lines(card)]


def _curve_lines(card: Scorecard) -> list[str]:
    curve = score_by_actions(card)
    shown = [f"{n}: {number(score_at(curve, n))}" for n in BUDGETS if curve and n <= curve[-1][0]]
    return ["", f"**Score within so many actions a trial**: {', '.join(shown)}"] if shown else []


def _tags(card: Scorecard) -> list[str]:
    rows = []
    for score in card.tags_scores:
        try:
            tag = msgspec.convert(score, TagScore, from_attributes=True)
        except msgspec.ValidationError:
            continue  # of another program
        levels = f"{tag.levels_completed}/{tag.total_levels}"
        rows.append([tag.id, str(tag.games), number(tag.score_percent), levels, str(tag.actions)])
    head = ["Tag", "Games", "Score", "Levels", "Actions"]
    return ["## Scores by Tag", "", *table(head, rows)] if rows else []


def _analysis(card: Scorecard) -> list[str]:
    scored = [game for game in by_score(card) if game.percent is not None]
    top, rest = scored[:3], scored[3:]
    lines = ["**Top**: " + (_named(top) or "none")]
    lines.append("**Bottom**: " + (_named(rest[-3:][::-1]) or "none"))
    spent = efficiency(card.games)
    detail = f"{counted_noun(spent.actions, 'action')} where a person needs {spent.baseline}"
    lines += ["", f"**Overall Efficiency**: {number(spent.ratio, 2, 'x')} ({detail})"]
    lines += ["", "**Level Progression**:"]
    for level, done, of in level_reach(card):
        lines.append(f"- Level {level}: {done}/{of} ({100 * done / of:.0f}%)")
    lost = [game for game in card.games if game.best.state == "GAME_OVER"]
    if lost:
        lines += ["", "**Failure Analysis**:"]
        lines += [f"- {g.id}: failed at level {g.best.levels_completed + 1}" for g in lost]
    return lines


def _game_json(game: GameRow) -> dict[str, Any]:
    play = game.best
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
        "level_actions": play.level_actions,
        "level_baselines": play.level_baseline_actions,
        "efficiency": [taken / usual for taken, usual in completed_levels(play)],
        "stop_reasons": [trial.stop_reason for trial in game.trials],
        "trials": [
            {
                "trial": trial.trial,
                "score": trial.score_percent,
                "actions": trial.actions,
                "tokens": trial.tokens,
                "reasoning_tokens": trial.reasoning_tokens,
                "reasoning_chars": trial.reasoning_chars,
                "cost_usd": trial.cost_usd,
                "levels": trial.levels,
            }
            for trial in game.trials
        ],
    }


def _named(games: list[GameRow]) -> str:
    return ", ".join(f"{game.id} ({number(game.percent)})" for game in games)


def _most(limit: int | None, noun: str) -> str:
    return f"no limit of {noun}s" if limit is None else counted_noun(limit, noun)


BUDGETS = (10, 25, 50, 100, 200, 500, 1000)


class Efficiency(NamedTuple):
    """Actions on completed levels against what a person needs."""

    actions: int
    baseline: int

    @property
    def ratio(self) -> float | None:
        """Actions for each action of a person; lower is better."""
        return self.actions / self.baseline if self.baseline else None


def all_trials(card: Scorecard) -> list[TrialRow]:
    """Every trial of a card; a card of the reference has one for each game."""
    return [trial for game in card.games for trial in game.trials or _reference_trial(game)]


def part_of_card(card: Scorecard, game_ids: Sequence[str]) -> Scorecard:
    """The card as if only these games had been chosen; its scores are left out."""
    part = msgspec.structs.replace(card, games=[g for g in card.games if g.id in game_ids])
    trials = all_trials(part)
    costs = [trial.cost_usd for trial in trials if trial.cost_usd is not None]
    part.cost_usd = sum(costs) if costs else None
    part.total_levels_completed = sum(trial.levels_completed for trial in trials)
    part.total_levels = sum(trial.total_levels for trial in trials)
    part.total_actions = sum(trial.actions for trial in trials)
    part.score = part.score_percent = None
    return part


def efficiency(games: Sequence[GameRow]) -> Efficiency:
    """Add up the completed levels of the best play of each game."""
    pairs = [pair for game in games for pair in completed_levels(game.best)]
    return Efficiency(sum(taken for taken, _ in pairs), sum(usual for _, usual in pairs))


def completed_levels(play: PlayRow) -> list[tuple[int, int]]:
    """Actions and baseline of each completed level that has both."""
    pairs = zip(play.level_actions, play.level_baseline_actions, strict=False)
    done = list(pairs)[: play.levels_completed]
    return [(taken, usual) for taken, usual in done if taken > 0 and usual]


def level_reach(card: Scorecard) -> list[tuple[int, int, int]]:
    """For each level: its number, trials that completed it, trials whose game has it."""
    trials = all_trials(card)
    most = max((trial.total_levels for trial in trials), default=0)
    return [
        (
            level,
            sum(trial.levels_completed >= level for trial in trials),
            sum(trial.total_levels >= level for trial in trials),
        )
        for level in range(1, most + 1)
    ]


def progress_curve(card: Scorecard, budgets: Sequence[int] = BUDGETS) -> list[float | None]:
    """The mean share of levels completed within each budget of actions."""
    trials = [trial for game in card.games for trial in game.trials if trial.total_levels]
    if not trials:
        return [None for _ in budgets]
    return [
        sum(sum(at <= budget for at in t.progress) / t.total_levels for t in trials) / len(trials)
        for budget in budgets
    ]


def cost_per_level(card: Scorecard) -> float | None:
    """The cost of a completed level; None when it is unknown or none was completed."""
    if card.cost_usd is None or card.total_levels_completed == 0:
        return None
    return card.cost_usd / card.total_levels_completed


def _reference_trial(game: GameRow) -> list[TrialRow]:
    play = game.best
    if not game.runs:
        return []
    return [
        TrialRow(
            trial=1,
            score_percent=game.percent,
            levels_completed=play.levels_completed,
            total_levels=play.number_of_levels,
            won=play.completed,
            state=play.state,
            stop_reason="unknown",
            actions=play.actions,
            steps=play.actions,
            resets=play.resets,
        )
    ]


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Write a Markdown table with aligned columns, all but the first to the right."""
    cells = [[_safe(cell) for cell in row] for row in (head, *rows)]
    widths = [max(3, *(len(row[i]) for row in cells)) for i in range(len(head))]

    def line(row: Sequence[str]) -> str:
        parts = [
            text.ljust(width) if i == 0 else text.rjust(width)
            for i, (text, width) in enumerate(zip(row, widths, strict=True))
        ]
        return f"| {' | '.join(parts)} |"

    rule = ["-" * width if i == 0 else "-" * (width - 1) + ":" for i, width in enumerate(widths)]
    return [line(cells[0]), line(rule), *(line(row) for row in cells[1:])]


def number(value: float | None, digits: int = 1, unit: str = "") -> str:
    """Format a number; an unknown one is a dash, never a zero."""
    return "-" if value is None else f"{value:.{digits}f}{unit}"


def signed(value: float | None, digits: int = 1, unit: str = "") -> str:
    return "-" if value is None else f"{value:+.{digits}f}{unit}"


def money(value: float | None) -> str:
    return "-" if value is None else f"${value:.4f}"


def _safe(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


STYLE = """
:root{color-scheme:light dark}body{font:15px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem
auto;padding:0 1rem}table{border-collapse:collapse;margin:.5rem 0}td,th{padding:.2rem .7rem;
border-bottom:1px solid #8884;text-align:right}td:first-child,th:first-child{text-align:left}
code,pre{font:13px monospace}h1{font-size:1.5rem}h2{font-size:1.2rem;margin-top:2rem}
"""


def report_pictures(card: Scorecard) -> list[str]:
    """The score against actions and, where it is known, against cost."""
    return [
        curve_picture("Score against actions a trial", "actions", score_by_actions(card)),
        curve_picture("Score against cost a trial", "$", score_by_cost(card)),
    ]


def markdown_page(title: str, text: str, pictures: Sequence[str] = ()) -> str:
    """Turn one of our own reports (headings, lists, tables, bold) into a page, pictures last."""
    body = "\n".join([*_blocks(text.splitlines()), *filter(None, pictures)])
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{_text(title)}'
        f"</title><style>{STYLE}</style></head>\n<body>\n{body}\n</body></html>\n"
    )


def _blocks(lines: list[str]) -> list[str]:
    out: list[str] = []
    i = 0
    while i < len(lines):
        line = lines[i]
        j = i + 1
        if line.startswith("#"):
            level = len(line) - len(line.lstrip("#"))
            out.append(f"<h{level}>{_text(line.lstrip('# '))}</h{level}>")
        elif line.startswith(("|", "- ")):
            first = line[:1]
            while j < len(lines) and lines[j].startswith(first):
                j += 1
            out.append(_table(lines[i:j]) if first == "|" else _list(lines[i:j]))
        elif line.strip():
            out.append(f"<p>{_text(line)}</p>")
        i = j
    return out


def _table(lines: list[str]) -> str:
    # A pipe behind a backslash belongs to the cell: see _safe.
    rows = [re.split(r"(?<!\\)\|", line)[1:-1] for line in lines]
    head = "".join(f"<th>{_text(cell)}</th>" for cell in rows[0])
    body = "".join(
        "<tr>" + "".join(f"<td>{_text(cell)}</td>" for cell in row) + "</tr>" for row in rows[2:]
    )
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def _list(lines: list[str]) -> str:
    return "<ul>" + "".join(f"<li>{_text(line[2:])}</li>" for line in lines) + "</ul>"


def _text(text: str) -> str:
    plain = html.escape(text.strip().replace("\\|", "|"))
    return re.sub(r"\*\*(.+?)\*\*", r"<b>\1</b>", plain)


class PastGame(msgspec.Struct, frozen=True, kw_only=True):
    run: StoredRun
    game: GameRow

    def line(self) -> str:
        """The game in one line, worded as in the reference."""
        meta, game = self.run.meta, self.game
        mark = " [unverified]" if is_unverified(self.run) else ""
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
            games = run.card().games
        except StoreProblem as problem:
            problems.append(problem.message)
            continue
        for game in games:
            past.setdefault(game.id, []).append(PastGame(run=run, game=game))
    return past, problems


def best_percent(past: list[PastGame]) -> float | None:
    """The best score of all runs that are not unverified."""
    known = [p.game.percent for p in past if not is_unverified(p.run)]
    return max((percent for percent in known if percent is not None), default=None)
