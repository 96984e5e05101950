"""Read a Dockerfile that needs no building: a plain base image and files that are copied."""

import posixpath
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence

import msgspec

PLAIN_IMAGES = ("ubuntu", "debian")
"""Base images with nothing in them but a system, which the programs of this machine can stand for.
"""
_NO_EFFECT = frozenset({"LABEL", "EXPOSE", "CMD", "MAINTAINER"})
"""Instructions that change nothing of what a command in the container finds."""
_CONTINUED = re.compile(r"\\[ \t]*\n(?:[ \t]*#[^\n]*\n)*")


class NeedsImage(Exception):
    """A Dockerfile cannot be followed without building an image; the text says why."""


class Entry(msgspec.Struct, frozen=True):
    """A file of a task, or a link: then data is where it leads."""

    data: bytes
    mode: int = 0o644
    is_link: bool = False


class Recipe(msgspec.Struct, frozen=True):
    """What a Dockerfile makes."""

    workdir: str
    env: dict[str, str]
    files: dict[str, Entry]
    """By absolute path in the container."""


def last_workdir(text: str) -> str:
    """Return the working folder at the end of a Dockerfile, whatever else stands in it."""
    folder = ""
    for word, rest in _instructions(text):
        if word == "FROM":
            folder = ""
        elif word == "WORKDIR":
            folder = posixpath.normpath(posixpath.join(folder or "/", _plain(word, rest)))
    return folder


def follow(text: str, context: Mapping[str, Entry]) -> Recipe:
    """Do what a Dockerfile says with the files of its folder. Raises NeedsImage."""
    recipe, workdir, has_base = Recipe("", {}, {}), "", False
    for word, rest in _instructions(text):
        if word == "FROM":
            if has_base:
                msg = "the Dockerfile has more than one FROM"
                raise NeedsImage(msg)
            _check_base(rest)
            has_base = True
        elif word == "WORKDIR":
            workdir = posixpath.normpath(posixpath.join(workdir or "/", _plain(word, rest)))
        elif word == "ENV":
            recipe.env.update(_variables(rest))
        elif word == "COPY":
            recipe.files.update(_copied(_words(rest), workdir or "/", context, recipe.files))
        elif word not in _NO_EFFECT:
            msg = f"the Dockerfile has the instruction {word}"
            raise NeedsImage(msg)
    return msgspec.structs.replace(recipe, workdir=workdir)


def _instructions(text: str) -> Iterator[tuple[str, str]]:
    lines = [line for line in text.splitlines() if not line.lstrip().startswith("#")]
    for line in _CONTINUED.sub(" ", "\n".join(lines) + "\n").splitlines():
        word, _, rest = line.strip().partition(" ")
        if word:
            yield word.upper(), rest.strip()


def _check_base(rest: str) -> None:
    image = next((word for word in rest.split() if not word.startswith("--")), "")
    name = image.rpartition("/")[2].partition("@")[0].partition(":")[0]
    own = image.partition("@")[0].count("/") <= (1 if "library/" in image else 0)
    if name not in PLAIN_IMAGES or not (own or "/library/" in image):
        msg = f"its base image is {image}, not plain {' or '.join(PLAIN_IMAGES)}"
        raise NeedsImage(msg)


def _plain(word: str, text: str) -> str:
    if "$" in text:
        msg = f"the Dockerfile uses a variable in {word} {text}"
        raise NeedsImage(msg)
    return text.strip("\"'")


def _words(rest: str) -> list[str]:
    if rest.startswith("["):
        try:
            return msgspec.json.decode(rest, type=list[str])
        except msgspec.MsgspecError as error:
            msg = f"the Dockerfile has a COPY that cannot be read: {rest}"
            raise NeedsImage(msg) from error
    return shlex.split(rest)


def _variables(rest: str) -> dict[str, str]:
    first = rest.split(maxsplit=1)[0]
    pairs = shlex.split(_plain("ENV", rest)) if "=" in first else ["=".join(rest.split(None, 1))]
    return {name: value for name, _, value in (pair.partition("=") for pair in pairs)}


def _copied(
    words: Sequence[str], workdir: str, context: Mapping[str, Entry], made: Mapping[str, Entry]
) -> dict[str, Entry]:
    """Return the files that a COPY makes."""
    *sources, target = [word for word in words if not word.startswith("--chown=")]
    unfit = next((word for word in words if re.search(r"^--(?!chown=)|^<<|[$*?\[]", word)), "")
    if unfit or not sources or ".dockerignore" in context:
        msg = f"the Dockerfile has a COPY that cannot be followed here: {' '.join(words)}"
        raise NeedsImage(msg)
    place = posixpath.normpath(posixpath.join(workdir, target))
    is_folder = (
        target.endswith(("/", "."))
        or len(sources) > 1
        or place == workdir
        or any(path.startswith(f"{place}/") for path in made)
    )
    found: dict[str, Entry] = {}
    for source in sources:
        name = posixpath.normpath(source.lstrip("/") or ".")
        if name in context:
            end = posixpath.join(place, posixpath.basename(name)) if is_folder else place
            found[end] = context[name]
            continue
        start = "" if name == "." else f"{name}/"
        inside = {path: each for path, each in context.items() if path.startswith(start)}
        if not inside or name.startswith(".."):
            msg = f"the Dockerfile copies {source}, which is not in environment/"
            raise NeedsImage(msg)
        for path, entry in inside.items():
            found[posixpath.join(place, path.removeprefix(start))] = entry
    return found
