"""What a plan has changed since an earlier run was made: prompts, expectations, graders.

A gate sets the prompts that changed aside and judges the others. A grader is compared by what it
says before what is written in it: answers that the earlier run kept are put to the new one.
"""

import zlib
from collections.abc import Callable, Iterator, Sequence

import msgspec

from assay import plugins
from assay.compare.columns import Ints, expectation_of, metadata_of, task_of
from assay.compare.pairs import unlike_graders
from assay.compare.runs import Run, read_metadata
from assay.errors import AssayError
from assay.pipeline.grade import grade_all
from assay.pipeline.grading import GradedRow
from assay.records.rows import Place, open_rows
from assay.records.spec import PluginRef, Prompt, TrialSpec
from assay.records.text import counted_noun
from assay.records.trial.files import is_trials_row
from assay.run.workspace import our_secrets

_FEW_IDS = 5
_MOST_ASIDE = 0.1
"""Of the earlier run's prompts, what may be set aside or lacking without anyone's consent."""
_ANSWERS = 4
"""Of each prompt, how many kept answers a changed grader is asked about."""


class Changes(msgspec.Struct, frozen=True, kw_only=True):
    """What differs between a plan and an earlier run."""

    inputs: list[str] = []
    expected: list[str] = []
    """Prompts of which graders expect another answer."""
    tasks: list[str] = []
    """Prompts that bring other files, or another set-up."""
    removed: list[str] = []
    regraded: list[str] = []
    """Prompts of which the new graders judge kept answers otherwise."""
    graders: list[str] = []
    """How graders differ whose behaviour cannot be compared."""
    same_graders: str = ""
    """What was found of graders whose text alone differs."""

    @property
    def aside(self) -> list[str]:
        """The prompts that are in both and cannot be compared."""
        return list(dict.fromkeys([*self.inputs, *self.expected, *self.tasks, *self.regraded]))

    @property
    def words(self) -> list[str]:
        """Name each change."""
        kinds = {
            "another input": self.inputs,
            "another right answer": self.expected,
            "other files, or another set-up": self.tasks,
            "answers that the changed grader judges otherwise": self.regraded,
        }
        found = [f"{named(ids)} {_has(ids)} {what}" for what, ids in kinds.items() if ids]
        if self.removed:
            verb = "is" if len(self.removed) == 1 else "are"
            found.append(f"{named(self.removed)} {verb} not in the plan")
        return [*found, *self.graders]

    def needs_consent(self, n_prompts: int) -> bool:
        """Whether so much has changed that a person has to accept it."""
        most = max(1.0, _MOST_ASIDE * n_prompts)
        return bool(self.graders) or len(self.aside) + len(self.removed) > most


def _has(ids: Sequence[str]) -> str:
    return "has" if len(ids) == 1 else "have"


def named(ids: Sequence[str]) -> str:
    """Count prompts, and name the first ones."""
    more = ", …" if len(ids) > _FEW_IDS else ""
    return f"{counted_noun(len(ids), 'prompt')} ({', '.join(ids[:_FEW_IDS])}{more})"


def fingerprint(prompt: Prompt) -> int:
    """Return the same number of an input as the columns of a file have."""
    return zlib.crc32(msgspec.json.encode(our_secrets().mask_record(prompt).input))


def copies_in(specs: Sequence[TrialSpec]) -> dict[str, str]:
    """Name for each prompt that is a copy of an earlier one, under another id, that earlier one."""
    first: dict[tuple[int, ...], str] = {}
    found: dict[str, str] = {}
    with_metadata = read_metadata(_planned_graders(specs))
    for spec in {spec.prompt.id: spec for spec in specs}.values():
        id_ = spec.prompt.id
        metadata = _metadata(spec) if with_metadata else 0
        parts = (fingerprint(spec.prompt), _expectation(spec), _task(spec), metadata)
        if (known := first.setdefault(parts, id_)) != id_:
            found[id_] = known
    inputs = {asked for asked, *_ in first}
    return found if len(inputs) > 1 else {}  # as compare.runs.cluster_copies has it


def find_changes(
    run: Run, specs: Sequence[TrialSpec], graders: Sequence[PluginRef], *, chosen: bool
) -> Changes:
    """Compare a plan with an earlier run; chosen: a part of the prompts was asked for."""
    prompts = {spec.prompt.id: spec.prompt for spec in specs}
    inputs = {id_: int(value) for id_, value in zip(run.ids, run.inputs, strict=True)}
    changed = [
        id_
        for id_, prompt in prompts.items()
        if inputs.get(id_, fingerprint(prompt)) != fingerprint(prompt)
    ]
    measured = [id_ for id_, n in zip(run.ids, run.n_measured, strict=True) if n]
    found = Changes(
        inputs=changed,
        expected=_expected(run, specs),
        tasks=_changed(run, run.tasks, specs, _task),
        removed=[] if chosen else sorted(id_ for id_ in measured if id_ not in prompts),
    )
    unlike = unlike_graders(run, "this run", _planned_graders(specs))
    # What rows bring along is not known here; it is compared by its text.
    if any(prompt.graders or prompt.expect for prompt in prompts.values()):
        graders = ()
    return _compare_graders(found, run, unlike, graders) if unlike else found


def _expected(run: Run, specs: Sequence[TrialSpec]) -> list[str]:
    found = _changed(run, run.expectations, specs, _expectation)
    if read_metadata(run.graders) or read_metadata(_planned_graders(specs)):
        found += _changed(run, run.metadata, specs, _metadata)
    return list(dict.fromkeys(found))


def _planned_graders(specs: Sequence[TrialSpec]) -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for spec in specs:
        for name, version in (spec.identity.graders if spec.identity else {}).items():
            found.setdefault(name, set()).add(version)
    return found


def _changed(
    run: Run, known: Ints, specs: Sequence[TrialSpec], value_of: Callable[[TrialSpec], int]
) -> list[str]:
    """Return the prompts of which a fingerprint is not that of the earlier run."""
    if not known.any() and not run.identities:
        return []  # rows of other tools may not have it
    before = dict(zip(run.ids, known.tolist(), strict=True))
    now = {spec.prompt.id: spec for spec in specs}
    return [id_ for id_, spec in now.items() if id_ in before and before[id_] != value_of(spec)]


def _expectation(spec: TrialSpec) -> int:
    prompt = our_secrets().mask_record(spec.prompt)
    extra = our_secrets().mask_record(spec.extra)
    return expectation_of({**extra, "hint": prompt.hint})


def _metadata(spec: TrialSpec) -> int:
    return metadata_of(our_secrets().mask_record(spec.prompt).metadata)


def _task(spec: TrialSpec) -> int:
    extra = our_secrets().mask_record(spec.extra)
    return task_of(extra, spec.identity.setup if spec.identity else "")


class _EntryView(msgspec.Struct, gc=False):
    pass_: bool | None = msgspec.field(name="pass", default=None)


_PIECES = msgspec.json.Decoder(dict[str, msgspec.Raw])
_ENTRIES = msgspec.json.Decoder(list[msgspec.Raw])
_VERDICTS = msgspec.json.Decoder(list[_EntryView])


def _compare_graders(
    found: Changes, run: Run, unlike: list[str], graders: Sequence[PluginRef]
) -> Changes:
    """Ask the new graders about kept answers; what they cannot be asked stays a difference."""
    asks = [ref.name for ref in graders if plugins.grader(ref).asks is not None]
    if asks or not graders:
        return msgspec.structs.replace(found, graders=unlike)
    n_asked, n_failed, otherwise = 0, 0, list[str]()
    try:
        for before, graded in _asked_again(run, graders):
            after = [verdict.score.pass_ if verdict.score else None for verdict in graded.verdicts]
            if None in after:  # a folder, say, that was not kept: nothing is known of it
                return msgspec.structs.replace(found, graders=unlike)
            n_asked += len(after)
            n_failed += before.count(False)
            if after != before:
                otherwise.append(str(graded.id))
    except AssayError as error:
        return msgspec.structs.replace(found, graders=[*unlike, str(error)])
    otherwise.sort()  # the rows of a run are in the order in which they finished
    had = f"{n_failed or 'none'} of which had failed"
    words = (
        f"{'; '.join(unlike)}; asked again about {counted_noun(n_asked, 'kept answer')}, {had}, "
    )
    words += f"it judges those of {named(otherwise)} otherwise" if otherwise else "it says the same"
    return msgspec.structs.replace(found, regraded=otherwise, same_graders=words)


def _asked_again(
    run: Run, graders: Sequence[PluginRef]
) -> Iterator[tuple[list[bool | None], GradedRow]]:
    before: list[list[bool | None]] = []
    graded = grade_all(_kept_answers(run, before), graders)
    for number, row in enumerate(graded):
        yield before[number], row


def _kept_answers(run: Run, before: list[list[bool | None]]) -> Iterator[tuple[Place, bytes]]:
    """Yield rows with the newest measured trials of each prompt; before gets their verdicts."""
    with open_rows(run.path) as file:
        for place, line in file.placed_lines():
            if not is_trials_row(line):
                continue
            row = _PIECES.decode(line)
            entries = _ENTRIES.decode(row["trials"])
            seen = _VERDICTS.decode(row["trials"])
            kept = [n for n, entry in enumerate(seen) if entry.pass_ is not None][-_ANSWERS:]
            if not kept:
                continue
            before.append([seen[n].pass_ for n in kept])
            yield place, msgspec.json.encode({**row, "trials": [entries[n] for n in kept]})
