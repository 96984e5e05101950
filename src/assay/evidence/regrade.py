"""Grade the rows of a bundle again: its graders run, answers of judges are taken as recorded."""

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import msgspec

from assay import plugins
from assay.errors import AssayError
from assay.evidence.redact import digests_in
from assay.evidence.sources import GraderPart
from assay.evidence.verify import GRADED, Level, Verification
from assay.graders.python_file import FrozenCode
from assay.pipeline.grade import grade_all
from assay.pipeline.grading import combine
from assay.records.capture import Grade
from assay.records.rows import read_lines
from assay.records.spec import PluginRef
from assay.records.text import counted_noun
from assay.records.trial import Trial, Verdict
from assay.records.trial.files import holds_trials, split_trials, trials_in

GRADERS = "graders.json"
_OF_WORKSPACE = frozenset({"command", "git", "file", "harbor"})
"""They look at the folder that an agent left, which is in no bundle."""
_STATED = re.compile(rb"\bcwd\b")
_READS = re.compile(rb"environ|getenv|\benv\b")
_SEEN = ("output", "trajectory", "input", "hint", "reference", "metadata")
_FILE_KINDS = ("python", "executable", "serve", "javascript")


class _Known(msgspec.Struct):
    """graders.json"""

    graders: list[GraderPart]
    all: list[int] = []
    own: dict[str, list[int]] = {}


class _Ready(msgspec.Struct, frozen=True):
    """A grader of the bundle that can be asked, or why it cannot be."""

    part: GraderPart
    name: str
    """Under which its grades stand in rows."""
    ref: PluginRef | None = None
    why: str = ""
    is_judge: bool = False
    needs_folder: bool = False


class _OwnGraders:
    """The graders of each prompt, as grade_all asks for them."""

    def __init__(self, own: Mapping[str, Sequence[PluginRef]]) -> None:
        self._own = own

    @property
    def to_prepare(self) -> list[PluginRef]:
        return list(
            {msgspec.json.encode(r): r for refs in self._own.values() for r in refs}.values()
        )

    def graders_of(self, _place: str, line: bytes) -> tuple[PluginRef, ...]:
        return tuple(self._own.get(_ID.decode(line).id, ()))


class _Id(msgspec.Struct):
    id: str


_ID = msgspec.json.Decoder(_Id)


def graded_again(verification: Verification) -> Level:
    """Ask every grader again that can be asked, and compare."""
    return _Regrading(verification).level()


class _Regrading:
    def __init__(self, verification: Verification) -> None:
        self._of = verification
        self._known: _Known = verification.bundle.json(GRADERS, _Known)
        self._ready = [self._prepare(n, part) for n, part in enumerate(self._known.graders)]
        self.differs: list[str] = []
        self.unchecked: list[str] = []
        self._why: Counter[str] = Counter()
        self._n_graded = self._n_all = self._n_withheld = self._n_recorded = 0

    def level(self) -> Level:
        for one in self._ready:
            self._check_version(one)
        for run in self._of.plan.runs:
            self._grade(run.label)
        self.unchecked += [f"{why} ({counted_noun(n, 'trial')})" for why, n in self._why.items()]
        words = f"{self._n_graded} of {counted_noun(self._n_all, 'trial')}"
        if self._n_recorded:
            words += f", {self._n_recorded} judged by a model (recorded, not asked again)"
        if self._n_withheld:
            words += f", {self._n_withheld} withheld"
        names = [f"{one.name} {one.part.version}" for one in self._ready if one.ref or one.is_judge]
        words += f": {', '.join(names)}" if names else ""
        if not self._n_graded and not self.differs and not self.unchecked:
            return Level(name=GRADED, state="none", words=words)
        return Level.of(GRADED, words, self.differs, self.unchecked)

    def _prepare(self, number: int, part: GraderPart) -> _Ready:
        """Unpack the files of a grader, and say whether it can be asked."""
        if part.name == "judge":
            return _Ready(part, "judge", is_judge=True)
        if part.name not in plugins.names("assay.graders"):
            return _Ready(part, part.name, why=f"the grader {part.name!r} is not installed")
        if part.name in _OF_WORKSPACE:
            why = f"{part.name} looks at the agent's folder, which is not in the bundle"
            return _Ready(part, part.name, why=why)
        folder = self._of.folder / "graders" / str(number)
        texts = [*self._unpack(part, folder)]
        options = {key: str(folder / name) if key in part.paths else name
                   for key, name in part.options.items()}  # fmt: skip
        try:
            ref = PluginRef(name=part.name, options=options)
            grader = plugins.grader(ref)
            is_same, name = grader.version == part.version, grader.name
        except (AssayError, TypeError, ValueError, OSError) as error:
            return _Ready(part, part.name, why=f"{part.name} cannot be loaded: {error}")
        if not is_same:
            return self._other_version(part, name, grader.version, texts)
        needs = part.name in _FILE_KINDS and any(_STATED.search(text) for text in texts)
        return _Ready(part, name, _sealed(ref, part.version), needs_folder=needs)

    def _other_version(
        self, part: GraderPart, name: str, version: str, texts: Sequence[bytes]
    ) -> _Ready:
        if part.name not in _FILE_KINDS:
            why = f"{name} had version {part.version}, and here is {version}"
            return _Ready(part, name, why=why)
        if part.not_here or any(map(_READS.search, texts)):
            why = f"{name}: its version rests on files or variables that are not here"
            return _Ready(part, name, why=why)
        said = f"{name}: its files have the fingerprint {version}, not {part.version}"
        return _Ready(part, name, why=f"replaced: {said}")

    def _unpack(self, part: GraderPart, folder: Path) -> Iterator[bytes]:
        for name, below in part.files.items():
            place = (folder / below).resolve()
            if not place.is_relative_to(folder.resolve()) or not name.startswith("graders/"):
                continue
            place.parent.mkdir(parents=True, exist_ok=True)
            data = self._of.bundle.read(name)
            place.write_bytes(data)
            place.chmod(0o755)
            yield data

    def _check_version(self, one: _Ready) -> None:
        if one.why.startswith("replaced: "):
            self.differs.append(one.why.removeprefix("replaced: "))
        elif one.why:
            self.unchecked.append(one.why)

    def _grade(self, label: str) -> None:
        trials: list[Trial] = []
        lines: list[tuple[str, bytes]] = []
        for place, line in read_lines(self._of.rows[label]):
            for part in split_trials(place, line) if b'"trials"' in line else [line]:
                row = self._of.openings.restored(msgspec.json.decode(part))
                if holds_trials(row):
                    continue
                self._n_all += 1
                if self._of.bundle.manifest.withheld and self._is_hidden(row):
                    self._n_withheld += 1
                    continue
                trial = next(trials_in(msgspec.json.encode(row), place))
                trials.append(trial)
                lines.append((f"{label}, {trial.id}, trial {trial.number}", _without_folder(row)))
        common = self._refs(self._known.all)
        own = {id_: self._refs(numbers) for id_, numbers in self._known.own.items()}
        graded = grade_all(lines, common, own=_OwnGraders(own))  # type: ignore[arg-type]
        for (place, _), trial, row in zip(lines, trials, graded, strict=True):
            self._compare(place, trial, row.verdict, is_asked=row.is_graded)

    def _is_hidden(self, row: dict[str, Any]) -> bool:
        """Whether something is withheld that a grader looks at."""
        about = row.get("metadata")
        metadata = about if isinstance(about, dict) else {}
        row = {**row, "metadata": {k: v for k, v in metadata.items() if k != "workspaceDir"}}
        return any(digests_in(row[key]) for key in self._sees if key in row)

    @cached_property
    def _sees(self) -> set[str]:
        found: set[str] = set()
        for one in self._ready:
            sees = plugins.grader(one.ref).sees if one.ref else None
            found |= {*_SEEN} if sees is None else {*sees, "input", "hint", "reference"}
        return found & {*_SEEN} or {*_SEEN}

    def _refs(self, numbers: Sequence[int]) -> list[PluginRef]:
        return [
            one.ref for n in numbers if 0 <= n < len(self._ready) and (one := self._ready[n]).ref
        ]

    def _compare(self, place: str, trial: Trial, again: Verdict, *, is_asked: bool) -> None:
        written = dict(trial.grades or {})
        if not written and not trial.grade:
            return
        ready = {name: one for one in self._ready for name in _names_of(one.name, written)}
        problems = [*self._differences(written, again, ready)] if is_asked else []
        whole = trial.grade or None
        if whole is not None and written:
            total = combine(tuple(written.values()))
            if not _is_same(whole, total):
                problems.append("its verdict is not that of its graders together")
        elif whole is not None and again.score is not None and not _is_same(whole, again.score):
            problems.append(f"the row says {_words(whole)}, now it is {_words(again.score)}")
        unknown = [name for name in written if name not in ready]
        for name in unknown:
            self._why[f"the grader {name} is not in the bundle"] += 1
        judged = [name for name in written if name in ready and ready[name].is_judge]
        self._n_recorded += bool(judged)
        self.differs += [f"{place}: {one}" for one in problems]
        is_open = unknown or any(ready[n].why for n in written if n in ready)
        self._n_graded += not problems and not is_open

    def _differences(
        self, written: dict[str, Grade], again: Verdict, ready: Mapping[str, _Ready]
    ) -> Iterator[str]:
        for name, why in again.broken.items():
            self._why[f"{name} gave no verdict: {_last_line(why)}"] += 1
        for name, grade in written.items():
            one = ready.get(name)
            if one is None or one.is_judge or one.ref is None or name in again.broken:
                continue
            if grade.version != one.part.version:
                yield f"{name} {grade.version} has graded it, and the bundle has {one.part.version}"
                continue
            new = again.grades.get(name)
            if new is None:
                continue
            if not _is_same(grade, new):
                if one.needs_folder:
                    self._why[f"{name} looks at the agent's folder, not in the bundle"] += 1
                else:
                    yield f"{name}: the row says {_words(grade)}, now it is {_words(new)}"


def _names_of(name: str, written: Mapping[str, Any]) -> list[str]:
    """Return the names in a row that are those of a grader: several of one kind are numbered."""
    pattern = re.compile(re.escape(name) + r"(?:-\d+)?")
    return [one for one in written if pattern.fullmatch(one)]


def _sealed(ref: PluginRef, version: str) -> PluginRef:
    """Return a grader whose code may do nothing but judge."""
    if ref.name != "python":
        return ref
    path = str(ref.options["path"])
    code = FrozenCode(path=path, source=Path(path).read_bytes(), version=version, sealed=True)
    frozen = {name: getattr(code, name) for name in ("path", "source", "version", "sealed")}
    frozen["source"] = msgspec.to_builtins(code)["source"]
    return PluginRef(name="python", options={**ref.options, "frozen": frozen})


def _without_folder(row: dict[str, Any]) -> bytes:
    """Return a row that leads to no folder here: its paths are those of another machine."""
    row = {key: value for key, value in row.items() if key not in ("cwd", "workspaceDir", "raw")}
    about = row.get("metadata")
    if isinstance(about, dict):
        row["metadata"] = {k: v for k, v in about.items() if k != "workspaceDir"}
    return msgspec.json.encode(row)


def _is_same(one: Grade, other: Grade) -> bool:
    return one.pass_ == other.pass_ and abs(one.score - other.score) < 1e-9


def _last_line(text: str) -> str:
    return (text.strip().splitlines() or [""])[-1]


def _words(grade: Grade) -> str:
    return f"{'pass' if grade.pass_ else 'fail'} ({grade.score:g})"
