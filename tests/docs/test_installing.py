"""The name on a package index may be somebody else's: documentation installs from a checkout."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
FROM_AN_INDEX = re.compile(
    r"(?:pip|pipx|uv|uvx|poetry|pdm|conda)\s+(?:tool\s+|pip\s+)?(?:install|add|run)"
    r"(?:\s+-\S+)*\s+['\"]?assay(?![\w./-])"
)
KINDS = (".md", ".py", ".toml", ".yml", ".yaml", ".txt", ".sh", ".html", ".js", ".json")
SKIPPED = {".git", ".venv", "node_modules", "__pycache__", ".pytest_cache", ".mypy_cache"}


def texts() -> list[Path]:
    found = []
    for name in (
        "README.md",
        "CONTRIBUTING.md",
        "CHANGELOG.md",
        "docs",
        "src",
        "plugin",
        ".agents",
    ):
        path = ROOT / name
        files = [path] if path.is_file() else path.rglob("*") if path.is_dir() else []
        found += [file for file in files if file.suffix in KINDS and not SKIPPED & {*file.parts}]
    return found


def test_nothing_says_to_install_assay_from_an_index():
    wrong = [
        f"{path.relative_to(ROOT)}: {found[0]}"
        for path in texts()
        for found in [FROM_AN_INDEX.search(path.read_text(errors="replace"))]
        if found
    ]
    assert wrong == []
    assert len(texts()) > 100


def test_the_search_finds_what_it_looks_for():
    for line in (
        "pip install assay",
        "pip install 'assay[view]'",
        "uv pip install -U assay",
        "uv tool install assay",
        "pipx install assay",
    ):
        assert FROM_AN_INDEX.search(line), line
    for line in (
        "pip install .",
        "pip install ./assay",
        "pip install '.[view]'",
        "pip install dist/assay-0.1.0-py3-none-any.whl",
        "pip install assay-0.1.0-py3-none-any.whl",
        "pip install arc-agi",
    ):
        assert not FROM_AN_INDEX.search(line), line
