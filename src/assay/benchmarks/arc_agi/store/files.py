"""Writes JSON so that a crash leaves the old file or the new one, and never NaN or half a file."""

import os
import tempfile
from pathlib import Path
from typing import Any

import msgspec

from assay.benchmarks.arc_agi.problems import StoreProblem
from assay.errors import OutputError


def write_json(path: Path, value: Any) -> None:
    """Write a record or plain data, indented as the seed does; not-a-number is null."""
    data = msgspec.json.format(msgspec.json.encode(value), indent=2) + b"\n"
    write_bytes(path, data)


def write_bytes(path: Path, data: bytes) -> None:
    """Put a file in place in one step."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        fd, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        try:
            with os.fdopen(fd, "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            Path(name).chmod(0o644)
            Path(name).replace(path)
        except BaseException:
            Path(name).unlink(missing_ok=True)
            raise
    except OSError as error:
        msg = f"cannot write {path}: {error.strerror}"
        raise OutputError(msg, hint="check folder, permissions and free space") from error


def read_json[T](path: Path, kind: type[T]) -> T:
    """Read a file that was written by us or by the seed; say which one is broken and how."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=kind)
    except FileNotFoundError as error:
        msg = f"{path.name} not found in {path.parent}"
        raise StoreProblem(msg) from error
    except OSError as error:
        msg = f"{path}: cannot be read: {error.strerror}"
        raise StoreProblem(msg) from error
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        msg = f"{path}: not what it should be: {error}"
        raise StoreProblem(msg) from error
