"""Experiments: read from experiment.toml or put together, checked, and how their arms differ."""

import os
import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Any

import msgspec

from assay.errors import InputError
from assay.records.experiment import Arm, Experiment, ReuseMode
from assay.records.files import hash_file, hash_folder
from assay.records.problems import problem_in
from assay.records.spec import LONGEST_WAIT_S, PluginRef
from assay.records.tape import TapeUse
from assay.records.text import LEAST_MEMORY, closest

_TOP = frozenset(Experiment.__struct_encode_fields__)
_SETUP = frozenset(Arm.__struct_encode_fields__)
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.+-]{0,59}")
_LONGEST_PATH = 1000
_PATHS = ("template", "instructions", "mcp")


def read_experiment(path: Path) -> Experiment:
    """Read and check experiment.toml; paths in it become relative to the current folder."""
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        why = "is not UTF-8" if isinstance(error, UnicodeDecodeError) else error.strerror
        msg = f"{path}: {why}"
        raise InputError(msg, hint="assay init writes an experiment to start from") from error
    try:
        content = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        msg = f"{path}: not TOML: {error}"
        raise InputError(msg) from error
    file = _File(path, text)
    file.check_keys(content)
    arms = {
        name: file.converted(table, Arm, f"arms.{name}")
        for name, table in _tables(file, content["arms"])
    }
    plain = file.converted({**content, "arms": {}}, Experiment, "")
    found = msgspec.structs.replace(
        _beside(path, plain),
        name=plain.name or _name_of(path),
        arms={name: _beside(path, arm) for name, arm in arms.items()},
        control=plain.control or next(iter(arms), ""),
        prompts=_at(path, plain.prompts),
        confirm_prompts=_at(path, plain.confirm_prompts),
        graders=[_grader_at(path, grader) for grader in plain.graders],
    )
    return check_experiment(found, str(path))


class _File:
    """The text of the file, to name the line of what is wrong."""

    def __init__(self, path: Path, text: str) -> None:
        self._path, self._lines = path, text.splitlines()

    def check_keys(self, content: dict[str, Any]) -> None:
        """Refuse keys that nobody reads, naming the one that was probably meant."""
        self._check(content, _TOP, "")
        if not content.get("arms"):
            msg = f"{self._path}: there are no arms"
            raise InputError(msg, hint="name at least two: [arms.control] and [arms.treatment]")

    def check_arm(self, name: str, table: dict[str, Any]) -> None:
        self._check(table, _SETUP, f"arms.{name}")

    def _check(self, content: dict[str, Any], known: Iterable[str], table: str) -> None:
        for key in content:
            if key in known:
                continue
            msg = f"{self.place(table, key)}: there is no key {key!r}{_in(table)}"
            meant = closest(key, known)
            listed = f"the keys are: {', '.join(sorted(known))}"
            if table and key in _TOP:
                listed = f"{key!r} is the same for all arms: put it at the top of the file"
                meant = ""
            raise InputError(msg, hint=f"did you mean {meant!r}?" if meant else listed)

    def converted[T](self, content: dict[str, Any], kind: type[T], table: str) -> T:
        try:
            found = msgspec.convert(content, kind)
            if isinstance(found, Arm) and found.memory and found.memory_bytes is None:
                said = f"must be a size such as 512M or 4G, not {found.memory!r}"
                msg = f"{self.place(table, 'memory')}: memory{_in(table)}: {said}"
                raise InputError(msg)
            return found
        except msgspec.ValidationError as error:
            problem = problem_in(error, kind)
            key = re.split(r"[.\[]", problem.field)[0]
            words = problem.words.replace("an object", "a table")  # as TOML calls it
            msg = f"{self.place(table, key)}: {problem.field or 'the file'}{_in(table)}: {words}"
            raise InputError(msg) from error

    def place(self, table: str, key: str) -> str:
        """Return file and line of a key in a table; only the file if it cannot be found."""
        here = ""
        names = re.compile(rf"\s*[\"']?{re.escape(key)}[\"']?\s*=")
        for number, line in enumerate(self._lines, 1):
            if header := re.match(r"\s*\[\s*([^\[\]]+?)\s*\]", line):
                here = header[1].replace('"', "").replace("'", "").replace(" ", "")
                if here == f"{table}.{key}" or (not table and here == key):
                    return f"{self._path}:{number}"
            elif here == table and names.match(line):
                return f"{self._path}:{number}"
        return str(self._path)


def _in(table: str) -> str:
    return f" in [{table}]" if table else ""


def _tables(file: _File, arms: Any) -> Iterator[tuple[str, dict[str, Any]]]:
    if not isinstance(arms, dict):
        msg = f"{file.place('', 'arms')}: arms must be tables: [arms.control], [arms.treatment]"
        raise InputError(msg)
    for name, table in arms.items():
        if not isinstance(table, dict):
            msg = f"{file.place('arms', name)}: the arm {name!r} must be a table: [arms.{name}]"
            raise InputError(msg)
        file.check_arm(name, table)
        yield name, table


def check_experiment(experiment: Experiment, where: str) -> Experiment:
    """Refuse an experiment that cannot be run, whoever put it together."""
    names = list(experiment.arms)
    if len(names) < 2:
        msg = f"{where}: an experiment needs two arms or more, and has {', '.join(names) or 'none'}"
        raise InputError(msg, hint="the control may be empty: [arms.control]")
    for name in (experiment.name, *names):
        if not is_name(name):
            msg = f"{where}: {name!r} cannot name a file; use letters, digits, - and _"
            raise InputError(msg)
    if experiment.control not in names:
        msg = f"{where}: the control {experiment.control!r} is not an arm"
        raise InputError(msg, hint=f"the arms are: {', '.join(names)}")
    if experiment.holdout and experiment.confirm_prompts:
        msg = f"{where}: holdout and confirm-prompts cannot be used together"
        raise InputError(msg, hint="hold prompts back, or name a file of others")
    if (experiment.prompts is None) == (experiment.benchmark is None):
        msg = f"{where}: give either prompts or benchmark"
        raise InputError(msg, hint='as in prompts = "prompts.jsonl"')
    for name in names:
        _check_arm(experiment.resolved(name), f"{where}: arm {name}")
    return experiment


def is_name(text: str) -> bool:
    """Whether a text can name an experiment or an arm, and so a folder or a file."""
    return bool(_NAME.fullmatch(text))


def _check_arm(arm: Arm, where: str) -> None:
    ways = [way for way in ("agent", "simple", "shell") if getattr(arm, way)]
    if len(ways) != 1:
        what = "no agent" if not ways else f"both {ways[0]} and {ways[1]}"
        msg = f"{where} has {what}"
        raise InputError(msg, hint='give one at the top of the file, as in agent = "claude"')
    if arm.memory and (arm.memory_bytes or 0) < LEAST_MEMORY:
        msg = f"memory: {arm.memory!r} is not a size of at least 1M, such as 512M or 4G"
        raise InputError(msg)
    for skill in arm.skills:
        if not Path(skill, "SKILL.md").is_file():
            msg = f"{where}: {skill} is not a skill: it has no SKILL.md"
            raise InputError(msg)
    for what, path in (("template", arm.template), ("instructions", arm.instructions)):
        kind = "folder" if what == "template" else "file"
        if path is not None and not (
            Path(path).is_dir() if kind == "folder" else Path(path).is_file()
        ):
            msg = f"{where}: {what}: there is no {kind} {path}"
            raise InputError(msg)


def _name_of(path: Path) -> str:
    """Name an experiment after its file, or its folder if the file has the usual name."""
    name = path.stem if path.stem != "experiment" else path.resolve().parent.name
    return re.sub(r"[^A-Za-z0-9_.+-]+", "-", name).strip("-.")[:60] or "experiment"


def _at(file: Path, path: str | None) -> str | None:
    return None if path is None else os.path.normpath(file.parent / path)


def _beside[A: Arm](file: Path, arm: A) -> A:
    """Return an arm whose paths begin at the folder of the file."""
    agent = arm.agent
    if agent is not None and (file.parent / agent).is_file():
        agent = _at(file, agent)
    return msgspec.structs.replace(
        arm,
        agent=agent,
        skills=[os.path.normpath(file.parent / skill) for skill in arm.skills],
        **{name: _at(file, getattr(arm, name)) for name in _PATHS},
    )


def _grader_at(file: Path, grader: str) -> str:
    """Return a grader's file beside the experiment; a built-in one stays as it is."""
    kind, colon, path = grader.partition(":")
    if colon and kind == "serve":
        return f"serve:{_at(file, path)}"
    return str(_at(file, grader)) if (file.parent / grader).is_file() else grader


class Difference(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One thing that an arm has and the control lacks, or has in another form."""

    kind: str
    """skill, instructions, mcp, model, agent, template, or another key of an arm."""
    value: str = ""
    control: str = ""
    """What the control has in its place."""

    @property
    def words(self) -> str:
        """As people say it: skill relnotes; model opus (control: sonnet)."""
        value = Path(self.value).name if self.kind in _FILES else self.value
        before = Path(self.control).name if self.kind in _FILES else self.control
        if value and value == before:  # two versions of one file
            value, before = self.value, self.control
        name = {"mcp": "MCP servers of", "agent-args": "agent arguments", "env": "variable"}
        said = f"{name.get(self.kind, self.kind)} {value or 'none'}"
        return f"{said} (control: {before})" if before else said


_FILES = frozenset({"skill", "instructions", "mcp", "template"})


def differences(control: Arm, arm: Arm, names: Mapping[str, str]) -> list[Difference]:
    """Return what an arm names that the control does not: what is being compared.

    names has the name of each skill by its folder: two skills of one name are two versions.
    """
    found = list(_skill_differences(control, arm, names))
    agents = [one.agent or one.simple or one.shell or "" for one in (control, arm)]
    if agents[0] != agents[1]:
        found.append(Difference(kind="agent", value=agents[1], control=agents[0]))
    for field in Arm.__struct_fields__:
        if field in ("skills", "agent", "simple", "shell"):
            continue
        before, after = getattr(control, field), getattr(arm, field)
        if before != after:
            kind = field.replace("_", "-")
            found.append(Difference(kind=kind, value=_said(after), control=_said(before)))
    return found


def _skill_differences(control: Arm, arm: Arm, names: Mapping[str, str]) -> Iterator[Difference]:
    before = {names[skill]: skill for skill in control.skills if skill not in arm.skills}
    for skill in arm.skills:
        if skill not in control.skills:
            yield Difference(kind="skill", value=skill, control=before.pop(names[skill], ""))
    for skill in before.values():
        yield Difference(kind="skill", control=skill)


def _said(value: Any) -> str:
    if isinstance(value, list):
        return " ".join(value)
    return "" if value is None else f"{value:g}" if isinstance(value, float) else str(value)


def hash_inputs(experiment: Experiment) -> dict[str, str]:
    """Hash the files and folders of the user that a verdict is about, by their paths."""
    paths = map(Path, _inputs(experiment))
    return {str(path): hash_path(path) for path in paths}


def hash_path(path: Path) -> str:
    """Hash a file or a folder; nothing if it is gone."""
    if path.is_dir():
        return hash_folder(path)
    return hash_file(path) if path.is_file() else ""


def _inputs(experiment: Experiment) -> list[str]:
    named: list[str | None] = [experiment.prompts]
    for grader in experiment.graders:
        named += map(str, files_of_grader(grader, Path()))
    for name in experiment.arms:
        arm = experiment.resolved(name)
        named += [arm.agent, arm.template, arm.instructions, arm.mcp, *arm.skills]
        # A program of a command line is part of the set-up, if it is a file here.
        named += (arm.simple or arm.shell or "").split()
    there = [path for path in named if path and len(path) < _LONGEST_PATH and Path(path).exists()]
    return list(dict.fromkeys(str(Path(path)) for path in there))


def files_of_grader(text: str, folder: Path) -> list[Path]:
    """Return the files that a grader is made of: its own, its schema, scripts of its command."""
    _, colon, rest = text.partition(":")
    words = [text, rest, *rest.replace('"', " ").replace("'", " ").split()] if colon else [text]
    paths = [folder / word for word in words if word and len(word) < _LONGEST_PATH]
    return list(dict.fromkeys(path for path in paths if os.path.isfile(path)))  # noqa: PTH113


class ExperimentRequest(msgspec.Struct, frozen=True, kw_only=True):
    """How an experiment is run, besides what is compared."""

    root: Path
    """The folder of all experiments."""
    jobs: int = 1
    rate_per_s: float | None = None
    longest_wait_s: float = LONGEST_WAIT_S
    executor: PluginRef = PluginRef(name="local")
    fresh: bool = False
    """Whether a new line of trials is begun: no earlier one counts."""
    reuse: ReuseMode = "check"
    """What becomes of trials of earlier runs."""
    confirm: bool = False
    """Whether all arms are run anew, on prompts held back for it if there are some."""
    keep_workspaces: str = ""
    """failed, all or none."""
    tape: TapeUse | None = None
    """What becomes of what models answer."""
    allow_replayed: bool = False
    """Whether there is a verdict about arms that a tape answered."""
    judge: Path | None = None
    """What is known of the errors of the judge that grades; see find_calibration."""


def with_treatment(
    common: Arm, treatments: Sequence[tuple[str, str]], rest: Mapping[str, Any]
) -> Experiment:
    """Put an experiment together without a file: a control, and an arm with all treatments."""
    name = arm_name(treatments)
    arms = {"control": Arm(), name: _arm_with(treatments)}
    return _experiment(common, arms, {"name": name, **rest})


def _experiment(common: Arm, arms: Mapping[str, Arm], values: Mapping[str, Any]) -> Experiment:
    """Return an experiment whose first arm is the control."""
    shared = msgspec.structs.asdict(common)
    return Experiment(arms=dict(arms), control=next(iter(arms)), **shared, **values)


def _arm_with(treatments: Sequence[tuple[str, str]]) -> Arm:
    arm: dict[str, Any] = {"skills": [], "agent_args": [], "env": []}
    for kind, value in treatments:
        field = _WITH[kind]
        if field in arm and isinstance(arm[field], list):
            arm[field].append(value)
        elif field in arm:
            msg = f"--with {kind} is given twice; an arm has one"
            raise InputError(msg)
        else:
            arm[field] = value
    return Arm(**arm)


def with_factors(
    common: Arm,
    treatments: Sequence[tuple[str, str]],
    design: Sequence[Sequence[bool]],
    rest: Mapping[str, Any],
) -> Experiment:
    """Put an experiment of several treatments together: an arm for each row of a design."""
    arms: dict[str, Arm] = {}
    for number, row in enumerate(design):
        chosen = [one for one, is_on in zip(treatments, row, strict=True) if is_on]
        name = arm_name(chosen) or "control"
        arms[f"{name[:50]}-{number}" if name in arms else name] = _arm_with(chosen)
    return _experiment(common, arms, {"name": "ablation", **rest})


def with_skills(common: Arm, folders: Iterable[Path], rest: Mapping[str, Any]) -> Experiment:
    """Put an experiment of many skills together: a control, and an arm for each skill alone."""
    arms = {"control": Arm()}
    for folder in folders:
        arms[arm_name([("skill", str(folder))])] = Arm(skills=[str(folder)])
    return _experiment(common, arms, {"name": "skills", **rest})


def with_matrix(
    common: Arm, axes: Mapping[str, Sequence[str]], rest: Mapping[str, Any]
) -> Experiment:
    """Put a leaderboard together: an arm for each combination; the value none leaves it out."""
    arms: dict[str, Arm] = {}
    for values in product(*axes.values()):
        pairs = zip(axes, values, strict=True)
        chosen = [(kind, value) for kind, value in pairs if value != "none"]
        name = arm_name(chosen) or "none"
        arms[name if name not in arms else f"{name[:50]}-{len(arms)}"] = _arm_with(chosen)
    return _experiment(common, arms, {"name": "matrix", **rest})


_WITH = {
    "skill": "skills",
    "model": "model",
    "mcp": "mcp",
    "instructions": "instructions",
    "agent": "agent",
    "template": "template",
    "arg": "agent_args",
}
TREATMENTS = tuple(_WITH)
"""What --with may name."""


def arm_name(treatments: Sequence[tuple[str, str]]) -> str:
    """Name an arm after what it has: relnotes, opus, or relnotes+opus."""
    names = []
    for kind, value in treatments:
        path = Path(value)
        short = path.stem if kind in ("mcp", "instructions") else path.name
        names.append(re.sub(r"[^A-Za-z0-9_.-]+", "-", short).strip("-.") or kind)
    return "+".join(names)[:60]
