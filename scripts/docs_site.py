"""The pages of docs/ as a site. mkdocs calls the hooks; `python scripts/docs_site.py` builds it.

Each version has a folder of its own in site/, so that versions built earlier stay.
"""

import json
import logging
import re
import shutil
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
OUTSIDE = {
    "benchmarks/RESULTS.md": "benchmark-results.md",
    "CHANGELOG.md": "changelog.md",
    "examples/compare-two-agents.ipynb": "compare-two-agents.ipynb",
}
"""Files that pages link to and that are not in docs/, with their names on the site."""


def on_files(files: Any, config: Any) -> Any:
    """Add the files that are not in docs/."""
    from mkdocs.structure.files import File

    for path, name in OUTSIDE.items():
        text = (ROOT / path).read_text(encoding="utf-8")
        if name.endswith(".md"):
            text = re.sub(r"\]\((\.\./)?docs/", "](", text)
        files.append(File.generated(config, name, content=text))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Any) -> str:
    """Let links lead to where the files are on the site; leave out what tests know of examples."""
    markdown = re.sub(r"^( *```\w+) .*$", r"\1", markdown, flags=re.MULTILINE)
    for path, name in OUTSIDE.items():
        markdown = markdown.replace(f"](../{path}", f"]({name}")
    return markdown


def build(target: Path) -> None:
    """Build the site of this version below target, beside those of others."""
    from mkdocs.commands.build import build as build_site
    from mkdocs.config import load_config
    from mkdocs.exceptions import Abort

    logging.basicConfig(level=logging.WARNING, format="%(levelname)s: %(message)s")
    version = re.search(
        r'^__version__ = "(.+)"$', (ROOT / "src/assay/__init__.py").read_text(), re.MULTILINE
    )
    assert version is not None
    shutil.rmtree(target / version[1], ignore_errors=True)
    config = load_config(str(ROOT / "mkdocs.yml"), site_dir=str(target / version[1]), strict=True)
    config.plugins.on_startup(command="build", dirty=False)
    try:
        build_site(config)
    except Abort as error:
        sys.exit(str(error))
    known = sorted((path.name for path in target.iterdir() if path.is_dir()), key=_numbers)
    listed = [{"version": name, "title": name, "aliases": []} for name in reversed(known)]
    (target / "versions.json").write_text(json.dumps(listed), encoding="utf-8")
    start = f'<!doctype html><meta http-equiv="refresh" content="0; url={known[-1]}/">\n'
    (target / "index.html").write_text(start, encoding="utf-8")
    print(f"{target / version[1] / 'index.html'}")


def _numbers(version: str) -> list[int]:
    return [int(part) for part in re.findall(r"\d+", version)]


if __name__ == "__main__":
    build(Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "site")
