"""Temporary files and copies. What they need takes 8 ms to load, so it is loaded at first use."""

from contextlib import AbstractContextManager
from typing import Any, BinaryIO

_BLOCK = 1024 * 1024


def temporary_file() -> BinaryIO:
    """Return a file without a name, deleted when it is closed."""
    return _tempfile().TemporaryFile()  # type: ignore[no-any-return]


def named_temporary_file() -> BinaryIO:
    """Return a file with a name, deleted when it is closed."""
    return _tempfile().NamedTemporaryFile()  # type: ignore[no-any-return]


def temporary_folder(prefix: str) -> AbstractContextManager[str]:
    """Return a folder as a context, deleted at its end."""
    return _tempfile().TemporaryDirectory(  # type: ignore[no-any-return]
        prefix=prefix, ignore_cleanup_errors=True
    )


def temporary_place() -> str:
    """Return the folder that the system keeps for temporary files."""
    return str(_tempfile().gettempdir())


def copy_stream(source: BinaryIO, target: BinaryIO) -> None:
    """Copy from where source stands to its end."""
    while block := source.read(_BLOCK):
        target.write(block)


def remove_folder(folder: str, *, missing_ok: bool = False) -> None:
    _shutil().rmtree(folder, ignore_errors=missing_ok)


def copy_folder(source: str, target: str) -> None:
    """Copy a folder into a new one; links stay links."""
    _shutil().copytree(source, target, symlinks=True)


def _tempfile() -> Any:
    import tempfile

    return tempfile


def _shutil() -> Any:
    import shutil

    return shutil
