"""A report as one file: the rows of all runs with what belongs to them."""

from collections.abc import Iterator, Sequence
from typing import Any, BinaryIO

import msgspec

from assay.records.trial.files import entries_of, number_of
from assay.report.page import HtmlFile, HtmlRow, write_html
from assay.viewer.index import Index
from assay.viewer.labels import label_file, read_run_labels
from assay.viewer.library import game_log, raw_files
from assay.viewer.overview import OpenRun
from assay.viewer.prompts import Prompts
from assay.viewer.why import why

_MOST_RAW = 64 * 1024
_ALL_RAW = 24 * 1024 * 1024
_ALL_LOGS = 128 * 1024 * 1024


def write_bundle(out: BinaryIO, page: dict[str, Any], shown: Sequence[OpenRun]) -> None:
    """Write the overview of these runs, their table and every row as one HTML file."""
    prompts = Prompts([run.index for run in shown])
    labels = [read_run_labels(run.index, label_file(run.path)) for run in shown]
    prompts.labels = [found.words for found in labels]
    table = [prompts.row(n) for n in range(len(prompts.ids))]
    runs = [
        about | {"labels": found.shown} for about, found in zip(page["runs"], labels, strict=True)
    ]
    whole = page | {"runs": runs, "why": why(shown)}
    write_html(out, whole, table, _Rows(shown, prompts, table))


def lines(index: Index) -> Iterator[bytes]:
    """Yield the row of each prompt of one run; of repeated ones the last."""
    prompts = Prompts([index])
    for prompt in range(len(prompts.ids)):
        row = prompts.file_row(0, prompt)
        if row is not None:
            yield index.line(row)


class _Rows:
    """Yields the rows run by run; raw streams and logs only while there is room."""

    def __init__(
        self, shown: Sequence[OpenRun], prompts: Prompts, table: list[dict[str, Any]]
    ) -> None:
        self._shown, self._prompts, self._table = shown, prompts, table
        self._raw_left, self._logs_left = _ALL_RAW, _ALL_LOGS

    def __iter__(self) -> Iterator[HtmlRow]:
        for number, run in enumerate(self._shown):
            for prompt, shown in enumerate(self._table):
                row = self._prompts.file_row(number, prompt)
                if row is not None:
                    line = run.index.line(row)
                    yield HtmlRow(
                        run.label, shown["id"], line, list(self._files(run, shown["id"], line))
                    )

    def _files(self, run: OpenRun, prompt_id: str, line: bytes) -> Iterator[HtmlFile]:
        if b'"raw"' not in line and b'"evidence"' not in line:
            return  # most rows name no files: not worth decoding
        row = msgspec.json.decode(line)
        for entry in entries_of(row):
            n = number_of(entry)
            log = game_log(run.path.parent, entry)
            if log is not None and log.stat().st_size <= self._logs_left:
                data = log.read_bytes()
                self._logs_left -= len(data)
                yield HtmlFile(n, "game", data)
            raw = raw_files(run.path.parent, prompt_id, entry, _MOST_RAW)
            size = sum(len(file["text"]) for file in raw)
            if raw and size <= self._raw_left:
                self._raw_left -= size
                yield HtmlFile(n, "raw", msgspec.json.encode({"files": raw}))
