"""Errors and warnings in the words of Python: arguments in place of the options of commands."""

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Literal

from assay.errors import AssayError

type _Kind = Literal["text", "list", "number", "flag", "agent", "words"]
"""How an argument is written with the value of its option; one of "words" has no value."""


def _same_names(kind: _Kind, names: str) -> dict[str, tuple[_Kind, str]]:
    """Return options that are called as their arguments."""
    return {f"--{name.replace('_', '-')}": (kind, name) for name in names.split()}


_ARGUMENTS: dict[str, tuple[_Kind, str]] = {
    **_same_names("text", "model mcp cwd workspace_dir workspace_template raw_dir container"),
    **_same_names("text", "sandbox keep_workspaces benchmark until cluster strategy judge"),
    **_same_names("list", "env rerun"),
    **_same_names("number", "max_turns retries max_cost cpus limit effect margin seed"),
    **_same_names("flag", "isolate keep_failed keep_unsigned regrade overlap"),
    **_same_names("flag", "share_home strict fresh confirm"),
    "-s": ("text", "agent"), "-c": ("text", "cwd"), "--by": ("text", "category_key"),
    "-g": ("list", "graders"),
    "--filter": ("list", "filters"), "--agent-arg": ("list", "agent_args"),
    "-k": ("number", "k"), "-j": ("number", "jobs"), "--concurrency": ("number", "jobs"),
    "--timeout": ("number", "timeout_s"), "--trial-timeout": ("number", "trial_timeout_s"),
    "--stall-timeout": ("number", "stall_s"), "--grader-timeout": ("number", "grader_timeout_s"),
    "--rate": ("number", "rate_per_s"), "--memory": ("number", "memory_bytes"),
    "--longest-wait": ("number", "longest_wait_s"),
    "--simple": ("agent", "simple"), "--shell": ("agent", "shell"),
    "-o": ("words", ".to(FILE)"), "--resume": ("words", ".to(FILE)"),
    "--overwrite": ("words", ".to(FILE, overwrite=True)"), "--with": ("words", "the treatment"),
}  # fmt: skip
OF_EXPERIMENTS = {"-o": "output", "--resume": "the same call"}
"""What stands for an option in an experiment, which has no .to(FILE)."""
_VALUES: dict[_Kind, str] = {
    **dict.fromkeys(
        ("text", "list", "agent"),
        # In quotes; a placeholder; with a sign in it; or one of the words that options have.
        r"""'[^']*'|"[^"]*"|[A-Z]+(?![a-z])|[\w./-]*[:/=][^\s,;)]*(?:,[^\s,;)]+)*"""
        r"|(?:no-network|all|none|failed|decided|git)\b",
    ),
    "number": r"[\d.]*\d|N\b",
}
_OPTION = re.compile(
    "|".join(
        rf"(?<![\w'\"\[-])(?<!install )(?<!code of )(?:{re.escape(option)})(?![\w-])"
        rf"(?:[ =](?:{_VALUES.get(kind, '(?!)')}))?"
        for option, (kind, _) in _ARGUMENTS.items()
    )
)


def in_python(text: str, instead: Mapping[str, str] = {}) -> str:
    """Return a text with arguments of Python in place of the options of commands.

    What stands in backticks or quotes is left as it is: it is a command line, or an agent's words.
    """
    parts = text.split("`")
    parts[::2] = [_OPTION.sub(lambda found: _argument(found[0], instead), p) for p in parts[::2]]
    return "`".join(parts)


def _argument(found: str, instead: Mapping[str, str]) -> str:
    option, _, value = found.partition("=" if found.startswith("--sandbox=") else " ")
    if option in instead:
        return instead[option]
    kind, name = _ARGUMENTS[option]
    text = f'"{value.strip("'\"")}"' if value else "…"
    match kind:
        case "agent":
            return f'agent={{"{name}": {text}}}'
        case "flag":
            return f"{name}=True"
        case "list" if value:
            return f"{name}=[{text}]"
        case "text" if value:
            return f"{name}={text}"
        case "number" if value:
            return f"{name}={value}"
    return name


@contextmanager
def errors_in_python(instead: Mapping[str, str] = {}) -> Iterator[None]:
    """Let errors speak of the arguments of Python."""
    try:
        yield
    except AssayError as error:
        message, hint = in_python(error.message, instead), in_python(error.hint, instead)
        if (message, hint) == (error.message, error.hint):
            raise
        raise type(error)(message, hint=hint) from error.__cause__
