"""The names of the runs of a comparison: given as LABEL:FILE, or made from their paths."""

import os
from collections.abc import Sequence
from pathlib import Path

import msgspec

from assay.errors import UsageError
from assay.records.experiment import RESOLVED

type Named = list[tuple[str, Path]]
STDIN = Path("-")


def name_runs(given: Sequence[str]) -> Named:
    """Return label and path of each run; folders distinguish equal file names."""
    runs = [_split(text) for text in given]
    labels = [label for label, _ in runs if label is not None]
    duplicate = next((label for label in labels if labels.count(label) > 1), None)
    if duplicate is not None:
        msg = f"two runs are labelled {duplicate!r}"
        raise UsageError(msg)
    paths = [path for label, path in runs if label is None]
    # Without a label, the run on stdin is called so.
    derived = iter(
        _distinct([Path("stdin") if path == STDIN else path for path in paths], {*labels})
    )
    return [(next(derived) if label is None else label, path) for label, path in runs]


class _ResolvedArms(msgspec.Struct):
    arms: dict[str, msgspec.Raw]


def arm_files(folder: Path) -> list[Path]:
    """Return the results of the arms of an experiment's run, the control first."""
    try:
        found = msgspec.json.decode((folder / RESOLVED).read_bytes(), type=_ResolvedArms)
    except (OSError, ValueError, msgspec.MsgspecError):  # no folder of a run: taken as a file
        return []
    return [path for arm in found.arms if (path := folder / f"{arm}.jsonl").is_file()]


def _split(text: str) -> tuple[str | None, Path]:
    """Split off a label, by looking for files: names of models have colons and slashes too."""
    if text == "-" or _exists(text):
        return None, Path(text)
    colons = [at for at, sign in enumerate(text) if sign == ":" and 0 < at < len(text) - 1]
    for at in colons:
        if text[at + 1 :] == "-" or _exists(text[at + 1 :]):
            return text[:at], Path(text[at + 1 :])
    if not colons or "/" in text[: colons[0]]:
        return None, Path(text)
    return text[: colons[0]], Path(text[colons[0] + 1 :])


def _exists(path: str) -> bool:
    return os.access(path, os.F_OK)  # Path.exists raises for a name that is too long


def _distinct(paths: list[Path], taken: set[str]) -> list[str]:
    """The shortest distinct ends of the paths, with the file extension only if needed."""
    whole = [path.absolute() for path in paths]
    for shortened in ([path.with_suffix("") for path in whole], whole):
        for depth in range(1, max((len(path.parts) for path in whole), default=1) + 1):
            labels = ["/".join(path.parts[-depth:]) for path in shortened]
            if len(set(labels)) == len(labels) and not taken.intersection(labels):
                return labels
    return [f"{path.stem}-{n}" for n, path in enumerate(paths, 1)]
