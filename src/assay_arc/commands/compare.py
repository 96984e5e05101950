"""assay arc compare: runs against each other, across harnesses too."""

import uuid
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import click
import msgspec

from assay.cli.help import examples
from assay.cli.options import with_options
from assay.cli.parameters import help_option
from assay_arc import StoreProblem
from assay_arc.cards import read_card
from assay_arc.commands.shared import StoreOptions, show_markdown, store_options
from assay_arc.comparison import ComparedRun, LeftOut, compare_runs, with_shared_games
from assay_arc.comparison_report import comparison_markdown
from assay_arc.store import Store, StoredRun, write_json

HELP = """Fewer than 2 runs available for comparison.

To get started:
1. Run a benchmark here: assay arc run AGENT
2. Generate cross-harness instructions: assay arc generate HARNESS
3. Run the benchmark on the target harness
4. Import results: assay arc import HARNESS RESULT-FILE
5. Compare: assay arc compare --all"""


class CompareOptions(StoreOptions, frozen=True, kw_only=True):
    everything: bool
    tolerance: float
    allow_unverified: bool
    form: str | None


@click.command(
    short_help="Compare runs, also of different harnesses.",
    epilog=examples(
        "assay arc compare previous latest",
        "assay arc compare --all --format json",
    ),
)
@click.argument("runs", nargs=-1)
@click.option(
    "--all", "everything", is_flag=True, help="Compare the latest measured run of each harness."
)
@click.option(
    "--tolerance",
    type=click.FloatRange(min=0, max=99),
    default=1.0,
    metavar="POINTS",
    help="Treat a smaller change of a score (0 to 100 points) as no change. Default: 1.",
)
@click.option(
    "--allow-unverified", is_flag=True, help="Rank unverified runs together with verified ones."
)
@click.option(
    "--format",
    "form",
    type=click.Choice(["table", "markdown", "json"]),
    help="Output format. Default: table on a terminal, otherwise markdown.",
)
@with_options(store_options)
@help_option
def command(runs: Sequence[str], **given: Any) -> None:
    """Compare RUNS with the first of them. Without any, compare the two latest.

    A run is given by its id, the beginning of its id, `latest` or `previous`. Totals are over the
    games that all runs have a score for. The comparison is also written to a file in the folder
    comparisons/ of the store. The exit code is 1 if no game was measured in two of the runs.
    """
    options = CompareOptions(**given)
    store = options.store
    if options.everything and runs:
        msg = "Give runs or --all, not both."
        raise click.UsageError(msg)
    if not options.everything and len(runs) == 1:
        msg = "Give at least 2 runs: assay arc compare RUN1 RUN2."
        raise click.UsageError(msg)
    left_out: list[LeftOut] = []
    if options.everything:
        entries, left_out = _newest_of_each(store)
    else:
        chosen = [store.find(name) for name in runs] or store.completed()[-2:]
        entries = _read(chosen) if len(chosen) > 1 else []
    if len(entries) < 2:
        for one in left_out:
            click.echo(f"Left out: {one.name}: {one.reason}", err=True)
        click.echo(HELP, err=True)
        raise click.exceptions.Exit(1)
    compared = compare_runs(
        entries,
        str(uuid.uuid4()),
        datetime.now(UTC).isoformat(),
        tolerance=options.tolerance,
        rank_all=options.allow_unverified,
        left_out=left_out,
    )
    write_json(store.root / "comparisons" / f"{compared.comparison_id}.json", compared)
    if options.form == "json":
        click.echo(msgspec.json.format(msgspec.json.encode(compared), indent=2).decode())
    else:
        show_markdown(comparison_markdown(compared, entries), options.form)
    if all(sum(cell.is_measured for cell in row.cells) < 2 for row in compared.matrix):
        msg = "Nothing to compare: no game was measured in two of these runs."
        raise StoreProblem(msg, hint="play the same games: assay arc run AGENT --games LIST")


def _newest_of_each(store: Store) -> tuple[list[ComparedRun], list[LeftOut]]:
    """The newest run of each harness in which something was measured; and who was left out."""
    newest: dict[tuple[bool, str], ComparedRun] = {}
    left_out: list[LeftOut] = []
    for run in reversed(store.completed()):
        key = (run.imported, run.meta.harness)
        if key in newest:
            continue
        try:
            entry = ComparedRun(run=run, card=read_card(run))
            reason = _nothing_measured(entry)
        except StoreProblem as problem:
            reason = problem.message
        if reason:
            left_out.append(LeftOut(run_id=run.meta.run_id, name=run.label, reason=reason))
        else:
            newest[key] = entry
    entries, unshared = with_shared_games([newest[key] for key in sorted(newest)])
    return entries, left_out + unshared


def _nothing_measured(entry: ComparedRun) -> str | None:
    if entry.card.games:
        return None
    return f"nothing in it was measured: {next(iter(entry.lost.values()), 'no game was played')}"


def _read(runs: Sequence[StoredRun]) -> list[ComparedRun]:
    """Read the scorecards; a broken one is left out with a warning if two remain."""
    entries = []
    for run in {run.meta.run_id: run for run in runs}.values():
        try:
            entries.append(ComparedRun(run=run, card=read_card(run)))
        except StoreProblem as problem:
            click.echo(f"WARNING: {problem.message}; the run is left out", err=True)
    if len(entries) < 2:
        msg = "fewer than 2 of these runs can be read, or they are the same run"
        raise StoreProblem(msg, hint="see: assay arc report RUN")
    return entries
