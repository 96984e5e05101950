"""Rows and requests of any shape: the viewer shows them or says why not, and never fails itself."""

import asyncio
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import batched
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

import pytest

from assay.compare.report import CompareOptions
from assay.viewer.app import make_app
from assay.viewer.library import Library
from assay.viewer.service import ViewerService

ODD: list[Any] = [None, True, -1, 1.5, 1e308, 10**30, "", "x", "²", [], {}, [None], ["x"], [3]]
ODD += [{"x": None}, [[]], [{}], {"evidence": None}, {"evidence": {"log": 3}}, [{"type": None}]]
ODD += [[{"type": 3, "name": [], "status": {}, "content": 1, "timestamp": "x", "input": None}]]
STEP = {"type": "tool_call", "name": "t", "status": "failed", "timestamp": 1, "input": {"a": 1}}
CAPTURE: dict[str, Any] = {
    "id": "good",
    "input": "ask",
    "output": "yes",
    "hint": "h",
    "trajectory": [STEP, {"type": "message", "content": "yes", "timestamp": 2}],
    "metadata": {"category": "c", "evidence": {"log": "gone.jsonl"}},
    "timing": {"start": 0, "end": 5, "total": 5, "firstResponse": 1},
    "toolErrors": False,
    "errors": [],
    "score": {"pass": True, "score": 1.0, "reasoning": "r"},
    "outcome": {"a": 1},
    "grades": {"g": {"pass": True, "score": 1.0, "version": "1"}},
    "graderFailures": {},
    "usage": {"inputTokens": 1, "outputTokens": 2, "costUsd": 0.1},
    "failure": {"cause": "agent_crash", "message": "m"},
    "agent": {"adapter": "a", "version": "1", "model": "m"},
    "turnUsage": [{"inputTokens": 1}],
    "setup": {"mcpServers": [{"name": "n", "status": "failed"}]},
    "identity": {"adapter": "claude", "model": "opus", "offered": {}},
    "permissionDenials": 1,
    "stderr": "e",
    "raw": "raw/x",
    "warnings": ["w"],
}
_ENTRY = {name: CAPTURE[name] for name in CAPTURE if name not in ("id", "input", "timing", "hint")}
ENTRY = _ENTRY | {"trialNum": 1, "duration": 5, "pass": True, "score": 1.0}
TRIALS = {"id": "good", "input": "ask", "k": 1, "trials": [ENTRY], "metadata": {"category": "c"}}
TRIALS |= {"passRate": 1.0, "passAtK": 1.0, "passExpK": 1.0, "identity": CAPTURE["identity"]}


def mutated(row: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the row with an odd value in each field, and without each field."""
    for name in row:
        if name == "id":
            continue
        yield {key: value for key, value in row.items() if key != name}
        yield from (row | {name: odd} for odd in ODD)
        inner = row[name]
        if isinstance(inner, dict):
            for key in inner:
                yield from (row | {name: inner | {key: odd}} for odd in ODD)
        if isinstance(inner, list) and inner and isinstance(inner[0], dict):
            yield from (row | {name: [*inner, odd]} for odd in ODD)
            for key in inner[0]:
                yield from (row | {name: [inner[0] | {key: odd}]} for odd in ODD)


def write(path: Path, row: dict[str, Any]) -> Path:
    with path.open("w") as file:
        file.write(json.dumps(row) + "\n")
        for n, odd in enumerate(mutated(row)):
            file.write(json.dumps(odd | {"id": f"odd {n}"}) + "\n")
        file.writelines(json.dumps(odd) + "\n" for odd in ODD)
        file.writelines(json.dumps(row | {"id": odd}) + "\n" for odd in ODD)
    return path


@pytest.fixture(scope="module", params=["capture", "trials"])
def results(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    row = CAPTURE if request.param == "capture" else TRIALS
    return write(tmp_path_factory.mktemp(request.param) / "odd.jsonl", row)


type Ask = Callable[..., tuple[int, str]]


@pytest.fixture
def ask(results: Path) -> Iterator[Ask]:
    with opened(results) as answer:
        yield answer


@contextmanager
def opened(results: Path) -> Iterator[Ask]:
    """Ask the application; an exception in it is one in the test."""
    library = Library([("odd", results)], [], "category")
    app = make_app(ViewerService(library, CompareOptions(), "category"))

    def answer(path: str, query: str = "", body: bytes | None = None) -> tuple[int, str]:
        return asyncio.run(_answer(app, path, query, body))

    yield answer
    library.close()


async def _answer(app: Any, path: str, query: str, body: bytes | None) -> tuple[int, str]:
    scope = {"type": "http", "method": "GET" if body is None else "POST", "path": path}
    scope |= {"raw_path": path.encode(), "query_string": query.encode(), "headers": []}
    scope |= {"http_version": "1.1", "scheme": "http", "server": ("127.0.0.1", 1), "root_path": ""}
    sent: list[dict[str, Any]] = []

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": body or b"", "more_body": False}

    async def send(message: dict[str, Any]) -> None:
        sent.append(message)

    await app(scope, receive, send)
    parts = (part.get("body", b"") for part in sent[1:])
    return sent[0]["status"], b"".join(parts).decode("utf-8", "replace")


def test_every_row_is_listed_or_counted_as_unreadable(ask: Ask, results: Path) -> None:
    status, text = ask("/api/overview")
    assert status == 200
    overview = json.loads(text)
    run = overview["runs"][0]
    prompts = json.loads(ask("/api/prompts", "limit=500")[1])
    assert run["trials"] > 100
    n_lines = len(results.read_text().splitlines())
    assert run["nBad"] + prompts["total"] <= n_lines
    assert run["nBad"] > 100


def test_every_listed_trial_can_be_opened(ask: Ask) -> None:
    offset, total = 0, 1
    while offset < total:
        page = json.loads(ask("/api/prompts", f"limit=500&offset={offset}")[1])
        total = page["total"]
        offset += 500
        for prompt in page["rows"]:
            place = urlencode({"run": "odd", "id": prompt["id"], "n": 1})
            for name in ("prompt", "row", "game", "raw"):
                status, text = ask(f"/api/{name}", place)
                assert status == 200, (name, prompt["id"], text)
                json.loads(text)


def test_labels_can_be_drawn(ask: Ask) -> None:
    status, text = ask("/api/sheet")
    assert status == 200
    assert json.loads(text)


ALONE = [
    *(CAPTURE | {name: odd} for name in ("metadata", "trajectory", "timing") for odd in ODD),
    *(TRIALS | {name: odd} for name in ("metadata", "trials", "k") for odd in ODD),
    *ODD,
]


@pytest.mark.parametrize("row", ALONE, ids=lambda row: json.dumps(row)[-40:])
def test_a_file_with_one_odd_row(row: Any, tmp_path: Path) -> None:
    path = tmp_path / "odd.jsonl"
    path.write_text(json.dumps(row))
    with opened(path) as ask:
        for name in (
            "overview",
            "state",
            "prompts",
            "around",
            "prompt",
            "row",
            "game",
            "raw",
            "sheet",
        ):
            status, text = ask(f"/api/{name}", "run=odd&id=good&n=1")
            assert status == 200, (name, text)


def test_rows_with_impossible_numbers_are_left_out_and_named(tmp_path: Path) -> None:
    path = tmp_path / "odd.jsonl"
    wrong = {"pass": True, "score": 5}
    rows = [CAPTURE | {"id": f"p{n}"} | ({"score": wrong} if n in (1, 3) else {}) for n in range(5)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    with opened(path) as ask:
        run = json.loads(ask("/api/overview")[1])["runs"][0]
        assert (run["trials"], run["nBad"], run["bad"]) == (3, 2, [2, 4])
        listed = json.loads(ask("/api/prompts")[1])["rows"]
        assert [row["id"] for row in listed] == ["p0", "p2", "p4"]
        for row in listed:
            assert json.loads(ask("/api/row", f"run=odd&id={row['id']}")[1])["id"] == row["id"]


NUMBERS = ["²", "٣", "9" * 5000, "1e308", "-1", "NaN", "inf", "0", "", " 1", "1_0", "1.5", "x"]


@pytest.mark.parametrize("value", NUMBERS, ids=lambda value: value[:8])
def test_odd_numbers_in_a_request_get_a_message(ask: Ask, value: str) -> None:
    given = quote(value)
    for name in ("game", "raw", "row", "prompt"):
        status, text = ask(f"/api/{name}", f"run=odd&id=good&n={given}")
        assert status in (200, 400), (name, text)
        assert status == 200 or "n" in text
    for field in (
        "offset",
        "limit",
        "down",
        "sort",
        "status",
        "category",
        "cause",
        "q",
        "tool",
        "pair",
        "in_run",
        "least_ms",
        "most_ms",
    ):
        status, text = ask("/api/prompts", f"{field}={given}")
        assert status in (200, 400), (field, text)
        assert status == 200 or field in text


@pytest.mark.parametrize("n", ["²", "9" * 5000, "1e308", "-1", "NaN", "x"])
def test_a_number_that_is_none_is_refused(ask: Ask, n: str) -> None:
    status, text = ask("/api/raw", f"run=odd&id=good&n={quote(n)}")
    assert status == 400
    assert "n" in text


@pytest.mark.parametrize("query", ["%ff", "id=%ff&run=%ff", "runs=%00", "id=%00", "q=%00", "&&=", "q=%ED%A0%80"])  # fmt: skip # noqa: E501
def test_odd_texts_in_a_request(ask: Ask, query: str) -> None:
    for name in ("overview", "state", "prompts", "around", "prompt", "row", "game", "raw", "sheet"):
        status, _ = ask(f"/api/{name}", query)
        assert status in (200, 400)


@pytest.mark.parametrize(
    "body",
    [b"", b"null", b"{", b"[]", b'{"number": "x"}', b'{"number": 1e308, "label": "pass"}',
     b'{"number": ' + b"9" * 5000 + b', "label": null}', b'{"number": -1, "label": "pass"}',
     b'{"number": 0, "label": 3}', b"[" * 9000, b"\xff\xfe", b'{"number": 0, "label": "\xff"}',
     b'{"number": 0, "label": "\\ud800"}', b'{"number": 0, "label": "pass", "runs": "\\u0000"}'],
    ids=lambda body: repr(body[:30]),
)  # fmt: skip
def test_odd_labels(ask: Ask, body: bytes) -> None:
    status, text = ask("/api/label", body=body)
    assert status in (200, 400), text
    assert status == 400 or "saved" not in text


def test_a_report_can_be_made_of_them(
    results: Path, make_report: Callable[..., Path], tmp_path: Path
) -> None:
    for name in ("report.html", "report.md", "report.xml"):
        assert make_report(tmp_path / name, results).stat().st_size > 300


VISIT = """
const done = arguments[arguments.length - 1];
const main = document.getElementById('main');
const failed = [];
const next = async (links) => {
  for (const link of links) {
    const drawn = main.dataset.drawn;
    location.hash = link;
    while (main.dataset.drawn === drawn) await new Promise((ready) => setTimeout(ready, 1));
    for (const one of main.querySelectorAll('details')) one.open = true;
    await new Promise((ready) => setTimeout(ready, 1));
    const notice = main.querySelector('.notice');
    if (notice?.textContent.startsWith('This page cannot')) failed.push([link, notice.textContent]);
  }
  done(failed);
};
next(arguments[0]);"""


def test_every_trial_is_drawn(
    results: Path, browser: Any, make_report: Callable[..., Path], tmp_path: Path
) -> None:
    page = make_report(tmp_path / "odd.html", results)
    with opened(results) as ask:
        found = json.loads(ask("/api/prompts", "limit=500&sort=id")[1])["rows"]
    browser.draw(f"file://{page}")
    browser.console()
    address = browser.run("location.hash = '#/prompts'; return location.href")
    browser.see(".marks a")
    first = browser.run("return document.querySelector('.marks a').hash")
    assert first.startswith("#/"), address
    form = first.replace(quote("good"), "{}")
    form = form.removesuffix("1") + "{}"
    trials = [(quote(row["id"]), row["cells"][0]["trials"][0]["n"]) for row in found]
    # Chromium allows 200 new addresses in ten seconds.
    links = [form.format(*trial) for trial in trials[:: len(trials) // 150]]
    assert len(links) >= 150
    failed = [each for some in batched(links, 50) for each in browser.run_async(VISIT, some)]
    assert failed == []
    assert [text for text in browser.console() if "favicon" not in text] == []
