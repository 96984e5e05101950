"""What the words of a command line say: programs that start others, options, lines of a shell."""

import re
import shlex
from collections.abc import Container, Iterator, Mapping, Sequence
from pathlib import Path
from urllib.parse import unquote

import msgspec

ASSIGNMENT = r"[A-Za-z_]\w*=.*"
KEYWORDS = frozenset({
    "if", "then", "else", "elif", "do", "while", "until", "!", "time", "exec", "command", "builtin",
    "export", "local", "readonly", "eval", "nohup", "setsid", "stdbuf", "-",
})  # fmt: skip
WRAPPERS: dict[str, tuple[str, ...]] = {
    "env": ("-u", "-C", "--unset", "--chdir"), "nice": ("-n",), "ionice": ("-c", "-n"),
    "timeout": ("-k", "-s"), "nohup": (), "setsid": (), "stdbuf": ("-i", "-o", "-e"),
    "sudo": ("-u", "-g"), "doas": ("-u",), "time": ("-o", "-f"), "taskset": (), "direnv": (),
    "xvfb-run": ("-n", "-s"), "dotenv": ("-f", "-e"), "unbuffer": (), "chronic": (),
}  # fmt: skip
"""Programs that start another one, and their options that take a value."""
POSITIONAL = {"timeout": 1, "taskset": 1, "direnv": 2}
"""Words of theirs before the program that they start."""
RUNNERS = {
    "uv": "run", "poetry": "run", "pipenv": "run", "pdm": "run", "rye": "run", "hatch": "run",
    "conda": "run", "pixi": "run", "mise": "exec", "asdf": "exec", "bundle": "exec", "npm": "exec",
    "pnpm": "exec",
}  # fmt: skip
RUNNER_VALUES = (
    "--with", "--with-editable", "--with-requirements", "--python", "-p", "--project",
    "--directory", "--env-file", "--extra", "--group", "--index", "-n", "--name",
    "--package", "--prefix", "-w",
)  # fmt: skip
PROJECT_FILES: dict[str, tuple[str, ...]] = {
    "make": ("GNUmakefile", "makefile", "Makefile"), "gmake": ("GNUmakefile", "Makefile"),
    "just": ("justfile", "Justfile", ".justfile"), "task": ("Taskfile.yml", "Taskfile.yaml"),
    "rake": ("Rakefile",), "invoke": ("tasks.py",), "tox": ("tox.ini",), "nox": ("noxfile.py",),
    "cargo": ("Cargo.toml", "Cargo.lock"), "go": ("go.mod", "go.sum"), "mvn": ("pom.xml",),
    "gradle": ("build.gradle", "build.gradle.kts"), "dotnet": (),
}  # fmt: skip
"""Programs that find in a file of their own what they run."""
FETCHERS = frozenset({"npx", "bunx", "uvx", "pipx", "dlx"})
ELSEWHERE = frozenset({
    "docker", "podman", "nerdctl", "kubectl", "ssh", "curl", "wget", "nc", "ncat", "netcat",
    "socat", "http", "https", "grpcurl", "websocat",
})  # fmt: skip
"""Programs that have something run or answered outside of this machine's files."""
INTERPRETER = (
    r"(?:python|pypy)[\d.]*w?(?:\.exe)?|node|nodejs|bun|deno|tsx|ts-node|(?:ba|da|z|k|a|fi)?sh|busybox"
    r"|ruby[\d.]*|perl[\d.]*|php[\d.]*"
)

_READERS = frozenset({".", "source", "cat", "head", "tail"})


def env_words(words: Sequence[str]) -> tuple[list[str], str | None]:
    """Return the words of env with those of -S apart, and the folder that it changes to."""
    left: list[str] = []
    folder: str | None = None
    rest = iter(words)
    for word in rest:
        name, is_long, value = word.partition("=") if word.startswith("--") else (word[:2], "", "")
        if name in ("-C", "--chdir"):
            folder = value if is_long else word[2:] if name == "-C" and word[2:] else next(rest, "")
        elif name in ("-S", "--split-string"):
            text = value if is_long else word[2:] if name == "-S" and word[2:] else next(rest, "")
            return [*left, *shlex.split(text), *rest], folder
        elif not word.startswith("-") and "=" not in word:
            return [*left, word, *rest], folder
        else:
            left.append(word)
            if word in ("-u", "--unset"):
                left.append(next(rest, ""))
    return left, folder


def files_named(word: str) -> Iterator[str]:
    """Yield what may be the names of files in an argument: @x.md, -fx.md, key=x.md, x.md,y.md."""
    value = word.partition("=")[2] if word.startswith("-") else word
    yield value or (word[2:] if word[:2] != "--" else "")
    for part in re.split("[,:=]", value):
        if part != value or part.startswith("@"):
            yield part.removeprefix("@")
    if value.startswith("file://"):
        yield unquote(value.removeprefix("file://"))


def nested_command(words: Sequence[str]) -> tuple[list[str], str]:
    """Return the command that stands among the words of another program: words, or a line.

    As of flock FILE python3 -m agent, or of script -c 'python3 -m agent'.
    """
    for number, word in enumerate(words):
        if re.fullmatch(INTERPRETER, Path(word).name):
            return list(words[number:]), ""
        if re.fullmatch(r"-[a-z]*c|--command", word) and " " in "".join(words[number + 1 :][:1]):
            return [], words[number + 1]
    return [], ""


def python_target(args: Sequence[str]) -> tuple[str, str]:
    """Return what Python is told to run: a module, code, a script, or nothing."""
    words = iter(args)
    for word in words:
        if word in ("-X", "-W", "-Q", "--check-hash-based-pycs"):
            next(words, None)
        elif found := re.fullmatch(r"-[bBdEiIOqRsSuvVx]*m(.*)", word):
            return "module", found[1] or next(words, "")
        elif re.fullmatch(r"-[A-Za-z]*c", word):
            return "code", next(words, "")
        elif not word.startswith("-"):
            return "script", word
        elif word == "-":
            return "", ""
    return "", ""


def first_operand(args: Sequence[str], valued: Sequence[str]) -> str:
    """Return the first word that is no option; empty if there is none."""
    rest = without_options([*args], tuple(valued))
    return rest[0] if rest else ""


def without_options(words: list[str], valued: Sequence[str]) -> list[str]:
    """Leave out options before the first other word."""
    while words and words[0].startswith("-") and words[0] != "-":
        if words[0] == "--":
            return words[1:]
        words = words[2 if words[0] in valued else 1 :]
    return words


def npm_script(words: list[str], folder: Path) -> str:
    """Return the command line behind `npm run NAME`."""
    rest = [word for word in words[1:] if not word.startswith("-")]
    name = rest[1] if rest[:1] in (["run"], ["run-script"]) and len(rest) > 1 else "".join(rest[:1])
    for place in (folder, *folder.parents):
        try:
            package = msgspec.json.decode((place / "package.json").read_bytes())
            return str(package["scripts"][name])
        except (OSError, msgspec.DecodeError, UnicodeError):
            continue
        except (KeyError, TypeError):
            return ""
    return ""


_OWN_FOLDER = (
    r"\$\(\s*dirname(?:[^()\n]|\$\([^()\n]*\))*\)",
    r"`\s*dirname[^`\n]*`",
    r"\$\{(?:0|BASH_SOURCE(?:\[0\])?)%/\*\}",
)
_ENTERED = re.compile(r"""\$\(\s*cd\s+(?:-P\s+)?(?:--\s+)?["']?\$OWN_FOLDER([\w./-]*)[^()\n]*\)""")
"""As in $(cd "$(dirname "$0")/.." && pwd)."""
_QUOTED = re.compile(r"""'[^']*'|"(?:\\.|[^"\\])*\"""", re.DOTALL)
_HERE_DOCUMENT = re.compile(
    r"""(?<![^\n;&|<])(?P<command>[^\n;&|<]+)<<-?[ \t]*(['"]?)(?P<end>\w+)\2(?P<rest>[^\n]*)\n"""
    r"""(?P<text>.*?\n)[ \t]*(?P=end)[ \t]*(?=\n|$)""",
    re.DOTALL,
)
_CODE_OPTIONS = {
    r"(?:python|pypy)[\d.]*|(?:ba|da|z|k)?sh": "-c",
    r"node|bun|perl[\d.]*|ruby[\d.]*": "-e",
}
"""Of interpreters: the option before code."""


def simple_commands(text: str) -> Iterator[list[str]]:
    """Yield the words of each command in a text of the shell, as far as a glance can tell."""
    quoted: list[str] = []

    def hide(found: re.Match[str]) -> str:
        if found[0][0] == '"' and re.search(r"`|\$\(", found[0]):
            return found[0]  # there are commands in it
        quoted.append(found[0])
        return f"\0{len(quoted) - 1}\0"

    plain = re.sub(r"\\\n", " ", text.replace("\0", ""))
    plain = re.sub(r"(?m)(?:^|(?<=\s))#.*$", "", plain)
    plain = _HERE_DOCUMENT.sub(_as_argument, plain)
    # The folder of a script is known: $(dirname "$0") and its like stand for it.
    for pattern in _OWN_FOLDER:
        plain = re.sub(pattern, r"$OWN_FOLDER", plain)
    plain = _QUOTED.sub(hide, _ENTERED.sub(r"$OWN_FOLDER\1", plain))
    for part in re.split(r"\n|;|\|\||\||&&|&(?!>)|`|\$\(|[(){}](?!\w*\})", plain):
        if not part.strip():
            continue
        part = re.sub(r"\0(\d+)\0", lambda found: quoted[int(found[1])], part)
        try:
            words = shlex.split(part)
        except ValueError:
            words = part.replace('"', " ").replace("'", " ").split()
        while words and words[0] in KEYWORDS and words[0] != "export":
            words = words[1:]
            while words and words[0] in ("-a", "-c", "-l", "-p") and len(words) > 1:
                words = words[1:]
        if words:
            yield words


def _as_argument(found: re.Match[str]) -> str:
    """Write code that an interpreter reads from a here-document as an argument of it.

    What other commands read there is no command.
    """
    words = found["command"].split()
    for pattern, option in _CODE_OPTIONS.items():
        if any(re.fullmatch(pattern, word.rpartition("/")[2]) for word in words):
            command = " ".join(words[:-1] if words[-1] in ("-", "-s") else words)
            return f"{command} {option} {shlex.quote(found['text'])} {found['rest']}"
    return f"{found['command']}{found['rest']}"


def reads_unknown_file(words: Sequence[str], known: Container[str]) -> bool:
    """Whether a command reads a file, or runs a script, whose name has a variable that is unknown.

    Words are those with known values put in; known are variables that may stay.
    """
    if words[0] in _READERS:
        names = " ".join(words[1:])
    elif re.fullmatch(INTERPRETER, Path(words[0]).name):
        names = first_operand(words[1:], ())
    else:
        return False
    return any(name not in known for name in re.findall(r"\$\{?([A-Za-z_]\w*)", names))


def filled(word: str, values: Mapping[str, str], env: Mapping[str, str], own: Path) -> str:
    """Put what is known in place of variables."""
    known = {**env, **values, "OWN_FOLDER": str(own)}

    def value(found: re.Match[str]) -> str:
        name = found[1] or found[2]
        if name in known:
            return known[name].replace("$OWN_FOLDER", str(own))
        return found[0]

    return re.sub(r"\$(?:\{(\w+)[^}]*\}|([A-Za-z_]\w*))", value, word)
