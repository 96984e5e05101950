"""The samples of an Inspect log as prompts: what was put to a model is put to an agent."""

import json
import re
import string
import zipfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, cast

import msgspec

from assay.benchmarks import refuse
from assay.plugin import Benchmark, InputError, Prompt, PromptRow, TrialSpec
from assay.records.rows import UNREADABLE
from assay.records.spec import Expect

_ATTACHMENT = "attachment://"
_HINT = "give the .eval or .json file of a run of Inspect"
_MOST_BYTES = 256 * 1024 * 1024
"""Of one sample."""

_NO_ZSTD = 93
"""The method of compression that Python's zipfile reads from 3.14 on."""


class Content(msgspec.Struct):
    """A part of a message."""

    type: str = "text"
    text: str = ""
    reasoning: str = ""


class Call(msgspec.Struct):
    """A call of a tool that the model asked for."""

    id: str = ""
    function: str = "unknown"
    arguments: Any = None
    parse_error: str | None = None


class CallError(msgspec.Struct):
    """Why a call failed."""

    type: str = ""
    message: str = ""


class LogMessage(msgspec.Struct):
    """A message to or from the model."""

    role: str = "user"
    content: str | list[Content] = ""
    tool_calls: list[Call] | None = None
    tool_call_id: str | None = None
    error: CallError | None = None
    model: str | None = None


class LogUsage(msgspec.Struct):
    """Tokens of one model."""

    input_tokens: int = 0
    output_tokens: int = 0
    input_tokens_cache_read: int | None = None
    input_tokens_cache_write: int | None = None
    reasoning_tokens: int | None = None


class LogScore(msgspec.Struct):
    """What a scorer said; JSON of any shape as its value."""

    value: Any = None
    answer: str | None = None
    explanation: str | None = None
    metadata: dict[str, Any] | None = None


class LogSample(msgspec.Struct):
    """One epoch of a sample: what was put to the model, and what became of it."""

    id: int | str
    input: str | list[LogMessage]
    epoch: int = 1
    choices: list[str] | None = None
    target: str | list[str] = ""
    metadata: dict[str, Any] = {}
    store: dict[str, Any] = {}
    files: Any = None
    setup: str | None = None
    attachments: dict[str, str] = {}
    messages: list[LogMessage] = []
    scores: dict[str, LogScore] | None = None
    model_usage: dict[str, LogUsage] = {}
    started_at: str | None = None
    completed_at: str | None = None
    total_time: float | None = None
    error: CallError | None = None
    limit: CallError | None = None


class LogConfig(msgspec.Struct):
    """How it was evaluated."""

    epochs: int | None = None


class LogTask(msgspec.Struct):
    """What was evaluated."""

    config: LogConfig = msgspec.field(default_factory=LogConfig)
    task: str = ""
    model: str = ""
    packages: dict[str, str] = {}


class _Log(msgspec.Struct):
    eval: LogTask = msgspec.field(default_factory=LogTask)
    samples: list[LogSample] | None = None


class _UnfitSample(Exception):
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
        for task, sample in read_samples(Path(self.path)):
            name = str(sample.id)
            if name in rows:  # another epoch
                continue
            try:
                text = prompt_text(sample)
            except _UnfitSample as reason:
                unfit[name], text = str(reason), "-"
            targets = [sample.target] if isinstance(sample.target, str) else sample.target
            metadata = {**sample.metadata, "inspectTask": task.task}
            prompt = Prompt(id=name, input=text, metadata=metadata)
            if len(targets) > 1:  # one of them is enough, as it is for Inspect's own scorers
                metadata["targets"] = targets
                expect = {"regex": "|".join(map(re.escape, targets))}
                prompt = msgspec.structs.replace(prompt, expect=Expect(**expect))
                rows[name] = prompt, {"expect": expect}
            else:
                hint = targets[0] if targets and targets[0] else None
                rows[name] = msgspec.structs.replace(prompt, hint=hint), {}
        return list(rows.values()), unfit


def prompt_text(sample: LogSample) -> str:
    """Return a sample's messages as one text. Raises _UnfitSample."""
    if sample.files:
        msg = "it needs files, which a log does not hold"
        raise _UnfitSample(msg)
    if sample.setup:
        msg = "it needs a set-up script, and none of a log is run"
        raise _UnfitSample(msg)
    messages = sample.input
    if isinstance(messages, str):
        messages = [LogMessage(content=messages)]
    roles = {message.role for message in messages}
    if roles - {"user", "system"}:
        msg = f"it has messages of the role {min(roles - {'user', 'system'})}"
        raise _UnfitSample(msg)
    parts = [part for message in messages for part in _parts(message, sample.attachments)]
    if sample.choices:
        lettered = zip(string.ascii_uppercase, sample.choices, strict=False)
        parts.append("\n".join(f"{letter}) {choice}" for letter, choice in lettered))
    return "\n\n".join(parts)


def _parts(message: LogMessage, attachments: dict[str, str]) -> Iterator[str]:
    content = message.content
    for part in [Content(text=content)] if isinstance(content, str) else content:
        if part.type != "text":
            msg = f"it has content of the type {part.type}"
            raise _UnfitSample(msg)
        text = part.text
        if text.startswith(_ATTACHMENT):
            text = attachments.get(text.removeprefix(_ATTACHMENT), text)
        yield text


def read_samples(path: Path) -> Iterator[tuple[LogTask, LogSample]]:
    """Yield the samples of a log, each with its task; the epochs of a sample follow each other."""
    try:
        if zipfile.is_zipfile(path):
            yield from _archived(path)
            return
        log = _decode(path.read_bytes(), _Log, str(path))
    except OSError as error:
        msg = f"inspect-log: {path}: {error.strerror or error}"
        raise InputError(msg, hint="check the path") from error
    except (zipfile.BadZipFile, NotImplementedError) as error:
        msg = f"inspect-log: {path}: not a log of Inspect: {error}"
        raise InputError(msg, hint=_HINT) from error
    for sample in sorted(log.samples or (), key=lambda one: (str(one.id), one.epoch)):
        yield log.eval, sample


def _archived(path: Path) -> Iterator[tuple[LogTask, LogSample]]:
    """Yield the samples of an archive; only one of them is in memory."""
    with _open_archive(path) as archive:
        names = sorted(archive.namelist(), key=_by_epoch)
        head = next((name for name in ("header.json", "_journal/start.json") if name in names), "")
        task = LogTask()
        if head:
            task = _decode(_read(archive, head), _Log, f"{path}: {head}").eval
        for name in names:
            if name.startswith("samples/") and name.endswith(".json"):
                yield task, _decode(_read(archive, name), LogSample, f"{path}: {name}")


def _by_epoch(name: str) -> tuple[str, int]:
    """Sort the tenth epoch of a sample after its second."""
    sample, _, epoch = name.removesuffix(".json").rpartition("_epoch_")
    return (sample, int(epoch)) if epoch.isdecimal() and sample else (name, 0)


def _open_archive(path: Path) -> zipfile.ZipFile:
    archive = zipfile.ZipFile(path)
    if not any(info.compress_type == _NO_ZSTD for info in archive.infolist()):
        return archive
    archive.close()
    if hasattr(zipfile, "ZIP_ZSTANDARD"):
        return zipfile.ZipFile(path)
    try:
        from backports.zstd import zipfile as with_zstd
    except ImportError as error:
        msg = f"inspect-log: {path} is compressed with zstd, which this Python cannot read"
        hint = "in a checkout of Assay: pip install '.[inspect]'; or: inspect log convert --to json"
        raise InputError(msg, hint=hint) from error
    return cast(zipfile.ZipFile, with_zstd.ZipFile(path))  # the same class of a later Python


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
        msg = f"inspect-log: {place}: not a log of Inspect: {error}"
        raise InputError(msg, hint=_HINT) from error
