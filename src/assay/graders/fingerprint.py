"""A grader's version: what it is made of, as one short hash."""

import dataclasses
import hashlib
import sys
from pathlib import Path
from typing import Any

import msgspec

NOT_IDENTITY = frozenset({"timeout_s"})
"""Options that change how long we wait, not what is said."""


def fingerprint(*parts: Any) -> str:
    """Hash bytes as they are and everything else as JSON."""
    digest = hashlib.sha256()
    for part in parts:
        said = part if isinstance(part, bytes) else msgspec.json.encode(part, order="deterministic")
        digest.update(len(said).to_bytes(8) + said)
    return digest.hexdigest()[:12]


def built_in_version(grader: Any) -> str:
    """Hash a built-in's own source file and its options."""
    source = sys.modules[type(grader).__module__].__file__
    code = Path(source).read_bytes() if source else b""
    return fingerprint(code, options_of(grader))


def options_of(grader: Any) -> dict[str, Any]:
    """Give the options that decide what a grader says."""
    return {
        field.name: getattr(grader, field.name)
        for field in dataclasses.fields(grader)
        if field.name not in NOT_IDENTITY
    }
