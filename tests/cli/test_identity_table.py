"""Twelve edits, through six commands: each cell says what the command does about the edit.

None is silent: trials are run or graded again, a file is refused, or the difference is named.
"""

import json
import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

LIKE = Path(__file__).parents[1] / "agents" / "claude_like.pl"
AGENT = """
import os, sys
import helper, mytool
with open(os.environ["AGENT_LOG"], "a") as log:
    log.write("started\\n")
print(helper.WORD, mytool.WORD, os.environ.get("OPENAI_MODEL"), "plum")
"""
TOOL = '#!/bin/sh\necho started >> "$AGENT_LOG"\necho plum\n'
JUDGE = """#!/bin/sh
echo '{"pass": true, "score": 1}'
"""
SKILL = "---\nname: %s\ndescription: Write.\n---\nMagic word: "
N_PROMPTS = 2


class Project:
    """A user's folder with everything that decides an answer, and the commands to measure it."""

    def __init__(self, folder: Path, assay: Callable[..., Any]) -> None:
        self.folder, self._assay = folder, assay
        self.env = {"AGENT_LOG": str(folder / "started.txt"), "OPENAI_MODEL": "small"}
        self.env["ANTHROPIC_BASE_URL"] = "http://127.0.0.1:1"
        self.agent = ["--simple", f"{folder}/venv/bin/python agent.py {{}}"]
        self.write("agent.py", AGENT)
        self.write("helper.py", "WORD = 'one'\n")
        self.write("tpl/notes.txt", "old")
        self.write("tpl/.agents/skills/own/SKILL.md", SKILL % "own" + "apple\n")
        self.write("skills/s/SKILL.md", SKILL % "s" + "plum\n")
        self.write("setup.sh", "echo old > made.txt\n")
        self.write("judge.sh", JUDGE).chmod(0o755)
        self.install_package()
        self.write_prompts()

    def write(self, name: str, text: str) -> Path:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path

    def install_package(self) -> None:
        """Make a virtual environment with a package that was installed from a folder."""
        self.write("src/mytool/__init__.py", "WORD = 'one'\n")
        version = f"{sys.version_info[0]}.{sys.version_info[1]}"
        site = f"venv/lib/python{version}/site-packages"
        self.write(f"{site}/mytool/__init__.py", "WORD = 'one'\n")
        about = {"url": (self.folder / "src").as_uri(), "dir_info": {}}
        self.write(f"{site}/mytool-1.0.dist-info/direct_url.json", json.dumps(about))
        self.write(f"{site}/mytool-1.0.dist-info/RECORD", "mytool/__init__.py,sha256=x,13\n")
        real = Path(os.path.realpath(sys.executable))
        self.write("venv/pyvenv.cfg", f"home = {real.parent}\n")
        (self.folder / "venv/bin").mkdir()
        (self.folder / "venv/bin/python").symlink_to(real)

    def write_prompts(self, hint: str = "plum", text: str = "old", n: int = N_PROMPTS) -> None:
        setup = f"sh {self.folder}/setup.sh"
        rows = [
            {"id": f"p{i}", "input": f"What is {i}?", "hint": hint, "files": {"a.txt": text}}
            for i in range(n)
        ]
        rows[0]["setup"] = setup
        self.write("prompts.jsonl", "".join(json.dumps(row) + "\n" for row in rows))

    def run(self, *words: Any) -> Any:
        return self._assay(*words, cwd=self.folder, env=self.env)

    def trials(self, output: str, *more: str) -> Any:
        graders = ["-g", "contains", "-g", "./judge.sh", "--workspace-template", "tpl"]
        return self.run("trials", "prompts.jsonl", *self.agent, *graders, "-o", output, *more)

    def ab(self, *more: str) -> Any:
        graders = ["-g", "contains", "-g", "./judge.sh", "--with", "skill=skills/s", "-k", "1"]
        template = ["--workspace-template", "tpl"] if "--mcp" not in self.agent else []
        return self.run("ab", "prompts.jsonl", *self.agent, *graders, *template, *more)

    @property
    def n_started(self) -> int:
        log = self.folder / "started.txt"
        return len(log.read_text().splitlines()) if log.exists() else 0


class Row(NamedTuple):
    """What each command does about an edit."""

    edit: Callable[[Project], Any]
    words: str
    """By which the difference is named."""
    ab: str = "runs again"
    status: str = "stale"
    resume: str = "refused"
    compare: str = "named"
    gate: str = "named"
    baseline: str = "refused"


def _edit_package(project: Project) -> None:
    for path in project.folder.glob("venv/lib/*/site-packages/mytool/__init__.py"):
        path.write_text("WORD = 'two'\n")


def _use_servers(project: Project) -> None:
    """Let a Claude-like agent have an MCP server whose script is ours."""
    project.write("tools/server.py", "print('one')\n")
    servers = {"mcpServers": {"tools": {"command": "python3", "args": ["tools/server.py"]}}}
    project.write("servers.json", json.dumps(servers))
    project.agent = ["-s", f"claude:{LIKE}", "--mcp", "servers.json"]
    project.env["LIKE_LOG"] = project.env["AGENT_LOG"]


def _use_version(project: Project) -> None:
    """Let the agent be a program of an npm package."""
    project.write("node_modules/tool/package.json", '{"name": "tool", "version": "1.0.0"}')
    project.write("node_modules/tool/tool.sh", TOOL).chmod(0o755)
    project.agent = ["--simple", "node_modules/tool/tool.sh {}"]


def _edit_skill(project: Project) -> None:
    project.write("tpl/.agents/skills/own/SKILL.md", SKILL % "own" + "pear\n")
    project.write("skills/s/SKILL.md", SKILL % "s" + "quince\n")


NOT_ALIKE: dict[str, str] = {"compare": "no verdict", "gate": "cannot be judged"}
TABLE = {
    "module": Row(lambda p: p.write("helper.py", "WORD = 'two'\n"), "helper.py"),
    "package": Row(_edit_package, "mytool"),
    "variable": Row(lambda p: p.env.update(OPENAI_MODEL="big"), "OPENAI_MODEL"),
    "endpoint": Row(
        lambda p: p.env.update(ANTHROPIC_BASE_URL="http://127.0.0.1:2"), "ANTHROPIC_BASE_URL"
    ),
    "MCP script": Row(lambda p: p.write("tools/server.py", "print('two')\n"), "tools/server.py"),
    "hint": Row(lambda p: p.write_prompts(hint="um"), "p0", **NOT_ALIKE),
    "prompt file": Row(lambda p: p.write_prompts(text="new"), "p0", **NOT_ALIKE),
    "set-up script": Row(lambda p: p.write("setup.sh", "echo new > made.txt\n"), "p0", **NOT_ALIKE),
    "template": Row(lambda p: p.write("tpl/notes.txt", "new"), "template"),
    "skill": Row(_edit_skill, "skills/"),
    "grader": Row(
        lambda p: p.write("judge.sh", f"{JUDGE}# stricter\n"),
        "judge",
        ab="graded again",
        gate="cannot be judged",
    ),
    "agent version": Row(
        lambda p: p.write("node_modules/tool/package.json", '{"name": "tool", "version": "2.0.0"}'),
        "2.0.0",
    ),
}
USES = {"MCP script": _use_servers, "agent version": _use_version}
STATUS_WORDS = {"template": "tpl", "hint": "prompts.jsonl", "prompt file": "prompts.jsonl"}
STATUS_WORDS |= {"set-up script": "1 prompt has changed: p0", "skill": "skills/s"}


@pytest.fixture(scope="session")
def measured_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("identity")


@pytest.fixture
def measured(measured_folder: Path, assay: Callable[..., Any]) -> Callable[[str], Project]:
    """Give a project that was measured before an edit.

    What the edits have in common is measured once. Each test gets a copy in the same place, because
    paths are a part of what was measured.
    """

    def make(name: str) -> Project:
        folder, kept = (
            measured_folder / "now",
            measured_folder / (name if name in USES else "usual"),
        )
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        project = Project(folder, assay)
        USES.get(name, lambda p: None)(project)
        if not kept.exists():
            _measure(project)
            folder.rename(kept)
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(kept, folder, symlinks=True)
        return project

    return make


def _measure(project: Project) -> None:
    first = project.trials("before.jsonl", "-k", "1")
    assert first.code == 0, first.stderr
    assert project.ab().code == 0
    assert project.run("ab", "status", "--check").code == 0
    assert project.run("baseline", "add", "before.jsonl", "--to", "base.jsonl").code == 0
    shutil.copy(project.folder / "before.jsonl", project.folder / "resumed.jsonl")


@pytest.mark.parametrize("name", TABLE)
def test_no_edit_is_silent(name: str, measured: Callable[[str], Project]) -> None:
    row, project = TABLE[name], measured(name)

    row.edit(project)

    found = {
        "status": _status(project, STATUS_WORDS.get(name, row.words)),
        "ab": _ab(project),
        "resume": _refused(project.trials("resumed.jsonl", "--resume", "-k", "2"), row.words),
    }
    assert project.run("ab", "status", "--check").code == 0  # ab has run what was stale
    after = project.trials("after.jsonl", "-k", "1")
    assert after.code == 0, after.stderr
    found |= {
        "compare": _compare(project, row.words),
        "gate": _gate(project, row.words),
        "baseline": _refused(
            project.run("baseline", "add", "after.jsonl", "--to", "base.jsonl"), row.words
        ),
    }
    assert found == {cell: getattr(row, cell) for cell in found}
    named = project.run("identity", "before.jsonl", "after.jsonl")
    assert row.words in named.stdout, named


def _status(project: Project, words: str) -> str:
    done = project.run("ab", "status", "--check")
    assert words in done.stdout, done
    return {3: "stale", 0: "up to date"}.get(done.code, f"exit code {done.code}")


def _ab(project: Project) -> str:
    before = project.n_started
    done = project.ab()
    assert done.code == 0, done
    if project.n_started > before:
        return "runs again"
    return "graded again" if "graded again" in done.stderr else "silent"


def _refused(done: Any, words: str) -> str:
    if done.code == 0:
        return "silent"
    assert done.code == 1, done
    assert words in done.stderr, done
    return "refused"


def _compare(project: Project, words: str) -> str:
    done = project.run("compare", "before.jsonl", "after.jsonl", "-f", "json")
    assert done.code == 0, done
    assert project.run("compare", "before.jsonl", "after.jsonl", "--strict").code == 1
    verdict = json.loads(done.stdout)["verdict"][0]
    if "cannot be compared" in verdict["words"]:
        assert words in verdict["words"]
        return "no verdict"
    return "named" if "note: " in done.stderr and words in done.stderr else "silent"


def _gate(project: Project, words: str) -> str:
    gate = ["--fail-on", "regression", "--margin", "0.5", "-f", "json"]
    done = project.run("compare", "before.jsonl", "after.jsonl", *gate)
    said = [line for line in done.stderr.splitlines() if line.startswith("regression")]
    if done.code == 4 and "like with like" in said[0]:
        assert words in said[0], done
        return "cannot be judged"
    return "named" if "note: " in done.stderr and words in done.stderr else "silent"


def test_a_fresh_run_starts_a_line_that_later_runs_continue(
    assay: Callable[..., Any], tmp_path: Path
) -> None:
    project = Project(tmp_path, assay)
    _use_version(project)
    assert project.ab().code == 0
    before = project.n_started
    assert project.ab("--fresh").code == 0
    assert project.n_started == before + 4
    more = project.ab("-k", "2")
    assert more.code == 0
    fresh = max((tmp_path / "experiments/s").glob("*-2"))
    assert f"4 trials reused from s/{fresh.name}" in more.stdout


def test_a_file_that_the_agent_writes_beside_itself_stops_nothing(
    assay: Callable[..., Any], tmp_path: Path
) -> None:
    project = Project(tmp_path, assay)
    project.write("agent.py", "open('seen.txt', 'a').write('x')\nprint('plum')\n")
    assert project.trials("out.jsonl", "-k", "1").code == 0
    resumed = project.trials("out.jsonl", "--resume", "-k", "2")
    assert resumed.code == 0, resumed.stderr


def test_what_cannot_be_known_is_said_by_compare_and_resume(
    assay: Callable[..., Any], tmp_path: Path
) -> None:
    project = Project(tmp_path, assay)
    project.write("agent.py", "word = 'rules'\nprint(open(f'{word}.md').read())\n")
    project.write("tpl/rules.md", "plum")
    for output in ("before.jsonl", "after.jsonl"):
        assert project.trials(output, "-k", "1").code == 0
    said = "files that agent.py opens by computed names"
    compared = project.run("compare", "before.jsonl", "after.jsonl", "--strict")
    assert compared.code == 0, compared
    assert f"not covered, and may differ: {said}" in compared.stderr
    resumed = project.trials("after.jsonl", "--resume", "-k", "2")
    assert resumed.code == 0, resumed
    assert f"not covered, so that earlier rows may be of another agent: {said}" in resumed.stderr


def test_code_that_is_edited_during_a_run_makes_it_unhealthy(
    assay: Callable[..., Any], tmp_path: Path
) -> None:
    project = Project(tmp_path, assay)
    edit = "open(helper.__file__, 'w').write('WORD = 2')"
    project.write("agent.py", f"import helper\nprint('plum')\n{edit}\n")
    assert project.trials("out.jsonl", "-k", "1", "-j", "1").code == 0
    rows = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    assert all(row["trials"][0]["setup"] == {"changedFiles": ["helper.py"]} for row in rows)
    project.write("agent.py", "print('plum')\n")
    assert project.trials("base.jsonl", "-k", "1").code == 0
    gate = ("--fail-on", "regression", "--margin", "0.9")
    done = project.run("compare", "base.jsonl", "out.jsonl", *gate)
    assert done.code == 4
    words = json.loads(done.stdout)["verdict"][0]["words"]
    assert '"helper.py", which the agent loads, was changed during the run in 2 of 2' in words


def test_a_default_model_that_changed_is_named(assay: Callable[..., Any], tmp_path: Path) -> None:
    project = Project(tmp_path, assay)
    project.agent = ["-s", f"claude:{LIKE}"]
    assert project.trials("before.jsonl", "-k", "1").code == 0
    text = (tmp_path / "before.jsonl").read_text()
    model = json.loads(text.splitlines()[0])["trials"][0]["agent"]["model"]
    project.write("after.jsonl", text.replace(f'"model":"{model}"', '"model":"other"'))
    compared = project.run("compare", "before.jsonl", "after.jsonl", "--strict")
    assert compared.code == 1
    said = f"the same model was asked for, and others answered: before: {model}; after: other"
    assert said in compared.stderr


def test_servers_that_an_agent_keeps_in_home_are_what_it_is_made_of(
    assay: Callable[..., Any], tmp_path: Path
) -> None:
    """Claude Code writes to .claude.json whenever it starts: only the servers there count."""
    project = Project(tmp_path, assay)
    project.agent = ["-s", f"claude:{LIKE}"]
    project.env["HOME"] = str(tmp_path / "home")
    project.write("home/tools/server.py", "print('one')\n")
    servers = {"tools": {"command": "python3", "args": [f"{tmp_path}/home/tools/server.py"]}}

    def identity_after(settings: dict[str, Any]) -> Any:
        project.write("home/.claude.json", json.dumps(settings))
        output = f"out-{len(list(tmp_path.glob('out-*.jsonl')))}.jsonl"
        graders = ["-g", "contains", "-k", "1", "--limit", "1"]
        done = project.run("trials", "prompts.jsonl", *project.agent, *graders, "-o", output)
        assert done.code == 0, done.stderr
        return json.loads((tmp_path / output).read_text())["identity"]

    none = identity_after({"numStartups": 1})
    assert identity_after({"numStartups": 2}) == none
    for_user = identity_after({"mcpServers": servers})
    assert list(for_user["offered"]) == ["~/.claude.json (mcpServers)"]
    assert list(for_user["mcpFiles"]) == ["home/tools/server.py"]
    project.write("home/tools/server.py", "print('two')\n")
    assert identity_after({"mcpServers": servers})["mcpFiles"] != for_user["mcpFiles"]
    of_project = {"projects": {str(tmp_path): {"mcpServers": servers}, "/else": {}}}
    assert identity_after(of_project)["offered"] == for_user["offered"]
    assert identity_after({"projects": {"/else": {"mcpServers": servers}}}) == none


def test_a_gate_refuses_changed_hints_before_an_agent_starts(
    assay: Callable[..., Any], tmp_path: Path
) -> None:
    project = Project(tmp_path, assay)
    _use_version(project)
    project.write_prompts(n=12)
    assert project.trials("before.jsonl", "-k", "1").code == 0
    project.write_prompts(hint="um", n=12)
    before = project.n_started
    gate = ("-k", "2", "--until", "decided", "--against", "before.jsonl", "--margin", "0.4")
    done = project.trials("after.jsonl", *gate)
    assert done.code == 4, done
    assert "12 prompts (p0, p1, " in done.stderr
    assert project.n_started == before


def test_rows_of_an_earlier_version_are_compared_with_a_note_and_not_continued(
    assay: Callable[..., Any], tmp_path: Path
) -> None:
    project = Project(tmp_path, assay)
    assert project.trials("new.jsonl", "-k", "1").code == 0
    rows = [json.loads(line) for line in (tmp_path / "new.jsonl").read_text().splitlines()]
    for row in rows:
        for name in ("covers", "loads", "packages", "variables", "setup", "mcpFiles", "notCovered"):
            row["identity"].pop(name, None)
        row["specHash"] = "0123456789abcdef-" + row["specHash"].partition("-")[2]
        row["trials"][0]["output"] = "plum, of old"
    project.write("old.jsonl", "".join(json.dumps(row) + "\n" for row in rows))
    compared = project.run("compare", "old.jsonl", "new.jsonl", "-f", "json")
    assert compared.code == 0
    assert "an earlier version of Assay made one of them" in compared.stderr
    assert project.run("baseline", "add", "old.jsonl", "--to", "base.jsonl").code == 0
    added = project.run("baseline", "add", "new.jsonl", "--to", "base.jsonl")
    assert added.code == 0, added
    assert "an earlier version of Assay" in added.stdout + added.stderr
    resumed = project.trials("old.jsonl", "--resume", "-k", "2")
    assert resumed.code == 1
    assert "earlier version of Assay" in resumed.stderr
    shown = project.run("identity", "old.jsonl")
    assert "not recorded: loads" in shown.stdout
