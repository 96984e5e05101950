"""The arms of an experiment before they run: agent, material, prompts and graders of each."""

from collections.abc import Sequence
from pathlib import Path

import click
import msgspec

from assay import plugins
from assay.cli.batch import prompt_file
from assay.cli.options import CaptureOptions, agent_ref, findable, grader_refs, setting
from assay.cli.parameters import Size
from assay.errors import InputError
from assay.pipeline.experiment import Arm, Experiment
from assay.pipeline.experiment_run import ReadyArm, skill_bodies
from assay.pipeline.material import Material, compose, read_skill
from assay.pipeline.prompts import Setting, choose, read_prompts
from assay.pipeline.proof import read_piece
from assay.pipeline.row_settings import RowSettings, prompt_folder
from assay.plugin import PromptRow
from assay.records.spec import PluginRef


def benchmark_of(experiment: Experiment) -> PluginRef:
    """Return where the prompts come from."""
    if experiment.benchmark is not None:
        return plugins.benchmark_ref(experiment.benchmark)
    return prompt_file([experiment.prompts or ""], from_stdin=False)


def graders_of(experiment: Experiment, benchmark: PluginRef) -> list[PluginRef]:
    """Return the graders of all prompts, those of the benchmark first."""
    theirs = list(plugins.benchmark(benchmark).graders())
    for ref in theirs:
        plugins.grader(ref)
    return [*theirs, *grader_refs(experiment.graders, experiment.grader_timeout)]


def prompts_of(experiment: Experiment, benchmark: PluginRef) -> list[PromptRow]:
    """Return the prompts that are run; refuse none."""
    rows = choose(read_prompts(benchmark), experiment.filter, experiment.limit)
    if not rows:
        where = experiment.prompts or f"benchmark {experiment.benchmark}"
        msg = f"{where}: no prompts{' that match the filter' if experiment.filter else ''}"
        raise InputError(msg)
    return rows


def check_graded(
    experiment: Experiment, rows: Sequence[PromptRow], graders: Sequence[PluginRef]
) -> None:
    """Refuse prompts that nobody judges: without grades no arm can be better."""
    without = [prompt.id for prompt, _ in rows if not (prompt.graders or prompt.expect)]
    if not graders and without:
        msg = f"{experiment.prompts}: no grader judges the prompt {without[0]!r}"
        raise InputError(msg, hint="name graders in the experiment, with -g, or in each prompt")


def row_settings(
    shared: Setting,
    rows: Sequence[PromptRow],
    experiment: Experiment,
    graders: Sequence[PluginRef],
) -> RowSettings:
    """Read what the rows of the prompts ask for."""
    own = RowSettings(shared, graders, experiment.grader_timeout, findable)
    own.take(rows, graded=True)
    return own


def _with_material(
    rows: Sequence[PromptRow], agent: PluginRef, material: Material, folder: Path, scratch: Path
) -> list[PromptRow]:
    """Put the material of an arm into copies of the workspaces that prompts bring."""
    made: dict[str, str] = {}
    found = []
    for prompt, extra in rows:
        if prompt.workspace is not None and (folder / prompt.workspace).is_dir():
            if prompt.workspace not in made:
                copy = made[prompt.workspace] = f"{scratch}-{len(made)}"
                source = folder / prompt.workspace
                compose(agent, msgspec.structs.replace(material, template=source), Path(copy))
            prompt = msgspec.structs.replace(prompt, workspace=made[prompt.workspace])
        found.append((prompt, extra))
    return found


def ready_arms(
    experiment: Experiment,
    base: CaptureOptions,
    rows: Sequence[PromptRow],
    graders: Sequence[PluginRef],
    scratch: Path,
) -> list[ReadyArm]:
    """Find agent and material of each arm, the control first; refuse what cannot work."""
    found, benchmark = [], benchmark_of(experiment)
    for number, name in enumerate((experiment.control, *experiment.treatments)):
        arm, template = experiment.resolved(name), scratch / str(number)
        options = _arm_options(base, arm)
        agent = agent_ref(options)
        material = Material(
            template=Path(arm.template) if arm.template else None,
            skills=tuple(read_skill(Path(skill)) for skill in arm.skills),
            instructions=Path(arm.instructions) if arm.instructions else None,
        )
        compose(agent, material, template)
        options = msgspec.structs.replace(options, workspace_template=template)
        shared = setting(options, agent, benchmark, graders, keep_raw=False)
        own_rows = _with_material(rows, agent, material, prompt_folder(benchmark), template)
        settings = row_settings(shared, own_rows, experiment, graders)
        named = [*arm.skills, arm.template, arm.instructions]
        found.append(
            ReadyArm(
                name=name,
                arm=arm,
                setting=shared,
                template=template,
                rows=own_rows,
                own=settings,
                pieces={path: read_piece(Path(path)) for path in named if path},
                bodies=_bodies(shared, settings, template, own_rows, prompt_folder(benchmark)),
            )
        )
    return found


def _bodies(
    shared: Setting, own: RowSettings, template: Path, rows: Sequence[PromptRow], folder: Path
) -> dict[str, str]:
    """Read the bodies of all skills in the templates of an arm and in the user's HOME."""
    places = {template: shared.identity}
    for prompt, _ in rows:
        if prompt.workspace is not None:
            places[folder / prompt.workspace] = own.of(prompt).identity
    found: dict[str, str] = {}
    for place, identity in places.items():
        found |= skill_bodies(place, identity)
    return found


def _size(text: str) -> int:
    try:
        return Size().convert(text, None, None)
    except click.BadParameter as error:  # it stands in a file, not on the command line
        msg = f"memory: {error.message}"
        raise InputError(msg) from error


def _arm_options(base: CaptureOptions, arm: Arm) -> CaptureOptions:
    """Return the options of `assay trials` that an arm stands for."""
    return msgspec.structs.replace(
        base,
        schema=arm.agent,
        simple=arm.simple,
        shell=arm.shell,
        model=arm.model,
        agent_args=tuple(arm.agent_args),
        mcp=Path(arm.mcp) if arm.mcp else None,
        max_turns=arm.max_turns,
        env_names=tuple(arm.env),
        isolate=bool(arm.isolate),
        sandbox=arm.sandbox,
        container=arm.container,
        memory=_size(arm.memory) if arm.memory else None,
        cpus=arm.cpus,
        timeout=arm.timeout,
        trial_timeout=arm.trial_timeout,
        stall=arm.stall,
    )
