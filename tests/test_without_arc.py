"""assay works without assay_arc: an environment that has all but that package."""

import ast
import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from assay.plugins import BUILT_IN

ROOT = Path(__file__).parents[1]
type Run = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Run Python in an environment with a copy of src/assay and nothing else of src."""
    folder = tmp_path_factory.mktemp("bare")
    ignored = shutil.ignore_patterns("__pycache__")
    shutil.copytree(ROOT / "src" / "assay", folder / "src" / "assay", ignore=ignored)
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder / "venv"], check=True)
    [site] = folder.glob("venv/lib/python*/site-packages")
    # A folder named in a .pth file is searched, but the .pth files in it are not read: the editable
    # install of this repository does not come along.
    installed = [path for path in sys.path if Path(path).name == "site-packages"]
    paths = [folder / "src", *installed]
    (site / "bare.pth").write_text("".join(f"{path}\n" for path in paths))

    def run(*args: object) -> "subprocess.CompletedProcess[str]":
        command = [folder / "venv" / "bin" / "python", *map(str, args)]
        return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=120)

    found = run("-c", "import assay, importlib.util as u; print(u.find_spec('assay_arc'))")
    assert found.stdout == "None\n", found
    return run


def test_help_does_not_list_arc(bare: Run) -> None:
    page = bare("-m", "assay", "--help")
    assert page.returncode == 0
    assert "capture" in page.stdout
    assert "arc" not in page.stdout.split()


def test_arc_is_said_to_be_missing(bare: Run) -> None:
    done = bare("-m", "assay", "arc", "run", "random")
    assert done.returncode == 2
    assert "the command 'arc' is not installed" in done.stderr
    assert "Traceback" not in done.stderr


def test_no_plugin_of_arc_is_offered(bare: Run) -> None:
    code = "from assay import plugins; import json; print(json.dumps({g: plugins.names(g) for g in plugins.BUILT_IN}))"  # noqa: E501
    offered = json.loads(bare("-c", code).stdout)
    for group, table in BUILT_IN.items():
        missing = {name for name, target in table.items() if target.startswith("assay_arc.")}
        assert not missing & set(offered[group])
        assert table.keys() - missing <= set(offered[group])


def test_capture_works(bare: Run, tmp_path: Path) -> None:
    prompts, out = tmp_path / "prompts.jsonl", tmp_path / "out.jsonl"
    prompts.write_text('{"id": "a", "input": "hello"}\n')
    done = bare("-m", "assay", "capture", prompts, "-s", "demo", "-g", "contains:e", "-o", out)
    assert done.returncode == 0, done.stderr
    [row] = map(json.loads, out.read_text().splitlines())
    assert row["id"] == "a"
    assert "failure" not in row


def test_only_tests_of_arc_import_it() -> None:
    for path in (ROOT / "tests").rglob("*.py"):
        text = path.read_text()
        if path.is_relative_to(ROOT / "tests" / "assay_arc") or "assay_arc" not in text:
            continue
        for node in ast.walk(ast.parse(text)):
            names = [alias.name for alias in getattr(node, "names", []) if hasattr(alias, "name")]
            modules = [getattr(node, "module", None) or "", *names]
            assert not any(name.split(".")[0] == "assay_arc" for name in modules), path
