"""The examples of docs/python.md and the notebook run as they stand."""

import inspect
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

import assay as library
from assay.library.ab import AbOptions
from assay.library.run import RunOptions

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs/python.md").read_text()
EXAMPLES = re.findall(r"^```python example\n(.*?)^```", TEXT, re.MULTILINE | re.DOTALL)
NOTEBOOK = ROOT / "examples/compare-two-agents.ipynb"


def test_the_page_has_five_examples():
    assert len(EXAMPLES) >= 5


@pytest.mark.recorded
@pytest.mark.parametrize("example", EXAMPLES, ids=range(len(EXAMPLES)))
def test_examples_run(example, tmp_path):
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", example], cwd=tmp_path, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout


@pytest.mark.recorded
def test_the_notebook_runs_in_a_kernel(tmp_path):
    pytest.importorskip("ipykernel")
    nbclient = pytest.importorskip("nbclient")
    nbformat = pytest.importorskip("nbformat")
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    client = nbclient.NotebookClient(
        notebook, timeout=120, resources={"metadata": {"path": str(tmp_path)}}
    )
    client.execute()
    outputs = [out for cell in notebook.cells for out in cell.get("outputs", ())]
    assert not any(out["output_type"] == "error" for out in outputs)
    shown = [out["data"] for out in outputs if "data" in out]
    assert any("<table>" in data.get("text/html", "") for data in shown)
    assert any("is worse than" in data.get("text/html", "") for data in shown)


@pytest.mark.parametrize("function", [library.run, library.ab, library.compare, library.grade])
def test_every_argument_is_documented(function):
    options = {"run": RunOptions, "ab": AbOptions}.get(function.__name__)
    names = {*inspect.signature(function).parameters, *getattr(options, "__annotations__", ())}
    names -= {"options", "rows", "runs"}
    assert [name for name in sorted(names) if not re.search(rf"`{name}\b|\b{name}=", TEXT)] == []


def test_the_notebook_is_kept_without_outputs():
    cells = json.loads(NOTEBOOK.read_text())["cells"]
    assert all(not cell.get("outputs") for cell in cells)
    assert 3 <= len(cells) <= 12
