"""One HTML file with everything inside: rows compressed in blocks, read when they are looked at."""

import base64
import gzip
from collections.abc import Iterable
from typing import Any, BinaryIO, NamedTuple

import msgspec

from assay.report.page import page_end, page_head

_CHUNK = 512 * 1024
_LEVEL = 6


class HtmlFile(NamedTuple):
    """A file that belongs to a trial: the log of its game, or its raw streams as JSON."""

    number: int
    kind: str
    data: bytes


class HtmlRow(NamedTuple):
    """A row of a run, as the line that it is, with what belongs to its trials."""

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
    """Write a block; base64 of gzip holds nothing that HTML could mistake for its own."""
    out.write(f'<script type="application/gzip" id="data-{name}">'.encode())
    out.write(base64.b64encode(gzip.compress(data, _LEVEL, mtime=0)))
    out.write(b"</script>\n")
