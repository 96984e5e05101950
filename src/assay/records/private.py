"""Files of the user's cache folder that nobody else may read."""

import os
from pathlib import Path


def cache_root() -> Path:
    """Return the folder for caches, as the XDG specification says."""
    root = os.environ.get("XDG_CACHE_HOME") or ""
    if not Path(root).is_absolute():  # the specification says to ignore such a value
        root = str(Path.home() / ".cache")
    return Path(root, "assay")


def private_folder(name: str) -> Path:
    """Make a folder of the cache that only its owner can enter."""
    folder = cache_root() / name
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    if folder.stat().st_mode & 0o077:
        folder.chmod(0o700)
    return folder


def write_private(path: Path, data: bytes) -> None:
    """Write a file that only its owner can read; it appears whole."""
    fresh = path.with_name(f".{path.name}.{os.urandom(4).hex()}")
    fd = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        with os.fdopen(fd, "wb") as file:
            file.write(data)
        fresh.replace(path)
    except BaseException:
        fresh.unlink(missing_ok=True)
        raise
