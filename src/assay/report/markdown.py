"""The Markdown of our own reports: written as tables, read again as blocks."""

import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from typing import Literal

from assay.records.text import visible_line

_SPECIAL = str.maketrans({sign: f"\\{sign}" for sign in "\\`*_[]<>|#~&$!"})
_ESCAPED = re.compile(r"\\([\\`*_\[\]<>|#~&$!])")
_CELL_END = re.compile(r"(?<!\\)\|")
BOLD = re.compile(r"\*\*(.+?)\*\*")

type BlockKind = Literal["heading", "table", "list", "line"]


def escape(text: str) -> str:
    """Keep names of runs and prompts from being read as Markdown or HTML."""
    return visible_line(text).translate(_SPECIAL)


def unescape(text: str) -> str:
    """Return the text that escape was given."""
    return _ESCAPED.sub(r"\1", text)


def table_line(*cells: str) -> str:
    """Write one line of a table; the cells are escaped already."""
    return f"| {' | '.join(cells)} |"


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Write a table with aligned columns, all but the first to the right."""
    lines = [[c.replace("|", "\\|").replace("\n", " ") for c in line] for line in (head, *rows)]
    width, *widths = [max(3, *map(len, column)) for column in zip(*lines, strict=True)]
    rule = table_line("-" * width, *("-" * (other - 1) + ":" for other in widths))
    padded = [
        table_line(first.ljust(width), *(c.rjust(n) for c, n in zip(rest, widths, strict=True)))
        for first, *rest in lines
    ]
    return [padded[0], rule, *padded[1:]]


def section(title: str, lines: Sequence[str]) -> list[str]:
    """Put a heading above some lines; without lines there is none."""
    return [f"## {title}", "", *lines] if lines else []


def join_sections(sections: Iterable[Sequence[str]]) -> str:
    """Join the sections of a report, with an empty line between them; empty ones are left out."""
    return "\n\n".join("\n".join(lines).rstrip() for lines in sections if lines) + "\n"


def blocks(text: str) -> Iterator[tuple[BlockKind, list[str]]]:
    """Yield each table and list of a report as its lines, and every other line alone."""
    for kind, lines in groupby(text.splitlines(), _kind):
        if kind in ("table", "list"):
            yield kind, list(lines)
        else:
            yield from ((kind, [line]) for line in lines)


def _kind(line: str) -> BlockKind:
    if line.startswith("#"):
        return "heading"
    if line.startswith("|"):
        return "table"
    return "list" if line.startswith("- ") else "line"


def table_cells(lines: Iterable[str]) -> list[list[str]]:
    """Return the cells of each line of a table; the second line is only the rule below the head."""
    return [[cell.strip() for cell in _CELL_END.split(line)[1:-1]] for line in lines]
