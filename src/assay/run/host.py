"""What plugins ask of this machine (see plugin.Machine)."""

from pathlib import Path

from assay.plugin import ConfinedProgram, Finished
from assay.run.confinement import run_confined
from assay.run.images import build_image
from assay.run.program import StartedProgram, run_program
from assay.run.served import serve_function, serve_program
from assay.run.snapshot import is_unchanged


class LocalHost:
    """The machine that this process runs on."""

    run = staticmethod(run_program)
    build_image = staticmethod(build_image)
    serve = staticmethod(serve_program)
    serve_function = staticmethod(serve_function)
    start = StartedProgram
    is_unchanged = staticmethod(is_unchanged)

    def run_confined(self, program: ConfinedProgram) -> Finished:
        """Run a program to its end where an agent with its surroundings would be confined."""
        return run_confined(program)

    def keep_file(self, path: Path) -> None:
        """Outside a trial there is nowhere to keep it."""
