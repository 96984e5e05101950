"""Run the examples of README and docs as they stand."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
BLOCK = re.compile(r"^```(\w+) (test|file=\S+)[^\n]*\n(.*?)^```", re.MULTILINE | re.DOTALL)
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
WITH_EXAMPLES = [page for page in PAGES if BLOCK.search(page.read_text())]


def test_pages_have_examples():
    assert len(WITH_EXAMPLES) >= 3


@pytest.mark.recorded
@pytest.mark.parametrize("page", WITH_EXAMPLES, ids=lambda page: page.name)
def test_examples_run(page, tmp_path, warm_path):
    installed = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    env = os.environ | {"PATH": installed if page.name == "README.md" else warm_path}
    for _, mark, text in BLOCK.findall(page.read_text()):
        if mark.startswith("file="):
            (tmp_path / mark.removeprefix("file=")).write_text(text)
            continue
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", text],
            cwd=tmp_path,
            env=env,
            capture_output=True,
            text=True,
            timeout=120,
            stdin=subprocess.DEVNULL,
        )
        assert done.returncode == 0, f"{text}\n{done.stderr}"
