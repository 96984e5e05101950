"""Where rows go: a journal file, or stdout."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from assay.cli.whole_output import open_stdout
from assay.errors import InputError
from assay.records.journal import RESUMABLE, Journal, Mode
from assay.records.trial import TrialSpec


class Sink:
    """Takes finished rows, one at a time."""

    def __init__(self, journal: Journal | None) -> None:
        self._journal = journal

    def append(self, line: bytes) -> None:
        """Write one row so that a kill cannot lose it."""
        if self._journal is not None:
            self._journal.append(line)
        else:
            with open_stdout("with -o FILE a run can be resumed") as out:
                out.buffer.write(line + b"\n")

    def missing(self, specs: list[TrialSpec], k: int | None = None) -> list[TrialSpec]:
        """Give the trials that have no row yet; refuse rows made from other prompts or agents."""
        if self._journal is None:
            return specs
        by_id = {spec.prompt.id: spec for spec in specs}
        done: set[str] = set()
        for key in self._journal.rows():
            spec = by_id.get(key.id)
            if spec is not None and key.spec_hash not in (None, spec.hash):
                msg = f'{self._journal.path}: row "{key.id}" was made from another prompt or agent'
                raise InputError(
                    msg, hint="go on with the same prompts and agent, or use another -o"
                )
            if spec is not None and k is not None and key.k != k:
                msg = f'{self._journal.path}: row "{key.id}" has {key.k} trials, not {k}'
                raise InputError(msg, hint=f"go on with -k {key.k}, or use another -o")
            done.add(key.id)
        return [spec for spec in specs if spec.prompt.id not in done]


@contextmanager
def open_sink(output: Path | None, mode: Mode, ways: str = RESUMABLE) -> Iterator[Sink]:
    """Open the output for one command."""
    if output is None:
        yield Sink(None)
        return
    with Journal(output, mode, ways) as journal:
        yield Sink(journal)
