"""Trigger cases: prompts that say whether a skill should be used, and what trials of them show."""

import random
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec

from assay import plugins, stats
from assay.adapters.reading import ENDED
from assay.errors import AssayError, InputError
from assay.pipeline.material import SKILL_FILE, Skill, read_skill
from assay.plugin import PromptRow
from assay.records.capture import AnyStep, Failure, ToolCall, Usage
from assay.records.cases import prompt_lines
from assay.records.cases.rows import SKILL_EVALS
from assay.records.files import copy_with_linked, temporary_folder
from assay.records.reports import CaseFires, TriggerRate, TriggerRun
from assay.records.rows import decode_row, read_lines
from assay.records.skills import SHOULD_TRIGGER, fires
from assay.records.spec import PluginRef, Prompt, TrialSpec, check_prompt
from assay.records.trial import ENDED_EARLY

CASE_HINT = (
    'one JSON object per line, or a JSON array of them: {"input": "Write the release notes", '
    '"shouldTrigger": true}'
)


_OF_TASK = ("graders", "expect", "imported")


class _Case(msgspec.Struct, kw_only=True):
    """A case as it stands in a file; those of skill-creator have `query` and `should_trigger`."""

    id: str | int | None = None
    input: str | list[str] | None = None
    query: str | None = None
    should: bool | None = msgspec.field(default=None, name=SHOULD_TRIGGER)
    should_snake: bool | None = msgspec.field(default=None, name="should_trigger")


def read_cases(path: Path | None) -> list[PromptRow]:
    """Read the cases of a file, or of stdin, as prompts whose metadata has shouldTrigger."""
    places: dict[str, str] = {}
    rows: list[PromptRow] = []
    for number, (place, line) in enumerate(prompt_lines(path), 1):
        row = _prompt_row(place, line, number)
        check_prompt(row[0], place, places)
        rows.append(row)
    if not rows:
        msg = f"{path or 'stdin'}: there are no cases"
        raise InputError(msg, hint=CASE_HINT)
    return rows


def _prompt_row(place: str, line: bytes, number: int) -> PromptRow:
    case, rest = decode_row(place, line, _Case, hint=CASE_HINT)
    given = _only(place, "input", case.input, "query", case.query)
    metadata = rest.get("metadata", {})
    named = metadata.get(SHOULD_TRIGGER) if isinstance(metadata, dict) else None
    if named is None and (rest.get("imported") or {}).get("format") == SKILL_EVALS:
        named = True  # a task for the skill, unless it says otherwise
    own = named if case.should is None else case.should
    should = _only(place, SHOULD_TRIGGER, own, "should_trigger", case.should_snake)
    if not isinstance(should, bool):
        msg = f'{place}: "{SHOULD_TRIGGER}" must be true or false, not {should!r}'
        raise InputError(msg, hint=CASE_HINT)
    if not given or (isinstance(given, str) and not given.strip()):
        msg = f'{place}: "input" is empty; a case needs what a user would write'
        raise InputError(msg, hint=CASE_HINT)
    if isinstance(metadata, dict):  # anything else is refused as in a prompt
        metadata = {**metadata, SHOULD_TRIGGER: should}
    if isinstance(rest.get("imported"), dict):  # whether the task succeeds is not asked here
        rest = {name: value for name, value in rest.items() if name not in _OF_TASK}
    case_id = f"case-{number}" if case.id is None else str(case.id)
    row = {**rest, "id": case_id, "input": given, "metadata": metadata}
    return decode_row(place, msgspec.json.encode(row), Prompt, hint=CASE_HINT)


def _only[T](place: str, name: str, value: T | None, other: str, same: T | None) -> T:
    """Return the one of two spellings of a field that a case has."""
    if value is None and same is None:
        msg = f'{place}: "{name}" is missing'
        raise InputError(msg, hint=CASE_HINT)
    if value is not None and same is not None and value != same:
        msg = f'{place}: "{name}" and "{other}" differ; give one of them'
        raise InputError(msg)
    return value if value is not None else same  # type: ignore[return-value]


def split_cases(cases: Sequence[PromptRow], seed: int) -> tuple[list[PromptRow], list[PromptRow]]:
    """Split the cases in two halves with as many of both kinds; the first half may have one more.

    The same cases and the same seed give the same halves.
    """
    draw = random.Random(seed)
    chosen: set[str] = set()
    for should in (True, False):
        ids = sorted(p.id for p, _ in cases if p.metadata[SHOULD_TRIGGER] is should)
        if len(ids) == 1:
            kind = "should" if should else "should not"
            msg = f"only one case {kind} trigger the skill, which cannot be split in two halves"
            raise InputError(msg, hint="add cases of that kind")
        draw.shuffle(ids)
        chosen.update(ids[: (len(ids) + 1) // 2])
    first = [row for row in cases if row[0].id in chosen]
    return first, [row for row in cases if row[0].id not in chosen]


_MARKER = re.compile(r"<!--[ \t]*marker:[ \t]*(\S[^\n]*?)[ \t]*-->")
_LONGEST_DESCRIPTION = 1024
"""Characters; agents refuse or cut longer ones."""


def marker_of(skill: Skill) -> str:
    """Return the TEXT of a comment `<!-- marker: TEXT -->` in SKILL.md, if there is one."""
    found = _MARKER.search((skill.folder / SKILL_FILE).read_text(encoding="utf-8"))
    return found[1] if found else ""


def skills_below(folder: Path) -> list[Skill]:
    """Return the skill that a folder is, or those in it."""
    if (folder / SKILL_FILE).is_file():
        return [read_skill(folder)]
    found = [read_skill(file.parent) for file in sorted(folder.glob(f"*/{SKILL_FILE}"))]
    if not found:
        msg = f"{folder}: there is no skill in this folder"
        raise InputError(msg, hint=f"name a folder with a {SKILL_FILE}, or one with such folders")
    return found


def installed_skills(agent: PluginRef) -> tuple[list[Skill], list[str]]:
    """Return the skills in the user's HOME that an agent would see, and those it cannot read."""
    found: list[Skill] = []
    unreadable: list[str] = []
    read = plugins.adapter(agent).reads_in_home
    for name in (".agents/skills",) if read is None else read:
        if not name.endswith("skills"):
            continue
        for file in sorted(Path.home().joinpath(name).glob(f"*/{SKILL_FILE}")):
            try:
                found.append(read_skill(file.parent))
            except AssayError as error:
                unreadable.append(error.message)
    return found, unreadable


def beside(skill: Skill, others: Sequence[Skill]) -> tuple[list[Skill], list[Path]]:
    """Return the other skills, each name once, and the copies of this one, which are left out."""
    kept = {other.name: other for other in reversed(others)}
    here = skill.folder.resolve()
    named_alike = [other.folder for other in others if other.name == skill.name]
    copies = [folder for folder in named_alike if folder.resolve() != here]
    return [other for name, other in sorted(kept.items()) if name != skill.name], copies


def read_description(path: Path) -> str:
    """Read a description from a file: its head's, or if it has none the whole text."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeError) as error:
        msg = f"{path}: cannot be read: {error}"
        raise InputError(msg) from error
    if text.lstrip("\ufeff").startswith("---"):
        with temporary_folder("assay-description-") as folder:
            Path(folder, SKILL_FILE).write_text(text, encoding="utf-8")
            return read_skill(Path(folder)).description
    return checked_description(text, str(path))


def checked_description(text: str, source: str) -> str:
    """Return a description as one line; refuse one that agents would not take."""
    line = " ".join(text.split())
    if not line:
        msg = f"{source}: the description is empty"
        raise InputError(msg)
    if len(line) > _LONGEST_DESCRIPTION:
        msg = f"{source}: the description has {len(line)} characters"
        raise InputError(msg, hint=f"agents take at most {_LONGEST_DESCRIPTION}")
    return line


def with_description(skill: Skill, description: str, folder: Path) -> Skill:
    """Copy a skill into a new folder, with another description."""
    copy_with_linked(skill.folder.resolve(), folder, [""])
    file = folder / SKILL_FILE
    lines = file.read_text(encoding="utf-8").splitlines(keepends=True)
    begin = next(n for n, line in enumerate(lines) if line.startswith("description:"))
    end = begin + 1
    while lines[end][:1] in " \t" or not lines[end].strip():  # its other lines are indented
        end += 1
    # JSON's spelling of a text is one of YAML's too.
    lines[begin:end] = [f"description: {msgspec.json.encode(description).decode()}\n"]
    file.unlink()  # it may be a link to the user's own file
    file.write_text("".join(lines), encoding="utf-8")
    return msgspec.structs.replace(skill, folder=folder, description=description)


class StopRule(msgspec.Struct, frozen=True, kw_only=True):
    """When a trial is settled: the skill fired, or the agent did much else without it."""

    skill: str
    marker: str = ""
    max_calls: int | None = None
    """Tool calls of the agent itself; those of sub-agents do not count."""

    def __call__(self, spec: TrialSpec) -> Callable[[AnyStep], bool]:
        """Return what says of the steps of one trial whether they settle it."""
        return _StepCheck(self)


class _StepCheck:
    def __init__(self, rule: StopRule) -> None:
        self._rule = rule
        self._firing: Any = None
        self._ended: set[Any] = set()

    def __call__(self, step: AnyStep) -> bool:
        # A call is settled by its end: only then is it known what was loaded.
        if self._firing is not None and _key(step) != self._firing:
            return True
        if fires(step, self._rule.skill, self._rule.marker):
            self._firing = _key(step)
            return not isinstance(step, ToolCall) or step.status in ENDED
        if isinstance(step, ToolCall) and step.status in ENDED and not step.parent:
            self._ended.add(_key(step))
        most = self._rule.max_calls
        return most is not None and len(self._ended) >= most


def _key(step: AnyStep) -> Any:
    known = step.call_id if isinstance(step, ToolCall) else None
    return known or (type(step).__name__, step.timestamp)


class _Trial(msgspec.Struct, kw_only=True, rename="camel"):
    """What is read of a trial on disk."""

    outcome: dict[str, Any] = {}
    failure: Failure | None = None
    setup: dict[str, Any] | None = None
    usage: Usage = Usage()
    metadata: dict[str, Any] = {}

    @property
    def fired(self) -> bool | None:
        """None if it is not known."""
        if "fired" in self.outcome:
            return bool(self.outcome["fired"])
        # One that failed by the agent's own doing has not fired: it would have been ended then.
        return False if self.failure and self.failure.cause.measures_agent else None

    @property
    def other_skills(self) -> list[str]:
        return [str(name) for name in self.outcome.get("otherSkills", ())]


class _Row(msgspec.Struct, kw_only=True, rename="camel"):
    id: str
    metadata: dict[str, Any] = {}
    trials: list[_Trial] = []


def read_fires(path: Path, agent: str, skill: str, *, works: bool = False) -> TriggerRun:
    """Sum up the trials of one agent with one description, from the file that they stand in.

    works: another run has shown that the agent is offered skills.
    """
    rows = [decode_row(place, line, _Row)[0] for place, line in read_lines(path)]
    cases = [_case_fires(row) for row in rows]
    trials = [trial for row in rows for trial in row.trials]
    instead: Counter[str] = Counter()
    for case in cases:
        if case.should_trigger:
            instead.update(case.instead)
    return TriggerRun(
        agent=agent,
        output=str(path),
        recall=_rate(case for case in cases if case.should_trigger),
        false_fires=_rate(case for case in cases if not case.should_trigger),
        instead=dict(instead.most_common()),
        cases=cases,
        n_trials=len(trials),
        n_not_measured=sum(trial.fired is None for trial in trials),
        n_ended_early=sum(ENDED_EARLY in trial.metadata for trial in trials),
        cost_usd=sum(trial.usage.spent_usd for trial in trials),
        invalid=_invalid(cases, trials, skill, works=works),
    )


def in_order(run: TriggerRun, ids: Sequence[str]) -> TriggerRun:
    """Return a run whose cases stand as these ids do; trials end in any order."""
    places = {id_: place for place, id_ in enumerate(ids)}
    cases = sorted(run.cases, key=lambda case: places.get(case.id, len(places)))
    return msgspec.structs.replace(run, cases=cases)


def _case_fires(row: _Row) -> CaseFires:
    known = [trial for trial in row.trials if trial.fired is not None]
    should = row.metadata.get(SHOULD_TRIGGER) is True
    if not should:  # a trial that failed without a verdict is no proof of silence
        known = [trial for trial in known if "fired" in trial.outcome]
    silent = [trial for trial in known if not trial.fired]
    return CaseFires(
        id=row.id,
        should_trigger=should,
        n_fired=len(known) - len(silent),
        n_measured=len(known),
        n_trials=len(row.trials),
        instead=dict(Counter(name for trial in silent for name in trial.other_skills)),
    )


def _rate(cases: Iterable[CaseFires]) -> TriggerRate | None:
    counted = [(case.n_fired, case.n_measured) for case in cases if case.n_measured]
    if not counted:
        return None
    fired, measured = zip(*counted, strict=True)
    rate, interval = stats.rates.rate_interval(fired, measured)
    assert rate is not None
    assert interval is not None
    return TriggerRate(
        rate=rate,
        low=interval.low,
        high=interval.high,
        n_cases=len(counted),
        n_fired=sum(fired),
        n_trials=sum(measured),
    )


def uses_skills(run: TriggerRun) -> bool:
    """Whether any skill was used in any trial."""
    return any(case.n_fired or case.instead for case in run.cases)


def _invalid(cases: list[CaseFires], trials: list[_Trial], skill: str, *, works: bool) -> list[str]:
    """Say why the trials do not show what the description is worth."""
    measured = [trial for trial in trials if trial.fired is not None]
    if not measured:
        return []
    why = list(_set_up_problems(measured, skill))
    if not works and not any(trial.fired or trial.other_skills for trial in measured):
        if any(case.should_trigger for case in cases):
            said = f"no skill was used in any of {len(measured)} trials"
            why.append(f"{said}, so that the agent may never have been offered one")
        else:
            why.append("no case should trigger the skill, so that its silence proves nothing")
    return why


def _set_up_problems(trials: list[_Trial], skill: str) -> Iterator[str]:
    listed = [names for trial in trials if (names := _listed(trial.setup)) is not None]
    n_missing = sum(skill not in names for names in listed)
    n_twice = sum(names.count(skill) > 1 for names in listed)
    if n_missing:
        yield f"the agent did not list the skill in {n_missing} of {len(listed)} trials"
    if n_twice:
        yield (
            f"the agent listed another skill of the same name in {n_twice} of {len(listed)} trials"
        )
    places = [trial.outcome["loadedFrom"] for trial in trials if "loadedFrom" in trial.outcome]
    if places:
        yield (
            f"another copy of the skill was used in {len(places)} of {len(trials)} trials, "
            f"from {places[0]}"
        )


def _listed(setup: dict[str, Any] | None) -> list[str] | None:
    """Return the names in the agent's start event; a plugin's skill is listed as plugin:skill."""
    names = (setup or {}).get("skills")
    if not isinstance(names, list):
        return None
    return [name.rpartition(":")[2] for name in names if isinstance(name, str)]
