"""What a command line loads: scripts, modules, packages, and the variables that they read.

Found by reading files, without starting the program: words of the command, imports that lead to the
user's own files, packages as they are installed. What cannot be known in this way is named.
"""

import contextlib
import os
import re
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import islice, pairwise
from pathlib import Path

import msgspec

from assay import __path__, __version__
from assay.pipeline.command_words import (
    ASSIGNMENT,
    ELSEWHERE,
    FETCHERS,
    KEYWORDS,
    POSITIONAL,
    PROJECT_FILES,
    RUNNER_VALUES,
    RUNNERS,
    WRAPPERS,
    env_words,
    files_named,
    filled,
    first_operand,
    nested_command,
    npm_script,
    python_target,
    reads_unknown_file,
    simple_commands,
    without_options,
)
from assay.pipeline.mentions import (
    is_only_read,
    is_quoted,
    opens_computed,
    programs_started,
    public_lines,
    reads_computed_variables,
    variables_named,
    writes,
)
from assay.pipeline.packages import NodePackages, PythonPaths, mapped_modules, node_package
from assay.records.files import hash_file, short_hash
from assay.run.process import is_program, program_places
from assay.system import is_of_system

_OWN = Path(__path__[0])
type AskProgram = Callable[[list[str]], bytes]
"""Starts a program for what it prints: an interpreter for the folders in which it looks."""

_MOST_FILES = 1000
_MOST_NAMED = 20
"""Beyond it, files stand together by their folder: every row has this list."""
_LONGEST_TEXT = 1024 * 1024
"""Of a file that is read for what it loads; a bundle is larger, and complete."""
_LARGEST = 512 * 1024 * 1024
"""Of a file that is hashed; of larger ones only the size counts."""
_LARGEST_FOLDER = 32 * 1024 * 1024
"""Of a folder that code names, with all that is in it."""
_OF_TOOLS = frozenset({".DS_Store", ".coverage", ".gitignore", ".gitattributes", ".gitkeep"})
_PLACES = frozenset({
    "PATH", "PYTHONPATH", "NODE_PATH", "NODE_OPTIONS", "PERL5LIB", "RUBYLIB", "LD_PRELOAD",
    "LD_LIBRARY_PATH", "HOME",
})  # fmt: skip
"""Variables that say where something is looked for."""
_DEEPEST = 8
_LONGEST_WORD = 400
_PYTHON = r"(?:python|pypy)[\d.]*w?(?:\.exe)?"
_NODE = r"node|nodejs|bun|deno|tsx|ts-node"
_SHELL = r"(?:ba|da|z|k|a|fi)?sh|busybox"
_OTHERS = r"ruby[\d.]*|perl[\d.]*|php[\d.]*|lua[\d.]*|Rscript|tclsh|awk|gawk"
CODE = frozenset({
    ".py", ".pyz", ".js", ".mjs", ".cjs", ".ts", ".mts", ".cts", ".jsx", ".tsx", ".sh",
    ".bash", ".zsh", ".rb", ".pl", ".pm", ".php", ".lua", ".r", ".awk",
})  # fmt: skip
_DATA = frozenset({
    ".json", ".jsonc", ".yaml", ".yml", ".toml", ".ini", ".cfg", ".conf", ".txt", ".md",
    ".prompt", ".j2", ".jinja", ".jinja2", ".tmpl", ".template", ".xml", ".csv", ".sql",
    ".html",
})  # fmt: skip
_CONFIGS = frozenset({".json", ".jsonc", ".yaml", ".yml", ".toml", ".ini", ".cfg", ".conf"})
_TEXTS = frozenset({".md", ".txt", ".prompt", ".j2", ".jinja", ".jinja2", ".tmpl", ".template"})
_NOT_OF_PACKAGE = frozenset(
    {"__pycache__", "node_modules", ".git", ".venv", "venv", "dist", "build"}
)
_LIBRARIES = frozenset({".pm", ".rb"})
_DATABASES = frozenset({".db", ".db3", ".sqlite", ".sqlite3", ".duckdb"})
_WRITTEN = frozenset({".pyc", ".pyo", ".log", ".tmp", ".swp", ".lock", ".pid"}) | _DATABASES
_TOKEN = r"~?/?[\w@+.-]+(?:/[\w@+.-]+)*"
_LISTED = r"\bfor\s+(\w+)\s+in\s+(?![^;\n]*(?:\$\(|`))[^;\s]"
"""The name for words that stand in a loop of a shell, patterns among them."""
_FOLDER_PUT_IN = r"\$?\{[^{}\n]*\}/"
"""As in f"{here}/rules.md": nearly always a folder in which the file is looked for anyway."""
_IMPORTS = (
    r"(?:^|[;:])[ \t]*from[ \t]+([\w.]+)[ \t]+import[ \t]*\(?([^\n#)]*(?:\n[^\n#)]*)*?)(?:\)|$)"
    r"|(?:^|[;:])[ \t]*import[ \t]+([\w.][^\n#;]*)"
)
_ABSOLUTE_IMPORT = r"(?m)^\s*(?:import|from)[ \t]+([A-Za-z_][\w.]*)"
_NAMED_IMPORT = r"""(?:import_module|__import__|run_module|find_spec)\(\s*["']([\w.]+)["']"""
_COMPUTED_IMPORT = (
    r"(?:import_module|__import__|run_path|run_module|spec_from_file_location)\(\s*"
    r"(?:[^\"'\s)]|[\"'][^\"'\n]*[\"']\s*[+%.])"
)
_NODE_IMPORT = r"""(?:\brequire\(\s*|\bfrom\s*|\bimport\s*\(?\s*)["'`]([^"'`$\n]+)["'`]"""
_COMPUTED_REQUIRE = r"""(?:\brequire|\bimport)\(\s*(?:[^"'`)\s]|`[^`]*\$\{)"""
_READS = (
    r"""environ(?:\.get)?[\[(]\s*["'](\w+)|getenv\(\s*["'](\w+)|\benv\.([A-Za-z_]\w*)"""
    r"""|\benv\[["'](\w+)|ENV(?:\.fetch\(|\[|\{)\s*["']?(\w+)|env\.get\(\s*["'](\w+)"""
)
_LOCAL_SERVER = r"""["'`](?:https?|wss?)://((?:127\.0\.0\.1|localhost|\[::1\])(?::\d+)?)"""
_SHELL_READS = r"\$\{?([A-Za-z_]\w*)|\bprintenv[ \t]+([A-Za-z_]\w*)"
_WRITERS = frozenset({"tee", "touch", "rm", "rmdir", "mkdir", "mv", "truncate"})
_REDIRECTED = r"""(?:>>?|\btee\b(?:\s+-a)?)\s*["']?([^\s"';|&()<>]+)"""
"""Where a shell writes to."""
_SYSTEM = ("/usr/bin/", "/bin/", "/usr/sbin/", "/sbin/", "/usr/lib/", "/usr/libexec/")


class Loaded(msgspec.Struct, frozen=True, kw_only=True):
    """What was found."""

    files: dict[str, str] = {}
    """Hashes by path, relative to the working folder where the file is near it."""
    packages: dict[str, str] = {}
    variables: frozenset[str] = frozenset()
    """Names of variables that the user's own files read."""
    unknown: tuple[str, ...] = ()
    """What could not be known, in words."""


class Loader:
    """Collects what command lines load; the environment is that of the agent."""

    def __init__(
        self,
        folder: Path,
        env: Mapping[str, str],
        ask: AskProgram | None = None,
        *,
        copies_folders: bool = False,
    ) -> None:
        """copies_folders: what commands do with a folder that they are given is to copy it."""
        self._folder = folder
        self._env = dict(env)
        self._ask = ask
        self._copies_folders = copies_folders
        self._files: dict[Path, None] = {}
        self._written: set[Path] = set()
        """What the commands themselves write."""
        self._read: set[Path] = set()
        self._packages: dict[str, str] = {}
        self._variables: set[str] = set()
        self._unknown: dict[str, None] = {}
        self._node = NodePackages(self._packages)
        self._todo: deque[Callable[[], None]] = deque()
        """What is left to be read: in a queue, because chains of imports may be long."""

    def found(self) -> Loaded:
        """Read what is left, and return all of it with the files hashed."""
        while self._todo and len(self._files) <= _MOST_FILES:
            self._todo.popleft()()
        if len(self._files) > _MOST_FILES:
            more = len(self._files) - _MOST_FILES
            self._unknown[f"{more} more files that the agent may load"] = None
        for path in sorted(self._written & self._files.keys()):
            self._unknown[f"{near(path, self._folder)}, which a command reads and writes"] = None
        # Of an agent that ships with Assay, the program's version says it.
        own = (path for path in self._files if path not in self._written and not _is_ours(path))
        kept = list(islice(own, _MOST_FILES))
        hashes = {near(path, self._folder): self._hash(path) for path in kept}
        return Loaded(
            files=_grouped(hashes),
            packages=dict(sorted(self._packages.items())),
            variables=frozenset(self._variables),
            unknown=tuple(self._unknown),
        )

    def _hash(self, path: Path) -> str:
        if path.name.startswith(".env"):
            return short_hash(public_lines(path))
        with contextlib.suppress(OSError):
            if (size := path.stat().st_size) > _LARGEST:
                self._unknown[f"the content of {path.name}, which has {size:,} bytes"] = None
                return f"{size} bytes"
        return hash_file(path)

    def command(self, words: Sequence[str], folder: Path | None = None, depth: int = 0) -> None:
        """Add what a command line loads that is started in a folder."""
        folder = folder or self._folder
        words, folder = self._unwrapped(list(words), folder)
        if not words or depth > _DEEPEST:
            return
        name = words[0]
        if Path(name).name in FETCHERS:
            self._fetched(words, folder)
            return
        if (runner := Path(name).name) in PROJECT_FILES:
            for file in filter(_is_file, (folder / each for each in PROJECT_FILES[runner])):
                self._script(file, folder, depth + 1)
            self._unknown[f"what {runner} builds and runs"] = None
        if runner in ELSEWHERE:
            self._unknown[f"what {runner} starts or asks elsewhere"] = None
        path = self.find(name, folder)
        if path is None:
            if not depth:
                self._unknown[f"the program {name}, which was not found"] = None
            return
        self.program(path, words[1:], folder, depth)

    def find(self, name: str, folder: Path) -> Path | None:
        """Return the program that the system would start."""
        if len(name) > _LONGEST_WORD or "\0" in name:
            return None
        search = self._env.get("PATH", os.defpath)
        places = program_places(name, str(folder), search)
        with contextlib.suppress(OSError, ValueError):
            return next(filter(is_program, places), None)
        return None

    def program(self, path: Path, args: Sequence[str], folder: Path, depth: int = 0) -> None:
        """Add a program that was found, with its arguments."""
        name = path.name
        if re.fullmatch(_PYTHON, name):
            self._python(path, args, folder)
        elif re.fullmatch(_NODE, name):
            self._javascript(name, args, folder, depth)
        elif re.fullmatch(_SHELL, name):
            self._shell(args, folder, depth)
        elif re.fullmatch(_OTHERS, name):
            self._libraries(args, folder)
            if script := first_operand(args, ("-e", "-f", "-I", "-r")):
                self._script_named(script, folder, depth)
        else:
            self._executable(path, args, folder, depth)
            words, line = nested_command(args)
            self.command(words, folder, depth + 1)
            if line:
                self._shell_text(line, folder, folder, depth + 1)
        if name not in _WRITERS:
            self.operands(args, folder)

    def _executable(self, path: Path, args: Sequence[str], folder: Path, depth: int) -> None:
        """Add a program that is no interpreter: a script, a package's, or a native one."""
        real = path.resolve()
        package = node_package(real)
        if package is not None and "node_modules" in real.parts:
            self._node.add(package, real)
            return
        start = _start_of(real)
        if start.startswith(b"#!"):
            self._files[real] = None
            line = start[2:].split(b"\n", 1)[0].decode("utf-8", "replace").split()
            if b"'''exec'" in start:  # as pip writes it where the path of Python is long
                line = re.findall(rb"'''exec' \"?([^\"\n]+?)\"? ", start)[0].decode().split()
            if package is not None:  # npm link: the user's own folder
                self.folder(package)
            # The script is given as it was named: it decides which environment Python takes.
            self.command([*line, str(path), *args], folder, depth + 1)
        elif not str(real).startswith(_SYSTEM):
            self._files[real] = None
        if any(
            each and not each.startswith((*_SYSTEM, "/opt/", "/lib", "/usr/"))
            for each in self._env.get("LD_LIBRARY_PATH", "").split(":")
        ):
            self._unknown["libraries in the folders of LD_LIBRARY_PATH"] = None
        for name in self._env.get("LD_PRELOAD", "").replace(":", " ").split():
            self._files.update(dict.fromkeys(filter(_is_file, [(folder / name).resolve()])))

    def _libraries(self, args: Sequence[str], folder: Path, text: str = "") -> None:
        """Add the user's own folders in which Perl and Ruby look for modules."""
        named = re.findall(r"(?m)^-I(.+)$", "\n".join(args))
        named += [value for option, value in pairwise(args) if option == "-I"]
        for name in ("PERL5LIB", "RUBYLIB"):
            named += self._env.get(name, "").split(os.pathsep)
        if "use lib" in text or "$:" in text or "$LOAD_PATH" in text:
            named += re.findall(r"""["'(\s/]([\w.][\w./-]*)["')\s]""", text)
            if "FindBin" in text or "__dir__" in text or "__FILE__" in text:
                named += ["lib", "../lib"]
        for name in filter(None, dict.fromkeys(named)):
            if name.strip("./") and _is_folder(folder / name):
                self.folder((folder / name).resolve())
            elif name == ".":
                own = (each for each in self._files_below(folder) if each.suffix in _LIBRARIES)
                self._files.update(dict.fromkeys(each.resolve() for each in own))

    def operands(self, args: Sequence[str], folder: Path) -> None:
        """Add files that are named as arguments: settings, prompts, scripts."""
        for before, word in pairwise(("", *args)):
            if len(word) > _LONGEST_WORD or "\n" in word or ">" in before[-1:]:
                continue
            for value in filter(None, files_named(word)):
                path = folder / value
                if _is_file(path):
                    self._operand(path, folder)
                elif value.strip("./*") and before != "-m" and "*" in value:
                    self._patterns(["", value], folder, 1)
                elif value.strip("./") and before != "-m" and _is_folder(path):
                    self._folder_given(value, path, is_last=word is args[-1])

    def _folder_given(self, value: str, path: Path, *, is_last: bool) -> None:
        """Add a folder that a command is given, if it copies from there: the last is written to."""
        files = [*self._files_below(path)] if self._copies_folders and not is_last else []
        if not files or sum(map(_size, files)) > _LARGEST_FOLDER:
            self._unknown[f"files in {value}, which stands in a command"] = None
        else:
            self._files.update(dict.fromkeys(file.resolve() for file in files))

    def _operand(self, path: Path, folder: Path) -> None:
        suffix = path.suffix.lower()
        if suffix in CODE | _DATA:
            self._script(path, folder, 1)
        elif suffix in _DATABASES:
            self._unknown[f"{path.name}, which a command may read or write"] = None
        elif suffix not in _WRITTEN and not str(path.resolve()).startswith(_SYSTEM):
            self._files[path.resolve()] = None

    def _unwrapped(self, words: list[str], folder: Path) -> tuple[list[str], Path]:
        """Return the command that others start (env, timeout, uv run and so on), and where."""
        for _ in range(_DEEPEST):
            while words and re.fullmatch(ASSIGNMENT, words[0], re.DOTALL):
                self._assign(words.pop(0), folder)
            if not words:
                break
            name = Path(words[0]).name
            if name in KEYWORDS and name not in WRAPPERS:
                words = words[1:]
            elif name in WRAPPERS:
                if name == "env":
                    words[1:], place = env_words(words[1:])
                    folder = folder / place if place else folder
                words = without_options(words[1:], WRAPPERS[name])
                words = words[POSITIONAL.get(name, 0) :]
            elif name in RUNNERS and words[1:2] == [RUNNERS[name]]:
                words = self._run_by(name, words[2:], folder)
            elif name in ("npm", "pnpm", "yarn", "bun") and (text := npm_script(words, folder)):
                self._shell_text(text, folder, folder, 1)
                return [], folder
            else:
                break
        return words, folder

    def _assign(self, text: str, folder: Path) -> None:
        name, _, value = text.partition("=")
        if name in _PLACES:
            self._env[name] = filled(value, {"PWD": str(folder)}, self._env, folder)

    def _run_by(self, name: str, rest: list[str], folder: Path) -> list[str]:
        """Take the options of a tool that chooses an environment, and the lock of it."""
        project: Path | None = folder
        for option, value in pairwise(rest):
            if option in ("--project", "--directory"):
                project = folder / value
            if option == "--with-editable":
                self.folder(folder / value)
        words = without_options(rest, RUNNER_VALUES)
        for place in (project, *(project or folder).parents):
            locks = ("uv.lock", "poetry.lock", "Pipfile.lock", "pdm.lock", "pixi.lock")
            for lock in (*locks, "pyproject.toml") if place else ():
                if place and _is_file(place / lock):
                    self._files[(place / lock).resolve()] = None
            venv = place / ".venv" if place else None
            if venv and (venv / "bin").is_dir():
                self._env["PATH"] = f"{venv}/bin:{self._env.get('PATH', os.defpath)}"
                break
        if name == "uv" and words and Path(words[0]).suffix == ".py":
            self._packages_in(folder / words[0])
            words = ["python", *words]
        return words

    def _packages_in(self, script: Path) -> None:
        """Take the lock of a script that says itself which packages it needs."""
        lock = script.with_name(f"{script.name}.lock")
        if _is_file(lock):
            self._files[lock.resolve()] = None
        elif b"# /// script" in _start_of(script):
            self._unknown[f"the packages that uv installs for {script.name}"] = None

    def _fetched(self, words: list[str], folder: Path) -> None:
        """Add a package that is fetched when it is started: npx NAME@VERSION."""
        rest = [word for word in words[1:] if not word.startswith("-") and word != "run"]
        name = rest[0] if rest else ""
        program = (
            self.find(f"node_modules/.bin/{name.rpartition('/')[2]}", folder) if name else None
        )
        if program is not None:
            self.program(program, rest[1:], folder, 1)
        elif re.search(r"[^@]@\d|==", name):
            self._packages[name] = "as named"
        else:
            self._unknown[f"the version of {name or 'what'} that {words[0]} fetches"] = None

    # Python

    def _python(self, program: Path, args: Sequence[str], folder: Path) -> None:
        kind, value = python_target(args)
        own = folder
        if kind == "script":
            own = (folder / value).parent if not (folder / value).is_dir() else folder / value
            own = own.resolve()
        paths = PythonPaths(program, own, self._env, folder, self._ask, isolated="-I" in args)
        if kind == "module":
            for place in self._resolve(paths, [value]):
                self._module(place, paths)
            for missing in paths.missing([value]):
                self._unknown[f"the module {missing}, which was not found"] = None
        elif kind == "code":
            self._python_text(value, paths, folder, "the code of -c")
            self._tokens(value, folder, "the code of -c")
        elif kind == "script":
            path = folder / value
            self._module(path / "__main__.py" if path.is_dir() else path, paths)
        for name in ("sitecustomize", "usercustomize"):
            for place in paths.customized(name):
                self._module(place, paths)

    def _resolve(self, paths: PythonPaths, names: Sequence[str]) -> list[Path]:
        """Return the user's own modules among these; note the packages that others come from."""
        found = []
        for name in names:
            place = paths.local(name)
            if place is not None and _is_ours(place):
                self._packages["assay"] = __version__
            elif place is not None:
                found.append(place)
            elif name.partition(".")[0] not in sys.stdlib_module_names:
                self._packages |= paths.packages(name.partition(".")[0])
                found += paths.installed_from_folder(name.partition(".")[0])
        return found

    def _module(self, place: Path, paths: PythonPaths) -> None:
        """Add a module, or a package with all that is in its folder, and what they import."""
        place = place.absolute()
        if place.is_dir():
            if place in self._read:
                return
            self._read.add(place)
            for file in self._files_below(place):
                self._files[file.resolve()] = None
                if file.suffix == ".py":
                    self._todo.append(partial(self._module_text, file, paths, place))
        elif _is_file(place):
            self._files[place.resolve()] = None
            self._module_text(place, paths)

    def _module_text(self, file: Path, paths: PythonPaths, package: Path | None = None) -> None:
        if (text := self._text_once(file)) is not None:
            name = f"{package.name}/" if package else file.name
            self._python_text(text, paths, file.parent, name)
            if package is None:  # of a package, all files are there already
                self._tokens(text, file.parent, name)

    def _python_text(self, text: str, paths: PythonPaths, folder: Path, name: str) -> None:
        if "sys.path" in text and not paths.extend(text, folder):
            self._unknown[f"folders that {name} adds to sys.path"] = None
        if re.search(_COMPUTED_IMPORT, text):
            self._unknown[f"modules that {name} imports by computed names"] = None
        self._mentioned(text, folder, name)
        for archive in paths.archives:
            self._files[archive.resolve()] = None
        for module in paths.missing(re.findall(_ABSOLUTE_IMPORT, text)):
            self._unknown[f"the module {module}, which was not found"] = None
        for place in self._resolve(paths, list(dict.fromkeys(_imported(text)))):
            if place not in self._read:
                self._todo.append(partial(self._module, place, paths))

    def _mentioned(self, text: str, folder: Path, name: str) -> None:
        """Add variables that code reads and programs that it starts; say what it puts together."""
        self._variables |= _names_read(text, _READS) | variables_named(text, self._env)
        if reads_computed_variables(text):
            self._unknown[f"variables that {name} reads by computed names"] = None
        for host in re.findall(_LOCAL_SERVER, text):
            self._unknown[f"what the server at {host} answers"] = None
        if "dotenv" in text or "env_file" in text:
            for place in dict.fromkeys((folder, self._folder)):
                if _is_file(place / ".env"):
                    self._files[(place / ".env").resolve()] = None
        for started in programs_started(text):
            if isinstance(started, str):
                self._todo.append(partial(self._shell_text, started, folder, folder, 1))
            else:
                self._todo.append(partial(self.command, started, folder, 1))

    # JavaScript

    def _javascript(self, name: str, args: Sequence[str], folder: Path, depth: int) -> None:
        options = self._env.get("NODE_OPTIONS", "").replace("=", " ").split()
        for option, value in pairwise([*options, *args]):
            if option in ("-r", "--require", "--import", "--loader", "--experimental-loader"):
                self._required(value, folder)
        if code := next((b for a, b in pairwise(args) if a in ("-e", "--eval", "-p")), None):
            self._javascript_text(code, folder, None)
            return
        values = (
            "-r",
            "--require",
            "--import",
            "--loader",
            "-C",
            "--conditions",
            "--config",
            "--cwd",
        )
        words = without_options([*args], values)
        if name in ("bun", "deno") and words[:1] == ["run"]:
            words = without_options(words[1:], values)
        if not words:
            return
        path = _node_file(folder / words[0])
        if path is None:
            self._unknown[f"the script {words[0]}, which was not found"] = None
            return
        package = node_package(path.resolve())
        if package is not None and "node_modules" in path.resolve().parts:
            self._node.add(package, path.resolve())
        else:
            self._javascript_file(path)

    def _javascript_file(self, file: Path) -> None:
        real = file.resolve()
        self._files[real] = None
        if (text := self._text_once(real)) is not None:
            self._javascript_text(text, real.parent, real)

    def _javascript_text(self, text: str, folder: Path, file: Path | None) -> None:
        name = file.name if file else "the code of -e"
        if re.search(_COMPUTED_REQUIRE, text):
            self._unknown[f"modules that {name} loads by computed names"] = None
        self._mentioned(text, folder, name)
        for module in dict.fromkeys(re.findall(_NODE_IMPORT, text)):
            self._required(module, folder)
        self._tokens(text, folder, name)

    def _required(self, module: str, folder: Path) -> None:
        if module.startswith(("./", "../", "/")) or module in (".", ".."):
            path = _node_file(folder / module)
            if path is None:
                return
            if path.suffix in CODE:
                self._todo.append(partial(self._javascript_file, path))
            else:
                self._files[path.resolve()] = None
        elif not module.startswith(("node:", "bun:", "http:", "https:", "data:")):
            mapped = mapped_modules(module, folder)
            for place in (*mapped, *(folder / each / module for each in self._node_path())):
                if (path := _node_file(place)) is not None:
                    self._todo.append(partial(self._javascript_file, path))
                    return
            linked = self._node.required(module, folder)
            if linked is not None:  # npm link, or a workspace: the user's own folder
                self.folder(linked)
            elif not self._node.has(module, folder):
                self._unknown[f"the module {module}, which was not found"] = None

    def _node_path(self) -> list[str]:
        return [each for each in self._env.get("NODE_PATH", "").split(os.pathsep) if each]

    # Shell, and scripts of any language

    def _shell(self, args: Sequence[str], folder: Path, depth: int) -> None:
        if any(re.fullmatch(r"-[a-z]*[il][a-z]*|--login", option) for option in args):
            for name in (".profile", ".bash_profile", ".bashrc", ".zshrc", ".zprofile"):
                if _is_file(file := Path(self._env.get("HOME", "/"), name)):
                    self._script(file, folder, depth + 1)
        for option, value in pairwise(args):
            if re.fullmatch(r"-[a-z]*c", option):
                self._shell_text(value, folder, folder, depth)
                return
        if script := first_operand(args, ("-o", "-O")):
            self._script_named(script, folder, depth)

    def script(self, path: Path) -> None:
        """Add a script, with what it loads."""
        self._script(path, self._folder, 0)

    def shell_line(self, text: str, folder: Path) -> None:
        """Add what a line of the shell loads."""
        self._shell_text(text, folder, folder, 0)

    def _shell_text(self, text: str, folder: Path, own: Path, depth: int) -> None:
        """Add the commands of a script; own is the folder in which it stands itself."""
        if depth > _DEEPEST:
            return
        self._variables.update(_names_read(text, _SHELL_READS))
        if reads_computed_variables(text):
            self._unknown["variables that a command reads by computed names"] = None
        self._written.update((folder / name).resolve() for name in re.findall(_REDIRECTED, text))
        values: dict[str, str] = {}
        here, listed = folder, {"PROMPT", *re.findall(_LISTED, text)}
        for words in simple_commands(text):
            values["PWD"] = str(here)
            words = [filled(word, values, self._env, own) for word in words]
            if reads_unknown_file(words, listed):
                self._unknown["files that a command opens by computed names"] = None
            if words[0] == "export":
                words = words[1:]
            while words and re.fullmatch(ASSIGNMENT, words[0], re.DOTALL):
                name, _, values[name] = words[0].partition("=")
                self._assign(words.pop(0), here)
            if words[:1] in (["cd"], ["pushd"]) and (here / "".join(words[1:2])).is_dir():
                here /= "".join(words[1:2])
            elif words:
                self._shell_command(words, here, depth)
        for place in dict.fromkeys((here, own)):
            self._tokens(text, place, "")

    def _shell_command(self, words: list[str], here: Path, depth: int) -> None:
        if words[0] in (".", "source") and len(words) > 1:
            self._script_named(words[1], here, depth)
        elif words[0].startswith("$") and words[0] not in ("$@", "$*", "$0", "$1"):
            self._unknown[f"the program that {words[0]} names"] = None
        else:
            self.command(words, here, depth + 1)
        self._patterns(words, here, depth)

    def _patterns(self, words: Sequence[str], folder: Path, depth: int) -> None:
        """Add the files that patterns of a shell find now: lib/*.sh."""
        for pattern in words[1:] if words[0] not in _WRITERS else ():
            if "*" not in pattern or not re.search(r"\w", pattern):
                continue
            try:
                top = Path(Path(pattern).anchor or folder)
                found = sorted(islice(top.glob(pattern.lstrip("/")), _MOST_FILES))
            except (ValueError, NotImplementedError, OSError):
                continue
            for path in filter(_is_file, found):
                if path.suffix in CODE:
                    self._script(path, folder, depth + 1)
                elif path.suffix not in (*_WRITTEN, ".jsonl"):
                    self._files[path.resolve()] = None

    def _script_named(self, name: str, folder: Path, depth: int) -> None:
        for place in (folder / name, *filter(None, [self.find(name, folder)])):
            if _is_file(place):
                self._script(place, folder, depth)
                return

    def _script(self, path: Path, folder: Path, depth: int) -> None:
        """Add a file of any language by its suffix, or by its first line."""
        real = path.resolve()
        if real in self._read:
            return
        self._files[real] = None
        suffix = real.suffix.lower()
        if suffix == ".py":
            program = self.find("python3", folder) or Path(sys.executable)
            self._module(path, PythonPaths(program, real.parent, self._env, folder, self._ask))
        elif suffix in (".js", ".mjs", ".cjs", ".ts", ".mts", ".cts", ".jsx", ".tsx"):
            self._javascript_file(real)
        elif suffix in _CONFIGS and (text := self._text_once(real)) is not None:
            self._named_in_settings(text, real, folder)
        elif suffix in _DATA:
            self._read.add(real)
        elif (text := self._text_once(real)) is not None:
            if suffix in (".sh", ".bash", ".zsh", "") or re.match(rf"#!.*\b(?:{_SHELL})\b", text):
                self._shell_text(text, folder, real.parent, depth + 1)
            else:
                self._mentioned(text, folder, real.name)
                self._libraries((), real.parent, text)
                for name in re.findall(r"""require_relative\s*\(?["']([^"']+)""", text):
                    self._script_named(f"{name}.rb", real.parent, depth + 1)
                self._tokens(text, real.parent, real.name)

    def _named_in_settings(self, text: str, file: Path, folder: Path) -> None:
        """Add the scripts and prompts that a file of settings names; say what else it does."""
        for token in dict.fromkeys(re.findall(_TOKEN, text)):
            for place in dict.fromkeys((file.parent, folder)):
                path, suffix = place / token, Path(token).suffix.lower()
                if not suffix or suffix in _WRITTEN or not _is_file(path):
                    continue
                if suffix in CODE | _TEXTS:
                    self._todo.append(partial(self._script, path, folder, 1))
                elif path.resolve() not in self._files:
                    self._unknown[f"{token}, which {file.name} names"] = None
                break

    def read_by_name(self, variables: Iterable[str]) -> None:
        """Add variables that settings name: ${MODE}."""
        self._variables.update(variables)

    def folder(self, folder: Path) -> None:
        """Add all files of a folder of the user's own."""
        for file in self._files_below(folder):
            self._files[file.resolve()] = None

    def _files_below(self, folder: Path) -> Iterator[Path]:
        n_found, walked = 0, set()
        for path, folders, files in os.walk(folder, followlinks=True):
            if (real := os.path.realpath(path)) in walked:
                folders.clear()
                continue
            walked.add(real)
            folders[:] = sorted(
                name for name in folders
                if _is_of_package(name) or Path(path, name, "__init__.py").is_file()
            )  # fmt: skip
            for name in sorted(files):
                if Path(name).suffix.lower() in _DATABASES:
                    self._unknown[f"{name}, which the agent may read or write"] = None
                elif Path(name).suffix.lower() not in _WRITTEN and name not in _OF_TOOLS:
                    n_found += 1
                    yield Path(path, name)
            if n_found > _MOST_FILES:
                self._unknown[f"files of {near(folder, self._folder)} beyond {_MOST_FILES}"] = None
                return

    def _tokens(self, text: str, folder: Path, reader: str) -> None:
        """Add files that a text names, and that are there: scripts it starts, prompts it reads."""
        places = {place: names_in(place) for place in (folder, self._folder)}
        for token in dict.fromkeys(re.findall(_TOKEN, re.sub(_FOLDER_PUT_IN, "", text))):
            suffix = Path(token).suffix.lower()
            if len(token) > _LONGEST_WORD or suffix in (".pyc", ".pyo"):
                continue
            # Most words name nothing: a folder is listed once.
            token = self._at_home(token)
            top = token.partition("/")[0]
            known = [at for at, names in places.items() if top in names or not top.strip(".")]
            path = next(filter(_is_file, (at / token for at in known)), None)
            if path is None:
                if reader and folder in known and is_quoted(token, text):
                    self._folder_named(token, folder, text, reader)
                continue
            # An interpreter, say, counts as the command in which it stands.
            is_started = token[0] == "/" and suffix not in CODE and is_program(path)
            if path.resolve() not in self._files and not is_started:
                self._file_named(token, path, text, folder, reader)
        if reader and opens_computed(text):
            self._unknown[f"files that {reader} opens by computed names"] = None

    def _at_home(self, name: str) -> str:
        return name.replace("~", self._env.get("HOME", "~"), 1) if name[:2] == "~/" else name

    def _file_named(self, token: str, path: Path, text: str, folder: Path, reader: str) -> None:
        suffix = path.suffix.lower()
        if suffix in _WRITTEN - _DATABASES and writes(text):
            return
        if suffix in CODE or (suffix in _CONFIGS and is_only_read(token, text)):
            self._todo.append(partial(self._script, path, folder, 1))
        elif suffix in _DATABASES:
            self._unknown[f"{token}, which {reader or 'a command'} may read or write"] = None
        elif re.search(rf">\s*[\"']?\S*{re.escape(token)}", text):
            return
        elif is_only_read(token, text):
            self._files[path.resolve()] = None
        else:
            self._unknown[f"{token}, which {reader or 'a command'} may read or write"] = None

    def _folder_named(self, token: str, folder: Path, text: str, reader: str) -> None:
        """Add a folder that code names: what it finds there is read by names of its own."""
        path = folder / token
        if not token.strip("./") or not _is_of_package(path.name) or not _is_folder(path):
            return
        if path.resolve() in (self._folder.resolve(), *self._folder.resolve().parents):
            return
        files = list(self._files_below(path))
        if sum(_size(file) for file in files) > _LARGEST_FOLDER:
            self._unknown[f"files in {token}, which has more than {_LARGEST_FOLDER:,} bytes"] = None
        elif is_only_read(token, text):
            self._files.update(dict.fromkeys(file.resolve() for file in files))
        else:
            self._unknown[f"files in {token}, which {reader} may read or write"] = None

    def _text_once(self, file: Path) -> str | None:
        """Read a text for the first time; None if it was read, or is none."""
        real = file.resolve()
        if real in self._read or len(self._read) > _MOST_FILES or _is_ours(real):
            return None
        self._read.add(real)
        try:
            if real.stat().st_size > _LONGEST_TEXT:
                self._unknown[f"what {real.name} loads, which is larger than 1 MiB"] = None
                return None
            return real.read_bytes().decode("utf-8", "replace")
        except OSError:
            return None


def _is_ours(path: Path) -> bool:
    """Whether a file or a folder belongs to Assay itself, or to what ships in the same wheel."""
    with contextlib.suppress(ValueError):
        return path.relative_to(_OWN.parent).parts[:1] in ((_OWN.name,), ("assay_arc",))
    return False


def _is_of_package(folder: str) -> bool:
    return folder not in _NOT_OF_PACKAGE and not folder.startswith(".") and "egg-info" not in folder


def near(path: Path, folder: Path) -> str:
    """Name a file from a folder if both have a place in common, else in full."""
    shared = os.path.commonpath([path, folder])
    if len(Path(shared).parts) > 2 or path.is_relative_to(folder):
        return Path(os.path.relpath(path, folder)).as_posix()
    home = Path(os.environ.get("HOME") or "/")
    if len(home.parts) > 1 and path.is_relative_to(home):
        return f"~/{path.relative_to(home).as_posix()}"
    return path.as_posix()


def _grouped(hashes: dict[str, str]) -> dict[str, str]:
    """Put files of the same folder together where there are many; a name stands for all of them."""
    if len(hashes) <= _MOST_NAMED:
        return dict(sorted(hashes.items()))
    for n_parts in (3, 2, 1):
        groups: dict[str, dict[str, str]] = {}
        for name, value in sorted(hashes.items()):
            parts = Path(name).parts[:-1]
            shown = Path(*parts[: n_parts + parts.count("..")]).as_posix() if parts else name
            groups.setdefault(shown, {})[name] = value
        if len(groups) <= _MOST_NAMED:
            break
    return {
        name if name in each else f"{name}/": each.get(name)
        or short_hash(msgspec.json.encode(each, order="sorted"))
        for name, each in groups.items()
    }


def _imported(text: str) -> Iterator[str]:
    """Yield the modules that a Python text imports by name."""
    for module, names, plain in re.findall(_IMPORTS, text, re.MULTILINE):
        if module and not module.startswith("."):
            yield module
            for name in re.findall(r"\w+", re.sub(r"\bas\s+\w+", "", names)):
                yield f"{module}.{name}"
        elif module.strip("."):
            yield module.strip(".")
        elif module:  # from . import name: of a package, whose folder is added as a whole
            yield from re.findall(r"\w+", re.sub(r"\bas\s+\w+", "", names))
        for part in plain.split(",") if plain else ():
            if found := re.match(r"\s*([\w.]+)", part):
                yield found[1]
    yield from re.findall(_NAMED_IMPORT, text)


def _names_read(text: str, pattern: str) -> set[str]:
    found = re.findall(pattern, text)
    return {name for each in found for name in ((each,) if isinstance(each, str) else each) if name}


def _node_file(path: Path) -> Path | None:
    ends = ("", ".js", ".mjs", ".cjs", ".ts", ".mts", ".tsx", ".jsx", ".json")
    places = [path.with_name(f"{path.name}{end}") for end in ends]
    places += [path / f"index{end}" for end in ends[1:]]
    if path.suffix in (".js", ".mjs"):  # TypeScript names its files so
        places.append(path.with_suffix(path.suffix.replace("js", "ts")))
    return next(filter(_is_file, places), None)


def _start_of(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            return file.read(4096)
    except OSError:
        return b""


def names_in(folder: Path) -> frozenset[str]:
    """Return the names of what is in a folder; none if it cannot be read."""
    try:
        return frozenset(os.listdir(folder))  # noqa: PTH208 - names alone
    except OSError:
        return frozenset()


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0


def _is_folder(path: Path) -> bool:
    try:
        return path.is_dir() and not is_of_system(path)
    except (OSError, ValueError):
        return False


def _is_file(path: Path) -> bool:
    try:
        return path.is_file() and not is_of_system(path)
    except (OSError, ValueError):
        return False
