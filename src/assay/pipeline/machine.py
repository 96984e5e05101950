"""This machine, for a plugin's command that needs programs run outside a trial."""

from assay.plugin import Machine
from assay.run.host import LocalHost


def local_machine() -> Machine:
    """Give a Machine as `assay.plugin` has it; inside a trial, worlds and graders are given one."""
    return LocalHost()
