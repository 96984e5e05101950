"""Write the table of docs/security.md: what an agent can do in each mode.

It stands in tests/security_table.toml. An agent of the tests tries its cells, or a cell names the
test that does; tests/docs/test_security_table.py fails when the page is stale.
"""

import tomllib
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "tests" / "security_table.toml"
PAGE = ROOT / "docs" / "security.md"
HEADING = "## What holds in each mode\n\n"


def main() -> None:
    PAGE.write_text(page(PAGE.read_text(encoding="utf-8")), encoding="utf-8")


def page(text: str) -> str:
    """Return the page with the table as it should be."""
    before, heading, after = text.partition(HEADING)
    return before + heading + table() + after[after.index("\n\n") :]


def table() -> str:
    names = content()["modes"]
    lines = [["an agent ...", *names.values()], ["---"] * (len(names) + 1)]
    lines += [[row["what"], *(words(row[mode]) for mode in names)] for row in content()["rows"]]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines).replace("| --- ", "|---")


def words(cell: list[Any]) -> str:
    can, remark = "yes" if cell[0] else "no", "".join(cell[1:2])
    return f"{can}; {remark}" if remark else can


def content() -> dict[str, Any]:
    return tomllib.loads(SOURCE.read_text(encoding="utf-8"))


if __name__ == "__main__":
    main()
