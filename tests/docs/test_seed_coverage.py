"""The page on the seeds names, for each of their promises, tests that exist."""

import runpy
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
COVERAGE = runpy.run_path(str(ROOT / "scripts" / "seed_coverage.py"))
KINDS = {"command", "flag", "variable", "field", "example", "behaviour"}


def test_every_item_has_tests_and_they_exist() -> None:
    assert COVERAGE["problems"]() == []


def test_the_page_is_the_one_that_the_script_writes() -> None:
    assert COVERAGE["PAGE"].read_text() == COVERAGE["page"](), "run: make seed-coverage"


def test_items_are_whole() -> None:
    for seed, part, item in COVERAGE["all_items"]():
        assert item["kind"] in KINDS, item
        assert item["says"], item
        unknown = item.keys() - {"id", "kind", "says", "tests", "run", "note", "waits_for"}
        assert unknown == set(), (seed, part, item)


def test_parameters_of_named_tests_exist() -> None:
    """Only what stands in brackets: whether a function exists is known without importing it."""
    wanted = {
        name
        for seed, _, item in COVERAGE["all_items"]()
        for name in COVERAGE["tests_of"](seed, item)
        if "[" in name
    }
    files = sorted({name.partition("::")[0] for name in wanted})
    command = [sys.executable, "-m", "pytest", "--collect-only", "-p", "no:cacheprovider"]
    done = subprocess.run([*command, *files], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-3000:]
    assert wanted - set(done.stdout.splitlines()) == set()


@pytest.mark.parametrize("name", ["tests/no_such.py::test_x", "tests/test_golden.py::test_no_such"])
def test_a_missing_test_is_noticed(name: str) -> None:
    assert not COVERAGE["exists"](name)
