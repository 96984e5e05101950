"""The testing kit for plugin authors: checks of plugins, recordings, and a scripted model.

`assay.testing.model` has the scripted model (docs/mock-model.md); the rest is imported from here.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from assay.testing.conformance import Conformity, check, load_recording, write_expected
    from assay.testing.plugins import check_adapter, check_benchmark, check_executor, check_grader

__all__ = [
    "Conformity",
    "check",
    "check_adapter",
    "check_benchmark",
    "check_executor",
    "check_grader",
    "load_recording",
    "write_expected",
]
_IN_CONFORMANCE = ("Conformity", "check", "load_recording", "write_expected")


def __getattr__(name: str) -> Any:
    # Late: the scripted model starts without the checks, which load most of Assay.
    if name not in __all__:
        msg = f"module {__name__!r} has no attribute {name!r}"
        raise AttributeError(msg)
    module = "conformance" if name in _IN_CONFORMANCE else "plugins"
    return getattr(import_module(f"{__name__}.{module}"), name)
