"""The tasks that a reader comes with, done in a real browser: what changed, why, and where."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.cli.test_five_forms import newest
from tests.cli.test_reuse import Team

TEXT = "return document.getElementById('main').innerText"
COLOUR = "return getComputedStyle(document.querySelector(arguments[0]))[arguments[1]]"


def call(name: str, given: Any, at: int, **more: Any) -> dict[str, Any]:
    step = {"type": "tool_call", "name": name, "status": "completed", "timestamp": at}
    return {**step, "input": given, "duration": 200, **more}


def row(prompt: str, passed: bool | None, steps: list[Any], **more: Any) -> dict[str, Any]:
    made = {
        "id": prompt,
        "input": f"Do {prompt}.",
        "output": "done",
        "trajectory": steps,
        "metadata": {"category": "shell"},
        "timing": {"start": 0, "end": 10_000, "total": 10_000},
        "toolErrors": False,
        "usage": {"costUsd": 0.01},
        "cwd": f"/tmp/{prompt}-{passed}",
    }
    if passed is not None:
        why = "the file is there" if passed else "the file is missing"
        made["score"] = {"pass": passed, "score": float(passed), "reasoning": why}
    return made | more


def claude(passed: bool) -> list[Any]:
    return [
        {"type": "thought", "content": "I look around first.", "timestamp": 100},
        call("Bash", {"command": "ls -la", "description": "List"}, 200, output="a.txt", exitCode=0),
        call("Read", {"file_path": "/tmp/same-True/a.txt"}, 600, output="one"),
        call("Edit", {"file_path": "a.txt", "old_string": "one", "new_string": "two"}, 1000),
        call("Write", {"file_path": "b.txt", "content": "new\n"}, 1400),
        call("Bash", {"command": "cat a.txt b.txt"}, 1800, output="two\nnew", exitCode=0),
        {"type": "message", "content": "I changed a.txt.", "timestamp": 2000},
    ]


def codex(passed: bool) -> list[Any]:
    patch = "*** Begin Patch\n*** Update File: a.txt\n@@\n-one\n+two\n*** End Patch"
    added = "*** Begin Patch\n*** Add File: b.txt\n+new\n*** End Patch"
    last = "cat a.txt b.txt" if passed else "rm a.txt b.txt"
    return [
        call("exec_command", {"cmd": "bash -lc 'ls -la'"}, 300, output="a.txt", exitCode=0),
        call("read_file", {"absolute_path": "/tmp/same-False/a.txt"}, 700, output="one"),
        call("apply_patch", patch, 1100),
        call("apply_patch", added, 1500),
        call("exec_command", {"cmd": last}, 1900, output="", exitCode=0),
        {"type": "message", "content": "I have changed a.txt.", "timestamp": 2100},
    ]


def write(path: Path, rows: list[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(one) + "\n" for one in rows))
    return path


@pytest.fixture(scope="module")
def agents(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Two agents on the same prompts; the second does worse on some."""
    folder = tmp_path_factory.mktemp("agents")
    known = {"agent": {"adapter": "claude", "version": "2.1", "model": "opus"}}
    hanging = call("Bash", {"command": "tail -f /dev/null"}, 3000, status="pending")
    del hanging["duration"]
    late = {"failure": {"cause": "agent_timeout", "message": "no answer within 10 s"}}
    early = {"agent": {"adapter": "claude"}} | late
    lacking = {"setup": {"mcpServers": [{"name": "files", "status": "failed"}]}}
    a = [
        row("same", True, claude(True), **known),
        row("gone", True, claude(True), **known),
        row("hangs", True, claude(True), **known),
        row("won", False, claude(False), **known),
        row("open", None, [], failure={"cause": "provider", "message": "HTTP 529"}, **known),
    ]
    b = [
        row("same", False, codex(False), **known | lacking),
        row("gone", False, codex(False), permissionDenials=2, **known),
        row("hangs", False, [*claude(False), hanging], **early, usage={}),
        row("won", True, codex(True), **known),
        row("open", True, codex(True), **known),
    ]
    return write(folder / "claude.jsonl", a), write(folder / "codex.jsonl", b)


@pytest.fixture(scope="module")
def page(agents: tuple[Path, Path], make_report: Callable[..., Path]) -> str:
    return f"file://{make_report(agents[0].with_name('report.html'), *agents)}"


def test_what_regressed_stands_below_the_verdict_with_reasons_and_the_parting_step(
    browser: Any, page: str
) -> None:
    browser.draw(page)
    browser.see(".change", "the file is missing")
    browser.see(".change .parting", "rm a.txt b.txt")
    first = browser.run("return document.querySelector('.change').innerText")
    assert "100 % → 0 %" in first
    assert "the file is there" in first
    assert "They part at step" in first
    order = browser.run("return [...document.querySelectorAll('.changes, .verdict, .first')].map(e => e.className)")  # fmt: skip # noqa: E501
    assert order == ["verdict unclear", "first", "changes"]
    answers = browser.run("return document.querySelectorAll('.change .answer').length")
    assert answers >= 2
    chips = browser.run("return [...document.querySelectorAll('.chips button')].map(b => b.innerText)")  # fmt: skip # noqa: E501
    assert chips[:2] == ["Regressed 3", "Improved 1"]
    assert "Not measured 1" in chips
    browser.click(".chips button", "Improved")
    browser.see(".change h3", "won")
    browser.click(".chips button", "Not measured")
    browser.see(".change h3", "open")
    browser.see(".change", "HTTP 529")


def test_a_regressed_prompt_leads_to_its_parting_step_in_one_click(browser: Any, page: str) -> None:
    browser.draw(page)
    browser.see(".change .parting", "They part")
    browser.click(".change .beside-link")
    browser.see(".pair.parts.current", "rm a.txt b.txt")
    assert browser.n_clicks == 1
    browser.see(".heads", "the file is there")
    browser.see(".heads", "the file is missing")
    top = browser.run("return document.querySelector('.pair.parts').getBoundingClientRect().top")
    assert 0 <= top <= browser.run("return innerHeight")
    browser.draw(page)
    browser.see(".change .parting", "They part")
    browser.press("j\ue007")
    browser.see(".pair.parts.current")


def test_calls_of_two_agents_are_the_same_under_other_names(browser: Any, page: str) -> None:
    browser.draw(f"{page}#/beside/same/claude/1/codex/1")
    browser.see(".parting", "They part at step 6.")
    browser.see(".parting", "4 common steps")
    browser.see("details.common summary", "4 common steps")
    browser.click("details.common summary")
    browser.see(".common .cell.left code", "Bash")
    browser.see(".common .cell.right code", "exec_command")
    browser.see("mark.left", "cat")
    browser.see("mark.right", "rm")
    marked = browser.run("return [...document.querySelectorAll('.pair.parts mark')].map(m => m.textContent.trim())")  # fmt: skip # noqa: E501
    assert marked == ["cat", "rm"]
    browser.see(".question", "Do same.")
    browser.see(".half.left .result", "the file is there")
    browser.see(".half.right .result", "the file is missing")
    browser.press("x")
    browser.wait("return document.querySelector('.pair.parts.current')")
    browser.draw(f"{page}#/beside/won/codex/1/codex/1")
    browser.see(".parting", "Both took the same steps.")


def test_equal_calls_that_end_differently_part(
    browser: Any, tmp_path: Path, make_report: Callable[..., Path]
) -> None:
    good = [call("Bash", {"command": "make"}, 1, output="ok", exitCode=0)]
    bad = [call("bash", {"command": "make"}, 1, output="no", exitCode=2, status="failed")]
    a = write(tmp_path / "a.jsonl", [row("p", True, good)])
    b = write(tmp_path / "b.jsonl", [row("p", False, bad)])
    page = make_report(tmp_path / "r.html", a, b)
    browser.draw(f"file://{page}#/beside/p/a/1/b/1")
    browser.see(".parting", "the same call ends differently")


def test_a_call_that_never_finished_is_red_to_the_end(browser: Any, page: str) -> None:
    browser.draw(f"{page}#/run/codex/prompt/hangs/trial/1")
    browser.see(".step.unfinished .mark.fail", "never finished")
    browser.see(".troubles", "1 unfinished call")
    bar, last = browser.run(
        """const bar = document.querySelector('.timeline .bar.unfinished').getBBox();
        return [bar.x + bar.width, 1100 - 16]"""
    )
    assert bar == pytest.approx(last)
    assert browser.run(COLOUR, ".bar.unfinished", "color") == browser.run(COLOUR, ".result.fail", "borderLeftColor")  # fmt: skip # noqa: E501
    browser.see(".outline a.unfinished", "$ tail -f")
    browser.click(".troubles button")
    browser.wait("return document.querySelector('.step.unfinished.current')")
    browser.wait("return location.hash.endsWith('/step/8')")


def test_failing_step_is_two_clicks_from_the_table(
    browser: Any, tmp_path: Path, make_report: Callable[..., Path]
) -> None:
    failed = {"output": "1 failed, 13 passed", "exitCode": 1, "status": "failed"}
    steps = [*claude(False) * 6, call("Bash", {"command": "pytest -q"}, 2500, **failed)]
    rows = [row("good", True, claude(True)), row("bad", False, steps * 2)]
    page = make_report(tmp_path / "r.html", write(tmp_path / "a.jsonl", rows))
    browser.draw(f"file://{page}#/prompts?tool=Bash&status=fail")
    browser.click(".marks .mark.fail")
    browser.see(".troubles", "2 failed calls")
    browser.click(".troubles button")
    browser.wait("return document.querySelector('.step.failed.current')")
    browser.see(".step.failed.current .command", "$ pytest -q")
    browser.see(".step.failed.current pre", "1 failed, 13 passed")
    browser.see(".step.failed.current .title", "exit 1")
    browser.see(".step.failed.current code", "Bash")
    link = browser.run("return location.href")
    browser.draw(link)
    browser.wait("return document.querySelector('.step.failed.current')")
    assert "/step/" in link
    assert "tool=Bash" in link
    marked = browser.wait("return document.querySelector('.outline a[aria-current]')?.className")
    assert "failed" in marked
    head = browser.run("return document.querySelector('.trial-head').getBoundingClientRect().top")
    assert head == pytest.approx(0, abs=1)


def test_next_prompt_stays_within_the_filter(browser: Any, page: str) -> None:
    browser.draw(f"{page}#/prompts?status=regressed&sort=difference")
    browser.see("[role=status]", "3 prompts")
    browser.click(".marks .mark.fail")
    browser.see(".around", "1 of 3")
    browser.press("]")
    browser.see(".around", "2 of 3")
    browser.click("a[aria-label='Next prompt']")
    browser.see(".around", "3 of 3")
    assert not browser.run("return document.querySelector(\"a[aria-label='Next prompt']\")")
    browser.press("[")
    browser.see(".around", "2 of 3")
    assert "status=regressed" in browser.run("return location.hash")


def test_going_to_a_step_does_not_draw_the_trial_again(browser: Any, page: str) -> None:
    browser.draw(f"{page}#/run/claude/prompt/same/trial/1")
    browser.run("document.querySelector('.trace').dataset.kept = 'yes'")
    browser.click(".outline a", "Read a.txt")
    browser.wait("return document.querySelector('#step-2.current')")
    assert browser.run("return document.querySelector('.trace').dataset.kept") == "yes"
    browser.cdp(
        "Browser.grantPermissions", permissions=["clipboardReadWrite", "clipboardSanitizedWrite"]
    )
    browser.click("button.copy")
    browser.see("button.copy", "Copied")


def test_long_output_starts_with_eight_lines(
    browser: Any, tmp_path: Path, make_report: Callable[..., Path]
) -> None:
    text = "\n".join(f"line {n}" for n in range(1, 41))
    steps = [
        call("bash", {"command": "seq"}, 1, output=text, exitCode=0),
        call("mcp__files__list", {"depth": 2}, 2, output="x"),
        call("Grep", {"pattern": "TODO", "path": "src"}, 3, output="src/a.py"),
        call("mystery", {"depth": 2}, 4, output="y"),
    ]
    page = make_report(tmp_path / "r.html", write(tmp_path / "a.jsonl", [row("p", True, steps)]))
    browser.draw(f"file://{page}#/run/a/prompt/p/trial/1")
    browser.see("#step-0 pre", "line 8")
    assert "line 9" not in browser.run("return document.querySelector('#step-0').innerText")
    browser.click("#step-0 button", "Show all 40 lines")
    browser.see("#step-0 pre", "line 40")
    browser.see("#step-1 .about", "files · list")
    browser.see("#step-1 b", "MCP")
    browser.see("#step-2 .about", "TODO in src")
    browser.see("#step-3 code", "mystery")


def test_files_open_in_the_editor_of_the_user(
    browser: Any, tmp_path: Path, make_report: Callable[..., Path]
) -> None:
    steps = [
        call("Read", {"file_path": "/home/me/a b.py", "offset": 12}, 1, output="x"),
        call("edit", {"path": "src/c.py", "old_string": "a", "new_string": "b"}, 2),
        call("Read", {"file_path": "//host/share/x"}, 3, output="x"),
        call("Grep", {"pattern": "TODO", "path": "src"}, 4, output="src/a.py"),
    ]
    rows = [{**row("p", True, steps), "cwd": "/home/me/work"}]
    page = make_report(tmp_path / "r.html", write(tmp_path / "a.jsonl", rows))
    browser.draw(f"file://{page}#/run/a/prompt/p/trial/1")
    browser.see("#step-0 .about", "a b.py")
    links = "return [...document.querySelectorAll('.about a')].map((one) => one.href)"
    assert browser.run(links) == [
        "vscode://file/home/me/a%20b.py:12",
        "vscode://file/home/me/work/src/c.py:1",
    ]


def test_what_would_mislead_is_said(browser: Any, page: str) -> None:
    browser.draw(page)
    browser.see(".card dd", "known for 4 of 5 trials")
    text = browser.run(TEXT)
    assert "mixes agents" not in text
    for slug in ("agent_timeout", "not-enough-data", "not_enough"):
        assert slug not in text
    assert "ran out of time" in text
    assert "not enough data" in text.lower()
    assert "prompts that pass more / as / less often" in text
    browser.see(".health", 'MCP server "files" failed to start')
    browser.see(".health", "2 permission denials")
    browser.click("nav a", "Prompts")
    browser.see("tbody", "ran out of time")
    assert "agent_timeout" not in browser.run(TEXT)
    browser.draw(f"{page}#/run/codex/prompt/same/trial/1")
    browser.see(".health", 'MCP server "files" failed to start')
    browser.draw(f"{page}#/run/codex/prompt/gone/trial/1")
    browser.see(".health", "2 tool calls denied")


def test_cost_starts_at_zero(browser: Any, page: str) -> None:
    browser.draw(page)
    browser.see("figure", "Cost against quality")
    ticks = browser.run(
        """const figure = [...document.querySelectorAll('figure')]
          .find((one) => one.textContent.includes('Cost against quality'));
        return [...figure.querySelectorAll('.axis')[0].querySelectorAll('text')]
          .map((one) => one.textContent)"""
    )
    assert ticks[0] == "$0"


def test_several_verdicts_name_their_pair(
    browser: Any, agents: tuple[Path, Path], make_report: Callable[..., Path], tmp_path: Path
) -> None:
    a, b = agents
    page = make_report(tmp_path / "r.html", a, b, f"third:{a}")
    browser.draw(f"file://{page}")
    browser.see(".verdict", "codex")
    texts = browser.run("return [...document.querySelectorAll('.verdict')].map(v => v.textContent)")
    assert len(texts) == 3
    for text, pair in zip(texts, [("codex", "claude"), ("third", "claude"), ("third", "codex")], strict=True):  # fmt: skip # noqa: E501
        assert all(name in text for name in pair), text
    # A verdict that is not about the first run does not stand before the picture.
    order = browser.run("return [...document.querySelectorAll('.verdict, .first')].map(e => e.className.split(' ')[0])")  # fmt: skip # noqa: E501
    assert order == ["verdict", "verdict", "first", "verdict"]
    browser.see("details[data-key=other-verdicts] summary", "other pairs of runs (1)")
    rows = browser.run("return [...document.querySelectorAll('.first tbody tr')].map(e => e.cells[0].innerText)")  # fmt: skip # noqa: E501
    assert rows == ["claude", "codex", "third"]
    browser.choose("select[aria-label='Pair of runs']", "2")
    browser.see(".chips button", "Improved 3")


def test_the_chain_of_edits_is_drawn_with_this_one_as_its_last(
    browser: Any, assay: Callable[..., Any], tmp_path: Path
) -> None:
    team = Team(tmp_path, assay)
    for text in ("1", "this one helps"):
        team.edit(text)
        assert team.ab().code == 0
    browser.draw(f"file://{newest(tmp_path) / 'report.html'}")
    browser.see("figure", "Edits of tpl")
    chart = "[...document.querySelectorAll('figure')].find(f => f.textContent.includes('Edits of'))"
    rows = browser.run(f"return [...{chart}.querySelectorAll('tbody tr')].map(r => r.textContent)")
    assert [row[:2] for row in rows] == ["1.", "2."]
    assert "2. this run" in rows[1]
    assert "+1.0" in rows[1]
    ends = f"return [...{chart}.querySelectorAll('.limits')].map(l => Number(l.getAttribute('x1')))"
    first, last = browser.run(ends)
    assert first < last, "an edit that helps is drawn to the right of one that does nothing"


MARKS_WITHOUT_LINK = """return [...document.querySelectorAll(
    'figure .dot, figure .point, figure .bar, figure rect[class^=heat]')]
    .filter((one) => !one.closest('a[href^="#/"]') && Number(one.getAttribute('width') ?? 1) > 0
      && one.getAttribute('class') !== 'heat-none').length"""


def test_every_mark_of_a_chart_leads_to_what_it_stands_for(
    browser: Any, report: Path, runs: Path, make_report: Callable[..., Path]
) -> None:
    trials = make_report(runs / "marks.html", runs / "flaky.jsonl", runs / "steady.jsonl")
    for page in (report, trials):
        browser.draw(f"file://{page}")
        assert browser.run("return document.querySelectorAll('figure a').length") > 20
        assert browser.run(MARKS_WITHOUT_LINK) == 0
    for title, filter_name in (
        ("Time of a trial", "least_ms="),
        ("Failures by cause", "cause="),
        ("Categories", "category="),
        ("Tool use", "tool="),
    ):
        browser.draw(f"file://{report}")
        browser.run(
            """const figure = [...document.querySelectorAll('figure')]
              .find((one) => one.textContent.includes(arguments[0]));
            location.hash = figure.querySelector('a[href^="#/prompts"]').getAttribute('href')""",
            title,
        )
        browser.see("[role=status]", "prompt")
        assert filter_name in browser.run("return location.hash")
        found = browser.run("return document.querySelectorAll('tbody tr').length")
        assert 0 < found < 40, title


def test_print_is_light_and_open(browser: Any, page: str) -> None:
    browser.theme("dark")
    try:
        browser.draw(f"{page}#/run/claude/prompt/same/trial/1")
        browser.see(".step.tool_call")
        browser.press("tt")  # the reader's own choice of dark as well
        dark = browser.run(COLOUR, "body", "color")
        browser.cdp("Emulation.setEmulatedMedia", media="print")
        browser.run("dispatchEvent(new Event('beforeprint'))")
        assert browser.run("return document.querySelectorAll('main details:not([open])').length") == 0  # fmt: skip # noqa: E501
        browser.see("#step-1 details pre", "List")
        assert browser.run(COLOUR, "body", "color") == "rgb(29, 33, 38)" != dark
        assert browser.run(COLOUR, "body", "backgroundColor") == "rgb(255, 255, 255)"
        assert browser.run(COLOUR, "pre.command", "backgroundColor") == "rgb(242, 244, 246)"
        browser.run("dispatchEvent(new Event('afterprint'))")
        assert browser.run("return document.querySelectorAll('main details[open]').length") == 0
    finally:
        browser.cdp("Emulation.setEmulatedMedia", media="")
        browser.theme("light")


PAGES = ["", "#/prompts", "#/run/codex/prompt/hangs/trial/1", "#/beside/same/claude/1/codex/1?at=parting"]  # fmt: skip # noqa: E501


def test_a_phone_shows_all_of_it_without_sideways_scrolling(browser: Any, page: str) -> None:
    browser.size(390, 800)
    try:
        for address in PAGES:
            browser.draw(page + address)
            browser.see("h1")
            browser.wait("return document.getElementById('main').dataset.drawn")
            assert browser.run("return document.documentElement.scrollWidth") <= 390, address
        tops = browser.run(
            """const pair = document.querySelector('.pair.parts');
            return ['left', 'right'].map((side) =>
              pair.querySelector(`.cell.${side}`).getBoundingClientRect().top)"""
        )
        assert tops[0] < tops[1]  # one below the other, in the same line
    finally:
        browser.cdp("Emulation.clearDeviceMetricsOverride")


def test_the_viewer_gives_the_same_answers(
    browser: Any, agents: tuple[Path, Path], view: Callable[..., str]
) -> None:
    address = view(*agents)
    browser.draw(address)
    browser.see(".chips button", "Regressed 3")
    browser.click(".change .beside-link")
    browser.see(".pair.parts.current")
    browser.draw(f"{address}#/prompts?status=regressed&tool=exec_command&in_run=1")
    browser.see("[role=status]", "2 prompts")
    browser.click(".marks .mark.fail")
    browser.see(".around", "1 of 2")


def played(game: str, levels: list[tuple[bool, int, int]], score: float) -> dict[str, Any]:
    """A game with levels: (completed, actions, baseline), as its benchmark wrote it down."""
    results, marks, spent = [], [], 0
    for i, (completed, actions, baseline) in enumerate(levels):
        one = {"index": i + 1, "completed": completed, "actions": actions, "baseline": baseline}
        results.append(one)
        spent += actions
        if completed:
            marks.append([i + 1, spent])
    play = {"index": 1, "actions": spent, "marks": marks, "levels": results}
    done = len(marks)
    official = {
        "scorePercent": score,
        "play": 1,
        "levelScoresPercent": [50.0 if level[0] else 0.0 for level in levels],
    }
    result = {"won": False, "levelsCompleted": done, "levelCount": len(levels), "plays": [play]}
    evidence = {"benchmark": "arc", "result": result, "scores": {"official": official}}
    measures = {"official %": score, "levels": done, "actions": spent}
    made = row(game, False, [], outcome={"measures": measures})
    made["metadata"] = {"evidence": evidence}
    made["score"] = {"pass": False, "score": score / 100, "reasoning": f"{done} levels"}
    return made


def test_games_show_score_levels_baselines_and_curves(
    browser: Any, tmp_path: Path, make_report: Callable[..., Path], axe: str
) -> None:
    first = [
        played("g1", [(True, 10, 5), (False, 30, 8)], 8.0),
        played("g2", [(False, 40, 5), (False, 0, 8)], 0.0),
    ]
    second = [
        played("g1", [(True, 6, 5), (True, 20, 8)], 40.0),
        played("g2", [(True, 9, 5), (False, 31, 8)], 10.0),
    ]
    files = [write(tmp_path / "one.jsonl", first), write(tmp_path / "two.jsonl", second)]
    page = make_report(tmp_path / "r.html", *files)
    browser.draw(f"file://{page}")
    browser.see(".card .big", "4.00 / 100 official")
    browser.see(".card .big", "25.00 / 100 official")
    browser.see(".games table", "25.00 / 100")
    browser.see(".games table", "3 of 4")
    browser.see(".level.pass", "✓ 20 / 8")
    browser.see(".level.fail", "✗ 31 / 8")
    browser.see(".level.none", "not reached")
    titles = browser.run("return [...document.querySelectorAll('.games h3')].map(h => h.innerText)")
    assert titles == ["Levels", "Actions against the baseline", "Score against actions", "Score against cost"]  # fmt: skip # noqa: E501
    assert browser.run(MARKS_WITHOUT_LINK) == 0
    rows = browser.run(
        """const figure = [...document.querySelectorAll('.games figure')]
          .find((one) => one.textContent.includes('Score against actions'));
        return [...figure.querySelectorAll('tbody tr')].map((one) => one.innerText || one.textContent)"""  # noqa: E501
    )
    assert any("two" in line and "25.00" in line for line in rows)
    browser.see(".change", "→")
    browser.click(".levels a", "g1")
    browser.see(".trial-head .facts", "8.00 / 100 official · levels 1 · actions 40")


def test_the_failing_step_of_what_regressed_is_two_clicks_away(browser: Any, page: str) -> None:
    browser.draw(page)
    browser.click(".change a.mark.fail[href*='hangs']")
    browser.click(".troubles button")
    browser.wait("return document.querySelector('.step.current')")
    assert browser.n_clicks == 2


def test_a_command_is_one_search_away(browser: Any, page: str) -> None:
    browser.draw(page)
    browser.press("s")
    browser.wait("return document.activeElement?.id === 'search'")
    browser.press("rm")
    browser.see(".hit mark", "rm")
    assert browser.n_clicks == 0
    browser.click(".hit a")
    browser.see(".step.current", "rm a.txt b.txt")
    assert browser.n_clicks == 1


def test_two_agents_replay_a_game_in_step_to_the_end_of_the_longer(
    browser: Any, games: tuple[Path, Path], view: Callable[..., str]
) -> None:
    browser.draw(view(*games))
    browser.click("nav a", "Prompts")
    browser.click("a.delta")
    browser.see(".game h2", "Games in step")
    browser.see(".replay .move", "RESET")
    assert browser.n_clicks == 2
    moves = "return [...document.querySelectorAll('.replay .move')].map((one) => one.innerText)"
    browser.click("button[title='Next move']")
    browser.wait(f"return ({moves.removeprefix('return ')}).every((one) => one.includes('I try move 1.'))")  # fmt: skip # noqa: E501
    browser.click("button[title='Last move']")
    browser.see(".replay .move", "I try move 5.")
    quick, slow = browser.run(moves)
    assert "I try move 3." in quick
    assert "I try move 5." in slow


def test_why_it_failed_and_what_is_in_doubt(
    browser: Any, tmp_path: Path, make_report: Callable[..., Path]
) -> None:
    again = call(
        "Bash", {"command": "make all"}, 1, status="failed", output="no rule 7", exitCode=2
    )
    cheat = [call("Edit", {"file_path": "tests/test_a.py"}, 1), call("Bash", {"command": "ls"}, 2)]
    rows = [row(f"stuck-{n}", False, [again] * 3) for n in range(2)]
    rows += [row("cheat", True, cheat), row("pot", True, [], honeypot=True)]
    page = make_report(tmp_path / "r.html", write(tmp_path / "run.jsonl", rows))
    browser.draw(f"file://{page}")
    browser.see(".doubts", "1 trial of a honeypot passed")
    browser.see(".doubts", "1 of 1 pass is doubtful")
    browser.click(".doubts a", "Why")
    browser.see("h1", "Why did it fail?")
    browser.see(".why h2", "Hacked honeypots")
    browser.see(".why tbody", "repeated a failing call")
    browser.see(".clusters", "2 of 2: repeated a failing call: `make all`: no rule N")
    browser.click(".explained a", "step 1")
    browser.wait("return location.hash.includes('/step/1')")
    browser.see("h2", "Steps (")


def test_a_measurement_without_a_verdict_is_drawn_without_one(browser: Any, page: str) -> None:
    """Green and red are for what the sentence decides; what is unhealthy leads to its cause."""
    browser.draw(page)
    browser.see(".verdict.unclear", "")
    assert browser.run("return document.querySelectorAll('.glance .point-even').length") == 1
    browser.see(".look", "Look first at what was not measured.")
    browser.click(".look a")
    browser.see("[role=status]", "1 prompt")


def test_a_run_alone_leads_to_its_failures(
    browser: Any, agents: tuple[Path, Path], make_report: Callable[..., Path]
) -> None:
    report = make_report(agents[1].with_name("alone.html"), agents[1])
    browser.draw(f"file://{report}")
    browser.see(".health", "codex")
    browser.click(".look a", "why 3 trials failed")
    browser.see("h1", "Why did it fail?")


LONG = "a-skill-with-a-rather-long-name+AGENTS.v2"
CUT = """return [...document.querySelectorAll('.picture text')].filter((one) => {
  const [box, frame] = [one.getBoundingClientRect(), one.closest('svg').getBoundingClientRect()];
  return box.width && (box.right > frame.right + 1 || box.left < frame.left - 1); })
  .map((one) => one.textContent)"""


@pytest.mark.parametrize("size", [(1280, 800), (390, 844)])
def test_no_label_of_a_chart_is_cut(
    browser: Any, agents: tuple[Path, Path], make_report: Callable[..., Path], size: tuple[int, int]
) -> None:
    a, b = agents
    report = make_report(a.with_name("long.html"), a, f"{LONG}:{b}")
    browser.size(*size)
    browser.draw(f"file://{report}")
    browser.see(".glance", LONG)
    assert browser.run(CUT) == []
    texts = browser.run("return document.querySelector('main').textContent")
    assert "…" not in texts.split("Pictures")[1]


@pytest.mark.parametrize("size", [(1280, 800), (390, 844)])
def test_the_first_screen_needs_no_scroll(browser: Any, page: str, size: tuple[int, int]) -> None:
    """The verdict, the picture, what it costs, health and the first change with its answers."""
    browser.size(*size)
    browser.draw(page)
    browser.see(".change .answer", "")
    parts = ".verdict, .glance, .look, .beside-picture table, .health, .change:first-child h3"
    ends = browser.run(
        f"return [...document.querySelectorAll('{parts}')].map(e => e.getBoundingClientRect())"
        ".map(({right, bottom}) => [right, bottom])"
    )
    assert len(ends) == 6
    assert all(right <= size[0] and bottom <= size[1] for right, bottom in ends), ends
    assert browser.run(CUT) == []


def test_a_filter_that_does_not_exist_is_said(browser: Any, page: str) -> None:
    browser.draw(f"{page}#/prompts?colour=red&status=bogus")
    browser.see(".notice", 'There is no filter "colour"')
    browser.see(".notice", 'There is no result "bogus"')


def test_the_search_takes_a_pasted_command_and_says_how_it_read_it(browser: Any, page: str) -> None:
    browser.draw(f"{page}#/search?q=rm%20-f%20a.txt")
    browser.see("[role=status]", 'Read as: "rm" and "f" and "a.txt"')


def test_what_a_simulated_user_said_stands_with_the_question_as_its_own(
    browser: Any, tmp_path: Path, make_report: Callable[..., Path]
) -> None:
    user = {"said": ["Medium, please."], "ended": "stop", "model": "m"}
    run = write(tmp_path / "a.jsonl", [row("p", True, claude(True), simulatedUser=user)])
    browser.draw(f"file://{make_report(tmp_path / 'r.html', run)}#/run/a/prompt/p/trial/1")
    browser.wait("return document.getElementById('main').innerText.includes('Medium, please.')")
    assert "Turn 2, said by the simulated user" in browser.run(TEXT)
