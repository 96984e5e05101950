"""A child indexes what is big; the viewer then finds everything done."""

import json
import subprocess
import sys
from pathlib import Path
from types import ModuleType

from assay.compare.report import CompareOptions
from assay.viewer.index import Index, indexed_size
from assay.viewer.library import Library
from assay.viewer.service import ViewerService


def test_the_viewer_finds_index_and_overview(tmp_path: Path, sample: ModuleType) -> None:
    file = sample.write(tmp_path / "run.jsonl", sample.rows(30, seed=1, rate=0.5, agent="a"))
    assert indexed_size(file) == 0
    request = {"files": [["run", str(file)]], "by": "category", "margin": 0.02, "seed": 7}
    words = [sys.executable, "-m", "assay.viewer.prepare"]
    subprocess.run(words, input=json.dumps(request).encode(), check=True)
    assert indexed_size(file) == file.stat().st_size
    index = Index(file)
    (kept,) = index.folder.glob("overview-*.json")
    index.close()
    before = kept.stat().st_mtime_ns
    library = Library([("run", file)], [])
    told = ViewerService(library, CompareOptions(margin=0.02, seed=7), "category").overview("")
    assert told["runs"][0]["trials"] == 30
    assert kept.stat().st_mtime_ns == before
    other = ViewerService(library, CompareOptions(margin=0.05, seed=7), "category").overview("")
    assert other["groups"][0]["sections"]["meta"]["margin"] == 0.05
    library.close()
