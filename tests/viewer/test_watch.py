"""Watching a run while it is written, and the list of runs: nothing jumps, closes or is lost."""

import json
import os
import re
import shutil
import signal
import time
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

from assay.records.live import LiveFile, LiveState, RunningTrial, live_path, read_live

HOSTILE = "<img src=x onerror=document.title='owned'>\u202e"
STATE = LiveState(
    agent=HOSTILE,
    started=time.time() - 60,
    done=3,
    total=40,
    left_s=125.0,
    spent_usd=0.25,
    budget_usd=5.0,
    result="pass 67% (12% to 98%)",
    running=[RunningTrial(f"p4 {HOSTILE}", 2, time.time() - 5, "Bash", 7)],
    n_running=1,
)


def test_the_file_is_read_only_while_its_run_lives(tmp_path: Path) -> None:
    output = tmp_path / "r.jsonl"
    assert read_live(output) is None
    live = LiveFile(output)
    live.write(STATE)
    assert read_live(output) == STATE
    live.close()
    assert not live_path(output).exists()
    live_path(output).write_bytes(b'{"agent":"a","started":1,"done":1,"total":2}\n')
    assert read_live(output) is None  # a killed run has left it: nobody holds its lock
    live_path(output).unlink()
    os.mkfifo(live_path(output))
    assert read_live(output) is None


def test_a_run_writes_it_and_a_killed_one_is_not_live(
    start: Callable[..., Any], shell_agent: Path, prompts: Callable[..., Path], tmp_path: Path
) -> None:
    out = tmp_path / "out.jsonl"
    script = 'echo \'{"type":"message","text":"hi"}\'; sleep 30; R'
    words = ("-s", shell_agent, "-o", out, "-j", 2, "--max-cost", 3)
    process = start("capture", prompts("R", script, script), *words)
    state = _wait(lambda: (found := read_live(out)) and found.n_running == 2 and found)
    assert (state.done, state.total, state.budget_usd) in ((0, 3, 3.0), (1, 3, 3.0))
    assert {one.prompt for one in state.running} <= {"p0", "p1", "p2"}
    process.send_signal(signal.SIGKILL)
    process.wait(10)
    assert live_path(out).exists()
    assert read_live(out) is None


def test_the_end_of_a_run_removes_it_and_an_agent_is_not_blamed_for_it(
    assay: Callable[..., Any], shell_agent: Path, prompts: Callable[..., Path], tmp_path: Path
) -> None:
    out = tmp_path / "out.jsonl"
    done = assay("capture", prompts("sleep 1.5; R"), "-s", shell_agent, "-o", out)
    assert done.code == 0, done.stderr
    assert not live_path(out).exists()
    assert ".live" not in out.read_text()


def test_page_and_terminal_say_the_same_and_nothing_jumps(
    browser: Any, view: Callable[..., str], tmp_path: Path, sample: ModuleType
) -> None:
    rows = list(sample.rows(60, seed=9, rate=0.5, agent="live"))
    file = tmp_path / "live.jsonl"
    sample.write(file, iter(rows[:40]))
    live = LiveFile(file)
    live.write(STATE)
    browser.draw(view(file))
    browser.see("#live", "● live")
    text = browser.run("return document.getElementById('live').innerText")
    for part in ("3 of 40 done", "2 min 5 s left", "$0.250 of $5.00 budget", "pass 67% (12%"):
        assert part in text
    assert "step 7: Bash" in text
    assert "⟦U+202E⟧" in text
    assert browser.run("return document.title") != "owned"

    browser.click("#live summary")  # a fold that the reader closed stays closed
    folds = "document.querySelectorAll('main details[open]').length"
    n_open = browser.run(
        "for (const one of document.querySelectorAll('main details:not([open]) > summary'))"
        f" one.click(); return {folds}"
    )
    assert n_open > 3
    browser.run("scrollTo(0, 400)")
    with file.open("a") as out:
        out.write("".join(json.dumps(row) + "\n" for row in rows[40:50]))
        out.write("not a row\n")  # a notice appears above everything else
    browser.see(".health", "50 of 50 trials run")
    assert browser.run(f"return {folds}") == n_open
    assert browser.run("return scrollY") == 400
    assert browser.run("return document.querySelector('#live details').open") is False

    browser.draw(browser.run("return location.href.split('#')[0]") + "#/prompts")
    browser.see("[role=status]", "50 prompts")
    browser.run("window.mine = document.querySelectorAll('tbody tr')[30]; scrollTo(0, 900)")
    with file.open("a") as out:
        out.write("".join(json.dumps(row) + "\n" for row in rows[50:]))
    browser.see("[role=status]", "60 prompts")
    assert browser.run("return document.querySelectorAll('tbody tr')[30] === window.mine")
    assert browser.run("return scrollY") == 900
    live.close()
    browser.wait("return !document.getElementById('live')")


def test_the_list_is_a_leaderboard(
    browser: Any, view: Callable[..., str], tmp_path: Path, runs: Path
) -> None:
    for name in ("before.jsonl", "after.jsonl", "flaky.jsonl"):
        shutil.copy(runs / name, tmp_path / name)
    live = LiveFile(tmp_path / "after.jsonl")
    live.write(STATE)
    browser.draw(view(tmp_path))
    browser.see("tbody tr", "%")
    browser.wait("return !document.querySelector('tbody').innerText.includes('reading')")
    rows = {row.split("\t")[1]: row for row in browser.run(CELLS)}
    assert re.search(r"after\t.*\t8\d\.\d %\s6\d % to 9\d %\t40", rows["after"]), rows["after"]
    assert "● live 3 of 40" in rows["after"]
    assert "12 (48 trials)" in rows["flaky"]
    assert "$" in rows["before"]

    browser.click("thead button", "pass rate")
    assert browser.run(CELLS)[0].split("\t")[1] == "after"
    browser.click("thead button", "pass rate")
    assert [row.split("\t")[1] for row in browser.run(CELLS)][-1] == "after"
    browser.run("document.getElementById('search').focus()")
    browser.press("before")
    browser.see("[role=status]", "1 of 3 runs")
    assert "q=before" in browser.run("return location.hash")
    browser.run("document.getElementById('search').value = ''")
    browser.press(" ")
    before = browser.n_clicks
    for name in ("before", "after"):
        browser.click(f"input[aria-label='Choose {name}']")
    browser.click("button", "Compare the 2 chosen runs")
    browser.see(".verdict", "after")
    assert browser.n_clicks - before == 3
    live.close()


CELLS = """return [...document.querySelectorAll('tbody tr')]
    .map((row) => [...row.cells].map((cell) => cell.innerText).join('\\t'))"""


def _wait(look: Callable[[], Any], seconds: float = 20.0) -> Any:
    until_s = time.monotonic() + seconds
    while time.monotonic() < until_s:
        if found := look():
            return found
        time.sleep(0.05)
    raise AssertionError
