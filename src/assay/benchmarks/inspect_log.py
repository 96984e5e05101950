"""The samples of an Inspect log as prompts: what was put to a model is put to an agent."""

import json
import string
import zipfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import msgspec

from assay.benchmarks import refuse
from assay.plugin import Benchmark, InputError, Prompt, PromptRow, TrialSpec
from assay.records.rows import UNREADABLE

_ATTACHMENT = "attachment://"
_MOST_BYTES = 256 * 1024 * 1024
"""Of one sample."""


class _Content(msgspec.Struct):
    type: str = "text"
    text: str = ""


class _Message(msgspec.Struct):
    role: str = "user"
    content: str | list[_Content] = ""


class _Sample(msgspec.Struct):
    id: int | str
    input: str | list[_Message]
    epoch: int = 1
    choices: list[str] | None = None
    target: str | list[str] = ""
    metadata: dict[str, Any] = {}
    files: Any = None
    setup: str | None = None
    attachments: dict[str, str] = {}


class _Eval(msgspec.Struct):
    task: str = ""


class _Log(msgspec.Struct):
    eval: _Eval = msgspec.field(default_factory=_Eval)
    samples: list[_Sample] | None = None


class _Unfit(Exception):
    """A sample cannot be put to an agent; the text says why."""


@dataclass(frozen=True)
class InspectLog(Benchmark):
    """A log file of Inspect: .json, or .eval, which is an archive of JSON files.

    Its scorers are not in it, so the user names the graders.
    """

    path: str

    def prompts(self) -> Iterable[PromptRow]:
        """Return a prompt for each sample, whatever the number of epochs."""
        return self._read[0]

    def fit_trials(self, specs: Sequence[TrialSpec]) -> list[TrialSpec]:
        """Refuse samples that cannot be put to an agent as they were put to a model."""
        chosen = dict.fromkeys(spec.prompt.id for spec in specs)
        _, reasons = self._read
        refuse({id_: reasons[id_] for id_ in chosen if id_ in reasons}, len(chosen), "samples")
        return list(specs)

    @cached_property
    def _read(self) -> tuple[list[PromptRow], dict[str, str]]:
        """Return the prompts, and why some of them cannot be run."""
        rows: dict[str, PromptRow] = {}
        unfit: dict[str, str] = {}
        for task, sample in _samples(Path(self.path)):
            name = str(sample.id)
            if name in rows:  # another epoch
                continue
            try:
                text = _text(sample)
            except _Unfit as reason:
                unfit[name], text = str(reason), "-"
            targets = [sample.target] if isinstance(sample.target, str) else sample.target
            metadata = {**sample.metadata, "inspectTask": task}
            if len(targets) > 1:
                metadata["targets"] = targets
            hint = targets[0] if targets and targets[0] else None
            rows[name] = Prompt(id=name, input=text, hint=hint, metadata=metadata), {}
        return list(rows.values()), unfit


def _text(sample: _Sample) -> str:
    """Return a sample's messages as one text. Raises _Unfit."""
    if sample.files:
        msg = "it needs files, which a log does not hold"
        raise _Unfit(msg)
    if sample.setup:
        msg = "it needs a set-up script, and none of a log is run"
        raise _Unfit(msg)
    messages = sample.input
    if isinstance(messages, str):
        messages = [_Message(content=messages)]
    roles = {message.role for message in messages}
    if roles - {"user", "system"}:
        msg = f"it has messages of the role {min(roles - {'user', 'system'})}"
        raise _Unfit(msg)
    parts = [part for message in messages for part in _parts(message, sample.attachments)]
    if sample.choices:
        lettered = zip(string.ascii_uppercase, sample.choices, strict=False)
        parts.append("\n".join(f"{letter}) {choice}" for letter, choice in lettered))
    return "\n\n".join(parts)


def _parts(message: _Message, attachments: dict[str, str]) -> Iterator[str]:
    content = message.content
    for part in [_Content(text=content)] if isinstance(content, str) else content:
        if part.type != "text":
            msg = f"it has content of the type {part.type}"
            raise _Unfit(msg)
        text = part.text
        if text.startswith(_ATTACHMENT):
            text = attachments.get(text.removeprefix(_ATTACHMENT), text)
        yield text


def _samples(path: Path) -> Iterator[tuple[str, _Sample]]:
    try:
        if zipfile.is_zipfile(path):
            yield from _archived(path)
            return
        log = _decode(path.read_bytes(), _Log, str(path))
    except (OSError, zipfile.BadZipFile, NotImplementedError) as error:
        why = getattr(error, "strerror", None) or str(error)
        msg = f"inspect-log: {path}: {why}"
        raise InputError(msg, hint="give a log of Inspect: --benchmark inspect-log:FILE") from error
    for sample in log.samples or ():
        yield log.eval.task, sample


def _archived(path: Path) -> Iterator[tuple[str, _Sample]]:
    """Yield the samples of an archive; only one of them is in memory."""
    with zipfile.ZipFile(path) as archive:
        names = sorted(archive.namelist())
        head = next((name for name in ("header.json", "_journal/start.json") if name in names), "")
        task = ""
        if head:
            task = _decode(_read(archive, head), _Log, f"{path}: {head}").eval.task
        for name in names:
            if name.startswith("samples/") and name.endswith(".json"):
                yield task, _decode(_read(archive, name), _Sample, f"{path}: {name}")


def _read(archive: zipfile.ZipFile, name: str) -> bytes:
    """Read a file of an archive; a small archive can hold a file of any size."""
    with archive.open(name) as file:
        data = file.read(_MOST_BYTES + 1)
    if len(data) > _MOST_BYTES:
        msg = f"inspect-log: {archive.filename}: {name} has more than {_MOST_BYTES >> 20} MB"
        raise InputError(msg, hint="remove this sample, or leave it out of the log")
    return data


def _decode[T](data: bytes, kind: type[T], place: str) -> T:
    try:
        return msgspec.json.decode(data, type=kind)
    except UNREADABLE:
        pass
    try:  # Inspect writes NaN and Infinity, which only this reader accepts
        return msgspec.convert(json.loads(data), kind)
    except (*UNREADABLE, ValueError) as error:
        msg = f"inspect-log: {place}: {error}"
        raise InputError(msg, hint="give a log of Inspect: --benchmark inspect-log:FILE") from error
