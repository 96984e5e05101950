"""Runs of the library in tests."""

import pytest

from assay.run import background


@pytest.fixture(autouse=True)
def _has_no_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let runs be copies of this process, which is quicker, also where xdist has given it a thread.

    A test of the other way sets this to True, or starts a program.
    """
    monkeypatch.setattr(background, "has_threads", lambda: False)
