"""Which word of a command line is a script of the operator's own."""

from pathlib import Path

import pytest

from assay.graders.command_line import CommandLine


@pytest.mark.parametrize(
    ("line", "script"),
    [
        ("python3 check.py", "check.py"),
        ("python3.12 -W error -u check.py a.txt", "check.py"),
        ("/usr/bin/env python3 ./check.py", "check.py"),
        ("env A=1 python check.py", "check.py"),
        ("timeout 5 sh check.sh", "check.sh"),
        ("uv run check.py", "check.py"),
        ("uv run python check.py", "check.py"),
        ("poetry run python tests/run.py", "tests/run.py"),
        ("node --require a.txt check.js", "check.js"),
        ("deno run -A check.js", "check.js"),
        ("tests/run.py", "tests/run.py"),
        ("./check.sh x", "check.sh"),
        ("bash -e check.sh", "check.sh"),
        ("bash -eo pipefail check.sh", "check.sh"),
        ("bash -ec ./check.sh", None),
        ("perl -e 1 check.py", None),
        ("python3 -m pytest tests/run.py", None),
        ("python3 -c pass check.py", None),
        ("sh -c ./check.sh", None),
        ("pytest -q tests/run.py", None),
        ("make check.py", None),
        ("check.sh", None),
        ("cat check.py", None),
        ("python3 solution.py check.py", None),
        ("python3 tests", None),
        ("python3", None),
        ("", None),
    ],
)
def test_the_script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, line: str, script) -> None:
    monkeypatch.chdir(tmp_path)
    Path("tests").mkdir()
    for name in ("check.py", "check.sh", "check.js", "a.txt", "tests/run.py"):
        Path(name).touch()
    found = CommandLine(line).script
    assert (found and found.path) == (script and tmp_path.resolve() / script)


def test_an_interpreter_of_the_project_is_found_from_any_workspace(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ask
) -> None:
    monkeypatch.chdir(tmp_path)
    Path(".venv/bin").mkdir(parents=True)
    Path(".venv/bin/sh").symlink_to("/bin/sh")
    Path("work").mkdir()
    Path("check.sh").write_text("test -f made-by-agent\n")
    assert not ask("command:.venv/bin/sh check.sh", cwd=str(tmp_path / "work")).pass_
    Path("work/made-by-agent").touch()
    assert ask("command:.venv/bin/sh check.sh", cwd=str(tmp_path / "work")).pass_
