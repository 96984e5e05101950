"""A template made of a repository: its files as git knows them, without what is to be measured."""

import os
import shutil
from collections.abc import Sequence
from pathlib import Path

from assay.errors import OutputError
from assay.pipeline.stages import local_machine
from assay.records.files import remove_folder

_GIT_S = 60.0


def tracked_files(project: Path) -> list[str]:
    """Return the files of a folder that git tracks, relative to it; none if it is no repository."""
    if shutil.which("git") is None:
        return []
    words = ["git", "-C", str(project), "ls-files", "-z", "--cached"]
    env = {key: value for key, value in os.environ.items() if not key.startswith("GIT_")}
    done = local_machine().run(words, cwd=str(project), env=env, timeout_s=_GIT_S)
    if done.exit_code != 0:
        return []
    return [os.fsdecode(name) for name in done.stdout.split(b"\0") if name]


def write_template(project: Path, target: Path, without: Sequence[Path]) -> int:
    """Copy the tracked files of a repository into a new folder; return how many there are.

    without are files and folders that are left out: the treatment, and what Assay writes.
    """
    left_out = [path.resolve() for path in without]
    chosen = [
        name
        for name in tracked_files(project)
        if not any((project.resolve() / name).is_relative_to(path) for path in left_out)
    ]
    if not chosen:
        return 0
    try:
        remove_folder(str(target), missing_ok=True)
        n_copied = 0
        for name in chosen:
            source, copy = project / name, target / name
            if source.is_dir() and not source.is_symlink():  # a submodule
                continue
            if os.path.lexists(source):  # it may be deleted and not committed yet
                copy.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(source, copy, follow_symlinks=False)
                n_copied += 1
    except OSError as error:
        msg = f"cannot write {target}: {error.strerror}"
        raise OutputError(msg, hint="choose another folder") from error
    return n_copied
