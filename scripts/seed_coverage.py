"""Write docs/seed-coverage.md: what the two seed documents promise, and the tests that prove it.

The items stand in tests/seed_coverage.toml. tests/docs/test_seed_coverage.py fails when the page is
stale, when a named test does not exist, and when an item has no test.

--prove checks that these tests prove something: for some items, drawn at random among those whose
functions are named in the file, each function is replaced by one that returns None, and a test of
the item must fail.
"""

import argparse
import ast
import os
import random
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "tests" / "seed_coverage.toml"
PAGE = ROOT / "docs" / "seed-coverage.md"
COMMANDS = "tests/seed/test_commands.py::test_a_printed_command_runs"
TITLES = {
    "002": "Seed 002: the evaluation harness",
    "000": "Seed 000: ARC-AGI-3 across harnesses",
}
HEAD = """# What the seeds promise, and the tests that prove it

Assay grew from two seed documents. This page lists every command, flag, variable, field, example
and behaviour that they name, in their order, with the tests that prove it. It is made by
`scripts/seed_coverage.py` from `tests/seed_coverage.toml`; a test fails when it is stale, when a
test does not exist, or when an item has none. A command line in the table is run by a test as it
stands.
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--prove", action="store_true", help="replace functions, run the tests")
    parser.add_argument("--rows", type=int, default=40, help="how many items (default: 40)")
    parser.add_argument("--seed", type=int, default=1, help="of the draw (default: 1)")
    parser.add_argument("--only", nargs="*", help="these items instead, by id")
    asked = parser.parse_args()
    if asked.prove:
        sys.exit(prove(asked.only or drawn(asked.rows, asked.seed)))
    PAGE.write_text(page(), encoding="utf-8")
    for problem in problems():
        print(problem)


def drawn(n: int, seed: int) -> list[str]:
    """Draw ids of items whose functions are named."""
    ids = sorted(content()["functions"])
    return random.Random(seed).sample(ids, min(n, len(ids)))


def prove(ids: list[str]) -> int:
    """Run the tests of items with each of their functions replaced; return 1 if none fails."""
    tests = {item["id"]: tests_of(seed, item) for seed, _, item in all_items() if item["id"] in ids}
    n_functions, unproven = 0, []
    with tempfile.TemporaryDirectory() as scratch:
        env = {**os.environ, "ASSAY_SEED_PROJECT": f"{scratch}/project"}
        wanted = list(dict.fromkeys(name for names in tests.values() for name in names))
        if said := failures(wanted, env):
            print(f"These fail already, with nothing replaced:\n{said}")
            return 1
        for item in ids:
            for function in content()["functions"][item]:
                n_functions += 1
                said = failures(tests[item], {**env, **replacing(function)})
                print(f"{'proven  ' if said else 'UNPROVEN'} {item}: {function}", flush=True)
                unproven += [] if said else [item]
    proven = len(ids) - len(set(unproven))
    print(f"{proven} of {len(ids)} items are proven ({n_functions} functions were replaced).")
    return bool(unproven)


def replacing(function: str) -> dict[str, str]:
    """Give the variables that replace a function in every process that is started."""
    path = f"{ROOT / 'scripts' / 'prove'}:{os.environ.get('PYTHONPATH', '')}".rstrip(":")
    return {"PYTHONPATH": path, "ASSAY_PROVE": function}


def failures(tests: list[str], env: dict[str, str]) -> str:
    """Run tests; return what pytest says if one fails, else nothing."""
    # Plain: pytest loads the modules of plugins, which Assay's are, itself to rewrite assertions.
    options = ["-q", "-x", "--assert=plain", "--tb=line", "-p", "no:cacheprovider"]
    argv = [sys.executable, "-m", "pytest", *options, *tests]
    done = subprocess.run(
        argv, cwd=ROOT, env=env, capture_output=True, text=True, timeout=600, check=False
    )
    if done.returncode not in (0, 1):
        sys.exit(f"pytest could not run {tests}:\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
    return done.stdout[-4000:] if done.returncode else ""


def page() -> str:
    lines = [HEAD]
    for seed, title in TITLES.items():
        items = [item for found, _, item in all_items() if found == seed]
        kinds = sorted({item["kind"] for item in items})
        counts = ", ".join(f"{sum(i['kind'] == kind for i in items)} {kind}" for kind in kinds)
        lines += [f"## {title}", "", f"{len(items)} items: {counts}.", ""]
        for part, rows in content()["seeds"].get(seed, {}).items():
            lines += [f"### {part}", "", "| item | kind | what the seed says | proven by |"]
            lines += ["|---|---|---|---|", *(table_row(seed, item) for item in rows), ""]
    return "\n".join(lines).rstrip("\n") + "\n"


def table_row(seed: str, item: dict[str, Any]) -> str:
    says = f"{item['says']}: `{item['run'].strip()}`" if "run" in item else item["says"]
    says += f" (ours: {item['note']})" if "note" in item else ""
    proven = "<br>".join(f"`{test.removeprefix('tests/')}`" for test in tests_of(seed, item))
    cells = (item["id"], item["kind"], says, proven or "**open**")
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"


def tests_of(seed: str, item: dict[str, Any]) -> list[str]:
    """Give the node ids of an item; an example that is run has one of its own."""
    if "waits_for" in item:
        return []
    names = [full_name(test) for test in item.get("tests", ())]
    return [*names, *([f"{COMMANDS}[{seed}-{item['id']}]"] if "run" in item else ())]


def full_name(test: str) -> str:
    file, _, name = test.partition("::")
    return f"{content()['files'].get(file, file)}::{name}"


def problems() -> list[str]:
    """Name items without a test, ids that come twice, and tests that do not exist."""
    found = []
    seen = set()
    for seed, _, item in all_items():
        place = f"{seed} {item['id']}"
        if (seed, item["id"]) in seen:
            found.append(f"{place}: comes twice")
        seen.add((seed, item["id"]))
        names = tests_of(seed, item)
        if not names:
            found.append(f"{place}: no test (waits for: {item.get('waits_for', 'nobody')})")
        found += [f"{place}: no such test: {name}" for name in names if not exists(name)]
    return found


def exists(name: str) -> bool:
    """Whether a test function is there; its parameters are checked by collecting it."""
    file, _, function = name.partition("::")
    return function.partition("[")[0] in functions(file)


@cache
def functions(file: str) -> set[str]:
    path = ROOT / file
    if not path.is_file():
        return set()
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}


@cache
def content() -> dict[str, Any]:
    return tomllib.loads(SOURCE.read_text(encoding="utf-8"))


def all_items() -> Iterator[tuple[str, str, dict[str, Any]]]:
    for seed, parts in content()["seeds"].items():
        for part, items in parts.items():
            for item in items:
                yield seed, part, item


if __name__ == "__main__":
    main()
