"""Resuming in a fresh engine: from any cut of the log, and never with anything changed."""

import msgspec
import pytest

from assay_arc import LogProblem
from assay_arc.engine import ToolkitEngine
from assay_arc.log import Limits, LogWriter, read_log
from assay_arc.replay import replay_events
from assay_arc.scoring import derive_result
from assay_arc.server import PlayerRequest
from assay_arc.session import resume_session

NOW = "2026-01-01T00:00:02+00:00"


def resume(path, info, **changes):
    log = read_log(path)
    expected = msgspec.structs.replace(log.header, started_at=NOW, **changes)
    with LogWriter(path) as writer:
        session = resume_session(log, expected, ToolkitEngine(info), writer, lambda: NOW)
        session.handle(
            PlayerRequest(op="act", action="ACTION2"), {"op": "act", "action": "ACTION2"}
        )
    return session


def test_a_log_cut_after_any_line_goes_on_from_there(table, tmp_path):
    game = table()
    for action in ("ACTION4", "ACTION4", "ACTION2", "JUMP", "ACTION3"):
        game.do("act", action=action)
    game.do("reset")
    lines = game.path.read_bytes().splitlines(keepends=True)
    for n in range(1, len(lines) + 1):
        path = tmp_path / f"{n}.jsonl"
        path.write_bytes(b"".join(lines[:n]))
        before = derive_result(read_log(path)).steps
        session = resume(path, game.info)
        log = read_log(path)
        assert derive_result(log).steps == session.tally.steps == before + 1
        assert replay_events(log, ToolkitEngine(game.info)).replayed


@pytest.mark.parametrize(
    "changes",
    [
        {"seed": 3},
        {"limits": Limits(max_steps=9999)},
        {"baselines": (1, 1, 1, 1, 1)},
        {"source_sha256": "0" * 64},
        {"engine_version": "9.9.9"},
    ],
)
def test_a_log_of_other_rules_is_not_resumed(table, changes):
    game = table()
    game.log.close()
    [field] = changes
    with pytest.raises(LogProblem, match=field):
        resume(game.path, game.info, **changes)


def test_a_log_that_does_not_replay_is_not_resumed(table):
    game = table()
    game.do("act", action="ACTION4")
    game.log.close()
    text = game.path.read_text()
    game.path.write_text(text.replace('"action":"ACTION4"', '"action":"ACTION2"'))
    with pytest.raises(LogProblem, match="record 1"):
        resume(game.path, game.info)
