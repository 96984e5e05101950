"""The page on the seeds names, for each of their promises, tests that exist."""

import os
import runpy
import subprocess
import sys
from importlib import import_module
from operator import attrgetter
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
    pytest.importorskip("assay_arc")
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


def test_functions_and_proofs_name_items_and_what_exists() -> None:
    """`scripts/seed_coverage.py --prove` replaces these functions."""
    content = COVERAGE["content"]()
    ids = {item["id"] for _, _, item in COVERAGE["all_items"]()}
    assert content["functions"].keys() | content["proofs"].keys() <= ids
    assert len(content["functions"]) >= 40
    for name in {name for names in content["functions"].values() for name in names}:
        module, _, function = name.partition(":")
        assert callable(attrgetter(function)(import_module(module))), name


@pytest.mark.recorded
def test_a_replaced_function_is_noticed_and_a_test_that_proves_nothing_too() -> None:
    """One row of each kind; the whole draw takes minutes."""
    env = COVERAGE["replacing"]("assay.pipeline.balance:analyse")
    failures, full = COVERAGE["failures"], COVERAGE["full_name"]
    assert failures([full("balance::test_the_seeds_example")], {**os.environ, **env})
    assert not failures([full("harness::test_a_schema_is_required")], {**os.environ, **env})
