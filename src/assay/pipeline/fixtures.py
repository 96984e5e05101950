"""Regression fixtures: recorded trials whose verdicts a test asserts again and again."""

import os
from collections.abc import Iterator, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import msgspec

from assay.pipeline.export import Chosen
from assay.pipeline.grade import grade_all
from assay.records.capture import Grade, Timing
from assay.records.rows import RowFile
from assay.records.spec import PluginRef, Prompt
from assay.records.trial import Trial, TrialResult
from assay.records.trials import FinishedTrialRow, trials_of
from assay.run.workspace import our_secrets

OTHER_ID = "another prompt than --id names"
_ROW = msgspec.json.Decoder(dict[str, Any])
_KNOWN = frozenset(
    field.encode_name for kind in (Trial, TrialResult) for field in msgspec.structs.fields(kind)
)
_OF_THE_RUN = frozenset(
    {
        "agent",
        "evidence",
        "exitCode",
        "limits",
        "lingered",
        "signal",
        "timedOut",
        "trajectoryRichness",
        "turnCount",
        "workspaceDir",
    }
)
"""Metadata that capture adds to that of the prompt."""


class Fixture(msgspec.Struct, frozen=True):
    """One chosen trial: its prompt and its row, with a verdict to be given again."""

    prompt: dict[str, Any]
    row: Trial
    verdict: Grade


class Differing(msgspec.Struct, frozen=True):
    """A trial that the graders judge otherwise than the file says."""

    id: str
    recorded: Grade
    now: Grade | None
    why: str


def choose_fixtures(
    files: Sequence[RowFile], chosen: Chosen, ids: Sequence[str], left_out: dict[str, int]
) -> list[Fixture]:
    """Return the graded trials that are wanted; count the others by the reason."""
    found: list[tuple[RowFile, FinishedTrialRow]] = []
    for file in files:
        for trial in trials_of(file):
            why = _why_not(trial, chosen, ids)
            if why is None:
                found.append((file, trial))
            else:
                left_out[why] = left_out.get(why, 0) + 1
    names = _unique_names([trial for _, trial in found])
    return [_fixture(*pair, name) for pair, name in zip(found, names, strict=True)]


def judged_otherwise(
    fixtures: Sequence[Fixture], graders: Sequence[PluginRef]
) -> Iterator[Differing]:
    """Ask the graders; yield the trials to which they now give another verdict."""
    lines = [(one.row.id, msgspec.json.encode(one.row)) for one in fixtures]
    for fixture, graded in zip(fixtures, grade_all(lines, graders), strict=True):
        recorded, verdict = fixture.verdict, graded.verdict
        now = verdict.score
        if now is None or now.pass_ != recorded.pass_ or abs(now.score - recorded.score) > 1e-9:
            why = next(iter(verdict.broken.values()), "") or (now.reasoning or "" if now else "")
            yield Differing(fixture.row.id, recorded, now, why)


def grader_words(text: str, ref: PluginRef, folder: Path) -> tuple[str, str]:
    """Return what to give to -g from a test in a folder: words, and a file relative to it."""
    path = ref.options.get("path")
    if ref.name not in ("executable", "javascript", "python", "serve") or not path:
        return text, ""
    relative = os.path.relpath(path, folder.resolve())
    return ("serve:" if ref.name == "serve" else "", Path(relative).as_posix())


def _why_not(trial: FinishedTrialRow, chosen: Chosen, ids: Sequence[str]) -> str | None:
    if ids and not any(fnmatchcase(trial.id, pattern) for pattern in ids):
        return OTHER_ID
    if why := chosen.why_not(trial):
        return why
    if trial.verdict is None or trial.score is None:
        return "not graded"
    # Such a verdict follows from the failure, and no grader was asked.
    if trial.is_finished or trial.failure is None:
        return None
    return f"not finished ({trial.failure.cause.words})"


def _unique_names(trials: Sequence[FinishedTrialRow]) -> list[str]:
    """Name trials by their prompts; several of one prompt are numbered."""
    ids = [trial.id for trial in trials]
    seen: dict[str, int] = {}
    names = []
    for prompt_id in ids:
        seen[prompt_id] = seen.get(prompt_id, 0) + 1
        names.append(prompt_id if ids.count(prompt_id) == 1 else f"{prompt_id}#{seen[prompt_id]}")
    return names


def _fixture(file: RowFile, trial: FinishedTrialRow, name: str) -> Fixture:
    whole = file.row_at(trial.spot, _ROW)
    extra = {key: value for key, value in whole.items() if key not in _KNOWN}
    metadata = {key: v for key, v in trial.metadata.items() if key not in _OF_THE_RUN}
    verdict = Grade(pass_=bool(trial.verdict), score=trial.score or 0.0)
    row = Trial(
        id=name,
        input=trial.input,
        output=trial.output,
        hint=trial.hint or msgspec.UNSET,
        trajectory=trial.steps,
        metadata=metadata,
        timing=Timing(start=0, end=trial.duration_ms, total=trial.duration_ms),
        tool_errors=trial.tool_errors,
        score=verdict,
        usage=trial.usage,
        failure=trial.failure or msgspec.UNSET,
        agent=trial.agent or msgspec.UNSET,
    )
    prompt = Prompt(id=name, input=trial.input, hint=trial.hint, metadata=metadata)
    asked = {**msgspec.to_builtins(prompt), **extra}
    masked = our_secrets().mask_record
    return Fixture(prompt=masked(asked), row=masked(row), verdict=verdict)
