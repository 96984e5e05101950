"""Confine an agent without bubblewrap: by Landlock and seccomp, through the kernel's own interface.

A small program restricts itself and becomes the agent. Landlock only allows and denies, it hides
nothing: names, sizes and times of all files stay visible, and their modes and owners can be changed
as far as the user may. There are no namespaces: the agent sees the processes of the machine, and
Assay ends those that it leaves as it does without a sandbox.
"""

import os
import platform
import sys
from collections.abc import Iterable, Sequence

import msgspec

_MACHINES = {"x86_64": (0xC000003E, 41), "aarch64": (0xC00000B7, 198)}
"""The kernel's name of the architecture, and the number of the system call `socket`."""
_LEAST_ABI = 6
"""From Linux 6.12 on: signals and abstract sockets are confined, too."""
_DEVICES = ("null", "zero", "full", "random", "urandom", "tty", "ptmx", "pts")

HELPER = """\
import ctypes, errno, json, os, stat, struct, sys
rules, arch, socket_number = json.loads(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
no_sockets = rules.pop("no-sockets")
libc = ctypes.CDLL(None, use_errno=True)
def call(what, *words):
    found = libc.syscall(*[ctypes.c_long(w) if isinstance(w, int) else w for w in words])
    if found < 0:
        sys.exit(f"{what}: {os.strerror(ctypes.get_errno())}")
    return found
abi = call("Landlock", 444, None, 0, 1)
if abi < LEAST_ABI:
    sys.exit(f"Landlock: the kernel has version {abi}, LEAST_ABI is needed")
EVERYTHING, OF_FILES = (1 << 16) - 1, 1 << 0 | 1 << 1 | 1 << 2 | 1 << 14 | 1 << 15
RIGHTS = {"read": 1 << 0 | 1 << 2 | 1 << 3, "look": 1 << 2 | 1 << 3, "write": EVERYTHING,
          "use": 1 << 1 | 1 << 2 | 1 << 3 | 1 << 14 | 1 << 15}
handled = struct.pack("QQQ", EVERYTHING, 0, 3)
ruleset = call("Landlock", 444, handled, len(handled), 0)
for right, paths in rules.items():
    for path in paths:
        try:
            fd = os.open(path, os.O_PATH | os.O_CLOEXEC)
        except OSError:
            continue
        allowed = RIGHTS[right]
        if not stat.S_ISDIR(os.fstat(fd).st_mode):
            allowed &= OF_FILES
        rule = struct.pack("=Qi", allowed, fd)
        call(f"Landlock: {path}", 445, ruleset, 1, rule, 0)
        os.close(fd)
if os.geteuid() == 0:
    for number in range(64):
        libc.prctl(24, number, 0, 0, 0)  # no program that is started has a capability
    call("capset", {"x86_64": 126, "aarch64": 91}[os.uname().machine],
         struct.pack("Ii", 0x20080522, 0), struct.pack("6I", *[0] * 6))
if libc.prctl(38, 1, 0, 0, 0):
    sys.exit("prctl: " + os.strerror(ctypes.get_errno()))
call("Landlock", 446, ruleset, 0)
DENY, ALLOW = 0x00050000 | errno.EPERM, 0x7FFF0000
code = [(0x20, 0, 0, 4), (0x15, 0, 8, arch), (0x20, 0, 0, 0), (0x35, 6, 0, 0x40000000),
        (0x15, 5, 0, 425), (0x15, 4 if no_sockets else 0, 3, socket_number), (0x20, 0, 0, 16),
        (0x15, 2, 0, 1), (0x15, 1, 0, 40), (0x06, 0, 0, ALLOW), (0x06, 0, 0, DENY)]
packed = b"".join(struct.pack("HBBI", *one) for one in code)
held = ctypes.create_string_buffer(packed, len(packed))
program = struct.pack("HxxxxxxQ", len(code), ctypes.addressof(held))
if libc.prctl(22, 2, ctypes.c_char_p(program), 0, 0):
    sys.exit("seccomp: " + os.strerror(ctypes.get_errno()))
try:
    os.execv(sys.argv[4], sys.argv[4:])
except OSError as error:
    sys.exit(f"cannot start {sys.argv[4]}: {error.strerror}")
""".replace("LEAST_ABI", str(_LEAST_ABI))
"""Runs before the agent, with the rules as JSON, the architecture, the number of `socket` and the
agent's command. The filter denies sockets of this machine (a server behind one may start anything
for the agent), io_uring, which does without system calls, and system calls of other
architectures."""


def landlocked(
    argv: Sequence[str],
    readable: Iterable[str],
    written: Iterable[str],
    *,
    sockets: bool = True,
) -> list[str]:
    """Return the command that runs argv with access to these files and folders only.

    Without sockets it has no network at all, and can speak to no other process either.
    """
    arch, socket_number = _MACHINES[platform.machine()]
    rules: dict[str, object] = {
        "no-sockets": not sockets,
        "read": [*dict.fromkeys(map(os.path.realpath, readable))],
        "look": ["/proc"],
        "use": [f"/dev/{name}" for name in _DEVICES],
        "write": [*written],
    }
    given = msgspec.json.encode(rules).decode()
    # The plain interpreter, not that of our virtual environment.
    python = os.path.realpath(sys.executable)
    return [python, "-IS", "-c", HELPER, given, str(arch), str(socket_number), *argv]


def is_known_machine() -> bool:
    """Whether the filter is known for this architecture."""
    return platform.machine() in _MACHINES
