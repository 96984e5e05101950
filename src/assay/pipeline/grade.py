"""A grading of rows, from what was asked for to what is written: plan(request), execute(grading).

As in run.py, plan reads and checks what it can before anything is written, and prints nothing.
"""

import os
import re
import select
import stat
import sys
import time
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import suppress
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from assay import plugins
from assay.errors import InputError, RequestError
from assay.pipeline.grading import BatchGrader, Elsewhere, GradedRow, batch_grader
from assay.pipeline.prompts import matching_rows, read_prompts
from assay.pipeline.row_settings import RowGraders, split_judge
from assay.pipeline.sink import Sink, Write, open_sink
from assay.pipeline.stages import AskingHost, prepare_graders, tapes_in_use
from assay.records.journal import Mode, measured_kind, raw_folder
from assay.records.rows import Place, decode_line, open_rows, read_lines
from assay.records.signatures import Signatures
from assay.records.spec import LONGEST_WAIT_S, PluginRef
from assay.records.tape import TapeUse
from assay.records.trial.files import entries_of
from assay.records.trial.views import AnyIdView
from assay.run.process import start_over, stop_all
from assay.run.resources import allow_open_files
from assay.run.served import close_served
from assay.run.tapes import check_tape

_ID = msgspec.json.Decoder(AnyIdView)
_TOGETHER_BYTES = 64 * 1024
_TOGETHER_S = 0.02
"""How much is written at once, and how long the first row of it waits."""
_AHEAD_PER_WORKER = 256
_AHEAD_BYTES = 32 * 1024 * 1024
"""How far workers may run ahead of a slow row, in rows and bytes; bounds memory."""
_BATCH_ROWS = 1024
_BATCH_BYTES = 4 * 1024 * 1024
"""How much is put to a grader at once: enough that it is still judging while we write the first."""
_SHORT_S, _LONG_S = 0.005, 0.02
"""How long a worker should take for a batch: rows it has taken, no other can take."""
_ELSEWHERE_S = (2.0, 8.0)
"""The same for workers on other machines, where a process is started for each batch."""
_WAKE_S = 0.1

type Line = tuple[Place, bytes]


class GradeRequest(msgspec.Struct, frozen=True, kw_only=True):
    """All that a grading needs to know. Rows and a grader are enough."""

    rows: Path | None = None
    """The file of the rows; by default stdin."""
    lines: Iterable[Line] | None = None
    """The rows themselves, if they are known already."""
    filters: Sequence[str] = ()
    """Grade and write only matching rows, as RunRequest does with prompts."""
    graders: Sequence[PluginRef] = ()
    """Besides those that rows bring along."""
    grader_timeout_s: float = 60.0
    prompts: PluginRef | None = None
    """Where the prompts are that the rows were made from: they bring the graders, not the rows."""
    jobs: int = 1
    """How many rows are graded at once."""
    rate_per_s: float | None = None
    """Most questions that judges put to one provider and model in a second."""
    longest_wait_s: float = LONGEST_WAIT_S
    """As in RunRequest."""
    executor: PluginRef = PluginRef(name="local")
    env_names: Sequence[str] = ()
    """Variables that graders on other machines get."""
    tape: TapeUse | None = None
    """What becomes of what judges answer."""
    output: Path | None = None
    mode: Mode = "new"
    """What to do with rows that are in the output already."""


class Grading(msgspec.Struct, frozen=True, kw_only=True):
    """The rows to grade, and whom to ask about them."""

    request: GradeRequest
    lines: Iterator[Line]
    own: RowGraders
    """The graders that rows bring along."""
    elsewhere: Elsewhere | None = None
    """Asks the graders on other machines."""

    @property
    def mode(self) -> Mode:
        """What to do with an output: what graders only computed can be made again."""
        request, graders = self.request, [*self.request.graders, *self.own.to_prepare]
        if request.mode != "new" or request.output is None or not request.output.is_file():
            return request.mode
        computes = all(plugins.grader(ref).only_computes for ref in graders)
        return "replace" if computes and _is_computed(request.output) else "new"

    @property
    def takes_all_cores(self) -> bool:
        """Whether all rows of a file are graded, and by graders that only compute."""
        request, rows = self.request, self.request.rows
        is_whole = rows is not None and rows.is_file() and request.mode != "resume"
        is_plain = not request.filters and request.prompts is None and self.elsewhere is None
        if not is_whole or not is_plain or request.jobs > 1 or not request.graders:
            return False
        return all(plugins.grader(ref).only_computes for ref in request.graders)


def _is_computed(output: Path) -> bool:
    """Whether a file has no trials, or, judged by its first row, grades that were only computed."""
    if measured_kind(output) is None:
        return True
    if raw_folder(output).is_dir():  # a capture, not what `grade` made of one
        return False
    try:
        _, line = next(read_lines(output))
        row = msgspec.json.decode(line, type=dict[str, Any])
    except (StopIteration, InputError, msgspec.DecodeError):
        return False
    grades = next(iter(entries_of(row)), {}).get("grades")
    if not isinstance(grades, dict) or not grades:
        return False
    return all(plugins.computes(re.sub(r"-\d+$", "", name)) for name in grades)


def plan(request: GradeRequest) -> Grading:
    """Find the graders; refuse what cannot be graded before anything is written."""
    graders, judge = split_judge(request.graders)
    request = msgspec.structs.replace(request, graders=graders)
    own = RowGraders(request.grader_timeout_s, judge)
    if request.prompts is not None:
        own.use_prompts(request.prompts, (prompt for prompt, _ in read_prompts(request.prompts)))
    lines = _chosen(request)
    if request.filters:
        first = next(lines, None)
        if first is None:
            msg = f"{request.rows or 'stdin'}: no rows that match the filter"
            raise InputError(msg)
        lines = chain([first], lines)
    if not request.graders:
        lines = _judged(lines, own, request)
    elsewhere: Elsewhere | None = None
    if request.tape is not None:
        if request.executor.name != "local":
            msg = "--record and --replay need judges that are asked from this machine"
            raise RequestError(msg)
        check_tape(request.tape)
    if request.executor.name != "local":
        from assay.pipeline.remote_grading import RemoteGraders  # late: few runs need it

        remote = RemoteGraders([*request.graders, *own.to_prepare], request.env_names)
        remote.join(plugins.executor(request.executor).connect())
        elsewhere = remote.asking
    elif request.env_names:
        msg = "--env needs --executor ray: on this machine, graders have all variables."
        raise RequestError(msg)
    return Grading(request=request, lines=lines, own=own, elsewhere=elsewhere)


def _chosen(request: GradeRequest) -> Iterator[Line]:
    lines = read_lines(request.rows) if request.lines is None else iter(request.lines)
    return matching_rows(lines, request.filters)


def _judged(lines: Iterator[Line], own: RowGraders, request: GradeRequest) -> Iterator[Line]:
    """Return the rows; refuse them if none brings a grader along."""
    is_file = request.rows is not None and request.rows.is_file()
    read: list[Line] = []
    for row in lines:
        if not is_file:  # what comes from a pipe cannot be read again
            read.append(row)
        if own.graders_of(*row):
            return _chosen(request) if is_file else chain(read, lines)
    msg = "No grader given. Use -g GRADER."
    if own.has_judge:
        msg = "The judge has no rubric, and no row states what it should judge. Use rubric=…"
    raise RequestError(msg)


class GradeProgress:
    """Follows a grading; override what you want to know."""

    def resumed(self, n_rows: int) -> None:
        """So many rows are in the output already."""

    def waiting(self, seconds: float, why: str) -> None:
        """A question to an agent has to wait; called in the threads of the workers."""


def execute[T](
    grading: Grading,
    note: Callable[[Sequence[GradedRow]], T],
    progress: GradeProgress | None = None,
    write: Write | None = None,
) -> Generator[T, None, None]:
    """Grade the rows that have no grade yet, write them in their order, and yield notes of them.

    note is called with some rows at a time, all of them in their order. Where a file is graded with
    all cores, it is called in the process that grades: to send every verdict to another takes
    longer than most of them did. write takes the rows if there is no output.
    """
    request, progress = grading.request, progress or GradeProgress()
    limiter = AskingHost.limiter
    limiter.interval_s = 1 / request.rate_per_s if request.rate_per_s else 0.0
    limiter.longest_s = request.longest_wait_s
    limiter.on_wait = progress.waiting
    signatures = _signatures(request)
    opened = open_sink(request.output, grading.mode, guarded=False, write=write)
    with tapes_in_use([request.tape]), opened as sink:
        if request.mode == "resume" and request.output is not None:
            progress.resumed(_skip_graded(grading.lines, request.output))
        if grading.takes_all_cores:
            yield from _with_all_cores(grading, note, sink, signatures)
            return
        waits = None if request.lines is not None else _rows_wait(request.rows)
        rows = grade_all(
            grading.lines, request.graders, request.jobs, waits, grading.own, grading.elsewhere
        )

        def is_slow() -> bool:
            # From a pipe that is slower than the graders, each row is written at once; from other
            # machines too, where the next one may take long.
            return grading.elsewhere is not None or (waits is not None and not waits())

        for some in _together(rows, is_slow):
            _append(sink, b"\n".join([row.line for row in some]), signatures)
            yield note(some)


def _signatures(request: GradeRequest) -> Signatures | None:
    """Return what signs the graded rows: those of a file that is as this user's Assay wrote it."""
    rows, output = request.rows, request.output
    if rows is None or output is None or request.lines is not None or not rows.is_file():
        return None
    if (known := Signatures.of_rows(rows)) is None:
        return None
    with suppress(InputError):  # said when the row is graded
        if all(known.holds(line.rstrip(b"\r\n")) for _, line in read_lines(rows)):
            return Signatures.of_rows(output) or Signatures.of_output(output, afresh=True)
    return None


def _append(sink: Sink, text: bytes, signatures: Signatures | None) -> None:
    if signatures is not None:
        signatures.sign_all(text.split(b"\n"))
    sink.append(text)


def _skip_graded(lines: Iterator[Line], output: Path) -> int:
    """Skip the rows that the output has; refuse an output that was made from others."""
    n_rows = 0
    for n_rows, (place, done) in enumerate(read_lines(output), 1):  # noqa: B007
        here = next(lines, None)
        if here is None or _id(*here) != _id(place, done):
            msg = f"{place}: this is not the row at the same position of the input"
            raise InputError(msg, hint="resume with the same input, or use --overwrite")
    return n_rows


def _id(place: Place, line: bytes) -> Any:
    return decode_line(_ID, place, line).id


def _rows_wait(path: Path | None) -> Callable[[], bool] | None:
    """Return a function that tells whether a row can be read at once; None if always."""
    if path is not None:
        return None if path.is_file() else lambda: False
    try:
        fd = sys.stdin.fileno()
        is_file = stat.S_ISREG(os.fstat(fd).st_mode)
    except (OSError, ValueError):
        return lambda: False
    return None if is_file else lambda: bool(select.select([fd], [], [], 0)[0])


def _together(
    rows: Iterable[GradedRow], is_slow: Callable[[], bool]
) -> Iterator[Sequence[GradedRow]]:
    """Yield several rows while they come fast, but hold none back longer than a moment."""
    some: list[GradedRow] = []
    n_bytes, began_s = 0, time.monotonic()
    try:
        for row in rows:
            some.append(row)
            n_bytes += len(row.line)
            is_late = n_bytes >= _TOGETHER_BYTES or time.monotonic() - began_s >= _TOGETHER_S
            if is_slow() or is_late:
                whole, some, n_bytes = some, [], 0
                yield whole
                began_s = time.monotonic()
    except BaseException:  # a row that cannot be read, or Ctrl-C: those before it are kept
        if some:
            yield some
        raise
    if some:
        yield some


def _with_all_cores[T](
    grading: Grading,
    note: Callable[[Sequence[GradedRow]], T],
    sink: Sink,
    signatures: Signatures | None,
) -> Iterator[T]:
    request = grading.request
    assert request.rows is not None
    start_over()
    grade = batch_grader(request.graders, AskingHost(), grading.own.graders_of)

    def grade_part(lines: Iterable[Line]) -> tuple[bytes, T, InputError | None]:
        done = _graded(grade, lines)
        return b"\n".join([row.line for row in done.rows]), note(done.rows), done.error

    with open_rows(request.rows) as file:
        for text, noted, error in file.map(lambda part: grade_part(part.placed_lines())):
            if text:
                _append(sink, text, signatures)
            yield noted
            if error is not None:
                raise error


def grade_all(
    lines: Iterable[Line],
    graders: Sequence[PluginRef],
    workers: int = 1,
    more_waits: Callable[[], bool] | None = None,
    own: RowGraders | None = None,
    elsewhere: Elsewhere | None = None,
) -> Generator[GradedRow, None, None]:
    """Grade rows from a file or as they arrive; yield them in order.

    more_waits returns whether the next line can be read at once; if not, those already read are
    graded first. None is for a file, all of which can be read at once. own has the graders that
    the rows bring along.
    """
    start_over()
    host, of = AskingHost(), own.graders_of if own else None
    if elsewhere is not None:
        pace = _Pace(batch_grader(graders, host, of, elsewhere), *_ELSEWHERE_S)
        yield from _in_order(pace, lines, workers)
        return
    known = [*graders, *(own.to_prepare if own else ())]
    if workers > 1:
        allow_open_files(workers)
        prepare_graders(known)
    for grader in map(plugins.grader, known):
        grader.load(host)  # one that cannot be loaded is refused before any row is written
    try:
        grade = batch_grader(graders, host, of)
        if workers > 1:
            yield from _in_order(_Pace(grade), lines, workers)
        elif more_waits is None:
            yield from grade(lines)
        else:
            lines = iter(lines)
            for first in lines:
                yield from grade(_while_more_wait(first, lines, more_waits))
    finally:
        close_served()


def _while_more_wait(
    first: Line, lines: Iterator[Line], more_waits: Callable[[], bool]
) -> Iterator[Line]:
    """Yield lines until there are none that can be read at once."""
    yield first
    while more_waits() and (line := next(lines, None)) is not None:
        yield line


def _in_order(pace: "_Pace", lines: Iterable[Line], workers: int) -> Iterator[GradedRow]:
    """Grade many batches in parallel; yield the rows in the order of the lines."""
    ahead: deque[tuple[int, int, Future[_GradedRows]]] = deque()
    n_rows = n_bytes = 0
    pool = ThreadPoolExecutor(workers)
    try:
        for batch in _batches(lines, lambda: pace.n_rows):
            size = sum(len(line) for _, line in batch)
            ahead.append((len(batch), size, pool.submit(pace.grade, batch)))
            n_rows, n_bytes = n_rows + len(batch), n_bytes + size
            # Waits for the first batch only when workers are too far ahead of it.
            while ahead and (
                ahead[0][2].done() or n_rows > _AHEAD_PER_WORKER * workers or n_bytes > _AHEAD_BYTES
            ):
                n_first, size, first = ahead.popleft()
                n_rows, n_bytes = n_rows - n_first, n_bytes - size
                yield from _rows_of(first)
        while ahead:
            yield from _rows_of(ahead.popleft()[2])
    except BaseException:
        stop_all()  # before shutdown, which waits for the workers
        raise
    finally:
        pool.shutdown(cancel_futures=True)


def _batches(lines: Iterable[Line], most_rows: Callable[[], int]) -> Iterator[Sequence[Line]]:
    batch: list[Line] = []
    n_rows, n_bytes = most_rows(), 0
    for item in lines:
        batch.append(item)
        n_bytes += len(item[1])
        if len(batch) >= n_rows or n_bytes >= _BATCH_BYTES:
            yield batch
            batch, n_rows, n_bytes = [], most_rows(), 0
    if batch:
        yield batch


class _GradedRows(NamedTuple):
    rows: list[GradedRow]
    error: InputError | None
    """Why the rows end before the lines do."""


def _graded(grade: BatchGrader, lines: Iterable[Line]) -> _GradedRows:
    rows: list[GradedRow] = []
    try:
        rows.extend(grade(lines))
    except InputError as unreadable:
        return _GradedRows(rows, unreadable)
    return _GradedRows(rows, None)


def _rows_of(future: Future[_GradedRows]) -> Iterator[GradedRow]:
    """Wait for a batch, but never long at a time: see _WAKE_S in executors.py."""
    while not future.done():
        wait([future], _WAKE_S)
    rows, error = future.result()
    yield from rows
    if error is not None:
        raise error


class _Pace:
    """Adapts how many rows a worker takes at once.

    Many while they are quick; one while they are slow, or rows would wait behind each other in one
    worker while the other workers have nothing to do.
    """

    def __init__(
        self, grade: BatchGrader, short_s: float = _SHORT_S, long_s: float = _LONG_S
    ) -> None:
        self._grade = grade
        self._short_s, self._long_s = short_s, long_s
        self.n_rows = 1

    def grade(self, batch: Sequence[Line]) -> _GradedRows:
        started_s = time.monotonic()
        done = _graded(self._grade, batch)
        took_s = time.monotonic() - started_s
        if took_s > self._long_s:
            self.n_rows = 1
        elif took_s < self._short_s and len(batch) >= self.n_rows:
            self.n_rows = min(2 * self.n_rows, _BATCH_ROWS)
        return done
