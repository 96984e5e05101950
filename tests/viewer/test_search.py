"""Search: the query language on both sides, the index of words, and hits that lead to steps."""

import json
import os
import random
import shutil
import sqlite3
import stat
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay.compare.report import CompareOptions
from assay.errors import InputError
from assay.records.tools import TOOL_KINDS, tool_table
from assay.viewer.index import Index
from assay.viewer.library import Library
from assay.viewer.query import TrialFacts, hits, matches_trial, parse, words
from assay.viewer.service import ViewerService
from assay.viewer.words import WordIndex, expression, text_of

ASSETS = Path(__file__).resolve().parents[2] / "src/assay/report/assets"
SHARED = json.loads(Path(__file__).with_name("queries.json").read_text(encoding="utf-8"))
NODE = """
import { findParts, matchesTrial, parseQuery } from "./query.js";
import { readFileSync } from "node:fs";
const { trial, input, facts, cases } = JSON.parse(readFileSync(process.argv[2], "utf8"));
const place = ({ kind, step }) => (step === null ? kind : `step ${step}`);
const answers = cases.map(([query]) => {
  try {
    const terms = parseQuery(query);
    return matchesTrial(terms, facts) ? findParts(terms, trial, input).map(place) : [];
  } catch (error) {
    return error.message;
  }
});
console.log(JSON.stringify(answers));
"""


@pytest.mark.parametrize(("query", "expected"), SHARED["cases"])
def test_the_server_understands_a_query(query: str, expected: Any) -> None:
    if isinstance(expected, str):
        with pytest.raises(InputError) as error:
            parse(query)
        assert error.value.message == expected
        return
    terms = parse(query)
    found = (
        hits(terms, SHARED["trial"], SHARED["input"])
        if matches_trial(terms, TrialFacts(**SHARED["facts"]))
        else ()
    )
    assert [f"step {p.step}" if p.step else p.kind for p in found] == expected


def test_the_page_understands_every_query_alike(tmp_path: Path) -> None:
    for name in ("query.js", "tools.js"):
        shutil.copy(ASSETS / name, tmp_path)
    (tmp_path / "tools.json").write_text(tool_table())
    (tmp_path / "package.json").write_text('{"type": "module"}')
    (tmp_path / "run.mjs").write_text(NODE)
    cases = str(Path(__file__).with_name("queries.json"))
    done = subprocess.run(
        ["node", str(tmp_path / "run.mjs"), cases], capture_output=True, text=True, check=True
    )
    for (query, expected), answer in zip(SHARED["cases"], json.loads(done.stdout), strict=True):
        assert answer == expected, query


@given(st.text(max_size=60))
def test_no_query_breaks_the_parser_or_the_index(text: str) -> None:
    try:
        terms = parse(text)
    except InputError:
        return
    list(hits(terms, SHARED["trial"], SHARED["input"]))
    assert expression(terms).count('"') % 2 == 0


@given(st.text(max_size=40))
def test_every_word_of_a_row_is_in_what_is_indexed(text: str) -> None:
    """Otherwise the index would hide a hit."""
    for ascii_only in (True, False):
        try:
            line = json.dumps({"x": f"one {text} two"}, ensure_ascii=ascii_only).encode()
        except UnicodeEncodeError:
            continue
        if text.isascii():
            assert set(words(text)) <= set(words(text_of(line)))


def row(number: int, command: str, **more: Any) -> dict[str, Any]:
    return {
        "id": f"p{number}",
        "input": f"question {number}",
        "output": "fine",
        "trajectory": [
            {"type": "thought", "content": f"thinking{number}", "timestamp": 1},
            {
                "type": "tool_call",
                "name": "Bash",
                "status": "completed",
                "input": {"command": command},
                "timestamp": 2,
            },
        ],
        "metadata": {"category": "shell"},
        "timing": {"start": 0, "end": 9, "total": 90_000 if number == 3 else 900},
        "usage": {"inputTokens": 1, "outputTokens": 1, "costUsd": number / 10},
        "toolErrors": False,
        "score": {"pass": number % 2 == 0, "score": float(number % 2 == 0)},
    } | more


@pytest.fixture
def service(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[..., ViewerService]]:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))

    def make(rows: list[Any], name: str = "r.jsonl") -> ViewerService:
        path = tmp_path / name
        path.write_text("".join(json.dumps(one) + "\n" for one in rows))
        library = Library([("run", path)], [])
        opened.append(library)
        return ViewerService(library, CompareOptions(), "category")

    opened: list[Library] = []
    yield make
    for library in opened:
        library.close()


def places(answer: dict[str, Any]) -> list[tuple[str, int | None]]:
    return [(hit["id"], hit["step"]) for hit in answer["hits"]]


def test_hits_are_places_of_trials(service: Callable[..., ViewerService]) -> None:
    viewer = service([row(n, f"rm -rf dir{n}" if n % 3 == 0 else "ls") for n in range(7)])
    assert places(viewer.search("", "rm", "")) == [("p0", 2), ("p3", 2), ("p6", 2)]
    assert places(viewer.search("", "failed:true rm", "")) == [("p3", 2)]
    assert places(viewer.search("", "failed:true cost>0.1", "")) == [("p3", None), ("p5", None)]
    assert places(viewer.search("", "time>1m", "")) == [("p3", None)]
    assert places(viewer.search("", "thinking5", "")) == [("p5", 1)]
    assert places(viewer.search("", "id:p4 type:tool", "")) == [("p4", 2)]
    assert viewer.search("", "", "")["hits"] == []
    answer = viewer.search("", "rm", "")
    assert (answer["indexed"], answer["rows"], answer["next"]) == (7, 7, None)


def test_the_index_finds_a_kind_of_tool_under_every_name(
    service: Callable[..., ViewerService],
) -> None:
    names = ["Bash", "run_shell_command", "exec_command", "Read", "mcp__files__list", "shell"]
    rows = [row(number, "echo hello") for number in range(len(names))]
    for one, name in zip(rows, names, strict=True):
        one["trajectory"][1]["name"] = name
    viewer = service(rows)
    shell = [("p0", 2), ("p1", 2), ("p2", 2), ("p5", 2)]
    for query in ("tool:shell", "tool:bash hello", "tool:Shell"):
        assert places(viewer.search("", query, "")) == shell, query
    assert places(viewer.search("", "tool:mcp", "")) == [("p4", 2)]
    assert places(viewer.search("", 'tool:"shell"', "")) == [("p5", 2)]


def test_the_help_of_the_page_names_every_kind_of_tool() -> None:
    page = (ASSETS / "search.js").read_text(encoding="utf-8")
    assert f"tool ({', '.join(TOOL_KINDS)}, or the name" in page.replace('" +\n  "', "")
    guide = (ASSETS.parents[3] / "docs/view.md").read_text(encoding="utf-8")
    assert all(f"`{kind}`" in guide or f"`tool:{kind}" in guide for kind in TOOL_KINDS)


def test_new_rows_are_found_and_the_index_is_kept(
    service: Callable[..., ViewerService], tmp_path: Path
) -> None:
    viewer = service([row(n, "ls") for n in range(5)])
    assert places(viewer.search("", "fresh", "")) == []
    with (tmp_path / "r.jsonl").open("a") as out:
        out.write(json.dumps(row(5, "echo fresh")) + "\n")
    viewer.state("")
    assert places(viewer.search("", "fresh", "")) == [("p5", 2)]
    files = list((tmp_path / "cache/assay/search").iterdir())
    assert files
    assert all(not stat.S_IMODE(file.stat().st_mode) & 0o077 for file in files if file.exists())
    assert not stat.S_IMODE((tmp_path / "cache/assay/search").stat().st_mode) & 0o077
    # Another file under the same name is another index.
    other = service([row(n, "whoami") for n in range(9)])
    assert places(other.search("", "fresh", "")) == []
    assert len(places(other.search("", "whoami", ""))) == 9


def test_many_hits_come_some_at_a_time_and_none_twice(
    service: Callable[..., ViewerService],
) -> None:
    viewer = service([row(n, "rm x") for n in range(130)])
    seen, after = [], ""
    for _ in range(10):
        answer = viewer.search("", "rm", after)
        seen += places(answer)
        after = answer["next"]
        if after is None:
            break
    assert seen == [(f"p{n}", 2) for n in range(130)]


def test_of_repeated_ids_only_the_shown_row_is_found(
    service: Callable[..., ViewerService],
) -> None:
    viewer = service([row(1, "rm old"), row(2, "ls"), row(1, "rm new")])
    assert [hit["text"] for hit in viewer.search("", "rm", "")["hits"]] == ["Bash rm new"]


def test_a_large_file_is_indexed_by_a_process_of_its_own(
    service: Callable[..., ViewerService], tmp_path: Path
) -> None:
    luck = random.Random(1)
    filler = "".join(luck.choices("abcdefgh ", k=20_000))
    viewer = service([row(n, f"rm{n} {filler}") for n in range(300)])
    until_s = time.monotonic() + 60
    while viewer.search("", "", "")["indexed"] < 300:
        assert time.monotonic() < until_s
        time.sleep(0.1)
    assert places(viewer.search("", "rm299", "")) == [("p299", 2)]
    index = Index(tmp_path / "r.jsonl")
    index.refresh()
    assert WordIndex(index).extend() == 300
    index.close()


def test_a_broken_index_is_made_again(
    service: Callable[..., ViewerService], tmp_path: Path
) -> None:
    assert len(places(service([row(1, "rm")]).search("", "rm", ""))) == 1
    (kept,) = (tmp_path / "cache/assay/search").glob("*.sqlite")
    kept.write_bytes(b"not a database, but long enough to be looked at as one" * 100)
    assert len(places(service([row(1, "rm")]).search("", "rm", ""))) == 1


@pytest.mark.parametrize(
    "after", ["9:9", "0:-2", "x", "0:99999999999", "9" * 5000, "0:" + "9" * 5000]
)
def test_a_forged_place_is_no_error(service: Callable[..., ViewerService], after: str) -> None:
    viewer = service([row(1, "rm")])
    assert len(viewer.search("", "rm", after)["hits"]) == 1


def test_search_in_the_viewer_and_in_the_report_leads_to_the_step(
    browser: Any, view: Callable[..., str], report: Path, runs: Path
) -> None:
    address = view(runs / "before.jsonl", runs / "after.jsonl")
    seen = []
    for page in (address, f"file://{report}"):
        browser.draw(page)
        browser.press("s")
        browser.wait("return document.activeElement.id === 'search'")
        browser.press("tool:Bash pytest")
        browser.see("[role=status]", "place")
        browser.see(".hit mark", "pytest")
        seen.append(
            browser.run("return [...document.querySelectorAll('.hit')].map(x => x.innerText)")
        )
        assert "q=tool%3ABash+pytest" in browser.run("return location.hash")
        browser.press("\ue00c")  # Escape leaves the box
        browser.press("j")
        browser.press("\ue007")
        browser.wait("return location.hash.includes('/step/')")
        browser.see(".step.current", "pytest")
    assert seen[0] == seen[1]
    assert seen[0]


def test_nothing_that_is_found_or_asked_becomes_markup(
    browser: Any, make_report: Callable[..., Path], tmp_path: Path
) -> None:
    evil = "<img src=x onerror=document.title='owned'> \u202e needle </script>"
    path = tmp_path / "evil.jsonl"
    path.write_text(json.dumps(row(1, evil, id=evil)) + "\n")
    page = make_report(tmp_path / "evil.html", path)
    browser.open("about:blank")
    browser.console()  # a page of an earlier test may have lost its server
    browser.draw(f"file://{page}#/search?q={'needle%20%3Cimg%20src%3Dx%20onerror%3D1%3E'}")
    browser.see("[role=status]", "0 places")
    browser.draw(f"file://{page}#/search?q=needle")
    browser.see(".hit", "needle")
    assert browser.run("return document.querySelectorAll('.hit img, #main img').length") == 0
    assert browser.run("return document.title") != "owned"
    browser.draw(f"file://{page}#/search?q=cost:%3Cimg%3E")
    browser.see("[role=status]", 'cost: "<img>" is not a number')
    assert browser.console() == []


def test_the_cache_folder_of_another_is_not_opened_to_the_world(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from assay.records.private import private_folder

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    (tmp_path / "assay/search").mkdir(parents=True)
    (tmp_path / "assay/search").chmod(0o755)
    assert stat.S_IMODE(private_folder("search").stat().st_mode) == 0o700
    assert os.environ["XDG_CACHE_HOME"] == str(tmp_path)


def plant_fifo(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def plant_link(path: Path) -> None:
    """To a database of the user: what is written to it would be written there."""
    path.unlink()
    other = path.with_name("precious.db")
    with sqlite3.connect(other) as database:
        database.execute("CREATE TABLE IF NOT EXISTS mine (a)")
    path.symlink_to(other)


def plant_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


def plant_noise(path: Path) -> None:
    path.write_bytes(b"SQLite format 3\0" + bytes(range(256)) * 40)


def plant_view(path: Path) -> None:
    """An endless one in place of the table of words."""
    numbers = "WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM r)"
    with sqlite3.connect(path) as database:
        database.execute("DROP TABLE words")
        database.execute(f"CREATE VIEW words AS {numbers} SELECT n AS rowid, '' AS text FROM r")


@pytest.mark.parametrize("plant", [plant_fifo, plant_link, plant_folder, plant_noise, plant_view])
def test_a_planted_database_of_words_is_made_again(
    tmp_path: Path, plant: Callable[[Path], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    row = {"id": "a", "input": "?", "output": "plum", "trajectory": [], "timing": {"total": 1}}
    (tmp_path / "run.jsonl").write_text(json.dumps(row) + "\n")
    index = Index(tmp_path / "run.jsonl")
    index.refresh()
    WordIndex(index).extend()
    (path,) = (tmp_path / "cache").rglob("*.sqlite")
    plant(path)
    again = WordIndex(index)
    assert again.extend() == 1
    assert list(again.rows('"plum"', -1)) == [0]
    assert path.is_file()
    assert not path.is_symlink()
    if (other := path.with_name("precious.db")).exists():
        with sqlite3.connect(other) as database:
            assert database.execute("SELECT name FROM sqlite_master").fetchall() == [("mine",)]
    index.close()
