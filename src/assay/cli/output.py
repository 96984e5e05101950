"""Where a command's output goes: a journal that grows row by row, or a file that appears whole.

Also what keeps control characters from the terminal.
"""

import codecs
import contextlib
import io
import os
import shlex
import shutil
import stat
import sys
import textwrap
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, TextIO, cast

import click

from assay.cli.parameters import DASH
from assay.errors import InputError, OutputError
from assay.records.files import copy_stream, replaced_file, temporary_file
from assay.records.journal import measured_kind, raw_folder
from assay.records.rows import RowFile
from assay.records.text import visible, visible_line

if TYPE_CHECKING:
    from assay.run.secrets import Secrets

_HINT = "check the folder, its permissions and the free space"


def refuse_same_file(source: Path | None, output: Path | None) -> None:
    """Refuse to write over what is being read: results cannot be restored from a view of them."""
    if not output or output == DASH:
        return
    if source is None or source == DASH:
        _refuse_own_stdin(output)
        return
    both_exist = os.access(source, os.F_OK) and os.access(output, os.F_OK)
    if both_exist and output.samefile(source):
        msg = f"-o is the same file as the input: {output}"
        raise click.UsageError(msg)


def _refuse_own_stdin(output: Path) -> None:
    """Refuse `… < rows.jsonl -o rows.jsonl`; where nothing is read from stdin, that is harmless."""
    with contextlib.suppress(OSError, ValueError, AttributeError):  # closed, or not a file at all
        here, there = os.fstat(sys.stdin.fileno()), output.stat()
        if stat.S_ISREG(here.st_mode) and (here.st_dev, here.st_ino) == (
            there.st_dev,
            there.st_ino,
        ):
            msg = f"-o is the same file as stdin: {output}"
            raise click.UsageError(msg)


def refuse_empty_stdin(rows: RowFile, source: Path | None, hint: str) -> None:
    """Refuse a pipe without rows: whatever should have written them has failed."""
    if source is None and rows.empty:
        msg = "stdin: no rows"
        raise InputError(msg, hint=hint)


def refuse_inputs(output: Path | None, *given: str | Path | None) -> None:
    """Refuse an output that is what an option names; that may stand behind a colon."""
    refuse_same_file(None, output)
    for text in given:
        for name in (str(text or ""), str(text or "").partition(":")[2]):
            if name:
                refuse_same_file(Path(name), output)


def refuse_existing(path: Path | None, *, overwrite: bool) -> None:
    """Refuse to replace a file without being asked to; what takes long asks before it starts."""
    if path and not overwrite and path.is_file() and path.stat().st_size > 0:
        msg = f"{path} already exists"
        raise OutputError(msg, hint="use --overwrite to replace it")


def refuse_measured(path: Path | None, *, overwrite: bool, rows: bool = False) -> None:
    """Refuse to replace what an agent did: whatever can be made again is simply written again.

    What writes rows of its own (rows) replaces such rows, but not those that have raw streams.
    """
    if not path or overwrite or not path.is_file():
        return
    kind = measured_kind(path)
    if kind == "run" or (kind and (not rows or raw_folder(path).is_dir())):
        msg = f"{path} holds trials of an agent"
        raise OutputError(msg, hint="choose another -o, or use --overwrite to replace them")


@contextmanager
def derived_output(path: Path | None, *, overwrite: bool, rows: bool = False) -> Iterator[BinaryIO]:
    """Yield a file for what can be made again: it takes the place of an older one, unless that
    holds trials of an agent."""
    refuse_measured(path, overwrite=overwrite, rows=rows)
    with whole_output(path, overwrite=True) as file:
        yield file


@contextmanager
def whole_output(path: Path | None, *, overwrite: bool) -> Iterator[BinaryIO]:
    """Yield a file to write to; the output appears only when everything went well."""
    if path is None or path == DASH:
        with open_stdout() as out, _copied_at_end(out.buffer) as file:
            yield file
        return
    with _explained_errors(path):
        refuse_existing(path, overwrite=overwrite)
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.exists() and not path.is_file():  # a device or a pipe cannot be replaced
            with path.open("wb") as target, _copied_at_end(_for_device(target)) as file:
                yield file
            return
        with replaced_file(path.resolve()) as file:
            yield file


@contextmanager
def open_stdout(hint: str = _HINT) -> Iterator[TextIO]:
    """Yield stdout itself, for output that may be seen while it is written."""
    out = _stdout()
    try:
        with _explained_errors("to stdout", hint):
            yield out
            out.flush()
    except OutputError:
        # Python flushes stdout when it exits, which must not fail once more.
        os.dup2(os.open(os.devnull, os.O_WRONLY), out.fileno())
        raise


def _stdout() -> TextIO:
    if sys.stdout is None:
        msg = "cannot write to stdout: it is closed"
        raise OutputError(msg, hint="give -o FILE, or leave stdout open")
    return sys.stdout


@contextmanager
def _explained_errors(where: Path | str, hint: str = _HINT) -> Iterator[None]:
    try:
        yield
    except BrokenPipeError:
        raise  # run_command ends quietly on it
    except OSError as error:
        msg = f"cannot write {where}: {error.strerror}"
        raise OutputError(msg, hint=hint) from error


@contextmanager
def _copied_at_end(target: BinaryIO) -> Iterator[BinaryIO]:
    """Collect in a temporary file, then copy to a target that cannot be undone."""
    with temporary_file() as file:
        yield file
        file.seek(0)
        copy_stream(file, target)
        target.flush()


def guard_terminal() -> None:
    """From now on, whatever is printed is made visible: no text can steer the terminal.

    Bytes are rows and reports, which a pipe or a file gets as they are.
    """
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if isinstance(stream, io.TextIOWrapper) and not isinstance(stream, _GuardedStream):
            setattr(sys, name, _GuardedStream(stream))


def unguarded(stream: TextIO) -> TextIO:
    """Return a stream that obeys control sequences, for what makes its data visible itself."""
    return stream.plain if isinstance(stream, _GuardedStream) else stream


def echo_raw(text: str, *, nl: bool = True, **style: Any) -> None:
    """Print our own control sequences, or a style; data in the text must be visible already."""
    stream = unguarded(_stdout())
    if style and "NO_COLOR" not in os.environ and os.environ.get("TERM") != "dumb":
        text = click.style(text, **style)
    click.echo(text, file=stream, nl=nl)
    stream.flush()


def _for_device(target: BinaryIO) -> BinaryIO:
    """Return what is to be written to, if this is a terminal: -o /dev/stdout may be one."""
    return _GuardedStream(io.TextIOWrapper(target, "utf-8")).buffer if target.isatty() else target


class _GuardedStream(io.TextIOWrapper):
    def __init__(self, plain: io.TextIOWrapper) -> None:
        plain.flush()
        buffered = isinstance(plain.buffer, io.BufferedWriter)
        below = plain.buffer if buffered else _WholeWrites(plain.buffer)
        super().__init__(
            cast(BinaryIO, below),
            encoding=plain.encoding,
            errors=plain.errors,
            line_buffering=plain.line_buffering,
            write_through=plain.write_through,
        )
        self.plain = plain
        """Kept: a stream that nobody keeps is closed, and what it wraps with it."""
        self._bytes = _VisibleBytes(self) if plain.isatty() else below

    @property
    def buffer(self) -> BinaryIO:
        return cast(BinaryIO, self._bytes)

    def write(self, text: str, /) -> int:
        super().write(visible(text))
        return len(text)


class _WholeWrites(io.RawIOBase):
    """Writes all it is given. Python's stdout does not under PYTHONUNBUFFERED: of a large row to a
    pipe, a signal such as the end of an agent leaves out the rest."""

    def __init__(self, raw: Any) -> None:
        self._raw = raw

    def writable(self) -> bool:
        return True

    def fileno(self) -> int:
        return int(self._raw.fileno())

    def isatty(self) -> bool:
        return bool(self._raw.isatty())

    def write(self, data: Any, /) -> int:
        left = memoryview(data).cast("B")
        while left:
            left = left[self._raw.write(left) or 0 :]
        return len(data)


class _VisibleBytes(io.RawIOBase):
    """Takes bytes of UTF-8, also in pieces, and writes them as text."""

    def __init__(self, stream: _GuardedStream) -> None:
        self._stream = stream
        self._decoder = codecs.getincrementaldecoder("utf-8")("backslashreplace")

    def writable(self) -> bool:
        return True

    def fileno(self) -> int:
        return self._stream.fileno()

    def write(self, data: Any, /) -> int:
        self._stream.write(self._decoder.decode(bytes(data)))
        return len(data)

    def flush(self) -> None:
        if not self._stream.closed:
            self._stream.flush()


def folded(text: str, width: int) -> str:
    """Break a line at words so that it fits a window; the rest of it is indented.

    A word that does not fit, such as a path, stays whole: it can then be copied.
    """
    if len(text) <= width:
        return text
    begin = text[: len(text) - len(text.lstrip())]
    return textwrap.fill(
        text.lstrip(),
        max(width, 20),
        initial_indent=begin,
        subsequent_indent=f"{begin}  ",
        break_long_words=False,
        break_on_hyphens=False,
    )


def closing_lines(files: Sequence[Path], *, failed: bool, report: str, then: str) -> Iterator[str]:
    """Yield the last lines of a run: where the failures are, the report, the next command."""
    names = " ".join(visible_line(shlex.quote(str(path))) for path in files)
    if failed and names:
        yield f"Failures: assay explain {names}"
    if report:
        yield f"Report: {report}"
    if then:
        yield f"Next: {then}"


def echo_folded(text: str, *, err: bool = False) -> None:
    """Print lines: folded on a terminal, whole in a pipe or a file."""
    click.echo(fitted(text, err=err), err=err)


def fitted(text: str, *, err: bool = False) -> str:
    """Fold lines that are printed on a terminal; a file or a pipe gets them whole."""
    stream = sys.stderr if err else sys.stdout
    if stream is None or not stream.isatty():
        return text
    columns = shutil.get_terminal_size().columns
    return "\n".join(folded(line, columns) for line in text.split("\n"))


def find_secrets() -> "Secrets":
    """Return the secrets of this process's environment."""
    from assay.run.workspace import our_secrets  # late: most commands start nothing

    return our_secrets()


def note_unmasked() -> None:
    """Say which variables look like secrets but are not masked; only their names."""
    if refused := find_secrets().refused:
        names = ", ".join(f"{name} ({why})" for name, why in sorted(refused.items()))
        echo_folded(f"Not masked, because ordinary text may contain the value: {names}", err=True)


def write_row(line: bytes) -> None:
    """Write a finished row to stdout, for a command that was given no file."""
    with open_stdout("use -o FILE, so that the run can be resumed") as out:
        out.buffer.write(line + b"\n")
