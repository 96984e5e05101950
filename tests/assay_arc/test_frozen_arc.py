"""The frozen command lines of `assay arc` still do what they did; see tests/frozen/freeze.py."""

import subprocess
import sys
from pathlib import Path

import pytest

FREEZE = Path(__file__).parents[1] / "frozen" / "freeze.py"


@pytest.mark.recorded
def test_nothing_has_changed() -> None:
    command = [sys.executable, str(FREEZE), "check", "arc"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr
