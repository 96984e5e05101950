"""What the benchmarks share: the reference harness they measure against."""

import os
import subprocess
import sys
from pathlib import Path

PACKAGES = {"bun": "1.4.4", "@plaited/agent-eval-harness": "0.12.2"}


def install_reference() -> list[str]:
    """Give the words that start the reference; the pinned versions, fetched once."""
    cache = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "assay-benchmarks"
    name = "-".join(f"{package.rpartition('/')[2]}-{v}" for package, v in PACKAGES.items())
    folder = cache / name
    program = folder / "node_modules/@plaited/agent-eval-harness/bin/cli.ts"
    bun = folder / "node_modules/.bin/bun"
    if not (program.exists() and bun.exists()):
        folder.mkdir(parents=True, exist_ok=True)
        wanted = [f"{package}@{version}" for package, version in PACKAGES.items()]
        command = ["npm", "install", "--prefix", str(folder), "--no-audit", "--no-fund", *wanted]
        subprocess.run(command, check=True, stdout=sys.stderr)
    # The installed program, not its launcher: the launcher is a process of its own.
    return [str(bun.resolve()), str(program.resolve())]
