"""command and git: what they find in the folder an agent left, hostile ones included."""

import os
import subprocess
import time

import pytest

from assay.errors import PluginError

HOSTILE = "$(touch pwned); `touch pwned` && touch pwned | '\" \n -rf --help"


@pytest.fixture
def repo(tmp_path):
    folder = tmp_path / "repo"
    folder.mkdir()
    git(folder, "init", "-q")
    (folder / "a.txt").write_text("one\n")
    (folder / "b.txt").write_text("two\n")
    git(folder, "add", ".")
    git(folder, "-c", "user.name=t", "-c", "user.email=t@t", "commit", "-qm", "first")
    return folder


def git(folder, *words):
    subprocess.run(["git", "-C", str(folder), *words], check=True, capture_output=True)


def test_the_exit_code_judges(ask, tmp_path) -> None:
    assert ask("command:test -d .", cwd=str(tmp_path)).pass_
    failed = ask("command:sh=echo the tail; echo err >&2; exit 3", cwd=str(tmp_path))
    assert (failed.pass_, failed.score) == (False, 0)
    assert failed.reasoning == "exit code 3\nthe tail\nerr"
    assert ask("command:sh=exit 3,exit_code=3", cwd=str(tmp_path)).pass_
    assert ask('command:{"run": ["test", "a b", "=", "a b"]}', cwd=str(tmp_path)).pass_
    assert ask("command:test 'a b' = 'a b'", cwd=str(tmp_path)).pass_


def test_the_command_runs_in_the_workspace(ask, tmp_path) -> None:
    (tmp_path / "made-by-agent").touch()
    assert ask("command:test -f made-by-agent", cwd=str(tmp_path)).pass_


def test_nothing_the_agent_says_becomes_a_command(ask, tmp_path) -> None:
    fields = {"input": HOSTILE, "hint": HOSTILE, "metadata": {"x": HOSTILE}, "cwd": str(tmp_path)}
    assert ask("command:true", HOSTILE, **fields).pass_
    assert ask("command:sh=true", HOSTILE, **fields).pass_
    assert not list(tmp_path.glob("**/pwned"))


def test_no_workspace_is_not_the_agents_fault(ask, tmp_path) -> None:
    for grader in ("command:true", "git"):
        with pytest.raises(PluginError, match="no workspace"):
            ask(grader)
        with pytest.raises(PluginError, match="gone"):
            ask(grader, cwd=str(tmp_path / "gone"))


def test_a_command_that_cannot_run_is_not_the_agents_fault(ask, tmp_path) -> None:
    for grader in ("command:no-such-program-here", "command:sh=no-such-program-here"):
        with pytest.raises(Exception, match="not found"):
            ask(grader, cwd=str(tmp_path))


def test_a_command_that_hangs_is_ended_with_its_children(ask, tmp_path) -> None:
    script = "setsid sleep 600.815 & sleep 600.815"
    began = time.monotonic()
    with pytest.raises(PluginError, match=r"did not end in 0\.5 s"):
        ask(f"command:sh={script}", cwd=str(tmp_path), timeout_s=0.5)
    slow = ask(f"command:sh={script},limit_s=0.5", cwd=str(tmp_path), timeout_s=20)
    assert (slow.pass_, slow.reasoning.splitlines()[0]) == (False, "did not end in 0.5 s")
    assert time.monotonic() - began < 12
    commands = subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True, check=True)
    assert "600.815" not in commands.stdout


def test_a_flood_of_output_is_cut(ask, tmp_path) -> None:
    grade = ask("command:sh=yes | head -c 40000000; echo END; exit 1", cwd=str(tmp_path))
    assert grade.reasoning.endswith("END")
    assert len(grade.reasoning) < 2000


def test_git_sees_what_changed(ask, repo) -> None:
    (repo / "a.txt").write_text("one\nmore\n")
    (repo / "b.txt").unlink()
    (repo / "new").mkdir()
    (repo / "new" / "file.py").write_text("x\n")
    grade = ask("git", cwd=str(repo))
    assert grade.pass_
    assert grade.outcome == {
        "type": "git",
        "filesCreated": ["new/file.py"],
        "filesModified": ["a.txt"],
        "filesDeleted": ["b.txt"],
        "filesChanged": 3,
        "insertions": 2,
        "deletions": 1,
    }
    sub = ask("git:changed=new/*", cwd=str(repo / "new"))
    assert sub.outcome["filesCreated"] == ["new/file.py"]


@pytest.mark.parametrize(
    ("options", "passes"),
    [
        ("changed=a.txt", True),
        ("changed=b.txt", False),
        ("unchanged=b.txt", True),
        ("unchanged=*.txt", False),
        ("max_files=1", True),
        ("max_files=0", False),
        ("max_lines=1", True),
        ("max_lines=0", False),
        ("test=grep -q more a.txt", True),
        ("test=grep -q missing a.txt,changed=a.txt", False),
    ],
)
def test_git_conditions(ask, repo, options, passes) -> None:
    (repo / "a.txt").write_text("one\nmore\n")
    grade = ask(f"git:{options}", cwd=str(repo))
    assert grade.pass_ is passes
    if "test=" in options:
        assert grade.outcome["testsPassed"] is passes


def test_git_tests_that_cannot_be_started_are_not_the_agents_fault(ask, repo) -> None:
    (repo / "a.txt").write_text("one\nmore\n")
    with pytest.raises(PluginError, match="was not found"):
        ask("git:test=sh -c no-such-command-4711", cwd=str(repo))


def test_git_no_change_fails_and_base_sees_commits(ask, repo) -> None:
    assert not ask("git", cwd=str(repo)).pass_
    git(repo, "tag", "start")
    (repo / "a.txt").write_text("committed\n")
    git(repo, "-c", "user.name=t", "-c", "user.email=t@t", "commit", "-qam", "second")
    assert not ask("git", cwd=str(repo)).pass_
    assert ask("git:base=start", cwd=str(repo)).pass_
    with pytest.raises(PluginError, match="rev-parse"):
        ask("git:base=--output=pwned", cwd=str(repo))


def test_git_works_before_the_first_commit_and_needs_a_repository(ask, tmp_path) -> None:
    folder = tmp_path / "fresh"
    folder.mkdir()
    with pytest.raises(PluginError, match="not a git repository"):
        ask("git", cwd=str(folder))
    git(folder, "init", "-q")
    (folder / "x").touch()
    assert ask("git", cwd=str(folder)).outcome["filesCreated"] == ["x"]


def test_git_refuses_a_folder_that_the_repository_around_it_ignores(ask, repo) -> None:
    (repo / ".gitignore").write_text("work/\n")
    (repo / "work").mkdir()
    (repo / "work" / "x").touch()
    with pytest.raises(PluginError, match="ignored"):
        ask("git", cwd=str(repo / "work"))


def test_hostile_file_names_are_only_names(ask, repo) -> None:
    names = ["--help", "a\nb", "$(touch pwned)", 'q"uote', "ünï", "a\tb"]
    for name in names:
        (repo / name).write_text("x\n")
    os.close(os.open(os.fsencode(repo) + b"/bad-\xff", os.O_CREAT | os.O_WRONLY))
    created = ask("git", cwd=str(repo)).outcome["filesCreated"]
    assert set(names) < set(created)
    assert len(created) == len(names) + 1
    assert not (repo / "pwned").exists()


def test_programs_named_by_a_hostile_repository_are_not_run(ask, repo, tmp_path) -> None:
    mark = tmp_path / "pwned"
    touch = f"touch {mark}; cat"
    for name in ("evil", "a=b"):
        with (repo / ".git" / "config").open("a") as config:
            config.write(f'[filter "{name}"]\n clean = {touch!r}\n smudge = {touch!r}\n')
            config.write(f' required = true\n[diff "{name}"]\n command = {touch!r}\n')
            config.write(f" textconv = {touch!r}\n".replace("'", '"'))
    config = (repo / ".git" / "config").read_text().replace("'", '"')
    config += f'[core]\n fsmonitor = "{touch}"\n[diff]\n external = "{touch}"\n'
    (repo / ".git" / "config").write_text(config)
    (repo / ".gitattributes").write_text("a.txt filter=evil diff=evil\nb.txt filter=a=b diff=a=b\n")
    (repo / "a.txt").write_text("changed by the agent\n")
    (repo / "b.txt").write_text("changed by the agent\n")
    grade = ask("git", cwd=str(repo))
    assert grade.outcome["filesModified"] == ["a.txt", "b.txt"]
    assert not mark.exists()
    subprocess.run(["git", "-C", str(repo), "diff"], capture_output=True, check=False)
    assert mark.exists(), "the trap itself does not work"
