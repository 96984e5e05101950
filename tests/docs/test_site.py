"""The pages of docs/ as a site: all are in its navigation, and every link leads somewhere."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
ENTRIES = ("docs/ab.md", "docs/ci.md", "docs/capture.md", "docs/arc-agi.md")


def pages() -> set[str]:
    return {str(path.relative_to(ROOT / "docs")) for path in (ROOT / "docs").rglob("*.md")}


def test_every_page_is_in_the_navigation_and_on_the_first_page() -> None:
    navigation = (ROOT / "mkdocs.yml").read_text().partition("\nnav:\n")[2]
    named = set(re.findall(r"[\w/-]+\.md", navigation))
    assert named == pages() | {"benchmark-results.md", "changelog.md"}
    index = (ROOT / "docs" / "index.md").read_text()
    assert set(re.findall(r"\]\(([\w/-]+\.md)\)", index)) == pages() - {"index.md"}


@pytest.mark.parametrize("entry", ENTRIES)
def test_each_entry_point_is_one_click_away(entry: str) -> None:
    first_screen = (ROOT / "README.md").read_text().partition("## Two commands")[0]
    assert f"]({entry})" in first_screen
    assert f"]({entry.removeprefix('docs/')})" in (ROOT / "docs/index.md").read_text()


@pytest.mark.install
def test_the_site_builds_beside_an_earlier_version(tmp_path: Path) -> None:
    home = tmp_path / "home"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(home)], check=True)
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "-q", "--python", str(home)]
    install = [*pip, "install", "--no-compile", "--group", "docs"]
    subprocess.run(install, cwd=ROOT, check=True)
    site = tmp_path / "site"
    (site / "0.0.9").mkdir(parents=True)
    done = subprocess.run(
        [home / "bin" / "python", "scripts/docs_site.py", str(site)],
        cwd=ROOT,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    built = Path(done.stdout.strip())
    assert '"version": "0.0.9"' in (site / "versions.json").read_text()
    assert f"url={built.parent.name}/" in (site / "index.html").read_text()
    assert (built.parent / "search" / "search_index.json").is_file()
    assert (built.parent / "images" / "first-screen.png").is_file()
    text = built.read_text()
    assert not re.search(r'<(script|link|img)[^>]+(src|href)="https?://', text)  # works offline
