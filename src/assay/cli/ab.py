"""assay ab: from a change to a verdict, by an experiment with a control."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click
import msgspec

from assay import stats
from assay.benchmarks.skills import skill_folders
from assay.cli.ab_status import status
from assay.cli.help import CACHE, PRICES, examples, variables
from assay.cli.options import (
    ArmOptions,
    agent_options,
    executor_options,
    executor_ref,
    grader_options,
    leave_out,
    run_options,
    tape_use,
    text_agent_options,
    with_options,
)
from assay.cli.parameters import (
    Number,
    OutFolder,
    allow_replayed_option,
    calibration_option,
    help_option,
    margin_option,
    seed_option,
    share_home_option,
)
from assay.pipeline.experiment import (
    TREATMENTS,
    ExperimentRequest,
    arm_name,
    check_experiment,
    is_name,
    read_experiment,
    with_factors,
    with_matrix,
    with_skills,
    with_treatment,
)
from assay.records.experiment import Experiment

_IN_PLACE = ("cwd", "workspace_dir")
"""Options of a run that do not fit: the arms never work in a folder of the user."""
_OF_DISPLAY = ("smoke", "yes", "progress", "quiet", "as_json", "debug")
_SPELLED = {
    **{"schema": "-s", "agent_args": "--agent-arg", "env_names": "--env", "timeout": "-t"},
    "treatments": "--with",
}
_OF_EXPERIMENT = {
    "k": "k",
    "until": "until",
    "max_cost": "budget",
    "effect": "effect",
    "margin": "margin",
    "seed": "seed",
    "retries": "retries",
    "filters": "filter",
    "limit": "limit",
    "graders": "graders",
    "grader_timeout": "grader_timeout",
    "name": "name",
    "register": "register",
}
"""Options that stand in an experiment file too, and the key there; the command line wins."""


@click.group(
    invoke_without_command=True,
    subcommand_metavar="",
    context_settings={"allow_interspersed_args": True},
    commands={"status": status},
    short_help="Run an experiment and say whether a change helps.",
    epilog=variables(*PRICES, *CACHE)
    + examples(
        "assay ab evals/prompts.jsonl -s demo:flaky --with agent=demo:better -g contains -k 3",
        "assay ab evals/experiment.toml --smoke",
        "assay ab evals/experiment.toml -j 4",
    ),
)
@click.argument(
    "source", type=click.Path(path_type=Path), required=False, metavar="EXPERIMENT|PROMPTS"
)
@with_options(agent_options, text_agent_options)
@click.option(
    "--with",
    "treatments",
    multiple=True,
    metavar="KIND=VALUE",
    help="What the treatment has and the control does not: skill=DIR, instructions=FILE, mcp=FILE, "
    "model=NAME, agent=AGENT, template=DIR or arg=ARG. May be repeated.",
)
@click.option(
    "--ablate",
    is_flag=True,
    help="Take each --with as a treatment of its own, two to eight of them; run combinations of "
    "them and report the effect of each. Default: all of them together are one treatment.",
)
@click.option(
    "--matrix",
    multiple=True,
    metavar="KIND=VALUE,...",
    help="Run an arm for each value, and for each combination if repeated, as in --matrix "
    "agent=claude,codex; print a leaderboard. The value none leaves it out.",
)
@click.option(
    "--skills",
    metavar="PATTERN",
    help="In place of PROMPTS and --with: run an arm for each skill in these folders, as in "
    "--skills 'skills/*', on the cases that all of them bring along (evals/evals.json), and say of "
    "each whether it helps its own cases and harms those of the others.",
)
@click.option(
    "--benchmark",
    metavar="NAME[:OPTIONS]",
    help="In place of PROMPTS: the prompts of an installed benchmark, with its world and its "
    "graders. OPTIONS are KEY=VALUE,KEY=VALUE or a JSON object.",
)
@with_options(grader_options)
@click.option(
    "-k",
    "--k",
    "k",
    type=click.IntRange(min=1),
    metavar="N",
    help="Run each prompt N times in each arm. Default: 5, or what the experiment says.",
)
@click.option(
    "--until",
    type=click.Choice(["decided", "k"]),
    help="When to end: as soon as the verdict is sure (decided), or after all trials (k). Default: "
    "decided if there is a budget, otherwise k.",
)
@click.option(
    "--smoke",
    is_flag=True,
    help="Only run one trial of each arm, check that the arms are what they should be, and "
    "estimate cost and time of the rest.",
)
@click.option(
    "--fresh", is_flag=True, help="Do not reuse trials of earlier runs of the same set-up."
)
@click.option(
    "--confirm",
    is_flag=True,
    help="Run all arms anew to confirm a promising verdict, on the prompts that the experiment "
    "holds back for this (holdout, confirm-prompts) if there are some.",
)
@click.option(
    "--reuse",
    type=click.Choice(["all", "check", "none"]),
    default="check",
    help="What to do with trials of earlier runs of the same set-up: use them (all), use them if a "
    "few of them, run again, agree (check), or run all anew (none). Default: check.",
)
@click.option(
    "--yes",
    is_flag=True,
    help="Run until the budget is spent if the estimate exceeds it. Default: ask on a terminal, "
    "otherwise refuse.",
)
@click.option(
    "--register",
    is_flag=True,
    help="Sign the plan and write it down before the first trial (registered.json); the verdict "
    "says whether it is as registered. No earlier trial is used.",
)
@click.option("--name", metavar="NAME", help="Name of the experiment. Default: what is compared.")
@click.option(
    "-o",
    "--output",
    "root",
    type=OutFolder(),
    default="experiments",
    metavar="DIR",
    help="Keep each run in this folder, as NAME/DATE-ID. Default: experiments.",
)
@click.option(
    "--effect",
    type=Number(0, 1, min_open=True, max_open=True),
    default=0.1,
    metavar="RATE",
    help="Smallest difference in pass rate that --until decided must find or rule out. "
    "Default: 0.1.",
)
@margin_option
@calibration_option
@seed_option
@allow_replayed_option
@share_home_option
@with_options(leave_out(run_options, *_IN_PLACE), executor_options)
@help_option
@click.pass_context
def command(ctx: click.Context, /, source: Path | None, root: Path, **values: Any) -> None:
    """Run an experiment and say whether a treatment helps.

    EXPERIMENT is a file such as experiment.toml, which names prompts, graders and arms (see
    docs/ab.md); assay init writes one. Without it, the prompts in the file PROMPTS are run with the
    agent as it is (control) and with what --with names (treatment). The trials of the arms run in
    random order, each in a private workspace. The same command continues a run that was stopped.

    The exit code is 4 if an arm lacked its treatment, or if the control had it.
    """
    from assay.cli.experiment import AbOptions, run_experiment  # late: 80 ms, for numpy

    if values["name"] is not None and not is_name(values["name"]):
        msg = f"--name {values['name']!r} cannot name a folder. Use letters, digits, - and _."
        raise click.UsageError(msg)
    if [source, values["skills"], values["benchmark"]].count(None) != 2:
        msg = (
            "Give an experiment, a file of prompts, or --skills PATTERN or --benchmark NAME, and "
            "one of them only."
        )
        raise click.UsageError(msg)
    file = source if source is not None and source.suffix == ".toml" else None
    source_of, on_line = ctx.get_parameter_source, click.core.ParameterSource.COMMANDLINE
    given = {name for name in values if source_of(name) is on_line}
    experiment = read_experiment(file) if file else _from_options(source, values)
    digest = experiment.digest
    if file:
        before, experiment = experiment, _changed(experiment, file, values, given)
        # A verdict is about the file as it is: how long a run takes is left to the options.
        digest = msgspec.structs.replace(
            experiment, k=before.k, margin=before.margin, effect=before.effect
        ).digest
    options = AbOptions(
        how=ExperimentRequest(
            root=root,
            jobs=experiment.concurrency or values["concurrency"],
            rate_per_s=values["rate"],
            longest_wait_s=values["longest_wait"],
            executor=executor_ref(values["executor"], values["address"]),
            fresh=values["fresh"],
            # What was not run is on no tape.
            reuse="none" if values["record"] else values["reuse"],
            tape=tape_use(values),
            allow_replayed=values["allow_replayed"],
            confirm=values["confirm"],
            keep_workspaces=values["keep_workspaces"] or "",
            judge=values["judge"],
        ),
        file=file,
        digest=digest,
        factors=tuple(arm_name([_treatment("--with", text)]) for text in values["treatments"])
        if values["ablate"]
        else (),
        leaderboard=bool(values["matrix"]),
        skills=_skills_of(experiment) if values["skills"] else {},
        **{name: values[name] for name in _OF_DISPLAY},
    )
    if code := run_experiment(experiment, options):
        raise click.exceptions.Exit(code)


def _changed(
    experiment: Experiment, path: Path, values: dict[str, Any], given: set[str]
) -> Experiment:
    """Let some options replace what the file says; refuse others, which belong in the file."""
    for name in (*ArmOptions.__struct_fields__, "treatments", "ablate", "matrix", "skills"):
        if name in given:
            option = _SPELLED.get(name) or f"--{name.replace('_', '-')}"
            msg = f"{option} describes an arm: put it into {path}."
            raise click.UsageError(msg)
    changes = {key: values[name] for name, key in _OF_EXPERIMENT.items() if name in given}
    if "concurrency" in given:
        changes["concurrency"] = values["concurrency"]
    changes = {key: list(v) if isinstance(v, tuple) else v for key, v in changes.items()}
    changed = msgspec.structs.replace(experiment, **changes)
    return check_experiment(changed, str(path)) if changes else experiment


def _skills_of(experiment: Experiment) -> dict[str, str]:
    """Return the skill of each arm."""
    return {name: Path(arm.skills[0]).name for name, arm in experiment.arms.items() if arm.skills}


def _from_options(prompts: Path | None, values: dict[str, Any]) -> Experiment:
    """Put the experiment of a command line together."""
    treatments = [_treatment("--with", text) for text in values["treatments"]]
    axes = _axes(values["matrix"])
    _check_usage(values, treatments, axes)
    rest = {key: values[name] for name, key in _OF_EXPERIMENT.items() if values[name] is not None}
    rest = {key: list(v) if isinstance(v, tuple) else v for key, v in rest.items()}
    benchmark = values["benchmark"] or f"skills:{values['skills']}"
    where = str(prompts) if prompts is not None else benchmark
    rest |= {"prompts": str(prompts)} if prompts is not None else {"benchmark": benchmark}
    options = ArmOptions(**{name: values[name] for name in ArmOptions.__struct_fields__})
    memory = str(options.memory) if options.memory else None
    common = msgspec.structs.replace(options.arm, memory=memory)
    if values["skills"]:
        experiment = with_skills(common, skill_folders(values["skills"]), rest)
    elif axes:
        experiment = with_matrix(common, axes, rest)
    elif values["ablate"]:
        design = stats.factorial.two_level_design(len(treatments))
        experiment = with_factors(common, treatments, design, rest)
    else:
        experiment = with_treatment(common, treatments, rest)
    return check_experiment(experiment, where)


def _axes(given: Sequence[str]) -> dict[str, list[str]]:
    """Read the values of each --matrix; refuse what would be run as something else."""
    axes: dict[str, list[str]] = {}
    for text in given:
        kind, value = _treatment("--matrix", text)
        if kind in axes:
            together = f"--matrix {kind}={','.join(axes[kind])},{value}"
            msg = f"--matrix {kind} is given twice. Give all its values at once: {together}"
            raise click.UsageError(msg)
        axes[kind] = value.split(",")
        if "" in axes[kind]:
            msg = f"--matrix {text!r} has an empty value. The value none leaves the {kind} out."
            raise click.UsageError(msg)
    if axes and math.prod(map(len, axes.values())) < 2:
        msg = "--matrix needs two values or more, as in --matrix agent=claude,codex."
        raise click.UsageError(msg)
    return axes


def _check_usage(
    values: dict[str, Any], treatments: list[tuple[str, str]], axes: dict[str, list[str]]
) -> None:
    msg = ""
    if values["skills"] and (treatments or axes or values["ablate"]):
        msg = "--skills has the treatments: it cannot be used with --with, --ablate or --matrix."
    elif not treatments and not axes and not values["skills"]:
        msg = (
            "Nothing to compare. Use --with KIND=VALUE, as in --with skill=./skills/relnotes, or "
            "give an experiment file."
        )
    elif axes and treatments:
        msg = "--matrix and --with cannot be used together."
    elif values["ablate"] and not 2 <= len(treatments) <= 8:
        msg = f"--ablate needs two to eight --with, not {len(treatments)}."
    elif values["ablate"] and len({*treatments}) < len(treatments):
        twice = next(one for one in treatments if treatments.count(one) > 1)
        msg = f"--ablate takes each --with once, and has {'='.join(twice)} twice."
    elif (axes or values["ablate"]) and values["until"] == "decided":
        msg = "--until decided compares single arms; --ablate and --matrix run all trials."
    elif not any(values[way] for way in ("schema", "simple", "shell")) and "agent" not in axes:
        msg = "No agent given. Use -s AGENT, --simple COMMAND or --shell COMMAND."
    if msg:
        raise click.UsageError(msg)


def _treatment(option: str, text: str) -> tuple[str, str]:
    kind, equals, value = text.partition("=")
    if not equals or not value or kind not in TREATMENTS:
        msg = f"{option} {text!r} is not KIND=VALUE, where KIND is one of {', '.join(TREATMENTS)}."
        raise click.UsageError(msg)
    return kind, value
