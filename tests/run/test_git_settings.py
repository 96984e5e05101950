"""What an agent did to the user's repository is named, with a command that shows it."""

import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from assay.run.git_settings import changed_settings, git_settings

CHANGES = {
    "fsmonitor": ("git config core.fsmonitor ./evil", ".git/config"),
    "hook": ("printf evil > .git/hooks/pre-commit", ".git/hooks/pre-commit"),
    "mode of a hook": ("chmod +x .git/hooks/mine", ".git/hooks/mine"),
    "link": ("rm .git/hooks/mine; ln -s /bin/sh .git/hooks/mine", ".git/hooks/mine"),
    "attributes": ("mkdir -p .git/info; echo '* filter=x' > .git/info/attributes", "info/attrib"),
    "of the project": ("echo '* filter=x' > .gitattributes", ".gitattributes"),
    "submodules": ("echo x > .gitmodules", ".gitmodules"),
    "a submodule": ("mkdir -p .git/modules/m; echo x > .git/modules/m/config", "modules/m/config"),
    "alternates": ("echo /x > .git/objects/info/alternates", "objects/info/alternates"),
    "shared": ("echo ../elsewhere > .git/commondir", ".git/commondir"),
    "another repository": ("mv .git old; echo 'gitdir: old' > .git", ".git"),
    "a hook of the project": ("echo evil >> .husky/pre-commit", ".husky/pre-commit"),
    "another hook of the project": ("echo evil > .husky/pre-push", ".husky/pre-push"),
    "included settings": ("echo '[core] fsmonitor = x' >> team/gitconfig", "team/gitconfig"),
    "what included settings name": ("echo evil >> sub/clean.sh", "sub/clean.sh"),
    "the end of a large hook": (
        "printf evil | dd of=.git/hooks/large bs=1 seek=1500000 conv=notrunc status=none",
        ".git/hooks/large",
    ),
    "a FIFO": ("rm .git/config; mkfifo .git/config", ".git/config"),
}


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    folder = tmp_path / "repo"
    subprocess.run(["git", "init", "-q", folder], check=True)
    (folder / "sub").mkdir()
    (folder / ".git/hooks/mine").write_text("true\n")
    (folder / ".git/hooks/large").write_bytes(b"#" * 2_000_000)
    for name in (".husky", "team"):
        (folder / name).mkdir()
    (folder / ".husky/pre-commit").write_text("true\n")
    (folder / "sub/clean.sh").write_text("cat\n")
    (folder / "team/gitconfig").write_text('[filter "x"]\n\tclean = "sh ./sub/clean.sh %f"\n')
    for setting in ("core.hooksPath=.husky", "include.path=../team/gitconfig"):
        subprocess.run(["git", "-C", folder, "config", *setting.split("=")], check=True)
    return folder


@pytest.mark.parametrize("change", CHANGES)
def test_a_change_is_named(repository: Path, change: str) -> None:
    before = git_settings(repository / "sub")
    script, named = CHANGES[change]
    subprocess.run(["sh", "-c", script], cwd=repository, check=True)
    (said,) = changed_settings(before, git_settings(repository / "sub"))
    assert named in said
    assert "before you use git there: cat " in said


def test_what_runs_is_named_before_what_hides_it(repository: Path) -> None:
    """Names that come first hid the hook, in what is named and in what is looked at."""
    before = git_settings(repository)
    for n in range(2100):
        (repository / f".git/hooks/a{n}").touch()
    (repository / ".git/hooks/pre-commit").write_text("evil")
    subprocess.run(["git", "-C", repository, "config", "core.hooksPath", ".git/hooks"], check=True)
    (said,) = changed_settings(before, git_settings(repository))
    _, command = said.split("before you use git there: ")
    for name in ("config", "hooks/pre-commit"):
        assert f"{repository}/.git/{name}" in command
    assert ".sample" not in said


def test_settings_that_name_each_other_take_little_time(repository: Path) -> None:
    text = " ".join(f"f{n}" for n in range(300))
    for n in range(300):
        (repository / f"f{n}").write_text(text * 10)
    subprocess.run(["git", "-C", repository, "config", "a.b", text], check=True)
    began = time.process_time()
    assert str(repository / "f299") in git_settings(repository)
    assert time.process_time() - began < 2


def test_ordinary_work_is_no_change(repository: Path) -> None:
    before = git_settings(repository)
    name = ["-c", "user.name=x", "-c", "user.email=x"]
    (repository / "a").write_text("1")
    for words in (["add", "a"], ["commit", "-qm", "x"], ["tag", "t"], ["gc", "-q"], ["status"]):
        subprocess.run(["git", *name, *words], cwd=repository, check=True, capture_output=True)
    assert changed_settings(before, git_settings(repository)) == []


def test_a_repository_that_an_agent_makes_is_named(tmp_path: Path) -> None:
    before = git_settings(tmp_path)
    assert before == {}
    subprocess.run(["git", "init", "-q", tmp_path], check=True)
    assert str(tmp_path / ".git") in changed_settings(before, git_settings(tmp_path))[0]


@pytest.mark.parametrize("mode", [(), ("--sandbox",)])
def test_the_row_and_the_terminal_say_it(
    request: pytest.FixtureRequest,
    repository: Path,
    assay: Callable,
    prompts: Callable,
    mode: tuple[str, ...],
) -> None:
    if mode:
        request.getfixturevalue("bubblewrap")
    shell = "git config core.fsmonitor ./evil; echo evil > .git/hooks/pre-commit; echo done"
    done = assay("capture", prompts("x"), "--shell", shell, "-c", repository, *mode)
    (row,) = done.rows
    (warning,) = row["warnings"]
    for place in (".git/config", ".git/hooks/pre-commit"):
        assert str(repository / place) in warning
        assert str(repository / place) in done.stderr


def test_an_agent_in_a_workspace_reaches_the_repository_all_the_same(
    repository: Path, assay: Callable, prompts: Callable
) -> None:
    words = ("--shell", f"git -C {repository} config core.fsmonitor ./evil; echo $PROMPT")
    done = assay("capture", prompts("x"), *words, "--isolate", "-c", repository)
    (warning,) = done.rows[0]["warnings"]
    assert str(repository / ".git/config") in warning


def test_worktrees_that_share_a_repository_are_looked_at_once(repository: Path) -> None:
    git = ["git", "-C", str(repository), "-c", "user.name=a", "-c", "user.email=a@b.c"]
    subprocess.run([*git, "commit", "-q", "--allow-empty", "-m", "first"], check=True)
    for name in ("one", "two", "three"):
        subprocess.run([*git, "worktree", "add", "-q", f"../{name}"], check=True)
    found = git_settings(repository.with_name("two"))
    assert len(found) < 60
    assert str(repository / ".git" / "config") in found
