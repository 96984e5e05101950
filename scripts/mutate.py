"""Break src in many places, one at a time, and see whether the tests notice.

usage: scripts/mutate.py FOLDER [--places 100] [--seed 23] [--jobs 2] [--core-only] [--tests PATH]
                         [--cpu-limit SECONDS]

A place is a comparison that is flipped, a constant that is changed, a branch that is removed or a
return value that is dropped, inside a function. FOLDER keeps copies of the tree, core.tsv and
marked.tsv (which tests execute which places, recorded once by a run of these tests) and
mutants.jsonl, one line per place; a second start goes on where the first one ended. Each mutant is
judged by the tests of `make test` that execute its line, the cheapest first; those that failed in
the recording are left out. Those that survive are then shown to the marked tests too, unless
--core-only is given: that is what the split of the suite costs. With --cpu-limit a mutant is shown
only to the cheapest tests, which together took so long in the recording: a lower bound.
"""

import argparse
import ast
import concurrent.futures
import json
import math
import os
import queue
import random
import shutil
import subprocess
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from itertools import accumulate
from pathlib import Path

TOP = Path(__file__).resolve().parent.parent
CORE = "not real and not browser and not ray and not container and not install and not recorded"
LIMIT_S = 600
"""For the tests of one mutant: a mutant may be an endless loop, which counts as noticed."""
LEFT_OUT = ("assay_arc/games/", "assay_arc/generated/", "assay/skills/", "assay_arc/skills/")
FLIPPED: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Lt: ast.GtE,
    ast.LtE: ast.Gt,
    ast.Gt: ast.LtE,
    ast.GtE: ast.Lt,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
}
TRACE = """
import os
seen = set()

def note(place):
    test = os.environ.get("PYTEST_CURRENT_TEST", "").rsplit(" ", 1)[0]
    if (test, place) not in seen:
        seen.add((test, place))
        fd = os.open({log!r}, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666)
        os.write(fd, f"{{test}}\\t{{place}}\\n".encode())
        os.close(fd)
"""
"""A module that notes which test executes a place, in every process that the tests start."""


@dataclass(frozen=True)
class Mutant:
    """One place and what is written there instead."""

    path: str
    """Below src."""
    line: int
    kind: str
    start: tuple[int, int]
    end: tuple[int, int]
    text: str

    @property
    def place(self) -> str:
        """Names the expression that is changed; two mutants may change the same."""
        return f"{self.path}:{self.start}-{self.end}"

    def applied(self, source: str) -> str:
        """Return the source with this change; columns are in bytes, as ast counts them."""
        lines = source.encode().splitlines(keepends=True)
        (first, left), (last, right) = self.start, self.end
        tail = lines[last - 1][right:]
        lines[first - 1] = lines[first - 1][:left] + self.text.encode() + tail
        del lines[first:last]
        return b"".join(lines).decode()


def main() -> None:
    """Choose the places, record who executes them, and try one mutant after the other."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--places", type=int, default=100)
    parser.add_argument("--seed", type=int, default=23)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--core-only", action="store_true")
    parser.add_argument("--tests", default="tests", help="only tests below this path")
    parser.add_argument("--cpu-limit", type=float, default=math.inf, help="seconds for a mutant")
    options = parser.parse_args()
    folder: Path = options.folder.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    mutants = chosen(options.places, options.seed)
    suites = {"core": CORE} if options.core_only else {"core": CORE, "marked": f"not ({CORE})"}
    tests = executed(folder, mutants, suites, options.tests)
    costs = costs_of(folder)
    for by_place in tests.values():
        for place, found in by_place.items():
            by_place[place] = affordable(found, costs, options.cpu_limit)
    results = folder / "mutants.jsonl"
    known = {(row["path"], row["line"], row["kind"], row["text"]) for row in rows_of(results)}
    left = [one for one in mutants if (one.path, one.line, one.kind, one.text) not in known]
    trees: queue.Queue[Path] = queue.Queue()
    for number in range(options.jobs):
        trees.put(copied_tree(folder / f"tree-{number}"))
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        for row in pool.map(lambda one: tried(one, tests, trees), left):
            with results.open("a") as out:
                out.write(json.dumps(row) + "\n")
            print(f"{row['outcome']:>9} {row['kind']:<10} {row['path']}:{row['line']}", flush=True)
    summarize(list(rows_of(results)))


def chosen(n: int, seed: int) -> list[Mutant]:
    """Draw the places: as many of each kind, by a seed, from all files of src."""
    found: dict[str, list[Mutant]] = defaultdict(list)
    for path in sorted((TOP / "src").rglob("*.py")):
        name = path.relative_to(TOP / "src").as_posix()
        if not name.startswith(LEFT_OUT):
            for mutant in mutants_of(name, path.read_text()):
                found[mutant.kind].append(mutant)
    drawn, kinds = random.Random(seed), sorted(found)
    per_kind = [n // len(kinds) + (number < n % len(kinds)) for number in range(len(kinds))]
    return [
        one
        for kind, size in zip(kinds, per_kind, strict=True)
        for one in drawn.sample(found[kind], size)
    ]


def mutants_of(path: str, source: str) -> Iterator[Mutant]:
    """Yield every change that can be made to a file."""
    tree = ast.parse(source)
    passed_over = set(_never_run(tree))
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
    # What stands outside of functions is executed by the import, in no test.
    inside = {node: None for one in functions for part in one.body for node in ast.walk(part)}
    for node in inside:
        if node in passed_over:
            continue
        for kind, part, text in _changes(node):
            if part in passed_over or part.end_lineno is None or part.end_col_offset is None:
                continue
            start, end = (part.lineno, part.col_offset), (part.end_lineno, part.end_col_offset)
            yield Mutant(path, part.lineno, kind, start, end, text)


def _never_run(tree: ast.Module) -> Iterator[ast.AST]:
    """Yield what is not executed, and parts of f-strings, which have no place of their own."""
    for node in ast.walk(tree):
        skipped: list[ast.AST | None] = []
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            skipped = [node]
        elif isinstance(node, ast.AnnAssign | ast.arg):
            skipped = [node.annotation]
        elif isinstance(node, ast.FunctionDef):
            skipped = [node.returns, *node.type_params]
        elif isinstance(node, ast.JoinedStr | ast.TypeAlias | ast.pattern):
            skipped = [node]
        for part in filter(None, skipped):
            yield from ast.walk(part)


def _changes(node: ast.AST) -> Iterator[tuple[str, ast.expr, str]]:
    """Yield the kind of a change, what it replaces, and by what."""
    if isinstance(node, ast.Compare) and type(node.ops[0]) in FLIPPED:
        ops = [FLIPPED[type(node.ops[0])](), *node.ops[1:]]
        flipped = ast.Compare(node.left, ops, node.comparators)
        yield "comparison", node, f"({ast.unparse(flipped)})"
    elif isinstance(node, ast.Constant) and isinstance(node.value, bool | int | float | str):
        value = node.value
        if isinstance(value, bool):
            yield "constant", node, repr(not value)
        else:
            yield "constant", node, repr(f"{value}_" if isinstance(value, str) else value + 1)
    elif isinstance(node, ast.If):
        yield "branch", node.test, "False"
    elif isinstance(node, ast.Return) and node.value is not None:
        yield "return", node.value, "None"


def executed(
    folder: Path, mutants: list[Mutant], suites: dict[str, str], below: str
) -> dict[str, dict[str, list[str]]]:
    """Return the tests that execute each place, by suite; run each suite once for that."""
    done = folder / "recorded.json"
    recorded = set(json.loads(done.read_text())) if done.exists() else set()
    for suite, marks in suites.items():
        if suite not in recorded:
            _record(folder, mutants, ["-m", marks, below], folder / f"{suite}.tsv")
            recorded.add(suite)
            done.write_text(json.dumps(sorted(recorded)))
    found: dict[str, dict[str, list[str]]] = {}
    for suite in suites:
        by_place: dict[str, set[str]] = defaultdict(set)
        noted, failed = folder / f"{suite}.tsv", folder / f"{suite}.failed"
        broken = set(failed.read_text().splitlines()) if failed.exists() else set()
        for line in noted.read_text().splitlines() if noted.exists() else ():
            test, place = line.split("\t")
            if test and test not in broken:
                by_place[place].add(test)
        found[suite] = {place: sorted(names) for place, names in by_place.items()}
    return found


def costs_of(folder: Path) -> dict[str, float]:
    """Return the CPU seconds that each test took in the recordings."""
    files = [path for path in (folder / "costs").glob("*") if path.is_file()]
    rows = [json.loads(line) for path in files for line in path.read_text().splitlines()]
    return {test: cpu for test, _, cpu in rows}


def affordable(tests: list[str], costs: dict[str, float], limit_s: float) -> list[str]:
    """Return the cheapest tests, as many as fit into a limit; each has a share of pytest's own."""
    dear_last = sorted(tests, key=lambda test: costs.get(test, 0.0))
    sums = accumulate(costs.get(test, 0.0) + 0.005 for test in dear_last)
    return [test for test, total_s in zip(dear_last, sums, strict=True) if total_s <= limit_s]


def _record(folder: Path, mutants: list[Mutant], which: list[str], log: Path) -> None:
    """Run tests in a copy whose places say by which test they are executed."""
    tree = copied_tree(folder / "tree-record")
    trace = site_packages(tree / ".venv/bin/python") / "mutation_trace.py"
    trace.write_text(TRACE.format(log=str(log)))
    for name in {one.path for one in mutants}:
        path = tree / "src" / name
        places = {(one.start, one.end): one.place for one in mutants if one.path == name}
        path.write_text(ast.unparse(_Traced(places).visit(ast.parse(path.read_text()))))
    began = time.monotonic()
    (log.parent / "costs").mkdir(exist_ok=True)
    os.environ["ASSAY_SUITE_FOLDER"] = str(log.parent / "costs")
    how = ["-p", "benchmarks.suite", "-n", "auto", "--dist", "worksteal"]
    run_pytest(tree, [*how, *which], limit_s=3 * 3600)
    said = (tree / "pytest.log").read_text(errors="replace").splitlines()
    ends = (line.partition(" ")[2] for line in said if line.startswith(("FAILED ", "ERROR ")))
    failed = [line.partition(" - ")[0] for line in ends]
    log.with_suffix(".failed").write_text("".join(f"{name}\n" for name in failed))
    print(f"recorded {log.stem} in {time.monotonic() - began:.0f} s", flush=True)


class _Traced(ast.NodeTransformer):
    """Replaces the expression E at a place by (note(place), E)[1]."""

    def __init__(self, places: dict[tuple[tuple[int, int], tuple[int, int]], str]) -> None:
        self._places = places

    def generic_visit(self, node: ast.AST) -> ast.AST:
        """Visit what is inside first, then the node itself."""
        super().generic_visit(node)
        if not isinstance(node, ast.expr):
            return node
        span = (node.lineno, node.col_offset), (node.end_lineno or 0, node.end_col_offset or 0)
        if span not in self._places:
            return node
        call = f"__import__('mutation_trace').note({self._places[span]!r})"
        noted = ast.parse(f"({call}, None)[1]", mode="eval").body
        assert isinstance(noted, ast.Subscript)
        assert isinstance(noted.value, ast.Tuple)
        noted.value.elts[1] = node
        return noted


def copied_tree(folder: Path) -> Path:
    """Copy what git knows of the tree, with an environment that sees the copy's src only."""
    if folder.exists():
        shutil.rmtree(folder)
    names = subprocess.run(["git", "ls-files", "-z"], cwd=TOP, capture_output=True, check=True)
    for name in filter(None, names.stdout.decode().split("\0")):
        target = folder / name
        if (TOP / name).is_file():
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(TOP / name, target)
    python = TOP / ".venv/bin/python"
    subprocess.run([python, "-m", "venv", "--without-pip", folder / ".venv"], check=True)
    site = site_packages(folder / ".venv/bin/python")
    (site / "tree.pth").write_text(f"{folder / 'src'}\n{site_packages(python)}\n")
    program = folder / ".venv/bin/assay"
    program.write_text(f'#!/bin/sh\nexec "{folder}/.venv/bin/python" -m assay "$@"\n')
    program.chmod(0o755)
    return folder


def site_packages(python: Path) -> Path:
    """Return where the packages of an environment are."""
    code = "import sysconfig; print(sysconfig.get_path('purelib'))"
    done = subprocess.run([python, "-c", code], capture_output=True, text=True, check=True)
    return Path(done.stdout.strip())


def run_pytest(tree: Path, words: Iterable[str], limit_s: float = LIMIT_S) -> int:
    """Run tests in a copy; return the exit code, 1 if they take too long."""
    env = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    process = subprocess.Popen(
        [tree / ".venv/bin/python", "-m", "pytest", "-q", "-p", "no:cacheprovider", *words],
        cwd=tree,
        env=env,
        stdin=subprocess.DEVNULL,
        stdout=(tree / "pytest.log").open("w"),
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )
    try:
        return process.wait(limit_s)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, 9)
        process.wait()
        return 1


def tried(
    mutant: Mutant, tests: dict[str, dict[str, list[str]]], trees: "queue.Queue[Path]"
) -> dict[str, object]:
    """Return what became of a mutant: noticed by the core, by marked tests only, or by none."""
    tree = trees.get()
    outcome, n_tests = "unreached", 0
    for suite, by_place in tests.items():
        chosen_tests = by_place.get(mutant.place, [])
        if chosen_tests:
            n_tests += len(chosen_tests)
            outcome = "survived"
            if notices(tree, mutant, chosen_tests):
                outcome = suite
                break
    trees.put(tree)
    return asdict(mutant) | {"outcome": outcome, "tests": n_tests}


def notices(tree: Path, mutant: Mutant, tests: list[str]) -> bool:
    """Whether a test fails that passes without the mutant."""
    path, names = tree / "src" / mutant.path, tree / "tests.txt"
    source = path.read_text()
    while tests:
        names.write_text("".join(f"{name}\n" for name in tests))
        path.write_text(mutant.applied(source))
        code = run_pytest(tree, ["-x", f"@{names}"])
        path.write_text(source)
        if code == 0:
            return False
        ends = (tree / "pytest.log").read_text(errors="replace").splitlines()
        said = [line for line in ends if line.startswith(("FAILED ", "ERROR "))]
        failed = [name for name in tests if any(f" {name}" in line for line in said)]
        if not failed:  # it hung, or no test could be collected
            return True
        first = max(failed, key=len)
        if run_pytest(tree, [first]) == 0:
            return True
        tests = [name for name in tests if name != first]  # it fails in this copy anyway
    return False


def rows_of(path: Path) -> Iterator[dict[str, object]]:
    """Yield the results that are on disk."""
    for line in path.read_text().splitlines() if path.exists() else ():
        yield json.loads(line)


def summarize(rows: list[dict[str, object]]) -> None:
    """Print how many mutants were noticed, and what kinds of them were not."""
    n = Counter(row["outcome"] for row in rows)
    whole = n["core"] + n["marked"]
    print(f"core notices {n['core']} of {len(rows)}; with the marked tests {whole}")
    print(f"not executed by any test: {n['unreached']}; executed, not noticed: {n['survived']}")
    missed = Counter(row["kind"] for row in rows if row["outcome"] not in ("core", "marked"))
    print("missed by kind:", dict(missed))


if __name__ == "__main__":
    main()
