"""Limit the memory and the CPUs of a trial, with the best means that this machine has.

A control group of its own holds all processes of a trial together. Without the right to make one,
systemd makes it for us; without systemd each process has a limit of its own.
"""

import contextlib
import os
import signal
import time
from collections.abc import Sequence
from functools import cache
from itertools import count
from pathlib import Path
from typing import Protocol

from assay import system
from assay.errors import AssayError
from assay.records.spec import Limits
from assay.run.program import run_program

_PERIOD_US = 100_000
_REMOVE_S = 2.0
_OUT_OF_MEMORY = 137
"""The exit code of a process that SIGKILL ended, as the kernel does when memory is used up."""
_ENTER = 'while [ "$1" != -- ]; do echo 0 > "$1" || exit 125; shift; done; shift; exec "$@"'
"""Moves the shell into control groups, then becomes the agent: nothing it starts is outside."""
_counter = count()


class Quota(Protocol):
    """The limits of one trial."""

    by: str
    """What enforces them."""

    def wrap(self, argv: Sequence[str]) -> list[str]:
        """Return the command that runs argv within the limits."""
        ...

    def ran_out_of_memory(self, exit_code: int | None) -> bool:
        """Whether a process was killed because memory was used up, since this was last asked."""
        ...

    def close(self) -> None:
        """End what is left of the trial's processes."""
        ...


def open_quota(limits: Limits) -> Quota:
    """Return new limits for one trial. Raises AssayError where there is no means for them."""
    if not system.is_linux():
        msg = "--memory and --cpus cannot be enforced on this system"
        raise AssayError(msg, hint="with --container the container engine enforces them")
    given = {"memory": limits.memory_bytes, "cpu": limits.cpus}
    needed = tuple(name for name, value in given.items() if value is not None)
    bases = _group_bases(needed)
    if bases is not None:
        return _Groups(limits, bases)
    if _has_systemd():
        return _Scope(limits)
    return _ProcessLimit(limits)


def describe_quota(limits: Limits) -> str:
    """Say what would enforce the limits; raise AssayError, with the reason, when nothing can."""
    check_quota(limits)
    quota = open_quota(limits)
    quota.close()
    return f"enforced by {quota.by}"


def check_quota(limits: Limits) -> None:
    """Raise AssayError, with the reason, unless the limits can be enforced here."""
    quota = open_quota(limits)
    try:
        done = run_program(quota.wrap(["true"]), timeout_s=20.0)
    finally:
        quota.close()
    if done.exit_code != 0:
        said = done.stderr.decode("utf-8", "replace").strip() or f"exit code {done.exit_code}"
        msg = f"--memory and --cpus do not work on this machine ({quota.by}): {said}"
        raise AssayError(msg)


class _Groups:
    """Control groups of the trial's own, one below each base."""

    def __init__(self, limits: Limits, bases: tuple[str, ...]) -> None:
        self.by = "cgroup v2" if Path(bases[0], "cgroup.controllers").exists() else "cgroup v1"
        name = f"assay-{os.getpid()}-{next(_counter)}"
        self._folders = [Path(base, name) for base in bases]
        self._n_killed = 0
        try:
            for folder in self._folders:
                folder.mkdir()
                _set_limits(folder, limits)
        except OSError as error:
            self.close()
            msg = f"cannot make a control group for --memory or --cpus: {error}"
            raise AssayError(msg) from error

    def wrap(self, argv: Sequence[str]) -> list[str]:
        doors = [str(folder / "cgroup.procs") for folder in self._folders]
        return ["/bin/sh", "-c", _ENTER, "sh", *doors, "--", *argv]

    def ran_out_of_memory(self, exit_code: int | None) -> bool:
        before, self._n_killed = self._n_killed, sum(map(_count_killed, self._folders))
        return self._n_killed > before

    def close(self) -> None:
        until_s = time.monotonic() + _REMOVE_S
        for folder in self._folders:
            while folder.exists() and time.monotonic() < until_s:
                _kill_all(folder)
                try:
                    folder.rmdir()
                except OSError:  # the last of its processes is still ending
                    time.sleep(0.001)


class _Scope:
    """A scope that the user's systemd makes."""

    by = "systemd"

    def __init__(self, limits: Limits) -> None:
        self._limits = limits

    def wrap(self, argv: Sequence[str]) -> list[str]:
        words = ["systemd-run", "--user", "--scope", "--quiet", "--collect"]
        if self._limits.memory_bytes is not None:
            words += ["-p", f"MemoryMax={self._limits.memory_bytes}", "-p", "MemorySwapMax=0"]
        if self._limits.cpus is not None:
            words += ["-p", f"CPUQuota={round(self._limits.cpus * 100)}%"]
        return [*words, "--", *argv]

    def ran_out_of_memory(self, exit_code: int | None) -> bool:
        return self._limits.memory_bytes is not None and exit_code == _OUT_OF_MEMORY

    def close(self) -> None:
        """Do nothing: systemd removes a scope when its last process has ended."""


class _ProcessLimit:
    """A limit for each process alone: on its data, and on the CPUs that it may run on."""

    by = "limits of each process"

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        if limits.cpus is not None and not limits.cpus.is_integer():
            msg = f"--cpus {limits.cpus:g} needs a control group, and none can be made here"
            raise AssayError(msg, hint="give a whole number, or run as a user who can make one")

    def wrap(self, argv: Sequence[str]) -> list[str]:
        words: list[str] = []
        if self._limits.memory_bytes is not None:
            # Not the address space: programs with a garbage collector reserve far more than they
            # use.
            kib = self._limits.memory_bytes // 1024
            words = ["/bin/sh", "-c", f'ulimit -d {kib} && exec "$@"', "sh"]
        if self._limits.cpus is not None:
            words += ["taskset", "-c", ",".join(map(str, self._chosen_cpus()))]
        return [*words, *argv]

    def ran_out_of_memory(self, exit_code: int | None) -> bool:
        """Return False: such a process sees that it gets no more memory, and ends as it likes."""
        return False

    def close(self) -> None:
        """Do nothing: these limits end with their processes."""

    def _chosen_cpus(self) -> list[int]:
        """Take other CPUs for each trial, in turn."""
        there = system.usable_cpus()
        n_cpus = min(round(self._limits.cpus or 0), len(there))
        first = next(_counter) * n_cpus
        return [there[(first + number) % len(there)] for number in range(n_cpus)]


def _set_limits(folder: Path, limits: Limits) -> None:
    memory, cpus = limits.memory_bytes, limits.cpus
    quota = None if cpus is None else max(1000, round(cpus * _PERIOD_US))
    settings = {
        "memory.max": memory,
        "memory.limit_in_bytes": memory,
        "cpu.max": quota and f"{quota} {_PERIOD_US}",
        "cpu.cfs_quota_us": quota,
    }
    for name, value in settings.items():
        if value is not None and (folder / name).exists():
            (folder / name).write_text(str(value))
    for name, swap in (("memory.swap.max", 0), ("memory.memsw.limit_in_bytes", memory)):
        if memory is not None and (folder / name).exists():
            with contextlib.suppress(OSError):  # not every kernel counts swap
                (folder / name).write_text(str(swap))


def _count_killed(folder: Path) -> int:
    """Return how many processes the kernel killed because memory was used up."""
    for name in ("memory.events", "memory.oom_control"):
        with contextlib.suppress(OSError):
            words = (folder / name).read_text().split()
            return int(dict(zip(words[::2], words[1::2], strict=False)).get("oom_kill", "0"))
    return 0


def _kill_all(folder: Path) -> None:
    with contextlib.suppress(OSError):
        if (folder / "cgroup.kill").exists():
            (folder / "cgroup.kill").write_text("1")
            return
        for pid in (folder / "cgroup.procs").read_text().split():
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(pid), signal.SIGKILL)


@cache
def _group_bases(controllers: tuple[str, ...]) -> tuple[str, ...] | None:
    """Return folders in which groups can be made that have these controllers; None if not all."""
    unified = _mounts().get("")
    own = _own_groups()
    if unified is not None and "" in own:
        # Beside us: a group that has processes of its own, as ours has, cannot give controllers on.
        base = Path(unified + own[""]).parent if own[""] != "/" else Path(unified)
        with contextlib.suppress(OSError):
            enabled = (base / "cgroup.subtree_control").read_text().split()
            if set(controllers) <= set(enabled) and _can_make(base):
                return (str(base),)
    bases = [Path(_mounts().get(name, "/nowhere") + own.get(name, "")) for name in controllers]
    if all(base.is_dir() and _can_make(base) for base in bases):
        return tuple(map(str, bases))
    return None


def _can_make(base: Path) -> bool:
    """Whether a group can be made here and a process be moved into it."""
    for left in base.glob("assay-*-*"):  # by a run that was killed
        if not system.process_exists(int(left.name.split("-")[1])):
            with contextlib.suppress(OSError):
                left.rmdir()
    folder = base / f"assay-{os.getpid()}-{next(_counter)}"
    try:
        folder.mkdir()
    except OSError:
        return False
    try:
        return os.access(folder / "cgroup.procs", os.W_OK)
    finally:
        folder.rmdir()


def _mounts() -> dict[str, str]:
    """Return where each controller is mounted; the empty name is that of version 2."""
    found: dict[str, str] = {}
    for line in (system.read_proc("self/mounts") or b"").decode().splitlines():
        _, place, kind, options = line.split(" ")[:4]
        if kind == "cgroup2":
            found[""] = place
        elif kind == "cgroup":
            found |= dict.fromkeys(options.split(","), place)
    return found


def _own_groups() -> dict[str, str]:
    """Return the group of this process for each controller."""
    found: dict[str, str] = {}
    for line in (system.read_proc("self/cgroup") or b"").decode().splitlines():
        _, names, path = line.split(":", 2)
        found |= dict.fromkeys(names.split(","), path)
    return found


_systemd: list[bool] = []


def _has_systemd() -> bool:
    """Whether the user's systemd makes scopes for us; asked once."""
    if not _systemd:
        argv = ["systemd-run", "--user", "--scope", "--quiet", "--collect", "--", "true"]
        try:
            _systemd.append(run_program(argv, timeout_s=20.0).exit_code == 0)
        except AssayError:
            _systemd.append(False)
    return _systemd[0]
