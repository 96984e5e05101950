"""Write plugin/ and .agents/skills from the skills in src/, which are the only source.

plugin/ is a plugin of Claude Code, and .claude-plugin/marketplace.json lets it be installed from a
checkout. It holds copies, because an installed plugin follows no links that lead out of it.
tests/cli/test_skills.py fails when a copy is stale.
"""

import json
import shutil
from pathlib import Path

from assay import __version__
from assay.cli.skills import shipped_skills

ROOT = Path(__file__).parents[1]
COPIES = ("plugin/skills", ".agents/skills")
DESCRIPTION = (
    "Evaluate command-line agents with Assay: capture, grade, repeat, compare, and run ARC-AGI-3 "
    "benchmarks across harnesses."
)
OWNER = {"name": "The Assay authors"}
MANIFESTS = {
    "plugin/.claude-plugin/plugin.json": {
        "name": "assay",
        "version": __version__,
        "description": DESCRIPTION,
        "author": OWNER,
        "license": "MIT",
        "keywords": ["evaluation", "agents", "benchmark", "trajectory", "arc-agi"],
    },
    ".claude-plugin/marketplace.json": {
        "name": "assay",
        "owner": OWNER,
        "description": "The plugin of this repository.",
        "plugins": [{"name": "assay", "source": "./plugin", "description": DESCRIPTION}],
    },
}


def main() -> None:
    write(ROOT)


def write(root: Path) -> None:
    for name in COPIES:
        shutil.rmtree(root / name, ignore_errors=True)
        for skill in shipped_skills():
            skill.install(root / name)
    for name, manifest in MANIFESTS.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(manifest, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
