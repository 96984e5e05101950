"""The page of report and viewer: one HTML file under a strict policy, rows compressed in blocks."""

import base64
import gzip
import hashlib
import html
import os
import re
from collections.abc import Iterable, Sequence
from functools import cache
from importlib.resources import files
from typing import Any, BinaryIO, NamedTuple

import msgspec

from assay import __version__
from assay.errors import InputError
from assay.records.tools import tool_table
from assay.report.markdown import BOLD, blocks, table_cells, unescape

_CHUNK = 512 * 1024
_LEVEL = 6


class HtmlFile(NamedTuple):
    """A file that belongs to a trial: the log of its game, or its raw streams as JSON."""

    number: int
    kind: str
    data: bytes


class HtmlRow(NamedTuple):
    """A row of a run as its line in the file, with the files of its trials."""

    run: str
    id: str
    line: bytes
    files: list[HtmlFile]


def write_html(
    out: BinaryIO,
    overview: dict[str, Any],
    prompts: list[dict[str, Any]],
    rows: Iterable[HtmlRow],
) -> None:
    """Write the file front to back; memory holds one chunk of rows."""
    out.write(page_head(overview["title"]).encode())
    chunks = _Chunks(out)
    for row in rows:
        chunks.add(row)
    chunks.flush()
    index = {
        "overview": overview,
        "prompts": prompts,
        "places": chunks.places,
        "files": chunks.files,
    }
    _write_block(out, "index", msgspec.json.encode(index))
    out.write(page_end().encode())


class _Chunks:
    """Collects lines until they are worth compressing together."""

    def __init__(self, out: BinaryIO) -> None:
        self._out = out
        self._lines: list[bytes] = []
        self._size = 0
        self._chunk = -1
        self._n_blocks = 0
        self.places: list[tuple[str, str, int, int]] = []
        self.files: list[tuple[str, str, int, str, int]] = []

    def add(self, row: HtmlRow) -> None:
        if self._size + len(row.line) > _CHUNK:
            self.flush()
        if not self._lines:
            self._chunk = self._number()
        self.places.append((row.run, row.id, self._chunk, len(self._lines)))
        self._lines.append(row.line.strip())
        self._size += len(row.line)
        for file in row.files:
            other = self._number()
            self.files.append((row.run, row.id, file.number, file.kind, other))
            _write_block(self._out, str(other), file.data)

    def flush(self) -> None:
        if self._lines:
            _write_block(self._out, str(self._chunk), b"\n".join(self._lines))
        self._lines, self._size = [], 0

    def _number(self) -> int:
        self._n_blocks += 1
        return self._n_blocks - 1


def _write_block(out: BinaryIO, name: str, data: bytes) -> None:
    """Write a block; base64 contains nothing that HTML could take for markup."""
    out.write(f'<script type="application/gzip" id="data-{name}">'.encode())
    # Without a time in it, the same data gives the same bytes.
    out.write(base64.b64encode(gzip.compress(data, _LEVEL, mtime=0)))
    out.write(b"</script>\n")


_IMPORT = re.compile(r'^import \{[^}]*\} from "\./([a-z_]+)\.js";\n', re.MULTILINE)
_IMPORT_TOOLS = re.compile(
    r'^import (\w+) from "\./tools\.json" with \{ type: "json" \};\n', re.MULTILINE
)
"""Not a file: the table is in records/tools.py."""
_EXPORT = re.compile(r"^export (?=async function|function|const|class)", re.MULTILINE)
_STYLES = ("base.css", "pages.css", "charts.css")
_MAIN = "main"
_NOTHING_ELSE = (
    "default-src 'none'; base-uri 'none'; form-action 'none'; img-src data:; "
    "require-trusted-types-for 'script'; trusted-types 'none'"
)


def page_head(title: str, *, live: bool = False) -> str:
    """Return the page up to where the data begins; only the live one may ask its own server."""
    return _fill_page(title, policy(live=live), _style())


def editor_url() -> str:
    """Return how a link opens a file in the user's editor; empty for no links.

    Pages of others may be opened, so it is never a form that runs something in the browser.
    """
    form = os.environ.get("ASSAY_EDITOR_URL", _EDITOR_URL)
    scheme, separator, rest = form.partition("://")
    is_form = bool(separator) and scheme.replace("-", "").isalnum() and "{path}" in rest
    if form and (not is_form or scheme in ("http", "https", "javascript", "data")):
        msg = f"ASSAY_EDITOR_URL is no link to an editor: {form}"
        raise InputError(msg, hint=f"write it as {_EDITOR_URL}, or leave it empty for no links")
    return form


_EDITOR_URL = "vscode://file{path}:{line}"


def _fill_page(title: str, csp: str, style: str) -> str:
    return asset("page.html").format(
        csp=html.escape(csp),
        version=__version__,
        title=html.escape(title),
        style=style,
        editor=html.escape(editor_url()),
    )


def markdown_page(title: str, text: str, pictures: Sequence[str] = ()) -> str:
    """Return one of our own Markdown reports as a page without a script, pictures (SVG) last."""
    style = f"{_style()}\nth.number {{ text-align: right; }}\n"
    head = _fill_page(title, f"style-src '{_hash(style)}'; {_NOTHING_ELSE}", style)
    parts = [*(_block(kind, lines) for kind, lines in blocks(text)), *pictures]
    body = "\n".join(filter(None, parts))
    # What the template has between the head and the data is for the page that has a script.
    start = head.partition("<body>")[0]
    return f'{start}<body>\n<main class="markdown">\n{body}\n</main>\n</body>\n</html>\n'


def _block(kind: str, lines: list[str]) -> str:
    if kind == "heading":
        level = len(lines[0]) - len(lines[0].lstrip("#"))
        return f"<h{level}>{_inline(lines[0].lstrip('# '))}</h{level}>"
    if kind == "list":
        return f"<ul>{''.join(f'<li>{_inline(line[2:])}</li>' for line in lines)}</ul>"
    if kind == "table":
        head, rule, *body = table_cells(lines)
        names = _cells("th", head, rule)
        rows = "".join(f"<tr>{_cells('td', row, rule)}</tr>" for row in body)
        return f"<table><thead><tr>{names}</tr></thead><tbody>{rows}</tbody></table>"
    return f"<p>{_inline(lines[0])}</p>" if lines[0].strip() else ""


def _cells(tag: str, row: list[str], rule: list[str]) -> str:
    kinds = [' class="number"' if mark.endswith(":") else "" for mark in rule]
    return "".join(
        f"<{tag}{kind}>{_inline(cell)}</{tag}>" for cell, kind in zip(row, kinds, strict=False)
    )


def _inline(text: str) -> str:
    return unescape(BOLD.sub(r"<b>\1</b>", html.escape(text)))


def page_end() -> str:
    """Return the end of the page: the script, which runs when all data has been read."""
    return f'<script type="module">{script()}</script>\n</body>\n</html>\n'


def policy(*, live: bool = False) -> str:
    """Return a Content-Security-Policy that allows our script and style by hash, nothing else."""
    connect = "connect-src 'self'; " if live else ""
    return (
        f"script-src '{_hash(script())}'; style-src '{_hash(_style())}'; {connect}{_NOTHING_ELSE}"
    )


@cache
def script() -> str:
    """Join the modules in the order of their imports: a page opened from disk cannot import any."""
    texts: dict[str, str] = {}
    _collect(_MAIN, texts)
    return "\n" + "\n".join(
        f"// {name}.js\n{_EXPORT.sub('', _IMPORT.sub('', text))}" for name, text in texts.items()
    )


def _collect(name: str, texts: dict[str, str], above: tuple[str, ...] = ()) -> None:
    if name in texts or name in above:  # a circle of imports is fine: functions are hoisted
        return
    text = _IMPORT_TOOLS.sub(_inlined, asset(f"{name}.js"))
    for needed in _IMPORT.findall(text):
        _collect(needed, texts, (*above, name))
    texts[name] = text


def _inlined(found: re.Match[str]) -> str:
    return f"const {found[1]} = {tool_table()};\n"


@cache
def _style() -> str:
    return "\n" + "\n".join(asset(name) for name in _STYLES)


def asset(name: str) -> str:
    """Return the text of a file that the page is made of."""
    return files("assay.report").joinpath("assets", name).read_text(encoding="utf-8")


def _hash(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
