"""Tables in Markdown that are also readable as plain text."""

from collections.abc import Sequence


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Write a Markdown table with columns lined up; all but the first are set right."""
    cells = [[_safe(cell) for cell in row] for row in (head, *rows)]
    widths = [max(3, *(len(row[i]) for row in cells)) for i in range(len(head))]

    def line(row: Sequence[str]) -> str:
        parts = [
            text.ljust(width) if i == 0 else text.rjust(width)
            for i, (text, width) in enumerate(zip(row, widths, strict=True))
        ]
        return f"| {' | '.join(parts)} |"

    rule = ["-" * width if i == 0 else "-" * (width - 1) + ":" for i, width in enumerate(widths)]
    return [line(cells[0]), line(rule), *(line(row) for row in cells[1:])]


def number(value: float | None, digits: int = 1, unit: str = "") -> str:
    """Write a number; what is not known is a dash, never a zero."""
    return "-" if value is None else f"{value:.{digits}f}{unit}"


def signed(value: float | None, digits: int = 1, unit: str = "") -> str:
    """Write a difference."""
    return "-" if value is None else f"{value:+.{digits}f}{unit}"


def money(value: float | None) -> str:
    """Write an amount of dollars."""
    return "-" if value is None else f"${value:.4f}"


def _safe(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")
