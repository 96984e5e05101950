"""assay baseline: main's builds as one file of many trials."""

import datetime
from pathlib import Path
from typing import Any

import click
import msgspec

from assay.cli.help import examples
from assay.cli.output import echo_folded, refuse_same_file
from assay.cli.parameters import Number, debug_option, help_option, quiet_option
from assay.cli.runs import name_runs, pipes_as_files
from assay.compare.anchors import anchors_of, set_anchor
from assay.compare.baseline import (
    Addition,
    Description,
    add_build,
    describe_baseline,
    prune_builds,
    sign_baseline,
)
from assay.errors import NotJudged
from assay.records.text import counted_noun, visible_line
from assay.report.text import percents

_FILE = click.Path(path_type=Path)
_baseline = click.argument("baseline", type=_FILE)


@click.group(
    short_help="Pool the builds of main, to compare branches with.",
    epilog=examples(
        "assay baseline add before.jsonl --to baseline.jsonl",
        "assay baseline show baseline.jsonl",
        "assay baseline prune baseline.jsonl --keep 20",
    ),
)
@help_option
def command() -> None:
    """Keep the trials of many runs of one set-up in one file, which every command reads.

    A branch that is compared with it needs fewer trials than one that is compared with one run.
    """


@command.command(
    "add",
    short_help="Add the measured trials of runs to a baseline.",
    epilog=examples(
        "assay baseline add before.jsonl --to baseline.jsonl",
        "assay baseline add build-41:after.jsonl --to baseline.jsonl --replace",
    ),
)
@click.argument("runs", nargs=-1, metavar="RUN...")
@click.option(
    "-o",
    "--to",
    "baseline",
    type=_FILE,
    required=True,
    metavar="BASELINE",
    help="Add to this file, which is started if it is missing.",
)
@click.option(
    "--replace",
    is_flag=True,
    help="Start the baseline again with a run whose set-up or prompts differ from it. Default: "
    "refuse such a run.",
)
@quiet_option
@debug_option
@help_option
def add(runs: tuple[str, ...], baseline: Path, **given: Any) -> None:
    """Add runs, each given as FILE or LABEL:FILE, to the pooled BASELINE.

    Only runs with the same agent, model, prompts, graders and workspace are pooled; what differs is
    named. An unhealthy run is refused, trials that were not measured are left out, and a run that
    was added before changes nothing.
    """
    named = name_runs(runs, ())
    if not named:
        msg = "No runs given. Name one or more result files."
        raise click.UsageError(msg)
    for _, path in named:
        refuse_same_file(path, baseline)
    with pipes_as_files(named) as files:
        for label, path in files:
            added = add_build(baseline, label, path, replace=given["replace"])
            if not given["quiet"]:
                for line in _added_lines(added, baseline):
                    echo_folded(visible_line(line), err=True)


def _added_lines(added: Addition, baseline: Path) -> list[str]:
    if added.outcome == "known":
        return [f"{added.label} is in {baseline} already; nothing was changed"]
    words = {
        "added": "added to",
        "started": "starts",
        "continued": "takes the place of an earlier part of the same run in",
    }[added.outcome]
    trials = counted_noun(added.n_trials, "trial")
    left_out = f", {added.n_unmeasured} not measured and left out" if added.n_unmeasured else ""
    notes = [f"note: {note}" for note in added.notes]
    return [f"{added.label} {words} {baseline}: {trials}{left_out}", *notes]


@command.command(
    "show",
    short_help="Show the builds of a baseline and whether they drift.",
    epilog=examples(
        "assay baseline show baseline.jsonl",
        "assay baseline show baseline.jsonl --json",
    ),
)
@_baseline
@click.option("--json", "as_json", is_flag=True, help="Write it as JSON.")
@click.option("--check", is_flag=True, help="End with exit code 4 if the builds drift.")
@debug_option
@help_option
def show(baseline: Path, **given: Any) -> None:
    """Show what BASELINE was made from, its builds, and whether they still measure the same."""
    about = describe_baseline(baseline)
    if given["as_json"]:
        click.echo(msgspec.json.format(msgspec.json.encode(about), indent=2).decode())
    else:
        for line in _shown_lines(about):
            echo_folded(visible_line(line))
        for one, path in anchors_of(baseline):
            echo_folded(visible_line(f"anchor {one.name}, set {one.date}: {path}"))
    if given["check"] and about.problem:
        raise NotJudged(visible_line(f"{baseline}: {about.problem}"))


def _shown_lines(about: Description) -> list[str]:
    setup = ", ".join(f"{name} {value}" for name, value in about.setup.items())
    width = max(len(visible_line(build.label)) for build in about.builds)
    lines = [f"{about.n_prompts} prompts, {about.n_trials} trials, {setup}"]
    for build in about.builds:
        rate = "-"
        if build.pass_rate is not None:
            shown, low, high = percents(build.pass_rate, *(build.interval or (0.0, 1.0)), fewest=1)
            rate = f"{shown} % ({low} to {high})"
        trials = f"{build.n_trials:5d} trials of {build.n_prompts} prompts"
        lines.append(f"  {build.date}  {visible_line(build.label):{width}}  {trials}  {rate}")
    few = f"trials per prompt: {about.fewest_trials} to {about.most_trials}"
    return [*lines, few, about.drift_words]


@command.command(
    "anchor",
    short_help="Keep a baseline under a name, as a second thing to compare with.",
    epilog=examples(
        "assay baseline anchor v1.4 --of baseline.jsonl",
        "assay baseline anchor v1.4 --of baseline.jsonl --replace",
    ),
)
@click.argument("name")
@click.option(
    "--of",
    "baseline",
    type=_FILE,
    default=Path("baseline.jsonl"),
    metavar="BASELINE",
    help="The baseline to keep. Default: baseline.jsonl.",
)
@click.option("--replace", is_flag=True, help="Set an anchor of this name again.")
@quiet_option
@debug_option
@help_option
def anchor(name: str, baseline: Path, **given: Any) -> None:
    """Keep a baseline as it is now as the anchor NAME, such as a release.

    Later builds do not move it: `assay trials --until decided --anchor` stops losses that are each
    too small for the gate and add up.
    """
    path = set_anchor(baseline, name, replace=given["replace"])
    if not given["quiet"]:
        echo_folded(visible_line(f"{path} is the anchor {name} of {baseline}"), err=True)


@command.command(
    "sign",
    short_help="Accept a baseline that somebody else wrote or changed.",
    epilog=examples(
        "assay baseline sign baseline.jsonl",
        "assay baseline show baseline.jsonl",
    ),
)
@_baseline
@quiet_option
@debug_option
@help_option
def sign(baseline: Path, **given: Any) -> None:
    """Sign the rows of BASELINE as they are now.

    `assay baseline` signs what it writes with a key of yours. If rows were changed since, by a
    checkout or by an agent, `show`, `compare` and gates say so until you sign them.
    """
    n = sign_baseline(baseline)
    if not given["quiet"]:
        click.echo(visible_line(f"{counted_noun(n, 'row')} of {baseline} signed"), err=True)


@command.command(
    "prune",
    short_help="Remove old builds from a baseline.",
    epilog=examples(
        "assay baseline prune baseline.jsonl --keep 20",
        "assay baseline prune baseline.jsonl --older-than 30",
    ),
)
@_baseline
@click.option(
    "--keep",
    type=click.IntRange(min=1),
    metavar="N",
    help="Keep the newest N builds. Default: no limit.",
)
@click.option(
    "--older-than",
    "days",
    type=Number(0),
    metavar="DAYS",
    help="Remove builds that are older than this many days. Default: no limit.",
)
@quiet_option
@debug_option
@help_option
def prune(baseline: Path, keep: int | None, days: float | None, **given: Any) -> None:
    """Remove builds from BASELINE: all but the newest, or those that are too old."""
    if (keep is None) == (days is None):
        msg = "Give either --keep or --older-than."
        raise click.UsageError(msg)
    older_than = None if days is None else datetime.timedelta(days=days)
    removed = prune_builds(baseline, keep=keep, older_than=older_than)
    if not given["quiet"]:
        names = f": {', '.join(build.label for build in removed)}" if removed else ""
        echo_folded(visible_line(f"{counted_noun(len(removed), 'build')} removed{names}"), err=True)
