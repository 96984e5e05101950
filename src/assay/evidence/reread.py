"""Read the raw streams of a trial again, and say where its row does not follow from them.

Times, exit codes and what an agent changed in its folder stand in no stream: of these a row has
the word of the recorder alone.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
from msgspec import UNSET

from assay.evidence.redact import digests_in
from assay.pipeline.extract import extract
from assay.plugin import Adapter
from assay.records.capture import Cause, Failure
from assay.records.files import temporary_folder
from assay.records.raw_streams import SESSION_FILES
from assay.records.recording import RawLine, Recording, Turn, TurnEnd, write_files
from assay.records.spec import Prompt
from assay.records.trial import ENDED_EARLY, Trial

COMPARED = (
    *("output", "trajectory", "tool_errors", "usage", "agent", "session_id", "events"),
    *("turn_usage", "setup", "permission_denials", "provider_retries"),
)
"""What follows from the streams."""
_OF_RECORDER = frozenset(
    {Cause.SPAWN, Cause.WORLD, Cause.USER, Cause.HARNESS, Cause.WORKER_LOST, Cause.TAPE}
)
_MOST_LINE = 16 * 1024 * 1024
_OUT = re.compile(r"(\d+)\.out")
_EXIT = re.compile(r"ended with exit code (\d{1,10})")
_SIGNAL = re.compile(r"died of (SIG\w{2,10})")


class Stream(NamedTuple):
    """A raw stream that is shown."""

    name: str
    content: bytes


class Reread(NamedTuple):
    """What came of reading a trial again."""

    differences: list[str]
    unchecked: str = ""
    """Why something could not be checked."""
    n_withheld: int = 0
    """Fields that the row does not show."""


def read_again(trial: Trial, streams: Sequence[Stream], adapter: Adapter) -> Reread:
    """Compare a row with what its streams say."""
    failure = trial.failure or None
    outs = sorted(
        (int(out[1]), one.content) for one in streams if (out := _OUT.fullmatch(one.name))
    )
    if failure is not None and failure.cause in _OF_RECORDER:
        why = f"it is not counted ({failure.cause.words}), which only its recorder can know"
        return Reread([], why)
    if not outs:
        return Reread([], "it has no raw stream of its output")
    if len(outs) != len(trial.turns) and (len(outs) == 1 or adapter.dialogue("/") is not None):
        return Reread([], "its turns are in one stream, and cannot be told apart")
    prompt = Prompt(id=trial.id, input=trial.input, hint=trial.hint or None)
    with temporary_folder("assay-reread-") as scratch:
        names = [one for one in streams if one.name.startswith(f"{SESSION_FILES}/")]
        kept = write_files(((one.name, [one.content]) for one in names), Path(scratch))
        recording = _recording(trial, [out for _, out in outs], kept / SESSION_FILES)
        try:
            again = extract(prompt, recording, adapter)
        except Exception as error:  # noqa: BLE001 - an adapter may raise anything for such a stream
            return Reread([f"the adapter cannot read it: {type(error).__name__}: {error}"])
    hidden = [name for name in COMPARED if digests_in(_plain(name, getattr(trial, name)))]
    compared = [name for name in COMPARED if name not in hidden]
    differs = [*_differences(trial, again, compared), *_causes(failure, again.failure or None)]
    return Reread(differs, n_withheld=len(hidden))


def _recording(trial: Trial, outs: Sequence[bytes], kept: Path) -> Recording:
    ends = [TurnEnd(exit_code=0) for _ in outs]
    _end_as(ends[-1], trial)
    turns = [
        Turn(text, end, lambda content=out: _lines(content))  # type: ignore[misc]
        for text, end, out in zip(trial.turns, ends, outs, strict=False)
    ]
    return Recording(
        start_ms=0,
        end_ms=0,
        turns=tuple(turns),
        stderr=trial.stderr or "",
        kept=kept if kept.is_dir() else None,
        raw=trial.raw or None,
        evidence=trial.metadata.get("evidence") or (trial.trial_metadata or {}).get("evidence", {}),
        user=trial.simulated_user or None,
        replay=trial.replay or None,
        wire=trial.wire or None,
    )


def _end_as(end: TurnEnd, trial: Trial) -> None:
    """End the last turn as the recorder saw it: no stream says how a process ended."""
    failure, about = trial.failure or None, trial.metadata
    said = failure.message if failure is not None else ""
    code, signal = about.get("exitCode"), about.get("signal")
    if exited := _EXIT.search(said):
        code = int(exited[1])
    if died := _SIGNAL.search(said):
        signal = died[1]
    end.exit_code = code if isinstance(code, int) else 0
    end.signal = signal if isinstance(signal, str) else None
    end.lingered = about.get("lingered") is True
    end.settled = ENDED_EARLY in about or ENDED_EARLY in (trial.trial_metadata or {})
    if failure is None:
        return
    end.timed_out = failure.cause is Cause.AGENT_TIMEOUT
    is_memory = failure.cause is Cause.AGENT_LIMIT and "memory" in said
    end.out_of_memory, end.over_limit = is_memory, said.startswith("wrote more output")
    if is_memory and not end.exit_code and not end.signal:
        end.signal = "SIGKILL"


def _lines(content: bytes) -> Iterable[RawLine]:
    whole = content.removesuffix(b"\n")
    if not whole and not content:
        return
    for line in whole.split(b"\n"):
        yield RawLine(0, line[:_MOST_LINE], len(line) > _MOST_LINE)


def _differences(trial: Trial, again: Trial, names: Iterable[str]) -> Iterator[str]:
    for name in names:
        written, read = (_plain(name, getattr(one, name)) for one in (trial, again))
        if written != read:
            yield f"{_camel(name)}: the row has {_shown(written)}, its stream says {_shown(read)}"


def _causes(written: Failure | None, read: Failure | None) -> Iterator[str]:
    if written is not None and "the gateway did not see" in written.message:
        return  # a gateway saw more than the agent's stream has
    causes = [one.cause.value if one is not None else None for one in (written, read)]
    if causes[0] != causes[1]:
        yield f"failure: the row has {_shown(causes[0])}, its stream says {_shown(causes[1])}"


_UNKNOWN = frozenset({"timestamp", "duration", "startTime", "endTime"})
"""Of steps: when lines came is in no stream."""


def _plain(name: str, value: Any) -> Any:
    if value is UNSET:
        return None
    plain = msgspec.json.decode(msgspec.json.encode(value))
    if name == "trajectory":
        return [{k: v for k, v in step.items() if k not in _UNKNOWN} for step in plain]
    if name == "agent":
        plain.pop("adapter", None)  # how the operator has called it
    if name == "usage" and plain.get("costSource") in ("estimated", "replayed"):
        # By a table of prices, which changes.
        return {k: v for k, v in plain.items() if not k.endswith("Usd")}
    return plain


def _camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(word.title() for word in rest)


def _shown(value: Any) -> str:
    text = msgspec.json.encode(value).decode()
    return text if len(text) <= 120 else f"{text[:120]}…"
