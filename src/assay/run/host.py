"""What plugins ask of this machine (see plugin.Machine)."""

from pathlib import Path

from assay.run.confinement import run_confined
from assay.run.program import StartedProgram, run_program
from assay.run.served import serve_function, serve_program
from assay.run.snapshot import is_unchanged


class LocalHost:
    """The machine that this process runs on."""

    run = staticmethod(run_program)
    run_confined = staticmethod(run_confined)
    serve = staticmethod(serve_program)
    serve_function = staticmethod(serve_function)
    start = StartedProgram
    is_unchanged = staticmethod(is_unchanged)

    def keep_file(self, path: Path) -> None:
        """Outside a trial there is nowhere to keep it."""
