"""assay plan: how many prompts and trials a comparison needs."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import msgspec

from assay.cli.help import examples
from assay.cli.output import (
    derived_output,
    echo_folded,
    fitted,
    refuse_measured,
    refuse_same_file,
)
from assay.cli.parameters import (
    InFile,
    Number,
    concurrency_option,
    debug_option,
    help_option,
    output_option,
    replace_option,
)
from assay.cli.runs import name_runs, pipes_as_files
from assay.compare.planning import PlanRequest, chances_against, make_plan
from assay.compare.runs import load_run
from assay.pipeline.gate import refuse_drift
from assay.records.trial.files import detect_kind

_MAX_PILOTS = 2
_FEWEST_RIGHT = 0.5
_PROMPTS = click.IntRange(min=1, max=1_000_000)


class _Options(PlanRequest, frozen=True, kw_only=True):
    pilot: tuple[str, ...]
    against: Path | None
    output: Path | None
    overwrite: bool
    as_json: bool
    debug: bool


@click.command(
    short_help="Compute how many prompts and trials a comparison needs.",
    epilog=examples(
        "assay plan before.jsonl after.jsonl --difference 0.05",
        "assay plan --rate 0.7 -n 400 --fail-on regression --margin 0.1",
        "assay plan --against before.jsonl -k 8 --fail-on regression --margin 0.3",
    ),
)
@click.argument("pilot", nargs=-1)
@click.option(
    "-d",
    "--difference",
    type=Number(-1, 1),
    default=0.1,
    metavar="RATE",
    help="Smallest difference in pass rate to detect; -0.1 is a loss. Default: 0.1.",
)
@click.option(
    "--power",
    type=Number(0, 1, min_open=True, max_open=True),
    default=0.8,
    metavar="RATE",
    help="Probability of detecting that difference. Default: 0.8.",
)
@click.option(
    "--rate", type=Number(0, 1), metavar="RATE", help="Pass rate to assume if there is no pilot."
)
@click.option(
    "--icc",
    type=Number(0, 1),
    default=0.5,
    metavar="RATE",
    help="How alike the trials of one prompt are, where the pilot does not show it: 0 if all "
    "prompts are equally hard, 1 if each passes always or never. Default: 0.5.",
)
@click.option(
    "--correlation",
    type=Number(0, 1),
    default=0.5,
    metavar="RATE",
    help="How far both agents find the same prompts hard, where no two pilots show it. "
    "Default: 0.5.",
)
@click.option(
    "-k",
    "trials",
    type=click.IntRange(min=1),
    multiple=True,
    metavar="N",
    help="Plan for N trials of each prompt. May be repeated. Default: 1, 3, 5 and 10.",
)
@click.option(
    "-n",
    "--prompts",
    "n_prompts",
    type=_PROMPTS,
    metavar="N",
    help="Number of prompts you have. Default: those of the pilot.",
)
@concurrency_option("Trials that run at once, to estimate the duration. Default: 1.")
@click.option(
    "--fail-on",
    type=click.Choice(["regression", "not-better"]),
    help="Simulate how often this gate of assay compare passes a good run and stops a bad one.",
)
@click.option(
    "--against",
    type=InFile(exists=True),
    metavar="BASELINE",
    help="Simulate --fail-on regression as assay trials --until decided judges a branch against "
    "this baseline, with at most -k fresh trials of each prompt (5 unless -k is given). Default: "
    "two runs that are compared once.",
)
@click.option(
    "--margin",
    type=Number(0, 1, max_open=True),
    default=0.02,
    metavar="RATE",
    help="Margin of the gate. Default: 0.02.",
)
@output_option
@replace_option
@click.option("--json", "as_json", is_flag=True, help="Write the plan as JSON.")
@debug_option
@help_option
def command(**given: Any) -> None:
    """Plan a comparison from PILOT, one or two graded result files, or from an assumed --rate.

    The exit code is 4 if --fail-on names a gate that would pass a good run, or stop a bad one, in
    fewer than half of all builds with these prompts.
    """
    options = _Options(**given)
    _check_usage(options)
    if options.against is not None:
        _plan_against(options.against, options)
        return
    pilots = name_runs(options.pilot, ())
    for _, path in pilots:
        refuse_same_file(path, options.output)
    refuse_measured(options.output, overwrite=options.overwrite)
    with pipes_as_files(pilots) as named:
        runs = [load_run(label, path, detect_kind(path), "category") for label, path in named]
    plan = make_plan(runs, options)
    gate = plan.get("gate")
    if options.as_json:
        text = msgspec.json.format(msgspec.json.encode(plan), indent=2).decode()
    else:
        lines = _plan_lines(plan)
        if gate:
            lines += _gate_lines(gate, options)
        text = "\n".join(lines)
    _conclude(text, gate, options)


def _conclude(text: str, gate: dict[str, Any] | None, options: _Options) -> None:
    """Write the plan; refuse a gate that is wrong more often than right."""
    with derived_output(options.output, overwrite=options.overwrite) as out:
        shown = text if options.output or options.as_json else fitted(text)
        out.write(shown.encode() + b"\n")
    _refuse_bad_gate(gate, options)


def _refuse_bad_gate(gate: dict[str, Any] | None, options: _Options) -> None:
    if gate and min(gate["goodPasses"], gate["badStopped"]) < _FEWEST_RIGHT:
        # Against a baseline the gate is to find a loss of the margin itself.
        size = abs(options.difference)
        inside = size < options.margin or options.against is None
        inside = inside and size <= options.margin
        inside = inside and options.fail_on == "regression"
        remedy = (
            "the difference lies inside the margin, so such a run should pass; give a larger -d"
            if inside
            else "use more prompts or trials, or a wider --margin"
        )
        echo_folded(f"Refused: this gate is wrong more often than right; {remedy}", err=True)
        raise click.exceptions.Exit(4)


def _plan_against(path: Path, options: _Options) -> None:
    """Print how often the gate is right if a branch is compared with a pooled baseline."""
    refuse_same_file(path, options.output)
    refuse_measured(options.output, overwrite=options.overwrite)
    run = load_run(path.stem, path, detect_kind(path), "category")
    run.builds = refuse_drift(run)
    gate = chances_against(run, options)
    text = msgspec.json.format(msgspec.json.encode({"gate": gate}), indent=2).decode()
    if not options.as_json:
        n_old, n_fresh = gate["baselineTrials"], options.most_fresh
        text = (
            f"Gate regression with margin {options.margin:g} against {gate['nPrompts']} prompts "
            f"with {n_old:.3g} {_trials(round(n_old))} each, and at most {n_fresh} fresh "
            f"{_trials(n_fresh)} of each ({gate['source']}): {gate['words']}."
        )
    _conclude(text, gate, options)


def _gate_lines(gate: dict[str, Any], options: _Options) -> Iterator[str]:
    needed = gate["promptsFor80"]
    yield (
        f"Gate {options.fail_on} with margin {options.margin:g}, {gate['nPrompts']:,} prompts and "
        f"{gate['nTrials']} {_trials(gate['nTrials'])} each ({gate['source']}): {gate['words']}."
    )
    if needed is None:
        yield f"No practical number of prompts would let {_good_run(options)} pass 80 times of 100."
    else:
        yield f"From {needed:,} prompts on, {_good_run(options)} passes 80 times of 100."


def _good_run(options: _Options) -> str:
    if options.fail_on == "regression":
        return "an unchanged agent"
    return f"an agent that is better by {abs(options.difference):g}"


def _check_usage(options: _Options) -> None:
    if options.difference == 0.0:
        msg = "Invalid value for '-d' / '--difference': 0 needs no prompts; give 0.1 or -0.1."
        raise click.UsageError(msg)
    if options.against is not None:
        _check_against(options)
        return
    if not options.pilot and options.rate is None:
        msg = "Give one or two pilot files, or --rate."
        raise click.UsageError(msg)
    if options.pilot and options.rate is not None:
        msg = "Give pilot files or --rate, not both: the pilot shows its own pass rate."
        raise click.UsageError(msg)
    if len(options.pilot) > _MAX_PILOTS:
        msg = "Give one or two pilot files: a plan compares two runs."
        raise click.UsageError(msg)
    if options.fail_on and not options.pilot and not options.n_prompts:
        msg = "--fail-on needs the number of prompts. Give -n or a pilot file."
        raise click.UsageError(msg)


def _check_against(options: _Options) -> None:
    if options.pilot or options.rate is not None or options.n_prompts:
        msg = "--against brings its own prompts and pass rate; leave out pilots, --rate and -n."
        raise click.UsageError(msg)
    if options.fail_on != "regression" or options.margin == 0.0:
        msg = "--against needs --fail-on regression and a --margin above 0."
        raise click.UsageError(msg)
    if len(options.trials) > 1:
        msg = "Give one -k with --against: the most fresh trials of each prompt."
        raise click.UsageError(msg)


def _plan_lines(plan: dict[str, Any]) -> list[str]:
    lines = [
        f"To see a {_kind(plan['difference'])} in pass rate with power "
        f"{plan['power']:g} ({plan['source']}):"
    ]
    for row in plan["rows"]:
        line = f"  {row['nTrials']:3d} {_trials(row['nTrials'])} a prompt: "
        if row["nPrompts"] is None:
            lines.append(f"{line}no sensible number of prompts")
            continue
        line += f"{row['nPrompts']:,} prompts, {row['nRunsOfAgent']:,} runs of the agents"
        if row["costUsd"] is not None:
            line += f", ${row['costUsd']:,.2f}"
        if row["hours"] is not None:
            line += f", {_duration_text(row['hours'])}"
        lines.append(line)
    at_hand = plan["atHand"]
    if at_hand:
        lines.append(
            f"With {at_hand['nPrompts']:,} prompts and {at_hand['nTrials']} "
            f"{_trials(at_hand['nTrials'])} each the chance to see it is {at_hand['power']:.0%}; "
            f"with a margin of {at_hand['narrowestMargin']:.3f} an unchanged agent passes a "
            "regression gate about half the time."
        )
    lines.append("Repeats of a prompt are not new prompts: they only reduce chance within it.")
    return lines


def _kind(difference: float) -> str:
    what = "difference" if difference > 0.0 else "loss"
    return f"{what} of {abs(difference):g}"


def _trials(n: int) -> str:
    return "trial" if n == 1 else "trials"


def _duration_text(hours: float) -> str:
    return f"{hours:,.1f} h" if hours >= 1 else f"{hours * 60:.1f} min"
