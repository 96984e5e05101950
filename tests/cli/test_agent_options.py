"""--mcp and --max-turns: read, checked, and refused where an agent cannot have them."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from assay.cli.options import AgentOptions, agent_ref

SERVERS = {"mcpServers": {"adder": {"command": "python3", "args": ["adder.py"]}}}


def test_options_travel_as_data(tmp_path: Path) -> None:
    path = tmp_path / "mcp.json"
    path.write_text(json.dumps(SERVERS))
    ref = agent_ref(AgentOptions(schema="claude", mcp=path, max_turns=3, model="m"))
    assert ref.options == {"mcp": SERVERS, "max_turns": 3, "model": "m"}


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (None, "No such file"),
        ("{", "not JSON"),
        ('{"mcpServers": {"adder": {"args": []}}}', 'mcpServers.adder: needs either "command"'),
    ],
)
def test_wrong_file_is_named(
    assay: Callable, prompts: Callable, tmp_path: Path, content: str | None, words: str
) -> None:
    path = tmp_path / "mcp.json"
    if content is not None:
        path.write_text(content)
    done = assay("capture", prompts("hi"), "-s", "claude", "--mcp", path)
    assert done.code == 1
    assert "mcp.json" in done.stderr
    assert words in done.stderr
    assert "Traceback" not in done.stderr


def test_schema_cannot_have_them(
    assay: Callable, prompts: Callable, agent: Callable, tmp_path: Path
) -> None:
    path = tmp_path / "mcp.json"
    path.write_text(json.dumps(SERVERS))
    done = assay("capture", prompts("hi"), "-s", agent(), "--mcp", path, "--max-turns", "2")
    assert done.code == 1
    assert "does not support --max-turns and --mcp" in done.stderr
    assert "--agent-arg" in done.stderr


def test_agent_that_is_not_installed(assay: Callable, prompts: Callable) -> None:
    done = assay("capture", prompts("hi"), "-s", "claude:/no/such/claude")
    assert (done.code, done.rows) == (1, [])
    assert "/no/such/claude" in done.stderr


def test_relative_paths_are_found_beside_the_file_or_in_the_current_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    beside, here = tmp_path / "evals", tmp_path / "here"
    for folder in (beside, here):
        folder.mkdir()
    for file in (beside / "server.py", here / "run.sh", here / "start"):
        file.write_text("")
    servers = {
        "a": {"command": "python3", "args": ["server.py", "gone.py", "start", "-v", "/bin/x.py"]},
        "b": {"command": "./run.sh", "args": ["x" * 5000 + "/y", "a\0/b"]},
        "c": {"command": "./run.sh", "cwd": "elsewhere"},
        "d": {"command": "start"},
        "e": {"url": "http://localhost/mcp"},
    }
    (beside / "mcp.json").write_text(json.dumps({"mcpServers": servers}))
    monkeypatch.chdir(here)
    ref = agent_ref(AgentOptions(schema="claude", mcp=Path("../evals/mcp.json")))
    found = ref.options["mcp"]["mcpServers"]
    server = str(here / "../evals/server.py")
    assert found["a"]["args"] == [server, "gone.py", "start", "-v", "/bin/x.py"]
    assert found["b"] == {**servers["b"], "command": str(here / "run.sh")}
    assert {name: found[name] for name in "cde"} == {name: servers[name] for name in "cde"}
