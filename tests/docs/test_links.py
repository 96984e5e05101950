"""Every relative link in the Markdown files leads to a file, and every anchor to a heading."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = [
    *sorted(ROOT.glob("*.md")),
    *sorted(ROOT.glob("docs/**/*.md")),
    *sorted(ROOT.glob("benchmarks/*.md")),
]
CODE = re.compile(r"^```.*?^```$|`[^`\n]+`", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\(([^)\s]+)\)")
HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)


def broken_links(page: Path) -> list[str]:
    text = CODE.sub("", page.read_text())
    relative = [target for target in LINK.findall(text) if ":" not in target]
    return [target for target in relative if not leads_somewhere(page, target)]


def leads_somewhere(page: Path, target: str) -> bool:
    path, _, anchor = target.partition("#")
    found = page.parent / path if path else page
    if not found.exists():
        return False
    return not anchor or anchor in {slug(title) for title in HEADING.findall(found.read_text())}


def slug(title: str) -> str:
    """Turn a heading into its anchor in the way GitHub does."""
    return re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_resolve(page: Path):
    assert broken_links(page) == []


def test_a_broken_link_is_noticed(tmp_path: Path):
    (tmp_path / "other.md").write_text("# A heading: two words\n")
    page = tmp_path / "page.md"
    page.write_text(
        "[a](other.md#a-heading-two-words) [b](gone.md) [c](other.md#no) [d](https://x.y)\n"
    )
    assert broken_links(page) == ["gone.md", "other.md#no"]


@pytest.mark.parametrize(
    ("page", "words"),
    {
        "file-formats.md": ("trajectory", "passAtK", "toolErrors"),
        "graders.md": ("TypeScript", "stdin", "cwd", "judge"),
        "compare.md": ("weighted", "statistical", "custom", "COMPARE_QUALITY"),
        "calibrate.md": ("failures", "labels"),
        "statistics.md": ("pass@k", "pass^k", "interval"),
        "docker.md": ("docker compose", "ANTHROPIC_API_KEY", "Node.js 24"),
    }.items(),
)
def test_the_pages_of_the_seed_are_there_and_say_what_theirs_say(page: str, words: tuple[str, ...]):
    text = (ROOT / "docs" / page).read_text()
    assert [word for word in words if word not in text] == []
