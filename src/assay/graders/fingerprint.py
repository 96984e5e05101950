"""A grader's version: two runs whose grades carry the same version were graded alike.

What a user wrote is known by its content. A built-in carries a version that is written down beside
its code, so that code may be moved and reworded, followed by a hash of its options.
"""

import dataclasses
import hashlib
from typing import Any

import msgspec

_NOT_IDENTITY = frozenset({"timeout_s"})
"""Options that change how long we wait; a grader that runs out of time gives no verdict at all."""
_SHORT = 8
"""Hex digits of a hash of options: enough to tell a user's few sets of options apart."""


def fingerprint(*parts: Any) -> str:
    """Hash bytes as they are and everything else as JSON."""
    digest = hashlib.sha256()
    for part in parts:
        said = part if isinstance(part, bytes) else msgspec.json.encode(part, order="deterministic")
        digest.update(len(said).to_bytes(8) + said)
    return digest.hexdigest()[:12]


def version_with(code_version: str, options: dict[str, Any]) -> str:
    """Give a built-in's version: "1", or with options "1-3f2a9c1b".

    There is no colon in it: `compare` and `calibrate` write one in front of a version.
    """
    return f"{code_version}-{fingerprint(options)[:_SHORT]}" if options else code_version


def changed_options(grader: Any) -> dict[str, Any]:
    """Give the options that differ from their defaults.

    Only these are hashed, so that a new option with a neutral default changes no version.
    """
    defaults = {
        field.name: field.default_factory()
        if field.default_factory is not dataclasses.MISSING
        else field.default
        for field in dataclasses.fields(grader)
    }
    return {name: said for name, said in options_of(grader).items() if said != defaults[name]}


def options_of(grader: Any) -> dict[str, Any]:
    """Give the options that decide what a grader says."""
    return {
        field.name: getattr(grader, field.name)
        for field in dataclasses.fields(grader)
        if field.name not in _NOT_IDENTITY
    }
