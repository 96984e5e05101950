"""assay arc verify: replay the logs of a run in the real engine."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import click
import msgspec

from assay.cli.help import examples
from assay.cli.options import with_options
from assay.cli.parameters import help_option
from assay.pipeline.stages import local_machine
from assay.records.text import counted_noun
from assay_arc import StoreProblem
from assay_arc.cards import (
    DERIVED,
    PLAYED,
    RESULTS,
    PlayedTrial,
    card_difference,
    derive_played,
    missing_logs,
    read_entries,
    read_played,
    score_card,
    seal_run,
    write_card,
)
from assay_arc.commands.shared import Place, need_toolkit, open_place, place_options
from assay_arc.replay import ReplayResult, changed_logs, check_logs
from assay_arc.scoring import FORMULAS, OFFICIAL
from assay_arc.seal import digests
from assay_arc.store import (
    CARD,
    META,
    REPLAYED,
    UNVERIFIED,
    Scorecard,
    StoredRun,
    read_json,
    write_json,
)


@click.command(
    short_help="Verify a run by replaying its logs in the engine.",
    epilog=examples(
        "assay arc verify",
        "assay arc verify previous --env-dir builtin",
    ),
)
@click.argument("runs", nargs=-1)
@with_options(place_options)
@help_option
def command(runs: Sequence[str], root: Path, env_dir: Path | None, debug: bool) -> None:
    """Repeat every action of RUNS (default: latest) with your copies of their games, and compare.

    The exit code is 0 if everything agrees, and 1 otherwise. A run is marked as replayed, or as
    unverified at any difference or missing log. Games that are not here, or here in another
    version, leave the mark as it was; give their folder with --env-dir. Values in
    scorecard.json and run-meta.json that contradict the logs are reported and corrected.
    """
    need_toolkit()
    place = open_place(root, env_dir)
    verdicts = [_verify(place.store.find(name), place) for name in runs or ("latest",)]
    if not all(verdicts):
        raise click.exceptions.Exit(1)


def _verify(stored: StoredRun, place: Place) -> bool:
    """Verify one run; whether everything agrees."""
    _restore_metadata(stored)
    if missing := missing_logs(stored.folder):
        stored.distrust(f"{missing[0]}: the log is missing")
        if stored.seal:  # the scores stay, since they cannot be computed again
            seal_run(stored.folder, stored.meta, stored.seal.files)
        msg = f"run {stored.meta.run_id} is now marked unverified: missing: {', '.join(missing)}"
        raise StoreProblem(
            msg,
            hint="put the logs back into the folder of the run and verify it again, or play again",
        )
    played, _ = derive_played(stored.folder, stored.meta)
    logged = [one for one in played if one.log is not None]
    if not logged:
        raise _no_logs(stored)
    changed = changed_logs(stored.folder, _expected(stored, logged))
    logs = [stored.folder / str(one.log) for one in logged]
    replays = check_logs(logs, place.games, local_machine())
    problems, unchecked = _judge(logged, replays, changed)
    problems += _other_problems(stored, played)
    if problems or not unchecked:
        _mark(stored, played, problems)
    if unchecked:
        _say_unchecked(stored, place.games, unchecked)
    if problems or unchecked:
        return False
    click.echo(f"Run {stored.meta.run_id}: verified: {stored.meta.verified}")
    return True


def _restore_metadata(stored: StoredRun) -> None:
    """Write run-meta.json again as it was sealed, and say what was wrong in it."""
    if stored.problem:
        write_json(stored.folder / META, stored.meta)
        click.echo(f"{stored.problem}; put right")


def _other_problems(stored: StoredRun, played: Sequence[PlayedTrial]) -> list[str]:
    """What is wrong with a run besides its logs: its rows."""
    if stored.seal:
        names = [name for name in (RESULTS, PLAYED) if name in stored.seal.files]
        changed = [name for name in stored.seal.changed(stored.folder) if name in names]
        problems = [f"{name}: it was changed after the run" for name in changed]
    else:
        known = {one.result.game_id for one in played}
        known |= {trial_id.split(".trial-")[0] for trial_id in stored.meta.not_measured}
        lacking = [game_id for game_id in stored.meta.game_ids if game_id not in known]
        problems = [f"{game_id}: it was planned and has no row" for game_id in lacking]
    for problem in problems:
        click.echo(f"DIFFERS: {problem}")
    return problems


def _no_logs(stored: StoredRun) -> StoreProblem:
    run_id = stored.meta.run_id
    if stored.imported:
        msg = f"run {run_id} has no logs: it was imported without them"
        return StoreProblem(msg, hint="import it again, with its session logs")
    msg = f"run {run_id} has no logs: nothing was measured in it"
    return StoreProblem(
        msg, hint=f"see the reasons with: assay arc report {run_id}{stored.store.option}"
    )


def _judge(
    logged: Sequence[PlayedTrial], replays: Sequence[ReplayResult], changed: Mapping[str, str]
) -> tuple[list[str], list[str]]:
    """Print a line for each log; return what is wrong, and the games that could not be compared."""
    problems, unchecked = [], []
    for one, replay in zip(logged, replays, strict=True):
        why = changed.get(str(one.log))
        if why is None and not replay.compared:
            unchecked.append(one.result.game_id)
        elif why or replay.difference:
            problems.append(f"{one.result.game_id}: {why or replay.difference}")
        click.echo(_line(one, replay, why))
    return problems, unchecked


def _say_unchecked(stored: StoredRun, games: Path, unchecked: Sequence[str]) -> None:
    """Name the games that could not be compared, and how they can be."""
    names = ", ".join(dict.fromkeys(unchecked))
    meta = stored.meta
    played_in = str((meta.benchmark or {}).get("games_dir") or "")
    where = f" (it was played with those of {played_in})" if played_in else ""
    click.echo(
        f"Run {meta.run_id}: not checked: {names} as played is not in {games}. "
        f"The mark stays as it is: {meta.verified}.\n"
        f"  Give the folder of its games with --env-dir{where}.",
        err=True,
    )


def _line(one: PlayedTrial, replay: ReplayResult, why: str | None) -> str:
    name = f"{one.result.game_id} trial {one.trial}"
    if why is None and not replay.compared:
        return f"{name}: not checked: {replay.difference}"
    if why or replay.difference:
        return f"{name}: DIFFERS: {why or replay.difference}"
    note = f" ({replay.note})" if replay.note else ""
    agree = "agrees" if replay.n_actions == 1 else "agree"
    return f"{name}: replayed, {counted_noun(replay.n_actions, 'action')} {agree}{note}"


def _expected(stored: StoredRun, logged: Sequence[PlayedTrial]) -> dict[str, str]:
    """The sha256 of each log as recorded when it was finished."""
    names = [str(one.log) for one in logged]
    if stored.seal:
        found = stored.seal.files
    elif (stored.folder / RESULTS).is_file():
        found = {
            str(entry.evidence["log"]): str(entry.evidence.get("logSha256"))
            for _, _, entry in read_entries(stored.folder)
            if entry.evidence.get("log")
        }
    else:
        found = {str(one.log): str(one.log_sha256) for one in read_played(stored.folder)}
    return {name: found[name] for name in names if name in found}


def _mark(stored: StoredRun, played: Sequence[PlayedTrial], problems: Sequence[str]) -> None:
    """Store the verdict in the run's metadata and in its scores; say what was wrong in them."""
    meta = stored.meta
    # A game that was not played has no log, and needs none.
    unlogged = [one for one in played if one.log is None and one.result.plays]
    meta.verified = UNVERIFIED if unlogged or problems else REPLAYED
    meta.verification = problems[0] if problems else None if stored.seal else AS_FOUND
    if unlogged and not problems:
        have = "has" if len(unlogged) == 1 else "have"
        meta.verification = f"{counted_noun(len(unlogged), 'game')} {have} no log"
    again = [
        msgspec.structs.replace(one, verified=meta.verified) if one.result.plays else one
        for one in played
    ]
    seal = stored.seal
    is_kept = seal is not None and seal.holds(stored.folder, CARD)
    files = seal.files if seal else None
    if not (problems and is_kept):
        _write_scores(stored, again, is_kept=is_kept)
        if seal:
            files = seal.files | digests(stored.folder, DERIVED)
    seal_run(stored.folder, meta, files)


AS_FOUND = "its rows and settings are as found: it was not recorded here"


def _write_scores(stored: StoredRun, played: Sequence[PlayedTrial], *, is_kept: bool) -> None:
    """Write the scores again as the logs give them; a check does not change their formula."""
    formula, found = OFFICIAL, None
    with suppress(StoreProblem):
        found = read_json(stored.folder / CARD, Scorecard)
        formula = found.formula if found.formula in FORMULAS else OFFICIAL
    card = score_card(stored.meta, played, formula)
    if found is not None and not is_kept:
        words = card_difference(found, card, exactly=stored.seal is not None)
        if words:
            click.echo(f"{words}; put right")
    write_card(stored.folder, card)
