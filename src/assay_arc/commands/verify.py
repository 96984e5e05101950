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
    RESULTS,
    PlayedTrial,
    derive_played,
    mark_scores,
    missing_logs,
    read_entries,
    read_played,
    write_scores,
)
from assay_arc.commands.shared import need_toolkit, open_place, place_options
from assay_arc.replay import ReplayResult, changed_logs, check_logs
from assay_arc.scoring import OFFICIAL
from assay_arc.store import META, REPLAYED, UNVERIFIED, StoredRun, write_json


@click.command(
    short_help="Verify a run by replaying its logs in the engine.",
    epilog=examples(
        "assay arc verify",
        "assay arc verify previous --env-dir builtin",
    ),
)
@click.argument("run", default="latest")
@with_options(place_options)
@help_option
def command(run: str, root: Path, env_dir: Path | None, debug: bool) -> None:
    """Repeat every action of RUN (default: latest) with your copies of its games, and compare.

    The exit code is 0 if everything agrees, and 1 otherwise. The run is marked as replayed, or as
    unverified at any difference or missing log. Games that are not here, or here in another
    version, leave the mark as it was; give their folder with --env-dir.
    """
    need_toolkit()
    place = open_place(root, env_dir)
    stored = place.store.find(run)
    if missing := missing_logs(stored.folder):
        meta = stored.meta
        meta.verified, meta.verification = UNVERIFIED, f"{missing[0]}: the log is missing"
        write_json(stored.folder / META, meta)
        mark_scores(stored, UNVERIFIED)  # they stay, since they cannot be computed again
        msg = f"run {meta.run_id} is now marked unverified: missing: {', '.join(missing)}"
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
    if problems or not unchecked:
        _mark(stored, played, problems)
    if unchecked:
        _say_unchecked(stored, place.games, unchecked)
    if problems or unchecked:
        raise click.exceptions.Exit(1)
    click.echo(f"Run {stored.meta.run_id}: verified: {stored.meta.verified}")


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
    if not (stored.folder / RESULTS).is_file():
        kept = read_played(stored.folder)
        return {str(one.log): str(one.log_sha256) for one in kept if one.log}
    found = {
        str(entry.evidence["log"]): str(entry.evidence.get("logSha256"))
        for _, _, entry in read_entries(stored.folder)
        if entry.evidence.get("log")
    }
    return {name: found[name] for name in (str(one.log) for one in logged) if name in found}


def _mark(stored: StoredRun, played: Sequence[PlayedTrial], problems: Sequence[str]) -> None:
    """Store the verdict in the run's metadata and in its scores."""
    meta = stored.meta
    # A game that was not played has no log, and needs none.
    unlogged = [one for one in played if one.log is None and one.result.plays]
    meta.verified = UNVERIFIED if unlogged or problems else REPLAYED
    meta.verification = problems[0] if problems else None
    if unlogged and not problems:
        have = "has" if len(unlogged) == 1 else "have"
        meta.verification = f"{counted_noun(len(unlogged), 'game')} {have} no log"
    write_json(stored.folder / META, meta)
    again = [
        msgspec.structs.replace(one, verified=meta.verified) if one.result.plays else one
        for one in played
    ]
    formula = OFFICIAL
    with suppress(StoreProblem):  # a check does not change the formula of the scores
        formula = stored.card().formula or OFFICIAL
    write_scores(stored.folder, meta.run_id, again, formula, spent=meta)
