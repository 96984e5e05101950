"""Every exception the package raises, in one tree.

AssayError               something the operator can act on               exit 1
|- InputError            a file, a row or a value cannot be used         exit 1
|  `- CannotRunError     tasks of a benchmark cannot be run here         exit 1
|- OutputError           a result cannot be written                      exit 1
|- PluginError           a plugin is unknown, broken or invalid          exit 1
|- SpawnError            a program cannot be started                    exit 1
|- OutOfResources        disk, memory or open files ran out              exit 1
|- ClusterGone           the machines that were to do the work are gone  exit 1
|- UsageError            the command line is wrong                       exit 2
|  `- RequestError       what is asked for does not fit together         exit 2
|- NotJudged             a gate cannot be judged                         exit 4
`- Interrupted           Ctrl-C or SIGTERM, with everything saved        exit 130
"""

from collections.abc import Mapping
from typing import ClassVar

WINDOWS = (
    "Assay needs Linux, macOS or another POSIX system, so on Windows install it in WSL "
    "(wsl --install)."
)


class AssayError(Exception):
    """Base of all errors meant for a person: what is wrong, where, and what to do next."""

    exit_code: ClassVar[int] = 1

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        if hint:  # a traceback in a script or a notebook shows it, too
            self.add_note(f"  {hint}")


class InputError(AssayError):
    """A file, a row or a value cannot be used; the message names the place."""


class CannotRunError(InputError):
    """Tasks of a benchmark cannot be run here."""

    def __init__(self, message: str, *, why: Mapping[str, str], hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.why = why
        """By the id of the prompt."""


class MissingPackage(InputError, ImportError):
    """A package is not there that only some commands need, as numpy in assay.pyz."""


class OutputError(AssayError):
    """A result cannot be written; what was written before is intact."""


class PluginError(AssayError):
    """A plugin is unknown, broken or of the wrong kind."""


class SpawnError(AssayError):
    """A program cannot be started; inside a trial it becomes a recorded failure."""


class OutOfResources(AssayError):
    """The machine ran out of disk, memory or open files; never a failure of a single trial."""


class ClusterGone(AssayError):
    """The other machines cannot be reached any more; never a failure of a single trial."""


class UsageError(AssayError):
    """The command line itself is wrong."""

    exit_code: ClassVar[int] = 2


class RequestError(UsageError):
    """What a run is asked for does not fit together, such as an output that is also an input."""


class NotJudged(AssayError):
    """A gate cannot be judged: what it would compare is not alike, or not enough."""

    exit_code: ClassVar[int] = 4


class Interrupted(AssayError):
    """The operator ended the run; finished work is on disk."""

    exit_code: ClassVar[int] = 130
