"""axe-core looks at the main pages, light and dark."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

CHECK = """const done = arguments[arguments.length - 1];
    axe.run(document, { resultTypes: ['violations'] }).then((told) => done(told.violations
      .filter((one) => one.impact === 'serious' || one.impact === 'critical')
      .map((one) => [one.id, one.impact, one.nodes.slice(0, 3).map((node) => node.html.slice(0, 200))])));"""  # fmt: skip # noqa: E501
PAGES = [
    "#/",
    "#/prompts",
    "#/prompt/docs-002",
    "#/run/after/prompt/docs-002/trial/1",
    "#/beside/docs-002/before/1/after/1",
]


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_report_has_no_serious_issue(
    browser: Any, report: Path, axe: str, theme: str, runs: Path, make_report: Callable[..., Path]
) -> None:
    game = make_report(runs / "axe-arc.html", runs / "arc" / "results.jsonl")
    browser.theme(theme)
    try:
        for url in [f"file://{report}{page}" for page in PAGES] + [
            f"file://{game}#/run/results/prompt/sq01/trial/1",
            f"file://{game}#/beside/sq01/results/1/results/1",
        ]:
            browser.draw(url)
            browser.see("h1")
            if url.endswith("#/"):
                browser.see(".change .parting", "They part")
            browser.run("for (const one of document.querySelectorAll('details')) one.open = true")
            browser.cdp("Runtime.evaluate", expression=axe)
            assert browser.run_async(CHECK) == [], url
    finally:
        browser.theme("light")


def test_labelling_and_runs_have_no_serious_issue(
    browser: Any, runs: Path, axe: str, view: Callable[..., str]
) -> None:
    address = view(runs / "before.jsonl", runs / "arc")
    for page in ("#/label", "#/runs"):
        browser.draw(address + page)
        browser.see("h1")
        browser.cdp("Runtime.evaluate", expression=axe)
        assert browser.run_async(CHECK) == [], page
