"""The table of scenarios says what the tests with the real agents do."""

import runpy
from pathlib import Path

TABLE = runpy.run_path(str(Path(__file__).parents[2] / "scripts" / "agent_table.py"))


def test_every_test_of_the_table_exists():
    assert TABLE["missing"]() == []


def test_the_page_is_the_one_that_the_script_writes():
    assert TABLE["PAGE"].read_text() == TABLE["page"](), "run: python scripts/agent_table.py"
