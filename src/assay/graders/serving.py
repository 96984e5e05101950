"""A grader that is a running program: one JSON object per line in, one per line out."""

from dataclasses import dataclass

import msgspec

from assay.graders.answer import ask_served, parse_answer
from assay.graders.executable import ExecutableGrader, program, question
from assay.records.grade import Grade
from assay.seams import Host, Trial


@dataclass
class ServingGrader(ExecutableGrader):
    """Started once for each worker thread, again after a crash, and ended with the command."""

    def grade(self, trial: Trial, host: Host) -> Grade:
        """Ask the program that runs already."""
        served = host.serve(program(self.path))
        asked = msgspec.json.encode(question(trial))
        return parse_answer(ask_served(served, asked, self.timeout_s))
