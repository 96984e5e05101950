"""Files of a stored run with anything in them: a message of what is wrong, and no traceback."""

import importlib.util
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from assay.cli.group import run_command

_path = Path(__file__).parents[1] / "cli" / "hostile_files.py"
_spec = importlib.util.spec_from_file_location("hostile_files", _path)
assert _spec is not None
assert _spec.loader is not None
hostile = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(hostile)

COMMANDS = [
    "report latest --format markdown",
    "report latest --format json",
    "report latest --format summary",
    "report latest --format html",
    "compare latest latest",
    "compare --all --format json",
    "verify latest",
    "rescore latest --json",
    "replay latest ky01 --text",
]
SLOW = ("verify", "rescore", "report latest --format html", "compare --all", "replay")
"""They replay a game, draw a picture or start late; the files that they read are enough."""
LEFT_OUT = ("long-line", "long-id", "kind-schema", "kind-mcp", "utf-32", "html")
"""Of the files for the other commands, those that would show nothing more here."""


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> Path:
    store = tmp_path_factory.mktemp("arc") / "store"
    assert run_command(["arc", "run", "random", "--games", "ky01", "--max-steps", "3",
                        "--store", str(store)]) == 0  # fmt: skip
    return store


@pytest.fixture
def arc(capfd: pytest.CaptureFixture[str]) -> Callable[..., str]:
    def run(*words: str) -> str:
        try:
            code: Any = run_command(["arc", *words])
        except SystemExit as error:
            code = error.code
        except BaseException as error:  # noqa: BLE001 - that is what must not come out of it
            return f"{error!r:.200} at {_place(error)}"
        err = capfd.readouterr().err
        if code not in (0, 1, 2, 3, 4) or "Traceback" in err:
            return f"exit code {code}: {err[-500:]}"
        return "" if code == 0 or err.strip() else "no message"

    return run


def _place(error: BaseException) -> str:
    found = error.__traceback__
    while found is not None and found.tb_next is not None:
        found = found.tb_next
    return f"{found.tb_frame.f_code.co_filename}:{found.tb_lineno}" if found else ""


NAMES = ["run-meta.json", "scorecard.json", "results.jsonl", "environment-scores.json", "logs"]


@pytest.mark.parametrize("name", NAMES)
def test_commands_on_a_stored_run(
    name: str, stored: Path, arc: Callable[..., str], tmp_path: Path
) -> None:
    found = []
    for kind, content in hostile.contents(hostile.CAPTURE).items():
        if kind in LEFT_OUT:
            continue
        store = tmp_path / kind
        shutil.copytree(stored, store)
        for path in store.rglob("*"):
            if path.is_file() and name in (path.name, path.parent.name):
                path.write_bytes(content)
        for line in COMMANDS:
            if line.startswith(SLOW) and name not in ("logs", "run-meta.json"):
                continue
            problem = arc(*line.split(), "--store", str(store))
            found += [f"{kind}, {line}: {problem}"] if problem else []
    assert not found, "\n".join(found)


@pytest.mark.parametrize("harness", ["codex", "claude"])
def test_import(harness: str, arc: Callable[..., str], tmp_path: Path) -> None:
    found = []
    for kind, content in hostile.contents(hostile.CAPTURE).items():
        folder = tmp_path / kind
        (folder / "sessions").mkdir(parents=True)
        for path in (folder / "result.json", folder / "sessions" / "a.jsonl"):
            path.write_bytes(content)
        for path in (folder, folder / "result.json"):
            problem = arc("import", harness, str(path), "--store", str(tmp_path / "store"))
            found += [f"{kind}, {path.name}: {problem}"] if problem else []
    with hostile.places(tmp_path) as odd:
        for kind, path in odd.items():
            problem = arc("import", harness, str(path), "--store", str(tmp_path / "store"))
            found += [f"{kind}: {problem}"] if problem else []
    assert not found, "\n".join(found)
