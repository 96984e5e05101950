"""The formats results can be turned into, by the name a user knows them by."""

from typing import BinaryIO, Literal

from assay.records.row_file import RowFile
from assay.report.csv_rows import write_csv
from assay.report.plain_rows import write_jsonl
from assay.report.result_markdown import write_markdown

type Style = Literal["jsonl", "markdown", "csv"]
STYLES: tuple[Style, ...] = ("jsonl", "markdown", "csv")


def write_rows(rows: RowFile, out: BinaryIO, style: Style, generated: str) -> None:
    """Write all rows in one style; generated is the time a report bears."""
    if style == "csv":
        write_csv(rows, out)
    elif style == "markdown":
        write_markdown(rows, out, generated)
    else:
        write_jsonl(rows, out)
