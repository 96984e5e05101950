"""Write rows as JSONL again: nothing lost, key order kept, numbers as JavaScript prints them."""

from typing import Any, BinaryIO

import msgspec
from msgspec import Raw

from assay.records.row_file import RowFile
from assay.report.numbers import js_literal


def write_jsonl(rows: RowFile, out: BinaryIO) -> None:
    """Write every row on a line of its own, without spaces."""
    decoder = msgspec.json.Decoder(dict[str, Any], float_hook=_number)
    encoder = msgspec.json.Encoder()
    for block in rows.blocks(decoder):
        out.write(encoder.encode_lines(block))


def _number(text: str) -> Raw:
    if text[-1] != "0" and "e" not in text and "E" not in text:
        return Raw(text)  # the usual case: already the shortest, and no digit may be lost
    return Raw(js_literal(text))
