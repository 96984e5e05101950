"""The cases that skills bring along: evals/evals.json of each, with the skill in the metadata."""

from glob import glob
from pathlib import Path

import msgspec

from assay.errors import InputError
from assay.plugin import Benchmark, PromptRow
from assay.records.cases import prompt_lines
from assay.records.rows import decode_row
from assay.records.spec import HINT, Prompt

CASES = (
    *("evals/evals.json", "evals/evals.yaml", "evals/evals.yml", "evals.json"),
    *("evals/prompts.jsonl", "evals/promptfooconfig.yaml", "promptfooconfig.yaml"),
)
"""Where the cases of a skill are, in its folder; the first that is there counts."""


class SkillEvals(Benchmark, msgspec.Struct, frozen=True):
    """Fields are the options a user may set."""

    path: str = "skills/*"
    """A pattern for folders of skills."""

    def prompts(self) -> list[PromptRow]:
        """Read the cases of all skills; the id of each begins with its skill."""
        rows: list[PromptRow] = []
        for folder in skill_folders(self.path):
            for place, line in prompt_lines(cases_of(folder)):
                prompt, extra = decode_row(place, line, Prompt, hint=HINT)
                metadata = {**prompt.metadata, "skill": folder.name}
                named = msgspec.structs.replace(
                    prompt, id=f"{folder.name}/{prompt.id}", metadata=metadata
                )
                rows.append((named, extra))
        return rows


def skill_folders(pattern: str) -> list[Path]:
    """Return the folders of skills that bring cases along; refuse a pattern that finds none."""
    folders = [Path(found) for found in sorted(glob(pattern)) if Path(found, "SKILL.md").is_file()]  # noqa: PTH207
    if not folders:
        msg = f"{pattern}: there is no folder with a SKILL.md"
        raise InputError(msg, hint="on a command line, put the pattern in quotes, as in 'skills/*'")
    with_cases = [folder for folder in folders if cases_of(folder) is not None]
    if not with_cases:
        msg = f"{pattern}: none of these skills has evals/evals.json"
        raise InputError(msg, hint=f"write one for {folders[0]}; see docs/prompts.md")
    return with_cases


def cases_of(folder: Path) -> Path | None:
    """Return the file with the cases of a skill, if it has one."""
    return next((folder / name for name in CASES if (folder / name).is_file()), None)
