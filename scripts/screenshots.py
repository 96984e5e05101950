"""Makes pictures of the main pages: light and dark, desktop and phone.

    python -m scripts.screenshots [FOLDER]      default /tmp/assay-pictures; look at them

With --docs those of the README go to docs/images as well.
"""

import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.viewer.browser import chromium

ROOT = Path(__file__).resolve().parents[1]
SIZES = {"desktop": (1280, 800), "phone": (390, 844)}
PAGES = {
    "first-screen": ("experiment", "#/"),
    "overview": ("captures", "#/"),
    "overview-trials": ("trials", "#/"),
    "prompts": ("captures", "#/prompts"),
    "prompt": ("captures", "#/prompt/bug-fix-006"),
    "trial": ("story", "#/run/codex/prompt/cart-total/trial/1/step/6"),
    "step": ("captures", "#/run/after/prompt/bug-fix-006/trial/1/step/6"),
    "side-by-side": ("story", "#/beside/cart-total/claude/1/codex/1"),
    "game": ("game", "#/run/random/prompt/so01-v1/trial/1"),
    "games": ("games", "#/"),
    "games-side-by-side": ("games", "#/beside/so01-v1/random/1/search/1"),
}
README = {
    "first-screen": "desktop-light",
    "first-screen-phone": "phone-light",
    "trial": "desktop-light",
    "side-by-side": "desktop-light",
    "game": "desktop-dark",
}
"""The pictures in docs/images, each of a page in this size and theme."""


def main() -> None:
    words = [word for word in sys.argv[1:] if word != "--docs"]
    target = Path(words[0] if words else Path(tempfile.gettempdir(), "assay-pictures"))
    target.mkdir(parents=True, exist_ok=True)
    reports = _reports(target)
    with chromium() as browser:
        for name, (report, page) in PAGES.items():
            if report in reports:
                _take(browser, name, f"file://{reports[report]}{page}", target)
    if "--docs" in sys.argv:
        for name, form in README.items():
            picture = target / f"{name.removesuffix('-phone')}-{form}.png"
            shutil.copy(picture, ROOT / "docs" / "images" / f"{name}.png")
    print(target)


def _take(browser: Any, name: str, address: str, target: Path) -> None:
    for size, (width, height) in SIZES.items():
        for theme in ("light", "dark"):
            browser.size(width, height)
            browser.theme(theme)
            browser.draw(address)
            browser.see("h1")
            if name == "game":
                browser.click("button[title='Last move']")
                browser.see(".move", " of ")
                browser.run("document.querySelector('.game').previousSibling.scrollIntoView()")
            browser.run("document.activeElement?.blur()")
            (target / f"{name}-{size}-{theme}.png").write_bytes(browser.picture())


def _reports(target: Path) -> dict[str, Path]:
    """Make the reports to be pictured; a game only where the engine is installed."""
    runs = target / "runs"
    sample = ROOT / "scripts" / "sample_runs.py"
    subprocess.run([sys.executable, sample, runs], check=True)
    made = {
        "captures": _report(target / "captures.html", runs / "before.jsonl", runs / "after.jsonl"),
        "trials": _report(target / "trials.html", runs / "trials-a.jsonl", runs / "trials-b.jsonl"),
    }
    made["experiment"] = _experiment(target)
    made["story"] = _report(target / "story.html", runs / "claude.jsonl", runs / "codex.jsonl")
    played = {player: _played(target / f"arc-{player}", player) for player in ("random", "search")}
    if all(played.values()):
        made["game"] = _report(target / "game.html", f"random:{_with_thoughts(played['random'])}")
        named = [f"{player}:{file}" for player, file in played.items()]
        made["games"] = _report(target / "games.html", *named)
    return made


def _experiment(target: Path) -> Path:
    """Measure the skill of the demo."""
    made = target / "demo"
    if not list(made.glob("experiments/*/*/report.html")):
        demo = [sys.executable, "-m", "assay", "demo", "-o", made]
        subprocess.run(demo, check=True, capture_output=True)
    return next(iter(sorted(made.glob("experiments/*/*/report.html"))))


def _played(store: Path, player: str) -> Path | None:
    if not list(store.glob("runs/*/results.jsonl")):
        play = ["arc", "run", player, "--games", "so01-v1,mx01-v1", "--max-steps", "100"]
        subprocess.run([sys.executable, "-m", "assay", *play, "--store", store], check=False)
    return next(iter(sorted(store.glob("runs/*/results.jsonl"))), None)


def _with_thoughts(file: Path) -> Path:
    """Let the random player say something before each move, as an agent does."""
    target = file.with_name("thoughts.jsonl")
    with target.open("w", encoding="utf-8") as out:
        for line in file.read_text(encoding="utf-8").splitlines():
            row = json.loads(line)
            row["trajectory"] = list(_thinking(row["trajectory"]))
            out.write(json.dumps(row) + "\n")
    return target


def _thinking(steps: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    for step in steps:
        said = f"Nothing is known about {json.dumps(step.get('input'))} yet: I try it and compare."
        yield {"type": "thought", "content": said, "timestamp": step["timestamp"] - 5}
        yield step


def _report(target: Path, *files: Any) -> Path:
    words = [sys.executable, "-m", "assay", "report", *map(str, files)]
    subprocess.run([*words, "-o", target, "--overwrite", "-q"], check=True)
    return target


if __name__ == "__main__":
    main()
