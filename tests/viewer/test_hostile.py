"""Forty ways to break out of a page: none runs, none asks for anything, all are shown as text."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

EVIL = "http://evil.invalid/"
MARK = "document.title='OWNED';window.OWNED=1"
PAYLOADS = [
    f"<script>{MARK}</script>",
    f"</script><script>{MARK}</script>",
    f"</ScRiPt ><sCrIpT>{MARK}</sCrIpT>",
    f"<script src='{EVIL}x.js'></script>",
    f'<img src=x onerror="{MARK}">',
    f"<img src='{EVIL}pixel.png'>",
    f'<svg onload="{MARK}">',
    f"<svg><script>{MARK}</script></svg>",
    f'<svg><animate onbegin="{MARK}" attributeName=x dur=1s>',
    f'<body onload="{MARK}">',
    f"<iframe src='javascript:{MARK}'></iframe>",
    f'<iframe srcdoc="<script>parent.{MARK}</script>"></iframe>',
    f"<iframe src='{EVIL}'></iframe>",
    f"<object data='{EVIL}o'></object>",
    f"<embed src='{EVIL}e'>",
    f"<link rel=stylesheet href='{EVIL}s.css'>",
    f"<style>@import '{EVIL}s.css'; *{{background:url({EVIL}b)}}</style>",
    f"<meta http-equiv=refresh content='0;url={EVIL}'>",
    f"<base href='{EVIL}'>",
    f"<form action='{EVIL}'><input name=a autofocus onfocus=\"{MARK}\"></form>",
    f'<details open ontoggle="{MARK}"><summary>x</summary></details>',
    f'<video><source onerror="{MARK}"></video>',
    f"<a href='javascript:{MARK}'>x</a>",
    f"[click](javascript:{MARK})",
    f"[click](JaVaScRiPt:{MARK})",
    f"[click](data:text/html,<script>{MARK}</script>)",
    f"[click](vbscript:{MARK})",
    f"![pixel]({EVIL}pixel.png)",
    f"[a]({EVIL}ok) `<b>` **<img src=x onerror={MARK}>**",
    f"<!-- --><script>{MARK}</script><!--",
    f"<![CDATA[<script>{MARK}</script>]]>",
    f"\"'><script>{MARK}</script>",
    f"${{{MARK}}} {{{{constructor.constructor('{MARK}')()}}}}",
    f"\\u003cscript\\u003e{MARK}\\u003c/script\\u003e &lt;script&gt;{MARK}&lt;/script&gt;",
    "\x1b[31mred\x1b[0m \x1b]0;title\x07 \x1b[2J\x1b]8;;http://evil.invalid/\x1b\\link",
    "abc\u202egnp.exe\u202c \u2066hidden\u2069 zero\u200bwidth",
    "nul \x00 bell \x07 del \x7f",
    "| a | b |\n|---|---|\n| <script>1</script> | <img src=x onerror=alert(1)> |",
    "```html\n<script>document.title='OWNED'</script>\n```",
    "x" * 10_000_000,
]
TRIGGER = """for (const one of document.querySelectorAll('*')) {
    for (const name of ['error', 'load', 'focus', 'toggle']) one.dispatchEvent(new Event(name)); }
    for (const one of document.querySelectorAll('details')) one.open = true;
    return document.querySelectorAll(
      'main img, main iframe, main object, main embed, main script, main link, main style,'
      + 'main form, main video, main base, main meta, [onerror], [onload],'
      + 'a[href^="javascript"], a[href^="data"]'
    ).length"""


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Every payload in every place that holds text."""
    file = tmp_path_factory.mktemp("hostile") / "hostile.jsonl"
    with file.open("w") as out:
        for n, text in enumerate(PAYLOADS):
            out.write(json.dumps(_row(n, text)) + "\n")
        for name in ("__proto__", "constructor", "../../etc/passwd", "a/b?c#d%2f"):
            out.write(json.dumps(_row(name, "plain")) + "\n")
    return file


def _row(n: Any, text: str) -> dict[str, Any]:
    short = text[:2000]
    step = {"type": "tool_call", "name": short, "status": short, "timestamp": 1}
    return {
        "id": f"{n} {short}" if isinstance(n, int) else n,
        "input": [text, short],
        "output": text,
        "hint": short,
        "trajectory": [
            {"type": "thought", "content": short, "timestamp": 0},
            {**step, "input": {short: short, "old_string": short, "new_string": short}},
            {**step, "output": text, "error": short, "callId": short},
            {"type": "message", "content": text, "timestamp": 2, "parent": short},
            {"type": "plan", "entries": [{"content": short, "status": short}], "timestamp": 3},
            {"type": short, "content": short, "timestamp": 4},
        ],
        "metadata": {"category": short, short: short, "evidence": {"log": "../../../etc/passwd"}},
        "timing": {"start": 0, "end": 1, "total": 1},
        "score": {"pass": False, "score": 0, "reasoning": short},
        "failure": {"cause": "agent_crash", "message": short},
        "agent": {"adapter": short, "version": short, "model": short},
        "stderr": short,
        "raw": "../../../etc",
    }


def test_forty_payloads_in_the_report(
    browser: Any, hostile: Path, make_report: Callable[..., Path]
) -> None:
    assert len(PAYLOADS) == 40
    page = make_report(hostile.with_suffix(".html"), hostile)
    assert page.stat().st_size < 2_000_000
    browser.requests()
    browser.draw(f"file://{page}")
    _look_at_everything(browser, f"file://{page}")
    asked = [url for url in browser.requests() if not url.startswith((f"file://{page}", "data:,", "about:"))]  # fmt: skip # noqa: E501
    assert asked == []


def test_forty_payloads_in_the_viewer(
    browser: Any, hostile: Path, view: Callable[..., str]
) -> None:
    address = view(hostile)
    browser.requests()
    browser.draw(address)
    _look_at_everything(browser, address, every=3)
    asked = [url for url in browser.requests() if not url.startswith((address, "data:,", "about:"))]
    assert asked == []


def _look_at_everything(browser: Any, address: str, every: int = 1) -> None:
    browser.console()
    assert browser.run(TRIGGER) == 0
    browser.run("location.hash = '#/prompts'")
    browser.see("[role=status]", "44 prompts")
    browser.wait("return document.querySelectorAll('tbody tr').length === 44")
    assert browser.run(TRIGGER) == 0
    links = browser.run("return [...document.querySelectorAll('.marks a')].map((a) => a.hash)")
    assert len(links) == 44
    for link in [*links[:40:every], *links[40:]]:
        browser.run("location.hash = arguments[0]", link)
        browser.wait(
            "return document.querySelector('.step') && location.hash === arguments[0]", link
        )
        browser.wait("return document.querySelectorAll('.trial').length === 1")
        assert browser.run(TRIGGER) == 0, link
        browser.see("h2", "Steps (6)")
    assert browser.run("return window.OWNED ?? null") is None
    assert browser.run("return document.title") == "hostile"
    assert browser.run("return location.href").startswith(address)
    complaints = [text for text in browser.console() if "favicon" not in text]
    assert complaints == []


def test_what_would_be_invisible_is_shown(
    browser: Any, hostile: Path, make_report: Callable[..., Path]
) -> None:
    page = make_report(hostile.with_suffix(".html"), hostile)
    browser.draw(f"file://{page}#/prompts?q=gnp.exe")
    browser.click(".marks a")
    browser.see("main", "abc⟦U+202E⟧gnp.exe")
    browser.draw(f"file://{page}#/prompts?q=bell")
    browser.click(".marks a")
    browser.see("main", "nul ␀ bell ␇")
    browser.draw(f"file://{page}#/prompts?q=39+xxxx")
    browser.click(".marks a")
    browser.see("button.more", "characters left")


@pytest.fixture(scope="module")
def compared(hostile: Path, make_report: Callable[..., Path]) -> str:
    """The same rows in a second run that passed: every prompt changed."""
    other = hostile.with_name("other.jsonl")
    with other.open("w") as out:
        for line in hostile.read_text().splitlines():
            row = json.loads(line)
            row["score"] |= {"pass": True, "score": 1.0}
            row["trajectory"] = [{**step, "content": "other"} for step in row["trajectory"][::-1]]
            out.write(json.dumps(row) + "\n")
    return f"file://{make_report(hostile.with_name('compared.html'), hostile, other)}"


def test_forty_payloads_among_the_changes_and_side_by_side(browser: Any, compared: str) -> None:
    browser.requests()
    browser.draw(compared)
    browser.console()
    browser.see(".chips button", "Improved 44")
    browser.wait("return document.querySelectorAll('.change').length === 5")
    for shown in range(10, 50, 5):  # the longest answers are read here, too
        browser.click(".changes p > .more")
        browser.wait(
            "return document.querySelectorAll('.change').length >= Math.min(44, arguments[0])",
            shown,
        )
    assert browser.run(TRIGGER) == 0
    links = browser.run("return [...document.querySelectorAll('.beside-link')].map((a) => a.hash)")
    assert len(links) == 44
    for link in links[::2]:
        browser.run("location.hash = arguments[0]", link)
        browser.wait(
            """return document.querySelector('.beside .pair, .beside .common')
              && location.hash === arguments[0]""",
            link,
        )
        assert browser.run(TRIGGER) == 0, link
    _end_of_visit(browser, compared, "hostile · other")


@pytest.mark.parametrize("name", ["status", "pair", "tool", "in_run", "least_ms", "sort", "cause"])
def test_payloads_in_the_address_of_a_filter(browser: Any, compared: str, name: str) -> None:
    browser.requests()
    for text in PAYLOADS[:36:5]:
        browser.draw(f"{compared}#/prompts?{name}={quote(text)}")
        browser.see("[role=status]", "prompt")
        assert browser.run(TRIGGER) == 0
        browser.draw(f"{compared}#/run/hostile/prompt/constructor/trial/1?{name}={quote(text)}")
        browser.see("h2", "Steps (6)")
        assert browser.run(TRIGGER) == 0
    _end_of_visit(browser, compared, "hostile · other")


def _end_of_visit(browser: Any, address: str, title: str) -> None:
    assert browser.run("return window.OWNED ?? null") is None
    assert browser.run("return document.title") == title
    assert browser.run("return location.href").startswith(address)
    allowed = (address, "data:,", "about:")
    assert [url for url in browser.requests() if not url.startswith(allowed)] == []
