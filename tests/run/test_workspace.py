"""Workspaces are outside of every project, belong to one trial, and are removed by nobody else."""

import fcntl
import json
import os
import stat
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from assay import system
from assay.records.files import copy_folder, remove_folder
from assay.run.notes import folder_of_row
from assay.run.workspace import inherited, private_root

PROJECT = {
    "CLAUDE.md": "be rude",
    "AGENTS.md": "be rude",
    "GEMINI.md": "be rude",
    ".mcp.json": "{}",
    "opencode.json": "{}",
    ".claude/skills/relnotes/SKILL.md": "---\nname: relnotes\n---\n",
    ".git/HEAD": "ref: refs/heads/main",
}
LOOK_UP = """
d=$PWD; found=
while :; do
  for name in CLAUDE.md AGENTS.md GEMINI.md .mcp.json opencode.json .claude .git; do
    [ -e "$d/$name" ] && found="$found $d/$name"
  done
  [ "$d" = / ] && break; d=$(dirname "$d")
done
say "$found"
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    for name, text in PROJECT.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    (tmp_path / "arms" / "none").mkdir(parents=True)
    return tmp_path


MODES = {
    "template": ["--workspace-template", "arms/none"],
    "isolate": ["--isolate"],
    "both": ["--workspace-template", "arms/none", "--isolate"],
}


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("command", ["capture", "trials", "run"])
def test_nothing_of_the_project_around_reaches_an_agent_in_a_workspace(
    assay: Callable, shell_agent: Path, prompts: Callable, project: Path, command: str, mode: str
) -> None:
    args = [command, prompts(LOOK_UP), "-s", shell_agent, "-o", "evals/out.jsonl", *MODES[mode]]
    done = assay(*args, *(["-k", 2] if command == "trials" else []))
    assert done.code == 0, done.stderr
    text = (project / "evals" / "out.jsonl").read_text()
    row = json.loads(text)
    assert str(project) not in text.replace(json.dumps(row.get("input")), "")
    assert "offered" not in row["identity"]
    if command == "capture":
        assert row["output"] == ""
        folder = Path(row["metadata"]["workspaceDir"])
        assert folder.is_dir()
        assert inherited(folder) == []


def test_what_an_agent_is_offered_is_in_the_row(
    assay: Callable, shell_agent: Path, prompts: Callable, read_rows: Callable, project: Path
) -> None:
    (project / "CLAUDE.md").write_text("Follow @rules.md\n")
    (project / "rules.md").write_text("and @docs/more.md, me@example.org\n")
    (project / "docs").mkdir(exist_ok=True)
    (project / "docs" / "more.md").write_text("Be brief.\n")
    done = assay("capture", prompts("R"), "-s", shell_agent, "-o", "out.jsonl")
    assert f"The agent works in {project} itself" in done.stderr
    (row,) = read_rows(project / "out.jsonl")
    offered = row["identity"]["offered"]
    names = set(PROJECT) - {".git/HEAD"} | {"rules.md", "docs/more.md"}
    assert names <= set(offered)
    assert len(set(offered.values())) >= 3, "contents are hashed"
    done = assay(
        "capture", prompts("R"), "-s", shell_agent, "-o", "w.jsonl", "--workspace-dir", "w"
    )
    (row,) = read_rows(project / "w.jsonl")
    assert {f"../../{name}" for name in names} <= set(row["identity"]["offered"])
    assert "Warning" in done.stderr
    assert str(project / "CLAUDE.md") in done.stderr
    assert "works in" not in assay("capture", prompts("R"), "-s", shell_agent, "-q").stderr


def test_a_users_folder_is_never_removed(
    assay: Callable, shell_agent: Path, prompts: Callable, tmp_path: Path
) -> None:
    mine = tmp_path / "ws" / "prompt-p0" / "mine.txt"
    mine.parent.mkdir(parents=True)
    mine.write_text("mine")
    args = ["capture", prompts("R"), "-s", shell_agent, "-o", "out.jsonl"]
    for _ in range(3):
        done = assay(*args, "--workspace-dir", "ws", "--raw-dir", "ws", "--overwrite")
        assert done.code == 0, done.stderr
        assert mine.read_text() == "mine"
        found = sorted(path.name.partition("-")[0] for path in (tmp_path / "ws").iterdir())
        assert found == ["prompt", "segment"]


@pytest.mark.parametrize("command", ["capture", "trials"])
def test_a_run_that_starts_again_replaces_its_raw_streams(
    assay: Callable, shell_agent: Path, prompts: Callable, tmp_path: Path, command: str
) -> None:
    args = [command, prompts("R", "R"), "-s", shell_agent, "-o", "out.jsonl"]
    for more in ([], ["--overwrite"], ["--overwrite"]):
        done = assay(*args, *more, *(["-k", 2] if command == "trials" else []))
        assert done.code == 0, done.stderr
        assert "warnings" not in (tmp_path / "out.jsonl").read_text()
        (segment,) = (tmp_path / "out.raw").iterdir()
        n_records = segment.read_bytes().count(b'"type":"assay-raw"')
        assert n_records == (4 if command == "trials" else 2)


def test_a_second_run_leaves_the_workspaces_of_the_first_alone(
    assay: Callable, shell_agent: Path, prompts: Callable, read_rows: Callable, tmp_path: Path
) -> None:
    rows = []
    for name in ("one", "two"):
        script = f"[ -e said ] || echo {name} > said; R"
        path = prompts({"id": "a", "input": script})
        for out in (f"{name}.jsonl", f"{name}.jsonl"):
            more = ["--append"] if (tmp_path / out).exists() else []
            done = assay(
                "capture", path, "-s", shell_agent, "-o", out, "--workspace-dir", "w", *more
            )
            assert done.code == 0, done.stderr
        rows += read_rows(tmp_path / f"{name}.jsonl")
    folders = [Path(folder_of_row(row["cwd"], row["raw"])) for row in rows]
    names = ["prompt-a.2", "prompt-a.3", "prompt-a.4", "prompt-a"]
    assert [folder.name for folder in folders] == names
    said = [(folder / "said").read_text().strip() for folder in folders]
    assert said == ["one", "one", "two", "two"], "each row finds its own, the newest has the name"
    assert len({row["raw"] for row in rows}) == 4
    # Graders look where the trial of the row was, not where a later one is.
    done = assay("grade", "one.jsonl", "-g", "command:grep -q one said", "-o", "graded.jsonl")
    assert done.code == 0, done.stderr
    assert [row["score"]["pass"] for row in read_rows(tmp_path / "graded.jsonl")] == [True, True]


@pytest.mark.parametrize(
    ("keep", "left"),
    [
        ("", ["prompt-a", "prompt-b", "prompt-b.2"]),
        ("all", ["prompt-a", "prompt-a.2", "prompt-b", "prompt-b.2"]),
        ("failed", ["prompt-b", "prompt-b.2"]),
        ("none", []),
    ],
)
def test_which_workspaces_are_kept(assay, shell_agent, prompts, read_rows, tmp_path, keep, left):
    """By default those of the newest run, and of earlier ones those that did not pass."""
    path = prompts({"id": "a", "input": "say yes; R"}, {"id": "b", "input": "say no; R"})
    option = ["--keep-workspaces", keep] if keep else []
    args = ["capture", path, "-s", shell_agent, "-g", "contains:yes", *option]
    for out in ("one.jsonl", "two.jsonl"):
        done = assay(*args, "-o", out, "--workspace-dir", "w")
        assert done.code == 0, done.stderr
    assert sorted(one.name for one in (tmp_path / "w").glob("prompt-*")) == left
    done = assay("grade", "one.jsonl", "-g", "command:true", "-o", "graded.jsonl")
    first, second = read_rows(tmp_path / "graded.jsonl")
    assert ("score" in first, "score" in second) == (keep == "all", bool(left))
    if keep != "all":
        assert "the workspace is gone" in first["graderFailures"]["command"]
        assert "--keep-workspaces all" in first["graderFailures"]["command"]


def test_runs_of_their_own_place_leave_no_workspaces_behind(
    assay, shell_agent, prompts, tmp_path, monkeypatch
):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    path = prompts({"id": "a", "input": "say yes; R"}, {"id": "b", "input": "say no; R"})
    root = tmp_path / "cache" / "assay" / "workspaces"
    for number in range(4):
        options = ["--isolate", "-g", "contains:yes", "-o", f"{number}.jsonl"]
        done = assay("capture", path, "-s", shell_agent, *options)
        assert done.code == 0, done.stderr
        found = [one.name for one in root.glob("*/prompt-*")]
        assert (found.count("prompt-a"), found.count("prompt-b")) == (1, number + 1)


def test_a_run_that_goes_on_keeps_its_workspaces(assay, start, shell_agent, prompts, tmp_path):
    """Another run in the same place takes other names."""
    wait = "until [ -e ../go ]; do sleep 0.02; done"
    slow = prompts({"id": "a", "input": f"echo one > said; touch ../on; {wait}; say yes; R"})
    args = ["-s", shell_agent, "-g", "contains:yes", "--workspace-dir", "w"]
    first = start("capture", slow, *args, "-o", "one.jsonl")
    while not (tmp_path / "w" / "on").exists():
        time.sleep(0.02)
    fast = prompts({"id": "a", "input": "echo two > said; say yes; R"})
    assert assay("capture", fast, *args, "-o", "two.jsonl").code == 0
    assert (tmp_path / "w" / "prompt-a" / "said").read_text() == "one\n"
    assert (tmp_path / "w" / "prompt-a.2" / "said").read_text() == "two\n"
    (tmp_path / "w" / "go").touch()
    assert first.wait(20) == 0


def test_a_workspace_that_nobody_may_enter_is_removed(tmp_path):
    inner = tmp_path / "w" / "a" / "b"
    inner.mkdir(parents=True)
    (inner / "file").write_text("x")
    inner.chmod(0)
    inner.parent.chmod(0o500)
    remove_folder(str(tmp_path / "w"))
    assert not (tmp_path / "w").exists()


def test_a_copy_shares_blocks_where_the_file_system_can(tmp_path, monkeypatch):
    """The kernel is asked for each file; a copy can be written to without the original."""
    template = tmp_path / "template"
    (template / "sub").mkdir(parents=True)
    (template / "sub" / "tool").write_text("text")
    (template / "sub" / "tool").chmod(0o555)
    (template / "link").symlink_to("sub/tool")
    asked = []

    def share(new: int, request: int, old: int) -> None:
        asked.append(request)
        os.write(new, os.pread(old, 100, 0))

    for number, cloning in enumerate((fcntl.ioctl, share)):
        monkeypatch.setattr(fcntl, "ioctl", cloning)
        copy = tmp_path / f"copy{number}"
        copy_folder(str(template), str(copy))
        assert (copy / "sub" / "tool").read_text() == "text"
        assert (copy / "sub" / "tool").stat().st_mode & 0o777 == 0o555
        assert (copy / "link").is_symlink()
        assert (copy / "sub" / "tool").stat().st_nlink == 1, "no hard link: an agent could chmod it"
    assert asked == ([0x40049409] if system.is_linux() else [])


def test_a_run_that_starts_again_makes_its_own_workspaces_again(
    assay: Callable,
    shell_agent: Path,
    prompts: Callable,
    read_rows: Callable,
    raw_of: Callable,
    tmp_path: Path,
) -> None:
    path = prompts("ls | wc -l; touch left; R")
    args = ["capture", path, "-s", shell_agent, "-o", "out.jsonl", "--workspace-dir", "w"]
    assert assay(*args).code == 0
    assert assay(*args, "--overwrite").code == 0
    (row,) = read_rows(tmp_path / "out.jsonl")
    assert Path(row["metadata"]["workspaceDir"]).name == "prompt-p0"
    assert raw_of(tmp_path, row)["1.out"].splitlines()[0].strip() == "0"


def test_a_template_that_changes_during_the_run_changes_no_trial(
    assay: Callable, shell_agent: Path, prompts: Callable, read_rows: Callable, tmp_path: Path
) -> None:
    template = tmp_path / "template"
    template.mkdir()
    (template / "task").write_text("easy")
    script = f'say "$(cat task)"; echo hard > {template}/task'
    args = ["capture", prompts(script, script), "-s", shell_agent, "--workspace-template", template]
    assert assay(*args, "-o", "out.jsonl").code == 0
    assert [row["output"] for row in read_rows(tmp_path / "out.jsonl")] == ["easy", "easy"]


def test_an_agent_that_finds_our_copy_of_the_template_stops_the_run_and_fools_nobody(
    assay: Callable,
    shell_agent: Path,
    prompts: Callable,
    read_rows: Callable,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))  # the copies of this run alone
    template = tmp_path / "template"
    template.mkdir()
    (template / "task").write_text("easy")
    script = "for t in ../../template-*; do echo solved > $t/task; touch -d @0 $t/task; done; R"
    args = ["capture", prompts(script, "R"), "-s", shell_agent, "--workspace-template", template]
    done = assay(*args, "-o", "out.jsonl")
    assert done.code == 1
    assert "changed Assay's copy of the workspace template" in done.stderr
    assert len(read_rows(tmp_path / "out.jsonl")) == 1
    assert list(private_root().glob("template-*")) == []


MAKES_THE_NEXT = {
    "a folder": "mkdir ../prompt-p1; echo x > ../prompt-p1/planted",
    "a link": "mkdir other; ln -s $PWD/other ../prompt-p1",
    "a broken link": "ln -s nowhere ../prompt-p1",
    "a note": "mkdir -p ../.assay; mkfifo ../.assay/prompt-p1",
    "a folder with a note": "mkdir -p ../.assay ../prompt-p1; mkfifo ../.assay/prompt-p1",
}


@pytest.mark.parametrize("how", MAKES_THE_NEXT)
@pytest.mark.parametrize("args", [["--isolate"], ["--workspace-dir", "work"]])
def test_an_agent_cannot_prepare_the_workspace_of_another(
    assay: Callable,
    shell_agent: Path,
    prompts: Callable,
    read_rows: Callable,
    tmp_path: Path,
    how: str,
    args: list[str],
) -> None:
    file = prompts(f"{MAKES_THE_NEXT[how]}; R", 'say "[$(ls -A)]"')
    done = assay("capture", file, "-s", shell_agent, "-o", "out.jsonl", *args)
    assert done.code == 0, done.stderr
    first, second = read_rows(tmp_path / "out.jsonl")
    assert second["output"] == "[]"
    assert not Path(second["cwd"]).is_relative_to(first["cwd"])


@pytest.mark.parametrize("plant", ["mkfifo prompt-p0", "ln -s $PWD/gone prompt-p0", "true"])
def test_what_an_agent_left_in_place_of_its_workspace_is_replaced(
    assay: Callable, shell_agent: Path, prompts: Callable, tmp_path: Path, plant: str
) -> None:
    file = prompts(f"cd ..; mv prompt-p0 gone; {plant}; touch gone/kept; R")
    args = ["capture", file, "-s", shell_agent, "--workspace-dir", "work", "-o", "out.jsonl"]
    assert assay(*args).code == 0
    subprocess.run(["mv", "work/gone", "work/first"], cwd=tmp_path, check=True)
    done = assay(*args, "--overwrite", timeout=20)
    assert done.code == 0, done.stderr
    assert (tmp_path / "work/first/kept").exists()


@pytest.mark.parametrize("place", ["..", "../.."])
def test_an_agent_that_puts_instructions_above_the_workspaces_stops_the_run(
    assay: Callable,
    shell_agent: Path,
    prompts: Callable,
    read_rows: Callable,
    tmp_path: Path,
    place: str,
) -> None:
    file = prompts(f"echo cheat > {place}/CLAUDE.md; R", "R")
    args = ["capture", file, "-s", shell_agent, "-o", "out.jsonl", "--workspace-dir", "a/work"]
    done = assay(*args)
    assert done.code == 1
    assert "CLAUDE.md above the workspaces" in done.stderr
    assert [row["id"] for row in read_rows(tmp_path / "out.jsonl")] == ["p0"]


def test_a_place_inside_a_project_is_not_taken(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / ".claude").mkdir()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    assert not private_root().is_relative_to(tmp_path)
    (tmp_path / ".claude").rmdir()
    assert private_root() == tmp_path / "cache" / "assay" / "workspaces"
    assert private_root().stat().st_mode & 0o077 == 0


@pytest.mark.parametrize(
    "name", [".env", ".github/instructions", ".windsurfrules", "AGENTS.override.md", "CLAUDE.md"]
)
def test_a_link_to_a_place_inside_a_project_is_not_taken(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, name: str
) -> None:
    (tmp_path / "project" / "cache").mkdir(parents=True)
    (tmp_path / "project" / name).parent.mkdir(exist_ok=True)
    (tmp_path / "project" / name).touch()
    (tmp_path / "cache").symlink_to(tmp_path / "project" / "cache")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    assert not private_root().is_relative_to(tmp_path)


@pytest.mark.parametrize("is_absolute", [True, False])
def test_what_links_of_a_template_lead_to_is_copied_and_hashed_with_it(
    assay: Callable,
    shell_agent: Path,
    prompts: Callable,
    read_rows: Callable,
    tmp_path: Path,
    is_absolute: bool,
) -> None:
    skill, template = tmp_path / "shared" / "notes", tmp_path / "arm"
    for name in ("SKILL.md", "more/a.md", "../style.md"):
        (skill / name).parent.mkdir(parents=True, exist_ok=True)
        (skill / name).write_text("before ")
    (skill / "style.md").symlink_to("../style.md")
    place = template / ".claude" / "skills" / "notes"
    place.parent.mkdir(parents=True)
    place.symlink_to(skill if is_absolute else "../../../shared/notes")
    script = """
    cd .claude/skills/notes; say "$(cat SKILL.md more/a.md style.md)"
    for f in SKILL.md more/a.md style.md; do echo after >> "$f"; done
    """
    args = ["capture", prompts(script, script), "-s", shell_agent, "--workspace-template", "arm"]
    done = assay(*args, "-o", "out.jsonl", "-t", 60000)
    assert done.code == 0, done.stderr
    outputs = [row["output"] for row in read_rows(tmp_path / "out.jsonl")]
    assert outputs == ["before before before "] * 2
    assert (skill / "more/a.md").read_text() == "before "
    (skill / "more/a.md").write_text("edited")
    done = assay(*args, "-o", "out.jsonl", "--resume")
    assert done.code == 1
    assert ".claude/skills/notes/SKILL.md" in done.stderr


def test_the_mode_of_the_template_itself_is_a_part_of_it(
    assay: Callable, shell_agent: Path, prompts: Callable, tmp_path: Path
) -> None:
    (tmp_path / "arm").mkdir(mode=0o755)
    args = ["capture", prompts("R"), "-s", shell_agent, "--workspace-template", "arm"]
    assert assay(*args, "-o", "out.jsonl").code == 0
    (tmp_path / "arm").chmod(0o555)
    done = assay(*args, "-o", "out.jsonl", "--resume")
    assert (done.code, "the workspace template" in done.stderr) == (1, True)


def test_a_template_that_cannot_be_copied_is_named(
    assay: Callable, shell_agent: Path, prompts: Callable, tmp_path: Path
) -> None:
    (tmp_path / "arm").mkdir()
    os.mkfifo(tmp_path / "arm" / "pipe")
    args = ["capture", prompts("R"), "-s", shell_agent, "--workspace-template", "arm"]
    done = assay(*args, "-o", "out.jsonl")
    assert done.code == 1
    assert "arm/pipe: `arm/pipe` is a named pipe" in done.stderr
    assert "[(" not in done.stderr


def test_a_place_that_others_can_write_to_is_not_taken(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    cache = tmp_path / "cache" / "assay" / "workspaces"
    cache.mkdir(parents=True)
    cache.chmod(0o777)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    assert private_root() != cache


def test_git_in_a_workspace_is_not_that_of_the_project(
    assay: Callable, shell_agent: Path, prompts: Callable, read_rows: Callable, tmp_path: Path
) -> None:
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    script = 'say "$(git rev-parse --show-toplevel 2>&1 | head -c 5)"'
    args = ["capture", prompts(script), "-s", shell_agent, "--isolate", "-o", "out.jsonl"]
    assert assay(*args).code == 0
    assert read_rows(tmp_path / "out.jsonl")[0]["output"] == "fatal"


def test_a_relative_command_of_a_schema_is_found_from_a_workspace(
    assay: Callable, agent: Callable, prompts: Callable, tmp_path: Path
) -> None:
    (tmp_path / "toy.sh").write_text('echo \'{"type":"result","result":"found"}\'\n')
    for mode in (["--isolate"], ["--workspace-dir", "w"], []):
        done = assay("capture", prompts("a"), "-s", agent(command=["bash", "toy.sh"]), *mode)
        assert done.rows[0]["output"] == "found", (mode, done.stderr)


def test_words_of_a_command_that_can_be_no_path_are_left_alone(
    assay: Callable, agent: Callable, prompts: Callable
) -> None:
    command = ["bash", "-c", 'echo \'{"type":"result","result":"ok"}\'', "x" * 5000 + "/y.py"]
    done = assay("capture", prompts("a"), "-s", agent(command=command), "--isolate")
    assert [row["output"] for row in done.rows] == ["ok"], done.stderr


def test_what_an_agent_leaves_is_for_no_other_user(
    assay: Callable, prompts: Callable, tmp_path: Path
) -> None:
    """A shell with the rights of our user (root, perhaps) was there for everybody."""
    shell = "cp /bin/sh run; chmod 6755 run; chmod 777 .; echo $PROMPT"
    for name, mode in (("made", 0o700), ("there", 0o755)):
        place = tmp_path / name
        if mode != 0o700:  # a folder that the user has made is the user's business
            place.mkdir(mode=mode)
        words = ("--shell", shell, "--isolate", "--workspace-dir", place)
        assert assay("capture", prompts("x"), *words).code == 0
        assert stat.S_IMODE(place.stat().st_mode) == mode
        assert (place / "prompt-p0" / "run").stat().st_mode & stat.S_ISUID
