"""The frozen command lines still do what they did; see freeze.py."""

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

HERE = Path(__file__).parent
ARC = {"arc", "arc-runs"}
"""Checked with the tests of assay_arc. The second takes half a minute of processor time: run
`python tests/frozen/freeze.py check arc-runs`."""
GROUPS = [name for name in tomllib.loads((HERE / "cases.toml").read_text()) if name not in ARC]


@pytest.mark.parametrize("group", GROUPS)
def test_nothing_has_changed(group: str) -> None:
    command = [sys.executable, str(HERE / "freeze.py"), "check", group]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr
