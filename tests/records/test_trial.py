"""A trial in memory and its two forms on disk: what is read is written again."""

import json
import re
from pathlib import Path
from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st
from msgspec import UNSET

import assay
from assay.records.capture import (
    AgentInfo,
    Cause,
    EarlierGrade,
    Events,
    Failure,
    Grade,
    Identity,
    Message,
    Timing,
    ToolCall,
    Usage,
    WorkspaceChanges,
)
from assay.records.rows import UNREADABLE
from assay.records.trial import (
    Build,
    CaptureRow,
    FinishedTrial,
    Trial,
    TrialEntry,
    TrialResult,
    Verdict,
    decode_finished,
    decode_trials,
    encode_finished,
    for_disk,
    for_reading,
    of_entry,
    to_entry,
)
from assay.records.trial.files import entries_of, kind_of, trials_in

TESTS = Path(__file__).parents[1]

TEXT = st.text(max_size=8)
NUMBER = st.floats(0, 1e6)  # a whole number is read as a float, too: 86 is written as 86.0
PLAIN = st.dictionaries(TEXT, TEXT | NUMBER | st.booleans() | st.none(), max_size=3)
GRADE = st.builds(
    Grade,
    pass_=st.booleans(),
    score=st.floats(0, 1),
    reasoning=st.just(UNSET) | TEXT,
    outcome=st.just(UNSET) | PLAIN,
    version=st.just(UNSET) | TEXT,
)
FAILURE = st.builds(
    Failure, cause=st.sampled_from(Cause), message=TEXT, answered=st.booleans(), raw=TEXT
)
STEP = st.builds(Message, content=TEXT, timestamp=NUMBER) | st.builds(
    ToolCall, name=TEXT, timestamp=NUMBER
)


def maybe(kind: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.just(UNSET) | kind


SHARED: dict[str, st.SearchStrategy[Any]] = {
    "output": TEXT,
    "trajectory": st.lists(STEP, max_size=3),
    "tool_errors": st.booleans(),
    "grades": maybe(st.dictionaries(TEXT, GRADE, max_size=2)),
    "earlier_grades": maybe(
        st.lists(st.builds(EarlierGrade, grader=TEXT, pass_=st.booleans(), score=st.floats(0, 1)))
    ),
    "grader_failures": maybe(st.dictionaries(TEXT, TEXT, max_size=2)),
    "usage": maybe(st.builds(Usage, cost_usd=NUMBER, input_tokens=st.integers(0, 99))),
    "failure": maybe(FAILURE),
    "agent": maybe(st.builds(AgentInfo, adapter=TEXT, model=TEXT)),
    "session_id": maybe(TEXT),
    "events": maybe(st.builds(Events, total=st.integers(0, 9), terminal=st.booleans())),
    "setup": maybe(PLAIN),
    "retried": maybe(st.lists(FAILURE, max_size=2)),
    "stderr": maybe(TEXT),
    "raw": maybe(TEXT),
    "cwd": maybe(TEXT),
    "changes": maybe(st.builds(WorkspaceChanges, tree=TEXT)),
    "warnings": maybe(st.lists(TEXT, max_size=2)),
}
ENTRIES = st.builds(
    TrialEntry,
    number=st.integers(1, 99),
    duration=NUMBER,
    first_response=maybe(NUMBER),
    pass_=st.just(UNSET),
    workspace_dir=maybe(TEXT),
    metadata=maybe(PLAIN.filter(bool)),
    build=maybe(st.builds(Build, id=TEXT, label=TEXT, date=TEXT)),
    **SHARED,
) | st.builds(
    TrialEntry,
    number=st.integers(1, 99),
    duration=NUMBER,
    pass_=st.booleans(),
    score=maybe(st.floats(0, 1)),
    reasoning=maybe(TEXT),
    outcome=maybe(PLAIN),
    **SHARED,
)
IDENTITY = maybe(st.builds(Identity, adapter=TEXT, model=TEXT))
ROWS = st.builds(
    TrialResult,
    id=TEXT,
    input=TEXT | st.lists(TEXT, max_size=2),
    hint=maybe(TEXT),
    k=st.integers(1, 9),
    trials=st.lists(ENTRIES, max_size=3),
    metadata=PLAIN,
    spec_hash=maybe(TEXT),
    identity=IDENTITY,
)
CAPTURES = st.builds(
    CaptureRow,
    id=TEXT,
    input=TEXT | st.lists(TEXT, max_size=2),
    hint=maybe(TEXT),
    metadata=PLAIN,
    timing=st.builds(Timing, start=NUMBER, end=NUMBER, total=NUMBER, first_response=maybe(NUMBER)),
    errors=maybe(st.lists(TEXT, max_size=2)),
    grade=maybe(GRADE),
    outcome=maybe(PLAIN),
    spec_hash=maybe(TEXT),
    identity=IDENTITY,
    **SHARED,
)
encode = msgspec.json.encode


@given(CAPTURES)
def test_a_row_of_capture_is_written_as_it_was_read(row: CaptureRow) -> None:
    line = encode(row)
    trial = msgspec.json.decode(line, type=Trial)
    assert encode(trial) == line
    assert trial.number == 1


@given(ROWS)
def test_the_entries_of_a_row_of_trials_are_written_as_they_were_read(row: TrialResult) -> None:
    trials = list(decode_trials(encode(row)))
    assert encode([to_entry(trial) for trial in trials]) == encode(row.trials)
    assert [trial.number for trial in trials] == [entry.number for entry in row.trials]
    assert all((trial.id, trial.input) == (row.id, row.input) for trial in trials)


@given(ENTRIES, IDENTITY)
def test_a_finished_trial_is_kept_as_it_was_read(entry: TrialEntry, identity: Any) -> None:
    line = encode(FinishedTrial(id="p", spec_hash="h", identity=identity, entry=entry))
    assert encode_finished(decode_finished(line)) == line


@given(CAPTURES)
def test_both_forms_say_the_same_about_a_trial(row: CaptureRow) -> None:
    trial = msgspec.json.decode(encode(row), type=Trial)
    done = FinishedTrial(id=trial.id, spec_hash="", entry=to_entry(trial))
    again = of_entry(done.entry, done)
    for name in ("passed", "is_measured", "needs_rerun", "is_failed", "is_finished", "cost_usd"):
        assert getattr(again, name) == getattr(trial, name), name
    assert again.timing.total == trial.timing.total


@given(CAPTURES, GRADE, st.dictionaries(TEXT, TEXT, max_size=2))
def test_a_verdict_leaves_nothing_of_an_earlier_one(
    row: CaptureRow, grade: Grade, broken: dict[str, str]
) -> None:
    trial = msgspec.json.decode(encode(row), type=Trial)
    verdict = Verdict(score=None if broken else grade, grades={"new": grade}, broken=broken)
    judged = trial.with_verdict(verdict)
    assert judged.verdict is (None if broken else grade.pass_)
    assert judged.outcome == (UNSET if broken else grade.outcome)
    assert judged.grader_failures == (broken or UNSET)
    assert judged.grades == {"new": grade}
    mine = (trial.grader_failures or {}).values()
    kept = [error for error in trial.errors or [] if error not in mine]
    assert list(judged.errors or []) == [*kept, *broken.values()]


def test_only_the_package_of_the_record_knows_the_forms_on_disk() -> None:
    """Every other module asks it: for `trial.number`, for a view, or for the name itself."""
    src = Path(assay.__file__).parent.parent
    # A browser reads rows as they are in the file: one script is there what the package is here.
    allowed = {"assay/records/trial/__init__.py", "assay/report/assets/entries.js"}
    files = {
        path.relative_to(src).as_posix(): path.read_text(encoding="utf-8")
        for room in ("assay", "assay_arc")
        for path in (src / room).rglob("*")
        if path.suffix in (".py", ".pyi", ".js", ".mjs")
    }
    assert len(files) > 200
    named = {name for name, text in files.items() if re.search(r"\btrial(Num|_num)\b", text)}
    assert named == allowed
    # Whether a row is one of trials has one answer as well.
    asked = re.compile(r"""["']trials["'] (not )?in \w*row|\.get\(["']trials["']""")
    asking = {name for name, text in files.items() if asked.search(text)}
    assert asking == {"assay/records/trial/files.py"}


def recorded_rows():
    """Every row of captures and trials in this repository."""
    for path in sorted(TESTS.rglob("*.jsonl")):
        for line in path.read_bytes().splitlines():
            try:
                kind = kind_of(line)
            except UNREADABLE:
                continue
            if kind is not None:
                yield kind, line


def test_a_trial_that_is_read_has_all_that_its_row_has():
    n_rows = 0
    for kind, line in recorded_rows():
        n_rows += 1
        row = json.loads(line)
        for trial, entry in zip(trials_in(line, "a row"), entries_of(row), strict=True):
            read = for_reading(trial)
            assert not any(getattr(read, name) is msgspec.UNSET for name in Trial.__struct_fields__)
            assert read.to_row() == trial.to_row()
            if kind == "capture":
                assert read.to_row() == entry
            else:
                again = msgspec.json.encode(to_entry(for_disk(read)))
                assert json.loads(again) == entry
                assert trial.spec_hash == row.get("specHash", msgspec.UNSET)
    assert n_rows > 50


def test_unknown_parts_are_none_for_who_reads_and_absent_on_disk():
    line = b'{"id":"a","input":"x","output":"y","trajectory":[{"type":"tool_call","name":"t",'
    line += b'"status":"completed","timestamp":1,"input":{"a":null}}],"metadata":{"m":null},'
    line += b'"timing":{"start":5,"end":7,"total":2},"toolErrors":false,"agent":{"adapter":"d"}}'
    (trial,) = map(for_reading, trials_in(line, "a row"))
    assert trial.failure is trial.hint is trial.raw is trial.agent.model is trial.cost_usd is None
    assert trial.usage.cost_usd is trial.steps[0].exit_code is trial.timing.first_response is None
    assert (trial.grades, trial.grader_failures, trial.errors) == ({}, {}, [])
    assert trial.to_row() == json.loads(line)


def test_a_row_that_is_not_quite_one_of_ours_is_read_as_far_as_needed():
    line = (
        b'{"id":"a","input":"x","output":"y","events":"many","failure":null,"timing":{"total":3}}'
    )
    (trial,) = trials_in(line, "a row")
    assert (trial.output, trial.duration_ms) == ("y", 3)
