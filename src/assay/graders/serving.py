"""A grader that is a running program: one JSON object per line in, one per line out."""

from dataclasses import dataclass

import msgspec

from assay.errors import PluginError
from assay.graders.answer import parse_answer
from assay.graders.executable import ExecutableGrader, program, question
from assay.records.grade import Grade
from assay.seams import Host, Trial


@dataclass
class ServingGrader(ExecutableGrader):
    """Started once for each worker thread, again after a crash, and ended with the command."""

    def grade(self, trial: Trial, host: Host) -> Grade:
        """Ask the program that runs already."""
        served = host.serve(program(self.path))
        try:
            answer = served.ask(msgspec.json.encode(question(trial)), self.timeout_s)
        except PluginError as error:
            msg = f"Grader {error.message}"
            raise PluginError(msg) from error
        return parse_answer(answer)
