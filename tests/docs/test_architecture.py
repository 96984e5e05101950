"""The names in the architecture page exist: its walks, its tour and its rooms."""

import ast
import re
from importlib import import_module
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
WALKS = re.findall(r"```walk\n(.*?)```", PAGE, re.DOTALL)
STOPS = [line.split(maxsplit=1)[0] for walk in WALKS for line in walk.splitlines()]


def found(name: str) -> object:
    module, _, path = name.partition(":")
    target: object = import_module(module)
    for attribute in path.split("."):
        target = getattr(target, attribute)
    return target


def test_there_are_four_walks():
    assert len(WALKS) == 4
    assert all(len(walk.splitlines()) >= 10 for walk in WALKS)


@pytest.mark.parametrize("name", STOPS)
def test_every_stop_of_a_walk_exists(name):
    if name.startswith("assay_arc"):
        pytest.importorskip("assay_arc")
    assert callable(found(name))


def test_a_wrong_name_is_noticed():
    with pytest.raises(AttributeError):
        found("assay.pipeline.run:exexute")


def test_the_tour_has_ten_files_that_exist():
    tour = PAGE.partition("## A tour in ten files")[2].partition("## ")[0]
    files = re.findall(r"^\d+\. `([^`]+)`", tour, re.MULTILINE)
    assert len(files) == 10
    assert [name for name in files if not (ROOT / name).is_file()] == []


def test_every_room_has_its_sentence():
    rooms = {path.name for path in (ROOT / "src" / "assay").iterdir() if path.is_dir()}
    rooms -= {"__pycache__"}
    table = PAGE.partition("| room |")[2].partition("\n\n")[0]
    assert {room for room in rooms if f"`{room}/`" not in table} == set()


def sources() -> dict[str, str]:
    folder = ROOT / "src"
    files = {path.relative_to(folder).as_posix(): path for path in folder.rglob("*.py")}
    return {name: path.read_text(encoding="utf-8") for name, path in files.items()}


def test_no_file_is_longer_than_900_lines():
    assert {name for name, text in sources().items() if text.count("\n") > 900} == set()


HEAVY = {"numpy", "rich", "psutil", "starlette", "uvicorn", "duckdb", "jsonpath", "ray", "arc_agi"}
HEAVY |= {"arcengine", "backports", "yaml"}  # a part of arc_agi, and of extras
"""Libraries of others that may be imported where they are used; CONTRIBUTING.md names them."""
INDENTED_IMPORT = re.compile(r"^[ \t]+(from|import) |[:;] *(from|import) ", re.MULTILINE)


def test_at_most_30_imports_stand_inside_functions():
    late = set()
    for name, text in sources().items():
        # What Assay gives to players of games, and what cannot have any: half of the files.
        if name.startswith("assay_arc/generated/") or not INDENTED_IMPORT.search(text):
            continue
        for function in ast.walk(ast.parse(text)):
            if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
                for node in ast.walk(function):
                    if isinstance(node, ast.ImportFrom):
                        first = str(node.module)
                    elif isinstance(node, ast.Import):
                        first = node.names[0].name
                    else:
                        continue
                    if first.partition(".")[0] not in HEAVY:
                        late.add(f"{name}:{node.lineno}")
    assert 0 < len(late) <= 30, sorted(late)
