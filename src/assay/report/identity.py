"""An identity as a tree for people."""

from collections.abc import Iterator, Sequence

from assay.records.capture import Identity

_NAMES = {
    "assay": "recorded by Assay",
    "adapter": "agent",
    "program": "program",
    "loads": "loads",
    "packages": "packages",
    "model": "model",
    "agent": "arguments",
    "mcp": "MCP file",
    "mcp_files": "MCP servers load",
    "template": "workspace template",
    "offered": "can read",
    "isolation": "isolation",
    "env": "variables let through",
    "variables": "variables, by hash",
    "setup": "set-up of prompts",
    "limits": "limits",
    "graders": "graders",
    "not_covered": "not covered",
}
type _Branch = tuple[str, Sequence[str]]


def identity_tree(name: str, identity: Identity) -> Iterator[str]:
    """Yield the lines of a tree: what an arm is made of."""
    yield name
    branches = list(_branches(identity))
    for number, (label, leaves) in enumerate(branches):
        is_last = number == len(branches) - 1
        yield f"{'└' if is_last else '├'}─ {label}"
        for place, leaf in enumerate(leaves):
            mark = "└" if place == len(leaves) - 1 else "├"
            yield f"{' ' if is_last else '│'}  {mark}─ {leaf}"


def _branches(identity: Identity) -> Iterator[_Branch]:
    for field, label in _NAMES.items():
        value = getattr(identity, field)
        if isinstance(value, dict) and value:
            width = max(map(len, value))
            yield label, [f"{key.ljust(width)}  {_shown(one)}" for key, one in value.items()]
        elif isinstance(value, tuple) and value:
            yield label, value
        elif value:
            yield f"{label}: {value}", ()
    if identity.is_old:
        yield "not recorded: loads, packages, variables (an earlier version of Assay wrote it)", ()


def _shown(value: object) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)
