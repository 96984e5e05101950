"""A report as one HTML page that needs nothing else: tables from the Markdown, light and dark."""

import html
import re

STYLE = """
:root{color-scheme:light dark}body{font:15px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem
auto;padding:0 1rem}table{border-collapse:collapse;margin:.5rem 0}td,th{padding:.2rem .7rem;
border-bottom:1px solid #8884;text-align:right}td:first-child,th:first-child{text-align:left}
code,pre{font:13px monospace}h1{font-size:1.5rem}h2{font-size:1.2rem;margin-top:2rem}
"""


def markdown_page(title: str, text: str) -> str:
    """Turn one of our own reports (headings, lists, tables, bold) into a page."""
    body = "\n".join(_blocks(text.splitlines()))
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{_text(title)}'
        f"</title><style>{STYLE}</style></head>\n<body>\n{body}\n</body></html>\n"
    )


def _blocks(lines: list[str]) -> list[str]:
    out: list[str] = []
    i = 0
    while i < len(lines):
        line = lines[i]
        j = i + 1
        if line.startswith("#"):
            level = len(line) - len(line.lstrip("#"))
            out.append(f"<h{level}>{_text(line.lstrip('# '))}</h{level}>")
        elif line.startswith(("|", "- ")):
            first = line[:1]
            while j < len(lines) and lines[j].startswith(first):
                j += 1
            out.append(_table(lines[i:j]) if first == "|" else _list(lines[i:j]))
        elif line.strip():
            out.append(f"<p>{_text(line)}</p>")
        i = j
    return out


def _table(lines: list[str]) -> str:
    rows = [re.split(r"(?<!\\)\|", line)[1:-1] for line in lines]
    head = "".join(f"<th>{_text(cell)}</th>" for cell in rows[0])
    body = "".join(
        "<tr>" + "".join(f"<td>{_text(cell)}</td>" for cell in row) + "</tr>" for row in rows[2:]
    )
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def _list(lines: list[str]) -> str:
    return "<ul>" + "".join(f"<li>{_text(line[2:])}</li>" for line in lines) + "</ul>"


def _text(text: str) -> str:
    plain = html.escape(text.strip().replace("\\|", "|"))
    return re.sub(r"\*\*(.+?)\*\*", r"<b>\1</b>", plain)
