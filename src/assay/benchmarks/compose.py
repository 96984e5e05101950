"""Read a task's docker-compose.yaml, as far as it describes a single container."""

import re
import shlex
from collections.abc import Mapping
from typing import Any

import msgspec

FILES = ("docker-compose.yaml", "docker-compose.yml", "compose.yaml", "compose.yml")
_NO_EFFECT = frozenset(
    {
        *("container_name", "hostname", "expose", "ports", "restart", "pull_policy", "init", "tty"),
        *("stdin_open", "labels", "logging", "stop_grace_period", "stop_signal"),
    }
)
"""Keys of a service that change nothing for those who work in its container."""
_OF_HARBOR = re.compile(r"\$\{(?:HOST|ENV|T_BENCH)_\w*LOGS_PATH\}")
"""Volumes for logs, which are made in any case."""


class SeveralContainers(Exception):
    """A compose file needs more than one plain container; the text says why."""


class Service(msgspec.Struct, frozen=True, kw_only=True):
    """What a compose file says of its only container."""

    image: str = ""
    context: str = "."
    dockerfile: str = "Dockerfile"
    builds: bool = False
    arguments: dict[str, str] = {}
    env: dict[str, str] = {}
    workdir: str = ""
    command: tuple[str, ...] = ()


def only_service(data: bytes) -> Service:
    """Return the only service of a compose file. Raises SeveralContainers."""
    try:
        document = msgspec.yaml.decode(data)
    except ImportError as error:
        msg = "its docker-compose.yaml needs the package PyYAML (pip install '.[yaml]')"
        raise SeveralContainers(msg) from error
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        msg = f"its docker-compose.yaml cannot be read: {error}"
        raise SeveralContainers(msg) from error
    services = document.get("services") if isinstance(document, dict) else None
    if not isinstance(services, dict) or len(services) != 1:
        names = ", ".join(map(str, services)) if isinstance(services, dict) else ""
        msg = f"it needs several containers (docker compose: {names or 'no services'})"
        raise SeveralContainers(msg)
    (service,) = services.values()
    if more := sorted(set(document) - {"services", "version", "name"}):
        msg = f"its docker-compose.yaml has {', '.join(map(str, more))}"
        raise SeveralContainers(msg)
    return _service(service if isinstance(service, dict) else {})


def _service(given: Mapping[str, Any]) -> Service:
    known = {"image", "build", "environment", "working_dir", "command", "volumes"}
    unknown = sorted(set(map(str, given)) - known - _NO_EFFECT)
    mounted = [each for each in given.get("volumes") or () if not _OF_HARBOR.search(str(each))]
    if unknown or mounted:
        msg = f"its docker-compose.yaml has {', '.join([*unknown, *(['volumes'] * bool(mounted))])}"
        raise SeveralContainers(msg)
    build = given.get("build")
    build = {"context": build} if isinstance(build, str) else build or {}
    if more := sorted(set(map(str, build)) - {"context", "dockerfile", "args"}):
        msg = f"its docker-compose.yaml has build.{more[0]}"
        raise SeveralContainers(msg)
    command = given.get("command") or ()
    image = str(given.get("image") or "")
    return Service(
        image="" if "$" in image else image,
        context=_folder(str(build.get("context") or ".")),
        dockerfile=str(build.get("dockerfile") or "Dockerfile"),
        builds=bool(build),
        arguments=_pairs(build.get("args")),
        env=_pairs(given.get("environment")),
        workdir=str(given.get("working_dir") or ""),
        command=tuple(shlex.split(command) if isinstance(command, str) else map(str, command)),
    )


def _folder(context: str) -> str:
    """Return where in environment/ the image is built; Harbor's variable names environment/."""
    folder = re.sub(r"^\$\{\w*CONTEXT_DIR\}", ".", context)
    if folder.startswith("/") or ".." in folder.split("/") or "$" in folder:
        msg = f"its docker-compose.yaml builds in {context}"
        raise SeveralContainers(msg)
    return folder


def _pairs(given: Any) -> dict[str, str]:
    """Return variables, given as an object or a list; one without a value is taken from ours."""
    if isinstance(given, dict):
        items = [(str(name), value) for name, value in given.items()]
    else:
        listed = [str(each).partition("=") for each in given or ()]
        items = [(name, value if equals else None) for name, equals, value in listed]
    return {name: f"${{{name}:-}}" if value is None else _text(value) for name, value in items}


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
