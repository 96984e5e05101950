"""The folders of a trial: where the agent works, its own HOME, and its raw streams."""

import contextlib
import os
import stat
import threading
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from itertools import islice
from pathlib import Path
from typing import Any

from assay import plugins
from assay.errors import OutputError
from assay.plugin import Command
from assay.records.files import (
    copy_folder,
    copy_with_linked,
    read_regular,
    remove_folder,
    temporary_place,
)
from assay.records.once import made_once
from assay.records.raw_streams import SESSION_FILES
from assay.records.spec import KEEP_ALL, KEEP_FAILED, KEEP_NONE, TrialSpec
from assay.records.text import counted_noun
from assay.run.notes import (
    folder_of_row,
    note_end,
    notes_in,
    read_note,
    start_folder,
    write_note,
)
from assay.run.process import raise_if_stopping
from assay.run.raw import RawStreams
from assay.run.secrets import Secrets

_MOST_MATCHES = 10_000
_SESSION_FILES = 100
"""Each is an open file until the trial is over."""
_SESSION_BYTES = 64 * 1024 * 1024
"""Most that is kept of an agent's session files together: they are read into memory."""
_ALWAYS_PASSED = ("PATH", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "TERM", "SHELL", "USER", "LOGNAME")


AGENT_FILES = (
    "CLAUDE.md",
    "CLAUDE.local.md",
    ".claude",
    ".mcp.json",
    "AGENTS.md",
    "AGENTS.override.md",
    ".agents",
    ".codex",
    "GEMINI.md",
    ".gemini",
    "opencode.json",
    "opencode.jsonc",
    ".opencode",
    ".cursor",
    ".cursorrules",
    ".github/copilot-instructions.md",
    ".github/instructions",
    ".github/agents",
    ".github/skills",
    ".vscode/mcp.json",
    "AGENT.md",
    "CRUSH.md",
    "QWEN.md",
    "WARP.md",
    ".aider.conf.yml",
    ".amazonq",
    ".clinerules",
    ".factory",
    ".goosehints",
    ".junie",
    ".kiro",
    ".qwen",
    ".roo",
    ".windsurf",
    ".windsurfrules",
)
"""What agents read in their working folder and in the folders above it."""
_PROJECTS = (".git", ".hg", ".jj", ".env")
"""What shows that a folder is a project; some agents also read the .env of a folder above."""


def inherited(folder: Path) -> list[Path]:
    """Return what agents would read in a folder that may not exist yet, or in one above it."""
    return _found_above(folder, AGENT_FILES)


def private_root() -> Path:
    """Return a folder of this user for workspaces, with no project and no agent files above it."""
    unfit: list[Path] = []
    # Where they really are: an agent looks for its files above that.
    for place in map(Path.resolve, _private_places()):
        found = _found_above(place, AGENT_FILES + _PROJECTS)
        if not found and _is_ours(place):
            return place
        unfit += found[:1]
    msg = "there is no place for workspaces outside of every project"
    seen = f"found {', '.join(map(str, unfit))}; " if unfit else ""
    raise OutputError(msg, hint=f"{seen}set TMPDIR or XDG_CACHE_HOME, or use --workspace-dir")


def _private_places() -> Iterator[Path]:
    with contextlib.suppress(RuntimeError):  # a user without a home
        cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
        if Path(cache).is_absolute():
            yield Path(cache, "assay", "workspaces")
    for place in ("/var/tmp", temporary_place()):
        yield Path(place, f"assay-{os.getuid()}", "workspaces")


def _is_ours(place: Path) -> bool:
    """Make the folder if it is missing; return whether nobody else can write to it."""
    try:
        place.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        place.mkdir(mode=0o700, exist_ok=True)
        about = [folder.lstat() for folder in (place, place.parent)]
    except OSError:
        return False
    return all(
        stat.S_ISDIR(a.st_mode) and a.st_uid == os.getuid() and not a.st_mode & 0o022 for a in about
    )


def _found_above(folder: Path, names: Iterable[str]) -> list[Path]:
    """Return what is there of some names in a folder and above it, without a Path for each try."""
    places = map(str, (folder, *folder.parents))
    tried = (f"{place}/{name}" for place in places for name in names)
    return [Path(path) for path in tried if os.path.exists(path)]  # noqa: PTH110


def make_workspace(spec: TrialSpec) -> Path:
    """Return the folder the agent works in; a user's own folder is used as it is."""
    around = spec.surroundings
    if around.workspace_dir is None:
        return _shared(around.cwd)
    if not around.confined_in:
        _refuse_planted(around.workspace_dir)
    workspace = Path(around.workspace_dir, spec.folder)
    try:
        workspace, is_new = claim_workspace(spec)
        if is_new:
            _fill(workspace, spec)
    except OSError as error:
        msg = f"cannot make the workspace {workspace}: {error}"
        raise OutputError(msg) from error
    return workspace.resolve()


def keep_start(spec: TrialSpec, workspace: Path, names: Iterable[str]) -> None:
    """Copy what agents read in a workspace, as its prompt and the set-up made it.

    What is there in the end may be the agent's doing, and proves nothing about the experiment.
    """
    if not (spec.surroundings.workspace_dir and (spec.prompt.files or spec.prompt.setup)):
        return
    target = start_of(spec)
    with contextlib.suppress(OSError):
        remove_folder(str(target), missing_ok=True)
        target.mkdir(parents=True)
        for name in names:
            source, copy = workspace / name, target / name
            if source.is_dir() and not source.is_symlink():
                copy_folder(str(source), str(copy))
            elif source.is_file():
                copy.parent.mkdir(parents=True, exist_ok=True)
                copy.write_bytes(source.read_bytes())


def start_of(spec: TrialSpec) -> Path:
    """Return where the copy is of what a trial's agent found."""
    return start_folder(Path(spec.surroundings.workspace_dir or "", spec.folder))


@cache
def _shared(folder: str) -> Path:
    """Return the same path for all trials: one that was written as text before knows it."""
    return Path(folder)


def claim_workspace(spec: TrialSpec) -> tuple[Path, bool]:
    """Return where the workspace of a trial is, and whether it is to be made.

    It has the name of the trial, for which one of an earlier run has to make room. Only where a
    run that goes on has that one, or it is not ours, is another name taken.
    """
    around = spec.surroundings
    parent = Path(around.workspace_dir or around.cwd)
    number, workspace = 1, parent / spec.folder
    names, _ = _at_first(str(parent))
    with _claiming:
        while not _is_free(workspace, spec):
            # A folder that is not ours gets nothing put into it; one of an agent is not used.
            is_ours = read_note(workspace) is not None
            if not (is_ours or _is_filled(spec)) and workspace.name in names:
                return workspace, False
            number += 1
            workspace = parent / f"{spec.folder}.{number}"
        write_note(workspace, spec.run_token, around.added)
    return workspace, True


_claiming = threading.Lock()


def _is_free(workspace: Path, spec: TrialSpec) -> bool:
    """Whether a name can be taken; what an earlier run has there is removed or moved aside."""
    around, note = spec.surroundings, read_note(workspace)
    if note is None:
        return not os.path.lexists(workspace)
    if note.token == spec.run_token and (around.replace or spec.retried):
        note.remove()
    elif note.is_live:
        return False
    elif note.passed and around.keep_workspaces != KEEP_ALL:
        note.remove()
    elif os.path.lexists(workspace):
        note.move_aside()
    return not os.path.lexists(workspace)


def _is_filled(spec: TrialSpec) -> bool:
    """Whether the prompt or its benchmark puts something into the workspace."""
    return spec.prompt.needs_workspace or plugins.benchmark(spec.benchmark).needs_workspace


@made_once
def _at_first(folder: str) -> tuple[frozenset[str], frozenset[str]]:
    """Return what was in a folder for workspaces before its first agent, and above them."""
    try:
        names = frozenset(os.listdir(folder))  # noqa: PTH208 - names, not paths
    except FileNotFoundError:
        names = frozenset()
    return names, _just_above(folder)


def _just_above(folder: str) -> frozenset[str]:
    """Return what agents would read in a folder, or in the one above it."""
    places = folder, os.path.dirname(folder)  # noqa: PTH120 - for each trial, and faster so
    paths = [f"{place}/{name}" for place in places for name in AGENT_FILES]
    return frozenset([path for path in paths if os.access(path, os.F_OK)])


def _refuse_planted(folder: str) -> None:
    """Raise if somebody put instructions above the workspaces since the run began."""
    _, before = _at_first(folder)
    for path in _just_above(folder) - before:
        msg = f"an agent put {path} above the workspaces, where all agents read it"
        raise OutputError(msg, hint="remove it, use --sandbox to keep agents apart, and --resume")


def remove_owned(parent: Path, token_start: str) -> None:
    """Remove the workspaces in a folder whose notes begin with this, and the notes."""
    for note in notes_in(parent):
        if note.token.startswith(token_start):
            note.remove()


def leave_workspace(spec: TrialSpec, folder: str, raw: str | None, *, passed: bool) -> None:
    """Note how a trial ended whose row is on disk; remove its workspace unless it is kept."""
    note, keep = read_note(Path(folder)), spec.surroundings.keep_workspaces
    if note is None or note.token != spec.run_token:
        return
    if keep == KEEP_NONE or (passed and keep == KEEP_FAILED):
        note.remove()
    else:
        note_end(note.folder, note.token, passed=passed, raw=raw)


def adopt_workspace(spec: TrialSpec, folder: str, raw: str | None) -> None:
    """Let a workspace of an earlier run be one of the run that has its trial now."""
    place = folder_of_row(folder, raw)
    if place is not None and (note := read_note(Path(place))) is not None:
        note_end(note.folder, spec.run_token, passed=note.passed, raw=raw)


def _fill(workspace: Path, spec: TrialSpec) -> None:
    template = spec.surroundings.workspace_template
    if template is None:
        workspace.mkdir(parents=True)
    else:
        copy_folder(template, str(workspace))
        if template in _templates and _templates[template] != _stamps(template):
            msg = "an agent changed Assay's copy of the workspace template"
            raise OutputError(msg, hint="use --sandbox to keep agents away from it, and --resume")
    for path, data in spec.prompt.file_bytes():
        _write_inside(workspace, path, data)


def _write_inside(folder: Path, path: str, data: bytes) -> None:
    """Write a file below a folder; no link of the template may lead it elsewhere."""
    *parents, name = path.split("/")
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
    fd = os.open(folder, flags)
    try:
        for part in parents:
            with contextlib.suppress(FileExistsError):
                os.mkdir(part, dir_fd=fd)
            below = os.open(part, flags, dir_fd=fd)
            os.close(fd)
            fd = below
        with contextlib.suppress(FileNotFoundError):  # replaced, not written through a link
            os.unlink(name, dir_fd=fd)
        new = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666, dir_fd=fd)
        with os.fdopen(new, "wb") as file:
            file.write(data)
    except OSError as error:
        msg = f"{path}: {error.strerror}"
        raise OSError(error.errno, msg) from error
    finally:
        os.close(fd)


_templates: dict[str, list[tuple[object, ...]]] = {}
"""Copies of templates that trials are made from, and how they looked when they were made."""


@contextlib.contextmanager
def frozen_template(source: str | None, copy: str) -> Iterator[None]:
    """Copy a template to where the specifications of the trials say that it is.

    What the user, or an agent, changes in the original during the run changes no trial.
    """
    if source is None:
        yield
        return
    remove_folder(copy, missing_ok=True)  # left by a run that was killed
    try:
        write_note(Path(copy), Path(copy).name)
        copy_with_linked(Path(source), Path(copy), AGENT_FILES)
        _templates[copy] = _stamps(copy)
        yield
    except OSError as error:
        msg = f"cannot copy the workspace template: {error}"
        raise OutputError(msg) from error
    finally:
        _templates.pop(copy, None)
        if (note := read_note(Path(copy))) is not None:
            note.remove()
            note.remove_lock()


def _stamps(folder: str) -> list[tuple[object, ...]]:
    """Return what changes when anything in a folder does; nobody can set back a ctime."""
    found: list[tuple[object, ...]] = []
    for path, folders, files in os.walk(folder):
        for name in sorted((*folders, *files)):
            about = os.lstat(f"{path}/{name}")
            found.append((path, name, about.st_ino, about.st_size, about.st_ctime_ns))
    return sorted(found, key=str)


def child_env(spec: TrialSpec, home: str | None, command: Command) -> dict[str, str]:
    """Return the agent's environment: all of ours, or when isolated only what was declared."""
    if home is None:
        return {**our_env(), **command.env}
    names = spec.surroundings.env_names
    if spec.surroundings.hides_env:
        return isolated_env(home, (*command.pass_env, *names), command.env)
    left_out = set(command.home_env) - set(names)
    ours = {name: value for name, value in our_env().items() if name not in left_out}
    return {**ours, **_tool_homes(), **_places_in(home), **command.env}


_TOOL_HOMES = {
    "PYENV_ROOT": ".pyenv",
    "PYTHONUSERBASE": ".local",
    "RBENV_ROOT": ".rbenv",
    "NVM_DIR": ".nvm",
    "VOLTA_HOME": ".volta",
    "ASDF_DATA_DIR": ".asdf",
    "MISE_DATA_DIR": ".local/share/mise",
    "CARGO_HOME": ".cargo",
    "RUSTUP_HOME": ".rustup",
}
"""Where programs of the user's HOME look for the rest of themselves, unless a variable says it."""


def _tool_homes() -> dict[str, str]:
    """Return where the user's own programs are: with another HOME they would not start."""
    users = our_env().get("HOME") or ""
    paths = {name: f"{users}/{folder}" for name, folder in _TOOL_HOMES.items() if users}
    return {
        name: path
        for name, path in paths.items()
        if name not in our_env() and os.path.isdir(path)  # noqa: PTH112
    }


def isolated_env(home: str, pass_env: Iterable[str], declared: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of a program with a HOME of its own."""
    names = {*_ALWAYS_PASSED, *pass_env}
    passed = {name: os.environ[name] for name in names if name in os.environ}
    return {**passed, **_places_in(home), **declared}


def _places_in(home: str) -> dict[str, str]:
    """Return the variables that lead to folders of a HOME, and make the one that must be there."""
    Path(home, "tmp").mkdir(exist_ok=True)
    return {
        "HOME": home,
        "TMPDIR": f"{home}/tmp",
        "XDG_CONFIG_HOME": f"{home}/.config",
        "XDG_DATA_HOME": f"{home}/.local/share",
        "XDG_STATE_HOME": f"{home}/.local/state",
        "XDG_CACHE_HOME": f"{home}/.cache",
    }


def our_env() -> dict[str, str]:
    """Return our own environment as text."""
    # os.environ decodes every value each time it is read: three times 30 µs for each trial, of
    # 1.6 ms of CPU time altogether. What it decodes from tells in 2 µs whether anything changed.
    global _decoded
    raw, last = getattr(os.environ, "_data", None), _decoded
    if raw is None or raw != last[0]:
        # Put there in one step, because many threads ask at once.
        _decoded = last = (None if raw is None else dict(raw), dict(os.environ))
    return last[1]


_decoded: tuple[Any, dict[str, str]] = (None, {})


def our_secrets() -> Secrets:
    """Return the secrets of our own environment, found once."""
    global _ours
    env, ours = our_env(), _ours
    if ours is None or ours[0] is not env:
        _ours = ours = (env, Secrets(env))
    return ours[1]


_ours: tuple[dict[str, str], Secrets] | None = None


def secrets_of(env: Mapping[str, str]) -> Secrets:
    """Return the secrets of an agent's environment and of our own.

    An isolated agent may find ours, too: /proc shows the environment of its user's processes.
    """
    ours = our_env()
    added = {name: value for name, value in env.items() if ours.get(name) != value}
    return Secrets(ours, added) if Secrets(added).longest else our_secrets()


def keep_files(
    patterns: Iterable[str], bases: Mapping[str, Path], raw: RawStreams, secrets: Secrets
) -> list[str]:
    """Copy the agent's own session files beside the raw streams; mask secrets, also in names.

    bases has the folder for each beginning of a pattern; the empty one comes last. Return warnings
    about files that are too many or too large.
    """
    left, n_files, refused = _SESSION_BYTES, 0, 0
    for source, name in _matches(patterns, bases):
        raise_if_stopping()
        with contextlib.suppress(OSError):
            data = read_regular(source, left + 1) if n_files < _SESSION_FILES else None
            if data is None or len(data) > left:
                refused += 1
                continue
            kept = f"{SESSION_FILES}/{secrets.mask_text(str(name))}"
            while kept in raw:  # two names that differ only in secrets of the same length
                kept += "*"
            raw.write(kept, secrets.mask_file(data))
            left, n_files = left - len(data), n_files + 1
    if not refused:
        return []
    most = f"{_SESSION_FILES} files and {_SESSION_BYTES >> 20} MB"
    return [f"{counted_noun(refused, 'session file')} not kept: more than {most} together"]


def remove_links(folder: Path, path: Path) -> None:
    """Remove links on the way to a file in a folder: an agent may have put them there."""
    place = folder
    for part in path.relative_to(folder).parts:
        place /= part
        if place.is_symlink():
            place.unlink()


def _matches(patterns: Iterable[str], bases: Mapping[str, Path]) -> Iterator[tuple[Path, Path]]:
    """Yield the files that match, and their names; none that a link leads to elsewhere."""
    for pattern in patterns:
        start, base = next(pair for pair in bases.items() if pattern.startswith(pair[0]))
        real_base = base.resolve()
        for source in sorted(islice(base.glob(pattern.removeprefix(start)), _MOST_MATCHES)):
            if source.resolve().is_relative_to(real_base):
                yield source, source.relative_to(base)
