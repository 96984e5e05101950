"""assay arc rescore: score a stored run with any formula, from its logs."""

from pathlib import Path

import click
import msgspec

from assay.cli.help import examples
from assay.cli.options import with_options
from assay.cli.parameters import help_option
from assay.report.markdown import table
from assay.report.text import number
from assay_arc.cards import (
    DERIVED,
    build_card,
    check_sealed,
    derive_played,
    score_card,
    seal_run,
    write_card,
)
from assay_arc.commands.shared import store_options
from assay_arc.report import remark
from assay_arc.scoring import FORMULAS, OFFICIAL
from assay_arc.seal import digests
from assay_arc.store import Scorecard, Store


@click.command(
    short_help="Score a stored run again with any formula.",
    epilog=examples(
        "assay arc rescore",
        "assay arc rescore latest --formula official --formula first_play",
        "assay arc rescore latest --formula official --write --json",
    ),
)
@click.argument("run", default="latest")
@click.option(
    "--formula",
    "formulas",
    type=click.Choice(["all", *FORMULAS]),
    multiple=True,
    help="Formula to score with. May be repeated. Default: all.",
)
@click.option(
    "--write",
    is_flag=True,
    help="Also write the new scores to the scorecard and the environment scores.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the scores as JSON.")
@with_options(store_options)
@help_option
def command(
    run: str, formulas: tuple[str, ...], write: bool, as_json: bool, root: Path, debug: bool
) -> None:
    """Compute the scores of RUN (default: latest) again from its logs, in percent."""
    stored = Store(root.absolute()).find(run)
    if stored.is_unfinished:
        click.echo(
            f"Run {stored.meta.run_id} is unfinished: only what was played is scored. "
            f"Continue it with: {stored.resume_command}",
            err=True,
        )
    check_sealed(stored)
    played, lost = derive_played(stored.folder, stored.meta, sealed=stored.seal is not None)
    wanted = list(FORMULAS) if not formulas or "all" in formulas else list(dict.fromkeys(formulas))
    cards = {formula: build_card(stored.meta.run_id, played, formula) for formula in wanted}
    if write:
        # The files name one formula: the one asked for, else the official one.
        formula, meta = wanted[0] if len(wanted) == 1 else OFFICIAL, stored.meta
        write_card(stored.folder, score_card(meta, played, formula, not_measured=lost))
        if stored.seal:
            seal_run(stored.folder, meta, stored.seal.files | digests(stored.folder, DERIVED))
    if as_json:
        click.echo(msgspec.json.format(msgspec.json.encode(_plain(cards)), indent=2).decode())
        return
    games = next(iter(cards.values())).games
    rows = [
        [game.id, *(number(cards[formula].games[i].score_percent, 2) for formula in wanted)]
        for i, game in enumerate(games)
    ]
    rows.append(["Mean", *(number(card.score_percent, 2) for card in cards.values())])
    click.echo(f"Run {stored.meta.run_id} ({stored.label}), percent:\n")
    click.echo("\n".join(table(["Game", *wanted], rows)))
    for game in games:
        if words := remark(game):
            click.echo(f"{game.id}: {words}")


def _plain(cards: dict[str, Scorecard]) -> dict[str, object]:
    return {
        formula: {
            "scorer": card.scorer,
            "score_percent": card.score_percent,
            "games": {game.id: game.score_percent for game in card.games},
            "reasons": {g.id: g.score_reason for g in card.games if g.score_reason},
        }
        for formula, card in cards.items()
    }
