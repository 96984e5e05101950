"""Run benchmarks by name, or all: python -m benchmarks [capture results coverage arc view]"""

import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
ALL = sorted(
    [path.stem for path in HERE.glob("*.py") if not path.stem.startswith("__")]
    + [path.parent.name for path in HERE.glob("*/__main__.py")]
)


def main() -> int:
    names = sys.argv[1:] or ALL
    unknown = [name for name in names if name not in ALL]
    if unknown:
        print(f"no benchmark {unknown[0]!r}; there are: {', '.join(ALL)}")
        return 2
    for name in names:
        print(f"\n## {name}\n", flush=True)
        subprocess.run([sys.executable, "-m", f"benchmarks.{name}"], check=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
