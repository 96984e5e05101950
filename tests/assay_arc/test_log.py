"""The event log: whole after any cut, strict about all else, and the source of all results."""

import os
import stat

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from assay_arc import LogProblem
from assay_arc.log import (
    Answer,
    End,
    Event,
    Header,
    Limits,
    LogWriter,
    has_header,
    pack_frames,
    read_log,
    unpack_frames,
)
from assay_arc.scoring import derive_result

NOW = "2026-01-01T00:00:00+00:00"


def header(**fields):
    values = {
        "game_id": "g-1",
        "source_sha256": "0" * 64,
        "baselines": (3, 4),
        "level_count": 2,
        "toolkit_version": "0.9.9",
        "engine_version": "0.9.3",
        "started_at": NOW,
    }
    return Header(**values | fields)


def event(seq, action, level=0, state="NOT_FINISHED", full=False, **fields):
    answer = Answer(state=state, levels_completed=level, win_levels=2, full_reset=full)
    values = {"seq": seq, "at": NOW, "outcome": "executed", "action": action, "answer": answer}
    return Event(**values | fields)


def write(path, *records):
    with LogWriter(path) as log:
        for record in records:
            log.append(record)
    return path


START = event(0, "RESET", full=True)


def test_the_log_is_private_and_each_line_is_json_with_camel_case(tmp_path):
    path = write(tmp_path / "log", header(), START)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    first, second = path.read_bytes().splitlines()
    assert msgspec.json.decode(first)["sourceSha256"] == "0" * 64
    assert msgspec.json.decode(second)["answer"]["levelsCompleted"] == 0


def test_one_process_writes(tmp_path):
    with LogWriter(tmp_path / "log"), pytest.raises(LogProblem, match="another game process"):
        LogWriter(tmp_path / "log")


def test_a_symlink_is_not_followed(tmp_path):
    (tmp_path / "target").write_text("precious")
    (tmp_path / "log").symlink_to(tmp_path / "target")
    with pytest.raises(OSError, match=r"symbolic|loop|Too many"):
        LogWriter(tmp_path / "log")
    assert (tmp_path / "target").read_text() == "precious"


def test_a_file_that_is_no_log_is_left_alone(tmp_path):
    (tmp_path / "log").write_text("my thesis, last line without end")
    with pytest.raises(LogProblem, match="not an ARC event log"):
        LogWriter(tmp_path / "log")
    assert (tmp_path / "log").read_text() == "my thesis, last line without end"


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(cut=st.integers(0, 10_000))
def test_a_log_cut_anywhere_reads_up_to_its_last_whole_line(tmp_path, cut):
    path = tmp_path / "log"
    path.unlink(missing_ok=True)
    write(path, header(), START, event(1, "ACTION1"), event(2, "ACTION2", 1))
    data = path.read_bytes()
    kept = data[: cut % (len(data) + 1)]
    path.write_bytes(kept)
    n_whole = kept.count(b"\n")
    if n_whole == 0:
        assert not has_header(path)
        with pytest.raises(LogProblem):
            read_log(path)
        return
    log = read_log(path)
    assert len(log.records) == n_whole - 1
    assert log.torn == (not kept.endswith(b"\n"))
    LogWriter(path).close()
    assert path.read_bytes() == kept[: kept.rfind(b"\n") + 1]


def test_faults_in_the_middle_are_said_with_their_line(tmp_path):
    path = write(tmp_path / "log", header(), START, event(1, "ACTION1"), event(2, "ACTION2"))
    lines = path.read_bytes().splitlines(keepends=True)
    cases = {
        ":3: not a log record": [lines[0], lines[1], b'{"type": "event"\n', lines[3]],
        ":3: record 2 where 1 must be": [lines[0], lines[1], lines[3], lines[2]],
        ":2: record 1 where 0 must be": [lines[0], lines[2]],
        ":3: a second header": [lines[0], lines[1], lines[0]],
        ":1: not an ARC event log": [lines[1]],
        ":2: not a log record": [lines[0], b"\xff\xfe\n"],
    }
    for words, content in cases.items():
        path.write_bytes(b"".join(content))
        with pytest.raises(LogProblem, match=words):
            read_log(path)


def test_an_unknown_schema_is_refused(tmp_path):
    with pytest.raises(LogProblem, match="schema"):
        read_log(write(tmp_path / "log", header(schema="other/9")))


def test_a_write_that_fails_leaves_no_half_line(tmp_path, monkeypatch):
    with LogWriter(tmp_path / "log") as log:
        log.append(header())
        size = (tmp_path / "log").stat().st_size
        real = os.write
        monkeypatch.setattr(os, "write", lambda fd, data: real(fd, data[:10]))
        with pytest.raises(OSError, match="full"):
            log.append(START)
        monkeypatch.undo()
        assert (tmp_path / "log").stat().st_size == size
        log.append(START)
    assert len(read_log(tmp_path / "log").records) == 1


def derived(tmp_path, *records, **fields):
    (tmp_path / "log").unlink(missing_ok=True)
    return derive_result(read_log(write(tmp_path / "log", header(**fields), START, *records)))


def test_levels_resets_and_plays_are_counted_as_the_scorecard_does(tmp_path):
    result = derived(
        tmp_path,
        event(1, "ACTION1"),
        event(2, "RESET"),
        event(3, "ACTION1", 1),
        event(4, "ACTION2", 1),
        event(5, "RESET", full=True),
        event(6, "ACTION1", 2, state="WIN"),
    )
    first, second = result.plays
    assert (first.actions, first.resets, first.marks) == (4, 1, ((1, 3),))
    assert [(lv.actions, lv.resets, lv.completed) for lv in first.levels] == [
        (3, 1, True),
        (1, 0, False),
    ]
    # Two levels in one action: both are completed, the second cost nothing more.
    assert [(lv.actions, lv.completed) for lv in second.levels] == [(1, True), (0, True)]
    assert (result.steps, result.resets, result.stop_reason) == (4, 2, "win")


def rejected(seq, **fields):
    return Event(seq=seq, at=NOW, outcome="rejected", message="no", **fields)


def end(seq, reason):
    return End(seq=seq, at=NOW, reason=reason)


@pytest.mark.parametrize(
    ("records", "reason"),
    [
        ([], "crash"),
        ([end(1, "player_quit")], "player_quit"),
        ([end(1, "timeout")], "timeout"),
        ([end(1, "timeout"), event(2, "ACTION1")], "crash"),
        ([event(1, "ACTION1", state="GAME_OVER"), end(2, "player_quit")], "game_over"),
        (
            [
                event(1, "ACTION1", state="GAME_OVER"),
                rejected(2, limit="resets"),
                end(3, "player_quit"),
            ],
            "reset_limit",
        ),
        ([rejected(1, limit="resets"), end(2, "player_quit")], "player_quit"),
        ([event(1, "ACTION1"), event(2, "ACTION1"), end(3, "timeout")], "step_limit"),
        ([event(1, "ACTION1", 2, state="WIN"), end(2, "timeout")], "win"),
        ([event(1, "ACTION1", outcome="failed", answer=None), end(2, "player_quit")], "crash"),
    ],
)
def test_stop_reasons(tmp_path, records, reason):
    assert derived(tmp_path, *records, limits=Limits(max_steps=2)).stop_reason == reason


def test_only_executed_commands_count(tmp_path):
    looked = Event(seq=2, at=NOW, outcome="shown")
    result = derived(tmp_path, rejected(1), looked, event(3, "ACTION1", 1), rejected(4))
    assert (result.steps, result.rejected, result.levels_completed) == (1, 2, 1)


def test_frames_are_kept_and_small(tmp_path):
    frames = [bytes([i]) * 4096 for i in range(3)]
    text = pack_frames(frames)
    assert unpack_frames(text) == frames
    assert len(text) < 200
