"""Programs that plugins run on this machine."""

import time

import pytest

from assay.errors import PluginError
from assay.run import program
from assay.run.host import LocalHost


def test_a_program_that_floods_is_ended_before_the_disk_is_full(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(program, "_FLOOD_BYTES", 2 * 1024 * 1024)
    began_s = time.monotonic()
    with pytest.raises(PluginError, match="wrote more than 2 MB"):
        LocalHost().run(["yes"], timeout_s=30)
    assert time.monotonic() - began_s < 10


def test_a_program_is_run_to_its_end():
    done = LocalHost().run(["cat"], stdin=b"hello", timeout_s=30)
    assert (done.exit_code, done.stdout, done.timed_out) == (0, b"hello", False)
