"""The environment of processes that run a game's code: what Python needs, and none of our keys."""

import os

PASSED = (
    "PATH",
    "HOME",
    "LANG",
    "LC_ALL",
    "LC_CTYPE",
    "TZ",
    "TMPDIR",
    "PYTHONPATH",
    "PYTHONHOME",
    "VIRTUAL_ENV",
    "LD_LIBRARY_PATH",
    "SYSTEMROOT",
)


def engine_env() -> dict[str, str]:
    """Give the variables a game process gets; a game is a stranger's code."""
    passed = {name: os.environ[name] for name in PASSED if name in os.environ}
    return {**passed, "PYTHONDONTWRITEBYTECODE": "1"}
