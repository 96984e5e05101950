"""The skills that ship with Assay: where they are installed, and that what they tell is true."""

import os
import re
import runpy
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from assay import plugins
from assay.adapters.vendor import KNOWN
from assay.cli.skills import shipped_skills
from assay.records.spec import PluginRef

ROOT = Path(__file__).parents[2]
SKILLS = {skill.name: (skill.folder / "SKILL.md").read_text() for skill in shipped_skills()}
PLUGIN = runpy.run_path(str(ROOT / "scripts" / "write_plugin.py"))
BLOCK = re.compile(r"^```sh\n(.*?)^```", re.MULTILINE | re.DOTALL)


def files(folder: Path) -> dict[str, bytes]:
    found = [path for path in folder.rglob("*") if path.is_file()]
    return {str(path.relative_to(folder)): path.read_bytes() for path in found}


SHIPPED = {
    f"{skill.name}/{name}": text
    for skill in shipped_skills()
    for name, text in files(skill.folder).items()
}


def test_the_skills_of_both_seeds_are_there():
    pytest.importorskip("assay_arc")
    assert set(SKILLS) == {
        *("agent-eval-harness", "headless-adapters", "arc-setup", "arc-benchmark", "arc-browse"),
        *("arc-report", "arc-compare", "arc-cross-harness"),
    }


@pytest.mark.parametrize("name", SKILLS)
def test_every_agent_can_read_the_head_of_a_skill(name):
    """The limits are those of the agents' common standard."""
    _, head, body = SKILLS[name].split("---\n", 2)
    fields = dict(line.split(": ", 1) for line in head.splitlines())
    assert fields["name"] == name
    assert re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", name)
    assert 40 < len(fields["description"]) <= 1024
    assert ": " not in fields["description"], "a colon ends a plain text in YAML"
    assert "assay " in body
    assert len(body.splitlines()) < 80


@pytest.mark.parametrize("agent", [agent.name for agent in KNOWN])
def test_install_for_one_agent_writes_where_its_adapter_says_it_reads(agent, assay, tmp_path):
    adapter = plugins.adapter(PluginRef(name=agent))
    folder = Path(adapter.skills_folder)
    assert {str(folder), str(folder.parent)} & set(adapter.reads)
    assert {str(folder), str(folder.parent)} & set(adapter.reads_in_home)
    done = assay("skills", "install", "--agent", agent)
    assert done.code == 0, done.stderr
    assert f"{folder} ({agent}): wrote {', '.join(SKILLS)}" in done.stdout
    assert files(tmp_path) == {f"{folder}/{name}": text for name, text in SHIPPED.items()}


def test_install_writes_for_all_agents_and_says_when_there_is_nothing_to_do(assay, tmp_path):
    assert assay("skills", "install").code == 0
    assert files(tmp_path / ".claude/skills") == files(tmp_path / ".agents/skills") == SHIPPED
    again = assay("skills", "install")
    assert again.code == 0
    assert again.stdout.count("up to date") == 2


def test_user_installs_in_home_and_nowhere_else(assay, tmp_path):
    home = tmp_path / "home"
    done = assay("skills", "install", "--user", "--agent", "codex", env={"HOME": str(home)})
    assert done.code == 0, done.stderr
    assert files(home / ".agents/skills") == SHIPPED
    assert list(tmp_path.iterdir()) == [home]


def test_a_changed_skill_stops_the_whole_install_until_overwrite(assay, tmp_path):
    mine = tmp_path / ".agents/skills/headless-adapters/SKILL.md"
    mine.parent.mkdir(parents=True)
    mine.write_text("my own words")
    refused = assay("skills", "install")
    assert refused.code == 1
    assert ".agents/skills/headless-adapters/SKILL.md" in refused.stderr
    assert "--overwrite" in refused.stderr
    assert files(tmp_path) == {".agents/skills/headless-adapters/SKILL.md": b"my own words"}
    assert assay("skills", "install", "--overwrite").code == 0
    assert files(tmp_path / ".agents/skills") == SHIPPED


@pytest.mark.parametrize("target", ["there", "gone"])
def test_a_link_in_a_project_leads_nowhere(target, assay, tmp_path):
    """A checkout may hold a link to any file of the user."""
    (tmp_path / "there").write_text("a file of the user")
    link = tmp_path / ".claude/skills/headless-adapters/SKILL.md"
    link.parent.mkdir(parents=True)
    link.symlink_to(tmp_path / target)
    assert assay("skills", "install").code == 1
    assert assay("skills", "install", "--overwrite").code == 0
    assert (tmp_path / "there").read_text() == "a file of the user"
    assert not (tmp_path / "gone").exists()
    assert files(tmp_path / ".claude/skills") == SHIPPED
    assert not link.is_symlink()


def test_a_folder_of_skills_may_be_a_link(assay, tmp_path):
    (tmp_path / ".agents/skills").mkdir(parents=True)
    (tmp_path / ".claude").mkdir()
    (tmp_path / ".claude/skills").symlink_to("../.agents/skills")
    assert assay("skills", "install").code == 0
    assert files(tmp_path / ".agents/skills") == SHIPPED


def test_files_beside_the_skills_are_left_alone(assay, tmp_path):
    theirs = tmp_path / ".claude/skills/theirs/SKILL.md"
    theirs.parent.mkdir(parents=True)
    theirs.write_text("x")
    assert assay("skills", "install", "--overwrite").code == 0
    assert theirs.read_text() == "x"


def test_a_folder_that_cannot_be_written_is_named(assay, tmp_path):
    (tmp_path / ".claude").write_text("a file")
    done = assay("skills", "install", "--agent", "claude")
    assert done.code == 1
    assert ".claude/skills" in done.stderr
    assert "Traceback" not in done.stderr


def test_an_unknown_agent_is_wrong_usage(assay):
    assert assay("skills", "install", "--agent", "nobody").code == 2


def test_list_names_every_skill_with_its_purpose(assay):
    lines = assay("skills", "list").stdout.splitlines()
    assert [line.split()[0] for line in lines] == list(SKILLS)
    assert all(line.endswith(".") for line in lines)


def test_without_the_games_their_skills_are_not_shipped(tmp_path):
    shutil.copytree(ROOT / "src" / "assay", tmp_path / "assay")
    command = [sys.executable, "-c", "from assay.cli.main import main; main()", "skills", "list"]
    env = os.environ | {"PYTHONPATH": str(tmp_path)}
    done = subprocess.run(command, env=env, cwd=tmp_path, capture_output=True, text=True)
    assert [line.split()[0] for line in done.stdout.splitlines()] == [
        *("agent-eval-harness", "headless-adapters"),
    ], done.stderr


def test_plugin_and_agents_folder_are_what_the_script_writes(tmp_path):
    pytest.importorskip("assay_arc")
    PLUGIN["write"](tmp_path)
    for name in ("plugin", ".agents", ".claude-plugin"):
        assert files(ROOT / name) == files(tmp_path / name), "run: make plugin"
    assert files(ROOT / "plugin" / "skills") == files(ROOT / ".agents" / "skills") == SHIPPED


SUBSTITUTES = {"AGENT": "demo", "RUN": "latest", "GAME": "ky01"}
"""What the test puts for the words that a skill's reader has to choose."""
AGENT = """#!/usr/bin/env python3
import json
for event in (
    {"type": "message", "text": "Let me see.", "session_id": "s1"},
    {"type": "tool", "name": "look", "status": "completed", "id": "c1"},
    {"type": "result", "result": "The answer is 42."},
):
    print(json.dumps(event))
"""


@pytest.fixture
def project(tmp_path) -> Path:
    """A folder with the program that the skill on adapters describes, and its schema."""
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "my-agent").write_text(AGENT)
    (folder / "my-agent").chmod(0o755)
    schema = re.search(r"^```json\n(.*?)^```", SKILLS["headless-adapters"], re.M | re.S)
    assert schema is not None
    (folder / "my-agent.json").write_text(schema[1])
    return folder


def run(line: str, folder: Path) -> subprocess.CompletedProcess[str]:
    for word, value in SUBSTITUTES.items():
        line = re.sub(rf"\b{word}\b", value, line)
    path = f"{folder}:{Path(sys.executable).parent}:{os.environ['PATH']}"
    return subprocess.run(
        ["bash", "-euo", "pipefail", "-c", line],
        cwd=folder, env=os.environ | {"PATH": path}, stdin=subprocess.DEVNULL,
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip


@pytest.mark.recorded
@pytest.mark.parametrize("name", ["agent-eval-harness", "headless-adapters"])
def test_every_command_of_a_skill_runs(name, project):
    if name == "headless-adapters":
        assert run("assay init evals", project).returncode == 0
    lines = [line for block in BLOCK.findall(SKILLS[name]) for line in block.splitlines()]
    assert len(lines) >= 5
    for line in lines:
        done = run(line, project)
        assert done.returncode == 0, f"{line}\n{done.stderr}"


@pytest.mark.recorded
def test_every_command_of_the_arc_skills_runs(tmp_path):
    """In the order in which a user would come to them; a harness plays in between."""
    pytest.importorskip("assay_arc")
    pytest.importorskip("arc_agi")
    for name in ("arc-setup", "arc-browse", "arc-benchmark", "arc-report"):
        _run_all(name, tmp_path, agent="search")
    assert run("assay arc run random --games ky01,mx01 --max-steps 40 -q", tmp_path).returncode == 0
    _run_all("arc-cross-harness", tmp_path, before={"assay arc import": _play})
    _run_all("arc-compare", tmp_path)


def _run_all(name, folder, agent="search", before=None):
    for block in BLOCK.findall(SKILLS[name]):
        for line in block.splitlines():
            for start, action in (before or {}).items():
                if line.startswith(start):
                    action(folder)
            done = run(re.sub(r"\bAGENT\b", agent, line), folder)
            assert done.returncode == 0, f"{line}\n{done.stdout}\n{done.stderr}"


def _play(folder: Path) -> None:
    """Play one move of each generated game with the driver, and collect the result."""
    where = folder / ".arc-agi-benchmarks/cross-harness/codex"
    python = sys.executable
    for game in ("ky01", "mx01"):
        said = '{"command": "step", "action": "ACTION1"}\n{"command": "quit"}\n'
        subprocess.run([python, "game_driver.py", game, "0"], cwd=where, input=said, text=True,
                       check=True, capture_output=True)  # fmt: skip
    words = ["--sessions-dir", "sessions", "--output", "result.json", "--model", "m"]
    subprocess.run([python, "collect_results.py", *words], cwd=where, check=True,
                   capture_output=True)  # fmt: skip


@pytest.mark.parametrize("name", SKILLS)
def test_options_and_commands_in_the_text_exist(name):
    """Outside the blocks too: `assay …` in a sentence is a command, `--option` one of its own."""
    prose = BLOCK.sub("", SKILLS[name])
    for line in re.findall(r"`assay ([^`]+)`", prose):
        words = line.split()
        depth = 2 if words[0] == "arc" else 1
        if words[0] == "COMMAND":
            continue
        done = run(f"assay {' '.join(words[:depth])} --help", ROOT)
        assert done.returncode == 0, line
        for option in re.findall(r"--[a-z-]+", line):
            assert option in done.stdout, line
