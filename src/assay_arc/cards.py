"""scorecard.json and environment-scores.json with the reference's fields, built from logs alone."""

import hashlib
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
from msgspec import UNSET

from assay.records.capture import Failure
from assay.records.rows import decode_row, read_lines
from assay.records.trial import NUMBER
from assay_arc import StoreProblem
from assay_arc.effort import (
    AgentEffort,
    CurvePoint,
    LevelEffort,
    StepTime,
    level_efforts,
    score_curve,
)
from assay_arc.log import read_log
from assay_arc.scoring import (
    FIRST_PLAY,
    OFFICIAL,
    SEED,
    GameResult,
    Score,
    derive_result,
    game_failure,
    score_game,
)
from assay_arc.seal import digests, write_seal
from assay_arc.store import (
    CARD,
    META,
    RECORDED,
    SCORES,
    UNVERIFIED,
    EnvironmentScore,
    EnvironmentScores,
    GameRow,
    LevelScore,
    PlayRow,
    ReportedAgent,
    RunMeta,
    Scorecard,
    StoredRun,
    TagScore,
    TrialRow,
    read_json,
    write_json,
)


class PlayedTrial(msgspec.Struct, frozen=True, kw_only=True):
    """One trial of one game: its result, where it comes from, and what it cost."""

    result: GameResult
    trial: int = 1
    title: str = ""
    tags: tuple[str, ...] = ()
    source_sha256: str | None = None
    claimed_actions: int | None = None
    game_failure: str | None = None
    cost_usd: float | None = None
    tokens: int | None = None
    reasoning_tokens: int | None = None
    reasoning_chars: int | None = None
    levels: list[LevelEffort] = []
    curve: list[CurvePoint] = []
    log: str | None = None
    log_sha256: str | None = None
    verified: str | None = None


def build_card(run_id: str, played: Sequence[PlayedTrial], formula: str = OFFICIAL) -> Scorecard:
    """Build scorecard.json; formula is what score_percent is computed with."""
    by_game: dict[str, list[PlayedTrial]] = {}
    for one in sorted(played, key=lambda one: (one.result.game_id, one.trial)):
        by_game.setdefault(one.result.game_id, []).append(one)
    games = [_game_row(game_id, trials, formula) for game_id, trials in by_game.items()]
    trials = [trial for game in games for trial in game.trials]
    costs = [trial.cost_usd for trial in trials if trial.cost_usd is not None]
    known = [game.score_percent for game in games if game.score_percent is not None]
    scorer = score_game(played[0].result, formula).scorer if played else None
    return Scorecard(
        card_id=run_id,
        score=_mean([game.score for game in games]),
        total_environments_completed=sum(any(t.won for t in game.trials) for game in games),
        total_environments=len(games),
        total_levels_completed=sum(trial.levels_completed for trial in trials),
        total_levels=sum(trial.total_levels for trial in trials),
        total_actions=sum(trial.actions for trial in trials),
        total_resets=sum(trial.resets for trial in trials),
        total_actions_claimed=_claimed(trials),
        games_not_played=sum(not game.is_played for game in games),
        games=games,
        score_percent=_mean(known),
        formula=formula,
        scorer=scorer,
        games_scored=len(known),
        cost_usd=sum(costs) if costs else None,
        tokens=_sum(trial.tokens for trial in trials),
        reasoning_chars=_sum(trial.reasoning_chars for trial in trials),
        tags_scores=_tag_scores(games),
        verified=_weakest(trials),
    )


def build_environment_scores(card: Scorecard) -> EnvironmentScores:
    return EnvironmentScores(
        run_id=card.card_id,
        overall_score=None if card.score is None else card.score * 100,
        official_percent=card.percent,
        environments=[_environment(game) for game in card.games],
    )


def progress_of(result: GameResult) -> list[int]:
    """Count the actions of all plays until each level was first completed."""
    reached: list[int] = []
    before = 0
    for play in result.plays:
        for level, actions in play.marks:
            while len(reached) < min(level, result.level_count):
                reached.append(before + actions)
        before += play.actions
    return reached


def _game_row(game_id: str, played: Sequence[PlayedTrial], formula: str) -> GameRow:
    first = played[0]
    scores = [score_game(one.result, formula) for one in played]
    fractions = [score_game(one.result, SEED).score_fraction for one in played]
    reasons = [score.reason for score in scores if score.reason]
    percents = [_percent(score) for score in scores]
    return GameRow(
        id=game_id,
        score=_mean(fractions),
        runs=[row for one in played for row in _play_rows(one, formula)],
        title=first.title or game_id,
        tags=list(first.tags),
        score_percent=_mean(percents),
        score_reason=reasons[0] if reasons else None,
        source_sha256=first.source_sha256,
        level_count=first.result.level_count,
        baselines=list(first.result.baselines) if first.result.baselines else None,
        trials=[
            _trial_row(one, percent, fraction)
            for one, percent, fraction in zip(played, percents, fractions, strict=True)
        ],
    )


def _trial_row(one: PlayedTrial, percent: float | None, fraction: float | None) -> TrialRow:
    result = one.result
    return TrialRow(
        trial=one.trial,
        score_percent=percent,
        score_fraction=fraction,
        first_play_percent=score_game(result, FIRST_PLAY).score_percent,
        levels_completed=result.levels_completed,
        total_levels=result.level_count,
        won=result.won,
        state=result.state,
        stop_reason=result.stop_reason,
        actions=sum(play.actions for play in result.plays),
        steps=result.steps,
        resets=result.resets,
        claimed_actions=one.claimed_actions,
        game_failure=one.game_failure,
        duration_s=result.duration_s,
        cost_usd=one.cost_usd,
        tokens=one.tokens,
        reasoning_tokens=one.reasoning_tokens,
        reasoning_chars=one.reasoning_chars,
        levels=one.levels,
        curve=one.curve,
        progress=progress_of(result),
        log=one.log,
        log_sha256=one.log_sha256,
        verified=one.verified,
    )


def _play_rows(one: PlayedTrial, formula: str) -> list[PlayRow]:
    """The plays of a trial; their guids are derived, so that rescoring does not change them."""
    result = one.result
    rows = []
    for play in result.plays:
        # score_game takes the best of all plays, so each is scored alone.
        alone = msgspec.structs.replace(result, plays=(play,))
        reference, chosen = score_game(alone, SEED), score_game(alone, formula)
        name = f"{result.game_id}/{result.started_at}/{one.trial}/{play.index}"
        rows.append(
            PlayRow(
                id=result.game_id,
                guid=str(uuid.uuid5(uuid.NAMESPACE_URL, name)),
                score=reference.score_fraction,
                levels_completed=play.levels_completed,
                actions=play.actions,
                resets=play.resets,
                state=play.state,
                completed=play.state == "WIN",
                level_scores=list(reference.level_scores_fraction or [0.0] * result.level_count),
                level_actions=[level.actions for level in play.levels],
                level_baseline_actions=[level.baseline for level in play.levels],
                number_of_levels=result.level_count,
                trial=one.trial,
                play=play.index,
                score_percent=_percent(chosen),
                level_scores_percent=list(_level_percents(chosen)),
            )
        )
    return rows


def _environment(game: GameRow) -> EnvironmentScore:
    best = game.best
    return EnvironmentScore(
        game_id=game.id,
        title=game.title,
        tags=game.tags,
        score=None if game.score is None else game.score * 100,
        official_percent=game.percent,
        score_reason=game.score_reason,
        levels_completed=best.levels_completed,
        total_levels=game.n_levels,
        total_actions=sum(trial.actions for trial in game.trials),
        total_resets=sum(trial.resets for trial in game.trials),
        state=best.state,
        completed=best.completed,
        levels=[
            LevelScore(
                level_index=i + 1,
                score=score * 100,
                actions_taken=actions,
                baseline_actions=baseline,
                completed=i < best.levels_completed,
            )
            for i, (score, actions, baseline) in enumerate(
                zip(
                    best.level_scores, best.level_actions, best.level_baseline_actions, strict=False
                )
            )
        ],
        trials=len(game.trials),
        total_actions_claimed=_claimed(game.trials),
        verified=_weakest(game.trials),
    )


def _percent(score: Score) -> float | None:
    if score.score_fraction is not None:
        return score.score_fraction * 100
    return score.score_percent


def _level_percents(score: Score) -> Sequence[float]:
    if score.level_scores_fraction is not None:
        return [fraction * 100 for fraction in score.level_scores_fraction]
    return score.level_scores_percent or ()


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None


def _tag_scores(games: Sequence[GameRow]) -> list[TagScore]:
    scores = []
    for tag in sorted({tag for game in games for tag in game.tags}):
        tagged = [game for game in games if tag in game.tags]
        trials = [trial for game in tagged for trial in game.trials]
        scores.append(
            TagScore(
                id=tag,
                games=len(tagged),
                score=_mean([game.score for game in tagged]),
                score_percent=_mean([game.score_percent for game in tagged]),
                levels_completed=sum(trial.levels_completed for trial in trials),
                total_levels=sum(trial.total_levels for trial in trials),
                actions=sum(trial.actions for trial in trials),
            )
        )
    return scores


def _sum(values: Iterable[int | None]) -> int | None:
    known = [value for value in values if value is not None]
    return sum(known) if known else None


def _claimed(trials: Sequence[TrialRow]) -> int | None:
    return _sum(trial.claimed_actions for trial in trials)


def _weakest(trials: Sequence[TrialRow]) -> str | None:
    """A whole is only as well verified as its weakest part; what was not played needs no proof."""
    order = [None, "unverified", "recorded", "replayed"]
    marks = [trial.verified for trial in trials if trial.state != "NOT_PLAYED"]
    return min(marks, key=order.index) if marks else None


RESULTS, LOGS, PLAYED = "results.jsonl", "logs", "played.json"


class _Usage(msgspec.Struct, rename="camel"):
    cost_usd: float | None = None
    input_tokens: int | None = None
    output_tokens: int | None = None
    reasoning_tokens: int | None = None


class _RowScore(msgspec.Struct):
    score: float | None = None


class _Entry(msgspec.Struct, rename="camel"):
    """One trial: the part of a capture or of an entry of trials that is needed here."""

    number: int = msgspec.field(name=NUMBER, default=0)
    metadata: dict[str, Any] = {}
    usage: _Usage | None = None
    failure: Failure | None = None
    trajectory: list[StepTime] = []
    agent: dict[str, Any] = {}
    setup: dict[str, Any] = {}
    score: _RowScore | float | None = None
    """The grade of a capture; of an entry of trials, its score alone."""

    @property
    def effort(self) -> AgentEffort:
        used = self.usage or _Usage()
        return AgentEffort(
            steps=self.trajectory,
            tokens=_sum((used.input_tokens, used.output_tokens)),
            reasoning_tokens=used.reasoning_tokens,
            cost_usd=used.cost_usd,
        )

    @property
    def evidence(self) -> dict[str, Any]:
        return self.metadata.get("evidence") or {}


class _Row(_Entry, rename="camel", kw_only=True):
    """A game with one trial, with several, or a finished trial of a game that is not complete."""

    id: str
    trials: list[_Entry] = []
    entry: _Entry | None = None


def read_entries(folder: Path) -> Iterator[tuple[str, int, _Entry]]:
    """Yield the trials of a run: the id of each, its number, and what is known of it."""
    for name in (RESULTS, f"{RESULTS}.partial"):
        for place, line in read_lines(folder / name) if (folder / name).is_file() else ():
            row, _ = decode_row(place, line, _Row)
            entries = row.trials or ([row.entry] if row.entry else [])
            for entry in entries:
                yield f"{row.id}.trial-{entry.number}", entry.number, entry
            if not entries:
                yield row.id, int(row.metadata.get("trial", 1)), row


def derive_played(
    folder: Path, meta: RunMeta, *, sealed: bool = True
) -> tuple[list[PlayedTrial], dict[str, str]]:
    """Return every measured trial of a run, and why each of the others is not measured.

    sealed: whether the marks of an import are known to be those that we gave.
    """
    if (folder / PLAYED).is_file():  # an imported run
        return [_derive_again(folder, one, sealed=sealed) for one in read_played(folder)], {}
    if not (folder / RESULTS).is_file():
        msg = f"{folder} has neither {RESULTS} nor {PLAYED}, so there is nothing to score"
        raise StoreProblem(msg)
    played, lost = {}, {}
    for trial_id, number, entry in read_entries(folder):
        failure = entry.failure
        # A failure that is not the agent's is never a score of zero.
        if failure is not None and not failure.cause.measures_agent:
            lost[trial_id] = f"{failure.cause.words}: {failure.message}"
        elif not entry.evidence.get("log"):
            lost[trial_id] = "the trial has no game log"
        else:
            name = str(entry.evidence["log"])
            one = played_from_log(folder, name, number, entry.effort, meta.verified)
            tags = meta.game_tags.get(one.result.game_id, ())
            played[trial_id] = msgspec.structs.replace(one, tags=tuple(tags))
    # A trial that was run again has a later row.
    return list(played.values()), {name: why for name, why in lost.items() if name not in played}


def read_agents(folder: Path) -> list[ReportedAgent]:
    """What the agents said about themselves, one entry for all trials in which it is the same."""
    by_trial = {trial_id: entry for trial_id, _, entry in read_entries(folder)}
    found: dict[bytes, ReportedAgent] = {}
    for trial_id, entry in by_trial.items():
        model, version = (entry.agent.get(name) for name in ("model", "version"))
        one = ReportedAgent(
            model=str(model) if model else None,
            version=str(version) if version else None,
            setup=entry.setup,
        )
        key = msgspec.json.encode(one, order="sorted")
        found.setdefault(key, one).trials.append(trial_id)
    return [one for one in found.values() if one.model or one.setup]


def read_tampering(folder: Path) -> dict[str, list[str]]:
    """What players did to files that are not their own and to their games, by trial."""
    found: dict[str, list[str]] = {}
    for trial_id, _, entry in read_entries(folder):
        said = [str(words) for words in entry.evidence.get("tampered", ())]
        failure = entry.evidence.get("failure") or {}
        if failure.get("cause") == "agent_crash":
            said.append(str(failure.get("message")))
        if said:
            found[trial_id] = said
    return found


def missing_logs(folder: Path) -> list[str]:
    """The logs of measured trials that are not in the folder of a run."""
    return [name for name in log_names(folder) if not (folder / name).is_file()]


def log_names(folder: Path) -> list[str]:
    """The logs of measured trials, as the rows name them."""
    if (folder / PLAYED).is_file():
        names = [one.log for one in read_played(folder) if one.log]
    elif (folder / RESULTS).is_file():
        names = [
            str(entry.evidence["log"])
            for _, _, entry in read_entries(folder)
            if entry.evidence.get("log")
            and (entry.failure is None or entry.failure.cause.measures_agent)
        ]
    else:
        names = []
    return list(dict.fromkeys(names))


DERIVED = (CARD, SCORES)


def read_card(run: StoredRun) -> Scorecard:
    """The scores that follow from the logs of a run.

    They are read from scorecard.json only where the seal shows that it is the one that was derived
    from these logs. Raises if it says anything else. A run whose logs or rows are not as they were
    is marked as unverified.
    """
    if run.problem:
        raise contradiction(run, run.problem)
    card, seal = _stored_card(run), run.seal
    changed = seal.changed(run.folder) if seal else []
    kept = [name for name in changed if name not in DERIVED]
    if seal and CARD in seal.files and CARD not in changed:
        if SCORES in changed:
            raise contradiction(run, f"{SCORES} was changed: {_score_of(card)} are the scores")
        for name in kept[:1]:
            run.distrust(_damage(run.folder, name))
        return _as_unverified(card) if kept else card
    if kept:
        raise contradiction(run, f"{CARD} was changed, and so was {kept[0]}")
    derived = derive_card(run, card.formula)
    if derived is None:  # of the reference, which keeps no logs
        return card
    if words := card_difference(card, derived, exactly=seal is not None):
        raise contradiction(run, words)
    return derived


def derive_card(run: StoredRun, formula: str | None = OFFICIAL) -> Scorecard | None:
    """Compute the scores of a run from its logs; None if it has nothing to derive them from."""
    if not any((run.folder / name).is_file() for name in (PLAYED, RESULTS)):
        return None
    played, lost = derive_played(run.folder, run.meta, sealed=run.seal is not None)
    return score_card(run.meta, played, formula or OFFICIAL, not_measured=lost)


def check_sealed(run: StoredRun) -> None:
    """Raise if the metadata, the rows or the logs of a sealed run are not as they were."""
    if run.problem:
        raise contradiction(run, run.problem)
    changed = run.seal.changed(run.folder) if run.seal else []
    for name in (name for name in changed if name not in DERIVED):
        msg = f"run {run.meta.run_id}: {_damage(run.folder, name)}"
        shown = f"assay arc report {run.meta.run_id}{run.store.option}"
        raise StoreProblem(msg, hint=f"put the file back; the scores of before: {shown}")


def check_rows(run: StoredRun) -> None:
    """Raise if rows say more than their logs give: by the seal, or else by the logs themselves."""
    check_sealed(run)
    if run.seal is not None:
        return
    for trial_id, _, entry in read_entries(run.folder):
        log = entry.evidence.get("log")
        said = entry.score.score if isinstance(entry.score, _RowScore) else entry.score
        if log and said is not None:
            result = derive_result(read_log(find_log(run.folder, str(log))))
            percent = _percent(score_game(result))
            if percent is not None and _differ(said * 100, percent):
                words = f"{RESULTS} says {said * 100:.2f}, but its log gives {percent:.2f}"
                raise contradiction(run, f"{trial_id}: {words}")


def primary_files(folder: Path) -> list[str]:
    """The names of what scores are derived from: rows and logs."""
    return [RESULTS, PLAYED, *log_names(folder)]


def seal_run(folder: Path, meta: RunMeta, files: Mapping[str, str] | None = None) -> None:
    """Write run-meta.json, and seal it with its files; their digests are those of now, or files."""
    if files is None:
        files = digests(folder, [*primary_files(folder), *DERIVED])
    write_seal(folder, meta, files)
    write_json(folder / META, meta)


def _stored_card(run: StoredRun) -> Scorecard:
    try:
        return read_json(run.folder / CARD, Scorecard)
    except StoreProblem as problem:
        msg = f"run {run.meta.run_id}: {problem.message} (status: {run.meta.status})"
        again = f"assay arc rescore {run.meta.run_id} --write{run.store.option}"
        hint = f"create it again with: {again}"
        if run.is_unfinished:
            hint = f"continue the run with: {run.resume_command}"
        raise StoreProblem(msg, hint=hint) from None


def contradiction(run: StoredRun, words: str) -> StoreProblem:
    msg = f"run {run.meta.run_id}: {words}"
    hint = f"put it right from the logs with: assay arc verify {run.meta.run_id}{run.store.option}"
    return StoreProblem(msg, hint=hint)


def _damage(folder: Path, name: str) -> str:
    what = "was changed after the run" if (folder / name).is_file() else "is missing"
    return f"{name} {what}"


def _as_unverified(card: Scorecard) -> Scorecard:
    for trial in (trial for game in card.games for trial in game.trials if trial.verified):
        trial.verified = UNVERIFIED
    card.verified = UNVERIFIED
    return card


def _score_of(card: Scorecard) -> str:
    return "no score" if card.percent is None else f"{card.percent:.2f} / 100"


def card_difference(found: Scorecard, derived: Scorecard, *, exactly: bool) -> str | None:
    """Say what a card says that its logs do not; not exactly: only its scores and counts."""
    if _differ(found.percent, derived.percent):
        return f"{CARD} says {_score_of(found)}, but its logs give {_score_of(derived)}"
    games = {game.id: game for game in derived.games}
    if [game.id for game in found.games] != list(games):
        names = (", ".join(one.id for one in card.games) or "none" for card in (found, derived))
        return "{} has the games {}, but its logs are of {}".format(CARD, *names)
    for game in found.games:
        for name in ("percent", "n_levels", "actions", "resets"):
            said, true = getattr(game, name), getattr(games[game.id], name)
            if _differ(said, true):
                return f"{CARD} says {name} {said} of {game.id}, but its log gives {true}"
    if exactly and msgspec.json.encode(found) != msgspec.json.encode(derived):
        return f"{CARD} was changed after the run; its scores are still {_score_of(derived)}"
    return None


def _differ(one: float | None, other: float | None) -> bool:
    if one is None or other is None:
        return one is not other
    return abs(one - other) > 1e-9


def score_card(
    meta: RunMeta,
    played: Sequence[PlayedTrial],
    formula: str = OFFICIAL,
    *,
    not_measured: dict[str, str] | None = None,
) -> Scorecard:
    """The card of a run; meta says what the run took where that is not known of its trials."""
    card = build_card(meta.run_id, played, formula)
    card.not_measured = (meta.not_measured if not_measured is None else not_measured) or UNSET
    card.cost_usd = meta.cost_usd if card.cost_usd is None else card.cost_usd
    card.tokens = meta.tokens if card.tokens is None else card.tokens
    if card.reasoning_chars is None:
        card.reasoning_chars = meta.reasoning_chars
    return card


def write_card(folder: Path, card: Scorecard) -> None:
    """Write both files."""
    write_json(folder / CARD, card)
    write_json(folder / SCORES, build_environment_scores(card))


def find_log(folder: Path, name: str) -> Path:
    """The path of a log of a run; the name was read from a file, and must not lead out of it."""
    path = folder / name
    if not path.resolve().is_relative_to(folder.resolve()) or not path.is_file():
        msg = f"{path}: the log of a trial is missing"
        raise StoreProblem(msg)
    return path


def intact_log(run: StoredRun, name: str) -> Path:
    """The path of a log that is as it was when the run was sealed."""
    path = find_log(run.folder, name)
    if not is_intact(run, name):
        raise contradiction(run, _damage(run.folder, name))
    return path


def is_intact(run: StoredRun, name: str) -> bool:
    """Whether nobody has changed a file of a sealed run."""
    return run.seal is None or run.seal.holds(run.folder, name)


def read_played(folder: Path) -> list[PlayedTrial]:
    """The trials of an imported run, as they were when it was imported."""
    return msgspec.json.decode((folder / PLAYED).read_bytes(), type=list[PlayedTrial])


def played_from_log(
    folder: Path, name: str, trial: int, agent: AgentEffort, verified: str | None
) -> PlayedTrial:
    """Derive a trial from its log, and what it took from what is known about the agent."""
    path = find_log(folder, name)
    log = read_log(path)
    result = derive_result(log)
    return PlayedTrial(
        result=result,
        trial=trial,
        title=log.header.title,
        source_sha256=log.header.source_sha256,
        game_failure=game_failure(log),
        cost_usd=agent.cost_usd,
        tokens=agent.tokens,
        reasoning_tokens=agent.reasoning_tokens,
        reasoning_chars=agent.reasoning_chars,
        levels=level_efforts(log, agent),
        curve=score_curve(log, result, agent),
        log=name,
        log_sha256=hashlib.sha256(path.read_bytes()).hexdigest(),
        verified=verified or RECORDED,
    )


def _derive_again(folder: Path, one: PlayedTrial, *, sealed: bool) -> PlayedTrial:
    """Derive an imported game from its log again; without one, the claims stand, unverified."""
    if one.log is None:
        mark = UNVERIFIED if one.result.plays else None
        return msgspec.structs.replace(one, verified=mark)
    agent = AgentEffort(cost_usd=one.cost_usd, tokens=one.tokens)
    mark = one.verified if sealed else UNVERIFIED
    derived = played_from_log(folder, one.log, one.trial, agent, mark)
    return msgspec.structs.replace(
        derived, tags=one.tags, title=one.title, claimed_actions=one.claimed_actions
    )
