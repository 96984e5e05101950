"""assay skills: teach other agents to use Assay."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import click

from assay import __path__, plugins
from assay.adapters.vendor import KNOWN, VendorAdapter
from assay.cli.help import SHIPPED, examples
from assay.cli.parameters import help_option
from assay.errors import OutputError
from assay.records.spec import PluginRef


@click.group(
    short_help="Install skills that teach agents to use Assay.",
    epilog=examples(
        "assay skills list",
        "assay skills install",
    ),
)
@help_option
def command() -> None:
    """List the skills that ship with Assay, or install them where agents look for skills.

    A skill is a folder with a SKILL.md that tells an agent when and how to call a program.
    """


@command.command(
    "list",
    short_help="List the skills that ship with Assay.",
    epilog=examples(
        "assay skills list",
        "assay skills list | grep arc-",
    ),
)
@help_option
def list_skills() -> None:
    """List the skills that ship with Assay, with what each is for."""
    for skill in shipped_skills():
        click.echo(f"{skill.name:20} {skill.purpose}")


@command.command(
    "install",
    short_help="Write the skills to where agents look for them.",
    epilog=examples(
        "assay skills install",
        "assay skills install --agent claude --agent codex",
        "assay skills install --overwrite",
    ),
)
@click.option(
    "--agent",
    "agents",
    type=click.Choice([agent.name for agent in KNOWN]),
    multiple=True,
    help="Install for this agent only. May be repeated. Default: all of them.",
)
@click.option(
    "--user", is_flag=True, help="Install in your HOME, for all projects, not in this folder."
)
@click.option(
    "--overwrite", is_flag=True, help="Replace installed skills that differ from the shipped ones."
)
@help_option
def install_skills(agents: tuple[str, ...], *, user: bool, overwrite: bool) -> None:
    """Write the skills to .claude/skills (claude) and .agents/skills (codex, gemini, opencode).

    Agents that were not named here find them in .agents/skills if they follow the same standard.
    """
    base = Path.home() if user else Path()
    folders = _folders(agents or tuple(agent.name for agent in KNOWN))
    if not overwrite:
        # Nothing at all is written if anything would be lost.
        places = [(base / folder, skill) for folder in folders for skill in shipped_skills()]
        if changed := [path for place, skill in places for path in skill.changed(place)]:
            msg = f"these files differ from the shipped ones: {', '.join(map(str, changed))}"
            raise OutputError(msg, hint="use --overwrite to replace them")
    for folder, readers in folders.items():
        written = [skill.name for skill in shipped_skills() if skill.install(base / folder)]
        done = f"wrote {', '.join(written)}" if written else "nothing to do, all are up to date"
        click.echo(f"{base / folder} ({', '.join(readers)}): {done}")


@dataclass(frozen=True)
class Skill:
    """A folder that ships with Assay: SKILL.md, and any files it refers to."""

    folder: Path

    @property
    def name(self) -> str:
        return self.folder.name

    @property
    def purpose(self) -> str:
        """The first sentence of the description in the head of SKILL.md."""
        lines = (self.folder / "SKILL.md").read_text(encoding="utf-8").splitlines()
        found = next(line for line in lines if line.startswith("description: "))
        return found.removeprefix("description: ").partition(". ")[0].rstrip(".") + "."

    def changed(self, skills: Path) -> list[Path]:
        """The files in a folder of skills that are not as they were shipped."""
        pairs = self._files(skills)
        found = [(here, there) for here, there in pairs if there.exists() or there.is_symlink()]
        return [there for here, there in found if not _same(here, there)]

    def install(self, skills: Path) -> bool:
        """Write what is missing or differs; say whether there was anything to write."""
        todo = [(here, there) for here, there in self._files(skills) if not _same(here, there)]
        for here, there in todo:
            try:
                there.parent.mkdir(parents=True, exist_ok=True)
                there.unlink(missing_ok=True)  # a link of the project's is never written through
                there.write_bytes(here.read_bytes())
            except OSError as error:
                msg = f"cannot write {there}: {error.strerror}"
                raise OutputError(msg, hint="check the folder and its permissions") from error
        return bool(todo)

    def _files(self, skills: Path) -> Iterator[tuple[Path, Path]]:
        for path in sorted(self.folder.rglob("*")):
            if path.is_file():
                yield path, skills / self.name / path.relative_to(self.folder)


def shipped_skills() -> list[Skill]:
    """The skills of Assay and of the packages in the same wheel."""
    ours = Path(__path__[0])
    packages = (ours, *(ours.parent / package for package, _ in SHIPPED.values()))
    return [Skill(path.parent) for p in packages for path in sorted(p.glob("skills/*/SKILL.md"))]


def _folders(agents: tuple[str, ...]) -> dict[str, list[str]]:
    """Each folder to write to, below a project or HOME, with the agents that read it."""
    folders: dict[str, list[str]] = {}
    for agent in dict.fromkeys(agents):
        vendor = plugins.adapter(PluginRef(name=agent))
        assert isinstance(vendor, VendorAdapter)  # every known agent is one
        folders.setdefault(vendor.skills_folder, []).append(agent)
    return folders


def _same(here: Path, there: Path) -> bool:
    if there.is_symlink() or not there.is_file():
        return False
    return there.read_bytes() == here.read_bytes()
