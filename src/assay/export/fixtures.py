"""Regression fixtures: recorded trials whose verdicts a test asserts again and again."""

import os
import re
from collections.abc import Iterator, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import msgspec

from assay.export.training import TrialFilter
from assay.pipeline.grade import grade_all
from assay.records.capture import Grade, Timing, Usage
from assay.records.rows import RowFile, Spot
from assay.records.spec import PluginRef, Prompt
from assay.records.trial import Trial, TrialResult
from assay.records.trial.files import trials_of
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


class ChangedVerdict(msgspec.Struct, frozen=True):
    """A trial that the graders judge otherwise than the file says."""

    id: str
    recorded: Grade
    now: Grade | None
    why: str


def choose_fixtures(
    files: Sequence[RowFile], chosen: TrialFilter, ids: Sequence[str], left_out: dict[str, int]
) -> list[Fixture]:
    """Return the graded trials that are wanted; count the others by the reason."""
    found: list[tuple[RowFile, Spot, Trial]] = []
    for file in files:
        for spot, trial in trials_of(file):
            why = _why_not(trial, chosen, ids)
            if why is None:
                found.append((file, spot, trial))
            else:
                left_out[why] = left_out.get(why, 0) + 1
    names = _unique_names([trial for *_, trial in found])
    return [_fixture(*place, name) for place, name in zip(found, names, strict=True)]


def changed_verdicts(
    fixtures: Sequence[Fixture], graders: Sequence[PluginRef]
) -> Iterator[ChangedVerdict]:
    """Ask the graders; yield the trials to which they now give another verdict."""
    lines = [(one.row.id, msgspec.json.encode(one.row)) for one in fixtures]
    for fixture, graded in zip(fixtures, grade_all(lines, graders), strict=True):
        recorded, verdict = fixture.verdict, graded.verdict
        now = verdict.score
        if now is None or now.pass_ != recorded.pass_ or abs(now.score - recorded.score) > 1e-9:
            why = next(iter(verdict.broken.values()), "") or (now.reasoning or "" if now else "")
            yield ChangedVerdict(fixture.row.id, recorded, now, why)


def grader_words(text: str, ref: PluginRef, folder: Path) -> tuple[str, str]:
    """Return what to give to -g from a test in a folder: words, and a file relative to it."""
    path = ref.options.get("path")
    if ref.name not in ("executable", "javascript", "python", "serve") or not path:
        return text, ""
    relative = os.path.relpath(path, folder.resolve())
    return ("serve:" if ref.name == "serve" else "", Path(relative).as_posix())


def fixture_paths(folder: Path) -> dict[str, Path]:
    """Return where the test and its data go: test, prompts and trials."""
    # Pytest wants test files of different names, so it is called after its folder.
    name = re.sub(r"\W+", "_", folder.resolve().name.removeprefix("test_")).strip("_") or "trials"
    return {
        "test": folder / f"test_{name}.py",
        "prompts": folder / "prompts.jsonl",
        "trials": folder / "trials.jsonl",
    }


def encode_fixtures(
    fixtures: Sequence[Fixture], graders: Sequence[tuple[str, str]], paths: dict[str, Path]
) -> dict[Path, bytes]:
    """Return the content of each file; graders are what grader_words returned."""
    listed = "\n".join(f"    ({words!r}, {file!r})," for words, file in graders)
    encoder = msgspec.json.Encoder()
    return {
        paths["prompts"]: encoder.encode_lines([one.prompt for one in fixtures]),
        paths["trials"]: encoder.encode_lines([one.row for one in fixtures]),
        paths["test"]: _TEST.replace("@GRADERS@", listed).encode(),
    }


def _why_not(trial: Trial, chosen: TrialFilter, ids: Sequence[str]) -> str | None:
    if ids and not any(fnmatchcase(trial.id, pattern) for pattern in ids):
        return OTHER_ID
    if why := chosen.why_not(trial):
        return why
    if trial.verdict is None or trial.score is None:
        return "not graded"
    # Such a verdict follows from the failure, and no grader was asked.
    if trial.is_finished or not trial.failure:
        return None
    return f"not finished ({trial.failure.cause.words})"


def _unique_names(trials: Sequence[Trial]) -> list[str]:
    """Name trials by their prompts; several of one prompt are numbered."""
    ids = [trial.id for trial in trials]
    seen: dict[str, int] = {}
    names = []
    for prompt_id in ids:
        seen[prompt_id] = seen.get(prompt_id, 0) + 1
        names.append(prompt_id if ids.count(prompt_id) == 1 else f"{prompt_id}#{seen[prompt_id]}")
    return names


def _fixture(file: RowFile, spot: Spot, trial: Trial, name: str) -> Fixture:
    whole = file.row_at(spot, _ROW)
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
        grade=verdict,
        usage=trial.usage or Usage(),
        failure=trial.failure or msgspec.UNSET,
        agent=trial.agent or msgspec.UNSET,
    )
    prompt = Prompt(id=name, input=trial.input, hint=trial.hint or None, metadata=metadata)
    asked = {**msgspec.to_builtins(prompt), **extra}
    masked = our_secrets().mask_record
    return Fixture(prompt=masked(asked), row=masked(row), verdict=verdict)


_TEST = '''"""Recorded trials get the verdicts that they got when this was written.

Written by `assay fixtures`. The trials are replayed, so no agent is started and nothing is paid.
After a change of the prompts or of the graders that is meant, write the folder again.
"""

import json
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
GRADERS = [
@GRADERS@
]
"""For -g: words, and a file beside this one."""
TRIALS = [json.loads(line) for line in (HERE / "trials.jsonl").read_bytes().splitlines()]


@pytest.fixture(scope="module")
def replayed(tmp_path_factory):
    folder = tmp_path_factory.mktemp("replayed")
    command = [sys.executable, "-m", "assay", "capture", str(HERE / "prompts.jsonl"), "-q"]
    command += ["-s", f"replay:{HERE / 'trials.jsonl'}", "-o", str(folder / "results.jsonl")]
    for words, file in GRADERS:
        command += ["-g", words + (str(HERE / file) if file else "")]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    rows = [json.loads(line) for line in (folder / "results.jsonl").read_bytes().splitlines()]
    return {row["id"]: row for row in rows}


@pytest.mark.parametrize("trial", TRIALS, ids=[trial["id"] for trial in TRIALS])
def test_verdict(trial, replayed):
    row = replayed[trial["id"]]
    assert row["output"] == trial["output"]
    assert row["trajectory"] == trial["trajectory"]
    assert "score" in row, row.get("graderFailures", row.get("failure"))
    reasoning = row["score"].get("reasoning")
    assert row["score"]["pass"] == trial["score"]["pass"], reasoning
    assert row["score"]["score"] == pytest.approx(trial["score"]["score"]), reasoning
'''
