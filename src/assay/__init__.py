"""Assay evaluates any command-line agent, and says whether one set-up is better than another.

    import assay

    assay.run("prompts.jsonl", agent="claude", graders=["contains"], k=5).to("new.jsonl").collect()
    print(assay.compare("old.jsonl", "new.jsonl").sentence)

See docs/python.md. Importing the package loads nothing else: a name is found when it is first used.
"""

import sys

__version__ = "0.1.0"
_MODULES = {
    "assay.library.run": ("run", "Run"),
    "assay.library.async_run": ("arun", "AsyncRun"),
    "assay.library.worker": ("AssayWarning", "Progress"),
    "assay.library.trials": ("read", "Trials"),
    "assay.records.trial": ("Trial",),
    "assay.library.grading": ("grade",),
    "assay.library.verdict": ("compare", "PairVerdict", "Verdict"),
    "assay.library.ab": ("ab", "ExperimentVerdict"),
    "assay.records.capture": ("Grade",),
    "assay.errors": ("AssayError",),
}
"""Where the public names are."""
__all__ = [name for names in _MODULES.values() for name in names]
_Module = type(sys)


class _Name:
    """A public name. The rooms `run` and `compare` are modules of the same name as a function: once
    one of them is imported, it must not hide the function."""

    def __init__(self, module: str, name: str) -> None:
        self._module, self._name = module, name

    def __get__(self, package: object, owner: type | None = None) -> object:
        from importlib import import_module  # late: it would be half of the time of `import assay`

        if sys.platform == "win32":
            raise ImportError(import_module("assay.errors").WINDOWS)
        return getattr(import_module(self._module), self._name)

    def __set__(self, package: object, value: object) -> None:
        if not isinstance(value, _Module):
            msg = f"assay.{self._name} cannot be replaced; replace it in {self._module}"
            raise AttributeError(msg)


class _Package(_Module):
    def __dir__(self) -> list[str]:
        return [*__all__, "__version__"]


for _module, _names in _MODULES.items():
    for _name in _names:
        setattr(_Package, _name, _Name(_module, _name))
sys.modules[__name__].__class__ = _Package
