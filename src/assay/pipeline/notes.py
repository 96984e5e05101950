"""What to know before the first agent starts: sentences for the person who starts a run."""

import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from assay.records.capture import Identity
from assay.records.recording import FORGETS
from assay.records.setup import REPLAYED_WORDS
from assay.records.spec import PluginRef, Surroundings, TrialSpec
from assay.records.tape import TapeUse
from assay.records.text import counted_noun
from assay.records.trial import Allocation
from assay.run.sandbox import LANDLOCK
from assay.run.workspace import inherited, private_root


class Note(NamedTuple):
    """A sentence for the person who started the run."""

    text: str
    is_important: bool = False
    """Whether it is shown although little output was asked for."""


FORGETTING = Note(
    f"Warning: {FORGETS}. "
    'A schema can give "resume", or "sessionMode": "iterative"; --simple and --shell '
    "put the earlier turns into the prompt."
)
LANDLOCK_USED = Note(f"bubblewrap does not work here, so Landlock is used: {LANDLOCK}", True)
ONE_AFTER_ANOTHER = Note(
    "Trials of one prompt share this folder and run one after another; --overlap runs them at the "
    "same time, and so does --isolate or --workspace-dir, with a folder for each."
)
_MOST_NAMED = 8
_SHOWN = 5


def allocation_notes(given: Mapping[str, Allocation], path: Path) -> Iterator[Note]:
    if not given:
        return
    numbers = [each.trials for each in given.values()]
    yield Note(
        f"Allocated {sum(numbers)} trials by the spread in {path}: {numbers.count(1)} of "
        f"{len(given)} prompts get one, the others up to {max(numbers)}"
    )


def unknown_notes(output: Path | None, identity: Identity | None) -> Iterator[Note]:
    """Say what of the agent may have changed since the rows that are continued were made."""
    if identity is not None and identity.not_covered and output is not None and output.exists():
        yield Note(
            f"not covered, so that earlier rows may be of another agent: "
            f"{'; '.join(identity.not_covered)}"
        )


def place_notes(around: Surroundings, n_private: int, n_prompts: int) -> Iterator[Note]:
    """Say what the agents can see besides their prompts."""
    if n_private:
        bring = "brings" if n_private == 1 else "bring"
        yield Note(
            f"{counted_noun(n_private, 'prompt')} {bring} files, a workspace or a set-up: each of "
            f"their trials works in a folder of its own below {private_root()}."
        )
    if around.workspace_dir is None:
        if n_private < n_prompts:
            reads = _read_there(Path(around.cwd))
            yield Note(
                f"The agent works in {around.cwd} itself{reads}; --workspace-template or --isolate "
                "gives each trial a folder of its own."
            )
    elif found := inherited(Path(around.workspace_dir)):
        yield Note(
            f"Warning: the workspaces are inside a project. Agents will also read "
            f"{', '.join(map(str, found))}. Leave out --workspace-dir to avoid it."
        )


def _read_there(folder: Path) -> str:
    """Name the instructions and skills that agents find in a folder and above it."""
    found: list[str] = []
    for path in inherited(folder):
        skills = sorted(path.glob("skills/*/")) if path.is_dir() else []
        found += map(str, skills or [path])
    more = f" and {len(found) - _MOST_NAMED} more" if len(found) > _MOST_NAMED else ""
    return f" and reads {', '.join(found[:_MOST_NAMED])}{more} there" if found else ""


def key_notes(specs: Sequence[TrialSpec]) -> Iterator[Note]:
    """Say which keys of judges and simulated users the agent does not get."""
    hidden = {
        name
        for around in (spec.surroundings for spec in specs)
        if not around.hides_env
        for name in {*around.hidden_env} - {*around.env_names}
    }
    for name in sorted(hidden & os.environ.keys()):
        yield Note(
            f"{name} is the key of a judge or a simulated user: the agent gets it only if its "
            f"adapter names it, or --env {name}."
        )


def own_folder_notes(benchmark: PluginRef) -> Iterator[Note]:
    """Say that the agents do not work in the user's folder, if only the benchmark asks for it."""
    yield Note(
        f"Each trial of the benchmark {benchmark.name} works in a folder of its own below "
        f"{private_root()}."
    )


def tape_notes(tape: TapeUse | None) -> Iterator[Note]:
    """Say that no model is asked, where that is so."""
    if tape is not None and tape.replay:
        what = REPLAYED_WORDS.removeprefix("replayed: ").rstrip(",")
        yield Note(f"The models' answers come from {tape.replay}: {what}.")


def skipped_notes(skipped: Mapping[str, str], n_asked: int) -> Iterator[Note]:
    """Say which tasks are left out because they cannot be run here: each reason with its tasks."""
    if not skipped:
        return
    tasks: dict[str, list[str]] = {}
    for id_, why in skipped.items():
        tasks.setdefault(why, []).append(id_)
    yield Note(
        f"Skipped {len(skipped)} of {counted_noun(n_asked, 'task')}, which cannot be run here:",
        True,
    )
    for why, ids in sorted(tasks.items(), key=lambda item: -len(item[1])):
        shown = ", ".join(ids[:_SHOWN]) + (f" and {len(ids) - _SHOWN} more" * (len(ids) > _SHOWN))
        yield Note(f"  {len(ids)}: {why} ({shown})", True)
