"""Wrap an agent's command in bubblewrap: it sees the system, its workspace and its own HOME.

Pure apart from looking at the file system: what is to be started goes in, a longer command comes
out. The kernel ends all processes of a sandbox when bubblewrap's own process ends.
"""

import contextlib
import os
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path

import msgspec

from assay import system
from assay.errors import AssayError, SpawnError
from assay.records.files import temporary_folder
from assay.run.landlock import is_known_machine, landlocked
from assay.run.program import run_program

PROGRAM = "bwrap"
INSTALL = "install it, for example with: apt install bubblewrap"
_SYSTEM = (
    *("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/opt"),
    *("/nix/store", "/gnu/store", "/run/current-system", "/home/linuxbrew/.linuxbrew"),
)
_ETC_FOLDERS = ("alternatives", "ssl/certs", "pki/ca-trust", "pki/tls/certs", "crypto-policies")
_ETC_FILES = (
    *("ssl/openssl.cnf", "ssl/cert.pem", "pki/tls/cert.pem", "group", "passwd", "hosts"),
    *("resolv.conf", "nsswitch.conf", "host.conf", "gai.conf", "protocols", "services"),
    *("ld.so.cache", "ld.so.conf", "ld-musl-x86_64.path", "localtime", "timezone", "gitconfig"),
    *("locale.alias", "locale.conf", "profile", "bashrc", "bash.bashrc", "inputrc", "os-release"),
    *("mime.types", "magic", "debian_version"),
)
"""What programs need of /etc; keys of the system, such as ssl/private, are not among it."""
_PROC_OF_ROOT = ("sys", "sysrq-trigger", "fs", "acpi", "scsi")
"""What root may write in /proc by owning it, without any capability."""
_NAMESPACES = (
    *("--unshare-user", "--unshare-pid", "--unshare-ipc", "--unshare-uts"),
    "--unshare-cgroup-try",
)
_INSTALLATION = ("bin", "lib", "lib64", "pyvenv.cfg")
_SHEBANG_BYTES = 256
_MOST_INTERPRETERS = 4
"""The interpreter of a script may be a script."""


class View(msgspec.Struct, frozen=True, kw_only=True):
    """What a sandboxed agent sees besides the system and its own program."""

    workspace: str
    home: str
    """The agent's own HOME; its folder tmp is the sandbox's /tmp."""
    visible: Sequence[str] = ()
    """Files, folders and programs that are shown read-only."""
    hidden: Sequence[str] = ()
    """Folders that are covered where they lie in something visible."""
    etc: str
    """A copy of what programs need of /etc."""
    mounts: Mapping[str, str] = {}
    """Places in the sandbox, and the folders that are shown there, to be written to as well."""


def sandboxed(
    argv: Sequence[str],
    env: Mapping[str, str],
    view: View,
    *,
    network: bool,
    helper: Sequence[str] = (),
) -> list[str]:
    """Return the command that runs argv in a sandbox. Raises SpawnError if there is no program.

    A helper is a command that is started first, inside, and becomes argv.
    """
    shown = _VisiblePaths(env.get("PATH", os.defpath), view)
    words = [*_own_system(network=network), *_etc(view.etc)]
    for folder in ("/tmp", "/var/tmp"):
        words += ["--bind", f"{view.home}/tmp", folder]
    words += shown.cover(_SYSTEM)
    for program in (*helper[:1], argv[0]):
        if not shown.add_program(program):
            msg = f'Executable not found in $PATH: "{program}"'
            raise SpawnError(msg)
    words += shown.mount()
    words += shown.cover(shown.mounts)  # Assay itself, where the interpreter has its modules
    for name in view.visible:
        shown.add_visible(name)
    words += shown.mount()
    for folder in (view.workspace, view.home):
        words += ["--bind", folder, folder]
    words += shown.cover([view.workspace])
    for place, folder in view.mounts.items():
        words += ["--bind", folder, place]
    return [*words, "--remount-ro", "/", "--chdir", view.workspace, "--", *helper, *argv]


def check_sandbox(*, network: bool) -> None:
    """Raise AssayError, with the reason, unless a sandbox can be made on this machine."""
    if not system.is_linux():
        msg = "--sandbox: there is no sandbox on this system"
        raise AssayError(msg, hint="--container confines agents here, too")
    words = [*_own_system(network=network), "--tmpfs", "/tmp", "--", "true"]
    try:
        done = run_program(words, timeout_s=20.0)
    except SpawnError as error:
        msg = f"--sandbox needs bubblewrap: {error.message}"
        raise AssayError(msg, hint=INSTALL) from error
    if done.exit_code != 0 or done.timed_out:
        said = done.stderr.decode("utf-8", "replace").strip() or f"exit code {done.exit_code}"
        msg = f"--sandbox does not work on this machine: {said.splitlines()[-1]}"
        raise AssayError(
            msg,
            hint="bubblewrap needs user namespaces: see sysctl user.max_user_namespaces, "
            "kernel.unprivileged_userns_clone and kernel.apparmor_restrict_unprivileged_userns, "
            "or the security profile of the container that this runs in",
        )


@cache
def kind_of_sandbox(*, network: bool) -> str:
    """Return what --sandbox uses on this machine: bubblewrap, or landlock where that does not work.

    Raises AssayError, with the reason, if neither can do it.
    """
    try:
        check_sandbox(network=network)
    except AssayError as error:
        if not network:
            more = "; without it, only --sandbox is possible, by Landlock"
            hint = f"{error.hint}{more if works_landlock() else ''}"
            raise AssayError(error.message, hint=hint) from error
        if not works_landlock():
            raise
        return "landlock"
    return "bubblewrap"


@cache
def works_landlock() -> bool:
    """Whether Landlock keeps a program from a file on this machine: it is tried."""
    if not system.is_linux() or not is_known_machine():
        return False
    with temporary_folder("assay-try-") as folder:
        secret = Path(folder, "secret")
        secret.touch()
        tries = [landlocked(["/bin/cat", one], _SYSTEM, ()) for one in ("/dev/null", str(secret))]
        try:
            codes = [run_program(words, timeout_s=20.0).exit_code for words in tries]
        except SpawnError:
            return False
    return codes[0] == 0 and codes[1] not in (0, None)


LANDLOCK = (
    "it cannot read or write other files, signal other processes or reach sockets of this machine; "
    "it sees names, sizes and processes, can change modes of your files, and has no /tmp but TMPDIR"
)


def describe_landlock() -> str:
    """Say whether Landlock can stand in for bubblewrap; raise AssayError if not."""
    if works_landlock():
        return f"works, and --sandbox uses it where bubblewrap does not: {LANDLOCK}"
    msg = "Landlock does not work on this machine"
    raise AssayError(msg, hint="it needs Linux 6.12 or later on x86-64 or ARM")


def landlocked_command(
    argv: Sequence[str], env: Mapping[str, str], view: View
) -> tuple[list[str], dict[str, str]]:
    """Return the command and the environment that confine argv without bubblewrap."""
    shown = _VisiblePaths(env.get("PATH", os.defpath), view)
    program = shown.find(argv[0])
    if program is None or not shown.add_program(argv[0]):
        msg = f'Executable not found in $PATH: "{argv[0]}"'
        raise SpawnError(msg)
    if view.mounts:
        why = "this benchmark shows folders under other names, for which it needs bubblewrap"
        msg = f"--sandbox: {why}; {INSTALL}"
        raise SpawnError(msg)
    for name in view.visible:
        shown.add_visible(name)
    shown.mount()
    etc = (f"/etc/{name}" for name in (*_ETC_FILES, *_ETC_FOLDERS))
    readable = [*_SYSTEM, *etc, *shown.mounts]
    # Names are not hidden: a program that is found there, and may not be run, would be in the way.
    own = [*map(os.path.realpath, readable), view.workspace, view.home]
    search = env.get("PATH", os.defpath).split(os.pathsep)
    path = os.pathsep.join(one for one in search if _is_below(os.path.realpath(one), own))
    words = landlocked([program, *argv[1:]], readable, [view.workspace, view.home])
    return words, {**env, "PATH": path}


def describe_sandbox() -> str:
    """Say what works; raise AssayError, with the reason, when nothing does."""
    check_sandbox(network=True)
    version = run_program([PROGRAM, "--version"]).stdout.decode("utf-8", "replace").strip()
    try:
        check_sandbox(network=False)
    except AssayError as error:
        return f"{version} works, but not with no-network: {error.message}"
    return f"{version} works, also with no-network"


def copy_etc(target: str) -> None:
    """Copy what programs need of /etc: to mount each file would take 6 ms more for each trial."""
    for name in _ETC_FILES:
        source, copy = Path("/etc", name), Path(target, name)
        with contextlib.suppress(OSError):  # what we cannot read, the agent cannot read either
            data = source.read_bytes()
            copy.parent.mkdir(parents=True, exist_ok=True)
            copy.write_bytes(data + _own_entry(data) if name == "passwd" else data)
    for name in _ETC_FOLDERS:
        if Path("/etc", name).is_dir():
            Path(target, name).mkdir(parents=True, exist_ok=True)


def _own_entry(passwd: bytes) -> bytes:
    """Return a line for the user that we are, unless there is one: a directory may hold users."""
    uid = str(os.getuid()).encode()
    if any(line.split(b":")[2:3] == [uid] for line in passwd.splitlines()):
        return b""
    return f"user:x:{os.getuid()}:{os.getgid()}::/:/bin/sh\n".encode()


def shown_program(word: str, search: str, view: View) -> tuple[str, dict[str, str]]:
    """Return the path of a program of this machine that is not the system's, and what has to be
    mounted where so that it runs elsewhere: its installation, and the interpreter of a script.
    """
    paths = _VisiblePaths(search, view)
    found = paths.find(word)
    if found is None or paths.is_shown(found) or not paths.add_program(word):
        return "", {}
    return found, {**{link: os.path.realpath(link) for link in paths.links}, **paths.new}


class _VisiblePaths:
    """Collects what to show read-only, each path once."""

    def __init__(self, search: str, view: View) -> None:
        self._search = search
        self._cwd = view.workspace
        self._own = (view.workspace, view.home)
        self._hidden = view.hidden
        self._covered: list[str] = []
        self.links: dict[str, str] = {}
        self.new: dict[str, str] = {}
        """Where in the sandbox, and what; not mounted yet."""
        self.mounts: list[str] = []

    def mount(self) -> list[str]:
        """Return the arguments that show what was added."""
        words: list[str] = []
        for target, source in self.new.items():
            words += ["--ro-bind", source, target]
        self.mounts += self.new
        for link, target in self.links.items():
            if not self.is_shown(link):
                words += ["--symlink", target, link]
                self.mounts.append(link)
        self.new, self.links = {}, {}
        return words

    def cover(self, shown: Iterable[str]) -> list[str]:
        """Put an empty folder over each hidden one that would be seen in the folders shown."""
        shown = list(shown)
        words: list[str] = []
        for folder in self._hidden:
            seen = _is_below(folder, shown) and folder not in shown
            if seen and os.path.isdir(folder):  # noqa: PTH112
                words += ["--perms", "0555", "--tmpfs", folder]
                self._covered.append(folder)
        return words

    def add_visible(self, name: str) -> None:
        """Show a file or folder under its own name; a script also with its interpreter."""
        path = os.path.expanduser(name)  # noqa: PTH111 - as everywhere here, no Path objects
        if os.path.isdir(path):  # noqa: PTH112
            if not any(map(self._holds_too_much, (path, os.path.realpath(path)))):
                self._mount(os.path.realpath(path), path)
        elif os.path.isfile(path):  # noqa: PTH113
            self.add_program(path)

    def _holds_too_much(self, folder: str) -> bool:
        """Whether a folder has all files, all users or the user's HOME in it, or what is hidden."""
        inside = ("/home", str(Path.home()), self._cwd)
        return folder == "/" or any(
            _is_below(place, [folder]) and (place != folder or place in inside)
            for place in (*inside, *self._hidden)
        )

    def add_program(self, word: str, depth: int = 0) -> bool:
        """Show a program, what it is installed with, and the interpreter of a script."""
        found = self.find(word)
        if found is None:
            return False
        hops = _hops(found)
        own = next((hop for hop in hops if _is_below(hop, self._own)), None)
        if own is not None:
            # An earlier turn may have put anything there: a link or a first line that leads out.
            if found != own:
                self.links[found] = own
            return True
        for hop in hops:
            self._add_installation(hop)
        real = os.path.realpath(found)
        self._mount(real)
        if found != real:
            self.links[found] = real
        interpreter = _interpreter(real)
        if interpreter and depth < _MOST_INTERPRETERS:
            self.add_program(interpreter, depth + 1)
        return True

    def find(self, word: str) -> str | None:
        """Return the path of a program."""
        if "/" in word:
            path = os.path.join(self._cwd, word)  # noqa: PTH118
            return path if os.path.exists(path) else None  # noqa: PTH110
        for folder in self._search.split(os.pathsep):
            path = os.path.join(folder or self._cwd, word)  # noqa: PTH118
            if os.access(path, os.X_OK) and not os.path.isdir(path):  # noqa: PTH112
                return path
        return None

    def _add_installation(self, program: str) -> None:
        """Show the folder of modules that a program is part of, or what an interpreter needs."""
        if self.is_shown(program):
            return
        before, modules, _ = program.partition("/node_modules/")
        if modules:
            self._mount(f"{before}/node_modules")
            return
        folder, _, prefix = os.path.dirname(program).rpartition("/")  # noqa: PTH120
        if prefix == "shims" and not self._holds_too_much(folder):
            self._mount(folder)  # of pyenv and its like: the script there starts the real program
            return
        if prefix == "bin" and _is_installation(folder):
            # Never all of it: an environment may have been made in a project's folder.
            for name in _INSTALLATION:
                if os.path.lexists(f"{folder}/{name}"):
                    self._mount(f"{folder}/{name}")

    def _mount(self, source: str, target: str | None = None) -> None:
        target = target or source
        if not self.is_shown(target):
            self.new[target] = source

    def is_shown(self, path: str) -> bool:
        if _is_below(path, self.new) or _is_below(path, ("/proc",)):  # a sandbox has its own
            return True
        seen = _is_below(path, _SYSTEM) or _is_below(path, self.mounts)
        return seen and not _is_below(path, self._covered)


def _own_system(*, network: bool) -> list[str]:
    """Begin a command line: namespaces without any rights, the system, its own /proc and /dev."""
    words = [PROGRAM, "--die-with-parent", "--cap-drop", "ALL", *_NAMESPACES, *_no_nesting()]
    words += [] if network else ["--unshare-net"]
    return [*words, *_system(), *_proc(), "--dev", "/dev"]


@cache
def _no_nesting() -> tuple[str, ...]:
    """Keep an agent from making user namespaces, in which much of the kernel is open to it.

    Bubblewrap can do so from 0.8 on, where it may write /proc/sys: it is tried.
    """
    words = (PROGRAM, "--unshare-user", "--disable-userns", "--ro-bind", "/", "/", "--", "true")
    with contextlib.suppress(AssayError):
        done = run_program(words, timeout_s=20.0)
        if done.exit_code == 0 and not done.timed_out:
            return ("--disable-userns",)
    return ()


@cache
def _system() -> tuple[str, ...]:
    """Show the system as it is laid out here, links as links."""
    words: list[str] = []
    for name in _SYSTEM:
        if os.path.islink(name):  # noqa: PTH114
            words += ["--symlink", os.readlink(name), name]  # noqa: PTH115
        elif os.path.isdir(name):  # noqa: PTH112
            words += ["--ro-bind", name, name]
    return tuple(words)


def _etc(copy: str) -> list[str]:
    words = ["--ro-bind", copy, "/etc"]
    for name in _ETC_FOLDERS:
        if os.path.isdir(f"{copy}/{name}"):  # noqa: PTH112
            words += ["--ro-bind", f"/etc/{name}", f"/etc/{name}"]
    return words


@cache
def _proc() -> tuple[str, ...]:
    """Give it a /proc of its own, in which not even root can set anything for the whole machine."""
    words = ["--proc", "/proc"]
    if os.geteuid() == 0:
        for name in _PROC_OF_ROOT:
            if os.path.exists(f"/proc/{name}"):  # noqa: PTH110
                words += ["--ro-bind", f"/proc/{name}", f"/proc/{name}"]
    return tuple(words)


def _hops(path: str) -> list[str]:
    """Return a path and all that its last part leads to when it is a link."""
    hops = [path]
    while os.path.islink(path) and len(hops) < 40:  # noqa: PTH114 - as the kernel
        target = os.readlink(path)  # noqa: PTH115
        path = os.path.normpath(os.path.join(os.path.dirname(path), target))  # noqa: PTH118, PTH120
        hops.append(path)
    real = os.path.realpath(path)
    return hops if real == path else [*hops, real]


def _interpreter(program: str) -> str | None:
    """Return the interpreter that the first line of a script names."""
    try:
        with Path(program).open("rb") as file:
            line = file.read(_SHEBANG_BYTES).partition(b"\n")[0]
    except OSError:
        return None
    words = os.fsdecode(line[2:]).split() if line.startswith(b"#!") else []
    if not words or os.path.basename(words[0]) != "env":  # noqa: PTH119
        return words[0] if words else None
    rest = [word for word in words[1:] if not word.startswith("-") and "=" not in word]
    return rest[0] if rest else None


def _is_installation(folder: str) -> bool:
    """Whether an interpreter is installed here; a user's HOME only looks like it."""
    if folder in ("", "/", str(Path.home())):
        return False
    if os.path.exists(f"{folder}/pyvenv.cfg") or os.path.isdir(f"{folder}/lib/node_modules"):  # noqa: PTH110, PTH112
        return True
    return any(Path(folder, "lib").glob("python3*"))


def _is_below(path: str, folders: Iterable[str]) -> bool:
    """Whether a path is one of the folders, or in one."""
    return any(path == folder or path.startswith(f"{folder.rstrip('/')}/") for folder in folders)
