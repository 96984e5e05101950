"""The package of docs/plugins.md: short, installed and used in an environment of its own."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "plugins.md").read_text()
FILES = dict(re.findall(r"^```\w+ file=(\S+)\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL))
ADDED = re.findall(r"^```\w+ add=(\S+)\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)


def test_the_package_is_short() -> None:
    package = FILES["pyproject.toml"] + FILES["assay_mirror.py"]
    assert len(package.splitlines()) < 80


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make an environment with Assay and what it needs, and install the package into it."""
    folder = tmp_path_factory.mktemp("package")
    for name, text in FILES.items():
        (folder / name).write_text(text)
    for name, text in ADDED:
        with (folder / name).open("a") as file:
            file.write(text)
    project = FILES["pyproject.toml"]
    for kind, entry in (
        ("benchmarks", 'files = "assay_mirror:Files"'),
        ("graders", 'unchanged = "assay_mirror:Unchanged"'),
    ):
        assert f"`{entry}`" in PAGE
        project = project.replace(f'"assay.{kind}" = {{ ', f'"assay.{kind}" = {{ {entry}, ')
    (folder / "pyproject.toml").write_text(project)
    subprocess.run([sys.executable, "-m", "venv", folder / "venv"], check=True)
    [site] = folder.glob("venv/lib/python*/site-packages")
    found = [path for path in sys.path if Path(path).name == "site-packages"]
    (site / "assay.pth").write_text("".join(f"{path}\n" for path in (ROOT / "src", *found)))
    python = folder / "venv" / "bin" / "python"
    pip = [python, "-m", "pip", "install", "--quiet", "--no-deps", "."]
    done = subprocess.run(pip, cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return python


def run(python: Path, *words: str) -> str:
    folder = python.parents[2]
    done = subprocess.run([python, "-m", *words], cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.install
def test_it_is_found_and_used(installed: Path) -> None:
    folder = installed.parents[2]
    out = folder / "out.jsonl"
    words = ["--benchmark", "palindromes", "-s", "mirror", "-o", str(out)]
    run(installed, "assay", "capture", *words)
    rows = {row["id"]: row for row in map(json.loads, out.read_text().splitlines())}
    assert [rows[name]["score"]["pass"] for name in ("level", "Anna")] == [True, True]
    assert rows["Anna"]["output"] == "annA"
    assert rows["Anna"]["events"] == {
        **{"total": 2, "mapped": 2, "unknown": {}, "unparsed": 0, "oversized": 0},
        "terminal": True,
    }
    prompts = folder / "prompts.jsonl"
    prompts.write_text('{"id": "a", "input": "X", "hint": "veryx"}\n')
    words = ["-s", "mirror:prefix=very", "-g", "backwards:ignore_case=true"]
    run(installed, "assay", "capture", str(prompts), *words, "-o", str(folder / "more.jsonl"))
    (row,) = map(json.loads, (folder / "more.jsonl").read_text().splitlines())
    assert (row["output"], row["score"]["pass"]) == ("Xyrev", True)


@pytest.mark.install
def test_the_worlds_of_its_benchmark_share_no_folder(installed: Path) -> None:
    folder = installed.parents[2]
    out = folder / "files.jsonl"
    words = ["--benchmark", "files:n=3", "-s", "mirror", "-k", "2", "-j", "2", "-o", str(out)]
    run(installed, "assay", "trials", *words)
    rows = [*map(json.loads, out.read_text().splitlines())]
    assert [row["passRate"] for row in rows] == [1.0, 1.0, 1.0]
    assert not (folder / "word.txt").exists()


@pytest.mark.install
def test_a_mistyped_option_is_named_with_those_that_there_are(installed: Path) -> None:
    words = ["-m", "assay", "capture", "--benchmark", "palindromes", "-s", "mirror:prefx=x"]
    done = subprocess.run([installed, *words], capture_output=True, text=True)
    assert done.returncode == 1
    assert "mirror has no option 'prefx'" in done.stderr
    assert "prefix, model" in done.stderr


@pytest.mark.install
def test_its_own_test_passes_and_can_fail(installed: Path) -> None:
    folder = installed.parents[2]
    assert "1 passed" in run(installed, "pytest", "-p", "no:cacheprovider", "test_mirror.py")
    broken = (folder / "test_mirror.py").read_text().replace('output="ba"', 'output="no"')
    (folder / "test_broken.py").write_text(broken)
    words = ["-m", "pytest", "-p", "no:cacheprovider", "test_broken.py"]
    done = subprocess.run([installed, *words], cwd=folder, capture_output=True, text=True)
    assert done.returncode == 1
    assert "got pass_=False" in done.stdout
