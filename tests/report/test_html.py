"""One file with everything in it: nothing to load, nothing lost, under a strict policy."""

import base64
import gzip
import hashlib
import json
import re
from io import BytesIO
from typing import Any

from assay.report.page import HtmlFile, HtmlRow, page_end, page_head, policy, script, write_html

OVERVIEW: dict[str, Any] = {"title": "</title><script>x</script>", "groups": [], "runs": []}


def made(rows: list[HtmlRow]) -> str:
    out = BytesIO()
    write_html(out, OVERVIEW, [], rows)
    return out.getvalue().decode()


def blocks(page: str) -> dict[str, bytes]:
    found = re.findall(r'<script type="application/gzip" id="data-([a-z0-9]+)">([^<]*)<', page)
    return {name: gzip.decompress(base64.b64decode(text)) for name, text in found}


def test_every_row_is_inside_and_is_found_again() -> None:
    rows = [
        HtmlRow("a", f"p{n}", json.dumps({"id": f"p{n}", "x": "</script>" * n}).encode(), [])
        for n in range(50)
    ]
    big = HtmlRow("b", "p0", b'{"id": "p0", "x": "' + b"y" * 3_000_000 + b'"}', [])
    game = HtmlRow("b", "p1", b'{"id":"p1"}', [HtmlFile(1, "game", b"{}\n{}")])
    page = made([*rows, big, game, *rows[:3]])
    assert len(page) < 300_000
    data = blocks(page)
    index = json.loads(data["index"])
    assert len(index["places"]) == 55
    for row, (run, id_, chunk, line) in zip([*rows, big, game], index["places"], strict=False):
        assert (run, id_) == (row.run, row.id)
        assert data[str(chunk)].split(b"\n")[line] == row.line
    (file,) = index["files"]
    assert file[:4] == ["b", "p1", 1, "game"]
    assert data[str(file[4])] == b"{}\n{}"


def test_the_same_rows_give_the_same_bytes() -> None:
    rows = [HtmlRow("a", "p", b"{}", [])]
    assert made(rows) == made(rows)


def test_policy_allows_our_script_and_style_by_hash_and_nothing_else() -> None:
    page = made([])
    said = re.search(r'Content-Security-Policy" content="([^"]*)"', page)
    assert said is not None
    text = said[1].replace("&#x27;", "'")
    assert text == policy()
    assert "default-src 'none'" in text
    assert "unsafe" not in text
    assert "connect-src" not in text
    for tag, kind in (("style", "style"), ('script type="module"', "script")):
        body = re.search(f"<{tag}>(.*?)</{kind}>", page, re.DOTALL)
        assert body is not None
        digest = base64.b64encode(hashlib.sha256(body[1].encode()).digest()).decode()
        assert f"{kind}-src 'sha256-{digest}'" in text


def test_page_loads_nothing_and_is_small() -> None:
    page = page_head("t") + page_end()
    assert len(page.encode()) < 300_000
    assert not re.findall(r'(?:src|href)="(?!data:,")', page)
    assert "<title>t</title>" in page
    assert "</title><script>" not in made([])


def test_script_is_one_module_without_dangerous_calls() -> None:
    text = script()
    assert not re.search(r"^(import|export)\b", text, re.MULTILINE)
    for word in ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval("):
        assert word not in text
