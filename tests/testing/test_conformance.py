"""The conformance check, and our own adapters on our own recordings."""

import json
from pathlib import Path
from typing import Any

import pytest

from assay import plugins
from assay.records.spec import PluginRef
from assay.testing.conformance import Conformity, check, load_recording, write_expected

RECORDINGS = Path(__file__).parents[1] / "recordings"
FOLDERS = sorted(path.parent for path in RECORDINGS.glob("*/*/end.json"))
SCHEMA: dict[str, Any] = {
    "version": 1,
    "name": "toy",
    "command": ["toy"],
    "prompt": {},
    "output": {"flag": "", "value": ""},
    "sessionMode": "stream",
    "outputEvents": [
        {
            "match": {"path": "$.type", "value": "say"},
            "emitAs": "message",
            "extract": {"content": "$.text"},
        }
    ],
    "result": {"matchPath": "$.type", "matchValue": "end", "contentPath": "$.text"},
}


@pytest.fixture
def toy() -> Any:
    return plugins.adapter(PluginRef(name="declared", options={"schema": SCHEMA}))


def record(folder: Path, *events: Any) -> Path:
    lines = [event if isinstance(event, str) else json.dumps(event) for event in events]
    (folder / "1.out").write_text("".join(f"{line}\n" for line in lines))
    (folder / "end.json").write_text('{"end": {"exitCode": 0}}')
    return folder


SAY, END = {"type": "say", "text": "hi"}, {"type": "end", "text": "hi"}


def test_all_is_mapped_and_as_expected(toy: Any, tmp_path: Path) -> None:
    folder = record(tmp_path, SAY, END)
    write_expected(toy, load_recording(folder), folder)
    found = check(toy, folder)
    assert (found.event_share, found.byte_share, found.problems) == (1.0, 1.0, ())
    assert str(found) == "100.0% of events, 100.0% of bytes mapped"


def test_an_event_type_never_seen_is_a_problem(toy: Any, tmp_path: Path) -> None:
    found = check(toy, record(tmp_path, SAY, {"type": "dream", "x": "y" * 80}, "no json", END))
    assert (found.n_events, found.n_mapped, found.unknown) == (4, 2, {"dream": 1})
    assert found.byte_share < 0.5
    assert found.problems == (
        f"{tmp_path.name}: unknown event 'dream', 1 times",
        f"{tmp_path.name}: 1 lines are not events",
    )


def test_what_is_read_wrongly_is_named(toy: Any, tmp_path: Path) -> None:
    folder = record(tmp_path, SAY, END)
    steps = [{"type": "message", "content": "ho"}, {"type": "thought"}]
    (folder / "expected.json").write_text(json.dumps({"steps": steps, "cause": "auth"}))
    assert check(toy, folder).problems == (
        f"{tmp_path.name}: cause: expected 'auth', read None",
        f"{tmp_path.name}: steps: expected 2, read 1",
        f"{tmp_path.name}: step 1 (message): content: expected 'ho', read 'hi'",
    )


def test_recordings_add_up() -> None:
    one = Conformity(n_events=3, n_mapped=1, n_bytes=10, n_bytes_mapped=5, unknown={"a": 2})
    both = one + Conformity(n_events=1, n_mapped=1, n_bytes=10, n_bytes_mapped=10, unknown={"a": 1})
    assert (both.event_share, both.byte_share, both.unknown) == (0.5, 0.75, {"a": 3})


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda path: f"{path.parent.name}-{path.name}")
def test_our_own_adapters_on_our_own_recordings(folder: Path) -> None:
    agent = folder.parent.name.partition("-")[0]
    note = json.loads((folder / "end.json").read_text())
    adapter = plugins.adapter(PluginRef(name=agent, options=note.get("options", {})))
    found = check(adapter, folder)
    assert found.problems == (), found
    assert (found.event_share, found.byte_share) == (1.0, 1.0)


@pytest.mark.parametrize("agent", ["codex-0.166.0", "gemini-0.61.0"])
def test_the_recordings_name_no_machine(agent: str) -> None:
    for path in (RECORDINGS / agent).rglob("*"):
        if path.is_file():
            text = path.read_text().replace("/home/agent/tmp/", "")
            assert not [word for word in ("/root", "/work/", "/tmp/") if word in text], path
