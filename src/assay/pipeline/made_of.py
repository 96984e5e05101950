"""What a run of an experiment is made of: the one answer for `assay ab` and `assay ab status`."""

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec

from assay import plugins
from assay.compare.ledger import is_held_back
from assay.errors import InputError
from assay.pipeline.prompts import choose, read_prompts
from assay.pipeline.run import PreparedRun, RunRequest, arm_request, prepare
from assay.plugin import PromptRow
from assay.records.capture import Identity, identity_differences
from assay.records.experiment import Experiment
from assay.records.files import short_hash
from assay.records.spec import PluginRef
from assay.records.tape import TapeUse
from assay.records.text import counted_noun

DEFAULT_K = 5
_FEW = 3
_OF_PROGRAM = ("program", "loads", "packages", "not_covered")


class MadeOf(msgspec.Struct, frozen=True):
    """The arms of a run and its prompts, as far as they decide what is measured."""

    arms: dict[str, Identity] = {}
    prompts: dict[str, str] = {}
    """A hash of each prompt, with its expectation and what its row brings along."""


def prepare_arms(
    experiment: Experiment,
    rows: list[PromptRow],
    scratch: Path,
    tape: TapeUse | None = None,
    **pace: Any,
) -> dict[str, PreparedRun]:
    """Read what the arms name, the control first; scratch is an empty folder for templates."""
    timeout_s = experiment.grader_timeout
    shared = {
        "prompts": benchmark_of(experiment),
        "graders": [plugins.grader_ref(text, timeout_s) for text in experiment.graders],
        "grader_timeout_s": timeout_s,
        "k": experiment.k or DEFAULT_K,
        "retries": experiment.retries,
        "mode": "resume",
        "can_regrade": False,
        **pace,
    }
    names = (experiment.control, *experiment.treatments)
    arms = {name: experiment.resolved(name) for name in names}
    requests = {
        name: arm_request(
            arm,
            rows=rows,
            scratch=scratch / str(number),
            own_home=not arm.share_home,
            tape=msgspec.structs.replace(tape, arm=name) if tape is not None else None,
            **shared,
        )
        for number, (name, arm) in enumerate(arms.items())
    }
    if len({arm.template for arm in arms.values()}) > 1:  # what it tells agents is the treatment
        requests = {name: _hiding_template(request) for name, request in requests.items()}
    return {name: prepare(request) for name, request in requests.items()}


def _hiding_template(request: RunRequest) -> RunRequest:
    assert request.material is not None
    material = msgspec.structs.replace(request.material, is_template_hidden=True)
    return msgspec.structs.replace(request, material=material)


def made_of(arms: Mapping[str, PreparedRun]) -> MadeOf:
    """Say what a run of these arms is made of."""
    identities = {name: arm.setting.identity for name, arm in arms.items()}
    own = [own_identities(arm) for arm in arms.values()]
    first = next(iter(arms.values()))
    prompts = {
        prompt.id: short_hash(
            msgspec.json.encode(
                (prompt.task, prompt.expect, prompt.graders, [each.get(prompt.id) for each in own]),
                order="deterministic",
            )
        )
        for prompt, _ in first.rows
    }
    return MadeOf({name: one for name, one in identities.items() if one is not None}, prompts)


def changes(old: MadeOf, new: MadeOf) -> list[str]:
    """Say in words what is not as it was; nothing if a run would measure the same again."""
    return list(dict.fromkeys(_changes(old, new)))


def _changes(old: MadeOf, new: MadeOf) -> Iterator[str]:
    for name in dict.fromkeys((*old.arms, *new.arms)):
        before, after = old.arms.get(name), new.arms.get(name)
        if before is None or after is None:
            yield f"the arm {name} {'is new' if before is None else 'is gone'}"
        else:
            yield from identity_differences(before, seen_here(before, after))
    changed = [id_ for id_, value in new.prompts.items() if old.prompts.get(id_, value) != value]
    words = {
        "changed": changed,
        "new": [id_ for id_ in new.prompts if id_ not in old.prompts],
        "gone": [id_ for id_ in old.prompts if id_ not in new.prompts],
    }
    for what, ids in words.items():
        if ids:
            more = f" and {len(ids) - _FEW} more" if len(ids) > _FEW else ""
            said = (
                f"{counted_noun(len(ids), 'prompt')} {'has' if len(ids) == 1 else 'have'} changed"
            )
            if what != "changed":
                said = (
                    f"{counted_noun(len(ids), 'prompt')} {'is' if len(ids) == 1 else 'are'} {what}"
                )
            yield f"{said}: {', '.join(ids[:_FEW])}{more}"


def is_absent(old: Identity, new: Identity) -> bool:
    """Whether the agent's program is not on this machine, so that nothing can be said of it."""
    return bool(old.program) and not new.program


def seen_here(old: Identity, new: Identity) -> Identity:
    """Return the new identity, with the old program where this machine has none to look at."""
    if not is_absent(old, new):
        return new
    return msgspec.structs.replace(new, **{name: getattr(old, name) for name in _OF_PROGRAM})


def own_identities(arm: PreparedRun) -> dict[str, Identity | None]:
    """Return the identities of prompts whose rows ask for something of their own."""
    made = {prompt.id: arm.row_settings.of(prompt).identity for prompt, _ in arm.rows}
    return {id_: one for id_, one in made.items() if one is not arm.setting.identity}


def benchmark_of(experiment: Experiment) -> PluginRef:
    """Return where the prompts come from."""
    if experiment.benchmark is not None:
        return plugins.benchmark_ref(experiment.benchmark)
    path = experiment.prompts
    return PluginRef(name="prompts", options={"path": path} if path and path != "-" else {})


def confirming(experiment: Experiment) -> Experiment:
    """Return the experiment with the prompts of its confirmations, if it names a file of them."""
    prompts = experiment.confirm_prompts or experiment.prompts
    return msgspec.structs.replace(experiment, prompts=prompts)


def read_rows(
    experiment: Experiment,
    *,
    confirm: bool = False,
    say: Callable[[str], object] = lambda text: None,
) -> list[PromptRow]:
    """Return the prompts that are run; refuse none. say is told of filters that choose nothing.

    Those that are held back are run for a confirmation, and only for this.
    """
    where = experiment.prompts or f"benchmark {experiment.benchmark}"
    rows = read_prompts(benchmark_of(experiment))
    if share := experiment.holdout:
        rows = [row for row in rows if is_held_back(row[0].id, share) == confirm]
        if not rows:
            held = "held back" if confirm else "left to run"
            msg = f"{where}: holdout = {share:g}: no prompt is {held}"
            raise InputError(msg, hint="write more prompts, or change holdout")
    rows = choose(rows, experiment.filter, experiment.limit, where, say=say)
    if not rows:
        msg = f"{where}: no prompts"
        raise InputError(msg)
    return rows
