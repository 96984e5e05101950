"""Where a command's output goes: a journal that grows row by row, or a file that appears whole.

Also what keeps control characters from the terminal.
"""

import codecs
import contextlib
import io
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, TextIO, cast

import click
import msgspec

from assay.errors import InputError, OutputError
from assay.records.files import copy_stream, temporary_file
from assay.records.journal import RESUMABLE, Journal, Mode
from assay.records.rows import encode_row
from assay.records.spec import TrialSpec
from assay.records.text import visible

_HINT = "check the folder, its permissions and the free space"


def refuse_same_file(source: Path | None, output: Path | None) -> None:
    """Refuse to write over what is being read: results cannot be restored from a view of them."""
    if not source or not output:
        return
    both_exist = os.access(source, os.F_OK) and os.access(output, os.F_OK)
    if both_exist and output.samefile(source):
        msg = f"-o is the same file as the input: {output}"
        raise click.UsageError(msg)


@contextmanager
def whole_output(path: Path | None, *, overwrite: bool) -> Iterator[BinaryIO]:
    """Yield a file to write to; the output appears only when everything went well."""
    with _explained_errors(path or "to stdout"):
        if path is None:
            with _copied_at_end(_stdout().buffer) as file:
                yield file
            return
        if path.is_file() and path.stat().st_size > 0 and not overwrite:
            msg = f"{path} already exists"
            raise OutputError(msg, hint="use --overwrite to replace it")
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.exists() and not path.is_file():  # a device or a pipe cannot be replaced
            with path.open("wb") as target, _copied_at_end(_for_device(target)) as file:
                yield file
            return
        with _renamed_at_end(path.resolve()) as file:
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


@contextmanager
def _renamed_at_end(path: Path) -> Iterator[BinaryIO]:
    """Write to a new file in the same folder, then rename it."""
    # Cut, because a name may have only 255 bytes.
    new = path.with_name(f".{path.name[:100]}.{os.urandom(4).hex()}")
    try:
        with new.open("xb") as file:
            yield file
        if path.exists():
            new.chmod(path.stat().st_mode & 0o777)
        new.replace(path)
    except BaseException:
        with contextlib.suppress(OSError):
            new.unlink()
        raise


def guard_terminal() -> None:
    """From now on, whatever is printed is made visible: no text can steer the terminal.

    Bytes are rows and reports, which a pipe or a file gets as they are.
    """
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if isinstance(stream, io.TextIOWrapper) and not isinstance(stream, _Guarded):
            setattr(sys, name, _Guarded(stream))


def unguarded(stream: TextIO) -> TextIO:
    """Return a stream that obeys control sequences, for what makes its data visible itself."""
    return stream.plain if isinstance(stream, _Guarded) else stream


def echo_raw(text: str, *, nl: bool = True, **style: Any) -> None:
    """Print our own control sequences, or a style; data in the text must be visible already."""
    stream = unguarded(_stdout())
    if style and "NO_COLOR" not in os.environ and os.environ.get("TERM") != "dumb":
        text = click.style(text, **style)
    click.echo(text, file=stream, nl=nl)
    stream.flush()


def _for_device(target: BinaryIO) -> BinaryIO:
    """Return what is to be written to, if this is a terminal: -o /dev/stdout may be one."""
    return _Guarded(io.TextIOWrapper(target, "utf-8")).buffer if target.isatty() else target


class _Guarded(io.TextIOWrapper):
    def __init__(self, plain: io.TextIOWrapper) -> None:
        plain.flush()
        super().__init__(
            plain.buffer,
            encoding=plain.encoding,
            errors=plain.errors,
            line_buffering=plain.line_buffering,
            write_through=plain.write_through,
        )
        self.plain = plain
        """Kept: a stream that nobody keeps is closed, and what it wraps with it."""
        self._bytes = _VisibleBytes(self) if plain.isatty() else plain.buffer

    @property
    def buffer(self) -> BinaryIO:
        return cast(BinaryIO, self._bytes)

    def write(self, text: str, /) -> int:
        super().write(visible(text))
        return len(text)


class _VisibleBytes(io.RawIOBase):
    """Takes bytes of UTF-8, also in pieces, and writes them as text."""

    def __init__(self, stream: _Guarded) -> None:
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


def note_unmasked() -> None:
    """Say which variables look like secrets but are not masked; only their names."""
    from assay.run.workspace import our_secrets  # late: most commands start nothing

    if refused := our_secrets().refused:
        names = ", ".join(f"{name} ({why})" for name, why in sorted(refused.items()))
        click.echo(f"Not masked, because ordinary text may contain the value: {names}", err=True)


class Sink:
    """Takes finished rows, one at a time."""

    def __init__(self, journal: Journal | None, mode: Mode = "new", k: int | None = None) -> None:
        self._journal = journal
        self._resumed = mode == "resume"
        self._k = k

    def append(self, line: bytes) -> None:
        """Write one row at once, so that a kill cannot lose it."""
        if self._journal is not None:
            self._journal.append(line)
        else:
            with open_stdout("use -o FILE, so that the run can be resumed") as out:
                out.buffer.write(line + b"\n")

    def add(self, spec: TrialSpec, result: msgspec.Struct) -> None:
        """Write the row of a finished trial, with the unknown fields of its prompt's row."""
        extra = spec.extra
        if extra:
            from assay.run.workspace import our_secrets  # loaded by whatever ran the trial

            extra = our_secrets().mask_record(extra)
        self.append(encode_row(result, extra))

    def missing(self, specs: list[TrialSpec]) -> list[TrialSpec]:
        """The trials that have no row yet; refuse rows made from other prompts or agents."""
        if self._journal is None or not self._resumed:
            return specs
        by_id = {spec.prompt.id: spec for spec in specs}
        done: set[str] = set()
        for key in self._journal.rows():
            spec = by_id.get(key.id)
            if spec is not None and key.spec_hash not in (None, spec.hash):
                msg = f'{self._journal.path}: row "{key.id}" was made from another prompt or agent'
                raise InputError(
                    msg, hint="resume with the same prompts and agent, or use another -o"
                )
            if spec is not None and self._k is not None and key.k != self._k:
                msg = f'{self._journal.path}: row "{key.id}" has {key.k} trials, not {self._k}'
                raise InputError(msg, hint=f"resume with -k {key.k}, or use another -o")
            done.add(key.id)
        return [spec for spec in specs if spec.prompt.id not in done]


@contextmanager
def open_sink(
    output: Path | None, mode: Mode, hint: str = RESUMABLE, k: int | None = None
) -> Iterator[Sink]:
    """Open the output of a command; with k, every row must hold k trials."""
    if output is None:
        yield Sink(None)
        return
    with Journal(output, mode, hint) as journal:
        yield Sink(journal, mode, k)
