"""assay arc verify: replay the logs of a run in the real engine."""

from collections.abc import Sequence
from pathlib import Path

import click
import msgspec

from assay.cli.group import examples
from assay.cli.options import with_options
from assay.cli.parameters import help_option
from assay.pipeline.stages import local_machine
from assay.records.rows import read_lines
from assay_arc import StoreProblem
from assay_arc.cards import PLAYED, RESULTS, PlayedTrial, derive_played, write_scores
from assay_arc.commands.shared import need_toolkit, open_place, place_options
from assay_arc.replay import ReplayResult, changed_logs, check_logs
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

    The exit code is 0 if everything agrees and 1 at any difference. The run is marked as verified
    or unverified.
    """
    need_toolkit()
    place = open_place(root, env_dir)
    stored = place.store.find(run)
    played, _ = derive_played(stored.folder, stored.meta)
    logged = [one for one in played if one.log is not None]
    if not logged:
        msg = f"run {stored.meta.run_id} has no logs: it was imported without them"
        raise StoreProblem(msg, hint="import it again, with its session logs")
    changed = changed_logs(stored.folder, _expected(stored, logged))
    logs = [stored.folder / str(one.log) for one in logged]
    replays = check_logs(logs, place.games, local_machine())
    problems = []
    for one, replay in zip(logged, replays, strict=True):
        why = changed.get(str(one.log)) or replay.difference
        click.echo(_line(one, replay, why))
        if why:
            problems.append(f"{one.result.game_id}: {why}")
    _mark(stored, played, problems, n_logged=len(logged))
    if problems:
        raise click.exceptions.Exit(1)
    click.echo(f"Run {stored.meta.run_id}: verified: {stored.meta.verified}")


def _line(one: PlayedTrial, replay: ReplayResult, why: str | None) -> str:
    name = f"{one.result.game_id} trial {one.trial}"
    if why:
        return f"{name}: DIFFERS: {why}"
    note = f" ({replay.note})" if replay.note else ""
    return f"{name}: replayed, {replay.n_actions} actions agree{note}"


def _expected(stored: StoredRun, logged: Sequence[PlayedTrial]) -> dict[str, str]:
    """The sha256 of each log as recorded when it was finished."""
    source = stored.folder / RESULTS
    if not source.is_file():
        kept = msgspec.json.decode((stored.folder / PLAYED).read_bytes(), type=list[PlayedTrial])
        return {str(one.log): str(one.log_sha256) for one in kept if one.log}
    found = {}
    for _, line in read_lines(source):
        evidence = (msgspec.json.decode(line).get("metadata") or {}).get("evidence") or {}
        if evidence.get("log"):
            found[str(evidence["log"])] = str(evidence.get("logSha256"))
    return {name: found[name] for name in (str(one.log) for one in logged) if name in found}


def _mark(
    stored: StoredRun, played: Sequence[PlayedTrial], problems: Sequence[str], n_logged: int
) -> None:
    """Store the verdict in the run's metadata and in its scores."""
    meta = stored.meta
    complete = n_logged == len(played)
    meta.verified = REPLAYED if complete and not problems else UNVERIFIED
    meta.verification = problems[0] if problems else None
    if not complete and not problems:
        meta.verification = f"{len(played) - n_logged} games have no log"
    write_json(stored.folder / META, meta)
    again = [msgspec.structs.replace(one, verified=meta.verified) for one in played]
    write_scores(stored.folder, meta.run_id, again)
