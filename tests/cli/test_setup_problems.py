"""A set-up that failed is no result: every command that shows numbers says so above them."""

import base64
import gzip
import json
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

FAILED = {"mcpServers": [{"name": "adder", "status": "failed"}], "skills": ["debug"]}
WORDS = 'MCP server "adder" failed to start'
INIT = {"type": "system", "subtype": "init", "session_id": "s", "model": "claude-opus-4-1"}
INIT |= {"permissionMode": "bypassPermissions", "tools": [], "skills": []}
ANSWER = {"type": "assistant", "message": {"content": [{"type": "text", "text": "yes"}]}}
RESULT = {"type": "result", "subtype": "success", "is_error": False, "result": "yes"}


def capture(n: int, **more: Any) -> dict[str, Any]:
    row = {"id": f"p{n}", "input": "ask", "output": "yes", "trajectory": [], "metadata": {}}
    row |= {"timing": {"start": 0, "end": 5, "total": 5}, "toolErrors": False}
    return row | {"score": {"pass": True, "score": 1.0}} | more


def trials(n: int, *entries: dict[str, Any], **more: Any) -> dict[str, Any]:
    shared = {"output": "yes", "trajectory": [], "duration": 5, "pass": True, "score": 1.0}
    numbered = [{"trialNum": i, **shared, **entry} for i, entry in enumerate(entries, 1)]
    return {"id": f"p{n}", "input": "ask", "k": len(entries), "trials": numbered} | more


@pytest.fixture
def write(tmp_path: Path) -> Callable[..., Path]:
    def rows(name: str, lines: list[dict[str, Any]]) -> Path:
        path = tmp_path / name
        path.write_text("".join(json.dumps(line) + "\n" for line in lines))
        return path

    return rows


@pytest.fixture
def runs(write: Callable) -> tuple[Path, Path]:
    """A healthy run, and one without its MCP server in 2 of 40 trials."""
    good = [capture(n, setup={"mcpServers": [{"name": "adder", "status": "connected"}]})
            for n in range(40)]  # fmt: skip
    bad = [capture(n, setup=FAILED if n in (3, 7) else {}) for n in range(40)]
    return write("good.jsonl", good), write("bad.jsonl", bad)


def test_a_gate_cannot_be_judged(assay: Callable, runs: tuple[Path, Path]) -> None:
    done = assay("compare", *runs, "--fail-on", "regression", "--margin", "0.2")
    assert done.code == 4, done.stderr
    assert "the measurement of bad is unhealthy" in done.stderr
    good, _ = runs
    same = assay("compare", f"a:{good}", f"b:{good}", "--fail-on", "regression", "--margin", "0.2")
    assert same.code == 0, same.stderr


@pytest.mark.parametrize("style", ["json", "markdown", "table"])
def test_compare_says_it_above_every_number(
    assay: Callable, runs: tuple[Path, Path], style: str
) -> None:
    shown = assay("compare", *runs, "-f", style).stdout
    flat = re.sub(r'\\(?=["])', "", re.sub(r"\s+", " ", shown))
    place = flat.index(f"{WORDS} in 2 of 40 trials (prompts p3, p7)")
    numbers = {"json": '"quality"', "markdown": "## Runs", "table": "pass rate"}
    assert place < flat.index(numbers[style])


def test_the_json_names_run_and_prompts(assay: Callable, runs: tuple[Path, Path]) -> None:
    told = json.loads(assay("compare", *runs, "-f", "json").stdout)
    assert told["health"]["good"]["setupProblems"] == []
    assert told["health"]["good"]["healthy"] is True
    problem = {"problem": WORDS, "trials": 2, "nPrompts": 2, "prompts": ["p3", "p7"]}
    assert told["health"]["bad"]["setupProblems"] == [problem]
    assert told["health"]["bad"]["healthy"] is False
    assert "UNHEALTHY" in told["verdict"][0]["words"]


def test_trials_have_their_identity_in_the_row_of_the_prompt(
    assay: Callable, write: Callable
) -> None:
    asked = {"adapter": "claude", "model": "claude-opus-4-1"}
    right, wrong = ({"agent": {"adapter": "claude", "model": m}} for m in
                    ("claude-opus-4-1-20250805", "claude-sonnet-4-5"))  # fmt: skip
    rows = [trials(n, right, wrong if n == 1 else right, identity=asked) for n in range(12)]
    path = write("t.jsonl", rows)
    told = json.loads(assay("compare", f"a:{path}", f"b:{path}", "-f", "json").stdout)
    problem = 'model "claude-sonnet-4-5" was used instead of "claude-opus-4-1"'
    assert told["health"]["a"]["problems"] == [f"{problem} in 1 of 24 trials (prompt p1)"]


def test_a_row_that_was_replaced_is_no_problem(assay: Callable, write: Callable) -> None:
    rows = [capture(n, setup=FAILED) for n in range(3)] + [capture(n) for n in range(3)]
    path = write("again.jsonl", rows)
    told = json.loads(assay("compare", f"a:{path}", f"b:{path}", "-f", "json").stdout)
    assert told["health"]["a"]["setupProblems"] == []


def test_nothing_graded_does_not_hide_it(assay: Callable, write: Callable) -> None:
    path = write("u.jsonl", [capture(n, score=None, setup=FAILED) | {} for n in range(2)])
    text = path.read_text().replace(', "score": null', "")
    path.write_text(text)
    told = json.loads(assay("compare", f"a:{path}", f"b:{path}", "-f", "json").stdout)
    assert told["health"]["a"]["problems"] == [f"{WORDS} in 2 of 2 trials", "nothing is graded"]


def test_the_report_for_a_pull_request_says_it_first(
    assay: Callable, runs: tuple[Path, Path]
) -> None:
    for files in ((runs[1],), runs):
        shown = assay("report", *files, "-f", "markdown").stdout
        place = shown.index("failed to start in 2 of 40 trials")
        assert place < shown.index("| run | pass rate")
    healthy = assay("report", runs[0], "-f", "markdown").stdout
    assert "UNHEALTHY" not in healthy


def test_the_page_has_it_for_the_run_and_for_each_trial(
    assay: Callable, runs: tuple[Path, Path], tmp_path: Path
) -> None:
    out = tmp_path / "report.html"
    assert assay("report", runs[1], "-o", out).code == 0
    block = re.search(r'id="data-index">([^<]*)<', out.read_text())
    assert block is not None
    index = json.loads(gzip.decompress(base64.b64decode(block[1])))
    health = index["overview"]["groups"][0]["sections"]["health"]["bad"]
    assert health["problems"] == [f"{WORDS} in 2 of 40 trials (prompts p3, p7)"]
    marked = {p["id"]: p["cells"][0]["trials"][0].get("problems") for p in index["prompts"]}
    assert marked["p3"] == [WORDS]
    assert marked["p4"] is None


def test_summarize_says_it_in_the_rows_and_above_them(
    assay: Callable, runs: tuple[Path, Path]
) -> None:
    done = assay("summarize", runs[1])
    assert done.code == 0
    assert f"UNHEALTHY: {WORDS} in 2 of 40 trials" in done.stderr
    assert [row["id"] for row in done.rows if "setupProblems" in row] == ["p3", "p7"]
    shown = assay("summarize", runs[1], "--markdown").stdout
    assert shown.startswith("**UNHEALTHY")
    assert f"{WORDS} in 2 of 40 trials" in shown.partition("## Evaluation Record")[0]
    assert shown.count(f"**UNHEALTHY:** {WORDS}") == 2
    assert assay("summarize", runs[0]).stderr == ""


@pytest.fixture
def claude(tmp_path: Path) -> Callable[..., Path]:
    """A program that prints what Claude Code prints, with another start event."""

    def make(**init: Any) -> Path:
        path = tmp_path / "fake-claude"
        lines = [json.dumps(line) for line in (INIT | init, ANSWER, RESULT)]
        path.write_text(f"#!{sys.executable}\nprint({chr(10).join(lines)!r})\n")
        path.chmod(0o755)
        return path

    return make


@pytest.mark.parametrize("command", [("capture",), ("trials", "-k", "2")])
def test_the_run_says_it_at_its_end(
    assay: Callable, claude: Callable, prompts: Callable, tmp_path: Path, command: tuple[str, ...]
) -> None:
    program = claude(mcp_servers=[{"name": "adder", "status": "failed"}], plugin_errors=[
        {"plugin": "inline[0]", "type": "path-not-found", "path": "/somewhere/gone"}
    ])  # fmt: skip
    out = tmp_path / "out.jsonl"
    done = assay(*command, prompts("a", "b"), "-s", f"claude:{program}", "-o", out,
                 "--model", "claude-sonnet-4-5")  # fmt: skip
    assert done.code == 0, done.stderr
    n = 2 * int(command[-1]) if command[-1].isdigit() else 2
    assert f"UNHEALTHY: {WORDS} in {n} of {n} trials" in done.stderr
    assert f'plugin "gone" did not load in {n} of {n} trials' in done.stderr
    assert 'model "claude-opus-4-1" was used instead of "claude-sonnet-4-5"' in done.stderr


def test_a_server_that_was_given_and_is_not_listed(
    assay: Callable, claude: Callable, prompts: Callable, tmp_path: Path
) -> None:
    mcp = tmp_path / "mcp.json"
    mcp.write_text('{"mcpServers": {"adder": {"command": "true"}}}')
    args = ("capture", prompts("a"), "--mcp", mcp, "-s")
    done = assay(*args, f"claude:{claude(mcp_servers=[])}")
    assert 'MCP server "adder" was given but is not listed by the agent' in done.stderr
    listed = [{"name": "adder", "status": "connected"}]
    assert "UNHEALTHY" not in assay(*args, f"claude:{claude(mcp_servers=listed)}").stderr


def test_no_control_character_of_a_name_reaches_the_terminal(
    assay: Callable, claude: Callable, prompts: Callable
) -> None:
    program = claude(mcp_servers=[{"name": "a\x1b]0;owned\x07b", "status": "failed"}])
    done = assay("capture", prompts("a"), "-s", f"claude:{program}")
    assert "\x1b" not in done.stderr
    assert "failed to start" in done.stderr
