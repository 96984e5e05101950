"""Which files a command line names: a sandboxed agent must be able to see them."""

import os
from collections.abc import Iterable


def files_in(words: Iterable[str]) -> tuple[str, ...]:
    """Return the words that are absolute paths of files, not of folders.

    Never ask this about a prompt: it could name any file.
    """
    return tuple(w for w in words if w.startswith("/") and os.path.isfile(w))  # noqa: PTH113
