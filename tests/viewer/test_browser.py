"""A person clicks through report and viewer, in a real browser."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

MARKS = "return [...document.querySelectorAll('tbody tr')].map((row) => row.textContent)"
PIXEL = """const canvas = document.querySelector('canvas');
    return [...canvas.getContext('2d').getImageData(arguments[0], 3, 1, 1).data].slice(0, 3)"""


def test_overview_filter_trial_step_side_by_side(browser: Any, report: Path) -> None:
    browser.open("about:blank")
    browser.console()  # a page of an earlier test may have lost its server
    browser.draw(f"file://{report}")
    browser.see("h1", "before · after")
    browser.see(".verdict", "after")
    browser.see(".health", "trials run")
    titles = browser.run("return [...document.querySelectorAll('figure h3')].map(h => h.innerText)")
    assert titles == [
        "Pass rate",
        "Score",
        "Paired differences",
        "Cost against quality",
        "Time of a trial",
        "Failures by cause",
        "Categories",
        "Tool use",
    ]
    browser.click("nav a", "Prompts")
    browser.see("[role=status]", "40 prompts")
    browser.press("/")
    browser.press("docs")
    browser.see("[role=status]", "8 prompts")
    browser.choose("select[aria-label=Result]", "differ")
    browser.wait("return !document.querySelector('[role=status]').innerText.includes('8 prompts')")
    assert all("docs-" in text for text in browser.run(MARKS))
    assert browser.run("return location.hash") == "#/prompts?q=docs&status=differ"
    browser.click("tbody td a", "docs-")
    browser.click("a.button", "Side by side")
    browser.see(".parting", "They part at step")
    assert browser.run("return document.querySelectorAll('.pair.parts').length") == 1
    browser.click(".half.left a", "open")
    browser.see("h2", "Steps (")
    browser.click(".step.tool_call summary", "Call as sent")
    browser.see(".step.tool_call details[open] pre", "")
    browser.click(".step .where", "3")
    browser.wait("return location.hash.endsWith('/trial/1/step/3')")
    browser.wait("return document.querySelector('#step-2.current')")
    assert browser.console() == []


def test_every_step_has_an_address_and_steps_of_sub_agents_nest(browser: Any, report: Path) -> None:
    browser.draw(f"file://{report}#/prompts?status=pass")
    browser.click(".mark.pass")
    browser.see(".nested summary", "Sub-agent, 2 steps")
    browser.see(".nested .step", "Running them now.")
    link = browser.run("return document.querySelector('.nested .where').href")
    browser.draw(link)
    browser.wait("return document.querySelector('.nested .step.current')")
    browser.click(".step.tool_call summary", "diff --git")
    browser.see("pre.diff .plus", "item.quantity")
    browser.see("pre.diff .minus", "amount += item.price")
    browser.see(".markdown a", "the issue")
    assert browser.run("return document.querySelector('.markdown a').rel").startswith("noopener")


def test_keyboard(browser: Any, report: Path) -> None:
    browser.draw(f"file://{report}")
    browser.press("?")
    browser.see("dialog dd", "next, previous")
    browser.press("\ue00c")
    browser.wait("return !document.querySelector('dialog')")
    browser.press("p")
    browser.see("h1", "Prompts")
    browser.see("tbody tr")
    browser.press("jjk")
    assert browser.run("return document.querySelector('tbody tr').className") == "current"
    browser.press("\ue007")
    browser.see("a.button", "Side by side")
    browser.press("j\ue007")
    browser.see("h2", "Asked")
    browser.press("jj")
    browser.wait("return document.querySelector('#step-1.current')")
    browser.press("u")
    browser.see("a.button", "Side by side")
    dark = "return getComputedStyle(document.body).backgroundColor"
    before = browser.run(dark)
    browser.press("t")
    assert browser.run(dark) != before


def test_trials_have_curves(browser: Any, runs: Path, make_report: Callable[..., Path]) -> None:
    page = make_report(runs / "trials.html", runs / "flaky.jsonl", runs / "steady.jsonl")
    browser.draw(f"file://{page}")
    browser.see("figure h3", "pass@k and pass^k")
    browser.click("nav a", "Prompts")
    browser.see("tbody tr")
    assert browser.run("return document.querySelector('tbody tr').querySelectorAll('.marks .mark').length") == 8  # fmt: skip # noqa: E501
    browser.click(".mark.fail")
    browser.see("h2", "Steps (")
    assert "/trial/" in browser.run("return location.hash")


def test_game_replays_in_the_official_colours(
    browser: Any, runs: Path, make_report: Callable[..., Path]
) -> None:
    page = make_report(runs / "arc.html", runs / "arc" / "results.jsonl")
    browser.draw(f"file://{page}#/run/results/prompt/sq01/trial/1")
    browser.see(".move .big", "RESET")
    assert browser.run(PIXEL, 3) == [0x1E, 0x93, 0xFF]
    assert browser.run(PIXEL, 200) == [0, 0, 0]
    browser.click("button[title='Next move']")
    browser.see(".move .big", "ACTION1")
    browser.see(".move", "I try move 1.")
    browser.wait(PIXEL + "[0] === 0", 3)
    browser.click("button[title='Last move']")
    browser.see(".move", "won, level 1 of 1 done")
    browser.see(".move", "I try move 3.")


def test_viewer_follows_a_run_and_takes_labels(
    browser: Any, view: Callable[..., str], tmp_path: Path, runs: Path, sample: ModuleType
) -> None:
    rows = list(sample.rows(30, seed=9, rate=0.5, agent="live"))
    file = tmp_path / "live.jsonl"
    sample.write(file, iter(rows[:10]))
    browser.draw(view(file))
    browser.see(".health", "10 of 10 trials run")
    with file.open("a") as out:
        out.write("".join(json.dumps(row) + "\n" for row in rows[10:]))
        out.write('{"id": "torn", "inp')
    browser.see(".health", "30 of 30 trials run")
    browser.press("p")
    browser.see("[role=status]", "30 prompts")
    browser.click("nav a", "Label")
    browser.see("h2", "Answered")
    text = browser.run("return document.getElementById('main').innerText")
    assert "score" not in text
    assert "all checks passed" not in text
    browser.press("p")
    browser.see("[role=status]", "1 labelled")
    browser.press("f")
    browser.see("[role=status]", "2 labelled")
    labels = [
        json.loads(line) for line in (tmp_path / "live.labels.jsonl").read_text().splitlines()
    ]
    assert [row["label"] for row in labels[:3]] == ["pass", "fail", None]
    assert {"id", "input", "output", "label"} <= labels[0].keys()


def test_folder_lists_its_runs(
    browser: Any, view: Callable[..., str], tmp_path: Path, runs: Path
) -> None:
    for name in ("before.jsonl", "after.jsonl", "flaky.jsonl"):
        shutil.copy(runs / name, tmp_path / name)
    (tmp_path / "notes.jsonl").write_text('{"a": 1}\n')
    browser.draw(view(tmp_path))
    browser.see("h1", "Runs")
    assert len(browser.run(MARKS)) == 3
    for name in ("before", "after"):
        browser.click(f"input[aria-label='Choose {name}']")
    browser.click("button", "Compare the 2 chosen runs")
    browser.see("figure h3", "Paired differences")
    browser.click("nav a", "Prompts")
    browser.see("[role=status]", "40 prompts")
    browser.click(".mark.pass")
    browser.see("h2", "Steps (")


def test_phone_width_needs_no_sideways_scrolling(browser: Any, report: Path) -> None:
    browser.size(390, 800)
    try:
        for page in ("", "#/prompts", "#/prompt/docs-002", "#/run/after/prompt/docs-002/trial/1"):
            browser.draw(f"file://{report}{page}")
            browser.see("h1")
            assert browser.run("return document.documentElement.scrollWidth") <= 390, page
    finally:
        browser.cdp("Emulation.clearDeviceMetricsOverride")


def test_the_page_shows_head_to_head_and_what_a_judge_said(
    browser: Any, runs: Path, tmp_path: Path
) -> None:
    from assay.cli.group import run_command

    judge = tmp_path / "judge.py"
    judge.write_text(
        "def grade(id, runs):\n"
        "    return {'rankings': [{'run': r, 'rank': n, 'score': 1 / n}\n"
        "        for n, r in enumerate(sorted(runs), 1)], 'reasoning': f'<b>short</b> {id}'}\n"
    )
    page = tmp_path / "page.html"
    files = [str(runs / f"{name}.jsonl") for name in ("before", "after")]
    words = ["report", *files, "-s", "custom", "-g", str(judge), "-q", "-o", str(page)]
    assert run_command(words) == 0
    browser.draw(f"file://{page}")
    browser.see(".verdict", "judge.py prefers after to before: ")
    browser.see(".head-to-head", "Strategy custom: the judge ranks the runs.")
    browser.see(".head-to-head", "before against after")
    browser.see(".reasons", "What judge.py said (20 of 40 prompts)")
    browser.see(".reasons li", "after. <b>short</b> ")
    browser.see(".card", "with tool errors")
