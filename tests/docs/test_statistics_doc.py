"""The pages on comparing are true: their commands run, and print what the pages say they print.

In a console block `$` begins a command, `>` goes on with it, and `...` stands for anything.
"""

import os
import re
import subprocess
from pathlib import Path

import pytest

from assay.stats.passk import prompt_pass_k, seed_pass_k

DOCS = Path(__file__).parents[2] / "docs"


def console(page: str) -> list[tuple[str, str]]:
    """Give the commands of a page, each with what it should print."""
    steps: list[tuple[str, str]] = []
    for block in re.findall(r"```console\n(.*?)```", page, re.DOTALL):
        for line in block.splitlines():
            if line.startswith("$ "):
                steps.append((line[2:], ""))
            elif line.startswith("> "):
                steps[-1] = (f"{steps[-1][0]}\n{line[2:]}", "")
            else:
                steps[-1] = (steps[-1][0], f"{steps[-1][1]}{line}\n")
    return steps


def run(command: str, folder: Path, path: str) -> str:
    done = subprocess.run(
        ["bash", "-c", f"set -e -o pipefail; {command}" if "echo" not in command else command],
        cwd=folder,
        env=os.environ | {"PATH": path},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, f"{command}\n{done.stdout}"
    return done.stdout


def matches(wanted: str, said: str) -> bool:
    pattern = re.escape(wanted).replace(r"\.\.\.", ".*?")
    return re.fullmatch(pattern, said, re.DOTALL) is not None


PAGES = [
    *("statistics.md", "compare.md", "trials.md", "plan.md", "baseline.md"),
    *("validate-refs.md", "balance.md", "summarize.md", "calibrate.md"),
]


@pytest.mark.recorded
@pytest.mark.parametrize("name", PAGES)
def test_the_commands_print_what_the_page_says(name: str, tmp_path: Path, warm_path: str):
    steps = console((DOCS / name).read_text())
    assert len(steps) >= 3
    assert any(wanted for _, wanted in steps)
    for command, wanted in steps:
        said = run(command, tmp_path, warm_path)
        assert matches(wanted, said), f"$ {command}\n{said}\n--- the page says:\n{wanted}"


def test_the_numbers_explained_are_the_numbers_printed():
    page = (DOCS / "statistics.md").read_text()
    printed = "".join(wanted for _, wanted in console(page))
    told = page.split("Read from the top:")[1].split("## Each number")[0]
    numbers = re.findall(r"\*\*([+-]?[\d.]+)\*\*", told)
    assert len(numbers) >= 12
    shown = re.findall(r"[+-]?\d+(?:\.\d+)?", printed.replace("/", " "))
    assert set(numbers) <= set(shown), set(numbers) - set(shown)


def test_the_table_of_pass_at_k():
    page = (DOCS / "statistics.md").read_text()
    rows = re.findall(r"^\| (\d) \| ([\d.]+) \| ([\d.]+) \|$", page, re.MULTILINE)
    truth = [(str(t.k), f"{t.pass_at_k:.1f}", f"{t.pass_exp_k:.1f}") for t in prompt_pass_k(3, 5)]
    assert rows == truth
    at_k, exp_k = seed_pass_k(3, 5)
    assert f"{at_k:.3f} and {exp_k:.3f} here" in page


def test_a_wrong_page_would_be_noticed():
    assert matches("a ... z\n", "a b\nc z\n")
    assert not matches("0.667 (0.456 to 0.827)\n", "0.668 (0.456 to 0.827)\n")
    assert not matches("", "Error: something\n")
