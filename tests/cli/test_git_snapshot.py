"""The git grader counts what the agent did, and nothing else, wherever the agent worked."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.fixture
def git(tmp_path):
    def run(*words: str, cwd: Path = tmp_path) -> None:
        name = ("-c", "user.name=t", "-c", "user.email=t@t")
        subprocess.run(["git", "-C", cwd, *name, *words], check=True, capture_output=True)

    return run


@pytest.fixture
def repository(tmp_path, git) -> Path:
    """The test's folder, where the agents work and the output is, as a clean repository."""
    (tmp_path / "a.txt").write_text("one\ntwo\n")
    (tmp_path / "old.txt").write_text("old\n")
    (tmp_path / ".gitignore").write_text("build/\n*.log\nagent-*.json\nprompts-*.jsonl\npeak-*\n")
    git("init", "-q")
    git("add", ".")
    git("commit", "-qm", "first")
    return tmp_path


@pytest.fixture
def template(tmp_path) -> Path:
    folder = tmp_path / "template"
    folder.mkdir()
    (folder / "a.txt").write_text("one\ntwo\n")
    (folder / "old.txt").write_text("old\n")
    return folder


@pytest.fixture
def in_place(assay, prompts, shell_agent, tmp_path):
    def capture(script: str, grader: str = "git") -> dict:
        done = assay(
            *("capture", prompts(script), "-s", shell_agent, "-g", grader),
            *("-o", "out.jsonl", "--overwrite"),
        )
        assert "Traceback" not in done.stderr
        return json.loads((tmp_path / "out.jsonl").read_text())

    return capture


@pytest.fixture
def in_template(assay, prompts, shell_agent, template, tmp_path):
    def capture(script: str, grader: str = "git") -> dict:
        done = assay(
            *("capture", prompts(script), "-s", shell_agent, "-g", grader),
            *("--workspace-template", template, "--workspace-dir", tmp_path / "work"),
            *("-o", "out.jsonl", "--overwrite"),
        )
        assert "Traceback" not in done.stderr
        return json.loads((tmp_path / "out.jsonl").read_text())

    return capture


def files(row: dict) -> tuple[list[str], list[str], list[str]]:
    found = row["score"]["outcome"]
    return found["filesCreated"], found["filesModified"], found["filesDeleted"]


def lines(row: dict) -> tuple[int, int]:
    return row["score"]["outcome"]["insertions"], row["score"]["outcome"]["deletions"]


# In the user's own folder.


def test_an_agent_that_did_nothing_never_passes(repository, in_place) -> None:
    row = in_place("R")
    assert row["score"]["pass"] is False
    assert row["score"]["reasoning"] == "0 files changed, 0 lines; nothing changed"
    assert files(row) == ([], [], [])


@pytest.mark.parametrize("redirected", [True, False])
def test_nothing_that_assay_writes_counts(
    repository, prompts, shell_agent, tmp_path, redirected
) -> None:
    given = prompts("R", "R", "R")
    argv = [sys.executable, "-m", "assay", "trials", str(given), "-s", str(shell_agent)]
    argv += ["-g", "git", "-k", "2", "--raw-dir", "streams", "--progress"]
    out = tmp_path / "trials.jsonl"
    with (
        (out if redirected else tmp_path / "unused").open("wb") as stdout,
        (tmp_path / "noise.txt").open("wb") as stderr,
    ):
        argv += [] if redirected else ["-o", "trials.jsonl"]
        subprocess.run(argv, cwd=tmp_path, stdout=stdout, stderr=stderr, check=True)
    rows = [json.loads(line) for line in out.read_text().splitlines()]
    assert [row["passRate"] for row in rows] == [0.0, 0.0, 0.0]
    assert all(trial["changes"]["nFiles"] == 0 for row in rows for trial in row["trials"])


def test_what_the_user_had_not_committed_is_not_the_agents(repository, in_place) -> None:
    (repository / "a.txt").write_text("changed by the user\n")
    (repository / "mine.txt").write_text("new\n")
    (repository / "old.txt").unlink()
    assert in_place("R")["score"]["reasoning"].endswith("nothing changed")
    row = in_place("echo more >> a.txt; echo b > b.txt; R")
    assert files(row) == (["b.txt"], ["a.txt"], [])
    assert lines(row) == (2, 0)


def test_each_trial_is_compared_with_what_it_found(repository, assay, prompts, shell_agent) -> None:
    given = prompts("echo 1 > one.txt; R", "R", "echo 2 >> one.txt; R")
    done = assay("capture", given, "-s", shell_agent, "-g", "git")
    assert [files(row) for row in done.rows] == [
        (["one.txt"], [], []),
        ([], [], []),
        ([], ["one.txt"], []),
    ]


def test_new_files_count_in_max_lines(repository, in_place) -> None:
    row = in_place("seq 10000 > big.txt; R", "git:max_lines=10")
    assert row["score"]["pass"] is False
    assert "more than 10 lines" in row["score"]["reasoning"]
    assert lines(row) == (10000, 0)
    assert in_place("seq 10 > ten.txt; R", "git:max_lines=10")["score"]["pass"] is True


def test_files_that_the_user_ignores_do_not_count(repository, in_place) -> None:
    (repository / "sub").mkdir()
    (repository / "sub" / ".gitignore").write_text("/here.txt\nany.txt\n!kept.log\n")
    script = (
        "mkdir -p build sub/deep; touch build/x a.log sub/here.txt sub/deep/any.txt sub/kept.log; "
        "touch sub/deep/here.txt; R"
    )
    assert files(in_place(script)) == (["sub/deep/here.txt", "sub/kept.log"], [], [])


def test_an_ignored_file_that_is_tracked_counts(repository, git, in_place) -> None:
    (repository / "tracked.log").write_text("x\n")
    git("add", "-f", "tracked.log")
    assert files(in_place("echo y > tracked.log; R")) == ([], ["tracked.log"], [])


def test_a_folder_inside_a_repository(repository, assay, prompts, shell_agent) -> None:
    (repository / "sub").mkdir()
    given = prompts("echo x > x.txt; echo y > ../y.txt; touch z.log; R")
    done = assay("capture", given, "-s", shell_agent, "-g", "git:changed=sub/*", "-c", "sub")
    assert files(done.rows[0]) == (["sub/x.txt"], [], [])
    assert done.rows[0]["score"]["pass"] is True


# In a workspace that a template made.


def test_a_template_without_a_repository(in_template) -> None:
    row = in_template("echo three >> a.txt; rm old.txt; echo n > new.txt; R")
    assert row["score"]["pass"] is True
    assert files(row) == (["new.txt"], ["a.txt"], ["old.txt"])
    assert lines(row) == (2, 1)
    assert in_template("R")["score"]["pass"] is False


def test_a_snapshot_is_taken_only_for_a_grader_that_wants_one(in_template) -> None:
    assert "changes" in in_template("R", "git")
    assert "changes" not in in_template("R", "contains:ok")
    assert "changes" not in in_template("R", "git:base=HEAD")


AGENT = "git config user.name a; git config user.email a@a"
TRICKS = {
    "commits its work": (
        f"git init -q; {AGENT}; echo x > x.txt; git add -A; git commit -qm work; R",
        (["x.txt"], [], []),
    ),
    "adds a .gitignore": (
        "printf '*\\n' > .gitignore; echo x > x.txt; R",
        ([".gitignore", "x.txt"], [], []),
    ),
    "ignores by its own repository": (
        "git init -q; echo '*' > .git/info/exclude; echo x > x.txt; R",
        (["x.txt"], [], []),
    ),
    "renames": ("mv old.txt new-name.txt; R", (["new-name.txt"], [], ["old.txt"])),
    "makes a file executable": ("chmod +x a.txt; R", ([], ["a.txt"], [])),
    "replaces a file by a link": (
        "rm a.txt; ln -s /etc/passwd a.txt; R",
        ([], ["a.txt"], []),
    ),
    "adds a binary file": ("head -c 5000 /dev/zero > data.bin; R", (["data.bin"], [], [])),
    "makes a nested repository": (
        "mkdir in; cd in; git init -q; echo x > hidden.txt; git add -A; R",
        (["in/hidden.txt"], [], []),
    ),
    "makes odd names": (
        "mkdir -p .GIT 'git~1'; echo x > .GIT/config; echo x > 'git~1/y'; touch $'a\\nb' -- -f; R",
        ([".GIT/config", "-f", "a\nb", "git~1/y"], [], []),
    ),
    "makes what is no file": ("mkfifo pipe; mkdir empty; R", ([], [], [])),
    "touches without a change": ("touch a.txt; R", ([], [], [])),
    "changes and takes it back": ("cp a.txt b; echo x >> a.txt; mv b a.txt; R", ([], [], [])),
    "runs tests": ("mkdir -p __pycache__ .pytest_cache; touch __pycache__/a .pytest_cache/b; R",
                   ([], [], [])),
    "removes everything": ("rm -rf ./* .[a-z]*; R", ([], [], ["a.txt", "old.txt"])),
    "removes its folder": ('cd ..; rm -rf "$OLDPWD"; R', ([], [], ["a.txt", "old.txt"])),
}  # fmt: skip


@pytest.mark.parametrize("trick", TRICKS)
def test_whatever_an_agent_does_is_counted(in_template, trick) -> None:
    script, wanted = TRICKS[trick]
    row = in_template(script)
    assert "graderFailures" not in row, row["graderFailures"]
    created, modified, deleted = wanted
    assert files(row) == (sorted(created), modified, deleted)
    assert row["score"]["pass"] is any(wanted)
    if trick == "adds a binary file":
        assert lines(row) == (0, 0)


def test_an_agent_that_deletes_the_users_git_folder_is_still_measured(repository, in_place) -> None:
    row = in_place("rm -rf .git; echo x >> a.txt; R")
    assert files(row) == ([], ["a.txt"], [])
    assert lines(row) == (1, 0)


@pytest.mark.skipif(os.geteuid() == 0, reason="root can read every file")
def test_a_file_that_cannot_be_read_counts_as_changed(in_template) -> None:
    assert files(in_template("chmod 000 a.txt; R")) == ([], ["a.txt"], [])


def test_settings_of_a_repository_start_no_program(repository, git, in_place, tmp_path) -> None:
    evil = tmp_path / "evil.sh"
    evil.write_text(f"#!/bin/sh\ntouch {tmp_path}/pwned.log\n")
    evil.chmod(0o755)
    git("config", "core.fsmonitor", str(evil))
    row = in_place(f"git config core.hooksPath {tmp_path}; echo x >> a.txt; R")
    assert row["score"]["pass"] is True
    assert not (tmp_path / "pwned.log").exists()


def test_line_numbers_of_changed_files_are_gits(repository, git, in_place, tmp_path) -> None:
    (tmp_path / "many.txt").write_text("".join(f"{n}\n" for n in range(1000)))
    git("add", ".")
    git("commit", "-qm", "many")
    row = in_place("sed -i 's/7/x/; 100,110d' many.txt; printf 'no end' >> a.txt; R")
    words = ["git", "diff", "--numstat", "--", "many.txt", "a.txt"]
    told = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True).stdout
    numbers = [line.split()[:2] for line in told.splitlines()]
    assert lines(row) == (sum(int(n) for n, _ in numbers), sum(int(n) for _, n in numbers))


def test_the_snapshot_is_not_in_a_sandbox(
    bubblewrap, assay, prompts, shell_agent, template
) -> None:
    given = prompts('say "$(ls -d /tmp/assay-snapshot-* | wc -l)"')
    common = ("capture", given, "-s", shell_agent, "-g", "git", "--workspace-template", template)
    free = assay(*common, env={"TMPDIR": "/tmp"})
    confined = assay(*common, "--sandbox", env={"TMPDIR": "/tmp"})
    assert int(free.rows[0]["output"]) > 0
    assert confined.rows[0]["output"] == "0", confined.stderr
    assert "score" in confined.rows[0]


def test_a_machine_without_git_is_refused_before_the_first_agent(
    assay, prompts, shell_agent, tmp_path
) -> None:
    (tmp_path / "bin").mkdir()
    for name in ("bash", "touch"):
        (tmp_path / "bin" / name).symlink_to(f"/usr/bin/{name}")
    given = prompts("touch ran; R")
    done = assay(
        "capture", given, "-s", shell_agent, "-g", "git", env={"PATH": str(tmp_path / "bin")}
    )
    assert done.code == 1
    assert "needs git, which is not installed" in done.stderr
    assert not (tmp_path / "ran").exists()


# Where the agent worked is in the row, for a later grade.


def test_every_row_says_where_the_agent_worked(
    assay, prompts, shell_agent, template, tmp_path
) -> None:
    given = prompts("R")
    common = ("-s", shell_agent)
    place = ("--workspace-template", template, "--workspace-dir", "work")
    assert assay("capture", given, *common).rows[0]["cwd"] == str(tmp_path)
    own = assay("capture", given, *common, *place).rows[0]
    assert own["cwd"] == own["metadata"]["workspaceDir"]
    trial = assay("trials", given, *common, *place, "-k", 1).rows[0]["trials"][0]
    assert trial["cwd"] == trial["workspaceDir"]
    raw = assay("run", given, *common)
    extracted = assay("extract", *common, stdin=raw.stdout)
    assert extracted.rows[0]["cwd"] == str(tmp_path)
    nowhere = assay("capture", given, "-s", "demo", "-c", "/nowhere")
    assert nowhere.code == 1


def test_a_later_grade_sees_the_same_changes_even_without_the_workspace(
    in_template, assay, tmp_path
) -> None:
    row = in_template("seq 5 > new.txt; R")
    subprocess.run(["rm", "-rf", row["cwd"]], check=True)
    done = assay("grade", "out.jsonl", "-g", "git:max_lines=4")
    assert done.code == 0, done.stderr
    assert done.rows[0]["score"]["pass"] is False
    assert files(done.rows[0]) == (["new.txt"], [], [])


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ("true", None),
        ("mkdir __pycache__; touch __pycache__/x.pyc", None),
        ("touch more.txt", "the workspace has changed since the agent left it: "),
        ("echo x >> new.txt", "the workspace has changed since the agent left it: "),
        ("rm a.txt", "the workspace has changed since the agent left it: "),
        ('cd ..; rm -rf "$OLDPWD"', "the workspace is gone: "),
    ],
)
def test_later_tests_run_in_the_same_tree_or_not_at_all(in_template, assay, change, said) -> None:
    row = in_template("echo x > new.txt; R")
    subprocess.run(["bash", "-c", change], cwd=row["cwd"], check=True)
    done = assay("grade", "out.jsonl", "-g", "git:test=test -f new.txt")
    if said is None:
        assert done.rows[0]["score"]["outcome"]["testsPassed"] is True, done.rows
    else:
        assert done.code == 1
        assert done.rows[0]["graderFailures"]["git"].startswith(said)


def test_later_tests_in_the_users_folder(repository, in_place, assay) -> None:
    in_place("echo x > new.txt; R")
    given = ("grade", "out.jsonl", "-g", "git:test=test -f new.txt")
    assert assay(*given, "-o", "graded.jsonl").code == 0
    done = assay(*given)  # what Assay wrote there since then does not count
    assert done.rows[0]["score"]["pass"] is True
    (repository / "a.txt").write_text("other\n")
    assert "has changed since" in assay(*given).rows[0]["graderFailures"]["git"]


def test_tests_of_several_graders_run_one_after_the_other(in_template) -> None:
    row = in_template("echo x > new.txt; R", "git:test=touch made-by-the-tests")
    assert row["score"]["pass"] is True


def test_rows_without_a_snapshot(in_template, in_place, assay, template, git, repository) -> None:
    in_place("echo x > new.txt; R", "contains:ok")
    done = assay("grade", "out.jsonl", "-g", "git")
    assert done.code == 1
    assert "no snapshot was taken" in done.rows[0]["graderFailures"]["git"]
    named = assay("grade", "out.jsonl", "-g", "git:base=HEAD")
    assert files(named.rows[0]) == (["new.txt"], [], [])  # without out.jsonl and out.raw
    git("init", "-q", cwd=template)
    git("add", ".", cwd=template)
    git("commit", "-qm", "t", cwd=template)
    in_template("seq 7 > new.txt; R", "contains:ok")
    done = assay("grade", "out.jsonl", "-g", "git:max_lines=7")
    assert files(done.rows[0]) == (["new.txt"], [], [])
    assert lines(done.rows[0]) == (7, 0)
    assert done.rows[0]["score"]["pass"] is True


def test_a_workspace_that_is_no_repository_and_has_no_snapshot(in_template, assay) -> None:
    in_template("echo x > new.txt; R", "contains:ok")
    done = assay("grade", "out.jsonl", "-g", "git")
    assert done.code == 1
    said = done.rows[0]["graderFailures"]["git"]
    assert "is not a git repository, and nothing is known of what it was before" in said


def test_agents_that_work_at_the_same_time(assay, prompts, shell_agent, tmp_path):
    """All of them read their folders at once, before anything that they share was made."""
    for number in range(3):
        done = assay(
            *("capture", prompts(*["echo hi > new.txt; R"] * 8), "-s", shell_agent, "-g", "git"),
            *("--isolate", "-j", "8", "-o", f"out{number}.jsonl"),
        )
        lines = (tmp_path / f"out{number}.jsonl").read_text().splitlines()
        assert [json.loads(line)["score"]["pass"] for line in lines] == [True] * 8, done.stderr
