"""Every command line that the seeds print, with the name of our program, does what it is for.

The lines stand in tests/seed_coverage.toml, under `run`.
"""

import csv
import json
import re
import shutil
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

COVERAGE = tomllib.loads((Path(__file__).parents[1] / "seed_coverage.toml").read_text())
LINES = {
    f"{seed}-{item['id']}": item["run"]
    for seed, parts in COVERAGE["seeds"].items()
    for items in parts.values()
    for item in items
    if "run" in item and "waits_for" not in item
}
OUTPUT = re.compile(r"(?:-o|>) (\S+)")


@pytest.mark.parametrize("name", [name for name in LINES if name.startswith("002")])
def test_a_printed_command_runs(name: str, project: Path, line: Callable[..., Any]) -> None:
    text = LINES[name]
    if "jq" in text and shutil.which("jq") is None:
        pytest.skip("jq is missing; install it: apt-get install jq")
    written = OUTPUT.findall(text)
    for output in written:
        (project / output).unlink(missing_ok=True)
    done = line(text)
    assert done.returncode == 0, f"{text}\n{done.stderr}"
    for output in written:
        refuse_nonsense(project / output)
    if not written and "rm -rf" not in text:
        assert done.stdout.strip()


def refuse_nonsense(path: Path) -> None:
    """Check that a file holds what its ending says, and something at all."""
    text = path.read_text()
    assert text.strip()
    if path.suffix == ".jsonl":
        assert all(isinstance(json.loads(row), dict) for row in text.splitlines())
    elif path.suffix == ".json":
        assert json.loads(text)
    elif path.suffix == ".csv":
        assert len({len(row) for row in csv.reader(text.splitlines())}) == 1
    else:
        assert text.startswith("#")
