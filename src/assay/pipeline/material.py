"""The material of an arm: template, skills and instructions, put where its agent looks for them."""

import re
from collections.abc import Sequence
from pathlib import Path

import msgspec

from assay import plugins
from assay.benchmarks.skills import CASES
from assay.errors import InputError, OutputError
from assay.records.files import copy_with_linked, remove_folder, short_hash
from assay.records.spec import PluginRef
from assay.run.workspace import AGENT_FILES

SKILL_FILE = "SKILL.md"
"""Where agents look that follow the common standard; adapters of others say it themselves."""
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_KEY = re.compile(r"([A-Za-z][\w-]*):(?:[ \t]+(.*))?$")


class Skill(msgspec.Struct, frozen=True, kw_only=True):
    """A folder with a SKILL.md, whose head says what the skill is called and when to use it."""

    folder: Path
    name: str
    description: str


class Material(msgspec.Struct, frozen=True, kw_only=True):
    """What an agent finds in its workspace."""

    template: Path | None = None
    skills: tuple[Skill, ...] = ()
    instructions: Path | None = None
    """A file that becomes CLAUDE.md, AGENTS.md or GEMINI.md, as the agent wants it."""
    is_template_hidden: bool = False
    """Whether graders do not see what the template tells agents, because arms differ in it."""

    def __bool__(self) -> bool:
        return bool(self.template or self.skills or self.instructions)


def read_skill(folder: Path) -> Skill:
    """Read the head of a skill; refuse a folder that agents would not take for one."""
    file = folder / SKILL_FILE
    try:
        text = file.read_text(encoding="utf-8")
    except FileNotFoundError:
        msg = f"{folder}: there is no {SKILL_FILE}, so this is not a skill"
        raise InputError(msg, hint="name the folder that contains SKILL.md") from None
    except (OSError, UnicodeError) as error:
        msg = f"{file}: cannot be read: {error}"
        raise InputError(msg) from error
    head = _head(text)
    if head is None:
        msg = f"{file}: does not start with a head between two lines of ---"
        raise InputError(msg, hint="agents read the skill's name and description there")
    name, description = head.get("name") or folder.resolve().name, head.get("description", "")
    if not _NAME.fullmatch(name):
        msg = f"{file}: {name!r} cannot be the name of a skill"
        raise InputError(msg, hint="use letters, digits and hyphens")
    if not description:
        msg = f"{file}: the head has no description"
        raise InputError(msg, hint="agents decide by the description when to use the skill")
    return Skill(folder=folder, name=name, description=description)


def _head(text: str) -> dict[str, str] | None:
    """Read the keys of a head that hold text: plain, quoted, or continued on indented lines."""
    lines = text.removeprefix("\ufeff").splitlines()
    if not lines or lines[0].rstrip() != "---":
        return None
    found: dict[str, list[str]] = {}
    key = ""
    for line in lines[1:]:
        if line.rstrip() in ("---", "..."):
            return {name: _joined(parts) for name, parts in found.items()}
        if match := _KEY.match(line):
            key = match[1]
            found[key] = [match[2] or ""]
        elif key and (line[:1] in " \t" or not line):
            found[key].append(line)
    return None


def skill_body(folder: Path) -> str:
    """Hash what a skill says below its head; nothing if there is none, or it cannot be read.

    A copy under another name has another head, but says the same.
    """
    try:
        text = (folder / SKILL_FILE).read_text(encoding="utf-8")
    except (OSError, UnicodeError):
        return ""
    body = " ".join(re.split(r"^(?:---|\.\.\.)\s*$", text, maxsplit=2, flags=re.M)[-1].split())
    return short_hash(body.encode()) if body else ""


def _joined(parts: list[str]) -> str:
    first, rest = parts[0].strip(), parts[1:]
    if re.fullmatch(r"[|>][-+0-9]*", first):  # a block of text
        first = ""
    text = " ".join(filter(None, (first, *map(str.strip, rest))))
    if len(text) > 1 and text[0] == text[-1] == '"':
        return text[1:-1].replace('\\"', '"').replace("\\\\", "\\")
    if len(text) > 1 and text[0] == text[-1] == "'":
        return text[1:-1].replace("''", "'")
    return text


def places_of(agent: PluginRef) -> tuple[str, str]:
    """Return the folder for skills and the file for instructions that an agent looks for."""
    adapter = plugins.adapter(agent)
    return adapter.skills_folder, adapter.instructions_file


def compose(agent: PluginRef, material: Material, folder: Path) -> None:
    """Make a workspace template in a new folder.

    A skill replaces one of the same name in the template, and the instructions replace its own.
    """
    _check_names(material.skills)
    skills, instructions = places_of(agent)
    try:
        if material.template is not None:
            copy_with_linked(material.template, folder, AGENT_FILES)
        else:
            folder.mkdir(parents=True)
        for skill in material.skills:
            target = _made(folder, skills) / skill.name
            target.unlink() if target.is_symlink() else remove_folder(str(target), missing_ok=True)
            copy_with_linked(skill.folder.resolve(), target, [""])
            remove_folder(str(target / ".git"), missing_ok=True)
            for name in CASES:  # the agent would read there what is expected of it
                (target / name).unlink(missing_ok=True)
        if material.instructions is not None:
            text, target = material.instructions.read_bytes(), folder / instructions
            target.unlink(missing_ok=True)  # it may be a link to another file
            target.write_bytes(text)
    except OSError as error:
        msg = f"cannot make the workspace template: {error}"
        raise OutputError(msg) from error


def _check_names(skills: Sequence[Skill]) -> None:
    """Refuse two skills of one name: the second would replace the first."""
    seen: dict[str, Skill] = {}
    for skill in skills:
        other = seen.setdefault(skill.name, skill)
        if other is not skill:
            msg = f"{other.folder} and {skill.folder} are both a skill named {skill.name}"
            raise InputError(msg, hint="an agent can have one of them: leave one out or rename it")


def _made(folder: Path, below: str) -> Path:
    """Make a folder below another one; a link on the way becomes a copy of what it leads to.

    Writing through the link would change the user's own files.
    """
    place = folder
    for part in Path(below).parts:
        place /= part
        if place.is_symlink():
            source = place.resolve()
            place.unlink()
            if source.is_dir():
                copy_with_linked(source, place)
        place.mkdir(exist_ok=True)
    return place
