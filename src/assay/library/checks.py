"""What the arguments of the library's functions may be: refused here, before anything runs."""

from collections.abc import Callable, Iterable, Mapping
from os import PathLike
from pathlib import Path
from typing import Any

from assay.errors import UsageError
from assay.plugin import Grader
from assay.records.text import closest

type _Check = tuple[Callable[[Any], bool], str]


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _whole(least: int) -> _Check:
    def fits(value: Any) -> bool:
        return isinstance(value, int) and not isinstance(value, bool) and value >= least

    return fits, f"a whole number of at least {least}"


def is_path(value: Any) -> bool:
    """Whether it may be the name of a file; an empty text is none."""
    return isinstance(value, PathLike) or (isinstance(value, str) and bool(value))


def _one_of(*words: str) -> _Check:
    return lambda value: value in words, " or ".join(f'"{word}"' for word in words)


_ABOVE_0: _Check = (lambda value: _is_number(value) and value > 0, "a number above 0")
_SHARE: _Check = (
    lambda value: _is_number(value) and 0 <= value < 1,
    "at least 0 and less than 1 (0.02 is two points)",
)
_TEXT: _Check = (lambda value: isinstance(value, str), "a text")
_FLAG: _Check = (lambda value: isinstance(value, bool), "True or False")
_PATH: _Check = (is_path, "a path")
_FOLDER: _Check = (lambda value: is_path(value) and Path(value).is_dir(), "a folder that exists")
_TEXTS: _Check = (
    lambda value: isinstance(value, list | tuple) and all(isinstance(v, str) for v in value),
    "a list of texts",
)
_CHECKS: dict[str, _Check] = {
    **dict.fromkeys(("k", "jobs", "limit", "max_turns", "memory_bytes"), _whole(1)),
    **dict.fromkeys(("retries", "seed"), _whole(0)),
    **dict.fromkeys(("timeout_s", "trial_timeout_s", "stall_s", "grader_timeout_s"), _ABOVE_0),
    **dict.fromkeys(("rate_per_s", "longest_wait_s", "cpus", "effect"), _ABOVE_0),
    **dict.fromkeys(("model", "container", "benchmark", "name", "cluster", "category_key"), _TEXT),
    **dict.fromkeys(("isolate", "keep_failed", "keep_unsigned", "regrade"), _FLAG),
    **dict.fromkeys(("overlap", "share_home"), _FLAG),
    **dict.fromkeys(("fresh", "confirm", "overwrite", "sequential", "strict"), _FLAG),
    **dict.fromkeys(("workspace_dir", "raw_dir", "mcp", "judge"), _PATH),
    **dict.fromkeys(("cwd", "workspace_template"), _FOLDER),
    "output": _PATH,
    "file": (lambda value: is_path(value) and not Path(value).is_dir(), "the path of a file"),
    **dict.fromkeys(("agent_args", "env", "filters", "rerun"), _TEXTS),
    "max_cost": (lambda value: _is_number(value) and value >= 0, "a number of at least 0"),
    "margin": _SHARE,
    "sandbox": _one_of("network", "no-network"),
    "keep_workspaces": _one_of("failed", "all", "none"),
    "reuse": _one_of("all", "check", "none"),
    "until": _one_of("decided", "k"),
    "undecided": _one_of("fail", "skip"),
    "fail_on": _one_of("regression", "not-better"),
    "strategy": _one_of("weighted", "statistical"),
    "progress": (callable, "a function that takes an assay.Progress"),
    "treatment": (
        lambda value: isinstance(value, Mapping),
        'a dict, as in treatment={"skill": "skills/relnotes"}',
    ),
}
_MAY_BE_NONE = frozenset(
    {"k", "limit", "max_turns", "memory_bytes", "model", "max_cost", "mcp", "cwd", "workspace_dir"}
    | {
        "workspace_template",
        "raw_dir",
        "benchmark",
        "fail_on",
        "cluster",
        "progress",
        "treatment",
        "judge",
    }
)


def check_values(**values: Any) -> None:
    """Refuse a value that its argument may not have."""
    for name, value in values.items():
        fits, wanted = _CHECKS[name]
        if (value is None and name in _MAY_BE_NONE) or fits(value):
            continue
        if wanted == _TEXTS[1] and isinstance(value, str):
            msg = f"{name} is a list, also where there is one text"
            raise UsageError(msg, hint=f"give {name}=[{value!r}]")
        msg = f"{name} is {value!r}; give {wanted}"
        hint = ""
        if name == "env":
            msg = f"env is {value!r}; give a list of the names of variables"
            hint = 'put the value into os.environ, and give the name: env=["NAME"]'
        raise UsageError(msg, hint=hint)


def check_names(given: Iterable[str], known: Iterable[str], what: str) -> None:
    """Refuse an option that there is not."""
    known = list(known)
    for name in given:
        if name not in known:
            near = closest(name, known)
            meant = f"; did you mean {near}?" if near else ""
            msg = f"{what} has no option {name!r}{meant}"
            raise TypeError(msg)


def check_agent(agent: Any) -> None:
    """Refuse what is no agent."""
    if is_path(agent) or callable(agent) or (isinstance(agent, Mapping) and agent):
        return
    msg = f"agent is {agent!r}; give a name, a file, a dict or a function"
    hint = 'such as agent="claude", agent={"simple": "my-agent {}"} or agent=my_function'
    raise UsageError(msg, hint=hint)


def checked_graders(graders: Any) -> list[Any]:
    """Return the graders as a list; refuse a single one, and what is none."""
    if is_path(graders) or callable(graders):
        msg = "graders is a list, also where there is one grader"
        raise UsageError(msg, hint=f"give graders=[{graders!r}]")
    if not isinstance(graders, Iterable) or isinstance(graders, str | Mapping):
        msg = f"graders is {graders!r}; give a list"
        raise UsageError(msg, hint='such as graders=["contains"], or [] for none')
    found = list(graders)
    for number, grader in enumerate(found):
        if not is_path(grader) and not callable(grader):
            msg = f"graders[{number}] is {grader!r}; a grader is a name, a file or a function"
            hint = 'such as graders=["contains", "./grader.py", my_function]'
            if isinstance(grader, Grader):
                hint = f'give a plugin by its name and options, as in "{grader.name}:KEY=VALUE"'
            raise UsageError(msg, hint=hint)
    return found
