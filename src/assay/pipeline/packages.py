"""Packages that a script imports, as they are installed: of Python and of Node.

Name, version and what the installer recorded are enough for a package of a registry. One that was
installed from a folder, or is linked to one, can change without a new version: its files count.
"""

import base64
import contextlib
import hashlib
import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import msgspec

from assay.records.files import hash_file, short_hash

_PRINT_PATH = "import sys; print('\\n'.join(sys.path))"
_SITES = ("site-packages", "dist-packages")
_MOST_PACKAGES = 2000
_INSTALLING_S = 60.0
"""What was written so long after the record of an installation may be part of it."""
_NODE_OWN = frozenset(
    [
        "assert",
        "async_hooks",
        "buffer",
        "child_process",
        "cluster",
        "console",
        "constants",
        "crypto",
        "dgram",
        "dns",
        "domain",
        "events",
        "fs",
        "http",
        "http2",
        "https",
        "inspector",
        "module",
        "net",
        "os",
        "path",
        "perf_hooks",
        "process",
        "punycode",
        "querystring",
        "readline",
        "repl",
        "stream",
        "string_decoder",
        "sys",
        "timers",
        "tls",
        "trace_events",
        "tty",
        "url",
        "util",
        "v8",
        "vm",
        "wasi",
        "worker_threads",
        "zlib",
    ]
)
_ARCHIVES = (".zip", ".egg", ".whl")
_LOCKS = ("package-lock.json", "bun.lock", "bun.lockb", "pnpm-lock.yaml", "yarn.lock")


class PythonPaths:
    """Where a Python program finds the modules that it imports."""

    def __init__(
        self,
        program: Path,
        own: Path,
        env: Mapping[str, str],
        folder: Path,
        ask: Callable[[list[str]], bytes] | None = None,
        *,
        isolated: bool = False,
    ) -> None:
        """own is the folder of the script, or the current one for -m and -c."""
        self._program, self._ask = program, ask
        named = "" if isolated else env.get("PYTHONPATH", "")
        self._named = [folder / part for part in named.split(os.pathsep) if part]
        self._roots = [own, *self._named]
        self._known: dict[str, Path | None] = {}
        self._names: dict[Path, frozenset[str]] = {}
        self._found: dict[str, _Distribution | None] = {}
        self._reported: set[str] = set()

    def extend(self, text: str, folder: Path) -> bool:
        """Add the folders that a text puts into sys.path, as far as they stand in it."""
        names = re.findall(r"""["']([\w./~+-]{1,200})["']""", text)
        found = [folder / Path(name).expanduser() for name in names]
        if "__file__" in text:
            found += list(folder.parents)[:2]
        kept = (path for path in found if path.is_dir() or path.suffix in _ARCHIVES)
        there = [path for path in kept if path.exists() and path not in self._roots]
        self._roots += there
        self._known.clear()
        return bool(there) or "__file__" in text

    def local(self, name: str) -> Path | None:
        """Return the file or the folder of a module that is not installed from a registry."""
        if name not in self._known:
            top = self._known.get(name.partition(".")[0])
            is_whole = top is not None and top.is_dir()  # a package, with all that is below it
            self._known[name] = top if is_whole else self._find(name)
        return self._known[name]

    def _find(self, name: str) -> Path | None:
        top = name.partition(".")[0]
        for root in self._roots:
            if self._has(root, top) and (place := _module_in(root, name)) is not None:
                return place
        if name.partition(".")[0] in sys.stdlib_module_names:
            return None
        for top, place in self._editable.items():
            if name == top or name.startswith(f"{top}."):
                return place
        for root in self._linked:
            if self._has(root, top) and (place := _module_in(root, name)) is not None:
                return place
        return None

    def _has(self, root: Path, top: str) -> bool:
        """Whether a folder has anything of this name; most names are not the user's own."""
        if root not in self._names:
            try:
                names = os.listdir(root)  # noqa: PTH208 - names alone
            except OSError:
                names = []
            self._names[root] = frozenset(name.partition(".")[0] for name in names)
        return top in self._names[root]

    def customized(self, name: str) -> Iterator[Path]:
        """Yield modules that Python imports at every start, if there are any."""
        for folder in (*self._named, *self._own_sites):
            if (folder / f"{name}.py").is_file():
                yield folder / f"{name}.py"

    @property
    def archives(self) -> list[Path]:
        """The archives among the folders of modules; what is in them is not looked at."""
        return [root for root in self._roots if root.is_file()]

    def missing(self, names: Iterable[str]) -> list[str]:
        """Return those modules that are nowhere, as far as all places are known."""
        if not self._sites or self.archives:
            return []
        tops = dict.fromkeys(name.partition(".")[0] for name in names)
        places = (*self._roots, *self._sites, *self._linked)
        return [
            top
            for top in tops
            if top not in sys.stdlib_module_names
            and top not in self._editable
            and not any(self._has(place, top) for place in places)
            and self._distribution(top) is None
        ]

    def packages(self, module: str) -> dict[str, str]:
        """Return the package of a registry that a module comes from, and its version."""
        found = self._distribution(module)
        if found is None or found.is_editable or module in self._reported:
            return {}
        self._reported.add(module)
        needs = sorted(self._needed(found, {}).items())
        recorded = short_hash(msgspec.json.encode((found.record, needs, *found.edited())))
        return {found.name: f"{found.version} {recorded}"}

    def installed_from_folder(self, module: str) -> list[Path]:
        """Return where a module is that was installed from a folder and not from a registry."""
        found = self._distribution(module)
        if found is None or found.is_editable or not found.is_from_folder:
            return []
        place = _module_in(found.folder.parent, module)
        return [place] if place else []

    def _needed(self, package: "_Distribution", known: dict[str, str]) -> dict[str, str]:
        for name in package.needs:
            other = self._by_name.get(name)
            if other is not None and name not in known and len(known) < _MOST_PACKAGES:
                known[name] = f"{other.version} {other.record}"
                self._needed(other, known)
        return known

    def _distribution(self, module: str) -> "_Distribution | None":
        if module not in self._found:
            found = self._by_name.get(_plain(module))
            others = (one for one in self._by_name.values() if one.has_module(module))
            self._found[module] = found or next(others, None)
        return self._found[module]

    @cached_property
    def _own_sites(self) -> list[Path]:
        """The folders of packages of a virtual environment, which are known without asking."""
        around = self._program.absolute().parent.parent
        if not (around / "pyvenv.cfg").is_file():
            return []
        return [path for path in around.glob("lib/python*/site-packages") if path.is_dir()]

    @cached_property
    def _sites(self) -> list[Path]:
        if self._own_sites:
            return self._own_sites
        printed = self._ask([str(self._program), "-c", _PRINT_PATH]) if self._ask else b""
        paths = [Path(os.fsdecode(line)) for line in printed.splitlines()]
        return [path for path in paths if path.name in _SITES and path.is_dir()]

    @cached_property
    def _by_name(self) -> dict[str, "_Distribution"]:
        found: dict[str, _Distribution] = {}
        for site in self._sites:
            for folder in sorted(site.glob("*.dist-info"))[:_MOST_PACKAGES]:
                one = _Distribution(folder)
                found.setdefault(_plain(one.name), one)
        return found

    @cached_property
    def _linked(self) -> list[Path]:
        """Folders outside that .pth files name: editable installs of several tools."""
        found = []
        for site in self._sites:
            for file in (*sorted(site.glob("*.pth")), *sorted(site.glob("*.egg-link"))):
                for line in _lines(file):
                    path = Path(site, line.strip())
                    if not line.startswith("import ") and line.strip() and path.is_dir():
                        found.append(path)
        return found

    @cached_property
    def _editable(self) -> dict[str, Path]:
        """Modules that an editable install of setuptools maps to folders."""
        found: dict[str, Path] = {}
        for site in self._sites:
            for file in sorted(site.glob("__editable__*_finder.py")):
                text = "\n".join(_lines(file))
                mapping = re.search(r"^MAPPING[^=]*=\s*(\{.*?\})", text, re.MULTILINE | re.DOTALL)
                pairs = re.findall(r"'([\w.]+)':\s*'([^']+)'", mapping[1]) if mapping else []
                for name, path in pairs:
                    place = Path(path)
                    found[name] = place if place.exists() else place.with_suffix(".py")
        return found


class _Url(msgspec.Struct):
    url: str = ""
    dir_info: dict[str, bool] = {}


class _Distribution:
    """An installed package of Python."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.name, _, self.version = folder.name.removesuffix(".dist-info").partition("-")

    @cached_property
    def _source(self) -> _Url:
        with contextlib.suppress(OSError, msgspec.MsgspecError, UnicodeError):
            return msgspec.json.decode((self.folder / "direct_url.json").read_bytes(), type=_Url)
        return _Url()

    @property
    def is_editable(self) -> bool:
        return bool(self._source.dir_info.get("editable"))

    @property
    def is_from_folder(self) -> bool:
        source = urlsplit(self._source.url)
        return source.scheme == "file" and Path(unquote(source.path)).exists()

    @cached_property
    def record(self) -> str:
        """Hash of what was installed; programs name the folder of Python, and are left out."""
        kept = [
            line for line in _lines(self.folder / "RECORD")
            if "sha256=" in line and not line.startswith(("..", "/")) and ".dist-info/" not in line
        ]  # fmt: skip
        return short_hash("\n".join(sorted(kept)).encode())

    def edited(self) -> Iterator[str]:
        """Yield files that are not as they were installed, with their hashes."""
        record = self.folder / "RECORD"
        with contextlib.suppress(OSError):
            installed = record.stat().st_mtime + _INSTALLING_S
            for line in _lines(record):
                name, known, size = (*line.rsplit(",", 2), "", "")[:3]
                if not known.startswith("sha256=") or name.startswith(("..", "/")):
                    continue
                with contextlib.suppress(OSError):
                    about = (self.folder.parent / name).stat()
                    if str(about.st_size) == size and about.st_mtime <= installed:
                        continue
                    digest = hashlib.sha256((self.folder.parent / name).read_bytes()).digest()
                    found = base64.urlsafe_b64encode(digest).rstrip(b"=").decode()
                    if known != f"sha256={found}":
                        yield f"{name} {found}"

    @cached_property
    def needs(self) -> list[str]:
        """Names of the packages that it needs, without those of extras."""
        lines = (
            line for line in _lines(self.folder / "METADATA") if line.startswith("Requires-Dist:")
        )
        found = (
            re.match(r"Requires-Dist:\s*([\w.-]+)", line)
            for line in lines
            if "extra ==" not in line
        )
        return [_plain(match[1]) for match in found if match]

    def has_module(self, module: str) -> bool:
        return module in self._modules

    @cached_property
    def _modules(self) -> frozenset[str]:
        if tops := _lines(self.folder / "top_level.txt"):
            return frozenset(tops)
        lines = _lines(self.folder / "RECORD")
        return frozenset(re.split(r"[/.,]", line, maxsplit=1)[0] for line in lines)


class NodePackages:
    """Collects the npm packages that are loaded."""

    def __init__(self, packages: dict[str, str]) -> None:
        self._packages = packages

    def add(self, folder: Path, file: Path | None = None) -> None:
        """Add a package that stands below node_modules; file is what is loaded first of it."""
        about = _read_manifest(folder)
        main = file or folder / (about.main or "index.js")
        parts = (folder / "package.json", folder / "npm-shrinkwrap.json", main)
        recorded = short_hash("".join(hash_file(part) for part in parts).encode())
        self._packages[about.name or folder.name] = f"{about.version} {recorded}".strip()

    def has(self, module: str, folder: Path) -> bool:
        """Whether a module is one of Node's own, or of a package that is installed."""
        parts = module.split("/")
        name = "/".join(parts[: 2 if module.startswith("@") else 1])
        return parts[0] in _NODE_OWN or any(
            (place / "node_modules" / name).is_dir() for place in (folder, *folder.parents)
        )

    def required(self, module: str, folder: Path) -> Path | None:
        """Add the package of a module; return its folder if it is linked and may change."""
        parts = module.split("/")
        name = "/".join(parts[: 2 if module.startswith("@") else 1])
        if name in _NODE_OWN:
            return None
        for place in (folder, *folder.parents):
            package = place / "node_modules" / name
            if not package.is_dir():
                continue
            real = package.resolve()
            if "node_modules" not in real.parts:
                return real
            self.add(real)
            self._add_lock(place)
            return None
        return None

    def _add_lock(self, project: Path) -> None:
        locks = (project / "node_modules" / ".package-lock.json", *(project / n for n in _LOCKS))
        for lock in locks:
            if lock.is_file():
                self._packages["node_modules"] = hash_file(lock)
                return


def mapped_modules(module: str, folder: Path) -> Iterator[Path]:
    """Yield the files that package.json has for a name such as #config."""
    for place in (folder, *folder.parents) if module.startswith("#") else ():
        with contextlib.suppress(OSError, msgspec.MsgspecError, UnicodeError):
            table = msgspec.json.decode((place / "package.json").read_bytes(), type=_Imports)
            for name, target in table.imports.items():
                start, star, end = name.partition("*")
                if name == module or (star and module.startswith(start) and module.endswith(end)):
                    within = module[len(start) : len(module) - len(end)] if star else ""
                    for path in re.findall(r'"(\./[^"]+)"', msgspec.json.encode(target).decode()):
                        yield place / path.replace("*", within)
            return


class _Imports(msgspec.Struct):
    imports: dict[str, Any] = {}


class _NodeManifest(msgspec.Struct):
    name: str = ""
    version: str = ""
    main: str = ""


def _read_manifest(folder: Path) -> _NodeManifest:
    with contextlib.suppress(OSError, msgspec.MsgspecError, UnicodeError):
        return msgspec.json.decode((folder / "package.json").read_bytes(), type=_NodeManifest)
    return _NodeManifest()


def node_package(program: Path) -> Path | None:
    """Return the folder of the npm package that a file belongs to, installed or linked."""
    for folder in program.parents:
        if folder.name == "node_modules" or folder.parent == folder:
            return None
        if (folder / "package.json").is_file() and _read_manifest(folder).name:
            return folder
    return None


def _module_in(root: Path, name: str) -> Path | None:
    """Return a package, a module, or a folder of modules without __init__.py, below a root."""
    place = root
    for part in name.split("."):
        place /= part
        if (place / "__init__.py").is_file() or (place / "__main__.py").is_file():
            return place
        names = (f"{part}.py", f"{part}.pyc", f"{part}.so", f"{part}.abi3.so")
        files = (*map(place.with_name, names), *sorted(place.parent.glob(f"{part}.cpython-*.so")))
        if file := next(filter(Path.is_file, files), None):
            return file
        if not place.is_dir():
            return None
    return None  # a folder alone: what is imported from it is looked for by its own name


def _plain(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def _lines(file: Path) -> list[str]:
    try:
        return file.read_bytes().decode("utf-8", "replace").splitlines()
    except OSError:
        return []
