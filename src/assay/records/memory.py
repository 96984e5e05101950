"""How much memory this process may still take."""

import resource
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from assay import system

_CGROUP_V1 = system.CGROUPS / "memory"


def free_memory() -> int:
    """Return in bytes what is left of the machine, of our control group and of our own limits."""
    return max(0, min(_free()))


def _free() -> Iterator[int]:
    import psutil  # late: only little of what we do asks

    used = psutil.Process().memory_info().vms
    for limit in (resource.RLIMIT_AS, resource.RLIMIT_DATA):
        soft, _ = resource.getrlimit(limit)
        if soft != resource.RLIM_INFINITY:
            yield soft - used
    yield psutil.virtual_memory().available
    for most, now in _control_groups():
        with suppress(OSError, ValueError):  # "max" is no number: there is no limit
            yield int(most.read_text(encoding="ascii")) - int(now.read_text(encoding="ascii"))


def _control_groups() -> Iterator[tuple[Path, Path]]:
    """Yield the files with limit and use of our control group and of those above it."""
    listed = system.read_proc("self/cgroup") or b""
    for line in listed.decode("utf-8", "replace").splitlines():
        number, controllers, path = line.split(":", 2)
        is_v2 = number == "0" and not controllers
        if not is_v2 and "memory" not in controllers.split(","):
            continue
        root = system.CGROUPS if is_v2 else _CGROUP_V1
        own = root / path.lstrip("/")
        names = ("memory.max", "memory.current")
        names = names if is_v2 else ("memory.limit_in_bytes", "memory.usage_in_bytes")
        for folder in (own, *own.parents):
            if folder.is_relative_to(root):
                yield folder / names[0], folder / names[1]
