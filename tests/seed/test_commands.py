"""Every command line that the seeds print, with the name of our program, does what it is for.

The lines stand in tests/seed_coverage.toml, under `run`.
"""

import csv
import json
import re
import shutil
import tomllib
from collections.abc import Callable
from contextlib import suppress
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
MEASURES = re.compile(r"assay (capture|trials|grade|calibrate .*--grader)")
"""Lines whose output was measured or paid for: an existing one is refused."""
TYPESCRIPT = re.compile(r"(?:-g|--grader) \S+\.ts")
OUTPUT = re.compile(r"(?:-o|>) (\S+)")


@pytest.mark.parametrize("name", [name for name in LINES if name.startswith("002")])
def test_a_printed_command_runs(
    name: str, project: Path, line: Callable[..., Any], request: pytest.FixtureRequest
) -> None:
    text = LINES[name]
    if "jq" in text and shutil.which("jq") is None:
        pytest.skip("jq is missing; install it: apt-get install jq")
    written = OUTPUT.findall(text)
    for output in written:
        (project / output).unlink(missing_ok=True)
    # Not as an argument: only graders in TypeScript need it, and it may have to be installed.
    programs = [request.getfixturevalue("bun")] if TYPESCRIPT.search(text) else []
    done = line(text, *programs)
    assert done.returncode == 0, f"{text}\n{done.stderr}"
    for output in written:
        refuse_nonsense(project / output)
    if not written and "rm -rf" not in text:
        assert done.stdout.strip()
    made = project / written[-1] if written else None
    check_proof(name, project, made.read_text() if made is not None else done.stdout)


def check_proof(name: str, project: Path, text: str) -> None:
    """Check that what was written shows that the command did what it is for."""
    proof = COVERAGE["proofs"].get(name.partition("-")[2])
    assert proof, f"{name}: say in [proofs] what it has done"
    known: dict[str, Any] = {"project": project, "text": text}
    with suppress(json.JSONDecodeError):
        known["value"] = json.loads(text)
    with suppress(json.JSONDecodeError):
        known["rows"] = [json.loads(row) for row in text.splitlines()]
    assert eval(proof, known), f"{proof}\n{text[:2000]}"


def test_all_printed_commands_run_twice_in_one_folder(
    project: Path, line: Callable[..., Any], bun: Path
) -> None:
    """In printed order, and nothing but what was measured or paid for is refused."""
    texts = [text for name, text in LINES.items() if name.startswith("002")]
    # The seed prints only the removal; the capture before it is ours.
    texts = [text.rpartition("&& ")[2] if "&& rm -rf" in text else text for text in texts]
    if shutil.which("jq") is None:
        texts = [text for text in texts if "jq" not in text]
    for output in {name for text in texts for name in OUTPUT.findall(text)}:
        (project / output).unlink(missing_ok=True)
    memory = project / "memory.txt"  # the agent writes it
    for text in (*texts, *texts):
        exists = any((project / output).exists() for output in OUTPUT.findall(text))
        memory.unlink(missing_ok=True)
        done = line(text, bun)
        if exists and MEASURES.search(text) and "assay run" not in text:
            assert done.returncode == 1, text
            assert "already exists" in done.stderr
            assert "--overwrite" in done.stderr
            assert not memory.exists(), "nothing is asked before it is refused"
            done = line(OUTPUT.sub(r"\g<0> --overwrite", text), bun)
        assert done.returncode == 0, f"{text}\n{done.stderr}"


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
