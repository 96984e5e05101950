"""The plain benchmark: the prompts of a file, whatever its format, and an empty world."""

from collections.abc import Mapping
from itertools import islice
from pathlib import Path

import msgspec

from assay.errors import CannotRunError, InputError
from assay.plugin import Benchmark, PromptRow
from assay.records.cases import prompt_lines
from assay.records.rows import decode_row
from assay.records.spec import HINT, Prompt, check_prompt

_SHOWN = 5


def refuse(refused: Mapping[str, str], n_asked: int, noun: str, where: str = "") -> None:
    """Raise an error that lists what cannot be run, by id, and why; do nothing if all can."""
    if not refused:
        return
    listed = "; ".join(f"{id_}: {why}" for id_, why in islice(refused.items(), _SHOWN))
    more = f"; and {len(refused) - _SHOWN} more" if len(refused) > _SHOWN else ""
    msg = f"{len(refused)} of {n_asked} {noun} cannot be run{where}. {listed}{more}"
    hint = f"nothing was run; --skip-unsupported runs the other {noun}, --filter ID some of them"
    raise CannotRunError(msg, why=refused, hint=hint)


class PromptFile(Benchmark, msgspec.Struct, frozen=True):
    """Fields are the options a user may set."""

    path: str | None = None
    """None reads stdin."""

    def prompts(self) -> list[PromptRow]:
        """Read the whole file before anything runs; stdin must hold at least one prompt."""
        path = Path(self.path) if self.path is not None else None
        rows: list[PromptRow] = []
        places: dict[str, str] = {}
        for place, line in prompt_lines(path):
            prompt, extra = decode_row(place, line, Prompt, hint=HINT)
            check_prompt(prompt, place, places)
            rows.append((prompt, extra))
        if not rows and path is None:
            msg = "stdin: no prompts"
            raise InputError(msg, hint=HINT)
        return rows
