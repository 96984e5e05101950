"""A user's own grader that asks git sees what the agent changed, wherever the agent worked."""

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

STATUS = 'git -C "$cwd" status --porcelain --untracked-files=all'
SHELL = (
    "#!/bin/sh\n"
    """cwd=$(sed 's/.*"cwd":"\\([^"]*\\)".*/\\1/')\n"""
    f's=$({STATUS}; git -C "$cwd" diff --name-only; git -C "$cwd" log --format=%s -1) || exit 1\n'
    'printf "%s" "$s" | python3 -c "import json,sys; '
    """print(json.dumps({'pass': True, 'score': 1, 'reasoning': sys.stdin.read()}))"\n"""
)
PYTHON = """
import subprocess

def grade(output, cwd):
    def git(*words):
        return subprocess.run(
            ["git", *words], cwd=cwd, check=True, capture_output=True, text=True
        ).stdout
    status = git("status", "--porcelain", "--untracked-files=all")
    words = status + git("diff", "--name-only") + git("log", "--format=%s", "-1")
    return {"pass": True, "score": 1, "reasoning": words}
"""
MODULE = """
import { execFileSync } from "node:child_process";

export const grade = async ({ cwd }) => {
  const git = (...words) => execFileSync("git", ["-C", cwd, ...words], { encoding: "utf8" });
  const status = git("status", "--porcelain", "--untracked-files=all");
  const reasoning = status + git("diff", "--name-only") + git("log", "--format=%s", "-1");
  return { pass: true, score: 1, reasoning };
};
"""
GRADERS = {"sh.sh": SHELL, "py.py": PYTHON, "js.mjs": MODULE}
WORK = "say ok; echo three >> a.txt; rm old.txt; mkdir -p d; echo new > d/new.txt; : > x.log"


@pytest.fixture
def git(tmp_path: Path) -> Callable[..., None]:
    def run(*words: str, cwd: Path = tmp_path) -> None:
        name = ("-c", "user.name=t", "-c", "user.email=t@t")
        subprocess.run(["git", "-C", cwd, *name, *words], check=True, capture_output=True)

    return run


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "project"
    made.mkdir()
    (made / "a.txt").write_text("one\ntwo\n")
    (made / "old.txt").write_text("old\n")
    (made / ".gitignore").write_text("*.log\n")
    return made


@pytest.fixture
def graded(
    assay: Callable, prompts: Callable, shell_agent: Path, tmp_path: Path
) -> Callable[..., dict[str, str]]:
    """Capture one trial with all graders; return what each said."""
    graders: list[Any] = []
    for name, text in GRADERS.items():
        path = tmp_path / name
        path.write_text(text)
        path.chmod(0o755 if name.endswith(".sh") else 0o644)
        graders += ["-g", path]

    def capture(script: str, *options: Any) -> dict[str, str]:
        done = assay("capture", prompts(script), "-s", shell_agent, *graders, *options, "-o", "-")
        assert done.code == 0, done.stderr
        [row] = done.rows
        assert "failure" not in row, row["failure"]
        assert "graderFailures" not in row, row["graderFailures"]
        return {name: grade["reasoning"] for name, grade in row["grades"].items()}

    return capture


def changed(said: dict[str, str]) -> set[str]:
    """Check that all graders saw the same; return the lines of the status."""
    assert len(said) == len(GRADERS)
    assert len({text.strip() for text in said.values()}) == 1, said
    lines = next(iter(said.values())).splitlines()
    return {line for line in lines if line[2:3] == " "}


EXPECTED = {" M a.txt", " D old.txt", "?? d/new.txt"}


@pytest.mark.parametrize("how", ["template", "isolated", "workspace-dir", "repository"])
def test_git_says_what_the_agent_changed(
    how: str, folder: Path, git: Callable, graded: Callable, tmp_path: Path
) -> None:
    options: list[Any] = ["--workspace-template", folder]
    if how == "isolated":
        options += ["--isolate"]
    elif how == "workspace-dir":
        options += ["--workspace-dir", tmp_path / "spaces"]
    elif how == "repository":
        git("init", "-q", cwd=folder)
        git("add", ".", cwd=folder)
        git("commit", "-qm", "first commit", cwd=folder)
        options = ["-c", folder]
    said = graded(WORK, *options)
    assert changed(said) == EXPECTED
    for text in said.values():
        assert "\na.txt\nold.txt\n" in text, "git diff names the changed files"
        assert ("first commit" if how == "repository" else "Before the trial") in text


def test_changes_from_before_the_trial_are_not_the_agents(
    folder: Path, git: Callable, graded: Callable
) -> None:
    git("init", "-q", cwd=folder)
    git("add", ".", cwd=folder)
    git("commit", "-qm", "first commit", cwd=folder)
    (folder / "a.txt").write_text("mine\n")
    (folder / "mine.txt").write_text("mine\n")
    assert changed(graded("say ok; : > only.txt", "-c", folder)) == {"?? only.txt"}


@pytest.mark.parametrize("has_git", [False, True])
def test_an_agent_can_neither_hide_its_work_nor_have_its_settings_used(
    has_git: bool, folder: Path, git: Callable, graded: Callable, tmp_path: Path
) -> None:
    if has_git:
        git("init", "-q", cwd=folder)
        git("add", ".", cwd=folder)
        git("commit", "-qm", "first commit", cwd=folder)
    harm = tmp_path / "harm"
    trap = f"touch {harm}"
    script = (
        f"{WORK}; git init -q . 2>/dev/null; git config core.fsmonitor '{trap};false'; "
        f"git config core.hooksPath hooks; mkdir hooks; echo '{trap}' > hooks/post-index-change; "
        f"chmod +x hooks/*; git config diff.external '{trap}'; "
        f"git config filter.f.clean '{trap};cat'; echo '*.txt filter=f' > .git/info/attributes; "
        "git config user.name a; git config user.email a@a; git add -A; git commit -qm mine; "
        "git update-index --assume-unchanged a.txt; rm -rf hooks"
    )
    git_config = script + f"; rm -f {harm}"
    said = graded(git_config, "--workspace-template", folder)
    assert changed(said) == EXPECTED
    assert not harm.exists()


def test_the_folder_and_the_repository_of_the_user_are_left_as_they_are(
    folder: Path, git: Callable, graded: Callable, assay: Callable, tmp_path: Path
) -> None:
    git("init", "-q", cwd=folder)
    git("add", ".", cwd=folder)
    git("commit", "-qm", "first commit", cwd=folder)
    config = (folder / ".git/config").read_bytes()
    graded("say ok; : > only.txt", "-c", folder)
    assert (folder / ".git/config").read_bytes() == config
    assert sorted(p.name for p in folder.iterdir()) == [
        *(".git", ".gitignore", "a.txt", "old.txt", "only.txt"),
    ]
    subprocess.run(["git", "-C", folder, "fsck"], check=True, capture_output=True)


def test_trials_at_once_and_a_command(
    assay: Callable, prompts: Callable, shell_agent: Path, folder: Path, tmp_path: Path
) -> None:
    """Each trial has a repository of its own; a command line that names git finds it, too."""
    scripts = [f"say ok; echo {n} > made-{n}.txt" for n in range(4)]
    (tmp_path / "py.py").write_text(PYTHON)
    done = assay(
        *("capture", prompts(*scripts), "-s", shell_agent, "--workspace-template", folder),
        *("-g", tmp_path / "py.py", "-j", "4", "-o", "-"),
        *("-g", json.dumps({"sh": "git status --porcelain | grep -q made"}).join(["command:", ""])),
    )
    assert done.code == 0, done.stderr
    for row in done.rows:
        assert "grades" in row, row
        name = row["input"].split("> ")[1]
        assert row["grades"]["py"]["reasoning"].startswith(f"?? {name}\n")
        assert row["grades"]["command"]["pass"], row


def test_a_grader_without_git_costs_no_repository(
    assay: Callable, prompts: Callable, shell_agent: Path, tmp_path: Path
) -> None:
    (tmp_path / "own.py").write_text(
        "import os\n\ndef grade(output):\n"
        "    return {'pass': 'GI' 'T_DIR' not in os.environ, 'score': 1}\n"
    )
    done = assay(
        "capture", prompts("say ok"), "-s", shell_agent, "-g", tmp_path / "own.py", "-o", "-"
    )
    assert done.rows[0]["score"]["pass"] is True


GIT_GRADER = """
export const grade = async ({ output, hint, cwd }) => {
  if (!cwd) return { pass: false, score: 0, reasoning: "No cwd" };
  const status = await Bun.$`git -C ${cwd} status --porcelain`.text();
  const filesCreated = status
    .split("\\n")
    .filter((line) => line.startsWith("??"))
    .map((line) => line.slice(3).trim());
  const testResult = await Bun.$`cd ${cwd} && bun test`.nothrow().quiet();
  return {
    pass: filesCreated.length > 0 && testResult.exitCode === 0,
    score: testResult.exitCode === 0 ? 1 : 0,
    reasoning: `Files: ${filesCreated.join(", ")}`,
    outcome: { filesCreated, testsPassed: testResult.exitCode === 0 },
  };
};
"""


def test_a_git_grader_for_bun_works_in_a_template(
    assay: Callable, prompts: Callable, shell_agent: Path, folder: Path, tmp_path: Path, bun: Path
) -> None:
    """As the reference's documentation shows one."""
    import os

    (tmp_path / "git-grader.ts").write_text(GIT_GRADER)
    (folder / "one.test.ts").write_text(
        'import { expect, test } from "bun:test";\ntest("adds", () => expect(1 + 1).toBe(2));\n'
    )
    done = assay(
        *("capture", prompts("say ok; echo x > made.txt"), "-s", shell_agent),
        *("--workspace-template", folder, "-g", tmp_path / "git-grader.ts", "-o", "-"),
        env={"PATH": f"{bun}:{os.environ['PATH']}"},
    )
    assert done.code == 0, done.stderr
    assert done.rows[0]["score"]["outcome"] == {"filesCreated": ["made.txt"], "testsPassed": True}
