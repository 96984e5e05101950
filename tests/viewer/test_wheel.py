"""What is built of this checkout: a wheel that is complete, the same each time, and works alone."""

import json
import os
import re
import subprocess
import sys
import tarfile
import tomllib
import urllib.request
import zipfile
from collections.abc import Callable
from email.parser import HeaderParser
from pathlib import Path
from types import ModuleType

import pytest

from assay import __version__
from assay.cli.help import COMMANDS

ROOT = Path(__file__).resolve().parents[2]
PIP = [sys.executable, "-m", "pip", "--disable-pip-version-check", "-q"]
EXTRAS = {
    "arc": "arc_agi",
    "view": "starlette, uvicorn",
    "ray": "ray",
    "query": "duckdb",
    "grade": "jsonschema",
    "inspect": "sys" if sys.version_info >= (3, 14) else "backports.zstd",
    "yaml": "yaml",
    "evidence": "securesystemslib, cryptography",
    "keyless": "sigstore",
}
"""What can be imported after each of them was installed."""
pytestmark = pytest.mark.install


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(ROOT, tmp_path_factory.mktemp("wheel"))


def build(source: Path, target: Path) -> Path:
    subprocess.run([*PIP, "wheel", "--no-deps", str(source), "-w", str(target)], check=True)
    (found,) = target.glob("assay-*.whl")
    return found


@pytest.fixture
def installed_with(tmp_path: Path, wheel: Path) -> Callable[[str], Path]:
    """Install the wheel, with an extra or without, in an empty environment; return its bin."""

    def install(extra: str = "") -> Path:
        home = tmp_path / f"clean-{extra}"
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(home)], check=True)
        into = [*PIP, "--python", str(home)]
        named = f"assay[{extra}]" if extra else "assay"
        subprocess.run([*into, "install", "--no-compile", f"{named} @ file://{wheel}"], check=True)
        subprocess.run([*into, "check"], check=True)
        return home / "bin"

    return install


def test_the_same_sources_give_the_same_bytes(wheel: Path, tmp_path: Path) -> None:
    """The second one is built elsewhere, later, with other modes, from the source distribution."""
    backend = "import sys; from hatchling import build; print(build.build_sdist(sys.argv[1]))"
    subprocess.run(
        [*PIP, "install", "--target", str(tmp_path / "tool"), "hatchling>=1.28"], check=True
    )
    subprocess.run(
        [sys.executable, "-c", backend, str(tmp_path)],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(tmp_path / "tool")},
        check=True,
        capture_output=True,
    )
    (sdist,) = tmp_path.glob("assay-*.tar.gz")
    with tarfile.open(sdist) as archive:
        archive.extractall(tmp_path / "elsewhere", filter="data")
    (source,) = (tmp_path / "elsewhere").iterdir()
    for path in source.rglob("*"):
        path.chmod(0o755 if path.is_dir() else 0o600)
    again = build(source, tmp_path / "again")
    with zipfile.ZipFile(wheel) as one, zipfile.ZipFile(again) as other:
        assert one.namelist() == other.namelist()
    assert again.read_bytes() == wheel.read_bytes()


def test_the_wheel_has_types_licence_man_page_and_bill_of_materials(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
        at = f"assay-{__version__}"
        assert {"assay/py.typed", f"{at}.dist-info/licenses/LICENSE"} <= names
        page = archive.read(f"{at}.data/data/share/man/man1/assay.1").decode()
        bill = json.loads(archive.read(f"{at}.dist-info/sboms/assay.cdx.json"))
        about = HeaderParser().parsestr(archive.read(f"{at}.dist-info/METADATA").decode())
    for name in COMMANDS:
        assert f"\n.B {name.replace('-', '\\-')}\n" in page
    needed = {
        re.split(r"[^\w.-]", text)[0]: "extra ==" in text
        for text in reversed(about.get_all("Requires-Dist") or [])
    }
    needed.pop("assay", None)  # of the extra `all`, which some builders resolve
    said = {part["name"]: part["scope"] == "optional" for part in bill["components"]}
    assert said == needed
    assert (bill["bomFormat"], bill["metadata"]["component"]["version"]) == (
        "CycloneDX",
        __version__,
    )


def test_every_extra_is_tried() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert {*EXTRAS, "all"} == {*project["optional-dependencies"]}


@pytest.mark.parametrize("extra", EXTRAS)
def test_each_extra_installs_alone(extra: str, installed_with: Callable[[str], Path]) -> None:
    programs = installed_with(extra)
    version = [programs / "assay", "--version"]
    assert subprocess.check_output(version, text=True).strip() == __version__
    subprocess.run([programs / "python", "-c", f"import {EXTRAS[extra]}"], check=True)


def test_the_demo_runs_without_the_checkout(
    tmp_path: Path, installed_with: Callable[[str], Path]
) -> None:
    work = tmp_path / "work"
    work.mkdir()
    done = subprocess.run(
        [installed_with("") / "assay", "demo"],
        cwd=work,
        env={"PATH": "/usr/bin:/bin", "HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert list(work.rglob("report*.html"))


def test_report_and_view_from_the_wheel(
    tmp_path: Path, sample: ModuleType, installed_with: Callable[[str], Path]
) -> None:
    file = sample.write(tmp_path / "run.jsonl", sample.rows(5, seed=1, rate=0.5, agent="a"))
    assay = str(installed_with("view") / "assay")
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
