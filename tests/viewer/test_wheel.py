"""From the built wheel in a clean environment: pages, scripts, styles and skills are all there."""

import json
import subprocess
import sys
import urllib.request
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.install
def test_report_and_view_from_the_wheel(tmp_path: Path, sample: ModuleType) -> None:
    wheels = tmp_path / "wheels"
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "-q"]
    subprocess.run([*pip, "wheel", "--no-deps", str(ROOT), "-w", str(wheels)], check=True)
    (wheel,) = wheels.glob("assay-*.whl")
    home = tmp_path / "clean"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(home)], check=True)
    install = [*pip, "--python", str(home), "install", "--no-compile"]
    subprocess.run([*install, f"assay[view] @ file://{wheel}"], check=True)
    file = sample.write(tmp_path / "run.jsonl", sample.rows(5, seed=1, rate=0.5, agent="a"))
    assay = str(home / "bin" / "assay")
    page = tmp_path / "report.html"
    subprocess.run([assay, "report", str(file), "-o", str(page)], check=True, cwd=tmp_path)
    assert "overviewPage" in page.read_text()
    assert "--paper" in page.read_text()
    subprocess.run([assay, "skills", "install"], check=True, cwd=tmp_path)
    for skills in (tmp_path / ".claude" / "skills", tmp_path / ".agents" / "skills"):
        assert len(list(skills.glob("*/SKILL.md"))) == 8
    viewer = subprocess.Popen([assay, "view", str(file)], stdout=subprocess.PIPE, text=True)
    try:
        assert viewer.stdout is not None
        address = viewer.stdout.readline().strip()
        with urllib.request.urlopen(address) as answer:
            assert b"overviewPage" in answer.read()
        with urllib.request.urlopen(f"{address}api/prompts") as answer:
            assert json.load(answer)["total"] == 5
    finally:
        viewer.terminate()
        viewer.wait(10)
        viewer.stdout.close()
