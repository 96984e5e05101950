"""A result that nobody can check, as if it had been played so: to be scored, marked unverified."""

from assay.benchmarks.arc_agi.importing.schema import Claim
from assay.benchmarks.arc_agi.log.records import StopReason
from assay.benchmarks.arc_agi.log.result import GameResult, LevelResult, PlayResult


def claimed_result(claim: Claim, seed: int, timestamp: str) -> GameResult:
    """Make the result of one game from what was claimed; levels and baselines are ours."""
    game = claim.game
    count = game.level_count or len(claim.actions)
    plays = () if claim.state == "NOT_PLAYED" else (_play(claim, count),)
    stops: dict[str, StopReason] = {"WIN": "win", "GAME_OVER": "game_over"}
    return GameResult(
        game_id=game.game_id,
        level_count=count,
        baselines=game.baselines,
        seed=seed,
        stop_reason=stops.get(claim.state, "player_quit"),
        state=claim.state,
        won=claim.state == "WIN",
        levels_completed=claim.levels_completed,
        steps=claim.total_actions,
        resets=claim.total_resets,
        rejected=0,
        started_at=timestamp,
        duration_s=None,
        plays=plays,
    )


def _play(claim: Claim, count: int) -> PlayResult:
    actions = [*claim.actions, *[0] * (count - len(claim.actions))]
    baselines = claim.game.baselines or ()
    marks = tuple((i + 1, sum(actions[: i + 1])) for i in range(claim.levels_completed))
    return PlayResult(
        index=1,
        state=claim.state,
        levels_completed=claim.levels_completed,
        actions=sum(actions),
        resets=claim.total_resets,
        marks=marks,
        levels=tuple(
            LevelResult(
                index=i + 1,
                completed=i < claim.levels_completed,
                actions=taken,
                baseline=baselines[i] if i < len(baselines) else None,
            )
            for i, taken in enumerate(actions)
        ),
        first_seq=0,
        last_seq=0,
    )
