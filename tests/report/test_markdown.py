"""Markdown of our own reports: tables with any cells, and the same text as blocks and as a page."""

from hypothesis import given
from hypothesis import strategies as st

from assay.report.markdown import (
    blocks,
    escape,
    join_sections,
    section,
    table,
    table_cells,
    unescape,
)
from assay.report.page import markdown_page

TEXT = """# A & B

- **bold** <script>
- two

| a   |  b |
| --- | --: |
| 1   |  2 |

\\* a note
"""


def test_a_table_is_aligned_and_its_cells_stay_cells():
    lines = table(["Game", "Score"], [["a|b", "1.5"], ["two\nlines", "10.25"]])
    assert lines == [
        "| Game      | Score |",
        "| --------- | ----: |",
        "| a\\|b      |   1.5 |",
        "| two lines | 10.25 |",
    ]
    assert [row[1] for row in table_cells(lines)] == ["Score", "----:", "1.5", "10.25"]


@given(st.text())
def test_an_escaped_name_is_itself_again(text):
    shown = unescape(escape(text))
    assert shown == text or not text.isprintable()


def test_a_report_is_read_as_blocks():
    kinds = [kind for kind, lines in blocks(TEXT) if lines != [""]]
    assert kinds == ["heading", "list", "table", "line"]
    assert dict(blocks(TEXT))["list"] == ["- **bold** <script>", "- two"]


def test_sections_without_lines_are_left_out():
    text = join_sections([["# Title", ""], section("Nothing", []), section("One", ["line"])])
    assert text == "# Title\n\n## One\n\nline\n"


def test_a_page_needs_nothing_else_and_escapes_what_it_is_given():
    page = markdown_page("<x>", TEXT, ["<svg></svg>"])
    assert "<title>&lt;x&gt;</title>" in page
    assert "<script" not in page
    assert "script-src" not in page
    assert "<ul><li><b>bold</b> &lt;script&gt;</li><li>two</li></ul>" in page
    assert '<tr><td>1</td><td class="number">2</td></tr>' in page
    assert "<p>* a note</p>" in page
    assert "<h1>A &amp; B</h1>" in page
    assert page.endswith("<svg></svg>\n</main>\n</body>\n</html>\n")
