"""Modules of ours that need packages of an extra."""

from importlib import import_module
from types import ModuleType

from assay.errors import PluginError


def signing() -> ModuleType:
    """Return the module that signs and verifies with keys."""
    return of_extra("assay.export.signing", "evidence")


def of_extra(name: str, extra: str) -> ModuleType:
    """Load a module; the error names the extra that it needs."""
    try:
        return import_module(name)
    except ImportError as error:
        msg = f"this needs {error.name}"
        raise PluginError(msg, hint=f"in a checkout of Assay: pip install '.[{extra}]'") from error
