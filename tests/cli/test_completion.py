"""What a shell is told of commands, options, agents and graders; bash itself asks in one test."""

import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from assay.cli.completion import answer
from assay.cli.group import cli
from assay.cli.help import COMMANDS


@pytest.fixture
def offered(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., list[str]]:
    """What bash is offered for the last of some words."""

    def ask(*words: str) -> list[str]:
        monkeypatch.setenv("_ASSAY_COMPLETE", "bash_complete")
        monkeypatch.setenv("COMP_WORDS", shlex.join(("assay", *words)))
        monkeypatch.setenv("COMP_CWORD", str(len(words)))
        answer(cli)
        return capsys.readouterr().out.splitlines()

    return ask


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("comp",), ["plain,compare", "plain,completion"]),
        (("arc", "repl"), ["plain,replay"]),
        (("ab", "status", "--che"), ["plain,--check"]),
        (("capture", "p.jsonl", "-s", "cla"), ["plain,claude"]),
        (("trials", "-g", "cont"), ["plain,contains"]),
        (("grade", "--grader", "./my"), ["file,./my"]),
        (("compare", "--fail-on", "reg"), ["plain,regression"]),
        (("compare", "--nosuch"), []),
        (("query", "SELECT 1", "run"), ["file,run"]),
        (("compare", "runs/a"), ["file,runs/a"]),
    ],
)
def test_what_may_follow(offered, words, expected):
    assert offered(*words) == expected


def test_all_commands_are_offered_and_none_is_loaded(monkeypatch, offered):
    monkeypatch.setattr(type(cli), "get_command", lambda *_: pytest.fail("it was loaded"))
    found = {line.removeprefix("plain,") for line in offered("")}
    assert found >= {*COMMANDS, "arc"}


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_each_shell_has_its_lines(assay: Callable, shell: str) -> None:
    done = assay("completion", shell)
    assert done.code == 0
    assert f"_ASSAY_COMPLETE={shell}_complete" in done.stdout


def test_the_shell_of_the_user_is_the_default(assay: Callable) -> None:
    assert "fish_complete" in assay("completion", env={"SHELL": "/usr/bin/fish"}).stdout
    done = assay("completion", env={"SHELL": "/bin/tcsh"})
    assert done.code == 2
    assert "Name the shell: bash, zsh, fish." in done.stderr


@pytest.mark.cold
def test_bash_itself_completes(tmp_path: Path) -> None:
    script = (
        'eval "$(assay completion bash)"; COMP_WORDS=(assay compl); COMP_CWORD=1; '
        '_assay_completion assay compl assay; echo "${COMPREPLY[@]}"'
    )
    path = f"{Path(sys.executable).parent}:/usr/bin:/bin"
    done = subprocess.run(
        ["bash", "--norc", "-c", script],
        env={"PATH": path, "HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert (done.stdout, done.stderr) == ("completion\n", "")
