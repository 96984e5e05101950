"""Replaces one function of Assay by one that returns None, in every Python that is started.

The function is named in ASSAY_PROVE, as module:function or module:Class.method. See
scripts/seed_coverage.py --prove, which puts this folder on PYTHONPATH.
"""

import os
import sys
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from typing import Any

MODULE, _, FUNCTION = os.environ.get("ASSAY_PROVE", "").partition(":")


class Replacing(MetaPathFinder):
    """Finds the module as usual, and changes it as soon as it has been executed."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        spec = PathFinder.find_spec(name, path, target) if name == MODULE else None
        if spec is None or spec.loader is None:
            return None
        execute = spec.loader.exec_module

        def exec_module(module: Any) -> None:
            execute(module)
            replace(module)

        spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec


def replace(module: Any) -> None:
    *owners, name = FUNCTION.split(".")
    for owner in owners:
        module = getattr(module, owner)
    getattr(module, name)  # an error if there is none
    setattr(module, name, lambda *_, **__: None)


if MODULE:
    sys.meta_path.insert(0, Replacing())
