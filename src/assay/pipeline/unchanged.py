"""Whether the agent's code is still what it was when the run began."""

import os
from collections.abc import Iterable
from pathlib import Path

import msgspec

from assay.pipeline.loaded import CODE
from assay.pipeline.steps import DoTrial, OnTrialStep, Outcome, Step
from assay.records.capture import Identity
from assay.records.files import hash_file
from assay.records.setup import CHANGED_FILES
from assay.records.spec import TrialSpec

type _Stamp = tuple[int, int, int] | None


class EditCheck(Step):
    """Notes in a trial what was edited since the run began: the trial may be of other code.

    Only code counts: agents write data beside themselves.
    """

    def __init__(self, specs: Iterable[TrialSpec]) -> None:
        self._of: dict[tuple[int, str], dict[str, Path]] = {}
        self._identities: list[Identity] = []
        self._stamps: dict[Path, _Stamp] = {}
        self._hashes: dict[Path, str] = {}
        for spec in specs:
            key = (id(spec.identity), spec.surroundings.cwd)
            if spec.identity is not None and key not in self._of:
                self._identities.append(spec.identity)  # its id is nobody else's meanwhile
                self._of[key] = self._watch(spec.identity, Path(spec.surroundings.cwd))

    def around(self, run: DoTrial) -> DoTrial:
        """Look at the files when a trial is over."""

        def watched(spec: TrialSpec, on_step: OnTrialStep | None) -> Outcome:
            outcome = run(spec, on_step)
            files = self._of.get((id(spec.identity), spec.surroundings.cwd), {})
            changed = [name for name, path in files.items() if self._is_changed(path)]
            if not changed:
                return outcome
            setup = {**(outcome.result.setup or {}), CHANGED_FILES: changed}
            return outcome._replace(result=msgspec.structs.replace(outcome.result, setup=setup))

        return watched

    def _watch(self, identity: Identity, cwd: Path) -> dict[str, Path]:
        files: dict[str, Path] = {}
        for name, known in {**identity.loads, **identity.mcp_files}.items():
            path = cwd / Path(name).expanduser()
            if path.suffix in CODE and not name.endswith("/"):
                files[name] = path
                self._hashes[path] = known
                self._stamps[path] = _stamp(path)
        return files

    def _is_changed(self, path: Path) -> bool:
        now = _stamp(path)
        if now == self._stamps[path]:
            return False
        if hash_file(path) == self._hashes[path]:
            self._stamps[path] = now
            return False
        return True


def _stamp(path: Path) -> _Stamp:
    try:
        about = os.stat(path)  # noqa: PTH116 - quicker
    except OSError:
        return None
    return about.st_ino, about.st_size, about.st_mtime_ns
