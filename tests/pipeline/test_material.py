"""The material of an arm is put where its agent looks for it, and nowhere else."""

from pathlib import Path

import pytest

from assay.errors import InputError, OutputError
from assay.pipeline.material import Material, compose, read_skill
from assay.records.spec import PluginRef

HEAD = "---\nname: relnotes\ndescription: Write release notes.\n---\n# How\n"


def a_skill(folder: Path, text: str = HEAD) -> Path:
    folder.mkdir(parents=True)
    (folder / "SKILL.md").write_text(text)
    (folder / "notes.txt").write_text("more")
    return folder


@pytest.mark.parametrize(
    ("agent", "skills", "instructions"),
    [
        ("claude", ".claude/skills", "CLAUDE.md"),
        ("codex", ".agents/skills", "AGENTS.md"),
        ("gemini", ".agents/skills", "GEMINI.md"),
        ("opencode", ".agents/skills", "AGENTS.md"),
        ("demo", ".agents/skills", "AGENTS.md"),
    ],
)
def test_each_agent_finds_it_where_it_looks(
    tmp_path: Path, agent: str, skills: str, instructions: str
) -> None:
    skill = read_skill(a_skill(tmp_path / "mine"))
    (tmp_path / "v2.md").write_text("Be brief.")
    material = Material(skills=(skill,), instructions=tmp_path / "v2.md")
    compose(PluginRef(name=agent), material, tmp_path / "made")
    assert (tmp_path / "made" / skills / "relnotes" / "notes.txt").read_text() == "more"
    assert (tmp_path / "made" / instructions).read_text() == "Be brief."


def test_it_replaces_what_the_template_has_under_the_same_name(tmp_path: Path) -> None:
    template = tmp_path / "template"
    a_skill(template / ".claude/skills/relnotes", "---\nold\n---\n")
    a_skill(template / ".claude/skills/other")
    (template / "CLAUDE.md").write_text("old")
    skill = read_skill(a_skill(tmp_path / "mine"))
    (tmp_path / "v2.md").write_text("new")
    material = Material(template=template, skills=(skill,), instructions=tmp_path / "v2.md")
    compose(PluginRef(name="claude"), material, tmp_path / "made")
    made = tmp_path / "made"
    assert (made / ".claude/skills/relnotes/SKILL.md").read_text() == HEAD
    assert (made / ".claude/skills/other/SKILL.md").exists()
    assert (made / "CLAUDE.md").read_text() == "new"
    assert (template / "CLAUDE.md").read_text() == "old"


def test_a_link_in_the_template_is_never_written_through(tmp_path: Path) -> None:
    template, home = tmp_path / "template", tmp_path / "home"
    a_skill(home / "skills/other")
    (home / "rules.md").write_text("mine")
    template.mkdir()
    (template / ".claude").symlink_to(home)
    (template / "CLAUDE.md").symlink_to(home / "rules.md")
    (tmp_path / "v2.md").write_text("new")
    skill = read_skill(a_skill(tmp_path / "mine"))
    material = Material(template=template, skills=(skill,), instructions=tmp_path / "v2.md")
    compose(PluginRef(name="claude"), material, tmp_path / "made")
    assert sorted(path.name for path in (home / "skills").iterdir()) == ["other"]
    assert (home / "rules.md").read_text() == "mine"
    assert (tmp_path / "made/.claude/skills/other/SKILL.md").exists()
    assert (tmp_path / "made/.claude/skills/relnotes/SKILL.md").exists()


@pytest.mark.parametrize(
    ("description", "read"),
    [
        ("Write: release notes", "Write: release notes"),
        ('"Write \\"notes\\""', 'Write "notes"'),
        ("'It''s for notes'", "It's for notes"),
        (">-\n  Write notes\n  for releases.", "Write notes for releases."),
        ("Write notes\n  for releases.", "Write notes for releases."),
    ],
)
def test_the_description_is_read_as_agents_read_it(
    tmp_path: Path, description: str, read: str
) -> None:
    text = f"---\ndescription: {description}\nallowed-tools:\n  - Bash\n---\n"
    skill = read_skill(a_skill(tmp_path / "notes", text))
    assert (skill.name, skill.description) == ("notes", read)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("# No head", "does not start with a head"),
        ("---\nname: x\n", "does not start with a head"),
        ("---\nname: x\n---\n", "no description"),
        ("---\nname: ../../x\ndescription: y\n---\n", "cannot be the name"),
    ],
)
def test_what_is_no_skill_is_refused(tmp_path: Path, text: str, problem: str) -> None:
    with pytest.raises(InputError, match=problem):
        read_skill(a_skill(tmp_path / "mine", text))


def test_a_folder_without_skill_md_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"no SKILL\.md"):
        read_skill(tmp_path)


def test_what_cannot_be_written_is_said(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(OutputError, match="workspace template"):
        compose(PluginRef(name="claude"), Material(), tmp_path / "file" / "made")
