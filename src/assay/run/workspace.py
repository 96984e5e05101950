"""The folders of a trial: where the agent works, its own HOME, and its raw streams."""

import contextlib
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from assay.errors import OutputError
from assay.records.files import copy_folder, remove_folder
from assay.records.spec import TrialSpec
from assay.run.secrets import Secrets

_ALWAYS_PASSED = ("PATH", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "TERM", "SHELL", "USER", "LOGNAME")


def make_workspace(spec: TrialSpec) -> Path:
    """Return the folder the agent works in; one of ours is made again, a user's own is kept."""
    around = spec.surroundings
    if around.workspace_dir is None:
        return Path(around.cwd)
    parent = Path(around.workspace_dir)
    workspace = parent / spec.folder
    note = parent / ".assay" / spec.folder
    try:
        if note.exists():  # left by an attempt that did not finish
            remove_folder(str(workspace), missing_ok=True)
        if not workspace.exists():
            # The note comes first: a folder that a kill left half made is then known as ours.
            note.parent.mkdir(parents=True, exist_ok=True)
            note.touch()
            if around.workspace_template is None:
                workspace.mkdir(parents=True)
            else:
                copy_folder(around.workspace_template, str(workspace))
    except OSError as error:
        msg = f"cannot make the workspace {workspace}: {error}"
        raise OutputError(msg) from error
    return workspace.resolve()


def child_env(
    spec: TrialSpec, home: str | None, pass_env: Iterable[str], declared: dict[str, str]
) -> dict[str, str]:
    """Return the agent's environment: all of ours, or when isolated only what was declared."""
    if home is None:
        return {**our_env(), **declared}
    names = {*_ALWAYS_PASSED, *pass_env, *spec.surroundings.env_names}
    passed = {name: os.environ[name] for name in names if name in os.environ}
    Path(home, "tmp").mkdir(exist_ok=True)
    places = {
        "HOME": home,
        "TMPDIR": f"{home}/tmp",
        "XDG_CONFIG_HOME": f"{home}/.config",
        "XDG_DATA_HOME": f"{home}/.local/share",
        "XDG_STATE_HOME": f"{home}/.local/state",
        "XDG_CACHE_HOME": f"{home}/.cache",
    }
    return {**passed, **places, **declared}


def our_env() -> dict[str, str]:
    """Return our own environment as text."""
    # os.environ decodes every value each time it is read: three times 30 µs for each trial, of
    # 1.6 ms of CPU time altogether. What it decodes from tells in 2 µs whether anything changed.
    raw = getattr(os.environ, "_data", None)
    if raw is None or raw != _decoded.get("raw"):
        _decoded["raw"] = None if raw is None else dict(raw)
        _decoded["env"] = dict(os.environ)
    env: dict[str, str] = _decoded["env"]
    return env


_decoded: dict[str, Any] = {}


def our_secrets() -> Secrets:
    """Return the secrets of our own environment, found once."""
    global _ours
    env, ours = our_env(), _ours
    if ours is None or ours[0] is not env:
        _ours = ours = (env, Secrets(env))
    return ours[1]


_ours: tuple[dict[str, str], Secrets] | None = None


def keep_files(
    patterns: Iterable[str], home: Path, workspace: Path, target: Path, secrets: Secrets
) -> None:
    """Copy the agent's own session files beside the raw streams, secrets masked."""
    for source, name in _matches(patterns, home, workspace):
        copy = target / name
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_bytes(secrets.mask(source.read_bytes()))


def remove_links(folder: Path, path: Path) -> None:
    """Remove links on the way to a file in a folder: an agent may have put them there."""
    place = folder
    for part in path.relative_to(folder).parts:
        place /= part
        if place.is_symlink():
            place.unlink()


def is_full(folder: str) -> bool:
    """Whether nothing more can be written into a folder."""
    disk = os.statvfs(folder)
    # Part of the free blocks is reserved for root.
    free = disk.f_bfree if os.geteuid() == 0 else disk.f_bavail
    return free == 0 < disk.f_blocks


def _matches(patterns: Iterable[str], home: Path, workspace: Path) -> Iterator[tuple[Path, Path]]:
    for pattern in patterns:
        base = home if pattern.startswith("~/") else workspace
        for source in sorted(base.glob(pattern.removeprefix("~/"))):
            with contextlib.suppress(OSError):
                if source.is_file() and not source.is_symlink():
                    yield source, source.relative_to(base)
