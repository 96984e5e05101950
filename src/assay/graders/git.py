"""Built-in `git`: what the agent changed in its repository, and whether the tests pass then."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import cached_property
from typing import Any, ClassVar

from assay.errors import InputError, PluginError
from assay.graders.command import refuse_unrun, tail, words, workspace_of
from assay.graders.fingerprint import built_in_version
from assay.graders.worktree import Changes, read_changes
from assay.records.grade import Grade
from assay.seams import Host, Trial


@dataclass
class Git:
    """Passes when something changed, all of these hold, and the tests (if given) pass.

    Globs are over paths from the root of the repository. base is what to compare with: HEAD sees
    what is not committed; name a branch or commit when the agent may commit.
    """

    name: ClassVar[str] = "git"
    sees: ClassVar[frozenset[str]] = frozenset({"cwd"})
    test: str | list[str] = ""
    changed: list[str] = field(default_factory=list)
    unchanged: list[str] = field(default_factory=list)
    max_files: int | None = None
    max_lines: int | None = None
    base: str = "HEAD"
    timeout_s: float = 60.0

    def __post_init__(self) -> None:
        for name in ("max_files", "max_lines"):
            if (getattr(self, name) or 0) < 0:
                msg = f"git: {name} cannot be negative"
                raise InputError(msg)
        _ = words(self.test)

    @cached_property
    def version(self) -> str:
        """Fingerprint of code and options."""
        return built_in_version(self)

    def grade(self, trial: Trial, host: Host) -> Grade:
        """Look at the repository, then run the tests."""
        cwd = workspace_of(trial)
        changes = read_changes(cwd, self.base, host, self.timeout_s)
        wrong = self._wrong(changes)
        outcome: dict[str, Any] = {"type": "git", **changes.as_outcome()}
        if self.test:
            passed, said = self._run_tests(cwd, host)
            outcome["testsPassed"] = passed
            wrong += [] if passed else [said]
        n_lines = changes.insertions + changes.deletions
        summary = f"{len(changes.paths)} files changed, {n_lines} lines"
        return Grade(
            pass_=not wrong,
            score=float(not wrong),
            reasoning="; ".join([summary, *wrong]),
            outcome=outcome,
        )

    def _wrong(self, changes: Changes) -> list[str]:
        paths = changes.paths
        wrong = [] if paths else ["nothing changed"]
        wrong += [f"{glob} did not change" for glob in self.changed if not _any(paths, glob)]
        wrong += [f"{glob} changed" for glob in self.unchanged if _any(paths, glob)]
        if self.max_files is not None and len(paths) > self.max_files:
            wrong.append(f"more than {self.max_files} files")
        if self.max_lines is not None and changes.insertions + changes.deletions > self.max_lines:
            wrong.append(f"more than {self.max_lines} lines")
        return wrong

    def _run_tests(self, cwd: str, host: Host) -> tuple[bool, str]:
        done = host.run(words(self.test), cwd=cwd, timeout_s=self.timeout_s)
        if done.timed_out:
            msg = f"the tests did not end in {self.timeout_s:g} s"
            raise PluginError(msg)
        refuse_unrun(done)
        return done.exit_code == 0, f"tests: exit code {done.exit_code}\n{tail(done)}".rstrip()


def _any(paths: Sequence[str], glob: str) -> bool:
    return any(fnmatchcase(path, glob) for path in paths)
