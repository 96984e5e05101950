"""Tables and our own Markdown on a terminal: at any width, nothing is cut off."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TextIO

from assay.cli.output import unguarded
from assay.records.text import visible, visible_line
from assay.report.markdown import BOLD, blocks, table_cells, unescape

if TYPE_CHECKING:
    from rich.console import Console

_PIPE_WIDTH = 160
_MOST_TURNED = 4
"""So many rows may become columns; with more, a table is easier to read as it is."""


def terminal(file: TextIO, pipe_width: int = _PIPE_WIDTH) -> "Console":
    """Open a file for tables; in a file or a pipe nobody scrolls, so that lines may be long."""
    from rich.console import Console  # late: most commands print no table

    width = None if file.isatty() else pipe_width
    return Console(file=unguarded(file), width=width, highlight=False, markup=False)


def draw_table(
    console: "Console", title: str, header: Sequence[str], rows: Sequence[Sequence[str]]
) -> None:
    """Draw a table as it fits: upright, turned by a quarter, with broken lines, or as lists."""
    shown = [[visible_line(cell) for cell in row] for row in (header, *rows)]
    turned = [list(column) for column in zip(*shown, strict=True)]
    if title:
        console.print(f"\n{visible_line(title)}", style="italic")
    if _width(shown, len) <= console.width:
        _draw(console, shown)
    elif len(rows) <= _MOST_TURNED and _width(turned, len) <= console.width:
        _draw(console, turned)
    elif _width(shown, _longest_word) <= console.width and len(rows) > 1:
        _draw(console, shown)
    else:
        _draw_lists(console, shown)


def _width(lines: Sequence[Sequence[str]], measure: Callable[[str], int]) -> int:
    """How wide a table with these lines is, with a frame around it and blanks in each cell."""
    from rich.cells import cell_len

    size = cell_len if measure is len else measure
    return 1 + sum(3 + max(map(size, column)) for column in zip(*lines, strict=True))


def _longest_word(text: str) -> int:
    from rich.cells import cell_len

    return max(map(cell_len, text.split()), default=0)


def _draw(console: "Console", lines: Sequence[Sequence[str]]) -> None:
    from rich.table import Table
    from rich.text import Text

    table = Table()
    for title in lines[0]:
        table.add_column(Text(title), overflow="fold")
    for row in lines[1:]:
        table.add_row(*map(Text, row))
    console.print(table)


def _draw_lists(console: "Console", lines: Sequence[Sequence[str]]) -> None:
    """Write each row as a list of its cells: the last resort of a narrow window."""
    for row in lines[1:]:
        title = f"{lines[0][0]}: {row[0]}" if lines[0][0] else row[0]
        console.print(title, style="bold", overflow="fold")
        for name, cell in zip(lines[0][1:], row[1:], strict=True):
            console.print(f"  {name}: {cell}", overflow="fold")


def draw_markdown(console: "Console", text: str) -> None:
    """Show one of our own reports (headings, lists, tables, bold) as a person wants to read it."""
    for kind, lines in blocks(visible(text)):
        if kind == "table":
            rows = [[_plain(cell) for cell in row] for row in table_cells(lines)]
            draw_table(console, "", rows[0], rows[2:])
            continue
        for line in lines:
            style = "bold" if BOLD.search(line) else None
            if kind == "heading":
                line, style = line.lstrip("# "), "bold underline"
            console.print(_plain(line), style=style, overflow="fold")


def _plain(text: str) -> str:
    return unescape(BOLD.sub(r"\1", text))
