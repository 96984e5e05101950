"""The table of docs/security.md says what an agent can do in each mode: an agent tries it."""

import os
import re
import runpy
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from assay.run.sandbox import works_landlock

ROOT = Path(__file__).parents[2]
SHARED = runpy.run_path(str(ROOT / "tests" / "security_table.py"))
AGENT, ROWS, SCRIPT = SHARED["AGENT"], SHARED["ROWS"], SHARED["SCRIPT"]
EXISTS = runpy.run_path(str(ROOT / "scripts" / "seed_coverage.py"))["exists"]
OPTIONS: dict[str, tuple[str, ...]] = {
    "place": ("-c", "project"),
    "template": ("--workspace-template", "template", "-c", "project", "--workspace-dir", "w"),
    "isolate": ("--isolate", "-c", "project", "--workspace-dir", "w"),
    "sandbox": ("--sandbox", "-c", "project", "--workspace-dir", "w"),
    "folder": ("--sandbox", "-c", "project"),
    "landlock": ("--sandbox", "-c", "project", "--workspace-dir", "w"),
}
"""How each mode is chosen; containers are tried in tests/cli/test_container.py."""


@pytest.mark.parametrize("mode", OPTIONS)
def test_each_cell_is_what_an_agent_finds(
    assay: Callable,
    prompts: Callable,
    read_rows: Callable,
    tmp_path: Path,
    request: pytest.FixtureRequest,
    without_bubblewrap: dict[str, str],
    mode: str,
) -> None:
    if OPTIONS[mode] and "--sandbox" in OPTIONS[mode][0]:
        request.getfixturevalue("bubblewrap")
    if mode == "landlock" and not works_landlock():
        pytest.skip("the kernel has no Landlock")
    asked = SHARED["make_places"](tmp_path)
    env = {"HOME": str(tmp_path / "home"), "UNDECLARED": "1"}
    env |= without_bubblewrap if mode == "landlock" else {}
    with socket.create_server(("127.0.0.1", 0)) as server:
        asked |= {"port": server.getsockname()[1], "victim": os.getpid()}
        path = prompts(SHARED["told"](asked))
        shell = ("--shell", f'python3 -SEc "{AGENT}"')
        words = ("-o", "out.jsonl", "-g", "grader.py", *OPTIONS[mode])
        done = assay("capture", path, *shell, *words, env=env)
    rows = read_rows(tmp_path / "out.jsonl")
    assert len(rows) == 1, done.stderr
    SHARED["check"](mode, rows[0], asked["seconds"])


def test_the_page_is_the_one_that_the_script_writes() -> None:
    text = SCRIPT["PAGE"].read_text()
    assert SCRIPT["page"](text) == text, "run: python scripts/security_table.py"


def test_each_cell_has_a_test_and_each_test_a_cell() -> None:
    content = SCRIPT["content"]()
    modes = {"what", *content["modes"]}
    assert modes - {"what", "container"} == OPTIONS.keys()
    named = set()
    for row in content["rows"]:
        assert row.keys() - {"tried"} == modes, row["what"]
        for mode in content["modes"]:
            cell = row[mode]
            assert isinstance(cell[0], bool)
            assert "tried" in row or cell[2:], (row["what"], mode)
            # What an option changes is not what the agent tried.
            assert cell[2:] or not re.search(r"`--", "".join(cell[1:2])), (row["what"], mode)
            named.update(cell[2:])
    assert set(ROWS) == set(re.findall(r"^    '(\w+)': ", AGENT, re.MULTILINE)) | {"process"}
    assert [name for name in named if not EXISTS(name)] == []
    for name in named:
        file, _, parameter = name.rstrip("]").partition("[")
        assert f'"{parameter}": ' in (ROOT / file.partition("::")[0]).read_text() or not parameter
